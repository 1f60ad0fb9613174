// Package accounts answers "WITH WHOSE ACCOUNT": which handles exist, whether they may be used, which upstreams each may reach,
// and under which reference its secret is kept.
//
// It is pure and never sees a secret: a Reference is text that an adapter resolves, only after a permit and only for the account
// that the permit names.
//
// Start at Directory.Bind.
package accounts

import "slices"

// Handle names an account. It is opaque and not secret.
type Handle string

// None is the handle of calls that run without any account, on upstreams declared `account: none`. No policy can declare it.
const None Handle = "none"

// Reference says where an account's secret is kept, such as env://BILLING_KEY. It is never the secret.
type Reference string

// State says what an account is good for. The zero State, unknown, is good for nothing.
type State uint8

// The states. Disabled and unknown are different: one was revoked, the other never declared.
const (
	Unknown State = iota
	Disabled
	OutOfReach // enabled, but not for this upstream
	Bound
)

// String is the word for records and messages.
func (s State) String() string {
	switch s {
	case Disabled:
		return "disabled"
	case OutOfReach:
		return "out of reach"
	case Bound:
		return "bound"
	}
	return "unknown"
}

// Account is one declaration. Reach lists the upstreams that its credential may be sent to.
type Account struct {
	Handle    Handle
	Reference Reference
	Disabled  bool
	Reach     []string
}

// Directory holds the declared accounts. The zero Directory binds only None.
type Directory struct {
	byHandle map[Handle]Account
}

// NewDirectory indexes the accounts; of two with one handle the first stays (the policy refuses duplicates).
func NewDirectory(list []Account) Directory {
	d := Directory{byHandle: make(map[Handle]Account, len(list))}
	for _, a := range list {
		if _, ok := d.byHandle[a.Handle]; !ok && a.Handle != None {
			d.byHandle[a.Handle] = a
		}
	}
	return d
}

// Bind gives the reference of an account's secret for use at an upstream. The reference is empty unless the State is Bound, and
// for None also then: such a call carries no credential.
func (d Directory) Bind(h Handle, upstream string) (Reference, State) {
	if h == None {
		return "", Bound
	}
	a, ok := d.byHandle[h]
	switch {
	case !ok:
		return "", Unknown
	case a.Disabled:
		return "", Disabled
	case !slices.Contains(a.Reach, upstream):
		return "", OutOfReach
	}
	return a.Reference, Bound
}
