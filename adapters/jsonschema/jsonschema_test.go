package jsonschema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/adapters/jsonschema"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	lib "github.com/santhosh-tekuri/jsonschema/v6"
)

func TestContract(t *testing.T) { gatewaytest.RunSchemas(t, jsonschema.New()) }

// ask gives "fits", "pointer: detail" of a violation, or "error: …".
func ask(schema, arguments string) string {
	err := jsonschema.New().Validate(context.Background(), "sha256:x", []byte(schema), []byte(arguments))
	var v *gateway.Violation
	switch {
	case err == nil:
		return "fits"
	case errors.As(err, &v):
		return v.Pointer + ": " + v.Detail
	}
	return "error: " + err.Error()
}

const (
	draft4  = `"$schema":"http://json-schema.org/draft-04/schema#",`
	draft7  = `"$schema":"http://json-schema.org/draft-07/schema#",`
	draft19 = `"$schema":"https://json-schema.org/draft/2019-09/schema",`
	draft20 = `"$schema":"https://json-schema.org/draft/2020-12/schema",`
)

// c18 is the schema of the case of that name: what Go structs for schemas cannot hold.
func c18(draft string) string {
	return `{` + draft + `"type":"object","properties":{"any":true,"none":false,"s":{"type":["string","null"]},"u":{"anyOf":[{"type":"integer"},{"type":"null"}]},` +
		`"t":{"type":"array","items":[{"type":"string"},{"type":"integer"}]},"p":{"prefixItems":[{"type":"string"}],"items":false}},` +
		`"additionalProperties":{"type":"string"},"definitions":{"D":{"const":null}},"required":null}`
}

func TestC18SchemasThatStructsCannotHold(t *testing.T) {
	for name, draft := range map[string]string{"default": "", "2020-12": draft20, "07": strings.Replace(draft7, "#", "", 1)} {
		t.Run(name, func(t *testing.T) {
			schema := c18(draft)
			if name == "07" {
				schema = strings.Replace(schema, `"items":false`, `"items":true`, 1) // there, no prefixItems
			}
			for arguments, want := range map[string]string{
				`{}`:                    "fits",
				`{"any":[{}]}`:          "fits",
				`{"none":1}`:            "/none: the schema allows nothing here",
				`{"s":null}`:            "fits",
				`{"s":1}`:               `/s: "type" must be null or string, not number`,
				`{"u":null,"s":"x"}`:    "fits",
				`{"u":"x"}`:             `/u: "anyOf": none of the 2 alternatives fits`,
				`{"t":["a",1,"more"]}`:  "fits",
				`{"t":[1]}`:             `/t/0: "type" must be string, not number`,
				`{"t":["a",1.5]}`:       `/t/1: "type" must be integer, not number`,
				`{"p":["a"]}`:           "fits",
				`{"other":"x"}`:         "fits",
				`{"other":{"deep":[]}}`: `/other: "type" must be string, not object`,
			} {
				if got := ask(schema, arguments); got != want {
					t.Errorf("%s: %s, want %s", arguments, got, want)
				}
			}
			want := `/p/1: "items": no further element is allowed`
			if name == "07" {
				want = "fits"
			}
			if got := ask(schema, `{"p":["a",1]}`); got != want {
				t.Errorf("prefixItems: %s, want %s", got, want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	obj := func(rest string) string { return `{"type":"object",` + rest + `}` }
	for _, c := range []struct{ schema, arguments, want string }{
		// names, lengths, bounds
		{obj(`"additionalProperties":false,"properties":{"a":{}}`), `{"a":1,"b~/c":2}`, `/b~0~1c: "additionalProperties": no such member is allowed`},
		{obj(`"required":["a","b"]`), `{"a":1}`, `: "required": the member "b" is missing`},
		{obj(`"required":["a"]`), `{"\u0061":1}`, `fits`},
		{obj(`"minProperties":2`), `{"a":1}`, `: "minProperties": 1 members, at least 2 are needed`},
		{obj(`"maxProperties":0`), `{"a":1}`, `: "maxProperties": 1 members, at most 0 are allowed`},
		{obj(`"propertyNames":{"maxLength":2}`), `{"abc":1}`, `/abc: "propertyNames": the name is not allowed`},
		{obj(`"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false`), `{"x-a":"1"}`, `fits`},
		{obj(`"patternProperties":{"^x-":{"type":"string"}}`), `{"x-a":1}`, `/x-a: "type" must be string, not number`},
		{obj(`"dependentRequired":{"a":["b"]}`), `{"a":1}`, `: "dependentRequired": with the member "a", the member "b" is needed`},
		{obj(`"dependentSchemas":{"a":{"required":["b"]}}`), `{"a":1}`, `: "required": the member "b" is missing`},
		{`{` + draft7 + `"type":"object","dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"c":1}`, `: "required": the member "d" is missing`},
		{obj(`"properties":{"s":{"minLength":2,"maxLength":3}}`), `{"s":"é"}`, `/s: "minLength": 1 characters, at least 2 are needed`},
		{obj(`"properties":{"s":{"maxLength":3}}`), `{"s":"éééé"}`, `/s: "maxLength": 4 characters, at most 3 are allowed`},
		{obj(`"properties":{"s":{"pattern":"^a+$"}}`), `{"s":"hush"}`, `/s: "pattern" does not match "^a+$"`},
		{obj(`"properties":{"l":{"uniqueItems":true}}`), `{"l":[1,"1",1.0]}`, `/l: "uniqueItems": two elements are equal`},
		{obj(`"properties":{"l":{"uniqueItems":true}}`), `{"l":[{"a":1,"b":2},{"b":2.0,"\u0061":1e0}]}`, `/l: "uniqueItems": two elements are equal`},
		{obj(`"properties":{"l":{"uniqueItems":true}}`), `{"l":[1,true,"1",null,[1],["1"],{"1":1},0]}`, `fits`},
		{obj(`"properties":{"l":{"contains":{"const":1},"minContains":2,"maxContains":2}}`), `{"l":[1,2,1.0,1]}`, `/l: "contains": 3 elements fit, at most 2 are allowed`},
		{obj(`"properties":{"l":{"minItems":1}}`), `{"l":[]}`, `/l: "minItems": 0 elements, at least 1 are needed`},
		// exact numbers
		{obj(`"properties":{"n":{"maximum":9007199254740992}}`), `{"n":9007199254740993}`, `/n: "maximum": the number is too large`},
		{obj(`"properties":{"n":{"exclusiveMinimum":0.1}}`), `{"n":0.1000000000000000000000000000000000001}`, `fits`},
		{obj(`"properties":{"n":{"exclusiveMinimum":0.1}}`), `{"n":1e-1}`, `/n: "exclusiveMinimum": the number is too small`},
		{obj(`"properties":{"n":{"minimum":-2}}`), `{"n":-2.0000000000000000000000001}`, `/n: "minimum": the number is too small`},
		{obj(`"properties":{"n":{"minimum":-20}}`), `{"n":-100}`, `/n: "minimum": the number is too small`},
		{obj(`"properties":{"n":{"maximum":-20}}`), `{"n":-3}`, `/n: "maximum": the number is too large`},
		{obj(`"properties":{"n":{"minimum":20}}`), `{"n":3}`, `/n: "minimum": the number is too small`},
		{obj(`"properties":{"n":{"multipleOf":0.01}}`), `{"n":4.35}`, `fits`},
		{obj(`"properties":{"n":{"multipleOf":0.01}}`), `{"n":4.355}`, `/n: "multipleOf": the number is no multiple`},
		{obj(`"properties":{"n":{"multipleOf":7}}`), `{"n":1e9999}`, `/n: "multipleOf": the number is no multiple`},
		{obj(`"properties":{"n":{"multipleOf":5}}`), `{"n":-1e9999}`, `fits`},
		{obj(`"properties":{"n":{"type":"integer"}}`), `{"n":1.50e1}`, `fits`},
		{obj(`"properties":{"n":{"type":"integer"}}`), `{"n":1.5}`, `/n: "type" must be integer, not number`},
		{obj(`"properties":{"n":{"enum":[100,-0]}}`), `{"n":1.00e2}`, `fits`},
		{obj(`"properties":{"n":{"enum":[100,-0]}}`), `{"n":0.0}`, `fits`},
		{obj(`"properties":{"n":{"enum":["a/b"]}}`), `{"n":"a\/\u0062"}`, `fits`},
		{obj(`"properties":{"n":{"enum":["a"]}}`), `{"n":"hush"}`, `/n: "enum" does not list this value`},
		{obj(`"properties":{"n":{"const":"a","enum":["b"]}}`), `{"n":"a"}`, `/n: "const" does not list this value`},
		// logic
		{obj(`"not":{"required":["a"]}`), `{"a":1}`, `: "not": fits what it must not`},
		{obj(`"oneOf":[{"required":["a"]},{"required":["b"]}]`), `{"a":1,"b":2}`, `: "oneOf": more than one of the 2 alternatives fits`},
		{obj(`"if":{"properties":{"k":{"const":1}}},"then":{"required":["a"]},"else":{"required":["b"]}`), `{"k":2}`, `: "required": the member "b" is missing`},
		{obj(`"allOf":[{"properties":{"a":{}}},{"if":{"required":["b"]},"then":{"properties":{"b":{}}}}],"unevaluatedProperties":false`), `{"a":1,"b":1}`, `fits`},
		{obj(`"anyOf":[{"properties":{"a":{}},"required":["c"]},{"properties":{"b":{}}}],"unevaluatedProperties":false`), `{"a":1,"b":1}`, `/a: "unevaluatedProperties": no such member is allowed`},
		{obj(`"properties":{"l":{"prefixItems":[{}],"contains":{"const":7},"unevaluatedItems":false}}`), `{"l":["x",7,8]}`, `/l/2: "unevaluatedItems": no such element is allowed`},
		// references
		{obj(`"$defs":{"P":{"type":"string"}},"properties":{"p":{"$ref":"#/$defs/P"}}`), `{"p":1}`, `/p: "type" must be string, not number`},
		{obj(`"$defs":{"P":{"$anchor":"p","type":"string"}},"properties":{"p":{"$ref":"#p","maxLength":1}}`), `{"p":"xy"}`, `/p: "maxLength": 2 characters, at most 1 are allowed`},
		{`{` + draft7 + `"type":"object","definitions":{"P":{"type":"string"}},"properties":{"p":{"$ref":"#/definitions/P","maxLength":1}}}`, `{"p":"xy"}`, `fits`},
		{obj(`"$dynamicAnchor":"n","properties":{"kids":{"type":"array","items":{"$dynamicRef":"#n"}}}`), `{"kids":[{"kids":[1]}]}`, `/kids/0/kids/0: "type" must be object, not number`},
		{`{` + draft19 + `"$recursiveAnchor":true,"type":"object","properties":{"kid":{"$recursiveRef":"#"}}}`, `{"kid":{"kid":1}}`, `/kid/kid: "type" must be object, not number`},
		{obj(`"properties":{"s":{"$ref":"http://json-schema.org/draft-07/schema#"}}`), `{"s":{"type":"nonsense"}}`, `/s/type: "anyOf": none of the 2 alternatives fits`},
		{obj(`"$id":"https://example.com/tool","$defs":{"a":{"$id":"a","type":"string"}},"properties":{"p":{"$ref":"a"}}`), `{"p":1}`, `/p: "type" must be string, not number`},
		// drafts differ
		{`{` + draft4 + `"type":"object","properties":{"n":{"minimum":1,"exclusiveMinimum":true}}}`, `{"n":1}`, `/n: "exclusiveMinimum": the number is too small`},
		{`{` + draft4 + `"type":"object","properties":{"n":{"const":1}}}`, `{"n":2}`, `fits`},
		{`{` + draft7 + `"type":"object","properties":{"m":{"type":"string","format":"email"}}}`, `{"m":"nobody"}`, `fits`},
		// arguments that no scan has seen
		{obj(`"required":["a"]`), `{"a":1,"a":2}`, `: not one unambiguous JSON value`},
		{obj(`"required":["a"]`), `{"a":`, `: not one unambiguous JSON value`},
		{obj(`"required":["a"]`), ``, `: not one unambiguous JSON value`},
		{`{"type":"object","title":"x"}`, ``, `: not one unambiguous JSON value`},
		{`{"type":"object","title":"x"}`, ` null`, `: "type" must be object, not null`},
	} {
		if got := ask(c.schema, c.arguments); got != c.want {
			t.Errorf("%s\n%s\ngot  %s\nwant %s", c.schema, c.arguments, got, c.want)
		}
	}
}

func TestUnusableSchemas(t *testing.T) {
	for name, c := range map[string]struct{ schema, want string }{
		"itself":          {`{"type":"object","$ref":"#"}`, "leads back to itself"},
		"in a circle":     {`{"type":"object","properties":{"x":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#/$defs/B"},"B":{"anyOf":[{"$ref":"#/$defs/A"}]}}}`, "leads back to itself"},
		"circle in not":   {`{"type":"object","not":{"not":{"$ref":"#"}}}`, "leads back to itself"},
		"unknown draft":   {`{"$schema":"https://json-schema.org/draft/2099/schema","type":"object"}`, "schema cannot be used"},
		"remote":          {`{"type":"object","properties":{"a":{"$ref":"https://example.com/x"}}}`, "may refer to nothing outside itself"},
		"file":            {`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "may refer to nothing outside itself"},
		"relative":        {`{"type":"object","properties":{"a":{"$ref":"other.json"}}}`, "may refer to nothing outside itself"},
		"metaschema away": {`{"$schema":"file:///etc/passwd","type":"object"}`, "may refer to nothing outside itself"},
		"deep":            {strings.Repeat(`{"not":`, 10000) + `{}` + strings.Repeat(`}`, 10000), "nested deeper"},
		"large":           {`{"type":"object","title":"` + strings.Repeat("x", 600<<10) + `"}`, "exceed the limit"},
		"many parts":      {`{"type":"object","properties":{"default":{"properties":{` + many(9000, `"p%d":{}`) + `}}}}`, "more than 4096 parts"},
		"many ids":        {`{"type":"object","properties":{` + many(100, `"p%[1]d":{"$id":"a%[1]d"}`) + `}}`, "have an $id"},
		"long pointers": {`{"type":"object","properties":{"x":` + strings.Repeat(`{"properties":{"`+strings.Repeat("x", 100)+`":`, 50) +
			`{"anyOf":[` + many(200, `{"const":%d}`) + `]}` + strings.Repeat("}}", 50) + `}}`, "nested deeply under long names"},
		"large bound":      {`{"type":"object","properties":{"n":{"minimum":-1e9999}}}`, "digits on one side of its point"},
		"small bound":      {`{"type":"object","properties":{"n":{"multipleOf":1e-9999}}}`, "digits on one side of its point"},
		"many references":  {`{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` + many(2000, `"d%[1]d":{"$ref":"#/$defs/d%[2]d"}`) + `,"d2000":{}}}`, "refer to each other for one value"},
		"exponent bomb":    {`{"type":"object","properties":{"n":{"maximum":1e1000000000}}}`, "exponent"},
		"length bomb":      {`{"type":"object","properties":{"n":{"maxLength":18446744073709551616}}}`, "beyond 2^53"},
		"divisor bomb":     {`{"type":"object","properties":{"n":{"multipleOf":1.` + strings.Repeat("1", 99) + `}}}`, "multipleOf has more than"},
		"dynamic scope":    {`{"type":"object","$dynamicAnchor":"n","$defs":{"a":{"$id":"a","$dynamicAnchor":"n"}},"properties":{"x":{"$dynamicRef":"a#n"}}}`, "across an $id"},
		"type":             {`{"type":"objekt"}`, "schema cannot be used"},
		"required no list": {`{"type":"object","required":"a"}`, "schema cannot be used"},
		"duplicate member": {`{"type":"object","type":"object"}`, "duplicate member"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(c.schema, `{"x":1}`); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, c.want) || len(got) > 600 {
				t.Errorf("%.700s, want %s", got, c.want)
			}
		})
	}
}

func many(n int, format string) string {
	var list []string
	for i := range n {
		if strings.Contains(format, "[2]") {
			list = append(list, fmt.Sprintf(format, i, i+1))
		} else {
			list = append(list, fmt.Sprintf(format, i))
		}
	}
	return strings.Join(list, ",")
}

// X15: schemas whose work explodes. Each must end at once, with an answer or an error, and never with a crash.
func TestX15ExplodingSchemasEnd(t *testing.T) {
	doubling := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` +
		many(40, `"d%[1]d":{"allOf":[{"$ref":"#/$defs/d%[2]d"},{"$ref":"#/$defs/d%[2]d"}]}`) + `,"d40":{"type":"number"}}}`
	for name, c := range map[string]struct{ schema, arguments, want string }{
		"recursion": {`{"type":"object","properties":{"nodes":{"type":"array","items":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/properties/nodes/items"}}}}}}}`,
			`{"nodes":[{"kids":[{"kids":[{"kids":[1]}]}]}]}`, `/nodes/0/kids/0/kids/0/kids/0: "type" must be object, not number`},
		"doubling":     {doubling, `{"x":1}`, "too many steps"},
		"doubling any": {strings.ReplaceAll(doubling, "allOf", "anyOf"), `{"x":"s"}`, "too many steps"},
		"doubling not": {strings.ReplaceAll(strings.ReplaceAll(doubling, "allOf", "oneOf"), `"$ref":"#/$defs/d1"`, `"not":{"$ref":"#/$defs/d1"}`), `{"x":1}`, "too many steps"},
		"doubling by level": {`{"type":"object","properties":{"x":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`,
			strings.Repeat(`{"x":`, 60) + `{}` + strings.Repeat(`}`, 60), "too many steps"},
		"overlapping names": {`{"type":"object","properties":{"x":{"$ref":"#"}},"patternProperties":{"x":{"$ref":"#"},"^x":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}}`,
			strings.Repeat(`{"x":`, 60) + `{}` + strings.Repeat(`}`, 60), "too many steps"},
		"unevaluated": {`{"type":"object","properties":{"x":{"allOf":[{"$ref":"#"},{"$ref":"#"}],"unevaluatedProperties":false}}}`,
			strings.Repeat(`{"x":`, 60) + `{}` + strings.Repeat(`}`, 60), "too many steps"},
		"dependent": {`{"type":"object","dependentSchemas":{"x":{"properties":{"x":{"$ref":"#"}}},"y":{"properties":{"x":{"$ref":"#"}}}}}`,
			strings.Repeat(`{"y":1,"x":`, 60) + `{}` + strings.Repeat(`}`, 60), "too many steps"},
		"pattern":       {`{"type":"object","properties":{"s":{"pattern":"(a{1,500}b?){2}$"}}}`, `{"s":"` + strings.Repeat("a", 1<<20) + `"}`, "too many steps"},
		"many required": {`{"type":"object","required":[` + many(9000, `"r%d"`) + `]}`, `{` + many(9000, `"r%d":1`) + `}`, "too many steps"},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan string, 1)
			go func() { done <- ask(c.schema, c.arguments) }()
			select {
			case got := <-done:
				if !strings.Contains(got, c.want) {
					t.Errorf("%.300s, want %s", got, c.want)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("still at it")
			}
		})
	}
}

// Large honest arguments are within the budget.
func TestLargeArgumentsFit(t *testing.T) {
	schema := `{"type":"object","additionalProperties":false,"properties":{"rows":{"type":"array","items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer","minimum":0},"tags":{"type":"array","uniqueItems":true,"items":{"enum":["a","b"]}}}}}}}`
	arguments := `{"rows":[` + many(50000, `{"id":%d,"tags":["a","b"]}`) + `]}`
	if got := ask(schema, arguments); got != "fits" {
		t.Error(got)
	}
}

func TestCancelledContextEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := jsonschema.New().Validate(ctx, "", []byte(`{"type":"object","properties":{"l":{"items":{"type":"integer"}}}}`), []byte(`{"l":[`+many(50000, `%d`)+`]}`))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A pattern that is none of RE2 must not let anything through, also not through a negation.
func TestPatternsOutsideRE2(t *testing.T) {
	for name, rules := range map[string]string{
		"plain":        `{"pattern":"^(?!x)"}`,
		"negated":      `{"not":{"pattern":"^(?!x)"}}`,
		"alternative":  `{"anyOf":[{"pattern":"^(?!x)"},{"type":"string"}]}`,
		"condition":    `{"if":{"pattern":"^(?!x)"},"then":{"maxLength":1}}`,
		"back":         `{"pattern":"(a)\\1"}`,
		"not at all":   `{"pattern":"["}`,
		"enormous":     `{"pattern":"` + strings.Repeat("(?:a{1000})", 20) + `"}`,
		"under a name": `{"type":["string","object"],"pattern":"[","patternProperties":{"[":false}}`,
	} {
		got := ask(`{"type":"object","properties":{"s":`+rules+`}}`, `{"s":"abc"}`)
		if !strings.HasPrefix(got, "/s: the pattern ") || !strings.Contains(got, "cannot be judged") {
			t.Errorf("%s: %s", name, got)
		}
		if got := ask(`{"type":"object","properties":{"s":`+rules+`}}`, `{"other":"abc"}`); got != "fits" {
			t.Errorf("%s, where it does not apply: %s", name, got)
		}
	}
}

func TestPointersAreBounded(t *testing.T) {
	name := strings.Repeat("n", 1000)
	schema := `{"type":"object","additionalProperties":{"$ref":"#"}}`
	arguments := strings.Repeat(`{"`+name+`":`, 40) + `1` + strings.Repeat(`}`, 40)
	if got := ask(schema, arguments); len(got) > 500 || !strings.Contains(got, "…") {
		t.Errorf("%d bytes: %.600s", len(got), got)
	}
}

// One compilation serves all, and schemas beyond the cache's bounds still work.
func TestManySchemasAtOnce(t *testing.T) {
	s := jsonschema.New()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				schema := fmt.Sprintf(`{"type":"object","properties":{"n":{"const":%d}},"required":["n"]}`, i)
				digest := capabilities.Digest(fmt.Sprint("sha256:", i))
				if err := s.Validate(t.Context(), digest, []byte(schema), fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
					t.Errorf("worker %d: %v", w, err)
				}
				if err := s.Validate(t.Context(), digest, []byte(schema), fmt.Appendf(nil, `{"n":%d}`, i+1)); err == nil {
					t.Errorf("worker %d: %d fits %s", w, i+1, schema)
				}
			}
		})
	}
	wg.Wait()
}

// The library that reads schemas also judges. It has no budget, quotes values and answers in random order, but on small inputs it
// is a second opinion on yes and no.
func TestAgreesWithTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	yes, checked := 0, 0
	for checked < 8000 && !t.Failed() {
		schema := genSchema(r, 3)
		schema["type"] = "object"
		switch r.IntN(3) {
		case 0:
			schema["$schema"] = "http://json-schema.org/draft-07/schema#"
		case 1:
			schema["$schema"] = "https://json-schema.org/draft/2019-09/schema"
		}
		schema["$defs"] = map[string]any{"a": genSchema(r, 2), "b": genSchema(r, 1)}
		text, _ := json.Marshal(schema)
		doc, err := lib.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		l := lib.NewCompiler()
		l.DefaultDraft(lib.Draft2020)
		if err := l.AddResource("https://schema.invalid/", doc); err != nil {
			t.Fatal(err)
		}
		reference, err := l.Compile("https://schema.invalid/")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		s := jsonschema.New()
		for range 20 {
			value := map[string]any{}
			for range r.IntN(4) {
				value[pick(r, "a", "b", "c", "ab")] = genValue(r, 3)
			}
			arguments, _ := json.Marshal(value)
			instance, _ := lib.UnmarshalJSON(strings.NewReader(string(arguments)))
			want := reference.Validate(instance) == nil
			got := s.Validate(t.Context(), "d", text, arguments)
			var v *gateway.Violation
			if got != nil && !errors.As(got, &v) {
				if !strings.Contains(got.Error(), "leads back to itself") {
					t.Errorf("%v\n%s", got, text)
				}
				break
			}
			checked++
			if want {
				yes++
			}
			if (got == nil) != want {
				t.Errorf("%s\n%s\ngot %v, the library says %v", text, arguments, got, want)
				break
			}
		}
	}
	if yes < checked/10 || yes > checked*9/10 {
		t.Errorf("%d of %d fit: the generator tests little", yes, checked)
	}
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func genValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n <= 3:
		return pick(r, "", "a", "ab", "xyz", "é")
	case n <= 5 || depth == 0:
		return pick[json.Number](r, "0", "1", "2", "1.5", "-1", "3.0", "1e1", "1e-2", "12345678901234567890")
	case n == 6:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, genValue(r, depth-1))
		}
		return list
	}
	m := map[string]any{}
	for range r.IntN(4) {
		m[pick(r, "a", "b", "c", "ab")] = genValue(r, depth-1)
	}
	return m
}

func genSchema(r *rand.Rand, depth int) map[string]any {
	s := map[string]any{}
	sub := func() any {
		if depth == 0 || r.IntN(8) == 0 {
			return r.IntN(4) > 0
		}
		return genSchema(r, depth-1)
	}
	list := func() []any {
		l := []any{sub()}
		for range r.IntN(2) {
			l = append(l, sub())
		}
		return l
	}
	names := func() map[string]any {
		m := map[string]any{}
		for range 1 + r.IntN(2) {
			m[pick(r, "a", "b", "ab")] = sub()
		}
		return m
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(30) {
		case 0:
			s["type"] = pick[any](r, "string", "number", "integer", "object", "array", []string{"null", "object"}, []string{"integer", "string"})
		case 1:
			s["enum"] = []any{pick[any](r, nil, "a", 1.5), pick[any](r, true, "ab", json.Number("1.0")), pick[any](r, []any{1}, map[string]any{"a": "b"})}
		case 2:
			s["const"] = genValue(r, 1)
		case 3, 4, 5:
			s["properties"] = names()
		case 6:
			s["patternProperties"] = map[string]any{pick(r, "a", "^b", "b$"): sub(), "^a": sub()}
		case 7:
			s["additionalProperties"] = sub()
		case 8:
			s["required"] = []string{pick(r, "a", "b", "c")}
		case 9:
			s["propertyNames"] = map[string]any{"maxLength": 1}
		case 10:
			s["minProperties"] = r.IntN(2)
			s["maxProperties"] = 1 + r.IntN(3)
		case 11:
			s["dependentRequired"] = map[string]any{"a": []string{"b"}}
		case 12:
			s["dependentSchemas"] = map[string]any{pick(r, "a", "b"): sub()}
		case 13:
			s["items"] = sub()
		case 14:
			s["contains"] = sub()
			if r.IntN(2) == 0 {
				s["minContains"] = r.IntN(2)
				s["maxContains"] = 2
			}
		case 15:
			s["minItems"] = r.IntN(2)
			s["maxItems"] = 2
		case 16:
			s["uniqueItems"] = true
		case 17:
			s["minLength"] = r.IntN(2)
			s["maxLength"] = 1 + r.IntN(2)
		case 18:
			s["pattern"] = pick(r, "a", "^x", "^$")
		case 19:
			s["minimum"] = pick[json.Number](r, "0", "1.5", "1e0")
		case 20:
			s["exclusiveMaximum"] = pick[json.Number](r, "2", "10", "1.50")
		case 21:
			s["multipleOf"] = pick[json.Number](r, "1", "0.5", "3", "0.01")
		case 22:
			s["allOf"] = list()
		case 23:
			s["anyOf"] = list()
		case 24:
			s["oneOf"] = list()
		case 25:
			s["not"] = sub()
		case 26:
			s["if"], s["then"], s["else"] = sub(), sub(), sub()
		case 27:
			s["unevaluatedProperties"] = sub()
		case 28:
			s["unevaluatedItems"] = sub()
		case 29:
			s["$ref"] = pick(r, "#/$defs/a", "#/$defs/b", "#")
		}
	}
	return s
}

func FuzzValidate(f *testing.F) {
	f.Add(c18(""), `{"s":null,"t":["a",1]}`)
	f.Add(`{"type":"object","$defs":{"a":{"$ref":"#"}},"properties":{"x":{"$ref":"#/$defs/a"}},"unevaluatedProperties":false}`, `{"x":{"x":{}}}`)
	f.Add(`{"type":"object","properties":{"n":{"multipleOf":0.01,"enum":[1e2]}},"patternProperties":{"^(a|b)+$":{}}}`, `{"n":1.00e2}`)
	f.Fuzz(func(t *testing.T, schema, arguments string) {
		s := jsonschema.New()
		first := s.Validate(t.Context(), "d", []byte(schema), []byte(arguments))
		again := s.Validate(t.Context(), "d", []byte(schema), []byte(arguments))
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Fatalf("two answers: %v; %v", first, again)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	for name, c := range map[string]struct{ schema, arguments string }{
		"any object": {`{"type":"object","description":"x"}`, `{"message":"hola"}`},
		"message":    {`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`, `{"message":"hola, que tal, one hundred bytes of text that an echo tool would get from somebody who tests"}`},
		"issue": {`{"type":"object","additionalProperties":false,"required":["owner","repo","title"],"properties":{"owner":{"type":"string"},"repo":{"type":"string","pattern":"^[a-z]+$"},"title":{"type":"string","maxLength":256},"labels":{"type":"array","items":{"enum":["bug","feature"]}},"n":{"type":"integer","minimum":1}}}`,
			`{"owner":"o","repo":"aduana","title":"A title","labels":["bug","feature"],"n":12}`},
	} {
		b.Run(name, func(b *testing.B) {
			s := jsonschema.New()
			schema, arguments := []byte(c.schema), []byte(c.arguments)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Validate(context.Background(), "sha256:x", schema, arguments); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	s := jsonschema.New()
	schema := []byte(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`)
	for b.Loop() {
		if err := s.Validate(context.Background(), "", schema, []byte(`{"message":"x"}`)); err != nil {
			b.Fatal(err)
		}
	}
}
