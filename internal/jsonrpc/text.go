package jsonrpc

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends s as a JSON string with the fewest escapes: the quote,
// the backslash and control characters. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte { return appendText(dst, s) }

func appendText[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune([]byte(s[i:min(len(s), i+utf8.UTFMax)]))
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// DecodeString returns the text of raw, which must be one JSON string with its
// quotes and nothing around it, under the rules of Scan.
func DecodeString(raw []byte) (string, error) {
	escaped, err := checkString(raw)
	if err != nil {
		return "", err
	}
	if !escaped {
		return string(raw[1 : len(raw)-1]), nil
	}
	return string(appendDecoded(nil, raw[1:len(raw)-1])), nil
}

func checkString(raw []byte) (escaped bool, err error) {
	if len(raw) == 0 || raw[0] != '"' {
		return false, &Error{ParseError, 0, "want a string in double quotes"}
	}
	s := scanner{raw: raw}
	end, escaped := s.text(0)
	if end >= 0 && end < len(raw) {
		s.fail(end, "more input after the string: ")
	}
	return escaped, s.err()
}

// appendDecoded appends the text of the inside of a string that the scan has
// accepted. Surrogates that it has only noted become U+FFFD.
func appendDecoded(dst, in []byte) []byte {
	for {
		i := bytes.IndexByte(in, '\\')
		if i < 0 {
			return append(dst, in...)
		}
		dst = append(dst, in[:i]...)
		c := in[i+1]
		in = in[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(in)
			in = in[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(in) >= 6 && in[0] == '\\' && in[1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(in[2:]))
				}
				if r = pair; r != utf8.RuneError {
					in = in[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// SameID reports whether a and b are the bytes of the same id. A string never
// equals a number; strings are compared decoded, numbers byte by byte. Anything
// else, null included, equals nothing.
func SameID(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	switch c := a[0]; {
	case c == '-' || '0' <= c && c <= '9':
		return bytes.Equal(a, b)
	case c != '"' || b[0] != '"':
		return false
	}
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	x, errX := DecodeString(a)
	y, errY := DecodeString(b)
	return errX == nil && errY == nil && x == y
}
