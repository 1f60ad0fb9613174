//go:build unix && !linux

package mcpstdio

import (
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitEnd waits for the process and kills what it left in its group.
func awaitEnd(cmd *exec.Cmd, stopGuard func()) {
	cmd.Wait() // how it ended is in its state
	stopGuard()
	killGroup(cmd.Process.Pid)
}
