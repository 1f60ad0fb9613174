package wire_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/internal/wire"
)

func request(body string) []byte {
	return fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// pool gives a pool for a handler, and counts connections.
func pool(t *testing.T, h http.HandlerFunc) (*wire.Pool, *atomic.Int64) {
	t.Helper()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	p := &wire.Pool{Address: s.Listener.Addr().String()}
	t.Cleanup(func() { p.Close(); s.Close() })
	return p, &connections
}

func do(t *testing.T, p *wire.Pool, body string) string {
	t.Helper()
	resp, sent, err := p.Do(context.Background(), "POST", request(body))
	if err != nil || !sent {
		t.Fatalf("sent %t: %v", sent, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.Write(b)
}

func TestOneConnectionIsUsedAgain(t *testing.T) {
	p, connections := pool(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch string(b) {
		case "chunked":
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			io.WriteString(w, "b")
		case "empty":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Write(b)
		}
	})
	for body, want := range map[string]string{"x": "x", "chunked": "ab", "empty": ""} {
		for range 3 {
			if got := do(t, p, body); got != want {
				t.Errorf("%s: %q", body, got)
			}
		}
	}
	// One that nobody reads: nothing is in it.
	resp, _, err := p.Do(context.Background(), "POST", request("empty"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	do(t, p, "x")
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAnUnreadBodyClosesItsConnection(t *testing.T) {
	p, connections := pool(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 1<<20)) })
	resp, _, err := p.Do(context.Background(), "POST", request(""))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body.Close()
	do(t, p, "")
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A server that closes idle connections costs nobody a call.
func TestAClosedIdleConnectionIsNotUsed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(echo))
	p := &wire.Pool{Address: s.Listener.Addr().String()}
	defer p.Close()
	defer s.Close()
	for range 20 {
		do(t, p, "x")
		s.CloseClientConnections()
	}
}

func TestNothingIsSentWithoutAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	p := &wire.Pool{Address: address}
	_, sent, err := p.Do(context.Background(), "POST", request("x"))
	var dial *wire.DialError
	if sent || !errors.As(err, &dial) || dial.TLS {
		t.Errorf("sent %t: %v", sent, err)
	}
	p.Close()
	if _, sent, err = p.Do(context.Background(), "POST", request("x")); sent || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: sent %t: %v", sent, err)
	}
}

func TestTheEndOfTheContextEndsReading(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"before the head": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"in the body": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := pool(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body) // net/http notices a client that leaves only after the body
				h(w, r)
			})
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(20*time.Millisecond, cancel)
			resp, sent, err := p.Do(ctx, "POST", request("x"))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !sent || !errors.Is(err, context.Canceled) {
				t.Errorf("sent %t: %v", sent, err)
			}
		})
	}
}

// raw serves fixed bytes to each connection after its first request.
func raw(t *testing.T, answer string) *wire.Pool {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.WriteString(c, answer)
				}
			})
		}
	})
	p := &wire.Pool{Address: l.Addr().String(), MaxHead: 1000}
	t.Cleanup(func() { p.Close(); l.Close(); wg.Wait() })
	return p
}

func TestHostileHeads(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":          "",
		"no http":          "hello\r\n\r\n",
		"half a head":      "HTTP/1.1 200 OK\r\nContent-",
		"a head too long":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 5000) + "\r\n\r\n",
		"only interim":     strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20),
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		resp, sent, err := raw(t, answer).Do(context.Background(), "POST", request(""))
		if err == nil || !sent {
			t.Errorf("%s: sent %t, %v, %v", name, sent, resp, err)
		}
	}
	resp, _, err := raw(t, "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").Do(context.Background(), "POST", request(""))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
		t.Errorf("after an interim head: %q %v", b, err)
	}
	resp.Body.Close()
	resp, _, err = raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").Do(context.Background(), "POST", request(""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body cut short: %v", err)
	}
	resp.Body.Close()
}

// A server that says something nobody asked for is not asked again on that connection.
func TestUnaskedBytesAreNoAnswer(t *testing.T) {
	p := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nforge")
	for range 3 {
		if got := do(t, p, ""); got != "ok" {
			t.Errorf("got %q", got)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	p, _ := pool(t, echo)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprint(i, " ", j)
				resp, _, err := p.Do(context.Background(), "POST", request(want))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(b) != want || err != nil {
					t.Errorf("%q instead of %q, %v", b, want, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer s.Close()
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	p := &wire.Pool{Address: s.Listener.Addr().String(), TLS: config}
	defer p.Close()
	for range 3 {
		if got := do(t, p, "x"); got != "x" {
			t.Errorf("got %q", got)
		}
	}
	bad := config.Clone()
	bad.ServerName = "elsewhere.example"
	q := &wire.Pool{Address: s.Listener.Addr().String(), TLS: bad}
	defer q.Close()
	_, sent, err := q.Do(context.Background(), "POST", request("x"))
	var dial *wire.DialError
	if sent || !errors.As(err, &dial) || !dial.TLS {
		t.Errorf("sent %t: %v", sent, err)
	}
}

// The same over TLS, which reads more than it is asked for: what it holds back shows neither in the reader nor at the socket.
func TestUnaskedBytesUnderTLSAreNoAnswer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer s.Close()
	// Larger than the reader's buffer, so that the end of it is read past the buffer and nothing more is.
	first := "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("x", 5000)
	second := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nforge"
	for name, records := range map[string][]string{"one record": {first + second}, "two records": {first, second}} {
		t.Run(name, func(t *testing.T) {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: s.TLS.Certificates, SessionTicketsDisabled: true})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer c.Close()
						r := bufio.NewReader(c)
						if _, err := http.ReadRequest(r); err != nil {
							return
						}
						for _, record := range records {
							io.WriteString(c, record)
						}
						_, _ = http.ReadRequest(r) // ends with the connection
					})
				}
			})
			config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.ServerName = "example.com"
			p := &wire.Pool{Address: l.Addr().String(), TLS: config}
			for range 3 {
				if got := do(t, p, ""); len(got) != 5000 {
					t.Errorf("got %q", got)
				}
			}
			p.Close()
			l.Close()
			wg.Wait()
		})
	}
}
