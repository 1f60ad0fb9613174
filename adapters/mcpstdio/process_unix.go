//go:build unix

package mcpstdio

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// keepOurs sees to it that no descriptor of ours reaches a child. Go marks those that it opens; what the gateway itself was started
// with (a shell's redirections, a service manager's sockets) is marked here.
func keepOurs() {
	const first = 3
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		for fd := first; fd < 1024; fd++ {
			syscall.CloseOnExec(fd)
		}
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

func endGroup(pid int)  { syscall.Kill(-pid, syscall.SIGTERM) }
func killGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// guard starts a process that waits for the gateway's end and then kills the group. The kernel's own death signal reaches the
// child alone, and only on Linux; a wrapper's server would live on. A shell is the smallest program that can do it; where there is
// none (a bare container), the death signal has to do.
func guard(pid int) (stop func()) {
	r, w, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", `read -r _; kill -s KILL -- "-$0"`, strconv.Itoa(pid)},
		Dir: "/", Env: []string{}, Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	err = cmd.Start()
	r.Close()
	if err != nil {
		w.Close()
		return func() {}
	}
	return func() {
		// Killed first: it would take the end of its input for the gateway's.
		cmd.Process.Kill()
		cmd.Wait()
		w.Close()
	}
}
