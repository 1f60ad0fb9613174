//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package auditfile

import (
	"errors"
	"os"
)

// openLocked refuses: without a lock two processes could write into one chain.
func openLocked(string) (*os.File, error) {
	return nil, errors.New("this platform has no file locks that end with the process; use the audit sink stderr")
}
