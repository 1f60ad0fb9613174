//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package auditfile

import (
	"errors"
	"os"
	"syscall"
)

// openLocked opens or makes the file for this process alone. The lock ends with the process, however that ends.
func openLocked(path string) (*os.File, error) {
	// No link is followed: whoever may change the link would choose what is written to. Nor is a pipe waited for.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errors.New("a symbolic link; name the file itself")
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkMode(path, info, 0o022, "write to")
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process writes to it; give each process a file of its own")
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
