// Package wire answers one HTTP/1.1 request over a kept connection, without a goroutine of its own: the caller writes the request in one
// piece and reads the response itself.
//
// It exists because a gateway's hop is mostly waiting, and net/http's Transport hands every request to a writing goroutine and every
// response to a reading one; those hand-overs cost more than scan, decision and record together. Parsing responses, chunking
// included, is net/http's. It knows no retry, no redirect, no proxy, no compression and no HTTP/2: a request is sent once, and
// Sent says whether any byte of it can have left.
//
// Start at Pool.Do.
package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Pool keeps connections to one origin. It is safe for concurrent use; its fields must not change once it is used.
type Pool struct {
	Address string      // host:port to dial
	TLS     *tls.Config // nil = plain text; its ServerName and ALPN are the caller's business
	Dialer  net.Dialer
	MaxIdle int           // connections kept; 0 = 64
	IdleFor time.Duration // how long one is kept; 0 = 90 s
	MaxHead int           // bytes of one response's head; 0 = 256 KiB

	mu   sync.Mutex
	idle []*conn // the most recently used last: it is the one that is most surely alive
	shut bool
}

// DialError says that no connection was made, so that nothing was sent. TLS reports whether it was the handshake that failed.
type DialError struct {
	TLS bool
	Err error
}

func (e *DialError) Error() string { return "dial: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *DialError) Unwrap() error { return e.Err }

// ErrHead says that a response's head is over the limit.
var ErrHead = errors.New("the head of the response is too large")

type conn struct {
	net.Conn
	r      *bufio.Reader
	budget int // bytes that may still be read before it is an error; negative = any
	since  time.Time
	raw    net.Conn // under TLS
}

// Read counts against the budget of a head.
func (c *conn) Read(p []byte) (int, error) {
	if c.budget == 0 {
		return 0, ErrHead
	}
	if c.budget > 0 && len(p) > c.budget {
		p = p[:c.budget]
	}
	n, err := c.Conn.Read(p)
	if c.budget > 0 {
		c.budget -= n
	}
	return n, err
}

// Do writes request, a complete HTTP/1.1 request, in one piece, and reads the head of the response. Method is the request's, which
// decides whether a response can have a body. When ctx ends, reading and writing end at once. sent is false only when no byte of
// the request can have left; it is true whenever a response came. The body must be closed; a body that was read to its end
// gives its connection back.
func (p *Pool) Do(ctx context.Context, method string, request []byte) (resp *http.Response, sent bool, err error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	n, err := c.Write(request)
	if err != nil {
		stop()
		c.Close()
		return nil, n > 0, cause(ctx, err)
	}
	resp, err = c.head(method, p.maxHead())
	if err != nil {
		stop()
		c.Close()
		return nil, true, cause(ctx, err)
	}
	resp.Body = &body{ReadCloser: resp.Body, p: p, c: c, ctx: ctx, stop: stop, keep: !resp.Close, end: resp.Body == http.NoBody}
	return resp, true, nil
}

func (p *Pool) maxHead() int {
	if p.MaxHead > 0 {
		return p.MaxHead
	}
	return 256 << 10
}

// head reads one response's head, passing over interim ones.
func (c *conn) head(method string, most int) (*http.Response, error) {
	c.budget = most
	defer func() { c.budget = -1 }()
	rq := &http.Request{Method: method}
	for range 8 {
		resp, err := http.ReadResponse(c.r, rq)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errors.New("no response but interim ones")
}

// cause prefers the reason for which ctx ended over the deadline that carried it out.
func cause(ctx context.Context, err error) error {
	if e := ctx.Err(); e != nil {
		return e
	}
	return err
}

// take gives an idle connection that is still open, or a new one.
func (p *Pool) take(ctx context.Context) (*conn, error) {
	for {
		p.mu.Lock()
		if p.shut {
			p.mu.Unlock()
			return nil, &DialError{Err: net.ErrClosed}
		}
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		// A server that closed it, or said something unasked, is not asked again. The look costs a system call; without it every
		// call after a server's idle time would end in "may have been sent".
		if time.Since(c.since) < p.idleFor() && c.r.Buffered() == 0 && silent(c.raw) && c.nothingDecrypted() {
			return c, nil
		}
		c.Close()
	}
}

// nothingDecrypted reports whether TLS holds back nothing: what it has read already does not show at the socket, and would be taken
// for the answer to the next request. The deadline has passed, so that only what is there can be read.
func (c *conn) nothingDecrypted() bool {
	if c.Conn == c.raw {
		return true
	}
	if c.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var b [1]byte
	n, err := c.Conn.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Time{}) == nil
}

func (p *Pool) idleFor() time.Duration {
	if p.IdleFor > 0 {
		return p.IdleFor
	}
	return 90 * time.Second
}

func (p *Pool) dial(ctx context.Context) (*conn, error) {
	raw, err := p.Dialer.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, &DialError{Err: cause(ctx, err)}
	}
	c := &conn{Conn: raw, raw: raw, budget: -1}
	if p.TLS != nil {
		secure := tls.Client(raw, p.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, &DialError{TLS: true, Err: cause(ctx, err)}
		}
		c.Conn = secure
	}
	c.r = bufio.NewReaderSize(c, 4096)
	return c, nil
}

// put keeps a connection for the next request.
func (p *Pool) put(c *conn) {
	most := p.MaxIdle
	if most <= 0 {
		most = 64
	}
	c.since = time.Now()
	p.mu.Lock()
	if p.shut || len(p.idle) >= most {
		p.mu.Unlock()
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// CloseIdle closes the connections that nobody uses.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}

// Close closes what is idle, and what is in use as soon as it is given back. Nothing is dialled afterwards.
func (p *Pool) Close() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.CloseIdle()
}

// body is a response's body. Read to its end, it gives its connection back; closed before, it closes it, which is how the rest of an
// answer is refused.
type body struct {
	io.ReadCloser
	p    *Pool
	c    *conn
	ctx  context.Context
	stop func() bool
	keep bool
	end  bool
	once sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.end = true
	} else if err != nil {
		err = cause(b.ctx, err)
	}
	return n, err
}

// Close ends the use of the connection. It does not wait.
func (b *body) Close() error {
	b.once.Do(func() {
		// A context that ended has set a deadline in the past, or is just doing so: such a connection is not kept.
		alive := b.stop()
		if b.end && b.keep && alive {
			b.p.put(b.c)
			return
		}
		b.c.Close()
	})
	return nil
}
