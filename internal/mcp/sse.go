package mcp

import (
	"bytes"
	"errors"
	"io"
)

// ErrEventTooLarge ends a stream with an event over the limit. What follows cannot be trusted to begin at an event.
var ErrEventTooLarge = errors.New("an event of the stream is too large")

// EventReader reads an event stream (HTML Living Standard, 9.2.6) and gives the data of each event that is a message: those without
// a type and those of type "message". Others, comments, ids and retry times are passed over. Memory is bounded by the limit of one
// event, however the bytes come.
type EventReader struct {
	r      io.Reader
	max    int
	buf    []byte
	filled bool   // the last read took all of it
	unread []byte // inside buf
	err    error

	first  bool // no line has ended yet: a byte order mark may stand here
	skipLF bool // the line before ended with CR; an LF now belongs to it

	name  [9]byte // of the field that begins the line, up to the colon
	named int
	field field
	space bool // the next byte of the value may be the one blank that does not belong to it

	data    []byte
	hasData bool
	kind    []byte
}

type field uint8

const (
	unnamed field = iota // before the colon
	dataField
	kindField
	otherField
)

// NewEventReader reads events of at most limit bytes of data each.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, max: limit, first: true}
}

// Next gives the data of the next message; it is valid until the call after. io.EOF ends a stream; data without the blank line that
// closes its event was never an event and is dropped, as the standard says. Any other error is ErrEventTooLarge or the reader's.
func (e *EventReader) Next() ([]byte, error) {
	e.data, e.hasData, e.kind = e.data[:0], false, e.kind[:0]
	for {
		if len(e.unread) == 0 {
			if err := e.fill(); err != nil {
				return nil, err
			}
		}
		if e.skipLF {
			e.skipLF = false
			if e.unread[0] == '\n' {
				e.unread = e.unread[1:]
				continue
			}
		}
		end := bytes.IndexByte(e.unread, '\n')
		piece := e.unread
		if end >= 0 {
			piece = piece[:end]
		}
		if cr := bytes.IndexByte(piece, '\r'); cr >= 0 {
			end, piece = cr, piece[:cr]
		}
		if err := e.take(piece); err != nil {
			e.err, e.unread = err, nil
			return nil, err
		}
		if end < 0 {
			e.unread = nil
			continue
		}
		e.skipLF = e.unread[end] == '\r'
		e.unread = e.unread[end+1:]
		if e.endLine() {
			return e.data, nil
		}
	}
}

func (e *EventReader) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.buf == nil {
		e.buf = make([]byte, 4096)
	}
	if e.filled && len(e.buf) < 64<<10 { // much at once: fewer, larger reads
		e.buf = make([]byte, 4*len(e.buf))
	}
	for range 100 {
		n, err := e.r.Read(e.buf)
		e.filled = n == len(e.buf)
		e.unread = e.buf[:n]
		e.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	e.err = io.ErrNoProgress
	return e.err
}

// take adds a piece of the current line, without its end.
func (e *EventReader) take(p []byte) error {
	if e.field == unnamed {
		colon := bytes.IndexByte(p, ':')
		head := p
		if colon >= 0 {
			head = p[:colon]
		}
		// A name that does not fit is none that is known; one byte more than fits is enough to remember that.
		e.named += copy(e.name[min(e.named, len(e.name)):], head)
		if len(head) > 0 && e.named == len(e.name) {
			e.field = otherField
		}
		if colon < 0 {
			return nil
		}
		if e.field == unnamed {
			e.begin()
		}
		e.space = true
		p = p[colon+1:]
	}
	if len(p) == 0 {
		return nil
	}
	if e.space && p[0] == ' ' {
		p = p[1:]
	}
	e.space = false
	switch e.field {
	case dataField:
		if len(e.data)+len(p) > e.max {
			return ErrEventTooLarge
		}
		if need := len(e.data) + len(p); need > cap(e.data) {
			bigger := make([]byte, len(e.data), max(need, min(2*cap(e.data), e.max)))
			copy(bigger, e.data)
			e.data = bigger
		}
		e.data = append(e.data, p...)
	case kindField:
		if room := len("message") + 1 - len(e.kind); room > 0 { // more is a type that is not wanted
			e.kind = append(e.kind, p[:min(room, len(p))]...)
		}
	}
	return nil
}

// begin decides what the field is whose name is complete.
func (e *EventReader) begin() {
	name := e.name[:e.named]
	if e.first {
		name = bytes.TrimPrefix(name, []byte("\xEF\xBB\xBF"))
	}
	switch string(name) {
	case "data":
		e.field = dataField
		if e.hasData {
			e.data = append(e.data, '\n')
		}
		e.hasData = true
	case "event":
		e.field = kindField
		e.kind = e.kind[:0]
	default:
		e.field = otherField
	}
}

// endLine ends the line, and reports whether it was the blank one that completes a message.
func (e *EventReader) endLine() bool {
	blank := e.field == unnamed && (e.named == 0 || e.first && string(e.name[:e.named]) == "\xEF\xBB\xBF")
	if e.field == unnamed && !blank {
		e.begin() // a field without a colon has an empty value
	}
	e.field, e.named, e.space, e.first = unnamed, 0, false, false
	if !blank {
		return false
	}
	if e.hasData && (len(e.kind) == 0 || string(e.kind) == "message") {
		return true
	}
	e.data, e.hasData, e.kind = e.data[:0], false, e.kind[:0]
	return false
}
