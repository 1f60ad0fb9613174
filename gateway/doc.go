// Package gateway answers "in which order": it holds the one flow that every surface uses, and the ports to everything that is
// not pure. Authenticate, look the name up, decide, check, ask, reserve, record the intent, call, record the outcome.
//
// It knows MCP's messages and no technology: no HTTP, no files, no database. Ports are small and belong to this package; each
// has its contract in prose and one suite in gatewaytest that every adapter runs.
//
// Start at Gateway.Handle (what a client may ask), then call.go (the flow of one tools/call, step by step), then ports.go.
package gateway
