package access

import (
	"crypto/sha256"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Declared is the plain form of the policy's grants, in document order.
type Declared struct {
	Capabilities []Capability
	Accounts     []Account
	Grants       []Grant
}

// Capability is a name that grants may use. Realized says that at least one tool maps to it.
type Capability struct {
	ID       string
	Realized bool
	Pointer  string
}

// Account is a handle and whether it may be used.
type Account struct {
	Handle  Handle
	Enabled bool
}

// Grant lets callers of an issuer, with all the attributes of Selector, use capabilities with accounts.
type Grant struct {
	Issuer   string
	Selector []Attribute
	Uses     []Use
	Limits   []Limit
	From     int64 // Unix milliseconds, inclusive; math.MinInt64 = always
	Until    int64 // Unix milliseconds, exclusive; math.MaxInt64 = always
	Ask      Ask
	Pointer  string
}

// Use is one capability of a grant and the account it runs with.
type Use struct {
	Capability string
	Account    Handle
}

// Limit is one declared ceiling. Window is in milliseconds.
type Limit struct {
	Calls     int64
	Window    int64
	Text      string
	Scope     Scope
	Attribute string
	Pointer   string
}

// AccountState is what an account is good for. The zero state, an account that nobody declared, is as good as disabled.
type AccountState uint8

// The states.
const (
	AccountUnknown AccountState = iota
	AccountDisabledState
	AccountEnabled
)

// Policy is the compiled form: immutable, safe for concurrent use, indexed by (capability, issuer, attribute = value). The nil
// Policy declares nothing.
type Policy struct {
	capabilities map[string]*capability
}

type capability struct {
	pointer  string
	realized bool
	byIssuer map[string]*candidateSet
}

// candidateSet holds each use once: under the rarest attribute of its selector, or among the bare ones.
type candidateSet struct {
	bare        []*use
	byAttribute map[Attribute][]*use
}

type use struct {
	grant   *grant
	account *account
}

type account struct {
	handle   Handle
	state    AccountState
	ceilings []*ceiling // the OverAccount ones of every grant that uses the account
}

type grant struct {
	order    int
	pointer  string
	issuer   string
	rest     []Attribute // the selector without what the index asks
	from     int64
	until    int64
	ask      Ask
	ceilings []*ceiling // without the OverAccount ones
	tightest *ceiling   // of all, also the OverAccount ones; nil = no ceiling
}

type ceiling struct {
	grant     *grant
	order     int
	slot      int
	calls     int64
	window    int64
	text      string
	scope     Scope
	attribute string
	pointer   string
	content   [sha256.Size]byte
	account   Handle
}

func (c *ceiling) public() Ceiling {
	return Ceiling{Slot: c.slot, Calls: c.calls, Window: c.window, Text: c.text, Scope: c.scope, Attribute: c.attribute,
		Pointer: c.pointer, content: c.content, account: c.account}
}

// slotKey is what makes two ceilings share a counter.
type slotKey struct {
	content   [sha256.Size]byte
	window    int64
	scope     Scope
	attribute string
	account   Handle
}

// Compile indexes the declaration. It accepts anything: what does not resolve denies when it is asked for.
func Compile(d Declared) *Policy {
	p := &Policy{capabilities: make(map[string]*capability, len(d.Capabilities))}
	for _, c := range d.Capabilities {
		p.capabilities[c.ID] = &capability{pointer: c.Pointer, realized: c.Realized, byIssuer: map[string]*candidateSet{}}
	}
	accounts := make(map[Handle]*account, len(d.Accounts))
	for _, a := range d.Accounts {
		state := AccountDisabledState
		if a.Enabled {
			state = AccountEnabled
		}
		accounts[a.Handle] = &account{handle: a.Handle, state: state}
	}
	rarity := map[Attribute]int{}
	for i := range d.Grants {
		for _, a := range d.Grants[i].Selector {
			rarity[a]++
		}
	}
	slots := map[slotKey]int{}
	order := 0
	for i := range d.Grants {
		declared := &d.Grants[i]
		g := &grant{order: i, pointer: declared.Pointer, issuer: declared.Issuer,
			from: declared.From, until: declared.Until, ask: declared.Ask}
		uses := make([]*use, 0, len(declared.Uses))
		var used []*account
		for _, u := range declared.Uses {
			a := accounts[u.Account]
			if a == nil {
				a = &account{handle: u.Account}
				accounts[u.Account] = a
			}
			if !slices.Contains(used, a) {
				used = append(used, a)
			}
			uses = append(uses, &use{grant: g, account: a})
		}
		content := contentDigest(declared)
		for _, l := range declared.Limits {
			// An account ceiling counts each account by itself, so a grant with two accounts has it twice.
			targets := []*account{nil}
			if l.Scope == OverAccount {
				targets = used
			}
			for _, a := range targets {
				c := &ceiling{grant: g, order: order, calls: l.Calls, window: l.Window, text: l.Text, scope: l.Scope,
					attribute: l.Attribute, pointer: l.Pointer, content: content}
				if a != nil {
					c.account = a.handle
				}
				k := slotKey{content, c.window, c.scope, c.attribute, c.account}
				slot, ok := slots[k]
				if !ok {
					slot = len(slots)
					slots[k] = slot
				}
				c.slot = slot
				if a != nil {
					a.ceilings = append(a.ceilings, c)
				} else {
					g.ceilings = append(g.ceilings, c)
				}
				if compareRate(c, g.tightest) < 0 {
					g.tightest = c
				}
			}
			order++
		}
		var rarest Attribute
		if len(declared.Selector) > 0 {
			rarest = declared.Selector[0]
			for _, a := range declared.Selector[1:] {
				if rarity[a] < rarity[rarest] {
					rarest = a
				}
			}
			for _, a := range declared.Selector {
				if a != rarest {
					g.rest = append(g.rest, a)
				}
			}
		}
		for j, u := range uses {
			c := p.capabilities[declared.Uses[j].Capability]
			if c == nil {
				continue
			}
			set := c.byIssuer[g.issuer]
			if set == nil {
				set = &candidateSet{}
				c.byIssuer[g.issuer] = set
			}
			if len(declared.Selector) == 0 {
				set.bare = append(set.bare, u)
				continue
			}
			if set.byAttribute == nil {
				set.byAttribute = map[Attribute][]*use{}
			}
			set.byAttribute[rarest] = append(set.byAttribute[rarest], u)
		}
	}
	return p
}

// contentDigest covers what a grant is about: issuer, selector, capabilities with accounts; sorted, so that writing the same
// grant in another order keeps its counters.
func contentDigest(g *Grant) [sha256.Size]byte {
	var b []byte
	b = appendText(b, g.Issuer)
	selector := slices.Clone(g.Selector)
	slices.SortFunc(selector, func(x, y Attribute) int {
		if c := strings.Compare(x.Name, y.Name); c != 0 {
			return c
		}
		return strings.Compare(x.Value, y.Value)
	})
	for _, a := range selector {
		b = appendText(appendText(append(b, 's'), a.Name), a.Value)
	}
	uses := slices.Clone(g.Uses)
	slices.SortFunc(uses, func(x, y Use) int {
		if c := strings.Compare(x.Capability, y.Capability); c != 0 {
			return c
		}
		return strings.Compare(string(x.Account), string(y.Account))
	})
	for _, u := range uses {
		b = appendText(appendText(append(b, 'u'), u.Capability), string(u.Account))
	}
	return sha256.Sum256(b)
}

func (p *Policy) capability(id string) (*capability, bool) {
	if p == nil {
		return nil, false
	}
	c, ok := p.capabilities[id]
	return c, ok
}

// matches asks for what the index has not asked: whoever comes here has the issuer and the rarest attribute.
func (g *grant) matches(caller Caller) bool {
	for _, a := range g.rest {
		if !caller.Has(a) {
			return false
		}
	}
	return true
}

// validAt takes the last of all instants, too, when the grant never ends.
func (g *grant) validAt(at int64) bool {
	return g.from <= at && (at < g.until || g.until == math.MaxInt64)
}

// candidates walks the uses that the index yields for a caller; each at most once, because a use stands under one attribute and
// a caller has each attribute value once.
func (c *capability) candidates(caller Caller) candidates {
	set := c.byIssuer[caller.Issuer]
	if set == nil {
		return candidates{}
	}
	return candidates{set: set, list: set.bare, attributes: caller.Attributes}
}

type candidates struct {
	set        *candidateSet
	list       []*use
	attributes []Attribute
}

func (c *candidates) next() *use {
	for len(c.list) == 0 {
		if len(c.attributes) == 0 {
			return nil
		}
		c.list = c.set.byAttribute[c.attributes[0]]
		c.attributes = c.attributes[1:]
	}
	u := c.list[0]
	c.list = c.list[1:]
	return u
}

// binding walks the ceilings that bind a permitted invocation: first those on the account, then those of the matching grants.
func (p *Policy) binding(c *capability, inv Invocation, a *account) binding {
	return binding{inv: inv, list: a.ceilings, uses: c.candidates(inv.Caller)}
}

type binding struct {
	inv  Invocation
	list []*ceiling
	uses candidates
}

func (b *binding) next() *ceiling {
	for {
		for len(b.list) > 0 {
			c := b.list[0]
			b.list = b.list[1:]
			if c.grant.validAt(b.inv.At) {
				return c
			}
		}
		u := b.uses.next()
		if u == nil {
			return nil
		}
		if u.grant.matches(b.inv.Caller) && u.grant.validAt(b.inv.At) {
			b.list = u.grant.ceilings
		}
	}
}

// compareRate orders by calls per window, exactly: a.calls/a.window against b.calls/b.window in 128 bits; then by the shorter
// window. No ceiling is an infinite rate.
func compareRate(a, b *ceiling) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	ah, al := bits.Mul64(uint64(a.calls), uint64(b.window))
	bh, bl := bits.Mul64(uint64(b.calls), uint64(a.window))
	switch {
	case ah < bh || ah == bh && al < bl:
		return -1
	case ah > bh || al > bl:
		return 1
	case a.window < b.window:
		return -1
	case a.window > b.window:
		return 1
	}
	return 0
}

// Boundaries gives, sorted and without repetition, every instant at which a grant begins or ends: between two of them, what is
// visible does not change with time.
func Boundaries(d Declared) []int64 {
	var at []int64
	for i := range d.Grants {
		if g := &d.Grants[i]; g.From != math.MinInt64 {
			at = append(at, g.From)
		}
		if g := &d.Grants[i]; g.Until != math.MaxInt64 {
			at = append(at, g.Until)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}
