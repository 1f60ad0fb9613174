package cases_test

import (
	"fmt"
	"os"
)

// babblerArg as first argument makes this test binary a server that writes nothing but a log to its output.
const babblerArg = "cases-babbler"

// babble adds a byte to the file of its argument, for each start one, and talks.
func babble(args []string) int {
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	f.WriteString("x")
	f.Close()
	for i := range 150 {
		fmt.Printf("%d: starting, please wait\n", i)
	}
	// Ends when the gateway ends its input.
	var b [1]byte
	for {
		if _, err := os.Stdin.Read(b[:]); err != nil {
			return 0
		}
	}
}
