package jsonrpc

import "math"

// ObjectMembers appends to dst the members of the object that is raw. It looks
// one level deep, but checks the whole by the rules of Scan, up to 256 levels
// and any size.
func ObjectMembers(dst Members, raw []byte) (Members, error) {
	m := Message{Error: dst} // the level that records its members and no deeper ones
	s, i, err := m.part(raw, '{', "an object")
	if err != nil {
		return dst, err
	}
	s.part = true
	s.whole(i, errorObject)
	if err := s.err(); err != nil {
		return dst, err
	}
	return m.Error, nil
}

// ArrayElements appends to dst where the elements of the array that is raw
// stand. It checks the whole by the rules of Scan, up to 256 levels and any
// size.
func ArrayElements(dst []Span, raw []byte) ([]Span, error) {
	var m Message
	s, i, err := m.part(raw, '[', "an array")
	if err != nil {
		return dst, err
	}
	s.whole(i, list)
	if err := s.err(); err != nil {
		return dst, err
	}
	for _, e := range m.List {
		if e.Err != nil {
			return dst, e.Err
		}
	}
	for _, e := range m.List {
		dst = append(dst, e.Span)
	}
	return dst, nil
}

func (m *Message) part(raw []byte, open byte, want string) (*scanner, int, error) {
	s := &m.s
	s.start(raw, maxDepth)
	s.m = m
	i, err := s.first(math.MaxInt)
	if err == nil && raw[i] != open {
		err = &Error{InvalidRequest, i, "want " + want}
	}
	return s, i, err
}
