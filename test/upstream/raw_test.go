package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/test/upstream"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// post sends one request; header is K, V, K, V…; an empty V removes K.
func post(t *testing.T, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	return do(t, http.MethodPost, url, body, header...)
}

func do(t *testing.T, verb, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), verb, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b)
}

func modern(method, name string, more ...string) []string {
	h := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		h = append(h, "Mcp-Name", name)
	}
	return append(h, more...)
}

func code(body string) int {
	var m struct{ Error struct{ Code int } }
	json.Unmarshal([]byte(body), &m)
	return m.Error.Code
}

func TestModernRefusals(t *testing.T) {
	tool := upstream.Tool{Name: "mail", Definition: json.RawMessage(
		`{"name":"mail","inputSchema":{"type":"object","properties":{"to":{"type":"string","x-mcp-header":"To"},"n":{"type":"integer","x-mcp-header":"N"},"in":{"type":"object","properties":{"f":{"type":"boolean","x-mcp-header":"F"}}}}}}`)}
	s, url := listen(t, upstream.Config{Tools: []upstream.Tool{tool, {Name: "añadir"}}})
	call := func(args string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail","arguments":` + args + `,` + meta + `}}`
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
	for _, tc := range []struct {
		name   string
		body   string
		header []string
		status int
		code   int
	}{
		{"good list", list, modern("tools/list", ""), 200, 0},
		{"good call", call(`{}`), modern("tools/call", "mail"), 200, 0},
		{"no Mcp-Method", list, []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32020},
		{"method in other case", list, modern("Tools/List", ""), 400, -32020},
		{"no version header", list, []string{"Mcp-Method", "tools/list"}, 400, -32020},
		{"versions differ", list, []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"}, 400, -32020},
		{"two version headers", list, modern("tools/list", "", "MCP-Protocol-Version", "2026-07-28"), 400, -32020},
		{"no Mcp-Name", call(`{}`), modern("tools/call", ""), 400, -32020},
		{"other Mcp-Name", call(`{}`), modern("tools/call", "post"), 400, -32020},
		{"base64 Mcp-Name", call(`{}`), modern("tools/call", "=?base64?bWFpbA==?="), 200, 0},
		{"broken base64 Mcp-Name", call(`{}`), modern("tools/call", "=?base64?!?="), 400, -32020},
		{"non-ASCII name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u00f1adir",` + meta + `}}`, modern("tools/call", "=?base64?YcOxYWRpcg==?="), 200, 0},
		{"param header", call(`{"to":"ana","n":7,"in":{"f":true}}`), modern("tools/call", "mail", "Mcp-Param-To", "ana", "Mcp-Param-N", "7.0", "Mcp-Param-F", "true"), 200, 0},
		{"param header missing", call(`{"to":"ana"}`), modern("tools/call", "mail"), 400, -32020},
		{"nested param header missing", call(`{"in":{"f":true}}`), modern("tools/call", "mail"), 400, -32020},
		{"param header differs", call(`{"n":7}`), modern("tools/call", "mail", "Mcp-Param-N", "8"), 400, -32020},
		{"param header without argument", call(`{"to":null}`), modern("tools/call", "mail", "Mcp-Param-To", "ana"), 400, -32020},
		{"unknown param header", call(`{}`), modern("tools/call", "mail", "Mcp-Param-X", "1"), 200, 0},
		{"no _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, modern("tools/list", ""), 400, -32602},
		{"no capabilities", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, modern("tools/list", ""), 400, -32602},
		{"later version", strings.ReplaceAll(list, "2026-07-28", "2099-01-01"), []string{"MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/list"}, 400, -32022},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{` + meta + `}}`, modern("no/such", ""), 404, -32601},
		{"removed method", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, modern("ping", ""), 404, -32601},
		{"unknown tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",` + meta + `}}`, modern("tools/call", "x"), 200, -32602},
		{"unknown cursor", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x",` + meta + `}}`, modern("tools/list", ""), 200, -32602},
		{"batch", "[" + list + "]", modern("tools/list", ""), 400, -32600},
		{"not JSON", "{", modern("tools/list", ""), 400, -32700},
		{"null id", strings.Replace(list, `"id":1`, `"id":null`, 1), modern("tools/list", ""), 400, -32600},
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, modern("x", ""), 400, -32600},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, modern("notifications/x", ""), 202, 0},
		{"text body", list, modern("tools/list", "", "Content-Type", "", "Content-Type", "text/plain"), 415, 0},
		{"accepts JSON only", list, modern("tools/list", "", "Accept", "", "Accept", "application/json"), 406, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, _, body := post(t, url, tc.body, tc.header...)
			if status != tc.status || code(body) != tc.code {
				t.Errorf("HTTP %d code %d, want %d and %d: %s", status, code(body), tc.status, tc.code, body)
			}
		})
	}
	for _, verb := range []string{"GET", "DELETE"} {
		if status, _, _ := do(t, verb, url, "", "MCP-Protocol-Version", "2026-07-28"); status != 405 {
			t.Errorf("%s: HTTP %d, want 405", verb, status)
		}
	}
	if s.Initializes() != 0 || s.Sessions() != 0 {
		t.Error("the modern era made a session")
	}
}

func TestModernResults(t *testing.T) {
	def := `{"name" : "odd","inputSchema":{"type":"object"}, "x-unknown":12345678901234567890.10}`
	_, url := listen(t, upstream.Config{Name: "up", Instructions: "be kind", TTL: 60000, CacheScope: "private", PageSize: 1,
		Tools: []upstream.Tool{{Name: "odd", Definition: json.RawMessage(def)}, {Name: "b"}}})
	tail := `"resultType":"complete","ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1.0.0"}}}}`
	_, h, body := post(t, url, `{"jsonrpc":"2.0","id":"q","method":"tools/list","params":{`+meta+`}}`, modern("tools/list", "")...)
	want := `{"jsonrpc":"2.0","id":"q","result":{"tools":[` + def + `],"nextCursor":"YXQ9MQ",` + tail
	if body != want || h.Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	_, _, body = post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"YXQ9MQ",`+meta+`}}`, modern("tools/list", "")...)
	want = `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"b","inputSchema":{"type":"object"}}],` + tail
	if body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	_, _, body = post(t, url, `{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{`+meta+`}}`, modern("server/discover", "")...)
	want = `{"jsonrpc":"2.0","id":3,"result":{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"tools":{"listChanged":true}},"instructions":"be kind",` + tail
	if body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestListenStream(t *testing.T) {
	s, url := listen(t, upstream.Config{Tools: []upstream.Tool{{Name: "a"}}})
	ctx := within(t)
	done := make(chan string)
	go func() {
		_, _, body := post(t, url, `{"jsonrpc":"2.0","id":"L1","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},`+meta+`}}`, modern("subscriptions/listen", "")...)
		done <- body
	}()
	if !s.Await(ctx, func() bool { return s.Streams() == 1 }) {
		t.Fatal("no stream")
	}
	s.NotifyToolsChanged()
	s.EndListens()
	sub := `"_meta":{"io.modelcontextprotocol/subscriptionId":"L1"}`
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` + sub + `}}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + sub + `}}`,
		`{"jsonrpc":"2.0","id":"L1","result":{"resultType":"complete",` + sub + `}}`,
	}
	if got := events(<-done); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func events(body string) []string {
	var out []string
	for l := range strings.Lines(body) {
		if d, ok := strings.CutPrefix(l, "data: "); ok {
			out = append(out, strings.TrimRight(d, "\n"))
		}
	}
	return out
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestLegacySessions(t *testing.T) {
	s, url := listen(t, upstream.Config{Tools: builtins(t, "echo", "hang")})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	status, h, body := post(t, url, hello)
	sid := h.Get("Mcp-Session-Id")
	if status != 200 || sid == "" || !strings.Contains(body, `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("initialize: HTTP %d session %q %s", status, sid, body)
	}
	status, _, _ = post(t, url, list)
	expect("without session", status, 400)
	status, _, _ = post(t, url, list, "Mcp-Session-Id", "other")
	expect("other session", status, 404)
	status, _, _ = post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", sid)
	expect("notification", status, 202)
	status, _, body = post(t, url, list, "Mcp-Session-Id", sid, "MCP-Protocol-Version", "2025-11-25")
	expect("list", status, 200)
	if strings.Contains(body, "resultType") {
		t.Errorf("legacy list with a modern member: %s", body)
	}
	status, _, _ = post(t, url, list, "Mcp-Session-Id", sid, "MCP-Protocol-Version", "1999-01-01")
	expect("unknown version", status, 400)

	// A cancelled call ends without a reply; a stranger's id changes nothing.
	ended := make(chan string)
	go func() {
		_, _, body := post(t, url, `{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"hang"}}`, "Mcp-Session-Id", sid)
		ended <- body
	}()
	ctx := within(t)
	if !s.Await(ctx, func() bool { return s.InFlight() == 1 }) {
		t.Fatal("the call did not arrive")
	}
	post(t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"z"}}`, "Mcp-Session-Id", sid)
	post(t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}`, "Mcp-Session-Id", sid)
	if body := <-ended; body != "" {
		t.Errorf("cancelled call answered %q", body)
	}
	want := []upstream.Cancellation{{ID: `"z"`, Notified: true, Unknown: true}, {ID: `"h"`, Method: "tools/call", Tool: "hang", Notified: true}}
	if got := s.Cancellations(); !slices.Equal(got, want) {
		t.Errorf("cancellations %+v, want %+v", got, want)
	}

	s.ForgetSessions()
	status, _, _ = post(t, url, list, "Mcp-Session-Id", sid)
	expect("forgotten session", status, 404)
	s.FailInitialize(503)
	status, _, _ = post(t, url, hello)
	expect("failing initialize", status, 503)
	s.FailInitialize(0)
	_, h, _ = post(t, url, hello)
	sid = h.Get("Mcp-Session-Id")
	expect("sessions", s.Sessions(), 1)
	status, _, _ = do(t, "DELETE", url, "", "Mcp-Session-Id", sid)
	expect("delete", status, 204)
	expect("sessions after delete", s.Sessions(), 0)
	expect("initializes", s.Initializes(), 3)
	expect("calls of hang", s.Calls("hang"), 1)
}

func TestLegacyDropIsNoCancel(t *testing.T) {
	look, seen := make(chan struct{}), make(chan error)
	s, url := listen(t, upstream.Config{Tools: []upstream.Tool{{Name: "wait", Handler: func(ctx context.Context, _ *upstream.Call) {
		<-look
		seen <- ctx.Err()
	}}}})
	_, h, _ := post(t, url, hello)
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {h.Get("Mcp-Session-Id")}}
		http.DefaultClient.Do(req)
	}()
	if !s.Await(within(t), func() bool { return s.InFlight() == 1 }) {
		t.Fatal("the call did not arrive")
	}
	cancel()
	if !s.Await(within(t), func() bool { return s.Dropped() == 1 }) {
		t.Fatal("the drop was not seen")
	}
	close(look)
	if err := <-seen; err != nil || len(s.Cancellations()) != 0 {
		t.Errorf("a dropped legacy connection cancelled its call: %v", err)
	}
}

func TestModernDropIsCancel(t *testing.T) {
	s, url := listen(t, upstream.Config{Tools: builtins(t, "hang")})
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang",`+meta+`}}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"hang"}}
		http.DefaultClient.Do(req)
	}()
	if !s.Await(within(t), func() bool { return s.InFlight() == 1 }) {
		t.Fatal("the call did not arrive")
	}
	cancel()
	if !s.Await(within(t), func() bool { return s.InFlight() == 0 && len(s.Cancellations()) == 1 }) {
		t.Fatal("the call goes on")
	}
	if got, want := s.Cancellations()[0], (upstream.Cancellation{Method: "tools/call", Tool: "hang", ID: "1"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestProbes(t *testing.T) {
	discover := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`
	for _, tc := range []struct {
		name   string
		status int
		code   int
		holds  string
	}{
		{"default", 400, -32000, ""},
		{"notfound", 404, 0, ""},
		{"unsupported", 400, -32022, `"supported":["2025-11-25"`},
		{"legacylist", 200, 0, `"supportedVersions":["2025-11-25"`},
	} {
		p, err := upstream.ParseProbe(tc.name)
		if err != nil {
			t.Fatal(err)
		}
		_, url := listen(t, upstream.Config{Eras: upstream.LegacyOnly, Probe: p})
		status, _, body := post(t, url, discover, modern("server/discover", "")...)
		if status != tc.status || code(body) != tc.code || !strings.Contains(body, tc.holds) {
			t.Errorf("%s: HTTP %d %s", tc.name, status, body)
		}
	}
}

func TestBearer(t *testing.T) {
	s, url := listen(t, upstream.Config{RequireBearer: "k1"})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
	for _, tc := range []struct {
		name, value string
		want        int
	}{{"none", "", 401}, {"other", "Bearer k2", 401}, {"right", "Bearer k1", 200}} {
		if status, _, _ := post(t, url, list, modern("tools/list", "", "Authorization", tc.value)...); status != tc.want {
			t.Errorf("%s: HTTP %d, want %d", tc.name, status, tc.want)
		}
	}
	s.SetBearer("k2")
	if status, _, _ := post(t, url, list, modern("tools/list", "", "Authorization", "Bearer k2")...); status != 200 {
		t.Errorf("rotated: HTTP %d", status)
	}
}

// TestRawReplies is about the ways a handler may answer that no server should.
func TestRawReplies(t *testing.T) {
	event := "data: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1,\"result\":{}}\r\n\r\n"
	handlers := map[string]upstream.Handler{
		"verbatim": func(_ context.Context, c *upstream.Call) { c.Reply([]byte(`{ "n":1e400,"n":2 }`)) },
		"frame":    func(_ context.Context, c *upstream.Call) { c.ReplyFrame([]byte("not json")) },
		"split": func(_ context.Context, c *upstream.Call) {
			var chunks [][]byte
			for i := range len(event) {
				chunks = append(chunks, []byte(event[i:i+1]))
			}
			c.ReplyHTTP(200, map[string]string{"Content-Type": "Text/Event-Stream;charset=UTF-8"}, chunks...)
		},
		"silent": func(context.Context, *upstream.Call) {},
		"abort":  func(_ context.Context, c *upstream.Call) { c.Emit([]byte(`{}`)); c.Abort() },
		"die":    func(_ context.Context, c *upstream.Call) { c.Die() },
		"panic":  func(context.Context, *upstream.Call) { panic(http.ErrAbortHandler) },
		"flood": func(_ context.Context, c *upstream.Call) {
			c.ReplyFrom(io.LimitReader(zeros{}, 1<<20), true)
		},
	}
	var tools []upstream.Tool
	for n, h := range handlers {
		tools = append(tools, upstream.Tool{Name: n, Handler: h})
	}
	_, url := listen(t, upstream.Config{Tools: tools})
	for _, tc := range []struct {
		name, body, contentType string
		broken                  bool
	}{
		{"verbatim", `{"jsonrpc":"2.0","id":1,"result":{ "n":1e400,"n":2 }}`, "application/json", false},
		{"frame", "not json", "application/json", false},
		{"split", event, "Text/Event-Stream;charset=UTF-8", false},
		{"silent", "", "", false},
		{"abort", "event: message\ndata: {}\n\n", "text/event-stream", true},
		{"die", "", "", true},
		{"panic", "", "", true},
		{"flood", strings.Repeat("0", 1<<20), "application/json", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, _ := http.NewRequestWithContext(within(t), "POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tc.name+`",`+meta+`}}`))
			req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tc.name}}
			res, err := http.DefaultClient.Do(req)
			var body []byte
			contentType := ""
			if err == nil {
				defer res.Body.Close()
				body, err = io.ReadAll(res.Body)
				contentType = res.Header.Get("Content-Type")
			}
			if (err != nil) != tc.broken {
				t.Errorf("error %v, want one: %v", err, tc.broken)
			}
			if string(body) != tc.body || contentType != tc.contentType {
				t.Errorf("%s %.200q, want %s %.200q", contentType, body, tc.contentType, tc.body)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestHookAndMethods(t *testing.T) {
	first := true
	_, url := listen(t, upstream.Config{
		Hook: func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			if first {
				first = false
				w.WriteHeader(http.StatusTeapot)
				return true
			}
			return false
		},
		Methods: map[string]upstream.Handler{"tools/list": func(_ context.Context, c *upstream.Call) {
			c.Reply([]byte(`{"tools":null}`))
		}},
	})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
	if status, _, _ := post(t, url, list, modern("tools/list", "")...); status != http.StatusTeapot {
		t.Errorf("hook: HTTP %d", status)
	}
	if _, _, body := post(t, url, list, modern("tools/list", "")...); body != `{"jsonrpc":"2.0","id":1,"result":{"tools":null}}` {
		t.Errorf("replaced method: %s", body)
	}
}

// pipes is a client's end of a stdio connection.
type pipes struct {
	w     io.WriteCloser
	r     io.ReadCloser
	lines *bufio.Reader
}

func (p *pipes) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.w, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (p *pipes) line(t *testing.T) string {
	t.Helper()
	if p.lines == nil {
		p.lines = bufio.NewReader(p.r)
	}
	l, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", l, err)
	}
	return strings.TrimSuffix(l, "\n")
}

func overPipes(t *testing.T, cfg upstream.Config) (*upstream.Server, *pipes) {
	t.Helper()
	s := upstream.New(cfg)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), inR, outW) }()
	t.Cleanup(func() {
		s.Close()
		outR.Close() // releases a write that nobody reads
		inW.Close()
		select {
		case <-served:
		case <-time.After(10 * time.Second):
			t.Error("Serve did not return")
		}
	})
	return s, &pipes{w: inW, r: outR}
}

func TestStdio(t *testing.T) {
	s, p := overPipes(t, upstream.Config{Banner: "hello\n", Tools: builtins(t, "echo", "garbage", "strayids", "hang", "raw")})
	expect := func(want string) {
		t.Helper()
		if got := p.line(t); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	expect("hello")
	p.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialize first, or send _meta with a protocol version"}}`)
	p.send(t, `[]`)
	expect(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is one object"}}`)
	// Modern without a handshake, bytes kept.
	p.send(t, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"raw","arguments":{"n":1.0e2},`+meta+`}}`)
	expect(`{"jsonrpc":"2.0","id":"x","result":{"content":[],"structuredContent":{"name":"raw","arguments":{"n":1.0e2},` + meta + `},"resultType":"complete"}}`)
	p.send(t, hello)
	expect(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1.0.0"}}}`)
	p.send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"garbage"}}`)
	for _, g := range upstream.GarbageLines() {
		expect(g)
	}
	expect(`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"after the garbage"}]}}`)
	p.send(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"strayids"}}`)
	for _, id := range []string{`"7"`, "0", "null", "987654321", `"nobody"`} {
		expect(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"for somebody else"}]}}`)
	}
	expect(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"for you"}]}}`)
	expect(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"for you again"}]}}`)

	p.send(t, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"hang"}}`)
	if !s.Await(within(t), func() bool { return s.InFlight() == 1 }) {
		t.Fatal("the call did not arrive")
	}
	p.send(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	if !s.Await(within(t), func() bool { return s.InFlight() == 0 }) {
		t.Fatal("the call goes on")
	}

	p.send(t, `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta+`}}`)
	sub := `"_meta":{"io.modelcontextprotocol/subscriptionId":9}`
	expect(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` + sub + `}}`)
	if !s.Await(within(t), func() bool { return s.Streams() == 2 }) {
		t.Fatal("no listen stream")
	}
	s.EndListens()
	expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
	expect(`{"jsonrpc":"2.0","id":9,"result":{"resultType":"complete",` + sub + `}}`)
}

func TestStdioLegacyOnly(t *testing.T) {
	_, p := overPipes(t, upstream.Config{Eras: upstream.LegacyOnly})
	p.send(t, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`)
	if got := p.line(t); code(got) != -32601 {
		t.Errorf("discover: %s", got)
	}
}

// child starts this test binary as a stdio server.
func child(t *testing.T, flags ...string) (*exec.Cmd, *pipes, *bytes.Buffer) {
	t.Helper()
	program, args, err := upstream.Command(append(flags, "-life", "30s")...)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	w, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, &pipes{w: w, r: r}, &stderr
}

func callLine(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, id, tool, args, meta)
}

func TestChild(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	cmd, p, stderr := child(t, "-tools", "all", "-named", "foo.bar", "-record", record, "-name", "kid", "-stderr", "up")
	p.send(t, callLine(1, "noisy", `{"cr":true}`))
	if got := p.line(t); !strings.Contains(got, "noise made") {
		t.Error(got)
	}
	p.send(t, callLine(2, "flood", `{"n":300000}`))
	if got := p.line(t); len(got) < 300000 || !json.Valid([]byte(got)) {
		t.Errorf("flood of %d bytes", len(got))
	}
	p.send(t, callLine(3, "foo.bar", `{}`))
	if got := p.line(t); !strings.Contains(got, "server=kid tool=foo.bar") {
		t.Error(got)
	}
	p.send(t, callLine(4, "pid", `{}`))
	if got := p.line(t); !strings.Contains(got, fmt.Sprintf(`"text":"%d"`, cmd.Process.Pid)) {
		t.Errorf("%s, want %d", got, cmd.Process.Pid)
	}
	p.send(t, callLine(5, "crash", `{}`))
	if rest, _ := io.ReadAll(p.lines); len(rest) != 0 {
		t.Errorf("the crash said %q", rest)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the crash looks like success")
	}
	if n := stderr.Len(); n < 256<<10 || !strings.HasPrefix(stderr.String(), "up\n") || !strings.Contains(stderr.String(), upstream.Canary) {
		t.Errorf("%d bytes of stderr", n)
	}
	got, err := upstream.ReadRecord(record)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 || got[4].Tool != "crash" || got[4].Body != callLine(5, "crash", `{}`) || got[4].PID != cmd.Process.Pid {
		t.Errorf("record %+v", got)
	}
}

func TestChildClosesOutputAndStays(t *testing.T) {
	cmd, p, _ := child(t, "-tools", "closeout", "-ignore-eof")
	p.send(t, callLine(1, "closeout", `{}`))
	if rest, err := io.ReadAll(p.r); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	p.w.Close()
	if err := cmd.Process.Signal(os.Signal(os.Kill)); err != nil {
		t.Errorf("the child has ended: %v", err)
	}
	cmd.Wait()
}

func TestChildSpawnsHolderOfItsOutput(t *testing.T) {
	cmd, p, _ := child(t, "-tools", "spawn")
	p.send(t, callLine(1, "spawn", `{"ms":1000}`))
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(p.line(t)), &m); err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(m.Result.Content[0].Text, &pid)
	if pid == 0 || pid == cmd.Process.Pid {
		t.Fatalf("grandchild %d", pid)
	}
	p.w.Close()
	ended := make(chan struct{})
	go func() { io.ReadAll(p.lines); close(ended) }()
	select {
	case <-ended:
		t.Error("nobody holds the output")
	case <-time.After(200 * time.Millisecond):
	}
	cmd.Process.Wait()
	<-ended // the grandchild lets go by itself
}
