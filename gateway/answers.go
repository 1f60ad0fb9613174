package gateway

import (
	"context"
	"math"
	"time"

	"aduana/access"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// This file is the words that a client reads when a call did not happen: one sentence that says what happened, one that says what to
// do, and a decision that machines can read. How much of it a caller may know is decided here and nowhere else.

// Prose says in a sentence what a decision code means; explain and the gateway use the same words.
func Prose(c access.Code) string {
	switch c {
	case access.CapabilityNotDeclared:
		return "the policy declares no such capability"
	case access.CapabilityNotRealized:
		return "no declared tool realises the capability"
	case access.NoGrantMatches:
		return "no grant gives the capability to this principal"
	case access.GrantExpired:
		return "the grants that match are not valid at this instant"
	case access.AmbiguousGrant:
		return "several grants match, with different accounts"
	case access.AccountDisabled:
		return "the account that the grant names is disabled"
	case access.UsageUnknown:
		return "how much was used is not known, which counts as used up"
	case access.LimitExhausted:
		return "the ceiling is used up"
	case access.Granted:
		return "a grant covers it"
	}
	return "nothing was decided"
}

// deny ends a call that the policy refuses.
func (f *flow) deny(ctx context.Context, reason access.Reason) {
	f.record.Code, f.record.Pointer, f.record.Subject, f.record.FreesAt = reason.Code, reason.Pointer, reason.Subject, reason.FreesAt
	f.record.Account = ""
	f.noteRefusal(ctx, Denied, "")
	text := "denied: " + string(reason.Code) + ": " + Prose(reason.Code)
	if reason.Code == access.LimitExhausted {
		switch reason.FreesAt {
		case math.MaxInt64:
			text += "; the grant is suspended"
		default:
			text += "; there is room again at " + time.UnixMilli(reason.FreesAt).UTC().Format(time.RFC3339)
		}
	}
	f.answer(Denied, text)
}

// unknown ends a call to something that is not there for this caller, whether it is absent, or withheld.
func (f *flow) unknown(ctx context.Context, outcome Outcome) {
	f.noteRefusal(ctx, outcome, "")
	f.answer(outcome, "withheld: "+f.record.Finding)
}

// refuse ends a call that the policy allows, for another reason.
func (f *flow) refuse(ctx context.Context, outcome Outcome, detail string) {
	f.noteRefusal(ctx, outcome, detail)
	f.answer(outcome, detail)
}

func (f *flow) noteRefusal(ctx context.Context, outcome Outcome, detail string) {
	f.record.Outcome, f.record.Detail = outcome, detail
	f.g.note(ctx, &f.record)
}

// answer sends a refusal. Under disclosure by codes, whatever would reveal a thing that the caller's list does not hold is answered
// as if the thing did not exist, byte for byte.
func (f *flow) answer(outcome Outcome, detail string) {
	places := placesShown(f.rq.Principal, f.rq.Surface)
	left := outcome == OutcomeUnknown || outcome == TooLarge // it ran, or may have: that must be said whatever changed since
	if outcome == UnknownTool || !places && !left && f.hidden() {
		f.g.fail(f.rq, f.reply, f.unknownTool())
		return
	}
	text := "aduana: " + sentence(outcome, f) + detail
	id := f.rq.Message.ID()
	b := responseHead(make([]byte, 0, 512), id)
	b = append(b, `{"content":[{"type":"text","text":`...)
	place := ""
	if places && f.standing != nil && f.record.Pointer != "" {
		place = f.standing.Place(f.record.Pointer)
		text += " (" + place + ")"
	}
	b = jsonrpc.AppendString(b, text)
	b = append(b, `}],"isError":true`...)
	if f.rq.Era == mcp.Modern {
		b = append(b, `,"resultType":"complete"`...)
	}
	b = append(b, `,"_meta":{"aduana/decision":{"id":`...)
	b = jsonrpc.AppendString(b, f.record.Call)
	b = append(b, `,"outcome":`...)
	b = jsonrpc.AppendString(b, string(outcome))
	if f.record.Code != "" {
		b = append(b, `,"code":`...)
		b = jsonrpc.AppendString(b, string(f.record.Code))
	}
	if place != "" {
		b = append(b, `,"pointer":`...)
		b = jsonrpc.AppendString(b, f.record.Pointer)
		b = append(b, `,"place":`...)
		b = jsonrpc.AppendString(b, place)
	}
	b = append(b, `}}}}`...)
	f.reply.Answer(mcp.StatusOK, b)
}

// hidden reports whether the caller's list, at this instant, lacks what was asked for.
func (f *flow) hidden() bool {
	if f.tool == nil {
		return true
	}
	now := f.g.current.Load()
	t, ok := now.Lookup(f.rq.Scope, f.asked)
	return !ok || t.Withheld != "" || !granted(now, f.rq.Principal, t.Capability, f.g.cfg.Clock().UnixMilli())
}

func (f *flow) unknownTool() *mcp.Error {
	text := "unknown tool " + string(jsonrpc.AppendString(nil, clip(f.asked))) + ": it is not in your tools/list"
	now := f.g.current.Load()
	if placesShown(f.rq.Principal, f.rq.Surface) {
		if finding, ok := now.WithheldAs(f.rq.Scope, f.asked); ok {
			return mcp.InvalidParams(text + "; " + finding.String())
		}
	}
	v := f.g.view(now, f.rq.Principal, f.rq.Scope, f.g.cfg.Clock().UnixMilli())
	for i, name := range v.similar(f.rq.Scope, f.asked) {
		if i == 0 {
			text += "; did you mean "
		} else {
			text += " or "
		}
		text += string(jsonrpc.AppendString(nil, name))
	}
	return mcp.InvalidParams(text)
}

// sentence is what stands before the detail.
func sentence(o Outcome, f *flow) string {
	switch o {
	case InvalidArguments:
		return "the call was not made: "
	case AskRefused, AskExpired, AskUnavailable:
		return "the call was not made: " + string(o) + ": "
	case CredentialFailed:
		return "the call was authorised, but the credential of its account could not be had, and nothing runs without it: "
	case UpstreamFailed:
		return "the upstream " + string(f.tool.Identity.Upstream) + " failed; this is no denial: "
	case OutcomeUnknown:
		return "the call was sent to " + string(f.tool.Identity.Upstream) + ", and what became of it is not known; it was not repeated: "
	case TooLarge:
		return "the upstream " + string(f.tool.Identity.Upstream) + " answered with more than may pass: "
	case Busy:
		return "the call was not made, try again: "
	case Cancelled:
		return "the call was cancelled: "
	}
	return ""
}
