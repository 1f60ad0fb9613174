package cases_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// post sends a body as a modern or legacy client would, with the headers that the method asks for.
func post(t *testing.T, c *rig.Client, body, method, name string) rig.Response {
	t.Helper()
	header := http.Header{}
	if c.Modern {
		header["Mcp-Method"] = []string{method}
		if name != "" {
			header["Mcp-Name"] = []string{name}
		}
	}
	r, err := c.Send(deadline(t), "7", body, header)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// C07: a message that a checker and an executor could read differently is refused by its id, sent nowhere and recorded once, whatever
// its method, over HTTP in both eras and over stdio.
func TestC07AmbiguousMessagesEndAtTheDoor(t *testing.T) {
	h := newHouse(t)
	s := h.http("srv", upstream.Config{Tools: tools("srv", "greet", "purge")})
	g := h.start()
	meta := func(modern bool) string {
		if modern {
			return `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		}
		return ""
	}
	cases := []struct{ method, name, params string }{
		{"tools/call", "srv__greet", `"name":"srv__greet","Name":"srv__purge","arguments":{}`},
		{"tools/call", "srv__greet", `"Name":"srv__purge","name":"srv__greet","arguments":{}`},
		{"tools/call", "srv__greet", `"name":"srv__greet","name":"srv__purge","arguments":{}`},
		{"tools/call", "srv__greet", `"name":"srv__greet","n\u0061me":"srv__purge"`},
		{"tools/call", "srv__greet", `"name":"srv__greet","name\u0000":"srv__purge"`},
		{"tools/call", "srv__greet", `"name":"srv__greet","argument\u017f":{}`},
		{"tools/call", "srv__greet", `"name":"srv__greet","arguments":{"a":1,"a":2}`},
		{"prompts/get", "greet", `"name":"greet","Name":"purge"`},
		{"resources/read", "a://x", `"uri":"a://x","URI":"a://y"`},
		{"completion/complete", "", `"ref":{},"Ref":{}`},
	}
	message := func(method, params string, modern bool) string {
		return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + params + meta(modern) + `}}`
	}
	refused := func(t *testing.T, before, sent int, message []byte) {
		t.Helper()
		if errorCode(message) != -32600 || !strings.Contains(string(message), `"id":7`) {
			t.Errorf("answered %s", message)
		}
		if got := outcomes(t, h.audit(), before); !slices.Equal(got, []string{"malformed"}) {
			t.Errorf("recorded %q", got)
		}
		if s.Total() != sent {
			t.Errorf("%d requests went up", s.Total()-sent)
		}
	}
	eras(func(modern bool) {
		c := rig.NewClient(t, g.URL, key, modern)
		for _, x := range cases {
			t.Run(fmt.Sprintf("http modern=%v %s", modern, x.params), func(t *testing.T) {
				before, sent := len(settled(t, h.audit())), s.Total()
				r := post(t, c, message(x.method, x.params, modern), x.method, x.name)
				if r.Status != 400 {
					t.Errorf("status %d", r.Status)
				}
				refused(t, before, sent, r.Message)
			})
		}
	})
	g.Stop(t)
	stdio := rig.StartStdio(t, binary, rig.Env(t, keyEnv), h.policy(), "--audit", "file:"+h.audit())
	stdio.Ask(t, "1", rig.Message("1", "tools/list", "", "", true))
	for _, x := range cases {
		t.Run("stdio "+x.params, func(t *testing.T) {
			before, sent := len(settled(t, h.audit())), s.Total()
			refused(t, before, sent, stdio.Ask(t, "7", message(x.method, x.params, true)))
		})
	}
	if s.Calls("greet")+s.Calls("purge") != 0 {
		t.Error("something was called")
	}
}

// C08: an array is refused as a whole with id null, recorded, and nothing in it runs; an answer to a question that nobody asked is
// dropped and goes nowhere.
func TestC08BatchesRunNothing(t *testing.T) {
	h := newHouse(t)
	s := h.http("srv", upstream.Config{Tools: tools("srv", "purge")})
	g := h.start()
	batch := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"srv__purge","arguments":{}}}]`
	bodies := map[string]string{"plain": batch, "with a BOM": "\ufeff" + batch, "after blanks": "   \n" + batch, "empty": "[]", "nested": "[" + batch + "]", "unfinished": batch[:len(batch)-1]}
	eras(func(modern bool) {
		c := rig.NewClient(t, g.URL, key, modern)
		for name, body := range bodies {
			before, sent := len(settled(t, h.audit())), s.Total()
			r := post(t, c, body, "tools/call", "srv__purge")
			if r.Status != 400 || errorCode(r.Message) != -32600 || !strings.Contains(string(r.Message), `"id":null`) {
				t.Errorf("%s, modern %v: %d %s", name, modern, r.Status, r.Message)
			}
			if got := outcomes(t, h.audit(), before); !slices.Equal(got, []string{"malformed"}) || s.Total() != sent {
				t.Errorf("%s, modern %v: recorded %q, %d requests went up", name, modern, got, s.Total()-sent)
			}
		}
		for _, stray := range []string{`{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`} {
			sent := s.Total()
			if r := post(t, c, stray, "", ""); r.Status != 202 || len(r.Body) != 0 || s.Total() != sent {
				t.Errorf("a stray answer, modern %v: %d %s, %d requests went up", modern, r.Status, r.Body, s.Total()-sent)
			}
		}
	})
	g.Stop(t)
	stdio := rig.StartStdio(t, binary, rig.Env(t, keyEnv), h.policy(), "--audit", "file:"+h.audit())
	for name, body := range bodies {
		if strings.Contains(body, "\n") {
			continue // two lines
		}
		stdio.Tell(t, `{"jsonrpc":"2.0","id":99,"result":{}}`)
		if got := stdio.Ask(t, "null", body); errorCode(got) != -32600 {
			t.Errorf("%s over stdio: %s", name, got)
		}
	}
	stdio.Close(t)
	if s.Calls("purge") != 0 || s.Calls("srv__purge") != 0 {
		t.Error("something of a batch was called")
	}
}

// X21: a Host or Origin that is not admitted is refused before the body is waited for and before the credential is looked at, on every
// route.
func TestX21RefusedBeforeBodyAndCredential(t *testing.T) {
	h := newHouse(t)
	h.http("srv", upstream.Config{Tools: tools("srv", "t")})
	g := h.start()
	addr := strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp")
	before := len(settled(t, h.audit()))
	for _, route := range []string{"POST /mcp", "POST /mcp/srv", "GET /mcp", "DELETE /mcp", "GET /health"} {
		for _, headers := range []string{"Host: evil.test", "Host: 127.0.0.1.evil.test", "Host: localhost.", "Host: " + addr + "\r\nOrigin: null",
			"Host: " + addr + "\r\nOrigin: http://localhost.evil.test", "Host: " + addr + "\r\nOrigin: http://" + addr + "\r\nOrigin: http://evil.test"} {
			for _, credential := range []string{"", "Authorization: Bearer wrong-wrong-wrong-wrong\r\n", "Authorization: Bearer " + key + "\r\n"} {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(5 * time.Second))
				// The body waits for a "100 Continue" that must not come.
				fmt.Fprintf(conn, "%s HTTP/1.1\r\n%s\r\n%sContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", route, headers, credential)
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				conn.Close()
				if err != nil || r.StatusCode != 403 {
					t.Fatalf("%s with %q: %v, %v", route, headers, err, r)
				}
				for name := range r.Header {
					if strings.HasPrefix(name, "Access-Control") || name == "Www-Authenticate" {
						t.Errorf("%s with %q: header %s", route, headers, name)
					}
				}
			}
		}
	}
	if got := outcomes(t, h.audit(), before); len(got) != 0 {
		t.Errorf("credentials were looked at: %q", got)
	}
}
