package mcpstdio

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits for the process and kills what it left in its group. That is done before its pid is given up, so that the number
// can mean nobody else.
func awaitEnd(cmd *exec.Cmd, stopGuard func()) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	killGroup(cmd.Process.Pid)
	stopGuard()
	cmd.Wait() // how it ended is in its state
}
