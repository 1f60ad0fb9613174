package jsonrpc

import "testing"

func BenchmarkScanCall(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo","arguments":{"message":"hi"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p1"}}}`)
	var m Message
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if err := m.Scan(raw, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
