package jsonrpc

import "fmt"

// Edit puts With in place of Span. An empty Span inserts.
type Edit struct {
	Span Span
	With []byte
}

// Splice appends src to dst with the edits made, and every other byte as it
// was. Edits must be in ascending order, must not overlap and must lie in src;
// otherwise dst comes back as it was, with an error. dst must not share memory
// with src. With room enough in dst it does not allocate.
//
// It does not check that the outcome is JSON: whoever makes the edit knows what
// stood there.
func Splice(dst, src []byte, edits ...Edit) ([]byte, error) {
	at := 0
	for i, e := range edits {
		if e.Span.Start < at || e.Span.End < e.Span.Start || e.Span.End > len(src) {
			return dst, fmt.Errorf("edit %d of bytes %d to %d is out of order or out of range: the edit before ends at %d, the message at %d",
				i, e.Span.Start, e.Span.End, at, len(src))
		}
		at = e.Span.End
	}
	at = 0
	for _, e := range edits {
		dst = append(dst, src[at:e.Span.Start]...)
		dst = append(dst, e.With...)
		at = e.Span.End
	}
	return append(dst, src[at:]...), nil
}
