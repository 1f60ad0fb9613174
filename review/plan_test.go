package review_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/assembly"
	"aduana/policy"
)

// A plan is a small random policy: one or two issuers, two attributes with two values, two capabilities, two tools, two accounts and
// at most five grants. Small, so that everything that could happen under it can be tried.
type plan struct {
	risks   [2]policy.Risk // of c0 and c1
	mapping [2]int         // tool → capability, -1 when not mapped
	off     [2]bool        // accounts x and y
	issuers []issuerPlan
	grants  []grantPlan
}

type issuerPlan struct {
	id     string
	static bool
	a, b   attributePlan
}

// attributePlan is "" (not declared), "one" or "many"; value is the literal of a static key.
type attributePlan struct{ as, value string }

type grantPlan struct {
	issuer       string
	a, b         string // demanded value; "" = none
	capabilities []string
	account      string
	ceilings     []policy.Ceiling
	from, until  int64 // 0 = open
	ask          policy.Ask
}

// The instants at which grants of a plan begin and end, and one of every interval between them.
func bounds() []int64   { return []int64{100_000, 200_000, 300_000} }
func instants() []int64 { return []int64{99_999, 100_000, 200_000, 300_000} }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomPlan(r *rand.Rand) plan {
	p := plan{
		risks:   [2]policy.Risk{randomRisk(r), randomRisk(r)},
		mapping: [2]int{pick(r, 0, 0, 0, 1, -1), pick(r, 1, 1, 1, 0, -1)},
		off:     [2]bool{r.IntN(6) == 0, r.IntN(6) == 0},
		issuers: []issuerPlan{randomIssuer(r, "i0")},
	}
	if r.IntN(2) == 0 {
		p.issuers = append(p.issuers, randomIssuer(r, "i1"))
	}
	for range 1 + r.IntN(5) {
		p.grants = append(p.grants, randomGrant(r, p))
	}
	return p
}

func randomRisk(r *rand.Rand) policy.Risk {
	return pick(r, policy.RiskWrite, policy.RiskRead, policy.RiskDestructive)
}

func randomIssuer(r *rand.Rand, id string) issuerPlan {
	return issuerPlan{id: id, static: r.IntN(4) == 0, a: randomAttribute(r), b: randomAttribute(r)}
}

func randomAttribute(r *rand.Rand) attributePlan {
	return attributePlan{as: pick(r, "one", "one", "one", "many", "many", ""), value: pick(r, "1", "2")}
}

func randomGrant(r *rand.Rand, p plan) grantPlan {
	g := grantPlan{
		issuer:       pick(r, p.issuers...).id,
		a:            pick(r, "", "", "1", "2"),
		b:            pick(r, "", "", "1", "2"),
		capabilities: pick(r, []string{"c0"}, []string{"c1"}, []string{"c0", "c1"}),
		account:      pick(r, "x", "x", "x", "y"),
		ask:          pick(r, policy.AskDestructive, policy.AskDestructive, policy.AskAlways, policy.AskNever),
	}
	for range pick(r, 0, 0, 1, 2) {
		g.ceilings = append(g.ceilings, randomCeiling(r))
	}
	if r.IntN(4) == 0 {
		g.from = pick(r, bounds()...)
	}
	if r.IntN(4) == 0 {
		g.until = pick(r, bounds()...)
	}
	return g
}

func randomCeiling(r *rand.Rand) policy.Ceiling {
	c := policy.Ceiling{Calls: pick[int64](r, 0, 5, 20), Window: "1h", Millis: 3_600_000,
		Over: pick(r, policy.OverPrincipal, policy.OverPrincipal, policy.OverGrant, policy.OverAccount, policy.OverAttribute)}
	switch r.IntN(3) {
	case 0:
		c.Window = "60m"
	case 1:
		c.Window, c.Millis = "24h", 86_400_000
	}
	if c.Over == policy.OverAttribute {
		c.Attribute = "a"
	}
	return c
}

// mutated is a plan that differs in few places, or in none but its order.
func mutated(r *rand.Rand, p plan) plan {
	p.issuers, p.grants = slices.Clone(p.issuers), slices.Clone(p.grants)
	for range r.IntN(4) {
		i, g := r.IntN(len(p.issuers)), r.IntN(len(p.grants))
		switch r.IntN(15) {
		case 0:
			p.risks[r.IntN(2)] = randomRisk(r)
		case 1:
			p.mapping[r.IntN(2)] = pick(r, 0, 1, -1)
		case 2:
			p.off[r.IntN(2)] = r.IntN(2) == 0
		case 3:
			p.issuers[i].static = r.IntN(2) == 0
		case 4:
			p.issuers[i].a = randomAttribute(r)
		case 5:
			p.issuers[i].b = randomAttribute(r)
		case 6:
			p.grants = append(p.grants, randomGrant(r, p))
		case 7:
			if len(p.grants) > 1 {
				p.grants = slices.Delete(p.grants, g, g+1)
			}
		case 8:
			p.grants[g].a = pick(r, "", "1", "2")
		case 9:
			p.grants[g].b = pick(r, "", "1", "2")
		case 10:
			p.grants[g].account = pick(r, "x", "y")
		case 11:
			p.grants[g].ceilings = append(slices.Clone(p.grants[g].ceilings), randomCeiling(r))
		case 12:
			p.grants[g].ceilings = nil
		case 13:
			p.grants[g].ask = pick(r, policy.AskDestructive, policy.AskAlways, policy.AskNever)
		case 14:
			p.grants[g].from, p.grants[g].until = pick(r, append(bounds(), 0)...), pick(r, append(bounds(), 0)...)
		}
	}
	if r.IntN(3) == 0 {
		r.Shuffle(len(p.grants), func(i, j int) { p.grants[i], p.grants[j] = p.grants[j], p.grants[i] })
	}
	return p
}

func (p plan) issuer(id string) *issuerPlan {
	for i := range p.issuers {
		if p.issuers[i].id == id {
			return &p.issuers[i]
		}
	}
	return nil
}

// compiles reports whether the policy compiler takes the plan; TestPlans holds it against the compiler itself.
func (p plan) compiles() bool {
	for i, g := range p.grants {
		issuer := p.issuer(g.issuer)
		if issuer == nil || g.a != "" && issuer.a.as == "" || g.b != "" && issuer.b.as == "" || g.until != 0 && g.from >= g.until {
			return false
		}
		for _, c := range g.ceilings {
			if c.Over == policy.OverAttribute && issuer.a.as != "one" {
				return false
			}
		}
		for _, h := range p.grants[:i] {
			if g.issuer == h.issuer && g.account != h.account && g.meets(h, *issuer) {
				return false
			}
		}
	}
	return true
}

// meets reports whether one call can be by both grants.
func (g grantPlan) meets(h grantPlan, issuer issuerPlan) bool {
	separated := func(as, x, y string) bool { return as == "one" && x != "" && y != "" && x != y }
	shared := slices.ContainsFunc(g.capabilities, func(c string) bool { return slices.Contains(h.capabilities, c) })
	return shared && !separated(issuer.a.as, g.a, h.a) && !separated(issuer.b.as, g.b, h.b) &&
		(g.until == 0 || h.from < g.until) && (h.until == 0 || g.from < h.until)
}

// policy is the plan as the compiler would give it. Making it directly is a hundred times faster.
func (p plan) policy() *policy.Policy {
	out := &policy.Policy{Naming: policy.Naming{MaxLength: 50, Similar: policy.SimilarWithhold}}
	for i, risk := range p.risks {
		out.Capabilities = append(out.Capabilities, policy.Capability{ID: fmt.Sprintf("c%d", i), Risk: risk, RiskDeclared: true,
			Pointer: fmt.Sprintf("/capabilities/%d", i)})
	}
	u := policy.Upstream{ID: "u", Transport: policy.TransportHTTP, URL: "https://u.example/mcp", Deliver: policy.Deliver{Kind: policy.DeliverBearer},
		Arguments: policy.ArgumentsLenient, Drift: policy.DriftDefault, Pointer: "/upstreams/0"}
	for i, c := range p.mapping {
		if c >= 0 {
			u.Tools = append(u.Tools, policy.Tool{Name: fmt.Sprintf("t%d", i), Capability: fmt.Sprintf("c%d", c),
				Pointer: fmt.Sprintf("/upstreams/0/tools/%d", len(u.Tools))})
		}
	}
	out.Upstreams = append(out.Upstreams, u)
	for i, id := range []string{"x", "y"} {
		out.Accounts = append(out.Accounts, policy.Account{ID: id, Disabled: p.off[i], SecretRef: "env://K", Pointer: fmt.Sprintf("/accounts/%d", i)})
	}
	for i, x := range p.issuers {
		issuer := policy.Issuer{ID: x.id, Kind: policy.IssuerOIDC, Pointer: fmt.Sprintf("/principals/issuers/%d", i)}
		if x.static {
			issuer.Kind = policy.IssuerStaticKey
		}
		for _, a := range []struct {
			name string
			attributePlan
		}{{"a", x.a}, {"b", x.b}} {
			if a.as == "" {
				continue
			}
			from := "claim:" + a.name
			if x.static {
				from = a.value
			}
			issuer.Attributes = append(issuer.Attributes, policy.Attribute{Name: a.name, From: from, Many: a.as == "many",
				Pointer: issuer.Pointer + "/attributes/" + a.name})
		}
		out.Issuers = append(out.Issuers, issuer)
	}
	for i, g := range p.grants {
		pointer := fmt.Sprintf("/grants/%d", i)
		grant := policy.Grant{Issuer: g.issuer, Capabilities: g.capabilities, Using: g.account, From: g.from, Until: g.until,
			HasFrom: g.from != 0, HasUntil: g.until != 0, Ask: g.ask, Pointer: pointer}
		if g.a != "" {
			grant.Selector = append(grant.Selector, policy.AttributeValue{Attribute: "a", Value: g.a})
		}
		if g.b != "" {
			grant.Selector = append(grant.Selector, policy.AttributeValue{Attribute: "b", Value: g.b})
		}
		for _, c := range g.capabilities {
			grant.UsingBy = append(grant.UsingBy, policy.CapabilityAccount{Capability: c, Account: g.account})
		}
		for j, c := range g.ceilings {
			c.Pointer = fmt.Sprintf("%s/limits/%d", pointer, j)
			grant.Ceilings = append(grant.Ceilings, c)
		}
		out.Grants = append(out.Grants, grant)
	}
	return out
}

func (p plan) snapshot() *assembly.Snapshot {
	return assembly.Assemble(assembly.Input{Policy: p.policy(), NoLock: true})
}

// text is the plan as a policy file, for people and for the compiler.
func (p plan) text() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("version: 1\ncapabilities:")
	for i, risk := range p.risks {
		say("  - { id: c%d, risk: %s }", i, risk)
	}
	say("upstreams:\n  - id: u\n    transport: { kind: mcp-http, url: https://u.example/mcp }")
	var tools []string
	for i, c := range p.mapping {
		if c >= 0 {
			tools = append(tools, fmt.Sprintf("{ name: t%d, capability: c%d }", i, c))
		}
	}
	say("    tools: [%s]\naccounts:", strings.Join(tools, ", "))
	for i, id := range []string{"x", "y"} {
		say("  - { id: %s, disabled: %t, secret: { ref: env://K } }", id, p.off[i])
	}
	say("principals:\n  issuers:")
	for _, x := range p.issuers {
		var attributes []string
		for _, a := range []struct {
			name string
			attributePlan
		}{{"a", x.a}, {"b", x.b}} {
			from := "claim:" + a.name
			if x.static {
				from = a.value
			}
			if a.as != "" {
				attributes = append(attributes, fmt.Sprintf("%s: { from: %q, many: %t }", a.name, from, a.as == "many"))
			}
		}
		kind := "oidc"
		if x.static {
			kind = "static-key"
		}
		say("    - { id: %s, kind: %s, attributes: { %s } }", x.id, kind, strings.Join(attributes, ", "))
	}
	say("grants:")
	for _, g := range p.grants {
		var attributes []string
		if g.a != "" {
			attributes = append(attributes, fmt.Sprintf("a: %q", g.a))
		}
		if g.b != "" {
			attributes = append(attributes, fmt.Sprintf("b: %q", g.b))
		}
		say("  - to: { issuer: %s, attributes: { %s } }", g.issuer, strings.Join(attributes, ", "))
		say("    capabilities: [%s]\n    using: %s\n    ask: %s", strings.Join(g.capabilities, ", "), g.account, g.ask)
		if g.from != 0 {
			say("    from: %s", time.UnixMilli(g.from).UTC().Format(time.RFC3339))
		}
		if g.until != 0 {
			say("    until: %s", time.UnixMilli(g.until).UTC().Format(time.RFC3339))
		}
		if len(g.ceilings) > 0 {
			say("    limits:")
		}
		for _, c := range g.ceilings {
			over := string(c.Over)
			if c.Over == policy.OverAttribute {
				over = c.Attribute
			}
			say("      - { calls: %d, per: %s, over: %s }", c.Calls, c.Window, over)
		}
	}
	return b.String()
}

// TestPlans holds the shortcut against the compiler: it takes what `compiles` says it takes, and makes of it what `policy` makes.
func TestPlans(t *testing.T) {
	c := compiler(t)
	taken, refused := 0, 0
	for seed := range uint64(400) {
		p := randomPlan(rand.New(rand.NewPCG(seed, 1)))
		r := c.Compile([]byte(p.text()), policy.Options{})
		if (r.Policy != nil) != p.compiles() {
			t.Fatalf("plan %d: the compiler says %t, the shortcut %t: %v\n%s", seed, r.Policy != nil, p.compiles(), r.Diagnostics, p.text())
		}
		if r.Policy == nil {
			refused++
			continue
		}
		taken++
		want := assembly.Assemble(assembly.Input{Policy: r.Policy, NoLock: true}).Declared
		if have := p.snapshot().Declared; fmt.Sprintf("%+v", have) != fmt.Sprintf("%+v", want) {
			t.Fatalf("plan %d:\nshortcut %+v\ncompiler %+v\n%s", seed, have, want, p.text())
		}
	}
	if taken < 100 || refused < 50 {
		t.Errorf("%d plans taken and %d refused say too little", taken, refused)
	}
}
