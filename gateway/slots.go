package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"aduana/capabilities"
)

// slots bounds how many calls run at one upstream at once (the policy's `concurrency`).
type slots struct {
	mu   sync.Mutex
	byID map[capabilities.UpstreamID]*queue
}

type queue struct {
	limit   int
	running int
	waiting []chan struct{}
}

// slot is one running call. The nil slot is released for nothing.
type slot struct {
	s  *slots
	id capabilities.UpstreamID
}

// The bounds of waiting.
const (
	maxWaiting = 1000
	maxWait    = 30 * time.Second
)

var errBusy = errors.New("the upstream is busy")

// take gets a slot at once, or waits for one. waited says that time passed.
func (s *slots) take(ctx context.Context, id capabilities.UpstreamID, limit int) (got *slot, waited bool, err error) {
	s.mu.Lock()
	if s.byID == nil {
		s.byID = map[capabilities.UpstreamID]*queue{}
	}
	q := s.byID[id]
	if q == nil {
		q = &queue{}
		s.byID[id] = q
	}
	q.limit = limit
	if q.running < q.limit && len(q.waiting) == 0 {
		q.running++
		s.mu.Unlock()
		return &slot{s, id}, false, nil
	}
	if len(q.waiting) >= maxWaiting {
		s.mu.Unlock()
		return nil, false, errBusy
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	s.mu.Unlock()

	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-turn:
		return &slot{s, id}, true, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errBusy
	}
	s.mu.Lock()
	for i, w := range q.waiting {
		if w == turn {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			s.mu.Unlock()
			return nil, true, err
		}
	}
	s.mu.Unlock()
	// The turn came while we gave up: pass it on.
	(&slot{s, id}).release()
	return nil, true, err
}

func (t *slot) release() {
	if t == nil {
		return
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	q := t.s.byID[t.id]
	q.running--
	for q.running < q.limit && len(q.waiting) > 0 {
		q.running++
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
	}
}

// maxRunning bounds the calls of one principal that run or wait at once. A legacy client's calls outlive its connection, so that
// nothing else would.
const maxRunning = 512

// running counts the calls of each principal.
type running struct {
	mu sync.Mutex
	by map[string]int
}

func (r *running) enter(principal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]int{}
	}
	if r.by[principal] >= maxRunning {
		return false
	}
	r.by[principal]++
	return true
}

func (r *running) leave(principal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[principal]--; r.by[principal] == 0 {
		delete(r.by, principal)
	}
}
