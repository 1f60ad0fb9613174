package mcpstdio

import (
	"bytes"
	"strconv"
)

// glance is what the ends of a line say at first sight. It only chooses where the scan puts its findings: what a message is, and
// whose, the scan of the whole line says.
type glance struct {
	id      uint64
	hasID   bool // an id that this side can have given out
	foreign bool // an id that it cannot
	version bool // "jsonrpc":"2.0" was seen
	body    bool // "result" or "error" was seen
	method  bool // "method" was seen: no response
}

// reply says that the line has the shape of a response to a request of ours, even should its inside be unsound.
func (g glance) reply() bool { return g.hasID && g.version && g.body && !g.method }

// look reads the first members of a line, and its last ones when the first do not tell: libraries write the id on either side of
// the result. The end of the line is end, which may be all that was kept of it.
func look(head, end []byte) glance {
	g := lookAhead(head)
	if !g.hasID && !g.foreign && g.body {
		g.lookBack(end)
	}
	return g
}

// lookAhead reads members until one has a value that is not simple.
func lookAhead(b []byte) (g glance) {
	b = skip(b)
	if len(b) == 0 || b[0] != '{' {
		return g
	}
	for b = skip(b[1:]); ; b = skip(b[1:]) {
		if len(b) == 0 || b[0] != '"' {
			return g
		}
		n := bytes.IndexByte(b[1:min(len(b), 16)], '"')
		if n < 0 {
			return g
		}
		key := b[1 : n+1]
		if b = skip(b[n+2:]); len(b) == 0 || b[0] != ':' {
			return g
		}
		b = skip(b[1:])
		switch string(key) {
		case "jsonrpc":
			if !bytes.HasPrefix(b, []byte(`"2.0"`)) {
				return g
			}
			g.version = true
			b = b[5:]
		case "id":
			n := 0
			for n < len(b) && b[n] >= '0' && b[n] <= '9' {
				n++
			}
			g.id, g.hasID = number(b[:n])
			g.foreign = !g.hasID
			b = b[n:]
		case "result", "error":
			g.body = true
			return g
		case "method":
			g.method = true
			return g
		default:
			return g
		}
		if b = skip(b); len(b) == 0 || b[0] != ',' {
			return g
		}
	}
}

// lookBack reads members from the end.
func (g *glance) lookBack(b []byte) {
	b = skipBack(b)
	if len(b) == 0 || b[len(b)-1] != '}' {
		return
	}
	for b = skipBack(b[:len(b)-1]); ; b = skipBack(b[:len(b)-1]) {
		n := len(b)
		for n > 0 && b[n-1] >= '0' && b[n-1] <= '9' {
			n--
		}
		value := b[n:]
		version := len(value) == 0 && bytes.HasSuffix(b, []byte(`"2.0"`))
		if version {
			n -= 5
		}
		if b = skipBack(b[:n]); len(b) == 0 || b[len(b)-1] != ':' {
			return
		}
		b = skipBack(b[:len(b)-1])
		switch {
		case version && bytes.HasSuffix(b, []byte(`"jsonrpc"`)):
			g.version = true
			b = b[:len(b)-len(`"jsonrpc"`)]
		case !version && bytes.HasSuffix(b, []byte(`"id"`)):
			if g.id, g.hasID = number(value); !g.hasID {
				return
			}
			b = b[:len(b)-len(`"id"`)]
		default:
			return
		}
		if b = skipBack(b); len(b) == 0 || b[len(b)-1] != ',' {
			return
		}
	}
}

// number takes only digits that strconv would write.
func number(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func skip(b []byte) []byte {
	for len(b) > 0 && blank(b[0]) {
		b = b[1:]
	}
	return b
}

func skipBack(b []byte) []byte {
	for len(b) > 0 && blank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}
