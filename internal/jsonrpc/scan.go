package jsonrpc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// Longer numbers are valid JSON, but turn small inputs into large work in
	// whoever computes with them: 1e1000000000 is twelve bytes.
	maxDigits   = 4096
	maxExponent = 10000

	// Up to this many members, comparing each name with all before it costs less
	// than sorting.
	pairwise = 32

	maxUnsound = 1024

	// What is recorded costs many times the bytes that it stands for: "0," is an
	// element and `"a":0,` a member of some 60 bytes each. Beyond these the
	// message is refused, and nothing more is kept of it.
	maxMembers  = 4096
	maxElements = 1 << 17
)

// level says which object is being scanned, as far as that matters.
type level uint8

const (
	inner level = iota // checked, not recorded
	top
	params
	meta
	result
	resultMeta
	errorObject
	list
)

func (l level) String() string {
	switch l {
	case top:
		return "the envelope"
	case params:
		return "params"
	case meta:
		return "params._meta"
	}
	return "an object"
}

// name is one member name of an object that is still open.
type name struct {
	hash  uint64
	at    int // in raw, after the quote
	n     int // length of the decoded name
	arena int // one more than its place in scanner.arena; 0: it stands in raw as it is
}

// scanner walks JSON once. An offence after which the boundaries of values are
// in doubt is hard and ends the walk (position -1). Any other is soft: the
// first is kept and the walk goes on, which is what lets a single element of a
// list be withheld and lets a refusal carry the id of the request.
type scanner struct {
	raw   []byte
	depth int

	names []name // of all open objects, innermost last
	arena []byte // decoded names that had escapes
	open  []byte // closing brackets awaited in a part that is too deep

	hard, soft Error
	unsure     bool // a name of the envelope is ambiguous

	m       *Message // where to record; nil: only check
	part    bool     // a value that was admitted before is taken apart: what it may hold was decided then
	listKey string
	unsound int
}

func (s *scanner) start(raw []byte, depth int) {
	s.raw, s.depth = raw, depth
	s.names, s.arena, s.open = s.names[:0], s.arena[:0], s.open[:0]
	s.hard, s.soft, s.unsure, s.unsound = Error{}, Error{}, false, 0
}

// release lets go of the input, and of storage that one large message needed.
func (s *scanner) release() {
	s.raw, s.m, s.listKey, s.part = nil, nil, "", false
	if cap(s.names) > 1024 {
		s.names = nil
	}
	if cap(s.arena) > 16<<10 {
		s.arena = nil
	}
	if cap(s.open) > 16<<10 {
		s.open = nil
	}
}

// message scans one object that fills the input. Soft offences stay in s.soft.
func (s *scanner) message(limit int) error {
	i, err := s.first(limit)
	if err != nil {
		return err
	}
	switch s.raw[i] {
	case '[':
		return &Error{InvalidRequest, i, "an array (batch) is not accepted: send one message"}
	case '{':
	default:
		if _, k := s.whole(i, inner); k != Invalid {
			return &Error{InvalidRequest, i, "a message must be an object, not " + k.String()}
		}
		return s.failure()
	}
	if _, k := s.whole(i, top); k == Invalid {
		return s.failure()
	}
	return nil
}

// first finds where the value starts.
func (s *scanner) first(limit int) (int, error) {
	if len(s.raw) > limit {
		return 0, &Error{InvalidRequest, limit, strconv.Itoa(len(s.raw)) + " bytes exceed the limit of " + strconv.Itoa(limit)}
	}
	if bytes.HasPrefix(s.raw, []byte("\xef\xbb\xbf")) {
		return 0, &Error{InvalidRequest, 0, "a byte order mark is not accepted"}
	}
	i := s.space(0)
	if i == len(s.raw) {
		return 0, &Error{ParseError, i, "no value"}
	}
	return i, nil
}

// whole scans the value at i and demands that nothing but space follows.
func (s *scanner) whole(i int, lv level) (Span, Kind) {
	end, kind := s.value(i, 0, lv)
	if end < 0 {
		return Span{}, Invalid
	}
	if rest := s.space(end); rest < len(s.raw) {
		s.fail(rest, "more input after the value: ")
		return Span{}, Invalid
	}
	return Span{i, end}, kind
}

func (s *scanner) failure() error {
	if s.hard.Code == 0 {
		return nil
	}
	e := s.hard
	return &e
}

// fail ends the walk. A reason that ends in a space is completed with the byte
// at the place.
func (s *scanner) fail(at int, reason string) int {
	if reason[len(reason)-1] == ' ' {
		if at < len(s.raw) {
			_, n := utf8.DecodeRune(s.raw[at:])
			reason += echo(s.raw[at : at+n])
		} else {
			reason += "end of input"
		}
	}
	s.hard = Error{ParseError, at, reason}
	return -1
}

// note keeps a soft offence, if it is the first, with the input it is about.
// The reason is put together only then: input that offends with every byte must
// not cost a string for each.
func (s *scanner) note(code, at int, before string, in []byte, after string) {
	if s.soft.Code != 0 {
		return
	}
	if in != nil {
		before += echo(in)
	}
	s.soft = Error{code, at, before + after}
}

func (s *scanner) space(i int) int {
	for i < len(s.raw) && (s.raw[i] == ' ' || s.raw[i] == '\n' || s.raw[i] == '\r' || s.raw[i] == '\t') {
		i++
	}
	return i
}

// value scans the value that starts at i, inside depth open containers, and
// returns where it ends.
func (s *scanner) value(i, depth int, lv level) (int, Kind) {
	if i >= len(s.raw) {
		return s.fail(i, "want a value, not "), Invalid
	}
	switch c := s.raw[i]; {
	case c == '"':
		end, _ := s.text(i)
		return end, String
	case c == '{':
		return s.object(i, depth+1, lv), Object
	case c == '[':
		return s.array(i, depth+1, lv), Array
	case c == '-' || '0' <= c && c <= '9':
		return s.number(i), Number
	case c == 't':
		return s.word(i, "true"), Bool
	case c == 'f':
		return s.word(i, "false"), Bool
	case c == 'n':
		return s.word(i, "null"), Null
	}
	return s.fail(i, "want a value, not "), Invalid
}

func (s *scanner) word(i int, w string) int {
	if len(s.raw)-i < len(w) || string(s.raw[i:i+len(w)]) != w {
		return s.fail(i, "want a value, not ")
	}
	return i + len(w)
}

func (s *scanner) object(i, depth int, lv level) int {
	if depth > s.depth {
		return s.tooDeep(i)
	}
	base, arena := len(s.names), len(s.arena)
	i = s.space(i + 1)
	if i < len(s.raw) && s.raw[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(s.raw) || s.raw[i] != '"' {
			return s.fail(i, "want a member name in double quotes, not ")
		}
		key := Span{Start: i}
		var escaped bool
		if key.End, escaped = s.text(i); key.End < 0 {
			return -1
		}
		n := s.name(key.Start+1, key.End-1, escaped)
		if len(s.names)-base < pairwise {
			for j := base; j < len(s.names); j++ {
				if s.names[j].hash == n.hash && bytes.Equal(s.bytes(s.names[j]), s.bytes(n)) {
					s.duplicate(s.names[j], n, lv)
					break
				}
			}
		}
		s.names = append(s.names, n)

		i = s.space(key.End)
		if i >= len(s.raw) || s.raw[i] != ':' {
			return s.fail(i, "want a colon after the member name, not ")
		}
		i = s.space(i + 1)
		if lv == inner {
			if i, _ = s.value(i, depth, inner); i < 0 {
				return -1
			}
		} else {
			start := i
			var kind Kind
			if i, kind = s.value(i, depth, s.enter(lv, n)); i < 0 {
				return -1
			}
			s.record(lv, n, key, Span{start, i}, kind)
		}

		i = s.space(i)
		if i < len(s.raw) && s.raw[i] == ',' {
			i = s.space(i + 1)
			continue
		}
		if i >= len(s.raw) || s.raw[i] != '}' {
			return s.fail(i, "want a comma or a closing brace, not ")
		}
		break
	}
	if len(s.names)-base > pairwise {
		s.duplicates(s.names[base:], lv)
	}
	s.names, s.arena = s.names[:base], s.arena[:arena]
	return i + 1
}

// enter says what the value of member n is, in an object of level lv.
func (s *scanner) enter(lv level, n name) level {
	key := s.bytes(n)
	switch lv {
	case top:
		switch string(key) {
		case "params":
			return params
		case "result":
			return result
		case "error":
			return errorObject
		}
	case params:
		if string(key) == "_meta" {
			return meta
		}
	case result:
		if string(key) == "_meta" {
			return resultMeta
		}
		if s.listKey != "" && string(key) == s.listKey {
			return list
		}
	}
	return inner
}

func (s *scanner) record(lv level, n name, key, value Span, kind Kind) {
	if s.m == nil {
		return
	}
	var to *Members
	switch lv {
	case top:
		to = &s.m.Top
	case params:
		to = &s.m.Params
	case meta:
		to = &s.m.Meta
	case result:
		to = &s.m.Result
	case resultMeta:
		to = &s.m.ResultMeta
	case errorObject:
		to = &s.m.Error
	default:
		return
	}
	text := s.bytes(n)
	if real := imitates(lv, text); real != "" {
		s.unsure = s.unsure || lv == top
		s.note(InvalidRequest, key.Start, "member ", text, " of "+lv.String()+" imitates "+strconv.Quote(real)+": only the exact spelling is accepted")
	}
	if len(*to) == maxMembers && !s.part {
		s.note(InvalidRequest, key.Start, "more than "+strconv.Itoa(maxMembers)+" members in one object of the message", nil, "")
		return
	}
	*to = to.add(text, key, value, kind)
}

func (s *scanner) array(i, depth int, lv level) int {
	if depth > s.depth {
		return s.tooDeep(i)
	}
	i = s.space(i + 1)
	if i < len(s.raw) && s.raw[i] == ']' {
		return i + 1
	}
	for {
		if lv == list && s.m != nil {
			i = s.element(i, depth)
		} else {
			i, _ = s.value(i, depth, inner)
		}
		if i < 0 {
			return -1
		}
		i = s.space(i)
		if i < len(s.raw) && s.raw[i] == ',' {
			i = s.space(i + 1)
			continue
		}
		if i >= len(s.raw) || s.raw[i] != ']' {
			return s.fail(i, "want a comma or a closing bracket, not ")
		}
		return i + 1
	}
}

// element scans one element of the tolerated list and keeps its soft offence
// apart from those of the message.
func (s *scanner) element(i, depth int) int {
	if s.unsound > maxUnsound || len(s.m.List) > maxElements {
		end, _ := s.value(i, depth, inner) // the message is lost: no memory for it
		return end
	}
	before := s.soft
	s.soft = Error{}
	end, kind := s.value(i, depth, inner)
	own := s.soft
	s.soft = before
	if end < 0 {
		return -1
	}
	e := Element{Span: Span{i, end}, Kind: kind}
	if own.Code != 0 {
		e.Err = &own
		if s.unsound++; s.unsound == maxUnsound+1 {
			s.note(InvalidRequest, i, "more than "+strconv.Itoa(maxUnsound)+" unsound elements in the list", nil, "")
		}
	}
	if s.m.List = append(s.m.List, e); len(s.m.List) == maxElements+1 {
		s.note(InvalidRequest, i, "more than "+strconv.Itoa(maxElements)+" elements in the list", nil, "")
	}
	return end
}

// tooDeep notes the excess and finds the end of the value at i by brackets and
// strings alone, without recursion.
func (s *scanner) tooDeep(i int) int {
	s.note(InvalidRequest, i, "nested deeper than the limit of ", nil, strconv.Itoa(s.depth)+" levels")
	s.open = s.open[:0]
	for i < len(s.raw) {
		switch c := s.raw[i]; c {
		case '"':
			if i, _ = s.text(i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			s.open = append(s.open, c+2) // '}' and ']' in ASCII
		case '}', ']':
			last := len(s.open) - 1
			if s.open[last] != c {
				return s.fail(i, "unexpected bracket ")
			}
			if s.open = s.open[:last]; last == 0 {
				return i + 1
			}
		}
		i++
	}
	return s.fail(i, "want a closing bracket, not ")
}

func (s *scanner) number(i int) int {
	start := i
	if s.raw[i] == '-' {
		i++
	}
	whole := i
	i = s.digits(i)
	if i == whole || s.raw[whole] == '0' && i > whole+1 {
		if i > whole {
			i = whole + 1
		}
		return s.fail(i, "malformed number: unexpected ")
	}
	digits := i - whole
	if i < len(s.raw) && s.raw[i] == '.' {
		from := i + 1
		if i = s.digits(from); i == from {
			return s.fail(i, "want a digit after the decimal point, not ")
		}
		digits += i - from
	}
	exponent := 0
	if i < len(s.raw) && s.raw[i]|0x20 == 'e' {
		i++
		if i < len(s.raw) && (s.raw[i] == '+' || s.raw[i] == '-') {
			i++
		}
		from := i
		if i = s.digits(from); i == from {
			return s.fail(i, "want a digit in the exponent, not ")
		}
		digits += i - from
		for _, c := range s.raw[from:i] {
			exponent = min(exponent*10+int(c-'0'), maxExponent+1)
		}
	}
	if digits > maxDigits {
		s.note(InvalidRequest, start, "number with too many digits: ", s.raw[start:i], "")
	}
	if exponent > maxExponent {
		s.note(InvalidRequest, start, "number with an exponent that is too large: ", s.raw[start:i], "")
	}
	return i
}

func (s *scanner) digits(i int) int {
	for i < len(s.raw) && '0' <= s.raw[i] && s.raw[i] <= '9' {
		i++
	}
	return i
}

// text scans the string that starts with the quote at i. It returns where the
// string ends, after its closing quote, and whether it holds escapes.
func (s *scanner) text(i int) (end int, escaped bool) {
	b := s.raw
	i++
	for {
		i = plain(b, i)
		if i >= len(b) {
			return s.fail(i, "want a closing quote, not "), false
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			escaped = true
			if i = s.escape(i); i < 0 {
				return -1, false
			}
		case c < ' ':
			return s.fail(i, "control character in a string: "), false
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				// Most of the world's text in two comparisons; every byte that
				// needs a closer look (E0, ED, F0 and up, strays) goes on below.
				if c := b[i]; i+2 < len(b) && b[i+1]&0xc0 == 0x80 {
					if 0xc2 <= c && c <= 0xdf {
						i += 2
						continue
					}
					if b[i+2]&0xc0 == 0x80 && (0xe1 <= c && c <= 0xec || c == 0xee || c == 0xef) {
						i += 3
						continue
					}
				}
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					s.note(ParseError, i, "invalid UTF-8 in a string: ", b[i:i+1], "")
				}
				i += n
			}
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special sets the high bit of the lowest byte of w that is not plain in a
// string: a quote, a backslash, a control character or anything beyond ASCII.
// Per byte, x^0x02 is below 0x21 for control characters and the quote only, and
// a subtraction sets the high bit where it borrows. A borrow spoils only bytes
// above one that is marked already, so the lowest mark is right; higher ones
// may not be.
func special(w uint64) uint64 {
	return ((w ^ 0x02*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones) | w
}

// plain returns the first place from i on that holds a byte which is not plain
// in a string, or len(b).
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		if m := special(binary.LittleEndian.Uint64(b[i:])) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
		for i+32 <= len(b) {
			w := b[i : i+32]
			if (special(binary.LittleEndian.Uint64(w))|special(binary.LittleEndian.Uint64(w[8:]))|
				special(binary.LittleEndian.Uint64(w[16:]))|special(binary.LittleEndian.Uint64(w[24:])))&highs != 0 {
				break
			}
			i += 32
		}
	}
	for i < len(b) {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
		i++
	}
	return i
}

// escape scans the escape that starts with the backslash at i.
func (s *scanner) escape(i int) int {
	if i+1 >= len(s.raw) {
		return s.fail(i+1, "want an escape, not ")
	}
	switch s.raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return s.fail(i+1, "unknown escape ")
	}
	c := hex4(s.raw[i+2:])
	if c < 0 {
		return s.fail(i, `want four hexadecimal digits after \u`)
	}
	if c&0xf800 != 0xd800 {
		return i + 6
	}
	if c < 0xdc00 && i+8 <= len(s.raw) && s.raw[i+6] == '\\' && s.raw[i+7] == 'u' {
		if low := hex4(s.raw[i+8:]); low >= 0 && low&0xfc00 == 0xdc00 {
			return i + 12
		}
	}
	s.note(ParseError, i, "lone surrogate in a string: ", s.raw[i:i+6], "")
	return i + 6
}

// hex4 reads four hexadecimal digits; -1 if they are not there.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func (s *scanner) name(start, end int, escaped bool) name {
	n := name{at: start, n: end - start}
	if escaped {
		n.arena = len(s.arena) + 1
		s.arena = appendDecoded(s.arena, s.raw[start:end])
		n.n = len(s.arena) + 1 - n.arena
	}
	n.hash = hash(s.bytes(n))
	return n
}

func (s *scanner) bytes(n name) []byte {
	if n.arena > 0 {
		return s.arena[n.arena-1 : n.arena-1+n.n]
	}
	return s.raw[n.at : n.at+n.n]
}

// hash mixes the length and both ends of a name. It only saves comparisons: an
// attacker who makes names collide gains nothing, since at most 32 names are
// compared pairwise and more are sorted.
func hash(b []byte) uint64 {
	var first, last uint64
	switch n := len(b); {
	case n >= 8:
		first, last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		first, last = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		first, last = uint64(b[0])|uint64(b[n/2])<<8, uint64(b[n-1])
	}
	return (first^uint64(len(b))<<56)*0x9e3779b97f4a7c15 ^ last
}

func (s *scanner) duplicate(first, second name, lv level) {
	s.unsure = s.unsure || lv == top
	s.note(InvalidRequest, second.at-1, "duplicate member name ", s.bytes(second), ", first at byte "+strconv.Itoa(first.at-1))
}

// duplicates finds equal names among many by sorting, which no choice of names
// can make quadratic, and notes the one that ends first in the input.
func (s *scanner) duplicates(names []name, lv level) {
	slices.SortFunc(names, func(a, b name) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		if c := bytes.Compare(s.bytes(a), s.bytes(b)); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
	found := -1
	for i := 1; i < len(names); i++ {
		if names[i].hash == names[i-1].hash && bytes.Equal(s.bytes(names[i]), s.bytes(names[i-1])) &&
			(found < 0 || names[i].at < names[found].at) {
			found = i
		}
	}
	if found > 0 {
		s.duplicate(names[found-1], names[found], lv)
	}
}

// ScanValue checks that raw is exactly one JSON value by the same rules as
// Scan, except those of the envelope.
func ScanValue(raw []byte, lim Limits) (Kind, error) {
	var s scanner
	lim = lim.orDefaults()
	s.start(raw, lim.Depth)
	i, err := s.first(lim.Bytes)
	if err != nil {
		return Invalid, err
	}
	_, kind := s.whole(i, inner)
	if err := s.err(); err != nil {
		return Invalid, err
	}
	return kind, nil
}

// err is the hard offence, or else the soft one, or nil.
func (s *scanner) err() error {
	if s.hard.Code != 0 {
		return s.failure()
	}
	if s.soft.Code != 0 {
		e := s.soft
		return &e
	}
	return nil
}
