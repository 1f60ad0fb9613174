package capabilities_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain asks more of every law than rapid's hundred cases, and has no failure written into the tree (the output names the seed);
// the command line can still ask otherwise.
func TestMain(m *testing.M) {
	if flag.Set("rapid.checks", "3000") != nil || flag.Set("rapid.nofailfile", "true") != nil {
		panic("rapid has no such flags any more")
	}
	// Set before parsing, so that a flag on the command line wins.
	flag.Parse()
	os.Exit(m.Run())
}
