package capabilities

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Withheld says why a thing is kept from every surface. The zero value means that it is not.
type Withheld string

// The closed list of reasons. The first four are the Ledger's; the others come from comparing a listing with what was accepted.
const (
	NotWithheld       Withheld = ""
	NameCollision     Withheld = "name_collision"     // two identities have one exposed name
	DuplicateName     Withheld = "duplicate_name"     // an upstream lists one name twice
	SimilarName       Withheld = "similar_name"       // names of one upstream are equal under simple case folding
	InvalidName       Withheld = "invalid_name"       // empty, too long, not NFC, or with characters that cannot be seen
	InvalidDefinition Withheld = "invalid_definition" // ambiguous JSON, or no object schema
	DefinitionChanged Withheld = "definition_changed" // schema, annotations or an unknown member differ from what was accepted
	BindingChanged    Withheld = "binding_changed"    // the upstream's id points somewhere else than where it was accepted
	NotAccepted       Withheld = "not_accepted"       // nobody accepted it yet
)

// Listed is one thing that wants a name. Accepted things are never taken away by things that are not.
type Listed struct {
	Identity Identity
	Accepted bool
}

// maxPeers bounds the peers of one finding: an upstream that lists a name in 100,000 spellings must not make each name them all.
const maxPeers = 16

// Finding names a withheld identity, why, and the identities that it would be confused with (sorted, the first 16 of them;
// empty when the name itself is at fault). Detail is for people.
type Finding struct {
	Identity Identity
	Reason   Withheld
	Peers    []Identity
	Detail   string
	Served   bool // naming.similar: warn lets it stand
}

// String is one line that names both sides.
func (f Finding) String() string {
	word := "withheld"
	if f.Served {
		word = "served all the same"
	}
	s := fmt.Sprintf("%s %s: %s", word, f.Identity, f.Reason)
	for _, p := range f.Peers {
		s += " with " + p.Canonical()
	}
	if f.Detail != "" {
		s += " (" + f.Detail + ")"
	}
	return s
}

// Ledger is the bijection between identities and names. It is the only way from a name, exposed or verbatim, to an identity, and
// every surface uses it. The zero Ledger knows nothing.
type Ledger struct {
	byExposed  map[exposedKey]Identity
	byIdentity map[Identity]ExposedName
	findings   []Finding
}

type exposedKey struct {
	kind Kind
	name ExposedName
}

// LedgerOptions holds the policy's /naming.
type LedgerOptions struct {
	MaxLength int  // limit of an exposed name in bytes; see Expose
	WarnCase  bool // naming.similar: warn — names that differ only by case are reported but served
}

// NewLedger enters all things of one assembly. What would break the bijection is withheld, all parties of it, unless some of the
// parties were accepted and others not: then only the newcomers. Everything else is served. The result does not depend on the
// order of things.
func NewLedger(things []Listed, o LedgerOptions) *Ledger {
	return newLedger(things, func(id Identity) ExposedName { return Expose(id, o.MaxLength) }, o)
}

// newLedger takes the naming function, so that a test can force the collision that 30 bits of SHA-256 will not show.
func newLedger(things []Listed, expose func(Identity) ExposedName, o LedgerOptions) *Ledger {
	l := &Ledger{byExposed: map[exposedKey]Identity{}, byIdentity: map[Identity]ExposedName{}}
	things = slices.Clone(things)
	slices.SortFunc(things, func(a, b Listed) int { return Compare(a.Identity, b.Identity) })

	// One name twice: nobody can say which of the two a call would reach, so the identity goes as a whole.
	var once []Listed
	for i := 0; i < len(things); {
		j := i + 1
		for j < len(things) && things[j].Identity == things[i].Identity {
			j++
		}
		id := things[i].Identity
		if detail := nameProblem(id); detail != "" {
			l.withhold(id, InvalidName, nil, detail)
		} else if j > i+1 {
			l.withhold(id, DuplicateName, []Identity{id}, fmt.Sprintf("listed %d times", j-i))
		} else {
			once = append(once, things[i])
		}
		i = j
	}

	type foldKey struct {
		kind     Kind
		upstream UpstreamID
		folded   string
	}
	exposed := map[exposedKey][]Listed{}
	folded := map[foldKey][]Listed{}
	for _, t := range once {
		id := t.Identity
		k := exposedKey{id.Kind, expose(id)}
		exposed[k] = append(exposed[k], t)
		f := foldKey{id.Kind, id.Upstream, fold(id.Name)}
		folded[f] = append(folded[f], t)
	}
	for _, t := range once {
		id := t.Identity
		name := expose(id)
		if peers := rivals(t, exposed[exposedKey{id.Kind, name}]); peers != nil {
			l.withhold(id, NameCollision, peers, fmt.Sprintf("both would be %q", name))
			continue
		}
		if peers := rivals(t, folded[foldKey{id.Kind, id.Upstream, fold(id.Name)}]); peers != nil {
			l.withhold(id, SimilarName, peers, "the names differ only by letter case")
			if !o.WarnCase {
				continue
			}
			l.findings[len(l.findings)-1].Served = true
		}
		l.byExposed[exposedKey{id.Kind, name}] = id
		l.byIdentity[id] = name
	}
	slices.SortFunc(l.findings, func(a, b Finding) int {
		if c := Compare(a.Identity, b.Identity); c != 0 {
			return c
		}
		return strings.Compare(string(a.Reason), string(b.Reason))
	})
	return l
}

// rivals gives the members of a group for whose sake t must step back: all others, except that an accepted thing yields only
// to accepted ones.
func rivals(t Listed, group []Listed) []Identity {
	var peers []Identity
	for _, o := range group {
		if len(peers) == maxPeers {
			break
		}
		if o.Identity != t.Identity && (o.Accepted || !t.Accepted) {
			peers = append(peers, o.Identity)
		}
	}
	return peers
}

func (l *Ledger) withhold(id Identity, why Withheld, peers []Identity, detail string) {
	l.findings = append(l.findings, Finding{Identity: id, Reason: why, Peers: peers, Detail: detail})
}

// Exposed gives the name of an identity that has one.
func (l *Ledger) Exposed(id Identity) (ExposedName, bool) {
	if l == nil {
		return "", false
	}
	name, ok := l.byIdentity[id]
	return name, ok
}

// Resolve gives the identity behind an exposed name. A name that nothing was entered under resolves to nothing.
func (l *Ledger) Resolve(kind Kind, name ExposedName) (Identity, bool) {
	if l == nil {
		return Identity{}, false
	}
	id, ok := l.byExposed[exposedKey{kind, name}]
	return id, ok
}

// ResolveVerbatim gives the identity of an upstream's own name, for the endpoint that shows that upstream alone.
func (l *Ledger) ResolveVerbatim(kind Kind, upstream UpstreamID, name string) (Identity, bool) {
	id := Identity{Kind: kind, Upstream: upstream, Name: name}
	_, ok := l.Exposed(id)
	return id, ok
}

// Findings gives everything that was withheld or reported, ordered by identity. The caller must not change it.
func (l *Ledger) Findings() []Finding {
	if l == nil {
		return nil
	}
	return l.findings
}

// MaxToolName is the longest verbatim name in bytes (MCP specification 2025-11-25 and later, "Tool Names").
const MaxToolName = 128

// nameProblem says what is wrong with a verbatim name, or nothing. A name must be something that a reader sees and can type the
// same way twice: NFC, and no control, format (bidi, zero-width, tag), default-ignorable, private or unassigned characters.
func nameProblem(id Identity) string {
	name := id.Name
	switch {
	case id.Kind == NoKind:
		return "no kind"
	case !id.Upstream.Valid():
		return "no valid upstream id"
	case name == "":
		return "empty name"
	case len(name) > MaxToolName && id.Kind != Resource && id.Kind != Template:
		return fmt.Sprintf("%d bytes; the most is %d", len(name), MaxToolName)
	case !utf8.ValidString(name):
		return "not UTF-8"
	}
	for _, r := range name {
		if !visible(r) {
			return fmt.Sprintf("holds U+%04X, which cannot be seen or is not assigned", r)
		}
	}
	if !norm.NFC.IsNormalString(name) {
		return "not in Unicode normal form C"
	}
	return ""
}

func visible(r rune) bool {
	if r == ' ' {
		return true
	}
	if unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return false
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

// fold maps every string of one simple-case-folding class to the same string: the least rune of each rune's orbit.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}
