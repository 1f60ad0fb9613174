// Package env answers "which secret stands behind env://VAR": the value of an environment variable of this process.
//
// It reads nothing but the variable that a reference names, afresh each time, and never says what the value is. An unset and an
// empty variable are the same error: nothing runs without the credential that it should have.
//
// Start at Credentials.Resolve.
package env

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"aduana/accounts"
	"aduana/gateway"
)

// Scheme is the scheme of the references that this adapter resolves.
const Scheme = "env"

const prefix = Scheme + "://"

// Credentials resolves env://VAR. Make one with New.
type Credentials struct {
	// key makes generations: a plain hash of a weak secret could be searched for, and generations stand in keys of caches and
	// may end in a debugger or a dump.
	key [32]byte

	// seen keeps what a reference last gave: the variable is read each time, but hashed only when it is another one. It holds one
	// entry per reference that a policy names.
	seen sync.Map // accounts.Reference → gateway.Material
}

var _ gateway.Credentials = (*Credentials)(nil)

// New makes a resolver. Generations of two resolvers do not compare.
func New() *Credentials {
	c := &Credentials{}
	rand.Read(c.key[:]) // never fails: crypto/rand.Read ends the process instead
	return c
}

// Resolve gives the value of the variable that ref names. VAR is [A-Za-z_][A-Za-z0-9_]*.
func (c *Credentials) Resolve(ctx context.Context, ref accounts.Reference) (gateway.Material, error) {
	if err := ctx.Err(); err != nil {
		return gateway.Material{}, fmt.Errorf("secret %q: %w", ref, err)
	}
	name, ok := strings.CutPrefix(string(ref), prefix)
	if !ok {
		scheme, _, _ := strings.Cut(string(ref), "://")
		return gateway.Material{}, fmt.Errorf("secret %q: the scheme %q is not %s", ref, scheme, Scheme)
	}
	if !variable(name) {
		return gateway.Material{}, fmt.Errorf("secret %q: want env://NAME, with a name of letters, digits and _ that does not start with a digit", ref)
	}
	value := os.Getenv(name)
	if value == "" {
		return gateway.Material{}, fmt.Errorf("secret %q: the environment variable is not set or is empty; set it before starting", ref)
	}
	if m, ok := c.seen.Load(ref); ok && m.(gateway.Material).Secret.Reveal() == value {
		return m.(gateway.Material), nil
	}
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write([]byte(value))
	m := gateway.Material{Secret: gateway.NewSecret(value), Generation: hex.EncodeToString(mac.Sum(nil)[:8])}
	c.seen.Store(ref, m)
	return m, nil
}

func variable(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && !(i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}
