package mcpstdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/internal/redact"
)

// The bounds of what a child may do.
const (
	maxGreeting  = 1 << 20 // bytes of the answer to a handshake
	maxGarbage   = 100     // lines in a row that are no messages
	maxNotices   = 64      // progress notifications of one call that wait to be passed on; more are lost
	shownGarbage = 256     // bytes of a line that is no message, in the log
)

// session is one child under one account, spoken to by many calls at once.
type session struct {
	o       UpstreamOptions
	id      string // of the upstream
	log     *slog.Logger
	redact  *redact.Redactor
	child   *child
	noise   *noise
	out     *outbox
	changed func()
	era     mcp.Era // fixed by the handshake, before anybody else has the session
	running sync.WaitGroup

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]*pending
	ended   *gateway.Failure // why; set once

	done     chan struct{} // closed with ended
	gone     chan struct{} // closed when child and goroutines are gone
	closeErr error         // set before gone closes

	scratch jsonrpc.Message // of the reader
	garbage int             // lines in a row that were no messages; of the reader
	skipped atomic.Uint64   // lines that were no messages
	strays  atomic.Uint64   // answers and progress that nobody waits for
}

// pending is a request that waits for its answer.
type pending struct {
	id      uint64
	max     int // bytes of the answer
	list    bool
	frame   *outgoing
	notices chan []byte // nil when no progress was asked for
	done    chan gateway.Answer

	mu       sync.Mutex // held while an answer is scanned into response
	over     bool       // done was, or will never be, given an answer
	response *jsonrpc.Message
}

// settle gives the answer, once.
func (p *pending) settle(a gateway.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		p.done <- a
	}
}

func (s *session) failure(class gateway.FailureClass, what string) *gateway.Failure {
	return &gateway.Failure{Class: class, Detail: fmt.Sprintf("upstream %q %s", s.id, what)}
}

// run starts what serves the child.
func (s *session) run() {
	read := make(chan struct{})
	s.running.Go(func() {
		defer close(read)
		s.read()
	})
	s.running.Go(func() {
		err := s.out.drain(s.child.stdin, s.o.WriteStall)
		if err != nil {
			// A child that closed its input may still have answers on the way, or be about to end and say why.
			if within(s.done, straggle) {
				return
			}
			s.end(s.failure(gateway.FailedExited, "takes no more input"))
		}
	})
	heard := make(chan struct{})
	s.running.Go(func() {
		defer close(heard)
		s.noise.read(s.child.stderr)
	})
	s.running.Go(func() {
		<-s.child.exited
		limit := time.Now().Add(straggle)
		for _, c := range [...]<-chan struct{}{read, heard} {
			within(c, time.Until(limit))
		}
		s.child.stdin.Close()
		s.child.stdout.Close()
		s.child.stderr.Close()
	})
}

// end makes the session serve no more, fails every call that waits, and ends the child. The first reason counts.
func (s *session) end(f *gateway.Failure) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return
	}
	s.ended = f
	waiting := s.pending
	s.pending = map[uint64]*pending{}
	close(s.done)
	s.mu.Unlock()
	s.out.close()
	for _, p := range waiting {
		a := gateway.Answer{Failure: f}
		if s.out.unsent(p.frame) {
			a.Sent = gateway.NotSent
		}
		p.settle(a)
	}
	go s.wind()
}

// wind waits until nothing of the session is left.
func (s *session) wind() {
	defer close(s.gone)
	s.closeErr = s.child.stop(s.o.Grace)
	if s.closeErr != nil {
		s.closeErr = s.failure(gateway.FailedExited, s.closeErr.Error())
		s.child.stdout.Close()
		s.child.stderr.Close()
		return
	}
	s.running.Wait()
	level, text := slog.LevelDebug, ""
	if s.ended.Class != gateway.FailedCancelled {
		level, text = slog.LevelWarn, s.noise.end()
	}
	s.log.Log(context.Background(), level, "child ended", "why", s.ended.Detail, "status", s.child.outcome,
		"skipped_lines", s.skipped.Load(), "stray_messages", s.strays.Load(), "stderr", text)
}

// Era is the era that the child speaks.
func (s *session) Era() mcp.Era { return s.era }

// Done is closed when the session can serve no more calls.
func (s *session) Done() <-chan struct{} { return s.done }

// Close ends the child and everything in its process group, and returns when they are gone.
func (s *session) Close() error {
	s.end(s.failure(gateway.FailedCancelled, "was closed"))
	<-s.gone
	return s.closeErr
}

// register makes p's id known, so that an answer finds it. It fails when the session has ended.
func (s *session) register(p *pending) *gateway.Failure {
	p.done = make(chan gateway.Answer, 1)
	if p.max <= 0 || p.max > s.o.MaxFrame {
		p.max = s.o.MaxFrame
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.lastID++
	p.id = s.lastID
	s.pending[p.id] = p
	return nil
}

func (s *session) waiting(id uint64) *pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id]
}

func (s *session) forget(p *pending) {
	s.mu.Lock()
	delete(s.pending, p.id)
	s.mu.Unlock()
}

// drop forgets a request that was never sent, and waits for the reader to let go of its response: a child can guess the next id
// and answer what it has not read, and the memory is about to be another call's, of another principal.
func (s *session) drop(p *pending) {
	s.forget(p)
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}

// ask sends a request of the gateway's own and does not wait.
func (s *session) ask(ctx context.Context, era mcp.Era, method string, params []byte) *pending {
	return s.send(ctx, &pending{max: maxGreeting, response: new(jsonrpc.Message)}, func(id uint64) []byte {
		return mcp.AppendRequest(nil, era, id, method, params, s.o.Product)
	})
}

func (s *session) askInitialize(ctx context.Context) *pending {
	return s.send(ctx, &pending{max: maxGreeting, response: new(jsonrpc.Message)}, func(id uint64) []byte {
		return mcp.AppendInitialize(nil, id, s.o.Product)
	})
}

func (s *session) send(ctx context.Context, p *pending, write func(id uint64) []byte) *pending {
	p.frame = &outgoing{}
	if f := s.register(p); f != nil {
		p.settle(gateway.Answer{Sent: gateway.NotSent, Failure: f})
		return p
	}
	p.frame.text = oneLine(write(p.id))
	if err := s.out.put(ctx, p.frame); err != nil && !errors.Is(err, errBoxClosed) {
		s.forget(p)
		p.settle(gateway.Answer{Sent: gateway.NotSent, Failure: s.left(ctx)})
	} // a closed outbox means that the session ends, which settles every request
	return p
}

// Tools lists every page.
func (s *session) Tools(ctx context.Context) ([]mcp.ListedTool, error) {
	var all []mcp.ListedTool
	var params []byte
	seen := map[string]bool{}
	size := 0
	for range mcp.MaxPages {
		p := s.send(ctx, &pending{list: true, response: new(jsonrpc.Message)}, func(id uint64) []byte {
			return mcp.AppendRequest(nil, s.era, id, mcp.MethodToolsList, params, s.o.Product)
		})
		a := s.await(ctx, p, nil)
		if a.Failure != nil {
			return nil, a.Failure
		}
		if len(p.response.Error) > 0 {
			code, _ := p.response.Error.Get("code")
			if string(p.response.Bytes(code.Value)) == "-32601" && len(seen) == 0 {
				return nil, nil // a server without tools need not know the method
			}
			return nil, s.failure(gateway.FailedProtocol, "refused tools/list")
		}
		tools, cursor, more, err := mcp.ReadToolsPage(p.response)
		if err != nil {
			return nil, s.failure(gateway.FailedProtocol, err.Error())
		}
		all = append(all, tools...)
		if size += len(p.response.Raw); size > s.o.MaxFrame || len(all) > mcp.MaxTools {
			return nil, s.failure(gateway.FailedTooLarge, fmt.Sprintf("lists more than %d tools or %d bytes", mcp.MaxTools, s.o.MaxFrame))
		}
		if !more {
			return all, nil
		}
		if seen[string(cursor)] {
			return nil, s.failure(gateway.FailedProtocol, "gave the same cursor of tools/list twice")
		}
		seen[string(cursor)] = true
		params = append([]byte(`"cursor":`), cursor...)
	}
	return nil, s.failure(gateway.FailedTooLarge, fmt.Sprintf("lists more than %d pages of tools", mcp.MaxPages))
}

// Call sends one tools/call.
func (s *session) Call(ctx context.Context, c *gateway.UpstreamCall) gateway.Answer {
	if ctx.Err() != nil {
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.left(ctx)}
	}
	p := &pending{max: c.MaxBytes, response: c.Response, frame: &outgoing{}}
	if c.Progress != nil {
		p.notices = make(chan []byte, maxNotices)
	}
	if f := s.register(p); f != nil {
		return gateway.Answer{Sent: gateway.NotSent, Failure: f}
	}
	spec := mcp.CallSpec{Era: s.era, ID: p.id, Name: c.Name, Client: s.o.Product}
	if c.Progress != nil {
		spec.Token = p.id // unique among what runs, and ours alone
	}
	text, err := mcp.AppendCall(make([]byte, 0, len(c.Request.Raw)+256), c.Request, spec)
	if err != nil {
		s.drop(p)
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.failure(gateway.FailedProtocol, err.Error())}
	}
	p.frame.text = oneLine(text)
	if err := s.out.put(ctx, p.frame); err != nil && !errors.Is(err, errBoxClosed) {
		s.drop(p)
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.left(ctx)}
	}
	return s.await(ctx, p, c.Progress)
}

// left is the failure of a caller whose ctx ended.
func (s *session) left(ctx context.Context) *gateway.Failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return s.failure(gateway.FailedTimeout, "did not answer in time")
	}
	return s.failure(gateway.FailedCancelled, "was told that the call is cancelled")
}

// await waits for p's answer and passes its progress on. Progress goes from here, and not from the reader, because whoever takes it
// may be slow, and the reader serves everybody.
func (s *session) await(ctx context.Context, p *pending, progress func(*jsonrpc.Message)) gateway.Answer {
	var m jsonrpc.Message
	pass := func(notice []byte) {
		if m.Scan(notice, jsonrpc.Limits{}) == nil {
			progress(&m)
		}
	}
	for {
		select {
		case n := <-p.notices:
			pass(n)
		case a := <-p.done:
			for len(p.notices) > 0 { // what came before the answer goes before it
				pass(<-p.notices)
			}
			return a
		case <-ctx.Done():
			return s.abandon(ctx, p)
		}
	}
}

// abandon ends the wait for p. An answer that is there all the same is taken.
func (s *session) abandon(ctx context.Context, p *pending) gateway.Answer {
	s.forget(p)
	p.mu.Lock() // waits for a scan into the response, which is the caller's again when we return
	answered := p.over
	p.over = true
	p.mu.Unlock()
	if answered {
		return <-p.done
	}
	if s.out.withdraw(p.frame) {
		return gateway.Answer{Sent: gateway.NotSent, Failure: s.left(ctx)}
	}
	s.out.offer(oneLine(mcp.AppendCancelled(nil, p.id, "the caller gave up")))
	return gateway.Answer{Failure: s.left(ctx)}
}

// read takes the child's output until it ends, and with it the session.
func (s *session) read() {
	s.readFrom(s.child.stdout)
	what := "closed its output"
	if within(s.child.exited, straggle) {
		what = "ended: " + s.child.outcome
	}
	s.end(s.failure(gateway.FailedExited, what))
}

// readFrom takes output apart: one line, one message, or nothing.
func (s *session) readFrom(r io.Reader) {
	f := newFrames(r, s.o.MaxFrame)
	f.less = func(head []byte) int {
		if g := look(head, nil); g.hasID && !g.method {
			if p := s.waiting(g.id); p != nil {
				return p.max
			}
		}
		return s.o.MaxFrame
	}
	f.over = func(head []byte) {
		if g := look(head, nil); g.hasID && !g.method {
			s.tooLarge(g.id)
		}
	}
	for {
		l, err := f.next()
		if err != nil {
			return
		}
		if l.over {
			// Where it ends is known, so that all others go on. Whose it was must be known as well: a call that was answered
			// and does not know it would wait for ever.
			g := look(l.text, l.end)
			switch {
			case g.hasID && !g.method:
				s.tooLarge(g.id)
			case !g.method:
				s.end(s.failure(gateway.FailedTooLarge, fmt.Sprintf("wrote a line of more than %d bytes that no call can be told for", s.o.MaxFrame)))
			default:
				s.skipped.Add(1)
			}
			continue
		}
		s.take(l)
		select {
		case <-s.done:
			// Nobody listens any more, but a child that cannot write cannot end either.
			io.Copy(io.Discard, r)
			return
		default:
		}
	}
}

func (s *session) tooLarge(id uint64) {
	p := s.waiting(id)
	if p == nil {
		s.strays.Add(1)
		return
	}
	s.forget(p)
	p.settle(gateway.Answer{Sent: gateway.Answered, Failure: s.failure(gateway.FailedTooLarge, fmt.Sprintf("answered with more than %d bytes", p.max))})
}

// take deals with one line.
func (s *session) take(l line) {
	if g := look(l.text, l.text); g.hasID && !g.method {
		if p := s.waiting(g.id); p != nil && s.answer(p, l, g.reply()) {
			s.garbage = 0
			return
		}
	}
	m := &s.scratch
	if err := m.Scan(l.text, jsonrpc.Limits{Bytes: s.o.MaxFrame}); err != nil {
		s.reject(l.text, err)
		return
	}
	defer m.Reset()
	s.garbage = 0
	switch m.Form() {
	case jsonrpc.Response:
		// Reached by an answer with its members in a rare order, and by those that are nobody's.
		id, ours := mcp.OwnID(m)
		if p := s.waiting(id); !ours || p == nil || !s.answer(p, l, false) {
			s.strays.Add(1)
			s.log.Debug("dropped an answer that nobody waits for", "id", s.shown(m.ID()))
		}
	case jsonrpc.Request:
		s.serve(m)
	case jsonrpc.Notification:
		s.notice(m)
	}
}

// answer scans a line straight into the response of the request that it seems to answer. False means that it does not answer it, and
// the request waits on. Reply says that it has the shape of an answer: then what the scan refuses has failed the request, because no
// other answer will come.
func (s *session) answer(p *pending, l line, reply bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	if len(l.text) > p.max {
		s.forget(p)
		p.over = true
		p.done <- gateway.Answer{Sent: gateway.Answered, Failure: s.failure(gateway.FailedTooLarge, fmt.Sprintf("answered with more than %d bytes", p.max))}
		return true
	}
	text := l.text
	if !l.kept {
		text = bytes.Clone(text)
	}
	list := ""
	if p.list {
		list = "tools"
	}
	err := p.response.ScanTolerant(text, jsonrpc.Limits{Bytes: p.max}, list)
	id, ours := mcp.OwnID(p.response)
	own := ours && id == p.id
	a := gateway.Answer{Sent: gateway.Answered}
	switch {
	case err == nil && own && p.response.Form() == jsonrpc.Response:
	case err != nil && own && reply:
		a.Failure = s.failure(gateway.FailedProtocol, "answered with a message that is refused: "+s.shown([]byte(err.Error())))
	default:
		p.response.Reset()
		return false
	}
	s.forget(p)
	p.over = true
	p.done <- a
	return true
}

// reject counts a line that is no message. Servers print banners and logs where only messages belong; a few are skipped, without
// end they are a fault.
func (s *session) reject(text []byte, err error) {
	s.skipped.Add(1)
	s.garbage++
	s.log.Debug("skipped a line that is no message", "line", s.shown(text), "why", s.shown([]byte(err.Error())))
	if s.garbage >= maxGarbage {
		s.end(s.failure(gateway.FailedProtocol, fmt.Sprintf("wrote %d lines in a row that are no messages", maxGarbage)))
	}
}

// shown gives the start of a child's text for people. It is redacted before it is cut, or the cut would leave part of a secret.
func (s *session) shown(text []byte) string {
	if most := shownGarbage + s.redact.Longest(); len(text) > most {
		text = text[:most]
		text = text[:s.redact.Split(text)]
	}
	t := s.redact.Text(string(text))
	return strings.ToValidUTF8(t[:min(len(t), shownGarbage)], "\ufffd")
}

// serve answers a request of the child. It was told that this client can do nothing, so that only ping has an answer.
func (s *session) serve(m *jsonrpc.Message) {
	if m.Method() == mcp.MethodPing {
		s.out.offer(oneLine(append(append([]byte(`{"jsonrpc":"2.0","id":`), m.ID()...), `,"result":{}}`...)))
		return
	}
	s.out.offer(oneLine(mcp.AppendError(nil, m.ID(), mcp.MethodNotFound(s.era, m.Method()))))
}

func (s *session) notice(m *jsonrpc.Message) {
	switch m.Method() {
	case mcp.MethodToolsChange:
		if s.changed != nil {
			s.changed()
		}
	case mcp.MethodProgress:
		token, ok := mcp.ProgressToken(m)
		p := s.waiting(token)
		if !ok || p == nil || p.notices == nil {
			s.strays.Add(1)
			return
		}
		select {
		case p.notices <- bytes.Clone(m.Raw):
		default:
			s.strays.Add(1) // whoever takes it is slower than the child; progress may be lost, answers not
		}
	}
}
