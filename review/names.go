package review

import (
	"slices"
	"strings"

	"aduana/assembly"
	"aduana/capabilities"
)

// Name is one line of the table of names: identity, exposed name, what it is mapped to, and what is wrong with it.
type Name struct {
	Identity   capabilities.Identity
	Exposed    capabilities.ExposedName // empty when the Ledger serves none
	Capability string                   // empty when nothing maps the tool
	Withheld   capabilities.Withheld
	Findings   []capabilities.Finding
}

// Names lists every identity that the snapshot knows, mapped or not, by the same Ledger that serves lists and calls. With
// anything in match (an exposed name, a canonical identity, or a part of either) it keeps to what matches.
func Names(s *assembly.Snapshot, in assembly.Input, match string) []Name {
	byID := map[capabilities.Identity]*Name{}
	enter := func(id capabilities.Identity) *Name {
		n := byID[id]
		if n == nil {
			n = &Name{Identity: id}
			n.Exposed, _ = s.Ledger.Exposed(id)
			byID[id] = n
		}
		return n
	}
	for _, t := range s.Tools {
		n := enter(t.Identity)
		n.Capability, n.Withheld = t.Capability, t.Withheld
	}
	// any order: entered into a map, ordered at the end.
	for upstream, locked := range in.Lock.Upstreams {
		if _, ok := s.Upstream(upstream); ok {
			for _, t := range locked.Tools {
				enter(t.Pin.Identity)
			}
		}
	}
	for _, f := range s.Findings {
		n := enter(f.Identity)
		n.Findings = append(n.Findings, f)
		if n.Exposed == "" && n.Withheld == "" {
			n.Withheld = f.Reason
		}
	}
	var out []Name
	for _, n := range byID {
		if match == "" || strings.Contains(string(n.Exposed), match) || strings.Contains(n.Identity.Canonical(), match) {
			out = append(out, *n)
		}
	}
	slices.SortFunc(out, func(a, b Name) int { return capabilities.Compare(a.Identity, b.Identity) })
	return out
}
