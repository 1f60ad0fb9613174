package house

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// DO NOT EDIT THIS TABLE TO MAKE A BUILD PASS. A line that refuses your import says that the code stands in the wrong place;
// a new right needs a decision record (docs/decisions/), and the reviewer reads this table first.
//
// The first line whose packages match decides. "x/..." means x and everything below it, "x/*" what is directly below. Imports
// are read from every file of a package, also those of other platforms. Everybody may import the internal/ of their own folder.
var importTable = []importLine{
	{packages: "principals", std: pure, fixed: true},
	{packages: "capabilities", std: pure, third: []string{"golang.org/x/text/unicode/norm"}, fixed: true}, // decision 0001
	{packages: "accounts", std: pure, fixed: true},
	{packages: "access", std: pure, fixed: true},
	{packages: "consent", std: pure, fixed: true},
	// io for io.EOF, which ends YAML documents; net/url because what validates a URL must be what later dials it (decision 0001).
	{packages: "policy", std: append([]string{"io", "net/url"}, pure...), fixed: true,
		third: []string{"go.yaml.in/yaml/v3", "github.com/santhosh-tekuri/jsonschema/v6/..."}}, // decision 0001
	{packages: "assembly", ours: with("internal/jsonrpc"), std: pure, fixed: true},
	{packages: "review", ours: with("assembly", "internal/jsonrpc"), std: pure},

	// Parts of one core package that only its tests use (a second implementation, generators).
	{packages: "access/internal/...", ours: []string{"access"}},
	{packages: "policy/internal/...", ours: []string{"policy"}},
	{packages: "review/internal/...", ours: with("assembly", "review")},

	{packages: "gateway", ours: with("assembly", "internal/jsonrpc", "internal/mcp"), notStd: machine, fixed: true},
	{packages: "gateway/gatewaytest", ours: with("assembly", "gateway", "internal/jsonrpc", "internal/mcp")},

	{packages: "adapters/jsonschema", ours: with("assembly", "gateway", "internal/..."), third: []string{"github.com/santhosh-tekuri/jsonschema/v6/..."}},
	{packages: "adapters/lockfile", ours: with("assembly", "gateway", "internal/..."), third: []string{"go.yaml.in/yaml/v3"}},
	{packages: "adapters/mcpstdio", ours: with("assembly", "gateway", "internal/..."), third: []string{"golang.org/x/sys/..."}},  // process groups
	{packages: "adapters/auditfile", ours: with("assembly", "gateway", "internal/..."), third: []string{"golang.org/x/sys/..."}}, // file locks
	{packages: "adapters/*", ours: with("assembly", "gateway", "internal/...")},
	{packages: "adapters/*/internal/...", ours: []string{"internal/..."}},
	{packages: "internal/...", ours: []string{"internal/..."}},
	{packages: "cmd/...", ours: []string{"..."}, third: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "go.yaml.in/yaml/v3"}},

	// Whole-system tests and their tools. Nothing of theirs reaches the binary: TestDependencies sees to it.
	{packages: "test/...", ours: []string{"..."}, third: []string{"..."}},
	{packages: "."},
}

type importLine struct {
	packages string
	ours     []string // packages of this module
	std      []string // the only packages of the standard library; nil = all but notStd
	notStd   []string
	third    []string // packages of other modules
	fixed    bool     // must exist
}

// pure is what cannot reach the machine. Only direct imports are judged: fmt itself pulls in os and time, so a ban on what is
// reachable could not work. time is a value package here; TestPurity bans its clock.
var pure = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"slices", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// machine is what the flow must not know: networks, files, processes, databases.
var machine = []string{
	"database/...", "io/fs", "io/ioutil", "log/syslog", "net", "net/...", "os", "os/...", "path/filepath", "plugin", "syscall",
	"syscall/...", "unsafe",
}

func with(more ...string) []string { return append(more, corePackages...) }

// edge is one import, without its module's name where it is ours.
type edge struct {
	from, to string
	test     bool // from a _test.go file
	at       string
}

func edges(all []pkg) []edge {
	var out []edge
	for _, p := range all {
		for _, f := range p.files {
			for _, i := range f.file.Imports {
				to, _ := strconv.Unquote(i.Path.Value)
				out = append(out, edge{p.path, to, f.test(), f.at(i.Pos())})
			}
		}
	}
	return out
}

// importViolations judges edges between the packages of paths.
func importViolations(paths []string, all []edge) []string {
	var out []string
	for _, l := range importTable {
		if l.fixed && !slices.Contains(paths, l.packages) {
			out = append(out, fmt.Sprintf("the import table names %s, which does not exist", l.packages))
		}
	}
	for _, p := range paths {
		if lineOf(p) == nil {
			out = append(out, fmt.Sprintf("no line of the import table names package %s: decide what it may import", p))
		}
	}
	for _, e := range all {
		l := lineOf(e.from)
		if l == nil {
			continue // named above
		}
		judge := l.refuses
		if e.test {
			if !slices.Contains(purePackages, e.from) {
				continue
			}
			judge = l.refusesTest
		}
		if why := judge(e.from, e.to); why != "" {
			out = append(out, fmt.Sprintf("%s: %s imports %s: %s", e.at, e.from, e.to, why))
		}
	}
	return out
}

func (l importLine) refuses(from, to string) string {
	if dir, ours := own(to); ours {
		inside := strings.HasPrefix(dir, from+"/internal/") || dir == from+"/internal"
		if !inside && !matchesAny(l.ours, dir) {
			return "it may not know that package"
		}
		return ""
	}
	if !isStandard(to) {
		if !matchesAny(l.third, to) {
			return "no decision record gives it that library"
		}
		return ""
	}
	if to == "C" || l.std != nil && !slices.Contains(l.std, to) || matchesAny(l.notStd, to) {
		return "it may not reach that far"
	}
	return ""
}

// refusesTest judges the tests of a pure package. They may use the machine (corpora are files), but what they test is the
// package itself through its public face: no siblings, and no doubles, because a pure package has nothing to stand in for.
func (l importLine) refusesTest(from, to string) string {
	if dir, ours := own(to); ours {
		if dir == from {
			return ""
		}
		return l.refuses(from, to)
	}
	testing := []string{"pgregory.net/rapid", "github.com/rogpeppe/go-internal/txtar", "golang.org/x/tools/txtar"}
	if !isStandard(to) && !matchesAny(testing, to) {
		return l.refuses(from, to)
	}
	if strings.HasPrefix(to, "net") {
		return "a test of the core needs no network"
	}
	return ""
}

func lineOf(path string) *importLine {
	for i := range importTable {
		if matches(importTable[i].packages, path) {
			return &importTable[i]
		}
	}
	return nil
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// matches compares element by element: "*" is any one element, a last "..." is any rest, also none.
func matches(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		if w == "..." {
			return path != "." || i > 0
		}
		if i >= len(have) || w != "*" && w != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}

func TestImports(t *testing.T) {
	all := mustPackages(t)
	var paths []string
	for _, p := range all {
		paths = append(paths, p.path)
	}
	report(t, importViolations(paths, edges(all)))
}

func TestImportsCanFail(t *testing.T) {
	fixed := []string{"principals", "capabilities", "accounts", "access", "consent", "policy", "assembly", "gateway"}
	if got := importViolations(fixed, nil); got != nil {
		t.Fatalf("nothing is planted yet, but: %q", got)
	}
	for _, planted := range []edge{
		{from: "policy", to: "aduana/access"},
		{from: "policy", to: "os"},
		{from: "policy", to: "net"},
		{from: "policy", to: "encoding/json"},
		{from: "policy", to: "github.com/spf13/cobra"},
		{from: "access", to: "math/rand"},
		{from: "access", to: "sync"},
		{from: "access", to: "unsafe"},
		{from: "access", to: "C"},
		{from: "access", to: "io"},
		{from: "access", to: "aduana/gateway"},
		{from: "capabilities", to: "go.yaml.in/yaml/v3"},
		{from: "capabilities", to: "golang.org/x/text/language"},
		{from: "consent", to: "context"},
		{from: "assembly", to: "net/http"},
		{from: "assembly", to: "aduana/adapters/oidc"},
		{from: "assembly", to: "aduana/gateway"},
		{from: "assembly", to: "aduana/internal/mcp"},
		{from: "assembly", to: "aduana/review"},
		{from: "review", to: "aduana/gateway"},
		{from: "review", to: "os"},
		{from: "gateway", to: "net/http"},
		{from: "gateway", to: "net"},
		{from: "gateway", to: "os"},
		{from: "gateway", to: "os/exec"},
		{from: "gateway", to: "database/sql"},
		{from: "gateway", to: "path/filepath"},
		{from: "gateway", to: "syscall"},
		{from: "gateway", to: "github.com/spf13/cobra"},
		{from: "gateway", to: "aduana/adapters/oidc"},
		{from: "gateway", to: "aduana/internal/safehttp"},
		{from: "gateway", to: "aduana/gateway/gatewaytest"},
		{from: "gateway/gatewaytest", to: "aduana/adapters/memory"},
		{from: "adapters/oidc", to: "aduana/adapters/auditfile"},
		{from: "adapters/oidc", to: "aduana/gateway/gatewaytest"},
		{from: "adapters/oidc", to: "github.com/modelcontextprotocol/go-sdk/mcp"},
		{from: "adapters/oidc", to: "aduana/cmd/aduana"},
		{from: "adapters/oidc", to: "go.yaml.in/yaml/v3"},
		{from: "adapters/lockfile", to: "golang.org/x/sys/unix"},
		{from: "adapters/oidc/internal/jwt", to: "aduana/gateway"},
		{from: "internal/jsonrpc", to: "aduana/capabilities"},
		{from: "internal/jsonrpc", to: "golang.org/x/text/unicode/norm"},
		{from: "internal/mcp", to: "aduana/gateway"},
		{from: "access/internal/model", to: "aduana/policy"},
		{from: "cmd/aduana", to: "github.com/modelcontextprotocol/go-sdk/mcp"},
		{from: ".", to: "aduana/access"},
		{from: "access", to: "aduana/gateway/gatewaytest", test: true},
		{from: "access", to: "aduana/policy", test: true},
		{from: "access", to: "net/http/httptest", test: true},
		{from: "policy", to: "github.com/stretchr/testify/mock", test: true},
		{from: "assembly", to: "aduana/test/upstream", test: true},
	} {
		refused(t, importViolations(fixed, []edge{planted}), planted.from+" imports "+planted.to)
	}
	refused(t, importViolations(append(fixed, "newfolder"), []edge{{from: "newfolder", to: "errors"}}), "names package newfolder")
	refused(t, importViolations(append(fixed, "access/parts"), nil), "names package access/parts")
	refused(t, importViolations(append(fixed, "adapters/oidc/parts"), nil), "names package adapters/oidc/parts")
	refused(t, importViolations(fixed[1:], nil), "names principals, which does not exist")

	// The other direction: what must stay possible.
	for _, sound := range []edge{
		{from: "access", to: "time"},
		{from: "access", to: "aduana/access/internal/model", test: true},
		{from: "access", to: "os", test: true},
		{from: "access", to: "pgregory.net/rapid", test: true},
		{from: "assembly", to: "aduana/policy"},
		{from: "gateway", to: "aduana/assembly"},
		{from: "adapters/oidc", to: "net/http"},
		{from: "adapters/oidc", to: "aduana/adapters/oidc/internal/jwt"},
		{from: "adapters/oidc", to: "aduana/gateway/gatewaytest", test: true},
		{from: "cmd/aduana", to: "aduana/adapters/oidc"},
		{from: "test/e2e", to: "github.com/modelcontextprotocol/go-sdk/mcp"},
	} {
		if got := importViolations(fixed, []edge{sound}); got != nil {
			t.Errorf("refused without reason: %q", got)
		}
	}
}
