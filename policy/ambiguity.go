package policy

import (
	"math"
	"slices"
)

// Two grants are ambiguous when one call could run with two accounts: same
// issuer, a shared capability, different accounts for it, selectors that one
// principal can meet together, and validities that share an instant.
//
// Comparing all pairs would be quadratic. Instead the grants of one
// capability and issuer are split by the values of the attribute that
// separates most pairs, again and again; what is never compared cannot
// overlap. The work is linear in the grants for selectors as people write
// them, and bounded for all others.

const (
	// maxPairs bounds the pairs that are reported, and so counted.
	maxPairs = 10_000
	// maxWork bounds the steps of the search, all capabilities together. A
	// policy that needs more is refused, never passed unchecked.
	maxWork = 10_000_000
	// bruteForce is the number of pairs below which comparing beats splitting.
	bruteForce = 64
)

// contender is a grant as one capability sees it.
type contender struct {
	grant       int
	account     CapabilityAccount // Capability left empty, so that it compares
	single      []AttributeValue  // conditions on single-valued attributes, sorted
	from, until int64
}

func (c *contender) value(attribute string) (string, bool) {
	i, found := slices.BinarySearchFunc(c.single, attribute, func(av AttributeValue, name string) int {
		return compareText(av.Attribute, name)
	})
	if !found {
		return "", false
	}
	return c.single[i].Value, true
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (c *contender) conflicts(o *contender) bool {
	if c.account == o.account || c.from >= o.until || o.from >= c.until {
		return false
	}
	for _, av := range c.single {
		if v, ok := o.value(av.Attribute); ok && v != av.Value {
			return false
		}
	}
	return true
}

type pair struct{ earlier, later int }

type pairSearch struct {
	found map[pair][]string // capabilities, in the order they were searched
	work  int
}

func (s *pairSearch) full() bool       { return len(s.found) >= maxPairs }
func (s *pairSearch) tooComplex() bool { return s.work > maxWork }

// validity gives the bounds of a grant, open ends as far as they go.
func validity(g *Grant) (from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	if g.HasFrom {
		from = g.From
	}
	if g.HasUntil {
		until = g.Until
	}
	return from, until
}

// within compares the grants of x with each other.
func (s *pairSearch) within(capability string, x []*contender, done []string) {
	s.search(capability, x, x, true, done)
}

// between compares the grants of x with those of y, which are others.
func (s *pairSearch) between(capability string, x, y []*contender, done []string) {
	s.search(capability, x, y, false, done)
}

// search is both; attributes in done separate nothing any more.
func (s *pairSearch) search(capability string, x, y []*contender, self bool, done []string) {
	s.work += len(x) + len(y)
	if s.full() || s.tooComplex() || len(x) == 0 || len(y) == 0 || oneAccount(x, y) {
		return
	}
	attribute := ""
	if len(x)*len(y) > bruteForce {
		attribute = s.separating(x, y, done)
	}
	if attribute == "" {
		s.compare(capability, x, y, self)
		return
	}
	done = append(slices.Clone(done), attribute)
	xs := split(x, attribute)
	if self {
		for _, value := range xs.values {
			s.within(capability, xs.by[value], done)
		}
		s.within(capability, xs.without, done)
		s.between(capability, xs.with, xs.without, done)
		return
	}
	ys := split(y, attribute)
	for _, value := range xs.values {
		s.between(capability, xs.by[value], ys.by[value], done)
	}
	s.between(capability, xs.without, y, done)
	s.between(capability, xs.with, ys.without, done)
}

func oneAccount(x, y []*contender) bool {
	account := x[0].account
	for _, list := range [][]*contender{x, y} {
		for _, c := range list {
			if c.account != account {
				return false
			}
		}
	}
	return true
}

// separating is the attribute that rules out most pairs, "" when none does.
func (s *pairSearch) separating(x, y []*contender, done []string) string {
	type tally struct {
		x, y   int
		values map[string][2]int
	}
	tallies := map[string]*tally{}
	var names []string
	for side, list := range [2][]*contender{x, y} {
		for _, c := range list {
			s.work += len(c.single)
			for _, av := range c.single {
				if slices.Contains(done, av.Attribute) {
					continue
				}
				t := tallies[av.Attribute]
				if t == nil {
					t = &tally{values: map[string][2]int{}}
					tallies[av.Attribute] = t
					names = append(names, av.Attribute)
				}
				counts := t.values[av.Value]
				counts[side]++
				t.values[av.Value] = counts
				if side == 0 {
					t.x++
				} else {
					t.y++
				}
			}
		}
	}
	slices.Sort(names)
	best, most := "", 0
	for _, name := range names {
		t := tallies[name]
		separated := t.x * t.y
		for _, counts := range t.values {
			separated -= counts[0] * counts[1]
		}
		if separated > most {
			best, most = name, separated
		}
	}
	return best
}

type parts struct {
	by            map[string][]*contender
	values        []string // sorted: the order of work must not depend on a map
	with, without []*contender
}

func split(list []*contender, attribute string) parts {
	p := parts{by: map[string][]*contender{}}
	for _, c := range list {
		value, ok := c.value(attribute)
		if !ok {
			p.without = append(p.without, c)
			continue
		}
		if p.by[value] == nil {
			p.values = append(p.values, value)
		}
		p.by[value] = append(p.by[value], c)
		p.with = append(p.with, c)
	}
	slices.Sort(p.values)
	return p
}

// compare looks at every pair with different accounts.
func (s *pairSearch) compare(capability string, x, y []*contender, self bool) {
	accounts := map[CapabilityAccount][]*contender{}
	var order []CapabilityAccount
	for _, c := range y {
		if accounts[c.account] == nil {
			order = append(order, c.account)
		}
		accounts[c.account] = append(accounts[c.account], c)
	}
	for _, a := range x {
		for _, account := range order {
			if account == a.account {
				continue
			}
			for _, b := range accounts[account] {
				if s.work++; s.full() || s.tooComplex() {
					return
				}
				if self && b.grant < a.grant || !a.conflicts(b) {
					continue
				}
				p := pair{min(a.grant, b.grant), max(a.grant, b.grant)}
				s.found[p] = append(s.found[p], capability)
			}
		}
	}
}
