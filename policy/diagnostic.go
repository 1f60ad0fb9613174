package policy

// Severity of a diagnostic. The zero value is Error: an unset severity blocks.
type Severity int

const (
	Error Severity = iota
	Warning
)

// String is "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Code is one of the closed list below. docs/policy.md gives each a remedy.
type Code string

// Errors: no policy comes out of a document that has one.
const (
	YAMLSyntax               Code = "yaml_syntax"
	SchemaViolation          Code = "schema_violation"
	DuplicateID              Code = "duplicate_id"
	UnknownCapabilityInTool  Code = "unknown_capability_in_tool"
	ToolMappedTwice          Code = "tool_mapped_twice"
	URLInvalid               Code = "url_invalid"
	HeaderInvalid            Code = "header_invalid"
	DeliverInvalid           Code = "deliver_invalid"
	UnknownAccountInUpstream Code = "unknown_account_in_upstream"
	UnknownUpstreamInAccount Code = "unknown_upstream_in_account"
	ClaimMappingExpected     Code = "claim_mapping_expected"
	DNMappingExpected        Code = "dn_mapping_expected"
	UnknownIssuerInGrant     Code = "unknown_issuer_in_grant"
	AttributeNotDeclared     Code = "attribute_not_declared"
	UnknownCapabilityInGrant Code = "unknown_capability_in_grant"
	UnknownAccountInGrant    Code = "unknown_account_in_grant"
	AccountMissing           Code = "account_missing"
	AccountContradicts       Code = "account_contradicts"
	LimitScopeInvalid        Code = "limit_scope_invalid"
	InstantInvalid           Code = "instant_invalid"
	ValidityEmpty            Code = "validity_empty"
	AmbiguousGrant           Code = "ambiguous_grant"
	TooComplex               Code = "too_complex"
	AccountReachesMany       Code = "account_reaches_many"
	ToolNotInCatalog         Code = "tool_not_in_catalog"
	CatalogDuplicate         Code = "catalog_duplicate"
)

// Warnings: they never block.
const (
	CapabilityNotRealized  Code = "capability_not_realized"
	CapabilityNotGranted   Code = "capability_not_granted"
	UnusedAccount          Code = "unused_account"
	UnreachedUpstreamInFor Code = "unreached_upstream_in_for"
	UnusedIssuer           Code = "unused_issuer"
	UnknownSecretScheme    Code = "unknown_secret_scheme"
	PlainHTTP              Code = "plain_http"
	FloatingPackage        Code = "floating_package"
	ToolNotAccepted        Code = "tool_not_accepted"
	CatalogToolUnmapped    Code = "catalog_tool_unmapped"
)

// Diagnostic is one finding. Pointer is an RFC 6901 pointer into the document
// ("" is the whole document); Position is the place of its value, with Line 0
// when there is none.
type Diagnostic struct {
	Severity Severity
	Code     Code
	Message  string
	Pointer  string
	Position Position
	Related  []Related
}

// Related is another place that takes part in a finding.
type Related struct {
	Pointer  string
	Position Position
	Note     string
}

// Position is a place in the text. Line and Column count from 1, Column and
// Offset in characters (Unicode code points); Offset counts from 0 and
// includes a byte order mark. The zero Line means "no place".
type Position struct {
	Line, Column, Offset int
}

// CatalogueTool is one tool that really exists.
type CatalogueTool struct {
	Upstream, Name string
}

// Options of a compilation.
type Options struct {
	// Origin is the name of the text as a person should read it, such as a
	// file path. It is only ever printed.
	Origin string
	// Catalogue is what upstreams list. It is looked at only when
	// HasCatalogue is set: an empty catalogue is not a missing one.
	Catalogue    []CatalogueTool
	HasCatalogue bool
	// Lock says that the catalogue is a lock: what was accepted, not all that exists. A mapping whose tool is missing is then a
	// warning, because the tool may yet be accepted, and is not served until then.
	Lock bool
}

// MaxShown bounds the diagnostics of a Result.
const MaxShown = 200

// Result of a compilation. Policy is nil when any diagnostic is an error.
// Diagnostics are in a stable order, without repetition and at most MaxShown
// (errors are never pushed out by warnings); Total counts all of them, the
// ambiguous pairs and the faults of an unreadable text each to a bound of some
// thousands, and Capped says that some are not shown.
type Result struct {
	Document    *Document
	Policy      *Policy
	Diagnostics []Diagnostic
	Total       int
	Capped      bool
}
