package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"aduana/gateway"
)

// Audit is a fake of gateway.Audit that keeps records in memory. Its zero value is ready.
type Audit struct {
	// Fail scripts failures: a record for which it gives an error is not taken. Set it while no call runs.
	Fail func(r *gateway.Record) error

	mu      sync.Mutex
	records []gateway.Record
	lines   bytes.Buffer
	broken  error
	hang    chan struct{}
}

// Intend implements gateway.Audit.
func (a *Audit) Intend(_ context.Context, r *gateway.Record) error { return a.take(r) }

// Finish implements gateway.Audit.
func (a *Audit) Finish(_ context.Context, r *gateway.Record) error { return a.take(r) }

// Note implements gateway.Audit.
func (a *Audit) Note(_ context.Context, r *gateway.Record) error { return a.take(r) }

func (a *Audit) take(r *gateway.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hang != nil {
		return errors.New("not written in time")
	}
	if a.broken != nil {
		return a.broken
	}
	if a.Fail != nil {
		if err := a.Fail(r); err != nil {
			return err
		}
	}
	kept := *r
	kept.Discarded, kept.Ceilings = slices.Clone(r.Discarded), slices.Clone(r.Ceilings)
	a.records = append(a.records, kept)
	a.lines.Write(append(r.AppendJSON(nil), '\n'))
	return nil
}

// Records gives what was taken, in order.
func (a *Audit) Records() []gateway.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.records)
}

// Written implements AuditReader.
func (a *Audit) Written() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.lines.Bytes()), nil
}

// Break implements AuditBreaker.
func (a *Audit) Break(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = err
}

// Mend implements AuditBreaker.
func (a *Audit) Mend() { a.Break(nil) }

// Hang implements AuditHanger.
func (a *Audit) Hang() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang = make(chan struct{})
}

// Release implements AuditHanger.
func (a *Audit) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang = nil
}

// AuditReader is what an audit sink under test must be as well, so that the suite sees what it wrote: everything so far, one
// JSON object a line.
type AuditReader interface {
	Written() ([]byte, error)
}

// AuditBreaker is an audit sink whose medium can be made to fail. Without it the suite skips what it cannot see.
type AuditBreaker interface {
	Break(err error) // from now on every write fails
	Mend()
}

// AuditHanger is an audit sink whose medium can be made to hang. Without it the suite skips what it cannot see.
type AuditHanger interface {
	Hang() // from now on every write blocks
	Release()
}

type auditCheck struct {
	name  string
	need  func(a gateway.Audit) bool // nil: a reader is enough
	check func(t T, a gateway.Audit)
}

// RunAudit holds an adapter to the contract of gateway.Audit. Each call of open gives an empty sink, which is an AuditReader as
// well.
func RunAudit(t *testing.T, open func(t *testing.T) gateway.Audit) {
	for _, c := range auditChecks {
		t.Run(c.name, func(t *testing.T) {
			a := open(t)
			if _, ok := a.(AuditReader); !ok {
				t.Fatal("the sink under test is no AuditReader, so nothing that it writes can be checked")
			}
			if c.need != nil && !c.need(a) {
				t.Skip("the sink under test has no way to show this")
			}
			c.check(t, a)
		})
	}
}

func breaks(a gateway.Audit) bool { _, ok := a.(AuditBreaker); return ok }
func hangs(a gateway.Audit) bool  { _, ok := a.(AuditHanger); return ok }

// patience is how long the suite waits for a call that must take 250 ms at most. It only ends a test that would hang.
const patience = 2 * time.Second

var auditChecks = []auditCheck{
	{"a record is one line, there when the call returns, in order", nil, func(t T, a gateway.Audit) {
		ctx := context.Background()
		intent, finish, note := record(gateway.EventIntent, "c1"), record(gateway.EventFinish, "c1"), record(gateway.EventNote, "c2")
		var want [][]byte
		for i, step := range []struct {
			do func(context.Context, *gateway.Record) error
			r  gateway.Record
		}{{a.Intend, intent}, {a.Finish, finish}, {a.Note, note}, {a.Note, record(gateway.EventNote, "")}} {
			before := step.r.AppendJSON(nil)
			if err := step.do(ctx, &step.r); err != nil {
				t.Errorf("record %d: %v", i, err)
				return
			}
			if after := step.r.AppendJSON(nil); !bytes.Equal(before, after) {
				t.Errorf("record %d was changed to %s", i, after)
			}
			want = append(want, before)
			holds(t, a, want)
		}
	}},
	{"what a client sent cannot break the line", nil, func(t T, a gateway.Audit) {
		r := record(gateway.EventNote, "c1")
		r.Asked = "a\nb\r\n\x1b[31m\x00\"}\n{\"seq\":1,\"event\":\"note\"}\u2028\xff"
		if err := a.Note(context.Background(), &r); err != nil {
			t.Errorf("Note: %v", err)
			return
		}
		holds(t, a, [][]byte{r.AppendJSON(nil)})
	}},
	{"a cancelled caller is recorded", nil, func(t T, a gateway.Audit) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		i, f := record(gateway.EventIntent, "c1"), record(gateway.EventFinish, "c1")
		if err := errors.Join(a.Intend(ctx, &i), a.Finish(ctx, &f)); err != nil {
			t.Errorf("with a cancelled context: %v", err)
		}
		holds(t, a, [][]byte{i.AppendJSON(nil), f.AppendJSON(nil)})
	}},
	{"a record may be used again after the call", nil, func(t T, a gateway.Audit) {
		var want [][]byte
		r := record(gateway.EventNote, "")
		for i := range 20 {
			r.Call, r.Asked = fmt.Sprint("c", i), fmt.Sprint("tool ", i)
			want = append(want, r.AppendJSON(nil))
			if err := a.Note(context.Background(), &r); err != nil {
				t.Errorf("Note: %v", err)
			}
			r.Call, r.Asked = "other", "other"
		}
		holds(t, a, want)
	}},
	{"concurrent callers get one line each, a finish after its intent", nil, func(t T, a gateway.Audit) {
		const callers, each = 32, 20
		var wait sync.WaitGroup
		problems := make(chan error, callers*each)
		for c := range callers {
			wait.Go(func() {
				for n := range each {
					call := fmt.Sprintf("c%d-%d", c, n)
					i, f := record(gateway.EventIntent, call), record(gateway.EventFinish, call)
					if err := a.Intend(context.Background(), &i); err != nil {
						problems <- err
					} else if err := a.Finish(context.Background(), &f); err != nil {
						problems <- err
					}
				}
			})
		}
		wait.Wait()
		close(problems)
		for err := range problems {
			t.Errorf("a caller got %v", err)
		}
		state := map[string]int{}
		for _, l := range parsed(t, a) {
			if want := map[string]int{"intent": 0, "finish": 1}[l.Event]; state[l.Call] != want {
				t.Errorf("the %s of %s is number %d of its call", l.Event, l.Call, state[l.Call])
			}
			state[l.Call]++
		}
		for call, n := range state {
			if n != 2 {
				t.Errorf("%d records of %s; want 2", n, call)
			}
		}
		if len(state) != callers*each {
			t.Errorf("records of %d calls; want %d", len(state), callers*each)
		}
	}},
	{"what cannot be written is an error, until it can", breaks, func(t T, a gateway.Audit) {
		medium := a.(AuditBreaker)
		i, f, n := record(gateway.EventIntent, "c1"), record(gateway.EventFinish, "c1"), record(gateway.EventNote, "c2")
		ctx := context.Background()
		if err := a.Intend(ctx, &i); err != nil {
			t.Errorf("before: %v", err)
		}
		medium.Break(errors.New("no space left"))
		lost := record(gateway.EventIntent, "c3")
		for range 3 {
			if a.Intend(ctx, &lost) == nil || a.Finish(ctx, &f) == nil || a.Note(ctx, &n) == nil {
				t.Errorf("a record that could not be written was acknowledged")
			}
		}
		medium.Mend()
		if err := errors.Join(a.Finish(ctx, &f), a.Note(ctx, &n)); err != nil {
			t.Errorf("after it was mended: %v", err)
		}
		holds(t, a, [][]byte{i.AppendJSON(nil), f.AppendJSON(nil), n.AppendJSON(nil)})
	}},
	{"a write that hangs is an error, and leaves no open intent", hangs, func(t T, a gateway.Audit) {
		medium := a.(AuditHanger)
		ctx := context.Background()
		first := record(gateway.EventNote, "c0")
		if err := a.Note(ctx, &first); err != nil {
			t.Errorf("before: %v", err)
		}
		medium.Hang()
		answers := make(chan error, 8)
		for c := range cap(answers) {
			go func() {
				r := record(gateway.EventIntent, fmt.Sprint("c", c+1))
				answers <- a.Intend(ctx, &r)
			}()
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for range cap(answers) {
			select {
			case err := <-answers:
				if err == nil {
					t.Errorf("a record that hangs was acknowledged")
				}
			case <-timer.C:
				t.Errorf("a call waits for a write that hangs")
				medium.Release()
				return
			}
		}
		medium.Release()
		last := record(gateway.EventNote, "c99")
		err := a.Note(ctx, &last)
		for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); err = a.Note(ctx, &last) {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Errorf("after the write went on: %v", err)
		}
		open := map[string]bool{}
		for _, l := range parsed(t, a) {
			switch {
			case l.Event == "intent":
				open[l.Call] = true
			case l.Event == "finish" && (l.Outcome != string(gateway.AuditUnavailable) || l.Sent != "no"):
				t.Errorf("the refused call %s ended as %s, sent %s; want audit_unavailable, no", l.Call, l.Outcome, l.Sent)
			case l.Event == "finish":
				delete(open, l.Call)
			}
		}
		for call := range open {
			t.Errorf("the intent of the refused call %s stands alone", call)
		}
	}},
}

func record(e gateway.Event, call string) gateway.Record {
	r := gateway.Record{Event: e, Call: call, At: usageStart, Snapshot: "0123456789ab", Surface: gateway.OverStdio,
		Asked: "crm__contacts", Identity: "mcp:crm:contacts", Capability: "crm.read", Arguments: "00ff", ArgBytes: 12}
	if e != gateway.EventIntent {
		r.Outcome, r.Detail = gateway.Invoked, "fine"
	}
	return r
}

// lines gives what was written; a line that is not whole is reported.
func lines(t T, a gateway.Audit) [][]byte {
	t.Helper()
	all, err := a.(AuditReader).Written()
	if err != nil {
		t.Errorf("reading back: %v", err)
		return nil
	}
	if len(all) > 0 && all[len(all)-1] != '\n' {
		t.Errorf("the last line is not whole: %q", all)
	}
	return bytes.Split(bytes.TrimSuffix(all, []byte{'\n'}), []byte{'\n'})
}

// holds checks that each line has one record's members, as they are, and that there is no other line.
func holds(t T, a gateway.Audit, want [][]byte) {
	t.Helper()
	got := lines(t, a)
	if len(got) != len(want) {
		t.Errorf("%d lines; want %d", len(got), len(want))
		return
	}
	for i, line := range got {
		if members := want[i][1 : len(want[i])-1]; !json.Valid(line) || bytes.Count(line, members) != 1 {
			t.Errorf("line %d is %q; want one JSON object with the members %s", i+1, line, members)
		}
	}
}

type auditLine struct {
	Event, Call, Outcome, Sent string
}

func parsed(t T, a gateway.Audit) []auditLine {
	t.Helper()
	var all []auditLine
	for i, line := range lines(t, a) {
		var l auditLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Errorf("line %d is no JSON object: %v", i+1, err)
		}
		all = append(all, l)
	}
	return all
}

var (
	_ gateway.Audit = (*Audit)(nil)
	_ AuditReader   = (*Audit)(nil)
	_ AuditBreaker  = (*Audit)(nil)
	_ AuditHanger   = (*Audit)(nil)
)
