package gateway

import (
	"sync"
	"time"

	"aduana/internal/jsonrpc"
	"aduana/principals"
)

// ClientSession is one legacy session over HTTP, or one stdio connection. Its id is a handle and no proof: it counts only together with
// the principal that began it.
type ClientSession struct {
	id        string
	principal string

	mu       sync.Mutex
	inflight map[string]func()
	lastUsed time.Time
	closed   bool
	done     chan struct{}
}

// ID is what the client sends back as Mcp-Session-Id; empty for a stdio connection.
func (s *ClientSession) ID() string { return s.id }

// Done is closed when the session has ended.
func (s *ClientSession) Done() <-chan struct{} { return s.done }

// NewConnection gives the session of a stdio connection, which its surface ends with End.
func NewConnection() *ClientSession {
	return &ClientSession{inflight: map[string]func(){}, done: make(chan struct{})}
}

// enter registers a running request, so that the client can cancel it; false when the id is in use already.
func (s *ClientSession) enter(id []byte, cancel func()) bool {
	key := idKey(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.inflight[key]; ok || s.closed {
		return false
	}
	s.inflight[key] = cancel
	return true
}

func (s *ClientSession) leave(id []byte) {
	s.mu.Lock()
	delete(s.inflight, idKey(id))
	s.mu.Unlock()
}

func (s *ClientSession) cancel(id []byte) {
	s.mu.Lock()
	f := s.inflight[idKey(id)]
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// End cancels everything that runs in the session.
func (s *ClientSession) End() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.done)
	running := s.inflight
	s.inflight = map[string]func(){}
	s.mu.Unlock()
	for _, f := range running {
		f()
	}
}

// idKey makes equal ids equal keys: a string by its text, so that an escape in it changes nothing; a number by its bytes.
func idKey(id []byte) string {
	if len(id) > 0 && id[0] == '"' {
		if text, err := jsonrpc.DecodeString(id); err == nil {
			return `"` + text
		}
	}
	return string(id)
}

// The bounds of legacy sessions. The first is for all principals together.
const (
	maxClientSessions = 10_000
	clientSessionIdle = 30 * time.Minute
)

type sessions struct {
	mu   sync.Mutex
	byID map[string]*ClientSession
}

// begin makes a session. When there are as many as may be, the principal with the most loses the one that was idle longest: whoever
// begins sessions without end takes them from nobody else.
func (t *sessions) begin(g *Gateway, p principals.Principal) *ClientSession {
	var raw [24]byte
	g.cfg.Random(raw[:])
	s := NewConnection()
	s.id, s.principal, s.lastUsed = hexText(raw[:]), p.ID(), g.cfg.Clock()
	t.mu.Lock()
	var lost *ClientSession
	if len(t.byID) >= maxClientSessions {
		lost = t.leastMissed()
		delete(t.byID, lost.id)
	}
	if t.byID == nil {
		t.byID = map[string]*ClientSession{}
	}
	t.byID[s.id] = s
	t.mu.Unlock()
	if lost != nil {
		lost.End()
	}
	return s
}

// leastMissed gives the longest idle session of a principal who has the most. The caller holds mu.
func (t *sessions) leastMissed() *ClientSession {
	have := map[string]int{}
	most := 0
	for _, s := range t.byID {
		have[s.principal]++
		most = max(most, have[s.principal])
	}
	var found *ClientSession
	var since time.Time
	for _, s := range t.byID {
		if have[s.principal] < most {
			continue
		}
		s.mu.Lock()
		used := s.lastUsed
		s.mu.Unlock()
		if found == nil || used.Before(since) {
			found, since = s, used
		}
	}
	return found
}

// Session finds the session of an id for the principal that began it. Somebody else's session is not found, exactly like one that
// never was.
func (g *Gateway) Session(id string, p principals.Principal) (*ClientSession, bool) {
	g.sessions.mu.Lock()
	s, ok := g.sessions.byID[id]
	g.sessions.mu.Unlock()
	if !ok || !p.Known() || s.principal != p.ID() {
		return nil, false
	}
	s.mu.Lock()
	s.lastUsed = g.cfg.Clock()
	s.mu.Unlock()
	return s, true
}

// EndSession ends a session that the client gives up.
func (g *Gateway) EndSession(s *ClientSession) {
	g.sessions.mu.Lock()
	delete(g.sessions.byID, s.id)
	g.sessions.mu.Unlock()
	s.End()
}

func (t *sessions) sweep(now time.Time) {
	t.mu.Lock()
	var idle []*ClientSession
	for id, s := range t.byID {
		s.mu.Lock()
		old := len(s.inflight) == 0 && now.Sub(s.lastUsed) > clientSessionIdle
		s.mu.Unlock()
		if old {
			delete(t.byID, id)
			idle = append(idle, s)
		}
	}
	t.mu.Unlock()
	for _, s := range idle {
		s.End()
	}
}
