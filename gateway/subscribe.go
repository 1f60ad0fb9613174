package gateway

import (
	"context"
	"crypto/sha256"
	"sync"

	"aduana/capabilities"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

// watcher is somebody who wants to know when their own list changed.
type watcher struct {
	principal principals.Principal
	scope     capabilities.UpstreamID
	seen      [sha256.Size]byte
	wake      chan struct{} // holds at most one: a storm is one notice
}

type watchers struct {
	mu  sync.Mutex
	all map[*watcher]struct{}
}

// Watch gives a channel that gets a value whenever the principal's list on an endpoint has changed. stop must be called.
func (g *Gateway) Watch(p principals.Principal, scope capabilities.UpstreamID) (changes <-chan struct{}, stop func()) {
	w := &watcher{principal: p, scope: scope, wake: make(chan struct{}, 1)}
	g.watchers.mu.Lock()
	defer g.watchers.mu.Unlock()
	w.seen = g.watched(w)
	if g.watchers.all == nil {
		g.watchers.all = map[*watcher]struct{}{}
	}
	g.watchers.all[w] = struct{}{}
	return w.wake, func() {
		g.watchers.mu.Lock()
		delete(g.watchers.all, w)
		g.watchers.mu.Unlock()
	}
}

// watched is a digest of what the watcher's list holds now.
func (g *Gateway) watched(w *watcher) [sha256.Size]byte {
	return g.view(g.current.Load(), w.principal, w.scope, g.cfg.Clock().UnixMilli()).holds()
}

// changed tells exactly those whose visible set is another one now.
func (ws *watchers) changed(g *Gateway) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		now := g.watched(w)
		if now == w.seen {
			continue
		}
		w.seen = now
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// listen serves subscriptions/listen: the acknowledgement, then a notice per change, until the client leaves or the gateway drains;
// then, if somebody is still there, the graceful end.
func (g *Gateway) listen(ctx context.Context, rq *Request, reply Reply) {
	if rq.Session != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		if !rq.Session.enter(rq.Message.ID(), cancel) {
			g.fail(rq, reply, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: "this id is of a request that still runs", Status: mcp.StatusBadRequest})
			return
		}
		defer rq.Session.leave(rq.Message.ID())
	}
	wanted, ok := rq.Message.Params.Get("notifications")
	if !ok || wanted.Kind != jsonrpc.Object {
		g.fail(rq, reply, mcp.InvalidParams("params.notifications must be an object that names what to listen to"))
		return
	}
	members, err := jsonrpc.ObjectMembers(nil, rq.Message.Bytes(wanted.Value))
	if err != nil {
		g.fail(rq, reply, mcp.InvalidParams("params.notifications cannot be read"))
		return
	}
	tools := false
	if m, ok := members.Get("toolsListChanged"); ok {
		tools = string(rq.Message.Bytes(wanted.Value)[m.Value.Start:m.Value.End]) == "true"
	}
	changes, stop := g.Watch(rq.Principal, rq.Scope)
	defer stop()
	id := rq.Message.ID()
	meta := append(append([]byte(`"_meta":{"`+mcp.MetaSubscriptionID+`":`), id...), '}')
	honoured := []byte(`"notifications":{`)
	if tools {
		honoured = append(honoured, `"toolsListChanged":true`...)
	}
	honoured = append(append(honoured, `},`...), meta...)
	reply.Event(mcp.AppendNotification(nil, mcp.MethodAcknowledge, honoured))
	notice := mcp.AppendNotification(nil, mcp.MethodToolsChange, meta)
	for {
		select {
		case <-changes:
			if tools {
				reply.Event(notice)
			}
		case <-g.draining:
			b := append(responseHead(nil, id), `{"resultType":"complete",`...)
			b = append(b, meta...)
			reply.Answer(mcp.StatusOK, append(b, `}}`...))
			return
		case <-ctx.Done():
			// The client closed the stream, or cancelled it: by the specification that is the end, and nothing follows.
			reply.Answer(0)
			return
		}
	}
}
