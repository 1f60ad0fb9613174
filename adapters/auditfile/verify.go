package auditfile

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"aduana/gateway"
)

// Report is what a sound file says.
type Report struct {
	Records int64
	Intents int64
	Open    []string // call ids of intents without a finish, in the order of the intents
	Head    string   // hash of the last line; 64 zeros for an empty file
	First   int64    // instant of the first record, Unix milliseconds; 0 for an empty file
	Last    int64    // of the last
}

// Broken says where a file first is not what was written.
type Broken struct {
	Line   int64 // from 1
	Offset int64 // of the line's first byte
	Reason string
}

func (b *Broken) Error() string {
	return fmt.Sprintf("audit chain broken at line %d (byte %d): %s", b.Line, b.Offset, b.Reason)
}

// Verify proves that a file is exactly what was written, line by line and byte by byte. The error is a *Broken for the first line
// that is not, and any other when r could not be read; the report then covers the lines before it. An empty file is sound.
// Memory is bounded by the longest line and the number of open intents.
func Verify(r io.Reader) (Report, error) {
	c, tail, err := scan(r)
	if err == nil && tail.n > 0 {
		err = &Broken{c.Records + 1, c.size, fmt.Sprintf(
			"the last line is incomplete: %d bytes without a newline (a process was stopped while it wrote; the next start records that)", tail.n)}
	}
	return c.report(), err
}

// chain is what has been proved so far.
type chain struct {
	Report
	size int64            // bytes of the complete lines
	open map[string]int64 // call id to the intent's line
}

// torn is what stands behind the last newline.
type torn struct {
	n      int64
	digest [sha256.Size]byte
}

func (c *chain) report() Report {
	r := c.Report
	for call := range c.open {
		r.Open = append(r.Open, call)
	}
	slices.SortFunc(r.Open, func(a, b string) int { return cmp.Compare(c.open[a], c.open[b]) })
	return r
}

func scan(r io.Reader) (*chain, torn, error) {
	c := &chain{Report: Report{Head: zeros}, open: map[string]int64{}}
	in := bufio.NewReaderSize(r, maxLine)
	h := sha256.New()
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return c, torn{int64(len(line)), sha256.Sum256(line)}, nil
		case err == bufio.ErrBufferFull:
			return c, torn{}, &Broken{c.Records + 1, c.size, fmt.Sprintf("no newline in %d bytes", maxLine)}
		case err != nil:
			return c, torn{}, err
		}
		if reason := c.add(h, line[:len(line)-1]); reason != "" {
			return c, torn{}, &Broken{c.Records + 1, c.size, reason}
		}
		c.size += int64(len(line))
	}
}

// The fixed end of a line: ,"prev":"<64>","hash":"<64>"}
const (
	hashPart = len(hashName) + hexSize + len(end)
	prevPart = len(prevName) + hexSize + len(`"`)
)

// add proves one line, without its newline, and gives the reason why it is not the next one.
func (c *chain) add(h hash.Hash, line []byte) string {
	if len(line) < len(`{"seq":1,`)+prevPart+hashPart {
		return "not a record: too short"
	}
	sealed, tail := line[:len(line)-hashPart], line[len(line)-hashPart:]
	if !bytes.HasPrefix(tail, []byte(hashName)) || !bytes.HasSuffix(tail, []byte(end)) {
		return "not a record: it does not end in its hash"
	}
	h.Reset()
	h.Write(sealed)
	var sum [sha256.Size]byte
	var want [hexSize]byte
	hex.Encode(want[:], h.Sum(sum[:0]))
	if !bytes.Equal(tail[len(hashName):len(hashName)+hexSize], want[:]) {
		return "its bytes do not give its hash: the line was changed"
	}
	rest, prev := sealed[:len(sealed)-prevPart], sealed[len(sealed)-prevPart:]
	if !bytes.HasPrefix(prev, []byte(prevName)) || prev[prevPart-1] != '"' {
		return "not a record: it does not name the line before it"
	}
	if string(prev[len(prevName):prevPart-1]) != c.Head {
		return "it does not follow the line before it: a line was removed, added or moved"
	}
	head := appendHead(nil, uint64(c.Records)+1)
	if !bytes.HasPrefix(rest, head) {
		return fmt.Sprintf("its number is not %d, or its format is not 1", c.Records+1)
	}
	rest = rest[len(head):]
	event, rest, ok := text(rest, `"event":"`)
	if !ok {
		return "it has no event"
	}
	call, rest, named := text(rest, `,"call":"`)
	instant, _, ok := text(rest, `,"at":"`)
	if !ok {
		return "it has no instant"
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z07:00", string(instant))
	if err != nil {
		return "its instant is none"
	}
	switch gateway.Event(event) {
	case gateway.EventIntent:
		if !named {
			return "an intent without a call id"
		}
		c.Intents++
		c.open[string(call)] = c.Records + 1
	case gateway.EventFinish:
		delete(c.open, string(call))
	case gateway.EventNote:
	default:
		return "its event is none that this version knows"
	}
	if c.Records++; c.Records == 1 {
		c.First = at.UnixMilli()
	}
	c.Last = at.UnixMilli()
	c.Head = string(want[:])
	return ""
}

// text reads a member whose text has no escapes, and gives what follows it.
func text(b []byte, name string) (value, rest []byte, ok bool) {
	after, ok := bytes.CutPrefix(b, []byte(name))
	if !ok {
		return nil, b, false
	}
	value, rest, ok = bytes.Cut(after, []byte{'"'})
	return value, rest, ok
}

// IsBroken reports whether an error of Verify or Open says that the file is not what was written, rather than that it could not
// be read.
func IsBroken(err error) bool {
	var b *Broken
	return errors.As(err, &b)
}
