package main

import "bytes"

// members calls f with each member of the object at the start of b, key
// without its quotes, both undecoded. It trusts b to be JSON: both ends are
// ours or were checked by the gateway in between.
func members(b []byte, f func(key, value []byte)) {
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; {
		k := skip(b, i)
		v := space(b, space(b, k)+1)
		end := skip(b, v)
		f(b[i+1:k-1], b[v:end])
		i = space(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i = space(b, i+1)
	}
}

// member is one member's value, nil when there is none.
func member(b []byte, key string) (value []byte) {
	members(b, func(k, v []byte) {
		if string(k) == key {
			value = v
		}
	})
	return value
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip is the index after the value that starts at i.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		for i++; ; {
			j := bytes.IndexByte(b[min(i, len(b)):], '"')
			if j < 0 {
				return len(b)
			}
			i += j
			back := 0
			for b[i-1-back] == '\\' {
				back++
			}
			i++
			if back%2 == 0 {
				return i
			}
		}
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '"':
				i = skip(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && !bytes.ContainsRune([]byte(",}] \n\t\r"), rune(b[i])) {
		i++
	}
	return i
}
