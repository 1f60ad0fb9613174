package mcphttp

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"aduana/gateway"
	"aduana/internal/mcp"
	"aduana/principals"
)

const modernVersion = mcp.V20260728

// reply sends what goes back on one request: plain JSON, or an event stream as soon as anything precedes the answer.
type reply struct {
	s          *Server
	w          http.ResponseWriter
	rc         *http.ResponseController
	credential gateway.Credential
	principal  principals.Principal
	watched    bool               // the credential is looked at again before every event
	cancel     context.CancelFunc // of a watched one

	mu     sync.Mutex // the comments between events come from a timer
	stream bool
	broken bool // nobody reads any more, or nobody may
	timer  *time.Timer
	frame  []byte
}

var _ gateway.Reply = (*reply)(nil)

// Begin names the session that an initialize began.
func (p *reply) Begin(s *gateway.ClientSession) { p.w.Header().Set("Mcp-Session-Id", s.ID()) }

// Event sends a message ahead of the answer.
func (p *reply) Event(message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open() {
		return
	}
	p.send(message)
}

// Answer ends the request. No parts mean that nothing follows.
func (p *reply) Answer(status int, parts ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(parts) == 0 || p.broken {
		return
	}
	if p.stream {
		if p.holds() {
			p.send(parts...)
		}
		return
	}
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	h := p.w.Header()
	h["Content-Type"] = p.s.jsonType
	h["Content-Length"] = []string{strconv.Itoa(n)}
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.s.o.WriteTimeout))
	p.w.WriteHeader(status)
	for _, part := range parts {
		if _, err := p.w.Write(part); err != nil {
			return
		}
	}
	// Now, and not when the handler returns: the gateway may still have to record what it did.
	_ = p.rc.Flush()
}

// open begins the event stream if it has not begun. The caller holds mu.
func (p *reply) open() bool {
	if p.broken || !p.holds() {
		return false
	}
	if p.stream {
		return true
	}
	p.stream = true
	p.s.beginStream(p.w)
	p.timer = time.AfterFunc(p.s.o.KeepAlive, p.comment)
	return true
}

func (s *Server) beginStream(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = s.streamType
	h["Cache-Control"] = s.noCache
	h["X-Accel-Buffering"] = s.noBuffer
	w.WriteHeader(http.StatusOK)
}

// holds asks for a watched stream whether its credential still counts, and still for the same principal. Otherwise the stream ends.
func (p *reply) holds() bool {
	if !p.watched || p.s.holds(p.credential, p.principal) {
		return true
	}
	p.fail()
	return false
}

func (s *Server) holds(c gateway.Credential, p principals.Principal) bool {
	now, problem := s.g.Authenticate(s.hard, c)
	return problem == principals.NoProblem && now.ID() == p.ID()
}

func (p *reply) fail() {
	p.broken = true
	p.cancel()
}

// send writes one event. The caller holds mu.
func (p *reply) send(parts ...[]byte) {
	p.frame = appendEvent(p.frame[:0], parts...)
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.s.o.WriteTimeout))
	if _, err := p.w.Write(p.frame); err != nil || p.rc.Flush() != nil {
		// A legacy call goes on without its client, and nothing is written to it any more; a modern one is over.
		p.broken = true
	}
	if cap(p.frame) > maxPooledBody {
		p.frame = nil
	}
	if p.timer != nil {
		p.timer.Reset(p.s.o.KeepAlive)
	}
}

// appendEvent frames a message. It has no line break: the scan refuses control characters in strings, but white space between the
// tokens of an upstream's JSON may hold some, and each line needs its own field.
func appendEvent(dst []byte, parts ...[]byte) []byte {
	dst = append(dst, "event: message\ndata: "...)
	for _, part := range parts {
		for {
			at := lineBreak(part)
			if at < 0 {
				dst = append(dst, part...)
				break
			}
			dst = append(dst, part[:at]...)
			dst = append(dst, "\ndata: "...)
			part = part[at+1:]
		}
	}
	return append(dst, "\n\n"...)
}

// comment keeps an idle stream alive.
func (p *reply) comment() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken || !p.stream || p.timer == nil || !p.holds() {
		return
	}
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.s.o.WriteTimeout))
	if _, err := p.w.Write([]byte(keepAlive)); err != nil || p.rc.Flush() != nil {
		p.broken = true
		return
	}
	p.timer.Reset(p.s.o.KeepAlive)
}

// keepAlive is an event stream comment.
const keepAlive = ":\n\n"

// end is the handler's return: the writer belongs to net/http again, so no timer may touch it.
func (p *reply) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
