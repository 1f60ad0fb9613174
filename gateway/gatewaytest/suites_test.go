package gatewaytest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"aduana/accounts"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/principals"
)

// reports fails unless the suite found what is broken. An adapter that is broken in one place must be caught for that place.
func reports(t *testing.T, r *gatewaytest.Recorder, want string) {
	t.Helper()
	for _, s := range r.Reports() {
		if strings.Contains(s, want) {
			return
		}
	}
	t.Errorf("the suite did not report %q; it reported %q", want, r.Reports())
}

type authenticate func(gateway.Credential) (principals.Presented, principals.Problem)

func (f authenticate) Authenticate(_ context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	return f(c)
}

func TestAuthenticatorSuite(t *testing.T) {
	ana := principals.Presented{Issuer: "corp", Subject: "ana", Attributes: []principals.Attribute{{Name: "team", Value: "ventas"}}}
	keys := gatewaytest.Keys{"key-of-ana": ana}
	valid := map[string]principals.Presented{"key-of-ana": ana}
	gatewaytest.RunAuthenticator(t, gatewaytest.AuthenticatorCase{Authenticator: keys, Valid: valid, Invalid: []string{"other"}})

	ctx := context.Background()
	for name, c := range map[string]struct {
		broken authenticate
		report string
	}{
		"lets nobody in as somebody": {func(c gateway.Credential) (principals.Presented, principals.Problem) {
			if c.Bearer.Empty() {
				return ana, principals.NoProblem
			}
			return keys.Authenticate(ctx, c)
		}, "nothing presented: problem"},
		"says who it might have been": {func(c gateway.Credential) (principals.Presented, principals.Problem) {
			_, problem := keys.Authenticate(ctx, c)
			return ana, problem
		}, "a problem came with the identity"},
		"compares prefixes": {func(c gateway.Credential) (principals.Presented, principals.Problem) {
			if strings.HasPrefix(c.Bearer.Reveal(), "key-of-ana") {
				return ana, principals.NoProblem
			}
			return keys.Authenticate(ctx, c)
		}, "invalid credential"},
		"trims": {func(c gateway.Credential) (principals.Presented, principals.Problem) {
			return keys.Authenticate(ctx, gateway.Credential{Bearer: gateway.NewSecret(strings.TrimSpace(c.Bearer.Reveal()))})
		}, "invalid credential"},
		"drops attributes": {func(c gateway.Credential) (principals.Presented, principals.Problem) {
			p, problem := keys.Authenticate(ctx, c)
			p.Attributes = nil
			return p, problem
		}, "credential of corp:ana: got"},
		"refuses all": {func(gateway.Credential) (principals.Presented, principals.Problem) {
			return principals.Presented{}, principals.CredentialInvalid
		}, "credential of corp:ana: problem"},
	} {
		t.Run(name, func(t *testing.T) {
			var r gatewaytest.Recorder
			gatewaytest.RunAuthenticator(&r, gatewaytest.AuthenticatorCase{Authenticator: c.broken, Valid: valid})
			reports(t, &r, c.report)
		})
	}
}

type resolve func(accounts.Reference) (gateway.Material, error)

func (f resolve) Resolve(_ context.Context, ref accounts.Reference) (gateway.Material, error) {
	return f(ref)
}

func TestCredentialsSuite(t *testing.T) {
	const ref, secret = "vault://a", "hush-hush"
	start := func(v *gatewaytest.Vault) gatewaytest.CredentialsCase {
		v.Set(ref, secret)
		return gatewaytest.CredentialsCase{Credentials: v, Ref: ref, Secret: secret, Bad: []accounts.Reference{"vault://b"},
			Set: func(s string) { v.Set(ref, s) }, Unset: func() { v.Set(ref, "") }}
	}
	gatewaytest.RunCredentials(t, start(&gatewaytest.Vault{}))

	ctx := context.Background()
	for name, c := range map[string]struct {
		broken func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error)
		report string
	}{
		"keeps the generation": {func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error) {
			m, err := v.Resolve(ctx, r)
			if err == nil {
				m.Generation = "1"
			}
			return m, err
		}, "the generation stays"},
		"gives the secret as generation": {func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error) {
			m, err := v.Resolve(ctx, r)
			m.Generation = m.Secret.Reveal()
			return m, err
		}, "shows the secret when printed"},
		"swallows errors": {func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error) {
			m, _ := v.Resolve(ctx, r)
			return m, nil
		}, "gives material, want an error"},
		"says nothing of the reference": {func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error) {
			m, err := v.Resolve(ctx, r)
			if err != nil {
				err = gateway.ErrUnassigned
			}
			return m, err
		}, "the error does not name"},
		"gives another secret": {func(v *gatewaytest.Vault, r accounts.Reference) (gateway.Material, error) {
			m, err := v.Resolve(ctx, ref)
			m.Secret = gateway.NewSecret("other")
			return m, err
		}, "does not give its secret"},
	} {
		t.Run(name, func(t *testing.T) {
			var r gatewaytest.Recorder
			v := &gatewaytest.Vault{}
			k := start(v)
			k.Credentials = resolve(func(ref accounts.Reference) (gateway.Material, error) { return c.broken(v, ref) })
			gatewaytest.RunCredentials(&r, k)
			reports(t, &r, c.report)
		})
	}
}

type policySource struct {
	load  func() (gateway.Source, error)
	watch func(context.Context, func())
}

func (s policySource) Load(context.Context) (gateway.Source, error) { return s.load() }
func (s policySource) Watch(ctx context.Context, changed func())    { s.watch(ctx, changed) }

func TestPolicySourceSuite(t *testing.T) {
	ctx := context.Background()
	start := func(x *gatewaytest.Text) gatewaytest.PolicySourceCase {
		return gatewaytest.PolicySourceCase{Source: x, Write: x.Set, Remove: func() { x.Set("") }, Within: 5 * time.Second}
	}
	gatewaytest.RunPolicySource(t, start(gatewaytest.NewText("")))

	for name, c := range map[string]struct {
		broken func(x *gatewaytest.Text) policySource
		report string
	}{
		"takes absent for empty": {func(x *gatewaytest.Text) policySource {
			return policySource{func() (gateway.Source, error) { s, _ := x.Load(ctx); return s, nil }, x.Watch}
		}, "absent: loaded 0 bytes"},
		"trims": {func(x *gatewaytest.Text) policySource {
			return policySource{func() (gateway.Source, error) {
				s, err := x.Load(ctx)
				s.Text = []byte(strings.ToValidUTF8(string(s.Text), ""))
				return s, err
			}, x.Watch}
		}, "load: got"},
		"versions by time": {func(x *gatewaytest.Text) policySource {
			return policySource{func() (gateway.Source, error) {
				s, err := x.Load(ctx)
				s.Version = "2026"
				return s, err
			}, x.Watch}
		}, "is not the first 12 digits"},
		"never notices": {func(x *gatewaytest.Text) policySource {
			return policySource{func() (gateway.Source, error) { return x.Load(ctx) }, func(ctx context.Context, _ func()) { <-ctx.Done() }}
		}, "a change was not noticed"},
		"never ends": {func(x *gatewaytest.Text) policySource {
			return policySource{func() (gateway.Source, error) { return x.Load(ctx) },
				func(ctx context.Context, changed func()) { x.Watch(ctx, changed); <-t.Context().Done() }}
		}, "goes on after its context ended"},
	} {
		t.Run(name, func(t *testing.T) {
			var r gatewaytest.Recorder
			x := gatewaytest.NewText("")
			k := start(x)
			k.Source, k.Within = c.broken(x), 100*time.Millisecond
			gatewaytest.RunPolicySource(&r, k)
			reports(t, &r, c.report)
		})
	}
}
