package lockfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"aduana/adapters/lockfile"
	"aduana/assembly"
	"aduana/capabilities"
)

const (
	bindingA = capabilities.Digest("sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	bindingB = capabilities.Digest("sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")
)

func accept(t testing.TB, upstream capabilities.UpstreamID, raw string, verdict capabilities.Verdict) assembly.LockedTool {
	t.Helper()
	tool, err := assembly.Accept(upstream, assembly.Observe([]byte(raw)), verdict, "ana", "2026-08-01T10:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// Bytes that a re-encoding would change: order, blanks, numbers, escapes, unknown members, line ends inside.
const oddTool = "{ \"inputSchema\":{\"type\":\"object\",\r\n\t\"properties\":{\"n\":{\"const\":9007199254740993, \"maximum\":1.50e+2}}} ,\"x-vendor\":[1.0,\"\\u00e9é\\/\"],\"name\":\"create_invoice\"}"

func sample(t testing.TB) assembly.Lock {
	return assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{
		"billing": {Binding: bindingA, Tools: []assembly.LockedTool{
			accept(t, "billing", oddTool, capabilities.WriteVerdict),
			accept(t, "billing", `{"name":"a: \"b\" # c\n\u202ed \ud83d\ude00 \u0085\u2028","inputSchema":{"type":"object"}}`, capabilities.NoVerdict),
		}},
		"123":  {Binding: bindingB, Tools: []assembly.LockedTool{accept(t, "123", `{"name":"null","inputSchema":{"type":"object"}}`, capabilities.ReadVerdict)}},
		"null": {Binding: bindingB},
	}}
}

func write(t *testing.T, path string, lock assembly.Lock) capabilities.Digest {
	t.Helper()
	digest, err := lockfile.Write(path, lock)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func read(t *testing.T, path string) (assembly.Lock, lockfile.Info) {
	t.Helper()
	lock, info, err := lockfile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return lock, info
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLockText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	tool := accept(t, "billing", `{"name":"b: \"c\"\u202e","inputSchema":{"type":"object"}}`, capabilities.ReadVerdict)
	write(t, path, assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{
		"billing": {Binding: bindingA, Tools: []assembly.LockedTool{tool}}, "crm": {Binding: bindingB}}})
	_, info := read(t, path)
	side := text(t, info.Definitions)
	if want := `{"identity":"mcp:billing:b%3A \"c\"` + "\u202e" + `","definition":"{\"name\":\"b: \\\"c\\\"\\u202e\",\"inputSchema\":{\"type\":\"object\"}}"}` + "\n"; side != want {
		t.Errorf("definitions:\n%swant:\n%s", side, want)
	}
	lines := strings.Split(text(t, path), "\n")
	want := []string{
		`# Tools that were accepted, and where. Written by aduana; review changes like code.`,
		`version: 1`,
		`definitions: {file: "` + filepath.Base(info.Definitions) + `", digest: "sha256:…"}`,
		`upstreams:`,
		`  "billing":`,
		`    binding: "` + string(bindingA) + `"`,
		`    tools:`,
		`      - {identity: "mcp:billing:b%3A \"c\"\u202e", definition: "` + string(tool.Pin.Definition.Digest()) + `", verdict: "read", by: "ana", at: "2026-08-01T10:00:00Z"}`,
		`  "crm":`,
		`    binding: "` + string(bindingB) + `"`,
		`    tools: []`,
		``,
	}
	for i, w := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], strings.TrimSuffix(w, `…"}`)) {
			t.Fatalf("line %d:\n%s\nwant:\n%s", i+1, strings.Join(lines[min(i, len(lines)):], "\n"), w)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	lock := sample(t)
	lock.Digest = write(t, path, lock)
	got, info := read(t, path)
	if info.Kind != lockfile.Locked || info.Path != path || len(info.Entries) != 3 {
		t.Errorf("info %+v", info)
	}
	if got.Digest != lock.Digest {
		t.Errorf("digest %s, Write gave %s", got.Digest, lock.Digest)
	}
	for id, want := range lock.Upstreams {
		u := got.Upstreams[id]
		if u.Binding != want.Binding || len(u.Tools) != len(want.Tools) {
			t.Fatalf("%q: %+v", id, u)
		}
		for _, w := range want.Tools {
			found := false
			for _, g := range u.Tools {
				if g.Pin.Identity == w.Pin.Identity {
					found = true
					if string(g.Raw) != string(w.Raw) {
						t.Errorf("%s: bytes %s, want %s", g.Pin.Identity, g.Raw, w.Raw)
					}
					if !reflect.DeepEqual(g.Pin, w.Pin) {
						t.Errorf("%s: pin %+v, want %+v", g.Pin.Identity, g.Pin, w.Pin)
					}
				}
			}
			if !found {
				t.Errorf("%s is lost", w.Pin.Identity)
			}
		}
	}
	// Equal locks have equal bytes, whatever the order of the tools.
	other := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	tools := lock.Upstreams["billing"].Tools
	tools[0], tools[1] = tools[1], tools[0]
	lock.Digest = ""
	if write(t, other, lock) != got.Digest || text(t, other) != text(t, path) {
		t.Error("the order of the tools shows in the file")
	}
}

func TestRewriteRemovesOldDefinitions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "aduana.lock.yaml")
	lock := sample(t)
	lock.Digest = write(t, path, lock)
	delete(lock.Upstreams, "123")
	lock.Digest = write(t, path, lock)
	lock.Digest = write(t, path, lock) // the same again must not remove what it needs
	if got, _ := read(t, path); got.Digest != lock.Digest || len(got.Upstreams) != 2 {
		t.Errorf("%+v", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("files: %v", entries)
	}
}

func TestWriteRefuses(t *testing.T) {
	good := func() assembly.Lock { return sample(t) }
	for name, c := range map[string]struct {
		change func(*assembly.Lock)
		want   string
	}{
		"no binding":     {func(l *assembly.Lock) { l.Upstreams["x"] = assembly.LockedUpstream{} }, "binding"},
		"bad id":         {func(l *assembly.Lock) { l.Upstreams["X y"] = assembly.LockedUpstream{Binding: bindingA} }, "valid id"},
		"partial":        {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Pin.Partial = true }, "declared catalogue"},
		"other bytes":    {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Raw = []byte(oddTool) }, "not that of its bytes"},
		"no bytes":       {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Raw = nil }, "cannot be accepted"},
		"verdict":        {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Pin.Verdict = "harmless" }, "verdict"},
		"nobody":         {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Pin.By = " " }, "by must say"},
		"never":          {func(l *assembly.Lock) { l.Upstreams["123"].Tools[0].Pin.At = "yesterday" }, "no instant"},
		"other upstream": {func(l *assembly.Lock) { l.Upstreams["null"] = l.Upstreams["123"] }, "not that of its bytes"},
		"twice": {func(l *assembly.Lock) {
			u := l.Upstreams["123"]
			u.Tools = append(u.Tools, u.Tools[0])
			l.Upstreams["123"] = u
		}, "stands twice"},
		"stale": {func(l *assembly.Lock) { l.Digest = bindingA }, "changed meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lock := good()
			c.change(&lock)
			if _, err := lockfile.Write(filepath.Join(dir, "l.yaml"), lock); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestStaleWriteLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	first := sample(t)
	first.Digest = write(t, path, first)
	second := sample(t)
	second.Digest = first.Digest
	delete(second.Upstreams, "123")
	second.Digest = write(t, path, second)
	for _, digest := range []capabilities.Digest{first.Digest, ""} {
		first.Digest = digest
		if _, err := lockfile.Write(path, first); !errors.Is(err, lockfile.ErrStale) {
			t.Errorf("over digest %q: %v", digest, err)
		}
	}
	if got, _ := read(t, path); got.Digest != second.Digest {
		t.Error("the later acceptance is lost")
	}
}

func TestCatalogueIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	save(t, path, "version: 1\ntools: []\n")
	declared, _ := read(t, path)
	lock := sample(t)
	lock.Digest = declared.Digest
	if _, err := lockfile.Write(path, lock); err == nil || !strings.Contains(err.Error(), "declared catalogue") {
		t.Errorf("error %v", err)
	}
	if text(t, path) != "version: 1\ntools: []\n" {
		t.Error("overwritten")
	}
}

// tampered writes the sample, changes both texts, and gives the error of reading it again.
func tampered(t *testing.T, change func(lock, side string) (string, string)) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	write(t, path, sample(t))
	_, info := read(t, path)
	a, b := change(text(t, path), text(t, info.Definitions))
	save(t, path, a)
	save(t, info.Definitions, b)
	_, _, err := lockfile.Read(path)
	return err
}

// resealed puts the digest of the changed definitions into the lock, as somebody who wants to get through would.
func resealed(t *testing.T, lock, side string) string {
	i := strings.Index(lock, `digest: "`) + len(`digest: "`)
	return lock[:i] + sha(side) + lock[i+len(bindingA):]
}

func TestTamperingIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(lock, side string) (string, string)
		want   string
	}{
		"definition changed": {func(l, s string) (string, string) { return l, strings.Replace(s, "x-vendor", "y-vendor", 1) }, "restore both files together"},
		"definition changed and resealed": {func(l, s string) (string, string) {
			s = strings.Replace(s, "x-vendor", "y-vendor", 1)
			return resealed(t, l, s), s
		}, "was accepted with definition"},
		"definition of another": {func(l, s string) (string, string) {
			s = strings.Replace(s, `create_invoice\"`, `refund_invoice\"`, 1)
			return resealed(t, l, s), s
		}, "the definition is that of mcp:billing:refund_invoice"},
		"definitions swapped": {func(l, s string) (string, string) {
			lines := strings.SplitAfter(s, "\n")
			lines[0], lines[1] = lines[1], lines[0]
			s = strings.Join(lines, "")
			return resealed(t, l, s), s
		}, ": no definition of"},
		"definition missing": {func(l, s string) (string, string) {
			s = s[:strings.LastIndex(s[:len(s)-1], "\n")+1]
			return resealed(t, l, s), s
		}, ": no definition of"},
		"last line cut": {func(l, s string) (string, string) {
			s = s[:len(s)-1]
			return resealed(t, l, s), s
		}, ":3: the line is cut short"},
		"member to spare in a definition": {func(l, s string) (string, string) {
			s = strings.Replace(s, `{"identity"`, `{"x":1,"identity"`, 1)
			return resealed(t, l, s), s
		}, "want the members identity and definition"},
		"file elsewhere":    {func(l, s string) (string, string) { return strings.Replace(l, `file: "`, `file: "../`, 1), s }, "must be the name of a file beside the lock"},
		"file away":         {func(l, s string) (string, string) { return strings.Replace(l, `file: "`, `file: "x`, 1), s }, "restore both files together"},
		"unknown member":    {func(l, s string) (string, string) { return l + "note: x\n", s }, `a lock has no member "note"`},
		"unknown in a tool": {func(l, s string) (string, string) { return strings.Replace(l, "by: ", "note: x, by: ", 1), s }, `has no member "note"`},
		"other version":     {func(l, s string) (string, string) { return strings.Replace(l, "version: 1", "version: 2", 1), s }, "want version: 1"},
		"verdict":           {func(l, s string) (string, string) { return strings.Replace(l, `"write"`, `"harmless"`, 1), s }, `verdict "harmless" is none of`},
		"no acceptor":       {func(l, s string) (string, string) { return strings.Replace(l, `by: "ana", `, "", 1), s }, "has no by"},
		"binding":           {func(l, s string) (string, string) { return strings.Replace(l, string(bindingA), "sha256:aa", 1), s }, "binding must be sha256:"},
		"no binding": {func(l, s string) (string, string) {
			return strings.Replace(l, `    binding: "`+string(bindingA)+"\"\n", "", 1), s
		}, "has no binding"},
		"upstream twice": {func(l, s string) (string, string) { return strings.Replace(l, `"null"`, `"billing"`, 1), s }, `the key "billing" is written twice`},
		"identity elsewhere": {func(l, s string) (string, string) {
			return strings.Replace(l, "mcp:billing:create_invoice", "mcp:crm:create_invoice", 1), s
		}, `is no tool of "billing"`},
		"identity of a kind": {func(l, s string) (string, string) {
			return strings.Replace(l, "mcp:billing:create_invoice", "mcp-prompt:billing:create_invoice", 1), s
		}, `is no tool of "billing"`},
		"tools and upstreams": {func(l, s string) (string, string) { return l + "tools: []\n", s }, `a lock has no member "tools"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tampered(t, c.change)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	if err := tampered(t, func(l, s string) (string, string) { return resealed(t, l, s) + "# a comment\n", s }); err != nil {
		t.Errorf("untouched: %v", err)
	}
}

// An acceptance is taken back by deleting its line in the lock; the rest stays accepted as it was.
func TestAnAcceptanceIsTakenBackByDeletingItsLine(t *testing.T) {
	if err := tampered(t, func(l, s string) (string, string) {
		lines := strings.SplitAfter(l, "\n")
		for i, line := range lines {
			if strings.Contains(line, "mcp:billing:create_invoice") {
				return strings.Join(append(lines[:i:i], lines[i+1:]...), ""), s
			}
		}
		t.Fatal("the lock does not hold the line")
		return l, s
	}); err != nil {
		t.Error(err)
	}
}

// Every byte of both files counts, for the digest at least.
func TestEveryByteCounts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "l.yaml")
	write(t, path, assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{"b": {Binding: bindingA,
		Tools: []assembly.LockedTool{accept(t, "b", `{"name":"x","inputSchema":{"type":"object"}}`, capabilities.ReadVerdict)}}}})
	before, info := read(t, path)
	for _, file := range []string{path, info.Definitions} {
		whole := text(t, file)
		for i := range len(whole) {
			changed := []byte(whole)
			changed[i] ^= 1
			save(t, file, string(changed))
			if got, _, err := lockfile.Read(path); err == nil && got.Digest == before.Digest {
				t.Errorf("%s: byte %d can be changed from %q to %q unnoticed", filepath.Base(file), i, whole[i], changed[i])
			}
		}
		save(t, file, whole)
	}
}

func TestFilesThatOthersCanWrite(t *testing.T) {
	for _, mode := range []os.FileMode{0o664, 0o646} {
		for _, which := range []string{"lock", "definitions"} {
			t.Run(fmt.Sprintf("%s %o", which, mode), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "l.yaml")
				write(t, path, sample(t))
				_, info := read(t, path)
				file := path
				if which == "definitions" {
					file = info.Definitions
				}
				if err := os.Chmod(file, mode); err != nil {
					t.Fatal(err)
				}
				_, _, err := lockfile.Read(path)
				if err == nil || !strings.Contains(err.Error(), "chmod go-w") || !strings.Contains(err.Error(), file) {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}

func TestLinkedLock(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "aduana.lock.yaml")
	lock := sample(t)
	write(t, filepath.Join(real, "l.yaml"), lock)
	if err := os.Symlink(filepath.Join("real", "l.yaml"), link); err != nil {
		t.Fatal(err)
	}
	got, _ := read(t, link)
	delete(got.Upstreams, "123")
	write(t, link, got)
	if again, _ := read(t, filepath.Join(real, "l.yaml")); len(again.Upstreams) != 2 {
		t.Errorf("%+v", again)
	}
}
