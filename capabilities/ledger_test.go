package capabilities_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"aduana/capabilities"

	"pgregory.net/rapid"
)

// world is a ledger written down: what is served, and one line per finding.
type world struct {
	served   map[string]string // canonical → exposed
	findings []string
}

func describe(l *capabilities.Ledger, things []capabilities.Listed) world {
	w := world{served: map[string]string{}}
	for _, t := range things {
		if name, ok := l.Exposed(t.Identity); ok {
			w.served[t.Identity.Canonical()] = string(name)
		}
	}
	for _, f := range l.Findings() {
		w.findings = append(w.findings, f.String())
	}
	return w
}

func newcomers(ids ...capabilities.Identity) []capabilities.Listed {
	var out []capabilities.Listed
	for _, id := range ids {
		out = append(out, capabilities.Listed{Identity: id})
	}
	return out
}

func accepted(ids ...capabilities.Identity) []capabilities.Listed {
	out := newcomers(ids...)
	for i := range out {
		out[i].Accepted = true
	}
	return out
}

// Two real names of one upstream whose 30 bits of SHA-256 agree, with a common head; found by counting, outside of Go.
const (
	collide1 = "quarterly-report-of-the-northern-office/19759"
	collide2 = "quarterly-report-of-the-northern-office/25906"
	collided = "crm__quarterly-report-of-the-northern-off---j6e2e2"
)

// TestLedger has the acceptance cases of names with every expected value written by hand.
func TestLedger(t *testing.T) {
	prompt := func(upstream, name string) capabilities.Identity {
		return capabilities.Identity{Kind: capabilities.Prompt, Upstream: capabilities.UpstreamID(upstream), Name: name}
	}
	long := strings.Repeat("n", 64)
	tests := []struct {
		name     string
		things   []capabilities.Listed
		options  capabilities.LedgerOptions
		served   map[string]string
		findings []string
	}{
		{name: "nothing", served: map[string]string{}},
		{
			name:   "TS-1: dot and underscore live under two names",
			things: newcomers(tool("srv", "foo.bar"), tool("srv", "foo_bar")),
			served: map[string]string{"mcp:srv:foo.bar": "srv__foo--bar", "mcp:srv:foo_bar": "srv__foo_bar"},
		},
		{
			name:   "TS-2: ids that a sanitiser would merge are no ids",
			things: newcomers(tool("a.b", "x"), tool("a_b", "x"), tool("a-b", "x")),
			served: map[string]string{"mcp:a-b:x": "a-b__x"},
			findings: []string{"withheld mcp:a.b:x: invalid_name (no valid upstream id)",
				"withheld mcp:a_b:x: invalid_name (no valid upstream id)"},
		},
		{
			name:   "TS-2b, C01: the boundary is never guessed",
			things: newcomers(tool("foo", "bar_baz"), tool("foo-bar", "baz"), tool("foo", "bar__baz"), tool("foo-", "bar__baz")),
			served: map[string]string{"mcp:foo:bar_baz": "foo__bar_baz", "mcp:foo-bar:baz": "foo-bar__baz",
				"mcp:foo:bar__baz": "foo__bar__baz", "mcp:foo-:bar__baz": "foo-__bar__baz"},
		},
		{
			name: "TS-8: near collisions all survive",
			things: newcomers(tool("s", "a.b"), tool("s", "a-b"), tool("s", "a_b"), tool("s", "ab"), tool("s", "a__b"), tool("t", "a.b"),
				tool("s", "a.b.c"), tool("s", "a-b.c")),
			served: map[string]string{"mcp:s:a.b": "s__a--b", "mcp:s:a-b": "s__a-b", "mcp:s:a_b": "s__a_b", "mcp:s:ab": "s__ab",
				"mcp:s:a__b": "s__a__b", "mcp:t:a.b": "t__a--b", "mcp:s:a.b.c": "s__a--b--c", "mcp:s:a-b.c": "s__a-b--c"},
		},
		{
			name:   "TS-9: the gateway's own tools are entered like all others",
			things: newcomers(tool("aduana", "search"), tool("crm", "search"), tool("crm", "aduana__search")),
			served: map[string]string{"mcp:aduana:search": "aduana__search", "mcp:crm:search": "crm__search",
				"mcp:crm:aduana__search": "crm__aduana__search"},
		},
		{
			name:   "TS-9: a third party that lists itself as one of them is a duplicate",
			things: newcomers(tool("aduana", "search"), tool("aduana", "search")),
			served: map[string]string{},
			findings: []string{
				"withheld mcp:aduana:search: duplicate_name with mcp:aduana:search (listed 2 times)"},
		},
		{
			name:   "kinds have names of their own",
			things: newcomers(tool("s", "a"), prompt("s", "a"), prompt("s", "A")),
			served: map[string]string{"mcp:s:a": "s__a"},
			findings: []string{"withheld mcp-prompt:s:A: similar_name with mcp-prompt:s:a (the names differ only by letter case)",
				"withheld mcp-prompt:s:a: similar_name with mcp-prompt:s:A (the names differ only by letter case)"},
		},
		{
			name:   "C03: four spellings, the approval covers one",
			things: append(accepted(tool("s", "stock_query")), newcomers(tool("s", "stock.query"), tool("s", "stock/query"), tool("s", "Stock_Query"))...),
			served: map[string]string{"mcp:s:stock_query": "s__stock_query", "mcp:s:stock.query": "s__stock--query",
				"mcp:s:stock%2Fquery": "s__stock-query---lirwsb"},
			findings: []string{"withheld mcp:s:Stock_Query: similar_name with mcp:s:stock_query (the names differ only by letter case)"},
		},
		{
			name:   "C03: no approval, both case peers go",
			things: newcomers(tool("s", "stock_query"), tool("s", "Stock_Query")),
			served: map[string]string{},
			findings: []string{"withheld mcp:s:Stock_Query: similar_name with mcp:s:stock_query (the names differ only by letter case)",
				"withheld mcp:s:stock_query: similar_name with mcp:s:Stock_Query (the names differ only by letter case)"},
		},
		{
			name:   "C03: case peers both accepted both go",
			things: accepted(tool("s", "stock_query"), tool("s", "Stock_Query")),
			served: map[string]string{},
			findings: []string{"withheld mcp:s:Stock_Query: similar_name with mcp:s:stock_query (the names differ only by letter case)",
				"withheld mcp:s:stock_query: similar_name with mcp:s:Stock_Query (the names differ only by letter case)"},
		},
		{
			name:    "similar: warn serves both and tells",
			things:  newcomers(tool("s", "stock_query"), tool("s", "Stock_Query")),
			options: capabilities.LedgerOptions{WarnCase: true},
			served:  map[string]string{"mcp:s:stock_query": "s__stock_query", "mcp:s:Stock_Query": "s__Stock_Query"},
			findings: []string{"served all the same mcp:s:Stock_Query: similar_name with mcp:s:stock_query (the names differ only by letter case)",
				"served all the same mcp:s:stock_query: similar_name with mcp:s:Stock_Query (the names differ only by letter case)"},
		},
		{
			name:   "case peers of two upstreams are strangers",
			things: newcomers(tool("s", "stock_query"), tool("t", "Stock_Query")),
			served: map[string]string{"mcp:s:stock_query": "s__stock_query", "mcp:t:Stock_Query": "t__Stock_Query"},
		},
		{
			name:   "folding reaches beyond ASCII",
			things: newcomers(tool("s", "\u03c3um"), tool("s", "\u03c2um"), tool("s", "stra\u00dfe"), tool("s", "stra\u1e9ee"), tool("s", "sum"), tool("s", "\u017fum")),
			served: map[string]string{},
			findings: []string{
				"withheld mcp:s:stra\u00dfe: similar_name with mcp:s:stra\u1e9ee (the names differ only by letter case)",
				"withheld mcp:s:stra\u1e9ee: similar_name with mcp:s:stra\u00dfe (the names differ only by letter case)",
				"withheld mcp:s:sum: similar_name with mcp:s:\u017fum (the names differ only by letter case)",
				"withheld mcp:s:\u017fum: similar_name with mcp:s:sum (the names differ only by letter case)",
				"withheld mcp:s:\u03c2um: similar_name with mcp:s:\u03c3um (the names differ only by letter case)",
				"withheld mcp:s:\u03c3um: similar_name with mcp:s:\u03c2um (the names differ only by letter case)"},
		},
		{
			name:   "a name twice goes as a whole, accepted or not",
			things: append(accepted(tool("s", "dup"), tool("s", "ok")), newcomers(tool("s", "dup"), tool("s", "dup"))...),
			served: map[string]string{"mcp:s:ok": "s__ok"},
			findings: []string{
				"withheld mcp:s:dup: duplicate_name with mcp:s:dup (listed 3 times)"},
		},
		{
			name:   "a true collision of 30 bits withholds both",
			things: newcomers(tool("crm", collide1), tool("crm", collide2), tool("crm", "ok")),
			served: map[string]string{"mcp:crm:ok": "crm__ok"},
			findings: []string{
				"withheld mcp:crm:quarterly-report-of-the-northern-office%2F19759: name_collision with " +
					"mcp:crm:quarterly-report-of-the-northern-office%2F25906 (both would be \"" + collided + "\")",
				"withheld mcp:crm:quarterly-report-of-the-northern-office%2F25906: name_collision with " +
					"mcp:crm:quarterly-report-of-the-northern-office%2F19759 (both would be \"" + collided + "\")"},
		},
		{
			name:    "a true collision is not relaxed by similar: warn",
			things:  newcomers(tool("crm", collide1), tool("crm", collide2)),
			options: capabilities.LedgerOptions{WarnCase: true},
			served:  map[string]string{},
			findings: []string{
				"withheld mcp:crm:quarterly-report-of-the-northern-office%2F19759: name_collision with " +
					"mcp:crm:quarterly-report-of-the-northern-office%2F25906 (both would be \"" + collided + "\")",
				"withheld mcp:crm:quarterly-report-of-the-northern-office%2F25906: name_collision with " +
					"mcp:crm:quarterly-report-of-the-northern-office%2F19759 (both would be \"" + collided + "\")"},
		},
		{
			name:   "a newcomer made to collide does not take the accepted one away",
			things: append(newcomers(tool("crm", collide1)), accepted(tool("crm", collide2))...),
			served: map[string]string{"mcp:crm:quarterly-report-of-the-northern-office%2F25906": collided},
			findings: []string{
				"withheld mcp:crm:quarterly-report-of-the-northern-office%2F19759: name_collision with " +
					"mcp:crm:quarterly-report-of-the-northern-office%2F25906 (both would be \"" + collided + "\")"},
		},
		{
			name: "C02: names that differ only at their end",
			things: newcomers(tool("regional-billing-eu-central-prod", "export_invoices_as_csv"),
				tool("regional-billing-eu-central-prod", "export_invoices_as_csv_with_tax"), tool("crm", long), tool("crm", long+"n")),
			served: map[string]string{
				"mcp:regional-billing-eu-central-prod:export_invoices_as_csv":          "regional-billing-eu-central-prod__export_---4flnqj",
				"mcp:regional-billing-eu-central-prod:export_invoices_as_csv_with_tax": "regional-billing-eu-central-prod__export_---dxwlsc",
				"mcp:crm:" + long:       "crm__" + strings.Repeat("n", 36) + "---c6zbh4",
				"mcp:crm:" + long + "n": "crm__" + strings.Repeat("n", 36) + "---z2rz3y",
			},
		},
		{
			name:    "the limit of the policy holds",
			things:  newcomers(tool("crm", long[:59])),
			options: capabilities.LedgerOptions{MaxLength: 64},
			served:  map[string]string{"mcp:crm:" + long[:59]: "crm__" + long[:59]},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := describe(capabilities.NewLedger(tt.things, tt.options), tt.things)
			for id, name := range tt.served {
				if got.served[id] != name {
					t.Errorf("%s is %q, want %q", id, got.served[id], name)
				}
			}
			if len(got.served) != len(tt.served) {
				t.Errorf("served %v", got.served)
			}
			if !slices.Equal(got.findings, tt.findings) {
				t.Errorf("findings\n%s\nwant\n%s", strings.Join(got.findings, "\n"), strings.Join(tt.findings, "\n"))
			}
		})
	}
}

// TestHouseOfNames is the acceptance list of one upstream with everything that goes wrong.
func TestHouseOfNames(t *testing.T) {
	common := strings.Repeat("c", 69)
	things := newcomers(tool("u", "foo.bar"), tool("u", "foo_bar"), tool("u", "foo--bar"), tool("u", "foo/bar"), tool("u", "Foo_Bar"),
		tool("u", common+"1"), tool("u", common+"2"), tool("u", "dup"), tool("u", "dup"), tool("foo", "bar_baz"), tool("foo-bar", "baz"))
	l := capabilities.NewLedger(things, capabilities.LedgerOptions{})
	served := map[string]capabilities.Identity{
		"u__foo--bar":                     tool("u", "foo.bar"),
		"u__foo-bar---iu3elc":             tool("u", "foo--bar"),
		"u__foo-bar---timbww":             tool("u", "foo/bar"),
		"u__" + common[:38] + "---hahxzp": tool("u", common+"1"),
		"u__" + common[:38] + "---xuel6v": tool("u", common+"2"),
		"foo__bar_baz":                    tool("foo", "bar_baz"),
		"foo-bar__baz":                    tool("foo-bar", "baz"),
	}
	for name, want := range served {
		if id, ok := l.Resolve(capabilities.Tool, capabilities.ExposedName(name)); !ok || id != want {
			t.Errorf("%q reaches %v, %v; want %v", name, id, ok, want)
		}
		if id, ok := l.ResolveVerbatim(capabilities.Tool, want.Upstream, want.Name); !ok || id != want {
			t.Errorf("%q of %s reaches %v, %v", want.Name, want.Upstream, id, ok)
		}
	}
	// Withheld or unknown: by either name, nothing is reached.
	for _, name := range []string{"u__foo_bar", "u__Foo_Bar", "u__FOO_BAR", "u__dup", "u__foo__bar", "foo__bar__baz", "foo_bar_baz", "foo", "", "u__",
		"u__foo.bar", "u__foo/bar", " u__foo--bar", "U__foo--bar", "mcp:u:foo.bar"} {
		if id, ok := l.Resolve(capabilities.Tool, capabilities.ExposedName(name)); ok {
			t.Errorf("%q reaches %v", name, id)
		}
	}
	if id, ok := l.Resolve(capabilities.Prompt, "u__foo--bar"); ok {
		t.Errorf("a tool's name reaches the prompt %v", id)
	}
	for _, name := range []string{"foo_bar", "Foo_Bar", "dup", "u__foo--bar", ""} {
		if id, ok := l.ResolveVerbatim(capabilities.Tool, "u", name); ok {
			t.Errorf("%q of u reaches %v", name, id)
		}
	}
	if _, ok := l.ResolveVerbatim(capabilities.Tool, "foo", "foo__bar_baz"); ok {
		t.Error("an upstream's endpoint takes an exposed name")
	}
	got := map[string]string{}
	for _, f := range l.Findings() {
		got[f.Identity.Canonical()] = string(f.Reason)
	}
	want := map[string]string{"mcp:u:foo_bar": "similar_name", "mcp:u:Foo_Bar": "similar_name", "mcp:u:dup": "duplicate_name"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("findings %v, want %v", got, want)
	}
}

// TestRenameAndReturn is TS-3 and TS-4: a ledger is made anew of what is there, and remembers nothing.
func TestRenameAndReturn(t *testing.T) {
	things := accepted(tool("old", "pay"), tool("crm", "get"))
	before := capabilities.NewLedger(things, capabilities.LedgerOptions{})
	renamed := capabilities.NewLedger(accepted(tool("new", "pay"), tool("crm", "get")), capabilities.LedgerOptions{})
	if _, ok := renamed.Resolve(capabilities.Tool, "old__pay"); ok {
		t.Error("the old name still reaches something")
	}
	if id, ok := renamed.Resolve(capabilities.Tool, "new__pay"); !ok || id == tool("old", "pay") {
		t.Errorf("the new name reaches %v, %v", id, ok)
	}
	removed := capabilities.NewLedger(accepted(tool("crm", "get")), capabilities.LedgerOptions{})
	if _, ok := removed.Exposed(tool("old", "pay")); ok {
		t.Error("a removed tool has a name")
	}
	again := capabilities.NewLedger(things, capabilities.LedgerOptions{})
	for _, l := range []*capabilities.Ledger{before, renamed, removed, again} {
		if id, ok := l.Resolve(capabilities.Tool, "crm__get"); !ok || id != tool("crm", "get") {
			t.Errorf("the bystander became %v, %v", id, ok)
		}
	}
	// AL-8: what the caller does to its slice afterwards does not reach the ledger.
	things[0].Identity.Name = "steal"
	if id, ok := before.Resolve(capabilities.Tool, "old__pay"); !ok || id != tool("old", "pay") {
		t.Errorf("the ledger shares memory with its input: %v, %v", id, ok)
	}
}

// TestNameProblems is X03 and its kin: what cannot be seen or typed the same way twice is withheld; what merely looks alike gets an
// ASCII name of its own.
func TestNameProblems(t *testing.T) {
	const served = ""
	tests := []struct{ name, tool, says string }{
		{"plain", "transfer", served},
		{"Cyrillic letter", "tr\u0430nsfer", served},
		{"fullwidth letter", "tr\uff41nsfer", served},
		{"blank", "get contact", served},
		{"slash and colon", "a/b:c", served},
		{"NFC", "caf\u00e9", served},
		{"emoji", "\U0001f680", served},
		{"combining mark without a composed form", "x\u0301", served},
		{"128 bytes", strings.Repeat("n", 128), served},
		{"empty", "", "empty name"},
		{"129 bytes", strings.Repeat("n", 129), "129 bytes"},
		{"NFD", "cafe\u0301", "normal form C"},
		{"Kelvin sign", "\u212aelvin", "normal form C"},
		{"right-to-left override", "tr\u202eansfer", "U+202E"},
		{"isolate", "tr\u2066ansfer", "U+2066"},
		{"zero width space", "tr\u200bansfer", "U+200B"},
		{"zero width joiner", "tr\u200dansfer", "U+200D"},
		{"byte order mark", "\ufefftransfer", "U+FEFF"},
		{"word joiner", "tr\u2060ansfer", "U+2060"},
		{"soft hyphen", "tr\u00adansfer", "U+00AD"},
		{"tag characters", "transfer\U000e0061", "U+E0061"},
		{"variation selector", "transfer\ufe0f", "U+FE0F"},
		{"variation selector supplement", "transfer\U000e0100", "U+E0100"},
		{"Hangul filler", "transfer\u3164", "U+3164"},
		{"combining grapheme joiner", "transfer\u034f", "U+034F"},
		{"Mongolian vowel separator", "transfer\u180e", "U+180E"},
		{"no-break space", "get\u00a0contact", "U+00A0"},
		{"ideographic space", "get\u3000contact", "U+3000"},
		{"line separator", "get\u2028contact", "U+2028"},
		{"newline", "get\ncontact", "U+000A"},
		{"escape", "get\x1b[31m", "U+001B"},
		{"NUL", "get\x00", "U+0000"},
		{"delete", "get\x7f", "U+007F"},
		{"C1 control", "get\u0085", "U+0085"},
		{"private use", "get\ue000", "U+E000"},
		{"unassigned", "get\u0378", "U+0378"},
		{"noncharacter", "get\ufffe", "U+FFFE"},
		{"invalid UTF-8", "get\xff", "not UTF-8"},
		{"surrogate in UTF-8", "get\xed\xa0\x80", "not UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bystander := tool("s", "transfers")
			id := tool("s", tt.tool)
			l := capabilities.NewLedger(newcomers(id, bystander), capabilities.LedgerOptions{})
			name, ok := l.Exposed(id)
			if _, there := l.Exposed(bystander); !there {
				t.Error("the bystander is gone")
			}
			if tt.says == served {
				if !ok || !published.MatchString(string(name)) || len(l.Findings()) != 0 {
					t.Fatalf("exposed as %q, %v; findings %v", name, ok, l.Findings())
				}
				return
			}
			if ok || len(l.Findings()) != 1 {
				t.Fatalf("exposed as %q, %v; findings %v", name, ok, l.Findings())
			}
			f := l.Findings()[0]
			if f.Identity != id || f.Reason != capabilities.InvalidName || !strings.Contains(f.Detail, tt.says) {
				t.Errorf("finding %+v does not say %q", f, tt.says)
			}
		})
	}
	t.Run("no kind", func(t *testing.T) {
		l := capabilities.NewLedger(newcomers(capabilities.Identity{Upstream: "s", Name: "a"}), capabilities.LedgerOptions{})
		if len(l.Findings()) != 1 || l.Findings()[0].Detail != "no kind" {
			t.Errorf("findings %v", l.Findings())
		}
	})
	t.Run("a resource may be longer", func(t *testing.T) {
		id := capabilities.Identity{Kind: capabilities.Resource, Upstream: "s", Name: "s://" + strings.Repeat("n", 400)}
		if _, ok := capabilities.NewLedger(newcomers(id), capabilities.LedgerOptions{}).Exposed(id); !ok {
			t.Error("withheld")
		}
	})
}

// TestManySpellings: what a hostile upstream lists costs memory in proportion to the list, not to its square.
func TestManySpellings(t *testing.T) {
	var things []capabilities.Listed
	for i := range 1 << 11 {
		name := []byte("transferfunds_now")
		for bit := range 11 {
			if i>>bit&1 == 1 {
				name[bit] -= 'a' - 'A'
			}
		}
		things = append(things, capabilities.Listed{Identity: tool("s", string(name)), Accepted: i == 0})
	}
	l := capabilities.NewLedger(things, capabilities.LedgerOptions{})
	if name, ok := l.Exposed(tool("s", "transferfunds_now")); !ok || name != "s__transferfunds_now" {
		t.Errorf("the accepted one became %q, %v", name, ok)
	}
	peers := 0
	for _, f := range l.Findings() {
		if len(f.Peers) == 0 || len(f.Peers) > 16 {
			t.Fatalf("%s has %d peers", f.Identity, len(f.Peers))
		}
		peers += len(f.Peers)
	}
	if most := len(things) * 16; peers > most {
		t.Errorf("%d peers are kept, more than %d", peers, most)
	}
}

func TestZeroLedgerKnowsNothing(t *testing.T) {
	for _, l := range []*capabilities.Ledger{nil, {}, capabilities.NewLedger(nil, capabilities.LedgerOptions{})} {
		if _, ok := l.Resolve(capabilities.Tool, ""); ok {
			t.Error("resolves the empty name")
		}
		if _, ok := l.ResolveVerbatim(capabilities.Tool, "", ""); ok {
			t.Error("resolves the empty verbatim name")
		}
		if _, ok := l.Exposed(capabilities.Identity{}); ok {
			t.Error("knows the zero identity")
		}
		if len(l.Findings()) != 0 {
			t.Error("has findings")
		}
	}
}

// clashes says by plain means whether two things of a list would be confused: equal exposed names, or names of one upstream that
// strings.EqualFold takes for equal.
func clashes(a, b capabilities.Identity) bool {
	if a.Kind != b.Kind {
		return false
	}
	return capabilities.Expose(a, 50) == capabilities.Expose(b, 50) || a.Upstream == b.Upstream && strings.EqualFold(a.Name, b.Name)
}

func TestLedgerLaws(t *testing.T) {
	spelled := rapid.OneOf(rapid.StringOfN(rapid.SampledFrom([]rune("aAb._-/\u212a\u017fsS")), 1, 3, -1), names(),
		rapid.SampledFrom([]string{"", collide1, collide2, "cafe\u0301", "caf\u00e9", "x\u200b"}))
	listed := rapid.Custom(func(t *rapid.T) capabilities.Listed {
		return capabilities.Listed{Accepted: rapid.Bool().Draw(t, "accepted"), Identity: capabilities.Identity{
			Kind:     rapid.SampledFrom([]capabilities.Kind{capabilities.Tool, capabilities.Tool, capabilities.Tool, capabilities.Prompt}).Draw(t, "kind"),
			Upstream: rapid.SampledFrom([]capabilities.UpstreamID{"crm", "crm", "a", "a-b"}).Draw(t, "upstream"),
			Name:     spelled.Draw(t, "name")}}
	})
	rapid.Check(t, func(t *rapid.T) {
		things := rapid.SliceOfN(listed, 0, 14).Draw(t, "things")
		l := capabilities.NewLedger(things, capabilities.LedgerOptions{})
		findings := map[capabilities.Identity][]capabilities.Finding{}
		for _, f := range l.Findings() {
			findings[f.Identity] = append(findings[f.Identity], f)
		}
		count := map[capabilities.Identity]int{}
		for _, x := range things {
			count[x.Identity]++
		}
		holder := map[string]capabilities.Identity{}
		for _, x := range things {
			id := x.Identity
			name, served := l.Exposed(id)
			// Nothing is lost: served, or withheld with a reason; never both, never neither.
			if served == (len(findings[id]) > 0) {
				t.Fatalf("%s: served %v, findings %v", id, served, findings[id])
			}
			if served {
				// A bijection, whichever way one goes.
				if back, ok := l.Resolve(id.Kind, name); !ok || back != id {
					t.Fatalf("%s is %q, which is %v", id, name, back)
				}
				if back, ok := l.ResolveVerbatim(id.Kind, id.Upstream, id.Name); !ok || back != id {
					t.Fatalf("%s is not found by its own name", id)
				}
				k := fmt.Sprint(id.Kind, name)
				if other, taken := holder[k]; taken && other != id {
					t.Fatalf("%s and %s are both %q", id, other, name)
				}
				holder[k] = id
				if name != capabilities.Expose(id, 50) {
					t.Fatalf("%s is %q, which depends on what else is listed", id, name)
				}
			}
			for _, f := range findings[id] {
				for _, p := range f.Peers {
					if count[p] == 0 {
						t.Fatalf("%s: the peer was never listed", f)
					}
					if p.Upstream != id.Upstream {
						t.Fatalf("%s: two upstreams collide", f)
					}
				}
				if (f.Reason == capabilities.InvalidName) != (len(f.Peers) == 0) {
					t.Fatalf("%s: peers %v", f, f.Peers)
				}
				if f.Reason != capabilities.InvalidName {
					continue
				}
				if l2 := capabilities.NewLedger(newcomers(id), capabilities.LedgerOptions{}); len(l2.Findings()) != 1 {
					t.Fatalf("%s, but alone it is %v", f, l2.Findings())
				}
			}
			// Who steps back: things that clash with something that was accepted, or with anything when they were not.
			if count[id] > 1 || len(findings[id]) > 0 && findings[id][0].Reason == capabilities.InvalidName {
				continue
			}
			want := true
			for _, o := range things {
				peer := o.Identity
				valid := count[peer] == 1 && (len(findings[peer]) == 0 || findings[peer][0].Reason != capabilities.InvalidName)
				if peer != id && valid && (o.Accepted || !x.Accepted) && clashes(id, peer) {
					want = false
				}
			}
			if served != want {
				t.Fatalf("%s: served %v, want %v; findings %v", id, served, want, findings[id])
			}
		}
		// Order changes nothing.
		turned := rapid.Permutation(things).Draw(t, "turned")
		a, b := describe(l, things), describe(capabilities.NewLedger(turned, capabilities.LedgerOptions{}), things)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("in another order\n%v\n%v", a, b)
		}
		// Newcomers of other names change nothing for what was accepted.
		var old []capabilities.Listed
		for _, x := range things {
			if x.Accepted && count[x.Identity] == 1 {
				old = append(old, x)
			}
		}
		alone := capabilities.NewLedger(old, capabilities.LedgerOptions{})
		for _, x := range old {
			name, served := alone.Exposed(x.Identity)
			if now, still := l.Exposed(x.Identity); served && (!still || now != name) {
				t.Fatalf("%s was %q and newcomers took it away: %v", x.Identity, name, findings[x.Identity])
			}
		}
	})
}
