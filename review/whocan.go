package review

import (
	"math"

	"aduana/access"
	"aduana/accounts"
	"aduana/assembly"
	"aduana/policy"
)

// Reach is everybody who could use a capability. It is exact because there are no deny rules.
type Reach struct {
	Capability string
	Declared   bool
	Realized   bool
	Ways       []Way
	Tools      []Thing
}

// Way is one grant that leads to the capability.
type Way struct {
	Issuer   string
	Selector []access.Attribute
	Account  accounts.Handle
	Enabled  bool // the account may be used
	Ceilings []Ceiling
	From     int64 // Unix milliseconds; math.MinInt64 = always
	Until    int64 // Unix milliseconds; math.MaxInt64 = always
	ValidNow bool  // at the instant asked for
	Ask      policy.Ask
	Pointer  string
	Place    string
}

// WhoCan lists every way to a capability, or to a tool's capability (exposed name or canonical identity), in document order.
// At is in Unix milliseconds.
func WhoCan(s *assembly.Snapshot, capability, tool string, at int64) (Reach, error) {
	if tool != "" {
		t, err := find(s, tool)
		if err != nil {
			return Reach{}, err
		}
		capability = t.Capability
	}
	r := Reach{Capability: capability, Tools: realising(s, capability)}
	for _, c := range s.Declared.Capabilities {
		if c.ID == capability {
			r.Declared, r.Realized = true, c.Realized
		}
	}
	enabled := map[access.Handle]bool{}
	for _, a := range s.Declared.Accounts {
		enabled[a.Handle] = a.Enabled
	}
	for i := range s.Declared.Grants {
		g := &s.Declared.Grants[i]
		for _, u := range g.Uses {
			if u.Capability != capability {
				continue
			}
			w := Way{Issuer: g.Issuer, Selector: g.Selector, Account: accounts.Handle(u.Account), Enabled: enabled[u.Account],
				From: g.From, Until: g.Until, ValidNow: g.From <= at && at < g.Until, Pointer: g.Pointer, Place: s.Place(g.Pointer)}
			w.Ask = s.Policy.Grants[i].Ask
			for _, l := range g.Limits {
				w.Ceilings = append(w.Ceilings, Ceiling{Calls: l.Calls, Per: l.Text, Over: over(l.Scope, l.Attribute),
					Place: s.Place(l.Pointer), Point: l.Pointer})
			}
			r.Ways = append(r.Ways, w)
		}
	}
	return r, nil
}

// Bounded reports whether a way has a validity of its own.
func (w Way) Bounded() bool { return w.From != math.MinInt64 || w.Until != math.MaxInt64 }
