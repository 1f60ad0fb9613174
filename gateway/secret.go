package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
)

// Secret is text that no printing reaches: every way to format, encode or log it gives "[redacted]". Only Reveal opens it; its
// callers are the adapters that put a credential on the wire or compare it.
type Secret struct {
	text string
	sum  [sha256.Size]byte // so that comparing many keys with one hashes each once
}

// NewSecret wraps a secret's text.
func NewSecret(text string) Secret { return Secret{text: text, sum: sha256.Sum256([]byte(text))} }

// Reveal gives the text.
func (s Secret) Reveal() string { return s.text }

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return s.text == "" }

// Same compares in constant time, whatever the lengths.
func (s Secret) Same(o Secret) bool {
	if s.Empty() || o.Empty() {
		return s.Empty() && o.Empty()
	}
	return subtle.ConstantTimeCompare(s.sum[:], o.sum[:]) == 1
}

const redacted = "[redacted]"

// String hides the secret.
func (s Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return redacted }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
