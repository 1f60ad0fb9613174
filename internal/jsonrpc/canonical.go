package jsonrpc

import (
	"bytes"
	"math"
	"slices"
)

// AppendCanonical appends raw, one JSON value that is checked by the rules of
// Scan up to 256 levels, in a form that depends only on what it says: members
// ordered by the bytes of their decoded names at every depth, no white space,
// strings with the fewest escapes. Numbers stay as they are written: 1.0, 1 and
// 1e0 differ, because whether they mean the same is for the reader to say. On
// error dst comes back as it was.
func AppendCanonical(dst, raw []byte) ([]byte, error) {
	if _, err := ScanValue(raw, Limits{Bytes: math.MaxInt, Depth: maxDepth}); err != nil {
		return dst, err
	}
	c := canon{s: scanner{raw: raw}, out: dst}
	c.value(c.s.space(0))
	return c.out, nil
}

// canon writes in one walk: each object in the order of the input first, then,
// if that is not the order of names, again from a copy. A byte is thus moved at
// most once per level.
type canon struct {
	s       scanner // for its walkers; the input is known to be sound
	out     []byte
	members []written
	names   []byte // decoded, of all open objects
	scratch []byte
}

// written is one member in out.
type written struct {
	name, nameEnd int // in canon.names
	at, end       int // in canon.out
}

// value writes the value at i and returns where it ends in the input.
func (c *canon) value(i int) int {
	raw := c.s.raw
	start := i
	switch raw[i] {
	case '{':
		return c.object(i)
	case '[':
		c.out = append(c.out, '[')
		for i = c.s.space(i + 1); raw[i] != ']'; {
			i = c.s.space(c.value(i))
			if raw[i] == ',' {
				c.out = append(c.out, ',')
				i = c.s.space(i + 1)
			}
		}
		c.out = append(c.out, ']')
		return i + 1
	case '"':
		end, escaped := c.s.text(i)
		if !escaped {
			c.out = append(c.out, raw[i:end]...)
			return end
		}
		names := len(c.names)
		c.names = appendDecoded(c.names, raw[i+1:end-1])
		c.out = appendText(c.out, c.names[names:])
		c.names = c.names[:names]
		return end
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		i = c.s.number(i)
	case 'f':
		i += len("false")
	default:
		i += len("true")
	}
	c.out = append(c.out, raw[start:i]...)
	return i
}

func (c *canon) object(i int) int {
	raw := c.s.raw
	base, names := len(c.members), len(c.names)
	c.out = append(c.out, '{')
	from := len(c.out)
	for i = c.s.space(i + 1); raw[i] != '}'; {
		w := written{name: len(c.names), at: len(c.out)}
		end, _ := c.s.text(i)
		c.names = appendDecoded(c.names, raw[i+1:end-1])
		w.nameEnd = len(c.names)
		c.out = appendText(c.out, c.names[w.name:])
		c.out = append(c.out, ':')
		i = c.s.space(end)
		i = c.s.space(c.value(c.s.space(i + 1)))
		w.end = len(c.out)
		c.members = append(c.members, w)
		if raw[i] == ',' {
			c.out = append(c.out, ',')
			i = c.s.space(i + 1)
		}
	}
	byName := func(a, b written) int {
		return bytes.Compare(c.names[a.name:a.nameEnd], c.names[b.name:b.nameEnd])
	}
	if ms := c.members[base:]; !slices.IsSortedFunc(ms, byName) {
		slices.SortFunc(ms, byName)
		c.scratch = append(c.scratch[:0], c.out[from:]...)
		c.out = c.out[:from]
		for j, w := range ms {
			if j > 0 {
				c.out = append(c.out, ',')
			}
			c.out = append(c.out, c.scratch[w.at-from:w.end-from]...)
		}
	}
	c.out = append(c.out, '}')
	c.members, c.names = c.members[:base], c.names[:names]
	return i + 1
}
