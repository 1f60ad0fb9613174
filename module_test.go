package house

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the compared files: api/, docs/deps/, test/fuzz.txt")

// modulePath is the module's name in go.mod, and the head of every import path of ours.
const modulePath = "aduana"

// corePackages are pure and do not import one another. purePackages are the two that join them, as pure as they are.
var (
	corePackages = []string{"access", "accounts", "capabilities", "consent", "policy", "principals"}
	purePackages = append([]string{"assembly", "review"}, corePackages...)
)

// source is one Go file, parsed whatever its build constraints say: a rule that skipped the files of another platform would
// not hold there.
type source struct {
	path string // slash-separated, from the module's root
	fset *token.FileSet
	file *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// at names a place in the form that editors open.
func (s source) at(p token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(p).Line)
}

// pkg is one folder of Go files. Its path is from the module's root, "." for the root.
type pkg struct {
	path  string
	files []source
	other []string // assembly and C files
}

// parse makes a source of text; planted violations come in this way too.
func parse(t testing.TB, path, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%s does not parse: %v", path, err)
	}
	return source{path, fset, file}
}

// packages reads every package of the module. Folders with a go.mod of their own are other modules.
var packages = sync.OnceValues(func() ([]pkg, error) {
	byPath := map[string]*pkg{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		name = filepath.ToSlash(name)
		dir := path.Dir(name)
		at := func() *pkg {
			if byPath[dir] == nil {
				byPath[dir] = &pkg{path: dir}
			}
			return byPath[dir]
		}
		switch path.Ext(name) {
		case ".s", ".c", ".h", ".cc", ".cpp", ".m", ".syso":
			at().other = append(at().other, name)
		case ".go":
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			at().files = append(at().files, source{name, fset, file})
		}
		return nil
	})
	var all []pkg
	for _, p := range byPath {
		if len(p.files) > 0 {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.path, b.path) })
	return all, err
})

func mustPackages(t testing.TB) []pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checked is one package with its types, as built here (without test files).
type checked struct {
	path  string // from the module's root
	types *types.Package
	info  *types.Info
	files []source
	err   error // it does not compile
}

// typed type-checks our packages from source. What they import comes from the compiler's export data, which "go list -export"
// names, so that this costs a second and needs no library.
var typed = sync.OnceValues(func() ([]checked, error) {
	out, err := run("go", "list", "-e", "-export", "-deps", "-json=ImportPath,Export,GoFiles,CgoFiles,Standard", "./...")
	if err != nil {
		return nil, err
	}
	type listed struct {
		ImportPath, Export string
		GoFiles, CgoFiles  []string
		Standard           bool
	}
	export := map[string]string{}
	var ours []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		export[l.ImportPath] = l.Export
		if _, ok := own(l.ImportPath); ok && !l.Standard && len(l.GoFiles)+len(l.CgoFiles) > 0 {
			ours = append(ours, l)
		}
	}
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := export[path]
		if !ok || name == "" {
			return nil, fmt.Errorf("go list gave no export data for %q", path)
		}
		return os.Open(name)
	})
	var all []checked
	for _, l := range ours {
		dir, _ := own(l.ImportPath)
		var files []source
		for _, name := range append(l.GoFiles, l.CgoFiles...) {
			name = path.Join(dir, name)
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, source{name, fset, file})
		}
		all = append(all, check(dir, files, from))
	}
	return all, nil
})

// check type-checks one package; planted violations come in this way too.
func check(dir string, files []source, from types.Importer) checked {
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.file)
	}
	conf := types.Config{Importer: from, FakeImportC: true}
	p, err := conf.Check(path.Join(modulePath, dir), files[0].fset, parsed, info)
	return checked{dir, p, info, files, err}
}

// mustTyped gives the packages that compile. One that does not is an error of the test, and keeps no rule from the others.
func mustTyped(t testing.TB) []checked {
	t.Helper()
	all, err := typed()
	if err != nil {
		t.Fatal(err)
	}
	var sound []checked
	for _, c := range all {
		if c.err != nil {
			t.Errorf("%s does not compile, so that no rule was applied to it: %v", c.path, c.err)
			continue
		}
		sound = append(sound, c)
	}
	return sound
}

// plant type-checks one file as the package at dir, with imports from the standard library and from the tree.
func plant(t testing.TB, dir, text string) checked {
	t.Helper()
	s := parse(t, path.Join(dir, "planted.go"), text)
	c := check(dir, []source{s}, fromTree{t})
	if c.err != nil {
		t.Fatalf("the planted file must compile, or the rule is not what refuses it: %v", c.err)
	}
	return c
}

// fromTree imports our packages as type-checked here, and the standard library from source.
type fromTree struct{ t testing.TB }

func (f fromTree) Import(name string) (*types.Package, error) {
	if dir, ok := own(name); ok {
		all, err := typed()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, c := range all {
			if c.path == dir && c.err == nil {
				return c.types, nil
			}
		}
	}
	return standard.Import(name)
}

var standard = importer.ForCompiler(token.NewFileSet(), "source", nil)

// own gives the path from the module's root of an import path of ours.
func own(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// isStandard reports whether an import path is of the standard library: those have no dot in their first element.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	_, ours := own(importPath)
	return !ours && !strings.Contains(first, ".")
}

// imports gives what a file imports, by the name that it has in the file.
func (s source) imports() map[string]string {
	named := map[string]string{}
	for _, i := range s.file.Imports {
		target, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(target)
		if i.Name != nil {
			name = i.Name.Name
		}
		named[name] = target
	}
	return named
}

func run(name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// report fails the test once for each violation.
func report(t *testing.T, violations []string) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}

// refused demands that a planted violation is found, for the reason it was planted.
func refused(t *testing.T, violations []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(violations, func(v string) bool { return strings.Contains(v, want) }) {
		t.Errorf("the planted violation was not refused with %q; got %q", want, violations)
	}
}

// compared demands that a file holds exactly want, or writes it under -update.
func compared(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(name)
	if err != nil {
		t.Errorf("%v; write it with go test . -update", err)
		return
	}
	report(t, differences(name, string(have), want))
}

// differences names each line that stands in one text only.
func differences(name, have, want string) []string {
	var out []string
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for _, line := range h {
		if !slices.Contains(w, line) {
			out = append(out, fmt.Sprintf("%s still holds %q, which is gone from the tree", name, line))
		}
	}
	for _, line := range w {
		if !slices.Contains(h, line) {
			out = append(out, fmt.Sprintf("%s lacks %q", name, line))
		}
	}
	if len(out) == 0 && have != want {
		out = append(out, name+" has the same lines in another order")
	}
	if len(out) > 0 {
		out = append(out, name+" is compared on purpose: read the differences, then rewrite it with go test . -update")
	}
	return out
}

func TestComparedCanFail(t *testing.T) {
	refused(t, differences("api/x.txt", "func A()\n", "func A(int)\n"), `lacks "func A(int)"`)
	refused(t, differences("api/x.txt", "a\nb\n", "a\n"), `still holds "b"`)
	refused(t, differences("api/x.txt", "a\nb\n", "b\na\n"), "another order")
	if got := differences("api/x.txt", "a\n", "a\n"); got != nil {
		t.Errorf("equal texts differ: %q", got)
	}
}

// TestEveryRuleCanFail: a rule without its planted violation is a rule nobody has seen refuse anything.
func TestEveryRuleCanFail(t *testing.T) {
	for _, p := range mustPackages(t) {
		if p.path == "." {
			report(t, withoutControl(p.files))
		}
	}
}

func TestEveryRuleCanFailCanFail(t *testing.T) {
	s := parse(t, "x_test.go", "package house\nfunc TestA(t *testing.T) {}\nfunc TestACanFail(t *testing.T) {}\nfunc TestB(t *testing.T) {}\n")
	got := withoutControl([]source{s})
	refused(t, got, "TestB has no TestBCanFail")
	if len(got) != 1 {
		t.Errorf("want one violation, got %q", got)
	}
}

func withoutControl(files []source) []string {
	var names, out []string
	for _, f := range files {
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				names = append(names, fn.Name.Name)
			}
		}
	}
	for _, n := range names {
		if !strings.HasSuffix(n, "CanFail") && !slices.Contains(names, n+"CanFail") {
			out = append(out, n+" has no "+n+"CanFail: plant a violation and demand that the same function refuses it")
		}
	}
	return out
}
