package gatewaytest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"aduana/gateway"
)

func TestAuditFake(t *testing.T) {
	RunAudit(t, func(*testing.T) gateway.Audit { return &Audit{} })
}

// crooked is the fake with one thing wrong.
type crooked struct {
	Audit
	intend, finish, note func(a *Audit, ctx context.Context, r *gateway.Record) error
	written              func(b []byte) []byte
}

func (c *crooked) Intend(ctx context.Context, r *gateway.Record) error {
	if c.intend != nil {
		return c.intend(&c.Audit, ctx, r)
	}
	return c.Audit.Intend(ctx, r)
}

func (c *crooked) Finish(ctx context.Context, r *gateway.Record) error {
	if c.finish != nil {
		return c.finish(&c.Audit, ctx, r)
	}
	return c.Audit.Finish(ctx, r)
}

func (c *crooked) Note(ctx context.Context, r *gateway.Record) error {
	if c.note != nil {
		return c.note(&c.Audit, ctx, r)
	}
	return c.Audit.Note(ctx, r)
}

func (c *crooked) Written() ([]byte, error) {
	b, err := c.Audit.Written()
	if c.written != nil {
		b = c.written(b)
	}
	return b, err
}

// TestAuditSuiteCatches runs the suite against sinks that are wrong in one way each.
func TestAuditSuiteCatches(t *testing.T) {
	type step = func(a *Audit, ctx context.Context, r *gateway.Record) error
	take := func(a *Audit, _ context.Context, r *gateway.Record) error { return a.take(r) }
	swallow := func(a *Audit, _ context.Context, r *gateway.Record) error { a.take(r); return nil }
	all := func(s step) *crooked { return &crooked{intend: s, finish: s, note: s} }
	const (
		oneLine  = "a record is one line, there when the call returns, in order"
		hostile  = "what a client sent cannot break the line"
		fails    = "what cannot be written is an error, until it can"
		hanging  = "a write that hangs is an error, and leaves no open intent"
		together = "concurrent callers get one line each, a finish after its intent"
	)
	for _, c := range []struct {
		name, check string
		broken      gateway.Audit
	}{
		{"swallows the error of an intent", fails, &crooked{intend: swallow}},
		{"swallows the error of a finish", fails, &crooked{finish: swallow}},
		{"swallows the error of a note", fails, &crooked{note: swallow}},
		{"never writes again", fails, all(func(a *Audit, ctx context.Context, r *gateway.Record) error {
			if err := a.take(r); err != nil {
				a.Fail = func(*gateway.Record) error { return err }
				return err
			}
			return nil
		})},
		{"writes what it refused", fails, &crooked{intend: func(a *Audit, ctx context.Context, r *gateway.Record) error {
			err := a.take(r)
			if err != nil {
				a.lines.Write(append(r.AppendJSON(nil), '\n'))
			}
			return err
		}}},
		{"drops intents", oneLine, &crooked{intend: func(*Audit, context.Context, *gateway.Record) error { return nil }}},
		{"writes later", oneLine, func() gateway.Audit {
			var kept *gateway.Record
			return &crooked{intend: func(_ *Audit, _ context.Context, r *gateway.Record) error { kept = r; return nil },
				finish: func(a *Audit, ctx context.Context, r *gateway.Record) error {
					return errors.Join(a.take(kept), a.take(r))
				}}
		}()},
		{"writes twice", oneLine, &crooked{finish: func(a *Audit, _ context.Context, r *gateway.Record) error {
			return errors.Join(a.take(r), a.take(r))
		}}},
		{"changes the record", oneLine, &crooked{note: func(a *Audit, _ context.Context, r *gateway.Record) error {
			err := a.take(r)
			r.Detail = ""
			return err
		}}},
		{"shortens the record", oneLine, &crooked{note: func(a *Audit, _ context.Context, r *gateway.Record) error {
			short := *r
			short.Identity = ""
			return a.take(&short)
		}}},
		{"unescapes", hostile, &crooked{written: func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`\n`), []byte("\n"))
		}}},
		{"obeys the context", "a cancelled caller is recorded", &crooked{intend: func(a *Audit, ctx context.Context, r *gateway.Record) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return a.take(r)
		}}},
		{"keeps the caller's record", "a record may be used again after the call", func() gateway.Audit {
			var kept []*gateway.Record
			return &crooked{
				note: func(_ *Audit, _ context.Context, r *gateway.Record) error { kept = append(kept, r); return nil },
				written: func([]byte) (b []byte) {
					for _, r := range kept {
						b = append(r.AppendJSON(b), '\n')
					}
					return b
				},
			}
		}()},
		{"puts finishes first", together, &crooked{written: func(b []byte) []byte {
			all := bytes.SplitAfter(b, []byte{'\n'})
			slices.Reverse(all)
			return bytes.Join(all, nil)
		}}},
		{"loses one of many", together, &crooked{written: func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] }}},
		{"acknowledges what hangs", hanging, &crooked{intend: swallow}},
		{"leaves the intent that it refused", hanging, &crooked{intend: func(a *Audit, _ context.Context, r *gateway.Record) error {
			err := a.take(r)
			if err != nil {
				a.mu.Lock()
				a.lines.Write(append(r.AppendJSON(nil), '\n'))
				a.mu.Unlock()
			}
			return err
		}, note: take}},
		{"never comes back", hanging, &crooked{note: func(a *Audit, _ context.Context, r *gateway.Record) error {
			if err := a.take(r); err != nil || r.Call == "c99" {
				return errors.New("still broken")
			}
			return nil
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := slices.IndexFunc(auditChecks, func(a auditCheck) bool { return a.name == c.check })
			if i < 0 {
				t.Fatalf("the suite has no check %q", c.check)
			}
			var r Recorder
			auditChecks[i].check(&r, c.broken)
			if len(r.Reports()) == 0 {
				t.Errorf("the check %q passes a sink that is wrong", c.check)
			}
		})
	}
}

func TestAuditFakeFollowsItsScript(t *testing.T) {
	wrong := errors.New("scripted")
	a := &Audit{Fail: func(r *gateway.Record) error {
		if r.Event == gateway.EventFinish {
			return wrong
		}
		return nil
	}}
	i, f := record(gateway.EventIntent, "c1"), record(gateway.EventFinish, "c1")
	if err := a.Intend(context.Background(), &i); err != nil {
		t.Error(err)
	}
	if err := a.Finish(context.Background(), &f); err != wrong {
		t.Errorf("Finish: %v", err)
	}
	if got := a.Records(); len(got) != 1 || got[0].Event != gateway.EventIntent {
		t.Errorf("records %+v; want the intent alone", got)
	}
}
