package mcpstdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

// ServerOptions says how one client is served. Key must be set.
type ServerOptions struct {
	// Key gives the client's key. It is asked for every request, so that a rotated key counts from the next one.
	Key func() string
	Log *slog.Logger // nil discards

	MaxFrame    int           // bytes of one line; 0 = 4 MiB
	MaxInFlight int           // requests at once; then no more are read until one ends; 0 = 256
	DrainWait   time.Duration // how long running calls may take after the input or ctx has ended; 0 = 30 s
}

// maxListens bounds the subscriptions of one connection. They last, and must not take every place that a request could have: the
// message that cancels one could then not be read.
const maxListens = 16

// lastWrites is how long requests that were cancelled may take to end. They can be held up only by a client that does not read.
const lastWrites = 5 * time.Second

// server is one connection.
type server struct {
	g       *gateway.Gateway
	o       ServerOptions
	session *gateway.ClientSession
	listens context.Context // ends before the calls do
	calls   context.Context
	slots   chan struct{}
	running sync.WaitGroup
	greeted sync.Once

	storage sync.Pool // of *jsonrpc.Message

	outMu  sync.Mutex
	out    io.Writer
	buf    []byte
	broken bool                    // out failed
	failed context.CancelCauseFunc // ends the connection then

	mu       sync.Mutex
	closing  bool
	inflight map[string]*request // by id
	lasting  int                 // listens among them
}

// Serve speaks MCP with one client until in ends, out fails, or ctx ends, and lets what runs come to its end first. The error is that
// of out or in; a client that just leaves is none. A Read of in that is blocked when ctx ends is left behind: standard input cannot be
// woken.
func Serve(ctx context.Context, g *gateway.Gateway, in io.Reader, out io.Writer, o ServerOptions) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = 4 << 20
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 256
	}
	if o.DrainWait <= 0 {
		o.DrainWait = 30 * time.Second
	}
	reading, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	listens, cancelListens := context.WithCancel(calls)
	defer cancelListens()
	s := &server{g: g, o: o, session: gateway.NewConnection(), listens: listens, calls: calls, slots: make(chan struct{}, o.MaxInFlight),
		out: out, failed: failed, inflight: map[string]*request{}}
	s.storage.New = func() any { return new(jsonrpc.Message) }
	defer s.session.End()

	read := make(chan error, 1)
	go func() { read <- s.read(reading, in) }()
	var err error
	select {
	case err = <-read:
		cancelListens() // nobody is left to listen
	case <-reading.Done():
		select {
		case <-g.Draining(): // they end by themselves, with their last word
		default:
			cancelListens()
		}
	}

	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.running.Wait()
		close(idle)
	}()
	if !within(idle, o.DrainWait) {
		s.session.End()
		cancelCalls()
		if !within(idle, lastWrites) {
			return errors.New("the client does not read its answers")
		}
	}
	if err == nil && ctx.Err() == nil {
		err = context.Cause(reading) // what out failed with, if it did
	}
	return err
}

// read takes frames until in or ctx ends.
func (s *server) read(ctx context.Context, in io.Reader) error {
	f := newFrames(in, s.o.MaxFrame)
	for {
		l, err := f.next()
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case l.over:
			s.refuse(ctx, nil, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: fmt.Sprintf("the message is larger than %d bytes", s.o.MaxFrame)})
		case len(skip(l.text)) > 0:
			s.take(ctx, l)
		}
	}
}

// take deals with one frame. Requests run on their own, so that one that takes long holds up nobody; everything else is done here, in
// the order of the input.
func (s *server) take(ctx context.Context, l line) {
	text := l.text
	if !l.kept {
		text = bytes.Clone(text)
	}
	m := s.storage.Get().(*jsonrpc.Message)
	if err := m.Scan(text, jsonrpc.Limits{Bytes: s.o.MaxFrame}); err != nil {
		e := &mcp.Error{Code: mcp.CodeInvalidRequest, Message: err.Error()}
		var refused *jsonrpc.Error
		if errors.As(err, &refused) {
			e.Code, e.Message = refused.Code, refused.Reason
		}
		s.refuse(ctx, m.ID(), e)
		s.storage.Put(m)
		return
	}
	if m.Form() != jsonrpc.Request {
		s.notified(m)
		m.Reset()
		s.storage.Put(m)
		return
	}
	era := mcp.EraOfMessage(m, nil)
	r := &request{s: s, m: m, era: era, method: m.Method(), key: idKey(m.ID())}
	lasts := era == mcp.Modern && r.method == mcp.MethodListen
	if lasts && !s.admitListen() {
		s.write(mcp.AppendError(nil, m.ID(), &mcp.Error{Code: mcp.CodeServerBusy, Message: "too many subscriptions on this connection; end one first"}))
		s.storage.Put(m)
		return
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	parent := s.calls
	if lasts {
		parent = s.listens
	}
	var runs context.Context
	runs, r.cancel = context.WithCancel(parent)
	if !s.enter(r) {
		return
	}
	go func() {
		defer s.running.Done()
		defer func() {
			r.cancel()
			s.leave(r, lasts)
			m.Reset()
			s.storage.Put(m)
			<-s.slots
		}()
		r.run(runs)
	}()
}

func (s *server) admitListen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasting >= maxListens {
		return false
	}
	s.lasting++
	return true
}

// enter makes a request known before anything else is read, so that a cancellation right behind it finds it. A second request under
// the id of one that runs is not found by it; the gateway refuses what would be ambiguous. It fails when the connection is closing.
func (s *server) enter(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.running.Add(1)
	if _, ok := s.inflight[r.key]; !ok {
		s.inflight[r.key] = r
	}
	return true
}

func (s *server) leave(r *request, lasts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inflight[r.key] == r {
		delete(s.inflight, r.key)
	}
	if lasts {
		s.lasting--
	}
}

// notified deals with what has no answer: notifications, and answers to questions that were never asked.
func (s *server) notified(m *jsonrpc.Message) {
	if m.Form() == jsonrpc.Notification && m.Method() == mcp.MethodCancelled {
		if id, ok := m.Params.Get("requestId"); ok {
			s.mu.Lock()
			r := s.inflight[idKey(m.Bytes(id.Value))]
			s.mu.Unlock()
			if r != nil && r.method != mcp.MethodInitialize { // which may not be cancelled
				r.quiet()
			}
		}
	}
	if m.Form() == jsonrpc.Response {
		s.o.Log.Debug("dropped an answer to nothing that was asked")
	}
	s.g.Handle(s.calls, &gateway.Request{Message: m, Era: mcp.EraOfMessage(m, nil), Surface: gateway.OverStdio, Session: s.session}, nil)
}

// authenticate says who the client is now.
func (s *server) authenticate(ctx context.Context) (principals.Principal, *mcp.Error) {
	p, problem := s.g.Authenticate(ctx, gateway.Credential{Surface: gateway.OverStdio, Bearer: gateway.NewSecret(s.o.Key())})
	if problem != principals.NoProblem {
		return p, &mcp.Error{Code: mcp.CodeUnauthenticated, Message: "unauthenticated: this connection has no key that exactly one static-key issuer of " +
			"the policy accepts; set the gateway's key variable and start again"}
	}
	return p, nil
}

// refuse answers a frame that is no message.
func (s *server) refuse(ctx context.Context, id []byte, e *mcp.Error) {
	p, problem := s.authenticate(ctx)
	if problem != nil {
		s.write(mcp.AppendError(nil, id, problem))
		return
	}
	s.write(s.g.Refused(ctx, gateway.OverStdio, p, id, e))
}

// write sends one message in one write.
func (s *server) write(parts ...[]byte) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if s.broken {
		return
	}
	s.buf = s.buf[:0]
	for _, p := range parts {
		s.buf = append(s.buf, p...)
	}
	s.buf = oneLine(s.buf)
	if _, err := s.out.Write(s.buf); err != nil {
		s.broken = true
		s.failed(err)
		s.session.End() // what runs, runs for nobody
	}
	if cap(s.buf) > 1<<20 {
		s.buf = nil
	}
}

// watch tells a legacy client when its list has changed. Modern ones subscribe.
func (s *server) watch(p principals.Principal) {
	changes, stop := s.g.Watch(p, "")
	s.running.Go(func() {
		defer stop()
		notice := mcp.AppendNotification(nil, mcp.MethodToolsChange, nil)
		for {
			select {
			case <-changes:
				// The key may have gone since. Who could not ask for the list is not told of it.
				if now, problem := s.authenticate(s.listens); problem != nil || now.ID() != p.ID() {
					return
				}
				s.write(notice)
			case <-s.listens.Done():
				return
			case <-s.g.Draining():
				return
			}
		}
	})
}

// request is one request that runs, and takes what goes back.
type request struct {
	s      *server
	m      *jsonrpc.Message
	era    mcp.Era
	method string
	key    string
	cancel context.CancelFunc

	streams bool // an Event went out

	mu     sync.Mutex
	silent bool
}

// quiet ends a request that the client no longer wants. Nothing is sent for it any more (2025-11-25 and 2026-07-28, cancellation).
func (r *request) quiet() {
	r.mu.Lock()
	r.silent = true
	r.mu.Unlock()
	r.cancel()
}

func (r *request) wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.silent
}

func (r *request) run(ctx context.Context) {
	p, problem := r.s.authenticate(ctx)
	if problem != nil {
		r.Answer(http.StatusUnauthorized, mcp.AppendError(nil, r.m.ID(), problem))
		return
	}
	if r.era == mcp.Modern {
		if e := mcp.CheckModern(r.m, nil); e != nil {
			r.Answer(e.Status, r.s.g.Refused(ctx, gateway.OverStdio, p, r.m.ID(), e))
			return
		}
	}
	r.s.g.Handle(ctx, &gateway.Request{Message: r.m, Era: r.era, Surface: gateway.OverStdio, Principal: p, Session: r.s.session}, r)
	if r.method == mcp.MethodInitialize && r.era == mcp.Legacy {
		r.s.greeted.Do(func() { r.s.watch(p) })
	}
}

// Event sends a message ahead of the answer.
func (r *request) Event(message []byte) {
	if r.wanted() {
		r.streams = true
		r.s.write(message)
	}
}

// Answer ends the request. Without parts there is none.
func (r *request) Answer(_ int, parts ...[]byte) {
	if len(parts) == 0 || !r.wanted() {
		return
	}
	r.s.write(parts...)
	if r.method == mcp.MethodListen && r.era == mcp.Modern && r.streams {
		// A subscription that the server ends has a last result, and a notice of its own (2026-07-28, cancellation): both say
		// the same, and clients look for either.
		r.s.write([]byte(`{"jsonrpc":"2.0","method":"`+mcp.MethodCancelled+`","params":{"requestId":`), r.m.ID(), []byte(`}}`))
	}
}

// Begin has nothing to do: the connection is the session.
func (r *request) Begin(*gateway.ClientSession) {}

// idKey makes equal ids equal keys: a string by its text, a number by its bytes.
func idKey(id []byte) string {
	if len(id) > 0 && id[0] == '"' {
		if text, err := jsonrpc.DecodeString(id); err == nil {
			return `"` + text
		}
	}
	return string(id)
}
