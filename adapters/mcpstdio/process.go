package mcpstdio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// program is what to start.
type program struct {
	command string
	args    []string
	dir     string
	env     []string
}

// child is a running process, leader of its own group. Its exited is closed when it was waited for and nothing of its group is
// left.
type child struct {
	pid     int
	stdin   *os.File
	stdout  *os.File
	stderr  *os.File
	exited  chan struct{}
	outcome string // how it ended; set before exited closes
}

// straggle is how long output is still read after the process has ended. The pipes end with the last process that holds them; one
// that left the group may hold them for ever.
const straggle = 300 * time.Millisecond

// start runs p. Nothing is inherited but the three pipes. The error says what to do and names the command by its last element.
func start(p program) (*child, error) {
	base := filepath.Base(p.command)
	path, err := locate(p)
	if err != nil {
		return nil, fmt.Errorf("command %q: %w", base, err)
	}
	var ends []*os.File
	closeAll := func() {
		for _, f := range ends {
			f.Close()
		}
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("command %q: no pipe: %w", base, err)
		}
		ends = append(ends, r, w)
	}
	c := &child{stdin: ends[1], stdout: ends[2], stderr: ends[4], exited: make(chan struct{})}
	cmd := &exec.Cmd{Path: path, Args: append([]string{p.command}, p.args...), Dir: p.dir, Env: p.env,
		Stdin: ends[0], Stdout: ends[3], Stderr: ends[5], SysProcAttr: attributes()}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean: all of ours
	}
	started := make(chan error)
	go func() {
		// On Linux the kernel kills the child when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG), so this
		// goroutine keeps its thread until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		keepOurs()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		awaitEnd(cmd, guard(c.pid))
		c.outcome = cmd.ProcessState.String()
		close(c.exited)
	}()
	err = <-started
	for _, i := range [...]int{0, 3, 5} {
		ends[i].Close()
	}
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("command %q did not start: %w", base, reason(err))
	}
	return c, nil
}

// locate finds the command: by PATH when it is a bare name, otherwise where it says, from the directory that it will run in.
func locate(p program) (string, error) {
	if p.dir != "" {
		if info, err := os.Stat(p.dir); err != nil || !info.IsDir() {
			return "", errors.New("its cwd is no directory; create it or correct cwd")
		}
	}
	path := p.command
	if strings.ContainsRune(path, '/') || strings.ContainsRune(path, filepath.Separator) {
		if !filepath.IsAbs(path) && p.dir != "" {
			path = filepath.Join(p.dir, path)
		}
	}
	found, err := exec.LookPath(path)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", errors.New("not found; install it, or write its absolute path in the policy")
	case errors.Is(err, exec.ErrDot):
		return "", errors.New("found only in the current directory, which is not searched; write its absolute path in the policy")
	case err != nil:
		return "", fmt.Errorf("cannot be run: %w", reason(err))
	}
	// cmd.exe reads a batch file's arguments once more, by its own rules; what reaches the program is not what the policy says.
	if ext := strings.ToLower(filepath.Ext(found)); runtime.GOOS == "windows" && (ext == ".bat" || ext == ".cmd") {
		return "", errors.New("is a batch file, whose arguments cannot be passed as they are; name the program that it starts")
	}
	if !filepath.IsAbs(found) {
		if found, err = filepath.Abs(found); err != nil {
			return "", reason(err)
		}
	}
	return found, nil
}

// reason takes the path out of an error.
func reason(err error) error {
	var path *fs.PathError
	var run *exec.Error
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &run):
		return run.Err
	}
	return err
}

// within waits for a channel, at most so long.
func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// stop ends the process: its input ends, then its group is asked to end, then it is killed, with a wait after each.
func (c *child) stop(grace time.Duration) error {
	c.stdin.Close()
	if within(c.exited, grace) {
		return nil
	}
	endGroup(c.pid)
	if within(c.exited, grace) {
		return nil
	}
	killGroup(c.pid)
	if within(c.exited, grace+3*time.Second) {
		return nil
	}
	return fmt.Errorf("process %d does not end although it was killed", c.pid)
}
