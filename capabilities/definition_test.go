package capabilities_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"aduana/capabilities"
)

func definition(t *testing.T, members ...capabilities.Member) capabilities.Definition {
	t.Helper()
	d, err := capabilities.NewDefinition(members)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// sync is the tool of case C09, as canonical members.
func sync() []capabilities.Member {
	return []capabilities.Member{
		{Name: "name", Value: `"sync"`},
		{Name: "description", Value: `"Copy rows"`},
		{Name: "inputSchema", Value: `{"type":"object"}`},
		{Name: "annotations", Value: `{"readOnlyHint":true}`},
	}
}

func with(members []capabilities.Member, name, value string) []capabilities.Member {
	out := slices.DeleteFunc(slices.Clone(members), func(m capabilities.Member) bool { return m.Name == name })
	if value != "" {
		out = append(out, capabilities.Member{Name: name, Value: value})
	}
	return out
}

func TestNewDefinition(t *testing.T) {
	members := sync()
	d := definition(t, members...)
	var got []string
	for _, m := range d.Members() {
		got = append(got, m.Name)
	}
	if want := []string{"annotations", "description", "inputSchema", "name"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	if v, ok := d.Get("description"); !ok || v != `"Copy rows"` {
		t.Errorf("description %q, %v", v, ok)
	}
	if v, ok := d.Get("Description"); ok || v != "" {
		t.Errorf("Description %q, %v", v, ok)
	}
	members[0].Value = "changed"
	if v, _ := d.Get("name"); v != `"sync"` {
		t.Error("the definition shares memory with its input")
	}
	_, err := capabilities.NewDefinition(append(sync(), capabilities.Member{Name: "name", Value: `"purge"`}))
	if !errors.Is(err, capabilities.ErrDefinition) || err.Error() != `not a definition: member "name" stands twice` {
		t.Errorf("a member twice: %v", err)
	}
	if _, ok := (capabilities.Definition{}).Get("name"); ok {
		t.Error("the zero definition has a name")
	}
}

// TestDefinitionDigest: every member counts, known or not, and so does the border between a name and its value. The literal was
// made with: printf '4:name6:"sync"' | sha256sum
func TestDefinitionDigest(t *testing.T) {
	const anchor = "sha256:162925954beb6a58bd143115af5fe0083a451118b15dc56be6558b0025fa4214"
	if got := definition(t, capabilities.Member{Name: "name", Value: `"sync"`}).Digest(); got != anchor {
		t.Errorf("%s, want %s", got, anchor)
	}
	base := definition(t, sync()...).Digest()
	turned := sync()
	slices.Reverse(turned)
	if definition(t, turned...).Digest() != base {
		t.Error("the order of members counts")
	}
	seen := map[capabilities.Digest]string{base: "as accepted", capabilities.Definition{}.Digest(): "nothing"}
	variants := map[string][]capabilities.Member{
		"description":   with(sync(), "description", `"Copy rows."`),
		"annotations":   with(sync(), "annotations", `{"destructiveHint":true}`),
		"inputSchema":   with(sync(), "inputSchema", `{"properties":{"x":{}},"type":"object"}`),
		"outputSchema":  with(sync(), "outputSchema", `{"type":"object"}`),
		"title":         with(sync(), "title", `"Sync"`),
		"icons":         with(sync(), "icons", `[]`),
		"execution":     with(sync(), "execution", `{"taskSupport":"optional"}`),
		"_meta":         with(sync(), "_meta", `{}`),
		"unknown":       with(sync(), "x-vendor", `1`),
		"number":        with(sync(), "x-vendor", `1.0`),
		"name":          with(sync(), "name", `"sync2"`),
		"less":          with(sync(), "annotations", ""),
		"border":        with(sync(), "x-vendor1", `0`),
		"border, moved": with(sync(), "x-vendor", `10`),
	}
	for name, members := range variants {
		d := definition(t, members...).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

func TestCompareWithPin(t *testing.T) {
	tests := []struct {
		name    string
		partial bool
		listed  []capabilities.Member
		drift   capabilities.Drift
		changes string
	}{
		{"equal", false, sync(), capabilities.NoDrift, "[]"},
		{"description", false, with(sync(), "description", `"x"`), capabilities.TextDrift, "[{description 1}]"},
		{"description gone", false, with(sync(), "description", ""), capabilities.TextDrift, "[{description 1}]"},
		{"title added", false, with(sync(), "title", `"x"`), capabilities.TextDrift, "[{title 1}]"},
		{"icons added", false, with(sync(), "icons", `[]`), capabilities.TextDrift, "[{icons 1}]"},
		{"_meta added", false, with(sync(), "_meta", `{}`), capabilities.TextDrift, "[{_meta 1}]"},
		{"annotations", false, with(sync(), "annotations", `{"destructiveHint":true}`), capabilities.SubstanceDrift, "[{annotations 2}]"},
		{"annotations gone", false, with(sync(), "annotations", ""), capabilities.SubstanceDrift, "[{annotations 2}]"},
		{"inputSchema", false, with(sync(), "inputSchema", `{}`), capabilities.SubstanceDrift, "[{inputSchema 2}]"},
		{"outputSchema added", false, with(sync(), "outputSchema", `{}`), capabilities.SubstanceDrift, "[{outputSchema 2}]"},
		{"execution added", false, with(sync(), "execution", `{}`), capabilities.SubstanceDrift, "[{execution 2}]"},
		{"name", false, with(sync(), "name", `"x"`), capabilities.SubstanceDrift, "[{name 2}]"},
		{"unknown member added", false, with(sync(), "x-vendor", `1`), capabilities.SubstanceDrift, "[{x-vendor 2}]"},
		{"another spelling of a text member", false, with(sync(), "Title", `"x"`), capabilities.SubstanceDrift, "[{Title 2}]"},
		{"text and substance", false, with(with(sync(), "description", `"x"`), "annotations", `{}`), capabilities.SubstanceDrift,
			"[{annotations 2} {description 1}]"},
		{"nothing listed", false, nil, capabilities.SubstanceDrift, "[{annotations 2} {description 1} {inputSchema 2} {name 2}]"},
		{"partial: more is listed", true, with(with(sync(), "x-vendor", `1`), "title", `"x"`), capabilities.NoDrift, "[]"},
		{"partial: what was written has changed", true, with(sync(), "inputSchema", `{}`), capabilities.SubstanceDrift, "[{inputSchema 2}]"},
		{"partial: what was written is gone", true, with(sync(), "annotations", ""), capabilities.SubstanceDrift, "[{annotations 2}]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pin := capabilities.Pin{Identity: tool("s", "sync"), Definition: definition(t, sync()...), Partial: tt.partial}
			drift, changes := pin.Compare(definition(t, tt.listed...))
			if drift != tt.drift || fmt.Sprint(changes) != tt.changes {
				t.Errorf("%d %v, want %d %s", drift, changes, tt.drift, tt.changes)
			}
		})
	}
	if drift, _ := (capabilities.Pin{}).Compare(definition(t, sync()...)); drift != capabilities.SubstanceDrift {
		t.Error("the zero pin accepts a definition")
	}
}

// TestBindingDigest: an upstream that points elsewhere in any respect is another place; and no two ways of writing settings run
// together.
func TestBindingDigest(t *testing.T) {
	base := func() capabilities.Binding {
		return capabilities.Binding{Transport: "mcp-stdio", URL: "", Command: "npx", Args: []string{"-y", "server"}, Cwd: "/srv",
			Env: []capabilities.Setting{{Name: "A", Value: "1"}, {Name: "B", Value: "env://B", IsRef: true}}, Inherit: []string{"PATH", "HOME"},
			Headers: []capabilities.Setting{{Name: "x-tenant", Value: "7"}}, Deliver: "env:TOKEN"}
	}
	seen := map[capabilities.Digest]string{base().Digest(): "as accepted"}
	if b := base(); seen[b.Digest()] == "" {
		t.Error("the digest is not stable")
	}
	changes := map[string]func(b *capabilities.Binding){
		"transport":           func(b *capabilities.Binding) { b.Transport = "mcp-http" },
		"url":                 func(b *capabilities.Binding) { b.URL = "https://a.test/mcp" },
		"url path":            func(b *capabilities.Binding) { b.URL = "https://a.test/mcp2" },
		"command":             func(b *capabilities.Binding) { b.Command = "uvx" },
		"one argument":        func(b *capabilities.Binding) { b.Args[1] = "server@2" },
		"arguments joined":    func(b *capabilities.Binding) { b.Args = []string{"-yserver"} },
		"order of arguments":  func(b *capabilities.Binding) { slices.Reverse(b.Args) },
		"argument added":      func(b *capabilities.Binding) { b.Args = append(b.Args, "") },
		"no arguments":        func(b *capabilities.Binding) { b.Args = nil },
		"cwd":                 func(b *capabilities.Binding) { b.Cwd = "/" },
		"value of a variable": func(b *capabilities.Binding) { b.Env[0].Value = "2" },
		"name of a variable":  func(b *capabilities.Binding) { b.Env[0].Name = "C" },
		"reference":           func(b *capabilities.Binding) { b.Env[1].Value = "env://C" },
		"reference as text":   func(b *capabilities.Binding) { b.Env[1].IsRef = false },
		"variable gone":       func(b *capabilities.Binding) { b.Env = b.Env[:1] },
		"inherited":           func(b *capabilities.Binding) { b.Inherit[0] = "LANG" },
		"inherited moved to arguments": func(b *capabilities.Binding) {
			b.Args, b.Inherit = append(b.Args, b.Inherit...), nil
		},
		"header":      func(b *capabilities.Binding) { b.Headers[0].Value = "8" },
		"header gone": func(b *capabilities.Binding) { b.Headers = nil },
		"header moved to variables": func(b *capabilities.Binding) {
			b.Env, b.Headers = append(b.Env, b.Headers...), nil
		},
		"deliver": func(b *capabilities.Binding) { b.Deliver = "bearer:" },
		"nothing": func(b *capabilities.Binding) { *b = capabilities.Binding{} },
	}
	for name, change := range changes {
		b := base()
		change(&b)
		d := b.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}
