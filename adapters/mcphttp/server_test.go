package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"aduana/adapters/mcphttp"
	"aduana/gateway"
	"aduana/test/upstream"
)

const pingBody = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestX09Paths(t *testing.T) {
	h, up := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	for path, served := range map[string]bool{
		"/mcp": true, "/mcp/": true, "/mcp/up": true, "/mcp/up/": true, "/mcp?x=1": true, "/mcp/nobody": true,
		"/": false, "/mcpx": false, "//mcp": false, "/mcp//": false, "/mcp/up//": false, "/mcp/%2e%2e/admin": false, "/mcp/../admin": false, "/mcp/.": false,
		"/mcp%2f": false, "/mcp/up%2f": false, "/%6dcp": false, "/mcp/%75p": false, "/MCP": false, "/mcp/UP": false, "/mcp/up_": false, "/mcp/up/x": false,
		"/mcp/-a": false, "/mcp/" + strings.Repeat("a", 33): false, "/admin": false, "/debug/pprof/": false, "/healthz": false, "/health/": false, "/mcp;x": false,
	} {
		for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT"} {
			t.Run(method+" "+path, func(t *testing.T) {
				body, headers := modern("tools/list", "")
				a := do(t, c, h.request(t, body, headers, to(path), func(r *http.Request) { r.Method = method }))
				if a.status >= 300 && a.status < 400 {
					t.Errorf("redirects: %d to %q", a.status, a.header.Get("Location"))
				}
				want := http.StatusNotFound
				switch {
				case served && method == "POST":
					want = http.StatusOK
				case served: // modern: neither GET nor DELETE
					want = http.StatusMethodNotAllowed
				}
				if a.status != want {
					t.Errorf("status %d, want %d: %s", a.status, want, a.body)
				}
			})
		}
	}
	if n := up.Opened.Load(); n != 0 {
		t.Errorf("%d sessions were opened", n)
	}
}

func TestRawRequestTargets(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{})
	for line, want := range map[string]string{
		"OPTIONS * HTTP/1.1":                         "404",
		"GET http://localhost/health HTTP/1.1":       "200",
		"GET http://evil.test/health HTTP/1.1":       "403",
		"GET http://a:b@localhost/health HTTP/1.1":   "403",
		"CONNECT localhost:80 HTTP/1.1":              "404",
		"GET /health HTTP/1.0":                       "200",
		"POST /mcp HTTP/1.1":                         "415",
		"POST /mcp HTTP/1.1\r\nTransfer-Encoding: x": "501",
	} {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(conn, "%s\r\nHost: localhost\r\nConnection: close\r\n\r\n", line)
		got, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if err != nil || !strings.HasPrefix(got, "HTTP/1.") || strings.Fields(got)[1] != want {
			t.Errorf("%q: got %q, %v, want %s", line, got, err, want)
		}
	}
}

func TestX21HostsAndOrigins(t *testing.T) {
	t.Parallel()
	h, _ := fakeHouse(t, mcphttp.Options{Hosts: []string{"gw.example", "exact.example:8443"}, Origins: []string{"https://app.example"}})
	c := client(t)
	_, port, _ := net.SplitHostPort(h.addr)
	hosts := map[string]bool{
		"127.0.0.1:" + port: true, "localhost:" + port: true, "LOCALHOST": true, "[::1]:1234": true, "[::1]": true, "127.0.0.1": true,
		"gw.example": true, "gw.example:99": true, "GW.Example": true, "exact.example:8443": true,
		"evil.test": false, "127.0.0.1.evil.test": false, "localhost.": false, "localhost.:80": false, "localhost.evil.test": false, "exact.example": false, "exact.example:8444": false,
		"a@localhost": false, "localhost:80@evil.test": false, "localhost:": false, "localhost:0": false, "localhost:x": false, "localhost:99999": false,
		"localhost:080": false, "127.0.0.2": false, "127.1": false, "0.0.0.0": false, "[::]": false, "::1": false, "[::ffff:127.0.0.1]": false, "gw.example.": false,
		"xgw.example": false, "localhost,evil.test": false,
	}
	origins := map[string]bool{
		"": true, "SAME": true, "https://app.example": true,
		"null": false, "http://evil.test": false, "http://localhost.evil.test": false, "https://app.example.evil.test": false, "https://app.example:444": false,
		"https://app.example/": false, "http://app.example": false, "file://": false, "*": false, "http://": false, "DOUBLE": false, "EMPTY": false,
	}
	types := map[string]int{"application/json": 200, "Application/JSON; charset=UTF-8": 200, "text/plain": 415, "application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=x": 415, "": 415, "application/json; charset=latin1": 415, "application/json, text/plain": 415, "TWICE": 415, "application/jsonx": 415}
	body, headers := modern("tools/list", "")
	for host, goodHost := range hosts {
		for origin, goodOrigin := range origins {
			for _, path := range []string{"/mcp", "/mcp/up", "/health"} {
				for _, method := range []string{"POST", "GET", "OPTIONS"} {
					r := h.request(t, body, headers, to(path), func(r *http.Request) {
						r.Method, r.Host = method, host
						switch origin {
						case "":
						case "SAME":
							r.Header["Origin"] = []string{"http://" + host}
						case "DOUBLE":
							r.Header["Origin"] = []string{"https://app.example", "https://app.example"}
						case "EMPTY":
							r.Header["Origin"] = []string{""}
						default:
							r.Header["Origin"] = []string{origin}
						}
						if method == "OPTIONS" {
							r.Header.Set("Access-Control-Request-Method", "POST")
						}
					})
					want := 200
					switch {
					case !goodHost || !goodOrigin:
						want = 403
					case path == "/health" && method != "GET", path != "/health" && method != "POST":
						want = 405
					}
					a := do(t, c, r)
					// net/http itself refuses some malformed hosts, with 400.
					if a.status != want && !(want == 403 && a.status == 400 && !goodHost) {
						t.Fatalf("%s %s, Host %q, Origin %q: status %d, want %d", method, path, host, origin, a.status, want)
					}
					for k := range a.header {
						if strings.HasPrefix(k, "Access-Control") {
							t.Fatalf("a CORS header: %s", k)
						}
					}
				}
			}
		}
	}
	for typ, want := range types {
		a := do(t, c, h.request(t, body, headers, func(r *http.Request) {
			switch typ {
			case "":
				r.Header.Del("Content-Type")
			case "TWICE":
				r.Header["Content-Type"] = []string{"application/json", "application/json"}
			default:
				r.Header.Set("Content-Type", typ)
			}
		}))
		if a.status != want {
			t.Errorf("Content-Type %q: status %d, want %d", typ, a.status, want)
		}
	}
}

// TestEveryRouteNeedsACredential enumerates the routes: none but the probe tells a stranger anything.
func TestEveryRouteNeedsACredential(t *testing.T) {
	h, up := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	body, headers := modern("tools/list", "")
	for _, path := range []string{"/", "/mcp", "/mcp/", "/mcp/up", "/mcp/up/", "/mcp/nobody", "/admin", "/ready", "/as/token", "/.well-known/oauth-protected-resource", "//mcp"} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			for _, auth := range []func(*http.Request){del("Authorization"), set("Authorization", "Bearer wrong-key-0123456789"), set("Authorization", "Basic YTpi"),
				add("Authorization", "Bearer "+anaKey), set("Authorization", "Bearer"), set("Authorization", "Bearer "), set("Authorization", anaKey),
				set("Authorization", "Bearer "+anaKey+" x"), set("Authorization", "Bearer "+anaKey+", Bearer "+benKey), set("Authorization", "Bearer  "+anaKey),
				func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "access_token=" + anaKey },
				func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("X-Api-Key", anaKey) },
				func(r *http.Request) {
					r.Header.Del("Authorization")
					r.Header.Set("Proxy-Authorization", "Bearer "+anaKey)
				},
			} {
				r := h.request(t, body, headers, to(path), auth, func(r *http.Request) {
					r.Method = method
					if method != "POST" {
						r.Header.Del("Mcp-Protocol-Version")
					}
				})
				a := do(t, c, r)
				if a.status != 401 && a.status != 404 {
					t.Errorf("%s %s %v: status %d: %s", method, path, r.Header["Authorization"], a.status, a.body)
				}
				if a.status == 401 {
					challenge := a.header["Www-Authenticate"]
					want := `Bearer realm="aduana"`
					if len(r.Header["Authorization"]) > 0 {
						want += `, error="invalid_token"`
					}
					if len(challenge) != 1 || challenge[0] != want || a.header.Get("Content-Type") != "application/json" {
						t.Errorf("%s %s: challenge %q, want %q", method, path, challenge, want)
					}
				}
				if strings.Contains(a.body, "0123456789") {
					t.Errorf("the answer repeats the credential: %s", a.body)
				}
			}
		}
	}
	if up.Opened.Load() != 0 {
		t.Error("an upstream was asked for a stranger")
	}
	if !strings.Contains(h.audit.text(), `"outcome":"unauthenticated"`) || strings.Contains(h.audit.text(), "0123456789") {
		t.Error("the audit misses the strangers, or has their keys")
	}
	for _, scheme := range []string{"bearer", "BEARER", "Bearer"} {
		if a := do(t, c, h.request(t, body, headers, set("Authorization", scheme+" "+anaKey))); a.status != 200 {
			t.Errorf("scheme %s: %d", scheme, a.status)
		}
	}
}

func TestHealth(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	a := do(t, c, h.request(t, "", to("/health"), del("Authorization"), func(r *http.Request) { r.Method = "GET" }))
	if a.status != 200 || a.body != `{"status":"ok","version":"1.2.3","policy":"abc"}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	a = do(t, c, h.request(t, "", to("/health"), func(r *http.Request) { r.Method = "HEAD" }))
	if a.status != 200 || a.body != "" || a.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", a.status, a.header)
	}
	a = do(t, c, h.request(t, "", to("/health")))
	if a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", a.status, a.header.Get("Allow"))
	}
	s := mcphttp.NewServer(h.g, mcphttp.Options{})
	w := newRecorder()
	r, _ := http.NewRequest("GET", "http://localhost/health", nil)
	s.ServeHTTP(w, r)
	if w.status != 404 {
		t.Errorf("without a probe function: %d", w.status)
	}
}

func TestAccept(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	body, headers := modern("tools/list", "")
	for accept, want := range map[string]int{
		"application/json, text/event-stream": 200, "text/event-stream,application/json;q=0.9": 200, "*/*": 200, "application/*, text/*": 200,
		"Application/JSON, Text/Event-Stream": 200, "application/json, text/event-stream, */*;q=0": 200, "ABSENT": 200,
		"application/json": 406, "text/event-stream": 406, "text/html": 406, "": 406, "application/json, text/event-stream;q=0": 406, "*/*, text/event-stream;q=0.0": 406,
		"application/json, text/event-streams": 406,
	} {
		a := do(t, c, h.request(t, body, headers, func(r *http.Request) {
			if accept == "ABSENT" {
				r.Header.Del("Accept")
			} else {
				r.Header["Accept"] = []string{accept}
			}
		}))
		if a.status != want {
			t.Errorf("Accept %q: %d, want %d", accept, a.status, want)
		}
	}
	if a := do(t, c, h.request(t, body, headers, func(r *http.Request) { r.Header["Accept"] = []string{"application/json", "text/event-stream"} })); a.status != 200 {
		t.Errorf("two headers: %d", a.status)
	}
	if a := do(t, c, h.request(t, body, headers, set("Content-Encoding", "gzip"))); a.status != 415 {
		t.Errorf("gzip: %d", a.status)
	}
	if a := do(t, c, h.request(t, body, headers, set("Content-Encoding", "identity"))); a.status != 200 {
		t.Errorf("identity: %d", a.status)
	}
}

func TestC10RequestBodies(t *testing.T) {
	t.Parallel()
	const limit = 4096
	h, up := fakeHouse(t, mcphttp.Options{MaxBody: limit})
	c := client(t)
	_, headers := modern("tools/call", `"name":"up__echo"`)
	of := func(size int) string {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo","arguments":{"text":"`, `"},`+meta+`}}`
		return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
	}
	for _, x := range []struct {
		name string
		size int
		want int
	}{{"below", limit - 1, 200}, {"exactly", limit, 200}, {"above", limit + 1, 413}, {"far above", 1 << 20, 413}} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", x.name, chunked), func(t *testing.T) {
				a := do(t, c, h.request(t, of(x.size), headers, func(r *http.Request) {
					if chunked {
						r.ContentLength = -1
						r.Body = io.NopCloser(io.MultiReader(strings.NewReader(of(x.size)))) // no length to be seen
					}
				}))
				if a.status != x.want {
					t.Errorf("status %d, want %d: %s", a.status, x.want, a.body)
				}
			})
		}
	}
	if n := up.Called.Load(); n != 4 {
		t.Errorf("%d calls went up, want 4", n)
	}
	// The announced length alone is enough: nothing of the body is waited for.
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 5000\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "413") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestSlowBodyEnds(t *testing.T) {
	t.Parallel()
	h, _ := fakeHouse(t, mcphttp.Options{BodyTimeout: 200 * time.Millisecond})
	for name, sent := range map[string]string{
		"body":    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + anaKey + "\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
		"headers": "POST /mcp HTTP/1.1\r\nHost: local",
	} {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprint(conn, sent)
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: the connection did not end: %v", name, err)
		}
		conn.Close()
	}
}

func TestC07C08MessagesThatAreRefused(t *testing.T) {
	h, up := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	_, headers := modern("tools/call", `"name":"up__echo"`)
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"up__echo","arguments":{},` + meta + `}}`
	for name, x := range map[string]struct {
		body string
		code int
		id   string
	}{
		"C08 batch":                {"[" + call + "]", -32600, "null"},
		"C08 batch with BOM":       {"\xEF\xBB\xBF[" + call + "]", -32700, "null"},
		"C08 batch after blanks":   {"   \n[" + call + "]", -32600, "null"},
		"C08 empty batch":          {"[]", -32600, "null"},
		"C07 two spellings":        {strings.Replace(call, `"name"`, `"Name":"x","name"`, 1), -32600, "7"},
		"C07 duplicate":            {strings.Replace(call, `"name"`, `"name":"x","name"`, 1), -32600, "7"},
		"C07 escaped duplicate":    {strings.Replace(call, `"name"`, `"n\u0061me":"x","name"`, 1), -32600, "7"},
		"C07 duplicate method":     {strings.Replace(call, `"method"`, `"method":"ping","method"`, 1), -32600, "7"},
		"not JSON":                 {"{", -32700, "null"},
		"empty":                    {"", -32700, "null"},
		"two messages":             {call + call, -32700, "7"},
		"not UTF-8":                {strings.Replace(call, `{}`, "{\"a\":\"\xff\"}", 1), -32700, "7"},
		"id null":                  {strings.Replace(call, `"id":7`, `"id":null`, 1), -32600, "null"},
		"id fraction":              {strings.Replace(call, `"id":7`, `"id":7.5`, 1), -32600, "null"},
		"params array":             {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}`, -32600, "7"},
		"X22 own credential":       {strings.Replace(call, `{}`, `{"a":"Bearer `+anaKey+`"}`, 1), -32600, "7"},
		"C23 own credential, meta": {strings.Replace(call, `"_meta":{`, `"_meta":{"k":"`+anaKey+`",`, 1), -32600, "7"},
	} {
		t.Run(name, func(t *testing.T) {
			a := do(t, c, h.request(t, x.body, headers))
			if a.status != 400 || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("status %d %v", a.status, a.header)
			}
			if strings.HasPrefix(name, "C07") || strings.Contains(name, "credential") {
				if code := errorCode(a.body); code != -32600 {
					t.Errorf("code %d, want -32600: %s", code, a.body)
				}
			} else if code := errorCode(a.body); code != x.code && !(x.code == -32700 && code == -32600) {
				t.Errorf("code %d, want %d: %s", code, x.code, a.body)
			}
			if strings.HasPrefix(x.id, "null") && !strings.Contains(a.body, `"id":null`) {
				t.Errorf("want id null: %s", a.body)
			}
			if strings.Contains(a.body, "0123456789") {
				t.Errorf("the answer repeats the credential: %s", a.body)
			}
		})
	}
	if up.Called.Load() != 0 {
		t.Error("a refused message went up")
	}
	if n := strings.Count(h.audit.text(), `"outcome":"malformed"`); n != 17 {
		t.Errorf("%d refusals in the audit, want 17", n)
	}
	// Responses that answer nothing: dropped.
	for _, body := range []string{`{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}`} {
		session := h.begin(t, c)
		for _, change := range []func(*http.Request){set("Mcp-Session-Id", session), set("MCP-Protocol-Version", "2026-07-28")} {
			if a := do(t, c, h.request(t, body, change)); a.status != 202 || a.body != "" {
				t.Errorf("response: %d %s", a.status, a.body)
			}
		}
	}
	if up.Called.Load() != 0 {
		t.Error("a response went up")
	}
}

func TestModernHeadersMustAgree(t *testing.T) {
	h, up := fakeHouse(t, mcphttp.Options{}, "echo", "čau")
	c := client(t)
	body, good := modern("tools/call", `"name":"up__echo","arguments":{}`)
	for name, x := range map[string]struct {
		change func(*http.Request)
		status int
		code   int
	}{
		"as it should be":      {func(*http.Request) {}, 200, 0},
		"encoded name":         {set("Mcp-Name", "=?base64?dXBfX2VjaG8=?="), 200, 0},
		"a session is ignored": {set("Mcp-Session-Id", "whatever"), 200, 0},
		"no version":           {del("MCP-Protocol-Version"), 400, -32020},
		"another version":      {set("MCP-Protocol-Version", "2025-11-25"), 400, -32020},
		"version twice":        {add("MCP-Protocol-Version", "2026-07-28"), 400, -32020},
		"no method":            {del("Mcp-Method"), 400, -32020},
		"other method":         {set("Mcp-Method", "tools/list"), 400, -32020},
		"method in capitals":   {set("Mcp-Method", "TOOLS/CALL"), 400, -32020},
		"method twice":         {add("Mcp-Method", "tools/call"), 400, -32020},
		"no name":              {del("Mcp-Name"), 400, -32020},
		"other name":           {set("Mcp-Name", "up__purge"), 400, -32020},
		"broken encoding":      {set("Mcp-Name", "=?base64?%?="), 400, -32020},
	} {
		a := do(t, c, h.request(t, body, good, x.change))
		if a.status != x.status || errorCode(a.body) != x.code {
			t.Errorf("%s: %d %s, want %d and %d", name, a.status, a.body, x.status, x.code)
		}
		if a.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: a session header came back", name)
		}
	}
	if n := up.Called.Load(); n != 3 {
		t.Errorf("%d calls went up, want 3", n)
	}
	// A header alone makes nothing modern, nor does _meta alone.
	if a := do(t, c, h.request(t, pingBody, set("MCP-Protocol-Version", "2026-07-28"))); errorCode(a.body) != -32020 {
		t.Errorf("version in the header only: %s", a.body)
	}
	body, good = modern("nothing/here", "")
	if a := do(t, c, h.request(t, body, good)); a.status != 404 || errorCode(a.body) != -32601 {
		t.Errorf("unknown method: %d %s", a.status, a.body)
	}
	body, good = modern("server/discover", "")
	if a := do(t, c, h.request(t, body, good)); a.status != 200 || !strings.Contains(a.body, `"supportedVersions"`) {
		t.Errorf("discover: %d %s", a.status, a.body)
	}
}

func TestLegacySessions(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	mine := h.begin(t, c)
	bens := h.begin(t, c, set("Authorization", "Bearer "+benKey))
	if mine == bens || len(mine) < 32 {
		t.Errorf("sessions %q and %q", mine, bens)
	}
	ping := func(change ...func(*http.Request)) answer { return do(t, c, h.request(t, pingBody, change...)) }
	if a := ping(set("Mcp-Session-Id", mine)); a.status != 200 || a.body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("own session: %d %s", a.status, a.body)
	}
	if a := ping(); a.status != 400 {
		t.Errorf("no session: %d", a.status)
	}
	if a := ping(set("Mcp-Session-Id", mine), add("Mcp-Session-Id", mine)); a.status != 400 {
		t.Errorf("two: %d", a.status)
	}
	foreign, unknown := ping(set("Mcp-Session-Id", bens)), ping(set("Mcp-Session-Id", strings.Repeat("0", len(bens))))
	if foreign.status != 404 || unknown.status != 404 || foreign.body != unknown.body {
		t.Errorf("somebody else's session: %d %s; unknown: %d %s", foreign.status, foreign.body, unknown.status, unknown.body)
	}
	for version, want := range map[string]int{"2025-11-25": 200, "2025-06-18": 200, "2024-11-05": 200, "1999-01-01": 400, "": 400, "x": 400} {
		if a := ping(set("Mcp-Session-Id", mine), set("MCP-Protocol-Version", version)); a.status != want {
			t.Errorf("version %q: %d, want %d", version, a.status, want)
		}
	}
	if a := do(t, c, h.request(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, set("Mcp-Session-Id", mine))); a.status != 202 || a.body != "" {
		t.Errorf("notification: %d %s", a.status, a.body)
	}
	if a := do(t, c, h.request(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); a.status != 400 {
		t.Errorf("notification without session: %d", a.status)
	}
	end := func(id string) int {
		return do(t, c, h.request(t, "", set("Mcp-Session-Id", id), func(r *http.Request) { r.Method = "DELETE" })).status
	}
	if got := end(bens); got != 404 {
		t.Errorf("DELETE of somebody else's: %d", got)
	}
	if got := end(mine); got != 204 {
		t.Errorf("DELETE: %d", got)
	}
	if got := end(mine); got != 404 {
		t.Errorf("DELETE again: %d", got)
	}
	if a := ping(set("Mcp-Session-Id", mine)); a.status != 404 {
		t.Errorf("after the end: %d", a.status)
	}
	if a := do(t, c, h.request(t, "", func(r *http.Request) { r.Method = "DELETE" })); a.status != 400 {
		t.Errorf("DELETE without id: %d", a.status)
	}
}

func TestC19Arguments(t *testing.T) {
	up, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{builtin(t, "echo")}})
	h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "echo"), mcphttp.Options{})
	c := client(t)
	for name, x := range map[string]struct {
		params string
		want   string // what the upstream sees, "" = nothing
	}{
		"omitted":     {`"name":"up__echo"`, `{}`},
		"empty":       {`"name":"up__echo","arguments":{}`, `{}`},
		"null":        {`"name":"up__echo","arguments":null`, ""},
		"array":       {`"name":"up__echo","arguments":[]`, ""},
		"string":      {`"name":"up__echo","arguments":"x"`, ""},
		"inner nulls": {`"name":"up__echo","arguments":{"a":null,"b":{"c":null}}`, `{"a":null,"b":{"c":null}}`},
		"no name":     {`"arguments":{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := up.Count("tools/call")
			body, headers := modern("tools/call", x.params)
			a := do(t, c, h.request(t, body, headers))
			calls := up.Received("tools/call")[before:]
			if x.want == "" {
				if errorCode(a.body) != -32602 || len(calls) != 0 {
					t.Errorf("%s, %d calls", a.body, len(calls))
				}
				return
			}
			if len(calls) != 1 || !strings.Contains(calls[0].Body, `"arguments":`+x.want) {
				t.Errorf("the upstream saw %+v; answer %s", calls, a.body)
			}
		})
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
	session := h.begin(t, c)
	if a := do(t, c, h.request(t, body, set("Mcp-Session-Id", session))); errorCode(a.body) != -32602 {
		t.Errorf("no params: %s", a.body)
	}
}

// TestC23NothingOfTheClientGoesUp sends everything that a client must not be able to lend to an upstream.
func TestC23NothingOfTheClientGoesUp(t *testing.T) {
	for _, eras := range []upstream.Eras{upstream.LegacyOnly, upstream.ModernOnly} {
		up, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{builtin(t, "echo")}})
		h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "echo"), mcphttp.Options{})
		c := client(t)
		body, headers := modern("tools/call", `"name":"up__echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"keep":"me","aduana/decision":"forged"}`)
		lent := map[string]string{"Cookie": "s=1", "X-Api-Key": "k", "X-Forwarded-User": "root", "X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "Via": "1.1 x",
			"Mcp-Session-Id": "gw-1", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Last-Event-Id": "7", "Mcp-Param-Region": "eu", "X-Custom": "y", "Referer": "http://x", "Proxy-Authorization": "Basic x"}
		a := do(t, c, h.request(t, body, headers, func(r *http.Request) {
			for k, v := range lent {
				r.Header.Set(k, v)
			}
		}))
		if a.status != 200 || up.Calls("echo") != 1 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for _, m := range up.Messages() {
			for k := range m.Header {
				switch k {
				case "Accept", "Accept-Encoding", "Content-Type", "Content-Length", "Host", "User-Agent", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name":
				case "Mcp-Session-Id":
					if m.Header.Get(k) == "gw-1" {
						t.Error("the client's session went up")
					}
				default:
					t.Errorf("header %s of %s %s went up: %q", k, m.Verb, m.Method, m.Header[k])
				}
			}
			if m.Method == "tools/call" && (!strings.Contains(m.Body, `"keep":"me"`) || strings.Contains(m.Body, "forged") || strings.Contains(m.Body, "sampling")) {
				t.Errorf("body %s", m.Body)
			}
			if strings.Contains(fmt.Sprint(m), anaKey) {
				t.Error("the client's credential went up")
			}
		}
		for k := range a.header {
			switch k {
			case "Content-Type", "Content-Length", "Date":
			default:
				t.Errorf("header %s came back", k)
			}
		}
	}
}

func TestScopedEndpoint(t *testing.T) {
	h, up := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	list, headers := modern("tools/list", "")
	a := do(t, c, h.request(t, list, headers, to("/mcp/up")))
	if !strings.Contains(a.body, `"name":"echo"`) {
		t.Errorf("scoped list: %s", a.body)
	}
	// An upstream that is not there looks like one of which nothing is granted.
	nobody := do(t, c, h.request(t, list, headers, to("/mcp/nobody")))
	ungranted := do(t, c, h.request(t, list, headers, to("/mcp/up"), set("Authorization", "Bearer "+benKey)))
	if nobody.status != 200 || nobody.body != ungranted.body {
		t.Errorf("unknown: %d %s\nungranted: %d %s", nobody.status, nobody.body, ungranted.status, ungranted.body)
	}
	call, headers := modern("tools/call", `"name":"echo","arguments":{}`)
	nobody = do(t, c, h.request(t, call, headers, to("/mcp/nobody")))
	ungranted = do(t, c, h.request(t, call, headers, to("/mcp/up"), set("Authorization", "Bearer "+benKey)))
	if nobody.status != ungranted.status || nobody.body != ungranted.body || up.Called.Load() != 0 {
		t.Errorf("unknown: %d %s\nungranted: %d %s", nobody.status, nobody.body, ungranted.status, ungranted.body)
	}
	if a := do(t, c, h.request(t, call, headers, to("/mcp/up/"))); a.status != 200 || up.Called.Load() != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// lines of an event stream as they come, without blanks.
func stream(t testing.TB, c *http.Client, r *http.Request) (*http.Response, <-chan string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		sc := bufio.NewScanner(resp.Body)
		for sc.Scan() {
			if sc.Text() != "" {
				out <- sc.Text()
			}
		}
	}()
	return resp, out
}

// await waits for a line that begins so; the zero string when the stream ends.
func await(t testing.TB, lines <-chan string, prefix string) string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		select {
		case l, ok := <-lines:
			if !ok || strings.HasPrefix(l, prefix) {
				return l
			}
		case <-deadline:
			t.Fatalf("no line %q", prefix)
		}
	}
}

// change declares a policy with other tools, so that lists change.
func (h *house) change(t testing.TB, tools ...string) {
	in := input(t, "http://127.0.0.1:1/mcp", tools...)
	h.g.Declare(in.Policy, in.Document, "v2", in.Lock)
}

func TestGetStream(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{KeepAlive: 50 * time.Millisecond})
	c := client(t)
	session := h.begin(t, c)
	get := func(change ...func(*http.Request)) *http.Request {
		return h.request(t, "", append([]func(*http.Request){set("Accept", "text/event-stream"), func(r *http.Request) { r.Method = "GET"; r.Body = nil; r.ContentLength = 0 }, set("Mcp-Session-Id", session)}, change...)...)
	}
	if a := do(t, c, get(set("MCP-Protocol-Version", "2026-07-28"))); a.status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("modern: %d", a.status)
	}
	if a := do(t, c, get(set("Accept", "application/json"))); a.status != 406 {
		t.Errorf("JSON only: %d", a.status)
	}
	if a := do(t, c, get(del("Mcp-Session-Id"))); a.status != 400 {
		t.Errorf("no session: %d", a.status)
	}
	if a := do(t, c, get(set("Authorization", "Bearer "+benKey))); a.status != 404 {
		t.Errorf("somebody else's: %d", a.status)
	}
	first, firstLines := stream(t, c, get())
	if first.StatusCode != 200 || first.Header.Get("Content-Type") != "text/event-stream" || first.Header.Get("X-Accel-Buffering") != "no" || first.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", first.StatusCode, first.Header)
	}
	await(t, firstLines, ":")
	_, lines := stream(t, c, get())
	await(t, lines, ":")
	for range firstLines { // the newer stream replaced it: this one ends
	}
	h.change(t, "other")
	if l := await(t, lines, "data:"); l != `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("%q", l)
	}
	await(t, lines, ":")
	if status := do(t, c, h.request(t, "", set("Mcp-Session-Id", session), func(r *http.Request) { r.Method = "DELETE" })).status; status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	if l := await(t, lines, "data:"); l != "" {
		t.Errorf("after the session's end: %q", l)
	}
	// A stream ends with its credential, at the latest with the next comment.
	session = h.begin(t, c)
	_, lines = stream(t, c, get())
	await(t, lines, ":")
	h.keys.revoke(anaKey)
	h.change(t, "echo")
	if l := await(t, lines, "data:"); l != "" {
		t.Errorf("after the credential's end: %q", l)
	}
}

func TestListen(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{KeepAlive: 50 * time.Millisecond})
	c := client(t)
	body, headers := modern("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	resp, lines := stream(t, c, h.request(t, body, headers))
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(resp.Header)
	}
	if l := await(t, lines, "data:"); !strings.Contains(l, "notifications/subscriptions/acknowledged") {
		t.Errorf("%q", l)
	}
	await(t, lines, ":")
	h.change(t, "other")
	if l := await(t, lines, "data:"); !strings.Contains(l, "list_changed") || !strings.Contains(l, `"io.modelcontextprotocol/subscriptionId":1`) {
		t.Errorf("%q", l)
	}
	h.keys.revoke(anaKey)
	h.change(t, "echo")
	if l := await(t, lines, "data:"); l != "" {
		t.Errorf("after the credential's end: %q", l)
	}
}

func TestListenEndsWithDrain(t *testing.T) {
	h, _ := fakeHouse(t, mcphttp.Options{})
	c := client(t)
	body, headers := modern("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
	_, lines := stream(t, c, h.request(t, body, headers))
	await(t, lines, "data:")
	h.g.Drain()
	if l := await(t, lines, "data:"); !strings.Contains(l, `"resultType":"complete"`) {
		t.Errorf("%q", l)
	}
	body, headers = modern("tools/list", "")
	if a := do(t, c, h.request(t, body, headers)); a.status != 503 {
		t.Errorf("after draining: %d", a.status)
	}
}

// TestX11ProgressEndToEnd: each client gets its own progress under its own token, with the token's type.
func TestX11ProgressEndToEnd(t *testing.T) {
	for _, eras := range []upstream.Eras{upstream.LegacyOnly, upstream.ModernOnly} {
		_, url := serve(t, upstream.Config{Eras: eras, Tools: []upstream.Tool{builtin(t, "progress")}})
		h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "progress"), mcphttp.Options{})
		c := client(t)
		for token, want := range map[string]string{`1`: `"progressToken":1,`, `"1"`: `"progressToken":"1",`, ``: ``} {
			m := strings.TrimSuffix(meta, "}")
			if token != "" {
				m += `,"progressToken":` + token
			}
			body, headers := modern("tools/call", `"name":"up__progress","arguments":{"n":3},`+m+`}`)
			a := do(t, c, h.request(t, body, headers))
			events := strings.Count(a.body, "notifications/progress")
			if token == "" {
				if a.header.Get("Content-Type") != "application/json" || events != 0 {
					t.Errorf("no token: %v %s", a.header, a.body)
				}
				continue
			}
			if a.header.Get("Content-Type") != "text/event-stream" || events != 3 || strings.Count(a.body, want) != 3 || !strings.Contains(a.body, `"done"`) {
				t.Errorf("token %s: %v %s", token, a.header, a.body)
			}
			if a.header.Get("X-Accel-Buffering") != "no" || a.header.Get("Cache-Control") != "no-cache" {
				t.Errorf("headers %v", a.header)
			}
		}
	}
}

// TestDisconnect: a client that goes away cancels in the modern era and does not in the legacy one.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	up, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Capabilities: `{"tools":{}}`, Tools: []upstream.Tool{builtin(t, "hang"), builtin(t, "late")}})
	h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "hang", "late"), mcphttp.Options{})
	c := client(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	left, leave := context.WithCancel(ctx)
	body, headers := modern("tools/call", `"name":"up__hang","arguments":{}`)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := c.Do(h.request(t, body, headers).WithContext(left)); err == nil {
			resp.Body.Close()
		}
	}()
	if !up.Await(ctx, func() bool { return up.Calls("hang") == 1 }) {
		t.Fatal("the call did not arrive")
	}
	leave()
	<-gone
	if !up.Await(ctx, func() bool { return up.InFlight() == 0 }) {
		t.Error("a modern client's leaving did not cancel")
	}

	session := h.begin(t, c)
	left, leave = context.WithCancel(ctx)
	gone = make(chan struct{})
	go func() {
		defer close(gone)
		r := h.request(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"up__late","arguments":{"ms":300}}}`, set("Mcp-Session-Id", session))
		if resp, err := c.Do(r.WithContext(left)); err == nil {
			resp.Body.Close()
		}
	}()
	if !up.Await(ctx, func() bool { return up.Calls("late") == 1 }) {
		t.Fatal("the call did not arrive")
	}
	leave()
	<-gone
	deadline := time.Now().Add(5 * time.Second)
	for !strings.Contains(h.audit.text(), `"outcome":"invoked"`) {
		if time.Now().After(deadline) {
			t.Fatal("the legacy call did not go on without its client")
		}
		time.Sleep(10 * time.Millisecond)
	}

	// notifications/cancelled is what cancels there.
	done := make(chan answer)
	go func() {
		done <- do(t, c, h.request(t, `{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"up__hang","arguments":{}}}`, set("Mcp-Session-Id", session)))
	}()
	if !up.Await(ctx, func() bool { return up.Calls("hang") == 2 }) {
		t.Fatal("the call did not arrive")
	}
	if a := do(t, c, h.request(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}`, set("Mcp-Session-Id", session))); a.status != 202 {
		t.Errorf("cancelled: %d", a.status)
	}
	if a := <-done; !strings.Contains(a.body, "cancelled") {
		t.Errorf("%s", a.body)
	}
}

// TestC16SlowStreams: only a single write has a deadline, never a whole response.
func TestC16SlowStreams(t *testing.T) {
	t.Parallel()
	_, url := serve(t, upstream.Config{Eras: upstream.ModernOnly, Tools: []upstream.Tool{builtin(t, "progress")}})
	h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "progress"), mcphttp.Options{WriteTimeout: 150 * time.Millisecond, BodyTimeout: 200 * time.Millisecond})
	c := client(t)
	body, headers := modern("tools/call", `"name":"up__progress","arguments":{"n":8,"ms":60},`+strings.TrimSuffix(meta, "}")+`,"progressToken":1}`)
	a := do(t, c, h.request(t, body, headers))
	if strings.Count(a.body, "notifications/progress") != 8 || !strings.Contains(a.body, `"done"`) {
		t.Errorf("%s", a.body)
	}
	// The connection serves again after the deadline of its last write has passed.
	time.Sleep(300 * time.Millisecond)
	if a := do(t, c, h.request(t, `{"jsonrpc":"2.0","id":99,"result":{}}`, set("MCP-Protocol-Version", "2026-07-28"), set("Expect", "100-continue"))); a.status != 202 {
		t.Errorf("%d", a.status)
	}
}

func TestC16ClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h, up := fakeHouse(t, mcphttp.Options{WriteTimeout: 100 * time.Millisecond})
	big := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("a", 1<<20) + `"}]}`)
	up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
		return big, gateway.Answer{Sent: gateway.Answered}
	}
	c := client(t)
	session := h.begin(t, c)
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo"}}`
	one := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: */*\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", anaKey, session, len(call), call)
	for range 30 {
		if _, err := io.WriteString(conn, one); err != nil {
			break
		}
	}
	time.Sleep(500 * time.Millisecond) // well beyond the deadline of one write
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := io.Copy(io.Discard, conn)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the connection still stands")
	}
	if n >= 30<<20 {
		t.Error("everything was sent to a client that did not read")
	}
}

func TestRunStops(t *testing.T) {
	t.Parallel()
	h, up := fakeHouse(t, mcphttp.Options{})
	started := make(chan struct{})
	up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
		close(started)
		time.Sleep(300 * time.Millisecond)
		return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
	}
	s := mcphttp.NewServer(h.g, mcphttp.Options{Grace: 3 * time.Second})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()

	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := client(t)
	at := func(r *http.Request) { r.URL.Host = l.Addr().String() }
	answered := make(chan answer, 1)
	body, headers := modern("tools/call", `"name":"up__echo","arguments":{}`)
	go func() { answered <- do(t, c, h.request(t, body, headers, at)) }()
	<-started
	began := time.Now()
	cancel()
	if a := <-answered; a.status != 200 || !strings.Contains(a.body, `"content"`) {
		t.Errorf("the call in flight: %d %s", a.status, a.body)
	}
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stopping took %v", took)
	}
	silent.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the silent connection: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l2.Close()
	if err := s.Run(context.Background(), l2); err == nil {
		t.Error("a listener that is closed is no orderly end")
	}
}

// recorder is a ResponseWriter without a connection.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (w *recorder) Header() http.Header { return w.header }
func (w *recorder) WriteHeader(s int) {
	if w.status == 0 {
		w.status = s
	}
}
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(200)
	w.body = append(w.body, b...)
	return len(b), nil
}

func FuzzServerRequest(f *testing.F) {
	h, _ := fakeHouse(f, mcphttp.Options{MaxBody: 1 << 16})
	body, _ := modern("tools/call", `"name":"up__echo","arguments":{}`)
	f.Add("POST", "/mcp", "localhost", "", "application/json", "*/*", "Bearer "+anaKey, "2026-07-28", "", body)
	f.Add("POST", "/mcp/up", "localhost", "null", "application/json", "*/*", "Bearer "+anaKey, "", "", pingBody)
	f.Add("GET", "/health", "localhost", "http://localhost", "", "", "", "", "", "")
	f.Add("DELETE", "/mcp/", "[::1]:1", "", "", "", "Bearer "+benKey, "2025-11-25", "x", "")
	f.Add("POST", "/mcp", "localhost", "", "application/json", "*/*", "Bearer "+anaKey, "", "", `[{"jsonrpc":"2.0","method":"initialize","id":1}]`)
	f.Fuzz(func(t *testing.T, method, path, host, origin, typ, accept, auth, version, session, body string) {
		if method == "GET" && session != "" {
			return // a stream would last
		}
		r, err := http.NewRequest(method, "http://x/", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path, r.Host = path, host
		for k, v := range map[string]string{"Origin": origin, "Content-Type": typ, "Accept": accept, "Authorization": auth, "Mcp-Protocol-Version": version, "Mcp-Session-Id": session} {
			if v != "" {
				r.Header[k] = []string{v}
			}
		}
		r.Header["Mcp-Method"], r.Header["Mcp-Name"] = []string{"tools/call"}, []string{"up__echo"}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		w := newRecorder()
		h.s.ServeHTTP(w, r.WithContext(ctx))
		if w.status == 0 && ctx.Err() == nil {
			t.Fatalf("no answer to %s %q", method, path)
		}
		if w.status == 500 {
			t.Fatalf("internal error: %s", w.body)
		}
		if w.status == 200 && auth == "" && path != "/health" {
			t.Fatalf("a stranger got %s", w.body)
		}
	})
}
