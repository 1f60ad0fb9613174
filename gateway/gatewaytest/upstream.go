package gatewaytest

import (
	"context"
	"sync"
	"sync/atomic"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// Upstream is a fake of the Upstream port: servers in memory, with everything that they were asked. Its sessions answer at once with
// what Handler gives. All fields may be set before use; the methods may be called at any time.
type Upstream struct {
	SpeaksEra mcp.Era // NoEra = Modern
	// OpenError, when it gives an error, is Open's answer.
	OpenError func(t gateway.Target) error
	// Handler gives the raw result of a call, or a failure. Nil answers with an empty text.
	Handler func(ctx context.Context, t gateway.Target, c *gateway.UpstreamCall) (result []byte, a gateway.Answer)
	// Whole says that Handler gives whole responses, which may be JSON-RPC errors.
	Whole bool

	mu       sync.Mutex
	tools    map[string][]mcp.ListedTool // by upstream id
	sessions []*Session
	Opened   atomic.Int64
	Called   atomic.Int64
	Listed   atomic.Int64
}

// Session is one opened session of the fake.
type Session struct {
	Target gateway.Target
	u      *Upstream
	done   chan struct{}
	once   sync.Once
}

// SetTools says what an upstream lists from now on: the raw bytes of each tool.
func (u *Upstream) SetTools(upstream string, raw ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tools == nil {
		u.tools = map[string][]mcp.ListedTool{}
	}
	list := make([]mcp.ListedTool, 0, len(raw))
	for _, r := range raw {
		list = append(list, mcp.ListedTool{Raw: []byte(r)})
	}
	u.tools[upstream] = list
}

// Sessions gives every session opened so far.
func (u *Upstream) Sessions() []*Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*Session(nil), u.sessions...)
}

// Open opens a session, or fails as OpenError says.
func (u *Upstream) Open(ctx context.Context, t gateway.Target) (gateway.UpstreamSession, error) {
	u.Opened.Add(1)
	if ctx.Err() != nil {
		return nil, &gateway.Failure{Class: gateway.FailedCancelled, Detail: t.Upstream.ID + ": given up"}
	}
	if u.OpenError != nil {
		if err := u.OpenError(t); err != nil {
			return nil, err
		}
	}
	s := &Session{Target: t, u: u, done: make(chan struct{})}
	u.mu.Lock()
	u.sessions = append(u.sessions, s)
	u.mu.Unlock()
	return s, nil
}

// Era gives the fake's era.
func (s *Session) Era() mcp.Era {
	if s.u.SpeaksEra == mcp.NoEra {
		return mcp.Modern
	}
	return s.u.SpeaksEra
}

// Tools gives what SetTools said.
func (s *Session) Tools(context.Context) ([]mcp.ListedTool, error) {
	s.u.Listed.Add(1)
	select {
	case <-s.done:
		return nil, &gateway.Failure{Class: gateway.FailedExited, Detail: "closed"}
	default:
	}
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	return s.u.tools[s.Target.Upstream.ID], nil
}

// Call answers with Handler's result.
func (s *Session) Call(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
	s.u.Called.Add(1)
	select {
	case <-s.done:
		return gateway.Answer{Sent: gateway.NotSent, Failure: &gateway.Failure{Class: gateway.FailedExited, Detail: "closed"}}
	default:
	}
	result, a := []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
	if s.u.Handler != nil {
		result, a = s.u.Handler(ctx, s.Target, c)
	}
	if a.Failure != nil {
		return a
	}
	raw := result
	if !s.u.Whole {
		raw = append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":`), result...), '}')
	}
	if c.MaxBytes > 0 && len(raw) > c.MaxBytes {
		return gateway.Answer{Sent: gateway.Answered, Failure: &gateway.Failure{Class: gateway.FailedTooLarge, Detail: "too large"}}
	}
	if err := c.Response.Scan(raw, jsonrpc.Limits{Bytes: c.MaxBytes}); err != nil {
		return gateway.Answer{Sent: gateway.Answered, Failure: &gateway.Failure{Class: gateway.FailedProtocol, Detail: err.Error()}}
	}
	return a
}

// Done is closed by Close and Die.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close ends the session.
func (s *Session) Close() error { s.Die(); return nil }

// Die ends the session from the upstream's side.
func (s *Session) Die() { s.once.Do(func() { close(s.done) }) }
