package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"aduana/test/upstream"
)

func TestMain(m *testing.M) {
	upstream.MainIfChild()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // for the children: a second at each exit otherwise
	os.Exit(m.Run())
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func builtins(t *testing.T, names ...string) []upstream.Tool {
	t.Helper()
	var out []upstream.Tool
	for _, n := range names {
		b, err := upstream.Builtin(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func listen(t *testing.T, cfg upstream.Config) (*upstream.Server, string) {
	t.Helper()
	s := upstream.New(cfg)
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, url
}

// TestSDKClient drives the server with the official client, so that tests of
// the gateway rest on a server that other people's code agrees with.
func TestSDKClient(t *testing.T) {
	for _, transport := range []string{"http-json", "http-sse", "stdio"} {
		for _, tc := range []struct {
			name, version, want string
			eras                string
		}{
			{"modern", "2026-07-28", "2026-07-28", "both"},
			{"modern only", "2026-07-28", "2026-07-28", "modern"},
			{"legacy", "2025-11-25", "2025-11-25", "both"},
			{"older legacy", "2025-06-18", "2025-06-18", "legacy"},
			{"modern client falls back", "2026-07-28", "2025-11-25", "legacy"},
		} {
			t.Run(transport+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				sdkRound(t, transport, tc.version, tc.want, tc.eras)
			})
		}
	}
}

func sdkRound(t *testing.T, transport, version, want, eras string) {
	ctx := within(t)
	var tr mcp.Transport
	var srv *upstream.Server
	if transport == "stdio" {
		program, args, err := upstream.Command("-tools", "echo,add,raw,fail,progress", "-fillers", "7", "-page", "5", "-era", eras)
		if err != nil {
			t.Fatal(err)
		}
		tr = &mcp.CommandTransport{Command: exec.Command(program, args...), TerminateDuration: time.Second}
	} else {
		e, err := upstream.ParseEras(eras)
		if err != nil {
			t.Fatal(err)
		}
		tools := builtins(t, "echo", "add", "raw", "fail", "progress")
		for i := range 7 {
			tools = append(tools, upstream.Filler("fake", i))
		}
		var url string
		srv, url = listen(t, upstream.Config{Tools: tools, PageSize: 5, Eras: e, SSE: transport == "http-sse"})
		tr = &mcp.StreamableClientTransport{Endpoint: url}
	}
	progressed := make(chan float64, 10)
	changed := make(chan struct{}, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progressed <- r.Params.Progress },
	})
	cs, err := client.Connect(ctx, tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if got := cs.InitializeResult().ProtocolVersion; got != want {
		t.Fatalf("negotiated %s, want %s", got, want)
	}
	n := 0
	for tool, err := range cs.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if tool.InputSchema == nil {
			t.Errorf("%s without a schema", tool.Name)
		}
		n++
	}
	if n != 12 {
		t.Errorf("listed %d tools, want 12", n)
	}
	call := func(name string, args any, token any) *mcp.CallToolResult {
		t.Helper()
		p := &mcp.CallToolParams{Name: name, Arguments: args}
		if token != nil {
			p.SetProgressToken(token)
		}
		r, err := cs.CallTool(ctx, p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return r
	}
	text := func(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }
	if got := text(call("echo", map[string]any{"text": "héllo <&> \u2028"}, nil)); got != "héllo <&> \u2028" {
		t.Errorf("echo = %q", got)
	}
	if got := text(call("add", map[string]any{"a": 2, "b": 40}, nil)); got != "42" {
		t.Errorf("add = %q", got)
	}
	if r := call("fail", nil, nil); !r.IsError {
		t.Error("fail is not an error")
	}
	if got := text(call("progress", map[string]any{"n": 3, "ms": 1}, "tok")); got != "done" {
		t.Errorf("progress = %q", got)
	}
	for want := range 3 {
		select {
		case got := <-progressed:
			if got != float64(want+1) {
				t.Errorf("progress %v, want %d", got, want+1)
			}
		case <-ctx.Done():
			t.Fatal("progress did not arrive")
		}
	}
	if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "absent"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("absent tool: %v", err)
	}
	if srv == nil {
		return
	}
	if !srv.Await(ctx, func() bool { return srv.Streams() == 1 }) {
		t.Fatalf("%d streams, want 1", srv.Streams())
	}
	srv.PutTool(upstream.Named("fake", "fresh"))
	if n := srv.NotifyToolsChanged(); n != 1 {
		t.Errorf("notified %d streams", n)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("list_changed did not arrive")
	}
	if got := text(call("fresh", nil, nil)); got != "server=fake tool=fresh" {
		t.Errorf("fresh = %q", got)
	}
}

func TestSDKNotifiedOverStdio(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			ctx := within(t)
			srv, client := overPipes(t, upstream.Config{Tools: builtins(t, "echo")})
			changed := make(chan struct{}, 1)
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
			})
			cs, err := c.Connect(ctx, &mcp.IOTransport{Reader: client.r, Writer: client.w}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer cs.Close()
			if !srv.Await(ctx, func() bool { return srv.Streams() == 1 }) {
				t.Fatal("no stream")
			}
			srv.NotifyToolsChanged()
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("list_changed did not arrive")
			}
		})
	}
}

func TestSDKSurvivesForgottenSession(t *testing.T) {
	ctx := within(t)
	srv, url := listen(t, upstream.Config{Tools: builtins(t, "echo")})
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	srv.ForgetSessions()
	if _, err := cs.ListTools(ctx, nil); err == nil {
		t.Error("a forgotten session still lists")
	}
}

func TestSDKElicitation(t *testing.T) {
	ctx := within(t)
	_, url := listen(t, upstream.Config{Tools: []upstream.Tool{{Name: "ask", Handler: func(ctx context.Context, c *upstream.Call) {
		m, err := c.Ask(ctx, "elicitation/create", []byte(`{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`))
		if err != nil {
			c.ReplyError(-32603, err.Error(), nil)
			return
		}
		var r struct{ Result struct{ Action string } }
		json.Unmarshal(m, &r)
		c.ReplyText(r.Result.Action)
	}}}})
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	cs, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{}}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "ask"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Content[0].(*mcp.TextContent).Text); got != "decline" {
		t.Errorf("answer %q", got)
	}
}
