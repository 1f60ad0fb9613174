package jsonrpc

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parsers differ in what they take for the same member name: some ignore case
// (CVE-2026-27896), some stop at NUL (GHSA-q382-vc8q-7jhj), some normalise. If
// the gateway reads "name" and the upstream reads "Name", the upstream runs
// what the gateway never saw. Hence a member of the envelope, of params or of
// params._meta that such a parser could take for a known one is refused, whether
// or not the known one is there too.

const longestName = len("io.modelcontextprotocol/clientCapabilities")

// imitates returns the known name that key could be taken for although it is
// spelt otherwise, or "".
func imitates(lv level, key []byte) string {
	switch lv {
	case top:
		return imitated(key, []string{"jsonrpc", "id", "method", "params", "result", "error"})
	case params:
		return imitated(key, []string{
			"name", "arguments", "_meta", "uri", "cursor", "ref", "argument", "level",
			"requestId", "reason", "progressToken", "progress", "total", "taskId",
			"requestState", "inputResponses", "notifications",
			"protocolVersion", "capabilities", "clientInfo",
		})
	case meta:
		return imitated(key, []string{
			"progressToken",
			"io.modelcontextprotocol/protocolVersion",
			"io.modelcontextprotocol/clientCapabilities",
			"io.modelcontextprotocol/clientInfo",
			"io.modelcontextprotocol/logLevel",
		})
	}
	return ""
}

func imitated(key []byte, known []string) string {
	for _, real := range known {
		if string(key) == real {
			return ""
		}
	}
	var room [longestName]byte
	folded, ok := fold(room[:0], key)
	if !ok {
		return ""
	}
	for _, real := range known {
		if len(real) == len(folded) && strings.EqualFold(real, string(folded)) {
			return real
		}
	}
	return ""
}

// fold appends to dst what the most lenient parser would make of key: without
// invisible characters and without space at the ends, full width as ASCII. Case
// is left to the comparison. It reports false as soon as the outcome cannot be
// a known name.
func fold(dst, key []byte) ([]byte, bool) {
	spaces := false
	for i := 0; i < len(key); {
		r, n := rune(key[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(key[i:])
		}
		i += n
		switch {
		case r == 0x17f: // long s: simple case folding, CaseFolding.txt
			r = 's'
		case r == 0x212a: // kelvin sign: likewise
			r = 'k'
		case 0xff01 <= r && r <= 0xff5e: // full width forms, as in NFKC
			r -= 0xff01 - '!'
		}
		switch {
		case invisible(r):
			continue
		case unicode.IsSpace(r):
			spaces = len(dst) > 0
			continue
		case spaces || r >= utf8.RuneSelf || len(dst) == longestName:
			return nil, false
		}
		dst = append(dst, byte(r))
	}
	return dst, true
}

// invisible reports whether r leaves no trace on a page or in a C string.
func invisible(r rune) bool {
	if r < utf8.RuneSelf {
		return r == 0x7f || r < ' ' && !unicode.IsSpace(r)
	}
	switch {
	case unicode.IsSpace(r):
		return false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return true
	}
	return false
}

// intern returns key as a string, without a copy if it is a name that most
// messages have.
func intern(key []byte) string {
	switch string(key) {
	case "jsonrpc":
		return "jsonrpc"
	case "id":
		return "id"
	case "method":
		return "method"
	case "params":
		return "params"
	case "result":
		return "result"
	case "error":
		return "error"
	case "name":
		return "name"
	case "arguments":
		return "arguments"
	case "_meta":
		return "_meta"
	case "content":
		return "content"
	case "structuredContent":
		return "structuredContent"
	case "isError":
		return "isError"
	case "resultType":
		return "resultType"
	case "code":
		return "code"
	case "message":
		return "message"
	}
	return string(key)
}
