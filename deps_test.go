package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// binary is the command whose dependencies are a reviewed list.
const binary = "cmd/aduana"

// platforms are those we ship for; what one of them alone needs is a dependency too.
var platforms = []string{"linux", "darwin", "windows"}

// testOnly may never reach the binary: the other implementation of the protocol, and tools that drive tests.
var testOnly = []string{"github.com/modelcontextprotocol/go-sdk", "github.com/rogpeppe/go-internal", "pgregory.net/rapid"}

// dependency is a module in the binary. Direct says that a package of ours imports it.
type dependency struct {
	path, version string
	direct        bool
}

// haveBinary says loudly when there is no command yet, instead of passing in silence.
func haveBinary(t *testing.T) bool {
	if _, err := os.Stat(binary + "/main.go"); err != nil {
		t.Logf("NOT CHECKED: there is no %s/main.go yet, so nothing can be said of the binary's dependencies", binary)
		return false
	}
	return true
}

// dependencies asks the go command what the binary holds, over all platforms.
func dependencies() ([]dependency, error) {
	found := map[string]dependency{}
	for _, platform := range platforms {
		c := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Module,Imports", "./"+binary)
		c.Env = append(os.Environ(), "GOOS="+platform, "GOARCH=amd64", "CGO_ENABLED=0")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("go list -deps for %s: %w\n%s", platform, err, stderr.Bytes())
		}
		moduleOf, direct := map[string]string{}, map[string]bool{}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var l struct {
				ImportPath string
				Standard   bool
				Module     *struct{ Path, Version string }
				Imports    []string
			}
			if err := d.Decode(&l); err == io.EOF {
				break
			} else if err != nil {
				return nil, err
			}
			switch {
			case l.Standard || l.Module == nil:
			case l.Module.Path == modulePath:
				for _, i := range l.Imports {
					direct[moduleOf[i]] = true // -deps lists what is imported first
				}
			default:
				moduleOf[l.ImportPath] = l.Module.Path
				d := found[l.Module.Path]
				found[l.Module.Path] = dependency{l.Module.Path, l.Module.Version, d.direct}
			}
		}
		for path, d := range found {
			d.direct = d.direct || direct[path]
			found[path] = d
		}
	}
	var all []dependency
	for _, d := range found {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b dependency) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

func dependencyList(all []dependency) string {
	var b strings.Builder
	b.WriteString("# Modules in cmd/aduana, over all platforms. Compared by go test . (rewrite with -update); a new line needs a decision record.\n")
	for _, d := range all {
		fmt.Fprintf(&b, "%s %s\n", d.path, d.version)
	}
	return b.String()
}

func strayTestTools(all []dependency) []string {
	var out []string
	for _, d := range all {
		if slices.Contains(testOnly, d.path) {
			out = append(out, d.path+" is for tests only, but a package of the binary imports it")
		}
	}
	return out
}

func TestDependencies(t *testing.T) {
	if !haveBinary(t) {
		return
	}
	all, err := dependencies()
	if err != nil {
		t.Fatal(err)
	}
	compared(t, "docs/deps/aduana.txt", dependencyList(all))
	report(t, strayTestTools(all))
}

func TestDependenciesCanFail(t *testing.T) {
	have := []dependency{{"go.yaml.in/yaml/v3", "v3.0.6", true}}
	list := func(d ...dependency) string { return dependencyList(append(slices.Clone(have), d...)) }
	refused(t, differences("deps", list(), list(dependency{"example.org/new", "v1.0.0", true})), `lacks "example.org/new v1.0.0"`)
	refused(t, differences("deps", list(), dependencyList([]dependency{{"go.yaml.in/yaml/v3", "v3.0.7", true}})), "v3.0.7")
	refused(t, differences("deps", list(), dependencyList(nil)), "still holds")
	for _, path := range testOnly {
		refused(t, strayTestTools([]dependency{{path: path}}), path+" is for tests only")
	}
}

// replaced finds directives by which this module would build otherwise than for those who depend on it.
func replaced(goMod []byte) []string {
	var m struct {
		Replace []struct{ Old struct{ Path string } }
		Exclude []struct{ Path string }
	}
	if err := json.Unmarshal(goMod, &m); err != nil {
		return []string{"go.mod: " + err.Error()}
	}
	var out []string
	for _, r := range m.Replace {
		out = append(out, "go.mod replaces "+r.Old.Path+"; nobody who installs the binary gets the replacement")
	}
	for _, e := range m.Exclude {
		out = append(out, "go.mod excludes a version of "+e.Path+"; nobody who installs the binary does")
	}
	return out
}

func TestNoReplace(t *testing.T) {
	if _, err := os.ReadFile("go.mod"); err != nil { // read here too, so that a cached result notices a change
		t.Fatal(err)
	}
	out, err := run("go", "mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	report(t, replaced(out))
}

func TestNoReplaceCanFail(t *testing.T) {
	name := filepath.Join(t.TempDir(), "go.mod")
	text := "module x\nreplace go.yaml.in/yaml/v3 => ../yaml\nexclude golang.org/x/text v0.1.0\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run("go", "mod", "edit", "-json", name)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, replaced(out), "replaces go.yaml.in/yaml/v3")
	refused(t, replaced(out), "excludes a version of golang.org/x/text")
	refused(t, replaced(nil), "go.mod: ")
}

// undecided finds libraries that we chose without writing down why.
func undecided(all []dependency, records string) []string {
	var out []string
	for _, d := range all {
		if d.direct && !strings.Contains(records, "`"+d.path+"`") {
			out = append(out, "no record in docs/decisions names `"+d.path+"`: write what it is for, what else was looked at, and what would change our mind")
		}
	}
	return out
}

func TestDecisionRecords(t *testing.T) {
	if !haveBinary(t) {
		return
	}
	all, err := dependencies()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var records strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		records.Write(text)
	}
	for _, path := range testOnly {
		all = append(all, dependency{path: path, direct: true})
	}
	report(t, undecided(all, records.String()))
}

func TestDecisionRecordsCanFail(t *testing.T) {
	all := []dependency{{"example.org/a", "v1.0.0", true}, {"example.org/b", "v1.0.0", false}, {"example.org/a/v2", "v2.0.0", true}}
	got := undecided(all, "We took `example.org/a/v2` because.")
	refused(t, got, "names `example.org/a`")
	if len(got) != 1 {
		t.Errorf("want one violation (what others pull in is listed, not decided), got %q", got)
	}
}
