package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aduana/accounts"
	"aduana/adapters/lockfile"
	"aduana/adapters/mcphttp"
	"aduana/adapters/mcpstdio"
	"aduana/adapters/policyfile"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/policy"
	"aduana/review"
)

// serving is the flags of `serve`.
type serving struct {
	policy   string
	lock     string
	discover bool
	listen   string
	stdio    bool
	audit    []string
	usage    string
	maxBody  int64
	keyEnv   string
	hosts    []string
	origins  []string
}

const defaultListen = "127.0.0.1:8420"

// servedLabel is what clients see of the policy's origin, which may be a path or a URL that is none of their business.
const servedLabel = "policy"

func newServe(p *printer) *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "serve POLICY",
		Short: "Serve the policy's tools to MCP clients, over HTTP or stdio",
		Long: "serve stands between MCP clients and the upstreams that POLICY declares. It lists from the lock, with every upstream\n" +
			"down if need be, and watches policy and lock: a sound change takes effect at once, an unsound one changes nothing.",
		Args: operands("POLICY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.policy = args[0]
			return s.run(cmd.Context(), p, cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.lock, "lock", "", "`FILE` of accepted tools: a lock, or a declared catalogue (default aduana.lock.yaml beside POLICY, if there)")
	f.BoolVar(&s.discover, "discover", false, "list the upstreams at start, accept what is new, and write aduana.lock.yaml beside POLICY")
	f.StringVar(&s.listen, "listen", defaultListen, "`HOST:PORT` to listen on")
	f.BoolVar(&s.stdio, "stdio", false, "serve one client on stdin and stdout instead")
	f.StringArrayVar(&s.audit, "audit", nil, "where to record, every one required: file:PATH or stderr (default stderr)")
	f.StringVar(&s.usage, "usage", "memory", "where calls are counted: memory")
	f.Int64Var(&s.maxBody, "max-body", 1<<20, "the most `BYTES` of one request")
	f.StringVar(&s.keyEnv, "key-env", "ADUANA_KEY", "with --stdio, the `VARIABLE` that holds the client's key")
	f.StringArrayVar(&s.hosts, "allow-host", nil, "another `NAME` by which clients may reach the listener")
	f.StringArrayVar(&s.origins, "allow-origin", nil, "a web `ORIGIN` whose pages may send requests")
	cmd.MarkFlagsMutuallyExclusive("lock", "discover")
	cmd.MarkFlagsMutuallyExclusive("listen", "stdio")
	return cmd
}

// check refuses what can be refused without opening anything.
func (s *serving) check() error {
	if s.usage != "memory" {
		return usage("--usage %q: only memory is there", s.usage)
	}
	if s.maxBody <= 0 {
		return usage("--max-body must be a positive number of bytes")
	}
	if _, port, err := net.SplitHostPort(s.listen); err != nil || port == "" {
		return usage("--listen %q is not HOST:PORT", s.listen)
	}
	if len(s.audit) == 0 {
		s.audit = []string{"stderr"}
	}
	return nil
}

func (s *serving) run(ctx context.Context, p *printer, stdin io.Reader) error {
	if err := s.check(); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	// Armed before anything is opened. The second signal meets the default disposition.
	ctx, disarm := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer disarm()
	context.AfterFunc(ctx, func() {
		disarm()
		p.note("stopping: running calls may take up to ten seconds; the signal again ends them now")
	})

	log := slog.New(slog.NewTextHandler(p.err, nil))
	d, err := s.load(p)
	if err != nil {
		return err
	}
	for _, u := range unusable(d.input.Policy) {
		p.note("%s", u)
	}
	if !anyUsable(d.input.Policy) {
		return usage("no issuer of %s can authenticate anybody", s.policy)
	}
	h, err := compose(d.input, s.audit, log, p.err)
	if err != nil {
		return err
	}
	d.snapshot, d.result = nil, policy.Result{} // the gateway assembled its own
	debug.FreeOSMemory()                        // reading a large policy and lock leaves many times their size behind
	err = s.serve(ctx, p, h, d, stdin)
	if closing := h.close(); err == nil && closing != nil {
		err = cannot(fmt.Errorf("stop: %w", closing), "")
	}
	return err
}

func anyUsable(p *policy.Policy) bool {
	for _, i := range p.Issuers {
		if usable(i) {
			return true
		}
	}
	return false
}

// load reads policy and lock. With --discover, tools that are in no lock yet are no error: they are about to be listed.
func (s *serving) load(p *printer) (*declared, error) {
	beside := filepath.Join(filepath.Dir(s.policy), "aduana.lock.yaml")
	_, missing := os.Stat(beside)
	switch {
	case s.lock != "":
	case s.discover:
		d, err := p.soundAs(servedLabel, s.policy, "")
		if err != nil {
			return nil, err
		}
		d.input.NoLock = false
		if missing == nil {
			lock, _, err := lockfile.Read(beside)
			if err != nil {
				return nil, cannot(fmt.Errorf("lock: %w", err), "")
			}
			d.input.Lock = lock
		}
		s.lock = beside
		return d, nil
	case missing == nil:
		s.lock = beside
	default:
		return nil, usage("there is no lock: give --lock FILE, or --discover to list the upstreams and write %s", beside)
	}
	return p.soundAs(servedLabel, s.policy, s.lock)
}

func (s *serving) serve(ctx context.Context, p *printer, h *house, d *declared, stdin io.Reader) error {
	if s.discover {
		if err := s.accept(ctx, p, h, d); err != nil {
			return err
		}
	}
	s.tell(ctx, p, h)
	var listener net.Listener
	if !s.stdio {
		var err error
		if listener, err = net.Listen("tcp", s.listen); err != nil {
			return cannot(fmt.Errorf("listen: %w", err), "another process may have the port; choose one with --listen")
		}
		defer listener.Close()
	}
	if err := h.keys.check(ctx); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			p.note("%s", line)
		}
	}
	h.gateway.Note(ctx, gateway.Started, "policy "+h.gateway.Snapshot().Version)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go h.gateway.Run(running)
	go s.watch(running, p, h)

	if s.stdio {
		p.note("%s serves stdio, policy %s", productVersion, h.gateway.Snapshot().Version)
		if os.Getenv(s.keyEnv) == "" {
			p.note("%s is not set, so that every request will be refused; it must hold the client's key", s.keyEnv)
		}
		// A client that is gone must end this process by the end of its input, after what runs has ended, and not by a signal.
		signal.Ignore(syscall.SIGPIPE)
		connected, hangUp := context.WithCancel(context.Background())
		defer hangUp()
		context.AfterFunc(ctx, func() { h.gateway.Drain(); hangUp() })
		key := func() string { return os.Getenv(s.keyEnv) }
		if err := mcpstdio.Serve(connected, h.gateway, stdin, p.out, mcpstdio.ServerOptions{Key: key, Log: h.log}); err != nil {
			return cannot(err, "")
		}
		return nil
	}
	server := mcphttp.NewServer(h.gateway, mcphttp.Options{Hosts: s.hosts, Origins: s.origins, MaxBody: s.maxBody, Log: h.log,
		Health: func() mcphttp.Health {
			return mcphttp.Health{Version: productVersion, Policy: h.gateway.Snapshot().Version}
		}})
	if host, _, err := net.SplitHostPort(listener.Addr().String()); err == nil && !net.ParseIP(host).IsLoopback() {
		p.note("this listener is reachable from elsewhere, and keys travel over it in the clear: put TLS before it, and name it with --allow-host")
	}
	p.note("%s, policy %s, health at http://%s/health", productVersion, h.gateway.Snapshot().Version, listener.Addr())
	p.note("listening on http://%s/mcp", listener.Addr())
	if err := server.Run(ctx, listener); err != nil {
		return cannot(err, "")
	}
	return nil
}

// tell says at start what would surprise somebody later: what is withheld and how that ends, and what can never succeed here.
func (s *serving) tell(ctx context.Context, p *printer, h *house) {
	snapshot := h.gateway.Snapshot()
	again := false
	for _, f := range snapshot.Findings {
		p.note("%s", f)
		switch f.Reason {
		case capabilities.NotAccepted, capabilities.DefinitionChanged, capabilities.BindingChanged:
			again = true
		}
	}
	if again {
		p.hint("to accept an upstream as it is now, delete its lines in %s and start with --discover", s.lock)
	}
	for _, a := range snapshot.Policy.Accounts {
		if a.Disabled {
			continue
		}
		if _, err := h.credentials.Resolve(ctx, accounts.Reference(a.SecretRef)); err != nil {
			p.note("account %s: %v; calls that need it will fail", a.ID, err)
		}
	}
	destructive := map[string]bool{}
	for _, c := range snapshot.Policy.Capabilities {
		destructive[c.ID] = c.Risk == policy.RiskDestructive
	}
	for _, g := range snapshot.Policy.Grants {
		asks := g.Ask == policy.AskAlways
		for _, c := range g.Capabilities {
			asks = asks || g.Ask == policy.AskDestructive && destructive[c]
		}
		if asks {
			p.note("%s: calls need a person's yes (`ask: %s`), and this version has no way to ask: they are refused", snapshot.Place(g.Pointer), g.Ask)
		}
	}
}

// accept lists every upstream that the lock does not know and writes what it finds into the lock: trust on first use, by the
// operator who asked for it. One upstream that fails aborts everything, because a shorter lock would take tools away in silence.
func (s *serving) accept(ctx context.Context, p *printer, h *house, d *declared) error {
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: d.input.Lock.Digest}
	for id, u := range d.input.Lock.Upstreams {
		lock.Upstreams[id] = u
	}
	now := time.Now().UTC().Format(time.RFC3339)
	found := false
	for i := range d.input.Policy.Upstreams {
		u := &d.input.Policy.Upstreams[i]
		id := capabilities.UpstreamID(u.ID)
		if _, known := lock.Upstreams[id]; known {
			continue
		}
		surveying, cancel := context.WithTimeout(ctx, time.Minute)
		tools, err := h.gateway.Survey(surveying, id)
		cancel()
		if err != nil {
			return cannot(fmt.Errorf("upstream %s could not be listed, so nothing was accepted: %w", id, err), "")
		}
		times := map[string]int{}
		for _, t := range tools {
			times[t.Name]++
		}
		locked := assembly.LockedUpstream{Binding: h.gateway.Snapshot().Bindings[id]}
		for _, t := range tools {
			if times[t.Name] < 0 {
				continue // said already
			}
			if times[t.Name] > 1 {
				// Nobody can say which of them a call would reach. The Ledger says the same of a list that it sees later.
				ident := capabilities.Identity{Kind: capabilities.Tool, Upstream: id, Name: t.Name}
				p.note("%s", capabilities.Finding{Identity: ident, Reason: capabilities.DuplicateName, Peers: []capabilities.Identity{ident},
					Detail: fmt.Sprintf("listed %d times, none of them accepted", times[t.Name])})
				times[t.Name] = -1
				continue
			}
			pin, err := assembly.Accept(id, t, capabilities.NoVerdict, "discover", now)
			if err != nil {
				p.note("%v", err)
				continue
			}
			locked.Tools = append(locked.Tools, pin)
		}
		lock.Upstreams[id] = locked
		found = true
		p.note("upstream %s: %d tools accepted on first use", id, len(locked.Tools))
	}
	if found {
		if _, err := lockfile.Write(s.lock, lock); err != nil {
			return cannot(fmt.Errorf("lock: %w", err), "")
		}
		p.note("wrote %s, and the definitions that it names beside it; keep both", s.lock)
	}
	// From here on it is like any other start: the lock on disk is what counts.
	fresh, err := p.soundAs(servedLabel, s.policy, s.lock)
	if err != nil {
		return err
	}
	h.declare(fresh.input.Policy, fresh.input.Document, fresh.input.Version, fresh.input.Lock)
	return nil
}

// watch reloads when the policy or the lock changes. What is unsound changes nothing and is said.
func (s *serving) watch(ctx context.Context, p *printer, h *house) {
	reloads := make(chan struct{}, 1)
	changed := func() {
		select {
		case reloads <- struct{}{}:
		default:
		}
	}
	go policyfile.New(s.policy, 0).Watch(ctx, changed)
	go policyfile.New(s.lock, 0).Watch(ctx, changed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-reloads:
			s.reload(ctx, p, h)
		}
	}
}

func (s *serving) reload(ctx context.Context, p *printer, h *house) {
	before := h.gateway.Snapshot()
	d, err := loadAs(servedLabel, s.policy, s.lock)
	if err == nil && d.snapshot == nil {
		diagnostics(p.note, s.policy, d.result)
		err = errors.New(s.policy + " has errors")
	}
	if err == nil && !anyUsable(d.input.Policy) {
		err = errors.New("no issuer of " + s.policy + " can authenticate anybody")
	}
	if err != nil {
		p.note("not reloaded, policy %s stays in force: %v", before.Version, err)
		h.gateway.Note(ctx, gateway.ReloadRefused, "policy "+before.Version+" stays in force")
		return
	}
	after := h.declare(d.input.Policy, d.input.Document, d.input.Version, d.input.Lock)
	changes := review.Diff(before, after, nil)
	debug.FreeOSMemory()
	counts := map[review.Kind]int{}
	for _, c := range changes {
		counts[c.Kind]++
	}
	var words []string
	for _, k := range []review.Kind{review.NewAccess, review.LostAccess, review.Account, review.CeilingSet, review.Ask, review.Trust} {
		if counts[k] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[k], k))
		}
	}
	summary := "no decision changes"
	if words != nil {
		summary = strings.Join(words, ", ")
	}
	p.note("reloaded: policy %s, before %s: %s", after.Version, before.Version, summary)
	for _, c := range changes {
		h.log.Info("reload changes", "kind", string(c.Kind), "what", whatChanged(c))
	}
	h.gateway.Note(ctx, gateway.Reloaded, "policy "+after.Version+", before "+before.Version+": "+summary)
}

// whatChanged is a change in a line.
func whatChanged(c review.Change) string {
	if c.Kind == review.Trust {
		return c.Subject + " " + c.Aspect
	}
	return c.Witness.String() + " → " + strings.Join(c.Identities, " ")
}
