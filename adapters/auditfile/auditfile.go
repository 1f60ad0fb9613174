// Package auditfile answers "can this be proved later": it appends audit records to one file in which every line holds the hash
// of the line before it, so that a change anywhere is found, and it proves or refutes such a file.
//
// It decides nothing and shortens nothing: what a record holds is the gateway's business. A line is
//
//	{"seq":7,<members of the record>,"prev":"<hash of line 6>","hash":"<hash of this line>"}
//
// where a hash is SHA-256, in lower-case hex, over the exact bytes of the line before `,"hash"`. The first line begins with
// {"format":1,"seq":1, and its prev is 64 zeros. What a chain cannot show is that its end is missing: keep the head that Verify
// reports elsewhere to see that.
//
// A record is on its way to the disk when a call returns: it survives the end of this process, however sudden, but not the loss
// of power. Start at Open, then File.commit; reading back is in verify.go, what happens after a crash in recover.go.
package auditfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"aduana/gateway"
	"aduana/internal/groupcommit"
)

const (
	// wait is how long a caller waits for its record: the bound of gateway.Audit.
	wait = 250 * time.Millisecond

	// lookEvery is how often the writer makes sure that the path still names the file that it writes, and that nobody else
	// wrote to it. A log that was moved away would otherwise be "written" for ever.
	lookEvery = time.Second

	// maxLine bounds one line, so that reading a file back is bounded too. A record that is larger is refused.
	maxLine = 256 << 10

	format   = `{"format":1,"seq":1,`
	prevName = `,"prev":"`
	hashName = `,"hash":"`
	end      = `"}`
	hexSize  = 2 * sha256.Size

	// zeros is the prev of the first line.
	zeros = "0000000000000000000000000000000000000000000000000000000000000000"
)

// disk is what File needs of an *os.File that was opened for appending.
type disk interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// entry is one record on its way to the writer.
type entry struct {
	body   []byte // the record's JSON
	call   string
	intent bool
}

// File implements gateway.Audit. One goroutine numbers, chains and writes; records that come together are written together.
type File struct {
	path  string
	clock gateway.Clock
	queue *groupcommit.Queue[entry]

	// The rest belongs to the writer's goroutine.
	disk   disk
	seq    uint64 // of the last line
	prev   string // its hash
	size   int64  // up to the end of it
	dirty  bool   // bytes may stand behind size
	looked time.Time
	buf    []byte
}

// Intend implements gateway.Audit. If the call gave up and the record reached the disk all the same, a finish that says so
// follows it there.
func (f *File) Intend(_ context.Context, r *gateway.Record) error {
	return f.append(r, gateway.EventIntent)
}

// Finish implements gateway.Audit.
func (f *File) Finish(_ context.Context, r *gateway.Record) error {
	return f.append(r, gateway.EventFinish)
}

// Note implements gateway.Audit.
func (f *File) Note(_ context.Context, r *gateway.Record) error {
	return f.append(r, gateway.EventNote)
}

// FinishLater records an outcome without waiting for it. It stands before every record that is handed in afterwards, so that an
// intent which is on record shows that the outcomes before it are too. While the disk fails, outcomes are kept and come first
// when it works again.
func (f *File) FinishLater(_ context.Context, r *gateway.Record) error {
	t, err := f.ticket(r, gateway.EventFinish)
	if err == nil {
		err = f.named(f.queue.Post(t))
	}
	return err
}

func (f *File) append(r *gateway.Record, want gateway.Event) error {
	t, err := f.ticket(r, want)
	if err == nil {
		err = f.named(f.queue.Do(t))
	}
	return err
}

func (f *File) named(err error) error {
	if err != nil {
		return fmt.Errorf("audit file %q: %w", f.path, err)
	}
	return nil
}

// ticket encodes a record for the writer.
func (f *File) ticket(r *gateway.Record, want gateway.Event) (*groupcommit.Ticket[entry], error) {
	// Recovery pairs intents with finishes by these two, so a record without them must not get in.
	if r.Event != want {
		return nil, fmt.Errorf("audit file %q: the event of a record is %q, and must be %q here", f.path, r.Event, want)
	}
	if !plain(r.Call) || (r.Call == "" && want != gateway.EventNote) {
		return nil, fmt.Errorf("audit file %q: a %s needs a call id of up to 128 letters, digits, '-', '_', '.' or ':'; it has %q",
			f.path, want, r.Call)
	}
	t := f.queue.Ticket()
	if cap(t.Item.body) > maxLine/4 {
		t.Item.body = nil // one large record must not make a pooled buffer large for ever
	}
	t.Item.body = r.AppendJSON(t.Item.body[:0])
	t.Item.call, t.Item.intent = r.Call, want == gateway.EventIntent
	if n := len(t.Item.body); n > maxLine-1024 {
		f.queue.Drop(t)
		return nil, fmt.Errorf("audit file %q: a record of %d bytes is over the bound of %d", f.path, n, maxLine-1024)
	}
	return t, nil
}

// plain reports whether a call id stands in JSON as it is, so that reading back need not undo escapes.
func plain(id string) bool {
	if len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("-_.:", c) < 0 {
			return false
		}
	}
	return true
}

// commit writes a group of records as lines, with one write. On an error nothing of the group counts: the next commit first cuts
// off whatever got onto the disk, and as long as that fails, nothing is written.
func (f *File) commit(group []*entry) error {
	if now := time.Now(); now.Sub(f.looked) >= lookEvery {
		if err := f.look(); err != nil {
			return err
		}
		f.looked = now
	}
	if f.dirty {
		if err := f.disk.Truncate(f.size); err != nil {
			return fmt.Errorf("cutting off a record that was written in part: %w", err)
		}
		f.dirty = false
	}
	if cap(f.buf) > 4*maxLine {
		f.buf = nil
	}
	f.buf = f.buf[:0]
	seq, prev := f.seq, f.prev
	for _, e := range group {
		seq++
		f.buf, prev = seal(f.buf, seq, prev, e.body)
	}
	// Appended, not written at an offset: should somebody empty the file meanwhile, no hole must make its size right again, or
	// look would never see it.
	if _, err := f.disk.Write(f.buf); err != nil {
		f.dirty = true
		f.looked = time.Time{}
		return err
	}
	f.seq, f.prev, f.size = seq, prev, f.size+int64(len(f.buf))
	return nil
}

// seal appends a record as a line, and gives the line's hash.
func seal(dst []byte, seq uint64, prev string, body []byte) ([]byte, string) {
	start := len(dst)
	dst = appendHead(dst, seq)
	dst = append(dst, body[1:len(body)-1]...)
	dst = append(append(dst, prevName...), prev...)
	dst = append(dst, '"')
	sum := sha256.Sum256(dst[start:])
	dst = append(dst, hashName...)
	at := len(dst)
	dst = hex.AppendEncode(dst, sum[:])
	hash := string(dst[at:])
	return append(dst, end+"\n"...), hash
}

func appendHead(dst []byte, seq uint64) []byte {
	if seq == 1 {
		return append(dst, format...)
	}
	return append(strconv.AppendUint(append(dst, `{"seq":`...), seq, 10), ',')
}

// look refuses to go on when the file is no longer where it was, or not as this process left it.
func (f *File) look() error {
	mine, err := f.disk.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(f.path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && !os.SameFile(mine, there)) {
		return errors.New("the file was moved or removed while it was written; put it back, or restart to begin a new one")
	}
	if err != nil {
		return err
	}
	if mine.Size() != f.size && !f.dirty {
		return fmt.Errorf("the file has %d bytes and should have %d: something else writes to it; stop that, verify the file, restart",
			mine.Size(), f.size)
	}
	return nil
}

// late runs when the record of an intent reached the disk after its caller gave up: the caller did not call, and the log says so.
func (f *File) late(e *entry) {
	if !e.intent {
		return
	}
	// If this cannot be written, the intent stays open, and the next start closes it as unknown.
	_ = f.commit([]*entry{f.finish(e.call, gateway.AuditUnavailable, gateway.NotSent,
		"the record took too long, so the call was not made")})
}

func (f *File) finish(call string, o gateway.Outcome, s gateway.Sent, detail string) *entry {
	r := gateway.Record{Event: gateway.EventFinish, Call: call, At: f.clock().UnixMilli(), Outcome: o, Sent: s, Detail: detail}
	return &entry{body: r.AppendJSON(nil), call: call}
}

// Close writes what is queued and gives the file free.
func (f *File) Close() error {
	if err := f.queue.Close(); err != nil {
		return fmt.Errorf("audit file %q: %w", f.path, err)
	}
	return f.disk.Close()
}

var _ gateway.Audit = (*File)(nil)
