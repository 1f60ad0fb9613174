package mcphttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/adapters/mcphttp"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/test/upstream"
)

func tool(name string, h upstream.Handler) upstream.Tool {
	return upstream.Tool{Name: name, Definition: []byte(definition(name)), Handler: h}
}

// bothEras runs a test against an upstream of each era.
func bothEras(t *testing.T, f func(t *testing.T, eras upstream.Eras)) {
	t.Run("legacy", func(t *testing.T) { f(t, upstream.LegacyOnly) })
	t.Run("modern", func(t *testing.T) { f(t, upstream.ModernOnly) })
}

func TestEraDetection(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		cfg  upstream.Config
		want mcp.Era
	}{
		"modern":                     {upstream.Config{Eras: upstream.ModernOnly}, mcp.Modern},
		"both":                       {upstream.Config{Eras: upstream.BothEras}, mcp.Modern},
		"modern over SSE":            {upstream.Config{Eras: upstream.ModernOnly, SSE: true}, mcp.Modern},
		"legacy, 400":                {upstream.Config{Eras: upstream.LegacyOnly}, mcp.Legacy},
		"legacy, 404":                {upstream.Config{Eras: upstream.LegacyOnly, Probe: upstream.ProbeNotFound}, mcp.Legacy},
		"legacy, unsupported":        {upstream.Config{Eras: upstream.LegacyOnly, Probe: upstream.ProbeUnsupported}, mcp.Legacy},
		"legacy, discovers itself":   {upstream.Config{Eras: upstream.LegacyOnly, Probe: upstream.ProbeLegacyList}, mcp.Legacy},
		"legacy, does not answer":    {upstream.Config{Eras: upstream.LegacyOnly, Probe: upstream.ProbeHang}, mcp.Legacy},
		"legacy without session ids": {upstream.Config{Eras: upstream.LegacyOnly, NoSessionID: true}, mcp.Legacy},
		"legacy, primed SSE":         {upstream.Config{Eras: upstream.LegacyOnly, SSE: true, SSEPrime: true}, mcp.Legacy},
		"legacy, an old version":     {upstream.Config{Eras: upstream.LegacyOnly, LegacyVersions: []string{"2024-11-05"}}, mcp.Legacy},
	} {
		t.Run(name, func(t *testing.T) {
			x.cfg.Tools = []upstream.Tool{builtin(t, "echo")}
			up, url := serve(t, x.cfg)
			s, _ := open(t, url)
			if s.Era() != x.want {
				t.Errorf("era %v, want %v", s.Era(), x.want)
			}
			if c := callTool(t, s, `{"name":"echo","arguments":{"text":"hi"}}`); c.Failure != nil || !strings.Contains(c.text(), `"hi"`) {
				t.Errorf("%v %s", c.Failure, c.text())
			}
			want := 1
			if x.want == mcp.Modern {
				want = 0
			}
			if up.Initializes() != want || up.Count("notifications/initialized") != want {
				t.Errorf("%d initializes, %d initialized", up.Initializes(), up.Count("notifications/initialized"))
			}
			for _, m := range up.Received("tools/call") {
				v := m.Header.Get("Mcp-Protocol-Version")
				switch {
				case x.want == mcp.Modern && (v != "2026-07-28" || m.Header.Get("Mcp-Method") != "tools/call" || m.Header.Get("Mcp-Name") != "echo"):
					t.Errorf("headers %v", m.Header)
				case x.want == mcp.Legacy && (m.Header.Get("Mcp-Method") != "" || strings.Contains(m.Body, "io.modelcontextprotocol")):
					t.Errorf("modern parts for a legacy server: %v %s", m.Header, m.Body)
				}
			}
		})
	}
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	answers := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if k, v, ok := strings.Cut(header, "="); ok {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	// initialize answers only initialize, the rest with 404.
	initialize := func(result, header string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			var m jsonrpc.Message
			if m.Scan(b, jsonrpc.Limits{}) != nil || m.Method() != "initialize" {
				w.WriteHeader(404)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if header != "" {
				w.Header()["Mcp-Session-Id"] = strings.Split(header, "|")
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID(), result)
		}
	}
	const good = `"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
	for name, x := range map[string]struct {
		h    http.HandlerFunc
		want gateway.FailureClass
	}{
		"401":                         {answers(401, `WWW-Authenticate=Bearer resource_metadata="CANARY"`, "CANARY"), gateway.FailedRefused},
		"403":                         {answers(403, "", "CANARY"), gateway.FailedRefused},
		"404 everywhere":              {answers(404, "", "CANARY"), gateway.FailedStatus},
		"500 everywhere":              {answers(500, "", "CANARY"), gateway.FailedStatus},
		"redirect":                    {answers(307, "Location=/other", ""), gateway.FailedStatus},
		"redirect elsewhere":          {answers(302, "Location=http://169.254.169.254/", ""), gateway.FailedStatus},
		"captive proxy":               {answers(200, "Content-Type=text/html", "<html>CANARY"), gateway.FailedProtocol},
		"202":                         {answers(202, "", ""), gateway.FailedProtocol},
		"broken JSON":                 {answers(200, "Content-Type=application/json", "{CANARY"), gateway.FailedProtocol},
		"initialize errs":             {initialize(`"error":{"code":-1,"message":"CANARY"}`, ""), gateway.FailedProtocol},
		"unknown version":             {initialize(strings.Replace(good, "2025-06-18", "2031-01-01", 1), ""), gateway.FailedProtocol},
		"modern version":              {initialize(strings.Replace(good, "2025-06-18", "2026-07-28", 1), ""), gateway.FailedProtocol},
		"no version":                  {initialize(`"result":{}`, ""), gateway.FailedProtocol},
		"session id with a blank":     {initialize(good, "a b"), gateway.FailedProtocol},
		"session id too long":         {initialize(good, strings.Repeat("a", 2000)), gateway.FailedProtocol},
		"two session ids":             {initialize(good, "a|b"), gateway.FailedProtocol},
		"initialized is not accepted": {initialize(good, ""), gateway.FailedStatus},
		"connection drops": {func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			conn.Close()
		}, gateway.FailedProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(x.h)
			defer srv.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			s, err := newUpstream(t, mcphttp.UpstreamOptions{}).Open(ctx, target(t, srv.URL+"/mcp", ""))
			if err == nil {
				s.Close()
				t.Fatal("it opened")
			}
			f := failureOf(t, err)
			if f.Class != x.want || !strings.Contains(f.Detail, "up at "+strings.TrimPrefix(srv.URL, "http://")) || strings.Contains(f.Detail, "CANARY") || strings.Contains(f.Detail, "/mcp") || len(f.Detail) > 256 {
				t.Errorf("%v, want class %s, with id and host:port only", f, x.want)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), target(t, "http://"+l.Addr().String()+"/mcp", ""))
	if f := failureOf(t, err); f.Class != gateway.FailedDial {
		t.Errorf("nobody listens: %v", f)
	}
	srv := httptest.NewUnstartedServer(answers(200, "", ""))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	_, err = newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), target(t, srv.URL+"/mcp", ""))
	if f := failureOf(t, err); f.Class != gateway.FailedTLS {
		t.Errorf("a certificate of nobody's: %v", f)
	}
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }))
	defer hang.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = newUpstream(t, mcphttp.UpstreamOptions{}).Open(ctx, target(t, hang.URL, ""))
	if f := failureOf(t, err); f.Class != gateway.FailedTimeout {
		t.Errorf("no answer: %v", f)
	}
}

func TestTLS(t *testing.T) {
	up := upstream.New(upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{builtin(t, "echo")}})
	defer up.Close()
	srv := httptest.NewTLSServer(up)
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	s := openTarget(t, newUpstream(t, mcphttp.UpstreamOptions{RootCAs: roots}), target(t, srv.URL+"/mcp", ""))
	if c := callTool(t, s, `{"name":"echo"}`); c.Failure != nil {
		t.Error(c.Failure)
	}
	s.Close() // before the server, which waits for its streams
}

// TestC15Replies sends one reply in every form that it may take, and in forms that are none.
func TestC15Replies(t *testing.T) {
	const json = "application/json"
	const sse = "text/event-stream"
	const ok = `"content":[{"type":"text","text":"žluťoučký"}]`
	type chunks = [][]byte
	type reply func(r []byte) (status int, typ string, out chunks)
	whole := func(typ, format string) reply {
		return func(r []byte) (int, string, chunks) {
			return 200, typ, chunks{[]byte(strings.ReplaceAll(format, "R", string(r)))}
		}
	}
	lines := func(r []byte, end string) string {
		return "data: " + strings.Replace(string(r), `,"result"`, end+`data: ,"result"`, 1)
	}
	good := map[string]reply{
		"json":                      whole(json, "R"),
		"json, charset":             whole("Application/JSON;charset=UTF-8", "R"),
		"json, blanks around":       whole(json, " \r\n R\n"),
		"json in pieces":            func(r []byte) (int, string, chunks) { return 200, json, bytes.SplitAfter(r, []byte(",")) },
		"sse":                       whole(sse, "data: R\n\n"),
		"sse, charset":              whole("text/event-stream; charset=utf-8", "event: message\ndata: R\n\n"),
		"sse in capitals":           whole("Text/Event-Stream", "data: R\n\n"),
		"sse, no blank":             whole(sse, "data:R\n\n"),
		"sse, CRLF":                 whole(sse, "event: message\r\ndata: R\r\n\r\n"),
		"sse, CR":                   whole(sse, "event: message\rdata: R\r\r"),
		"sse, comments, id, retry":  whole(sse, ": hello\n\nid: 1\nretry: 5\n: more\ndata: R\n\n"),
		"sse, BOM":                  whole(sse, "\xEF\xBB\xBFdata: R\n\n"),
		"sse, primed":               whole(sse, "id: 0\ndata:\n\nid: 1\ndata: R\n\n"),
		"sse, other types first":    whole(sse, "event: ping\ndata: {}\n\ndata: R\n\n"),
		"sse, more after the reply": whole(sse, "data: R\n\ndata: R\n\n"),
		"sse, noise first":          whole(sse, "data: hello\n\ndata: null\n\ndata: R\n\n"),
		"sse, foreign ids first":    whole(sse, `data: {"jsonrpc":"2.0","id":"1","result":{"content":[]}}`+"\n\n"+`data: {"jsonrpc":"2.0","id":0,"result":{}}`+"\n\n"+`data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`+"\n\ndata: R\n\n"),
		"sse, unknown notification": whole(sse, `data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}`+"\n\ndata: R\n\n"),
		"sse over several lines": func(r []byte) (int, string, chunks) {
			return 200, sse, chunks{[]byte(lines(r, "\n") + "\n\n")}
		},
		"sse over several lines, CR": func(r []byte) (int, string, chunks) {
			return 200, sse, chunks{[]byte(lines(r, "\r") + "\r\r")}
		},
		"sse, one byte at a time": func(r []byte) (int, string, chunks) {
			var out chunks
			for _, c := range []byte("event: message\r\ndata: " + string(r) + "\r\n\r\n") {
				out = append(out, []byte{c})
			}
			return 200, sse, out
		},
		"sse, split in a rune": func(r []byte) (int, string, chunks) {
			at := bytes.Index(r, []byte("ž")) + 1
			return 200, sse, chunks{[]byte("data: " + string(r[:at])), []byte(string(r[at:]) + "\n\n")}
		},
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, "{}")
	z.Close()
	bad := map[string]reply{
		"sse, unterminated event":   whole(sse, "data: R\n"),
		"sse, unterminated line":    whole(sse, "data: R"),
		"sse, empty":                whole(sse, ""),
		"sse, nothing but comments": whole(sse, ":\n\n:\n\n"),
		"sse, another id":           whole(sse, `data: {"jsonrpc":"2.0","id":99999,"result":{"content":[]}}`+"\n\n"),
		"sse, ambiguous reply":      func(r []byte) (int, string, chunks) { return 200, sse, chunks{dup(r, "data: ", "\n\n")} },
		"html":                      whole("text/html", "<html>R</html>"),
		"unknown type":              whole("application/octet-stream", "R"),
		"text":                      whole("text/plain", "R"),
		"not a type":                whole("/", "R"),
		"202":                       func([]byte) (int, string, chunks) { return 202, "", nil },
		"204":                       func([]byte) (int, string, chunks) { return 204, "", nil },
		"empty json":                whole(json, ""),
		"{}":                        whole(json, "{}"),
		"null":                      whole(json, "null"),
		"batch":                     whole(json, "[R]"),
		"neither result nor error":  whole(json, `{"jsonrpc":"2.0","id":3}`),
		"another id":                whole(json, `{"jsonrpc":"2.0","id":99999,"result":{"content":[]}}`),
		"id null":                   whole(json, `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}`),
		"id as a string":            func(r []byte) (int, string, chunks) { return 200, json, chunks{quoteID(r)} },
		"a request":                 whole(json, `{"jsonrpc":"2.0","id":3,"method":"ping"}`),
		"ambiguous reply":           func(r []byte) (int, string, chunks) { return 200, json, chunks{dup(r, "", "")} },
		"cut off":                   func(r []byte) (int, string, chunks) { return 200, json, chunks{r[:len(r)-5]} },
	}
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		var current atomic.Value
		handler := func(_ context.Context, c *upstream.Call) {
			status, typ, out := current.Load().(reply)(upstream.Result(c.ID, []byte("{"+ok+"}")))
			header := map[string]string{}
			if typ != "" {
				header["Content-Type"] = typ
			}
			c.ReplyHTTP(status, header, out...)
		}
		_, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{tool("t", handler)}})
		s, _ := open(t, url)
		for name, r := range good {
			current.Store(r)
			c := callTool(t, s, `{"name":"t","arguments":{}}`)
			if c.Failure != nil || c.Sent != gateway.Answered {
				t.Errorf("%s: %v", name, c.Failure)
				continue
			}
			if v, found := c.response.Top.Get("result"); !found || !strings.Contains(string(c.response.Bytes(v.Value)), "žluťoučký") {
				t.Errorf("%s: got %s", name, c.text())
			}
		}
		for name, r := range bad {
			current.Store(r)
			began := time.Now()
			c := callTool(t, s, `{"name":"t","arguments":{}}`)
			if c.class() != gateway.FailedProtocol || c.Sent != gateway.MaybeSent {
				t.Errorf("%s: %v, sent %v, %s", name, c.Failure, c.Sent, c.text())
			}
			if time.Since(began) > 2*time.Second {
				t.Errorf("%s: not prompt", name)
			}
		}
		current.Store(reply(func([]byte) (int, string, chunks) { return 200, json, chunks{zipped.Bytes()} }))
		if c := callTool(t, s, `{"name":"t"}`); c.class() != gateway.FailedProtocol {
			t.Errorf("gzip bytes: %v", c.Failure)
		}
	})
	// A content coding that nobody asked for.
	srv := answering(t, func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", json)
		w.Header().Set("Content-Encoding", "gzip") // even if it is not true
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	})
	s, _ := open(t, srv)
	if c := callTool(t, s, `{"name":"t"}`); c.class() != gateway.FailedProtocol {
		t.Errorf("gzip: %v", c.Failure)
	}
}

// dup makes a reply with a duplicate member.
func dup(r []byte, before, after string) []byte {
	return []byte(before + strings.Replace(string(r), `"result":`, `"result":{"content":[]},"result":`, 1) + after)
}

func quoteID(r []byte) []byte {
	head, tail, _ := strings.Cut(string(r), `,"result"`)
	at := strings.LastIndexByte(head, ':') + 1
	return []byte(head[:at] + `"` + head[at:] + `","result"` + tail)
}

// answering is a modern server by hand that answers tools/call as told.
func answering(t testing.TB, call func(w http.ResponseWriter, id string)) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var m jsonrpc.Message
		if m.Scan(b, jsonrpc.Limits{}) != nil {
			w.WriteHeader(400)
			return
		}
		if m.Method() == "tools/call" {
			call(w, string(m.ID()))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"tools":[]}}`, m.ID())
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/mcp"
}

func TestC10ResponseBound(t *testing.T) {
	const limit = 100_000
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		exact := func(_ context.Context, c *upstream.Call) {
			var n int
			fmt.Sscanf(string(c.Arguments), `{"n":%d}`, &n)
			head := upstream.Result(c.ID, []byte(`{"resultType":"complete","content":[{"type":"text","text":""}]}`))
			at := bytes.LastIndex(head, []byte(`""}`)) + 1
			c.ReplyFrame(append(append(append([]byte{}, head[:at]...), bytes.Repeat([]byte("a"), n-len(head))...), head[at:]...))
		}
		for _, stream := range []bool{false, true} {
			_, url := serve(t, upstream.Config{Eras: eras, SSE: stream, Tools: []upstream.Tool{tool("exact", exact), builtin(t, "flood"), builtin(t, "echo")}})
			s, _ := open(t, url)
			for n, fits := range map[int]bool{70_000: true, limit - 1: true, limit: true, limit + 1: false} {
				c := callCtx(t, ctx, s, fmt.Sprintf(`{"name":"exact","arguments":{"n":%d}}`, n), false, limit)
				if fits && (c.Failure != nil || len(c.response.Raw) != n) || !fits && (c.class() != gateway.FailedTooLarge || c.Sent != gateway.Answered) {
					t.Errorf("stream %v, %d bytes: %v", stream, n, c.Failure)
				}
			}
			for _, asJSON := range []bool{false, true} {
				c := callCtx(t, ctx, s, fmt.Sprintf(`{"name":"flood","arguments":{"n":2147483648,"json":%v}}`, asJSON), false, limit)
				if c.class() != gateway.FailedTooLarge || !strings.Contains(c.Failure.Detail, strconv.Itoa(limit)) {
					t.Errorf("flood, json %v: %v", asJSON, c.Failure)
				}
			}
			if c := callTool(t, s, `{"name":"echo"}`); c.Failure != nil {
				t.Errorf("afterwards: %v", c.Failure)
			}
		}
	})
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		var status atomic.Int64
		var body atomic.Value
		handler := func(_ context.Context, c *upstream.Call) {
			c.ReplyHTTP(int(status.Load()), map[string]string{"Content-Type": "application/json", "Location": "/mcp2"},
				[]byte(strings.ReplaceAll(body.Load().(string), "ID", string(c.ID))))
		}
		up, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{tool("t", handler)}})
		const rpcError = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}`
		for _, x := range []struct {
			status int
			body   string
			class  gateway.FailureClass
			sent   gateway.Sent
			dies   bool
		}{
			{400, rpcError, "", gateway.Answered, false},
			{500, rpcError, "", gateway.Answered, false},
			{404, rpcError, "", gateway.Answered, eras == upstream.LegacyOnly},
			{400, `CANARY`, gateway.FailedStatus, gateway.Answered, eras == upstream.LegacyOnly},
			{404, `CANARY`, gateway.FailedStatus, gateway.Answered, eras == upstream.LegacyOnly},
			{429, `{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"CANARY"}}`, gateway.FailedStatus, gateway.Answered, false},
			{400, strings.Replace(rpcError, "error", "result", 1), gateway.FailedStatus, gateway.Answered, eras == upstream.LegacyOnly},
			{401, rpcError, gateway.FailedRefused, gateway.Answered, false},
			{403, rpcError, gateway.FailedRefused, gateway.Answered, false},
			{500, "CANARY", gateway.FailedStatus, gateway.MaybeSent, false},
			{502, "", gateway.FailedStatus, gateway.MaybeSent, false},
			{307, "", gateway.FailedStatus, gateway.MaybeSent, false},
			{303, "", gateway.FailedStatus, gateway.MaybeSent, false},
			{202, rpcError, gateway.FailedProtocol, gateway.MaybeSent, false},
		} {
			s, _ := open(t, url)
			status.Store(int64(x.status))
			body.Store(x.body)
			before := up.Calls("t")
			c := callTool(t, s, `{"name":"t"}`)
			want := x.class
			if x.dies && x.body == rpcError {
				want = gateway.FailedStatus // 404 with a session is about the session, whatever stands in it
			}
			if c.class() != want || c.Sent != x.sent {
				t.Errorf("%d %s: %v, sent %v", x.status, x.body, c.Failure, c.Sent)
			}
			if c.Failure != nil && (strings.Contains(c.Failure.Detail, "CANARY") || !strings.Contains(c.Failure.Detail, strconv.Itoa(x.status))) {
				t.Errorf("%d: detail %q", x.status, c.Failure.Detail)
			}
			if n := up.Calls("t") - before; n != 1 {
				t.Errorf("%d: sent %d times", x.status, n)
			}
			select {
			case <-s.Done():
				if !x.dies {
					t.Errorf("%d %s: the session died", x.status, x.body)
				}
			default:
				if x.dies {
					t.Errorf("%d %s: the session lives on", x.status, x.body)
				}
			}
		}
	})
}

func TestC14LostSession(t *testing.T) {
	for _, stale := range []int{404, 400} {
		up, url := serve(t, upstream.Config{Eras: upstream.LegacyOnly, StaleStatus: stale, Tools: []upstream.Tool{builtin(t, "echo")}})
		u := newUpstream(t, mcphttp.UpstreamOptions{})
		s := openTarget(t, u, target(t, url, ""))
		if c := callTool(t, s, `{"name":"echo"}`); c.Failure != nil {
			t.Fatal(c.Failure)
		}
		up.ForgetSessions()
		var wg sync.WaitGroup
		var asked atomic.Int64
		for range 20 {
			wg.Go(func() {
				c := callTool(t, s, `{"name":"echo"}`)
				if c.class() == gateway.FailedStatus && c.Sent == gateway.Answered {
					asked.Add(1)
				} else if c.class() != gateway.FailedExited || c.Sent != gateway.NotSent { // it was known to be over already
					t.Errorf("%v, sent %v", c.Failure, c.Sent)
				}
			})
		}
		wg.Wait()
		<-s.Done()
		if up.Initializes() != 1 || asked.Load() == 0 || int64(up.Calls("echo")) != 1+asked.Load() {
			t.Errorf("%d handshakes, %d calls: a session heals by being replaced, and no call is repeated", up.Initializes(), up.Calls("echo"))
		}
		again := openTarget(t, u, target(t, url, ""))
		for _, m := range up.Received("initialize") {
			if m.Session != "" {
				t.Error("initialize with an old session id")
			}
		}
		if c := callTool(t, again, `{"name":"echo"}`); c.Failure != nil {
			t.Error(c.Failure)
		}
	}
	// Without an id, 404 is about the address.
	srv, url := serve(t, upstream.Config{Eras: upstream.LegacyOnly, NoSessionID: true, Tools: []upstream.Tool{tool("t", func(_ context.Context, c *upstream.Call) { c.ReplyHTTP(404, nil) })}})
	s, _ := open(t, url)
	if c := callTool(t, s, `{"name":"t"}`); c.class() != gateway.FailedStatus {
		t.Error(c.Failure)
	}
	select {
	case <-s.Done():
		t.Error("a session without an id died of 404")
	default:
	}
	_ = srv
}

// TestC14Pooled drives the same through a gateway: one handshake for all who wait.
func TestC14Pooled(t *testing.T) {
	up, url := serve(t, upstream.Config{Eras: upstream.LegacyOnly, Tools: []upstream.Tool{builtin(t, "echo")}})
	h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "echo"), mcphttp.Options{})
	c := client(t)
	body, headers := modern("tools/call", `"name":"up__echo","arguments":{}`)
	if a := do(t, c, h.request(t, body, headers)); strings.Contains(a.body, "isError") {
		t.Fatal(a.body)
	}
	up.ForgetSessions()
	if a := do(t, c, h.request(t, body, headers)); !strings.Contains(a.body, "upstream_failed") {
		t.Errorf("the first after the loss: %s", a.body)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if a := do(t, c, h.request(t, body, headers)); strings.Contains(a.body, "isError") {
				t.Error(a.body)
			}
		})
	}
	wg.Wait()
	if up.Initializes() != 2 {
		t.Errorf("%d handshakes, want 2", up.Initializes())
	}
}

func TestC23RequestsAreBuiltFromNothing(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	for name, x := range map[string]struct {
		yaml   string
		header string
		value  string
	}{
		"bearer by default": {"account: acc", "Authorization", "Bearer s3cret"},
		"bearer":            {"account: acc\n    deliver: bearer", "Authorization", "Bearer s3cret"},
		"another header":    {"account: acc\n    deliver: \"header:X-Key\"", "X-Key", "s3cret"},
		"configured headers": {"account: acc\n    headers: { X-Team: { ref: \"env://TEAM\" }, x-plain: \"a b\" }", "X-Team",
			"blue"},
	} {
		bothEras(t, func(t *testing.T, eras upstream.Eras) {
			up, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{builtin(t, "echo")}})
			u := newUpstream(t, mcphttp.UpstreamOptions{Client: mcp.Implementation{Name: "adu ana", Version: "1"}})
			at := target(t, url, x.yaml)
			at.Material = gateway.Material{Secret: gateway.NewSecret("s3cret")}
			at.Settings = map[string]gateway.Material{"env://TEAM": {Secret: gateway.NewSecret("blue")}}
			s := openTarget(t, u, at)
			if _, err := s.Tools(context.Background()); err != nil {
				t.Fatal(err)
			}
			if c := callTool(t, s, `{"name":"echo"}`); c.Failure != nil {
				t.Fatal(c.Failure)
			}
			s.Close()
			for _, m := range up.Messages() {
				if m.Header.Get(x.header) != x.value || len(m.Header.Values(x.header)) != 1 {
					t.Errorf("%s: %s %s: %s is %q", name, m.Verb, m.Method, x.header, m.Header.Values(x.header))
				}
				if m.Header.Get("Accept-Encoding") != "identity" || m.Header.Get("User-Agent") != "adu-ana/1" || m.Path != "/mcp" {
					t.Errorf("%s: %v %s", name, m.Header, m.Path)
				}
				if x.header != "Authorization" && !strings.Contains(x.yaml, "headers") && m.Header.Get("Authorization") != "" {
					t.Errorf("%s: Authorization as well", name)
				}
			}
		})
	}
	// Without an account there is no credential, whatever the material.
	for _, h := range []string{"Expect", "expect"} {
		_, err := newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), target(t, "http://127.0.0.1:1/mcp", "account: acc\n    headers: { "+h+": \"x\" }"))
		if f := failureOf(t, err); f.Class != gateway.FailedRefused {
			t.Errorf("%s: %v", h, f)
		}
	}
	_, err := newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), target(t, "http://127.0.0.1:1/mcp", "account: acc\n    headers: { X-A: { ref: \"env://GONE\" } }"))
	if f := failureOf(t, err); f.Class != gateway.FailedRefused {
		t.Errorf("a reference without a value: %v", f)
	}
	at := target(t, "http://127.0.0.1:1/mcp", "account: acc")
	at.Material = gateway.Material{Secret: gateway.NewSecret("CANARY\r\nX-Evil: 1")}
	_, err = newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), at)
	if f := failureOf(t, err); f.Class != gateway.FailedRefused || strings.Contains(f.Detail, "CANARY") {
		t.Errorf("a secret with a line break: %v", f)
	}
}

// TestX09UpstreamPath: the path goes as configured.
func TestX09UpstreamPath(t *testing.T) {
	for _, path := range []string{"/mcp", "/mcp/", "/a%2Fb/mcp?x=1&y=%20", "/", ""} {
		up := upstream.New(upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{builtin(t, "echo")}})
		srv := httptest.NewServer(up)
		s := openTarget(t, newUpstream(t, mcphttp.UpstreamOptions{}), target(t, srv.URL+path, ""))
		if c := callTool(t, s, `{"name":"echo"}`); c.Failure != nil {
			t.Error(c.Failure)
		}
		want := path
		if want == "" {
			want = "/"
		}
		for _, m := range up.Messages() {
			if m.Path != want {
				t.Errorf("%s went to %s", path, m.Path)
			}
		}
		s.Close()
		up.Close()
		srv.Close()
	}
}

func TestX11Progress(t *testing.T) {
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		handler := func(_ context.Context, c *upstream.Call) {
			c.Progress(1, 2)
			c.ProgressTo([]byte(`"`+string(c.Token)+`"`), 1, 2)
			c.ProgressTo([]byte("987654"), 1, 2)
			c.ProgressTo([]byte("null"), 1, 2)
			c.Emit([]byte(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
			c.Progress(2, 2)
			c.ReplyText("done")
			c.Progress(3, 2)
		}
		up, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{tool("t", handler)}})
		s, _ := open(t, url)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				c := callTool(t, s, `{"name":"t","_meta":{"progressToken":"client"}}`)
				if c.Failure != nil || len(c.progress) != 2 {
					t.Errorf("%v, progress %q", c.Failure, c.progress)
				}
			})
		}
		wg.Wait()
		tokens := map[string]bool{}
		for _, m := range up.Received("tools/call") {
			if strings.Contains(m.Body, `"client"`) {
				t.Errorf("the client's token went up: %s", m.Body)
			}
			_, rest, _ := strings.Cut(m.Body, `"progressToken":`)
			tokens[strings.TrimRight(strings.SplitN(rest, ",", 2)[0], "}")] = true
		}
		if len(tokens) != 10 {
			t.Errorf("%d tokens for 10 calls", len(tokens))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if c := callCtx(t, ctx, s, `{"name":"t","_meta":{"progressToken":"client"}}`, false, 1<<20); c.Failure != nil {
			t.Error(c.Failure)
		}
		all := up.Received("tools/call")
		if strings.Contains(all[len(all)-1].Body, "progressToken") {
			t.Error("a token was given though nobody wants progress")
		}
	})
}

func TestX07StrayReplies(t *testing.T) {
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		_, url := serve(t, upstream.Config{Eras: eras, SSE: true, Tools: []upstream.Tool{builtin(t, "strayids"), builtin(t, "echo")}})
		s, u := open(t, url)
		c := callTool(t, s, `{"name":"strayids"}`)
		if c.Failure != nil || !strings.Contains(c.text(), `"for you"`) {
			t.Errorf("%v %s", c.Failure, c.text())
		}
		if n := u.Foreign(); n < 4 {
			t.Errorf("%d strays counted", n)
		}
	})
}

func TestServerRequests(t *testing.T) {
	answers := make(chan string, 3)
	handler := func(ctx context.Context, c *upstream.Call) {
		for _, method := range []string{"ping", "sampling/createMessage", "elicitation/create"} {
			r, err := c.Ask(ctx, method, []byte(`{}`))
			answers <- fmt.Sprintf("%s %v", r, err)
		}
		c.ReplyText("done")
	}
	_, url := serve(t, upstream.Config{Eras: upstream.LegacyOnly, Tools: []upstream.Tool{tool("t", handler)}})
	s, _ := open(t, url)
	if c := callTool(t, s, `{"name":"t"}`); c.Failure != nil {
		t.Fatal(c.Failure)
	}
	if a := <-answers; !strings.Contains(a, `"result":{}`) {
		t.Errorf("ping: %s", a)
	}
	for range 2 {
		if a := <-answers; !strings.Contains(a, "-32601") {
			t.Errorf("%s", a)
		}
	}
}

func TestCancel(t *testing.T) {
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		up, url := serve(t, upstream.Config{Eras: eras, Capabilities: `{"tools":{}}`, Tools: []upstream.Tool{builtin(t, "hang")}})
		s, _ := open(t, url)
		bounded, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		for i, timeout := range []bool{false, true} {
			ctx, cancel := context.WithCancel(bounded)
			if timeout {
				ctx, cancel = context.WithTimeout(bounded, 50*time.Millisecond)
			}
			go func() {
				if !timeout {
					up.Await(bounded, func() bool { return up.Calls("hang") == 1 })
					cancel()
				}
			}()
			c := callCtx(t, ctx, s, `{"name":"hang"}`, false, 1000)
			cancel()
			want := gateway.FailedCancelled
			if timeout {
				want = gateway.FailedTimeout
			}
			if c.class() != want || c.Sent != gateway.MaybeSent {
				t.Errorf("timeout %v: %v, sent %v", timeout, c.Failure, c.Sent)
			}
			if !up.Await(bounded, func() bool {
				return up.InFlight() == 0 && (eras == upstream.ModernOnly || len(up.Cancellations()) == i+1)
			}) {
				t.Fatal("the upstream was not told")
			}
			if eras == upstream.ModernOnly {
				if up.Count("notifications/cancelled") > 0 {
					t.Error("the modern era cancels by closing")
				}
			} else if got := up.Cancellations(); len(got) != i+1 || got[i].Unknown || got[i].Tool != "hang" || !got[i].Notified {
				t.Errorf("%+v", got)
			}
		}
		// Before anything was sent.
		ctx, cancel := context.WithCancel(bounded)
		cancel()
		if _, err := s.Tools(bounded); err != nil { // leaves a connection on which it could be sent
			t.Fatal(err)
		}
		before := up.Calls("hang")
		for range 20 {
			if c := callCtx(t, ctx, s, `{"name":"hang"}`, false, 1000); c.Sent != gateway.NotSent || c.class() != gateway.FailedCancelled {
				t.Errorf("%v, sent %v", c.Failure, c.Sent)
			}
		}
		if up.Calls("hang") != before {
			t.Error("a cancelled call was sent")
		}
		// Close cuts what runs.
		done := make(chan call)
		go func() { done <- callCtx(t, bounded, s, `{"name":"hang"}`, false, 1000) }()
		up.Await(bounded, func() bool { return up.Calls("hang") == before+1 })
		s.Close()
		if c := <-done; c.Failure == nil || c.Sent != gateway.MaybeSent {
			t.Errorf("%v, sent %v", c.Failure, c.Sent)
		}
		if c := callCtx(t, bounded, s, `{"name":"hang"}`, false, 1000); c.Failure == nil || c.Sent != gateway.NotSent {
			t.Errorf("after Close: %v, sent %v", c.Failure, c.Sent)
		}
	})
}

// breaker is a TCP server that answers HTTP by hand and breaks connections where it is told.
type breaker struct {
	l      net.Listener
	posts  atomic.Int64 // tools/call received
	plan   func(n int64, c net.Conn) (keep bool)
	accept atomic.Int64
}

func newBreaker(t *testing.T) *breaker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &breaker{l: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.accept.Add(1)
			go b.serve(c)
		}
	}()
	return b
}

func (b *breaker) serve(c net.Conn) {
	defer c.Close()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m jsonrpc.Message
		if m.Scan(body, jsonrpc.Limits{}) != nil {
			return
		}
		if m.Method() == "tools/call" {
			if !b.plan(b.posts.Add(1), c) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					conn.Close()
				}
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"supportedVersions":["2026-07-28"],"capabilities":{}}}`, m.ID())
	})}
	srv.Serve(&oneConn{c: c})
}

// oneConn is a listener that gives one connection and then waits for its end.
type oneConn struct {
	c    net.Conn
	used atomic.Bool
}

func (o *oneConn) Accept() (net.Conn, error) {
	if o.used.Swap(true) {
		time.Sleep(3 * time.Second)
		return nil, io.EOF
	}
	return o.c, nil
}
func (o *oneConn) Close() error   { return nil }
func (o *oneConn) Addr() net.Addr { return o.c.LocalAddr() }

// TestCallsAreNeverSentTwice breaks connections, fresh and reused, after the request arrived.
func TestCallsAreNeverSentTwice(t *testing.T) {
	b := newBreaker(t)
	b.plan = func(n int64, _ net.Conn) bool { return n%2 == 1 }
	s, _ := open(t, "http://"+b.l.Addr().String()+"/mcp")
	for n := int64(1); n <= 10; n++ {
		c := callTool(t, s, `{"name":"t"}`)
		if n%2 == 1 && c.Failure != nil {
			t.Errorf("call %d: %v", n, c.Failure)
		}
		if n%2 == 0 && (c.class() != gateway.FailedProtocol || c.Sent != gateway.MaybeSent) {
			t.Errorf("call %d on a connection that broke: %v, sent %v", n, c.Failure, c.Sent)
		}
		if got := b.posts.Load(); got != n {
			t.Fatalf("after %d calls %d had arrived", n, got)
		}
	}
}

func TestNotSent(t *testing.T) {
	up, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{builtin(t, "echo")}})
	s, u := open(t, url)
	up.Close()
	u.Close() // no idle connection is left
	for range 2 {
		c := callTool(t, s, `{"name":"echo"}`)
		if c.class() != gateway.FailedDial || c.Sent != gateway.NotSent {
			t.Errorf("%v, sent %v", c.Failure, c.Sent)
		}
	}
}

func TestC20ToolsPages(t *testing.T) {
	t.Parallel()
	var tools []upstream.Tool
	for i := range 101 {
		tools = append(tools, tool(fmt.Sprintf("t%03d", i), nil))
	}
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		for name, x := range map[string]struct {
			cursor func(int) string
			ok     bool
		}{
			"opaque":       {nil, true},
			"one is empty": {func(o int) string { return strings.Repeat("x", o/50-1) }, true},
			"always empty": {func(int) string { return "" }, false},
			"always equal": {func(int) string { return "c" }, false},
			"with escapes": {func(o int) string { return "\"\\\u2028" + strconv.Itoa(o) }, true},
			"far too long": {func(o int) string { return strings.Repeat("x", 20_000) + strconv.Itoa(o) }, false},
		} {
			up, url := serve(t, upstream.Config{Eras: eras, Tools: tools, PageSize: 50, Cursor: x.cursor})
			s, _ := open(t, url)
			got, err := s.Tools(context.Background())
			if x.ok {
				if err != nil || len(got) != 101 || up.Count("tools/list") != 3 {
					t.Errorf("%s: %d tools, %v, %d requests", name, len(got), err, up.Count("tools/list"))
				}
				for i, l := range got {
					if string(l.Raw) != definition(fmt.Sprintf("t%03d", i)) {
						t.Errorf("%s: tool %d is %s", name, i, l.Raw)
					}
				}
				continue
			}
			if err == nil || failureOf(t, err).Class != gateway.FailedProtocol || up.Count("tools/list") > 12 {
				t.Errorf("%s: %v after %d requests", name, err, up.Count("tools/list"))
			}
		}
		// C10 for pages and for the whole.
		_, url := serve(t, upstream.Config{Eras: eras, Tools: tools, PageSize: 50})
		for name, o := range map[string]mcphttp.UpstreamOptions{"page": {MaxPage: 1000}, "list": {MaxList: 4000}} {
			s := openTarget(t, newUpstream(t, o), target(t, url, ""))
			if _, err := s.Tools(context.Background()); failureOf(t, err).Class != gateway.FailedTooLarge {
				t.Errorf("%s: %v", name, err)
			}
		}
		// One bad tool costs itself only.
		_, url = serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{tool("a", nil), {Name: "b", Definition: []byte(`{"name":"b","name":"c","inputSchema":{"type":"object"}}`)}, tool("d", nil)}})
		s, _ := open(t, url)
		got, err := s.Tools(context.Background())
		if err != nil || len(got) != 3 || got[0].Problem != "" || got[1].Problem == "" || got[2].Problem != "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestListChanged(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		notify := func(_ context.Context, c *upstream.Call) {
			c.Emit([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
			c.ReplyText("x")
		}
		up, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{tool("t", notify)}})
		changes := make(chan struct{}, 100)
		at := target(t, url, "")
		at.Changed = func() { changes <- struct{}{} }
		s := openTarget(t, newUpstream(t, mcphttp.UpstreamOptions{}), at)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		wait := func(what string) {
			t.Helper()
			select {
			case <-changes:
			case <-ctx.Done():
				t.Fatal(what)
			}
		}
		if !up.Await(ctx, func() bool { return up.Streams() == 1 }) {
			t.Fatal("no stream was opened")
		}
		up.NotifyToolsChanged()
		wait("a notice on the stream")
		if c := callTool(t, s, `{"name":"t"}`); c.Failure != nil {
			t.Fatal(c.Failure)
		}
		wait("a notice on a call's stream")
		up.DropStreams()
		wait("what was missed between two streams")
		if !up.Await(ctx, func() bool { return up.Streams() == 1 }) {
			t.Fatal("the stream did not come back")
		}
		s.Close()
		if !up.Await(ctx, func() bool { return up.Streams() == 0 }) {
			t.Error("Close left the stream")
		}
		if eras == upstream.LegacyOnly && up.Sessions() != 0 {
			t.Error("Close left the session")
		}
	})
}

func TestNoStreamsWherePromisedNone(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		for name, cfg := range map[string]upstream.Config{
			"no promise": {Capabilities: `{"tools":{}}`},
			"405":        {NoGET: true, Methods: map[string]upstream.Handler{"subscriptions/listen": func(_ context.Context, c *upstream.Call) { c.ReplyError(-32601, "no", nil) }}},
		} {
			cfg.Eras = eras
			up, url := serve(t, cfg)
			s, _ := open(t, url)
			if _, err := s.Tools(context.Background()); err != nil {
				t.Error(name, err)
			}
			if name == "no promise" {
				time.Sleep(50 * time.Millisecond)
			} else {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				up.Await(ctx, func() bool { return up.Total() >= 3 })
				cancel()
			}
			if up.Streams() != 0 {
				t.Errorf("%s: a stream", name)
			}
		}
	})
}

// TestModernErrors: errors that concern the connection heal it instead of reaching the client.
func TestModernErrors(t *testing.T) {
	for code, dies := range map[int]bool{-32022: true, -32020: false} {
		_, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{tool("t", func(_ context.Context, c *upstream.Call) { c.ReplyError(code, "x", nil) })}})
		var changed atomic.Int64
		at := target(t, url, "")
		at.Changed = func() { changed.Add(1) }
		s := openTarget(t, newUpstream(t, mcphttp.UpstreamOptions{}), at)
		c := callTool(t, s, `{"name":"t"}`)
		if c.class() != gateway.FailedProtocol || c.Sent != gateway.Answered {
			t.Errorf("%d: %v", code, c.Failure)
		}
		select {
		case <-s.Done():
			if !dies {
				t.Errorf("%d ended the session", code)
			}
		default:
			if dies {
				t.Errorf("%d did not end the session", code)
			}
		}
		if (changed.Load() > 0) == dies {
			t.Errorf("%d: %d listings asked for", code, changed.Load())
		}
	}
}

func TestNameHeader(t *testing.T) {
	names := []string{"echo", "a b", "čau", " edge", "=?base64?x?=", "q\"uote"}
	var tools []upstream.Tool
	for _, n := range names {
		tools = append(tools, tool(n, nil))
	}
	_, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: tools}) // compares header and body
	s, _ := open(t, url)
	for _, n := range names {
		if c := callTool(t, s, `{"name":`+string(jsonrpc.AppendString(nil, n))+`}`); c.Failure != nil || !strings.Contains(c.text(), `"result"`) {
			t.Errorf("%q: %v %s", n, c.Failure, c.text())
		}
	}
}

func TestParamHeaders(t *testing.T) {
	t.Parallel()
	schema := func(s string) string { return `{"name":"t","inputSchema":` + s + `}` }
	good := schema(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"},
		"deep":{"type":"object","properties":{"on":{"type":"boolean","x-mcp-header":"on"}}},"x-mcp-header":{"type":"string"}}}`)
	up, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{{Name: "t", Definition: []byte(good)}}})
	s, _ := open(t, url)
	if list, err := s.Tools(context.Background()); err != nil || list[0].Problem != "" {
		t.Fatal(list, err)
	}
	for args, want := range map[string]map[string]string{
		`{"region":"eu","n":9007199254740991,"deep":{"on":true}}`: {"Region": "eu", "Count": "9007199254740991", "On": "true"},
		`{"region":"žlutý"}`: {"Region": mcp.EncodeHeader("žlutý")},
		`{"region":null}`:    {},
		`{}`:                 {},
	} {
		c := callTool(t, s, `{"name":"t","arguments":`+args+`}`)
		if c.Failure != nil || !strings.Contains(c.text(), `"result"`) {
			t.Errorf("%s: %v %s", args, c.Failure, c.text())
		}
		all := up.Received("tools/call")
		h := all[len(all)-1].Header
		for _, k := range []string{"Region", "Count", "On"} {
			if h.Get("Mcp-Param-"+k) != want[k] {
				t.Errorf("%s: Mcp-Param-%s is %q, want %q", args, k, h.Get("Mcp-Param-"+k), want[k])
			}
		}
	}
	many := `{"type":"object","properties":{`
	for i := range 65 {
		many += fmt.Sprintf(`"a%d":{"type":"string","x-mcp-header":"A%d"},`, i, i)
	}
	for name, bad := range map[string]string{
		"too many":      many + `"z":{}}}`,
		"not a token":   `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`,
		"empty":         `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		"not a string":  `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":1}}}`,
		"twice":         `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		"number":        `{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`,
		"several types": `{"type":"object","properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`,
		"object":        `{"type":"object","x-mcp-header":"A"}`,
		"in items":      `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`,
		"in anyOf":      `{"type":"object","anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`,
		"in $defs":      `{"type":"object","$defs":{"x":{"type":"string","x-mcp-header":"A"}}}`,
	} {
		_, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{{Name: "t", Definition: []byte(schema(bad))}, tool("u", nil)}})
		s, _ := open(t, url)
		list, err := s.Tools(context.Background())
		if err != nil || len(list) != 2 || list[0].Problem == "" || list[1].Problem != "" {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

func TestX13BytesSurvive(t *testing.T) {
	const args = `{"big":12345678901234567890.10, "z":{"$defs":1},"a":[1e400,-0],"é":"\u00e9"}`
	const result = `{"content":[{"type":"hologram","x":[1.0,12345678901234567890]}],"structuredContent":{"n":1e400,  "b":null},"zz":{"$ref":"x"},"_meta":{"v/k":0.10}}`
	bothEras(t, func(t *testing.T, eras upstream.Eras) {
		handler := func(_ context.Context, c *upstream.Call) { c.Reply([]byte(result)) }
		up, url := serve(t, upstream.Config{Eras: eras, SSE: true, Tools: []upstream.Tool{tool("t", handler)}})
		s, _ := open(t, url)
		c := callTool(t, s, `{"name":"t","arguments":`+args+`,"unknown":[1]}`)
		if c.Failure != nil {
			t.Fatal(c.Failure)
		}
		if v, _ := c.response.Top.Get("result"); string(c.response.Bytes(v.Value)) != result {
			t.Errorf("result %s", c.response.Bytes(v.Value))
		}
		if b := up.Received("tools/call")[0].Body; !strings.Contains(b, `"arguments":`+args) || !strings.Contains(b, `"unknown":[1]`) {
			t.Errorf("request %s", b)
		}
	})
}

func TestAddressesThatCannotBeUsed(t *testing.T) {
	for _, at := range []string{"", "/mcp", "ftp://h/mcp", "http://", "http:///mcp", "http://u:p@127.0.0.1:1/mcp", "http://žlutý/mcp", "http://127.0.0.1:1/a?x=y z",
		"http://[fe80::1%25lo]/mcp", "http://127.0.0.1:x/mcp", "http://127.0.0.1:1/a?\x7f", "http://127.0.0.1:1/\r\nX: y"} {
		to := target(t, "http://127.0.0.1:1/mcp", "")
		u := *to.Upstream
		u.URL, to.Upstream = at, &u
		_, err := newUpstream(t, mcphttp.UpstreamOptions{}).Open(context.Background(), to)
		if f := failureOf(t, err); f.Class != gateway.FailedDial || !strings.Contains(f.Detail, "its url cannot be used") {
			t.Errorf("%q: %v", at, f)
		}
	}
}
