package gatewaytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"aduana/capabilities"
	"aduana/gateway"
)

// RunSchemas checks the contract of gateway.Schemas.
func RunSchemas(t T, s gateway.Schemas) {
	t.Helper()
	const (
		message = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`
		exact   = `{"type":"object","properties":{"n":{"const":9007199254740993}},"required":["n"]}`
	)
	type check struct{ schema, arguments, pointer string }
	var wg sync.WaitGroup
	var mu sync.Mutex
	validate := func(i int, schema, arguments string) error {
		return s.Validate(context.Background(), capabilities.Digest(fmt.Sprintf("sha256:%064d", i)), []byte(schema), []byte(arguments))
	}
	for i, list := range [][]check{
		{{`{"type":"object"}`, `{}`, "fits"}, {`{"type":"object"}`, `{"a":[1,{"b":null}]}`, "fits"}, {`{"type":"object"}`, `[]`, ""}},
		{{message, `{"message":"hola"}`, "fits"}, {message, `{"message":"\u00e9","more":1}`, "fits"}, {message, `{}`, ""},
			{message, `{"message":12345678901234}`, "/message"}, {message, `{"message":null}`, "/message"}},
		// Neighbours that are one number to anything that computes in floats.
		{{exact, `{"n":9007199254740993}`, "fits"}, {exact, `{"n":9007199254740993.0}`, "fits"}, {exact, `{"n":9007199254740992}`, "/n"}},
	} {
		for _, c := range list {
			for range 4 {
				wg.Go(func() {
					err := validate(i, c.schema, c.arguments)
					var v *gateway.Violation
					mu.Lock()
					defer mu.Unlock()
					switch {
					case c.pointer == "fits":
						if err != nil {
							t.Errorf("%s does not fit %s: %v", c.arguments, c.schema, err)
						}
					case !errors.As(err, &v):
						t.Errorf("%s against %s: error %v, want a violation", c.arguments, c.schema, err)
					case v.Pointer != c.pointer:
						t.Errorf("%s against %s: violation at %q, want %q", c.arguments, c.schema, v.Pointer, c.pointer)
					case strings.Contains(v.Error(), "12345678901234"):
						t.Errorf("a violation shows a value: %v", v)
					}
				})
			}
		}
	}
	wg.Wait()

	for i, schema := range []string{
		``, `{`, `null`, `{"type":"nonsense"}`, `{"type":"object"} {}`,
		`{"$schema":"https://example.com/no-such-draft","type":"object"}`,
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/schema.json"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/absent"}}}`,
	} {
		for range 2 { // the second time it may come from a cache
			err := validate(100+i, schema, `{"a":1}`)
			var v *gateway.Violation
			if err == nil || errors.As(err, &v) {
				t.Errorf("unusable schema %s: error %v, want one that is no violation", schema, err)
			}
		}
	}
}

// Objects is a fake gateway.Schemas: every JSON object fits every schema, unless Err says something else.
type Objects struct {
	Err error
}

var _ gateway.Schemas = Objects{}

// Validate looks at the first byte.
func (o Objects) Validate(_ context.Context, _ capabilities.Digest, _, arguments []byte) error {
	if o.Err == nil && !bytes.HasPrefix(arguments, []byte("{")) {
		return &gateway.Violation{Detail: "not an object"}
	}
	return o.Err
}
