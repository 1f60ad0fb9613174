//go:build unix

package mcpstdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"aduana/adapters/mcpstdio"
	"aduana/gateway"
	"aduana/policy"
	"aduana/test/upstream"
)

// The roles in which this test binary starts itself, as its first argument.
const (
	victimRole  = "mcpstdio-victim"
	hostileRole = "mcpstdio-hostile"
)

// playIfAsked plays a role and exits, or returns.
func playIfAsked() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case victimRole:
		victim(os.Args[2:])
		os.Exit(0)
	case hostileRole:
		time.AfterFunc(time.Minute, func() { os.Exit(3) })
		hostile(os.Args[2:])
		os.Exit(0)
	}
}

// victim is a gateway that has one child and waits to be killed. The arguments are the child's command.
func victim(command []string) {
	u := &policy.Upstream{ID: "fake", Transport: policy.TransportStdio, Command: command[0]}
	for _, a := range command[1:] {
		u.Args = append(u.Args, policy.Value{Literal: a})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := mcpstdio.NewUpstream(mcpstdio.UpstreamOptions{Log: slog.New(slog.DiscardHandler)}).Open(ctx, gateway.Target{Upstream: u})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call(ctx, s, "pid", "").text)
	fmt.Println(call(ctx, s, "spawn", `{"ms":60000}`).text)
	time.Sleep(time.Minute)
}

// wrapped runs a command as many launchers do: the real server is a child of what was started.
const wrapped = `exec 3<&0; "$0" "$@" <&3 3<&- & wait`

func TestX08KillingTheGatewayLeavesNoSurvivors(t *testing.T) {
	t.Parallel()
	newHouse(t).shell("") // skips where there is no shell
	program, args, err := upstream.Command("-tools", "pid,spawn", "-ignore-eof", "-ignore-term", "-life", "60s")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{victimRole, "/bin/sh", "-c", wrapped, program}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	var pids []int
	for range 2 {
		if !lines.Scan() {
			t.Fatal("the gateway did not come up")
		}
		pids = append(pids, number(t, lines.Text()))
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Fatalf("process %d should run", pid)
		}
	}
	cmd.Process.Kill()
	for _, pid := range pids {
		gone(t, pid, 3*time.Second)
	}
}

// hostile is a server that breaks rules. How is said by its arguments and by the tool that is called.
func hostile(args []string) {
	h := &ruffian{in: bufio.NewReaderSize(os.Stdin, 1<<20)}
	for _, a := range args {
		switch {
		case a == "modern":
			h.modern = true
		case a == "strict":
			h.strict = true
		case strings.HasPrefix(a, "starts="):
			f, err := os.OpenFile(a[len("starts="):], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				f.WriteString("x")
				f.Close()
			}
		default:
			h.mode = a
		}
	}
	for {
		m := h.next()
		if m == nil {
			return
		}
		h.answer(m)
	}
}

type ruffian struct {
	in             *bufio.Reader
	modern, strict bool
	mode           string
	replies        []string // what the client answered to us
	cancelled      []string
	seen           int
}

type incoming struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Cursor    *string
		Arguments json.RawMessage
		RequestID json.RawMessage
		Meta      struct {
			ProgressToken json.RawMessage
		} `json:"_meta"`
	}
}

func (h *ruffian) next() *incoming {
	for {
		l, err := h.in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		m := &incoming{}
		json.Unmarshal(l, m)
		switch {
		case m.Method == "notifications/cancelled":
			h.cancelled = append(h.cancelled, string(m.Params.RequestID))
		case m.Method == "":
			h.replies = append(h.replies, strings.TrimSpace(string(l)))
		case m.ID != nil:
			h.seen++
			return m
		}
	}
}

func say(format string, a ...any) { fmt.Printf(format+"\n", a...) }

func result(id, result string) { say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result) }

func text(id, text string) {
	q, _ := json.Marshal(text)
	result(id, `{"content":[{"type":"text","text":`+string(q)+`}]}`)
}

// fill writes n bytes of text without holding them.
func fill(n int64) { io.CopyN(os.Stdout, filler{}, n) }

type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func (h *ruffian) answer(m *incoming) {
	id := string(m.ID)
	switch m.Method {
	case "server/discover":
		switch {
		case h.strict:
			os.Exit(1)
		case h.modern:
			result(id, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`)
		default:
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"what?"}}`, id)
		}
	case "initialize":
		version := "2025-06-18"
		if h.mode == "future" {
			version = "2031-01-01"
		}
		result(id, `{"protocolVersion":"`+version+`","capabilities":{},"serverInfo":{"name":"ruffian","version":"0"}}`)
		if h.mode == "deaf" {
			time.Sleep(time.Minute)
		}
	case "subscriptions/listen":
		say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id)
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id)
	case "tools/list":
		h.list(m, id)
	case "tools/call":
		h.call(m, id)
	}
}

func (h *ruffian) list(m *incoming, id string) {
	switch h.mode {
	case "toolless":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id)
	case "circle":
		result(id, `{"tools":[{"name":"a"}],"nextCursor":"same"}`)
	case "endless":
		result(id, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, h.seen))
	case "fat":
		result(id, fmt.Sprintf(`{"tools":[{"name":"a","description":%q}],"nextCursor":"%d"}`, strings.Repeat("a", 300_000), h.seen))
	case "empty cursor":
		if m.Params.Cursor == nil {
			result(id, `{"tools":[{"name":"a"}],"nextCursor":""}`)
			return
		}
		result(id, `{"tools":[{"name":"b"}]}`)
	default:
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		result(id, `{"tools":[{"name":"ok","x":1e400},{"name":"dup","name":"dup"},7]}`)
	}
}

func (h *ruffian) call(m *incoming, id string) {
	switch m.Params.Name {
	case "ping":
		text(id, "pong")
	case "tail": // over any cap, and the id comes last
		fmt.Print(`{"result":{"content":[{"type":"text","text":"`)
		fill(8 << 20)
		say(`"}]},"jsonrpc":"2.0","id":%s}`, id)
	case "anonymous": // over any cap, and no id anywhere
		fill(8 << 20)
		say("")
	case "huge notice":
		fmt.Print(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`)
		fill(8 << 20)
		say(`"}}`)
		text(id, "after it")
	case "id last":
		say(`{"result":{"content":[{"type":"text","text":"last"}]},"jsonrpc":"2.0","id":%s}`, id)
	case "rare order":
		say(`{"x":1,"result":{"content":[{"type":"text","text":"rare"}]},"jsonrpc":"2.0","id":%s}`, id)
	case "crlf":
		fmt.Printf("\r\n"+`{"jsonrpc":"2.0", "id":%s, "result":{"content":[{"type":"text","text":"crlf"}]}}`+"\r\n", id)
	case "twice named":
		result(id, `{"content":[],"content":[]}`)
	case "unversioned":
		say(`{"id":%s,"result":{"content":[{"type":"text","text":"wrong"}]}}`, id)
		text(id, "right")
	case "babble":
		for range number1(m.Params.Arguments) {
			say("I am a log line")
		}
		text(id, "babbled")
	case "chatter": // log lines, with a message among them
		for i := range 120 {
			say("I am a log line")
			if i == 60 {
				say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			}
		}
		text(id, "chattered")
	case "ask":
		say(`{"jsonrpc":"2.0","id":"q1","method":"ping"}`)
		say(`{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{}}`, id) // the id of our own request
		for len(h.replies) < 2 {
			h.waitReply()
		}
		text(id, strings.Join(h.replies, "\n"))
	case "progress": // to nobody, to the right one, and after the end
		token := string(m.Params.Meta.ProgressToken)
		if token == "" {
			token = "null"
		}
		for _, t := range []string{`"` + token + `"`, "0", "999999", "1", token} {
			say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":%s}}`, t, m.Params.Arguments)
		}
		text(id, "done")
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":2}}`, token)
	case "cancelled":
		text(id, strings.Join(h.cancelled, ","))
	case "never":
	}
}

func (h *ruffian) waitReply() {
	l, err := h.in.ReadBytes('\n')
	if err != nil {
		os.Exit(1)
	}
	h.replies = append(h.replies, string(bytes.TrimSpace(l)))
}

func number1(arguments json.RawMessage) int {
	var a struct{ N int }
	json.Unmarshal(arguments, &a)
	return a.N
}
