package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/atomicfile"
)

func lockOf(t testing.TB, raws ...string) assembly.Lock {
	u := assembly.LockedUpstream{Binding: capabilities.Digest("sha256:" + strings.Repeat("a", 64))}
	for _, raw := range raws {
		tool, err := assembly.Accept("b", assembly.Observe([]byte(raw)), capabilities.ReadVerdict, "ana", "2026-08-01T10:00:00Z")
		if err != nil {
			t.Fatal(err)
		}
		u.Tools = append(u.Tools, tool)
	}
	return assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{"b": u}}
}

const (
	toolX = `{"name":"x","inputSchema":{"type":"object"}}`
	toolY = `{"name":"y","inputSchema":{"type":"object"}}`
)

// The process can die before or after any of the steps. Whatever remains must be the old lock or the new one.
func TestCrashAtEveryStep(t *testing.T) {
	crash := errors.New("crash")
	for step := 1; step <= 3; step++ {
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s step %d", when, step), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
				oldDigest, err := Write(path, lockOf(t, toolX))
				if err != nil {
					t.Fatal(err)
				}
				next := lockOf(t, toolX, toolY)
				text, side, _, err := encode(path, next)
				if err != nil {
					t.Fatal(err)
				}
				newDigest := sumOf(text, side)

				steps := 0
				do := func(f func() error) error {
					steps++
					if steps < step || steps == step && when == "after" {
						if err := f(); err != nil {
							t.Error(err)
						}
					}
					if steps >= step {
						return crash // dead: nothing after it happens
					}
					return nil
				}
				next.Digest = oldDigest
				_, err = write(disk{
					write: func(p string, b []byte, m fs.FileMode) error {
						return do(func() error { return atomicfile.Write(p, b, m) })
					},
					remove: func(p string) error { return do(func() error { return os.Remove(p) }) },
				}, path, next)
				if step < 3 && !errors.Is(err, crash) {
					t.Errorf("error %v", err)
				}
				if steps < step {
					t.Fatalf("only %d steps", steps)
				}
				got, _, err := Read(path)
				if err != nil {
					t.Fatal(err)
				}
				want := oldDigest
				if step == 3 || step == 2 && when == "after" {
					want = newDigest
				}
				if got.Digest != want {
					t.Errorf("digest %s, want %s", got.Digest, want)
				}
				// And the next write repairs what is left to repair.
				repaired := lockOf(t, toolX, toolY)
				repaired.Digest = got.Digest
				if _, err := Write(path, repaired); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Readers meet the old lock or the new one while a writer replaces one by the other again and again.
func TestReadersDuringWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aduana.lock.yaml")
	locks := []assembly.Lock{lockOf(t, toolX), lockOf(t, toolX, toolY)}
	digest, err := Write(path, locks[0])
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; i <= 30; i++ {
			lock := locks[i%2]
			lock.Digest = digest
			if digest, err = Write(path, lock); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		if _, _, err := Read(path); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func FuzzRead(f *testing.F) {
	text, side, _, err := encode("aduana.lock.yaml", lockOf(f, toolX, toolY))
	if err != nil {
		f.Fatal(err)
	}
	seed := strings.Replace(string(text), string(sum(side)), "@", 1)
	f.Add(seed, string(side))
	f.Add("version: 1\ntools:\n- {upstream: a, name: x, inputSchema: {type: object, maximum: 1e3}}\n- &a [*a]\n", "")
	f.Add("upstreams: {}\nversion: 1\ndefinitions: {file: x, digest: \"@\"}\n", "")
	f.Fuzz(func(t *testing.T, text, side string) {
		// So that changes of the definitions reach what comes after the digest of the file.
		text = strings.Replace(text, "@", string(sum([]byte(side))), 1)
		lock, info, err := parse(content{path: "l", bytes: []byte(text)}, "l", func(name string) (content, error) {
			return content{path: name, bytes: []byte(side)}, nil
		})
		if err != nil {
			if len(lock.Upstreams) > 0 || lock.Digest != "" {
				t.Fatal("a lock came with an error")
			}
			return
		}
		for id, u := range lock.Upstreams {
			for _, tool := range u.Tools {
				if tool.Pin.Identity.Upstream != id || assembly.Observe(tool.Raw).Problem != "" || tool.Pin.Identity.Name != assembly.Observe(tool.Raw).Name {
					t.Fatalf("%s: unsound tool %s", id, tool.Raw)
				}
			}
		}
		if info.Kind != Locked {
			return
		}
		// What was read can be written, and reads back the same.
		a, b, _, err := encode("l.yaml", lock)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := parse(content{path: "l.yaml", bytes: a}, "l.yaml", func(string) (content, error) { return content{bytes: b}, nil })
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, a, b)
		}
		a2, b2, _, err := encode("l.yaml", again)
		if err != nil || !bytes.Equal(a, a2) || !bytes.Equal(b, b2) {
			t.Fatalf("not stable: %v\n%s\n%s", err, a, a2)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var raws []string
	for i := range 1000 {
		raws = append(raws, fmt.Sprintf(`{"name":"tool_%d","description":"%s","inputSchema":{"type":"object","properties":{"message":{"type":"string","description":"what to say"}},"required":["message"]}}`, i, strings.Repeat("words ", 40)))
	}
	path := filepath.Join(b.TempDir(), "aduana.lock.yaml")
	if _, err := Write(path, lockOf(b, raws...)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := Read(path); err != nil {
			b.Fatal(err)
		}
	}
}
