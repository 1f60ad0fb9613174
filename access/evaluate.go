package access

import "math"

// Evaluate decides. It never allocates on an allow, and looks only at the grants that the index yields for the capability, the
// issuer and the caller's attributes.
//
// The first condition that holds gives the answer:
//
//	capability_not_declared   the policy has no such capability
//	capability_not_realized   no tool realises it
//	grant_expired             only grants outside their validity match
//	no_grant_matches          none does
//	ambiguous_grant           the matching grants name more than one account
//	account_disabled          one of them names an account that is disabled or unknown
//	usage_unknown             a ceiling binds and its usage is not known
//	limit_exhausted           a ceiling is used up
//	granted                   otherwise
//
// A listing is the same question with Usage{State: NotConsulted}: what is listed is what would not be denied.
func Evaluate(p *Policy, inv Invocation) Decision {
	capability, ok := p.capability(inv.Capability)
	if !ok {
		return deny(CapabilityNotDeclared, "/capabilities", inv.Capability)
	}
	if !capability.realized {
		return deny(CapabilityNotRealized, capability.pointer, inv.Capability)
	}

	var first, expired, disabled, winner *use
	ambiguous := false
	ask := AskNever
	for c := capability.candidates(inv.Caller); ; {
		u := c.next()
		if u == nil {
			break
		}
		if !u.grant.matches(inv.Caller) {
			continue
		}
		if !u.grant.validAt(inv.At) {
			expired = earlier(expired, u)
			continue
		}
		if first != nil && first.account != u.account {
			ambiguous = true
		}
		first = earlier(first, u)
		if u.account.state != AccountEnabled {
			disabled = earlier(disabled, u)
		}
		winner = tighter(winner, u)
		ask = max(ask, u.grant.ask)
	}

	switch {
	case first == nil && expired != nil:
		return deny(GrantExpired, expired.grant.pointer, inv.Capability)
	case first == nil:
		return deny(NoGrantMatches, "/grants", inv.Capability)
	case ambiguous:
		return deny(AmbiguousGrant, first.grant.pointer, inv.Capability)
	case disabled != nil:
		return deny(AccountDisabled, disabled.grant.pointer, string(disabled.account.handle))
	}

	if inv.Usage.State != NotConsulted {
		exhausted, frees := (*ceiling)(nil), int64(math.MinInt64)
		for b := p.binding(capability, inv, first.account); ; {
			c := b.next()
			if c == nil {
				break
			}
			count, known := inv.Usage.count(c.slot)
			if !known {
				return deny(UsageUnknown, winner.grant.pointer, string(first.account.handle))
			}
			if count.Used < c.calls {
				continue
			}
			at := count.FreesAt
			if c.calls == 0 {
				at = math.MaxInt64 // a suspended grant frees never
			}
			if exhausted == nil || at > frees || at == frees && c.order < exhausted.order {
				exhausted, frees = c, at
			}
		}
		if exhausted != nil {
			d := deny(LimitExhausted, exhausted.pointer, inv.Capability)
			d.reason.FreesAt = frees
			return d
		}
	}
	return Decision{
		reason: Reason{Code: Granted, Pointer: winner.grant.pointer, Subject: inv.Capability},
		permit: Permit{Account: first.account.handle, Ask: ask},
	}
}

// Ceilings appends to dst every ceiling that binds the invocation if it is permitted: those of all matching grants, and those
// that any grant puts on the account. Ceilings that share a counter are given once, with the lower number. The shell reads
// their usage before it asks Evaluate, and reserves them all before it calls.
func (p *Policy) Ceilings(dst []Ceiling, inv Invocation) []Ceiling {
	capability, ok := p.capability(inv.Capability)
	if !ok {
		return dst
	}
	var first *use
	for c := capability.candidates(inv.Caller); ; {
		u := c.next()
		if u == nil {
			break
		}
		if u.grant.matches(inv.Caller) && u.grant.validAt(inv.At) {
			first = earlier(first, u)
		}
	}
	if first == nil {
		return dst
	}
	start := len(dst)
	for b := p.binding(capability, inv, first.account); ; {
		c := b.next()
		if c == nil {
			return dst
		}
		dst = merge(dst, start, c)
	}
}

func merge(dst []Ceiling, start int, c *ceiling) []Ceiling {
	for i := start; i < len(dst); i++ {
		if dst[i].Slot != c.slot {
			continue
		}
		if c.calls < dst[i].Calls {
			dst[i] = c.public()
		}
		return dst
	}
	return append(dst, c.public())
}

func deny(code Code, pointer, subject string) Decision {
	return Decision{reason: Reason{Code: code, Pointer: pointer, Subject: subject}}
}

// earlier keeps the use whose grant stands first in the document, so that no answer depends on the order of the index.
func earlier(a, b *use) *use {
	if a == nil || b.grant.order < a.grant.order {
		return b
	}
	return a
}

// tighter keeps the use whose grant has the lowest rate of calls, then the shorter window, then document order. A grant
// without a ceiling has an infinite rate.
func tighter(a, b *use) *use {
	if a == nil {
		return b
	}
	switch compareRate(b.grant.tightest, a.grant.tightest) {
	case -1:
		return b
	case 0:
		return earlier(a, b)
	}
	return a
}
