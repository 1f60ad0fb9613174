// Package rig answers one question for the whole-system tests: how is the gateway's own program built, started, asked and stopped,
// as its users do it?
//
// It may not import anything else of this module: the tests that use it know the gateway only by its command line, its messages and
// the files that it writes. Everything is bounded in time, and whatever is started ends with the test that started it.
//
// Start reading at [Build] and [Start]; [Client] asks over HTTP and [StdioClient] over stdio, both by hand, byte for byte.
package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long anything here waits before it fails its test. It is no measure of speed.
const Patience = 30 * time.Second

// Build makes a program of a package of this module in dir and gives its path.
func Build(dir, pkg string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg))
	if runtime.GOOS == "windows" {
		out += ".exe"
	}
	cmd := exec.Command("go", "build", "-o", out, pkg)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
	}
	return out, nil
}

// Text is output that is read while it is being written.
type Text struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (o *Text) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return len(p), nil
}

// String is everything up to now.
func (o *Text) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Await waits until the text matches and gives the submatches, or nil when end closed or time passed before that.
func (o *Text) Await(re *regexp.Regexp, end <-chan struct{}, limit time.Duration) []string {
	timeout := time.After(limit)
	for last := false; ; {
		o.mu.Lock()
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed, text := o.changed, o.b.String()
		o.mu.Unlock()
		if m := re.FindStringSubmatch(text); m != nil || last {
			return m
		}
		select {
		case <-changed:
		case <-end:
			last = true
		case <-timeout:
			last = true
		}
	}
}

// Env is the environment of a started program: the few variables that every program needs, a home of its own, and what the test
// adds. Nothing else of this process goes in, so that a variable of the machine changes no result.
func Env(t testing.TB, add ...string) []string {
	t.Helper()
	env := []string{"HOME=" + t.TempDir()}
	for _, name := range []string{"PATH", "TMPDIR", "TEMP", "TMP", "SystemRoot"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, add...)
}

// Gateway is one running "aduana serve" that listens over HTTP.
type Gateway struct {
	// URL is the endpoint of the whole house, as the program printed it.
	URL            string
	Stdout, Stderr Text

	cmd  *exec.Cmd
	done chan struct{}
}

var listening = regexp.MustCompile(`listening on (http://\S+/mcp)`)

// Start runs "BINARY serve ARGS… --listen 127.0.0.1:0", with the policy as first of ARGS, in the policy's folder, and waits until it
// says that it listens. With the test it ends.
func Start(t testing.TB, binary string, env []string, args ...string) *Gateway {
	t.Helper()
	g, err := Launch(t, binary, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Launch is Start for a program that may refuse to start; the error then holds what it said.
func Launch(t testing.TB, binary string, env []string, args ...string) (*Gateway, error) {
	t.Helper()
	g := &Gateway{done: make(chan struct{})}
	g.cmd = exec.Command(binary, append(append([]string{"serve"}, args...), "--listen", "127.0.0.1:0")...)
	g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = env, &g.Stdout, &g.Stderr
	g.cmd.Dir = filepath.Dir(args[0])
	// A child that outlives a killed gateway holds these pipes; the wait for them must end all the same.
	g.cmd.WaitDelay = 2 * time.Second
	ownGroup(g.cmd)
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		g.cmd.Wait()
		close(g.done)
	}()
	t.Cleanup(g.Kill)
	m := g.Stderr.Await(listening, g.done, Patience)
	if m == nil {
		g.Kill()
		return nil, fmt.Errorf("aduana %s did not begin to listen (%s); it said:\n%s", strings.Join(g.cmd.Args[1:], " "), g.cmd.ProcessState, g.Stderr.String())
	}
	g.URL = m[1]
	return g, nil
}

// PID is the gateway's process id.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// Done is closed when the process has ended.
func (g *Gateway) Done() <-chan struct{} { return g.done }

// Kill ends the process at once, as kill -9 does, and waits for that. What it has started must end by itself.
func (g *Gateway) Kill() {
	g.cmd.Process.Kill()
	<-g.done
}

// Stop asks the process to end, waits, and gives its exit code. One that does not end in time is killed, and fails the test.
func (g *Gateway) Stop(t testing.TB) int {
	t.Helper()
	g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.done:
	case <-time.After(Patience):
		g.Kill()
		t.Errorf("the gateway did not stop in %s; it said:\n%s", Patience, g.Stderr.String())
	}
	return g.cmd.ProcessState.ExitCode()
}

// Result is what a program that ended by itself left.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a program to its end, in a process group of its own, which is killed when it takes too long.
func Run(t testing.TB, env []string, limit time.Duration, program string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// StdioClient is a client that started "aduana serve --stdio" itself, as desktop clients do.
type StdioClient struct {
	Stderr Text

	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte
	done  chan struct{}
}

// StartStdio runs "BINARY serve ARGS… --stdio", with the policy as first of ARGS, in the policy's folder. With the test it ends.
func StartStdio(t testing.TB, binary string, env []string, args ...string) *StdioClient {
	t.Helper()
	c := &StdioClient{lines: make(chan []byte, 64), done: make(chan struct{})}
	c.cmd = exec.Command(binary, append(append([]string{"serve"}, args...), "--stdio")...)
	c.cmd.Env, c.cmd.Stderr = env, &c.Stderr
	c.cmd.Dir = filepath.Dir(args[0])
	c.cmd.WaitDelay = 2 * time.Second
	ownGroup(c.cmd)
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A pipe of our own: that of StdoutPipe may be closed by Wait before the last line was read.
	out, w := io.Pipe()
	c.cmd.Stdout, c.in = w, in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		br := bufio.NewReader(out)
		for {
			line, err := br.ReadBytes('\n')
			if err != nil {
				return
			}
			c.lines <- bytes.TrimSuffix(line, []byte("\n"))
		}
	}()
	go func() {
		c.cmd.Wait()
		w.Close()
		close(c.done)
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.done
	})
	return c
}

// Ask sends one line and gives the response with this raw id; other messages on the way are dropped.
func (c *StdioClient) Ask(t testing.TB, id, line string) []byte {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("%v; the gateway said:\n%s", err, c.Stderr.String())
	}
	timeout := time.After(Patience)
	for {
		select {
		case got, ok := <-c.lines:
			if !ok {
				t.Fatalf("the gateway ended; it said:\n%s", c.Stderr.String())
			}
			if isResponse(got, id) {
				return got
			}
		case <-timeout:
			t.Fatalf("no answer to %s; the gateway said:\n%s", line, c.Stderr.String())
		}
	}
}

// Tell sends one line that nobody answers.
func (c *StdioClient) Tell(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// Close ends the input, as a client that goes away does, and gives the exit code.
func (c *StdioClient) Close(t testing.TB) int {
	t.Helper()
	c.in.Close()
	select {
	case <-c.done:
	case <-time.After(Patience):
		t.Errorf("the gateway did not end with its input; it said:\n%s", c.Stderr.String())
		c.cmd.Process.Kill()
		<-c.done
	}
	return c.cmd.ProcessState.ExitCode()
}
