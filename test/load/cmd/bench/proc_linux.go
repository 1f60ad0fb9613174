package main

import "syscall"

// attributes makes a child its own process group that dies with the bench.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
