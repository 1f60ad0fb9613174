package house

import (
	"bytes"
	"go/ast"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tracked lists the files of the repository: those that git tracks, or all of them where this is no clone (a source archive).
func tracked(t *testing.T) []string {
	t.Helper()
	if out, err := run("git", "ls-files", "-z"); err == nil && len(out) > 0 {
		names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		return slices.DeleteFunc(names, func(name string) bool { // deleted, not yet committed
			info, err := os.Lstat(name)
			return err != nil || !info.Mode().IsRegular()
		})
	}
	var names []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// foreign is what ties the tree to one machine or one network, or looks like a secret that works somewhere. Each pattern is
// written so that it does not match itself.
var foreign = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a path of one machine", regexp.MustCompile(`(^|[^A-Za-z0-9_./-])/(work|farm|root|home/[a-z]+|Users/[A-Za-z]+)(/[A-Za-z0-9_.]|$)`)},
	{"a path of one machine", regexp.MustCompile(`[A-Z]:\\+Users\\`)},
	{"a registry's address", regexp.MustCompile(`(registry\.npmjs|registry\.yarnpkg|proxy\.golang|sum\.golang|pypi|pythonhosted)\.(org|com)`)},
	{"a registry's address", regexp.MustCompile(`(GOPROXY|GOSUMDB|npm_config_registry|NPM_CONFIG_REGISTRY|registry)["']?\s*[=:]\s*["']?https?:`)},
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE[ ]KEY-----`)},
	{"a cloud key", regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"a cloud key", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}\b`)},
	{"a forge's token", regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,}|glpat-[A-Za-z0-9_-]{20,})`)},
	{"a service's token", regexp.MustCompile(`\b(sk-[A-Za-z0-9_-]{32,}|xox[abprs]-[A-Za-z0-9-]{20,}|npm_[A-Za-z0-9]{36})`)},
}

// strangers finds such things in one file. Sums of modules are the exception: they are full of random text.
func strangers(name string, text []byte) []string {
	if strings.HasSuffix(name, ".sum") || bytes.IndexByte(text, 0) >= 0 {
		return nil
	}
	var out []string
	for i, line := range strings.Split(string(text), "\n") {
		for _, f := range foreign {
			if f.pattern.MatchString(line) {
				out = append(out, name+":"+strconv.Itoa(i+1)+": holds "+f.what) // never the text: it may be a secret
			}
		}
	}
	return out
}

func TestTrackedFiles(t *testing.T) {
	for _, name := range tracked(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		report(t, strangers(name, text))
	}
}

func TestTrackedFilesCanFail(t *testing.T) {
	join := func(parts ...string) string { return strings.Join(parts, "") } // so that this file stays clean
	for text, want := range map[string]string{
		join("see /wo", "rk/main/go.mod"):                     "a path of one machine",
		join(`"/ho`, `me/ana/.config"`):                       "a path of one machine",
		join("cd /ro", "ot/go"):                               "a path of one machine",
		join("/Use", "rs/Ana/src"):                            "a path of one machine",
		join(`C:\\Use`, `rs\\ana`):                            "a path of one machine",
		join(`"resolved": "https://registry.`, `npmjs.org/x`): "a registry's address",
		join("GOPR", "OXY=https://goproxy.example"):           "a registry's address",
		join("npm --regis", "try=http://127.0.0.1:4873"):      "a registry's address",
		join("-----BEGIN RSA PRI", "VATE KEY-----"):           "a private key",
		join("key: AK", "IA0123456789ABCDEF"):                 "a cloud key",
		join("AI", "za", strings.Repeat("x", 35)):             "a cloud key",
		join("gh", "p_", strings.Repeat("a", 36)):             "a forge's token",
		join("s", "k-", strings.Repeat("a", 40)):              "a service's token",
		join("xo", "xb-", strings.Repeat("1", 24)):            "a service's token",
	} {
		refused(t, strangers("docs/x.md", []byte("one line\n"+text+"\n")), "docs/x.md:2: holds "+want)
	}
	if got := strangers("docs/x.md", []byte("GET /work\nframework/x\n/var/lib/aduana\ndocs/work/x\nsk-test\nhttps://example.org/home/x\n")); len(got) != 1 {
		t.Errorf("one line of these is a path of one machine, got %q", got)
	}
}

func unformatted(name string, text []byte) []string {
	want, err := format.Source(text)
	if err != nil {
		return []string{name + ": " + err.Error()}
	}
	if !bytes.Equal(want, text) {
		return []string{name + " is not formatted; run gofmt -w on it"}
	}
	return nil
}

func TestFormatted(t *testing.T) {
	for _, name := range tracked(t) {
		if strings.HasSuffix(name, ".go") {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
				continue
			}
			report(t, unformatted(name, text))
		}
	}
}

func TestFormattedCanFail(t *testing.T) {
	refused(t, unformatted("x.go", []byte("package x\nvar  a = 1\n")), "x.go is not formatted")
	refused(t, unformatted("x.go", []byte("package x\nvar = 1\n")), "x.go: ")
	if got := unformatted("x.go", []byte("package x\n\nvar a = 1\n")); got != nil {
		t.Errorf("refused without reason: %q", got)
	}
}

// testNames lists the functions of test files whose names begin so.
func testNames(all []pkg, prefix string) (names []string, byPackage []string) {
	for _, p := range all {
		for _, s := range p.files {
			if !s.test() {
				continue
			}
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, prefix) {
					names = append(names, f.Name.Name)
					byPackage = append(byPackage, p.path+" "+f.Name.Name)
				}
			}
		}
	}
	slices.Sort(byPackage)
	return names, byPackage
}

var testName = regexp.MustCompile(`\b(Test|Fuzz)[A-Z0-9_]\w*`)

// unproven finds rows of the threats' tables that name no test, or one that does not exist. A defence without a test is a hope.
func unproven(document string, exist []string) []string {
	var out []string
	rows := 0
	lines := strings.Split(document, "\n")
	rule := regexp.MustCompile(`^\|[\s:|-]+\|\s*$`)
	for i, line := range lines {
		if !strings.HasPrefix(line, "|") || rule.MatchString(line) || i+1 < len(lines) && rule.MatchString(lines[i+1]) {
			continue // no row, the line under the head, the head
		}
		rows++
		at := "docs/threats.md:" + strconv.Itoa(i+1) + ": "
		named := testName.FindAllString(line, -1)
		if named == nil {
			out = append(out, at+"the row names no test")
		}
		for _, n := range named {
			if !slices.Contains(exist, n) {
				out = append(out, at+"there is no "+n)
			}
		}
	}
	if rows == 0 {
		out = append(out, "docs/threats.md holds no row; was its table written in another form?")
	}
	return out
}

func TestThreats(t *testing.T) {
	document, err := os.ReadFile("docs/threats.md")
	if os.IsNotExist(err) {
		t.Log("NOT CHECKED: there is no docs/threats.md yet")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	tests, _ := testNames(mustPackages(t), "Test")
	targets, _ := testNames(mustPackages(t), "Fuzz")
	report(t, unproven(string(document), append(tests, targets...)))
}

func TestThreatsCanFail(t *testing.T) {
	table := "| Threat | Test |\n| --- | :--- |\n| a name is split | `TestNames` |\n| bad bytes | FuzzScan, TestScan |\n"
	exist := []string{"TestNames", "TestScan", "FuzzScan"}
	if got := unproven(table, exist); got != nil {
		t.Errorf("refused without reason: %q", got)
	}
	refused(t, unproven(table, exist[1:]), "docs/threats.md:3: there is no TestNames")
	refused(t, unproven(table, exist[:2]), "docs/threats.md:4: there is no FuzzScan")
	refused(t, unproven(table+"| a wish | reviewed by hand |\n", exist), "docs/threats.md:5: the row names no test")
	refused(t, unproven("# Threats\n\n- a name is split: TestNames\n", exist), "holds no row")
}

const fuzzHead = "# Every fuzz target, as \"package name\". .ci/run runs each of them; compared by go test . (rewrite with -update).\n"

// TestFuzzTargets keeps the list from which .ci/run fuzzes. A target that was renamed would otherwise stop being run, and
// "go test -fuzz" with a pattern that matches nothing does not fail.
func TestFuzzTargets(t *testing.T) {
	_, list := testNames(mustPackages(t), "Fuzz")
	compared(t, "test/fuzz.txt", fuzzHead+strings.Join(list, "\n")+"\n")
}

func TestFuzzTargetsCanFail(t *testing.T) {
	at := func(text string) string {
		s := parse(t, "internal/x/x_test.go", "package x\n"+text)
		_, list := testNames([]pkg{{path: "internal/x", files: []source{s}}}, "Fuzz")
		return strings.Join(list, "\n") + "\n"
	}
	before := at("func FuzzScan(f *testing.F) {}")
	if before != "internal/x FuzzScan\n" {
		t.Fatalf("got %q", before)
	}
	refused(t, differences("test/fuzz.txt", before, at("func FuzzScanner(f *testing.F) {}")), `lacks "internal/x FuzzScanner"`)
	refused(t, differences("test/fuzz.txt", before, at("func FuzzScanner(f *testing.F) {}")), `still holds "internal/x FuzzScan"`)
	refused(t, differences("test/fuzz.txt", before, at("")), "still holds")
}
