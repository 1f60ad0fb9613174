package access_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"aduana/access"
)

const (
	second = int64(1000)
	hour   = 3600 * second
	day    = 24 * hour
)

// at is the instant of all questions here: 2026-05-03T12:00:00Z.
const at = int64(1_777_809_600_000)

func always(g access.Grant) access.Grant {
	g.From, g.Until = math.MinInt64, math.MaxInt64
	return g
}

// office is a policy in which every code can be had. Billing has the ceilings, crm has the validity.
func office() access.Declared {
	grant := func(pointer, team, capability string, account access.Handle, limits ...access.Limit) access.Grant {
		return always(access.Grant{Issuer: "corp", Pointer: pointer, Selector: []access.Attribute{{Name: "team", Value: team}},
			Uses: []access.Use{{Capability: capability, Account: account}}, Limits: limits})
	}
	d := access.Declared{
		Capabilities: []access.Capability{
			{ID: "billing.issue", Realized: true, Pointer: "/capabilities/0"},
			{ID: "billing.void", Realized: false, Pointer: "/capabilities/1"},
			{ID: "crm.read", Realized: true, Pointer: "/capabilities/2"},
		},
		Accounts: []access.Account{{Handle: "erp", Enabled: true}, {Handle: "old", Enabled: false}, {Handle: "crm", Enabled: true}},
		Grants: []access.Grant{
			grant("/grants/0", "finance", "billing.issue", "erp",
				access.Limit{Calls: 500, Window: hour, Text: "1h", Pointer: "/grants/0"}),
			grant("/grants/1", "finance", "billing.issue", "erp",
				access.Limit{Calls: 20, Window: day, Text: "24h", Pointer: "/grants/1"}),
			grant("/grants/2", "finance", "billing.issue", "erp"),
			grant("/grants/3", "sales", "crm.read", "crm"),
			grant("/grants/4", "sales", "crm.read", "crm"),
			grant("/grants/5", "legacy", "crm.read", "crm"),
			grant("/grants/6", "legacy", "crm.read", "old"),
			grant("/grants/7", "archive", "crm.read", "old"),
			grant("/grants/8", "ghost", "crm.read", "undeclared"),
			grant("/grants/9", "suspended", "crm.read", "crm",
				access.Limit{Calls: 0, Window: hour, Text: "1h", Pointer: "/grants/9/limits/0"}),
			grant("/grants/10", "shift", "crm.read", "crm"),
			grant("/grants/11", "shift", "crm.read", "old"),
			grant("/grants/12", "auditor", "billing.void", "erp"),
			grant("/grants/13", "twins", "crm.read", "crm",
				access.Limit{Calls: 5, Window: hour, Pointer: "/grants/13/limits/0"},
				access.Limit{Calls: 9, Window: day, Pointer: "/grants/13/limits/1"}),
			grant("/grants/14", "surge", "crm.read", "crm", access.Limit{Calls: 10, Window: hour, Pointer: "/grants/14"}),
			grant("/grants/15", "surge", "crm.read", "crm", access.Limit{Calls: 20, Window: day, Pointer: "/grants/15"}),
			grant("/grants/16", "even", "crm.read", "crm", access.Limit{Calls: 24, Window: day, Pointer: "/grants/16"}),
			grant("/grants/17", "even", "crm.read", "crm", access.Limit{Calls: 1, Window: hour, Pointer: "/grants/17"}),
		},
	}
	// sales holds from noon (inclusive) until one o'clock (exclusive).
	for i := 3; i <= 4; i++ {
		d.Grants[i].From, d.Grants[i].Until = at, at+hour
	}
	// shift: one account before noon, another one after; never both.
	d.Grants[10].Until = at
	d.Grants[11].From = at
	d.Grants[0].Ask, d.Grants[1].Ask, d.Grants[2].Ask = access.AskNever, access.AskDestructive, access.AskNever
	return d
}

func of(teams ...string) access.Caller {
	c := access.Caller{Issuer: "corp", ID: "corp:ana"}
	for _, team := range teams {
		c.Attributes = append(c.Attributes, access.Attribute{Name: "team", Value: team})
	}
	return c
}

// usage gives every ceiling the fact that pointer names, or none used.
func usage(p *access.Policy, inv access.Invocation, facts map[string]access.Count) access.Usage {
	u := access.Usage{State: access.Counted}
	for _, c := range p.Ceilings(nil, inv) {
		n := facts[c.Pointer]
		n.Slot = c.Slot
		u.Counts = append(u.Counts, n)
	}
	return u
}

// TestEvaluate is TS-41 of the reference under the design's rules, expected values by hand.
func TestEvaluate(t *testing.T) {
	listing := &access.Usage{State: access.NotConsulted}
	unknown := &access.Usage{}
	none := &access.Usage{State: access.Counted}
	tests := []struct {
		name       string
		caller     access.Caller
		capability string
		at         int64
		usage      *access.Usage           // nil: counted, by facts
		facts      map[string]access.Count // by pointer of the ceiling
		want       access.Reason
		permit     access.Permit
	}{
		{name: "undeclared capability", caller: of("finance"), capability: "billing.pay",
			want: access.Reason{Code: "capability_not_declared", Pointer: "/capabilities", Subject: "billing.pay"}},
		{name: "empty capability", caller: of("finance"), capability: "",
			want: access.Reason{Code: "capability_not_declared", Pointer: "/capabilities"}},
		{name: "undeclared goes before unmatched", caller: access.Caller{}, capability: "billing.pay",
			want: access.Reason{Code: "capability_not_declared", Pointer: "/capabilities", Subject: "billing.pay"}},
		{name: "unrealised, though granted", caller: of("auditor"), capability: "billing.void",
			want: access.Reason{Code: "capability_not_realized", Pointer: "/capabilities/1", Subject: "billing.void"}},
		{name: "unrealised goes before unmatched", caller: of("nobody"), capability: "billing.void",
			want: access.Reason{Code: "capability_not_realized", Pointer: "/capabilities/1", Subject: "billing.void"}},
		{name: "no grant: other team", caller: of("ventas"), capability: "billing.issue",
			want: access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "billing.issue"}},
		{name: "no grant: team of another capability", caller: of("finance"), capability: "crm.read",
			want: access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "crm.read"}},
		{name: "no grant: attribute missing", caller: of(), capability: "billing.issue",
			want: access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "billing.issue"}},
		{name: "no grant: other issuer with the same team",
			caller:     access.Caller{Issuer: "partner", ID: "partner:ana", Attributes: []access.Attribute{{Name: "team", Value: "finance"}}},
			capability: "billing.issue",
			want:       access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "billing.issue"}},
		{name: "no grant: the value under another name",
			caller:     access.Caller{Issuer: "corp", ID: "corp:ana", Attributes: []access.Attribute{{Name: "dept", Value: "finance"}}},
			capability: "billing.issue",
			want:       access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "billing.issue"}},
		{name: "no grant: the zero caller", capability: "billing.issue",
			want: access.Reason{Code: "no_grant_matches", Pointer: "/grants", Subject: "billing.issue"}},
		{name: "not yet valid by a millisecond", caller: of("sales"), capability: "crm.read", at: at - 1,
			want: access.Reason{Code: "grant_expired", Pointer: "/grants/3", Subject: "crm.read"}},
		{name: "valid from its first millisecond", caller: of("sales"), capability: "crm.read", at: at,
			want: access.Reason{Code: "granted", Pointer: "/grants/3", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "valid in its last millisecond", caller: of("sales"), capability: "crm.read", at: at + hour - 1,
			want: access.Reason{Code: "granted", Pointer: "/grants/3", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "expired at until", caller: of("sales"), capability: "crm.read", at: at + hour,
			want: access.Reason{Code: "grant_expired", Pointer: "/grants/3", Subject: "crm.read"}},
		{name: "one account before noon", caller: of("shift"), capability: "crm.read", at: at - 1,
			want: access.Reason{Code: "granted", Pointer: "/grants/10", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "disjoint validity is not ambiguous", caller: of("shift"), capability: "crm.read", at: at,
			want: access.Reason{Code: "account_disabled", Pointer: "/grants/11", Subject: "old"}},
		{name: "two accounts", caller: of("legacy"), capability: "crm.read",
			want: access.Reason{Code: "ambiguous_grant", Pointer: "/grants/5", Subject: "crm.read"}},
		{name: "two accounts through two values of one attribute", caller: of("archive", "twins"), capability: "crm.read",
			want: access.Reason{Code: "ambiguous_grant", Pointer: "/grants/7", Subject: "crm.read"}},
		{name: "disabled account", caller: of("archive"), capability: "crm.read",
			want: access.Reason{Code: "account_disabled", Pointer: "/grants/7", Subject: "old"}},
		{name: "undeclared account counts as disabled", caller: of("ghost"), capability: "crm.read",
			want: access.Reason{Code: "account_disabled", Pointer: "/grants/8", Subject: "undeclared"}},
		{name: "disabled account in a listing", caller: of("archive"), capability: "crm.read", usage: listing,
			want: access.Reason{Code: "account_disabled", Pointer: "/grants/7", Subject: "old"}},
		{name: "20 per day beats 500 per hour and none at all; the strictest ask holds", caller: of("finance"), capability: "billing.issue",
			want:   access.Reason{Code: "granted", Pointer: "/grants/1", Subject: "billing.issue"},
			permit: access.Permit{Account: "erp", Ask: access.AskDestructive}},
		{name: "the lower rate wins, not the lower number", caller: of("surge"), capability: "crm.read",
			want: access.Reason{Code: "granted", Pointer: "/grants/15", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "of equal rates, the shorter window", caller: of("even"), capability: "crm.read",
			want: access.Reason{Code: "granted", Pointer: "/grants/17", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "usage unknown", caller: of("finance"), capability: "billing.issue", usage: unknown,
			want: access.Reason{Code: "usage_unknown", Pointer: "/grants/1", Subject: "erp"}},
		{name: "usage counted, but not of these ceilings", caller: of("finance"), capability: "billing.issue", usage: none,
			want: access.Reason{Code: "usage_unknown", Pointer: "/grants/1", Subject: "erp"}},
		{name: "unknown usage is harmless without a ceiling", caller: of("sales"), capability: "crm.read", usage: unknown,
			want: access.Reason{Code: "granted", Pointer: "/grants/3", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "one below the ceiling", caller: of("finance"), capability: "billing.issue",
			facts:  map[string]access.Count{"/grants/1": {Used: 19, FreesAt: at + 5}},
			want:   access.Reason{Code: "granted", Pointer: "/grants/1", Subject: "billing.issue"},
			permit: access.Permit{Account: "erp", Ask: access.AskDestructive}},
		{name: "at the ceiling", caller: of("finance"), capability: "billing.issue",
			facts: map[string]access.Count{"/grants/1": {Used: 20, FreesAt: at + 5}},
			want:  access.Reason{Code: "limit_exhausted", Pointer: "/grants/1", Subject: "billing.issue", FreesAt: at + 5}},
		{name: "over a ceiling that was lowered", caller: of("finance"), capability: "billing.issue",
			facts: map[string]access.Count{"/grants/1": {Used: 400, FreesAt: at + 5}},
			want:  access.Reason{Code: "limit_exhausted", Pointer: "/grants/1", Subject: "billing.issue", FreesAt: at + 5}},
		{name: "the laxer ceiling binds as well", caller: of("finance"), capability: "billing.issue",
			facts: map[string]access.Count{"/grants/0": {Used: 500, FreesAt: at + 9}},
			want:  access.Reason{Code: "limit_exhausted", Pointer: "/grants/0", Subject: "billing.issue", FreesAt: at + 9}},
		{name: "of two used up, the one that frees last", caller: of("twins"), capability: "crm.read",
			facts: map[string]access.Count{"/grants/13/limits/0": {Used: 5, FreesAt: at + 1}, "/grants/13/limits/1": {Used: 9, FreesAt: at + 2}},
			want:  access.Reason{Code: "limit_exhausted", Pointer: "/grants/13/limits/1", Subject: "crm.read", FreesAt: at + 2}},
		{name: "of two that free together, the first", caller: of("twins"), capability: "crm.read",
			facts: map[string]access.Count{"/grants/13/limits/0": {Used: 5, FreesAt: at + 2}, "/grants/13/limits/1": {Used: 9, FreesAt: at + 2}},
			want:  access.Reason{Code: "limit_exhausted", Pointer: "/grants/13/limits/0", Subject: "crm.read", FreesAt: at + 2}},
		{name: "suspended: visible in a listing", caller: of("suspended"), capability: "crm.read", usage: listing,
			want: access.Reason{Code: "granted", Pointer: "/grants/9", Subject: "crm.read"}, permit: access.Permit{Account: "crm"}},
		{name: "suspended: never callable", caller: of("suspended"), capability: "crm.read",
			want: access.Reason{Code: "limit_exhausted", Pointer: "/grants/9/limits/0", Subject: "crm.read", FreesAt: math.MaxInt64}},
	}
	p := access.Compile(office())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inv := access.Invocation{Caller: tt.caller, Capability: tt.capability, At: tt.at}
			if inv.At == 0 {
				inv.At = at
			}
			if tt.usage != nil {
				inv.Usage = *tt.usage
			} else {
				inv.Usage = usage(p, inv, tt.facts)
			}
			d := access.Evaluate(p, inv)
			if d.Reason() != tt.want {
				t.Errorf("reason %+v\n  want %+v", d.Reason(), tt.want)
			}
			permit, allowed := d.Permit()
			if wantAllowed := tt.want.Code == "granted"; allowed != wantAllowed || d.Allowed() != wantAllowed {
				t.Errorf("allowed %v, %v, want %v", allowed, d.Allowed(), wantAllowed)
			}
			if permit != tt.permit {
				t.Errorf("permit %+v, want %+v", permit, tt.permit)
			}
		})
	}
}

// TestListingIsTheDecision: what a listing shows is what a call with room under every ceiling may do.
func TestListingIsTheDecision(t *testing.T) {
	d := office()
	p := access.Compile(d)
	for _, team := range []string{"finance", "sales", "legacy", "archive", "ghost", "shift", "auditor", "twins", "nobody"} {
		for _, c := range d.Capabilities {
			inv := access.Invocation{Caller: of(team), Capability: c.ID, At: at, Usage: access.Usage{State: access.NotConsulted}}
			listed := access.Evaluate(p, inv)
			inv.Usage = usage(p, inv, nil)
			if called := access.Evaluate(p, inv); called != listed {
				t.Errorf("%s %s: listed %+v, called %+v", team, c.ID, listed, called)
			}
		}
	}
}

func TestZeroValuesDeny(t *testing.T) {
	if (access.Decision{}).Allowed() {
		t.Error("the zero Decision allows")
	}
	if permit, ok := (access.Decision{}).Permit(); ok || permit != (access.Permit{}) {
		t.Error("the zero Decision carries a permit")
	}
	full := access.Invocation{Caller: of("finance"), Capability: "billing.issue", At: at, Usage: access.Usage{State: access.NotConsulted}}
	unlimited := access.Compile(access.Declared{
		Capabilities: []access.Capability{{ID: "c"}},
		Grants:       []access.Grant{{Uses: []access.Use{{Capability: "c"}}}},
	})
	tests := []struct {
		name string
		p    *access.Policy
		inv  access.Invocation
		want access.Code
	}{
		{"nil policy", nil, full, access.CapabilityNotDeclared},
		{"empty policy", access.Compile(access.Declared{}), full, access.CapabilityNotDeclared},
		{"zero policy", &access.Policy{}, full, access.CapabilityNotDeclared},
		{"zero question", access.Compile(office()), access.Invocation{}, access.CapabilityNotDeclared},
		{"a capability that says nothing is not realised", unlimited, access.Invocation{Capability: "c"}, access.CapabilityNotRealized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := access.Evaluate(tt.p, tt.inv); d.Allowed() || d.Reason().Code != tt.want {
				t.Errorf("%+v, want %s", d.Reason(), tt.want)
			}
			if got := tt.p.Ceilings(nil, tt.inv); tt.p == nil && got != nil {
				t.Errorf("the nil policy has ceilings %v", got)
			}
		})
	}
	t.Run("a grant that says nothing is never valid", func(t *testing.T) {
		p := access.Compile(access.Declared{
			Capabilities: []access.Capability{{ID: "c", Realized: true}},
			Accounts:     []access.Account{{Handle: "", Enabled: true}},
			Grants:       []access.Grant{{Uses: []access.Use{{Capability: "c"}}}},
		})
		for _, at := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
			if d := access.Evaluate(p, access.Invocation{Capability: "c", At: at}); d.Reason().Code != access.GrantExpired {
				t.Errorf("at %d: %+v", at, d.Reason())
			}
		}
	})
	t.Run("an account that says nothing is disabled", func(t *testing.T) {
		p := access.Compile(access.Declared{
			Capabilities: []access.Capability{{ID: "c", Realized: true}},
			Accounts:     []access.Account{{}},
			Grants:       []access.Grant{always(access.Grant{Uses: []access.Use{{Capability: "c"}}, Pointer: "/grants/0"})},
		})
		if d := access.Evaluate(p, access.Invocation{Capability: "c"}); d.Reason().Code != access.AccountDisabled {
			t.Errorf("%+v", d.Reason())
		}
	})
	t.Run("a limit that says nothing allows no call", func(t *testing.T) {
		d := office()
		d.Grants[3].Limits = []access.Limit{{Pointer: "/grants/3"}}
		p := access.Compile(d)
		inv := access.Invocation{Caller: of("sales"), Capability: "crm.read", At: at}
		inv.Usage = usage(p, inv, nil)
		if got := access.Evaluate(p, inv); got.Reason().Code != access.LimitExhausted {
			t.Errorf("%+v", got.Reason())
		}
	})
}

// TestAccountCeilingBindsEverybody: a ceiling over an account counts calls through grants that do not carry it, of other people,
// issuers and capabilities; and only while the grant that carries it is valid.
func TestAccountCeilingBindsEverybody(t *testing.T) {
	use := func(c string) []access.Use { return []access.Use{{Capability: c, Account: "shared"}} }
	carrier := access.Grant{Issuer: "corp", Selector: []access.Attribute{{Name: "team", Value: "ops"}}, Uses: use("a"), From: 0, Until: 1000,
		Pointer: "/grants/1", Limits: []access.Limit{{Calls: 5, Window: hour, Scope: access.OverAccount, Pointer: "/grants/1"}}}
	d := access.Declared{
		Capabilities: []access.Capability{{ID: "a", Realized: true}, {ID: "b", Realized: true}},
		Accounts:     []access.Account{{Handle: "shared", Enabled: true}, {Handle: "other", Enabled: true}},
		Grants: []access.Grant{
			always(access.Grant{Issuer: "partner", Uses: use("b"), Pointer: "/grants/0"}),
			carrier,
			always(access.Grant{Issuer: "else", Uses: []access.Use{{Capability: "b", Account: "other"}}, Pointer: "/grants/2"}),
		},
	}
	p := access.Compile(d)
	ask := func(issuer string, at int64) ([]access.Ceiling, access.Decision) {
		inv := access.Invocation{Caller: access.Caller{Issuer: issuer, ID: issuer + ":x"}, Capability: "b", At: at}
		inv.Usage = usage(p, inv, map[string]access.Count{"/grants/1": {Used: 5, FreesAt: 7}})
		return p.Ceilings(nil, inv), access.Evaluate(p, inv)
	}
	ceilings, d1 := ask("partner", 999)
	want := access.Reason{Code: access.LimitExhausted, Pointer: "/grants/1", Subject: "b", FreesAt: 7}
	if d1.Reason() != want {
		t.Errorf("through a grant that does not carry it: %+v, want %+v", d1.Reason(), want)
	}
	if len(ceilings) != 1 || ceilings[0].Scope != access.OverAccount {
		t.Errorf("ceilings %+v", ceilings)
	}
	for _, at := range []int64{-1, 1000} {
		if ceilings, got := ask("partner", at); !got.Allowed() || len(ceilings) != 0 {
			t.Errorf("at %d, when the carrier does not hold: %+v, %v", at, got.Reason(), ceilings)
		}
	}
	if ceilings, got := ask("else", 999); !got.Allowed() || len(ceilings) != 0 {
		t.Errorf("on another account: %+v, %v", got.Reason(), ceilings)
	}
}

func key(t *testing.T, d access.Declared, inv access.Invocation) access.Key {
	t.Helper()
	c := access.Compile(d).Ceilings(nil, inv)
	if len(c) != 1 {
		t.Fatalf("%d ceilings, want 1", len(c))
	}
	return c[0].Key(inv)
}

// TestKey says what a counter's name depends on: a change on the left resets the counter, one on the right never does.
func TestKey(t *testing.T) {
	base := func() (access.Declared, access.Invocation) {
		d := access.Declared{
			Capabilities: []access.Capability{{ID: "a", Realized: true}, {ID: "b", Realized: true}},
			Accounts:     []access.Account{{Handle: "x", Enabled: true}, {Handle: "y", Enabled: true}},
			Grants: []access.Grant{always(access.Grant{Issuer: "corp", Selector: []access.Attribute{{Name: "team", Value: "t"}, {Name: "role", Value: "r"}},
				Uses:    []access.Use{{Capability: "a", Account: "x"}, {Capability: "b", Account: "x"}},
				Limits:  []access.Limit{{Calls: 5, Window: hour, Text: "1h", Attribute: "", Pointer: "/grants/0"}},
				Pointer: "/grants/0"})},
		}
		inv := access.Invocation{Capability: "a", Caller: access.Caller{Issuer: "corp", ID: "corp:ana",
			Attributes: []access.Attribute{{Name: "team", Value: "t"}, {Name: "role", Value: "r"}, {Name: "role", Value: "z"}}}}
		return d, inv
	}
	scopes := map[string]access.Scope{"principal": access.OverPrincipal, "grant": access.OverGrant, "account": access.OverAccount,
		"attribute": access.OverAttribute}
	changes := []struct {
		name    string
		change  func(d *access.Declared, inv *access.Invocation)
		changes []string // scopes whose key changes
	}{
		{"number", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Limits[0].Calls = 6 }, nil},
		{"window spelled otherwise", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Limits[0].Text = "60m" }, nil},
		{"ask", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Ask = access.AskAlways }, nil},
		{"validity", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].From, d.Grants[0].Until = -5, 5 }, nil},
		{"place", func(d *access.Declared, _ *access.Invocation) {
			d.Grants[0].Pointer, d.Grants[0].Limits[0].Pointer = "/x", "/y"
		}, nil},
		{"index", func(d *access.Declared, _ *access.Invocation) {
			other := always(access.Grant{Issuer: "else", Uses: []access.Use{{Capability: "a", Account: "y"}},
				Limits: []access.Limit{{Calls: 1, Window: 1, Scope: access.OverAccount}, {Calls: 1, Window: 2}}})
			d.Grants = []access.Grant{other, other, d.Grants[0]}
		}, nil},
		{"a limit before it", func(d *access.Declared, _ *access.Invocation) {
			// On the other account, so that it does not bind here.
			d.Grants = append([]access.Grant{always(access.Grant{Issuer: "corp", Uses: []access.Use{{Capability: "b", Account: "y"}},
				Limits: []access.Limit{{Calls: 5, Window: hour}}})}, d.Grants...)
		}, nil},
		{"order of uses and selector", func(d *access.Declared, _ *access.Invocation) {
			slices.Reverse(d.Grants[0].Uses)
			slices.Reverse(d.Grants[0].Selector)
		}, nil},
		{"order of the caller's attributes", func(_ *access.Declared, inv *access.Invocation) { slices.Reverse(inv.Caller.Attributes) }, nil},
		{"instant", func(_ *access.Declared, inv *access.Invocation) { inv.At = 99 }, nil},
		{"window", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Limits[0].Window = day },
			[]string{"principal", "grant", "account", "attribute"}},
		{"account", func(d *access.Declared, _ *access.Invocation) {
			d.Grants[0].Uses = []access.Use{{Capability: "a", Account: "y"}, {Capability: "b", Account: "y"}}
		}, []string{"principal", "grant", "account", "attribute"}},
		{"one capability less", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Uses = d.Grants[0].Uses[:1] },
			[]string{"principal", "grant", "account", "attribute"}},
		{"selector", func(d *access.Declared, _ *access.Invocation) { d.Grants[0].Selector = d.Grants[0].Selector[:1] },
			[]string{"principal", "grant", "account", "attribute"}},
		{"issuer", func(d *access.Declared, inv *access.Invocation) { d.Grants[0].Issuer, inv.Caller.Issuer = "c2", "c2" },
			[]string{"principal", "grant", "account", "attribute"}},
		{"person", func(_ *access.Declared, inv *access.Invocation) { inv.Caller.ID = "corp:bo" }, []string{"principal"}},
		{"capability asked for", func(_ *access.Declared, inv *access.Invocation) { inv.Capability = "b" }, []string{"principal"}},
	}
	seen := map[access.Key]string{}
	for name, scope := range scopes {
		with := func(d *access.Declared) {
			d.Grants[len(d.Grants)-1].Limits[0].Scope = scope
			if scope == access.OverAttribute {
				d.Grants[len(d.Grants)-1].Limits[0].Attribute = "team"
			}
		}
		d, inv := base()
		with(&d)
		before := key(t, d, inv)
		if before == (access.Key{}) || seen[before] != "" {
			t.Errorf("scopes %s and %s share a counter", name, seen[before])
		}
		seen[before] = name
		for _, c := range changes {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				d, inv := base()
				with(&d)
				c.change(&d, &inv)
				if changed, want := key(t, d, inv) != before, slices.Contains(c.changes, name); changed != want {
					t.Errorf("changed: %v, want %v", changed, want)
				}
			})
		}
	}
	t.Run("attribute/value", func(t *testing.T) {
		d, inv := base()
		d.Grants[0].Selector = d.Grants[0].Selector[1:]
		d.Grants[0].Limits[0].Scope, d.Grants[0].Limits[0].Attribute = access.OverAttribute, "team"
		before := key(t, d, inv)
		inv.Caller.Attributes[0].Value = "u"
		if key(t, d, inv) == before {
			t.Error("two teams share a counter")
		}
	})
}

func TestBoundaries(t *testing.T) {
	d := access.Declared{Grants: []access.Grant{
		{From: 5, Until: 9}, {From: math.MinInt64, Until: 5}, {From: -3, Until: math.MaxInt64}, {From: math.MinInt64, Until: math.MaxInt64},
	}}
	if got, want := access.Boundaries(d), []int64{-3, 5, 9}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := access.Boundaries(access.Declared{}); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
	// Between two neighbours nothing changes with time alone.
	for seed := range uint64(200) {
		g := generator{rand.New(rand.NewPCG(7, seed))}
		d := g.declared()
		p := access.Compile(d)
		inv := access.Invocation{Caller: g.caller(), Capability: "c1", Usage: access.Usage{State: access.NotConsulted}}
		bounds := access.Boundaries(d)
		for i := 1; i < len(bounds); i++ {
			inv.At = bounds[i-1]
			first := access.Evaluate(p, inv)
			inv.At = bounds[i] - 1
			if last := access.Evaluate(p, inv); last != first {
				t.Fatalf("seed %d: between %d and %d: %+v, %+v", seed, bounds[i-1], bounds[i], first, last)
			}
		}
	}
}
