package gateway_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aduana/adapters/auditfile"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// sink takes answers and keeps none.
type sink struct{ bytes int }

func (s *sink) Event([]byte) {}
func (s *sink) Answer(_ int, parts ...[]byte) {
	for _, p := range parts {
		s.bytes += len(p)
	}
}
func (s *sink) Begin(*gateway.ClientSession) {}

// BenchmarkFlow is one tools/call in process, the whole of design 8 with everything on: scan, ledger, decision, a ceiling, a schema,
// the hash-chained audit file, and an upstream that costs nothing. It is the second row of the figures in the README.
func BenchmarkFlow(b *testing.B) {
	audit, err := auditfile.Open(filepath.Join(b.TempDir(), "audit.jsonl"), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	defer audit.Close()
	text := strings.Replace(crmPolicy(""), "limits: { calls: 5, per: 1m }", "limits: { calls: 1000000000, per: 1m }", 1)
	w := newWorld(b, text, crmTools, func(w *world) {
		w.realAudit, w.realClock = audit, time.Now
		w.up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			return echo100, gateway.Answer{Sent: gateway.Answered}
		}
	})
	w.vault.Set("env://READER", "secret-of-the-reader")
	ana := w.principal("corp", "ana", "team=sales")
	raw := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"crm__get","arguments":{"message":"` + strings.Repeat("x", 80) + `"},` + modernMeta + `}}`)
	run := func(b *testing.B, next func() bool) {
		m, s := new(jsonrpc.Message), &sink{}
		for next() {
			if err := m.Scan(raw, jsonrpc.Limits{}); err != nil {
				b.Fatal(err)
			}
			w.g.Handle(context.Background(), &gateway.Request{Message: m, Era: mcp.Modern, Surface: gateway.OverHTTP, Principal: ana}, s)
		}
		if m.Raw != nil && s.bytes == 0 {
			b.Error("nothing was answered")
		}
	}
	b.Run("clients=1", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		run(b, func() bool { n++; return n <= b.N })
	})
	b.Run("clients=32", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) { run(b, pb.Next) })
	})
}

var echo100 = []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 64) + `"}]}`)

// BenchmarkList is one page of 10,000 tools from a cached view.
func BenchmarkList(b *testing.B) {
	w := crmWorld(b, "")
	bob := w.principal("corp", "bob", "team=ops")
	raw := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{` + modernMeta + `}}`)
	m, s := new(jsonrpc.Message), &sink{}
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Scan(raw, jsonrpc.Limits{}); err != nil {
			b.Fatal(err)
		}
		w.g.Handle(context.Background(), &gateway.Request{Message: m, Era: mcp.Modern, Surface: gateway.OverHTTP, Principal: bob}, s)
	}
}
