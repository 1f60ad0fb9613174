package assembly

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"aduana/capabilities"
	"aduana/internal/jsonrpc"
)

// Lock is what was accepted: per upstream where it was and which definitions. The zero Lock accepted nothing.
type Lock struct {
	Upstreams map[capabilities.UpstreamID]LockedUpstream
	Digest    capabilities.Digest // of the lock's own text, side file included
}

// LockedUpstream is the accepted part of one upstream. An empty Binding, as a declared catalogue has it, accepts the tools wherever
// the policy points.
type LockedUpstream struct {
	Binding capabilities.Digest
	Tools   []LockedTool
}

// LockedTool is a pin with the accepted bytes: what clients are served, verbatim but for the name.
type LockedTool struct {
	Pin capabilities.Pin
	Raw []byte
}

// ObservedTool is one element of an upstream's list. Problem is set when the element cannot be used; Name may then be empty.
type ObservedTool struct {
	Name       string
	Raw        []byte
	Definition capabilities.Definition
	Problem    string
}

// Observation is the whole list of one upstream as one account saw it.
type Observation struct {
	Account string
	Tools   []ObservedTool
}

// maxSchemaDepth bounds the walk through a schema. The scan that admitted the bytes has its own, tighter limit.
const maxSchemaDepth = 256

// Observe reads one element of a tools/list, verbatim bytes. It never fails: what is wrong with the element is its Problem, so that
// one bad tool does not cost the others.
func Observe(raw []byte) ObservedTool {
	t := ObservedTool{Raw: raw}
	members, err := jsonrpc.ObjectMembers(nil, raw)
	if err != nil {
		t.Problem = "not an unambiguous JSON object: " + err.Error()
		return t
	}
	var list []capabilities.Member
	for _, m := range members {
		canonical, err := jsonrpc.AppendCanonical(nil, raw[m.Value.Start:m.Value.End])
		if err != nil {
			t.Problem = fmt.Sprintf("member %q: %v", m.Key, err)
			return t
		}
		list = append(list, capabilities.Member{Name: m.Key, Value: string(canonical)})
	}
	if t.Definition, err = capabilities.NewDefinition(list); err != nil {
		t.Problem = err.Error()
		return t
	}
	name, ok := members.Get("name")
	if !ok || name.Kind != jsonrpc.String {
		t.Problem = "no name that is a string"
		return t
	}
	if t.Name, err = jsonrpc.DecodeString(raw[name.Value.Start:name.Value.End]); err != nil {
		t.Problem = "name: " + err.Error()
		return t
	}
	t.Problem = schemaProblems(raw, members)
	return t
}

// schemaProblems names what makes a schema unusable. A tool with one is withheld rather than served without it or repaired:
// a client that compiles schemas would lose the whole list over it.
func schemaProblems(raw []byte, members jsonrpc.Members) string {
	input, ok := members.Get("inputSchema")
	if !ok {
		return "no inputSchema"
	}
	if problem := objectSchema(raw[input.Value.Start:input.Value.End]); problem != "" {
		return "inputSchema " + problem
	}
	if output, ok := members.Get("outputSchema"); ok {
		if problem := objectSchema(raw[output.Value.Start:output.Value.End]); problem != "" {
			return "outputSchema " + problem
		}
	}
	return ""
}

func objectSchema(raw []byte) string {
	members, err := jsonrpc.ObjectMembers(nil, raw)
	if err != nil {
		return "is not a JSON object"
	}
	typ, ok := members.Get("type")
	if !ok || string(raw[typ.Value.Start:typ.Value.End]) != `"object"` {
		return `has not "type": "object"`
	}
	if at, ref, dangling := danglingReference(raw, raw, 0); dangling {
		return fmt.Sprintf("refers at %s to %.80q, which is not there", at, ref)
	}
	return ""
}

// danglingReference looks for a "$ref" into the schema itself that addresses nothing, and gives its pointer and text. It follows
// no reference anywhere. What is nested beyond maxSchemaDepth cannot come here: the scan refused it.
func danglingReference(root, raw []byte, depth int) (at, ref string, dangling bool) {
	if depth > maxSchemaDepth {
		return "", "", false
	}
	switch kind(raw) {
	case '{':
		members, err := jsonrpc.ObjectMembers(nil, raw)
		if err != nil {
			return "", "", false
		}
		for _, m := range members {
			value := raw[m.Value.Start:m.Value.End]
			switch m.Key {
			case "enum", "const", "default", "examples": // data, not schema
				continue
			case "$ref":
				if m.Kind != jsonrpc.String {
					break
				}
				ref, err := jsonrpc.DecodeString(value)
				if err != nil || strings.HasPrefix(ref, "#/") && !resolves(root, ref[1:]) {
					return "/$ref", ref, true
				}
				continue
			}
			if m.Kind != jsonrpc.Object && m.Kind != jsonrpc.Array {
				continue
			}
			if at, ref, dangling := danglingReference(root, value, depth+1); dangling {
				return "/" + escapePointer(m.Key) + at, ref, true
			}
		}
	case '[':
		elements, err := jsonrpc.ArrayElements(nil, raw)
		if err != nil {
			return "", "", false
		}
		for i, e := range elements {
			if at, ref, dangling := danglingReference(root, raw[e.Start:e.End], depth+1); dangling {
				return fmt.Sprintf("/%d%s", i, at), ref, true
			}
		}
	}
	return "", "", false
}

func resolves(raw []byte, pointer string) bool {
	for _, segment := range strings.Split(pointer, "/")[1:] {
		segment = unescapePointer(segment)
		switch kind(raw) {
		case '{':
			members, err := jsonrpc.ObjectMembers(nil, raw)
			m, ok := members.Get(segment)
			if err != nil || !ok {
				return false
			}
			raw = raw[m.Value.Start:m.Value.End]
		case '[':
			elements, err := jsonrpc.ArrayElements(nil, raw)
			i := index(segment)
			if err != nil || i < 0 || i >= len(elements) {
				return false
			}
			raw = raw[elements[i].Start:elements[i].End]
		default:
			return false
		}
	}
	return true
}

func kind(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

func index(s string) int {
	if s == "" || len(s) > 9 || len(s) > 1 && s[0] == '0' {
		return -1
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// unescapePointer also undoes percent-encoding, because a "$ref" is a URI fragment (RFC 6901 section 6).
func unescapePointer(s string) string {
	if strings.Contains(s, "%") {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				hi, lo := hexValue(s[i+1]), hexValue(s[i+2])
				if hi >= 0 && lo >= 0 {
					b.WriteByte(byte(hi<<4 | lo))
					i += 2
					continue
				}
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// ErrNotAcceptable is wrapped by Accept.
var ErrNotAcceptable = errors.New("cannot be accepted")

// Accept pins an observed tool.
func Accept(upstream capabilities.UpstreamID, t ObservedTool, verdict capabilities.Verdict, by, at string) (LockedTool, error) {
	if t.Problem != "" {
		return LockedTool{}, fmt.Errorf("%s: tool %q %w: %s", upstream, t.Name, ErrNotAcceptable, t.Problem)
	}
	id := capabilities.Identity{Kind: capabilities.Tool, Upstream: upstream, Name: t.Name}
	return LockedTool{
		Pin: capabilities.Pin{Identity: id, Definition: t.Definition, Verdict: verdict, By: by, At: at},
		Raw: t.Raw,
	}, nil
}
