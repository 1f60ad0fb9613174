// Command mcpfake is the scriptable MCP server of package upstream as a
// program: over stdio, or over HTTP with -http. It decides nothing itself;
// start reading at upstream.Main. -help lists the flags.
package main

import (
	"os"

	"aduana/test/upstream"
)

func main() {
	upstream.MainIfChild()
	os.Exit(upstream.Main(os.Args[1:]))
}
