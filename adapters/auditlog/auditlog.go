// Package auditlog answers "what happened, for whoever collects this process's output": it writes each audit record as one line of
// JSON to a stream, in practice standard error. The lines have no numbers and no chain, because a stream cannot be read back; who
// needs proof uses a file.
//
// It decides nothing and shortens nothing. Start at New.
package auditlog

import (
	"context"
	"fmt"
	"io"
	"time"

	"aduana/gateway"
	"aduana/internal/groupcommit"
)

// wait is how long a caller waits for its record: the bound of gateway.Audit.
const wait = 250 * time.Millisecond

// maxRecord bounds what one call can put into a collector.
const maxRecord = 256 << 10

type entry struct {
	line   []byte
	call   string
	intent bool
}

// Log implements gateway.Audit. One goroutine writes; records that come together are written together.
type Log struct {
	out   io.Writer
	clock gateway.Clock
	queue *groupcommit.Queue[entry]

	// The rest belongs to the writer's goroutine.
	torn bool // a failed write may have left part of a line
	buf  []byte
}

// New starts a log on a stream that nothing else writes lines to at the same time, unless it writes whole lines at once. The clock
// dates the records that the log itself writes.
func New(out io.Writer, clock gateway.Clock) *Log {
	l := &Log{out: out, clock: clock}
	l.queue = groupcommit.New(wait, l.commit, l.late)
	return l
}

// Intend implements gateway.Audit. If the call gave up and the record went out all the same, a finish that says so follows it.
func (l *Log) Intend(_ context.Context, r *gateway.Record) error {
	return l.append(r, gateway.EventIntent)
}

// Finish implements gateway.Audit.
func (l *Log) Finish(_ context.Context, r *gateway.Record) error {
	return l.append(r, gateway.EventFinish)
}

// Note implements gateway.Audit.
func (l *Log) Note(_ context.Context, r *gateway.Record) error {
	return l.append(r, gateway.EventNote)
}

func (l *Log) append(r *gateway.Record, want gateway.Event) error {
	if r.Event != want {
		return fmt.Errorf("audit log: the event of a record is %q, and must be %q here", r.Event, want)
	}
	t := l.queue.Ticket()
	if cap(t.Item.line) > maxRecord/4 {
		t.Item.line = nil // one large record must not make a pooled buffer large for ever
	}
	t.Item.line = append(r.AppendJSON(t.Item.line[:0]), '\n')
	t.Item.call, t.Item.intent = r.Call, want == gateway.EventIntent
	if n := len(t.Item.line); n > maxRecord {
		l.queue.Drop(t)
		return fmt.Errorf("audit log: a record of %d bytes is over the bound of %d", n, maxRecord)
	}
	if err := l.queue.Do(t); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// commit writes a group with one write. What a failed write let out cannot be taken back; the next one begins on a line of its own,
// so that a reader loses the torn line and no other.
func (l *Log) commit(group []*entry) error {
	if cap(l.buf) > 4*maxRecord {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	if l.torn {
		l.buf = append(l.buf, '\n')
	}
	for _, e := range group {
		l.buf = append(l.buf, e.line...)
	}
	n, err := l.out.Write(l.buf)
	if err == nil && n != len(l.buf) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		l.torn = l.buf[n-1] != '\n'
	}
	return err
}

// late runs when the record of an intent went out after its caller gave up: the caller did not call, and the log says so.
func (l *Log) late(e *entry) {
	if !e.intent {
		return
	}
	r := gateway.Record{Event: gateway.EventFinish, Call: e.call, At: l.clock().UnixMilli(), Outcome: gateway.AuditUnavailable,
		Sent: gateway.NotSent, Detail: "the record took too long, so the call was not made"}
	_ = l.commit([]*entry{{line: append(r.AppendJSON(nil), '\n')}}) // there is nobody left to tell
}

// Close writes what is queued. It does not close the stream.
func (l *Log) Close() error {
	if err := l.queue.Close(); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

var _ gateway.Audit = (*Log)(nil)
