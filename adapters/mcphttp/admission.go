package mcphttp

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"aduana/capabilities"
	"aduana/gateway"
)

// This file is what a request must be before anybody asks who sent it: a known path, an admitted Host and Origin, a method and a
// form of body that MCP has. Nothing here reads a body or a credential's value.

type place uint8

const (
	nowhere place = iota
	atMCP
	atHealth
)

// route tells where a request goes, by the exact bytes of its path. It is no http.ServeMux, because that answers "//mcp" and "/mcp/."
// with redirects: a path is one of these, or it is not here.
func (s *Server) route(r *http.Request) (capabilities.UpstreamID, place) {
	path := r.URL.EscapedPath()
	switch path {
	case "/mcp", "/mcp/":
		return "", atMCP
	case "/health":
		if s.o.Health == nil {
			return "", nowhere
		}
		return "", atHealth
	}
	rest, ok := strings.CutPrefix(path, "/mcp/")
	if !ok {
		return "", nowhere
	}
	// The grammar admits no '/', '%' or '.', so that no spelling of another path passes.
	id := capabilities.UpstreamID(strings.TrimSuffix(rest, "/"))
	if !id.Valid() {
		return "", nowhere
	}
	return id, atMCP
}

// admission holds the names under which the server may be asked. A browser that was made to resolve a stranger's name to this
// machine still sends the stranger's name (2026-07-28, security: DNS rebinding).
type admission struct {
	hosts   []string // lower case
	origins []string
}

func newAdmission(hosts, origins []string) admission {
	a := admission{origins: slices.Clone(origins)}
	for _, h := range hosts {
		a.hosts = append(a.hosts, strings.ToLower(h))
	}
	return a
}

func (a *admission) host(r *http.Request) bool {
	return r.URL.User == nil && a.named(r.Host)
}

// named judges one "name" or "name:port".
func (a *admission) named(host string) bool {
	host = strings.ToLower(host)
	name, ok := splitPort(host)
	if !ok {
		return false
	}
	switch name {
	case "localhost", "127.0.0.1", "[::1]":
		return true
	}
	return slices.Contains(a.hosts, name) || slices.Contains(a.hosts, host)
}

// splitPort cuts a port off a host. It is stricter than net.SplitHostPort: the port is a number, and nothing is repaired.
func splitPort(host string) (name string, ok bool) {
	at := strings.LastIndexByte(host, ':')
	if at < 0 || strings.HasSuffix(host, "]") {
		return host, host != ""
	}
	name = host[:at]
	port, err := strconv.ParseUint(host[at+1:], 10, 16)
	if err != nil || port == 0 || host[at+1] == '0' || name == "" || strings.Contains(name, ":") && name[0] != '[' {
		return "", false
	}
	return name, true
}

// origin admits requests that no page sent, those of the server's own pages, and configured ones. The Host is admitted already, so
// that an origin equal to it is not a stranger's.
func (a *admission) origin(r *http.Request) bool {
	values, present := r.Header["Origin"]
	if !present {
		return true
	}
	if len(values) != 1 {
		return false
	}
	own := "http://"
	if r.TLS != nil {
		own = "https://"
	}
	rest, ok := strings.CutPrefix(values[0], own)
	return ok && strings.EqualFold(rest, r.Host) || slices.Contains(a.origins, values[0])
}

// acceptable checks method, version, media types, encoding and size, or answers.
func (s *Server) acceptable(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet, http.MethodDelete:
		for _, v := range r.Header["Mcp-Protocol-Version"] {
			if v >= modernVersion {
				w.Header().Set("Allow", http.MethodPost)
				s.refuse(w, http.StatusMethodNotAllowed, "this version of MCP has neither GET nor DELETE")
				return false
			}
		}
		if r.Method == http.MethodGet && !accepts(r.Header["Accept"], "text", "event-stream") {
			s.refuse(w, http.StatusNotAcceptable, "Accept must admit text/event-stream")
			return false
		}
		return true
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		s.refuse(w, http.StatusMethodNotAllowed, "MCP is spoken with POST; a session also knows GET and DELETE")
		return false
	}
	if t := r.Header["Content-Type"]; len(t) != 1 || t[0] != "application/json" && !isJSON(t[0]) {
		// A form or text/plain is what a page of any site may post without asking first.
		s.refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return false
	}
	if e := r.Header["Content-Encoding"]; len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "identity") {
		s.refuse(w, http.StatusUnsupportedMediaType, "Content-Encoding must be identity")
		return false
	}
	if a := r.Header["Accept"]; (len(a) != 1 || a[0] != bothTypes) &&
		!(accepts(a, "application", "json") && accepts(a, "text", "event-stream")) {
		s.refuse(w, http.StatusNotAcceptable, "Accept must admit application/json and text/event-stream")
		return false
	}
	if r.ContentLength > s.o.MaxBody {
		s.tooLong(w)
		return false
	}
	return true
}

// bothTypes is how the specification writes Accept.
const bothTypes = "application/json, text/event-stream"

func isJSON(contentType string) bool {
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil || t != "application/json" {
		return false
	}
	for k, v := range params {
		if k != "charset" || !strings.EqualFold(v, "utf-8") {
			return false
		}
	}
	return true
}

// accepts judges an Accept header by RFC 9110 section 12.5.1: absent admits all, a weight of 0 admits nothing, the most specific
// range counts.
func accepts(values []string, typ, subtype string) bool {
	if len(values) == 0 {
		return true
	}
	best, admitted := 0, false
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			rng, params, _ := strings.Cut(part, ";")
			t, st, ok := strings.Cut(strings.ToLower(strings.TrimSpace(rng)), "/")
			if !ok {
				continue
			}
			rank := 0
			switch {
			case t == typ && st == subtype:
				rank = 3
			case t == typ && st == "*":
				rank = 2
			case t == "*" && st == "*":
				rank = 1
			}
			if rank == 0 || rank < best {
				continue
			}
			best, admitted = rank, !refusedWeight(params)
		}
	}
	return admitted
}

func refusedWeight(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(k, "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return err != nil || q <= 0
		}
	}
	return false
}

// credential takes the one credential of a request: exactly one Authorization header of scheme Bearer with one token. ok is false
// when there is none, or anything else, also a second header: whoever checked only one of two would be fooled by the other.
func credential(r *http.Request) (gateway.Credential, bool) {
	c := gateway.Credential{Surface: gateway.OverHTTP}
	values := r.Header["Authorization"]
	if len(values) != 1 || len(values[0]) > maxToken {
		return c, false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return c, false
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return c, false
		}
	}
	c.Bearer = gateway.NewSecret(token)
	return c, true
}

// maxToken bounds a credential; a JWT of 16 KiB is a mistake.
const maxToken = 16 << 10
