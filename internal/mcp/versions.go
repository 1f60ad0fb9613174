// Package mcp answers "what does the Model Context Protocol say on the wire": its versions and eras, its error codes, and how a
// message of one era becomes the same message of the other.
//
// It is mechanism: it knows no policy, opens nothing and decides nothing about who may do what. Bytes that the protocol does
// not make it change pass as they are.
//
// Start at Era, then AppendCall and ResultParts: the two rewritings of the data path.
package mcp

// Era is the protocol's generation: legacy has an initialize handshake and sessions, modern has neither.
type Era uint8

// The eras. The zero value is no era; nothing is sent under it.
const (
	NoEra Era = iota
	Legacy
	Modern
)

// String is the word for records.
func (e Era) String() string {
	switch e {
	case Legacy:
		return "legacy"
	case Modern:
		return "modern"
	}
	return "none"
}

// The protocol versions spoken, oldest first. They order lexically; from V20260728 on the era is modern.
const (
	V20241105 = "2024-11-05"
	V20250326 = "2025-03-26"
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"

	LatestLegacy = V20251125
	LatestModern = V20260728
)

// EraOf gives the era of a version that is spoken here, NoEra for any other text.
func EraOf(version string) Era {
	switch version {
	case V20241105, V20250326, V20250618, V20251125:
		return Legacy
	case V20260728:
		return Modern
	}
	return NoEra
}

// Versions gives every version spoken, newest first, as server/discover and error -32022 list them.
func Versions() []string {
	return []string{V20260728, V20251125, V20250618, V20250326, V20241105}
}

// JSON-RPC and MCP error codes.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
	CodeServerBusy         = -31001 // ours: outside the range that JSON-RPC and MCP reserve
	CodeUnauthenticated    = -31004 // ours: over stdio, which has no 401
)

// Methods and notifications by name.
const (
	MethodInitialize  = "initialize"
	MethodInitialized = "notifications/initialized"
	MethodPing        = "ping"
	MethodDiscover    = "server/discover"
	MethodToolsList   = "tools/list"
	MethodToolsCall   = "tools/call"
	MethodListen      = "subscriptions/listen"
	MethodCancelled   = "notifications/cancelled"
	MethodProgress    = "notifications/progress"
	MethodToolsChange = "notifications/tools/list_changed"
	MethodAcknowledge = "notifications/subscriptions/acknowledged"
)

// The members of _meta that the protocol reserves.
const (
	MetaVersion        = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities   = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo     = "io.modelcontextprotocol/clientInfo"
	MetaServerInfo     = "io.modelcontextprotocol/serverInfo"
	MetaLogLevel       = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken  = "progressToken"

	// MetaOwnPrefix starts every _meta member that is the gateway's alone: what anybody else writes there is dropped.
	MetaOwnPrefix = "aduana/"
)
