package mcphttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aduana/gateway"
	"aduana/internal/mcp"
	"aduana/internal/wire"
	"aduana/policy"
)

// UpstreamOptions of an Upstream. The zero value works.
type UpstreamOptions struct {
	Client       mcp.Implementation // what upstreams are told of us
	RootCAs      *x509.CertPool     // nil = the system's
	MaxPage      int                // bytes of one page of a tools/list; 0 = 32 MiB
	MaxList      int                // bytes of all pages; 0 = 64 MiB
	ProbeTimeout time.Duration      // for the answer to server/discover before initialize is tried; 0 = 5 s
	Log          *slog.Logger       // nil discards
}

// Upstream opens sessions at MCP servers over HTTP. Make one with NewUpstream. It is safe for concurrent use.
type Upstream struct {
	o       UpstreamOptions
	buffers sync.Pool
	foreign atomic.Uint64

	mu    sync.Mutex
	pools map[string]*wire.Pool // by origin; as many as policies have named
}

var _ gateway.Upstream = (*Upstream)(nil)

// dialTimeout bounds the way to a connection; a call's own time goes on running.
const dialTimeout = 10 * time.Second

// NewUpstream makes the adapter of kind mcp-http. Sessions at one origin share the connections, which carry no identity: every
// request bears its own credential. No proxy is asked, whatever the environment says.
func NewUpstream(o UpstreamOptions) *Upstream {
	if o.MaxPage <= 0 {
		o.MaxPage = 32 << 20
	}
	if o.MaxList <= 0 {
		o.MaxList = 64 << 20
	}
	if o.ProbeTimeout <= 0 {
		o.ProbeTimeout = 5 * time.Second
	}
	if o.Client.Name == "" {
		o.Client = mcp.Implementation{Name: "aduana", Version: "unknown"}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	u := &Upstream{o: o, pools: map[string]*wire.Pool{}}
	u.buffers.New = func() any { b := make([]byte, 0, 2048); return &b }
	return u
}

// Foreign counts the messages of upstreams that were dropped because they answered nothing of ours, or asked too fast.
func (u *Upstream) Foreign() uint64 { return u.foreign.Load() }

// Close closes idle connections. Sessions end by their own Close.
func (u *Upstream) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pools {
		p.CloseIdle()
	}
}

// pool gives the connections to an origin.
func (u *Upstream) pool(at *url.URL) *wire.Pool {
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	address := net.JoinHostPort(at.Hostname(), port)
	key := at.Scheme + "://" + address
	u.mu.Lock()
	defer u.mu.Unlock()
	if p := u.pools[key]; p != nil {
		return p
	}
	p := &wire.Pool{Address: address, Dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}, MaxIdle: 256, IdleFor: 55 * time.Second, MaxHead: 64 << 10}
	if at.Scheme == "https" {
		p.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: u.o.RootCAs, ServerName: at.Hostname()}
	}
	u.pools[key] = p
	return p
}

// Open finds out which era the server speaks and does its handshake. The modern one is tried first; whatever is not recognisably
// modern is asked to initialize.
func (u *Upstream) Open(ctx context.Context, t gateway.Target) (gateway.UpstreamSession, error) {
	s, failure := u.prepare(t)
	if failure != nil {
		return nil, failure
	}
	modern, failure := s.probe(ctx)
	if failure == nil && !modern {
		failure = s.initialize(ctx)
	}
	if failure != nil {
		s.cancel()
		return nil, failure
	}
	if s.listens {
		s.background(s.watch)
	}
	return s, nil
}

// prepare makes the session's fixed parts: the address, and the headers of every request. They are built from nothing but the
// policy, the protocol and the account's credential.
func (u *Upstream) prepare(t gateway.Target) (*session, *gateway.Failure) {
	s := &session{u: u, changed: t.Changed, done: make(chan struct{}), replies: make(chan struct{}, maxReplies)}
	if s.changed == nil {
		s.changed = func() {}
	}
	at, err := url.Parse(t.Upstream.URL)
	if err != nil || at.User != nil || at.Scheme != "http" && at.Scheme != "https" || !plain(at.Host) || strings.Contains(at.Host, "%") || !plain(at.RequestURI()) {
		return nil, &gateway.Failure{Class: gateway.FailedDial, Detail: t.Upstream.ID + ": its url cannot be used"}
	}
	s.place = t.Upstream.ID + " at " + at.Host
	s.own = "Host: " + at.Host + "\r\nAccept-Encoding: identity\r\n"
	s.target, s.pool = at.RequestURI(), u.pool(at)
	if !slices.ContainsFunc(t.Upstream.Headers, func(h policy.NamedValue) bool { return strings.EqualFold(h.Name, "User-Agent") }) {
		s.own += "User-Agent: " + headerText(u.o.Client.Name) + "/" + headerText(u.o.Client.Version) + "\r\n"
	}
	for _, h := range t.Upstream.Headers {
		value := h.Value.Literal
		if h.Value.IsRef {
			m, ok := t.Settings[string(h.Value.Ref)]
			if !ok || m.Secret.Empty() {
				return nil, s.failure(gateway.FailedRefused, "the header "+h.Name+" has no value")
			}
			value = m.Secret.Reveal()
		}
		if failure := s.header(h.Name, value); failure != nil {
			return nil, failure
		}
	}
	if !t.Material.Secret.Empty() {
		name, value := "Authorization", "Bearer "+t.Material.Secret.Reveal()
		switch t.Upstream.Deliver.Kind {
		case policy.DeliverBearer:
		case policy.DeliverHeader:
			name, value = t.Upstream.Deliver.Name, t.Material.Secret.Reveal()
		default:
			// Nothing may run without the credential that it should have.
			return nil, s.failure(gateway.FailedRefused, "the account's credential cannot be delivered by "+string(t.Upstream.Deliver.Kind)+" over HTTP")
		}
		if failure := s.header(name, value); failure != nil {
			return nil, failure
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.watching, s.unwatch = context.WithCancel(s.ctx)
	return s, nil
}

// plain reports whether a text can stand in a line of a request: visible ASCII, and something.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// header adds a header of the policy's. The policy refuses those that belong to the protocol; here they are refused again, because a
// second Content-Length would let a configured text end our request and begin another one.
func (s *session) header(name, value string) *gateway.Failure {
	switch key := strings.ToLower(name); key {
	case "expect", "host", "connection", "content-length", "transfer-encoding", "trailer", "upgrade", "te", "keep-alive", "proxy-connection",
		"accept", "accept-encoding", "content-type", "last-event-id":
	default:
		if strings.HasPrefix(key, "mcp-") || !token(name) {
			break
		}
		for i := range len(value) {
			if value[i] < ' ' && value[i] != '\t' || value[i] == 0x7f {
				return s.failure(gateway.FailedRefused, "the header "+name+" has a value with a control character")
			}
		}
		s.own += name + ": " + value + "\r\n"
		return nil
	}
	return s.failure(gateway.FailedRefused, "the header "+name+" cannot be set by configuration; remove it")
}

// headerText makes a name fit for User-Agent.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) {
			return '-'
		}
		return r
	}, s)
}

func (s *session) failure(class gateway.FailureClass, detail string) *gateway.Failure {
	return &gateway.Failure{Class: class, Detail: s.place + ": " + detail}
}

// interrupted is the failure of a request without an answer: ours when ctx has ended, the connection's otherwise. It quotes nothing of
// the error, which could hold an upstream's text.
func (s *session) interrupted(ctx context.Context, err error) *gateway.Failure {
	var dial *wire.DialError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return s.failure(gateway.FailedTimeout, "no answer in time")
	case s.ctx.Err() != nil:
		return s.failure(gateway.FailedCancelled, "the session was closed")
	case ctx.Err() != nil:
		return s.failure(gateway.FailedCancelled, "cancelled")
	case errors.As(err, &dial) && dial.TLS:
		return s.failure(gateway.FailedTLS, "the TLS handshake failed")
	case errors.As(err, &dial):
		return s.failure(gateway.FailedDial, "cannot connect")
	}
	return s.failure(gateway.FailedProtocol, "the connection ended before an answer")
}

// maxLength is the room for Content-Length and the blank line after it.
const maxLength = len("Content-Length: \r\n\r\n") + 20

// frame begins a request in dst: room for its head, after which the caller appends the body.
func frame(dst []byte, head, more string) []byte {
	return append(append(append(dst, head...), more...), make([]byte, maxLength)...)
}

// finish writes the head before the body, which stands where frame said, and gives the whole request. The body's length is known only
// now, so the head moves right against it.
func finish(b []byte, head, more string) []byte {
	room := len(head) + len(more) + maxLength
	var length [maxLength]byte
	l := append(length[:0], "Content-Length: "...)
	l = strconv.AppendInt(l, int64(len(b)-room), 10)
	l = append(l, "\r\n\r\n"...)
	start := maxLength - len(l)
	n := copy(b[start:], head)
	n += copy(b[start+n:], more)
	copy(b[start+n:], l)
	return b[start:]
}

// do sends one request, once.
func (s *session) do(ctx context.Context, method string, request []byte) (*http.Response, gateway.Sent, error) {
	if err := ctx.Err(); err != nil {
		return nil, gateway.NotSent, err
	}
	resp, sent, err := s.pool.Do(ctx, method, request)
	if !sent {
		return nil, gateway.NotSent, err
	}
	return resp, gateway.MaybeSent, err
}

// post sends a body under a head.
func (s *session) post(ctx context.Context, head string, body []byte) (*http.Response, gateway.Sent, error) {
	return s.do(ctx, http.MethodPost, finish(append(frame(nil, head, ""), body...), head, ""))
}
