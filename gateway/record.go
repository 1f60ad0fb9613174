package gateway

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"aduana/access"
	"aduana/accounts"
	"aduana/consent"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

// Surface is the face that a request came through.
type Surface string

// The surfaces.
const (
	OverHTTP  Surface = "http"
	OverStdio Surface = "stdio"
)

// Event says what a record is: an intent is followed by its finish, unless the process died between them; then the next start
// writes a finish with OutcomeUnknown for it. A note stands alone.
type Event string

// The events.
const (
	EventIntent Event = "intent"
	EventFinish Event = "finish"
	EventNote   Event = "note"
)

// Outcome is how a request ended. The list is closed.
type Outcome string

// The outcomes. The empty one stands in intents only.
const (
	Invoked          Outcome = "invoked"
	Unauthenticated  Outcome = "unauthenticated"
	UnknownTool      Outcome = "unknown_tool"
	Denied           Outcome = "denied"
	WithheldTool     Outcome = "withheld"
	InvalidArguments Outcome = "invalid_arguments"
	AskRefused       Outcome = "ask_refused"
	AskExpired       Outcome = "ask_expired"
	AskUnavailable   Outcome = "ask_unavailable"
	CredentialFailed Outcome = "credential_failed"
	UpstreamFailed   Outcome = "upstream_failed"
	OutcomeUnknown   Outcome = "outcome_unknown"
	TooLarge         Outcome = "too_large"
	Busy             Outcome = "busy"
	Cancelled        Outcome = "cancelled"
	AuditUnavailable Outcome = "audit_unavailable"
	Malformed        Outcome = "malformed"
	Reloaded         Outcome = "reloaded"
	ReloadRefused    Outcome = "reload_refused"
	Started          Outcome = "started"
	Stopped          Outcome = "stopped"
)

// Held is one ceiling of a decision, as a record shows it.
type Held struct {
	Key     access.Key
	Calls   int64
	Window  string
	Used    int64
	Pointer string
}

// Record is everything that replay needs to decide again, and everything that a reader needs to know what happened. It holds no
// argument value, no result, no secret. Fields that do not apply are empty and are not written.
type Record struct {
	Event      Event
	Call       string // the decision's id; an intent and its finish share it
	At         int64  // Unix milliseconds
	Snapshot   string
	Surface    Surface
	Era        mcp.Era
	Principal  principals.Principal
	Discarded  []string // attributes that came and were not declared
	Problem    principals.Problem
	Asked      string // the name that the client sent
	Scope      string // the upstream of a scoped endpoint
	Identity   string // canonical
	Capability string
	Risk       consent.Risk
	Definition string
	Code       access.Code
	Pointer    string
	Subject    string
	FreesAt    int64
	Account    accounts.Handle
	Ask        consent.State
	Ceilings   []Held
	Arguments  string // keyed digest
	ArgBytes   int
	Finding    string // a schema violation that did not refuse; a withholding's reason

	// The rest is of finishes and notes.
	Outcome     Outcome
	Detail      string // class and bounded, redacted text
	DurationUS  int64
	ResultBytes int
	IsError     bool
	Sent        Sent
	GivenBack   bool
}

// AppendJSON appends the record as one JSON object on one line. The members have a fixed order, so that equal records have
// equal bytes. Whatever a client or upstream put into a name is escaped
// unless it can be seen.
func (r *Record) AppendJSON(dst []byte) []byte {
	w := lineWriter{b: append(dst, '{')}
	w.text("event", string(r.Event))
	w.text("call", r.Call)
	w.b = append(w.comma(), `"at":"`...)
	w.b = time.UnixMilli(r.At).UTC().AppendFormat(w.b, "2006-01-02T15:04:05.000Z07:00")
	w.b = append(w.b, '"')
	w.text("snapshot", r.Snapshot)
	w.text("surface", string(r.Surface))
	if r.Era != mcp.NoEra {
		w.text("era", r.Era.String())
	}
	if r.Principal.Known() {
		w.text("principal", r.Principal.ID())
		w.text("issuer", string(r.Principal.Issuer()))
		w.attributes(r.Principal.Attributes())
	}
	w.list("discarded", r.Discarded)
	w.text("problem", string(r.Problem))
	w.text("asked", r.Asked)
	w.text("scope", r.Scope)
	w.text("identity", r.Identity)
	w.text("capability", r.Capability)
	if r.Capability != "" {
		w.text("risk", r.Risk.String())
	}
	w.text("definition", r.Definition)
	w.text("code", string(r.Code))
	w.text("pointer", r.Pointer)
	w.text("subject", r.Subject)
	w.number("frees_at", r.FreesAt)
	w.text("account", string(r.Account))
	if r.Code == access.Granted {
		w.text("consent", r.Ask.String())
	}
	if len(r.Ceilings) > 0 {
		w.b = append(w.comma(), `"ceilings":[`...)
		for i, h := range r.Ceilings {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			c := lineWriter{b: append(w.b, '{')}
			c.b = append(c.comma(), `"key":"`...)
			c.b = hex.AppendEncode(c.b, h.Key[:8])
			c.b = append(c.b, `","calls":`...)
			c.b = strconv.AppendInt(c.b, h.Calls, 10)
			c.text("per", h.Window)
			c.b = append(c.b, `,"used":`...)
			c.b = strconv.AppendInt(c.b, h.Used, 10)
			c.text("pointer", h.Pointer)
			w.b = append(c.b, '}')
		}
		w.b = append(w.b, ']')
	}
	w.text("arguments", r.Arguments)
	w.number("argument_bytes", int64(r.ArgBytes))
	w.text("finding", r.Finding)
	w.text("outcome", string(r.Outcome))
	w.text("detail", r.Detail)
	if r.Event == EventFinish {
		w.number("duration_us", max(r.DurationUS, 1))
		w.number("result_bytes", int64(r.ResultBytes))
		if r.IsError {
			w.b = append(w.comma(), `"is_error":true`...)
		}
		switch r.Sent {
		case NotSent:
			w.text("sent", "no")
		case Answered:
			w.text("sent", "yes")
		default:
			w.text("sent", "unknown")
		}
		if r.GivenBack {
			w.b = append(w.comma(), `"given_back":true`...)
		}
	}
	return append(w.b, '}')
}

// lineWriter appends members; empty ones are left out.
type lineWriter struct {
	b     []byte
	begun bool
}

func (w *lineWriter) comma() []byte {
	if w.begun {
		w.b = append(w.b, ',')
	}
	w.begun = true
	return w.b
}

func (w *lineWriter) text(name, value string) {
	if value == "" {
		return
	}
	w.b = append(append(append(w.comma(), '"'), name...), '"', ':')
	w.b = appendVisible(w.b, value)
}

// appendVisible appends a JSON string in which whatever cannot be seen is escaped. JSON itself asks for that below U+0020 only, but a
// terminal obeys U+009B, a viewer ends lines at U+2028, and U+202E turns a line round: who reads the audit would read another record.
func appendVisible(dst []byte, s string) []byte {
	start := len(dst)
	dst = jsonrpc.AppendString(dst, s)
	plain := true
	for _, c := range dst[start:] {
		plain = plain && c < 0x7f
	}
	if plain {
		return dst
	}
	text := string(dst[start:])
	dst = dst[:start]
	for _, r := range text {
		switch hi, lo := utf16.EncodeRune(r); {
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r <= 0xffff:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, hi, lo)
		}
	}
	return dst
}

func (w *lineWriter) number(name string, n int64) {
	if n == 0 {
		return
	}
	w.b = append(append(append(w.comma(), '"'), name...), '"', ':')
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *lineWriter) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	w.b = append(append(append(w.comma(), '"'), name...), '"', ':', '[')
	for i, v := range values {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendVisible(w.b, v)
	}
	w.b = append(w.b, ']')
}

// attributes writes {"name":["value",…]}: sorted already, several values only for a set-valued one.
func (w *lineWriter) attributes(list []principals.Attribute) {
	if len(list) == 0 {
		return
	}
	w.b = append(w.comma(), `"attributes":{`...)
	for i, a := range list {
		switch {
		case i > 0 && list[i-1].Name == a.Name:
			w.b = append(w.b, ',')
		default:
			if i > 0 {
				w.b = append(w.b, ']', ',')
			}
			w.b = appendVisible(w.b, a.Name)
			w.b = append(w.b, ':', '[')
		}
		w.b = appendVisible(w.b, a.Value)
	}
	w.b = append(w.b, ']', '}')
}
