package gatewaytest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
)

type validate func(schema, arguments []byte) error

func (f validate) Validate(_ context.Context, _ capabilities.Digest, schema, arguments []byte) error {
	return f(schema, arguments)
}

// answers is the smallest validator that keeps the contract on what the suite asks: it stands for a sound one that tests then break.
func answers(schema, arguments []byte) error {
	var s struct {
		Schema     string                     `json:"$schema"`
		Type       string                     `json:"type"`
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Type != "object" || s.Schema != "" || bytes.Contains(schema, []byte("$ref")) {
		return errors.New("unusable")
	}
	var a map[string]json.RawMessage
	if json.Unmarshal(arguments, &a) != nil {
		return &gateway.Violation{Detail: "no object"}
	}
	for _, name := range s.Required {
		value, ok := a[name]
		switch rule := string(s.Properties[name]); {
		case !ok:
			return &gateway.Violation{Detail: "missing"}
		case strings.Contains(rule, "string") && value[0] != '"',
			strings.Contains(rule, "const") && !strings.HasPrefix(string(value), "9007199254740993"):
			return &gateway.Violation{Pointer: "/" + name, Detail: "wrong"}
		}
	}
	return nil
}

func TestSchemasSuite(t *testing.T) {
	gatewaytest.RunSchemas(t, validate(answers))
	for name, c := range map[string]struct {
		broken validate
		report string
	}{
		"accepts everything": {func([]byte, []byte) error { return nil }, "want a violation"},
		"accepts what it cannot judge": {func(schema, arguments []byte) error {
			err := answers(schema, arguments)
			if v := new(gateway.Violation); errors.As(err, &v) {
				return err
			}
			return nil
		}, "unusable schema"},
		"blames the arguments for the schema": {func(schema, arguments []byte) error {
			if err := answers(schema, arguments); err != nil {
				return &gateway.Violation{Detail: err.Error()}
			}
			return nil
		}, "unusable schema"},
		"blames the schema for the arguments": {func(schema, arguments []byte) error {
			if err := answers(schema, arguments); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}, "want a violation"},
		"computes in floats": {func(schema, arguments []byte) error {
			return answers(schema, bytes.ReplaceAll(arguments, []byte("740992"), []byte("740993")))
		}, `{"n":9007199254740992} against`},
		"quotes values": {func(schema, arguments []byte) error {
			err := answers(schema, arguments)
			if v := new(gateway.Violation); errors.As(err, &v) {
				v.Detail = string(arguments)
			}
			return err
		}, "a violation shows a value"},
		"points nowhere": {func(schema, arguments []byte) error {
			err := answers(schema, arguments)
			if v := new(gateway.Violation); errors.As(err, &v) {
				v.Pointer = "/x"
			}
			return err
		}, `violation at "/x"`},
		"opens files": {func(schema, arguments []byte) error {
			if bytes.Contains(schema, []byte("file:")) {
				return nil
			}
			return answers(schema, arguments)
		}, "file:///etc/hostname"},
	} {
		t.Run(name, func(t *testing.T) {
			var r gatewaytest.Recorder
			gatewaytest.RunSchemas(&r, c.broken)
			reports(t, &r, c.report)
		})
	}
}
