package jsonschema

import (
	"slices"
	"strings"

	"aduana/internal/jsonrpc"
)

// node is a JSON value in the arguments' bytes. The nodes of a text stand in its order: the children of an array or object follow
// it, in an object each after a string node that is its name.
type node struct {
	kind       jsonrpc.Kind
	escaped    bool // a string that is not its own text
	start, end int
	next       int // the node after this one and all inside it
	count      int // of elements or members
}

// tree is a scanned text with its nodes. It refers to the text.
type tree struct {
	raw   []byte
	nodes []node
}

// parse needs a text that jsonrpc.ScanValue accepted: it checks nothing.
func (t *tree) parse(raw []byte) {
	t.raw, t.nodes = raw, t.nodes[:0]
	t.value(t.space(0))
}

func (t *tree) space(i int) int {
	for t.raw[i] == ' ' || t.raw[i] == '\n' || t.raw[i] == '\r' || t.raw[i] == '\t' {
		i++
	}
	return i
}

// value appends the value at i and gives the place after it.
func (t *tree) value(i int) int {
	at := len(t.nodes)
	t.nodes = append(t.nodes, node{start: i})
	kind, end := jsonrpc.Null, i+len("null")
	switch t.raw[i] {
	case '"':
		return t.text(at)
	case '{', '[':
		kind, end = t.inside(at, i)
	case 't':
		kind = jsonrpc.Bool
	case 'f':
		kind, end = jsonrpc.Bool, i+len("false")
	case 'n':
	default:
		kind = jsonrpc.Number
		for end = i; end < len(t.raw) && strings.IndexByte("+-.0123456789eE", t.raw[end]) >= 0; {
			end++
		}
	}
	n := &t.nodes[at]
	n.kind, n.end, n.next = kind, end, len(t.nodes)
	return end
}

func (t *tree) text(at int) int {
	n := &t.nodes[at]
	i := n.start + 1
	for ; t.raw[i] != '"'; i++ {
		if t.raw[i] == '\\' {
			n.escaped = true
			i++
		}
	}
	n.kind, n.end, n.next = jsonrpc.String, i+1, at+1
	return i + 1
}

func (t *tree) inside(at, i int) (jsonrpc.Kind, int) {
	kind, closing := jsonrpc.Array, byte(']')
	if t.raw[i] == '{' {
		kind, closing = jsonrpc.Object, '}'
	}
	count := 0
	for i = t.space(i + 1); t.raw[i] != closing; count++ {
		if kind == jsonrpc.Object {
			i = t.space(t.value(i))
			i = t.space(i + 1) // the colon
		}
		if i = t.space(t.value(i)); t.raw[i] == ',' {
			i = t.space(i + 1)
		}
	}
	t.nodes[at].count = count
	return kind, i + 1
}

// string gives the decoded text of a string node.
func (t *tree) string(i int) []byte {
	n := t.nodes[i]
	if !n.escaped {
		return t.raw[n.start+1 : n.end-1]
	}
	s, _ := jsonrpc.DecodeString(t.raw[n.start:n.end]) // scanned before
	return []byte(s)
}

func (t *tree) number(i int) decimal { return parseDecimal(t.raw[t.nodes[i].start:t.nodes[i].end]) }

// appendKey appends a text that equal values share, and others do not: members ordered, numbers by value.
func (t *tree) appendKey(dst []byte, i int) []byte {
	n := t.nodes[i]
	switch n.kind {
	case jsonrpc.Number:
		return t.number(i).appendKey(dst)
	case jsonrpc.String:
		return jsonrpc.AppendString(dst, string(t.string(i)))
	case jsonrpc.Array:
		dst = append(dst, '[')
		for c := i + 1; c < n.next; c = t.nodes[c].next {
			dst = append(t.appendKey(dst, c), ',')
		}
		return append(dst, ']')
	case jsonrpc.Object:
		members := make([]string, 0, n.count)
		for c := i + 1; c < n.next; c = t.nodes[c+1].next {
			members = append(members, string(t.appendKey(append(t.appendKey(nil, c), ':'), c+1)))
		}
		slices.Sort(members)
		dst = append(dst, '{')
		for _, m := range members {
			dst = append(append(dst, m...), ',')
		}
		return append(dst, '}')
	}
	return append(dst, t.raw[n.start:n.end]...)
}
