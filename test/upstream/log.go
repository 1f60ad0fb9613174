package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
)

// Received is one message or HTTP request, as it came. In a record file it is
// one JSON line.
type Received struct {
	Stdio   bool        `json:"stdio,omitempty"`
	Verb    string      `json:"verb,omitempty"` // HTTP method
	Path    string      `json:"path,omitempty"` // HTTP path and query
	Header  http.Header `json:"header,omitempty"`
	Body    string      `json:"body,omitempty"`    // exact bytes; over stdio without the newline
	Method  string      `json:"method,omitempty"`  // JSON-RPC method; "" for a response or no message
	Tool    string      `json:"tool,omitempty"`    // name of a tools/call
	Session string      `json:"session,omitempty"` // Mcp-Session-Id
	Modern  bool        `json:"modern,omitempty"`
	PID     int         `json:"pid"`
}

// Cancellation is one request that the client no longer wanted.
type Cancellation struct {
	Method string
	Tool   string
	ID     string // raw JSON
	// Notified says that notifications/cancelled came; otherwise the client
	// closed the response.
	Notified bool
	// Unknown says that no such request was in flight.
	Unknown bool
}

// log is everything the server received.
type log struct {
	mu        sync.Mutex
	max       int
	record    io.Writer
	messages  []Received
	methods   map[string]int
	calls     map[string]int
	total     int
	cancelled []Cancellation
	dropped   int
	responses []string
	changed   chan struct{}
}

func (l *log) init(max int, record io.Writer) {
	l.max, l.record = max, record
	l.methods, l.calls, l.changed = map[string]int{}, map[string]int{}, make(chan struct{})
}

func (l *log) wake() { l.update(func() {}) }

func (l *log) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) add(r Received) {
	r.PID = os.Getpid()
	l.update(func() {
		if len(l.messages) >= l.max {
			l.messages = slices.Delete(l.messages, 0, len(l.messages)/2+1)
		}
		l.messages = append(l.messages, r)
		l.total++
		if r.Method != "" {
			l.methods[r.Method]++
		}
		if r.Method == "tools/call" {
			l.calls[r.Tool]++
		}
		if l.record != nil {
			b, _ := json.Marshal(r)
			l.record.Write(append(b, '\n'))
		}
	})
}

// Messages is what was received, in order of arrival.
func (s *Server) Messages() []Received {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.log.messages)
}

// Received is the messages with this JSON-RPC method, in order of arrival.
func (s *Server) Received(method string) []Received {
	return slices.DeleteFunc(s.Messages(), func(r Received) bool { return r.Method != method })
}

// Total is the number of HTTP requests and stdio messages, of whatever kind.
func (s *Server) Total() int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.total
}

// Count is how often this JSON-RPC method was received.
func (s *Server) Count(method string) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.methods[method]
}

// Initializes is Count("initialize").
func (s *Server) Initializes() int { return s.Count("initialize") }

// Calls is how often tools/call was received with this name, by the verbatim
// name, known or not.
func (s *Server) Calls(tool string) int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.calls[tool]
}

// CallCounts is Calls for every name that was called.
func (s *Server) CallCounts() map[string]int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return maps.Clone(s.log.calls)
}

// Cancellations is every request that was cancelled.
func (s *Server) Cancellations() []Cancellation {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.log.cancelled)
}

// Dropped is the number of legacy HTTP requests whose client went away before
// the answer, which in that era is not a cancel.
func (s *Server) Dropped() int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.dropped
}

// Responses is every JSON-RPC response that the client sent, as it came.
func (s *Server) Responses() []string {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.log.responses)
}

// Await waits until cond holds and reports whether it did before ctx ended. It
// looks again whenever the server received or noticed something.
func (s *Server) Await(ctx context.Context, cond func() bool) bool {
	for {
		s.log.mu.Lock()
		changed := s.log.changed
		s.log.mu.Unlock()
		if cond() {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return cond()
		}
	}
}

// ReadRecord reads a file that Config.Record (or mcpfake -record) wrote, also
// while it is being written: a last line that is not whole is left out.
func ReadRecord(path string) ([]Received, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Received
	br := bufio.NewReader(f)
	for {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		var r Received
		if err := json.Unmarshal(line, &r); err != nil {
			return out, err
		}
		out = append(out, r)
	}
}
