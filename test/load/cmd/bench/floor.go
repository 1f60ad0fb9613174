package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
)

// runFloor is the least that an HTTP hop in Go costs without hand-made HTTP.
func runFloor(o options) error {
	u, err := url.Parse(o.to)
	if err != nil || u.Host == "" {
		return fmt.Errorf("-to %q: want the upstream's origin, like http://127.0.0.1:9000", o.to)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 1024 // the default of 2 redials at any concurrency above 2
	t.DisableCompression = true
	p := &httputil.ReverseProxy{Transport: t, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	if o.floorPool {
		p.BufferPool = &pool{}
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listening on http://%s/mcp\n", l.Addr())
	go endWithParent()
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without full duplex net/http closes the request body when the reply
		// begins; the transport, still probing it for its end, then drops the
		// upstream's connection in the middle of a fast reply.
		http.NewResponseController(w).EnableFullDuplex()
		p.ServeHTTP(w, r)
	}))
}

type pool struct{ p sync.Pool }

func (p *pool) Get() []byte {
	if b, ok := p.p.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *pool) Put(b []byte) { p.p.Put(&b) }
