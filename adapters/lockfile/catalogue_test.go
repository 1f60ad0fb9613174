package lockfile_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aduana/adapters/lockfile"
	"aduana/capabilities"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

const catalogue = `# by hand
version: 1
tools:
  - upstream: crm-principal
    name: get_contact
    description: Read one contact card
    inputSchema:
      type: object
      required: [id]
      properties:
        id: { type: string, maxLength: 64 }
        n: &num { type: number, minimum: 1.50, maximum: 1e3, default: 9007199254740993, x: [yes, 2026-01-02, null, true, ~] }
        m: *num
  - name: "null"
    upstream: facturacion
  - { upstream: crm-principal, name: delete_contact, description: 7 }
`

func TestCatalogue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	save(t, path, catalogue)
	if err := os.Chmod(path, 0o664); err != nil { // as a checkout leaves it; it is as much the operator's as the policy is
		t.Fatal(err)
	}
	lock, info := read(t, path)
	want := []lockfile.Entry{{"crm-principal", "get_contact", 4}, {"facturacion", "null", 14}, {"crm-principal", "delete_contact", 16}}
	if info.Kind != lockfile.Catalogue || len(info.Entries) != 3 || info.Definitions != "" {
		t.Fatalf("info %+v", info)
	}
	for i, w := range want {
		if info.Entries[i] != w {
			t.Errorf("entry %d: %+v, want %+v", i, info.Entries[i], w)
		}
	}
	if lock.Digest == "" || lock.Upstreams["crm-principal"].Binding != "" {
		t.Errorf("digest %q, binding %q", lock.Digest, lock.Upstreams["crm-principal"].Binding)
	}
	tools := lock.Upstreams["crm-principal"].Tools
	if len(tools) != 2 || len(lock.Upstreams["facturacion"].Tools) != 1 {
		t.Fatalf("%+v", lock.Upstreams)
	}
	num := `{"type":"number","minimum":1.50,"maximum":1e3,"default":9007199254740993,"x":["yes","2026-01-02",null,true,null]}`
	for i, want := range []string{
		`{"name":"delete_contact","inputSchema":{"type":"object"}}`,
		`{"name":"get_contact","description":"Read one contact card","inputSchema":{"type":"object","required":["id"],"properties":{"id":{"type":"string","maxLength":64},"n":` + num + `,"m":` + num + `}}}`,
	} {
		if string(tools[i].Raw) != want {
			t.Errorf("bytes:\n%s\nwant:\n%s", tools[i].Raw, want)
		}
		if p := tools[i].Pin; !p.Partial || p.By != "" || p.Verdict != capabilities.NoVerdict {
			t.Errorf("pin %+v", p)
		}
	}
	// Only what was written is pinned.
	if _, ok := tools[0].Pin.Definition.Get("inputSchema"); ok {
		t.Error("a schema that nobody wrote is pinned")
	}
	if _, ok := tools[0].Pin.Definition.Get("description"); ok {
		t.Error("a description that is no text is pinned")
	}
	if v, _ := tools[0].Pin.Definition.Get("name"); v != `"delete_contact"` {
		t.Errorf("name %q", v)
	}
	if _, ok := tools[1].Pin.Definition.Get("inputSchema"); !ok {
		t.Error("the schema is not pinned")
	}
}

func TestDuplicatesAreListedAndServeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	save(t, path, "tools:\n- {upstream: a, name: x}\n- {upstream: b, name: x}\n- {upstream: a, name: x, description: other}\n- {upstream: a, name: y}\n")
	lock, info := read(t, path)
	if len(info.Entries) != 4 || info.Entries[2] != (lockfile.Entry{Upstream: "a", Name: "x", Line: 4}) {
		t.Errorf("entries %+v", info.Entries)
	}
	if a := lock.Upstreams["a"].Tools; len(a) != 1 || a[0].Pin.Identity.Name != "y" || len(lock.Upstreams["b"].Tools) != 1 {
		t.Errorf("%+v", lock.Upstreams)
	}
}

func TestCatalogueErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":               {"", ": the file is empty"},
		"comments only":       {"# nothing\n", ": the file is empty"},
		"not YAML":            {"tools: [\n", ": not YAML: "},
		"two documents":       {"tools: []\n---\ntools: []\n", ":3: a second document"},
		"no tools":            {"version: 1\n", ":1: no list of tools"},
		"tools no list":       {"version: 1\ntools: {}\n", ":1: no list of tools"},
		"tools null":          {"tools:\n", ":1: no list of tools"},
		"a list":              {"- upstream: a\n", ":1: want a mapping"},
		"entry no mapping":    {"tools:\n- x\n", ":2: tools[0] must be a mapping"},
		"no upstream":         {"tools:\n- {upstream: a, name: x}\n- {name: x}\n", ":3: tools[1] has no upstream"},
		"no name":             {"tools:\n- {upstream: a}\n", ":2: tools[0] has no name"},
		"name no text":        {"tools:\n- upstream: a\n  name: 7\n", ":3: tools[0]: name must be text"},
		"upstream null":       {"tools:\n- upstream:\n  name: x\n", ":2: tools[0]: upstream must be text"},
		"name empty":          {"tools:\n- {upstream: a, name: ''}\n", ":2: tools[0]: upstream and name must not be empty"},
		"slip of the pen":     {"tools:\n- {upstream: a, name: x, inputschema: {}}\n", `:2: tools[0] has no member "inputschema"`},
		"top level":           {"tools: []\ntool: []\n", `:2: a catalogue has no member "tool"`},
		"key twice":           {"tools:\n- upstream: a\n  name: x\n  name: y\n", `:4: the key "name" is written twice`},
		"infinite":            {"tools:\n- upstream: a\n  name: x\n  inputSchema:\n    type: object\n    maximum: .inf\n", `:6: ".inf" is a number that JSON cannot say`},
		"octal":               {"tools:\n- {upstream: a, name: x, inputSchema: {type: object, maximum: 010}}\n", `:2: "010" is a number that JSON cannot say`},
		"underscore":          {"tools:\n- {upstream: a, name: x, inputSchema: {type: object, maximum: 1_000}}\n", `:2: "1_000" is a number that JSON cannot say`},
		"exponent bomb":       {"tools:\n- {upstream: a, name: x, inputSchema: {type: object, maximum: 1e999999999}}\n", `is a number that JSON cannot say`},
		"tag":                 {"tools:\n- {upstream: a, name: !!int '7'}\n", ":2: tags are not supported"},
		"merge":               {"a: &a {x: 1}\ntools:\n- {upstream: a, name: x, inputSchema: {<<: *a}}\n", ":3: merge keys"},
		"key no text":         {"tools:\n- {upstream: a, name: x, inputSchema: {[1]: 2}}\n", ":2: a key must be text"},
		"cycle":               {"tools: &a\n- {upstream: a, name: x, inputSchema: *a}\n", ":2: an alias stands inside"},
		"schema no object":    {"tools:\n- {upstream: a, name: x, inputSchema: {type: string}}\n", `:2: tools[0]: inputSchema has not "type": "object"`},
		"schema null":         {"tools:\n- {upstream: a, name: x, inputSchema: }\n", ":2: tools[0]: inputSchema is not a JSON object"},
		"reference to nobody": {"tools:\n- {upstream: a, name: x, inputSchema: {type: object, $ref: '#/$defs/No'}}\n", ":2: tools[0]: inputSchema refers at /$ref"},
		"bomb of aliases":     {bomb(), "more than 2000000 values"},
		"deep":                {"tools:\n- {upstream: a, name: x, inputSchema: " + strings.Repeat("[", 500) + strings.Repeat("]", 500) + "}\n", "nested more than 128 deep"},
		"not UTF-8":           {"tools:\n- {upstream: a, name: \xff}\n", ": not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "catalog.yaml")
			save(t, path, c.text)
			_, info, err := lockfile.Read(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("error %v, want %s (info %+v)", err, c.want, info)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		p, n := string(rune('0'+i-1)), string(rune('0'+i))
		b.WriteString("a" + n + ": &a" + n + " [" + strings.Repeat("*a"+p+",", 9) + "]\n")
	}
	return b.String() + "tools: []\n"
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "absent"), dir} {
		if _, _, err := lockfile.Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	large := filepath.Join(dir, "large")
	save(t, large, strings.Repeat("#", lockfile.MaxBytes+1))
	if _, _, err := lockfile.Read(large); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v", err)
	}
}
