package cases_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// reaches calls a listed name and wants its own tool to answer, and no other to be asked.
func reaches(t *testing.T, c *rig.Client, name string, s *upstream.Server, server, tool string) {
	t.Helper()
	before := s.Count("tools/call")
	r := call(t, c, name, `{}`)
	if want := "server=" + server + " tool=" + tool; r.Text() != want || s.Count("tools/call") != before+1 {
		t.Errorf("%q answered %s, want %q, and %d calls went up", name, r.Message, want, s.Count("tools/call")-before)
	}
}

// reachesNothing calls a name and wants an unknown tool, and nothing sent.
func reachesNothing(t *testing.T, c *rig.Client, name string, s *upstream.Server) {
	t.Helper()
	before := s.Total()
	if r := call(t, c, name, `{}`); errorCode(r.Message) != -32602 || s.Total() != before {
		t.Errorf("%q answered %s, and %d requests went up", name, r.Message, s.Total()-before)
	}
}

func tools(server string, names ...string) []upstream.Tool {
	var out []upstream.Tool
	for _, n := range names {
		out = append(out, upstream.Named(server, n))
	}
	return out
}

// C02, with the longest id that there may be: every tool is listed under a name that all model APIs take, or named with the reason
// why not; each listed name is stable over a restart and reaches its own tool; what fits is not changed by a byte.
func TestC02EveryToolIsListedOrNamed(t *testing.T) {
	const id = "regional-billing-eu-central-prod" // 32 bytes: 16 are left of 50
	h := newHouse(t)
	all := []string{"export_invoices_as_csv", "export_invoices_as_csv_with_tax", "x", strings.Repeat("e", 16), strings.Repeat("f", 17),
		strings.Repeat("n", 127) + "a", strings.Repeat("n", 127) + "b"}
	tooLong := strings.Repeat("t", 129)
	listed := append(tools(id, all...), upstream.Named(id, tooLong))
	s := h.http(id, upstream.Config{Tools: listed}, append(slices.Clone(all), tooLong)...)
	pattern := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,50}$`)

	var before []string
	check := func(g *rig.Gateway) {
		c := rig.NewClient(t, g.URL, key, true)
		l := c.List(t)
		if before == nil {
			before = l.Order
		}
		if len(l.Order) != len(all) || !slices.Equal(l.Order, before) {
			t.Errorf("listed %q, before %q, want %d names", l.Order, before, len(all))
		}
		reached := map[string]bool{}
		for _, name := range l.Order {
			if !pattern.MatchString(name) {
				t.Errorf("listed %q", name)
			}
			tool, _ := strings.CutPrefix(call(t, c, name, `{}`).Text(), "server="+id+" tool=")
			reached[tool] = true
		}
		if got := slices.Sorted(maps.Keys(reached)); !slices.Equal(got, names(tools(id, all...))) {
			t.Errorf("reached %q", got)
		}
		for _, verbatim := range []string{"x", strings.Repeat("e", 16)} {
			reaches(t, c, id+"__"+verbatim, s, id, verbatim)
		}
		reachesNothing(t, c, id+"__"+tooLong, s)
		if said := g.Stderr.String(); !strings.Contains(said, tooLong) || !strings.Contains(said, "129 bytes") {
			t.Errorf("nobody is told of the tool that is missing:\n%s", said)
		}
	}
	g := h.start()
	check(g)
	g.Stop(t)
	check(h.start())
}

// C03: what was accepted is one raw name. An upstream that begins to list other spellings of it gains nothing by that.
func TestC03AcceptanceCoversOneSpelling(t *testing.T) {
	h := newHouse(t)
	spellings := []string{"stock_query", "stock.query", "stock/query", "Stock_Query", "STOCK_QUERY"}
	s := h.http("shop", upstream.Config{Tools: tools("shop", "stock_query")}, spellings[:4]...)
	h.issuer = ", disclosure: places"
	g := h.start()
	g.Stop(t)

	s.SetTools(tools("shop", spellings...)...)
	g = rig.Start(t, binary, rig.Env(t, keyEnv), h.policy())
	eras(func(modern bool) {
		c := rig.NewClient(t, g.URL, key, modern)
		reaches(t, c, "shop__stock_query", s, "shop", "stock_query")
		if got := c.List(t).Order; !slices.Equal(got, []string{"shop__stock_query"}) {
			t.Errorf("listed %q", got)
		}
		own := rig.NewClient(t, g.URL+"/shop", key, modern)
		for _, other := range spellings[1:] {
			for _, x := range []struct {
				c    *rig.Client
				name string
			}{{c, "shop__" + other}, {c, "shop__" + strings.ReplaceAll(other, ".", "--")}, {own, other}} {
				before := s.Count("tools/call")
				if r := call(t, x.c, x.name, `{}`); r.Text() != "" && outcome(r) != "withheld" || s.Count("tools/call") != before {
					t.Errorf("%q answered %s", x.name, r.Message)
				}
			}
		}
		// The refusal says why a client that folds case does not get there.
		if r := call(t, c, "shop__Stock_Query", `{}`); !strings.Contains(string(r.Message), "similar_name") || !strings.Contains(string(r.Message), "mcp:shop:stock_query") {
			t.Errorf("the refusal does not name the peer: %s", r.Message)
		}
	})
	for _, other := range spellings[1:] {
		if n := s.Calls(other); n != 0 {
			t.Errorf("%q was called %d times", other, n)
		}
	}
}

// X01, as our grammar has it: a tool whose name begins with a digit is listed behind its upstream's id, so that the name begins as the
// id does; no two of them meet; the upstream gets its own spelling.
func TestX01NamesThatBeginWithADigit(t *testing.T) {
	h := newHouse(t)
	crm := h.http("crm", upstream.Config{Tools: tools("crm", "1c_probe", "_1c_probe", "-1c")})
	hex := h.http("8fb2", upstream.Config{Tools: tools("8fb2", "1c_probe")})
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	if got, want := c.List(t).Order, []string{"8fb2__1c_probe", "crm__-1c", "crm__1c_probe", "crm___1c_probe"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	reaches(t, c, "crm__1c_probe", crm, "crm", "1c_probe")
	reaches(t, c, "crm___1c_probe", crm, "crm", "_1c_probe")
	reaches(t, c, "crm__-1c", crm, "crm", "-1c")
	reaches(t, c, "8fb2__1c_probe", hex, "8fb2", "1c_probe")
}

// X02: a server that prefixes its tools itself gets the prefix twice, and its short names stay free.
func TestX02ServersThatPrefixThemselves(t *testing.T) {
	h := newHouse(t)
	s := h.http("git", upstream.Config{Tools: tools("git", "git_log", "log", "git__log")})
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	for name, tool := range map[string]string{"git__git_log": "git_log", "git__log": "log", "git__git__log": "git__log"} {
		reaches(t, c, name, s, "git", tool)
	}
	if got := c.List(t).Order; len(got) != 3 {
		t.Errorf("listed %q", got)
	}
	for _, name := range []string{"git_log", "log", "git_git_log", "git__git__git_log"} {
		reachesNothing(t, c, name, s)
	}
	own := rig.NewClient(t, g.URL+"/git", key, true)
	reaches(t, own, "git_log", s, "git", "git_log")
	reaches(t, own, "git__log", s, "git", "git__log") // a name of its own, not the exposed one of log
	reachesNothing(t, own, "git__git_log", s)
}

// X03: what merely looks alike gets an ASCII name of its own and reaches itself; what cannot be seen is withheld and named; nothing is
// normalised onto another tool.
func TestX03LookAlikesEndToEnd(t *testing.T) {
	served := []string{"transfer", "tr\u0430nsfer", "tr\uff41nsfer", "caf\u00e9"}
	withheld := []string{"tr\u202eansfer", "tr\u200bansfer", "transfer\U000e0061", "cafe\u0301", "transfer\u00ad", "trans\u0000fer"}
	h := newHouse(t)
	listed := tools("bank", append(slices.Clone(served), withheld...)...)
	// Bytes that are no UTF-8, and half a surrogate: no name at all.
	listed = append(listed, upstream.Tool{Name: "transfer\xff", Definition: json.RawMessage("{\"name\":\"transfer\xff\",\"inputSchema\":{\"type\":\"object\"}}")},
		upstream.Tool{Name: "half", Definition: json.RawMessage(`{"name":"transfer\ud800","inputSchema":{"type":"object"}}`)})
	s := h.http("bank", upstream.Config{Tools: listed}, served...)
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	l := c.List(t)
	if len(l.Order) != len(served) {
		t.Errorf("listed %q", l.Order)
	}
	reached := map[string]string{}
	for _, name := range l.Order {
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`).MatchString(name) {
			t.Errorf("listed %q", name)
		}
		tool, _ := strings.CutPrefix(call(t, c, name, `{}`).Text(), "server=bank tool=")
		reached[tool] = name
	}
	if got := slices.Sorted(maps.Keys(reached)); !slices.Equal(got, slices.Sorted(slices.Values(served))) || reached["transfer"] != "bank__transfer" {
		t.Errorf("reached %q", reached)
	}
	own := rig.NewClient(t, g.URL+"/bank", key, true)
	for _, name := range withheld {
		reachesNothing(t, c, "bank__"+name, s)
		reachesNothing(t, own, name, s)
		if n := s.Calls(name); n != 0 {
			t.Errorf("%q was called %d times", name, n)
		}
	}
	said := g.Stderr.String()
	for _, want := range []string{"U+202E", "U+200B", "U+E0061", "normal form C", "U+00AD", "U+0000"} {
		if !strings.Contains(said, want) {
			t.Errorf("the operator is not told of %s:\n%s", want, said)
		}
	}
	if strings.ContainsAny(said, "\u202e\u200b\u00ad\U000e0061\x00") {
		t.Errorf("what cannot be seen is printed as it is: %q", said)
	}
}

// X03, for texts: what cannot be seen in a description counts as change. The accepted text goes on being served, and the operator is
// told which member changed.
func TestX03InvisibleTextIsAChange(t *testing.T) {
	definition := func(text string) upstream.Tool {
		tool := upstream.Named("bank", "transfer")
		tool.Definition = json.RawMessage(`{"name":"transfer","description":"` + text + `","inputSchema":{"type":"object"}}`)
		return tool
	}
	for name, text := range map[string]string{"zero width": "Sends\u200b money", "tags": "Sends money\U000e0069\U000e0067", "escaped": `Sends money\u202e`} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			s := h.http("bank", upstream.Config{Tools: []upstream.Tool{definition("Sends money")}})
			g := h.start()
			s.SetTools(definition(text))
			c := rig.NewClient(t, g.URL, key, true)
			reaches(t, c, "bank__transfer", s, "bank", "transfer") // which opens a session, and so lists
			if got, want := string(c.List(t).Tools["bank__transfer"]), `{"name":"bank__transfer","description":"Sends money","inputSchema":{"type":"object"}}`; got != want {
				t.Errorf("listed %s, want %s", got, want)
			}
			g.Stop(t) // so that all of what it says is here
			if said := g.Stderr.String(); !strings.Contains(said, "mcp:bank:transfer") || !strings.Contains(said, "description") {
				t.Errorf("the operator is not told that the description changed:\n%s", said)
			}
		})
	}
}

// C20: of 101 tools in three pages one is declared. It is the one that is listed, and it can be called.
func TestC20TheOneAllowedToolIsOnTheLastPage(t *testing.T) {
	var all []upstream.Tool
	for i := range 101 {
		all = append(all, upstream.Named("big", fmt.Sprintf("t%03d", i)))
	}
	for _, e := range []upstream.Eras{upstream.LegacyOnly, upstream.ModernOnly} {
		h := newHouse(t)
		s := h.http("big", upstream.Config{Tools: all, PageSize: 50, Eras: e}, "t100")
		g := h.start()
		c := rig.NewClient(t, g.URL, key, true)
		if got := c.List(t).Order; !slices.Equal(got, []string{"big__t100"}) {
			t.Errorf("listed %q", got)
		}
		reaches(t, c, "big__t100", s, "big", "t100")
		reachesNothing(t, c, "big__t050", s)
		if n := s.Count("tools/list"); n%3 != 0 {
			t.Errorf("%d pages were asked for, want whole lists of three", n)
		}
	}
}
