package mcphttp

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/internal/wire"
)

// session is one conversation with a server under one account.
type session struct {
	u       *Upstream
	place   string // the upstream's id and host:port, all that failures say of it
	own     string // the header lines of every request
	target  string // of its request line
	pool    *wire.Pool
	changed func()

	era       mcp.Era
	version   string   // negotiated, legacy
	sessionID string   // the upstream's, legacy; empty when it gave none
	listens   bool     // it said that it announces changes of its list
	legacy    string   // the header lines of every legacy request
	calls     sync.Map // heads of modern tools/call by tool name: string
	cached    atomic.Int64
	params    atomic.Pointer[map[string][]paramHeader] // by tool name

	ids atomic.Uint64

	ctx      context.Context // of everything the session does
	cancel   context.CancelFunc
	watching context.Context // of the streams
	unwatch  context.CancelFunc
	replies  chan struct{} // bounds the answers to a server's own requests

	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
	dead   bool
	done   chan struct{}
}

var _ gateway.UpstreamSession = (*session)(nil)

// The bounds of what a session does beside calls.
const (
	maxReplies     = 4
	farewell       = 2 * time.Second // for cancelling, for DELETE
	maxHandshake   = 1 << 20         // bytes of an answer to discover or initialize
	maxSessionID   = 1024
	maxCursor      = 16 << 10
	maxCachedNames = 4096
	maxErrorBody   = 1 << 20
	maxScratch     = 4 << 20 // bytes of one buffer that is kept
)

// Era is the protocol's generation that the server speaks.
func (s *session) Era() mcp.Era { return s.era }

// Done is closed when the server does not know the session any more, or it was closed.
func (s *session) Done() <-chan struct{} { return s.done }

// background runs something that ends with the session; false when the session is closed.
func (s *session) background(f func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(func() { f(s.watching) })
	return true
}

// die says that this session can serve no more calls. Those that run may still be answered.
func (s *session) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dead {
		s.dead = true
		close(s.done)
		s.unwatch()
	}
}

// Close ends the session at both sides and waits for what it started. Calls that still run are cut.
func (s *session) Close() error {
	s.mu.Lock()
	alive := !s.dead
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	s.die()
	s.cancel()
	if first && alive && s.sessionID != "" {
		s.goodbye()
	}
	s.wg.Wait()
	return nil
}

// goodbye tells a legacy server that the session is over. Whatever it answers, it is.
func (s *session) goodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if resp, _, err := s.do(ctx, http.MethodDelete, []byte(s.line(http.MethodDelete)+s.legacy+"\r\n")); err == nil {
		drain(resp.Body)
	}
}

// drain reads what little is left, so that the connection can serve again, and closes.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	body.Close()
}

// line begins every request.
func (s *session) line(method string) string {
	return method + " " + s.target + " HTTP/1.1\r\n" + s.own
}

// posts begins every POST: what the specification wants of each.
func (s *session) posts() string {
	return s.line(http.MethodPost) + "Content-Type: application/json\r\nAccept: " + bothTypes + "\r\n"
}

// modernHead makes the head of a modern request (2026-07-28, transports, standard headers), but for its length.
func (s *session) modernHead(method, name string) string {
	h := s.posts() + "MCP-Protocol-Version: " + mcp.LatestModern + "\r\nMcp-Method: " + method + "\r\n"
	if name != "" {
		h += "Mcp-Name: " + mcp.EncodeHeader(name) + "\r\n"
	}
	return h
}

// head gives that of a POST in the session's era. Those of calls are kept: they differ by the tool's name only.
func (s *session) head(method, name string) string {
	if method != mcp.MethodToolsCall {
		if s.era == mcp.Legacy {
			return s.posts() + s.legacy
		}
		return s.modernHead(method, name)
	}
	key := name
	if s.era == mcp.Legacy {
		key = ""
	}
	if h, ok := s.calls.Load(key); ok {
		return h.(string)
	}
	h := s.posts() + s.legacy
	if s.era == mcp.Modern {
		h = s.modernHead(method, name)
	}
	if s.cached.Add(1) <= maxCachedNames {
		s.calls.Store(key, h)
	}
	return h
}

// ask sends a request of our own and gives its reply, scanned into m.
func (s *session) ask(ctx context.Context, head string, id uint64, body []byte, w wanted) (*http.Response, *gateway.Failure) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	resp, _, err := s.post(ctx, head, body)
	if err != nil {
		return nil, s.interrupted(ctx, err)
	}
	defer resp.Body.Close()
	w.id, w.cancel = id, cancel
	a := s.receive(ctx, resp, w)
	return resp, a.Failure
}

// probe asks whether the server speaks the modern era. A failure says that it cannot be reached, or refuses us whatever we speak.
func (s *session) probe(ctx context.Context) (modern bool, _ *gateway.Failure) {
	short, cancel := context.WithTimeout(ctx, s.u.o.ProbeTimeout)
	defer cancel()
	m := new(jsonrpc.Message)
	id := s.ids.Add(1)
	body := mcp.AppendRequest(nil, mcp.Modern, id, mcp.MethodDiscover, nil, s.u.o.Client)
	resp, failure := s.ask(short, s.modernHead(mcp.MethodDiscover, ""), id, body, wanted{m: m, max: maxHandshake, handshake: true})
	switch {
	case failure == nil:
	case failure.Class == gateway.FailedTimeout && ctx.Err() == nil:
		return false, nil // some servers do not answer what they do not know
	case failure.Class == gateway.FailedProtocol, failure.Class == gateway.FailedStatus && !redirect(resp):
		return false, nil
	default:
		return false, failure
	}
	if len(m.Error) > 0 {
		switch errorCode(m) {
		case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability:
			s.era = mcp.Modern // only a modern server knows these
			return true, nil
		}
		// -32022 too: it refuses the one modern version that there is.
		return false, nil
	}
	versions, ok := m.Result.Get("supportedVersions")
	if !ok || versions.Kind != jsonrpc.Array {
		return false, nil
	}
	raw := m.Bytes(versions.Value)
	spans, err := jsonrpc.ArrayElements(nil, raw)
	if err != nil {
		return false, nil
	}
	for _, span := range spans {
		if string(raw[span.Start:span.End]) == `"`+mcp.LatestModern+`"` {
			s.era = mcp.Modern
			s.listens = announces(m)
			return true, nil
		}
	}
	return false, nil
}

func redirect(resp *http.Response) bool {
	return resp != nil && resp.StatusCode >= 300 && resp.StatusCode < 400
}

// initialize does the legacy handshake.
func (s *session) initialize(ctx context.Context) *gateway.Failure {
	m := new(jsonrpc.Message)
	id := s.ids.Add(1)
	body := mcp.AppendInitialize(nil, id, s.u.o.Client)
	resp, failure := s.ask(ctx, s.posts(), id, body, wanted{m: m, max: maxHandshake, handshake: true})
	if failure != nil {
		return failure
	}
	if len(m.Error) > 0 {
		return s.failure(gateway.FailedProtocol, "initialize was answered with error "+strconv.Itoa(errorCode(m)))
	}
	v, ok := m.Result.Get("protocolVersion")
	if ok {
		s.version, _ = m.String(v)
	}
	if mcp.EraOf(s.version) != mcp.Legacy {
		return s.failure(gateway.FailedProtocol, "initialize was answered with a protocol version that is not spoken here")
	}
	ids := resp.Header["Mcp-Session-Id"]
	if len(ids) > 1 || len(ids) == 1 && !visible(ids[0]) {
		return s.failure(gateway.FailedProtocol, "Mcp-Session-Id is not one header of visible ASCII characters")
	}
	if len(ids) == 1 {
		s.sessionID = ids[0]
		s.legacy = "Mcp-Session-Id: " + s.sessionID + "\r\n"
	}
	if s.version >= mcp.V20250618 { // older ones have no such header
		s.legacy += "MCP-Protocol-Version: " + s.version + "\r\n"
	}
	s.era = mcp.Legacy
	s.listens = announces(m)
	return s.notify(ctx, mcp.AppendNotification(nil, mcp.MethodInitialized, nil))
}

// visible holds a session id to what 2025-11-25, transports, allows, and to a length.
func visible(id string) bool {
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}
	return id != "" && len(id) <= maxSessionID
}

// announces reports whether the server's capabilities promise notices about its tools.
func announces(m *jsonrpc.Message) bool {
	c, ok := m.Result.Get("capabilities")
	if !ok || c.Kind != jsonrpc.Object {
		return false
	}
	raw := m.Bytes(c.Value)
	members, err := jsonrpc.ObjectMembers(nil, raw)
	if err != nil {
		return false
	}
	tools, ok := members.Get("tools")
	if !ok || tools.Kind != jsonrpc.Object {
		return false
	}
	raw = raw[tools.Value.Start:tools.Value.End]
	if members, err = jsonrpc.ObjectMembers(nil, raw); err != nil {
		return false
	}
	listChanged, ok := members.Get("listChanged")
	return ok && string(raw[listChanged.Value.Start:listChanged.Value.End]) == "true"
}

func errorCode(m *jsonrpc.Message) int {
	c, ok := m.Error.Get("code")
	if !ok {
		return 0
	}
	n, _ := strconv.Atoi(string(m.Bytes(c.Value)))
	return n
}

// notify sends a legacy notification or response.
func (s *session) notify(ctx context.Context, body []byte) *gateway.Failure {
	resp, _, err := s.post(ctx, s.posts()+s.legacy, body)
	if err != nil {
		return s.interrupted(ctx, err)
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return s.status(resp).Failure
	}
	return nil
}

// Tools lists every page.
func (s *session) Tools(ctx context.Context) ([]mcp.ListedTool, error) {
	var tools []mcp.ListedTool
	m := new(jsonrpc.Message)
	seen := map[string]bool{}
	bytes := 0
	var params []byte
	for range mcp.MaxPages {
		id := s.ids.Add(1)
		body := mcp.AppendRequest(nil, s.era, id, mcp.MethodToolsList, params, s.u.o.Client)
		_, failure := s.ask(ctx, s.head(mcp.MethodToolsList, ""), id, body,
			wanted{m: m, max: min(s.u.o.MaxPage, s.u.o.MaxList-bytes), list: "tools"})
		if failure != nil {
			return nil, failure
		}
		if len(m.Error) > 0 {
			return nil, s.failure(gateway.FailedProtocol, "tools/list was answered with error "+strconv.Itoa(errorCode(m)))
		}
		bytes += len(m.Raw)
		page, cursor, more, err := mcp.ReadToolsPage(m)
		if err != nil {
			return nil, s.failure(gateway.FailedProtocol, err.Error())
		}
		if tools = append(tools, page...); len(tools) > mcp.MaxTools {
			return nil, s.failure(gateway.FailedTooLarge, "it lists more than "+strconv.Itoa(mcp.MaxTools)+" tools")
		}
		if !more {
			if s.era == mcp.Modern {
				s.mirror(tools)
			}
			return tools, nil
		}
		if len(cursor) > maxCursor || seen[string(cursor)] {
			return nil, s.failure(gateway.FailedProtocol, "tools/list gave a cursor twice, or one that is too long")
		}
		seen[string(cursor)] = true
		params = append([]byte(`"cursor":`), cursor...)
	}
	return nil, s.failure(gateway.FailedTooLarge, "tools/list has more than "+strconv.Itoa(mcp.MaxPages)+" pages")
}

// Call sends one tools/call, once.
func (s *session) Call(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
	select {
	case <-s.done: // the server would refuse it; unsent, the call can go by a new session
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.failure(gateway.FailedExited, "the session is over")}
	default:
	}
	id := s.ids.Add(1)
	spec := mcp.CallSpec{Era: s.era, ID: id, Name: c.Name, Client: s.u.o.Client}
	w := wanted{id: id, m: c.Response, max: c.MaxBytes, spare: &c.Buffer}
	if c.Progress != nil {
		spec.Token = id
		w.progress = c.Progress
	}
	head, more := s.head(mcp.MethodToolsCall, c.Name), s.mirrored(c)
	buf := s.u.buffers.Get().(*[]byte)
	request, err := mcp.AppendCall(frame((*buf)[:0], head, more), c.Request, spec)
	if err != nil {
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.failure(gateway.FailedProtocol, "the call cannot be written")}
	}
	*buf = request

	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	w.cancel = cancel
	var a gateway.Answer
	resp, sent, err := s.do(inner, http.MethodPost, finish(request, head, more))
	if cap(request) <= maxScratch {
		s.u.buffers.Put(buf)
	}
	if err != nil {
		a = gateway.Answer{Sent: sent, Failure: s.interrupted(inner, err)}
	} else {
		a = s.receive(inner, resp, w)
		resp.Body.Close()
	}
	if a.Failure != nil && ctx.Err() != nil && a.Sent == gateway.MaybeSent && s.era == mcp.Legacy {
		// The modern era cancels by closing the response, which the end of ctx has done.
		s.background(func(context.Context) {
			ctx, cancel := context.WithTimeout(s.ctx, farewell)
			defer cancel()
			_ = s.notify(ctx, mcp.AppendCancelled(nil, id, "the client cancelled, or the time was up"))
		})
	}
	return a
}

// wanted is what a response is searched for.
type wanted struct {
	id        uint64
	m         *jsonrpc.Message
	max       int
	list      string // scan tolerantly, with this list
	handshake bool   // before an era is known
	progress  func(*jsonrpc.Message)
	cancel    func()  // ends the request
	spare     *[]byte // memory for the answer; nil = fresh
}

func (w wanted) buffer() *[]byte {
	if w.spare != nil {
		return w.spare
	}
	return new([]byte)
}

// receive takes the reply with our id out of a response, in whichever form it comes. Anything that is not that reply is a failure:
// nothing here turns into an empty success.
func (s *session) receive(ctx context.Context, resp *http.Response, w wanted) gateway.Answer {
	if resp.StatusCode != http.StatusOK {
		return s.refused(ctx, resp, w)
	}
	if e := resp.Header["Content-Encoding"]; len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "identity") {
		return s.unusable("the answer is compressed, which was not asked for")
	}
	types := resp.Header["Content-Type"]
	if len(types) != 1 {
		return s.unusable("the answer has no media type")
	}
	switch mediaType(types[0]) {
	case "application/json":
		return s.receiveJSON(ctx, resp, w)
	case "text/event-stream":
		return s.receiveStream(ctx, resp, w)
	}
	return s.unusable("the answer is neither JSON nor an event stream")
}

func mediaType(value string) string {
	if value == "application/json" || value == "text/event-stream" {
		return value
	}
	t, _, err := mime.ParseMediaType(value)
	if err != nil {
		return ""
	}
	return t
}

// unusable is an answer that says nothing about the request: it may have been carried out.
func (s *session) unusable(detail string) gateway.Answer {
	return gateway.Answer{Sent: gateway.MaybeSent, Failure: s.failure(gateway.FailedProtocol, detail)}
}

func (s *session) tooLarge(max int) gateway.Answer {
	return gateway.Answer{Sent: gateway.Answered, Failure: s.failure(gateway.FailedTooLarge, "the answer is over "+strconv.Itoa(max)+" bytes")}
}

var errOver = errors.New("over the limit")

// readAll reads a body of at most max bytes into spare, or into a larger buffer that it leaves there.
func readAll(resp *http.Response, max int, spare *[]byte) ([]byte, error) {
	b := (*spare)[:0]
	// A length beyond maxScratch is only a promise: memory for it comes as the bytes do, or an upstream could have it for nothing.
	if n := resp.ContentLength; n > int64(max) {
		return nil, errOver
	} else if n >= 0 && n <= maxScratch {
		if int64(cap(b)) < n {
			b = make([]byte, 0, n)
			*spare = b
		}
		b = b[:n]
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
	for {
		if len(b) == cap(b) {
			bigger := make([]byte, len(b), 2*cap(b)+2048)
			copy(bigger, b)
			b = bigger
			*spare = b[:0]
		}
		n, err := resp.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > max:
			return nil, errOver
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

func (s *session) receiveJSON(ctx context.Context, resp *http.Response, w wanted) gateway.Answer {
	b, err := readAll(resp, w.max, w.buffer())
	switch {
	case errors.Is(err, errOver):
		return s.tooLarge(w.max)
	case err != nil && ctx.Err() != nil:
		return gateway.Answer{Failure: s.interrupted(ctx, err)}
	case err != nil:
		return s.unusable("the answer broke off")
	}
	if a, ok := s.scan(b, w); !ok {
		return a
	}
	if !s.isReply(w) {
		return s.unusable("the answer is no reply to the request")
	}
	return s.replied(w)
}

// scan reads one message. The refusal does not quote it.
func (s *session) scan(b []byte, w wanted) (gateway.Answer, bool) {
	var err error
	if w.list != "" {
		err = w.m.ScanTolerant(b, jsonrpc.Limits{Bytes: w.max}, w.list)
	} else {
		err = w.m.Scan(b, jsonrpc.Limits{Bytes: w.max})
	}
	if err == nil {
		return gateway.Answer{}, true
	}
	at := 0
	var bad *jsonrpc.Error
	if errors.As(err, &bad) {
		at = bad.Offset
	}
	return s.unusable("the answer is not one unambiguous JSON-RPC message, at its byte " + strconv.Itoa(at)), false
}

// isReply says whether the scanned message is the reply with our id. A response to anything else is dropped and counted.
func (s *session) isReply(w wanted) bool {
	if w.m.Form() != jsonrpc.Response {
		return false
	}
	if id, ok := mcp.OwnID(w.m); ok && id == w.id {
		return true
	}
	s.u.foreign.Add(1)
	return false
}

// replied judges errors that concern the connection and not the request.
func (s *session) replied(w wanted) gateway.Answer {
	if s.era == mcp.Modern && !w.handshake && len(w.m.Error) > 0 {
		switch errorCode(w.m) {
		case mcp.CodeUnsupportedVersion: // it was replaced by one of another era: the next session finds out
			s.die()
			return gateway.Answer{Sent: gateway.Answered, Failure: s.failure(gateway.FailedProtocol, "it does not speak "+mcp.LatestModern+" any more")}
		case mcp.CodeHeaderMismatch: // a schema that we have not seen wants other headers
			s.changed()
			return gateway.Answer{Sent: gateway.Answered, Failure: s.failure(gateway.FailedProtocol, "it wants other headers; its tools are listed again")}
		}
	}
	return gateway.Answer{Sent: gateway.Answered}
}

// refused judges a response with a status other than 200. An error of JSON-RPC with our id is a reply like any other: the modern era
// sends it with 400 and 404 (2026-07-28, transports).
func (s *session) refused(ctx context.Context, resp *http.Response, w wanted) gateway.Answer {
	status := resp.StatusCode
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status < 400 {
		return s.status(resp)
	}
	types := resp.Header["Content-Type"]
	if len(types) == 1 && mediaType(types[0]) == "application/json" && !(status == http.StatusNotFound && s.sessionID != "") {
		if b, err := readAll(resp, min(w.max, maxErrorBody), w.buffer()); err == nil && ctx.Err() == nil {
			if _, ok := s.scan(b, w); ok && s.isReply(w) && len(w.m.Error) > 0 {
				return s.replied(w)
			}
		}
	}
	// 404 is how a server says that it does not know the session (2025-11-25, transports); some say 400.
	if s.sessionID != "" && (status == http.StatusNotFound || status == http.StatusBadRequest) {
		s.die()
	}
	return s.status(resp)
}

// status is the answer for a bare HTTP status. Only those from 400 to 499 say that the request was not carried out.
func (s *session) status(resp *http.Response) gateway.Answer {
	a := gateway.Answer{Sent: gateway.MaybeSent}
	code := strconv.Itoa(resp.StatusCode)
	switch n := resp.StatusCode; {
	case n == http.StatusUnauthorized || n == http.StatusForbidden:
		a.Sent, a.Failure = gateway.Answered, s.failure(gateway.FailedRefused, "status "+code+": the account's credential was refused")
	case n < 300:
		a.Failure = s.failure(gateway.FailedProtocol, "status "+code+", which answers no request")
	case n < 400:
		a.Failure = s.failure(gateway.FailedStatus, "status "+code+"; redirects are not followed")
	case n < 500:
		a.Sent, a.Failure = gateway.Answered, s.failure(gateway.FailedStatus, "status "+code)
	default:
		a.Failure = s.failure(gateway.FailedStatus, "status "+code)
	}
	return a
}

// settle is how long the end of a stream may be waited for after the reply, so that its connection can serve again.
const settle = 5 * time.Millisecond

func (s *session) receiveStream(ctx context.Context, resp *http.Response, w wanted) gateway.Answer {
	events := mcp.NewEventReader(resp.Body, w.max)
	for {
		data, err := events.Next()
		switch {
		case errors.Is(err, mcp.ErrEventTooLarge):
			return s.tooLarge(w.max)
		case err != nil && ctx.Err() != nil:
			return gateway.Answer{Failure: s.interrupted(ctx, err)}
		case err != nil:
			return s.unusable("the stream ended without the reply")
		}
		if len(data) == 0 {
			continue // servers begin resumable streams with an event that has an id only
		}
		if a, ok := s.scan(data, w); !ok {
			if id, ours := mcp.OwnID(w.m); ours && id == w.id {
				return a
			}
			s.u.foreign.Add(1) // noise between messages; the reply may still come
			continue
		}
		if s.isReply(w) {
			// The reply stays where it is: nothing reads into the event's memory any more.
			timer := time.AfterFunc(settle, w.cancel)
			_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
			timer.Stop()
			return s.replied(w)
		}
		s.aside(w.m, w)
	}
}

// aside deals with a message on a stream that is not the reply waited for.
func (s *session) aside(m *jsonrpc.Message, w wanted) {
	switch m.Form() {
	case jsonrpc.Notification:
		switch m.Method() {
		case mcp.MethodProgress:
			// Only the token of this very request: progress goes to who asked for it, and nobody else.
			if token, ok := mcp.ProgressToken(m); ok && w.progress != nil && token == w.id {
				w.progress(m)
			}
		case mcp.MethodToolsChange:
			s.changed()
		}
	case jsonrpc.Request:
		s.answer(m)
	}
}

// answer tells a legacy server that nothing of what servers ask of clients is offered here, except ping.
func (s *session) answer(m *jsonrpc.Message) {
	if s.era != mcp.Legacy {
		return // a modern server has no requests
	}
	select {
	case s.replies <- struct{}{}:
	default:
		s.u.foreign.Add(1)
		return // it asks faster than it takes answers
	}
	var body []byte
	if m.Method() == mcp.MethodPing {
		body = append(append([]byte(`{"jsonrpc":"2.0","id":`), m.ID()...), `,"result":{}}`...)
	} else {
		body = mcp.AppendError(nil, m.ID(), &mcp.Error{Code: mcp.CodeMethodNotFound, Message: "this client offers nothing to servers"})
	}
	started := s.background(func(ctx context.Context) {
		defer func() { <-s.replies }()
		ctx, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		_ = s.notify(ctx, body)
	})
	if !started {
		<-s.replies
	}
}
