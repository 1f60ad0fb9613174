// Command aduana is an MCP gateway and the questions that can be asked of its policy before it runs. It owns what a terminal needs and
// nothing else: flags, texts, exit codes, and the list of adapters. It decides nothing; access does, and review explains it.
//
// Start at root.go, which lists the commands, and printer.go, which holds the rules of all output.
package main

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

func main() {
	// Half of Go's usual room for garbage: with thousands of tools it is the larger part of what the process holds. The ballast is
	// memory that nobody touches, so that it is never resident; it gives a small process room enough not to collect all the time.
	debug.SetGCPercent(50)
	ballast := make([]byte, 16<<20)
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// run is the whole program but for the process around it. It gives the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	p := &printer{out: stdout, err: stderr}
	root := newRoot(p)
	root.SetArgs(args)
	command, err := root.ExecuteC()
	return p.end(command, args, err)
}
