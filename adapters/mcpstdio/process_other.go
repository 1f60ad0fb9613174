//go:build !unix

package mcpstdio

import (
	"os"
	"os/exec"
	"syscall"
)

// There are no process groups here: only the child itself is ended, and what it started ends when its pipes do.

func attributes() *syscall.SysProcAttr { return nil }

func keepOurs() {}

func endGroup(pid int) { killGroup(pid) }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

func awaitEnd(cmd *exec.Cmd, stopGuard func()) {
	cmd.Wait() // how it ended is in its state
	stopGuard()
}

func guard(int) (stop func()) { return func() {} }
