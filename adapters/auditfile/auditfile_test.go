//go:build unix

package auditfile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/gateway"
	"aduana/gateway/gatewaytest"
)

func clock() time.Time { return time.UnixMilli(1_700_000_000_000) }

// medium is a disk that can be made to fail or to hang.
type medium struct {
	*os.File
	mu       sync.Mutex
	write    func(f *os.File, p []byte) (int, error) // nil: as the file does
	truncate func(f *os.File, size int64) error
}

func (m *medium) Write(p []byte) (int, error) {
	m.mu.Lock()
	w := m.write
	m.mu.Unlock()
	if w != nil {
		return w(m.File, p)
	}
	return m.File.Write(p)
}

func (m *medium) Truncate(size int64) error {
	m.mu.Lock()
	tr := m.truncate
	m.mu.Unlock()
	if tr != nil {
		return tr(m.File, size)
	}
	return m.File.Truncate(size)
}

func (m *medium) set(write func(f *os.File, p []byte) (int, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.write = write
}

// probe is a File on such a disk.
type probe struct {
	*File
	medium  *medium
	release chan struct{}
}

func (p *probe) Written() ([]byte, error) { return os.ReadFile(p.path) }

func (p *probe) Break(err error) {
	// A part of the group gets onto the disk, as it does when the disk is full.
	p.medium.set(func(f *os.File, b []byte) (int, error) {
		n, _ := f.Write(b[:len(b)/2])
		return n, err
	})
}

func (p *probe) Mend() { p.medium.set(nil) }

func (p *probe) Hang() {
	p.release = make(chan struct{})
	release := p.release
	p.medium.set(func(f *os.File, b []byte) (int, error) {
		<-release
		return f.Write(b)
	})
}

func (p *probe) Release() { close(p.release) }

func newProbe(t *testing.T, path string) *probe {
	t.Helper()
	m := &medium{}
	f, err := open(path, clock, func(f *os.File) disk { m.File = f; return m })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &probe{File: f, medium: m}
}

func TestContract(t *testing.T) {
	gatewaytest.RunAudit(t, func(t *testing.T) gateway.Audit {
		p := newProbe(t, filepath.Join(t.TempDir(), "audit"))
		t.Cleanup(func() { // whatever the check did, the chain holds
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			verifyFile(t, p.path)
		})
		return p
	})
}

func verifyFile(t *testing.T, path string) Report {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Verify(f)
	if err != nil {
		t.Error(err)
	}
	return r
}

func note(t *testing.T, a gateway.Audit, call string) {
	t.Helper()
	if err := a.Note(context.Background(), &gateway.Record{Event: gateway.EventNote, Call: call, At: 1_700_000_000_000}); err != nil {
		t.Fatal(err)
	}
}

// An outcome that nobody waited for is on record before the next intent is.
func TestFinishLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f, err := Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for n := range 200 {
		call := fmt.Sprint("c-", n)
		if err := f.Intend(ctx, &gateway.Record{Event: gateway.EventIntent, Call: call}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), `"event":"finish"`); got != n {
			t.Fatalf("%d outcomes on record before intent %d", got, n)
		}
		if err := f.FinishLater(ctx, &gateway.Record{Event: gateway.EventFinish, Call: call, Outcome: gateway.Invoked}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.FinishLater(ctx, &gateway.Record{Event: gateway.EventIntent, Call: "x"}); err == nil {
		t.Error("an intent was taken for an outcome")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	report, err := Verify(r)
	if err != nil || report.Records != 400 || len(report.Open) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
