package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// target is one endpoint under load and the processes behind it.
type target struct {
	name   string
	addr   string // HOST:PORT
	key    string // bearer key
	prefix string // of exposed tool names
	cmd    *exec.Cmd
	stdin  io.Closer
}

func (t *target) tool(base string) string { return t.prefix + base }

func (t *target) pid() int { return t.cmd.Process.Pid }

// launch starts a process and waits for "listening on http://HOST:PORT/mcp" on
// its stderr, which also goes to a file in dir.
func launch(ctx context.Context, dir, name string, env []string, program string, args ...string) (*target, error) {
	logFile, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = attributes()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer logFile.Close()
		br := bufio.NewReader(io.TeeReader(stderr, logFile))
		for {
			line, err := br.ReadString('\n')
			if _, rest, ok := strings.Cut(line, "listening on http://"); ok {
				addr, _, _ := strings.Cut(strings.TrimSpace(rest), "/")
				select {
				case ready <- addr:
				default:
				}
			}
			if err != nil {
				close(ready)
				return
			}
		}
	}()
	t := &target{name: name, cmd: cmd, stdin: stdin}
	select {
	case addr, ok := <-ready:
		if ok {
			t.addr = addr
			return t, nil
		}
		err = errors.New("it ended")
	case <-time.After(60 * time.Second):
		err = errors.New("it did not say where it listens within 60 s")
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.stop()
	text, _ := os.ReadFile(logFile.Name())
	return nil, fmt.Errorf("%s: %w\n%.2000s", name, err, text)
}

func (t *target) stop() {
	if t.cmd == nil {
		return
	}
	t.stdin.Close()
	t.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { t.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.cmd.Process.Kill()
		<-ended
	}
	t.cmd = nil
}

// bench is one run of the program.
type bench struct {
	o        options
	dir      string
	names    []string
	upstream *target
	targets  map[string]*target
	samples  []sample
	starts   []startSample
	memory   []memorySample
}

func (b *bench) wants(name string) bool {
	for _, n := range b.names {
		if n == name {
			return true
		}
	}
	return false
}

func (b *bench) stop() {
	for _, t := range b.targets {
		if t != b.upstream {
			t.stop()
		}
	}
	if b.upstream != nil {
		b.upstream.stop()
	}
}

// startTargets starts the upstream and everything in front of it.
func (b *bench) startTargets(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	size := []string{"-tools", fmt.Sprint(b.o.tools), "-page", fmt.Sprint(b.o.page)}
	b.upstream, err = launch(ctx, b.dir, "upstream", nil, self, append([]string{"-role", "upstream"}, size...)...)
	if err != nil {
		return err
	}
	for _, name := range b.names {
		var t *target
		switch name {
		case "direct":
			direct := *b.upstream
			direct.name, direct.cmd = "direct", nil
			t = &direct
		case "floor":
			args := []string{"-role", "floor", "-to", "http://" + b.upstream.addr}
			if b.o.floorPool {
				args = append(args, "-floor-pool")
			}
			t, err = launch(ctx, b.dir, name, nil, self, args...)
		case "aduana":
			t, err = b.startAduana(ctx, name, httpTransport(b.upstream.addr), b.o.tools, 1)
		case "aduana-stdio":
			t, err = b.startAduana(ctx, name, map[string]any{"kind": "mcp-stdio", "command": self, "args": append([]string{"-role", "stdio"}, size...)}, b.o.tools, 1)
		}
		if err != nil {
			return err
		}
		b.targets[name] = t
	}
	return nil
}

func httpTransport(addr string) map[string]any {
	return map[string]any{"kind": "mcp-http", "url": "http://" + addr + "/mcp"}
}

func principalKey(i int) string { return fmt.Sprintf("bench-key-of-principal-%02d", i) }

// startAduana writes a policy, lets aduana make its lock, and serves both, audit on.
func (b *bench) startAduana(ctx context.Context, name string, transport map[string]any, tools, principals int) (*target, error) {
	policy, lock, err := b.lock(ctx, name, transport, tools, principals)
	if err != nil {
		return nil, err
	}
	return b.serveAduana(ctx, name, policy, lock, principals)
}

// lock writes a policy and has aduana accept what the upstream lists, into a lock of its own folder. The upstream must list as many
// tools as the policy maps.
func (b *bench) lock(ctx context.Context, name string, transport map[string]any, tools, principals int) (policy, lock string, err error) {
	dir := filepath.Join(b.dir, name+"-files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", "", err
	}
	policy = filepath.Join(dir, "policy.yaml")
	if err := writePolicy(policy, transport, tools, principals); err != nil {
		return "", "", err
	}
	t, err := launch(ctx, b.dir, name+"-discover", b.keys(principals), b.o.aduana, "serve", policy, "--discover", "--listen", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	t.stop()
	return policy, filepath.Join(dir, "aduana.lock.yaml"), nil
}

// smallUpstream is an upstream that lists only so many tools; the caller stops it.
func (b *bench) smallUpstream(ctx context.Context, tools int) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch(ctx, b.dir, fmt.Sprintf("upstream-%d", tools), nil, self, "-role", "upstream", "-tools", fmt.Sprint(tools), "-page", fmt.Sprint(b.o.page))
}

func (b *bench) keys(principals int) []string {
	env := []string{"BENCH_UPSTREAM_KEY=bench-upstream-key"}
	for i := range principals {
		env = append(env, fmt.Sprintf("BENCH_KEY_%02d=%s", i, principalKey(i)))
	}
	return env
}

func (b *bench) serveAduana(ctx context.Context, name, policy, lock string, principals int) (*target, error) {
	t, err := launch(ctx, b.dir, name, b.keys(principals), b.o.aduana, "serve", policy, "--lock", lock, "--listen", "127.0.0.1:0",
		"--audit", "file:"+filepath.Join(b.dir, name+".audit"))
	if err != nil {
		return nil, err
	}
	t.key, t.prefix = principalKey(0), "up__"
	return t, nil
}

// writePolicy grants every tool to the first principal. Every further one gets
// all capabilities but one of its own, so that no two views are equal.
func writePolicy(path string, transport map[string]any, tools, principals int) error {
	type obj = map[string]any
	capability := func(i int) string { return fmt.Sprintf("bench.part-%d", i%max(1, principals)) }
	mapped := make([]obj, tools)
	for i := range mapped {
		c := capability(i)
		if i < 2 {
			c = "bench.base"
		}
		mapped[i] = obj{"name": toolName(i), "capability": c}
	}
	caps := []obj{{"id": "bench.base"}}
	var all []string
	for i := range max(1, principals) {
		caps = append(caps, obj{"id": capability(i)})
		all = append(all, capability(i))
	}
	var issuers, grants []obj
	for i := range principals {
		id := fmt.Sprintf("ci-%02d", i)
		issuers = append(issuers, obj{"id": id, "kind": "static-key", "subject": "bench",
			"secret": obj{"ref": fmt.Sprintf("env://BENCH_KEY_%02d", i)}, "attributes": obj{"team": "bench"}})
		granted := []string{"bench.base"}
		for j, c := range all {
			if i == 0 || j != i {
				granted = append(granted, c)
			}
		}
		grants = append(grants, obj{"to": obj{"issuer": id, "attributes": obj{"team": "bench"}}, "capabilities": granted,
			"using": "bench", "limits": obj{"calls": 1_000_000_000, "per": "24h"}})
	}
	return writeJSON(path, obj{"version": 1, "capabilities": caps,
		"upstreams":  []obj{{"id": "up", "transport": transport, "tools": mapped}},
		"accounts":   []obj{{"id": "bench", "secret": obj{"ref": "env://BENCH_UPSTREAM_KEY"}}},
		"principals": obj{"issuers": issuers}, "grants": grants})
}

// writeJSON writes JSON, which is YAML too.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}
