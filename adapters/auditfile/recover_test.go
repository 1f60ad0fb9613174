//go:build unix

package auditfile

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"aduana/gateway"
)

// TestTornTail cuts a file at every byte of its last two lines, as a crash or a loss of power may.
func TestTornTail(t *testing.T) {
	lines := strings.SplitAfter(golden, "\n")[:3]
	for _, kept := range []int{1, 2} { // the call's intent, or its intent and finish, are whole
		whole := strings.Join(lines[:kept], "")
		for n := 1; n < len(lines[kept]); n += 7 {
			tail := lines[kept][:n]
			path := filepath.Join(t.TempDir(), "audit")
			if err := os.WriteFile(path, []byte(whole+tail), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path, clock)
			if err != nil {
				t.Fatalf("cut after %d bytes: %v", n, err)
			}
			note(t, f, "after")
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := string(b)
			detail := fmt.Sprintf(`"event":"note","at":"2023-11-14T22:13:20.000Z","outcome":"started","detail":"recovered: %d torn bytes, sha256 %x"`,
				n, sha256.Sum256([]byte(tail)))
			added := strings.SplitAfter(strings.TrimPrefix(got, whole), "\n")
			if !strings.HasPrefix(got, whole) || !strings.Contains(added[0], detail) {
				t.Fatalf("cut after %d bytes:\n%s", n, got)
			}
			const unknown = `"event":"finish","call":"c1","at":"2023-11-14T22:13:20.000Z","outcome":"outcome_unknown",` +
				`"detail":"the process ended before the outcome was known","duration_us":1,"sent":"unknown"`
			if strings.Count(got, unknown) != 2-kept {
				t.Errorf("cut after %d bytes: want the open intent closed as unknown, once, and nothing else:\n%s", n, got)
			}
			if r := verifyFile(t, path); len(r.Open) != 0 || r.Records != 4 {
				t.Errorf("cut after %d bytes: %+v", n, r)
			}
		}
	}
}

// TestCrashInRecovery: a crash between writing the note over torn bytes and cutting off the rest of them leaves that rest as the
// next torn line.
func TestCrashInRecovery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	torn := strings.Repeat("x", 5000)
	if err := os.WriteFile(path, []byte(golden+torn), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, torn[len(b)-len(golden):]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = Open(path, clock); err != nil {
		t.Fatal(err)
	}
	f.Close()
	b, _ = os.ReadFile(path)
	if n := strings.Count(string(b), "recovered: "); n != 2 {
		t.Errorf("%d notes of torn bytes; want 2:\n%s", n, b)
	}
	verifyFile(t, path)
}

func TestManyOpenIntents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	f, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 200 {
		call := fmt.Sprint("c", i)
		write(t, f, gateway.Record{Event: gateway.EventIntent, Call: call})
		if i%2 == 0 {
			write(t, f, gateway.Record{Event: gateway.EventFinish, Call: call, Outcome: gateway.Invoked})
		} else {
			want = append(want, call)
		}
	}
	f.Close()
	if r := verifyFile(t, path); !slices.Equal(r.Open, want) {
		t.Errorf("open: %v; want every second call, in order", r.Open)
	}
	if f, err = Open(path, clock); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if r := verifyFile(t, path); len(r.Open) != 0 || r.Records != 400 {
		t.Errorf("after recovery: %d records, open %v; want 400, none", r.Records, r.Open)
	}
	if f, err = Open(path, clock); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if r := verifyFile(t, path); r.Records != 400 {
		t.Errorf("%d records; a start with nothing to recover writes nothing", r.Records)
	}
}

// TestKilled kills a process that writes, and checks that whatever it was told to be written is in the file.
func TestKilled(t *testing.T) {
	if path := os.Getenv("AUDITFILE_TEST_CHILD"); path != "" {
		child(path)
	}
	path := filepath.Join(t.TempDir(), "audit")
	acknowledged := 0
	for round := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "AUDITFILE_TEST_CHILD="+path, fmt.Sprint("AUDITFILE_TEST_ROUND=", round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var calls []string
		in := bufio.NewScanner(out)
		for in.Scan() {
			calls = append(calls, in.Text())
			if len(calls) == 50+23*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if len(calls) < 50 {
			t.Fatalf("the child ended by itself after %d calls: %v", len(calls), calls)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		written := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			if _, rest, ok := strings.Cut(line, `"event":"intent","call":"`); ok {
				call, _, _ := strings.Cut(rest, `"`)
				written[call] = true
			}
		}
		for _, call := range calls {
			if !written[call] {
				t.Fatalf("the intent of %s was acknowledged and is not in the file", call)
			}
		}
		acknowledged += len(calls)
		f, err := Open(path, clock)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if r := verifyFile(t, path); len(r.Open) != 0 || int(r.Intents) < acknowledged {
			t.Errorf("after kill %d: %d intents of at least %d, open %v", round, r.Intents, acknowledged, r.Open)
		}
	}
	b, _ := os.ReadFile(path)
	if !strings.Contains(string(b), `"outcome_unknown"`) {
		t.Error("no kill left an open intent: the test shows nothing")
	}
}

func child(path string) {
	f, err := Open(path, clock)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for c := range 4 {
		go func() {
			for n := 0; ; n++ {
				call := fmt.Sprintf("r%s-%d-%d", os.Getenv("AUDITFILE_TEST_ROUND"), c, n)
				if f.Intend(context.Background(), &gateway.Record{Event: gateway.EventIntent, Call: call}) == nil {
					os.Stdout.WriteString(call + "\n")
				}
				time.Sleep(100 * time.Microsecond) // the call; and a file that stays small
				f.Finish(context.Background(), &gateway.Record{Event: gateway.EventFinish, Call: call, Outcome: gateway.Invoked})
			}
		}()
	}
	time.Sleep(time.Minute)
	os.Exit(1)
}

func TestOpenRefuses(t *testing.T) {
	file := func(mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want string // in the error; empty: it opens
	}{
		{"nothing there", func(*testing.T, string) {}, ""},
		{"mode 600", file(0o600), ""},
		{"readable by others", file(0o644), ""},
		{"writable by the group", file(0o620), "chmod 600"},
		{"writable by all", file(0o666), "chmod 600"},
		{"a link", func(t *testing.T, path string) {
			file(0o600)(t, path+".real")
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"a link to nothing", func(t *testing.T, path string) {
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "directory"},
		{"a pipe", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit")
			c.make(t, path)
			f, err := Open(path, clock)
			if err == nil {
				defer f.Close()
			}
			if (err == nil) != (c.want == "") || (err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path))) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "absent", "audit")
	if _, err := Open(path, clock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	f, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 600", info.Mode(), err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	f, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := Open(path, clock); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v, %v", g, err)
	}
	note(t, f, "c1")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Note(context.Background(), &gateway.Record{Event: gateway.EventNote}); err == nil {
		t.Error("a closed file took a record")
	}
	g, err := Open(path, clock)
	if err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
	g.Close()
}

// TestFailTheNth makes each write of a history fail in turn, with every part of it on the disk, and with or without a disk that can
// cut it off again.
func TestFailTheNth(t *testing.T) {
	full := errors.New("no space left on device")
	for nth := range 6 {
		for _, part := range []float64{0, 0.5, 0.999, 1} {
			for _, stuck := range []bool{false, true} {
				p := newProbe(t, filepath.Join(t.TempDir(), "audit"))
				n := 0
				p.medium.set(func(f *os.File, b []byte) (int, error) {
					if n++; n-1 != nth {
						return f.Write(b)
					}
					k, _ := f.Write(b[:int(part*float64(len(b)))])
					return k, full
				})
				cuts := 0
				p.medium.truncate = func(f *os.File, size int64) error {
					if cuts++; stuck && cuts <= 2 {
						return full
					}
					return f.Truncate(size)
				}
				var kept []string
				failed := 0
				for i := range 10 {
					call := fmt.Sprint("c", i)
					err := p.Intend(context.Background(), &gateway.Record{Event: gateway.EventIntent, Call: call})
					if err == nil {
						kept = append(kept, call)
					} else if failed++; !errors.Is(err, full) {
						t.Errorf("%v; want the error of the disk", err)
					}
				}
				if want := map[bool]int{false: 1, true: 3}[stuck]; failed != want {
					t.Errorf("write %d: %d calls were refused; want %d, and then it goes on", nth, failed, want)
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				if r := verifyFile(t, p.path); !slices.Equal(r.Open, kept) {
					t.Errorf("write %d with %v of it written: the file has %v; acknowledged were %v", nth, part, r.Open, kept)
				}
			}
		}
	}
}

// TestFileTakenAway: a log that is no longer where it was, or not as it was left, is not written to for longer than a second.
func TestFileTakenAway(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(path string) error
		want string
	}{
		{"removed", os.Remove, "moved or removed"},
		{"moved", func(path string) error { return os.Rename(path, path+".1") }, "moved or removed"},
		{"replaced", func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		}, "moved or removed"},
		{"emptied", func(path string) error { return os.Truncate(path, 0) }, "something else writes to it"},
		{"cut", func(path string) error { return os.Truncate(path, 10) }, "something else writes to it"},
		{"added to", func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = io.WriteString(f, "hello\n")
			return errors.Join(err, f.Close())
		}, "something else writes to it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProbe(t, filepath.Join(t.TempDir(), "audit"))
			note(t, p, "c1")
			if err := c.do(p.path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookEvery + 10*time.Millisecond)
			for range 2 {
				err := p.Note(context.Background(), &gateway.Record{Event: gateway.EventNote, Call: "c2"})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
			}
		})
	}
}

func TestBadRecordsAreRefused(t *testing.T) {
	p := newProbe(t, filepath.Join(t.TempDir(), "audit"))
	ctx := context.Background()
	for _, c := range []struct {
		name string
		do   func(context.Context, *gateway.Record) error
		r    gateway.Record
		want string
	}{
		{"no event", p.Note, gateway.Record{}, "event"},
		{"another event", p.Intend, gateway.Record{Event: gateway.EventNote, Call: "c1"}, "event"},
		{"an intent of no call", p.Intend, gateway.Record{Event: gateway.EventIntent}, "call id"},
		{"a finish of no call", p.Finish, gateway.Record{Event: gateway.EventFinish}, "call id"},
		{"a call id that needs escapes", p.Intend, gateway.Record{Event: gateway.EventIntent, Call: `c"1`}, "call id"},
		{"a long call id", p.Intend, gateway.Record{Event: gateway.EventIntent, Call: strings.Repeat("c", 129)}, "call id"},
		{"a large record", p.Note, gateway.Record{Event: gateway.EventNote, Asked: strings.Repeat("x", maxLine)}, "bound"},
	} {
		if err := c.do(ctx, &c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
	if b, err := p.Written(); err != nil || len(b) != 0 {
		t.Errorf("%q, %v; want nothing written", b, err)
	}
	// The largest record that is taken can be read back.
	r := gateway.Record{Event: gateway.EventNote}
	r.Asked = strings.Repeat("x", maxLine-1024-len(r.AppendJSON(nil))-len(`,"asked":""`))
	if err := p.Note(ctx, &r); err != nil {
		t.Errorf("the largest record: %v", err)
	}
	r.Asked += "x"
	if err := p.Note(ctx, &r); err == nil {
		t.Error("a record one byte larger was taken")
	}
	verifyFile(t, p.path)
}

func TestCloseIsBounded(t *testing.T) {
	p := newProbe(t, filepath.Join(t.TempDir(), "audit"))
	p.Hang()
	defer p.Release()
	if p.Note(context.Background(), &gateway.Record{Event: gateway.EventNote}) == nil {
		t.Error("a record that hangs was acknowledged")
	}
	if p.Close() == nil {
		t.Error("closing with a write that hangs: no error")
	}
}
