//go:build unix

package mcpstdio_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"aduana/adapters/mcpstdio"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/policy"
	"aduana/test/upstream"
)

// counted closes a session and gives what it says that it skipped and dropped.
func counted(t *testing.T, h *house, s gateway.UpstreamSession) (skipped, strays int) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`skipped_lines=(\d+) stray_messages=(\d+)`).FindStringSubmatch(h.log.String())
	if m == nil {
		t.Fatalf("no counts in the log:\n%s", h.log)
	}
	return number(t, m[1]), number(t, m[2])
}

func TestC10LongLines(t *testing.T) {
	const frame = 1 << 20
	h := newHouse(t)
	h.opts.MaxFrame = frame
	t.Run("ordinary sizes pass unchanged", func(t *testing.T) {
		s := h.open(h.target("-tools", "dump,echo"))
		for _, n := range []int{0, 65_000, 70_000, 300_000} {
			got := call(soon(), s, "dump", fmt.Sprintf(`{"n":%d}`, n))
			if got.Failure != nil || len(got.text) != n {
				t.Fatalf("%d bytes: got %d, %v", n, len(got.text), got.Failure)
			}
		}
	})
	t.Run("the cap is exact", func(t *testing.T) {
		for _, limit := range []int{2_000, 100_000, frame} {
			s := h.open(h.target("-tools", "dump,echo"))
			atMost := func(c *gateway.UpstreamCall) { c.MaxBytes = limit }
			// Find what stands around the text, then ask for exactly one byte less, the cap, and one more.
			around := len(call(soon(), s, "dump", `{"n":1000}`).raw) - 1000
			for _, d := range []int{-1, 0, 1} {
				got := call(soon(), s, "dump", fmt.Sprintf(`{"n":%d}`, limit+d-around), atMost)
				// Ids grow by one digit at most; the line may be one byte longer.
				if d < 0 && got.Failure == nil && len(got.raw) != limit-1 {
					t.Fatalf("the measure is off: %d bytes, want %d", len(got.raw), limit-1)
				}
				if over := got.Failure != nil; over != (d > 0) {
					t.Fatalf("cap %d%+d: %v", limit, d, got.Failure)
				}
				if d > 0 {
					wantFailure(t, got, gateway.FailedTooLarge, gateway.Answered)
				}
			}
			wantText(t, call(soon(), s, "echo", `{"text":"still here"}`), "still here")
		}
	})
	t.Run("a flood fails its own call at once and nobody else", func(t *testing.T) {
		s := h.open(h.target("-tools", "flood,sleep"))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		beside := make(chan called, 1)
		go func() { beside <- call(soon(), s, "sleep", `{"ms":50}`) }()
		got := call(soon(), s, "flood", `{"n":67108864}`)
		wantFailure(t, got, gateway.FailedTooLarge, gateway.Answered)
		if !strings.Contains(got.Failure.Detail, fmt.Sprint(frame)) {
			t.Errorf("the failure does not name the cap: %v", got.Failure)
		}
		wantText(t, <-beside, "slept")
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*frame {
			t.Errorf("allocated %d bytes for a flood over a cap of %d", grown, frame)
		}
		wantText(t, call(soon(), s, "sleep", `{"ms":1}`), "slept")
	})
	t.Run("an id that comes last is found", func(t *testing.T) {
		s := h.open(h.ruffian())
		wantFailure(t, call(soon(), s, "tail", ""), gateway.FailedTooLarge, gateway.Answered)
		wantText(t, call(soon(), s, "ping", ""), "pong")
		wantText(t, call(soon(), s, "huge notice", ""), "after it")
	})
	t.Run("a line that nobody can be told for ends the session", func(t *testing.T) {
		s := h.open(h.ruffian())
		beside := make(chan called, 1)
		go func() { beside <- call(soon(), s, "never", "") }()
		time.Sleep(100 * time.Millisecond) // the other call must be pending
		wantFailure(t, call(soon(), s, "anonymous", ""), gateway.FailedTooLarge, gateway.MaybeSent)
		wantFailure(t, <-beside, gateway.FailedTooLarge, gateway.MaybeSent)
		<-s.Done()
	})
}

func TestC11NoisyStderr(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	target := h.target("-tools", "noisy,crash", "-stderr", "starting up with "+upstream.Canary)
	target.Material = gateway.Material{Secret: gateway.NewSecret(upstream.Canary)}
	s := h.open(target)
	for _, arguments := range []string{`{}`, `{"cr":true}`, `{}`} {
		if got := call(soon(), s, "noisy", arguments); got.Failure != nil {
			t.Fatalf("%s: %v", arguments, got.Failure)
		}
	}
	wantFailure(t, call(soon(), s, "crash", ""), gateway.FailedExited, gateway.MaybeSent)
	s.Close()
	text := h.log.String()
	if strings.Contains(text, upstream.Canary) {
		t.Error("the log holds the canary")
	}
	if !strings.Contains(text, "starting up with [redacted]") || !strings.Contains(text, "upstream=fake") {
		t.Error("the log does not hold the child's lines, tagged with its upstream")
	}
	for _, l := range strings.Split(text, "\n") {
		if len(l) > 2*(64<<10)+1000 { // quoting may double the kept end
			t.Errorf("a line of the log has %d bytes", len(l))
		}
	}
}

func TestC12StubbornChild(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s, err := h.tryOpen(h.target("-tools", "echo,pid,spawn", "-ignore-eof", "-ignore-term"))
	if err != nil {
		t.Fatal(err)
	}
	child := number(t, call(soon(), s, "pid", "").text)
	grandchild := number(t, call(soon(), s, "spawn", `{"ms":60000}`).text)
	started := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took < 600*time.Millisecond || took > 3*time.Second {
		t.Errorf("closing took %v, want the two waits of 300 ms and little more", took)
	}
	if err := syscall.Kill(child, 0); err != syscall.ESRCH {
		t.Errorf("the child is still there, or a zombie: %v", err)
	}
	gone(t, grandchild, time.Second)
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestC12PoliteChildEndsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.opts.Grace = 5 * time.Second
	s := h.open(h.target("-tools", "pid,spawn"))
	grandchild := number(t, call(soon(), s, "spawn", `{"ms":60000}`).text)
	started := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("closing took %v although the child ends with its input", took)
	}
	gone(t, grandchild, time.Second)
}

// A process that leaves the group is out of reach, but must not hold up the close with the pipes that it holds.
func TestC12GrandchildOutOfReach(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.shell("")
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	program, args, err := upstream.Command("-tools", "echo")
	if err != nil {
		t.Fatal(err)
	}
	s := h.open(h.command("/bin/sh", append([]string{"-c", `setsid sleep 5 & exec "$0" "$@"`, program}, args...)...))
	wantText(t, call(soon(), s, "echo", `{"text":"hi"}`), "hi")
	started := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("closing took %v", took)
	}
}

func TestC12DeathFailsEveryPendingCall(t *testing.T) {
	for _, tool := range []string{"crash", "closeout"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			s := h.open(h.target("-tools", "hang,echo,pid,"+tool))
			pid := number(t, call(soon(), s, "pid", "").text)
			results := make(chan called, 4)
			for range 3 {
				go func() { results <- call(context.Background(), s, "hang", "") }()
			}
			time.Sleep(100 * time.Millisecond)
			started := time.Now()
			go func() { results <- call(context.Background(), s, tool, "") }()
			for range 4 {
				wantFailure(t, <-results, gateway.FailedExited, gateway.MaybeSent)
			}
			if took := time.Since(started); took > time.Second {
				t.Errorf("took %v", took)
			}
			select {
			case <-s.Done():
			case <-time.After(time.Second):
				t.Error("the session is not marked as done")
			}
			wantFailure(t, call(soon(), s, "echo", ""), gateway.FailedExited, gateway.NotSent)
			gone(t, pid, 3*time.Second)
		})
	}
}

func TestC13EnvironmentFromNothing(t *testing.T) {
	for name, v := range map[string]string{"GATEWAY_SIGNING_KEY": "CANARY1", "AWS_SECRET_ACCESS_KEY": "CANARY2", "HTTPS_PROXY": "http://u:CANARY3@p",
		"LD_LIBRARY_PATH": "/nowhere", "INHERITED": "yes", "TZ": "Asia/Tokyo"} {
		t.Setenv(name, v)
	}
	h := newHouse(t)
	environment := func(change func(*gateway.Target)) map[string]string {
		target := h.target("-tools", "printenv")
		target.Upstream.Env = nil
		change(&target)
		got := map[string]string{}
		for _, l := range strings.Split(strings.TrimSpace(call(soon(), h.open(target), "printenv", "").text), "\n") {
			name, v, _ := strings.Cut(l, "=")
			got[name] = v
		}
		return got
	}
	base := map[string]string{}
	for _, n := range []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ"} {
		if v, ok := os.LookupEnv(n); ok {
			base[n] = v
		}
	}
	with := func(more ...string) map[string]string {
		out := map[string]string{}
		for n, v := range base {
			out[n] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	secret := func(text string) gateway.Material { return gateway.Material{Secret: gateway.NewSecret(text)} }
	for _, c := range []struct {
		name   string
		change func(*gateway.Target)
		want   map[string]string
	}{
		{"nothing", func(*gateway.Target) {}, with()},
		{"inherit", func(t *gateway.Target) { t.Upstream.Inherit = []string{"INHERITED", "NOT_SET_ANYWHERE"} }, with("INHERITED", "yes")},
		{"literals stay literal", func(t *gateway.Target) {
			t.Upstream.Env = []policy.NamedValue{{Name: "A", Value: policy.Value{Literal: "p$a$$word ${PATH}"}}, {Name: "EMPTY"}, {Name: "TZ", Value: policy.Value{Literal: "UTC"}}}
		}, with("A", "p$a$$word ${PATH}", "EMPTY", "", "TZ", "UTC")},
		{"reference", func(t *gateway.Target) {
			t.Upstream.Env = []policy.NamedValue{{Name: "TOKEN", Value: policy.Value{Ref: "env://ONE", IsRef: true}}}
			t.Settings = map[string]gateway.Material{"env://ONE": secret("one")}
		}, with("TOKEN", "one")},
		{"credential under the usual name", func(t *gateway.Target) { t.Material = secret("c") }, with("MCP_UPSTREAM_CREDENTIAL", "c")},
		{"credential under a name", func(t *gateway.Target) {
			t.Material, t.Upstream.Deliver = secret("c"), policy.Deliver{Kind: policy.DeliverEnv, Name: "KEY"}
		}, with("KEY", "c")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := environment(c.change); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestC13WhatDoesNotResolveDoesNotStart(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct {
		name   string
		change func(*gateway.Target)
		want   string
	}{
		{"env", func(t *gateway.Target) {
			t.Upstream.Env = []policy.NamedValue{{Name: "TOKEN", Value: policy.Value{Ref: "env://NOT_SET", IsRef: true}}}
		}, `upstream "fake" was not started: env TOKEN: the reference "env://NOT_SET" was not resolved`},
		{"args", func(t *gateway.Target) {
			t.Upstream.Args = []policy.Value{{Ref: "env://NOT_SET", IsRef: true}}
		}, `upstream "fake" was not started: args 0: the reference "env://NOT_SET" was not resolved`},
		{"resolved to nothing", func(t *gateway.Target) {
			t.Upstream.Args = []policy.Value{{Ref: "env://NOT_SET", IsRef: true}}
			t.Settings = map[string]gateway.Material{"env://NOT_SET": {}}
		}, `upstream "fake" was not started: args 0: the reference "env://NOT_SET" was not resolved`},
		{"a credential that would be cut", func(t *gateway.Target) {
			t.Material.Secret = gateway.NewSecret("a\x00b")
		}, `upstream "fake" was not started: env "MCP_UPSTREAM_CREDENTIAL": a name holds no = and neither part holds a zero byte`},
	} {
		t.Run(c.name, func(t *testing.T) {
			starts := filepath.Join(t.TempDir(), "starts")
			target := h.ruffian("starts=" + starts)
			c.change(&target)
			_, err := h.tryOpen(target)
			var f *gateway.Failure
			if f, _ = err.(*gateway.Failure); f == nil || f.Class != gateway.FailedDial || f.Detail != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if _, err := os.Stat(starts); err == nil {
				t.Error("it was started all the same")
			}
		})
	}
}

func TestC13NoOtherDescriptors(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "inherited-by-the-gateway"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := syscall.Dup(int(f.Fd())) // as a shell's redirection: not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	h := newHouse(t)
	got := call(soon(), h.open(h.target("-tools", "fds")), "fds", "")
	if got.Failure != nil || strings.Contains(got.text, "inherited-by-the-gateway") {
		t.Errorf("the child has a descriptor of the gateway: %v\n%s", got.Failure, got.text)
	}
}

func TestX06LinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	t.Run("skipped and counted", func(t *testing.T) {
		h := newHouse(t)
		s := h.open(h.target("-tools", "garbage,sleep", "-banner", "welcome"))
		beside := make(chan called, 1)
		go func() { beside <- call(soon(), s, "sleep", `{"ms":100}`) }()
		wantText(t, call(soon(), s, "garbage", ""), "after the garbage")
		wantText(t, <-beside, "slept")
		if skipped, _ := counted(t, h, s); skipped != 1+len(upstream.GarbageLines()) {
			t.Errorf("%d lines skipped, want the banner and %d", skipped, len(upstream.GarbageLines()))
		}
	})
	t.Run("glued to a reply", func(t *testing.T) {
		h := newHouse(t)
		s := h.open(h.target("-tools", "garbage,echo"))
		// What was glued is lost, and told as such; nothing is guessed out of it.
		wantFailure(t, call(within(300*time.Millisecond), s, "garbage", `{"glued":true}`), gateway.FailedTimeout, gateway.MaybeSent)
		wantText(t, call(soon(), s, "echo", `{"text":"next"}`), "next")
	})
	t.Run("a hundred in a row", func(t *testing.T) {
		h := newHouse(t)
		s := h.open(h.ruffian())
		wantText(t, call(soon(), s, "babble", `{"n":99}`), "babbled")
		wantText(t, call(soon(), s, "babble", `{"n":99}`), "babbled")
		wantText(t, call(soon(), s, "chatter", ""), "chattered")
		wantFailure(t, call(soon(), s, "babble", `{"n":100}`), gateway.FailedProtocol, gateway.MaybeSent)
		<-s.Done()
	})
	t.Run("redacted in the log, and cut", func(t *testing.T) {
		h := newHouse(t)
		target := h.target("-tools", "echo", "-banner", strings.Repeat(upstream.Canary, 1000))
		target.Material = gateway.Material{Secret: gateway.NewSecret(upstream.Canary)}
		h.open(target).Close()
		if text := h.log.String(); strings.Contains(text, "CANARY") || !strings.Contains(text, "skipped a line") {
			t.Errorf("log:\n%.2000s", text)
		}
	})
	for tool, want := range map[string]string{"id last": "last", "rare order": "rare", "crlf": "crlf", "unversioned": "right"} {
		t.Run(tool, func(t *testing.T) {
			wantText(t, call(soon(), newHouse(t).open(newHouse(t).ruffian()), tool, ""), want)
		})
	}
	t.Run("an answer that the scan refuses fails its call at once", func(t *testing.T) {
		got := call(soon(), newHouse(t).open(newHouse(t).ruffian()), "twice named", "")
		wantFailure(t, got, gateway.FailedProtocol, gateway.Answered)
	})
}

func TestX07LateAndForeignReplies(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.target("-tools", "late,strayids,sleep"))
	wantFailure(t, call(within(100*time.Millisecond), s, "late", `{"ms":300}`), gateway.FailedTimeout, gateway.MaybeSent)
	// The late answer comes while this one waits.
	wantText(t, call(soon(), s, "sleep", `{"ms":500}`), "slept")
	for range 3 {
		wantText(t, call(soon(), s, "strayids", ""), "for you")
	}
	wantText(t, call(soon(), s, "sleep", `{"ms":1}`), "slept")
	// One late; for each call three numbers or strings of others, one string of nobody, null (which is no result), and a second answer.
	skipped, strays := counted(t, h, s)
	if skipped != 3 || strays != 1+3*5 {
		t.Errorf("skipped %d and dropped %d, want 3 and 16", skipped, strays)
	}
}

func TestX08WrapperAndArguments(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.shell("")
	program, args, err := upstream.Command("-tools", "pid,args,echo", "-ignore-eof", "-name", `a&calc;$(id) %PATH% "C:\Dir With Space" *`)
	if err != nil {
		t.Fatal(err)
	}
	s := h.open(h.command("/bin/sh", append([]string{"-c", wrapped, program}, args...)...))
	server := number(t, call(soon(), s, "pid", "").text)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, server, time.Second)
	if !strings.Contains(h.log.String(), `status="signal: terminated"`) {
		t.Errorf("the group was not asked to end before it was killed:\n%s", h.log)
	}

	s = h.open(h.command(program, args...))
	var got []string
	if err := json.Unmarshal([]byte(call(soon(), s, "args", "").text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) < len(args) || !slices.Equal(got[len(got)-len(args):], args) {
		t.Errorf("got  %q\nwant %q", got, args)
	}
}

func TestX11ProgressIsForWhoAsked(t *testing.T) {
	t.Parallel()
	t.Run("two calls at once", func(t *testing.T) {
		s := newHouse(t).open(newHouse(t).target("-tools", "progress"))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				var inside, got atomic.Int32
				var over atomic.Bool
				c := call(soon(), s, "progress", `{"n":20,"ms":2}`, func(c *gateway.UpstreamCall) {
					c.Progress = func(m *jsonrpc.Message) {
						if inside.Add(1) != 1 || over.Load() {
							t.Error("progress at once, or after the end")
						}
						got.Add(1)
						inside.Add(-1)
					}
				})
				over.Store(true)
				wantText(t, c, "done")
				if got.Load() != 20 {
					t.Errorf("%d of 20 notifications", got.Load())
				}
			})
		}
		wg.Go(func() { // asked for none
			wantText(t, call(soon(), s, "progress", `{"n":5,"ms":2}`), "done")
		})
		wg.Wait()
	})
	t.Run("tokens of nobody", func(t *testing.T) {
		h := newHouse(t)
		s := h.open(h.ruffian())
		var got []string
		c := call(soon(), s, "progress", `{"x":1}`, func(c *gateway.UpstreamCall) {
			c.Progress = func(m *jsonrpc.Message) { got = append(got, string(m.Raw)) }
		})
		wantText(t, c, "done")
		wantText(t, call(soon(), s, "ping", ""), "pong") // whatever came after the end has been read
		if len(got) != 1 || !strings.Contains(got[0], `"message":{"x":1}`) {
			t.Errorf("got %q", got)
		}
		if _, strays := counted(t, h, s); strays != 5 {
			t.Errorf("%d dropped, want four with tokens of nobody and the one after the end", strays)
		}
	})
	t.Run("who is slow with progress holds up nobody", func(t *testing.T) {
		s := newHouse(t).open(newHouse(t).target("-tools", "progress,echo"))
		release := make(chan struct{})
		slow := make(chan called, 1)
		go func() {
			slow <- call(soon(), s, "progress", `{"n":300}`, func(c *gateway.UpstreamCall) {
				c.Progress = func(*jsonrpc.Message) { <-release }
			})
		}()
		for i := range 50 {
			wantText(t, call(soon(), s, "echo", fmt.Sprintf(`{"text":"%d"}`, i)), fmt.Sprint(i))
		}
		close(release)
		wantText(t, <-slow, "done")
	})
}

func TestCancelIsTold(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.ruffian())
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	wantFailure(t, call(ctx, s, "never", ""), gateway.FailedCancelled, gateway.MaybeSent)
	// server/discover and initialize were 1 and 2.
	wantText(t, call(soon(), s, "cancelled", ""), "3")
	wantFailure(t, call(ctx, s, "never", ""), gateway.FailedCancelled, gateway.NotSent)
	wantText(t, call(soon(), s, "cancelled", ""), "3")
}

func TestDeafChild(t *testing.T) {
	t.Parallel()
	big := `{"text":"` + strings.Repeat("a", 1<<20) + `"}`
	t.Run("callers wait for themselves only", func(t *testing.T) {
		h := newHouse(t)
		s := h.open(h.ruffian("deaf"))
		wantFailure(t, call(within(200*time.Millisecond), s, "echo", big), gateway.FailedTimeout, gateway.MaybeSent)
		// The pipe is full with the frame before, of which this one has not begun.
		for range 20 {
			wantFailure(t, call(within(20*time.Millisecond), s, "echo", big), gateway.FailedTimeout, gateway.NotSent)
		}
		select {
		case <-s.Done():
			t.Error("the session ended although nothing is wrong yet")
		default:
		}
	})
	t.Run("a stall ends the session", func(t *testing.T) {
		h := newHouse(t)
		h.opts.WriteStall = 200 * time.Millisecond
		s := h.open(h.ruffian("deaf"))
		first := make(chan called, 1)
		go func() { first <- call(soon(), s, "echo", big) }()
		time.Sleep(50 * time.Millisecond)
		wantFailure(t, call(soon(), s, "echo", big), gateway.FailedExited, gateway.NotSent)
		wantFailure(t, <-first, gateway.FailedExited, gateway.MaybeSent)
		<-s.Done()
	})
}

func TestTools(t *testing.T) {
	t.Parallel()
	list := func(t *testing.T, target gateway.Target) (string, error) {
		h := newHouse(t)
		h.opts.MaxFrame = 1 << 20
		tools, err := h.open(target).Tools(soon())
		var out []string
		for _, l := range tools {
			if l.Problem != "" {
				out = append(out, "!")
				continue
			}
			out = append(out, string(l.Raw))
		}
		return strings.Join(out, " "), err
	}
	h := newHouse(t)
	for _, c := range []struct {
		name   string
		target gateway.Target
		want   string
		class  gateway.FailureClass
	}{
		{"an unsound tool costs itself", h.ruffian(), `{"name":"ok","x":1e400} ! !`, ""},
		{"an empty cursor is a cursor", h.ruffian("empty cursor"), `{"name":"a"} {"name":"b"}`, ""},
		{"no tools at all", h.ruffian("toolless"), ``, ""},
		{"a cursor that comes again", h.ruffian("circle"), ``, gateway.FailedProtocol},
		{"pages without end", h.ruffian("endless"), ``, gateway.FailedTooLarge},
		{"pages that are too much together", h.ruffian("fat"), ``, gateway.FailedTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := list(t, c.target)
			class := gateway.FailureClass("")
			if f, ok := err.(*gateway.Failure); ok {
				class = f.Class
			}
			if got != c.want && c.class == "" || class != c.class {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	t.Run("many pages", func(t *testing.T) {
		for _, era := range []string{"legacy", "modern"} {
			tools, err := h.open(h.target("-fillers", "95", "-page", "10", "-era", era)).Tools(soon())
			if err != nil || len(tools) != 95 {
				t.Errorf("%s: %d tools, %v", era, len(tools), err)
			}
		}
	})
}

func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			h := newHouse(t)
			changed := make(chan struct{}, 10)
			target := h.ruffian(era)
			target.Changed = func() { changed <- struct{}{} }
			s := h.open(target)
			if era == "legacy" {
				s.Tools(soon()) // on which this server says so
			}
			select {
			case <-changed:
			case <-time.After(3 * time.Second):
				t.Error("nothing was told")
			}
		})
	}
}

func TestRequestsOfTheChild(t *testing.T) {
	t.Parallel()
	s := newHouse(t).open(newHouse(t).ruffian())
	// Its second request has the id of our call, which stays pending all the same.
	want := `{"jsonrpc":"2.0","id":"q1","result":{}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"method not found: sampling/createMessage"}}`
	wantText(t, call(soon(), s, "ask", ""), want)
}

func TestExactBytes(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "record")
			h := newHouse(t)
			s := h.open(h.target("-tools", "raw", "-era", era, "-record", record))
			arguments := "{\n\t\"n\": 123456789012345678901234567890.10e-5,\r\n \"\\u0061\": \"\\n\\u2028\u2028\"}"
			if got := call(soon(), s, "raw", arguments); got.Failure != nil {
				t.Fatal(got.Failure)
			}
			all, err := upstream.ReadRecord(record)
			if err != nil {
				t.Fatal(err)
			}
			last := all[len(all)-1]
			// One line, and every byte that means something.
			want := "{ \t\"n\": 123456789012345678901234567890.10e-5,   \"\\u0061\": \"\\n\\u2028\u2028\"}"
			if !strings.Contains(last.Body, `"arguments":`+want) {
				t.Errorf("got %s", last.Body)
			}
		})
	}
}

func TestFailedStarts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	plain := filepath.Join(t.TempDir(), "not-executable")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	badCwd := h.target()
	badCwd.Upstream.Cwd = plain
	bearer := h.target()
	bearer.Material.Secret, bearer.Upstream.Deliver.Kind = gateway.NewSecret("x"), policy.DeliverBearer
	for _, c := range []struct {
		name   string
		target gateway.Target
		class  gateway.FailureClass
		want   string
	}{
		{"not found", h.command("no-such-server-anywhere"), gateway.FailedDial, `command "no-such-server-anywhere": not found; install it`},
		{"a path that is not there", h.command("/no/such/place/server"), gateway.FailedDial, `command "server": not found; install it`},
		{"not executable", h.command(plain), gateway.FailedDial, `command "not-executable": cannot be run: permission denied`},
		{"no such directory", badCwd, gateway.FailedDial, `its cwd is no directory`},
		{"delivered as over HTTP", bearer, gateway.FailedDial, `takes its credential from a variable`},
		{"ends at once", h.shell("exit 3"), gateway.FailedExited, `upstream "fake" ended: exit status 3`},
		{"speaks of the future", h.ruffian("future"), gateway.FailedProtocol, `a version that is not spoken here`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := h.tryOpen(c.target)
			f, ok := err.(*gateway.Failure)
			if !ok || f.Class != c.class || !strings.Contains(f.Detail, c.want) {
				t.Errorf("got %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), filepath.Dir(plain)) || strings.Contains(err.Error(), "/no/such")) {
				t.Errorf("the error names a path: %v", err)
			}
		})
	}
	t.Run("does not answer", func(t *testing.T) {
		started := time.Now()
		_, err := mcpstdio.NewUpstream(h.opts).Open(within(200*time.Millisecond), h.shell("sleep 60"))
		if f, ok := err.(*gateway.Failure); !ok || f.Class != gateway.FailedTimeout {
			t.Errorf("got %v", err)
		}
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Some servers end when the first message is not initialize. They are started again without it, and that is remembered.
func TestChildThatDiesOfTheModernHandshake(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	h := newHouse(t)
	u := mcpstdio.NewUpstream(h.opts)
	for i, want := range []int{2, 3, 4} {
		s, err := u.Open(soon(), h.ruffian("strict", "starts="+starts))
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, call(soon(), s, "ping", ""), "pong")
		s.Close()
		if got, _ := os.ReadFile(starts); len(got) != want {
			t.Errorf("session %d: started %d times, want %d", i, len(got), want)
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	h := newHouse(t)
	h.open(h.target("-tools", "echo")).Close() // what the first one starts for good
	before := runtime.NumGoroutine()
	fds := descriptors(t)
	for range 3 {
		s, err := h.tryOpen(h.target("-tools", "echo,hang"))
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan called, 1)
		go func() { waiting <- call(context.Background(), s, "hang", "") }()
		wantText(t, call(soon(), s, "echo", `{"text":"x"}`), "x")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { s.Close() })
		}
		wg.Wait()
		if got := <-waiting; got.Failure == nil {
			t.Error("a call outlived its session")
		}
	}
	for until := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before\n%s", now, before, buf[:runtime.Stack(buf, true)])
	}
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip("this platform does not list descriptors")
	}
	return len(entries)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newHouse(t).open(newHouse(t).target("-tools", "echo"))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d.%d", i, j)
				if got := call(soon(), s, "echo", `{"text":"`+want+`"}`); got.text != want {
					t.Errorf("got %q %v, want %q", got.text, got.Failure, want)
				}
			}
		})
	}
	wg.Wait()
}
