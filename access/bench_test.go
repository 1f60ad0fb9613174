package access_test

import (
	"fmt"
	"math"
	"testing"

	"aduana/access"
)

// company has 10,000 grants and 1,000 capabilities. Every grant uses two capabilities, so that each has 20 grants; all of them
// are for the caller's issuer and team, so that the index can rule out none: 20 candidates, all matching. Every fifth grant has a
// ceiling when ceilings are asked for.
func company(ceilings bool) access.Declared {
	const capabilities, grants = 1000, 10_000
	d := access.Declared{Accounts: []access.Account{{Handle: "acct", Enabled: true}}}
	for i := range capabilities {
		d.Capabilities = append(d.Capabilities, access.Capability{ID: fmt.Sprintf("cap.%d", i), Realized: true,
			Pointer: fmt.Sprintf("/capabilities/%d", i)})
	}
	for i := range grants {
		g := access.Grant{Issuer: "corp", From: math.MinInt64, Until: math.MaxInt64, Pointer: fmt.Sprintf("/grants/%d", i),
			Selector: []access.Attribute{{Name: "team", Value: "finance"}},
			Uses: []access.Use{{Capability: fmt.Sprintf("cap.%d", i%capabilities), Account: "acct"},
				{Capability: fmt.Sprintf("cap.%d", (i+1)%capabilities), Account: "acct"}}}
		if ceilings && (i/capabilities)%5 == 0 {
			g.Limits = []access.Limit{{Calls: int64(100 + i/capabilities), Window: 3_600_000 + int64(i/capabilities), Pointer: g.Pointer}}
		}
		d.Grants = append(d.Grants, g)
	}
	return d
}

// crowd has all 10,000 grants on one capability, all matching the caller.
func crowd() access.Declared {
	d := company(false)
	for i := range d.Grants {
		d.Grants[i].Uses = []access.Use{{Capability: "cap.7", Account: "acct"}}
	}
	return d
}

func question(p *access.Policy) access.Invocation {
	inv := access.Invocation{Capability: "cap.7", At: 1_777_809_600_000, Caller: access.Caller{Issuer: "corp", ID: "corp:ana",
		Attributes: []access.Attribute{{Name: "dept", Value: "billing"}, {Name: "role", Value: "clerk"}, {Name: "team", Value: "finance"}}}}
	inv.Usage.State = access.Counted
	for _, c := range p.Ceilings(nil, inv) {
		inv.Usage.Counts = append(inv.Usage.Counts, access.Count{Slot: c.Slot, Used: 3})
	}
	return inv
}

// TestAllowDoesNotAllocate guards the fast path: a decision that goes on costs no garbage, however many ceilings bind.
func TestAllowDoesNotAllocate(t *testing.T) {
	for _, ceilings := range []bool{false, true} {
		p := access.Compile(company(ceilings))
		inv := question(p)
		want := 0
		if ceilings {
			want = 4
		}
		if len(inv.Usage.Counts) != want {
			t.Fatalf("%d ceilings bind, want %d", len(inv.Usage.Counts), want)
		}
		if d := access.Evaluate(p, inv); !d.Allowed() {
			t.Fatalf("%+v", d.Reason())
		}
		if n := testing.AllocsPerRun(200, func() { access.Evaluate(p, inv) }); n != 0 {
			t.Errorf("ceilings %v: %v allocations", ceilings, n)
		}
	}
}

func BenchmarkEvaluate20Candidates(b *testing.B) {
	for _, ceilings := range []bool{false, true} {
		name := "NoCeiling"
		if ceilings {
			name = "4Ceilings"
		}
		b.Run(name, func(b *testing.B) {
			p := access.Compile(company(ceilings))
			inv := question(p)
			b.ReportAllocs()
			for b.Loop() {
				if !access.Evaluate(p, inv).Allowed() {
					b.Fatal("denied")
				}
			}
		})
	}
}

// BenchmarkEvaluateWorst is what the index cannot help: every grant of the policy is a candidate.
func BenchmarkEvaluateWorst(b *testing.B) {
	p := access.Compile(crowd())
	inv := question(p)
	b.ReportAllocs()
	for b.Loop() {
		if !access.Evaluate(p, inv).Allowed() {
			b.Fatal("denied")
		}
	}
}

func BenchmarkCompile10k(b *testing.B) {
	d := company(true)
	b.ReportAllocs()
	for b.Loop() {
		access.Compile(d)
	}
}
