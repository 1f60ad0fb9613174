package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// Two names of 70 characters that agree in the first 65.
const (
	longAlpha = "read_the_customer_record_with_everything_that_belongs_to_it_and__alpha"
	longOmega = "read_the_customer_record_with_everything_that_belongs_to_it_and__omega"
)

// colliding is every tool of the three upstreams, in the order in which they are listed, with the name that clients must see. The
// digests are computed by hand from the definition in the design: 30 bits of SHA-256 of the canonical identity, in base32.
func colliding() []struct{ upstream, tool, exposed, peer string } {
	return []struct{ upstream, tool, exposed, peer string }{
		{"names", "foo.bar", "names__foo--bar", ""},
		{"names", "foo_bar", "", "mcp:names:Foo_Bar"},
		{"names", "foo--bar", "names__foo-bar---ynekgx", ""},
		{"names", "foo/bar", "names__foo-bar---zxjthi", ""},
		{"names", "Foo_Bar", "", "mcp:names:foo_bar"},
		{"names", longAlpha, "names__read_the_customer_record_with_ever---caatej", ""},
		{"names", longOmega, "names__read_the_customer_record_with_ever---c5xi5u", ""},
		{"names", "twice", "", "mcp:names:twice"},
		{"names", "plain", "names__plain", ""},
		{"foo", "bar_baz", "foo__bar_baz", ""},
		{"foo-bar", "baz", "foo-bar__baz", ""},
	}
}

// exposedNames is what a tools/list must hold, sorted by name.
func exposedNames() []string {
	var out []string
	for _, c := range colliding() {
		if c.exposed != "" {
			out = append(out, c.exposed)
		}
	}
	slices.Sort(out)
	return out
}

// arrangement is how the upstreams list: none of it may matter.
type arrangement struct {
	name string
	page int
	slow string // this upstream answers later than the others
	sort func(tools []upstream.Tool)
}

func arrangements() []arrangement {
	shuffled := func(seed uint64) func([]upstream.Tool) {
		return func(tools []upstream.Tool) {
			rand.New(rand.NewPCG(seed, 1)).Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		}
	}
	return []arrangement{
		{"as declared, one page", 0, "", func([]upstream.Tool) {}},
		{"reversed, one tool a page, names late", 1, "names", func(tools []upstream.Tool) { slices.Reverse(tools) }},
		{"shuffled, three tools a page, foo late", 3, "foo", shuffled(1)},
		{"shuffled otherwise, two tools a page, foo-bar late", 2, "foo-bar", shuffled(2)},
	}
}

// namedHouse starts the upstreams of colliding and writes a policy that maps every tool of them.
func namedHouse(t *testing.T, a arrangement) (policy string, servers map[string]*upstream.Server) {
	t.Helper()
	servers = map[string]*upstream.Server{}
	listed := map[string][]upstream.Tool{}
	var mapped strings.Builder
	byUpstream := map[string]string{}
	for _, c := range colliding() {
		listed[c.upstream] = append(listed[c.upstream], upstream.Named(c.upstream, c.tool))
		if c.tool == "twice" {
			listed[c.upstream] = append(listed[c.upstream], upstream.Named(c.upstream, c.tool))
		}
		byUpstream[c.upstream] += fmt.Sprintf("      - { name: %s, capability: all.call }\n", rig.Quote(c.tool))
	}
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		tools := listed[id]
		a.sort(tools)
		cfg := upstream.Config{Name: id, Tools: tools, PageSize: a.page}
		if id == a.slow {
			cfg.Hook = func(_ http.ResponseWriter, _ *http.Request, body []byte) bool {
				if bytes.Contains(body, []byte(`"tools/list"`)) {
					time.Sleep(20 * time.Millisecond)
				}
				return false
			}
		}
		s := upstream.New(cfg)
		t.Cleanup(func() { s.Close() })
		url, err := s.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		servers[id] = s
		fmt.Fprintf(&mapped, "  - id: %s\n    transport: { kind: mcp-http, url: %q }\n    account: none\n    tools:\n%s", id, url, byUpstream[id])
	}
	policy = write(t, t.TempDir(), "policy.yaml", "version: 1\ncapabilities:\n  - { id: all.call, risk: read }\nupstreams:\n"+
		mapped.String()+"accounts: []\n"+issuer+"grants:\n  - { to: { issuer: local }, capabilities: [all.call] }\n")
	return policy, servers
}

// TestMustShow5EachToolUnderItsOwnNameReachesItself: C01, C02, C03, X01, X02 of the cases, on the whole system.
func TestMustShow5EachToolUnderItsOwnNameReachesItself(t *testing.T) {
	for _, a := range arrangements() {
		t.Run(a.name, func(t *testing.T) {
			policy, servers := namedHouse(t, a)
			g := rig.Start(t, binary, rig.Env(t, keyEnv), policy, "--discover")
			namedAndReached(t, g, policy, servers)
			if code := g.Stop(t); code != 0 {
				t.Errorf("the gateway stopped with %d", code)
			}
			// Again, from the lock that the first start wrote.
			g = rig.Start(t, binary, rig.Env(t, keyEnv), policy)
			namedAndReached(t, g, policy, servers)
			g.Stop(t)
		})
	}
}

func namedAndReached(t *testing.T, g *rig.Gateway, policy string, servers map[string]*upstream.Server) {
	t.Helper()
	for _, modern := range []bool{false, true} {
		c := rig.NewClient(t, g.URL, key, modern)
		scoped := map[string]*rig.Client{}
		for id := range servers {
			scoped[id] = rig.NewClient(t, g.URL+"/"+id, key, modern)
		}
		listed := c.List(t)
		if got := slices.Sorted(maps.Keys(listed.Tools)); !slices.Equal(got, exposedNames()) {
			t.Errorf("listed\n%q, want\n%q", got, exposedNames())
		}
		if n := listed.Withheld["similar_name"]; n != 2 {
			t.Errorf(`_meta["aduana/withheld"] is %v, want 2 for similar_name`, listed.Withheld)
		}
		if total := sum(listed.Withheld); total != 3 {
			t.Errorf(`_meta["aduana/withheld"] is %v, want 3 in all`, listed.Withheld)
		}
		for _, x := range colliding() {
			s, before := servers[x.upstream], totals(servers)
			if x.exposed != "" {
				reach(t, c, x.exposed, s, x.upstream, x.tool)
				reach(t, scoped[x.upstream], x.tool, s, x.upstream, x.tool)
				for id, other := range servers {
					if id != x.upstream && other.Count("tools/call") != before[id] {
						t.Errorf("a call to %s reached %s", x.exposed, id)
					}
				}
				continue
			}
			// Withheld: by no name that anybody could think of.
			for _, name := range []string{x.tool, x.upstream + "__" + x.tool, x.upstream + "__" + strings.ToLower(x.tool), "mcp:" + x.upstream + ":" + x.tool} {
				unreachable(t, c, name, servers)
			}
			unreachable(t, scoped[x.upstream], x.tool, servers)
		}
		for _, name := range []string{"names__nothing", "nothing", "foo.bar", "names__foo.bar", "names__foo-bar", "foo__baz", "foo-bar__bar_baz",
			"foo__bar__baz", "FOO__bar_baz", "names__" + longAlpha, "aduana__search_tools", "", "__", "names__"} {
			unreachable(t, c, name, servers)
		}
		unreachable(t, scoped["foo"], "baz", servers)
		unreachable(t, scoped["foo"], "foo__bar_baz", servers)
	}

	// The stdio face is the same house.
	stdio := rig.StartStdio(t, binary, rig.Env(t, keyEnv), policy)
	listed := rig.ReadList(t, stdio.Ask(t, "1", rig.Message("1", "tools/list", "", "", true)))
	if got := slices.Sorted(maps.Keys(listed.Tools)); !slices.Equal(got, exposedNames()) || sum(listed.Withheld) != 3 {
		t.Errorf("listed over stdio\n%q, withheld %v, want\n%q", got, listed.Withheld, exposedNames())
	}
	for i, x := range colliding() {
		id, name := fmt.Sprint(i+2), x.exposed
		if name == "" {
			name = x.upstream + "__" + x.tool
		}
		before := totals(servers)
		r := rig.Response{Message: stdio.Ask(t, id, rig.Message(id, "tools/call", `"name":`+rig.Quote(name)+`,"arguments":{}`, "", true))}
		if want := "server=" + x.upstream + " tool=" + x.tool; x.exposed != "" && r.Text() != want {
			t.Errorf("calling %s over stdio: %s, want %q", name, r.Message, want)
		}
		if x.exposed == "" && !maps.Equal(totals(servers), before) {
			t.Errorf("calling %s over stdio reached an upstream: %s", name, r.Message)
		}
	}
	if code := stdio.Close(t); code != 0 {
		t.Errorf("the stdio gateway ended with %d: %s", code, stdio.Stderr.String())
	}

	// The operator is told the peers, before anybody calls and while it runs.
	out := rig.Run(t, rig.Env(t), rig.Patience, binary, "names", policy, "--lock", filepath.Join(filepath.Dir(policy), "aduana.lock.yaml"), "--json")
	var names struct {
		Names []struct {
			Identity string  `json:"identity"`
			Exposed  *string `json:"exposed"`
			Withheld *string `json:"withheld"`
			Findings []struct {
				Peers []string `json:"peers"`
			} `json:"findings"`
		} `json:"names"`
	}
	if err := json.Unmarshal([]byte(out.Stdout), &names); err != nil || out.Code != 0 {
		t.Fatalf("aduana names: exit %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	canonical := strings.NewReplacer("/", "%2F")
	for _, x := range colliding() {
		id := "mcp:" + x.upstream + ":" + canonical.Replace(x.tool)
		found := false
		for _, n := range names.Names {
			if n.Identity != id {
				continue
			}
			found = true
			switch {
			case x.exposed != "" && (n.Exposed == nil || *n.Exposed != x.exposed || n.Withheld != nil):
				t.Errorf("aduana names: %s is %v, want %s", id, n, x.exposed)
			case x.exposed == "" && n.Withheld == nil:
				t.Errorf("aduana names: %s is not withheld", id)
			case x.tool == "foo_bar" || x.tool == "Foo_Bar":
				if len(n.Findings) == 0 || !slices.Contains(n.Findings[0].Peers, x.peer) {
					t.Errorf("aduana names: %s does not name its peer %s: %v", id, x.peer, n.Findings)
				}
			}
		}
		if !found {
			t.Errorf("aduana names knows nothing of %s:\n%s", id, out.Stdout)
		}
	}
	if said := g.Stderr.String(); !strings.Contains(said, "mcp:names:foo_bar") || !strings.Contains(said, "mcp:names:Foo_Bar") || !strings.Contains(said, "twice") {
		t.Errorf("the gateway does not say what it withholds:\n%s", said)
	}
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func totals(servers map[string]*upstream.Server) map[string]int {
	out := map[string]int{}
	for id, s := range servers {
		out[id] = s.Count("tools/call")
	}
	return out
}

func reach(t *testing.T, c *rig.Client, name string, s *upstream.Server, server, tool string) {
	t.Helper()
	before, all := s.Calls(tool), s.Count("tools/call")
	r, err := c.Call(deadline(t), name, `{}`)
	if want := "server=" + server + " tool=" + tool; err != nil || r.Text() != want {
		t.Errorf("calling %s: %v, status %d, %s; want %q", name, err, r.Status, r.Body, want)
	}
	if s.Calls(tool) != before+1 || s.Count("tools/call") != all+1 {
		t.Errorf("calling %s: the upstream's log has %d calls of %s more and %d in all, want 1 and 1", name, s.Calls(tool)-before, tool, s.Count("tools/call")-all)
	}
}

// unreachable calls a name that must reach nothing: no request of any kind goes to any upstream for it.
func unreachable(t *testing.T, c *rig.Client, name string, servers map[string]*upstream.Server) {
	t.Helper()
	before := map[string]int{}
	for id, s := range servers {
		before[id] = s.Total()
	}
	r, err := c.Call(deadline(t), name, `{"any":1}`)
	if err != nil || r.Error() == nil {
		t.Errorf("calling %q: %v, status %d: %s; want an error", name, err, r.Status, r.Body)
	}
	for id, s := range servers {
		if n := s.Total() - before[id]; n != 0 {
			last := s.Messages()
			t.Errorf("calling %q sent %d requests to %s, the last %s", name, n, id, last[len(last)-1].Body)
		}
	}
}
