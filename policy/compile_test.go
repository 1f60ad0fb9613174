package policy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"aduana/policy"

	"go.yaml.in/yaml/v3"
)

// full uses every field of the format.
const full = `version: 1
naming: { maxLength: 60, similar: warn }
capabilities:
  - { id: a.read, description: reads, risk: read }
  - { id: a.write }
  - { id: a.purge, risk: destructive }
upstreams:
  - id: local
    transport: { kind: mcp-stdio, command: server, args: [--flag, { ref: "file:///k" }, ""] }
    cwd: /srv
    env: { ZED: "1", ABLE: { ref: "env://X" } }
    inherit: [PATH, HOME]
    account: none
    timeout: 30s
    concurrency: 4
    arguments: strict
    drift: withhold
    tools: [{ name: get, capability: a.read }]
  - id: remote
    transport: { kind: mcp-http, url: "https://h/mcp" }
    headers: { X-b: { ref: "vault://kv/p#f" }, X-A: v }
    account: acc
    deliver: header:X-Key
    timeout: 1500ms
    tools: [{ name: put, capability: a.write }]
  - id: plain
    transport: { kind: mcp-http, url: "https://h2/mcp" }
    tools: [{ name: del, capability: a.purge }]
  - { id: child, transport: { kind: mcp-stdio, command: c }, tools: [] }
accounts:
  - { id: acc, secret: { ref: "keyring://aduana/acc" }, disabled: true, for: [remote, plain] }
principals:
  issuers:
    - id: corp
      kind: oidc
      discovery: https://id/x
      audience: aduana
      disclosure: codes
      attributes: { team: "claim:team", groups: { from: "claim:groups", many: true }, "x/y": "claim:z" }
    - { id: ci, kind: static-key, subject: bot, secret: { ref: "env://K" }, disclosure: places, attributes: { role: robot } }
grants:
  - to: { issuer: corp, attributes: { team: t, groups: g, "x/y": v } }
    capabilities: [a.write, a.read, a.write]
    limits:
      - { calls: 5, per: 90s }
      - { calls: 10, per: 24h, over: grant }
      - { calls: 20, per: 7d, over: team }
    from: 2026-05-01T00:00:00Z
    until: 2026-06-01T00:00:00.5+02:00
    ask: always
  - to: { issuer: ci }
    capabilities: [a.purge]
    using: acc
    limits: { calls: 0, per: 1m, over: account }
    ask: never
`

func TestCompiledPolicy(t *testing.T) {
	r := compiler(t).Compile([]byte(full), policy.Options{})
	if len(r.Diagnostics) != 0 {
		t.Fatalf("%+v", r.Diagnostics)
	}
	checkPointers(t, r)
	text := func(s, pointer string) policy.Value { return policy.Value{Literal: s, Pointer: pointer} }
	ref := func(s, pointer string) policy.Value {
		return policy.Value{Ref: policy.SecretRef(s), IsRef: true, Pointer: pointer}
	}
	want := policy.Policy{
		Naming: policy.Naming{MaxLength: 60, Similar: policy.SimilarWarn, Pointer: "/naming"},
		Capabilities: []policy.Capability{
			{ID: "a.read", Description: "reads", Risk: policy.RiskRead, RiskDeclared: true, Pointer: "/capabilities/0"},
			{ID: "a.write", Risk: policy.RiskWrite, Pointer: "/capabilities/1"},
			{ID: "a.purge", Risk: policy.RiskDestructive, RiskDeclared: true, Pointer: "/capabilities/2"},
		},
		Upstreams: []policy.Upstream{
			{
				ID: "local", Transport: policy.TransportStdio, Command: "server",
				Args: []policy.Value{
					text("--flag", "/upstreams/0/transport/args/0"),
					ref("file:///k", "/upstreams/0/transport/args/1"),
					text("", "/upstreams/0/transport/args/2"),
				},
				Cwd: "/srv",
				Env: []policy.NamedValue{
					{Name: "ABLE", Value: ref("env://X", "/upstreams/0/env/ABLE")},
					{Name: "ZED", Value: text("1", "/upstreams/0/env/ZED")},
				},
				Inherit: []string{"PATH", "HOME"}, AccountNone: true,
				Deliver: policy.Deliver{Kind: policy.DeliverEnv, Name: "MCP_UPSTREAM_CREDENTIAL"},
				Timeout: 30_000, Concurrency: 4, Arguments: policy.ArgumentsStrict, Drift: policy.DriftWithhold,
				Tools:   []policy.Tool{{Name: "get", Capability: "a.read", Pointer: "/upstreams/0/tools/0"}},
				Pointer: "/upstreams/0",
			},
			{
				ID: "remote", Transport: policy.TransportHTTP, URL: "https://h/mcp",
				Headers: []policy.NamedValue{
					{Name: "X-A", Value: text("v", "/upstreams/1/headers/X-A")},
					{Name: "X-b", Value: ref("vault://kv/p#f", "/upstreams/1/headers/X-b")},
				},
				Account: "acc", Deliver: policy.Deliver{Kind: policy.DeliverHeader, Name: "X-Key", Declared: true},
				Timeout: 1_500, Arguments: policy.ArgumentsLenient, Drift: policy.DriftDefault,
				Tools:   []policy.Tool{{Name: "put", Capability: "a.write", Pointer: "/upstreams/1/tools/0"}},
				Pointer: "/upstreams/1",
			},
			{
				ID: "plain", Transport: policy.TransportHTTP, URL: "https://h2/mcp",
				Deliver: policy.Deliver{Kind: policy.DeliverBearer}, Arguments: policy.ArgumentsLenient, Drift: policy.DriftDefault,
				Tools:   []policy.Tool{{Name: "del", Capability: "a.purge", Pointer: "/upstreams/2/tools/0"}},
				Pointer: "/upstreams/2",
			},
			{
				ID: "child", Transport: policy.TransportStdio, Command: "c",
				Deliver:   policy.Deliver{Kind: policy.DeliverEnv, Name: "MCP_UPSTREAM_CREDENTIAL"},
				Arguments: policy.ArgumentsLenient, Drift: policy.DriftDefault, Pointer: "/upstreams/3",
			},
		},
		Accounts: []policy.Account{{
			ID: "acc", Disabled: true, SecretRef: "keyring://aduana/acc", For: []string{"remote", "plain"}, Pointer: "/accounts/0",
		}},
		Issuers: []policy.Issuer{
			{
				ID: "corp", Kind: policy.IssuerOIDC, Discovery: "https://id/x", Audience: "aduana", Disclosure: policy.DisclosureCodes,
				Attributes: []policy.Attribute{
					{Name: "groups", From: "claim:groups", Many: true, Pointer: "/principals/issuers/0/attributes/groups"},
					{Name: "team", From: "claim:team", Pointer: "/principals/issuers/0/attributes/team"},
					{Name: "x/y", From: "claim:z", Pointer: "/principals/issuers/0/attributes/x~1y"},
				},
				Pointer: "/principals/issuers/0",
			},
			{
				ID: "ci", Kind: policy.IssuerStaticKey, Subject: "bot", SecretRef: "env://K", Disclosure: policy.DisclosurePlaces,
				Attributes: []policy.Attribute{{Name: "role", From: "robot", Pointer: "/principals/issuers/1/attributes/role"}},
				Pointer:    "/principals/issuers/1",
			},
		},
		Grants: []policy.Grant{
			{
				Issuer: "corp",
				Selector: []policy.AttributeValue{
					{Attribute: "groups", Value: "g"}, {Attribute: "team", Value: "t"}, {Attribute: "x/y", Value: "v"},
				},
				Capabilities: []string{"a.write", "a.read"},
				UsingBy:      []policy.CapabilityAccount{{Capability: "a.write", Account: "acc"}, {Capability: "a.read", None: true}},
				Ceilings: []policy.Ceiling{
					{Calls: 5, Window: "90s", Millis: 90_000, Over: policy.OverPrincipal, Pointer: "/grants/0/limits/0"},
					{Calls: 10, Window: "24h", Millis: 86_400_000, Over: policy.OverGrant, Pointer: "/grants/0/limits/1"},
					{Calls: 20, Window: "7d", Millis: 604_800_000, Over: policy.OverAttribute, Attribute: "team", Pointer: "/grants/0/limits/2"},
				},
				From: 1_777_593_600_000, HasFrom: true, Until: 1_780_264_800_500, HasUntil: true,
				Ask: policy.AskAlways, Pointer: "/grants/0",
			},
			{
				Issuer: "ci", Capabilities: []string{"a.purge"}, Using: "acc",
				UsingBy:  []policy.CapabilityAccount{{Capability: "a.purge", Account: "acc"}},
				Ceilings: []policy.Ceiling{{Window: "1m", Millis: 60_000, Over: policy.OverAccount, Pointer: "/grants/1"}},
				Ask:      policy.AskNever, Pointer: "/grants/1",
			},
		},
		Anchors: policy.Anchors{
			Capabilities: "/capabilities", Upstreams: "/upstreams", Accounts: "/accounts",
			Issuers: "/principals/issuers", Grants: "/grants",
		},
	}
	got := reflect.ValueOf(*r.Policy)
	for i := range got.NumField() {
		if w := reflect.ValueOf(want).Field(i); !reflect.DeepEqual(got.Field(i).Interface(), w.Interface()) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", got.Type().Field(i).Name, got.Field(i).Interface(), w.Interface())
		}
	}
}

func TestDefaults(t *testing.T) {
	p := compiler(t).Compile([]byte(minimal), policy.Options{}).Policy
	want := policy.Policy{
		Naming:  policy.Naming{MaxLength: 50, Similar: policy.SimilarWithhold},
		Anchors: policy.Anchors{Capabilities: "/capabilities", Accounts: "/accounts", Issuers: "/principals/issuers", Grants: "/grants"},
	}
	if !reflect.DeepEqual(*p, want) {
		t.Errorf("got %+v", *p)
	}
}

// catalogueOf reads the tools of a declared catalogue file.
func catalogueOf(t *testing.T, path string) []policy.CatalogueTool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tools []struct{ Upstream, Name string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var tools []policy.CatalogueTool
	for _, tool := range file.Tools {
		tools = append(tools, policy.CatalogueTool{Upstream: tool.Upstream, Name: tool.Name})
	}
	return tools
}

func TestExampleHasExactlyOneFinding(t *testing.T) {
	text, err := os.ReadFile("../examples/crm/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	opts := policy.Options{Catalogue: catalogueOf(t, "../examples/crm/catalog.yaml"), HasCatalogue: true}
	if len(opts.Catalogue) != 5 {
		t.Fatalf("%d tools in the catalogue", len(opts.Catalogue))
	}
	r := compiler(t).Compile(text, opts)
	if r.Policy == nil || r.Total != 1 || line(r.Diagnostics[0])[:38] != "warning catalog_tool_unmapped /upstrea" ||
		!strings.Contains(r.Diagnostics[0].Message, `"delete_contact"`) {
		t.Fatalf("%+v", r.Diagnostics)
	}
	checkPointers(t, r)
}

func TestOrderOfTheCatalogueChangesNothing(t *testing.T) {
	c := compiler(t)
	tools := []policy.CatalogueTool{{"b", "x"}, {"a", "x"}, {"b", "x"}, {"a", "y"}, {"b", "w"}, {"a", "x"}}
	want := c.Compile([]byte(minimal), policy.Options{HasCatalogue: true, Catalogue: tools})
	if want.Total != 6 {
		t.Fatalf("%+v", want.Diagnostics)
	}
	for round := range 20 {
		rand.New(rand.NewPCG(uint64(round), 1)).Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		got := c.Compile([]byte(minimal), policy.Options{HasCatalogue: true, Catalogue: tools})
		if !reflect.DeepEqual(got.Diagnostics, want.Diagnostics) {
			t.Fatalf("got %+v\nwant %+v", got.Diagnostics, want.Diagnostics)
		}
	}
}

func TestDocumentedExampleCompiles(t *testing.T) {
	docs, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(docs), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```\n")
	if r := compiler(t).Compile([]byte(text), policy.Options{}); !ok || r.Total != 0 {
		t.Fatalf("%+v", r.Diagnostics)
	}
}

func TestFindingsAreCappedWithTheirNumber(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\ncapabilities:\n")
	for i := range 300 {
		fmt.Fprintf(&b, "  - { id: c%d }\n", i) // two warnings each
	}
	b.WriteString("accounts: []\nprincipals: { issuers: [] }\ngrants: []\n")
	r := compiler(t).Compile([]byte(b.String()), policy.Options{})
	if len(r.Diagnostics) != policy.MaxShown || r.Total != 600 || !r.Capped || r.Policy == nil {
		t.Errorf("%d shown of %d, capped %v", len(r.Diagnostics), r.Total, r.Capped)
	}

	// An error at the end of the order is still shown.
	r = compiler(t).Compile([]byte(b.String()), policy.Options{HasCatalogue: true, Catalogue: []policy.CatalogueTool{{"u", "t"}, {"u", "t"}}})
	last := r.Diagnostics[len(r.Diagnostics)-1]
	if len(r.Diagnostics) != policy.MaxShown || r.Total != 602 || last.Code != policy.CatalogDuplicate || r.Policy != nil {
		t.Errorf("%d shown of %d, the last is %s", len(r.Diagnostics), r.Total, last.Code)
	}
}

func TestSchemaFindingsAreCapped(t *testing.T) {
	text := strings.Replace(minimal, "capabilities: []", "capabilities: ["+strings.Repeat("1, ", 5000)+"1]", 1)
	r := compiler(t).Compile([]byte(text), policy.Options{})
	if len(r.Diagnostics) != policy.MaxShown || r.Total != 5001 || r.Diagnostics[0].Pointer != "/capabilities/0" {
		t.Errorf("%d shown of %d", len(r.Diagnostics), r.Total)
	}
}

// crowd is a policy whose grants all meet on one capability.
func crowd(grants int, grant func(i int) string) []byte {
	var b strings.Builder
	b.WriteString(`version: 1
capabilities: [{ id: c }]
upstreams: [{ id: up, transport: { kind: mcp-stdio, command: x }, tools: [{ name: t, capability: c }] }]
accounts: [{ id: a0, secret: { ref: "env://A" } }, { id: a1, secret: { ref: "env://B" } }]
principals: { issuers: [{ id: i, kind: oidc, attributes: { k: "claim:k", l: "claim:l" } }] }
grants:
`)
	for i := range grants {
		fmt.Fprintf(&b, "  - { to: { issuer: i, attributes: {%s, capabilities: [c] }\n", grant(i))
	}
	return []byte(b.String())
}

func TestTooComplexIsRefused(t *testing.T) {
	// One selector, two accounts in turn, each grant for one second: every
	// pair has to be looked at and none is ambiguous.
	text := crowd(6_000, func(i int) string {
		instant := func(s int) string { return fmt.Sprintf("2026-01-01T%02d:%02d:%02dZ", s/3600, s/60%60, s%60) }
		return fmt.Sprintf(" k: v } }, using: a%d, from: %s, until: %s", i%2, instant(i), instant(i+1))
	})
	r := compiler(t).Compile(text, policy.Options{})
	if r.Policy != nil || r.Total != 1 || r.Diagnostics[0].Code != policy.TooComplex || r.Diagnostics[0].Pointer != "/grants" {
		t.Fatalf("%+v", r.Diagnostics)
	}
}

func TestManyAmbiguousPairsEnd(t *testing.T) {
	text := crowd(2_000, func(i int) string { return fmt.Sprintf(" k: v } }, using: a%d", i%2) })
	r := compiler(t).Compile(text, policy.Options{})
	if r.Policy != nil || r.Total < 10_000 || len(r.Diagnostics) != policy.MaxShown {
		t.Fatalf("%d of %d", len(r.Diagnostics), r.Total)
	}
}

// TestAmbiguityAgreesWithAllPairs compares the search with the definition,
// over selectors that are small enough to meet often.
func TestAmbiguityAgreesWithAllPairs(t *testing.T) {
	c := compiler(t)
	type grant struct {
		k, l, account string
		from, until   int // hours, 0 = open
	}
	values := []string{"", "p", "q", "r"}
	found := 0
	for round := range 60 {
		random := rand.New(rand.NewPCG(uint64(round), 7))
		grants := make([]grant, 40)
		text := crowd(len(grants), func(i int) string {
			g := grant{k: values[random.IntN(4)], l: values[random.IntN(4)], account: fmt.Sprintf("a%d", random.IntN(2))}
			if random.IntN(2) == 0 {
				g.from, g.until = 1+random.IntN(5), 6+random.IntN(5)
			}
			if random.IntN(4) == 0 {
				g.until = g.from + 1
			}
			grants[i] = g
			var s strings.Builder
			if g.k != "" {
				fmt.Fprintf(&s, " k: %s,", g.k)
			}
			if g.l != "" {
				fmt.Fprintf(&s, " l: %s", g.l)
			}
			s.WriteString(" } }, using: " + g.account)
			if g.from > 0 {
				fmt.Fprintf(&s, ", from: 2026-01-01T%02d:00:00Z", g.from)
			}
			if g.until > 0 {
				fmt.Fprintf(&s, ", until: 2026-01-01T%02d:00:00Z", g.until)
			}
			return s.String()
		})
		want := map[string]bool{}
		for i, a := range grants {
			for j := i + 1; j < len(grants); j++ {
				b := grants[j]
				apart := a.k != "" && b.k != "" && a.k != b.k || a.l != "" && b.l != "" && a.l != b.l ||
					a.until > 0 && b.from >= a.until || b.until > 0 && a.from >= b.until
				if !apart && a.account != b.account {
					want[fmt.Sprintf("/grants/%d /grants/%d", i, j)] = true
				}
			}
		}
		r := c.Compile(text, policy.Options{})
		got := map[string]bool{}
		for _, d := range r.Diagnostics {
			if d.Code == policy.AmbiguousGrant {
				got[d.Pointer+" "+d.Related[0].Pointer] = true
			}
		}
		if r.Total != len(want) || !r.Capped && !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: %d findings, %d pairs", round, r.Total, len(want))
		}
		found += len(want)
	}
	if found < 1000 {
		t.Fatalf("only %d ambiguous pairs were generated", found)
	}
}

// big is a policy as large as we promise to compile quickly.
func big(grants, capabilities int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\ncapabilities:\n")
	for i := range capabilities {
		fmt.Fprintf(&b, "  - id: area%d.thing.read\n", i)
	}
	b.WriteString("upstreams:\n")
	for u := range 50 {
		fmt.Fprintf(&b, "  - id: up-%d\n    transport: { kind: mcp-http, url: \"https://up-%d.internal/mcp\" }\n    account: acc-%d\n    tools:\n", u, u, u)
		for i := u; i < capabilities; i += 50 {
			fmt.Fprintf(&b, "      - { name: tool_%d, capability: area%d.thing.read }\n", i, i)
		}
	}
	b.WriteString("accounts:\n")
	for u := range 50 {
		fmt.Fprintf(&b, "  - id: acc-%d\n    secret: { ref: \"vault://kv/acc-%d\" }\n", u, u)
	}
	b.WriteString("principals:\n  issuers:\n    - id: corp\n      kind: oidc\n      attributes: { team: \"claim:team\", role: \"claim:role\" }\ngrants:\n")
	for i := range grants {
		fmt.Fprintf(&b, "  - to: { issuer: corp, attributes: { team: team-%d, role: role-%d } }\n    capabilities: [area%d.thing.read]\n    limits: { calls: %d, per: 1h }\n",
			i%500, i%7, i%capabilities, i+1)
	}
	return []byte(b.String())
}

func TestBigPolicyCompiles(t *testing.T) {
	r := compiler(t).Compile(big(10_000, 1_000), policy.Options{})
	if r.Policy == nil || r.Total != 0 || len(r.Policy.Grants) != 10_000 {
		t.Fatalf("%d findings, first: %+v", r.Total, r.Diagnostics[:min(3, len(r.Diagnostics))])
	}
}

func BenchmarkCompile10k(b *testing.B) {
	c := compiler(b)
	text := big(10_000, 1_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Compile(text, policy.Options{}); r.Policy == nil {
			b.Fatal(r.Diagnostics[0])
		}
	}
}

// BenchmarkCompileOneCapability is the worst shape: all grants meet on one
// capability and only their values keep them apart.
func BenchmarkCompileOneCapability(b *testing.B) {
	c := compiler(b)
	text := crowd(10_000, func(i int) string { return fmt.Sprintf(" k: v%d, l: w%d } }, using: a%d", i/2, i%3, i/2%2) })
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Compile(text, policy.Options{}); r.Policy == nil {
			b.Fatal(r.Diagnostics[0])
		}
	}
}
