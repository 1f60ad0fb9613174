package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"aduana/adapters/mcphttp"
)

// BenchmarkCall measures one tools/call through the gateway to an upstream and back, over loopback sockets, and the same without it.
// test/load compares with a reverse proxy, in processes of their own.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		result := `"result":{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("a", size) + `"}]}`
		up := answering(b, func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, result)
		})
		h := newHouse(b, newUpstream(b, mcphttp.UpstreamOptions{}), input(b, up, "t"), mcphttp.Options{})
		for name, host := range map[string]string{"aduana": h.addr, "direct": strings.TrimSuffix(strings.TrimPrefix(up, "http://"), "/mcp")} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				c := client(b)
				body, headers := modern("tools/call", `"name":"up__t","arguments":{}`)
				b.ReportAllocs()
				for b.Loop() {
					r := h.request(b, body, headers)
					r.URL.Host, r.Host = host, ""
					resp, err := c.Do(r)
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < int64(size) || resp.StatusCode != 200 {
						b.Fatal(n, " ", err, " ", resp.Status)
					}
					resp.Body.Close()
				}
			})
		}
	}
}
