package gatewaytest

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"

	"aduana/accounts"
	"aduana/gateway"
)

// CredentialsCase is a resolver with what it must answer. Set and Unset change what stands behind Ref and must be nil when the
// resolver cannot be changed from a test.
type CredentialsCase struct {
	Credentials gateway.Credentials
	Ref         accounts.Reference
	Secret      string               // what Ref gives; no part of Ref
	Bad         []accounts.Reference // references that give nothing
	Set         func(secret string)
	Unset       func()
}

// RunCredentials checks the contract of gateway.Credentials.
func RunCredentials(t T, c CredentialsCase) {
	t.Helper()
	ctx := context.Background()
	resolve := func(secret string) gateway.Material {
		m, err := c.Credentials.Resolve(ctx, c.Ref)
		switch {
		case err != nil:
			t.Errorf("%q: %v", c.Ref, err)
		case m.Secret.Reveal() != secret:
			t.Errorf("%q does not give its secret", c.Ref)
		case m.Generation == "":
			t.Errorf("%q has no generation", c.Ref)
		case strings.Contains(m.Generation, secret) || strings.Contains(fmt.Sprintf("%v %+v %#v", m, m, m), secret):
			t.Errorf("%q: the material shows the secret when printed", c.Ref)
		}
		return m
	}
	refused := func(what string, ref accounts.Reference, secret, name string) {
		m, err := c.Credentials.Resolve(ctx, ref)
		switch {
		case err == nil:
			t.Errorf("%s: %q gives material, want an error", what, ref)
		case !strings.Contains(err.Error(), name):
			t.Errorf("%s: the error does not name %q: %v", what, name, err)
		case secret != "" && strings.Contains(err.Error(), secret):
			t.Errorf("%s: the error shows the secret", what)
		}
		if !m.Secret.Empty() || m.Generation != "" {
			t.Errorf("%s: material came with an error", what)
		}
	}

	first := resolve(c.Secret)
	if again := resolve(c.Secret); again.Generation != first.Generation {
		t.Errorf("%q: the same secret has the generations %q and %q", c.Ref, first.Generation, again.Generation)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			m, err := c.Credentials.Resolve(ctx, c.Ref)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || m.Generation != first.Generation {
				t.Errorf("%q: concurrent use gives another answer (error %v)", c.Ref, err)
			}
		})
	}
	wg.Wait()

	refused("a scheme of nobody", "no-such-scheme://x", "", "no-such-scheme")
	refused("an empty reference", "", "", `""`)
	for _, ref := range c.Bad {
		refused("bad reference", ref, c.Secret, fmt.Sprintf("%q", ref))
	}
	if c.Set != nil {
		next := c.Secret + "-rotated"
		c.Set(next)
		if m := resolve(next); m.Generation == first.Generation {
			t.Errorf("%q: the generation stays when the secret changes", c.Ref)
		}
		c.Set(c.Secret)
		if m := resolve(c.Secret); m.Generation != first.Generation {
			t.Errorf("%q: the generation of a secret that came back differs", c.Ref)
		}
		c.Set("")
		refused("an empty secret", c.Ref, c.Secret, string(c.Ref))
	}
	if c.Unset != nil {
		c.Unset()
		refused("a missing secret", c.Ref, c.Secret, string(c.Ref))
	}
}

// Vault is a fake gateway.Credentials for references of any scheme: secrets by reference. The zero Vault has none.
type Vault struct {
	mu      sync.Mutex
	secrets map[accounts.Reference]string
	asked   []accounts.Reference
}

var _ gateway.Credentials = (*Vault)(nil)

// Set puts a secret behind a reference; the empty secret takes it away.
func (v *Vault) Set(ref accounts.Reference, secret string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.secrets == nil {
		v.secrets = map[accounts.Reference]string{}
	}
	v.secrets[ref] = secret
}

// Asked gives every reference that was resolved or tried, in order.
func (v *Vault) Asked() []accounts.Reference {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]accounts.Reference(nil), v.asked...)
}

// Resolve looks the reference up. The generation is a checksum: good for tests, too weak for secrets.
func (v *Vault) Resolve(_ context.Context, ref accounts.Reference) (gateway.Material, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, ref)
	secret := v.secrets[ref]
	if secret == "" {
		return gateway.Material{}, fmt.Errorf("secret %q: not in the vault", ref)
	}
	return gateway.Material{Secret: gateway.NewSecret(secret), Generation: fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(secret)))}, nil
}
