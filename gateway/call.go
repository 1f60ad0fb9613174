package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"aduana/access"
	"aduana/accounts"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/consent"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// flow is one tools/call on its way through the steps. The order of the steps is binding: facts before the decision, the decision
// before anything that acts, the record of the intent before the call.
type flow struct {
	g         *Gateway
	rq        *Request
	reply     Reply
	started   time.Time
	asked     string
	arguments []byte // raw; nil when the client sent none
	record    Record

	standing *standing
	tool     *assembly.Tool
	permit   access.Permit
	ceilings []access.Ceiling
	demands  []Demand
	yes      *Question // what a person said yes to, for this call
	store    struct {  // so that the usual call allocates none of these
		ceilings [4]access.Ceiling
		demands  [4]Demand
		held     [4]Held
		parts    [16][]byte
	}
}

// maxLost bounds how often a call decides again after another one took the last room. Each loss means that the ceiling was full, so
// the decision that follows nearly always denies.
const maxLost = 16

// call serves one tools/call.
func (g *Gateway) call(ctx context.Context, rq *Request, reply Reply) {
	// A flow is large, and nothing keeps it: not the ports, whose contracts say so, and not a goroutine.
	f := g.flows.Get().(*flow)
	defer func() { *f = flow{}; g.flows.Put(f) }()
	f.g, f.rq, f.reply, f.started = g, rq, reply, g.cfg.Clock()
	if !f.read() {
		return
	}
	if rq.Session != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		if !rq.Session.enter(rq.Message.ID(), cancel) {
			g.fail(rq, reply, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: "this id is of a request that still runs", Status: mcp.StatusBadRequest})
			return
		}
		leaving := &leaving{Reply: reply, rq: rq}
		defer leaving.leave()
		f.reply = leaving
	}

	// Steps 2 to 7, again after every wait, always on the current snapshot.
	var slot *slot
	defer func() { slot.release() }()
	var reservation Reservation
	running := false
	for lost := 0; ; {
		if !f.decide(ctx) || !f.check(ctx) {
			return
		}
		if !running {
			if running = g.running.enter(rq.Principal.ID()); !running {
				f.refuse(ctx, Busy, "too many of your calls run already")
				return
			}
			defer g.running.leave(rq.Principal.ID())
		}
		if waits, ok := f.consent(ctx); !ok {
			return
		} else if waits {
			continue
		}
		if limit := f.tool.Upstream.Concurrency; limit > 0 && slot == nil {
			var waited bool
			var err error
			if slot, waited, err = g.slots.take(ctx, f.tool.Identity.Upstream, limit); err != nil {
				f.refuse(ctx, outcomeOfWait(ctx), "no free slot at the upstream")
				return
			} else if waited {
				continue
			}
		}
		var full bool
		var err error
		reservation, full, err = f.reserve(ctx)
		if err == nil && !full {
			break
		}
		if lost++; lost == maxLost || err != nil {
			f.deny(ctx, access.Reason{Code: access.UsageUnknown, Pointer: f.record.Pointer, Subject: string(f.permit.Account)})
			return
		}
	}

	// Step 9. What follows is recorded before it happens.
	f.record.Event = EventIntent
	if err := g.cfg.Audit.Intend(ctx, &f.record); err != nil {
		g.cfg.Log.Error("no record, no call", "call", f.record.Call, "error", err)
		f.giveBack(ctx, reservation)
		f.answer(AuditUnavailable, "the audit cannot record this call, so it was not made")
		return
	}
	f.act(ctx, reservation)
}

// leaving frees the request's id before its answer goes out: the client may use it again as soon as it sees the answer, while the
// outcome is still being recorded.
type leaving struct {
	Reply
	rq   *Request
	left bool
}

func (l *leaving) Answer(status int, parts ...[]byte) {
	l.leave()
	l.Reply.Answer(status, parts...)
}

// leave counts once: the id may belong to the next request already.
func (l *leaving) leave() {
	if !l.left {
		l.left = true
		l.rq.Session.leave(l.rq.Message.ID())
	}
}

// read takes name and arguments out of the message. Nothing about policy is known here yet, so these refusals tell nothing.
func (f *flow) read() bool {
	m := f.rq.Message
	name, ok := m.Params.Get("name")
	if !ok || name.Kind != jsonrpc.String {
		f.g.fail(f.rq, f.reply, mcp.InvalidParams("params.name must be a string: the name of a tool in tools/list"))
		return false
	}
	f.asked, _ = m.String(name)
	if a, ok := m.Params.Get("arguments"); ok {
		if a.Kind != jsonrpc.Object {
			f.g.fail(f.rq, f.reply, mcp.InvalidParams("params.arguments must be an object, not "+a.Kind.String()))
			return false
		}
		f.arguments = m.Bytes(a.Value)
	}
	for _, member := range [...]string{"requestState", "inputResponses"} {
		if _, ok := m.Params.Get(member); ok {
			f.g.fail(f.rq, f.reply, mcp.InvalidParams("params."+member+" answers a question that was never asked"))
			return false
		}
	}
	f.record = Record{Call: f.g.callID(), Surface: f.rq.Surface, Era: f.rq.Era, Principal: f.rq.Principal, Asked: clip(f.asked),
		Scope: string(f.rq.Scope), ArgBytes: len(f.arguments)}
	d := f.g.digests.Get().(*digester)
	f.record.Arguments = d.digest(f.arguments)
	f.g.digests.Put(d)
	return true
}

// decide is steps 1 to 4: the instant, the name, the usage, the decision, and whether the tool is still the one that was accepted.
func (f *flow) decide(ctx context.Context) bool {
	f.standing = f.g.current.Load()
	r := &f.record
	r.At, r.Snapshot = f.g.cfg.Clock().UnixMilli(), f.standing.Hash
	var ok bool
	if f.tool, ok = f.standing.Lookup(f.rq.Scope, f.asked); !ok {
		f.unknown(ctx, UnknownTool)
		return false
	}
	r.Identity, r.Capability, r.Risk, r.Definition = f.tool.Canonical, f.tool.Capability, f.tool.Risk, string(f.tool.Digest)

	inv := invocation(f.rq.Principal, f.tool.Capability, r.At)
	f.ceilings = f.standing.Access.Ceilings(f.store.ceilings[:0], inv)
	f.demands = f.store.demands[:0]
	r.Ceilings = f.store.held[:0]
	inv.Usage = f.usage(ctx, inv)
	d := access.Evaluate(f.standing.Access, inv)
	reason := d.Reason()
	r.Code, r.Pointer, r.Subject, r.FreesAt = reason.Code, reason.Pointer, reason.Subject, reason.FreesAt
	if f.permit, ok = d.Permit(); !ok {
		f.deny(ctx, reason)
		return false
	}
	r.Account = accounts.Handle(f.permit.Account)
	if f.tool.Withheld != capabilities.NotWithheld {
		r.Finding = string(f.tool.Withheld)
		f.unknown(ctx, WithheldTool)
		return false
	}
	return true
}

// usage reads what the counters hold. Whatever goes wrong is unknown, never zero.
func (f *flow) usage(ctx context.Context, inv access.Invocation) access.Usage {
	if len(f.ceilings) == 0 {
		return access.Usage{State: access.Counted}
	}
	for _, c := range f.ceilings {
		f.demands = append(f.demands, Demand{Slot: c.Slot, Key: c.Key(inv), Calls: c.Calls, Window: c.Window})
	}
	counts, err := f.g.cfg.Usage.Facts(ctx, inv.At, f.demands)
	if err != nil {
		f.g.cfg.Log.Error("usage unknown", "call", f.record.Call, "error", err)
		return access.Usage{State: access.UsageStateUnknown}
	}
	for i, c := range f.ceilings {
		h := Held{Key: f.demands[i].Key, Calls: c.Calls, Window: c.Text, Pointer: c.Pointer}
		if i < len(counts) {
			h.Used = counts[i].Used
		}
		f.record.Ceilings = append(f.record.Ceilings, h)
	}
	return access.Usage{State: access.Counted, Counts: counts}
}

// check is step 5: the arguments against the accepted schema. What does not fit refuses a call that is destructive, asks, or goes
// to an upstream declared strict; otherwise the record says so and the upstream judges.
func (f *flow) check(ctx context.Context) bool {
	f.record.Finding = ""
	f.record.Ask = consent.Resolve(assembly.RuleOf(f.permit.Ask), f.tool.Risk)
	arguments := f.arguments
	if arguments == nil {
		arguments = emptyObject
	}
	err := f.g.cfg.Schemas.Validate(ctx, f.tool.Digest, f.tool.InputSchema, arguments)
	if err == nil {
		return true
	}
	var violation *Violation
	fits := errors.As(err, &violation)
	strict := f.tool.Risk == consent.DestructiveRisk || f.record.Ask == consent.Ask || f.tool.Upstream.Arguments == "strict"
	if fits && !strict {
		f.record.Finding = violation.Error()
		return true
	}
	f.refuse(ctx, InvalidArguments, err.Error())
	return false
}

var emptyObject = []byte(`{}`)

// clip bounds what a client can write into a record or an answer. A name that was ever served is shorter.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// consent is step 6's question. waits says that a person was asked and said yes, so that everything before must be judged anew; the
// yes then stands for exactly what was asked.
func (f *flow) consent(ctx context.Context) (waits, ok bool) {
	switch f.record.Ask {
	case consent.Enabled:
		return false, true
	case consent.Ask:
	default:
		f.refuse(ctx, AskRefused, "the tool is disabled")
		return false, false
	}
	q := Question{Principal: f.rq.Principal, Identity: f.tool.Identity, Account: accounts.Handle(f.permit.Account),
		Arguments: f.record.Arguments, Definition: f.tool.Digest}
	if y := f.yes; y != nil && y.Identity == q.Identity && y.Account == q.Account && y.Definition == q.Definition {
		return false, true
	}
	approved, err := f.g.cfg.Approvals.Ask(ctx, q)
	switch {
	case errors.Is(err, ErrAskExpired):
		f.refuse(ctx, AskExpired, "nobody answered in time")
	case err != nil:
		f.refuse(ctx, AskUnavailable, "this call needs a person's yes, and there is no way to ask here; the grant's `ask` decides that")
	case !approved:
		f.refuse(ctx, AskRefused, "a person said no")
	default:
		f.yes = &q
		return true, true
	}
	return false, false
}

// reserve is step 7: one call of every ceiling, or none of any.
func (f *flow) reserve(ctx context.Context) (Reservation, bool, error) {
	if len(f.demands) == 0 {
		return Reservation{}, false, nil
	}
	return f.g.cfg.Usage.Reserve(ctx, f.record.At, f.demands)
}

func (f *flow) giveBack(ctx context.Context, r Reservation) {
	if len(f.demands) == 0 {
		return
	}
	if err := f.g.cfg.Usage.GiveBack(context.WithoutCancel(ctx), r); err != nil {
		f.g.cfg.Log.Error("a reservation could not be given back", "call", f.record.Call, "error", err)
		return
	}
	f.record.GivenBack = true
}

// act is steps 10 to 12: the credential of that account, the call, the record of what came of it.
func (f *flow) act(ctx context.Context, r Reservation) {
	g := f.g
	timeout := g.cfg.CallTimeout
	if t := f.tool.Upstream.Timeout; t > 0 {
		timeout = time.Duration(t) * time.Millisecond
	}
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	session, outcome, detail := f.session(callCtx)
	if session == nil {
		f.giveBack(ctx, r)
		f.finish(ctx, outcome, NotSent, detail)
		if outcome == CredentialFailed {
			// Where a secret is kept is for the operator, not for the caller.
			g.cfg.Log.Error("credential failed", "call", f.record.Call, "account", string(f.permit.Account), "error", detail)
			detail = "account " + string(f.permit.Account) + "; the operator finds the reason in the audit under this decision's id"
		}
		f.answer(outcome, detail)
		return
	}
	defer session.release()

	answered := g.answers.Get().(*answered)
	response := &answered.message
	defer g.release(answered)
	up := UpstreamCall{Request: f.rq.Message, Name: f.tool.Identity.Name, Response: response, Buffer: answered.buffer[:0], MaxBytes: g.cfg.MaxAnswer}
	if token, ok := f.rq.Message.Meta.Get(mcp.MetaProgressToken); ok && (token.Kind == jsonrpc.String || token.Kind == jsonrpc.Number) {
		raw := f.rq.Message.Bytes(token.Value)
		up.Progress = func(n *jsonrpc.Message) { f.reply.Event(mcp.AppendProgress(nil, n, raw)) }
	}
	answer := session.Call(callCtx, &up)
	answered.buffer = up.Buffer
	if answer.Failure == nil {
		if err := mcp.CheckResult(response); err != nil {
			answer.Failure = &Failure{Class: FailedProtocol, Detail: err.Error()}
		}
	}
	if answer.Failure != nil {
		outcome, detail := f.outcomeOf(ctx, callCtx, answer)
		if answer.Sent == NotSent {
			f.giveBack(ctx, r)
		}
		f.finish(ctx, outcome, answer.Sent, detail)
		f.answer(outcome, detail)
		return
	}

	f.record.ResultBytes = len(response.Raw)
	f.record.IsError = mcp.ResultIsError(response) || len(response.Error) > 0
	// The client need not wait for the record of the outcome: the call has happened, and its intent is on record. If this record
	// fails, the intent stands open in the audit, and the sink refuses the next call.
	f.reply.Answer(mcp.StatusOK, mcp.ResultParts(f.store.parts[:0], f.rq.Message.ID(), response, f.rq.Era)...)
	f.finish(ctx, Invoked, Answered, "")
}

// answered is the memory of one answer. It serves one call after another, because a fresh megabyte for each would have to be
// cleared and collected each time.
type answered struct {
	message jsonrpc.Message
	buffer  []byte
}

// maxPooled keeps one huge answer from staying in memory for ever.
const maxPooled = 4 << 20

func (g *Gateway) release(a *answered) {
	if cap(a.buffer) > maxPooled {
		a.buffer = nil
	}
	a.message.Reset()
	g.answers.Put(a)
}

// session resolves the credential and finds or opens the session. When opening it showed a new list, the tool is judged again: what
// changed at the upstream while nobody looked must not be called.
func (f *flow) session(ctx context.Context) (*pooled, Outcome, string) {
	g := f.g
	material, err := f.credential(ctx)
	if err != nil {
		return nil, CredentialFailed, err.Error()
	}
	session, err := g.pool.get(ctx, f.standing.Snapshot, f.tool.Upstream, accounts.Handle(f.permit.Account), material, f.rq.Principal.ID())
	if err != nil {
		var failure *Failure
		switch {
		case errors.Is(ctx.Err(), context.Canceled): // the client left, or the gateway stops
			return nil, Cancelled, "cancelled before it was sent"
		case errors.As(err, &failure):
			return nil, UpstreamFailed, failure.Error()
		}
		return nil, CredentialFailed, err.Error()
	}
	if now := g.current.Load(); now != f.standing {
		again, ok := now.Lookup(f.rq.Scope, f.asked)
		switch {
		case !ok || again.Identity != f.tool.Identity || again.Digest != f.tool.Digest || again.Withheld != capabilities.NotWithheld:
			session.release()
			return nil, WithheldTool, "the tool is no longer the one that was accepted"
		case !f.stillGranted(now):
			session.release()
			return nil, Denied, "the policy changed meanwhile"
		}
	}
	return session, "", ""
}

// stillGranted asks the new policy the old question. The reservation is held, so ceilings do not take part; the account must be the
// one that the session runs with.
func (f *flow) stillGranted(s *standing) bool {
	inv := invocation(f.rq.Principal, f.tool.Capability, f.g.cfg.Clock().UnixMilli())
	inv.Usage.State = access.NotConsulted
	p, ok := access.Evaluate(s.Access, inv).Permit()
	account := accounts.Handle(f.permit.Account)
	before, _ := f.standing.Accounts.Bind(account, string(f.tool.Identity.Upstream))
	after, state := s.Accounts.Bind(account, string(f.tool.Identity.Upstream))
	return ok && p == f.permit && state == accounts.Bound && before == after && s.Bindings[f.tool.Identity.Upstream] == f.standing.Bindings[f.tool.Identity.Upstream]
}

func (f *flow) credential(ctx context.Context) (Material, error) {
	ref, state := f.standing.Accounts.Bind(accounts.Handle(f.permit.Account), string(f.tool.Identity.Upstream))
	if state != accounts.Bound {
		return Material{}, errors.New("account " + string(f.permit.Account) + " is " + state.String() + " for this upstream")
	}
	if ref == "" {
		return Material{}, nil
	}
	return f.g.cfg.Credentials.Resolve(ctx, ref)
}

func (f *flow) outcomeOf(ctx, callCtx context.Context, a Answer) (Outcome, string) {
	detail := a.Failure.Error()
	switch {
	case a.Failure.Class == FailedTooLarge:
		return TooLarge, detail
	case ctx.Err() != nil && a.Sent == NotSent:
		return Cancelled, "cancelled before it was sent"
	case ctx.Err() != nil:
		return Cancelled, "cancelled; whether it ran is unknown"
	case a.Sent == MaybeSent && callCtx.Err() != nil:
		return OutcomeUnknown, "timeout: no answer in time; whether it ran is unknown"
	case a.Sent == MaybeSent:
		return OutcomeUnknown, detail
	}
	return UpstreamFailed, detail
}

func (f *flow) finish(ctx context.Context, outcome Outcome, sent Sent, detail string) {
	r := &f.record
	now := f.g.cfg.Clock()
	r.Event, r.Outcome, r.Sent, r.Detail = EventFinish, outcome, sent, detail
	r.At, r.DurationUS = now.UnixMilli(), now.Sub(f.started).Microseconds()
	record := f.g.cfg.Audit.Finish
	if later, ok := f.g.cfg.Audit.(AuditLater); ok {
		record = later.FinishLater
	}
	if err := record(ctx, r); err != nil {
		f.g.cfg.Log.Error("an outcome was not recorded; its intent stays open", "call", r.Call, "error", err)
	}
}

func outcomeOfWait(ctx context.Context) Outcome {
	if ctx.Err() != nil {
		return Cancelled
	}
	return Busy
}
