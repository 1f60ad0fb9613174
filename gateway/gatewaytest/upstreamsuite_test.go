package gatewaytest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
)

// rehearsal plays a script in memory: the fake of the port, with a transport of function calls before it. Its fields break the
// transport; what else can be broken is broken by wrapping.
type rehearsal struct {
	script gatewaytest.Script
	fake   *gatewaytest.Upstream

	silent    bool    // does not say that it is initialized
	writes    mcp.Era // the era of calls, if not that of the script
	credulous bool    // takes any reply for its own
	overhears bool    // takes any progress for its own
	impatient bool    // asks a cursor only once, and calls that the end

	mu      sync.Mutex
	heard   []gatewaytest.Heard
	players []*player
	stopped bool
	running sync.WaitGroup
}

type player struct {
	*gatewaytest.Session
	r  *rehearsal
	n  int
	mu sync.Mutex
	id uint64
}

type playerKey struct{}

func (r *rehearsal) Open(ctx context.Context, t gateway.Target) (gateway.UpstreamSession, error) {
	p := &player{r: r}
	r.mu.Lock()
	p.n = len(r.players)
	r.mu.Unlock()
	opened, err := r.fake.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	p.Session = opened.(*gatewaytest.Session)
	method := mcp.MethodDiscover
	if r.script.Era == mcp.Legacy {
		method = mcp.MethodInitialize
	}
	if r.script.Methods[method] == nil {
		p.hear(mcp.AppendRequest(nil, r.script.Era, p.next(), method, nil, mcp.Implementation{}))
	} else if frame, f := p.exchange(ctx, method, nil, nil); f != nil {
		return nil, f
	} else if bytes.Contains(frame, []byte(`"error"`)) {
		return nil, &gateway.Failure{Class: gateway.FailedProtocol, Detail: "refused"}
	}
	if r.script.Era == mcp.Legacy && !r.silent {
		p.hear(mcp.AppendNotification(nil, mcp.MethodInitialized, nil))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.players = append(r.players, p)
	return p, nil
}

func (p *player) next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id++
	return p.id
}

func (p *player) hear(raw []byte) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.r.heard = append(p.r.heard, gatewaytest.Heard{Raw: string(raw), Conversation: fmt.Sprint(p.n),
		Places: map[string]string{"credential": p.Target.Material.Secret.Reveal()}})
}

// line is the way back of one request.
type line struct {
	id   []byte
	to   chan []byte
	over chan struct{}
}

func (l line) Emit(frame []byte) error {
	select {
	case l.to <- bytes.Clone(frame):
		return nil
	case <-l.over:
		return errors.New("over")
	}
}
func (l line) ReplyFrame(frame []byte) error { return l.Emit(frame) }
func (l line) Reply(result []byte) error {
	return l.Emit(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, l.id, result))
}
func (l line) ReplyError(code int, message string, data []byte) error {
	if data != nil {
		data = append([]byte(`,"data":`), data...)
	}
	return l.Emit(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, l.id, code, jsonrpc.AppendString(nil, message), data))
}

// exchange makes one request of the script and gives the frame that answers it.
func (p *player) exchange(ctx context.Context, method string, params []byte, c *gateway.UpstreamCall) ([]byte, *gateway.Failure) {
	id := p.next()
	raw := mcp.AppendRequest(nil, p.r.script.Era, id, method, params, mcp.Implementation{})
	if c != nil {
		spec := mcp.CallSpec{Era: p.r.script.Era, ID: id, Name: c.Name}
		if p.r.writes != mcp.NoEra {
			spec.Era = p.r.writes
		}
		if c.Progress != nil {
			spec.Token = id
		}
		raw, _ = mcp.AppendCall(nil, c.Request, spec)
	}
	p.hear(raw)
	var m struct {
		ID     json.RawMessage
		Params json.RawMessage
	}
	var q struct {
		Name string
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(raw, &m) != nil || json.Unmarshal(m.Params, &q) != nil {
		return nil, &gateway.Failure{Class: gateway.FailedProtocol, Detail: "cannot be written"}
	}
	l := line{m.ID, make(chan []byte), make(chan struct{})}
	defer close(l.over)
	at, cancel := context.WithCancel(ctx)
	defer cancel()
	p.r.mu.Lock()
	if p.r.stopped {
		p.r.mu.Unlock()
		return nil, &gateway.Failure{Class: gateway.FailedExited, Detail: "stopped"}
	}
	p.r.running.Go(func() {
		p.r.script.Methods[method](at, &gatewaytest.ScriptCall{ScriptWire: l, Raw: raw, ID: m.ID, Token: q.Meta[mcp.MetaProgressToken], Params: m.Params, Name: q.Name})
	})
	p.r.mu.Unlock()
	var in jsonrpc.Message
	for {
		select {
		case frame := <-l.to:
			err := in.ScanTolerant(frame, jsonrpc.Limits{Bytes: len(frame) + 1}, "tools")
			own, ours := mcp.OwnID(&in)
			token, ok := mcp.ProgressToken(&in)
			switch {
			case in.Form() == jsonrpc.Notification && c != nil && c.Progress != nil && (ok && token == id || p.r.overhears):
				c.Progress(&in)
			case err == nil && in.Form() == jsonrpc.Response && (ours && own == id || p.r.credulous):
				return frame, nil
			case err != nil && ours && own == id:
				return nil, &gateway.Failure{Class: gateway.FailedProtocol, Detail: "refused"}
			}
		case <-p.Done():
			return nil, &gateway.Failure{Class: gateway.FailedExited, Detail: "died"}
		case <-ctx.Done():
			class := gateway.FailedCancelled
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				class = gateway.FailedTimeout
			}
			return nil, &gateway.Failure{Class: class, Detail: "given up"}
		}
	}
}

func (p *player) Tools(ctx context.Context) ([]mcp.ListedTool, error) {
	if p.r.script.Methods[mcp.MethodToolsList] == nil {
		p.hear([]byte(`{"method":"tools/list"}`))
		return p.Session.Tools(ctx)
	}
	var all []mcp.ListedTool
	var params []byte
	seen := map[string]bool{}
	for {
		frame, f := p.exchange(ctx, mcp.MethodToolsList, params, nil)
		if f != nil {
			return nil, f
		}
		m := new(jsonrpc.Message)
		if err := m.ScanTolerant(frame, jsonrpc.Limits{}, "tools"); err != nil {
			return nil, err
		}
		tools, cursor, more, err := mcp.ReadToolsPage(m)
		if err != nil {
			return nil, err
		}
		if all = append(all, tools...); !more {
			return all, nil
		}
		if seen[string(cursor)] {
			if p.r.impatient {
				return all, nil
			}
			return nil, errors.New("a cursor twice")
		}
		seen[string(cursor)] = true
		params = append([]byte(`"cursor":`), cursor...)
	}
}

func (p *player) Call(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
	return p.Session.Call(context.WithValue(ctx, playerKey{}, p), c)
}

func (r *rehearsal) sessions() []*player {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*player(nil), r.players...)
}

// flaw is one way to break an adapter. Its functions may be nil.
type flaw struct {
	transport func(r *rehearsal)
	target    func(t *gateway.Target, r *rehearsal)
	opened    func(s gateway.UpstreamSession, t gateway.Target) gateway.UpstreamSession
	failed    func(err error) error
	heard     func([]gatewaytest.Heard) []gatewaytest.Heard
}

type flawed struct {
	*rehearsal
	flaw
}

func (f flawed) Open(ctx context.Context, t gateway.Target) (gateway.UpstreamSession, error) {
	if f.target != nil {
		f.target(&t, f.rehearsal)
	}
	s, err := f.rehearsal.Open(ctx, t)
	if err != nil && f.failed != nil {
		err = f.failed(err)
	}
	if err == nil && f.opened != nil {
		s = f.opened(s, t)
	}
	return s, err
}

func rehearse(f flaw) gatewaytest.UpstreamCase {
	return gatewaytest.UpstreamCase{
		Deliveries: []gatewaytest.Delivery{{Deliver: policy.Deliver{Kind: policy.DeliverEnv}, Place: "credential"}},
		Start: func(s gatewaytest.Script) (gatewaytest.Stage, error) {
			r := &rehearsal{script: s, fake: &gatewaytest.Upstream{SpeaksEra: s.Era, Whole: true}}
			r.fake.Handler = func(ctx context.Context, _ gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
				frame, failure := ctx.Value(playerKey{}).(*player).exchange(ctx, mcp.MethodToolsCall, nil, c)
				if failure != nil {
					return nil, gateway.Answer{Failure: failure}
				}
				return frame, gateway.Answer{Sent: gateway.Answered}
			}
			if f.transport != nil {
				f.transport(r)
			}
			return gatewaytest.Stage{
				Upstream: flawed{r, f},
				Target:   gateway.Target{Upstream: &policy.Upstream{ID: "up"}},
				Heard: func() []gatewaytest.Heard {
					r.mu.Lock()
					defer r.mu.Unlock()
					all := append([]gatewaytest.Heard(nil), r.heard...)
					if f.heard != nil {
						all = f.heard(all)
					}
					return all
				},
				Announce: func() (n int) {
					for _, p := range r.sessions() {
						p.Target.Changed()
						n++
					}
					return n
				},
				Die: func() {
					for _, p := range r.sessions() {
						p.Die()
					}
				},
				Stop: func() {
					for _, p := range r.sessions() {
						p.Die()
					}
					r.mu.Lock()
					r.stopped = true
					r.mu.Unlock()
					r.running.Wait()
				},
			}, nil
		},
	}
}

func TestUpstreamSuite(t *testing.T) { gatewaytest.RunUpstream(t, rehearse(flaw{})) }

// session is a session with some of its methods replaced.
type session struct {
	gateway.UpstreamSession
	era   mcp.Era
	tools func(ctx context.Context) ([]mcp.ListedTool, error)
	call  func(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer
	done  chan struct{}
	close func() error
}

func (s *session) Era() mcp.Era {
	if s.era != mcp.NoEra {
		return s.era
	}
	return s.UpstreamSession.Era()
}

func (s *session) Tools(ctx context.Context) ([]mcp.ListedTool, error) {
	if s.tools != nil {
		return s.tools(ctx)
	}
	return s.UpstreamSession.Tools(ctx)
}

func (s *session) Call(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
	if s.call != nil {
		return s.call(ctx, c)
	}
	return s.UpstreamSession.Call(ctx, c)
}

func (s *session) Done() <-chan struct{} {
	if s.done != nil {
		return s.done
	}
	return s.UpstreamSession.Done()
}

func (s *session) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.UpstreamSession.Close()
}

// list breaks Tools.
func list(f func(tools []mcp.ListedTool, err error) ([]mcp.ListedTool, error)) flaw {
	return flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
		return &session{UpstreamSession: s, tools: func(ctx context.Context) ([]mcp.ListedTool, error) {
			tools, err := s.Tools(ctx)
			return f(append([]mcp.ListedTool(nil), tools...), err)
		}}
	}}
}

// call breaks Call.
func call(f func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer) flaw {
	return flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
		return &session{UpstreamSession: s, call: func(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer { return f(s, ctx, c) }}
	}}
}

// after breaks what Call gives.
func after(f func(c *gateway.UpstreamCall, a *gateway.Answer)) flaw {
	return call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
		a := s.Call(ctx, c)
		f(c, &a)
		return a
	})
}

// before breaks what Call gets.
func before(f func(c *gateway.UpstreamCall)) flaw {
	return call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
		changed := *c
		f(&changed)
		return s.Call(ctx, &changed)
	})
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func scanned(raw []byte) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	_ = m.Scan(raw, jsonrpc.Limits{})
	return m
}

func TestUpstreamSuiteCatches(t *testing.T) {
	leaked := make(chan struct{})
	defer close(leaked)
	// Most of the time is waiting for what does not come, so that all of them wait at once, however few processors there are.
	var all sync.WaitGroup
	defer all.Wait()
	for name, k := range map[string]struct {
		flaw
		check, report string
	}{
		"drops a page": {list(func(tools []mcp.ListedTool, err error) ([]mcp.ListedTool, error) {
			return tools[:max(0, len(tools)-1)], err
		}), "Tools drains", "want all 5 of five pages"},
		"sorts tools": {list(func(tools []mcp.ListedTool, err error) ([]mcp.ListedTool, error) {
			if n := len(tools); n > 1 {
				tools[n-1], tools[n-2] = tools[n-2], tools[n-1]
			}
			return tools, err
		}), "Tools drains", "want exactly"},
		"writes tools anew": {list(func(tools []mcp.ListedTool, err error) ([]mcp.ListedTool, error) {
			for i := range tools {
				tools[i].Raw = compact(tools[i].Raw)
			}
			return tools, err
		}), "Tools drains", "want exactly"},
		"takes a repeated cursor for the end": {flaw{transport: func(r *rehearsal) { r.impatient = true }}, "a cursor that repeats", "want an error for a repeated cursor"},
		"swallows errors of lists": {list(func(tools []mcp.ListedTool, _ error) ([]mcp.ListedTool, error) {
			return tools, nil
		}), "a list that cannot", "tools and no error"},
		"passes unsound tools": {list(func(tools []mcp.ListedTool, err error) ([]mcp.ListedTool, error) {
			for i := range tools {
				tools[i].Problem = ""
			}
			return tools, err
		}), "an unsound tool", "has no problem"},
		"drops unsound tools": {list(func(tools []mcp.ListedTool, err error) (sound []mcp.ListedTool, _ error) {
			for _, x := range tools {
				if x.Problem == "" {
					sound = append(sound, x)
				}
			}
			return sound, err
		}), "an unsound tool", "elements, <nil>; want 7"},
		"lists on": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			return &session{UpstreamSession: s, tools: func(ctx context.Context) ([]mcp.ListedTool, error) { return s.Tools(context.WithoutCancel(ctx)) }}
		}}, "a list that cannot", "Tools did not return"},
		"reuses answers": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			var mu sync.Mutex
			var kept []byte
			return &session{UpstreamSession: s, call: func(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
				a := s.Call(ctx, c)
				mu.Lock()
				defer mu.Unlock()
				if kept != nil && a.Failure == nil {
					_ = c.Response.Scan(bytes.Clone(kept), jsonrpc.Limits{})
				} else if a.Failure == nil {
					kept = bytes.Clone(c.Response.Raw)
				}
				return a
			}}
		}}, "fifty calls", "got result"},
		"takes any reply":    {flaw{transport: func(r *rehearsal) { r.credulous = true }}, "a foreign", "to nobody"},
		"takes any progress": {flaw{transport: func(r *rehearsal) { r.overhears = true }}, "progress is", "progress of the first call"},
		"tries again": {call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
			if a := s.Call(ctx, c); a.Failure == nil || ctx.Err() != nil {
				return a
			}
			return s.Call(ctx, c)
		}), "what is no reply", "one call reached the server 2 times"},
		"sends twice": {call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
			s.Call(ctx, c)
			return s.Call(ctx, c)
		}), "legacy/the handshake", "one call reached the server 2 times"},
		"ignores the end of ctx": {call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
			return s.Call(context.WithoutCancel(ctx), c)
		}), "the end of ctx", "Call did not return within"},
		"cancels here only": {call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
			done, own := make(chan gateway.Answer, 1), *c
			own.Response, own.Progress = new(jsonrpc.Message), nil
			go func() { done <- s.Call(context.WithoutCancel(ctx), &own) }()
			select {
			case a := <-done:
				_ = c.Response.Scan(own.Response.Raw, jsonrpc.Limits{})
				return a
			case <-ctx.Done():
				return gateway.Answer{Failure: &gateway.Failure{Class: gateway.FailedCancelled}}
			}
		}), "the end of ctx", "was not told that the call is cancelled"},
		"reports progress late": {after(func(c *gateway.UpstreamCall, _ *gateway.Answer) {
			if c.Progress != nil {
				go func() {
					time.Sleep(10 * time.Millisecond)
					c.Progress(scanned([]byte(`{"jsonrpc":"2.0","method":"x"}`)))
				}()
			}
		}), "progress is", "progress came after Call returned"},
		"reports progress twice": {before(func(c *gateway.UpstreamCall) {
			if p := c.Progress; p != nil {
				c.Progress = func(m *jsonrpc.Message) { p(m); p(m) }
			}
		}), "progress is", "progress of the"},
		"asks for progress unasked": {before(func(c *gateway.UpstreamCall) {
			if c.Progress == nil {
				c.Progress = func(*jsonrpc.Message) {}
			}
		}), "progress is", "nobody asked for progress"},
		"asks for no progress":  {before(func(c *gateway.UpstreamCall) { c.Progress = nil }), "progress is", "the progress token that went up"},
		"calls by another name": {before(func(c *gateway.UpstreamCall) { c.Name = strings.TrimSpace(c.Name) }), "a call goes up", "arrived as"},
		"writes arguments anew": {before(func(c *gateway.UpstreamCall) { c.Request = scanned(compact(c.Request.Raw)) }), "a call goes up", "arrived as"},
		"says that failed calls were not sent": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) {
			if a.Failure != nil {
				a.Sent = gateway.NotSent
			}
		}), "a death under", "a call that was not sent reached the server"},
		"says that failed calls were answered": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) {
			if a.Failure != nil {
				a.Sent = gateway.Answered
			}
		}), "Close ends everything", "a call was answered that never reached the server"},
		"never knows what was sent": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) { a.Sent = gateway.MaybeSent }), "an answer comes down", "an answer came, but Sent is 0"},
		"succeeds with nothing": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) {
			if a.Failure != nil {
				a.Sent, a.Failure = gateway.Answered, nil
			}
		}), "what is no reply", "neither a result nor an error"},
		"takes errors for failures": {after(func(c *gateway.UpstreamCall, a *gateway.Answer) {
			if len(c.Response.Error) > 0 {
				a.Failure = &gateway.Failure{Class: gateway.FailedProtocol}
			}
		}), "an answer comes down", "want the answer"},
		"has no limit":        {before(func(c *gateway.UpstreamCall) { c.MaxBytes = 0 }), "an answer over", "want a failure"},
		"has a tighter limit": {before(func(c *gateway.UpstreamCall) { c.MaxBytes-- }), "an answer over", "call failed: too_large"},
		"does not notice a death": {call(func(s gateway.UpstreamSession, ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
			a := s.Call(ctx, c)
			if a.Failure != nil && a.Failure.Class == gateway.FailedExited {
				<-ctx.Done()
			}
			return a
		}), "a death under", "after the server died"},
		"is never done": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			return &session{UpstreamSession: s, done: make(chan struct{})}
		}}, "a death between", "neither serves nor is Done"},
		"closes once": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			var mu sync.Mutex
			closed := false
			return &session{UpstreamSession: s, close: func() error {
				mu.Lock()
				defer mu.Unlock()
				if closed {
					return errors.New("closed already")
				}
				closed = true
				return s.Close()
			}}
		}}, "Close ends everything", "closed already"},
		"does not close": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			return &session{UpstreamSession: s, close: func() error { return nil }}
		}}, "Close ends everything", "Done is open after Close"},
		"leaves goroutines": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			go func() { <-leaked }()
			return &session{UpstreamSession: s}
		}}, "Close returns", "goroutines of the session still run"},
		"mistakes the era": {flaw{opened: func(s gateway.UpstreamSession, _ gateway.Target) gateway.UpstreamSession {
			return &session{UpstreamSession: s, era: mcp.Legacy}
		}}, "the handshake", "modern: the handshake is that of the era: Era is legacy"},
		"ends the handshake early": {flaw{transport: func(r *rehearsal) { r.silent = true }}, "legacy/the handshake", "want one of each in this order"},
		"speaks modern always":     {flaw{transport: func(r *rehearsal) { r.writes = mcp.Modern }}, "legacy/the handshake", "with modern _meta"},
		"speaks legacy always":     {flaw{transport: func(r *rehearsal) { r.writes = mcp.Legacy }}, "the handshake", "lacks the version"},
		"fails to open otherwise":  {flaw{failed: func(err error) error { return errors.New(err.Error()) }}, "Open fails", "which is no *Failure"},
		"tells no change":          {flaw{target: func(t *gateway.Target, _ *rehearsal) { t.Changed = func() {} }}, "a change of", "Changed was not called"},
		"forgets the credential":   {flaw{target: func(t *gateway.Target, _ *rehearsal) { t.Material = gateway.Material{} }}, "a credential arrives", "the credential is not in"},
		"keeps the first credential": {flaw{target: func(t *gateway.Target, r *rehearsal) {
			if all := r.sessions(); len(all) > 0 {
				t.Material = all[0].Target.Material
			}
		}}, "sessions share", "with another credential than its own"},
		"shows the credential elsewhere": {flaw{heard: func(all []gatewaytest.Heard) []gatewaytest.Heard {
			for i, h := range all {
				all[i].Places = map[string]string{"credential": h.Places["credential"], "path": "/?key=" + h.Places["credential"]}
			}
			return all
		}}, "a credential arrives", "the credential is in path, too"},
		"sends the credential in messages": {flaw{heard: func(all []gatewaytest.Heard) []gatewaytest.Heard {
			for i, h := range all {
				all[i].Raw += h.Places["credential"]
			}
			return all
		}}, "a credential arrives", "the credential is in a message"},
		"shares a conversation": {flaw{heard: func(all []gatewaytest.Heard) []gatewaytest.Heard {
			for i := range all {
				all[i].Conversation = "one"
			}
			return all
		}}, "sessions share", "share a conversation"},
		"shows the credential in failures": {flaw{opened: func(s gateway.UpstreamSession, t gateway.Target) gateway.UpstreamSession {
			return &session{UpstreamSession: s, call: func(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
				a := s.Call(ctx, c)
				if a.Failure != nil {
					a.Failure = &gateway.Failure{Class: a.Failure.Class, Detail: "as " + t.Material.Secret.Reveal()}
				}
				return a
			}}
		}}, "a credential arrives", "shows a secret"},
		"says too much": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) {
			if a.Failure != nil {
				a.Failure = &gateway.Failure{Class: a.Failure.Class, Detail: strings.Repeat("x", 300)}
			}
		}), "what is no reply", "300 bytes"},
		"has classes of its own": {after(func(_ *gateway.UpstreamCall, a *gateway.Answer) {
			if a.Failure != nil {
				a.Failure = &gateway.Failure{Class: "other"}
			}
		}), "what is no reply", "unknown class"},
	} {
		all.Go(func() {
			var r gatewaytest.Recorder
			if !strings.Contains(k.check, "/") {
				k.check = "modern/" + k.check
			}
			gatewaytest.RunUpstreamCheck(&r, rehearse(k.flaw), k.check)
			t.Run(name, func(t *testing.T) { reports(t, &r, k.report) })
		})
	}
}
