package capabilities_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"aduana/capabilities"

	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	tests := []struct {
		id   capabilities.Identity
		want string
	}{
		{tool("crm", "get_contact"), "mcp:crm:get_contact"},
		{tool("srv", "foo.bar"), "mcp:srv:foo.bar"},
		{tool("srv", "foo/bar"), "mcp:srv:foo%2Fbar"},
		{tool("srv", `%:*?\/`), "mcp:srv:%25%3A%2A%3F%5C%2F"},
		{tool("srv", "*"), "mcp:srv:%2A"},
		{tool("srv", "a b"), "mcp:srv:a b"},
		{tool("srv", "%2F"), "mcp:srv:%252F"},
		{tool("srv", "tr\u0430nsfer"), "mcp:srv:tr\u0430nsfer"},
		{capabilities.Identity{Kind: capabilities.Prompt, Upstream: "srv", Name: "greet"}, "mcp-prompt:srv:greet"},
		{capabilities.Identity{Kind: capabilities.Resource, Upstream: "hr", Name: "hr://salary/1"}, "mcp-resource:hr:hr%3A%2F%2Fsalary%2F1"},
		{capabilities.Identity{Kind: capabilities.Template, Upstream: "hr", Name: "hr://{id}"}, "mcp-template:hr:hr%3A%2F%2F{id}"},
		{tool("aduana", "search"), "mcp:aduana:search"},
	}
	for _, tt := range tests {
		if got := tt.id.Canonical(); got != tt.want {
			t.Errorf("%#v: %q, want %q", tt.id, got, tt.want)
		}
		if got := tt.id.String(); got != tt.want {
			t.Errorf("String %#v: %q, want %q", tt.id, got, tt.want)
		}
		back, err := capabilities.Parse(tt.want)
		if err != nil || back != tt.id {
			t.Errorf("Parse(%q) = %#v, %v", tt.want, back, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"empty", "", "three segments"},
		{"one segment", "mcp", "three segments"},
		{"two segments", "mcp:crm", "three segments"},
		{"four segments", "mcp:crm:a:b", "normal form"},
		{"unknown kind", "plugin:crm:a", "starts with none of"},
		{"kind in capitals", "MCP:crm:a", "starts with none of"},
		{"empty kind", ":crm:a", "starts with none of"},
		{"kind with a blank", " mcp:crm:a", "starts with none of"},
		{"no upstream", "mcp::a", "no valid upstream id"},
		{"upstream in capitals", "mcp:CRM:a", "no valid upstream id"},
		{"upstream with underscore", "mcp:a_b:x", "no valid upstream id"},
		{"upstream with dot", "mcp:a.b:x", "no valid upstream id"},
		{"upstream with leading hyphen", "mcp:-a:x", "no valid upstream id"},
		{"upstream escaped", "mcp:a%2Fb:x", "no valid upstream id"},
		{"upstream of 33", "mcp:" + strings.Repeat("a", 33) + ":x", "no valid upstream id"},
		{"no name", "mcp:crm:", "normal form"},
		{"lower-case escape", "mcp:crm:%2f", "%2f"},
		{"needless escape", "mcp:crm:%41", "%41"},
		{"lone percent", "mcp:crm:a%", "ends inside an escape"},
		{"half an escape", "mcp:crm:a%2", "ends inside an escape"},
		{"percent and text", "mcp:crm:100%sure", "%su"},
		{"star", "mcp:crm:*", "normal form"},
		{"question mark", "mcp:crm:a?", "normal form"},
		{"slash", "mcp:crm:a/b", "normal form"},
		{"backslash", `mcp:crm:a\b`, "normal form"},
		{"NUL escaped", "mcp:crm:%00", "%00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id, err := capabilities.Parse(tt.text)
			if !errors.Is(err, capabilities.ErrIdentity) || id != (capabilities.Identity{}) {
				t.Fatalf("%#v, %v", id, err)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
}

func TestUpstreamIDValid(t *testing.T) {
	tests := map[capabilities.UpstreamID]bool{"a": true, "9": true, "a-b": true, "a-": true, "a--b": true, "aduana": true,
		capabilities.UpstreamID(strings.Repeat("a", 32)): true, capabilities.UpstreamID(strings.Repeat("a", 33)): false, "": false,
		"-a": false, "A": false, "a_b": false, "a.b": false, "a/b": false, "a b": false, "\u00e9": false, "a:": false, "a%": false}
	for id, want := range tests {
		if got := id.Valid(); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

func TestKindString(t *testing.T) {
	want := map[capabilities.Kind]string{capabilities.NoKind: "no kind", capabilities.Tool: "tool", capabilities.Prompt: "prompt",
		capabilities.Resource: "resource", capabilities.Template: "template", 200: "no kind"}
	for k, w := range want {
		if k.String() != w {
			t.Errorf("%d: %q, want %q", k, k.String(), w)
		}
	}
}

// wildcard is the plain matcher of permission languages: '*' for any text, '?' for any byte.
func wildcard(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch pattern[0] {
	case '*':
		for i := range len(s) + 1 {
			if wildcard(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	case '?':
		return s != "" && wildcard(pattern[1:], s[1:])
	}
	return s != "" && s[0] == pattern[0] && wildcard(pattern[1:], s[1:])
}

func TestCanonicalLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := identities().Draw(t, "a")
		c := a.Canonical()
		back, err := capabilities.Parse(c)
		if a.Name == "" {
			if err == nil {
				t.Fatalf("%q has no name, and Parse took it", c)
			}
			return
		}
		if err != nil || back != a {
			t.Fatalf("%#v is %q, which is %#v, %v", a, c, back, err)
		}
		if strings.ContainsAny(c, `*?\/`) || strings.Count(c, ":") != 2 {
			t.Fatalf("%q", c)
		}
		b := identities().Draw(t, "b")
		if rapid.Bool().Draw(t, "same place") {
			b.Kind, b.Upstream = a.Kind, a.Upstream
		}
		if (a == b) != (c == b.Canonical()) {
			t.Fatalf("%#v and %#v are both %q", a, b, c)
		}
		if a != b && wildcard(c, b.Canonical()) {
			t.Fatalf("as a pattern, %q matches %q", c, b.Canonical())
		}
	})
}

// TestCompare: the order is by kind, then upstream, then name, each by bytes.
func TestCompare(t *testing.T) {
	want := []capabilities.Identity{tool("a", "B"), tool("a", "a"), tool("a", "a."), tool("a", "aa"), tool("a-", "a"), tool("b", "A"),
		{Kind: capabilities.Prompt, Upstream: "a", Name: "a"}, {Kind: capabilities.Resource, Upstream: "a", Name: "a"},
		{Kind: capabilities.Template, Upstream: "a", Name: "a"}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, capabilities.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for _, id := range want {
		if capabilities.Compare(id, id) != 0 {
			t.Errorf("%s differs from itself", id)
		}
	}
}

// FuzzParse: whatever Parse takes, Canonical writes back, byte for byte.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"mcp:crm:get_contact", "mcp:srv:%25%3A%2A%3F%5C%2F", "mcp-prompt:a:b", "mcp-resource:hr:hr%3A%2F%2Fx",
		"mcp-template:hr:{x}", "mcp:crm:%2f", "mcp:crm:a%2", "mcp:crm:", "mcp::", ":::", "mcp:a_b:x", "mcp:crm:\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := capabilities.Parse(s)
		if err != nil {
			if !errors.Is(err, capabilities.ErrIdentity) || id != (capabilities.Identity{}) {
				t.Fatalf("%q: %#v, %v", s, id, err)
			}
			return
		}
		if id.Canonical() != s {
			t.Fatalf("%q was taken, and is written %q", s, id.Canonical())
		}
		if id.Name == "" || !id.Upstream.Valid() || id.Kind == capabilities.NoKind || strings.ContainsAny(s, `*?\/`) {
			t.Fatalf("%q was taken as %#v", s, id)
		}
		for _, limit := range []int{0, 48, 50, 64} {
			name := string(capabilities.Expose(id, limit))
			most := limit
			if limit == 0 {
				most = 50
			}
			if !published.MatchString(name) || len(name) > most {
				t.Fatalf("%q is exposed as %q at limit %d", s, name, limit)
			}
		}
	})
}
