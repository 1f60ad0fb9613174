package gateway_test

import (
	"testing"
	"time"

	"aduana/gateway"
)

// A client that begins sessions without end loses its own, and nobody else's.
func TestNobodyTakesEverySession(t *testing.T) {
	w := crmWorld(t, "")
	ana, eve := w.principal("corp", "ana"), w.principal("corp", "eve")
	begin := func() *gateway.ClientSession {
		t.Helper()
		r := w.ask(eve, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy)
		if r.begun == nil {
			t.Fatalf("no session: %s", r.answer)
		}
		return r.begun
	}
	hers := w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy).begun
	w.advance(time.Second)
	first := begin()
	w.advance(time.Second)
	var last *gateway.ClientSession
	for range 10_000 {
		last = begin()
	}
	if _, ok := w.g.Session(hers.ID(), ana); !ok {
		t.Error("a client lost its session to another one")
	}
	select {
	case <-hers.Done():
		t.Error("a client's session was ended for another one")
	default:
	}
	if _, ok := w.g.Session(first.ID(), eve); ok {
		t.Error("the longest idle session stayed")
	}
	select {
	case <-first.Done():
	default:
		t.Error("the session that made room was not ended")
	}
	if _, ok := w.g.Session(last.ID(), eve); !ok {
		t.Error("the newest session is unknown")
	}
	if r := w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy); r.begun == nil {
		t.Errorf("there is no room for another client: %s", r.answer)
	}
}
