package mcphttp_test

import (
	"context"
	"strings"
	"testing"

	"aduana/adapters/mcphttp"
	"aduana/test/upstream"
)

func builtin(t testing.TB, name string) upstream.Tool {
	t.Helper()
	b, err := upstream.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	b.Definition = []byte(definition(name))
	return b
}

// TestCells drives a client of each era through to an upstream of each era, over real sockets and in both forms of reply: what is
// not the protocol's own passes byte for byte.
func TestCells(t *testing.T) {
	t.Parallel()
	const args = `{"n":12345678901234567890,  "f":1.0e400,"é":"\u00e9","z":{"$defs":{}}}`
	const content = `"content":[{"type":"hologram","x":[1.0,12345678901234567890]}],"structuredContent":{"n":1e400,  "b":null},"zz":{"$ref":"x"}`
	for upstreamEra, eras := range map[string]upstream.Eras{"legacy": upstream.LegacyOnly, "modern": upstream.ModernOnly} {
		for _, sse := range []bool{false, true} {
			handler := func(_ context.Context, c *upstream.Call) {
				tail := ""
				if c.Modern {
					tail = `,"resultType":"complete"`
				}
				c.Reply([]byte("{" + content + tail + "}"))
			}
			up, url := serve(t, upstream.Config{Eras: eras, SSE: sse, Tools: []upstream.Tool{tool("t", handler)}})
			h := newHouse(t, newUpstream(t, mcphttp.UpstreamOptions{}), input(t, url, "t"), mcphttp.Options{})
			c := client(t)
			session := h.begin(t, c)
			body, headers := modern("tools/call", `"name":"up__t","arguments":`+args)
			for clientEra, r := range map[string]answer{
				"modern": do(t, c, h.request(t, strings.Replace(body, `"id":1`, `"id":"\u0031"`, 1), headers)),
				"legacy": do(t, c, h.request(t, `{"jsonrpc":"2.0","id":"\u0031","method":"tools/call","params":{"name":"up__t","arguments":`+args+`}}`, set("Mcp-Session-Id", session))),
			} {
				want := `{"jsonrpc":"2.0","id":"\u0031","result":{` + content
				if r.status != 200 || !strings.HasPrefix(r.body, want) {
					t.Errorf("%s to %s, SSE %v: %d %s", clientEra, upstreamEra, sse, r.status, r.body)
				}
				if typed := strings.HasSuffix(r.body, `,"resultType":"complete"}}`); clientEra == "modern" && !typed {
					t.Errorf("%s to %s: no resultType: %s", clientEra, upstreamEra, r.body)
				}
			}
			for _, m := range up.Received("tools/call") {
				if !strings.Contains(m.Body, `"arguments":`+args) {
					t.Errorf("to %s: %s", upstreamEra, m.Body)
				}
			}
			if up.Calls("t") != 2 {
				t.Errorf("%v", up.CallCounts())
			}
		}
	}
}
