//go:build unix

package mcpstdio_test

import (
	"context"
	"strings"
	"testing"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
)

// BenchmarkCalls is one child under 32 callers. The child is a full server with encoding/json, so that most of the time is its.
func BenchmarkCalls(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(map[int]string{100: "100B", 64 << 10: "64KiB"}[size], func(b *testing.B) {
			h := newHouse(b)
			s := h.open(h.target("-tools", "echo"))
			arguments := `{"text":"` + strings.Repeat("a", size) + `"}`
			b.ReportAllocs()
			b.SetParallelism(16) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				request, response := new(jsonrpc.Message), new(jsonrpc.Message)
				if err := request.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":`+arguments+`}}`), jsonrpc.Limits{}); err != nil {
					b.Error(err)
				}
				for pb.Next() {
					if a := s.Call(context.Background(), &gateway.UpstreamCall{Request: request, Name: "echo", Response: response}); a.Failure != nil {
						b.Error(a.Failure)
					}
				}
			})
		})
	}
}
