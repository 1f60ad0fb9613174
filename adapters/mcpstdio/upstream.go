package mcpstdio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/internal/redact"
)

// UpstreamOptions says how children are treated. The zero value has sound defaults.
type UpstreamOptions struct {
	Log     *slog.Logger       // nil discards
	Product mcp.Implementation // what children are told of who calls

	MaxFrame   int           // bytes of one line; 0 = 32 MiB
	ProbeWait  time.Duration // how long the modern handshake goes alone; 0 = 3 s
	Grace      time.Duration // the wait after each step of ending a child; 0 = 2 s
	WriteStall time.Duration // a child that reads nothing of a frame for so long is ended; 0 = 2 min
}

// Upstream starts children and speaks MCP to them. It is safe for concurrent use; make one with NewUpstream.
type Upstream struct {
	o UpstreamOptions

	mu sync.Mutex
	// legacy remembers where the modern handshake was in vain, so that a server that does not answer it, or dies of it, costs that
	// wait once and not for every session. It only saves time: a wrong memory is dropped by the first handshake that fails.
	legacy map[capabilities.Digest]bool
}

var _ gateway.Upstream = (*Upstream)(nil)

// NewUpstream makes the adapter.
func NewUpstream(o UpstreamOptions) *Upstream {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = 32 << 20
	}
	if o.ProbeWait <= 0 {
		o.ProbeWait = 3 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 2 * time.Second
	}
	if o.WriteStall <= 0 {
		o.WriteStall = 2 * time.Minute
	}
	return &Upstream{o: o, legacy: map[capabilities.Digest]bool{}}
}

// Open starts the upstream's command and does the handshake of the era that it speaks.
func (u *Upstream) Open(ctx context.Context, t gateway.Target) (gateway.UpstreamSession, error) {
	probe := !u.isLegacy(t.Binding)
	s, err := u.open(ctx, t, probe)
	if err != nil && probe && diedOfProbe(err) && ctx.Err() == nil {
		// Some servers end when their first message is not initialize.
		s, err = u.open(ctx, t, false)
	}
	if err != nil {
		u.remember(t.Binding, false)
		var f *gateway.Failure
		if !errors.As(err, &f) {
			f = &gateway.Failure{Class: gateway.FailedProtocol, Detail: err.Error()}
		}
		return nil, f
	}
	u.remember(t.Binding, s.era == mcp.Legacy)
	return s, nil
}

func (u *Upstream) isLegacy(d capabilities.Digest) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.legacy[d]
}

func (u *Upstream) remember(d capabilities.Digest, legacy bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !legacy {
		delete(u.legacy, d)
		return
	}
	if len(u.legacy) >= 10_000 { // bindings come and go with reloads
		clear(u.legacy)
	}
	u.legacy[d] = true
}

// probeError is the end of a child that had been sent the modern handshake only.
type probeError struct{ *gateway.Failure }

func (e probeError) Unwrap() error { return e.Failure }

func diedOfProbe(err error) bool {
	var p probeError
	return errors.As(err, &p)
}

// open starts one child. Every way out but success leaves nothing of it behind.
func (u *Upstream) open(ctx context.Context, t gateway.Target, probe bool) (*session, error) {
	id := t.Upstream.ID
	args, err := arguments(t)
	var env []string
	if err == nil {
		env, err = environment(t)
	}
	var c *child
	if err == nil {
		c, err = start(program{command: t.Upstream.Command, args: args, dir: t.Upstream.Cwd, env: env})
	}
	if err != nil {
		return nil, &gateway.Failure{Class: gateway.FailedDial, Detail: fmt.Sprintf("upstream %q was not started: %v", id, err)}
	}
	hide := redact.New(secrets(t)...)
	log := u.o.Log.With("upstream", id)
	s := &session{o: u.o, id: id, log: log, redact: hide, child: c, changed: t.Changed, out: newOutbox(),
		pending: map[uint64]*pending{}, done: make(chan struct{}), gone: make(chan struct{})}
	s.noise = &noise{log: log, redact: hide}
	s.run()
	log.Debug("child started", "pid", c.pid)
	if err := s.handshake(ctx, probe); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// handshake finds the era. The modern handshake goes first and alone for a moment; when it is answered with anything but yes, or
// not at all, the legacy one follows. A server that starts slowly may then answer both: the first yes counts.
func (s *session) handshake(ctx context.Context, probe bool) error {
	var discover *pending
	if probe {
		discover = s.ask(ctx, mcp.Modern, mcp.MethodDiscover, nil)
		timer := time.NewTimer(s.o.ProbeWait)
		defer timer.Stop()
		select {
		case a := <-discover.done:
			if modern(discover.response, a) {
				return s.greetModern(ctx)
			}
			if a.Failure != nil && a.Failure.Class == gateway.FailedExited {
				return probeError{a.Failure}
			}
			discover = nil
		case <-timer.C:
		case <-ctx.Done():
			return s.tooSlow(ctx)
		}
	}
	initialize := s.askInitialize(ctx)
	var first, second <-chan gateway.Answer // nil once answered with no
	if second = initialize.done; discover != nil {
		first = discover.done
	}
	for first != nil || second != nil {
		select {
		case a := <-first:
			if modern(discover.response, a) {
				return s.greetModern(ctx)
			}
			first = nil
		case a := <-second:
			if a.Failure != nil {
				return a.Failure
			}
			if len(initialize.response.Error) == 0 {
				return s.greetLegacy(initialize.response)
			}
			second = nil
		case <-ctx.Done():
			return s.tooSlow(ctx)
		}
	}
	return s.failure(gateway.FailedProtocol, "refused both handshakes, server/discover and initialize")
}

func (s *session) tooSlow(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return s.failure(gateway.FailedCancelled, "was given up during its handshake")
	}
	return s.failure(gateway.FailedTimeout, "did not answer the handshake in time")
}

// modern says whether an answer to server/discover comes from a server that is to be spoken to in the modern way. A server may
// list legacy versions only, and the codes of errors are no sign: anything that is not yes means initialize. Only the two errors
// that are the modern era's own say that the server understood.
func modern(m *jsonrpc.Message, a gateway.Answer) bool {
	if a.Failure != nil {
		return false
	}
	if len(m.Error) > 0 {
		code, _ := m.Error.Get("code")
		switch string(m.Bytes(code.Value)) {
		case "-32020", "-32021":
			return true
		}
		return false
	}
	list, ok := m.Result.Get("supportedVersions")
	if !ok || list.Kind != jsonrpc.Array {
		return false
	}
	raw := m.Bytes(list.Value)
	spans, err := jsonrpc.ArrayElements(nil, raw)
	if err != nil {
		return false
	}
	for _, v := range spans {
		if text, err := jsonrpc.DecodeString(raw[v.Start:v.End]); err == nil && text == mcp.LatestModern {
			return true
		}
	}
	return false
}

// greetModern settles the era, and asks to be told of changes: in the modern era nothing is told unasked. A server that cannot, or
// ends the subscription, is listed again by time.
func (s *session) greetModern(ctx context.Context) error {
	s.era = mcp.Modern
	s.ask(ctx, mcp.Modern, mcp.MethodListen, []byte(`"notifications":{"toolsListChanged":true}`))
	return nil
}

func (s *session) greetLegacy(m *jsonrpc.Message) error {
	v, _ := m.Result.Get("protocolVersion")
	version, err := m.String(v)
	if err != nil || mcp.EraOf(version) != mcp.Legacy {
		return s.failure(gateway.FailedProtocol, "answered initialize with a version that is not spoken here")
	}
	s.era = mcp.Legacy
	s.out.offer(oneLine(mcp.AppendNotification(nil, mcp.MethodInitialized, nil)))
	return nil
}
