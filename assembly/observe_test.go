package assembly_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"aduana/assembly"
	"aduana/capabilities"
)

func TestObserve(t *testing.T) {
	nested := strings.Repeat(`{"properties":{"a":`, 60) + `{"$ref":"#/$defs/No"}` + strings.Repeat(`}}`, 60)
	tests := []struct {
		name    string
		raw     string
		tool    string // the name that was read
		problem string // empty: usable
	}{
		{"plain", `{"name":"ok1","inputSchema":{"type":"object"}}`, "ok1", ""},
		{"blanks and order do not matter", " {\n\"inputSchema\" : {\"type\" : \"object\"} , \"name\" : \"ok1\" } ", "ok1", ""},
		{"C17 ok2: a reference that resolves, and members that nobody knows",
			`{"name":"ok2","inputSchema":{"type":"object","$defs":{"P":{"type":"string"}},"properties":{"p":{"$ref":"#/$defs/P"}},` +
				`"additionalProperties":false,"x-vendor":1}}`, "ok2", ""},
		{"C17 half: a reference to nothing",
			`{"name":"half","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"v":{"$ref":"#/$defs/View"}}}}`,
			"half", `outputSchema refers at /properties/v/$ref to "#/$defs/View", which is not there`},
		{"a reference to nothing in the input",
			`{"name":"t","inputSchema":{"type":"object","$defs":{"P":{}},"allOf":[{},{"$ref":"#/$defs/Q"}]}}`,
			"t", `inputSchema refers at /allOf/1/$ref to "#/$defs/Q", which is not there`},
		{"a reference to nothing, deep down", `{"name":"t","inputSchema":{"type":"object","not":` + nested + `}}`, "t", "which is not there"},
		{"schema null", `{"name":"t","inputSchema":null}`, "t", "inputSchema is not a JSON object"},
		{"schema a string", `{"name":"t","inputSchema":"object"}`, "t", "inputSchema is not a JSON object"},
		{"schema a boolean", `{"name":"t","inputSchema":true}`, "t", "inputSchema is not a JSON object"},
		{"schema a list", `{"name":"t","inputSchema":[{"type":"object"}]}`, "t", "inputSchema is not a JSON object"},
		{"schema of a string", `{"name":"t","inputSchema":{"type":"string"}}`, "t", `inputSchema has not "type": "object"`},
		{"schema of several types", `{"name":"t","inputSchema":{"type":["object"]}}`, "t", `inputSchema has not "type": "object"`},
		{"schema of no type", `{"name":"t","inputSchema":{}}`, "t", `inputSchema has not "type": "object"`},
		{"schema whose type is written with an escape is not guessed at", `{"name":"t","inputSchema":{"type":"obj\u0065ct"}}`, "t", `inputSchema has not "type": "object"`},
		{"no schema", `{"name":"t"}`, "t", "no inputSchema"},
		{"schema under another spelling", `{"name":"t","inputschema":{"type":"object"}}`, "t", "no inputSchema"},
		{"output schema null", `{"name":"t","inputSchema":{"type":"object"},"outputSchema":null}`, "t", "outputSchema is not a JSON object"},
		{"output schema of no type", `{"name":"t","inputSchema":{"type":"object"},"outputSchema":{}}`, "t", `outputSchema has not "type": "object"`},

		{"reference to the whole", `{"name":"t","inputSchema":{"type":"object","properties":{"c":{"$ref":"#"}}}}`, "t", ""},
		{"reference that turns in a circle", `{"name":"t","inputSchema":{"type":"object","$defs":{"A":{"$ref":"#/$defs/B"},"B":{"$ref":"#/$defs/A"}}}}`, "t", ""},
		{"recursive reference (X15)", `{"name":"t","inputSchema":{"type":"object","properties":{"nodes":{"type":"array","items":{"type":"object",` +
			`"properties":{"kids":{"type":"array","items":{"$ref":"#/properties/nodes/items"}}}}}}}}`, "t", ""},
		{"reference into a list", `{"name":"t","inputSchema":{"type":"object","anyOf":[{},{"type":"object"}],"not":{"$ref":"#/anyOf/1"}}}`, "t", ""},
		{"reference past a list", `{"name":"t","inputSchema":{"type":"object","anyOf":[{}],"not":{"$ref":"#/anyOf/1"}}}`, "t", "which is not there"},
		{"reference with a leading zero", `{"name":"t","inputSchema":{"type":"object","anyOf":[{}],"not":{"$ref":"#/anyOf/00"}}}`, "t", "which is not there"},
		{"reference into a text", `{"name":"t","inputSchema":{"type":"object","not":{"$ref":"#/type/0"}}}`, "t", "which is not there"},
		{"reference with escapes", `{"name":"t","inputSchema":{"type":"object","$defs":{"a/b~c d%":{}},"not":{"$ref":"#/$defs/a~1b~0c%20d%25"}}}`, "t", ""},
		{"reference with escapes in small letters", `{"name":"t","inputSchema":{"type":"object","$defs":{"a/b":{},"é":{}},"not":{"$ref":"#/$defs/%c3%a9"}}}`, "t", ""},
		{"an escaped slash is a slash, and inside a segment that is ~1", `{"name":"t","inputSchema":{"type":"object","$defs":{"a/b":{}},"not":{"$ref":"#/$defs/a%2fb"}}}`,
			"t", "which is not there"},
		{"reference with a percent sign of its own", `{"name":"t","inputSchema":{"type":"object","$defs":{"50%":{},"%zz":{}},"allOf":[{"$ref":"#/$defs/50%"},{"$ref":"#/$defs/%zz"}]}}`, "t", ""},
		{"reference to another document is not followed", `{"name":"t","inputSchema":{"type":"object","not":{"$ref":"https://s.test/x#/y"}}}`, "t", ""},
		{"a property called $ref is no reference", `{"name":"t","inputSchema":{"type":"object","properties":{"$ref":{"type":"string"}}}}`, "t", ""},
		{"data is no schema", `{"name":"t","inputSchema":{"type":"object","default":{"$ref":"#/no"},"examples":[{"$ref":"#/no"}],` +
			`"enum":[{"$ref":"#/no"}],"const":{"$ref":"#/no"}}}`, "t", ""},

		{"escaped name", `{"name":"\u0066oo","inputSchema":{"type":"object"}}`, "foo", ""},
		{"empty name is the Ledger's business", `{"name":"","inputSchema":{"type":"object"}}`, "", ""},
		{"no name", `{"inputSchema":{"type":"object"}}`, "", "no name that is a string"},
		{"name a number", `{"name":1,"inputSchema":{"type":"object"}}`, "", "no name that is a string"},
		{"name null", `{"name":null,"inputSchema":{"type":"object"}}`, "", "no name that is a string"},
		{"name of half a surrogate", `{"name":"\ud800","inputSchema":{"type":"object"}}`, "", "not an unambiguous JSON object"},
		{"a member twice", `{"name":"a","name":"b","inputSchema":{"type":"object"}}`, "", "not an unambiguous JSON object"},
		{"a member twice, once escaped", `{"name":"a","n\u0061me":"b","inputSchema":{"type":"object"}}`, "", "not an unambiguous JSON object"},
		{"a member twice, inside", `{"name":"a","inputSchema":{"type":"object","type":"string"}}`, "", "not an unambiguous JSON object"},
		{"null", `null`, "", "not an unambiguous JSON object"},
		{"a list", `[]`, "", "not an unambiguous JSON object"},
		{"a string", `"tool"`, "", "not an unambiguous JSON object"},
		{"nothing", ``, "", "not an unambiguous JSON object"},
		{"half of it", `{"name":"a"`, "", "not an unambiguous JSON object"},
		{"two of them", `{"name":"a"}{}`, "", "not an unambiguous JSON object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := assembly.Observe([]byte(tt.raw))
			if got.Name != tt.tool || (got.Problem == "") != (tt.problem == "") || !strings.Contains(got.Problem, tt.problem) {
				t.Errorf("name %q, problem %q; want %q, %q", got.Name, got.Problem, tt.tool, tt.problem)
			}
			if string(got.Raw) != tt.raw {
				t.Errorf("the bytes became %s", got.Raw)
			}
			_, err := assembly.Accept("s", got, capabilities.ReadVerdict, "ana", "2026-05-03T12:00:00Z")
			if (err == nil) != (tt.problem == "") {
				t.Errorf("Accept: %v", err)
			}
		})
	}
}

// TestObserveIsBounded: references cost work in proportion to what is listed, not to its square; the first of these would otherwise
// take a minute. What people write is taken.
func TestObserveIsBounded(t *testing.T) {
	distinct := func(n int) string {
		var refs, defs strings.Builder
		for i := range n {
			fmt.Fprintf(&refs, `{"$ref":"#/$defs/d%d"},`, i)
			fmt.Fprintf(&defs, `"d%d":{},`, i)
		}
		return `{"type":"object","allOf":[` + refs.String() + `{}],"$defs":{` + defs.String() + `"x":{}}}`
	}
	for _, tt := range []struct{ name, schema, problem string }{
		{"one reference, many times", `{"type":"object","allOf":[` + strings.Repeat(`{"$ref":"#/$defs/x"},`, 50_000) + `{}],"$defs":{"x":{}}}`, ""},
		{"4096 references", distinct(4096), ""},
		{"4097 references", distinct(4097), "inputSchema has more than 4096 different references"},
		{"a reference longer than anything is deep", `{"type":"object","not":{"$ref":"#` + strings.Repeat("/a", 100_000) + `"}}`,
			`inputSchema refers at /not/$ref to "#` + strings.Repeat("/a", 39) + `/", which is not there`},
	} {
		if o := assembly.Observe([]byte(`{"name":"t","inputSchema":` + tt.schema + `}`)); o.Problem != tt.problem {
			t.Errorf("%s: problem %q, want %q", tt.name, o.Problem, tt.problem)
		}
	}
}

// TestObservedDigest: what the list says counts, and how it is written does not; numbers count as written.
func TestObservedDigest(t *testing.T) {
	digest := func(raw string) capabilities.Digest {
		o := assembly.Observe([]byte(raw))
		if o.Problem != "" {
			t.Fatalf("%s: %s", raw, o.Problem)
		}
		return o.Definition.Digest()
	}
	base := digest(`{"name":"t","inputSchema":{"type":"object","x":{"a":1,"b":[1,2]}}}`)
	for _, same := range []string{
		`{"inputSchema":{"x":{"b":[1,2],"a":1},"type":"object"},"name":"t"}`,
		"{ \"name\" : \"\\u0074\",\n\t\"inputSchema\":{\"type\":\"object\",\"x\":{\"a\":1,\"b\":[ 1 , 2 ]}}}",
	} {
		if digest(same) != base {
			t.Errorf("another digest: %s", same)
		}
	}
	for _, other := range []string{
		`{"name":"t","inputSchema":{"type":"object","x":{"a":1.0,"b":[1,2]}}}`,
		`{"name":"t","inputSchema":{"type":"object","x":{"a":1,"b":[2,1]}}}`,
		`{"name":"t","inputSchema":{"type":"object","x":{"a":1,"b":[1,2]}},"_meta":{}}`,
	} {
		if digest(other) == base {
			t.Errorf("the same digest: %s", other)
		}
	}
}

func TestAccept(t *testing.T) {
	o := assembly.Observe([]byte(`{"name":"pay","inputSchema":{"type":"object"}}`))
	locked, err := assembly.Accept("erp", o, capabilities.DestructiveVerdict, "ana", "2026-05-03T12:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	pin := locked.Pin
	if pin.Identity.Canonical() != "mcp:erp:pay" || pin.Verdict != "destructive" || pin.By != "ana" || pin.At != "2026-05-03T12:00:00Z" || pin.Partial ||
		pin.Definition.Digest() != o.Definition.Digest() || !bytes.Equal(locked.Raw, o.Raw) {
		t.Errorf("%+v", locked)
	}
	_, err = assembly.Accept("erp", assembly.Observe([]byte(`{"name":"pay"}`)), capabilities.ReadVerdict, "ana", "")
	if want := `erp: tool "pay" cannot be accepted: no inputSchema`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// FuzzObserve: whatever an upstream lists, reading it ends, keeps the bytes, and gives either a problem or something whose every
// member is there.
func FuzzObserve(f *testing.F) {
	for _, s := range []string{
		`{"name":"ok2","inputSchema":{"type":"object","$defs":{"P":{"type":"string"}},"properties":{"p":{"$ref":"#/$defs/P"}},"x-vendor":1}}`,
		`{"name":"half","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"v":{"$ref":"#/$defs/View"}}}}`,
		`{"name":"t","inputSchema":{"type":"object","anyOf":[{}],"not":{"$ref":"#/anyOf/0"}},"_meta":{"aduana/x":1,"y":12345678901234567890}}`,
		`{"name":"\u0066oo","inputSchema":{"type":"object","a":{"$ref":"#/%7E1"}}}`,
		`{"name":"a","n\u0061me":"b"}`, `{"name":1}`, `null`, `[]`, ``, `{"":{}}`, `{"name":"a","inputSchema":{"type":"object","$ref":"#/"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := assembly.Observe(bytes.Clone(raw))
		if !bytes.Equal(o.Raw, raw) {
			t.Fatalf("the bytes became %q", o.Raw)
		}
		if o.Problem != "" {
			return
		}
		if name, ok := o.Definition.Get("name"); !ok || name == "" {
			t.Fatalf("usable without a name: %q", raw)
		}
		if schema, ok := o.Definition.Get("inputSchema"); !ok || !strings.HasPrefix(schema, "{") {
			t.Fatalf("usable without a schema: %q", raw)
		}
		again := assembly.Observe(bytes.Clone(raw))
		if again.Name != o.Name || again.Definition.Digest() != o.Definition.Digest() {
			t.Fatalf("read twice: %+v, %+v", o, again)
		}
		locked, err := assembly.Accept("s", o, capabilities.ReadVerdict, "a", "")
		if err != nil {
			t.Fatal(err)
		}
		if drift, changes := locked.Pin.Compare(again.Definition); drift != capabilities.NoDrift || changes != nil {
			t.Fatalf("differs from itself in %v", changes)
		}
	})
}
