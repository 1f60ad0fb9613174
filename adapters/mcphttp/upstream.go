package mcphttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aduana/gateway"
	"aduana/internal/mcp"
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
	o         UpstreamOptions
	transport *http.Transport
	buffers   sync.Pool
	foreign   atomic.Uint64
}

var _ gateway.Upstream = (*Upstream)(nil)

// dialTimeout bounds the way to a connection; a call's own time goes on running.
const dialTimeout = 10 * time.Second

// NewUpstream makes the adapter of kind mcp-http. All its sessions share the connections, which carry no identity: every request
// bears its own credential.
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
	var http1 http.Protocols
	http1.SetHTTP1(true)
	u := &Upstream{o: o, transport: &http.Transport{
		// An environment variable must not lead a credential through a stranger's proxy.
		Proxy:       nil,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		// HTTP/1.1 only: there it is provable whether a byte of a call has left. Over HTTP/2 a request may be repeated by rules
		// of the protocol that end below our sight.
		Protocols:              &http1,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           2048,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        55 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	u.buffers.New = func() any { b := make([]byte, 0, 2048); return &b }
	return u
}

// Foreign counts the messages of upstreams that were dropped because they answered nothing of ours, or asked too fast.
func (u *Upstream) Foreign() uint64 { return u.foreign.Load() }

// Close closes idle connections. Sessions end by their own Close.
func (u *Upstream) Close() { u.transport.CloseIdleConnections() }

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
	if err != nil || at.Host == "" || at.User != nil || at.Scheme != "http" && at.Scheme != "https" {
		return nil, &gateway.Failure{Class: gateway.FailedDial, Detail: t.Upstream.ID + ": its url cannot be used"}
	}
	s.place = t.Upstream.ID + " at " + at.Host
	s.base = http.Header{
		"Accept":          {bothTypes},
		"Accept-Encoding": {"identity"},
		"Content-Type":    {"application/json"},
		"User-Agent":      {headerText(u.o.Client.Name) + "/" + headerText(u.o.Client.Version)},
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
	s.request = &http.Request{Method: http.MethodPost, URL: at, Host: at.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return s, nil
}

// header adds a header of the policy's. The policy refuses those that belong to the protocol; here are refused those that would make
// net/http do something with a request besides sending it once.
func (s *session) header(name, value string) *gateway.Failure {
	key := http.CanonicalHeaderKey(name)
	switch key {
	case "Idempotency-Key", "X-Idempotency-Key": // would let net/http repeat a request
	case "Expect", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Upgrade", "Te":
	case "Accept", "Accept-Encoding", "Content-Type", "Last-Event-Id":
	default:
		if strings.HasPrefix(key, "Mcp-") {
			break
		}
		for i := range len(value) {
			// Not what RFC 9110 allows at the edge of use, but what every server reads alike.
			if value[i] < ' ' && value[i] != '\t' || value[i] == 0x7f {
				return s.failure(gateway.FailedRefused, "the header "+name+" has a value with a control character")
			}
		}
		s.base[key] = []string{value}
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

// unreachable classifies an error of the transport. It quotes nothing of the error: that could hold an upstream's text.
func (s *session) unreachable(err error, sent gateway.Sent) *gateway.Failure {
	var op *net.OpError
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert):
		return s.failure(gateway.FailedTLS, "the TLS handshake failed")
	case errors.As(err, &op) && op.Op == "dial":
		if op.Timeout() {
			return s.failure(gateway.FailedDial, "no connection in time")
		}
		return s.failure(gateway.FailedDial, "cannot connect")
	case sent == gateway.NotSent && s.request.URL.Scheme == "https":
		return s.failure(gateway.FailedTLS, "the TLS handshake failed")
	case sent == gateway.NotSent:
		return s.failure(gateway.FailedDial, "the connection ended before anything was sent")
	}
	return s.failure(gateway.FailedProtocol, "the connection ended before an answer")
}

// upload is the body of one POST. It knows whether net/http has begun to take it: before that nothing of it can have left, and after
// seal nothing ever will.
type upload struct {
	b       []byte
	off     int
	mu      sync.Mutex
	touched bool
	sealed  bool
	closed  bool
}

var errSealed = errors.New("given up before it was sent")

// Read gives the body's bytes, unless it was given up.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sealed {
		return 0, errSealed
	}
	u.touched = true
	if u.off == len(u.b) {
		return 0, io.EOF
	}
	n := copy(p, u.b[u.off:])
	u.off += n
	return n, nil
}

// Close says that net/http needs the bytes no more.
func (u *upload) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	return nil
}

// seal ends the upload and reports whether provably nothing of it was taken.
func (u *upload) seal() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sealed = true
	return !u.touched
}

// reusable reports whether the bytes may be overwritten.
func (u *upload) reusable() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// send POSTs a body once. net/http asks for the body a second time only when it took an idle connection that was gone before a byte
// was written to it (transport.go, shouldRetryRequest: nothingWrittenError; any other repetition needs a method or a header that
// we never send). The upload that counts is the one returned.
func (s *session) send(ctx context.Context, header http.Header, body []byte) (*http.Response, *upload, error) {
	up := &upload{b: body}
	r := s.request.WithContext(ctx)
	r.Header = header
	r.Body, r.ContentLength = up, int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) {
		up = &upload{b: body}
		return up, nil
	}
	resp, err := s.u.transport.RoundTrip(r)
	return resp, up, err
}
