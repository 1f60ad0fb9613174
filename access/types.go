package access

import (
	"crypto/sha256"
	"encoding/binary"
)

// Code is why. The list is closed; edge failures are never added to it, they wrap a decision.
type Code string

// The nine codes. The empty Code stands in the zero Decision and denies like any other but Granted.
const (
	CapabilityNotDeclared Code = "capability_not_declared"
	CapabilityNotRealized Code = "capability_not_realized"
	NoGrantMatches        Code = "no_grant_matches"
	GrantExpired          Code = "grant_expired"
	AmbiguousGrant        Code = "ambiguous_grant"
	AccountDisabled       Code = "account_disabled"
	UsageUnknown          Code = "usage_unknown"
	LimitExhausted        Code = "limit_exhausted"
	Granted               Code = "granted"
)

// Handle names the account a call runs with. It is not a secret and not a reference to one.
type Handle string

// Ask is how much a grant wants a person to be asked. Of several grants the strictest holds.
type Ask uint8

// The levels, laxest first, because the strictest is the maximum.
const (
	AskNever Ask = iota
	AskDestructive
	AskAlways
)

// Attribute is one name and one value that the caller has, or that a selector demands.
type Attribute struct {
	Name  string
	Value string
}

// Caller is who asks: issuer, id ("issuer:subject") and attributes. A set-valued attribute gives one entry per value, so that a
// selector means "contains". Names and values may stand in any order.
type Caller struct {
	Issuer     string
	ID         string
	Attributes []Attribute
}

// Has reports whether the caller has this value of this attribute.
func (c Caller) Has(a Attribute) bool {
	for _, have := range c.Attributes {
		if have == a {
			return true
		}
	}
	return false
}

// value gives the first value of a single-valued attribute; empty when the caller lacks it (declared values are never empty).
func (c Caller) value(name string) string {
	for _, have := range c.Attributes {
		if have.Name == name {
			return have.Value
		}
	}
	return ""
}

// Invocation is the question. At is the instant in Unix milliseconds, captured once by the shell.
type Invocation struct {
	Caller     Caller
	Capability string
	At         int64
	Usage      Usage
}

// UsageState says what the shell knows of counters.
type UsageState uint8

// The states. The zero state is unknown, so that forgotten usage denies where a ceiling binds.
const (
	UsageStateUnknown UsageState = iota
	Counted                      // Counts holds a fact for every ceiling of Policy.Ceilings
	NotConsulted                 // a listing: ceilings do not take part
)

// Usage is facts about the ceilings that bind an invocation.
type Usage struct {
	State  UsageState
	Counts []Count
}

// Count is what the counter of one slot holds now: the calls in the window that ends now, and the instant (Unix milliseconds) at
// which enough of them will have left it for one more call.
type Count struct {
	Slot    int
	Used    int64
	FreesAt int64
}

func (u Usage) count(slot int) (Count, bool) {
	if u.State == Counted {
		for _, c := range u.Counts {
			if c.Slot == slot {
				return c, true
			}
		}
	}
	return Count{}, false
}

// Reason is the answer's why and where.
type Reason struct {
	Code    Code
	Pointer string // RFC 6901, into the policy document
	Subject string // the capability or account that the code speaks of
	FreesAt int64  // limit_exhausted only: Unix milliseconds; math.MaxInt64 = never
}

// Permit is what an allow carries and a deny cannot.
type Permit struct {
	Account Handle
	Ask     Ask
}

// Decision is the answer. The zero value denies.
type Decision struct {
	reason Reason
	permit Permit
}

// Reason says why, for allows and denials alike.
func (d Decision) Reason() Reason { return d.reason }

// Allowed reports whether the call may go on.
func (d Decision) Allowed() bool { return d.reason.Code == Granted }

// Permit gives account and ask of an allow. On a deny there is none.
func (d Decision) Permit() (Permit, bool) {
	if !d.Allowed() {
		return Permit{}, false
	}
	return d.permit, true
}

// Scope says whose calls a ceiling counts together.
type Scope uint8

// The scopes. OverAttribute counts per value of Limit.Attribute.
const (
	OverPrincipal Scope = iota // per principal and capability
	OverGrant                  // all who match the grant, over its capabilities
	OverAccount                // every call on the account, also through grants that do not carry the ceiling
	OverAttribute              // per value of a single-valued attribute, over the grant's capabilities
)

// Ceiling is "at most Calls in any window of Window milliseconds". Slot identifies its counter within this policy and for
// this invocation; Key identifies it for ever.
type Ceiling struct {
	Slot      int
	Calls     int64
	Window    int64
	Text      string // the window as written, "24h"
	Scope     Scope
	Attribute string
	Pointer   string

	content [sha256.Size]byte
	account Handle
}

// Key is the name of a counter. It holds the scope, the window and a digest of the grant's content (issuer, selector, capabilities,
// accounts), never an index, a number of calls or a policy version: a reload does not reset a counter, and neither does changing
// its number.
type Key [sha256.Size]byte

// Key gives the counter's name for this invocation.
func (c Ceiling) Key(inv Invocation) Key {
	var buf [512]byte
	b := append(buf[:0], c.content[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Window))
	b = append(b, "calls"...)
	b = append(b, byte(c.Scope))
	switch c.Scope {
	case OverPrincipal:
		b = appendText(b, inv.Caller.ID)
		b = appendText(b, inv.Capability)
	case OverAccount:
		b = appendText(b, string(c.account))
	case OverAttribute:
		b = appendText(b, c.Attribute)
		b = appendText(b, inv.Caller.value(c.Attribute))
	}
	return sha256.Sum256(b)
}

// appendText is length-prefixed, so that no two lists of texts have the same bytes.
func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
