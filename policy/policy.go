package policy

// Policy is a compiled policy: plain data, immutable by convention, in
// document order unless a field says otherwise. It exists only when the
// document has no error. Every element carries the pointer of the place that
// declared it; each resolves in the [Document] it was compiled from.
type Policy struct {
	Naming       Naming
	Capabilities []Capability
	Upstreams    []Upstream
	Accounts     []Account
	Issuers      []Issuer
	Grants       []Grant
	Anchors      Anchors
}

// Anchors are the places of absences: where to point when nothing was found.
// A list that the document leaves out has the pointer of the document, "".
type Anchors struct {
	Capabilities, Upstreams, Accounts, Issuers, Grants string
}

// Naming bounds exposed names.
type Naming struct {
	MaxLength int // characters, 48 to 64, default 50
	Similar   Similar
	Pointer   string // "/naming", or "" when left out
}

// Similar says what happens to names that differ only in letter case.
type Similar string

// The zero value is not valid; Compile always sets one of these.
const (
	SimilarWithhold Similar = "withhold" // default
	SimilarWarn     Similar = "warn"
)

// Risk classifies what a capability can do.
type Risk string

const (
	RiskWrite       Risk = "write" // default: unknown risk counts as write
	RiskRead        Risk = "read"
	RiskDestructive Risk = "destructive"
)

// Capability is the policy-level name of something that can be done.
type Capability struct {
	ID           string
	Description  string
	Risk         Risk // never empty
	RiskDeclared bool // false: Risk is the default
	Pointer      string
}

// Transport is how an upstream is reached.
type Transport string

const (
	TransportStdio Transport = "stdio" // kind: mcp-stdio
	TransportHTTP  Transport = "http"  // kind: mcp-http
)

// SecretRef names a place where a secret is kept, as scheme://place. It is
// never a secret itself.
type SecretRef string

// Scheme is the text before "://".
func (r SecretRef) Scheme() string {
	for i := 0; i < len(r); i++ {
		if r[i] == ':' {
			return string(r[:i])
		}
	}
	return ""
}

// Value is either a literal or a reference to a secret, never both. IsRef
// tells which, so that an empty literal is not taken for a reference.
type Value struct {
	Literal string
	Ref     SecretRef
	IsRef   bool
	Pointer string
}

// NamedValue is an environment variable or a header.
type NamedValue struct {
	Name  string
	Value Value
}

// DeliverKind says how the credential reaches an upstream.
type DeliverKind string

const (
	DeliverBearer DeliverKind = "bearer" // Authorization: Bearer
	DeliverHeader DeliverKind = "header"
	DeliverEnv    DeliverKind = "env"
)

// DefaultCredentialVariable receives the credential of a stdio upstream that
// does not say otherwise.
const DefaultCredentialVariable = "MCP_UPSTREAM_CREDENTIAL"

// Deliver is the resolved delivery: bearer by default over HTTP, the variable
// [DefaultCredentialVariable] by default over stdio.
type Deliver struct {
	Kind     DeliverKind
	Name     string // of the header or variable; empty for bearer
	Declared bool
}

// Arguments says what happens when arguments do not fit the tool's schema.
type Arguments string

const (
	ArgumentsLenient Arguments = "lenient" // default
	ArgumentsStrict  Arguments = "strict"
)

// Drift says what happens when a tool's text changes after acceptance.
type Drift string

const (
	DriftDefault  Drift = "default"
	DriftWithhold Drift = "withhold"
)

// Upstream is one MCP server behind the gateway.
type Upstream struct {
	ID        string
	Transport Transport

	Command string       // stdio
	Args    []Value      // stdio, document order
	Cwd     string       // stdio, "" when left out
	Env     []NamedValue // stdio, sorted by name
	Inherit []string     // stdio, names of variables, document order

	URL     string       // http
	Headers []NamedValue // http, sorted by lower-case name

	Account     string // "" when none was named
	AccountNone bool   // `account: none`: calls run without a credential
	Deliver     Deliver
	Timeout     int64 // milliseconds, 0 when left out
	Concurrency int   // calls at once, 0 when left out
	Arguments   Arguments
	Drift       Drift
	Tools       []Tool
	Pointer     string
}

// Tool maps a real tool name of an upstream to the capability it realises.
type Tool struct {
	Name       string // verbatim
	Capability string
	Pointer    string
}

// Account is an execution identity: a handle and where its secret is kept.
type Account struct {
	ID        string
	Disabled  bool
	SecretRef SecretRef
	For       []string // upstreams it may reach, empty when left out
	Pointer   string
}

// IssuerKind is how an issuer's principals are authenticated.
type IssuerKind string

const (
	IssuerOIDC      IssuerKind = "oidc"
	IssuerStaticKey IssuerKind = "static-key"
	IssuerMTLS      IssuerKind = "mtls"
)

// Disclosure says how much of a decision a caller is told.
type Disclosure string

const (
	DisclosureUnset  Disclosure = "" // the listener's default holds
	DisclosurePlaces Disclosure = "places"
	DisclosureCodes  Disclosure = "codes"
)

// Issuer is a declared source of identities.
type Issuer struct {
	ID         string
	Kind       IssuerKind
	Discovery  string    // "" when left out
	Audience   string    // "" when left out
	Subject    string    // "" when left out
	SecretRef  SecretRef // "" when left out
	Disclosure Disclosure
	Attributes []Attribute // sorted by name
	Pointer    string
}

// Attribute is a declared attribute of an issuer's principals. From is the
// source as written: `claim:NAME` for oidc, `dn:COMPONENT` for mtls, the
// literal value itself for static-key. Many marks a set-valued attribute: a
// selector then means "contains", and it never separates two grants.
type Attribute struct {
	Name    string
	From    string
	Many    bool
	Pointer string
}

// Ask says when a person is asked before a call.
type Ask string

const (
	AskDestructive Ask = "destructive" // default
	AskAlways      Ask = "always"
	AskNever       Ask = "never"
)

// Grant joins who, what and with which account.
type Grant struct {
	Issuer       string
	Selector     []AttributeValue // sorted by attribute name
	Capabilities []string         // document order, no repetition

	// Using is the account as written, "" when left out. UsingBy is what
	// holds: one entry per capability, in the order of Capabilities.
	Using   string
	UsingBy []CapabilityAccount

	Ceilings []Ceiling

	// Validity: From inclusive, Until exclusive, Unix milliseconds; each
	// counts only when its flag is set.
	From, Until       int64
	HasFrom, HasUntil bool

	Ask     Ask
	Pointer string
}

// AttributeValue is one condition of a selector.
type AttributeValue struct {
	Attribute, Value string
}

// CapabilityAccount is the account that a grant's calls on a capability run
// with. None means: without any credential (Account is then empty).
type CapabilityAccount struct {
	Capability string
	Account    string
	None       bool
}

// Scope is what a ceiling counts over.
type Scope string

const (
	OverPrincipal Scope = "principal" // default: per principal and capability
	OverGrant     Scope = "grant"
	OverAccount   Scope = "account"
	OverAttribute Scope = "attribute" // per value of Ceiling.Attribute
)

// Ceiling is at most Calls calls in any window of that length.
type Ceiling struct {
	Calls     int64  // 0 suspends the grant
	Window    string // as written, such as "24h"
	Millis    int64
	Over      Scope
	Attribute string // only for OverAttribute
	// Pointer is the grant's own when `limits` is a single object, and
	// /grants/g/limits/i when it is a list.
	Pointer string
}
