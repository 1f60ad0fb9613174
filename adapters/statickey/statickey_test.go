package statickey_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"aduana/accounts"
	"aduana/adapters/statickey"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/principals"
)

const (
	keyOfCI     = "ci-key-0123456789abcdef"
	keyOfNight  = "night-key-0123456789abcdef"
	keyOfTwo    = "shared-key-0123456789abcdef"
	keyTooShort = "fifteen-bytes-x"
)

func issuers(names ...string) []statickey.Issuer {
	var list []statickey.Issuer
	for _, n := range names {
		list = append(list, statickey.Issuer{ID: principals.IssuerID(n), Subject: "agent-" + n,
			Attributes: []principals.Attribute{{Name: "role", Value: n}}, Ref: accounts.Reference("vault://" + n)})
	}
	return list
}

func presented(name string) principals.Presented {
	return principals.Presented{Issuer: principals.IssuerID(name), Subject: "agent-" + name,
		Attributes: []principals.Attribute{{Name: "role", Value: name}}}
}

func vault() *gatewaytest.Vault {
	v := &gatewaytest.Vault{}
	v.Set("vault://ci", keyOfCI)
	v.Set("vault://night", keyOfNight)
	v.Set("vault://one", keyOfTwo)
	v.Set("vault://two", keyOfTwo)
	v.Set("vault://short", keyTooShort)
	return v
}

func TestContract(t *testing.T) {
	gatewaytest.RunAuthenticator(t, gatewaytest.AuthenticatorCase{
		Authenticator: statickey.New(issuers("ci", "unset", "one", "short", "two", "night"), vault()),
		Valid:         map[string]principals.Presented{keyOfCI: presented("ci"), keyOfNight: presented("night")},
		Invalid:       []string{keyOfTwo, keyTooShort, "vault://ci", "ci", "agent-ci", keyOfCI + keyOfNight},
	})
}

func TestNobodyWithoutIssuers(t *testing.T) {
	gatewaytest.RunAuthenticator(t, gatewaytest.AuthenticatorCase{Authenticator: statickey.New(nil, vault()), Invalid: []string{keyOfCI}})
}

func TestRotationCountsFromTheNextRequest(t *testing.T) {
	v := vault()
	a := statickey.New(issuers("ci"), v)
	ask := func(key string) principals.Problem {
		_, problem := a.Authenticate(t.Context(), gateway.Credential{Bearer: gateway.NewSecret(key)})
		return problem
	}
	if p := ask(keyOfCI); p != principals.NoProblem {
		t.Fatal(p)
	}
	v.Set("vault://ci", keyOfNight)
	if p := ask(keyOfCI); p != principals.CredentialInvalid {
		t.Errorf("the old key: %q", p)
	}
	if p := ask(keyOfNight); p != principals.NoProblem {
		t.Errorf("the new key: %q", p)
	}
	v.Set("vault://ci", "")
	if p := ask(keyOfNight); p != principals.CredentialInvalid {
		t.Errorf("an unreadable key: %q", p)
	}
}

// A resolver that gives material together with an error must not be believed.
type both struct{ *gatewaytest.Vault }

func (b both) Resolve(ctx context.Context, ref accounts.Reference) (gateway.Material, error) {
	m, _ := b.Vault.Resolve(ctx, ref)
	return m, gateway.ErrUnassigned
}

func TestMaterialWithAnErrorMatchesNobody(t *testing.T) {
	a := statickey.New(issuers("ci"), both{vault()})
	if _, p := a.Authenticate(t.Context(), gateway.Credential{Bearer: gateway.NewSecret(keyOfCI)}); p != principals.CredentialInvalid {
		t.Errorf("problem %q", p)
	}
}

// Whatever matches, and wherever, every issuer's key is resolved and compared.
func TestEveryIssuerIsCompared(t *testing.T) {
	v := vault()
	a := statickey.New(issuers("ci", "unset", "night"), v)
	for _, key := range []string{keyOfCI, keyOfNight, "nobody's key"} {
		before := len(v.Asked())
		a.Authenticate(t.Context(), gateway.Credential{Bearer: gateway.NewSecret(key)})
		if n := len(v.Asked()) - before; n != 3 {
			t.Errorf("%d of 3 keys were looked at", n)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := statickey.New(issuers("ci", "night"), vault()).Check(t.Context()); err != nil {
		t.Errorf("sound issuers: %v", err)
	}
	bad := issuers("one", "two", "short", "unset")
	bad[2].Subject = " "
	err := statickey.New(bad, vault()).Check(t.Context())
	if err == nil {
		t.Fatal("nothing found")
	}
	for _, want := range []string{
		`issuers "one" and "two" have the same key`,
		`issuer "short": no subject`,
		`issuer "short": the key at "vault://short" has 15 bytes, at least 16 are needed; make one with: openssl rand -hex 32`,
		`issuer "unset": secret "vault://unset"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %s in:\n%v", want, err)
		}
	}
	for _, key := range []string{keyOfTwo, keyTooShort} {
		if strings.Contains(err.Error(), key) {
			t.Errorf("the report shows a key: %v", err)
		}
	}
}

func TestConcurrentRotation(t *testing.T) {
	v := vault()
	a := statickey.New(issuers("ci", "night"), v)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				p, problem := a.Authenticate(t.Context(), gateway.Credential{Bearer: gateway.NewSecret(keyOfNight)})
				if problem != principals.NoProblem || p.Issuer != "night" {
					t.Errorf("%+v %q", p, problem)
				}
			}
		})
	}
	for i := range 200 {
		v.Set("vault://ci", keyOfCI+strings.Repeat("x", i%2))
	}
	wg.Wait()
}
