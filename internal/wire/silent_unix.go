//go:build unix

package wire

import (
	"net"
	"syscall"
)

// silent reports whether an idle connection is open and has nothing to say: a server that closed it, or speaks unasked, shows up
// as readable. Nothing is taken from the connection.
func silent(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true // never wait
	})
	return err == nil && quiet
}
