package gatewaytest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"aduana/gateway"
)

// PolicySourceCase is a source with the means to change what it gives. Write makes the text whole at once; Remove takes it away.
// Within is how long a change may take to be noticed.
type PolicySourceCase struct {
	Source   gateway.PolicySource
	Write    func(text string)
	Remove   func()
	Oversize string // a text that is too large, "" when there is no bound to test
	Within   time.Duration
}

// RunPolicySource checks the contract of gateway.PolicySource. The source must give nothing when it starts.
func RunPolicySource(t T, c PolicySourceCase) {
	t.Helper()
	refused := func(what string) {
		if s, err := c.Source.Load(context.Background()); err == nil {
			t.Errorf("%s: loaded %d bytes, want an error", what, len(s.Text))
		} else if len(s.Text) > 0 || s.Version != "" {
			t.Errorf("%s: text came with an error", what)
		}
	}
	gives := func(text string) {
		s, err := c.Source.Load(context.Background())
		sum := sha256.Sum256([]byte(text))
		switch {
		case err != nil:
			t.Errorf("load: %v", err)
		case string(s.Text) != text:
			t.Errorf("load: got %.40q, want %.40q", s.Text, text)
		case s.Version != hex.EncodeToString(sum[:])[:12]:
			t.Errorf("load: version %q is not the first 12 digits of the text's SHA-256", s.Version)
		case s.Origin == "":
			t.Errorf("load: no origin")
		}
	}
	refused("absent")
	c.Write("")
	refused("empty")
	if c.Oversize != "" {
		c.Write(c.Oversize)
		refused("too large")
	}
	c.Write("version: 1\n# not: [parsed\r\n\x00\xff")
	gives("version: 1\n# not: [parsed\r\n\x00\xff")
	c.Write("version: 1")
	gives("version: 1")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	calls := make(chan struct{}, 64)
	var running atomic.Int32
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Source.Watch(ctx, func() {
			if running.Add(1) > 1 {
				t.Errorf("watch: changed is called while it runs")
			}
			calls <- struct{}{}
			running.Add(-1)
		})
	}()
	noticed := func(what string) bool {
		select {
		case <-calls:
			return true
		case <-time.After(c.Within):
			t.Errorf("watch: %s was not noticed within %v", what, c.Within)
			return false
		}
	}
	c.Write("version: 1 # second")
	noticed("a change")
	gives("version: 1 # second")
	c.Remove()
	noticed("a removal")
	refused("removed")
	c.Write("version: 1 # third")
	noticed("a return")
	gives("version: 1 # third")

	cancel()
	select {
	case <-ended:
	case <-time.After(c.Within):
		t.Errorf("watch: goes on after its context ended")
		return
	}
	c.Write("version: 1 # fourth")
	select {
	case <-calls:
		t.Errorf("watch: called changed after its context ended")
	default:
	}
}

// Text is a fake gateway.PolicySource: text that a test sets. Make one with NewText.
type Text struct {
	mu         sync.Mutex
	text, seen string
	news       chan struct{}
}

var _ gateway.PolicySource = (*Text)(nil)

// NewText makes a source. The empty text is none.
func NewText(text string) *Text { return &Text{text: text, news: make(chan struct{}, 1)} }

// Set changes the text.
func (x *Text) Set(text string) {
	x.mu.Lock()
	x.text = text
	x.mu.Unlock()
	select {
	case x.news <- struct{}{}:
	default: // told already, and not looked yet
	}
}

// Load gives the text.
func (x *Text) Load(context.Context) (gateway.Source, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.text == "" {
		return gateway.Source{}, errors.New("no policy is set")
	}
	x.seen = x.text
	sum := sha256.Sum256([]byte(x.text))
	return gateway.Source{Text: []byte(x.text), Origin: "policy.yaml", Version: hex.EncodeToString(sum[:])[:12]}, nil
}

// Watch tells of texts that were not loaded yet. It serves one watcher.
func (x *Text) Watch(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.news:
		}
		x.mu.Lock()
		fresh := x.text != x.seen
		x.seen = x.text
		x.mu.Unlock()
		if fresh && ctx.Err() == nil {
			changed()
		}
	}
}
