// Package upstream answers one question for tests: what does an MCP server on
// the other side of the gateway receive, and what happens when it answers this?
//
// It is a second, independent implementation of the protocol, so it may not
// import any package of this module: a mistake shared by both sides would hide
// itself. It speaks both eras, the legacy one (initialize, Mcp-Session-Id, GET
// stream) and the modern one (2026-07-28: no session, server/discover, _meta
// and headers on every request, subscriptions/listen), over HTTP and over
// stdio. Every tool handler may answer with raw bytes and may misbehave.
//
// Start reading at [Config] and [Call]; [Server.Listen] and [Server.Serve] are
// the two ways in, [MainIfChild] turns a test binary into a stdio child.
package upstream

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// Modern is the first protocol version without sessions. Versions compare as
// strings.
const Modern = "2026-07-28"

// Eras says which of the two protocols a server speaks.
type Eras int

// The zero value speaks both, judged for each request.
const (
	BothEras Eras = iota
	LegacyOnly
	ModernOnly
)

// ParseEras reads "legacy", "modern" or "both".
func ParseEras(s string) (Eras, error) {
	switch s {
	case "legacy":
		return LegacyOnly, nil
	case "modern":
		return ModernOnly, nil
	case "both", "":
		return BothEras, nil
	}
	return 0, fmt.Errorf("era %q: want legacy, modern or both", s)
}

// Probe says how a legacy-only server treats the server/discover of a client
// that tries the modern era first. All of these exist among real servers.
type Probe int

const (
	// ProbeDefault: HTTP 400 with -32000, as servers answer a request without
	// a session; over stdio -32601.
	ProbeDefault Probe = iota
	ProbeNotFound
	// ProbeUnsupported: -32022 that lists legacy versions only.
	ProbeUnsupported
	// ProbeLegacyList: a DiscoverResult that lists legacy versions only.
	ProbeLegacyList
	// ProbeHang: no answer until the client gives up.
	ProbeHang
)

// ParseProbe reads the name of a Probe, as on mcpfake's command line.
func ParseProbe(s string) (Probe, error) {
	i := slices.Index([]string{"default", "notfound", "unsupported", "legacylist", "hang"}, s)
	if i < 0 {
		return 0, fmt.Errorf("probe %q: want default, notfound, unsupported, legacylist or hang", s)
	}
	return Probe(i), nil
}

// Tool is one tool of the server.
type Tool struct {
	Name string
	// Definition is the whole tool object, listed verbatim. Its name need not
	// equal Name. Nil lists a minimal object with Name.
	Definition json.RawMessage
	// Handler answers a call. A handler that returns without a reply leaves
	// the request unanswered (over HTTP the response then ends empty). Nil
	// answers with the text "tool=NAME".
	Handler Handler
}

// Handler answers one request. ctx ends when the client cancels, when the
// session or the server is closed and, in the modern era over HTTP, when the
// client goes away: in the legacy era a dropped connection is not a cancel.
type Handler func(ctx context.Context, c *Call)

// Config is what the server offers and how it misbehaves. The zero value is a
// well-behaved server of both eras without tools.
type Config struct {
	Name         string // serverInfo.name; "" is "fake"
	Instructions string
	Tools        []Tool
	Eras         Eras
	// LegacyVersions are offered in initialize, newest first; nil is
	// 2025-11-25, 2025-06-18, 2025-03-26.
	LegacyVersions []string
	// Capabilities is the raw capabilities object; "" is
	// {"tools":{"listChanged":true}}.
	Capabilities string

	PageSize int // tools for each tools/list page; 0 is all
	// Cursor makes the cursor for the page that starts at this offset; nil is
	// an opaque one. A function that answers "" or the same text for every
	// offset makes the misbehaviour that it looks like.
	Cursor     func(offset int) string
	TTL        int    // ttlMs of modern list results
	CacheScope string // "" is "public"

	// Methods answers further methods, or replaces the built-in answer.
	Methods map[string]Handler
	// Hook sees every HTTP request after it was recorded and before anything
	// else; true means that it has answered.
	Hook func(w http.ResponseWriter, r *http.Request, body []byte) bool

	RequireBearer string // refuse other HTTP requests with 401
	SSE           bool   // answer requests over HTTP as an event stream
	SSEPrime      bool   // begin event streams with an empty event that has an id
	NoSessionID   bool   // legacy HTTP without Mcp-Session-Id
	NoGET         bool   // legacy HTTP without the GET stream
	StaleStatus   int    // status for an unknown session; 0 is 404
	LaxHeaders    bool   // do not compare the modern Mcp-* headers with the body
	Probe         Probe  // a legacy-only server's answer to server/discover

	Banner    string // stdio: written to the output, verbatim, before anything
	IgnoreEOF bool   // stdio: stay after the input ends, until ctx ends

	Stderr io.Writer // nil discards
	// Die ends the process without a word; nil drops the connection, so that
	// an in-process server does not end its test.
	Die func()
	// Record gets one JSON line (see [Received]) for every message, in a
	// single Write, before the message is acted on.
	Record io.Writer
	// MaxLog bounds the messages kept in memory, oldest dropped; 0 is 10,000.
	// The counters go on counting.
	MaxLog int
}

// Server is a scriptable MCP server. All methods may be used concurrently.
type Server struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc

	mu       sync.Mutex
	tools    []Tool
	bearer   string
	initFail int
	sessions map[string]*session
	streams  map[*stream]bool // GET, listen and stdio streams that get notifications
	inflight map[flightKey]*flight
	waiting  map[flightKey]chan json.RawMessage // our requests to the client
	nextID   int
	listener net.Listener
	log      log
}

// session is one legacy session: over HTTP one Mcp-Session-Id, over stdio the
// connection.
type session struct {
	id      string
	version string
	ctx     context.Context
	end     context.CancelFunc
}

// stream is somewhere the server may send unasked messages.
type stream struct {
	session *session        // legacy
	listen  json.RawMessage // modern: id of the listen request
	tools   bool            // wants tools/list_changed
	send    func([]byte) error
	end     context.CancelFunc
	ended   bool // by the server, gracefully
}

type flightKey struct {
	scope any // *session, *stdioConn or *http.Request
	id    string
}

type flight struct {
	cancel context.CancelCauseFunc
	method string
	tool   string
}

// New makes a server. Close it when done.
func New(cfg Config) *Server {
	if cfg.Name == "" {
		cfg.Name = "fake"
	}
	if cfg.LegacyVersions == nil {
		cfg.LegacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}
	}
	if cfg.Capabilities == "" {
		cfg.Capabilities = `{"tools":{"listChanged":true}}`
	}
	if cfg.CacheScope == "" {
		cfg.CacheScope = "public"
	}
	if cfg.StaleStatus == 0 {
		cfg.StaleStatus = http.StatusNotFound
	}
	if cfg.MaxLog == 0 {
		cfg.MaxLog = 10_000
	}
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	s := &Server{
		cfg: cfg, tools: slices.Clone(cfg.Tools), bearer: cfg.RequireBearer,
		sessions: map[string]*session{}, streams: map[*stream]bool{},
		inflight: map[flightKey]*flight{}, waiting: map[flightKey]chan json.RawMessage{},
	}
	s.log.init(cfg.MaxLog, cfg.Record)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends every stream and hanging call and stops the listener of Listen.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l != nil {
		return l.Close()
	}
	return nil
}

// Listen serves HTTP on addr ("127.0.0.1:0" picks a free port) and returns the
// URL of the endpoint. It answers on every path. Close stops it.
func (s *Server) Listen(addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	hs := &http.Server{Handler: s}
	context.AfterFunc(s.ctx, func() { hs.Close() })
	go hs.Serve(l)
	return "http://" + l.Addr().String() + "/mcp", nil
}

// SetTools replaces the tools, without a notification.
func (s *Server) SetTools(tools ...Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = slices.Clone(tools)
}

// PutTool adds a tool or replaces the first one with its name, without a
// notification.
func (s *Server) PutTool(t Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ts := slices.Clone(s.tools)
	if i := slices.IndexFunc(ts, func(o Tool) bool { return o.Name == t.Name }); i >= 0 {
		ts[i] = t
	} else {
		ts = append(ts, t)
	}
	s.tools = ts
}

// RemoveTool removes every tool with this name, without a notification.
func (s *Server) RemoveTool(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = slices.DeleteFunc(slices.Clone(s.tools), func(t Tool) bool { return t.Name == name })
}

// SetBearer changes the accepted bearer token; "" accepts all.
func (s *Server) SetBearer(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bearer = token
}

// FailInitialize makes HTTP initialize answer this status; 0 heals it.
func (s *Server) FailInitialize(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initFail = status
}

// ForgetSessions drops every legacy HTTP session: their streams and calls end
// and their ids are answered with Config.StaleStatus from now on.
func (s *Server) ForgetSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, ss := range s.sessions {
		ss.end()
		delete(s.sessions, id)
	}
}

// NotifyToolsChanged sends tools/list_changed on every stream that carries it
// and returns how many that were.
func (s *Server) NotifyToolsChanged() int {
	return s.notify("notifications/tools/list_changed", func(st *stream) bool { return st.tools })
}

// Broadcast sends raw bytes, framed as one message, on every open stream.
func (s *Server) Broadcast(frame []byte) int {
	n := 0
	for _, st := range s.openStreams() {
		if st.send(frame) == nil {
			n++
		}
	}
	return n
}

// EndListens ends every subscriptions/listen gracefully, with its result.
func (s *Server) EndListens() {
	for _, st := range s.openStreams() {
		if st.listen == nil {
			continue
		}
		s.mu.Lock()
		st.ended = true
		s.mu.Unlock()
		st.end()
	}
}

// DropStreams closes every GET and listen stream without a result.
func (s *Server) DropStreams() {
	for _, st := range s.openStreams() {
		if st.end != nil {
			st.end()
		}
	}
}

// Streams is the number of open streams that carry notifications: GET streams,
// listens and initialized stdio connections.
func (s *Server) Streams() int { return len(s.openStreams()) }

// Sessions is the number of live legacy HTTP sessions.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// InFlight is the number of requests that are being answered.
func (s *Server) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inflight)
}

func (s *Server) openStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		out = append(out, st)
	}
	return out
}

func (s *Server) addStream(st *stream) (remove func()) {
	s.mu.Lock()
	s.streams[st] = true
	s.mu.Unlock()
	s.log.wake()
	return func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
		s.log.wake()
	}
}

func (s *Server) notify(method string, want func(*stream) bool) int {
	n := 0
	for _, st := range s.openStreams() {
		if !want(st) {
			continue
		}
		frame := `{"jsonrpc":"2.0","method":"` + method + `"}`
		if st.listen != nil {
			frame = `{"jsonrpc":"2.0","method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(st.listen) + `}}}`
		}
		if st.send([]byte(frame)) == nil {
			n++
		}
	}
	return n
}

func (s *Server) snapshot() []Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools // replaced, never changed in place
}

func (s *Server) serverInfo() string { return `{"name":` + quote(s.cfg.Name) + `,"version":"1.0.0"}` }

func (s *Server) cursor(offset int) string {
	if s.cfg.Cursor != nil {
		return s.cfg.Cursor(offset)
	}
	return base64.RawURLEncoding.EncodeToString([]byte("at=" + strconv.Itoa(offset)))
}

// listTools answers tools/list with the definitions' own bytes.
func (s *Server) listTools(c *Call) {
	tools := s.snapshot()
	size := s.cfg.PageSize
	if size <= 0 {
		size = max(1, len(tools))
	}
	start := 0
	if raw, ok := object(c.Params)["cursor"]; ok {
		var cursor string
		start = -1
		if json.Unmarshal(raw, &cursor) == nil {
			for off := size; off < len(tools); off += size {
				if s.cursor(off) == cursor {
					start = off
					break
				}
			}
		}
		if start < 0 {
			c.ReplyError(-32602, "invalid cursor", nil)
			return
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"tools":[`)
	end := min(start+size, len(tools))
	for i, t := range tools[start:end] {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(definition(t))
	}
	b.WriteByte(']')
	if end < len(tools) {
		b.WriteString(`,"nextCursor":` + quote(s.cursor(end)))
	}
	if c.Modern {
		b.WriteString(s.cacheable())
	}
	b.WriteByte('}')
	c.Reply(b.Bytes())
}

// cacheable is the tail of every modern list-like result.
func (s *Server) cacheable() string {
	return `,"resultType":"complete","ttlMs":` + strconv.Itoa(s.cfg.TTL) + `,"cacheScope":` + quote(s.cfg.CacheScope) +
		`,"_meta":{"io.modelcontextprotocol/serverInfo":` + s.serverInfo() + `}`
}

func definition(t Tool) []byte {
	if t.Definition != nil {
		return t.Definition
	}
	return []byte(`{"name":` + quote(t.Name) + `,"inputSchema":{"type":"object"}}`)
}

func (s *Server) discover(c *Call) {
	versions := []string{Modern}
	if s.cfg.Eras == BothEras {
		versions = append(versions, s.cfg.LegacyVersions...)
	}
	c.Reply(s.discoverResult(versions))
}

func (s *Server) discoverResult(versions []string) []byte {
	vs, _ := json.Marshal(versions)
	b := `{"supportedVersions":` + string(vs) + `,"capabilities":` + s.cfg.Capabilities
	if s.cfg.Instructions != "" {
		b += `,"instructions":` + quote(s.cfg.Instructions)
	}
	return []byte(b + s.cacheable() + `}`)
}

func (s *Server) initializeResult(version string) []byte {
	b := `{"protocolVersion":` + quote(version) + `,"capabilities":` + s.cfg.Capabilities + `,"serverInfo":` + s.serverInfo()
	if s.cfg.Instructions != "" {
		b += `,"instructions":` + quote(s.cfg.Instructions)
	}
	return []byte(b + `}`)
}

// negotiate picks the version that initialize answers with.
func (s *Server) negotiate(params json.RawMessage) string {
	var v string
	json.Unmarshal(object(params)["protocolVersion"], &v)
	if slices.Contains(s.cfg.LegacyVersions, v) {
		return v
	}
	return s.cfg.LegacyVersions[0]
}

// quote is s as a JSON string, without the HTML escapes of json.Marshal.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""`
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// object reads a JSON object into its members' raw bytes: exact names, last
// one wins; anything else is empty. A map, because structs match names without
// regard to case.
func object(raw []byte) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}
