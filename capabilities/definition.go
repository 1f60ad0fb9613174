package capabilities

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Digest is "sha256:" and 64 lower-case hex digits. The empty Digest equals no computed one.
type Digest string

func digestOf(parts ...string) Digest {
	h := sha256.New()
	for _, p := range parts {
		// Length-prefixed, so that ("ab","c") and ("a","bc") differ.
		fmt.Fprintf(h, "%d:", len(p))
		h.Write([]byte(p))
	}
	return Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// Member is one member of a definition: its decoded name and its value in canonical JSON (members sorted by bytes, numbers as
// written, no blanks). The canonical bytes are made where the list is read.
type Member struct {
	Name  string
	Value string
}

// Definition is everything an upstream says about one thing. The zero Definition has no members.
type Definition struct {
	members []Member
}

// ErrDefinition is wrapped by the errors of NewDefinition.
var ErrDefinition = errors.New("not a definition")

// NewDefinition orders the members by name and refuses a name that stands twice.
func NewDefinition(members []Member) (Definition, error) {
	m := slices.Clone(members)
	slices.SortFunc(m, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(m); i++ {
		if m[i].Name == m[i-1].Name {
			return Definition{}, fmt.Errorf("%w: member %q stands twice", ErrDefinition, m[i].Name)
		}
	}
	return Definition{members: m}, nil
}

// Members gives the members ordered by name. The caller must not change them.
func (d Definition) Members() []Member { return d.members }

// Get gives the canonical value of a member.
func (d Definition) Get(name string) (string, bool) {
	i, ok := slices.BinarySearchFunc(d.members, name, func(m Member, n string) int { return strings.Compare(m.Name, n) })
	if !ok {
		return "", false
	}
	return d.members[i].Value, true
}

// Digest covers every member, known or not.
func (d Definition) Digest() Digest {
	parts := make([]string, 0, 2*len(d.members))
	for _, m := range d.members {
		parts = append(parts, m.Name, m.Value)
	}
	return digestOf(parts...)
}

// Drift classifies how a listed definition departs from the accepted one.
type Drift uint8

// The classes of drift. Only NoDrift is the zero value, and it is only ever given for equal definitions.
const (
	NoDrift        Drift = iota
	TextDrift            // title, description, icons, _meta: the accepted text goes on being served, the change is reported
	SubstanceDrift       // anything else, unknown members included: withheld until accepted
)

// Change is one member that differs.
type Change struct {
	Member string
	Class  Drift
}

// Compare tells what changed between the accepted and the listed definition. A partial pin (a declared catalogue says only what
// its author wrote) is compared only in the members that it has. A pinned member that is no longer listed counts as changed.
func (p Pin) Compare(listed Definition) (Drift, []Change) {
	var changes []Change
	worst := NoDrift
	note := func(name string) {
		class := SubstanceDrift
		switch name {
		case "title", "description", "icons", "_meta":
			class = TextDrift
		}
		worst = max(worst, class)
		changes = append(changes, Change{Member: name, Class: class})
	}
	for _, m := range p.Definition.members {
		if v, ok := listed.Get(m.Name); !ok || v != m.Value {
			note(m.Name)
		}
	}
	if !p.Partial {
		for _, m := range listed.members {
			if _, ok := p.Definition.Get(m.Name); !ok {
				note(m.Name)
			}
		}
	}
	return worst, changes
}

// Verdict is what a person said of a thing when accepting it.
type Verdict string

// The verdicts. The empty one means that nobody gave any; it grants nothing.
const (
	NoVerdict          Verdict = ""
	ReadVerdict        Verdict = "read"
	WriteVerdict       Verdict = "write"
	DestructiveVerdict Verdict = "destructive"
)

// Pin is one accepted thing: the exact definition that somebody accepted.
type Pin struct {
	Identity   Identity
	Definition Definition
	Partial    bool // from a declared catalogue: only the members written there are pinned
	Verdict    Verdict
	By         string // who accepted it; empty for a declared catalogue
	At         string // RFC 3339; empty for a declared catalogue
}

// Binding is where an upstream id points: what counts when asking "is this still the server that was accepted?". References to
// secrets count as their text; the secrets themselves never come here.
type Binding struct {
	Transport string // "mcp-stdio" or "mcp-http"
	URL       string
	Command   string
	Args      []string
	Cwd       string
	Env       []Setting
	Inherit   []string
	Headers   []Setting
	Deliver   string
}

// Setting is a name with a literal value or the text of a reference.
type Setting struct {
	Name  string
	Value string
	IsRef bool
}

// Digest is the binding's fingerprint.
func (b Binding) Digest() Digest {
	parts := []string{b.Transport, b.URL, b.Command, b.Cwd, b.Deliver}
	for _, list := range [][]string{b.Args, b.Inherit} {
		parts = append(parts, strconv.Itoa(len(list)))
		parts = append(parts, list...)
	}
	for _, set := range [][]Setting{b.Env, b.Headers} {
		parts = append(parts, strconv.Itoa(len(set)))
		for _, s := range set {
			kind := "literal"
			if s.IsRef {
				kind = "ref"
			}
			parts = append(parts, s.Name, kind, s.Value)
		}
	}
	return digestOf(parts...)
}
