package access_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"aduana/access"
)

// This file is the second implementation: what the design says, written as plainly as it can be, over the declaration and
// without any index. It is slow on purpose and shares no code with the package. When the two disagree, read the design.

// modelFact is what the shell knows of one counter. Counters are named by modelCeiling.key.
type modelFact struct {
	used    int64
	freesAt int64
}

type modelAnswer struct {
	code    access.Code
	pointer string
	subject string
	freesAt int64
	account access.Handle
	ask     access.Ask
}

type modelCeiling struct {
	grant   int
	limit   int
	key     string // equal exactly for ceilings that share a counter
	calls   int64
	window  int64
	pointer string
}

// modelMatch is one grant that names the capability for this caller, and the account it names.
type modelMatch struct {
	grant   int
	account access.Handle
}

func modelMatches(d access.Declared, inv access.Invocation) []modelMatch {
	var out []modelMatch
	for i, g := range d.Grants {
		if g.Issuer != inv.Caller.Issuer {
			continue
		}
		all := true
		for _, want := range g.Selector {
			all = all && slices.Contains(inv.Caller.Attributes, want)
		}
		if !all {
			continue
		}
		for _, u := range g.Uses {
			if u.Capability == inv.Capability {
				out = append(out, modelMatch{i, u.Account})
			}
		}
	}
	return out
}

func modelValid(g access.Grant, at int64) bool {
	begun := g.From == math.MinInt64 || at >= g.From
	ended := g.Until != math.MaxInt64 && at >= g.Until
	return begun && !ended
}

func modelEnabled(d access.Declared, h access.Handle) bool {
	for _, a := range d.Accounts {
		if a.Handle == h {
			return a.Enabled
		}
	}
	return false
}

// modelContent spells out what a grant is about: issuer, selector, capabilities and accounts, in no particular order.
func modelContent(g access.Grant) string {
	var selector, uses []string
	for _, a := range g.Selector {
		selector = append(selector, fmt.Sprintf("%q=%q", a.Name, a.Value))
	}
	for _, u := range g.Uses {
		uses = append(uses, fmt.Sprintf("%q using %q", u.Capability, u.Account))
	}
	slices.Sort(selector)
	slices.Sort(uses)
	return fmt.Sprintf("%q [%s] [%s]", g.Issuer, strings.Join(selector, " "), strings.Join(uses, " "))
}

func modelKey(g access.Grant, l access.Limit, account access.Handle, inv access.Invocation) string {
	who := ""
	switch l.Scope {
	case access.OverPrincipal:
		who = fmt.Sprintf("principal %q %q", inv.Caller.ID, inv.Capability)
	case access.OverGrant:
		who = "grant"
	case access.OverAccount:
		who = fmt.Sprintf("account %q", account)
	case access.OverAttribute:
		value := ""
		for _, a := range inv.Caller.Attributes {
			if a.Name == l.Attribute && value == "" {
				value = a.Value
			}
		}
		who = fmt.Sprintf("attribute %q %q", l.Attribute, value)
	}
	return fmt.Sprintf("%s / %d ms / %s", modelContent(g), l.Window, who)
}

// modelCeilings gives every ceiling that binds a permitted invocation on an account, in document order.
func modelCeilings(d access.Declared, inv access.Invocation, valid []modelMatch, account access.Handle) []modelCeiling {
	var out []modelCeiling
	for i, g := range d.Grants {
		matches := false
		for _, m := range valid {
			matches = matches || m.grant == i
		}
		onAccount := false
		for _, u := range g.Uses {
			onAccount = onAccount || u.Account == account
		}
		for j, l := range g.Limits {
			binds := matches
			if l.Scope == access.OverAccount {
				binds = onAccount && modelValid(g, inv.At)
			}
			if binds {
				out = append(out, modelCeiling{grant: i, limit: j, key: modelKey(g, l, account, inv), calls: l.Calls, window: l.Window,
					pointer: l.Pointer})
			}
		}
	}
	return out
}

// modelTighter says whether limit a is tighter than limit b: fewer calls per millisecond, or as many in a shorter window.
func modelTighter(a, b access.Limit) bool {
	ra := new(big.Rat).SetFrac(big.NewInt(a.Calls), big.NewInt(a.Window))
	rb := new(big.Rat).SetFrac(big.NewInt(b.Calls), big.NewInt(b.Window))
	if c := ra.Cmp(rb); c != 0 {
		return c < 0
	}
	return a.Window < b.Window
}

// modelWinner gives the grant whose tightest limit is the tightest of all; the first in the document of equals.
func modelWinner(d access.Declared, valid []modelMatch) int {
	winner := -1
	var best *access.Limit
	for _, m := range valid {
		var own *access.Limit
		for j := range d.Grants[m.grant].Limits {
			l := &d.Grants[m.grant].Limits[j]
			if own == nil || modelTighter(*l, *own) {
				own = l
			}
		}
		if winner == -1 || own != nil && (best == nil || modelTighter(*own, *best)) {
			winner, best = m.grant, own
		}
	}
	return winner
}

func modelValidMatches(d access.Declared, inv access.Invocation) (valid, all []modelMatch) {
	all = modelMatches(d, inv)
	for _, m := range all {
		if modelValid(d.Grants[m.grant], inv.At) {
			valid = append(valid, m)
		}
	}
	return valid, all
}

// modelEvaluate decides. facts == nil means that nothing is known of any counter.
func modelEvaluate(d access.Declared, inv access.Invocation, consulted bool, facts map[string]modelFact) modelAnswer {
	var capability *access.Capability
	for i := range d.Capabilities {
		if d.Capabilities[i].ID == inv.Capability {
			capability = &d.Capabilities[i]
		}
	}
	if capability == nil {
		return modelAnswer{code: "capability_not_declared", pointer: "/capabilities", subject: inv.Capability}
	}
	if !capability.Realized {
		return modelAnswer{code: "capability_not_realized", pointer: capability.Pointer, subject: inv.Capability}
	}
	valid, all := modelValidMatches(d, inv)
	if len(all) == 0 {
		return modelAnswer{code: "no_grant_matches", pointer: "/grants", subject: inv.Capability}
	}
	if len(valid) == 0 {
		return modelAnswer{code: "grant_expired", pointer: d.Grants[all[0].grant].Pointer, subject: inv.Capability}
	}
	for _, m := range valid {
		if m.account != valid[0].account {
			return modelAnswer{code: "ambiguous_grant", pointer: d.Grants[valid[0].grant].Pointer, subject: inv.Capability}
		}
	}
	account := valid[0].account
	if !modelEnabled(d, account) {
		return modelAnswer{code: "account_disabled", pointer: d.Grants[valid[0].grant].Pointer, subject: string(account)}
	}
	winner := d.Grants[modelWinner(d, valid)].Pointer
	if consulted {
		ceilings := modelCeilings(d, inv, valid, account)
		for _, c := range ceilings {
			if _, known := facts[c.key]; !known {
				return modelAnswer{code: "usage_unknown", pointer: winner, subject: string(account)}
			}
		}
		found := false
		var place string
		var frees int64
		for _, c := range ceilings {
			f := facts[c.key]
			if f.used < c.calls {
				continue
			}
			at := f.freesAt
			if c.calls == 0 {
				at = math.MaxInt64
			}
			if !found || at > frees {
				found, place, frees = true, c.pointer, at
			}
		}
		if found {
			return modelAnswer{code: "limit_exhausted", pointer: place, subject: inv.Capability, freesAt: frees}
		}
	}
	ask := access.AskNever
	for _, m := range valid {
		ask = max(ask, d.Grants[m.grant].Ask)
	}
	return modelAnswer{code: "granted", pointer: winner, subject: inv.Capability, account: account, ask: ask}
}
