package mcphttp_test

import (
	"testing"

	"aduana/adapters/mcphttp"
	"aduana/internal/mcp"
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

// TestCells drives each era of the client through to each era of an upstream, over real sockets.
func TestCells(t *testing.T) {
	for _, e := range []struct {
		name string
		eras upstream.Eras
		want mcp.Era
	}{{"legacy", upstream.LegacyOnly, mcp.Legacy}, {"modern", upstream.ModernOnly, mcp.Modern}, {"both", upstream.BothEras, mcp.Modern}} {
		for _, sse := range []bool{false, true} {
			t.Run(e.name, func(t *testing.T) {
				up, url := serve(t, upstream.Config{Eras: e.eras, SSE: sse, Tools: []upstream.Tool{builtin(t, "echo"), builtin(t, "progress")}})
				adapter := newUpstream(t, mcphttp.UpstreamOptions{})
				h := newHouse(t, adapter, input(t, url, "echo", "progress"), mcphttp.Options{})
				c := client(t)
				body, headers := modern("tools/call", `"name":"up__echo","arguments":{"n":12345678901234567890}`)
				a := do(t, c, h.request(t, body, headers))
				t.Log(a.status, a.header, a.body)
				session := h.begin(t, c)
				a = do(t, c, h.request(t, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"up__progress","arguments":{"steps":3},"_meta":{"progressToken":"tok"}}}`, set("Mcp-Session-Id", session)))
				t.Log(a.status, a.header, a.body)
				if up.Calls("echo") != 1 {
					t.Error(up.CallCounts())
				}
			})
		}
	}
}
