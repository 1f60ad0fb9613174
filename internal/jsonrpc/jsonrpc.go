// Package jsonrpc answers one question about bytes from outside: are they
// exactly one well-formed, unambiguous JSON-RPC 2.0 message, and where in them
// does each member stand?
//
// It never builds a tree and never re-encodes: it checks the bytes once,
// records offsets, and lets the caller change a few members by [Splice], so
// that everything else goes on byte for byte. It knows no method of MCP and
// decides nothing about a message; the only knowledge it takes from MCP are the
// member names that a second spelling must not imitate (see names.go).
//
// Start at [Message.Scan]; the rules themselves are in scan.go.
package jsonrpc

import (
	"fmt"
	"strconv"
)

// Error codes of JSON-RPC 2.0, section 5.1.
const (
	ParseError     = -32700 // the bytes are not JSON
	InvalidRequest = -32600 // JSON, but not one unambiguous message
)

// Error says why bytes were refused. It is the only error type that scans of
// this package return.
type Error struct {
	Code   int    // ParseError or InvalidRequest
	Offset int    // of the offence, in bytes from the start of what was given
	Reason string // what is wrong; holds at most 40 bytes of input, escaped
}

func (e *Error) Error() string {
	return fmt.Sprintf("json-rpc error %d at byte %d: %s", e.Code, e.Offset, e.Reason)
}

const (
	defaultBytes = 4 << 20
	defaultDepth = 64

	// maxDepth bounds Limits.Depth, because the scan recurses and the canonical
	// form may move each byte once per level.
	maxDepth = 256
)

// Limits bound one scan. The zero value, and any value that is not positive,
// means the strict defaults: 4 MiB and 64 levels.
type Limits struct {
	Bytes int // of the whole input
	Depth int // of objects and arrays open at once; values above 256 mean 256
}

func (l Limits) orDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	l.Depth = min(l.Depth, maxDepth)
	return l
}

// Kind is the type of a JSON value.
type Kind uint8

const (
	Invalid Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

func (k Kind) String() string {
	switch k {
	case Object:
		return "object"
	case Array:
		return "array"
	case String:
		return "string"
	case Number:
		return "number"
	case Bool:
		return "boolean"
	case Null:
		return "null"
	}
	return "invalid"
}

// Span is a half-open range of bytes in the input. The zero Span means absent.
type Span struct{ Start, End int }

// Member is one member of an object.
type Member struct {
	Key     string // with escapes resolved; a copy that outlives the input
	KeySpan Span   // of the name, with its quotes
	Value   Span   // without the white space around it
	Kind    Kind   // of the value
}

// Members are the members of one object in the order of the input.
type Members []Member

// Get finds the member with exactly this name.
func (m Members) Get(key string) (Member, bool) {
	for i := range m {
		if m[i].Key == key {
			return m[i], true
		}
	}
	return Member{}, false
}

// Element is one element of the list that ScanTolerant was told to walk.
type Element struct {
	Span Span
	Kind Kind
	Err  *Error // why this element alone must be withheld; nil if it is sound
}

// Form is what a message is for. The zero Form means that it is no message.
type Form uint8

const (
	_            Form = iota
	Request           // method and id
	Notification      // method, no id
	Response          // result or error
)

// Message is one scanned message. Its zero value is ready for Scan, and a
// Message may be scanned again and again: it keeps its storage, so that
// scanning settles at no allocation. It must not be copied or shared while in
// use, and Raw must not be changed as long as the spans are.
type Message struct {
	Raw        []byte
	Top        Members // of the envelope
	Params     Members // of params, if it is an object
	Meta       Members // of params._meta, if it is an object
	Result     Members // of result, if it is an object
	ResultMeta Members // of result._meta, if it is an object
	Error      Members // of error

	// List holds every element of the list named in ScanTolerant, in order.
	List []Element

	form   Form
	id     Span
	method Span
	s      scanner
}

// Scan checks raw against every rule of this package and records where its
// members stand. On error the message is empty, except that ID still answers
// if the id itself is beyond doubt, so that the refusal can be addressed.
func (m *Message) Scan(raw []byte, lim Limits) error {
	return m.scan(raw, lim, "")
}

// ScanTolerant scans a message like Scan, but if result has an array called
// listKey, an element of it that is unsound in itself (a duplicate member name,
// invalid UTF-8, a lone surrogate, excess depth, an oversized number) does not
// refuse the message: it is marked in List, where every element is recorded.
// What leaves the boundaries of an element in doubt (brackets, quotes, any
// other offence against the JSON grammar) refuses the message, as do more than
// 1,024 unsound elements, or 131,072 of any kind. Unsound elements stay in Raw:
// the caller must cut them out before the message goes on.
func (m *Message) ScanTolerant(raw []byte, lim Limits, listKey string) error {
	return m.scan(raw, lim, listKey)
}

func (m *Message) scan(raw []byte, lim Limits, listKey string) error {
	m.Reset()
	lim = lim.orDefaults()
	s := &m.s
	s.start(raw, lim.Depth)
	s.m, s.listKey = m, listKey
	defer s.release()

	err := s.message(lim.Bytes)
	if err == nil {
		err = m.envelope(raw)
	}
	if err != nil {
		id := m.id
		m.Reset()
		if id != (Span{}) {
			m.Raw, m.id = raw, id
		}
		// Not "return err": a nil *Error in an error is not nil.
		return err
	}
	m.Raw = raw
	return nil
}

// Reset empties the message and keeps its storage, unless a message out of the
// ordinary has made that large.
func (m *Message) Reset() {
	m.Raw, m.form, m.id, m.method = nil, 0, Span{}, Span{}
	for _, ms := range [...]*Members{&m.Top, &m.Params, &m.Meta, &m.Result, &m.ResultMeta, &m.Error} {
		*ms = ms.reuse()
	}
	if cap(m.List) > 4096 {
		m.List = nil
	}
	clear(m.List) // lets go of the errors
	m.List = m.List[:0]
}

func (m Members) reuse() Members {
	if cap(m) > 256 {
		return nil
	}
	// Keys stay in the storage on purpose: the next message most likely has the
	// same ones, and add takes them from there instead of copying again.
	for i := range m {
		if len(m[i].Key) > 64 {
			m[i].Key = ""
		}
	}
	return m[:0]
}

// add appends a member named key, with a string that is shared with what stood
// in this place before, or with the program, where possible.
func (m Members) add(key []byte, keySpan, value Span, kind Kind) Members {
	n := len(m)
	if n < cap(m) {
		m = m[:n+1]
	} else {
		m = append(m, Member{})
	}
	if m[n].Key != string(key) {
		m[n].Key = intern(key)
	}
	m[n].KeySpan, m[n].Value, m[n].Kind = keySpan, value, kind
	return m
}

// envelope checks the rules of JSON-RPC 2.0, sections 4 and 5, as narrowed by
// MCP: params is an object, the id of a request is a string or an integer.
func (m *Message) envelope(raw []byte) error {
	var version, id, method, params, result, errm Member
	for _, t := range m.Top {
		switch t.Key {
		case "jsonrpc":
			version = t
		case "id":
			id = t
		case "method":
			method = t
		case "params":
			params = t
		case "result":
			result = t
		case "error":
			errm = t
		}
	}
	goodID := id.Kind == String || id.Kind == Number && integer(raw[id.Value.Start:id.Value.End])
	if err := m.s.err(); err != nil {
		// The id may go into the refusal, unless it is part of the offence.
		if goodID && !m.s.unsure {
			if _, bad := ScanValue(raw[id.Value.Start:id.Value.End], Limits{Bytes: len(raw)}); bad == nil {
				m.id = id.Value
			}
		}
		return err
	}
	if goodID {
		m.id = id.Value
	}
	bad := func(t Member, reason string) error {
		return &Error{InvalidRequest, t.Value.Start, reason}
	}

	// The bytes, not the decoded text: nobody honest writes "2\u002e0".
	if string(raw[version.Value.Start:version.Value.End]) != `"2.0"` {
		return bad(version, `member "jsonrpc" must be "2.0"`)
	}
	if params.Kind != Invalid && params.Kind != Object {
		return bad(params, `member "params" must be an object, not `+params.Kind.String())
	}
	switch {
	case method.Kind != Invalid && (result.Kind != Invalid || errm.Kind != Invalid):
		return bad(method, `"method" beside "result" or "error": neither a request nor a response`)
	case method.Kind != Invalid:
		if method.Kind != String || method.Value.End-method.Value.Start <= 2 {
			return bad(method, `member "method" must be a string that is not empty`)
		}
		if id.Kind == Invalid {
			m.form = Notification
		} else if goodID {
			m.form = Request
		} else {
			return bad(id, `member "id" of a request must be a string or an integer, without fraction or exponent`)
		}
		m.method = method.Value
		return nil
	case result.Kind != Invalid && errm.Kind != Invalid:
		return bad(errm, `both "result" and "error": a response has exactly one`)
	case result.Kind == Invalid && errm.Kind == Invalid:
		return &Error{InvalidRequest, 0, `none of "method", "result" and "error": not a JSON-RPC message`}
	case params.Kind != Invalid:
		return bad(params, `"params" beside "result" or "error": neither a request nor a response`)
	}

	if result.Kind != Invalid {
		if !goodID {
			return bad(id, `member "id" of a result must be a string or an integer`)
		}
	} else {
		// An error may answer a message whose id could not be read: null in
		// JSON-RPC 2.0 section 5, absent in the MCP schema since 2025-11-25.
		if !goodID && id.Kind != Null && id.Kind != Invalid {
			return bad(id, `member "id" of an error must be a string, an integer or null`)
		}
		if errm.Kind != Object {
			return bad(errm, `member "error" must be an object, not `+errm.Kind.String())
		}
		if c, _ := m.Error.Get("code"); c.Kind != Number || !integer(raw[c.Value.Start:c.Value.End]) {
			return bad(errm, `member "code" of an error must be an integer`)
		}
		if t, _ := m.Error.Get("message"); t.Kind != String {
			return bad(errm, `member "message" of an error must be a string`)
		}
	}
	m.form = Response
	return nil
}

// Form says what the message is for; zero if there is none.
func (m *Message) Form() Form { return m.form }

// ID returns the bytes of the id as they stand in Raw, or nil if the message
// has none or null.
func (m *Message) ID() []byte {
	if m.id == (Span{}) {
		return nil
	}
	return m.Bytes(m.id)
}

// Method returns the decoded method, or "" for a response.
func (m *Message) Method() string {
	if m.method == (Span{}) {
		return ""
	}
	s, err := DecodeString(m.Bytes(m.method))
	if err != nil {
		return "" // cannot happen: the scan has checked the string
	}
	return s
}

// Bytes returns the part of Raw that s covers, with its capacity cut so that an
// append cannot write into the message. It is nil if s does not lie in Raw.
func (m *Message) Bytes(s Span) []byte {
	if s.Start < 0 || s.Start > s.End || s.End > len(m.Raw) {
		return nil
	}
	return m.Raw[s.Start:s.End:s.End]
}

// String returns the decoded text of a member whose value is a string.
func (m *Message) String(t Member) (string, error) {
	if t.Kind != String {
		return "", fmt.Errorf("member %s must be a string, not %s", echo([]byte(t.Key)), t.Kind)
	}
	return DecodeString(m.Bytes(t.Value))
}

// integer reports whether a number that the scan has accepted is written
// without fraction and exponent.
func integer(number []byte) bool {
	for _, c := range number {
		if c == '.' || c|0x20 == 'e' {
			return false
		}
	}
	return true
}

// echo quotes input for a message to people: at most 40 bytes, all of them
// printable ASCII.
func echo(b []byte) string {
	const room = 40
	cut := len(b) > room
	q := strconv.QuoteToASCII(string(b[:min(len(b), room)]))
	if len(q) <= room && !cut {
		return q
	}
	return q[:min(len(q)-1, room-4)] + `..."`
}
