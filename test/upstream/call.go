package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// ErrEnded is returned by a Call's methods when the response is over: nothing
// can be sent on it any more.
var ErrEnded = errors.New("the response has ended")

// Call is one request being answered. Its methods may be used from several
// goroutines and, over stdio, also after the handler has returned (that is how
// a late reply is made).
type Call struct {
	Server *Server
	// Raw is the message exactly as received: the HTTP body, or the line
	// without its newline. The fields below are parts of it, as raw bytes; a
	// part that was not sent is nil.
	Raw       []byte
	ID        json.RawMessage
	Params    json.RawMessage
	Arguments json.RawMessage // params.arguments
	Meta      json.RawMessage // params._meta
	Token     json.RawMessage // params._meta.progressToken

	Method  string
	Name    string      // params.name, decoded
	Header  http.Header // nil over stdio
	Session string      // Mcp-Session-Id
	Modern  bool
	Stdio   bool

	sink  sink
	scope any
}

// sink is the way back to the client.
type sink interface {
	emit(frame []byte) error              // a message before the reply
	reply(frame []byte, status int) error // the reply
	replyFrom(r io.Reader, json bool) error
	write(raw []byte) error // no framing at all
	abort()
}

// Result is a JSON-RPC response with these exact bytes as id and result.
func Result(id, result []byte) []byte {
	return join(`{"jsonrpc":"2.0","id":`, id, `,"result":`, result, `}`)
}

// Error is a JSON-RPC error response. data is raw JSON or nil; a nil id is
// null.
func Error(id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	b := join(`{"jsonrpc":"2.0","id":`, id, `,"error":{"code":`+strconv.Itoa(code)+`,"message":`+quote(message))
	if data != nil {
		b = join(b, `,"data":`, data)
	}
	return append(b, "}}"...)
}

func join(parts ...any) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b.WriteString(p)
		case []byte:
			b.Write(p)
		case json.RawMessage:
			b.Write(p)
		}
	}
	return b.Bytes()
}

// Reply answers with these exact bytes as the result. Over stdio they must not
// hold a newline, unless breaking the framing is the point.
func (c *Call) Reply(result []byte) error { return c.ReplyFrame(Result(c.ID, result)) }

// ReplyText answers with one text block, in the era of the request.
func (c *Call) ReplyText(text string) error {
	return c.Reply([]byte(`{"content":[{"type":"text","text":` + quote(text) + `}]` + c.resultType() + `}`))
}

// ReplyToolError answers with isError and one text block.
func (c *Call) ReplyToolError(text string) error {
	return c.Reply([]byte(`{"content":[{"type":"text","text":` + quote(text) + `}],"isError":true` + c.resultType() + `}`))
}

func (c *Call) resultType() string {
	if c.Modern {
		return `,"resultType":"complete"`
	}
	return ""
}

// ReplyError answers with a JSON-RPC error, over HTTP with the status that the
// modern era gives to the code. data is raw JSON or nil.
func (c *Call) ReplyError(code int, message string, data []byte) error {
	return c.sink.reply(Error(c.ID, code, message, data), c.status(code))
}

func (c *Call) status(code int) int {
	if !c.Modern {
		return http.StatusOK
	}
	switch code {
	case -32601:
		return http.StatusNotFound
	case -32700, -32600, -32020, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// ReplyFrame answers with a whole message of the handler's own making: another
// id, no envelope, no JSON.
func (c *Call) ReplyFrame(frame []byte) error { return c.sink.reply(frame, http.StatusOK) }

// ReplyFrom answers with a whole message that is read piece by piece and never
// held: over HTTP as one event, or as JSON without a Content-Length.
func (c *Call) ReplyFrom(r io.Reader, json bool) error { return c.sink.replyFrom(r, json) }

// Emit sends one message (or anything else) before the reply: an event of the
// response's stream over HTTP, a line over stdio.
func (c *Call) Emit(frame []byte) error { return c.sink.emit(frame) }

// Write sends raw bytes without any framing, at once.
func (c *Call) Write(raw []byte) error { return c.sink.write(raw) }

// Progress sends notifications/progress for the request's own token, and
// nothing when the request has none.
func (c *Call) Progress(progress, total float64) error {
	if c.Token == nil {
		return nil
	}
	return c.ProgressTo(c.Token, progress, total)
}

// ProgressTo sends notifications/progress for any token, given as raw JSON.
func (c *Call) ProgressTo(token []byte, progress, total float64) error {
	return c.Emit(join(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`, token,
		fmt.Sprintf(`,"progress":%v,"total":%v}}`, progress, total)))
}

// Ask sends a request to the client (legacy only: the modern era has none) and
// waits for its whole response message.
func (c *Call) Ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	s := c.Server
	ch := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.nextID++
	id := `"srv-` + strconv.Itoa(s.nextID) + `"`
	key := flightKey{c.scope, id}
	s.waiting[key] = ch
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, key)
		s.mu.Unlock()
	}()
	if err := c.Emit(join(`{"jsonrpc":"2.0","id":`+id+`,"method":`+quote(method)+`,"params":`, params, `}`)); err != nil {
		return nil, err
	}
	select {
	case m := <-ch:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Abort drops the connection in the middle, whatever was sent. Over stdio it
// closes the output; the server goes on reading.
func (c *Call) Abort() { c.sink.abort() }

// Die ends the process through Config.Die, or drops the connection.
func (c *Call) Die() {
	if c.Server.cfg.Die != nil {
		c.Server.cfg.Die()
	}
	c.Abort()
}

// Stderr is where the server writes its own noise.
func (c *Call) Stderr() io.Writer { return c.Server.cfg.Stderr }

// ReplyHTTP answers with a whole HTTP response of the handler's own making,
// each chunk flushed on its own. It must be the first thing sent. Over stdio
// it fails.
func (c *Call) ReplyHTTP(status int, header map[string]string, chunks ...[]byte) error {
	h, ok := c.sink.(*httpSink)
	if !ok {
		return errors.New("no HTTP response over stdio")
	}
	return h.raw(status, header, chunks)
}

// answer does one request whose era is known and whose form is good.
func (s *Server) answer(ctx context.Context, c *Call) {
	if h := s.cfg.Methods[c.Method]; h != nil {
		h(ctx, c)
		return
	}
	switch {
	case c.Method == "tools/list":
		s.listTools(c)
	case c.Method == "tools/call":
		s.callTool(ctx, c)
	case c.Method == "server/discover" && c.Modern:
		s.discover(c)
	case c.Method == "subscriptions/listen" && c.Modern:
		s.listen(ctx, c)
	case (c.Method == "ping" || c.Method == "logging/setLevel") && !c.Modern:
		c.Reply([]byte("{}"))
	default:
		c.ReplyError(-32601, "method not found: "+c.Method, nil)
	}
}

func (s *Server) callTool(ctx context.Context, c *Call) {
	for _, t := range s.snapshot() {
		if t.Name != c.Name {
			continue
		}
		if t.Handler == nil {
			c.ReplyText("tool=" + t.Name)
			return
		}
		t.Handler(ctx, c)
		return
	}
	c.ReplyError(-32602, "unknown tool: "+c.Name, nil)
}

// listen holds a subscriptions/listen open: acknowledgement first, then
// notifications, then a result if the server ends it.
func (s *Server) listen(ctx context.Context, c *Call) {
	raw, ok := object(c.Params)["notifications"]
	if !ok || object(raw) == nil {
		c.ReplyError(-32602, "params.notifications must be an object", nil)
		return
	}
	var tools bool
	json.Unmarshal(object(raw)["toolsListChanged"], &tools)
	honoured := `{}`
	if tools {
		honoured = `{"toolsListChanged":true}`
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	meta := join(`"_meta":{"io.modelcontextprotocol/subscriptionId":`, c.ID, `}`)
	// The acknowledgement goes out before the stream is known to notify.
	if c.Emit(join(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":`+honoured+`,`, meta, `}}`)) != nil {
		return
	}
	st := &stream{listen: c.ID, tools: tools, send: c.Emit, end: end}
	remove := s.addStream(st)
	<-ctx.Done()
	remove()
	s.mu.Lock()
	ended := st.ended
	s.mu.Unlock()
	if !ended && s.ctx.Err() == nil {
		return
	}
	if c.Stdio {
		c.Emit(join(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`, c.ID, `}}`))
	}
	c.Reply(join(`{"resultType":"complete",`, meta, `}`))
}

// begin notes a request as being answered and gives it its own cancellation.
func (s *Server) begin(ctx context.Context, c *Call) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(errors.New("the server is closed")) })
	key := flightKey{c.scope, string(c.ID)}
	f := &flight{cancel: cancel, method: c.Method, tool: c.Name}
	s.mu.Lock()
	s.inflight[key] = f
	s.mu.Unlock()
	s.log.wake()
	return ctx, func() {
		stop()
		cancel(nil)
		s.mu.Lock()
		if s.inflight[key] == f {
			delete(s.inflight, key)
		}
		s.mu.Unlock()
		s.log.wake()
	}
}

// cancelled acts on notifications/cancelled.
func (s *Server) cancelled(scope any, params json.RawMessage) {
	id := object(params)["requestId"]
	s.mu.Lock()
	f := s.inflight[flightKey{scope, string(id)}]
	s.mu.Unlock()
	n := Cancellation{ID: string(id), Notified: true, Unknown: f == nil}
	if f != nil {
		n.Method, n.Tool = f.method, f.tool
		f.cancel(errors.New("cancelled by the client"))
	}
	s.log.update(func() { s.log.cancelled = append(s.log.cancelled, n) })
}

// responded takes a response of the client to one of our own requests.
func (s *Server) responded(scope any, m message, raw []byte) {
	s.mu.Lock()
	ch := s.waiting[flightKey{scope, string(m.id)}]
	s.mu.Unlock()
	s.log.update(func() { s.log.responses = append(s.log.responses, string(raw)) })
	if ch != nil {
		select {
		case ch <- bytes.Clone(raw):
		default: // answered twice
		}
	}
}

// message is a JSON-RPC message taken apart.
type message struct {
	id       json.RawMessage // nil: none
	method   string
	params   json.RawMessage
	response bool
}

// parse takes a message apart; code is 0 or the JSON-RPC error.
func parse(raw []byte) (m message, code int, why string) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		if json.Valid(raw) {
			return m, -32600, "a message is one object"
		}
		return m, -32700, "not JSON: " + err.Error()
	}
	var version string
	if json.Unmarshal(top["jsonrpc"], &version); version != "2.0" {
		return m, -32600, `jsonrpc must be "2.0"`
	}
	if id, ok := top["id"]; ok {
		var s string
		if _, err := strconv.ParseInt(string(id), 10, 64); err != nil && (string(id) == "null" || json.Unmarshal(id, &s) != nil) {
			return m, -32600, "id must be a string or an integer"
		}
		m.id = id
	}
	m.params = top["params"]
	if raw, ok := top["method"]; ok {
		if json.Unmarshal(raw, &m.method) != nil || m.method == "" {
			return m, -32600, "method must be a string"
		}
		return m, 0, ""
	}
	_, result := top["result"]
	_, failure := top["error"]
	if m.id == nil || result == failure {
		return m, -32600, "neither a request nor a response"
	}
	m.response = true
	return m, 0, ""
}

// toolName is params.name of a tools/call, decoded.
func toolName(m message) string {
	var name string
	if m.method == "tools/call" {
		json.Unmarshal(object(m.params)["name"], &name)
	}
	return name
}

// newCall is the Call for a request.
func (s *Server) newCall(m message, raw []byte, sink sink, scope any) *Call {
	p := object(m.params)
	c := &Call{Server: s, Raw: raw, ID: m.id, Method: m.method, Params: m.params,
		Arguments: p["arguments"], Meta: p["_meta"], sink: sink, scope: scope}
	c.Token = object(c.Meta)["progressToken"]
	json.Unmarshal(p["name"], &c.Name)
	return c
}

// metaVersion is the protocol version that a request's _meta declares.
func metaVersion(params json.RawMessage) string {
	var v string
	json.Unmarshal(object(object(params)["_meta"])["io.modelcontextprotocol/protocolVersion"], &v)
	return v
}

// badMeta says what a modern request's _meta lacks; "" when nothing.
func badMeta(params json.RawMessage) string {
	meta := object(object(params)["_meta"])
	var v string
	if json.Unmarshal(meta["io.modelcontextprotocol/protocolVersion"], &v) != nil || v == "" {
		return "_meta lacks io.modelcontextprotocol/protocolVersion"
	}
	if object(meta["io.modelcontextprotocol/clientCapabilities"]) == nil {
		return "_meta lacks io.modelcontextprotocol/clientCapabilities"
	}
	return ""
}

// unsupported is the data of a -32022.
func (s *Server) unsupported(requested string) []byte {
	versions := s.cfg.LegacyVersions
	if s.cfg.Eras != LegacyOnly {
		versions = append([]string{Modern}, versions...)
	}
	if s.cfg.Eras == ModernOnly {
		versions = []string{Modern}
	}
	vs, _ := json.Marshal(versions)
	return []byte(`{"supported":` + string(vs) + `,"requested":` + quote(requested) + `}`)
}
