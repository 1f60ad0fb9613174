// Package principals answers "WHO calls": an issuer of identities, a subject there, and the attributes that the policy lets
// count.
//
// It is pure, and it never sees a credential: adapters verify those and hand over what they learned (Presented); Admit keeps of it
// what the issuer declares. There is no anonymous principal: the zero Principal is nobody, and nobody is refused.
//
// Start at Directory.Admit.
package principals

import (
	"slices"
	"strings"
)

// IssuerID names a declared source of identities. It holds no ':'.
type IssuerID string

// Problem says why somebody is not authenticated. The list is closed; the empty Problem means that there is none.
type Problem string

// The four problems stay distinguishable in records; clients learn no more than "who are you".
const (
	NoProblem         Problem = ""
	CredentialMissing Problem = "credential_missing"
	CredentialInvalid Problem = "credential_invalid"
	CredentialExpired Problem = "credential_expired"
	IssuerUnknown     Problem = "issuer_unknown"
)

// Attribute is one value of one attribute. A set-valued attribute gives several.
type Attribute struct {
	Name  string
	Value string
}

// Declared is an attribute that an issuer may assert. Many says that it is set-valued.
type Declared struct {
	Name string
	Many bool
}

// Disclosure says how much of the policy's place a refusal tells the caller.
type Disclosure uint8

// The levels. The zero value leaves it to the surface: places over stdio and the local socket, codes elsewhere.
const (
	DisclosureBySurface Disclosure = iota
	DiscloseCodes
	DisclosePlaces
)

// Issuer is what the policy declares of one source of identities.
type Issuer struct {
	ID         IssuerID
	Attributes []Declared
	Disclosure Disclosure
}

// Presented is what an adapter verified: it says who, not what counts.
type Presented struct {
	Issuer     IssuerID
	Subject    string
	Attributes []Attribute
}

// Principal is an authenticated caller. Only Admit makes one; the zero Principal is nobody.
type Principal struct {
	issuer     IssuerID
	subject    string
	attributes []Attribute
	disclosure Disclosure
}

// Directory holds the declared issuers. The zero Directory knows none and admits nobody.
type Directory struct {
	issuers map[IssuerID]Issuer
}

// NewDirectory indexes the issuers; of two with one id the first stays (the policy refuses duplicates).
func NewDirectory(issuers []Issuer) Directory {
	d := Directory{issuers: make(map[IssuerID]Issuer, len(issuers))}
	for _, i := range issuers {
		if _, ok := d.issuers[i.ID]; !ok {
			d.issuers[i.ID] = i
		}
	}
	return d
}

// Admit turns what was verified into a principal, keeping only attributes that the issuer declares. A single-valued attribute
// that arrives with several values is not produced: never the first of many. The names of what was dropped come back sorted.
func (d Directory) Admit(p Presented) (Principal, []string, Problem) {
	issuer, ok := d.issuers[p.Issuer]
	if !ok {
		return Principal{}, nil, IssuerUnknown
	}
	if strings.TrimSpace(p.Subject) == "" {
		return Principal{}, nil, CredentialMissing
	}
	var kept []Attribute
	var discarded []string
	for _, a := range p.Attributes {
		i := slices.IndexFunc(issuer.Attributes, func(x Declared) bool { return x.Name == a.Name })
		if i < 0 || a.Value == "" || !issuer.Attributes[i].Many && several(p.Attributes, a) {
			discarded = append(discarded, a.Name)
			continue
		}
		kept = append(kept, a)
	}
	slices.SortFunc(kept, func(a, b Attribute) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Value, b.Value)
	})
	slices.Sort(discarded)
	return Principal{issuer: issuer.ID, subject: p.Subject, attributes: slices.Compact(kept), disclosure: issuer.Disclosure},
		slices.Compact(discarded), NoProblem
}

func several(all []Attribute, a Attribute) bool {
	for _, b := range all {
		if b.Name == a.Name && b.Value != a.Value {
			return true
		}
	}
	return false
}

// Known reports whether this is somebody.
func (p Principal) Known() bool { return p.issuer != "" }

// ID is "issuer:subject"; unambiguous, because an issuer id holds no ':'.
func (p Principal) ID() string {
	if !p.Known() {
		return ""
	}
	return string(p.issuer) + ":" + p.subject
}

// Issuer gives the issuer's id.
func (p Principal) Issuer() IssuerID { return p.issuer }

// Subject gives the subject at the issuer.
func (p Principal) Subject() string { return p.subject }

// Attributes gives the attributes sorted by name and value. The caller must not change them.
func (p Principal) Attributes() []Attribute { return p.attributes }

// Disclosure gives the issuer's level.
func (p Principal) Disclosure() Disclosure { return p.disclosure }
