package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"aduana/access"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
)

// Config is everything that a Gateway needs. Every port must be assigned; adapters/unassigned refuses where nothing else serves.
type Config struct {
	Clock         Clock
	Authenticator Authenticator
	Usage         Usage
	Credentials   Credentials
	Audit         Audit
	Schemas       Schemas
	Approvals     Approvals
	Upstreams     map[policy.Transport]Upstream
	Random        func([]byte) // fills with unpredictable bytes
	Log           *slog.Logger

	Product      mcp.Implementation
	ArgumentKey  []byte // of the argument digests in records
	PageSize     int    // tools in one page of a list; 0 = 10,000
	MaxAnswer    int    // bytes of one answer of an upstream; 0 = 32 MiB
	CallTimeout  time.Duration
	ListTTL      time.Duration // what a modern client may keep a list
	RefreshEvery time.Duration // how often an open session is listed again; 0 = 5 minutes
	IdleAfter    time.Duration // when an unused upstream session is closed; 0 = 15 minutes
	MaxSessions  int           // upstream sessions at once; 0 = 1,000
}

// Gateway is the flow. It is safe for concurrent use.
type Gateway struct {
	cfg       Config
	greeting  mcp.Greeting
	current   atomic.Pointer[standing]
	keeper    keeper
	pool      *pool
	slots     slots
	running   running
	strangers strangers
	seal      *seal
	sessions  sessions
	watchers  watchers
	calls     atomic.Uint64
	prefix    string
	draining  chan struct{}
	drain     sync.Once
	answers   sync.Pool
	flows     sync.Pool
	digests   sync.Pool
}

// standing is one snapshot with what is derived from it on demand.
type standing struct {
	*assembly.Snapshot
	views views
}

// New builds a gateway that stands on a first snapshot.
func New(cfg Config, in assembly.Input) *Gateway {
	if cfg.PageSize <= 0 {
		// Few clients have so many, and some stop after one page: what they do not fetch does not exist for them.
		cfg.PageSize = 10_000
	}
	if cfg.MaxAnswer <= 0 {
		cfg.MaxAnswer = 32 << 20
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = time.Minute
	}
	if cfg.RefreshEvery <= 0 {
		cfg.RefreshEvery = 5 * time.Minute
	}
	if cfg.IdleAfter <= 0 {
		cfg.IdleAfter = 15 * time.Minute
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = 1000
	}
	g := &Gateway{cfg: cfg, draining: make(chan struct{})}
	g.greeting = mcp.Greeting{Server: cfg.Product}
	var id [8]byte
	cfg.Random(id[:])
	g.prefix = hexText(id[:]) + "-"
	g.seal = newSeal(cfg.Random)
	g.answers.New = func() any { return new(answered) }
	g.flows.New = func() any { return new(flow) }
	g.digests.New = func() any { return newDigester(cfg.ArgumentKey) }
	g.pool = newPool(g)
	g.keeper.in = in
	g.current.Store(&standing{Snapshot: assembly.Assemble(in)})
	return g
}

// Snapshot gives what holds now.
func (g *Gateway) Snapshot() *assembly.Snapshot { return g.current.Load().Snapshot }

// Authenticate says who presented a credential, or why nobody did. A failure is recorded.
func (g *Gateway) Authenticate(ctx context.Context, c Credential) (principals.Principal, principals.Problem) {
	presented, problem := g.cfg.Authenticator.Authenticate(ctx, c)
	if problem == principals.NoProblem {
		var p principals.Principal
		p, _, problem = g.Snapshot().Issuers.Admit(presented)
		if problem == principals.NoProblem {
			return p, problem
		}
	}
	if more, record := g.strangers.budget(g.cfg.Clock()); record {
		r := &Record{Surface: c.Surface, Problem: problem, Outcome: Unauthenticated}
		if more > 0 {
			r.Detail = strconv.Itoa(more) + " more since the last of these were counted and not recorded"
		}
		g.note(ctx, r)
	}
	return principals.Principal{}, problem
}

// maxStrangers is how many failures to authenticate are recorded in a second. Whoever has no credential must not be able to fill the
// disk that every call needs for its record.
const maxStrangers = 100

// strangers keeps that budget, and counts what exceeds it.
type strangers struct {
	mu      sync.Mutex
	second  int64
	written int
	dropped int
}

// budget says whether to record one more, and how many were dropped before it.
func (s *strangers) budget(now time.Time) (dropped int, record bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := now.Unix(); t != s.second {
		s.second, s.written = t, 0
	}
	if s.written >= maxStrangers {
		s.dropped++
		return 0, false
	}
	s.written++
	dropped, s.dropped = s.dropped, 0
	return dropped, true
}

// Request is one client message with what its surface knows about it.
type Request struct {
	Message   *jsonrpc.Message // scanned; valid until Handle returns
	Era       mcp.Era          // judged by mcp.EraOfMessage, and checked by mcp.CheckModern when modern
	Surface   Surface
	Scope     capabilities.UpstreamID // of a scoped endpoint; empty = the whole house
	Principal principals.Principal
	Session   *ClientSession // of a legacy client, or of a stdio connection; nil for modern HTTP
}

// Reply takes what goes back. Its methods are called by one goroutine at a time.
type Reply interface {
	// Event sends a message on the request's own stream, ahead of the answer. The bytes are the caller's again afterwards.
	Event(message []byte)
	// Answer ends a request: the parts, joined, are one message, which goes out before Answer returns. Status is HTTP's.
	Answer(status int, parts ...[]byte)
	// Begin tells the surface of the session that an initialize began, before Answer.
	Begin(s *ClientSession)
}

// Handle does what one client message asks. Requests are answered exactly once, notifications never. It returns when the message
// is dealt with; for subscriptions/listen that is when ctx ends or the gateway drains.
func (g *Gateway) Handle(ctx context.Context, rq *Request, reply Reply) {
	m := rq.Message
	switch m.Form() {
	case jsonrpc.Notification:
		g.notified(rq)
		return
	case jsonrpc.Response:
		return // nothing that this gateway asks of clients is outstanding: dropped
	case jsonrpc.Request:
	default:
		g.fail(rq, reply, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: "not a request", Status: mcp.StatusBadRequest})
		return
	}
	if meta, ok := m.Params.Get("_meta"); ok && meta.Kind != jsonrpc.Object {
		g.fail(rq, reply, &mcp.Error{Code: mcp.CodeInvalidParams, Message: "params._meta must be an object", Status: mcp.StatusBadRequest})
		return
	}
	switch method := m.Method(); {
	case method == mcp.MethodToolsCall:
		g.call(ctx, rq, reply)
	case method == mcp.MethodToolsList:
		g.list(rq, reply)
	case method == mcp.MethodPing && rq.Era == mcp.Legacy:
		g.result(rq, reply, []byte(`{}`))
	case method == mcp.MethodInitialize && rq.Era == mcp.Legacy:
		g.initialize(rq, reply)
	case method == mcp.MethodDiscover && rq.Era == mcp.Modern:
		g.result(rq, reply, g.greeting.AppendDiscoverResult(nil, g.cfg.ListTTL.Milliseconds()))
	case method == mcp.MethodListen && rq.Era == mcp.Modern:
		g.listen(ctx, rq, reply)
	default:
		g.fail(rq, reply, mcp.MethodNotFound(rq.Era, method))
	}
}

func (g *Gateway) notified(rq *Request) {
	if rq.Message.Method() != mcp.MethodCancelled || rq.Session == nil {
		return
	}
	if id, ok := rq.Message.Params.Get("requestId"); ok {
		rq.Session.cancel(rq.Message.Bytes(id.Value))
	}
}

func (g *Gateway) initialize(rq *Request, reply Reply) {
	requested := ""
	if v, ok := rq.Message.Params.Get("protocolVersion"); ok && v.Kind == jsonrpc.String {
		requested, _ = rq.Message.String(v)
	}
	if requested == "" {
		g.fail(rq, reply, mcp.InvalidParams("initialize needs params.protocolVersion, a string"))
		return
	}
	version := mcp.NegotiateLegacy(requested)
	if rq.Session == nil {
		reply.Begin(g.sessions.begin(g, rq.Principal))
	}
	g.result(rq, reply, g.greeting.AppendInitializeResult(nil, version))
}

func (g *Gateway) result(rq *Request, reply Reply, result []byte) {
	reply.Answer(mcp.StatusOK, responseHead(nil, rq.Message.ID()), result, closing)
}

var closing = []byte{'}'}

func responseHead(dst, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return append(dst, `,"result":`...)
}

func (g *Gateway) fail(rq *Request, reply Reply, e *mcp.Error) {
	reply.Answer(e.Status, mcp.AppendError(nil, rq.Message.ID(), e))
}

// Refused records a message that never became a request: bytes that are no JSON-RPC message, a header that contradicts the body.
// It gives the answer's bytes.
func (g *Gateway) Refused(ctx context.Context, surface Surface, p principals.Principal, id []byte, e *mcp.Error) []byte {
	g.note(ctx, &Record{Surface: surface, Principal: p, Outcome: Malformed, Detail: e.Message})
	return mcp.AppendError(nil, id, e)
}

// note records something complete in itself. A sink that fails here has refused nothing that was still to happen, so the failure
// is logged; the next intent meets the same sink and is refused there.
func (g *Gateway) note(ctx context.Context, r *Record) {
	r.Event = EventNote
	if r.At == 0 {
		r.At = g.cfg.Clock().UnixMilli()
	}
	if r.Call == "" {
		r.Call = g.callID()
	}
	if r.Snapshot == "" {
		r.Snapshot = g.current.Load().Hash
	}
	if err := g.cfg.Audit.Note(ctx, r); err != nil {
		g.cfg.Log.Error("audit refused a note", "outcome", string(r.Outcome), "error", err)
	}
}

// Note records an event of the process itself: start, stop, reload.
func (g *Gateway) Note(ctx context.Context, outcome Outcome, detail string) {
	g.note(ctx, &Record{Outcome: outcome, Detail: detail})
}

// callID is unique over processes by its random prefix, and within one by counting.
func (g *Gateway) callID() string {
	var buf [40]byte
	return string(strconv.AppendUint(append(buf[:0], g.prefix...), g.calls.Add(1), 10))
}

// Drain ends what would last: listening streams get their final answer, new calls are refused by the surfaces. It may be called
// more than once.
func (g *Gateway) Drain() { g.drain.Do(func() { close(g.draining) }) }

// Draining is closed when Drain was called.
func (g *Gateway) Draining() <-chan struct{} { return g.draining }

// Close ends every upstream session. Nothing may call Handle afterwards.
func (g *Gateway) Close() error {
	g.Drain()
	return g.pool.close()
}

// Run does what time brings: idle sessions close, open ones are listed again. It returns when ctx ends.
func (g *Gateway) Run(ctx context.Context) {
	tick := time.NewTicker(g.cfg.RefreshEvery / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.pool.sweep(g.cfg.Clock())
			g.sessions.sweep(g.cfg.Clock())
		}
	}
}

// placesShown says whether a refusal may tell this caller where the policy decided.
func placesShown(p principals.Principal, s Surface) bool {
	switch p.Disclosure() {
	case principals.DisclosePlaces:
		return true
	case principals.DiscloseCodes:
		return false
	}
	return s == OverStdio
}

// invocation is the question without usage.
func invocation(p principals.Principal, capability string, at int64) access.Invocation {
	return access.Invocation{Caller: assembly.CallerOf(p), Capability: capability, At: at}
}
