package auditfile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"aduana/gateway"
	"aduana/internal/groupcommit"
)

// Open opens the file for appending, or makes it with mode 0600; its directory must exist. The clock dates the records that Open
// itself writes.
//
// An existing file is verified whole first. What a crash left is put on record, never silently dropped: an incomplete last line
// is cut off and its size and digest are noted; an intent without a finish gets one with the outcome outcome_unknown. A file
// that is broken anywhere else, that others may write to, or that another process writes to, is refused.
func Open(path string, clock gateway.Clock) (*File, error) {
	f, err := open(path, clock, func(f *os.File) disk { return f })
	if err != nil {
		return nil, fmt.Errorf("audit file %q: %w", path, err)
	}
	return f, nil
}

func open(path string, clock gateway.Clock, through func(*os.File) disk) (*File, error) {
	raw, err := openLocked(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, clock: clock, disk: through(raw), looked: time.Now()}
	if err := f.recover(raw); err != nil {
		raw.Close()
		return nil, err
	}
	f.queue = groupcommit.New(wait, f.commit, f.late)
	return f, nil
}

func (f *File) recover(raw *os.File) error {
	c, tail, err := scan(raw)
	if err != nil {
		if IsBroken(err) {
			err = fmt.Errorf("%w; keep the file as evidence, move it away, and start with a new one", err)
		}
		return err
	}
	f.seq, f.prev, f.size = uint64(c.Records), c.Head, c.size
	if tail.n > 0 {
		if err := f.replace(raw, tail); err != nil {
			return err
		}
	}
	var group []*entry
	for _, call := range c.report().Open {
		group = append(group, f.finish(call, gateway.OutcomeUnknown, gateway.MaybeSent,
			"the process ended before the outcome was known"))
	}
	for part := range slices.Chunk(group, 64) {
		if err := f.commit(part); err != nil {
			return err
		}
	}
	return nil
}

// replace puts a note in the place of torn bytes. It is written over them, and only then is the rest of them cut off: a crash in
// between leaves the rest as the next torn line, and at no moment is the file without both them and a note of them.
func (f *File) replace(raw *os.File, tail torn) error {
	r := gateway.Record{Event: gateway.EventNote, At: f.clock().UnixMilli(), Outcome: gateway.Started,
		Detail: fmt.Sprintf("recovered: %d torn bytes, sha256 %x", tail.n, tail.digest)}
	line, hash := seal(nil, f.seq+1, f.prev, r.AppendJSON(nil))
	over, err := os.OpenFile(f.path, os.O_WRONLY, 0) // a file that appends cannot write over
	if err != nil {
		return err
	}
	defer over.Close()
	mine, err := raw.Stat()
	if err != nil {
		return err
	}
	if there, err := over.Stat(); err != nil || !os.SameFile(mine, there) {
		return errors.New("it was replaced while it was opened; try again")
	}
	if _, err := over.WriteAt(line, f.size); err != nil {
		return err
	}
	f.seq, f.prev, f.size = f.seq+1, hash, f.size+int64(len(line))
	return over.Truncate(f.size)
}

// checkMode refuses what others could have written: a chain proves nothing against somebody who can write all of it anew.
func checkMode(path string, info os.FileInfo, refused os.FileMode, who string) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file; name a file, not a link to one")
	}
	if bad := info.Mode().Perm() & refused; bad != 0 {
		return fmt.Errorf("its mode %04o lets others %s it; run chmod 600 %q", info.Mode().Perm(), who, path)
	}
	return nil
}
