package review

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"aduana/access"
	"aduana/accounts"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/consent"
	"aduana/policy"
	"aduana/principals"
)

// Kind is what about a thing changed.
type Kind string

// The kinds of change. Access has two directions, because they are judged differently.
const (
	NewAccess  Kind = "new-access"
	LostAccess Kind = "lost-access"
	Account    Kind = "account"
	CeilingSet Kind = "ceiling"
	Ask        Kind = "ask"
	Trust      Kind = "trust"
)

// Change is one difference between two policies. Decisions change for identities and have a witness: a principal with as few attributes
// as possible for whom it is so. Trust changes speak of a place in the policy.
type Change struct {
	Kind       Kind
	Identities []string // canonical, sorted; empty for Trust
	Witness    *Witness
	At         int64 // Unix milliseconds; the instant at which the witness sees it
	Before     Side
	After      Side
	Subject    string // Trust: "upstream crm", "issuer corp", "account ops"
	Aspect     string // Trust: url, command, args, …
}

// Witness is a principal. Fixed says that it is the one subject of a static-key issuer; it presents its issuer's literal
// attributes, and those of the other side where the issuer is no static key.
type Witness struct {
	Issuer     string
	Attributes []access.Attribute
	Fixed      bool
}

// String reads "corp [role=manager team=ventas]".
func (w Witness) String() string {
	var parts []string
	for _, a := range w.Attributes {
		parts = append(parts, a.Name+"="+a.Value)
	}
	return w.Issuer + " [" + strings.Join(parts, " ") + "]"
}

// Side is one policy's answer. An empty Code on a declared Side says that the witness does not exist there: the issuer is not
// declared, or it is a static key and the witness is not its subject.
type Side struct {
	Declared bool // the tool is mapped at all
	Code     access.Code
	Account  accounts.Handle
	Ask      access.Ask    // the strictest of the grants
	State    consent.State // what that comes to, given the capability's risk
	Ceilings []string      // "5 per 1h over principal", sorted
	Value    string        // Trust
	Place    string
}

// Diff compares two policies exactly: it reports a kind of change for an identity if and only if some principal sees it at some
// instant, and never mere reordering. Both snapshots must be assembled alike (with the same catalogue, or none).
//
// Few witnesses are enough, because selectors are positive conjunctions and a compiled policy has no ambiguous grants. Say that a
// principal P, matching the grants B before and A after, sees a change. Access: P is allowed on one side only, say before, by
// some g in B. The minimal principal of g matches a non-empty part of B, and of A nothing, or grants whose account is disabled:
// allowed before, denied after. Account, ceilings and ask: both sides allow; take g in B and h in A, of which g (or h) carries
// what the other side lacks, or both the strictest ask; the minimal principal of both matches parts of B and A that still differ.
// So the minimal principals of every single selector and of every compatible pair across the two sides suffice, at one instant of
// every interval between the beginnings and ends of grants.
//
// All of that needs one thing: the minimal principal has, on either side, no attribute that P lacks there. An attribute that
// is set-valued on one side only breaks it: of a P with two values, the side where it is single-valued sees none. Where the
// selectors ask for such an attribute on its set-valued side and not on the other, a second witness therefore has one value
// more, which no grant names: it is the minimal principal of which the single-valued side sees nothing.
func Diff(before, after *assembly.Snapshot, at *int64) []Change {
	var out []Change
	pairs := map[capabilityPair][]string{}
	for id, p := range identities(before, after) {
		pairs[p] = append(pairs[p], id.Canonical())
	}
	keys := make([]capabilityPair, 0, len(pairs))
	for p := range pairs {
		slices.Sort(pairs[p])
		keys = append(keys, p)
	}
	slices.SortFunc(keys, func(a, b capabilityPair) int {
		if c := strings.Compare(a.before, b.before); c != 0 {
			return c
		}
		return strings.Compare(a.after, b.after)
	})
	for _, p := range keys {
		for _, c := range compareCapability(before, after, p, at) {
			c.Identities = pairs[p]
			out = append(out, c)
		}
	}
	return append(out, trust(before, after)...)
}

// capabilityPair is what an identity maps to on both sides; empty where it is not mapped.
type capabilityPair struct{ before, after string }

func identities(before, after *assembly.Snapshot) map[capabilities.Identity]capabilityPair {
	all := map[capabilities.Identity]capabilityPair{}
	for _, t := range before.Tools {
		all[t.Identity] = capabilityPair{before: t.Capability}
	}
	for _, t := range after.Tools {
		p := all[t.Identity]
		p.after = t.Capability
		all[t.Identity] = p
	}
	return all
}

func compareCapability(before, after *assembly.Snapshot, p capabilityPair, at *int64) []Change {
	instants := instantsOf(before, after)
	if at != nil {
		instants = []int64{*at}
	}
	old, young := asked{before, p.before, riskOf(before, p.before)}, asked{after, p.after, riskOf(after, p.after)}
	var found []Change
	for _, w := range witnesses(before, after, p) {
		for _, instant := range instants {
			b, a := old.side(w, instant), young.side(w, instant)
			for _, k := range kinds(b, a) {
				c := Change{Kind: k, Witness: &w, At: instant, Before: b, After: a}
				if !slices.ContainsFunc(found, func(x Change) bool { return explains(x, c) }) {
					found = append(found, c)
				}
			}
		}
	}
	return found
}

// explains reports whether x already tells what c would: the same change, for a witness of whom c's is a special case.
func explains(x, c Change) bool {
	if x.Kind != c.Kind || x.Witness.Issuer != c.Witness.Issuer || x.Witness.Fixed != c.Witness.Fixed ||
		!x.Before.same(c.Before) || !x.After.same(c.After) {
		return false
	}
	for _, a := range x.Witness.Attributes {
		if !slices.Contains(c.Witness.Attributes, a) {
			return false
		}
	}
	return true
}

func (s Side) same(o Side) bool {
	return s.Declared == o.Declared && s.Code == o.Code && s.Account == o.Account && s.Ask == o.Ask && s.State == o.State &&
		slices.Equal(s.Ceilings, o.Ceilings)
}

func (s Side) allowed() bool { return s.Code == access.Granted }

func kinds(b, a Side) []Kind {
	switch {
	case !b.allowed() && a.allowed():
		return []Kind{NewAccess}
	case b.allowed() && !a.allowed():
		return []Kind{LostAccess}
	case !b.allowed():
		return nil
	}
	var k []Kind
	if b.Account != a.Account {
		k = append(k, Account)
	}
	if !slices.Equal(b.Ceilings, a.Ceilings) {
		k = append(k, CeilingSet)
	}
	if b.Ask != a.Ask || b.State != a.State {
		k = append(k, Ask)
	}
	return k
}

// asked is one side's capability; an empty one is that of a tool which is not mapped there.
type asked struct {
	s          *assembly.Snapshot
	capability string
	risk       consent.Risk
}

func (q asked) side(w Witness, at int64) Side {
	if q.capability == "" {
		return Side{}
	}
	s := q.s
	if fixedIssuer(s, w.Issuer) != nil && !w.Fixed {
		return Side{Declared: true} // a static key has one subject and vouches for nobody else
	}
	p, _, problem := s.Issuers.Admit(presented(s, w))
	if problem != principals.NoProblem {
		return Side{Declared: true}
	}
	inv := access.Invocation{Caller: assembly.CallerOf(p), Capability: q.capability, At: at, Usage: access.Usage{State: access.NotConsulted}}
	d := access.Evaluate(s.Access, inv)
	out := Side{Declared: true, Code: d.Reason().Code, Place: s.Place(d.Reason().Pointer)}
	if permit, ok := d.Permit(); ok {
		out.Account, out.Ask = accounts.Handle(permit.Account), permit.Ask
		out.State = consent.Resolve(assembly.RuleOf(permit.Ask), q.risk)
		for _, c := range s.Access.Ceilings(nil, inv) {
			out.Ceilings = append(out.Ceilings, fmt.Sprintf("%d per %s over %s", c.Calls, window(c.Window), over(c.Scope, c.Attribute)))
		}
		slices.Sort(out.Ceilings)
		out.Ceilings = slices.Compact(out.Ceilings)
	}
	return out
}

// window writes milliseconds in the largest unit that fits, so that 60m and 1h are no change.
func window(ms int64) string {
	for _, u := range []struct {
		ms   int64
		name string
	}{{86_400_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if ms%u.ms == 0 {
			return fmt.Sprintf("%d%s", ms/u.ms, u.name)
		}
	}
	return fmt.Sprintf("%dms", ms)
}

// presented gives what an issuer would present for a witness. A static-key issuer presents its own literals, whatever they are on
// this side.
func presented(s *assembly.Snapshot, w Witness) principals.Presented {
	p := principals.Presented{Issuer: principals.IssuerID(w.Issuer), Subject: "witness"}
	if i := fixedIssuer(s, w.Issuer); w.Fixed && i != nil {
		for _, a := range i.Attributes {
			p.Attributes = append(p.Attributes, principals.Attribute{Name: a.Name, Value: a.From})
		}
		return p
	}
	for _, a := range w.Attributes {
		p.Attributes = append(p.Attributes, principals.Attribute(a))
	}
	return p
}

func fixedIssuer(s *assembly.Snapshot, id string) *policy.Issuer {
	for i := range s.Policy.Issuers {
		if s.Policy.Issuers[i].ID == id && s.Policy.Issuers[i].Kind == policy.IssuerStaticKey {
			return &s.Policy.Issuers[i]
		}
	}
	return nil
}

// witnesses gives the minimal principals of every selector that names one of the capabilities and of every compatible pair across
// the sides, and the subjects of static keys; fewest attributes first.
func witnesses(before, after *assembly.Snapshot, p capabilityPair) []Witness {
	old, young := naming(before, p.before), naming(after, p.after)
	var all []Witness
	seen := map[string]bool{}
	add := func(w Witness) {
		key := fmt.Sprintf("%t %q %q", w.Fixed, w.Issuer, w.Attributes)
		if !seen[key] {
			seen[key] = true
			all = append(all, w)
		}
	}
	// minimal adds the principals of one grant (the other is nil then) or of two. Those of an issuer that is nothing but a static
	// key are known already.
	minimal := func(issuer string, g, h []access.Attribute) {
		key, people := issuing(before, after, issuer)
		if key {
			add(Witness{Issuer: issuer, Fixed: true, Attributes: ordered(slices.Concat(literals(before, issuer), literals(after, issuer)))})
		}
		if !people {
			return
		}
		w := Witness{Issuer: issuer, Attributes: ordered(slices.Concat(g, h))}
		add(w)
		more := slices.Clone(w.Attributes)
		for _, a := range w.Attributes {
			set, single := many(before, issuer, a.Name), h
			if !set {
				single = g
			}
			if set != many(after, issuer, a.Name) && !slices.ContainsFunc(single, func(x access.Attribute) bool { return x.Name == a.Name }) {
				more = append(more, access.Attribute{Name: a.Name, Value: unnamed(a.Name, old, young)})
			}
		}
		add(Witness{Issuer: issuer, Attributes: ordered(more)})
	}
	for _, g := range old {
		minimal(g.Issuer, g.Selector, nil)
	}
	for _, h := range young {
		minimal(h.Issuer, nil, h.Selector)
	}
	was, is := effects(before, p.before, old), effects(after, p.after, young)
	for i, g := range old {
		for j, h := range young {
			if was[i] != is[j] && g.Issuer == h.Issuer && compatible(before, after, g, h) {
				minimal(g.Issuer, g.Selector, h.Selector)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Witness) int {
		if c := len(a.Attributes) - len(b.Attributes); c != 0 {
			return c
		}
		return strings.Compare(a.String(), b.String())
	})
	return all
}

// effects gives for every grant all that it can add to a permit of the capability, besides to whom and when. A pair with equal
// effects is no witness of its own: the argument of Diff picks g and h of which one has what the other lacks. In a policy that
// changed little, these are nearly all pairs.
func effects(s *assembly.Snapshot, capability string, grants []access.Grant) []string {
	account := func(g access.Grant) access.Handle {
		i := slices.IndexFunc(g.Uses, func(u access.Use) bool { return u.Capability == capability })
		return g.Uses[i].Account
	}
	onAccount := map[access.Handle]string{}
	for _, g := range grants {
		if a := account(g); onAccount[a] == "" {
			onAccount[a] = accountEffect(s, a)
		}
	}
	risk := riskOf(s, capability)
	out := make([]string, len(grants))
	for i, g := range grants {
		var limits []string
		for _, l := range g.Limits {
			limits = append(limits, limitEffect(l))
		}
		slices.Sort(limits)
		out[i] = fmt.Sprintf("%s %d %d %s", onAccount[account(g)], risk, g.Ask, limits)
	}
	return out
}

// accountEffect covers what an account adds whoever calls: its handle, and the ceilings that any grant puts on it.
func accountEffect(s *assembly.Snapshot, handle access.Handle) string {
	all := []string{string(handle)}
	for _, g := range s.Declared.Grants {
		if !slices.ContainsFunc(g.Uses, func(u access.Use) bool { return u.Account == handle }) {
			continue
		}
		for _, l := range g.Limits {
			if l.Scope == access.OverAccount {
				// Ceilings of grants with equal content share a counter, so the content counts.
				all = append(all, fmt.Sprintf("%q %q %q %d %d %s", g.Issuer, ordered(g.Selector), g.Uses, g.From, g.Until, limitEffect(l)))
			}
		}
	}
	slices.Sort(all[1:])
	return strings.Join(all, ";")
}

func limitEffect(l access.Limit) string {
	return fmt.Sprintf("%d/%d/%d/%s", l.Calls, l.Window, l.Scope, l.Attribute)
}

// issuing tells whom an issuer vouches for on either side: the one subject of a static key, people, or both where its kind changed.
func issuing(before, after *assembly.Snapshot, issuer string) (key, people bool) {
	for _, s := range []*assembly.Snapshot{before, after} {
		for i := range s.Policy.Issuers {
			if s.Policy.Issuers[i].ID == issuer {
				static := s.Policy.Issuers[i].Kind == policy.IssuerStaticKey
				key, people = key || static, people || !static
			}
		}
	}
	return key, people
}

func literals(s *assembly.Snapshot, issuer string) []access.Attribute {
	var out []access.Attribute
	if i := fixedIssuer(s, issuer); i != nil {
		for _, a := range i.Attributes {
			out = append(out, access.Attribute{Name: a.Name, Value: a.From})
		}
	}
	return out
}

// unnamed gives a value of an attribute that no selector asks for.
func unnamed(attribute string, lists ...[]access.Grant) string {
	value := "another"
	for _, list := range lists {
		for _, g := range list {
			for _, a := range g.Selector {
				// Longer than all of them is none of them.
				if a.Name == attribute && len(a.Value) >= len(value) {
					value += strings.Repeat("*", len(a.Value)-len(value)+1)
				}
			}
		}
	}
	return value
}

func naming(s *assembly.Snapshot, capability string) []access.Grant {
	if capability == "" {
		return nil
	}
	var out []access.Grant
	for _, g := range s.Declared.Grants {
		if slices.ContainsFunc(g.Uses, func(u access.Use) bool { return u.Capability == capability }) {
			out = append(out, g)
		}
	}
	return out
}

// compatible reports whether one principal can match both: no single-valued attribute with two values. An attribute that is
// set-valued on either side separates nothing here; Admit judges the witness on each side by that side's own word.
func compatible(before, after *assembly.Snapshot, g, h access.Grant) bool {
	for _, a := range g.Selector {
		for _, b := range h.Selector {
			if a.Name == b.Name && a.Value != b.Value && !many(before, g.Issuer, a.Name) && !many(after, g.Issuer, a.Name) {
				return false
			}
		}
	}
	return true
}

func many(s *assembly.Snapshot, issuer, attribute string) bool {
	for _, i := range s.Policy.Issuers {
		for _, a := range i.Attributes {
			if i.ID == issuer && a.Name == attribute {
				return a.Many
			}
		}
	}
	return false
}

func ordered(list []access.Attribute) []access.Attribute {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b access.Attribute) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Value, b.Value)
	})
	return slices.Compact(out)
}

// instantsOf gives one instant of every interval in which no grant begins or ends: also none of another capability, because a
// ceiling over an account binds every call with it.
func instantsOf(before, after *assembly.Snapshot) []int64 {
	var at []int64
	for _, d := range []access.Declared{before.Declared, after.Declared} {
		at = append(at, access.Boundaries(d)...)
	}
	if len(at) == 0 {
		return []int64{0}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	// Boundaries are inclusive beginnings and exclusive ends alike, so each is itself a point of the interval that it opens.
	if at[0] != math.MinInt64 {
		at = append([]int64{at[0] - 1}, at...)
	}
	return at
}
