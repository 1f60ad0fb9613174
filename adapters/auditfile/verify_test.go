//go:build unix

package auditfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aduana/gateway"
)

// golden is a whole file. Its hashes were computed by another program.
const golden = `{"format":1,"seq":1,"event":"intent","call":"c1","at":"2023-11-14T22:13:20.000Z","asked":"a\nb","prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"b690a2b7b4f1dc69e0b4b2952d084ff344d3c5da625bd19ecdf5a8f93edfc9f9"}
{"seq":2,"event":"finish","call":"c1","at":"2023-11-14T22:13:20.005Z","outcome":"invoked","duration_us":1500,"result_bytes":7,"sent":"yes","prev":"b690a2b7b4f1dc69e0b4b2952d084ff344d3c5da625bd19ecdf5a8f93edfc9f9","hash":"3c2a9c12b68e7628d861ac16f3e1f7eb4c7a19c0ba778deda9b5669a1ecb6782"}
{"seq":3,"event":"note","at":"2023-11-14T22:13:21.000Z","outcome":"stopped","prev":"3c2a9c12b68e7628d861ac16f3e1f7eb4c7a19c0ba778deda9b5669a1ecb6782","hash":"fecefbeab676d8bc2f20058b4eca6e2280f3dcc302886a3ad90497522422643c"}
`

func goldenRecords() []gateway.Record {
	return []gateway.Record{
		{Event: gateway.EventIntent, Call: "c1", At: 1_700_000_000_000, Asked: "a\nb"},
		{Event: gateway.EventFinish, Call: "c1", At: 1_700_000_000_005, Outcome: gateway.Invoked, DurationUS: 1500, ResultBytes: 7, Sent: gateway.Answered},
		{Event: gateway.EventNote, At: 1_700_000_001_000, Outcome: gateway.Stopped},
	}
}

func write(t *testing.T, f *File, records ...gateway.Record) {
	t.Helper()
	for _, r := range records {
		do := map[gateway.Event]func(context.Context, *gateway.Record) error{
			gateway.EventIntent: f.Intend, gateway.EventFinish: f.Finish, gateway.EventNote: f.Note}[r.Event]
		if err := do(context.Background(), &r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	all := goldenRecords()
	for _, session := range [][]gateway.Record{all[:2], nil, all[2:]} { // the chain goes on from one process to the next
		f, err := Open(path, clock)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, session...)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != golden {
		t.Errorf("wrote\n%s\nwant\n%s", got, golden)
	}
}

func TestVerifyReports(t *testing.T) {
	r, err := Verify(strings.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Records: 3, Intents: 1, Head: "fecefbeab676d8bc2f20058b4eca6e2280f3dcc302886a3ad90497522422643c",
		First: 1_700_000_000_000, Last: 1_700_000_001_000}
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("report %+v; want %+v", r, want)
	}
	first := golden[:strings.IndexByte(golden, '\n')+1]
	if r, err = Verify(strings.NewReader(first)); err != nil || !slices.Equal(r.Open, []string{"c1"}) || r.Records != 1 {
		t.Errorf("the intent alone: %+v, %v; want it open", r, err)
	}
	if r, err = Verify(strings.NewReader("")); err != nil || r.Records != 0 || r.Head != zeros || r.First != 0 {
		t.Errorf("an empty file: %+v, %v", r, err)
	}
	wrong := errors.New("disk on fire")
	if _, err = Verify(&failing{strings.NewReader(golden), wrong}); !errors.Is(err, wrong) || IsBroken(err) {
		t.Errorf("a file that cannot be read: %v; want the error, and not that it is broken", err)
	}
}

// failing reads its text and then fails.
type failing struct {
	r   *strings.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.r.Len() == 0 {
		return 0, f.err
	}
	return f.r.Read(p)
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	b := []byte(golden)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, err := Verify(bytes.NewReader(b))
			var broken *Broken
			if !errors.As(err, &broken) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
			// The line is the one that holds the byte; when its newline is gone it is the same line, now too long.
			if want := int64(strings.Count(golden[:i], "\n") + 1); broken.Line != want {
				t.Errorf("bit %d of byte %d flipped: line %d named; want %d", bit, i, broken.Line, want)
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestEveryMissingOrAddedByteIsFound(t *testing.T) {
	for i := range golden {
		if _, err := Verify(strings.NewReader(golden[:i] + golden[i+1:])); !IsBroken(err) {
			t.Errorf("without byte %d: %v", i, err)
		}
		for _, c := range []string{"\n", " ", "0", "\x00", "\r", "}", golden[i : i+1]} {
			if _, err := Verify(strings.NewReader(golden[:i] + c + golden[i:])); !IsBroken(err) {
				t.Errorf("with %q before byte %d: %v", c, i, err)
			}
		}
		whole := i == 0 || golden[i-1] == '\n' // a missing end is what only a head that is kept elsewhere can show
		if _, err := Verify(strings.NewReader(golden[:i])); IsBroken(err) == whole {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
}

func TestTamperedFiles(t *testing.T) {
	lines := strings.SplitAfter(golden, "\n")[:3]
	other := filepath.Join(t.TempDir(), "other")
	f, err := Open(other, clock)
	if err != nil {
		t.Fatal(err)
	}
	another := goldenRecords()
	another[0].Asked = "something else"
	write(t, f, another...)
	f.Close()
	foreign, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.SplitAfter(string(foreign), "\n")
	sealed := func(seq uint64, body string) string {
		b, _ := seal(nil, seq, zeros, []byte(body))
		return string(b)
	}
	for _, c := range []struct {
		name, text string
		line       int64
		reason     string
	}{
		{"first line removed", lines[1] + lines[2], 1, "does not follow"},
		{"middle line removed", lines[0] + lines[2], 2, "does not follow"},
		{"lines swapped", lines[0] + lines[2] + lines[1], 2, "does not follow"},
		{"line doubled", lines[0] + lines[1] + lines[1], 3, "does not follow"},
		{"first line doubled", lines[0] + lines[0] + lines[1], 2, "does not follow"},
		{"line of another file", lines[0] + theirs[1] + lines[2], 2, "does not follow"},
		{"end of another file", lines[0] + theirs[1] + theirs[2], 2, "does not follow"},
		{"line with a hash of its own", lines[0] + sealed(2, `{"event":"note","at":"2023-11-14T22:13:20.005Z"}`) + lines[2], 2, "does not follow"},
		{"number skipped", sealed(2, `{"event":"note","at":"2023-11-14T22:13:20.005Z"}`), 1, "its number is not 1"},
		{"another format", strings.Replace(lines[0], `"format":1`, `"format":2`, 1), 1, "line was changed"},
		{"empty line in between", lines[0] + "\n" + lines[1], 2, "too short"},
		{"empty line at the end", golden + "\n", 4, "too short"},
		{"empty line at the beginning", "\n" + golden, 1, "too short"},
		{"carriage returns", strings.ReplaceAll(golden, "\n", "\r\n"), 1, "does not end in its hash"},
		{"byte order mark", "\ufeff" + golden, 1, "line was changed"},
		{"hash in capitals", capital(lines[0]) + lines[1], 1, "line was changed"},
		{"no end", strings.TrimSuffix(golden, "\n"), 3, "incomplete"},
		{"no newline at all", strings.Repeat("x", maxLine+1), 1, "no newline"},
		{"text", "hello\n", 1, "too short"},
		{"an unknown event", sealed(1, `{"event":"other","at":"2023-11-14T22:13:20.005Z"}`), 1, "event"},
		{"no event", sealed(1, `{"at":"2023-11-14T22:13:20.005Z"}`), 1, "event"},
		{"no instant", sealed(1, `{"event":"note"}`), 1, "instant"},
		{"a nonsensical instant", sealed(1, `{"event":"note","at":"yesterday"}`), 1, "instant"},
		{"an intent of no call", sealed(1, `{"event":"intent","at":"2023-11-14T22:13:20.005Z"}`), 1, "call id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Verify(strings.NewReader(c.text))
			var b *Broken
			if !errors.As(err, &b) {
				t.Fatalf("%v; want a broken line", err)
			}
			offset := 0
			for _, l := range strings.SplitAfter(c.text, "\n")[:b.Line-1] {
				offset += len(l)
			}
			if b.Line != c.line || b.Offset != int64(offset) || !strings.Contains(b.Reason, c.reason) {
				t.Errorf("%v; want line %d at byte %d, %q", err, c.line, offset, c.reason)
			}

			// Open takes none of them either, and changes nothing, unless all that is wrong is an incomplete last line.
			path := filepath.Join(t.TempDir(), "audit")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path, clock)
			if c.reason == "incomplete" {
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				return
			}
			if err == nil {
				f.Close()
				t.Fatal("Open goes on with a broken chain")
			}
			if !IsBroken(err) || !strings.Contains(err.Error(), fmt.Sprint("line ", c.line)) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("Open: %v; want the line and what to do", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != c.text {
				t.Errorf("Open changed the file that it refused (%v)", err)
			}
		})
	}
}

// capital writes the hash of a line in capital letters: the same number, other bytes.
func capital(line string) string {
	i := strings.LastIndex(line, hashName) + len(hashName)
	return line[:i] + strings.ToUpper(line[i:i+hexSize]) + line[i+hexSize:]
}

// FuzzVerify: no input crashes it, and of what it accepts no byte can be changed.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(golden), uint(7), byte(1))
	f.Add([]byte(golden[:len(golden)-1]), uint(0), byte(32))
	f.Add([]byte("{\"format\":1,\"seq\":1,\"prev\":\"\",\"hash\":\"\"}\n"), uint(0), byte(1))
	f.Add([]byte{}, uint(0), byte(0))
	for i, line := range strings.SplitAfter(golden, "\n") {
		f.Add([]byte(line), uint(i), byte(0x20))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint, change byte) {
		r, err := Verify(bytes.NewReader(b))
		if err != nil {
			return
		}
		if n := int64(bytes.Count(b, []byte{'\n'})); r.Records != n {
			t.Errorf("%d records in %d lines", r.Records, n)
		}
		if len(b) == 0 || change == 0 {
			return
		}
		b[at%uint(len(b))] ^= change
		if _, err := Verify(bytes.NewReader(b)); err == nil {
			t.Errorf("byte %d was changed by %#x, and nobody noticed", at%uint(len(b)), change)
		}
	})
}
