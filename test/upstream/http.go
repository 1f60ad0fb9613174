package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// ServeHTTP answers on every path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away while sending
	}
	m, code, why := parse(body)
	hv := r.Header.Get("Mcp-Protocol-Version")
	modern := hv >= Modern || metaVersion(m.params) >= Modern
	s.log.add(Received{Verb: r.Method, Path: r.URL.RequestURI(), Header: withHost(r), Body: string(body),
		Method: m.method, Tool: toolName(m), Session: r.Header.Get("Mcp-Session-Id"), Modern: modern})
	if s.cfg.Hook != nil && s.cfg.Hook(w, r, body) {
		return
	}
	s.mu.Lock()
	bearer := s.bearer
	s.mu.Unlock()
	if bearer != "" && !slices.Equal(r.Header.Values("Authorization"), []string{"Bearer " + bearer}) {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		sink := &httpSink{w: w, rc: http.NewResponseController(w), sse: s.cfg.SSE, prime: s.cfg.SSEPrime}
		defer sink.end()
		s.post(r, body, m, code, why, modern, sink)
	case modern || s.cfg.Eras == ModernOnly:
		w.Header().Set("Allow", "POST")
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		s.get(w, r)
	case r.Method == http.MethodDelete:
		s.del(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func withHost(r *http.Request) http.Header {
	h := maps.Clone(r.Header)
	h["Host"] = []string{r.Host} // net/http takes it out of the header
	return h
}

func (s *Server) post(r *http.Request, body []byte, m message, code int, why string, modern bool, sink *httpSink) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		sink.plain(http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") {
		sink.plain(http.StatusNotAcceptable, "Accept must hold application/json and text/event-stream")
		return
	}
	if code != 0 {
		sink.fail(http.StatusBadRequest, m.id, code, why, nil)
		return
	}
	switch {
	case modern && s.cfg.Eras == LegacyOnly:
		s.probed(r, m, sink)
	case modern:
		s.postModern(r, body, m, sink)
	case s.cfg.Eras == ModernOnly && m.method == "initialize":
		sink.fail(http.StatusNotFound, m.id, -32601, "method not found: initialize", nil)
	case s.cfg.Eras == ModernOnly:
		sink.fail(http.StatusBadRequest, m.id, -32602, badMeta(m.params), nil)
	default:
		s.postLegacy(r, body, m, sink)
	}
}

// probed is a legacy-only server's answer to a modern request.
func (s *Server) probed(r *http.Request, m message, sink *httpSink) {
	probe := s.cfg.Probe
	if m.method != "server/discover" {
		probe = ProbeDefault
	}
	switch probe {
	case ProbeNotFound:
		sink.plain(http.StatusNotFound, "not found")
	case ProbeUnsupported:
		sink.fail(http.StatusBadRequest, m.id, -32022, "unsupported protocol version", s.unsupported(metaVersion(m.params)))
	case ProbeLegacyList:
		sink.reply(Result(m.id, s.discoverResult(s.cfg.LegacyVersions)), http.StatusOK)
	case ProbeHang:
		select {
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
	default:
		sink.fail(http.StatusBadRequest, m.id, -32000, "Bad Request: no valid session ID provided", nil)
	}
}

func (s *Server) postModern(r *http.Request, body []byte, m message, sink *httpSink) {
	if m.response {
		sink.fail(http.StatusBadRequest, m.id, -32600, "clients do not post responses", nil)
		return
	}
	if m.id == nil {
		sink.w.WriteHeader(http.StatusAccepted)
		return
	}
	if why := badMeta(m.params); why != "" {
		sink.fail(http.StatusBadRequest, m.id, -32602, why, nil)
		return
	}
	if !s.cfg.LaxHeaders {
		if why := s.headerMismatch(r.Header, m); why != "" {
			sink.fail(http.StatusBadRequest, m.id, -32020, why, nil)
			return
		}
	}
	if v := metaVersion(m.params); v != Modern {
		sink.fail(http.StatusBadRequest, m.id, -32022, "unsupported protocol version: "+v, s.unsupported(v))
		return
	}
	c := s.newCall(m, body, sink, r)
	c.Modern, c.Header = true, r.Header
	ctx, done := s.begin(r.Context(), c)
	defer done()
	gone := context.AfterFunc(r.Context(), func() {
		s.log.update(func() {
			s.log.cancelled = append(s.log.cancelled, Cancellation{Method: c.Method, Tool: c.Name, ID: string(c.ID)})
		})
	})
	defer gone()
	s.answer(ctx, c)
}

func (s *Server) postLegacy(r *http.Request, body []byte, m message, sink *httpSink) {
	if m.method == "initialize" && m.id != nil {
		s.initialize(m, sink)
		return
	}
	ss := s.session(r, sink)
	if ss == nil {
		return
	}
	if v := r.Header.Get("Mcp-Protocol-Version"); v != "" && !slices.Contains(s.cfg.LegacyVersions, v) {
		sink.fail(http.StatusBadRequest, m.id, -32000, "Bad Request: unsupported protocol version", nil)
		return
	}
	switch {
	case m.response:
		s.responded(ss, m, body)
		sink.w.WriteHeader(http.StatusAccepted)
		return
	case m.id == nil:
		if m.method == "notifications/cancelled" {
			s.cancelled(ss, m.params)
		}
		sink.w.WriteHeader(http.StatusAccepted)
		return
	}
	c := s.newCall(m, body, sink, ss)
	c.Header, c.Session = r.Header, ss.id
	ctx, done := s.begin(ss.ctx, c)
	defer done()
	gone := context.AfterFunc(r.Context(), func() {
		s.log.update(func() { s.log.dropped++ })
	})
	defer gone()
	s.answer(ctx, c)
}

func (s *Server) initialize(m message, sink *httpSink) {
	s.mu.Lock()
	status := s.initFail
	s.mu.Unlock()
	if status != 0 {
		sink.plain(status, http.StatusText(status))
		return
	}
	ss := s.newSession(s.negotiate(m.params))
	if !s.cfg.NoSessionID {
		ss.id = rand.Text()
		sink.w.Header().Set("Mcp-Session-Id", ss.id)
	}
	s.mu.Lock()
	s.sessions[ss.id] = ss
	s.mu.Unlock()
	sink.reply(Result(m.id, s.initializeResult(ss.version)), http.StatusOK)
}

func (s *Server) newSession(version string) *session {
	ss := &session{version: version}
	ss.ctx, ss.end = context.WithCancel(s.ctx)
	return ss
}

// session finds the request's session, or answers and returns nil.
func (s *Server) session(r *http.Request, sink *httpSink) *session {
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	ss := s.sessions[id]
	s.mu.Unlock()
	switch {
	case ss != nil:
		return ss
	case s.cfg.NoSessionID:
		ss = s.newSession(s.cfg.LegacyVersions[0])
		s.mu.Lock()
		s.sessions[""] = ss
		s.mu.Unlock()
		return ss
	case id == "":
		sink.fail(http.StatusBadRequest, nil, -32000, "Bad Request: Mcp-Session-Id header is required", nil)
	default:
		sink.fail(s.cfg.StaleStatus, nil, -32001, "Session not found", nil)
	}
	return nil
}

// get holds a legacy session's stream of unasked messages open.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	if s.cfg.NoGET {
		w.Header().Set("Allow", "POST")
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		return
	}
	sink := &httpSink{w: w, rc: http.NewResponseController(w), prime: s.cfg.SSEPrime}
	defer sink.end()
	if !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream") {
		sink.plain(http.StatusNotAcceptable, "Accept must hold text/event-stream")
		return
	}
	ss := s.session(r, sink)
	if ss == nil {
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	defer context.AfterFunc(ss.ctx, end)()
	if sink.open() != nil {
		return
	}
	defer s.addStream(&stream{session: ss, tools: true, send: sink.emit, end: end})()
	<-ctx.Done()
}

func (s *Server) del(w http.ResponseWriter, r *http.Request) {
	sink := &httpSink{w: w, rc: http.NewResponseController(w)}
	ss := s.session(r, sink)
	if ss == nil {
		return
	}
	s.mu.Lock()
	delete(s.sessions, ss.id)
	s.mu.Unlock()
	ss.end()
	w.WriteHeader(http.StatusNoContent)
}

// headerMismatch compares the modern headers with the body (2026-07-28,
// transports: a server that processes the body must); "" when they agree.
func (s *Server) headerMismatch(h http.Header, m message) string {
	p := object(m.params)
	want := map[string]string{"Mcp-Protocol-Version": metaVersion(m.params), "Mcp-Method": m.method}
	switch m.method {
	case "tools/call", "prompts/get":
		var name string
		json.Unmarshal(p["name"], &name)
		want["Mcp-Name"] = name
	case "resources/read":
		var uri string
		json.Unmarshal(p["uri"], &uri)
		want["Mcp-Name"] = uri
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		vs := h.Values(k)
		if len(vs) != 1 {
			return fmt.Sprintf("%s must be there once, is %d times", k, len(vs))
		}
		got, ok := vs[0], true
		if k == "Mcp-Name" {
			got, ok = DecodeHeader(vs[0])
		}
		if !ok || got != want[k] {
			return fmt.Sprintf("%s is %q, the body says %q", k, vs[0], want[k])
		}
	}
	if m.method != "tools/call" {
		return ""
	}
	for _, t := range s.snapshot() {
		if t.Name == want["Mcp-Name"] {
			return paramMismatch(h, object(definition(t))["inputSchema"], p["arguments"])
		}
	}
	return ""
}

// paramMismatch compares the Mcp-Param-* headers that a schema asks for with
// the arguments: through properties only, as x-mcp-header is defined.
func paramMismatch(h http.Header, schema, args json.RawMessage) string {
	values := object(args)
	for name, raw := range object(object(schema)["properties"]) {
		property := object(raw)
		value, present := values[name]
		present = present && string(value) != "null"
		var header string
		if json.Unmarshal(property["x-mcp-header"], &header) == nil && header != "" {
			key := "Mcp-Param-" + header
			vs := h.Values(key)
			if !present && len(vs) == 0 {
				continue
			}
			if !present || len(vs) != 1 || !sameParam(vs[0], value) {
				return fmt.Sprintf("%s is %q, argument %q is %s", key, vs, name, value)
			}
		}
		if why := paramMismatch(h, raw, value); why != "" {
			return why
		}
	}
	return ""
}

func sameParam(header string, value json.RawMessage) bool {
	got, ok := DecodeHeader(header)
	if !ok {
		return false
	}
	var s string
	if json.Unmarshal(value, &s) == nil {
		return got == s
	}
	if a, err := strconv.ParseFloat(got, 64); err == nil {
		b, err := strconv.ParseFloat(string(value), 64)
		return err == nil && a == b
	}
	return got == string(value)
}

// DecodeHeader undoes the =?base64?…?= form that the modern era gives header
// values that are not plain ASCII; other values are themselves.
func DecodeHeader(v string) (string, bool) {
	enc, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v, true
	}
	enc, ok = strings.CutSuffix(enc, "?=")
	if !ok {
		return v, true
	}
	b, err := base64.StdEncoding.DecodeString(enc)
	return string(b), err == nil && utf8.Valid(b)
}

// httpSink writes one HTTP response: JSON, or an event stream as soon as
// anything comes before the reply.
type httpSink struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	sse   bool
	prime bool

	mu      sync.Mutex
	started bool
	stream  bool
	ended   bool
	events  int
}

func (h *httpSink) emit(frame []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.begin(); err != nil {
		return err
	}
	return h.event(frame)
}

// open begins the event stream before there is anything to send.
func (h *httpSink) open() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.begin(); err != nil {
		return err
	}
	return h.rc.Flush()
}

func (h *httpSink) begin() error {
	if h.ended || h.started && !h.stream {
		return ErrEnded
	}
	if h.stream {
		return nil
	}
	h.started, h.stream = true, true
	h.w.Header().Set("Content-Type", "text/event-stream")
	h.w.Header().Set("Cache-Control", "no-cache")
	h.w.Header().Set("X-Accel-Buffering", "no")
	h.w.WriteHeader(http.StatusOK)
	if h.prime {
		h.events++
		fmt.Fprintf(h.w, "id: %d\ndata:\n\n", h.events)
	}
	return nil
}

func (h *httpSink) event(frame []byte) error {
	var b bytes.Buffer
	b.WriteString("event: message\n")
	if h.prime {
		h.events++
		fmt.Fprintf(&b, "id: %d\n", h.events)
	}
	for line := range bytes.SplitSeq(frame, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	if _, err := h.w.Write(b.Bytes()); err != nil {
		return err
	}
	return h.rc.Flush()
}

func (h *httpSink) reply(frame []byte, status int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stream || h.sse && status == http.StatusOK {
		if err := h.begin(); err != nil {
			return err
		}
		return h.event(frame)
	}
	return h.whole(status, "application/json", frame)
}

func (h *httpSink) whole(status int, contentType string, body []byte) error {
	if h.ended || h.started {
		return ErrEnded
	}
	h.started = true
	h.w.Header().Set("Content-Type", contentType)
	h.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	h.w.WriteHeader(status)
	_, err := h.w.Write(body)
	return err
}

func (h *httpSink) replyFrom(r io.Reader, json bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if json {
		if h.ended || h.started {
			return ErrEnded
		}
		h.started = true
		h.w.Header().Set("Content-Type", "application/json")
		_, err := io.Copy(h.w, r)
		return err
	}
	if err := h.begin(); err != nil {
		return err
	}
	_, err := io.Copy(h.w, io.MultiReader(strings.NewReader("data: "), r, strings.NewReader("\n\n")))
	return err
}

func (h *httpSink) plain(status int, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole(status, "text/plain; charset=utf-8", []byte(text+"\n"))
}

func (h *httpSink) fail(status int, id []byte, code int, message string, data []byte) {
	h.reply(Error(id, code, message, data), status)
}

func (h *httpSink) write(raw []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.begin(); err != nil {
		return err
	}
	if _, err := h.w.Write(raw); err != nil {
		return err
	}
	return h.rc.Flush()
}

func (h *httpSink) raw(status int, header map[string]string, chunks [][]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.started {
		return ErrEnded
	}
	h.started = true
	for k, v := range header {
		h.w.Header().Set(k, v)
	}
	h.w.WriteHeader(status)
	for _, c := range chunks {
		if _, err := h.w.Write(c); err != nil {
			return err
		}
		if err := h.rc.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// abort takes the connection away from net/http, which would otherwise end the
// response properly.
func (h *httpSink) abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	conn, _, err := h.rc.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	conn.Close()
}

// end marks the handler's return: the ResponseWriter is not ours any more.
func (h *httpSink) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}
