//go:build unix

package rig

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup keeps a signal for the test's terminal away from the program, and makes killGroup reach what it starts.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// Alive reports whether a process exists.
func Alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
