package policy_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"aduana/policy"
)

func compiler(t testing.TB) *policy.Compiler {
	t.Helper()
	c, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// story is one file of testdata: what stands before the first section is for
// people, and every section must be one of these.
type story struct {
	policy      string
	catalogue   []policy.CatalogueTool
	catalogued  bool
	lock        bool
	diagnostics []string // severity code pointer line:column [related pointers]
	messages    []string // each must be part of some message
	absent      []string // none may be in any finding
}

func readStory(path string) (story, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return story{}, err
	}
	var s story
	section, seen := "", map[string]bool{}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "-- "); ok && strings.HasSuffix(name, " --") {
			section = strings.TrimSuffix(name, " --")
			if seen[section] {
				return s, fmt.Errorf("line %d: section %q is repeated", i+1, section)
			}
			seen[section] = true
			s.catalogued = s.catalogued || section == "catalogue" || section == "lock"
			s.lock = s.lock || section == "lock"
			continue
		}
		value := strings.TrimSpace(line)
		switch section {
		case "":
		case "policy":
			s.policy += line
		case "catalogue", "lock":
			if upstream, name, ok := strings.Cut(value, " "); ok {
				s.catalogue = append(s.catalogue, policy.CatalogueTool{Upstream: upstream, Name: name})
			}
		case "diagnostics":
			if value != "" {
				s.diagnostics = append(s.diagnostics, value)
			}
		case "messages":
			if value != "" {
				s.messages = append(s.messages, value)
			}
		case "absent":
			if value != "" {
				s.absent = append(s.absent, value)
			}
		default:
			return s, fmt.Errorf("line %d: unknown section %q", i+1, section)
		}
	}
	if !seen["policy"] || !seen["diagnostics"] {
		return s, fmt.Errorf("a story needs the sections policy and diagnostics")
	}
	return s, nil
}

func place(p policy.Position) string {
	if p.Line == 0 {
		return "-"
	}
	return fmt.Sprintf("%d:%d", p.Line, p.Column)
}

func line(d policy.Diagnostic) string {
	pointer := d.Pointer
	if pointer == "" {
		pointer = "-"
	}
	s := fmt.Sprintf("%s %s %s %s", d.Severity, d.Code, pointer, place(d.Position))
	if len(d.Related) > 0 {
		var all []string
		for _, r := range d.Related {
			all = append(all, r.Pointer)
		}
		s += " [" + strings.Join(all, " ") + "]"
	}
	return s
}

func stories(t testing.TB) map[string]story {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	all := map[string]story{}
	for _, path := range paths {
		s, err := readStory(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".txtar")] = s
	}
	return all
}

func TestCorpus(t *testing.T) {
	c := compiler(t)
	for name, s := range stories(t) {
		t.Run(name, func(t *testing.T) {
			r := c.Compile([]byte(s.policy), policy.Options{Origin: "policy.yaml", Catalogue: s.catalogue, HasCatalogue: s.catalogued, Lock: s.lock})
			var got, messages []string
			failed := false
			for _, d := range r.Diagnostics {
				got = append(got, line(d))
				messages = append(messages, d.Message)
				failed = failed || d.Severity == policy.Error
			}
			if !slices.Equal(got, s.diagnostics) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(s.diagnostics, "\n"))
			}
			if (r.Policy == nil) != failed {
				t.Errorf("policy present: %v, although errors: %v", r.Policy != nil, failed)
			}
			all := strings.Join(messages, "\n")
			for _, want := range s.messages {
				if !strings.Contains(all, want) {
					t.Errorf("no message says %q; messages:\n%s", want, all)
				}
			}
			for _, secret := range s.absent {
				if strings.Contains(fmt.Sprintf("%+v", r.Diagnostics), secret) {
					t.Errorf("a finding repeats %q; messages:\n%s", secret, all)
				}
			}
			checkPointers(t, r)
		})
	}
}

func TestUnknownSectionIsFatal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.txtar")
	text := "-- policy --\n-- diagnostics --\n-- diagnostic --\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readStory(path); err == nil {
		t.Fatal("a misspelt section was ignored")
	}
}

// codes reads the closed list from the source, so that a code cannot be added
// without a story and a line in the documentation.
func codes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "diagnostic.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, code)
		}
		return true
	})
	if len(all) < 30 {
		t.Fatalf("only %d codes found", len(all))
	}
	return all
}

func TestEveryCodeHasAStoryAndARemedy(t *testing.T) {
	told := map[string]bool{
		"too_complex": true, // TestTooComplexIsRefused: its document is generated
	}
	for _, s := range stories(t) {
		for _, d := range s.diagnostics {
			told[strings.Fields(d)[1]] = true
		}
	}
	docs, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	known := codes(t)
	for _, code := range known {
		if !told[code] {
			t.Errorf("no story shows %s", code)
		}
		if !strings.Contains(string(docs), "| `"+code+"` |") {
			t.Errorf("docs/policy.md has no row for %s", code)
		}
	}
	for code := range told {
		if !slices.Contains(known, code) {
			t.Errorf("a story expects %s, which is not a code", code)
		}
	}
}

// checkPointers is the property: whatever a result points at exists.
func checkPointers(t testing.TB, r policy.Result) {
	t.Helper()
	read := !slices.ContainsFunc(r.Diagnostics, func(d policy.Diagnostic) bool { return d.Code == policy.YAMLSyntax })
	check := func(what, pointer string) {
		if p, ok := r.Document.Position(pointer); !ok || p.Line < 1 || p.Column < 1 {
			t.Errorf("%s: the pointer %q does not resolve", what, pointer)
		}
	}
	for _, d := range r.Diagnostics {
		if !read {
			if d.Pointer != "" {
				t.Errorf("%s has a pointer into a document that was not read", d.Code)
			}
			continue
		}
		check(string(d.Code), d.Pointer)
		if want, _ := r.Document.Position(d.Pointer); want != d.Position {
			t.Errorf("%s at %s has position %v, the pointer resolves to %v", d.Code, d.Pointer, d.Position, want)
		}
		for _, related := range d.Related {
			check(string(d.Code)+" related", related.Pointer)
		}
	}
	p := r.Policy
	if p == nil {
		return
	}
	for _, anchor := range []string{p.Naming.Pointer, p.Anchors.Capabilities, p.Anchors.Upstreams, p.Anchors.Accounts, p.Anchors.Issuers, p.Anchors.Grants} {
		check("anchor", anchor)
	}
	for _, c := range p.Capabilities {
		check("capability", c.Pointer)
	}
	for _, u := range p.Upstreams {
		check("upstream", u.Pointer)
		for _, v := range u.Args {
			check("argument", v.Pointer)
		}
		for _, v := range slices.Concat(u.Env, u.Headers) {
			check("named value", v.Value.Pointer)
		}
		for _, tool := range u.Tools {
			check("tool", tool.Pointer)
		}
	}
	for _, a := range p.Accounts {
		check("account", a.Pointer)
	}
	for _, i := range p.Issuers {
		check("issuer", i.Pointer)
		for _, a := range i.Attributes {
			check("attribute", a.Pointer)
		}
	}
	for _, g := range p.Grants {
		check("grant", g.Pointer)
		if len(g.UsingBy) != len(g.Capabilities) {
			t.Errorf("%s: %d capabilities, accounts for %d", g.Pointer, len(g.Capabilities), len(g.UsingBy))
		}
		for _, c := range g.Ceilings {
			check("ceiling", c.Pointer)
		}
	}
}
