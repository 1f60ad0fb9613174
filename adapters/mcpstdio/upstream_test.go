//go:build unix

package mcpstdio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aduana/adapters/mcpstdio"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/test/upstream"
)

func TestMain(m *testing.M) {
	upstream.MainIfChild()
	playIfAsked()
	os.Exit(m.Run())
}

// logs keeps what was logged, and may be read meanwhile.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// house is an adapter with what it logs, for children of test/upstream.
type house struct {
	t    testing.TB
	log  *logs
	opts mcpstdio.UpstreamOptions
}

func newHouse(t testing.TB) *house {
	h := &house{t: t, log: &logs{}}
	h.opts = mcpstdio.UpstreamOptions{Product: mcp.Implementation{Name: "aduana", Version: "test"},
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Grace: 300 * time.Millisecond}
	return h
}

// target is an upstream that runs this test as mcpfake with flags.
func (h *house) target(flags ...string) gateway.Target {
	h.t.Helper()
	program, args, err := upstream.Command(flags...)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.command(program, args...)
}

func (h *house) command(program string, args ...string) gateway.Target {
	u := &policy.Upstream{ID: "fake", Transport: policy.TransportStdio, Command: program}
	// A program built with -race sleeps for a second before it ends, unless told otherwise.
	u.Env = []policy.NamedValue{{Name: "GORACE", Value: policy.Value{Literal: "atexit_sleep_ms=0"}}}
	for _, a := range args {
		u.Args = append(u.Args, policy.Value{Literal: a})
	}
	return gateway.Target{Upstream: u, Binding: "sha256:binding", Changed: func() {}}
}

// shell is a child that is a script: the hostile ones.
func (h *house) shell(script string) gateway.Target {
	h.t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		h.t.Skip("no /bin/sh here")
	}
	return h.command("/bin/sh", "-c", script)
}

// ruffian is an upstream that runs this test as a hostile server.
func (h *house) ruffian(args ...string) gateway.Target {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	return h.command(self, append([]string{hostileRole}, args...)...)
}

// open opens a session, which must work.
func (h *house) open(t gateway.Target) gateway.UpstreamSession {
	h.t.Helper()
	s, err := h.tryOpen(t)
	if err != nil {
		h.t.Fatalf("open: %v\n%s", err, h.log)
	}
	h.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			h.t.Errorf("close: %v", err)
		}
	})
	return s
}

func (h *house) tryOpen(t gateway.Target) (gateway.UpstreamSession, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return mcpstdio.NewUpstream(h.opts).Open(ctx, t)
}

// called is what came of one call.
type called struct {
	gateway.Answer
	text string // of the first block of content
	raw  string // the whole response
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// call calls a tool with raw arguments, "" for none.
func call(ctx context.Context, s gateway.UpstreamSession, tool, arguments string, change ...func(*gateway.UpstreamCall)) called {
	if arguments != "" {
		arguments = `"arguments":` + arguments + `,`
	}
	request := new(jsonrpc.Message)
	if err := request.Scan([]byte(`{"jsonrpc":"2.0","id":"client","method":"tools/call","params":{"name":"shown",`+arguments+modernMeta+`}}`), jsonrpc.Limits{}); err != nil {
		panic(err)
	}
	var got called
	c := &gateway.UpstreamCall{Request: request, Name: tool, Response: new(jsonrpc.Message)}
	for _, f := range change {
		f(c)
	}
	got.Answer = s.Call(ctx, c)
	got.raw = string(c.Response.Raw)
	var r struct {
		Result struct{ Content []struct{ Text string } }
	}
	json.Unmarshal(c.Response.Raw, &r)
	if len(r.Result.Content) > 0 {
		got.text = r.Result.Content[0].Text
	}
	return got
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func soon() context.Context { return within(5 * time.Second) }

// wantText fails the test unless the call was answered so.
func wantText(t testing.TB, c called, want string) {
	t.Helper()
	if c.Failure != nil {
		t.Fatalf("failed: %v", c.Failure)
	}
	if c.Sent != gateway.Answered || c.text != want {
		t.Fatalf("got %v %q, want %q", c.Sent, c.text, want)
	}
}

func wantFailure(t testing.TB, c called, class gateway.FailureClass, sent gateway.Sent) {
	t.Helper()
	if c.Failure == nil || c.Failure.Class != class || c.Sent != sent {
		t.Fatalf("got sent=%d failure=%v, want sent=%d %s", c.Sent, c.Failure, sent, class)
	}
}

// alive says whether a process runs: a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err != nil && !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func gone(t testing.TB, pid int, in time.Duration) {
	t.Helper()
	for until := time.Now().Add(in); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEras(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		want  mcp.Era
	}{
		{"both", nil, mcp.Modern},
		{"modern only", []string{"-era", "modern"}, mcp.Modern},
		{"legacy says not found", []string{"-era", "legacy", "-probe", "notfound"}, mcp.Legacy},
		{"legacy says unsupported version", []string{"-era", "legacy", "-probe", "unsupported"}, mcp.Legacy},
		{"legacy lists legacy versions", []string{"-era", "legacy", "-probe", "legacylist"}, mcp.Legacy},
		{"legacy does not answer", []string{"-era", "legacy", "-probe", "hang"}, mcp.Legacy},
		{"legacy starts slowly", []string{"-era", "legacy", "-delay", "400ms"}, mcp.Legacy},
		{"modern starts slowly", []string{"-era", "modern", "-delay", "400ms"}, mcp.Modern},
		{"banner", []string{"-banner", "welcome to the server"}, mcp.Modern},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.opts.ProbeWait = 200 * time.Millisecond
			s := h.open(h.target(append(c.flags, "-tools", "echo")...))
			if s.Era() != c.want {
				t.Errorf("era %v, want %v", s.Era(), c.want)
			}
			wantText(t, call(soon(), s, "echo", `{"text":"hi"}`), "hi")
			tools, err := s.Tools(soon())
			if err != nil || len(tools) != 1 {
				t.Errorf("tools: %v, %v", tools, err)
			}
		})
	}
}
