package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

// Health is what the probe tells: everything in it is public.
type Health struct {
	Version string // of the product
	Policy  string // version of the policy in force
}

// Options of a Server. The zero value serves loopback names only.
type Options struct {
	// Hosts are the names besides localhost, 127.0.0.1 and [::1] under which this server may be asked: "gw.example" with any port,
	// or "gw.example:8443" with exactly that one.
	Hosts []string
	// Origins are the web origins besides the server's own whose pages may send requests, as browsers write them:
	// "https://app.example". There is no CORS header in any case.
	Origins []string
	MaxBody int64 // bytes of one request's body; 0 = 1 MiB
	// Health serves GET /health; nil = there is no probe.
	Health func() Health
	Log    *slog.Logger // nil discards

	KeepAlive    time.Duration // between comments on idle streams, with a look at the credential; 0 = 15 s
	BodyTimeout  time.Duration // for headers and body of one request, under Run; 0 = 30 s
	WriteTimeout time.Duration // for each single write, never for a whole response; 0 = 30 s
	Grace        time.Duration // for requests in flight when Run ends; 0 = 10 s
}

// Server is the HTTP face. Make one with NewServer. It is safe for concurrent use.
type Server struct {
	g         *gateway.Gateway
	o         Options
	admit     admission
	exchanges sync.Pool
	streams   streams
	inflight  atomic.Int64
	hard      context.Context // of legacy requests: ends when the grace is over
	endHard   context.CancelFunc

	// Header values that every response shares. net/http only reads them.
	jsonType, streamType, noCache, noBuffer []string
}

var _ http.Handler = (*Server)(nil)

// NewServer makes the face of a gateway.
func NewServer(g *gateway.Gateway, o Options) *Server {
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{g: g, o: o, admit: newAdmission(o.Hosts, o.Origins),
		jsonType: []string{"application/json"}, streamType: []string{"text/event-stream"},
		noCache: []string{"no-cache"}, noBuffer: []string{"no"}}
	s.hard, s.endHard = context.WithCancel(context.Background())
	s.exchanges.New = func() any { return &exchange{s: s} }
	return s
}

// maxPooledBody keeps one large body from staying in memory for ever.
const maxPooledBody = 64 << 10

// exchange is one POST with everything that it needs, kept for the next one.
type exchange struct {
	s       *Server
	message jsonrpc.Message
	headers mcp.Headers
	request gateway.Request
	reply   reply
	body    []byte
}

func (x *exchange) release() {
	x.message.Reset()
	x.headers, x.request, x.reply = mcp.Headers{}, gateway.Request{}, reply{}
	if cap(x.body) > maxPooledBody {
		x.body = nil
	}
	x.s.exchanges.Put(x)
}

// ServeHTTP answers one request. The order is binding: what a stranger can find out before authentication is which of the few paths
// exist, and that a Host or Origin is not admitted; nothing else is read before it is known who asks.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.inflight.Add(1)
	defer s.inflight.Add(-1)
	defer s.rescue(w)
	if r.Header["Expect"] != nil {
		s.deadline(w) // net/http writes "100 Continue" by itself, and an older deadline of this connection may have passed
	}

	scope, where := s.route(r)
	if where == nowhere {
		s.refuse(w, http.StatusNotFound, "there is nothing here; the MCP endpoint is /mcp")
		return
	}
	if !s.admit.host(r) {
		s.refuse(w, http.StatusForbidden, "this Host is not served here; the operator can add it to the admitted hosts")
		return
	}
	if !s.admit.origin(r) {
		s.refuse(w, http.StatusForbidden, "this Origin may not ask here")
		return
	}
	if where == atHealth {
		s.health(w, r)
		return
	}
	if !s.acceptable(w, r) {
		return
	}
	select {
	case <-s.g.Draining():
		w.Header().Set("Connection", "close")
		s.refuse(w, http.StatusServiceUnavailable, "the gateway is stopping")
		return
	default:
	}
	c, ok := credential(r) // when not ok it is empty, and asked about all the same, so that the refusal is recorded
	principal, problem := s.g.Authenticate(r.Context(), c)
	if !ok || problem != principals.NoProblem {
		s.challenge(w, len(r.Header["Authorization"]) > 0)
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, scope, principal, c)
	case http.MethodGet:
		s.get(w, r, scope, principal, c)
	default:
		s.delete(w, r, principal)
	}
}

// rescue answers for a handler that panicked.
func (s *Server) rescue(w http.ResponseWriter) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.o.Log.Error("a request failed inside", "panic", v, "stack", string(debug.Stack()))
	// If the answer had begun this adds to a broken one, and the connection ends either way.
	w.Header().Set("Connection", "close")
	s.refuse(w, http.StatusInternalServerError, "internal error")
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.refuse(w, http.StatusMethodNotAllowed, "the probe is asked with GET or HEAD")
		return
	}
	h := s.o.Health()
	b := append([]byte(nil), `{"status":"ok","version":`...)
	b = jsonrpc.AppendString(b, h.Version)
	b = append(b, `,"policy":`...)
	b = jsonrpc.AppendString(b, h.Policy)
	s.write(w, http.StatusOK, append(b, '}'))
}

// refuse answers what never became a message.
func (s *Server) refuse(w http.ResponseWriter, status int, reason string) {
	s.write(w, status, mcp.AppendError(nil, nil, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: reason}))
}

func (s *Server) write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = s.jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	s.deadline(w)
	w.WriteHeader(status)
	w.Write(body) // who went away cannot be told
}

// status answers without a body.
func (s *Server) status(w http.ResponseWriter, status int) {
	s.deadline(w)
	w.WriteHeader(status)
}

// deadline bounds the next write. A deadline for the whole response would cut streams in which data still flows.
func (s *Server) deadline(w http.ResponseWriter) {
	// An error means a writer that knows no deadlines, as test recorders are.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
}

// challenge answers a credential that is missing or does not count (RFC 6750 section 3).
func (s *Server) challenge(w http.ResponseWriter, presented bool) {
	if presented {
		w.Header().Set("WWW-Authenticate", `Bearer realm="aduana", error="invalid_token"`)
		s.refuse(w, http.StatusUnauthorized, "the credential is not valid; send exactly one Authorization: Bearer header with a key of yours")
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="aduana"`)
	s.refuse(w, http.StatusUnauthorized, "a credential is needed: Authorization: Bearer KEY")
}

// post serves one message.
func (s *Server) post(w http.ResponseWriter, r *http.Request, scope capabilities.UpstreamID, p principals.Principal, c gateway.Credential) {
	x := s.exchanges.Get().(*exchange)
	defer x.release()
	switch err := x.read(w, r); {
	case errors.Is(err, errTooLong):
		s.tooLong(w)
		return
	case err != nil:
		w.Header().Set("Connection", "close")
		s.refuse(w, http.StatusBadRequest, "the body did not arrive whole")
		return
	}
	malformed := func(e *mcp.Error) {
		s.write(w, e.Status, s.g.Refused(r.Context(), gateway.OverHTTP, p, x.message.ID(), e))
	}
	if bytes.Contains(x.body, []byte(c.Bearer.Reveal())) {
		// Whoever repeats a credential in a message would have it sent on to an upstream, and kept there.
		malformed(&mcp.Error{Code: mcp.CodeInvalidRequest, Message: "the body holds the caller's own credential; send it in the Authorization header only", Status: http.StatusBadRequest})
		return
	}
	m := &x.message
	if err := m.Scan(x.body, jsonrpc.Limits{Bytes: int(s.o.MaxBody)}); err != nil {
		e := &mcp.Error{Code: mcp.CodeInvalidRequest, Message: err.Error(), Status: http.StatusBadRequest}
		var refused *jsonrpc.Error
		if errors.As(err, &refused) {
			e.Code = refused.Code
		}
		malformed(e)
		return
	}
	x.headers = mcp.Headers{Version: r.Header["Mcp-Protocol-Version"], Method: r.Header["Mcp-Method"], Name: r.Header["Mcp-Name"]}
	rq := &x.request
	*rq = gateway.Request{Message: m, Era: mcp.EraOfMessage(m, &x.headers), Surface: gateway.OverHTTP, Scope: scope, Principal: p}
	ctx := r.Context()
	if rq.Era == mcp.Modern {
		if m.Form() != jsonrpc.Request {
			// The modern era has no notification from client to server over HTTP, and no question that a response could answer.
			s.status(w, http.StatusAccepted)
			return
		}
		if e := mcp.CheckModern(m, &x.headers); e != nil {
			malformed(e)
			return
		}
	} else {
		if m.Form() != jsonrpc.Request || m.Method() != mcp.MethodInitialize {
			var ok bool
			if rq.Session, ok = s.session(w, r, p); !ok {
				return
			}
		}
		// A dropped connection is no cancel in the legacy era (2025-11-25, transports): only notifications/cancelled is, or the
		// end of the session or of this process.
		ctx = s.hard
	}
	if m.Form() != jsonrpc.Request {
		s.g.Handle(ctx, rq, nil)
		s.status(w, http.StatusAccepted)
		return
	}
	x.reply = reply{s: s, w: w, rc: http.NewResponseController(w), credential: c, principal: p}
	if m.Method() == mcp.MethodListen {
		// Only a listening stream outlives its authentication by more than one call.
		x.reply.watched = true
		ctx, x.reply.cancel = context.WithCancel(ctx)
		defer x.reply.cancel()
	}
	defer x.reply.end()
	s.g.Handle(ctx, rq, &x.reply)
}

func (s *Server) tooLong(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	s.refuse(w, http.StatusRequestEntityTooLarge, "the body is over "+strconv.FormatInt(s.o.MaxBody, 10)+" bytes")
}

var errTooLong = errors.New("the body is too long")

// read takes the whole body into the exchange, never more than the limit.
func (x *exchange) read(w http.ResponseWriter, r *http.Request) error {
	if err := x.fill(r); err != nil {
		return err // the deadline stays, so that net/http does not wait for the rest for ever
	}
	// From here on net/http watches the connection for the client's leaving: the deadline of Run must not end that watch.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return nil
}

func (x *exchange) fill(r *http.Request) error {
	if n := r.ContentLength; n >= 0 {
		if int64(cap(x.body)) < n {
			x.body = make([]byte, n, max(n, 2048))
		}
		x.body = x.body[:n]
		_, err := io.ReadFull(r.Body, x.body)
		return err
	}
	x.body = x.body[:0]
	limit := int(x.s.o.MaxBody)
	for {
		if len(x.body) == cap(x.body) {
			bigger := make([]byte, len(x.body), max(2048, 2*cap(x.body)))
			copy(bigger, x.body)
			x.body = bigger
		}
		n, err := r.Body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case len(x.body) > limit:
			return errTooLong
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// session finds the legacy session of a request, or answers: 400 without an id, 404 for one that is not this caller's, whether it
// is somebody else's or was never given out.
func (s *Server) session(w http.ResponseWriter, r *http.Request, p principals.Principal) (*gateway.ClientSession, bool) {
	if v := r.Header["Mcp-Protocol-Version"]; len(v) > 1 || len(v) == 1 && mcp.EraOf(v[0]) != mcp.Legacy {
		s.refuse(w, http.StatusBadRequest, "MCP-Protocol-Version is not a version that was negotiated here")
		return nil, false
	}
	ids := r.Header["Mcp-Session-Id"]
	if len(ids) != 1 || ids[0] == "" {
		s.refuse(w, http.StatusBadRequest, "exactly one Mcp-Session-Id is needed; initialize gives it")
		return nil, false
	}
	session, ok := s.g.Session(ids[0], p)
	if !ok {
		s.refuse(w, http.StatusNotFound, "there is no such session; initialize begins one")
		return nil, false
	}
	return session, true
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, p principals.Principal) {
	session, ok := s.session(w, r, p)
	if !ok {
		return
	}
	s.g.EndSession(session)
	s.status(w, http.StatusNoContent)
}
