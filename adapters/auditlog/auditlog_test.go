package auditlog_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/adapters/auditlog"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
)

// stream is a writer that can be made to fail or to hang.
type stream struct {
	mu      sync.Mutex
	out     bytes.Buffer
	err     error
	short   int // so many bytes of a failing write go out
	release chan struct{}
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	if release != nil {
		<-release
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.out.Write(p[:s.short])
		return s.short, s.err
	}
	return s.out.Write(p)
}

type probe struct {
	*auditlog.Log
	*stream
}

func (p *probe) Written() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.out.Bytes()), nil
}

func (p *probe) Break(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *probe) Mend() { p.Break(nil) }

func (p *probe) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release = make(chan struct{})
}

func (p *probe) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.release)
	p.release = nil
}

func open(t *testing.T) *probe {
	s := &stream{}
	p := &probe{auditlog.New(s, func() time.Time { return time.UnixMilli(1_700_000_000_000) }), s}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestContract(t *testing.T) {
	gatewaytest.RunAudit(t, func(t *testing.T) gateway.Audit { return open(t) })
}

func TestLine(t *testing.T) {
	p := open(t)
	err := p.Note(context.Background(), &gateway.Record{Event: gateway.EventNote, At: 1_700_000_000_123, Asked: "a\nb", Outcome: gateway.Malformed})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"event":"note","at":"2023-11-14T22:13:20.123Z","asked":"a\nb","outcome":"malformed"}` + "\n"
	if got, _ := p.Written(); string(got) != want {
		t.Errorf("wrote %q; want %q", got, want)
	}
}

func TestTornLineStandsAlone(t *testing.T) {
	p := open(t)
	r := gateway.Record{Event: gateway.EventNote, At: 1_700_000_000_123}
	const whole = `{"event":"note","at":"2023-11-14T22:13:20.123Z"}` + "\n"
	for _, c := range []struct {
		short int
		want  string // of what follows the torn part
	}{
		{10, "\n" + whole},
		{0, whole},
		{len(whole), whole},
	} {
		p.mu.Lock()
		p.out.Reset()
		p.short = c.short
		p.mu.Unlock()
		wrong := errors.New("broken pipe")
		p.Break(wrong)
		if err := p.Note(context.Background(), &r); !errors.Is(err, wrong) {
			t.Errorf("a write that failed: %v", err)
		}
		p.Mend()
		if err := p.Note(context.Background(), &r); err != nil {
			t.Error(err)
		}
		if got, _ := p.Written(); string(got) != whole[:c.short]+c.want {
			t.Errorf("after %d bytes of a failed write: %q", c.short, got)
		}
	}
}

func TestRefusesBadRecords(t *testing.T) {
	p := open(t)
	ctx := context.Background()
	if p.Intend(ctx, &gateway.Record{Event: gateway.EventNote}) == nil ||
		p.Finish(ctx, &gateway.Record{Event: gateway.EventIntent}) == nil || p.Note(ctx, &gateway.Record{}) == nil {
		t.Error("a record with the wrong event was taken")
	}
	if p.Note(ctx, &gateway.Record{Event: gateway.EventNote, Asked: strings.Repeat("x", 256<<10)}) == nil {
		t.Error("a record over the bound was taken")
	}
	if got, _ := p.Written(); len(got) != 0 {
		t.Errorf("wrote %.200q", got)
	}
	if err := p.Note(ctx, &gateway.Record{Event: gateway.EventNote}); err != nil {
		t.Errorf("after them: %v", err)
	}
}

func TestClosedRefuses(t *testing.T) {
	p := open(t)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Note(context.Background(), &gateway.Record{Event: gateway.EventNote}) == nil {
		t.Error("a closed log took a record")
	}
}

func TestCloseIsBounded(t *testing.T) {
	p := open(t)
	p.Hang()
	defer p.Release()
	if p.Note(context.Background(), &gateway.Record{Event: gateway.EventNote}) == nil {
		t.Error("a record that hangs was acknowledged")
	}
	if p.Close() == nil {
		t.Error("closing with a write that hangs: no error")
	}
}
