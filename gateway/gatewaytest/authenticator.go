package gatewaytest

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"

	"aduana/gateway"
	"aduana/principals"
)

// AuthenticatorCase is an authenticator with what it must answer.
type AuthenticatorCase struct {
	Authenticator gateway.Authenticator
	Valid         map[string]principals.Presented // by credential
	Invalid       []string                        // credentials of nobody, or of more than one issuer
}

// RunAuthenticator checks the contract of gateway.Authenticator.
func RunAuthenticator(t T, c AuthenticatorCase) {
	t.Helper()
	ctx := context.Background()
	nobody := func(what string, got principals.Presented) {
		if got.Issuer != "" || got.Subject != "" || len(got.Attributes) > 0 {
			t.Errorf("%s: a problem came with the identity %q of issuer %q", what, got.Subject, got.Issuer)
		}
	}
	got, problem := c.Authenticator.Authenticate(ctx, gateway.Credential{})
	if problem != principals.CredentialMissing {
		t.Errorf("nothing presented: problem %q, want %q", problem, principals.CredentialMissing)
	}
	nobody("nothing presented", got)

	invalid := append([]string{" ", rand.Text()}, c.Invalid...)
	for valid := range c.Valid {
		invalid = append(invalid, valid[:len(valid)-1], valid+"x", " "+valid, valid+"\n")
	}
	for i, text := range invalid {
		got, problem := c.Authenticator.Authenticate(ctx, gateway.Credential{Bearer: gateway.NewSecret(text)})
		if problem != principals.CredentialInvalid {
			t.Errorf("invalid credential %d of %d: problem %q, want %q", i+1, len(invalid), problem, principals.CredentialInvalid)
		}
		nobody("invalid credential", got)
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	for text, want := range c.Valid {
		for range 8 {
			wg.Go(func() {
				got, problem := c.Authenticator.Authenticate(ctx, gateway.Credential{Bearer: gateway.NewSecret(text)})
				mu.Lock()
				defer mu.Unlock()
				if problem != principals.NoProblem {
					t.Errorf("credential of %s:%s: problem %q, want none", want.Issuer, want.Subject, problem)
				} else if got.Issuer != want.Issuer || got.Subject != want.Subject || !slices.Equal(got.Attributes, want.Attributes) {
					t.Errorf("credential of %s:%s: got %+v", want.Issuer, want.Subject, got)
				}
			})
		}
	}
	wg.Wait()
}

// Keys is a fake gateway.Authenticator: who presents a key is whoever stands under it.
type Keys map[string]principals.Presented

var _ gateway.Authenticator = Keys(nil)

// Authenticate looks the key up.
func (k Keys) Authenticate(_ context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	if c.Bearer.Empty() {
		return principals.Presented{}, principals.CredentialMissing
	}
	p, ok := k[c.Bearer.Reveal()]
	if !ok {
		return principals.Presented{}, principals.CredentialInvalid
	}
	return p, principals.NoProblem
}
