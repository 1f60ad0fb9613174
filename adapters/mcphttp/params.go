package mcphttp

import (
	"bytes"
	"errors"
	"strings"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// This file is the Mcp-Param-* headers of 2026-07-28: a tool's schema may name arguments that the request repeats in headers, for
// the sake of proxies that cannot read bodies. A client must send them, and must not use a tool that asks for them in a wrong way.

// paramHeader is one argument that goes into a header as well.
type paramHeader struct {
	header string
	path   []string // of property names, from the arguments down
}

const annotation = "x-mcp-header"

// maxParamHeaders bounds those of one tool: each is compared with all before it, and servers take no more than about a hundred headers.
const maxParamHeaders = 64

var (
	errAnnotation  = errors.New(annotation + " is not on a string, integer or boolean that properties alone lead to, or its name is not a header's or not its own")
	errAnnotations = errors.New(annotation + " is on more than 64 arguments")
)

// mirror remembers which arguments of which tools go into headers. A tool that asks wrongly becomes a problem of its own.
func (s *session) mirror(tools []mcp.ListedTool) {
	byName := map[string][]paramHeader{}
	for i := range tools {
		t := &tools[i]
		if t.Problem != "" || !bytes.Contains(t.Raw, []byte(annotation)) {
			continue
		}
		members, err := jsonrpc.ObjectMembers(nil, t.Raw)
		if err != nil {
			continue
		}
		schema, ok := members.Get("inputSchema")
		name, named := members.Get("name")
		if !ok || !named {
			continue // judged elsewhere
		}
		text, err := jsonrpc.DecodeString(t.Raw[name.Value.Start:name.Value.End])
		if err != nil {
			continue
		}
		list, err := paramHeaders(nil, t.Raw[schema.Value.Start:schema.Value.End], nil, true)
		if err != nil {
			t.Problem, t.Raw = err.Error(), nil
			continue
		}
		if len(list) > 0 {
			byName[text] = list
		}
	}
	s.params.Store(&byName)
}

// paramHeaders walks a schema. Only properties lead to where an annotation may stand.
func paramHeaders(list []paramHeader, schema []byte, path []string, reachable bool) ([]paramHeader, error) {
	if !bytes.Contains(schema, []byte(annotation)) {
		return list, nil
	}
	if len(schema) > 0 && schema[0] == '[' {
		spans, err := jsonrpc.ArrayElements(nil, schema)
		if err != nil {
			return nil, errAnnotation
		}
		for _, e := range spans {
			if list, err = paramHeaders(list, schema[e.Start:e.End], nil, false); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	if len(schema) == 0 || schema[0] != '{' {
		return list, nil
	}
	members, err := jsonrpc.ObjectMembers(nil, schema)
	if err != nil {
		return nil, errAnnotation
	}
	for _, m := range members {
		value := schema[m.Value.Start:m.Value.End]
		switch m.Key {
		case annotation:
			h, err := jsonrpc.DecodeString(value)
			if err != nil || !reachable || len(path) == 0 || !token(h) || !scalar(schema, members) {
				return nil, errAnnotation
			}
			if len(list) == maxParamHeaders {
				return nil, errAnnotations
			}
			for _, other := range list {
				if strings.EqualFold(other.header, h) {
					return nil, errAnnotation
				}
			}
			list = append(list, paramHeader{header: h, path: path})
		case "properties":
			if m.Kind != jsonrpc.Object {
				continue
			}
			properties, err := jsonrpc.ObjectMembers(nil, value)
			if err != nil {
				return nil, errAnnotation
			}
			for _, p := range properties {
				below := append(path[:len(path):len(path)], p.Key)
				if list, err = paramHeaders(list, value[p.Value.Start:p.Value.End], below, reachable); err != nil {
					return nil, err
				}
			}
		case "default", "const", "enum", "examples": // data, not schemas
		default:
			if list, err = paramHeaders(list, value, nil, false); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func scalar(schema []byte, members jsonrpc.Members) bool {
	t, _ := members.Get("type")
	switch string(schema[t.Value.Start:t.Value.End]) {
	case `"string"`, `"integer"`, `"boolean"`:
		return true
	}
	return false
}

// token is RFC 9110's: what a header's name may be.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// mirrored gives the header lines for the arguments of a call that its tool wants in headers too.
func (s *session) mirrored(c *gateway.UpstreamCall) string {
	byName := s.params.Load()
	if byName == nil || len((*byName)[c.Name]) == 0 {
		return ""
	}
	arguments, ok := c.Request.Params.Get("arguments")
	if !ok || arguments.Kind != jsonrpc.Object {
		return ""
	}
	lines := ""
	for _, p := range (*byName)[c.Name] {
		if value, ok := lookup(c.Request.Bytes(arguments.Value), p.path); ok {
			lines += "Mcp-Param-" + p.header + ": " + value + "\r\n"
		}
	}
	return lines
}

// lookup gives the header text of the argument at a path; absent and null have none.
func lookup(raw []byte, path []string) (string, bool) {
	for i, name := range path {
		members, err := jsonrpc.ObjectMembers(nil, raw)
		if err != nil {
			return "", false
		}
		m, ok := members.Get(name)
		if !ok {
			return "", false
		}
		raw = raw[m.Value.Start:m.Value.End]
		if i < len(path)-1 {
			continue
		}
		switch m.Kind {
		case jsonrpc.String:
			text, err := jsonrpc.DecodeString(raw)
			return mcp.EncodeHeader(text), err == nil
		case jsonrpc.Number, jsonrpc.Bool:
			return string(raw), true
		}
	}
	return "", false
}
