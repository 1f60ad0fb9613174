package mcp

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"aduana/internal/jsonrpc"
)

// Headers are the HTTP headers that repeat a modern message. Each slice holds every value that came: more than one is a mismatch.
type Headers struct {
	Version []string // MCP-Protocol-Version
	Method  []string // Mcp-Method
	Name    []string // Mcp-Name
}

// EraOfMessage tells the era of one client message: modern when its _meta names a protocol version or the HTTP header names a modern
// one. Whether the two agree is for CheckModern to say. The presence of Mcp-Method alone says nothing.
func EraOfMessage(m *jsonrpc.Message, h *Headers) Era {
	if _, ok := m.Meta.Get(MetaVersion); ok {
		return Modern
	}
	if h != nil {
		for _, v := range h.Version {
			if v >= V20260728 {
				return Modern
			}
		}
	}
	return Legacy
}

// CheckModern holds a modern request to the rules of 2026-07-28: required _meta members, a version spoken here, and, over HTTP,
// headers that say what the body says. Headers is nil over stdio.
func CheckModern(m *jsonrpc.Message, h *Headers) *Error {
	version := ""
	if v, ok := m.Meta.Get(MetaVersion); ok && v.Kind == jsonrpc.String {
		version, _ = m.String(v)
	}
	if h != nil {
		if e := agree("MCP-Protocol-Version", h.Version, version); e != nil {
			return e
		}
	}
	if version == "" {
		return &Error{Code: CodeInvalidParams, Message: "params._meta must hold " + MetaVersion + ", a string", Status: http.StatusBadRequest}
	}
	if EraOf(version) != Modern {
		data := append([]byte(nil), `{"supported":[`...)
		for i, v := range Versions() {
			if i > 0 {
				data = append(data, ',')
			}
			data = jsonrpc.AppendString(data, v)
		}
		data = append(data, `],"requested":`...)
		data = append(jsonrpc.AppendString(data, clip(version)), '}')
		return &Error{Code: CodeUnsupportedVersion, Message: "unsupported protocol version " + clip(version), Data: data, Status: http.StatusBadRequest}
	}
	if c, ok := m.Meta.Get(MetaCapabilities); !ok || c.Kind != jsonrpc.Object {
		return &Error{Code: CodeInvalidParams, Message: "params._meta must hold " + MetaCapabilities + ", an object", Status: http.StatusBadRequest}
	}
	if h == nil {
		return nil
	}
	if e := agree("Mcp-Method", h.Method, m.Method()); e != nil {
		return e
	}
	member := nameMember(m.Method())
	if member == "" {
		return nil
	}
	name, ok := m.Params.Get(member)
	if !ok || name.Kind != jsonrpc.String {
		return nil // the method's own check of its params says it better
	}
	text, err := m.String(name)
	if err != nil {
		return &Error{Code: CodeInvalidParams, Message: "params." + member + " is not a string", Status: http.StatusBadRequest}
	}
	return agreeDecoded("Mcp-Name", h.Name, text)
}

// nameMember is the member of params that Mcp-Name repeats (2026-07-28, transports, standard headers).
func nameMember(method string) string {
	switch method {
	case MethodToolsCall, "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		return "taskId"
	}
	return ""
}

func agree(header string, values []string, want string) *Error {
	if len(values) == 1 && want != "" && values[0] == want {
		return nil
	}
	return mismatch(header, values)
}

func agreeDecoded(header string, values []string, want string) *Error {
	if len(values) == 1 {
		if got, ok := DecodeHeader(values[0]); ok && got == want {
			return nil
		}
	}
	return mismatch(header, values)
}

func mismatch(header string, values []string) *Error {
	reason := header + " does not say what the body says"
	switch len(values) {
	case 0:
		reason = header + " is missing; a request of " + V20260728 + " must repeat the body in it"
	case 1:
	default:
		reason = header + " came more than once"
	}
	return &Error{Code: CodeHeaderMismatch, Message: reason, Status: http.StatusBadRequest}
}

// The sentinel of a header value that had to be encoded (2026-07-28, transports).
const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// EncodeHeader gives the value of Mcp-Name for a text: itself when it is printable ASCII without blanks at its edges and does not look
// encoded, its UTF-8 in base64 between sentinels otherwise.
func EncodeHeader(s string) string {
	plain := s != "" && !strings.HasPrefix(s, sentinelStart)
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			plain = false
		}
	}
	if plain && s[0] != ' ' && s[len(s)-1] != ' ' {
		return s
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelEnd
}

// DecodeHeader undoes EncodeHeader. A sentinel around something that is not base64 of UTF-8 is refused.
func DecodeHeader(s string) (string, bool) {
	inner, ok := strings.CutPrefix(s, sentinelStart)
	if !ok {
		return s, true
	}
	inner, ok = strings.CutSuffix(inner, sentinelEnd)
	if !ok {
		return "", false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil || !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}
