//go:build unix

package auditfile_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"aduana/access"
	"aduana/adapters/auditfile"
	"aduana/gateway"
)

func typical(event gateway.Event) gateway.Record {
	return gateway.Record{
		Event: event, Call: "01JAB3DE5FGH7JKLMNPQRSTVWX", At: 1_700_000_000_123, Snapshot: "3f9a0c5d11e2",
		Surface: gateway.OverHTTP, Asked: "crm__contacts--search", Identity: "mcp:crm:contacts.search",
		Capability: "crm.contact.read", Definition: "9c1185a5c5e9fc54612808977ee8f548b2258d31aa55cc11d5e8d3c9c0d1f0aa",
		Code: access.Granted, Pointer: "/grants/4", Account: "crm-shared",
		Ceilings:  []gateway.Held{{Calls: 600, Window: "1h", Used: 12, Pointer: "/grants/4/limits/0"}},
		Arguments: "b94d27b9934d3e08a52e52d7da7dabfa", ArgBytes: 118,
	}
}

func BenchmarkAppend(b *testing.B) {
	open := func(b *testing.B) *auditfile.File {
		f, err := auditfile.Open(filepath.Join(b.TempDir(), "audit"), time.Now)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := f.Close(); err != nil {
				b.Error(err)
			}
		})
		return f
	}
	b.Run("1 client", func(b *testing.B) {
		f, r := open(b), typical(gateway.EventNote)
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Note(context.Background(), &r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("32 clients", func(b *testing.B) {
		f := open(b)
		b.SetParallelism(16) // times GOMAXPROCS, which is 2 where figures are taken
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			r := typical(gateway.EventNote)
			for p.Next() {
				if err := f.Note(context.Background(), &r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkVerify(b *testing.B) {
	path := filepath.Join(b.TempDir(), "audit")
	f, err := auditfile.Open(path, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	for range 10_000 {
		r := typical(gateway.EventNote)
		if err := f.Note(context.Background(), &r); err != nil {
			b.Fatal(err)
		}
	}
	f.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := auditfile.Verify(bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
