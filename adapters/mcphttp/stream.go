package mcphttp

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/mcp"
	"aduana/principals"
)

// streams remembers the GET stream of each session. A session has one: a client that comes again has lost the old one, whether we
// noticed or not, and a message must go out on one stream only (2025-11-25, transports).
type streams struct {
	mu sync.Mutex
	by map[*gateway.ClientSession]chan struct{}
}

// replace ends the session's older stream and gives the signal that will end this one.
func (t *streams) replace(s *gateway.ClientSession) (replaced chan struct{}) {
	replaced = make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[*gateway.ClientSession]chan struct{}{}
	}
	if older, ok := t.by[s]; ok {
		close(older)
	}
	t.by[s] = replaced
	return replaced
}

func (t *streams) remove(s *gateway.ClientSession, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[s] == mine {
		delete(t.by, s)
	}
}

// get holds the legacy stream on which a client learns that its list changed. It ends with the session, the credential, the client
// or the gateway.
func (s *Server) get(w http.ResponseWriter, r *http.Request, scope capabilities.UpstreamID, p principals.Principal, c gateway.Credential) {
	session, ok := s.session(w, r, p)
	if !ok {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	replaced := s.streams.replace(session)
	defer s.streams.remove(session, replaced)
	changes, stop := s.g.Watch(p, scope)
	defer stop()

	s.beginStream(w)
	if !s.emit(w, []byte(keepAlive)) { // the headers go out now, not with the first event
		return
	}
	notice := appendEvent(nil, mcp.AppendNotification(nil, mcp.MethodToolsChange, nil))
	tick := time.NewTicker(s.o.KeepAlive)
	defer tick.Stop()
	for {
		frame := []byte(keepAlive)
		select {
		case <-changes:
			frame = notice
		case <-tick.C:
		case <-replaced:
			return
		case <-session.Done():
			return
		case <-s.g.Draining():
			return
		case <-r.Context().Done():
			return
		}
		// Asking for the session also says that it is in use.
		if _, ok := s.g.Session(session.ID(), p); !ok || !s.holds(c, p) || !s.emit(w, frame) {
			return
		}
	}
}

func (s *Server) emit(w http.ResponseWriter, frame []byte) bool {
	s.deadline(w)
	if _, err := w.Write(frame); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

func lineBreak(b []byte) int {
	at := bytes.IndexByte(b, '\n')
	rest := b
	if at >= 0 {
		rest = b[:at]
	}
	if cr := bytes.IndexByte(rest, '\r'); cr >= 0 {
		return cr
	}
	return at
}
