// Package statickey answers "who presented this key": the one issuer of kind static-key whose key it is.
//
// Keys are resolved afresh for each request, so that a rotated key counts from the next one and a key that cannot be read
// matches nobody. It compares in constant time with every issuer, in every case: how long an answer takes tells nothing about
// which issuer was close or whether an earlier one matched.
//
// Start at Authenticator.Authenticate; Check is for start and doctor.
package statickey

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"aduana/accounts"
	"aduana/gateway"
	"aduana/principals"
)

// MinKeyBytes is the shortest key that authenticates. Below 16 bytes a key is a password, and there is no lock against guessing.
const MinKeyBytes = 16

// Issuer is one source of identities: whoever holds the key behind Ref is Subject, with these attributes.
type Issuer struct {
	ID         principals.IssuerID
	Subject    string
	Attributes []principals.Attribute
	Ref        accounts.Reference
}

// Authenticator serves all issuers of kind static-key. Without issuers it authenticates nobody.
type Authenticator struct {
	issuers     []Issuer
	credentials gateway.Credentials
}

var _ gateway.Authenticator = (*Authenticator)(nil)

// New makes an authenticator that resolves keys by the given credentials.
func New(issuers []Issuer, credentials gateway.Credentials) *Authenticator {
	return &Authenticator{issuers: issuers, credentials: credentials}
}

// Authenticate gives the issuer whose key was presented. Nothing presented is CredentialMissing. A key of no issuer, of two
// issuers, of an issuer whose key cannot be resolved, or one shorter than MinKeyBytes is CredentialInvalid.
func (a *Authenticator) Authenticate(ctx context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	if c.Bearer.Empty() {
		return principals.Presented{}, principals.CredentialMissing
	}
	matched, at := 0, 0
	for i := range a.issuers {
		key, err := a.key(ctx, a.issuers[i])
		// No early end: neither a match nor an unreadable key may shorten the work. An unreadable key is compared as the empty
		// secret, which nothing presented equals.
		if key.Same(c.Bearer) && err == nil {
			matched++
			at = i
		}
	}
	if matched != 1 {
		return principals.Presented{}, principals.CredentialInvalid
	}
	issuer := a.issuers[at]
	return principals.Presented{Issuer: issuer.ID, Subject: issuer.Subject, Attributes: issuer.Attributes}, principals.NoProblem
}

func (a *Authenticator) key(ctx context.Context, issuer Issuer) (gateway.Secret, error) {
	m, err := a.credentials.Resolve(ctx, issuer.Ref)
	if err != nil {
		return gateway.Secret{}, fmt.Errorf("issuer %q: %w", issuer.ID, err)
	}
	if n := len(m.Secret.Reveal()); n < MinKeyBytes {
		return gateway.Secret{}, fmt.Errorf("issuer %q: the key at %q has %d bytes, at least %d are needed; make one with: openssl rand -hex 32",
			issuer.ID, issuer.Ref, n, MinKeyBytes)
	}
	return m.Secret, nil
}

// Check tells at start what would refuse people later: a key that cannot be resolved or is too short, an issuer without subject,
// two issuers with one key. A gateway may go on: those issuers authenticate nobody.
func (a *Authenticator) Check(ctx context.Context) error {
	var problems []error
	keys := make([]gateway.Secret, len(a.issuers))
	for i, issuer := range a.issuers {
		if strings.TrimSpace(issuer.Subject) == "" {
			problems = append(problems, fmt.Errorf("issuer %q: no subject", issuer.ID))
		}
		key, err := a.key(ctx, issuer)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for j := range i {
			if !keys[j].Empty() && keys[j].Same(key) {
				problems = append(problems, fmt.Errorf("issuers %q and %q have the same key, so that it authenticates neither; give each its own",
					a.issuers[j].ID, issuer.ID))
			}
		}
		keys[i] = key
	}
	return errors.Join(problems...)
}
