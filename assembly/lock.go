package assembly

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
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
	// All references are looked for in one walk: to follow each from the root would cost the square of what an upstream lists.
	found := map[string]bool{}
	danglingReference(raw, 0, func(pointer string) bool {
		if len(found) <= maxReferences {
			found[pointer] = false
		}
		return true
	})
	switch {
	case len(found) == 0:
		return ""
	case len(found) > maxReferences:
		return fmt.Sprintf("has more than %d different references", maxReferences)
	}
	find(raw, found)
	at, ref, dangling := danglingReference(raw, 0, func(pointer string) bool { return found[pointer] })
	if dangling {
		return fmt.Sprintf("refers at %s to %.80q, which is not there", at, ref)
	}
	return ""
}

// maxReferences bounds the different references of one schema; those that people write have some dozens.
const maxReferences = 4096

// danglingReference looks for a "$ref" into the schema itself that is not there, and gives its pointer and text. It follows
// no reference anywhere. What is nested beyond maxSchemaDepth cannot come here: the scan refused it.
func danglingReference(raw []byte, depth int, there func(pointer string) bool) (at, ref string, dangling bool) {
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
				if err != nil || strings.HasPrefix(ref, "#/") && !there(ref[1:]) {
					return "/$ref", ref, true
				}
				continue
			}
			if m.Kind != jsonrpc.Object && m.Kind != jsonrpc.Array {
				continue
			}
			if at, ref, dangling := danglingReference(value, depth+1, there); dangling {
				return "/" + escapePointer(m.Key) + at, ref, true
			}
		}
	case '[':
		elements, err := jsonrpc.ArrayElements(nil, raw)
		if err != nil {
			return "", "", false
		}
		for i, e := range elements {
			if at, ref, dangling := danglingReference(raw[e.Start:e.End], depth+1, there); dangling {
				return fmt.Sprintf("/%d%s", i, at), ref, true
			}
		}
	}
	return "", "", false
}

// step is where pointers with a common beginning have come to.
type step struct {
	below map[string]*step
	ends  []string // the pointers that end here, in every spelling
}

// find marks the pointers that address something.
func find(raw []byte, found map[string]bool) {
	root := &step{}
	// any order: the tree is the same.
	for pointer := range found {
		segments := strings.Split(percentDecoded(pointer), "/")[1:]
		if len(segments) > maxSchemaDepth {
			continue // nothing is that deep
		}
		s := root
		for _, segment := range segments {
			segment = strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
			if s.below == nil {
				s.below = map[string]*step{}
			}
			if s.below[segment] == nil {
				s.below[segment] = &step{}
			}
			s = s.below[segment]
		}
		s.ends = append(s.ends, pointer)
	}
	root.mark(raw, found)
}

func (s *step) mark(raw []byte, found map[string]bool) {
	for _, pointer := range s.ends {
		found[pointer] = true
	}
	if len(s.below) == 0 {
		return
	}
	switch kind(raw) {
	case '{':
		members, _ := jsonrpc.ObjectMembers(nil, raw) // the scan has taken these bytes
		for _, m := range members {
			if next := s.below[m.Key]; next != nil {
				next.mark(raw[m.Value.Start:m.Value.End], found)
			}
		}
	case '[':
		elements, _ := jsonrpc.ArrayElements(nil, raw)
		for i, e := range elements {
			if next := s.below[strconv.Itoa(i)]; next != nil { // "00" is no index (RFC 6901 section 4)
				next.mark(raw[e.Start:e.End], found)
			}
		}
	}
}

func kind(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// percentDecoded gives the pointer of a URI fragment: decoded as a whole, before it is taken apart (RFC 6901 section 6).
func percentDecoded(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
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
	return b.String()
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
