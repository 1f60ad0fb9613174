package jsonrpc

import (
	"bytes"
	"testing"
)

const modernCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo","arguments":{"message":"hi"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p1"}}}`

func benchmarkScan(b *testing.B, raw []byte) {
	var m Message
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if err := m.Scan(raw, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func resultOf(text string) []byte {
	return AppendString([]byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":`), text)
}

func BenchmarkScan(b *testing.B) {
	b.Run("legacy call 100 B", func(b *testing.B) {
		benchmarkScan(b, []byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo","arguments":{"message":"hi"}}}`))
	})
	b.Run("modern call", func(b *testing.B) { benchmarkScan(b, []byte(modernCall)) })
	end := []byte(`}]}}`)
	b.Run("result 64 KiB plain text", func(b *testing.B) {
		benchmarkScan(b, append(resultOf(string(bytes.Repeat([]byte("a"), 64<<10))), end...))
	})
	b.Run("result 64 KiB prose with lines", func(b *testing.B) {
		benchmarkScan(b, append(resultOf(string(bytes.Repeat([]byte("Lorem ipsum dolor sit amet, \"consectetur\" adipiscing elit, sed.\n"), 1000))), end...))
	})
	b.Run("result 64 KiB beyond ASCII", func(b *testing.B) {
		benchmarkScan(b, append(resultOf(string(bytes.Repeat([]byte("日本語の文章、"), 3000))), end...))
	})
	b.Run("result 64 KiB structured", func(b *testing.B) {
		raw := []byte(`{"jsonrpc":"2.0","id":1,"result":{"structuredContent":[0`)
		for len(raw) < 64<<10 {
			raw = append(raw, `,{"id":12345,"name":"invoice","total":12.50,"tags":["a","b"],"paid":true}`...)
		}
		benchmarkScan(b, append(raw, `]}}`...))
	})
}

func BenchmarkScanManyMembers(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"result":{"x":{`)
	for i := range 100_000 {
		raw = append(AppendString(raw, string([]byte{'k', byte('a' + i%26), byte('a' + i/26%26), byte('a' + i/676%26), byte('a' + i/17576%26)})), ':', '0', ',')
	}
	benchmarkScan(b, append(raw, `"z":0}}}`...))
}

func BenchmarkSplice(b *testing.B) {
	call := []byte(modernCall)
	result := append(resultOf(string(bytes.Repeat([]byte("a"), 64<<10))), `}]}}`...)
	for _, c := range []struct {
		name string
		src  []byte
	}{{"modern call", call}, {"result 64 KiB", result}} {
		b.Run(c.name, func(b *testing.B) {
			var m Message
			if err := m.Scan(c.src, Limits{}); err != nil {
				b.Fatal(err)
			}
			dst, id := make([]byte, 0, 2*len(c.src)), []byte(`"9-4711"`)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Splice(dst, c.src, Edit{m.id, id}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCanonical(b *testing.B) {
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		out, err := AppendCanonical(dst[:0], []byte(modernCall))
		if err != nil {
			b.Fatal(err)
		}
		dst = out
	}
}
