package gateway

import (
	"context"
	"errors"
	"time"

	"aduana/access"
	"aduana/accounts"
	"aduana/capabilities"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
)

// ErrUnassigned is what every method of an unassigned port returns: nothing serves it, so whatever needed it is refused.
var ErrUnassigned = errors.New("no adapter is assigned to this port")

// Clock gives the instant. It is the only place where time comes in.
type Clock func() time.Time

// Credential is what a client presented. It is opened only by the adapter that verifies it.
type Credential struct {
	Surface Surface
	Bearer  Secret // empty when nothing was presented
}

// Authenticator says who presented a credential.
//
// Contract: it never returns an identity that it did not verify; with a Problem the Presented is zero. Nothing presented is
// CredentialMissing; a credential that matches no issuer, or more than one, is CredentialInvalid. Any failure of its own (a key
// that cannot be read) is CredentialInvalid, never a pass. It is safe for concurrent use and reads keys afresh, so that a
// rotated key counts from the next request.
type Authenticator interface {
	Authenticate(ctx context.Context, c Credential) (principals.Presented, principals.Problem)
}

// Source is one text with where and what it is.
type Source struct {
	Text    []byte
	Origin  string // for people: a path
	Version string // first 12 hex digits of SHA-256 of the text
}

// PolicySource gives the policy's text.
//
// Contract: bytes only, unparsed and whole; absent, unreadable or over-sized is an error, never an empty policy. Watch calls
// changed after the text may have changed, until ctx ends, never concurrently with itself; a change that it cannot read is
// reported by the next Load.
type PolicySource interface {
	Load(ctx context.Context) (Source, error)
	Watch(ctx context.Context, changed func())
}

// Demand asks one counter for one call: at most Calls in any Window milliseconds.
type Demand struct {
	Slot   int // copied into the Count, so that facts find their ceiling
	Key    access.Key
	Calls  int64
	Window int64
}

// Reservation is one call taken from every counter of a Reserve.
type Reservation struct {
	At   int64 // the instant that the store counted, Unix milliseconds
	ID   uint64
	Keys []access.Key
}

// Usage counts calls.
//
// Contract: a ceiling never lets more than Calls reservations stand in any window of Window milliseconds (half-open: a call at t
// has left the window at t+Window), under any interleaving and also when instants go backwards. Facts mutates nothing and gives
// one Count per Demand, in order. Reserve takes one call from all the demands or from none: lost reports that one was full.
// GiveBack undoes a reservation whose call provably never left; giving back twice, or something unknown, changes nothing. An
// error of Facts or Reserve means unknown, never zero. Up to 10,000 calls a window the count is exact; above, it is never over
// and frees at most window/1024 late.
type Usage interface {
	Facts(ctx context.Context, at int64, demands []Demand) ([]access.Count, error)
	Reserve(ctx context.Context, at int64, demands []Demand) (r Reservation, lost bool, err error)
	GiveBack(ctx context.Context, r Reservation) error
}

// Material is a resolved credential. Generation changes whenever the secret does, and tells nothing of it.
type Material struct {
	Secret     Secret
	Generation string
}

// Credentials resolves references to secrets.
//
// Contract: called only for the account that a permit named. An empty, missing or unreadable secret is an error that names the
// reference and never the secret; nothing ever runs without the credential it should have. A scheme that is not its own is an
// error that names the scheme. The same secret has the same generation within one process.
type Credentials interface {
	Resolve(ctx context.Context, ref accounts.Reference) (Material, error)
}

// Audit records what is about to happen and what happened.
//
// Contract: Intend returns nil only when the record of the intent is written (every required sink of the process took it); on an
// error the call is not made. Finish records the outcome of an intent; Note records something complete in itself (a refusal, a
// reload). All three ignore the cancellation of ctx, are bounded in time (250 ms), are safe for concurrent use, write one line
// per record in one total order, and keep nothing of the record once they return. After an error of any of them the sink refuses until it has written again.
type Audit interface {
	Intend(ctx context.Context, r *Record) error
	Finish(ctx context.Context, r *Record) error
	Note(ctx context.Context, r *Record) error
}

// AuditLater is what an Audit may also do: take an outcome that nobody waits for.
//
// Contract: as Finish, but it returns when the record is taken in its place of the order: an Intend that returns nil afterwards
// shows that it is written. The record is not kept.
type AuditLater interface {
	FinishLater(ctx context.Context, r *Record) error
}

// Schemas validates arguments against a pinned input schema.
//
// Contract: schema is identified by digest, so that a compiled form can be kept. It dereferences nothing outside the schema. The
// error is a *Violation when the arguments do not fit, any other error when the schema itself cannot be used. Numbers are
// compared exactly.
type Schemas interface {
	Validate(ctx context.Context, digest capabilities.Digest, schema, arguments []byte) error
}

// Violation says where arguments leave their schema. It quotes names of the schema, never values of the arguments.
type Violation struct {
	Pointer string // into the arguments
	Detail  string
}

func (v *Violation) Error() string { return "arguments" + v.Pointer + ": " + v.Detail }

// Question asks a person whether one exact call may go on.
type Question struct {
	Principal  principals.Principal
	Identity   capabilities.Identity
	Account    accounts.Handle
	Arguments  string // keyed digest
	Definition capabilities.Digest
}

// Approvals gets a person's answer.
//
// Contract: true only when somebody approved exactly this question; a refusal is false with no error; no way to ask is
// ErrUnassigned; no answer in time is ErrAskExpired.
type Approvals interface {
	Ask(ctx context.Context, q Question) (bool, error)
}

// ErrAskExpired says that nobody answered in time.
var ErrAskExpired = errors.New("nobody answered in time")

// Target is where a session goes and as whom. Everything in it is fixed for the session's life.
type Target struct {
	Upstream  *policy.Upstream
	Binding   capabilities.Digest
	Account   accounts.Handle
	Material  Material            // zero for accounts.None
	Settings  map[string]Material // resolved { ref } values of env, headers and args, keyed by the reference's text
	Principal string
	Changed   func() // called when the upstream says that its tools changed; must not block
}

// Upstream opens sessions at upstreams of one transport.
//
// Contract: Open does the whole handshake of whichever era the upstream speaks and gives a session that can list and call. The
// error is a *Failure. The material goes to the target's own origin or child and nowhere else.
type Upstream interface {
	Open(ctx context.Context, t Target) (UpstreamSession, error)
}

// UpstreamSession is one conversation with an upstream under one account.
//
// Contract: safe for concurrent use. Tools drains every page (bounded; a repeated cursor is an error) and gives every tool's
// bytes verbatim. Call sends one tools/call and returns when the answer is there, ctx ends, or the session dies; when ctx ends
// it tells the upstream that the call is cancelled. No call is ever sent twice. Done is closed when the session can serve no
// more calls; Close ends it, is safe to repeat, and returns when everything that the session started has ended.
type UpstreamSession interface {
	Era() mcp.Era
	Tools(ctx context.Context) ([]mcp.ListedTool, error)
	Call(ctx context.Context, c *UpstreamCall) Answer
	Done() <-chan struct{}
	Close() error
}

// UpstreamCall is one tools/call on its way up.
type UpstreamCall struct {
	Request  *jsonrpc.Message // the client's message; its id and token are replaced, the rest of its params is kept
	Name     string           // the tool's name at the upstream, verbatim
	Response *jsonrpc.Message // the answer is scanned into this one
	// Buffer is spare memory that the answer may be read into. An adapter may put a larger one in its place, and gives that away
	// for good by doing so: it will hold another call's answer, of another principal.
	Buffer []byte
	// Progress takes a notifications/progress of this call, before Call returns and never after. Nil when the client asked for
	// none: then the upstream is given no token. The message is valid only during the call of Progress.
	Progress func(notification *jsonrpc.Message)
	// MaxBytes bounds the answer; over it the Failure is TooLarge.
	MaxBytes int
}

// Sent says whether a call can have reached its upstream.
type Sent uint8

// The zero Sent is the careful one: it may have left.
const (
	MaybeSent Sent = iota
	NotSent        // provably no byte of the call left
	Answered       // an answer came, whatever it says
)

// Answer ends a call. With a nil Failure the response message is complete: it has a result or a JSON-RPC error.
type Answer struct {
	Sent    Sent
	Failure *Failure
}

// FailureClass is what went wrong at an upstream. The list is closed.
type FailureClass string

// The classes.
const (
	FailedDial      FailureClass = "dial"
	FailedTLS       FailureClass = "tls"
	FailedTimeout   FailureClass = "timeout"
	FailedProtocol  FailureClass = "protocol"
	FailedStatus    FailureClass = "status"
	FailedExited    FailureClass = "exited"
	FailedTooLarge  FailureClass = "too_large"
	FailedCancelled FailureClass = "cancelled"
	FailedRefused   FailureClass = "refused" // 401 or 403: the upstream refused the account's credential
)

// Failure is an upstream's failure. Detail names at most the upstream's id and host:port, holds no secret and no upstream text
// that was not redacted and bounded (256 bytes).
type Failure struct {
	Class  FailureClass
	Detail string
}

func (f *Failure) Error() string { return string(f.Class) + ": " + f.Detail }
