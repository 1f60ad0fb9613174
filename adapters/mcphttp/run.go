package mcphttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Run serves on a listener until ctx ends; then it stops accepting, drains the gateway, lets requests in flight finish within the
// grace, and closes every connection, also those that never said anything. It returns nil after an orderly end, the listener's
// error otherwise, and never before the last handler has returned.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	var silent connections
	hs := &http.Server{
		Handler: s,
		// One deadline for headers and body, which the handler lifts once it has the body: streams must outlast it.
		ReadTimeout:    s.o.BodyTimeout,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ConnState:      silent.note,
		ErrorLog:       slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
		// Otherwise net/http itself answers "OPTIONS *", before any check.
		DisableGeneralOptionsHandler: true,
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	var failed error
	select {
	case failed = <-served:
	case <-ctx.Done():
		l.Close()
	}
	s.g.Drain()
	silent.close()
	grace, cancel := context.WithTimeout(context.Background(), s.o.Grace)
	defer cancel()
	err := hs.Shutdown(grace)
	s.endHard()
	hs.Close()
	for s.inflight.Load() > 0 { // each has lost its connection or its context
		time.Sleep(time.Millisecond)
	}
	if failed != nil {
		return failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		s.o.Log.Warn("requests were still running when the grace ended", "grace", s.o.Grace.String())
	}
	return nil
}

// connections are those that have not sent a byte. http.Server.Shutdown would wait seconds for them, and they hold nothing that
// could be lost.
type connections struct {
	mu   sync.Mutex
	new  map[net.Conn]struct{}
	shut bool
}

func (t *connections) note(c net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state != http.StateNew {
		delete(t.new, c)
		return
	}
	if t.shut {
		c.Close()
		return
	}
	if t.new == nil {
		t.new = map[net.Conn]struct{}{}
	}
	t.new[c] = struct{}{}
}

func (t *connections) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
	for c := range t.new {
		c.Close()
	}
}
