package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"aduana/internal/jsonrpc"
)

var seeds = []string{
	`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo","arguments":{"message":"hi"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p1"}}}`,
	`{"jsonrpc":"2.0","id":"a\u0062","result":{"tools":[{"name":"a","name":"b"},{"x":1e5}],"_meta":{}}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud83d\ude00"}}`,
	`{"jsonrpc":"2.0","method":"notifications/x","params":{"Name":1,"\u0000":[[[[]]]]}}`,
	`[{"a":{"b":1,"\u0062":2}}]`, `{"":0,"é":"\u00e9\/","😀":-0.5E+10}`, `"\ud800\u0041"`, "\"\xed\xa0\x80\"", `{"a":[1,{"a":1}],"b":[{"a":1},{"a":2}]}`,
	strings.Repeat("[", 70) + "{}" + strings.Repeat("]", 70), `{"jsonrpc":"2.0","id":1,"result":{"tools":["` + "\xff" + `",1e99999,"x"]}}`,
}

// verdict judges raw by other means than the scan: encoding/json for the
// grammar, its tokens for duplicates and depth, patterns for the rest.
func verdict(raw []byte, depth int) string {
	switch {
	case !json.Valid(raw):
		return "not JSON"
	case !utf8.Valid(raw):
		return "not UTF-8"
	}
	// Of valid JSON only: take away escaped backslashes, then pairs; what still
	// looks like a surrogate stands alone.
	text := bytes.ReplaceAll(raw, []byte(`\\`), nil)
	text = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`).ReplaceAll(text, nil)
	if regexp.MustCompile(`\\u[dD][89a-fA-F]`).Match(text) {
		return "lone surrogate"
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type open struct {
		names map[string]bool // nil for an array
		value bool            // the next token is a value, not a name
	}
	var stack []open
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return "not JSON: " + err.Error()
		}
		if n := len(stack); n > 0 && stack[n-1].names != nil && tok != json.Delim('}') {
			if t := &stack[n-1]; t.value {
				t.value = false
			} else {
				if t.names[tok.(string)] {
					return fmt.Sprintf("duplicate %q", tok)
				}
				t.names[tok.(string)] = true
				t.value = true
				continue
			}
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, open{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, open{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) > depth {
			return "too deep"
		}
		if n, ok := tok.(json.Number); ok {
			mantissa, exponent, _ := strings.Cut(strings.ToLower(string(n)), "e")
			exponent = strings.TrimLeft(exponent, "+-")
			digits := len(strings.Trim(mantissa, "-")) - strings.Count(mantissa, ".") + len(exponent)
			exponent = strings.TrimLeft(exponent, "0")
			if digits > 4096 || len(exponent) > 5 || len(exponent) == 5 && exponent > "10000" {
				return "large number"
			}
		}
	}
}

// FuzzScan: a bare value is accepted if and only if encoding/json and the
// independent checks accept it; a message only if they do; and every span is
// the value it claims to be.
func FuzzScan(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	var reused jsonrpc.Message
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind, err := jsonrpc.ScanValue(raw, jsonrpc.Limits{})
		want := verdict(raw, 64)
		if (err == nil) != (want == "") {
			t.Fatalf("ScanValue: %v; by other means: %q", err, want)
		}
		if (kind == jsonrpc.Invalid) != (err != nil) {
			t.Fatalf("kind %s with error %v", kind, err)
		}

		// What was in a Message before makes no difference.
		var m jsonrpc.Message
		err = m.Scan(raw, jsonrpc.Limits{})
		again := reused.Scan(raw, jsonrpc.Limits{})
		if fmt.Sprint(err) != fmt.Sprint(again) || !slices.Equal(m.Top, reused.Top) || !slices.Equal(m.Params, reused.Params) || !slices.Equal(m.Meta, reused.Meta) {
			t.Fatalf("fresh: %v, reused: %v", err, again)
		}
		if err == nil && want != "" {
			t.Fatalf("Scan accepts what is %s", want)
		}
		if (err == nil) != (m.Form() != 0) {
			t.Fatalf("form %d with error %v", m.Form(), err)
		}
		if err == nil {
			checkSpans(t, &m)
			var generic struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if err := json.Unmarshal(raw, &generic); err != nil || generic.Method != m.Method() {
				t.Fatalf("method %q, encoding/json has %q (%v)", m.Method(), generic.Method, err)
			}
			if m.ID() != nil && !bytes.Equal(generic.ID, m.ID()) {
				t.Fatalf("id %s, encoding/json has %s", m.ID(), generic.ID)
			}
		} else if id := m.ID(); id != nil && !jsonrpc.SameID(id, id) {
			t.Fatalf("a refusal would go to the id %q", id)
		}

		// The tolerant scan accepts all that the strict one does, and more only
		// if it names an element; without those the strict one accepts it too.
		tolerant := m.ScanTolerant(raw, jsonrpc.Limits{}, "tools")
		if err == nil && tolerant != nil {
			t.Fatalf("only the tolerant scan refuses: %v", tolerant)
		}
		if tolerant == nil {
			var edits []jsonrpc.Edit
			for _, e := range m.List {
				if e.Err != nil {
					edits = append(edits, jsonrpc.Edit{Span: e.Span, With: []byte("0")})
				} else if got, err := jsonrpc.ScanValue(m.Bytes(e.Span), jsonrpc.Limits{}); err != nil || got != e.Kind {
					t.Fatalf("element %q: %s, %v", m.Bytes(e.Span), got, err)
				}
			}
			if (len(edits) == 0) != (err == nil) {
				t.Fatalf("strict: %v, but %d unsound elements", err, len(edits))
			}
			cut, err := jsonrpc.Splice(nil, raw, edits...)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Scan(cut, jsonrpc.Limits{}); err != nil {
				t.Fatalf("still refused without its unsound elements: %v", err)
			}
		}

		ms, errM := jsonrpc.ObjectMembers(nil, raw)
		spans, errA := jsonrpc.ArrayElements(nil, raw)
		if want == "" && ((errM == nil) != (kind == jsonrpc.Object) || (errA == nil) != (kind == jsonrpc.Array)) {
			t.Fatalf("%s: ObjectMembers %v, ArrayElements %v", kind, errM, errA)
		}
		for _, x := range ms {
			if got, err := jsonrpc.DecodeString(raw[x.KeySpan.Start:x.KeySpan.End]); err != nil || got != x.Key {
				t.Fatalf("key %q, %v, want %q", got, err, x.Key)
			}
		}
		for _, s := range spans {
			if !json.Valid(raw[s.Start:s.End]) {
				t.Fatalf("element %q", raw[s.Start:s.End])
			}
		}
	})
}

func checkSpans(t *testing.T, m *jsonrpc.Message) {
	t.Helper()
	for _, ms := range []jsonrpc.Members{m.Top, m.Params, m.Meta, m.Result, m.ResultMeta, m.Error} {
		at := 0
		for _, x := range ms {
			if x.KeySpan.Start < at || x.Value.Start < x.KeySpan.End || x.Value.End > len(m.Raw) {
				t.Fatalf("span out of order: %+v", x)
			}
			at = x.Value.End
			var key string
			if err := json.Unmarshal(m.Bytes(x.KeySpan), &key); err != nil || key != x.Key {
				t.Fatalf("key %q, encoding/json has %q (%v)", x.Key, key, err)
			}
			if k, err := jsonrpc.ScanValue(m.Bytes(x.Value), jsonrpc.Limits{}); err != nil || k != x.Kind {
				t.Fatalf("value %q of kind %s: %s, %v", m.Bytes(x.Value), x.Kind, k, err)
			}
			if trimmed := bytes.TrimSpace(m.Bytes(x.Value)); len(trimmed) != x.Value.End-x.Value.Start {
				t.Fatalf("space around value %q", m.Bytes(x.Value))
			}
			if got, ok := ms.Get(x.Key); !ok || got != x {
				t.Fatalf("Get(%q) = %+v, want %+v", x.Key, got, x)
			}
		}
	}
}

// FuzzCanonical: the canonical form is its own canonical form, says the same,
// and does not depend on the order of members.
func FuzzCanonical(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		canon, err := jsonrpc.AppendCanonical(nil, raw)
		if want := verdict(raw, 256); (err == nil) != (want == "") {
			t.Fatalf("%v; by other means: %q", err, want)
		}
		if err != nil {
			return
		}
		again, err := jsonrpc.AppendCanonical(nil, canon)
		if err != nil || !bytes.Equal(canon, again) {
			t.Fatalf("canonical of %s is %s (%v)", canon, again, err)
		}
		shuffled := shuffle(t, rand.New(rand.NewPCG(seed, 1)), raw)
		if other, err := jsonrpc.AppendCanonical(nil, shuffled); err != nil || !bytes.Equal(canon, other) {
			t.Fatalf("canonical of %s is %s,\nof %s it is %s (%v)", raw, canon, shuffled, other, err)
		}
		decode := func(b []byte) string {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%#v", v)
		}
		if a, b := decode(raw), decode(canon); a != b {
			t.Fatalf("says %s, canonical says %s", a, b)
		}
	})
}

// shuffle writes the same value with members in another order, white space
// between tokens and strings in other escapes.
func shuffle(t *testing.T, r *rand.Rand, raw []byte) []byte {
	kind, err := jsonrpc.ScanValue(raw, jsonrpc.Limits{Bytes: 1 << 30, Depth: 256})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	switch kind {
	case jsonrpc.Object:
		ms, err := jsonrpc.ObjectMembers(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		r.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		out = append(out, "{ "...)
		for i, m := range ms {
			if i > 0 {
				out = append(out, " ,\n"...)
			}
			out = append(append(out, shuffle(t, r, raw[m.KeySpan.Start:m.KeySpan.End])...), '\t', ':', ' ')
			out = append(out, shuffle(t, r, raw[m.Value.Start:m.Value.End])...)
		}
		out = append(out, '}')
	case jsonrpc.Array:
		spans, err := jsonrpc.ArrayElements(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, '[')
		for i, s := range spans {
			if i > 0 {
				out = append(out, " , "...)
			}
			out = append(out, shuffle(t, r, raw[s.Start:s.End])...)
		}
		out = append(out, ' ', ']')
	case jsonrpc.String:
		s, err := jsonrpc.DecodeString(bytes.TrimSpace(raw))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, '"')
		for _, c := range s {
			if c < 0x10000 && (c < ' ' || c == '"' || c == '\\' || r.IntN(2) == 0) {
				out = fmt.Appendf(out, `\u%04x`, c)
			} else {
				out = utf8.AppendRune(out, c)
			}
		}
		out = append(out, '"')
	default:
		out = append(out, bytes.TrimSpace(raw)...)
	}
	return out
}

// FuzzSplice: edits in order give what cutting and joining gives; any others
// give an error and leave dst alone.
func FuzzSplice(f *testing.F) {
	f.Add([]byte("0123456789"), 2, 5, "abc", 5, 5, "")
	f.Add([]byte("0123456789"), 5, 2, "abc", -1, 50, "x")
	f.Fuzz(func(t *testing.T, src []byte, a, b int, x string, c, d int, y string) {
		before := string(src)
		got, err := jsonrpc.Splice([]byte("pre"), src,
			jsonrpc.Edit{Span: jsonrpc.Span{Start: a, End: b}, With: []byte(x)},
			jsonrpc.Edit{Span: jsonrpc.Span{Start: c, End: d}, With: []byte(y)})
		want := "pre"
		ok := 0 <= a && a <= b && b <= c && c <= d && d <= len(src)
		if ok {
			want += before[:a] + x + before[b:c] + y + before[d:]
		}
		if (err == nil) != ok || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		if string(src) != before {
			t.Fatalf("src changed to %q", src)
		}
	})
}

// FuzzString: what AppendString writes, DecodeString and encoding/json read
// back, and DecodeString agrees with encoding/json on what it accepts.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a\"\\\n\x00", "é😀\u2028", "\xff\xed\xa0\x80", `"\ud83d\ude00\u0041"`, `"\ud800"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := jsonrpc.AppendString(nil, s)
		want := string([]rune(s)) // invalid bytes as U+FFFD
		got, err := jsonrpc.DecodeString(raw)
		var std string
		errStd := json.Unmarshal(raw, &std)
		if err != nil || errStd != nil || got != want || std != want {
			t.Fatalf("%s is read as %q (%v) and %q (%v); want %q", raw, got, err, std, errStd, want)
		}
		if got, err := jsonrpc.DecodeString([]byte(s)); err == nil {
			if errStd := json.Unmarshal([]byte(s), &std); errStd != nil || got != std {
				t.Fatalf("%q is read as %q; encoding/json: %q, %v", s, got, std, errStd)
			}
		}
	})
}
