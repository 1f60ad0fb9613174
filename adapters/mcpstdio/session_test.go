package mcpstdio

import (
	"context"
	"testing"
	"time"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// A child that reads nothing can still guess the id of a call that waits for room, and answer it. The response is the caller's again
// when Call returns, and serves another principal's call then: no reader may be in it.
func TestAnUnsentCallLeavesNobodyInItsResponse(t *testing.T) {
	s := &session{o: UpstreamOptions{MaxFrame: 1 << 20}, id: "fake", era: mcp.Modern, out: newOutbox(), pending: map[uint64]*pending{}, done: make(chan struct{})}
	s.out.offer(make([]byte, maxQueued)) // nothing takes it
	request := new(jsonrpc.Message)
	if err := request.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`), jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan gateway.Answer, 1)
	response := new(jsonrpc.Message)
	go func() {
		returned <- s.Call(ctx, &gateway.UpstreamCall{Request: request, Name: "x", Response: response})
	}()
	var p *pending
	for p == nil {
		p = s.waiting(1)
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock() // as the reader does while it scans an answer into the response
	cancel()
	select {
	case a := <-returned:
		t.Error("the call returned while its response was being written")
		returned <- a
	case <-time.After(50 * time.Millisecond):
	}
	p.mu.Unlock()
	if a := <-returned; a.Sent != gateway.NotSent || a.Failure == nil {
		t.Errorf("%+v", a)
	}
	if s.answer(p, line{text: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)}, true) || response.Raw != nil {
		t.Error("an answer was taken after the call had returned")
	}
}
