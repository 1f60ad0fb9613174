package capabilities

import (
	"fmt"
	"testing"
)

// TestForcedCollision uses a naming function that collides at will, across upstreams too: what SHA-256 will hardly show, and what
// Expose cannot do by construction, must still end in withholding and never in a map that overwrites.
func TestForcedCollision(t *testing.T) {
	id := func(upstream UpstreamID, name string) Identity {
		return Identity{Kind: Tool, Upstream: upstream, Name: name}
	}
	a, b, c, ok := id("a", "one"), id("b", "two"), id("b", "three"), id("b", "ok")
	expose := func(i Identity) ExposedName {
		if i == ok {
			return "ok"
		}
		return "same"
	}
	tests := []struct {
		name     string
		accepted map[Identity]bool
		holder   Identity // zero: nobody has the name
		findings string
	}{
		{"three newcomers", nil, Identity{},
			`[withheld mcp:a:one: name_collision with mcp:b:three with mcp:b:two (both would be "same")` +
				` withheld mcp:b:three: name_collision with mcp:a:one with mcp:b:two (both would be "same")` +
				` withheld mcp:b:two: name_collision with mcp:a:one with mcp:b:three (both would be "same")]`},
		{"one accepted keeps the name", map[Identity]bool{b: true}, b,
			`[withheld mcp:a:one: name_collision with mcp:b:three with mcp:b:two (both would be "same")` +
				` withheld mcp:b:three: name_collision with mcp:a:one with mcp:b:two (both would be "same")]`},
		{"two accepted: nobody has it", map[Identity]bool{a: true, b: true}, Identity{},
			`[withheld mcp:a:one: name_collision with mcp:b:two (both would be "same")` +
				` withheld mcp:b:three: name_collision with mcp:a:one with mcp:b:two (both would be "same")` +
				` withheld mcp:b:two: name_collision with mcp:a:one (both would be "same")]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, order := range [][]Identity{{a, b, c, ok}, {ok, c, b, a}, {b, ok, a, c}} {
				var things []Listed
				for _, i := range order {
					things = append(things, Listed{Identity: i, Accepted: tt.accepted[i]})
				}
				l := newLedger(things, expose, LedgerOptions{WarnCase: true})
				holder, found := l.Resolve(Tool, "same")
				if holder != tt.holder || found != (tt.holder != Identity{}) {
					t.Errorf("the name reaches %v, %v; want %v", holder, found, tt.holder)
				}
				for _, i := range []Identity{a, b, c} {
					if _, served := l.Exposed(i); served != (i == tt.holder) {
						t.Errorf("%s is served: %v", i, served)
					}
					if _, served := l.ResolveVerbatim(Tool, i.Upstream, i.Name); served != (i == tt.holder) {
						t.Errorf("%s is served by its own name: %v", i, served)
					}
				}
				if i, found := l.Resolve(Tool, "ok"); !found || i != ok {
					t.Errorf("the bystander became %v, %v", i, found)
				}
				if got := fmt.Sprint(l.Findings()); got != tt.findings {
					t.Errorf("findings\n%s\nwant\n%s", got, tt.findings)
				}
			}
		})
	}
}
