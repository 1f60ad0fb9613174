//go:build unix

package rig

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// ownGroup keeps a signal for the test's terminal away from the program, and makes killGroup reach what it starts.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// Alive reports whether a process runs. One that has ended and that nobody has collected yet does not, where /proc can tell.
func Alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !bytes.Contains(stat, []byte(") Z "))
}
