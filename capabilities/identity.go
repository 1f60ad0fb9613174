package capabilities

import (
	"errors"
	"fmt"
	"strings"
)

// UpstreamID is the policy's name of an MCP server: ^[a-z0-9][a-z0-9-]*$, at most MaxUpstreamID bytes. It holds no '_', which is
// what makes the first "__" of an exposed name the separator.
type UpstreamID string

// MaxUpstreamID is the longest upstream id in bytes. With the shortest naming limit of 48 it leaves 14 bytes for the rest of an
// exposed name, enough for a digest and a few readable letters.
const MaxUpstreamID = 32

// Own is the upstream id under which the gateway's own tools are entered. No policy may declare it.
const Own UpstreamID = "aduana"

// Valid reports whether the id follows the grammar. Own is valid as an id, but reserved in a policy.
func (u UpstreamID) Valid() bool {
	if len(u) == 0 || len(u) > MaxUpstreamID || u[0] == '-' {
		return false
	}
	for i := range len(u) {
		c := u[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// Kind says which of an upstream's lists a thing stands in. The zero Kind is no kind and is refused everywhere.
type Kind uint8

// The kinds. Their order is the order of listings.
const (
	NoKind Kind = iota
	Tool
	Prompt
	Resource
	Template
)

// prefix is the first segment of the canonical form.
func (k Kind) prefix() string {
	switch k {
	case Tool:
		return "mcp"
	case Prompt:
		return "mcp-prompt"
	case Resource:
		return "mcp-resource"
	case Template:
		return "mcp-template"
	}
	return ""
}

// String is the word for people: tool, prompt, resource, template.
func (k Kind) String() string {
	switch k {
	case Tool:
		return "tool"
	case Prompt:
		return "prompt"
	case Resource:
		return "resource"
	case Template:
		return "template"
	}
	return "no kind"
}

// Identity is what a thing is: its kind, the upstream that offers it, and its name there, verbatim. It is minted where an
// upstream's list is read and afterwards only passed on. Two identities are the same thing exactly when they are equal.
type Identity struct {
	Kind     Kind
	Upstream UpstreamID
	Name     string
}

// Canonical is the one written form, kind:upstream:name, with the escapes %25 %3A %2A %2F %3F %5C for % : * / ? \ in the name.
// It is injective, and Parse is its inverse. Policy, pins, audit and findings write identities this way.
func (i Identity) Canonical() string {
	var b strings.Builder
	b.Grow(len(i.Upstream) + len(i.Name) + 8)
	b.WriteString(i.Kind.prefix())
	b.WriteByte(':')
	escape(&b, string(i.Upstream))
	b.WriteByte(':')
	escape(&b, i.Name)
	return b.String()
}

// String is Canonical, so that an identity in a message is always unambiguous.
func (i Identity) String() string { return i.Canonical() }

const hexDigits = "0123456789ABCDEF"

func escape(b *strings.Builder, s string) {
	for j := range len(s) {
		c := s[j]
		switch c {
		case '%', ':', '*', '?', '\\', '/':
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		default:
			b.WriteByte(c)
		}
	}
}

// ErrIdentity is wrapped by every error of Parse.
var ErrIdentity = errors.New("not a canonical identity")

// Parse reads the canonical form and nothing else: three segments, a known kind, a valid upstream id, a name, and only the six
// upper-case escapes. Anything that Canonical would not write is refused, never guessed.
func Parse(s string) (Identity, error) {
	prefix, rest, ok := strings.Cut(s, ":")
	upstream, name, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return Identity{}, fmt.Errorf("%w: %q has not the three segments kind:upstream:name", ErrIdentity, s)
	}
	id := Identity{Upstream: UpstreamID(upstream)}
	for k := Tool; k <= Template; k++ {
		if k.prefix() == prefix {
			id.Kind = k
		}
	}
	if id.Kind == NoKind {
		return Identity{}, fmt.Errorf("%w: %q starts with none of mcp, mcp-prompt, mcp-resource, mcp-template", ErrIdentity, s)
	}
	if !id.Upstream.Valid() {
		return Identity{}, fmt.Errorf("%w: %q has no valid upstream id", ErrIdentity, s)
	}
	var b strings.Builder
	for j := 0; j < len(name); j++ {
		if name[j] != '%' {
			b.WriteByte(name[j])
			continue
		}
		if j+3 > len(name) {
			return Identity{}, fmt.Errorf("%w: %q ends inside an escape", ErrIdentity, s)
		}
		switch name[j : j+3] {
		case "%25", "%3A", "%2A", "%3F", "%5C", "%2F":
			b.WriteByte(unhex(name[j+1])<<4 | unhex(name[j+2]))
			j += 2
		default:
			return Identity{}, fmt.Errorf("%w: %q holds the escape %q; only %%25 %%3A %%2A %%3F %%5C %%2F exist", ErrIdentity, s, name[j:j+3])
		}
	}
	id.Name = b.String()
	// The last word is normal form: whatever the checks above overlooked, text that is not what Canonical writes is refused.
	if id.Name == "" || id.Canonical() != s {
		return Identity{}, fmt.Errorf("%w: %q is not in normal form", ErrIdentity, s)
	}
	return id, nil
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}

// Compare orders identities by kind, upstream, name, each by bytes: the order of every listing.
func Compare(a, b Identity) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	if c := strings.Compare(string(a.Upstream), string(b.Upstream)); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
