package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"aduana/capabilities"
	"aduana/gateway"
)

// hard is a set of names that other gateways fold into each other. The 70-byte ones differ only at their ends.
var long = strings.Repeat("export_invoices_", 4) + "as_csv"

var hard = map[string][]string{
	"srv":     {"foo.bar", "foo_bar", "foo--bar", "foo/bar", "Foo_Bar", long, long + "_with_tax"},
	"foo":     {"bar_baz"},
	"foo-bar": {"baz"},
}

// What each is listed as; "" = withheld. The digests come from sha256sum and base32, not from this program.
var hardNames = map[string]string{
	"mcp:srv:foo.bar":               "srv__foo--bar",
	"mcp:srv:foo_bar":               "",
	"mcp:srv:Foo_Bar":               "",
	"mcp:foo:bar_baz":               "foo__bar_baz",
	"mcp:foo-bar:baz":               "foo-bar__baz",
	"mcp:srv:foo--bar":              "srv__foo-bar---qvtda5",
	"mcp:srv:foo%2Fbar":             "srv__foo-bar---qnzjkw",
	"mcp:srv:" + long:               "srv__export_invoices_export_invoices_expo---ayuwex",
	"mcp:srv:" + long + "_with_tax": "srv__export_invoices_export_invoices_expo---pi5hye",
}

func hardPolicy() string {
	var b strings.Builder
	b.WriteString("version: 1\ncapabilities: [{ id: all, risk: read }]\naccounts: []\n")
	b.WriteString("principals: { issuers: [{ id: corp, kind: oidc, disclosure: codes }] }\n")
	b.WriteString("grants: [{ to: { issuer: corp }, capabilities: [all] }]\nupstreams:\n")
	for _, id := range []string{"srv", "foo", "foo-bar"} {
		fmt.Fprintf(&b, "  - id: %s\n    transport: { kind: mcp-http, url: \"http://127.0.0.1:1/%s\" }\n    account: none\n    tools:\n", id, id)
		for _, name := range hard[id] {
			fmt.Fprintf(&b, "      - { name: %q, capability: all }\n", name)
		}
	}
	return b.String()
}

func hardTools() map[string][]string {
	tools := map[string][]string{}
	for id, names := range hard {
		for _, n := range names {
			tools[id] = append(tools[id], tool(n))
		}
	}
	return tools
}

// Must show 5, in process: at every surface each tool stands under its own stable name and reaches itself, or is withheld with its
// peer named, and a call to a withheld or unknown name reaches no upstream. C01, C02, C03, TS-1 to TS-7.
func TestNamesAtEverySurface(t *testing.T) {
	w := newWorld(t, hardPolicy(), hardTools())
	ana := w.principal("corp", "ana")
	listed := w.list(ana)
	served := map[string]capabilities.Identity{}
	for _, tl := range w.g.Snapshot().Tools {
		want, known := hardNames[tl.Canonical]
		if !known {
			t.Errorf("what is %s?", tl.Canonical)
		}
		if want == "" {
			if tl.Withheld != capabilities.SimilarName {
				t.Errorf("%s is not withheld: %q", tl.Canonical, tl.Withheld)
			}
			continue
		}
		name := string(tl.Exposed)
		if name != want || len(name) > 50 {
			t.Errorf("%s is exposed as %q, want %q", tl.Canonical, name, want)
		}
		if other, twice := served[name]; twice {
			t.Errorf("%q is both %s and %s", name, other, tl.Identity)
		}
		served[name] = tl.Identity
	}
	if len(listed) != 7 || len(served) != 7 {
		t.Fatalf("listed %v", listed)
	}
	for _, name := range listed {
		before := w.up.Called.Load()
		r := w.call(ana, name, "")
		if w.up.Called.Load() != before+1 || !strings.Contains(string(r.answer), `"content":[]`) {
			t.Errorf("%s does not answer: %s", name, r.answer)
		}
		records := w.audit.records(t)
		if got := records[len(records)-1]["identity"]; got != served[name].Canonical() {
			t.Errorf("%s reached %v, want %s", name, got, served[name])
		}
	}
	scoped := w.list(ana, func(rq *gateway.Request) { rq.Scope = "srv" })
	if want := []string{long, long + "_with_tax", "foo--bar", "foo.bar", "foo/bar"}; !slices.Equal(scoped, want) {
		t.Errorf("on its own endpoint: %v", scoped)
	}
	calls := w.up.Called.Load()
	opened := w.up.Opened.Load()
	for _, c := range []struct{ scope, name string }{
		{"", "srv__foo_bar"}, {"", "srv__Foo_Bar"}, {"srv", "foo_bar"}, {"srv", "Foo_Bar"}, {"srv", "srv__foo--bar"}, {"foo", "foo-bar__baz"},
		{"", "foo_bar"}, {"", "foo.bar"}, {"", "srv__foo.bar"}, {"", "SRV__foo--bar"}, {"", "srv__foo--bar "}, {"foo", "baz"}, {"foo-bar", "bar_baz"},
		{"", "foo__bar__baz"}, {"", "foo_bar_baz"}, {"aduana", "foo"},
	} {
		r := w.call(ana, c.name, "", func(rq *gateway.Request) { rq.Scope = capabilities.UpstreamID(c.scope) })
		if !strings.Contains(string(r.answer), `"code":-32602,"message":"unknown tool `) {
			t.Errorf("%q on %q: %s", c.name, c.scope, r.answer)
		}
	}
	if w.up.Called.Load() != calls || w.up.Opened.Load() != opened {
		t.Error("a call to a withheld or unknown name reached an upstream")
	}
	// Each party of the collision is named, with its peer.
	found := map[string]bool{}
	for _, f := range w.g.Snapshot().Findings {
		found[f.String()] = true
	}
	for _, want := range []string{
		"withheld mcp:srv:foo_bar: similar_name with mcp:srv:Foo_Bar (the names differ only by letter case)",
		"withheld mcp:srv:Foo_Bar: similar_name with mcp:srv:foo_bar (the names differ only by letter case)",
	} {
		if !found[want] {
			t.Errorf("no finding %q in %v", want, found)
		}
	}
}

// The order in which an upstream lists its tools, and the order of upstreams, change no name.
func TestNamesDoNotDependOnOrder(t *testing.T) {
	names := func(reverse bool) map[string]string {
		tools := hardTools()
		if reverse {
			for _, list := range tools {
				slices.Reverse(list)
			}
		}
		w := newWorld(t, hardPolicy(), tools)
		out := map[string]string{}
		for _, tl := range w.g.Snapshot().Tools {
			out[tl.Canonical] = string(tl.Exposed)
		}
		return out
	}
	a, b := names(false), names(true)
	for id, name := range a {
		if b[id] != name {
			t.Errorf("%s is %q or %q", id, name, b[id])
		}
	}
}

// A name that an upstream begins to list twice is withheld as soon as that is seen, and reaches nothing.
func TestDuplicateInAListIsWithheld(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	w.up.SetTools("crm", tool("get"), tool("put"), tool("wipe"), tool("get"))
	outcome, _, _, _ := decision(t, w.call(bob, "crm__get", "").answer)
	if outcome != "withheld" || w.up.Called.Load() != 0 {
		t.Errorf("%s after %d calls", outcome, w.up.Called.Load())
	}
	if got := w.list(bob); !slices.Equal(got, []string{"crm__put", "crm__wipe"}) {
		t.Errorf("listed %v", got)
	}
	if f := w.g.Snapshot().Findings; len(f) != 1 || f[0].String() != "withheld mcp:crm:get: duplicate_name with mcp:crm:get (listed 2 times)" {
		t.Errorf("findings: %v", f)
	}
}

// A newcomer that looks like an accepted tool takes nothing away.
func TestNewcomerTakesNothingAway(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	w.up.SetTools("crm", tool("get"), tool("put"), tool("wipe"), tool("GET"))
	if r := w.call(bob, "crm__get", ""); !strings.Contains(string(r.answer), `"content":[]`) {
		t.Errorf("%s", r.answer)
	}
	if r := w.call(bob, "crm__GET", ""); !strings.Contains(string(r.answer), "unknown tool") {
		t.Errorf("%s", r.answer)
	}
	if got := w.list(bob); !slices.Equal(got, []string{"crm__get", "crm__put", "crm__wipe"}) {
		t.Errorf("listed %v", got)
	}
}
