// Package mcphttp answers "how does MCP look over streamable HTTP", on both faces: Server is the endpoint that clients reach,
// Upstream opens sessions at the servers behind. Both speak the two eras of the protocol.
//
// It decides nothing: who may do what is the gateway's to say. It forwards no header and no byte of a client's request that the
// gateway did not hand it, and it shows nobody a header of an upstream.
//
// Start at Server.ServeHTTP (the order of its checks is the guard against strangers), then Upstream.Open and session.Call.
package mcphttp
