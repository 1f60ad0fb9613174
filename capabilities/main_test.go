package capabilities_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain asks more of every law than rapid's hundred cases; the command line can still ask otherwise.
func TestMain(m *testing.M) {
	checks := flag.Lookup("rapid.checks")
	if checks == nil || flag.Set("rapid.checks", "3000") != nil {
		os.Exit(1)
	}
	// Set before parsing, so that a flag on the command line wins.
	flag.Parse()
	os.Exit(m.Run())
}
