package mcp

import (
	"strconv"

	"aduana/internal/jsonrpc"
)

// Greeting is what a server says of itself.
type Greeting struct {
	Server       Implementation
	Instructions string
}

// NegotiateLegacy gives the version that an initialize is answered with: the client's own when it is a legacy one spoken here, the
// newest legacy one otherwise.
func NegotiateLegacy(requested string) string {
	if EraOf(requested) == Legacy {
		return requested
	}
	return LatestLegacy
}

const ownCapabilities = `{"tools":{"listChanged":true}}`

// AppendInitializeResult appends the members of an initialize result, braces included.
func (g Greeting) AppendInitializeResult(dst []byte, version string) []byte {
	dst = append(dst, `{"protocolVersion":`...)
	dst = jsonrpc.AppendString(dst, version)
	dst = append(dst, `,"capabilities":`+ownCapabilities+`,"serverInfo":`...)
	dst = g.Server.append(dst)
	return g.instructions(dst)
}

// AppendDiscoverResult appends the result of server/discover, braces included. It depends on nobody's rights, but is private all
// the same: instructions may come to name what stands behind.
func (g Greeting) AppendDiscoverResult(dst []byte, ttlMS int64) []byte {
	dst = append(dst, `{"resultType":"complete","supportedVersions":[`...)
	for i, v := range Versions() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonrpc.AppendString(dst, v)
	}
	dst = append(dst, `],"capabilities":`+ownCapabilities+`,"ttlMs":`...)
	dst = strconv.AppendInt(dst, ttlMS, 10)
	dst = append(dst, `,"cacheScope":"private","_meta":`...)
	dst = g.AppendServerMeta(dst)
	return g.instructions(dst)
}

func (g Greeting) instructions(dst []byte) []byte {
	if g.Instructions != "" {
		dst = append(dst, `,"instructions":`...)
		dst = jsonrpc.AppendString(dst, g.Instructions)
	}
	return append(dst, '}')
}

// AppendServerMeta appends a _meta object that names the server.
func (g Greeting) AppendServerMeta(dst []byte) []byte {
	dst = append(dst, `{"`+MetaServerInfo+`":`...)
	return append(g.Server.append(dst), '}')
}
