// Package mcpstdio answers "how does MCP travel over standard input and output", on both sides of the gateway: Upstream starts a
// child process and speaks to it as a client, Serve speaks to one client as a server.
//
// It decides nothing about who may do what, knows no shell, and takes no command from a request: what is started stands in the
// policy. A frame is one line, whatever the other side does. What a child writes is untrusted bytes: it is matched to a call only
// when it echoes that call's own id exactly, everything else is counted and dropped, and memory is bounded throughout.
//
// Start at Upstream.Open, then session.read (what comes from a child) and session.Call; for the server at Serve.
package mcpstdio
