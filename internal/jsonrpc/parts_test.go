package jsonrpc_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"aduana/internal/jsonrpc"
)

func TestScanTolerant(t *testing.T) {
	sound := `{"name":"ok","inputSchema":{"type":"object"}}`
	page := func(elements ...string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"nextCursor":"c", "tools": [ ` + strings.Join(elements, " , ") + ` ],"ttlMs":1}}`
	}
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for _, c := range []struct {
		name, element, want string
		code                int
	}{
		{"duplicate", `{"name":"a","name":"b"}`, `duplicate member name "name"`, jsonrpc.InvalidRequest},
		{"deep duplicate", `{"name":"a","inputSchema":{"p":[{"x":1,"\u0078":2}]}}`, `duplicate member name "x"`, jsonrpc.InvalidRequest},
		{"invalid UTF-8", "{\"name\":\"\xff\"}", "invalid UTF-8", jsonrpc.ParseError},
		{"lone surrogate", `{"name":"\udc00"}`, "lone surrogate", jsonrpc.ParseError},
		{"too deep", `{"name":"a","x":` + deep + `}`, "nested deeper", jsonrpc.InvalidRequest},
		{"too deep, with brackets in strings", `{"name":"a","x":` + strings.Repeat("[", 70) + `"]}\"]"` + strings.Repeat("]", 70) + `}`, "nested deeper", jsonrpc.InvalidRequest},
		{"large number", `{"name":"a","x":1e99999}`, "exponent", jsonrpc.InvalidRequest},
		{"bare string", "\"\xff\"", "invalid UTF-8", jsonrpc.ParseError},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := page(sound, c.element, sound, c.element)
			var m jsonrpc.Message
			if err := m.ScanTolerant([]byte(in), jsonrpc.Limits{}, "tools"); err != nil {
				t.Fatal(err)
			}
			if len(m.List) != 4 {
				t.Fatalf("%d elements", len(m.List))
			}
			for i, want := range []string{sound, c.element, sound, c.element} {
				e := m.List[i]
				if string(m.Bytes(e.Span)) != want {
					t.Errorf("element %d is %s, want %s", i, m.Bytes(e.Span), want)
				}
				if i%2 == 0 {
					if e.Err != nil || e.Kind != jsonrpc.Object {
						t.Errorf("element %d: %s, %v", i, e.Kind, e.Err)
					}
				} else if refused(t, e.Err, c.code, c.want).Offset < e.Span.Start || e.Err.Offset >= e.Span.End {
					t.Errorf("offset %d outside of the element %v", e.Err.Offset, e.Span)
				}
			}
			if m.Form() != jsonrpc.Response || string(m.ID()) != "1" {
				t.Errorf("form %d, id %s", m.Form(), m.ID())
			}
			if v, _ := m.Result.Get("ttlMs"); string(m.Bytes(v.Value)) != "1" {
				t.Errorf("ttlMs %s", m.Bytes(v.Value))
			}
			// The strict scan refuses the same bytes, and so does the tolerant
			// one when the element stands anywhere else.
			refused(t, m.Scan([]byte(in), jsonrpc.Limits{}), c.code, c.want)
			refused(t, m.ScanTolerant([]byte(in), jsonrpc.Limits{}, "prompts"), c.code, c.want)
			if len(m.List) != 0 {
				t.Errorf("a refused message has %d elements", len(m.List))
			}
			for _, elsewhere := range []string{
				`{"jsonrpc":"2.0","id":1,"tools":[` + c.element + `],"result":{}}`,
				`{"jsonrpc":"2.0","id":1,"method":"a","params":{"tools":[` + c.element + `]}}`,
				`{"jsonrpc":"2.0","id":1,"result":{"x":{"tools":[` + c.element + `]}}}`,
				`{"jsonrpc":"2.0","id":1,"result":{"tools":{"x":` + c.element + `}}}`,
				`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"tools":[` + c.element + `]}}}`,
			} {
				refused(t, m.ScanTolerant([]byte(elsewhere), jsonrpc.Limits{}, "tools"), c.code, c.want)
			}
		})
	}

	for _, c := range []struct{ name, in, want string }{
		{"grammar", page(sound, `{"name":tru}`), "want a value"},
		{"missing comma", page(sound + sound), "want a comma"},
		{"open string", page(`{"name":"a}`), ""},
		{"control character", page("{\"name\":\"\n\"}"), "control character"},
		{"unknown escape", page(`{"name":"\x"}`), "unknown escape"},
		{"crossed brackets", page(`{"name":[}]`), "want a value"},
		{"crossed brackets too deep", page(strings.Repeat("[", 70) + "}" + strings.Repeat("]", 70)), "unexpected bracket"},
	} {
		t.Run("refused: "+c.name, func(t *testing.T) {
			var m jsonrpc.Message
			refused(t, m.ScanTolerant([]byte(c.in), jsonrpc.Limits{}, "tools"), jsonrpc.ParseError, c.want)
			if m.Form() != 0 || len(m.List) != 0 || m.ID() != nil {
				t.Errorf("not empty: %+v", m)
			}
		})
	}

	t.Run("list twice", func(t *testing.T) {
		var m jsonrpc.Message
		err := m.ScanTolerant([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[],"\u0074ools":[]}}`), jsonrpc.Limits{}, "tools")
		refused(t, err, jsonrpc.InvalidRequest, `duplicate member name "tools"`)
	})
	t.Run("no list", func(t *testing.T) {
		for _, in := range []string{page(), `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":null}}`} {
			var m jsonrpc.Message
			if err := m.ScanTolerant([]byte(in), jsonrpc.Limits{}, "tools"); err != nil || len(m.List) != 0 {
				t.Errorf("%s: %v, %d elements", in, err, len(m.List))
			}
		}
	})
	t.Run("number of unsound elements", func(t *testing.T) {
		bad := func(n int) []byte { return []byte(page(slices.Repeat([]string{"\"\xff\""}, n)...)) }
		var m jsonrpc.Message
		if err := m.ScanTolerant(bad(1024), jsonrpc.Limits{}, "tools"); err != nil || len(m.List) != 1024 {
			t.Errorf("%v, %d elements", err, len(m.List))
		}
		refused(t, m.ScanTolerant(bad(1025), jsonrpc.Limits{}, "tools"), jsonrpc.InvalidRequest, "more than 1024 unsound elements")
		refused(t, m.ScanTolerant(bad(100_000), jsonrpc.Limits{}, "tools"), jsonrpc.InvalidRequest, "more than 1024 unsound elements")
	})
}

func TestObjectMembers(t *testing.T) {
	raw := []byte(` { "a" : 1 , "\u0062":{"_meta":{"x":1}}, "_meta":{"y":2} } `)
	ms, err := jsonrpc.ObjectMembers(nil, raw)
	if err != nil || len(ms) != 3 {
		t.Fatalf("%v, %v", ms, err)
	}
	for i, want := range []struct{ key, value string }{{"a", "1"}, {"b", `{"_meta":{"x":1}}`}, {"_meta", `{"y":2}`}} {
		if ms[i].Key != want.key || string(raw[ms[i].Value.Start:ms[i].Value.End]) != want.value {
			t.Errorf("member %d: %+v", i, ms[i])
		}
	}
	if more, err := jsonrpc.ObjectMembers(ms, []byte(`{"z":0}`)); err != nil || len(more) != 4 || more[0].Key != "a" || more[3].Key != "z" {
		t.Errorf("appended: %v, %v", more, err)
	}
	for _, bad := range []string{``, `[]`, `1`, `{`, `{}x`, `{"a":1,"a":2}`, `{"x":{"a":1,"a":2}}`, "{\"x\":\"\xff\"}", `{"x":"\ud800"}`, "\ufeff{}"} {
		if got, err := jsonrpc.ObjectMembers(ms[:1], []byte(bad)); err == nil || len(got) != 1 {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestArrayElements(t *testing.T) {
	raw := []byte(" [ 1 , [2,3],\"]\" ,{}\n] ")
	spans, err := jsonrpc.ArrayElements(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range spans {
		got = append(got, string(raw[s.Start:s.End]))
	}
	if want := []string{"1", "[2,3]", `"]"`, "{}"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if more, err := jsonrpc.ArrayElements(spans, []byte(`[0]`)); err != nil || len(more) != 5 {
		t.Errorf("appended: %v, %v", more, err)
	}
	if none, err := jsonrpc.ArrayElements(nil, []byte(`[]`)); err != nil || len(none) != 0 {
		t.Errorf("empty: %v, %v", none, err)
	}
	for _, bad := range []string{``, `{}`, `1`, `[`, `[]x`, `[1,]`, `[{"a":1,"a":2}]`, "[\"\xff\"]", `["\ud800"]`, `[1e99999]`} {
		if got, err := jsonrpc.ArrayElements(spans[:1], []byte(bad)); err == nil || len(got) != 1 {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestSplice(t *testing.T) {
	edit := func(start, end int, with string) jsonrpc.Edit {
		return jsonrpc.Edit{Span: jsonrpc.Span{Start: start, End: end}, With: []byte(with)}
	}
	src := []byte("0123456789")
	for _, c := range []struct {
		name  string
		edits []jsonrpc.Edit
		want  string
	}{
		{"nothing", nil, "0123456789"},
		{"replace", []jsonrpc.Edit{edit(2, 5, "abcdef")}, "01abcdef56789"},
		{"remove", []jsonrpc.Edit{edit(2, 5, "")}, "0156789"},
		{"insert", []jsonrpc.Edit{edit(3, 3, "x")}, "012x3456789"},
		{"at both ends", []jsonrpc.Edit{edit(0, 0, "<"), edit(10, 10, ">")}, "<0123456789>"},
		{"next to each other", []jsonrpc.Edit{edit(1, 2, "a"), edit(2, 3, "b"), edit(3, 3, "c"), edit(3, 4, "d")}, "0abcd456789"},
		{"all", []jsonrpc.Edit{edit(0, 10, "")}, ""},
	} {
		got, err := jsonrpc.Splice([]byte("pre|"), src, c.edits...)
		if err != nil || string(got) != "pre|"+c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	for name, edits := range map[string][]jsonrpc.Edit{
		"overlap":      {edit(1, 4, ""), edit(3, 5, "")},
		"descending":   {edit(5, 6, ""), edit(1, 2, "")},
		"reversed":     {edit(5, 4, "")},
		"negative":     {edit(-1, 2, "")},
		"beyond":       {edit(9, 11, "")},
		"start beyond": {edit(11, 11, "")},
	} {
		got, err := jsonrpc.Splice([]byte("pre|"), src, edits...)
		if err == nil || string(got) != "pre|" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if string(src) != "0123456789" {
		t.Errorf("src is now %q", src)
	}
}

// What a gateway does to a call: another id, another name, and every other
// byte as it came, digits and order and white space included.
func TestSpliceKeepsEveryOtherByte(t *testing.T) {
	in := `{ "params":{"arguments":{"n":12345678901234567890.10,"é":"\u00e9"},"name":"up__\u0065cho","x-new":[1,  2]}, "id":"c\/1","jsonrpc":"2.0","method":"tools/call"}`
	m := scan(t, in)
	name, _ := m.Params.Get("name")
	id, _ := m.Top.Get("id")
	got, err := jsonrpc.Splice(nil, m.Raw, jsonrpc.Edit{Span: name.Value, With: []byte(`"echo"`)}, jsonrpc.Edit{Span: id.Value, With: []byte("17")})
	want := `{ "params":{"arguments":{"n":12345678901234567890.10,"é":"\u00e9"},"name":"echo","x-new":[1,  2]}, "id":17,"jsonrpc":"2.0","method":"tools/call"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	m = scan(t, string(got))
	id, _ = m.Top.Get("id")
	name, _ = m.Params.Get("name")
	back, err := jsonrpc.Splice(nil, m.Raw, jsonrpc.Edit{Span: name.Value, With: []byte(`"up__\u0065cho"`)}, jsonrpc.Edit{Span: id.Value, With: []byte(`"c\/1"`)})
	if err != nil || string(back) != in {
		t.Errorf("got %s, %v\nwant %s", back, err, in)
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `""`,
		"plain":                  `"plain"`,
		"a\"b\\c/d":              `"a\"b\\c/d"`,
		"\b\f\n\r\t":             `"\b\f\n\r\t"`,
		"\x00\x1f\x7f":           "\"\\u0000\\u001f\x7f\"",
		"é€😀\u2028<>&":           "\"é€😀\u2028<>&\"",
		"a\xffb":                 "\"a\ufffdb\"",
		"\xe2\x82":               "\"\ufffd\ufffd\"",
		"\xed\xa0\x80":           "\"\ufffd\ufffd\ufffd\"",
		"\ufffd":                 "\"\ufffd\"",
		"end in a cut rune \xf0": "\"end in a cut rune \ufffd\"",
	} {
		got := jsonrpc.AppendString([]byte("x"), in)
		if string(got) != "x"+want {
			t.Errorf("%q: got %s, want %s", in, got[1:], want)
		}
	}
}

func TestDecodeString(t *testing.T) {
	for in, want := range map[string]string{
		`""`:                         "",
		`"a"`:                        "a",
		`"\"\\\/\b\f\n\r\t"`:         "\"\\/\b\f\n\r\t",
		`"\u0000\u00e9\u20AC"`:       "\x00é€",
		`"\ud83d\ude00x"`:            "😀x",
		`"\ufffd"`:                   "\ufffd",
		`"a\u0062c\u0064"`:           "abcd",
		`"\ud7ff\ue000\udbff\udfff"`: "\ud7ff\ue000\U0010ffff",
	} {
		if got, err := jsonrpc.DecodeString([]byte(in)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{``, `a`, `"`, `"a`, `"a"b`, ` "a"`, `"a" `, `"\ud800"`, `"\x"`, "\"\xff\"", "\"\n\"", `1`, `null`} {
		if got, err := jsonrpc.DecodeString([]byte(in)); err == nil {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// Part of case X07: the id of an answer is the id of a question only in type
// and value.
func TestX07SameID(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`7`, `7`, true}, {`-7`, `-7`, true}, {`"7"`, `"7"`, true}, {`"a"`, `"\u0061"`, true}, {`"\/"`, `"/"`, true}, {`""`, `""`, true},
		{`"\u00e9"`, `"é"`, true},
		{`"7"`, `7`, false}, {`7`, `"7"`, false}, {`7`, `8`, false}, {`7`, `7.0`, false}, {`7`, `70`, false}, {`0`, `-0`, false}, {`"a"`, `"A"`, false}, {`"a"`, `"a "`, false},
		{`"é"`, "\"e\u0301\"", false}, // no normalisation
		{`null`, `null`, false}, {``, ``, false}, {`7`, ``, false}, {``, `7`, false}, {`{}`, `{}`, false}, {`[]`, `[]`, false}, {`true`, `true`, false},
		{`"\ud800"`, `"\ud800"`, false}, {`"\ud800"`, `"\udbff"`, false}, {`"\x"`, `"\x"`, false},
	} {
		if got := jsonrpc.SameID([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("SameID(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

func TestAppendCanonical(t *testing.T) {
	for in, want := range map[string]string{
		` { } `:         `{}`,
		` [ ] `:         `[]`,
		`{"b":1,"a":2}`: `{"a":2,"b":1}`,
		`{"b" : {"d":[ {"f":1,"e":2} ],"c":null} , "a":true}`: `{"a":true,"b":{"c":null,"d":[{"e":2,"f":1}]}}`,
		`[3, 1 ,2]`:            `[3,1,2]`,
		`[1.0,1,1e0,-0,10E+2]`: `[1.0,1,1e0,-0,10E+2]`,
		`{"\u0062":"\u0065\/\u000A","a":"\u00e9\ud83d\ude00"}`: `{"a":"é😀","b":"e/\n"}`,
		`"\u0022\u005c\u0007"`:                                 `"\"\\\u0007"`,
		// By bytes of UTF-8, not by UTF-16 units as RFC 8785: U+FFFD before U+1F600.
		`{"😀":1,"�":2,"z":3,"":4}`: `{"":4,"z":3,"�":2,"😀":1}`,
		// By the decoded name: line feed before space, though the escape is after.
		`{" ":1,"\n":2,"a":3,"aa":4,"A":5}`: `{"\n":2," ":1,"A":5,"a":3,"aa":4}`,
		`false`:                             `false`,
		` null`:                             `null`,
	} {
		got, err := jsonrpc.AppendCanonical([]byte("pre|"), []byte(in))
		if err != nil || string(got) != "pre|"+want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `1 2`, `1e99999`, strings.Repeat("[", 257) + strings.Repeat("]", 257)} {
		got, err := jsonrpc.AppendCanonical([]byte("pre|"), []byte(bad))
		if err == nil || !bytes.Equal(got, []byte("pre|")) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// What is recorded of a message costs many times the bytes that it stands for: 32 MiB of "0," would be gigabytes of elements.
func TestWhatIsRecordedIsBounded(t *testing.T) {
	var m jsonrpc.Message
	list := func(n int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[0` + strings.Repeat(",0", n-1) + `]}}`)
	}
	const most = 131_072
	if err := m.ScanTolerant(list(most), jsonrpc.Limits{}, "tools"); err != nil || len(m.List) != most {
		t.Errorf("%d elements: %d recorded, %v", most, len(m.List), err)
	}
	refused(t, m.ScanTolerant(list(most+1), jsonrpc.Limits{}, "tools"), jsonrpc.InvalidRequest, "more than 131072 elements")
	refused(t, m.ScanTolerant(list(3*most), jsonrpc.Limits{}, "tools"), jsonrpc.InvalidRequest, "more than 131072 elements")
	if id := string(m.ID()); id != "1" {
		t.Errorf("the refusal cannot be addressed: id %q", id)
	}

	for _, where := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m",%s}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{%s}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{%s}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{%s}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":{%s}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"",%s}}`,
	} {
		var members []string
		for i := range 4097 {
			members = append(members, fmt.Sprintf(`"x%d":0`, i))
		}
		in := fmt.Sprintf(where, strings.Join(members, ","))
		refused(t, m.Scan([]byte(in), jsonrpc.Limits{}), jsonrpc.InvalidRequest, "more than 4096 members")
		if in = fmt.Sprintf(where, strings.Join(members[:4000], ",")); m.Scan([]byte(in), jsonrpc.Limits{}) != nil {
			t.Errorf("4000 members are refused in %s", where)
		}
	}
	// In what is not recorded, any number is fine.
	var arguments strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&arguments, `,"x%d":0`, i)
	}
	if err := m.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"":0`+arguments.String()+`}}}`), jsonrpc.Limits{}); err != nil {
		t.Errorf("many arguments: %v", err)
	}
}
