package gateway

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"aduana/accounts"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/mcp"
	"aduana/policy"
)

// pool keeps the upstream sessions. A session belongs to one upstream under one binding, one account in one generation of its
// credential, and one principal: nothing that an upstream remembers of one reaches another.
type pool struct {
	g  *Gateway
	mu sync.Mutex
	by map[sessionKey]*pooled
	// closed sessions that still wind down
	ending sync.WaitGroup
	shut   bool
}

type sessionKey struct {
	upstream   capabilities.UpstreamID
	binding    capabilities.Digest
	account    accounts.Handle
	generation string
	principal  string
}

// pooled is one session, or the attempt to open it. Everybody who needs it while it opens waits for the one handshake.
type pooled struct {
	UpstreamSession
	p        *pool
	key      sessionKey
	ready    chan struct{} // closed when opening ended
	err      error         // of opening; set before ready closes
	users    int
	lastUsed time.Time
	listed   time.Time
	listing  bool
	again    bool // the upstream said so while a listing ran
	failures int
	retryAt  time.Time // after a failed opening: not before
	retired  bool
}

// openTimeout bounds a handshake with its first listing.
const openTimeout = 30 * time.Second

// The back-off after failed openings.
const (
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 15 * time.Second
)

func newPool(g *Gateway) *pool { return &pool{g: g, by: map[sessionKey]*pooled{}} }

// get gives a live session, held until release. The error is a *Failure, or that of a reference in the upstream's settings that does
// not resolve.
func (p *pool) get(ctx context.Context, s *assembly.Snapshot, u *policy.Upstream, account accounts.Handle, m Material, principal string) (*pooled, error) {
	settings, generation, err := p.g.settings(ctx, u)
	if err != nil {
		return nil, err
	}
	id := capabilities.UpstreamID(u.ID)
	key := sessionKey{id, s.Bindings[id], account, m.Generation + generation, principal}
	for {
		e, opener, err := p.entry(key)
		if err != nil {
			return nil, err
		}
		if opener {
			// Opening goes on when this caller leaves: others may wait for it, and the next call will want it.
			go p.open(e, Target{Upstream: u, Binding: key.binding, Account: account, Material: m, Settings: settings, Principal: principal})
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			e.release()
			return nil, &Failure{Class: FailedTimeout, Detail: "the session did not open in time"}
		}
		if e.err != nil {
			e.release()
			return nil, e.err
		}
		select {
		case <-e.Done():
			// It died since. Whoever sees it first makes room for a new one.
			p.forget(e)
			e.release()
			continue
		default:
			return e, nil
		}
	}
}

// entry gives the pooled session of a key, held; opener says that the caller must open it.
func (p *pool) entry(key sessionKey) (e *pooled, opener bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.g.cfg.Clock()
	e = p.by[key]
	failures := 0
	if e != nil && e.err != nil && e.opened() {
		if now.Before(e.retryAt) {
			e.users++
			return e, false, nil
		}
		failures = e.failures
		e = nil
	}
	if e == nil {
		if p.shut {
			return nil, false, &Failure{Class: FailedCancelled, Detail: "the gateway is stopping"}
		}
		// A call that began under an older snapshot must not dial a place that the policy has left since.
		if p.g.Snapshot().Bindings[key.upstream] != key.binding {
			return nil, false, &Failure{Class: FailedCancelled, Detail: "the policy changed meanwhile"}
		}
		if len(p.by) >= p.g.cfg.MaxSessions && p.by[key] == nil {
			return nil, false, &Failure{Class: FailedDial, Detail: "too many upstream sessions are open"}
		}
		e = &pooled{p: p, key: key, ready: make(chan struct{}), failures: failures}
		p.by[key] = e
		opener = true
		p.ending.Add(1)
	}
	e.users++
	e.lastUsed = now
	return e, opener, nil
}

func (e *pooled) opened() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// open does the handshake and the first listing. Only when what the upstream lists has been held against what was accepted does
// anybody get the session.
func (p *pool) open(e *pooled, t Target) {
	defer p.ending.Done()
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	go func() {
		select {
		case <-p.g.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	t.Changed = func() { p.relist(e) }
	err := error(&Failure{Class: FailedProtocol, Detail: "no adapter serves " + string(t.Upstream.Transport)})
	if adapter := p.g.cfg.Upstreams[t.Upstream.Transport]; adapter != nil {
		e.UpstreamSession, err = adapter.Open(ctx, t)
	}
	if err == nil {
		if err = p.list(ctx, e); err != nil {
			e.UpstreamSession.Close()
		}
	}
	p.mu.Lock()
	if err != nil {
		e.err = err
		backoff := min(firstBackoff<<min(e.failures, 10), lastBackoff)
		e.failures++
		e.retryAt = p.g.cfg.Clock().Add(backoff)
		p.g.cfg.Log.Warn("upstream session did not open", "upstream", string(e.key.upstream), "account", string(e.key.account), "error", err)
	} else {
		e.failures = 0
		e.listed = p.g.cfg.Clock()
	}
	dead, again := e.retired, e.again
	e.again = false
	close(e.ready)
	p.mu.Unlock()
	switch {
	case err == nil && dead:
		e.UpstreamSession.Close()
	case err == nil && again: // it changed while the first list was read
		p.relist(e)
	}
}

// list observes what the upstream lists on this session.
func (p *pool) list(ctx context.Context, e *pooled) error {
	tools, err := e.Tools(ctx)
	if err != nil {
		return err
	}
	o := assembly.Observation{Account: string(e.key.account), Tools: observed(p.g.Snapshot(), e.key.upstream, tools)}
	p.g.observe(e.key.upstream, e.key.binding, o)
	return nil
}

func observed(s *assembly.Snapshot, upstream capabilities.UpstreamID, listed []mcp.ListedTool) []assembly.ObservedTool {
	tools := make([]assembly.ObservedTool, 0, len(listed))
	for _, t := range listed {
		if t.Problem != "" {
			tools = append(tools, assembly.ObservedTool{Problem: t.Problem})
			continue
		}
		tools = append(tools, s.Observe(upstream, t.Raw))
	}
	return tools
}

// relist lists again after a list_changed or after time. A storm of notices gives one listing now and one after a rest.
func (p *pool) relist(e *pooled) {
	p.mu.Lock()
	if p.shut || e.retired || e.opened() && e.err != nil {
		p.mu.Unlock()
		return
	}
	if e.listing || !e.opened() {
		e.again = true
		p.mu.Unlock()
		return
	}
	e.listing = true
	p.ending.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.ending.Done()
		for {
			ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
			began := p.g.cfg.Clock()
			// A refresh that fails changes nothing: it neither empties nor widens what holds.
			if err := p.list(ctx, e); err != nil {
				p.g.cfg.Log.Warn("upstream could not be listed again", "upstream", string(e.key.upstream), "error", err)
			}
			cancel()
			p.rest(e, p.g.cfg.Clock().Sub(began))
			p.mu.Lock()
			e.listed = p.g.cfg.Clock()
			if !e.again || e.retired {
				e.listing = false
				p.mu.Unlock()
				return
			}
			e.again = false
			p.mu.Unlock()
		}
	}()
}

// rest keeps an upstream that announces changes without end, and lists something new each time, from keeping us busy: a session spends
// at most a tenth of its time being listed, assembling the house anew included. What it announces meanwhile is listed after it.
func (p *pool) rest(e *pooled, took time.Duration) {
	timer := time.NewTimer(min(9*took, longestRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.Done():
	case <-p.g.draining:
	}
}

// longestRest bounds how old a list may get that was slow to come.
const longestRest = 30 * time.Second

// release ends one use. A retired session closes with its last one.
func (e *pooled) release() {
	e.p.mu.Lock()
	e.users--
	e.lastUsed = e.p.g.cfg.Clock()
	last := e.users == 0 && e.retired && e.opened() && e.err == nil
	e.p.mu.Unlock()
	if last {
		e.p.end(e)
	}
}

// forget takes a dead session out, so that the next caller opens a new one.
func (p *pool) forget(e *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[e.key] == e {
		delete(p.by, e.key)
		e.retired = true
	}
}

// retire takes a session out and closes it when nobody uses it any more. The caller holds mu.
func (p *pool) retire(e *pooled) (idle bool) {
	delete(p.by, e.key)
	e.retired = true
	return e.users == 0 && e.opened() && e.err == nil
}

func (p *pool) end(e *pooled) {
	p.mu.Lock()
	p.ending.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.ending.Done()
		if err := e.UpstreamSession.Close(); err != nil {
			p.g.cfg.Log.Warn("upstream session did not close cleanly", "upstream", string(e.key.upstream), "error", err)
		}
	}()
}

// keepOnly retires the sessions of bindings that are no longer declared.
func (p *pool) keepOnly(s *assembly.Snapshot) {
	p.mu.Lock()
	var idle []*pooled
	for _, e := range p.by {
		if s.Bindings[e.key.upstream] != e.key.binding && p.retire(e) {
			idle = append(idle, e)
		}
	}
	p.mu.Unlock()
	for _, e := range idle {
		p.end(e)
	}
}

// sweep closes what nobody used for long, forgets old failures and lists again what was not listed for long.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	var idle, stale []*pooled
	for _, e := range p.by {
		switch {
		case !e.opened():
		case e.err != nil:
			if now.Sub(e.lastUsed) > p.g.cfg.IdleAfter {
				delete(p.by, e.key)
			}
		case e.users == 0 && now.Sub(e.lastUsed) > p.g.cfg.IdleAfter:
			if p.retire(e) {
				idle = append(idle, e)
			}
		case now.Sub(e.listed) > p.g.cfg.RefreshEvery:
			stale = append(stale, e)
		}
	}
	p.mu.Unlock()
	for _, e := range idle {
		p.end(e)
	}
	for _, e := range stale {
		p.relist(e)
	}
}

// close ends everything and waits for it.
func (p *pool) close() error {
	p.mu.Lock()
	p.shut = true
	var open []*pooled
	for _, e := range p.by {
		open = append(open, e)
		delete(p.by, e.key)
		e.retired = true
	}
	p.mu.Unlock()
	var errs []error
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, e := range open {
		wg.Go(func() {
			<-e.ready
			if e.err == nil {
				if err := e.UpstreamSession.Close(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	p.ending.Wait()
	return errors.Join(errs...)
}

// settings resolves the references that an upstream's env, headers and args name. The generation changes with any of them.
func (g *Gateway) settings(ctx context.Context, u *policy.Upstream) (map[string]Material, string, error) {
	var out map[string]Material
	generation := ""
	resolve := func(v policy.Value) error {
		if !v.IsRef {
			return nil
		}
		m, err := g.cfg.Credentials.Resolve(ctx, accounts.Reference(v.Ref))
		if err != nil {
			return err
		}
		if out == nil {
			out = map[string]Material{}
		}
		out[string(v.Ref)] = m
		generation += "," + m.Generation
		return nil
	}
	for _, v := range u.Args {
		if err := resolve(v); err != nil {
			return nil, "", err
		}
	}
	for _, list := range [][]policy.NamedValue{u.Env, u.Headers} {
		for _, v := range list {
			if err := resolve(v.Value); err != nil {
				return nil, "", err
			}
		}
	}
	return out, generation, nil
}

// Survey opens an upstream once, as the operator, and gives what it lists: for writing a lock. It uses the upstream's own account
// when it names one, and otherwise the account of the grants that reach it when that is only one. It observes nothing.
func (g *Gateway) Survey(ctx context.Context, id capabilities.UpstreamID) ([]assembly.ObservedTool, error) {
	s := g.Snapshot()
	u, ok := s.Upstream(id)
	if !ok {
		return nil, errors.New("no such upstream: " + string(id))
	}
	m := Material{}
	account := listingAccount(s, u)
	if account != accounts.None {
		ref, state := s.Accounts.Bind(account, u.ID)
		if state != accounts.Bound {
			return nil, errors.New("account " + string(account) + " is " + state.String())
		}
		var err error
		if m, err = g.cfg.Credentials.Resolve(ctx, ref); err != nil {
			return nil, err
		}
	}
	settings, _, err := g.settings(ctx, u)
	if err != nil {
		return nil, err
	}
	adapter := g.cfg.Upstreams[u.Transport]
	if adapter == nil {
		return nil, errors.New("no adapter serves " + string(u.Transport))
	}
	session, err := adapter.Open(ctx, Target{Upstream: u, Binding: s.Bindings[id], Account: account, Material: m, Settings: settings,
		Principal: "operator", Changed: func() {}})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	listed, err := session.Tools(ctx)
	if err != nil {
		return nil, err
	}
	return observed(s, id, listed), nil
}

// listingAccount is the account to list an upstream with. Among several that grants name none is better than another, so that the
// upstream then has to say.
func listingAccount(s *assembly.Snapshot, u *policy.Upstream) accounts.Handle {
	if u.Account != "" || u.AccountNone {
		return cmp.Or(accounts.Handle(u.Account), accounts.None)
	}
	realised := map[string]bool{}
	for _, t := range u.Tools {
		realised[t.Capability] = true
	}
	found := accounts.None
	for _, g := range s.Declared.Grants {
		for _, use := range g.Uses {
			h := accounts.Handle(use.Account)
			switch {
			case !realised[use.Capability] || h == accounts.None || h == found:
			case found == accounts.None:
				found = h
			default:
				return accounts.None
			}
		}
	}
	return found
}
