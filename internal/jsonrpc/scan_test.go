package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"aduana/internal/jsonrpc"
)

func scan(t *testing.T, in string) *jsonrpc.Message {
	t.Helper()
	var m jsonrpc.Message
	if err := m.Scan([]byte(in), jsonrpc.Limits{}); err != nil {
		t.Fatalf("Scan(%q): %v", in, err)
	}
	return &m
}

// refused demands that err is an *Error with this code and with want in its reason.
func refused(t *testing.T, err error, code int, want string) *jsonrpc.Error {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want one with %q", err, want)
	}
	if e.Code != code || !strings.Contains(e.Reason, want) {
		t.Fatalf("got %v, want code %d and %q", e, code, want)
	}
	return e
}

func TestScanForms(t *testing.T) {
	for _, c := range []struct {
		name, in, id, method string
		form                 jsonrpc.Form
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", "ping", jsonrpc.Request},
		{"request with space everywhere", " {\t\"jsonrpc\" :\r\n\"2.0\" , \"id\" : -7 , \"method\" : \"ping\" }\n", "-7", "ping", jsonrpc.Request},
		{"id with all its digits", `{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"a"}`, "123456789012345678901234567890", "a", jsonrpc.Request},
		{"string id", `{"jsonrpc":"2.0","id":"a\u0062","method":"a"}`, `"a\u0062"`, "a", jsonrpc.Request},
		{"empty string id", `{"jsonrpc":"2.0","id":"","method":"a"}`, `""`, "a", jsonrpc.Request},
		{"escaped method", `{"jsonrpc":"2.0","id":1,"method":"tools\/c\u0061ll"}`, "1", "tools/call", jsonrpc.Request},
		{"escaped name of a member", `{"jsonrpc":"2.0","\u0069d":1,"m\u0065thod":"a"}`, "1", "a", jsonrpc.Request},
		{"unknown members", `{"jsonrpc":"2.0","id":1,"method":"a","extra":[1e3,null],"":0}`, "1", "a", jsonrpc.Request},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, "", "notifications/cancelled", jsonrpc.Notification},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{}}`, "1", "", jsonrpc.Response},
		{"result that is no object", `{"jsonrpc":"2.0","id":1,"result":null}`, "1", "", jsonrpc.Response},
		{"error", `{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no"}}`, `"x"`, "", jsonrpc.Response},
		{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`, "", "", jsonrpc.Response},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":-32700,"message":""}}`, "", "", jsonrpc.Response},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := scan(t, c.in)
			if m.Form() != c.form || string(m.ID()) != c.id || m.Method() != c.method {
				t.Errorf("form %d, id %s, method %q; want %d, %s, %q", m.Form(), m.ID(), m.Method(), c.form, c.id, c.method)
			}
			if (m.ID() == nil) != (c.id == "") {
				t.Errorf("id is nil: %v", m.ID() == nil)
			}
		})
	}
}

func TestScanRefusesEnvelope(t *testing.T) {
	const bad, parse = jsonrpc.InvalidRequest, jsonrpc.ParseError
	for _, c := range []struct {
		name, in string
		code     int
		want     string
	}{
		{"empty", "", parse, "no value"},
		{"space only", " \n", parse, "no value"},
		{"null", "null", bad, "must be an object, not null"},
		{"string", `"x"`, bad, "must be an object, not string"},
		{"number", "1", bad, "must be an object, not number"},
		{"garbage", "hello", parse, `want a value, not "h"`},
		{"empty object", "{}", bad, "2.0"},
		{"no version", `{"id":1,"method":"a"}`, bad, `"jsonrpc" must be "2.0"`},
		{"version 1.0", `{"jsonrpc":"1.0","id":1,"method":"a"}`, bad, `"jsonrpc" must be "2.0"`},
		{"version as number", `{"jsonrpc":2.0,"id":1,"method":"a"}`, bad, `"jsonrpc" must be "2.0"`},
		{"version escaped", `{"jsonrpc":"2\u002e0","id":1,"method":"a"}`, bad, `"jsonrpc" must be "2.0"`},
		{"version with space", `{"jsonrpc":"2.0 ","id":1,"method":"a"}`, bad, `"jsonrpc" must be "2.0"`},
		{"version alone", `{"jsonrpc":"2.0","id":1}`, bad, "none of"},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"a"}`, bad, `"id" of a request`},
		{"fraction id", `{"jsonrpc":"2.0","id":1.0,"method":"a"}`, bad, `"id" of a request`},
		{"exponent id", `{"jsonrpc":"2.0","id":1E2,"method":"a"}`, bad, `"id" of a request`},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"a"}`, bad, `"id" of a request`},
		{"array id", `{"jsonrpc":"2.0","id":[1],"method":"a"}`, bad, `"id" of a request`},
		{"boolean id", `{"jsonrpc":"2.0","id":true,"method":"a"}`, bad, `"id" of a request`},
		{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, bad, `"method" must be`},
		{"null method", `{"jsonrpc":"2.0","id":1,"method":null}`, bad, `"method" must be`},
		{"method as array", `{"jsonrpc":"2.0","id":1,"method":["a"]}`, bad, `"method" must be`},
		{"array params", `{"jsonrpc":"2.0","id":1,"method":"a","params":[]}`, bad, "must be an object, not array"},
		{"null params", `{"jsonrpc":"2.0","id":1,"method":"a","params":null}`, bad, "must be an object, not null"},
		{"string params", `{"jsonrpc":"2.0","method":"a","params":"x"}`, bad, "must be an object, not string"},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`, bad, `"method" beside`},
		{"method and error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"method":"a"}`, bad, `"method" beside`},
		{"method and null result", `{"jsonrpc":"2.0","id":1,"method":"a","result":null}`, bad, `"method" beside`},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, bad, "exactly one"},
		{"result and null error", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, bad, "exactly one"},
		{"result and params", `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, bad, `"params" beside`},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, bad, `"id" of a result`},
		{"result with null id", `{"jsonrpc":"2.0","id":null,"result":{}}`, bad, `"id" of a result`},
		{"error with fraction id", `{"jsonrpc":"2.0","id":1.5,"error":{"code":1,"message":""}}`, bad, `"id" of an error`},
		{"error as string", `{"jsonrpc":"2.0","id":1,"error":"no"}`, bad, `"error" must be an object`},
		{"error without code", `{"jsonrpc":"2.0","id":1,"error":{"message":""}}`, bad, `"code" of an error`},
		{"error with fraction code", `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`, bad, `"code" of an error`},
		{"error with string code", `{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}`, bad, `"code" of an error`},
		{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, bad, `"message" of an error`},
		{"two messages", `{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","method":"b"}`, parse, `more input after the value: "{"`},
		{"trailing NUL", "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\x00", parse, `more input after the value: "\x00"`},
		{"cut short", `{"jsonrpc":"2.0","method":"a"`, parse, "not end of input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m jsonrpc.Message
			refused(t, m.Scan([]byte(c.in), jsonrpc.Limits{}), c.code, c.want)
			if m.Form() != 0 || len(m.Top) != 0 || m.Method() != "" {
				t.Errorf("a refused message is not empty: %+v", m.Top)
			}
		})
	}
}

func TestScanSpans(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params": {"n\u0061me" : "gr\u00e4\n" ,"arguments":{"name":1},"_meta":{"progressToken":9,"a/b":[ 1 , 2 ]},"other":true}}`
	m := scan(t, in)
	show := func(ms jsonrpc.Members) string {
		var b strings.Builder
		for _, x := range ms {
			fmt.Fprintf(&b, "%s|%s|%s|%s\n", x.Key, m.Bytes(x.KeySpan), x.Kind, m.Bytes(x.Value))
		}
		return b.String()
	}
	if got, want := show(m.Params), `name|"n\u0061me"|string|"gr\u00e4\n"
arguments|"arguments"|object|{"name":1}
_meta|"_meta"|object|{"progressToken":9,"a/b":[ 1 , 2 ]}
other|"other"|boolean|true
`; got != want {
		t.Errorf("params:\n%s\nwant:\n%s", got, want)
	}
	if got, want := show(m.Meta), "progressToken|\"progressToken\"|number|9\na/b|\"a/b\"|array|[ 1 , 2 ]\n"; got != want {
		t.Errorf("_meta:\n%s\nwant:\n%s", got, want)
	}
	if len(m.Top) != 4 || len(m.Result)+len(m.ResultMeta)+len(m.Error) != 0 {
		t.Errorf("top %d, result %d, result._meta %d, error %d", len(m.Top), len(m.Result), len(m.ResultMeta), len(m.Error))
	}
	name, _ := m.Params.Get("name")
	if s, err := m.String(name); s != "grä\n" || err != nil {
		t.Errorf("String = %q, %v", s, err)
	}
	other, _ := m.Params.Get("other")
	if s, err := m.String(other); err == nil {
		t.Errorf("String of a boolean = %q", s)
	}
	if _, ok := m.Params.Get("Name"); ok {
		t.Error("Get ignores case")
	}

	m = scan(t, `{"result":{"_meta":{"x":1},"content":[]},"id":5,"jsonrpc":"2.0"}`)
	if show(m.Result) != "_meta|\"_meta\"|object|{\"x\":1}\ncontent|\"content\"|array|[]\n" || show(m.ResultMeta) != "x|\"x\"|number|1\n" {
		t.Errorf("result %q, result._meta %q", show(m.Result), show(m.ResultMeta))
	}
	m = scan(t, `{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"m","data":{"code":2}}}`)
	if show(m.Error) != "code|\"code\"|number|-1\nmessage|\"message\"|string|\"m\"\ndata|\"data\"|object|{\"code\":2}\n" {
		t.Errorf("error %q", show(m.Error))
	}

	// Keys and methods are copies: they survive the buffer.
	raw := []byte(in)
	var kept jsonrpc.Message
	if err := kept.Scan(raw, jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	method, key := kept.Method(), kept.Params[3].Key
	for i := range raw {
		raw[i] = '#'
	}
	if method != "tools/call" || key != "other" {
		t.Errorf("method %q, key %q after the buffer changed", method, key)
	}
	if b := kept.Bytes(jsonrpc.Span{Start: 0, End: 3}); cap(b) != 3 {
		t.Errorf("an append to Bytes writes into the message: capacity %d", cap(b))
	}
	for _, s := range []jsonrpc.Span{{Start: -1, End: 2}, {Start: 3, End: 2}, {Start: 0, End: len(raw) + 1}} {
		if b := kept.Bytes(s); b != nil {
			t.Errorf("Bytes(%v) = %q", s, b)
		}
	}
}

func TestReuseLeavesNothingBehind(t *testing.T) {
	var m jsonrpc.Message
	for _, in := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","_meta":{"k":1}}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"k":1},"tools":[1]}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}}`,
	} {
		if err := m.ScanTolerant([]byte(in), jsonrpc.Limits{}, "tools"); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Scan([]byte(`{"jsonrpc":"2.0","method":"b"}`), jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	if len(m.Top) != 2 || len(m.Params)+len(m.Meta)+len(m.Result)+len(m.ResultMeta)+len(m.Error)+len(m.List) != 0 || m.ID() != nil {
		t.Errorf("left over: %+v", m)
	}
	m.Reset()
	if m.Form() != 0 || m.Raw != nil || len(m.Top) != 0 {
		t.Errorf("after Reset: %+v", m)
	}
}

func TestScanSettlesAtNoAllocation(t *testing.T) {
	call := []byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo","arguments":{"message":"hi","\u0061":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p1"}}}`)
	answer := []byte(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}`)
	var m jsonrpc.Message
	dst := make([]byte, 0, 1024)
	n := testing.AllocsPerRun(100, func() {
		if m.Scan(call, jsonrpc.Limits{}) != nil || m.Scan(answer, jsonrpc.Limits{}) != nil {
			t.Fatal("refused")
		}
		id, _ := m.Top.Get("id")
		dst, _ = jsonrpc.Splice(dst[:0], answer, jsonrpc.Edit{Span: id.Value, With: []byte(`"x"`)})
	})
	if n != 0 {
		t.Errorf("%v allocations per round", n)
	}
}

// TestC07 is case C07 of the acceptance cases: a checker must not read one name
// while the executor runs another.
func TestC07LookAlikeMembers(t *testing.T) {
	request := func(params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
	}
	for _, c := range []struct{ name, in, want string }{
		{"the case itself", request(`{"name":"greet","Name":"purge","arguments":{}}`), `member "Name" of params imitates "name"`},
		{"twin before", request(`{"Name":"purge","name":"greet"}`), `imitates "name"`},
		{"instead of", request(`{"NAME":"purge"}`), `imitates "name"`},
		{"uri", request(`{"uri":"a","URI":"b"}`), `imitates "uri"`},
		{"exact twin", request(`{"name":"greet","name":"purge"}`), `duplicate member name "name"`},
		{"twin in escapes", request(`{"name":"greet","n\u0061me":"purge"}`), `duplicate member name "name"`},
		{"escaped look-alike", request(`{"\u004eame":"purge"}`), `imitates "name"`},
		{"NUL at the end", request(`{"name":"greet","name\u0000":"purge"}`), `imitates "name"`},
		{"NUL in front", request(`{"\u0000name":"purge"}`), `imitates "name"`},
		{"NUL within", request(`{"na\u0000me":"purge"}`), `imitates "name"`},
		{"other control character", request(`{"name\u001b":"purge"}`), `imitates "name"`},
		{"delete", request("{\"name\x7f\":1}"), `imitates "name"`},
		{"zero width space", request("{\"na\u200bme\":1}"), `imitates "name"`},
		{"zero width joiner", request("{\"name\u200d\":1}"), `imitates "name"`},
		{"byte order mark", request("{\"\ufeffname\":1}"), `imitates "name"`},
		{"soft hyphen", request("{\"na\u00adme\":1}"), `imitates "name"`},
		{"right to left override", request("{\"\u202ename\":1}"), `imitates "name"`},
		{"tag characters", request("{\"name\U000e0061\":1}"), `imitates "name"`},
		{"variation selector", request("{\"name\ufe0f\":1}"), `imitates "name"`},
		{"hangul filler", request("{\"name\u3164\":1}"), `imitates "name"`},
		{"space at the end", request(`{"name ":1}`), `imitates "name"`},
		{"tab and no-break space at the end", request("{\"name\\t\u00a0\":1}"), `imitates "name"`},
		{"space in front", request(`{" name":1}`), `imitates "name"`},
		{"space, then NUL", request(`{"name \u0000":1}`), `imitates "name"`},
		{"full width", request("{\"ｎａｍｅ\":1}"), `imitates "name"`},
		{"full width capital", request("{\"Ｎame\":1}"), `imitates "name"`},
		{"full width low line", request("{\"＿meta\":{}}"), `imitates "_meta"`},
		{"long s", request("{\"argument\u017f\":{}}"), `imitates "arguments"`},
		{"kelvin sign", request("{\"tas\u212aId\":1}"), `imitates "taskId"`},
		{"camel case lost", request(`{"requeststate":"x"}`), `imitates "requestState"`},
		{"input responses", request(`{"InputResponses":{}}`), `imitates "inputResponses"`},
		{"progress token", request(`{"_meta":{"progresstoken":1}}`), `member "progresstoken" of params._meta imitates "progressToken"`},
		{"protocol version", request(`{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"x"}}`), `imitates "io.modelcontextprotocol/protocolVersion"`},
		{"client capabilities", request(`{"_meta":{"IO.modelcontextprotocol/clientCapabilities":{}}}`), `imitates "io.modelcontextprotocol/clientCapabilities"`},
		{"client info", request("{\"_meta\":{\"io.modelcontextprotocol\uff0fclientInfo\":{}}}"), `imitates "io.modelcontextprotocol/clientInfo"`},
		{"log level", request(`{"_meta":{"io.modelcontextprotocol/loglevel":"x"}}`), `imitates "io.modelcontextprotocol/logLevel"`},
		{"duplicate in arguments", request(`{"name":"greet","arguments":{"a":{"b":1,"b":2}}}`), `duplicate member name "b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m jsonrpc.Message
			refused(t, m.Scan([]byte(c.in), jsonrpc.Limits{}), jsonrpc.InvalidRequest, c.want)
			if string(m.ID()) != "7" {
				t.Errorf("the refusal cannot be addressed: id %q", m.ID())
			}
		})
	}
	for _, c := range []struct{ name, in, want string }{
		{"method twice", `{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}`, `duplicate member name "method"`},
		{"Method", `{"jsonrpc":"2.0","id":7,"method":"a","Method":"b"}`, `member "Method" of the envelope imitates "method"`},
		{"paramſ", `{"jsonrpc":"2.0","id":7,"method":"a","paramſ":{}}`, `imitates "params"`},
		{"two ids", `{"jsonrpc":"2.0","id":7,"id":8,"method":"a"}`, `duplicate member name "id"`},
		{"ID", `{"jsonrpc":"2.0","id":7,"ID":8,"method":"a"}`, `imitates "id"`},
		{"JSONRPC", `{"JSONRPC":"2.0","jsonrpc":"2.0","id":7,"method":"a"}`, `imitates "jsonrpc"`},
		{"Result", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""},"Result":{}}`, `imitates "result"`},
		{"Error", `{"jsonrpc":"2.0","id":7,"result":{},"Error":{}}`, `imitates "error"`},
	} {
		t.Run("envelope: "+c.name, func(t *testing.T) {
			var m jsonrpc.Message
			refused(t, m.Scan([]byte(c.in), jsonrpc.Limits{}), jsonrpc.InvalidRequest, c.want)
			if m.ID() != nil {
				t.Errorf("id %q of an ambiguous envelope", m.ID())
			}
		})
	}
	for name, in := range map[string]string{
		"every known name of params": request(`{"name":1,"arguments":{},"cursor":1,"uri":1,"_meta":{},"requestState":1,"inputResponses":1,"protocolVersion":1,"capabilities":1,"clientInfo":1,"level":1,"ref":1,"argument":1,"requestId":1,"reason":1,"progressToken":1,"progress":1,"total":1,"notifications":1,"taskId":1}`),
		"every known name of _meta":  request(`{"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":1,"io.modelcontextprotocol/clientCapabilities":1,"io.modelcontextprotocol/clientInfo":1,"io.modelcontextprotocol/logLevel":1,"traceparent":"x"}}`),
		"inside arguments":           request(`{"name":"x","arguments":{"Name":1,"name":2,"NAME ":3,"ID":4}}`),
		"unknown names":              request("{\"nаme\":1,\"names\":2,\"na me\":3,\"nam\":4,\"x-Name\":5,\"\":6,\" \":7,\"\\u0000\":8}"), // the first with a Cyrillic letter
		"inside result":              `{"jsonrpc":"2.0","id":1,"result":{"Name":1,"_Meta":{},"_meta":{"ProgressToken":1},"params":{"Name":1}}}`,
		"inside error":               `{"jsonrpc":"2.0","id":1,"error":{"code":1,"Code":2,"message":"x","data":{"ID":1}}}`,
		"name of another level":      `{"jsonrpc":"2.0","id":1,"method":"a","Name":1,"params":{"ID":1,"_meta":{"Name":1}}}`,
	} {
		t.Run("passes: "+name, func(t *testing.T) { scan(t, in) })
	}
}

func TestC08Batches(t *testing.T) {
	batch := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"purge","arguments":{}}}]`
	for _, c := range []struct{ name, in, want string }{
		{"batch", batch, "batch"},
		{"with a byte order mark", "\ufeff" + batch, "byte order mark"},
		{"with space in front", "   \n" + batch, "batch"},
		{"empty", "[]", "batch"},
		{"of one unfinished", "[", "batch"},
		{"message with a byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"a"}`, "byte order mark"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m jsonrpc.Message
			refused(t, m.Scan([]byte(c.in), jsonrpc.Limits{}), jsonrpc.InvalidRequest, c.want)
			if m.ID() != nil {
				t.Errorf("id %q", m.ID())
			}
		})
	}
	// A response from the client is a message; that it answers nothing is for
	// the caller to see from its form.
	if m := scan(t, `{"jsonrpc":"2.0","id":99,"result":{}}`); m.Form() != jsonrpc.Response {
		t.Errorf("form %d", m.Form())
	}
}

func TestC10SizeLimit(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("a", 70_000) + `"}]}}`)
	var m jsonrpc.Message
	if err := m.Scan(in, jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Scan(in, jsonrpc.Limits{Bytes: len(in)}); err != nil {
		t.Errorf("exactly the limit: %v", err)
	}
	if err := m.Scan(in, jsonrpc.Limits{Bytes: len(in) + 1}); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	refused(t, m.Scan(in, jsonrpc.Limits{Bytes: len(in) - 1}), jsonrpc.InvalidRequest, "exceed the limit of")
	refused(t, m.Scan(bytes.Repeat([]byte(" "), 4<<20+1), jsonrpc.Limits{}), jsonrpc.InvalidRequest, "exceed the limit of 4194304")
	refused(t, m.Scan(bytes.Repeat([]byte(" "), 4<<20+1), jsonrpc.Limits{Bytes: -1}), jsonrpc.InvalidRequest, "exceed the limit of 4194304")
	_, err := jsonrpc.ScanValue([]byte("[1,2]"), jsonrpc.Limits{Bytes: 4})
	refused(t, err, jsonrpc.InvalidRequest, "exceed the limit of 4")
}

// C18: what a schema may hold passes, whatever draft it is of; the scan knows
// no schema.
func TestC18SchemasPassAsTheyAre(t *testing.T) {
	schema := `{"type":"object","properties":{"any":true,"none":false,"s":{"type":["string","null"]},"u":{"anyOf":[{"type":"integer"},{"type":"null"}]},"t":{"type":"array","items":[{"type":"string"},{"type":"integer"}]},"p":{"prefixItems":[{"type":"string"}],"items":false}},"additionalProperties":{"type":"string"},"definitions":{"D":{"const":null}}}`
	for _, s := range []string{schema, `{"type":"object"}`, `{"required":null}`, `null`, `"x"`, `{}`, `true`} {
		var m jsonrpc.Message
		in := `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":` + s + `}]}}`
		if err := m.ScanTolerant([]byte(in), jsonrpc.Limits{}, "tools"); err != nil || len(m.List) != 1 || m.List[0].Err != nil {
			t.Fatalf("%s: %v, %+v", s, err, m.List)
		}
		tool, err := jsonrpc.ObjectMembers(nil, m.Bytes(m.List[0].Span))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := tool.Get("inputSchema")
		if b := m.Bytes(m.List[0].Span)[got.Value.Start:got.Value.End]; string(b) != s {
			t.Errorf("got %s, want %s", b, s)
		}
	}
}

// C19 and X17: absent, null, {} and [] stay apart.
func TestC19ArgumentsStayApart(t *testing.T) {
	for _, c := range []struct {
		params string
		kind   jsonrpc.Kind
	}{
		{`{"name":"status"}`, jsonrpc.Invalid},
		{`{"name":"status","arguments":null}`, jsonrpc.Null},
		{`{"name":"status","arguments":{}}`, jsonrpc.Object},
		{`{"name":"status","arguments":[]}`, jsonrpc.Array},
		{`{"name":"status","arguments":"x"}`, jsonrpc.String},
		{`{"name":"status","arguments":{"a":null,"b":{"c":null}}}`, jsonrpc.Object},
	} {
		m := scan(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+c.params+`}`)
		if a, ok := m.Params.Get("arguments"); a.Kind != c.kind || ok != (c.kind != jsonrpc.Invalid) {
			t.Errorf("%s: kind %s, present %v", c.params, a.Kind, ok)
		}
	}
	if m := scan(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`); m.Params != nil {
		t.Errorf("params out of nothing: %v", m.Params)
	}
}

// X06: lines of a log on stdout are no messages.
func TestX06LogLinesAreNoMessages(t *testing.T) {
	for _, line := range []string{
		"Server listening on stdio", `{"level":"info","msg":"x"}`, `{"id":1,"msg":"x"}`, "null", "[]", "", "\r",
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":1,"result":{}}`,
		`starting... {"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}} done`,
	} {
		var m jsonrpc.Message
		if err := m.Scan([]byte(line), jsonrpc.Limits{}); err == nil || m.Form() != 0 {
			t.Errorf("%q is taken for a message", line)
		}
	}
	for _, line := range []string{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"a\u2028b\"}"} {
		scan(t, line)
	}
}

func TestScanBadBytes(t *testing.T) {
	in := func(s string) string { return `{"jsonrpc":"2.0","id":7,"method":"a","params":{"k":{"x":[` + s + `]}}}` }
	const at = 57 // where s starts
	for _, c := range []struct {
		name, in string
		code     int
		offset   int
		want     string
	}{
		{"stray continuation", "\"a\x80\"", jsonrpc.ParseError, at + 2, `invalid UTF-8 in a string: "\x80"`},
		{"overlong slash", "\"\xc0\xaf\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"overlong in three", "\"\xe0\x80\xaf\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"beyond U+10FFFF", "\"\xf4\x90\x80\x80\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"F5", "\"\xf5\x80\x80\x80\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"cut before the quote", "\"\xe2\x82\"", jsonrpc.ParseError, at + 1, "invalid UTF-8"},
		{"in a long string", `"` + strings.Repeat("a", 100) + "\xff" + strings.Repeat("b", 100) + `"`, jsonrpc.ParseError, at + 101, "invalid UTF-8"},
		{"in a name", "{\"\xff\":1}", jsonrpc.ParseError, at + 2, "invalid UTF-8"},
		{"lone high surrogate", `"\ud800"`, jsonrpc.ParseError, at + 1, `lone surrogate in a string: "\\ud800"`},
		{"lone low surrogate", `"x\uDC00"`, jsonrpc.ParseError, at + 2, "lone surrogate"},
		{"surrogates in reverse", `"\uDC00\uD800"`, jsonrpc.ParseError, at + 1, "lone surrogate"},
		{"two high surrogates", `"\uD800\uD800\uDC00"`, jsonrpc.ParseError, at + 1, "lone surrogate"},
		{"high surrogate, then a letter", `"\uD800\u0041"`, jsonrpc.ParseError, at + 1, "lone surrogate"},
		{"lone surrogate in a name", `{"\ud800":1}`, jsonrpc.ParseError, at + 2, "lone surrogate"},
		{"duplicate", `{"a":1,"b":2,"a":3}`, jsonrpc.InvalidRequest, at + 13, `duplicate member name "a", first at byte 58`},
		{"duplicate by escape", `{"\u00e9":1,"é":2}`, jsonrpc.InvalidRequest, at + 12, "duplicate member name"},
		{"duplicate by slash", `{"a/b":1,"a\/b":2}`, jsonrpc.InvalidRequest, at + 9, "duplicate member name"},
		{"duplicate by surrogates", `{"😀":1,"\ud83d\ude00":2}`, jsonrpc.InvalidRequest, at + 10, "duplicate member name"},
		{"duplicate empty name", `{"":1,"":2}`, jsonrpc.InvalidRequest, at + 6, "duplicate member name"},
		{"exponent", "1e10001", jsonrpc.InvalidRequest, at, `exponent that is too large: "1e10001"`},
		{"huge exponent", "1e1000000000", jsonrpc.InvalidRequest, at, "exponent"},
		{"negative exponent", "-1.5E-99999999999999999999", jsonrpc.InvalidRequest, at, "exponent"},
		{"too many digits", strings.Repeat("7", 4097), jsonrpc.InvalidRequest, at, `too many digits: "77777`},
		{"too many digits in all", strings.Repeat("7", 2000) + "." + strings.Repeat("7", 2097), jsonrpc.InvalidRequest, at, "too many digits"},
		{"too many digits of exponent", "1e" + strings.Repeat("0", 4096), jsonrpc.InvalidRequest, at, "too many digits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m jsonrpc.Message
			e := refused(t, m.Scan([]byte(in(c.in)), jsonrpc.Limits{}), c.code, c.want)
			if e.Offset != c.offset {
				t.Errorf("offset %d, want %d", e.Offset, c.offset)
			}
			if string(m.ID()) != "7" {
				t.Errorf("id %q", m.ID())
			}
		})
	}
	for _, s := range []string{
		`"\ud83d\ude00"`, `"\uD83D\uDE00😀é€"`, `"\ufffd�"`, "\"\u2028\x7f\"", `"\u0000"`, "\"\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"",
		"1e10000", "1e-10000", "1e00000000000000000000000000001", strings.Repeat("7", 4096), `{"a":{"a":1},"b":{"a":1}}`, `{"a":1},{"a":1}`,
	} {
		scan(t, in(s))
	}
	t.Run("an id that offends is not returned", func(t *testing.T) {
		for _, id := range []string{`"\ud800"`, "\"\xff\"", strings.Repeat("1", 4097)} {
			var m jsonrpc.Message
			if err := m.Scan([]byte(`{"jsonrpc":"2.0","method":"a","id":`+id+`}`), jsonrpc.Limits{}); err == nil || m.ID() != nil {
				t.Errorf("error %v, id %q", err, m.ID())
			}
		}
	})
	t.Run("echo is bounded", func(t *testing.T) {
		for _, key := range []string{strings.Repeat("k", 1000), strings.Repeat("\u202e", 1000), strings.Repeat(`\u0001`, 30)} {
			var m jsonrpc.Message
			e := refused(t, m.Scan([]byte(in(`{"`+key+`":1,"`+key+`":2}`)), jsonrpc.Limits{}), jsonrpc.InvalidRequest, "duplicate")
			from, to := strings.IndexByte(e.Reason, '"'), strings.LastIndexByte(e.Reason, '"')
			if to-from+1 > 40 || strings.ContainsFunc(e.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("echoes %d bytes: %s", to-from+1, e.Reason)
			}
		}
	})
}

func TestDepth(t *testing.T) {
	nest := func(n int) []byte {
		return []byte(strings.Repeat(`[`, n) + strings.Repeat(`]`, n))
	}
	for _, c := range []struct {
		limit, depth int
		ok           bool
	}{{0, 64, true}, {0, 65, false}, {1, 1, true}, {1, 2, false}, {256, 256, true}, {1 << 30, 257, false}, {0, 1_000_000, false}} {
		_, err := jsonrpc.ScanValue(nest(c.depth), jsonrpc.Limits{Depth: c.limit})
		if c.ok && err != nil {
			t.Errorf("limit %d, depth %d: %v", c.limit, c.depth, err)
		}
		if !c.ok {
			refused(t, err, jsonrpc.InvalidRequest, "nested deeper")
		}
	}
	// Objects count like arrays, and the envelope is a level.
	var m jsonrpc.Message
	in := []byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[{"b":1}]}}`)
	if err := m.Scan(in, jsonrpc.Limits{Depth: 4}); err != nil {
		t.Error(err)
	}
	refused(t, m.Scan(in, jsonrpc.Limits{Depth: 3}), jsonrpc.InvalidRequest, "nested deeper than the limit of 3 levels")

	for _, unsound := range []string{`[[[}]]`, `[[[`, `[[["]]]`, `[[{]]`} {
		_, err := jsonrpc.ScanValue([]byte(unsound), jsonrpc.Limits{Depth: 1})
		refused(t, err, jsonrpc.ParseError, "")
	}
}

// TestManyMembers would not end if the check for duplicates were quadratic.
func TestManyMembers(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, 34, 100, 200_000} {
		for _, prefix := range []string{"same at the front and of one length: ", "", `\u00e9`} {
			if n > 100 && prefix == "" {
				break // the first is the worst: every name has the same hash
			}
			var b strings.Builder
			b.WriteByte('{')
			for i := range n {
				fmt.Fprintf(&b, `"%s%08d same at the end":0,`, prefix, i)
			}
			in := b.String()
			if _, err := jsonrpc.ScanValue([]byte(in+`"z":0}`), jsonrpc.Limits{Bytes: 1 << 30}); err != nil {
				t.Fatalf("%d members: %v", n, err)
			}
			for _, i := range []int{0, n / 2, n - 1} {
				if n > 100 && i > 0 {
					break
				}
				twin := fmt.Sprintf(`"%s%08d same at the end":0`, prefix, i)
				_, err := jsonrpc.ScanValue([]byte(in+twin+"}"), jsonrpc.Limits{Bytes: 1 << 30})
				if e := refused(t, err, jsonrpc.InvalidRequest, "duplicate member name"); e.Offset != len(in) {
					t.Errorf("%d members, twin of %d: at byte %d, want %d", n, i, e.Offset, len(in))
				}
			}
		}
	}
}

// TestGrammar holds corner cases in the manner of JSONTestSuite. encoding/json
// must agree on every one of them.
func TestGrammar(t *testing.T) {
	valid := []string{
		`[]`, `{}`, `[ ]`, "[\t]", `null`, `true`, `false`, `0`, `-0`, `0.0`, `-1`, `1e1`, `1E+2`, `1.5e-3`, `123123123123123123123`,
		`""`, `" "`, `"\"\\\/\b\f\n\r\t"`, `"\u0041"`, `"\uABcd"`, `[1,2,3]`, `[[[]]]`, `[{}]`, `{"":0}`, `{"a":{"b":[]}}`, " [1] ", "\n\t\r {} ",
		`["a", 1 , null ,true,false]`, `{"a" : 1 , "b":2}`, "\"\x7f\"", `[0e1]`, `[1e0]`, `"abcdefg"`, `"abcdefgh"`, `"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"`,
	}
	invalid := []string{
		``, ` `, `[`, `]`, `{`, `}`, `[1,]`, `[,1]`, `[1,,2]`, `[1 2]`, `[1}`, `{]`, `{"a":1]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,"a":1}`, `{a:1}`, `{'a':1}`, `{1:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a"::1}`, `{null:1}`,
		`+1`, `01`, `-01`, `00`, `1.`, `.5`, `-.5`, `1.e1`, `1e`, `1e+`, `1E-`, `1e1.5`, `-`, `--1`, `1-`, `0x1`, `1_000`, `Infinity`, `-Infinity`, `NaN`, `1a`, `0 1`,
		`nul`, `nulll`, `True`, `TRUE`, `tru`, `fals`, `n`, `none`, `undefined`,
		`"`, `"a`, `"\`, `"\"`, `"\x41"`, `"\u"`, `"\u12"`, `"\u123"`, `"\u123g"`, `"\U0041"`, `"\'"`, `'a'`, "\"\n\"", "\"\t\"", "\"\x00\"", "\"\x1f\"", `"a""b"`, `"\ud800\u12"`, `"\ud800\`,
		"\"aaaaaaaa\x01\"", `/**/1`, `1//`, `#1`, `[1]x`, `[1]]`, `{}}`, "1\x00", "\x00", "\v1", "\f1", "\u00a01", "\u20281", "[\u00a0]", `"a"b`, `[1]{}`, "\xff", "[\xff]", "\xff\xfe1",
	}
	for _, in := range valid {
		if !json.Valid([]byte(in)) {
			t.Errorf("encoding/json refuses %q", in)
		}
		if k, err := jsonrpc.ScanValue([]byte(in), jsonrpc.Limits{}); err != nil || k == jsonrpc.Invalid {
			t.Errorf("%q: kind %s, %v", in, k, err)
		}
	}
	for _, in := range invalid {
		if json.Valid([]byte(in)) {
			t.Errorf("encoding/json accepts %q", in)
		}
		k, err := jsonrpc.ScanValue([]byte(in), jsonrpc.Limits{})
		if err == nil || k != jsonrpc.Invalid {
			t.Errorf("%q is accepted as %s", in, k)
			continue
		}
		refused(t, err, jsonrpc.ParseError, "")
	}
	// A quote, a backslash and a control character at every distance from the
	// start, so that each lane of the fast path is looked at.
	for n := range 70 {
		pad := strings.Repeat("x", n)
		for _, c := range []struct {
			in string
			ok bool
		}{{`"` + pad + `"`, true}, {`"` + pad + `\n` + pad + `"`, true}, {`"` + pad + "é" + pad + `"`, true}, {`"` + pad + "\x1f" + pad + `"`, false}, {`"` + pad + `\` + pad + `"`, false}, {`"` + pad + `"` + pad + `"`, false}, {`"` + pad + "!#[]~\x7f" + pad + `"`, true}, {`"` + pad + "\xff" + pad + `"`, false}} {
			if _, err := jsonrpc.ScanValue([]byte(c.in), jsonrpc.Limits{}); (err == nil) != c.ok {
				t.Errorf("%q: %v", c.in, err)
			}
		}
	}
}

func TestScanValueKinds(t *testing.T) {
	for in, want := range map[string]jsonrpc.Kind{`{}`: jsonrpc.Object, `[]`: jsonrpc.Array, `""`: jsonrpc.String, `1`: jsonrpc.Number, `-1`: jsonrpc.Number, `true`: jsonrpc.Bool, `false`: jsonrpc.Bool, `null`: jsonrpc.Null} {
		if k, err := jsonrpc.ScanValue([]byte(in), jsonrpc.Limits{}); k != want || err != nil {
			t.Errorf("%s: %s, %v", in, k, err)
		}
	}
	// Soft offences too leave no kind behind.
	if k, err := jsonrpc.ScanValue([]byte(`{"a":1,"a":2}`), jsonrpc.Limits{}); k != jsonrpc.Invalid || err == nil {
		t.Errorf("kind %s, %v", k, err)
	}
	_, err := jsonrpc.ScanValue([]byte("\ufeff1"), jsonrpc.Limits{})
	refused(t, err, jsonrpc.InvalidRequest, "byte order mark")
	if k, err := jsonrpc.ScanValue([]byte(`{"Name":1,"name":2,"jsonrpc":3}`), jsonrpc.Limits{}); k != jsonrpc.Object || err != nil {
		t.Errorf("a bare value is no envelope: %v", err)
	}
}
