// Package groupcommit answers "how do many callers share one ordered write, without ever waiting for ever". Callers hand items
// to one goroutine, which commits whatever came together as one group and answers each caller; a caller that has no answer in
// time goes away with an error, and what happened to its item is never left open.
//
// It does not know what an item is or where it is written. Start at Queue.Do; Queue.Post is for items that nobody waits for.
package groupcommit

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Do. All mean that the caller must not rely on its item.
var (
	ErrTimeout = errors.New("not written in time")
	ErrStalled = errors.New("an earlier write hangs")
	ErrClosed  = errors.New("closed")
)

const (
	maxGroup = 64
	maxQueue = 1024
)

// The states of a ticket. The caller and the goroutine race to move it on, and whoever loses obeys.
const (
	queued    uint32 = iota
	taken            // the goroutine commits it
	answered         // the goroutine answered; the answer counts
	abandoned        // the caller went away
)

// Ticket is one item on its way. It belongs to the caller from Queue.Ticket until Queue.Do or Queue.Drop.
type Ticket[T any] struct {
	Item   T // keeps its storage from use to use: the caller sets every field
	state  atomic.Uint32
	answer chan error
	timer  *time.Timer
}

// Queue commits groups of items. Make it with New.
type Queue[T any] struct {
	commit  func(group []*T) error
	late    func(item *T)
	wait    time.Duration
	epoch   time.Time
	busy    atomic.Int64 // nanoseconds after epoch at which the commit that now runs began, 0 when none runs
	closed  atomic.Bool
	tickets chan *Ticket[T]
	stop    chan struct{}
	done    chan struct{}
	pool    sync.Pool

	mu     sync.Mutex
	posted []*Ticket[T]  // nobody waits for these
	wake   chan struct{} // holds one when posted ones have waited long enough for company
	armed  bool          // a timer will send to wake
}

// linger is how long a posted item waits for one that somebody waits for, to be committed with it: a wake-up of the goroutine saved.
const linger = 5 * time.Millisecond

// New starts the goroutine; Close ends it. Commit is called by it alone with at least one item, and all of the group share its
// error. Late is called by it too, with an item that was committed after its caller had gone. Neither may keep an item.
func New[T any](wait time.Duration, commit func(group []*T) error, late func(item *T)) *Queue[T] {
	q := &Queue[T]{
		commit: commit, late: late, wait: wait, epoch: time.Now(),
		tickets: make(chan *Ticket[T], maxQueue), stop: make(chan struct{}), done: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	q.pool.New = func() any {
		t := &Ticket[T]{answer: make(chan error, 1), timer: time.NewTimer(time.Hour)}
		t.timer.Stop()
		return t
	}
	go q.run()
	return q
}

// Ticket gives a ticket whose item may hold an earlier one's storage.
func (q *Queue[T]) Ticket() *Ticket[T] { return q.pool.Get().(*Ticket[T]) }

// Drop gives back a ticket that is not used after all.
func (q *Queue[T]) Drop(t *Ticket[T]) { q.pool.Put(t) }

// Do has the item committed, and returns nil only when it was. On ErrTimeout the item was either never handed to commit and never
// will be, or late is told of it if it is committed after all.
func (q *Queue[T]) Do(t *Ticket[T]) error {
	if q.closed.Load() {
		q.pool.Put(t)
		return ErrClosed
	}
	// When a commit has hung for longer than anybody waits, one more caller need not wait to learn it.
	if since := q.busy.Load(); since != 0 && int64(time.Since(q.epoch))-since >= int64(q.wait) {
		q.pool.Put(t)
		return ErrStalled
	}
	t.state.Store(queued)
	t.timer.Reset(q.wait)
	select {
	case q.tickets <- t:
	default:
		select {
		case q.tickets <- t:
		case <-t.timer.C:
			q.pool.Put(t)
			return ErrTimeout
		}
	}
	select {
	case err := <-t.answer:
		t.timer.Stop()
		q.pool.Put(t)
		return err
	case <-t.timer.C:
	}
	if t.state.CompareAndSwap(queued, abandoned) || t.state.CompareAndSwap(taken, abandoned) {
		return ErrTimeout // the goroutine may still hold the ticket, so it is not used again
	}
	err := <-t.answer
	q.pool.Put(t)
	return err
}

// Post hands an item in and does not wait for it. It is committed before every item that is handed in later, and at the latest after
// linger. When a commit fails, posted items are kept and come first in the next one. The error says that it was not taken.
func (q *Queue[T]) Post(t *Ticket[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed.Load():
		q.pool.Put(t)
		return ErrClosed
	case len(q.posted) >= maxQueue: // it hangs, or nothing can be written
		q.pool.Put(t)
		return ErrStalled
	}
	q.posted = append(q.posted, t)
	switch {
	case len(q.posted) >= maxGroup:
		q.nudge()
	case !q.armed:
		q.armed = true
		time.AfterFunc(linger, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.armed = false
			q.nudge()
		})
	}
	return nil
}

// nudge wakes the goroutine for posted items. The caller holds mu.
func (q *Queue[T]) nudge() {
	if len(q.posted) == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue[T]) run() {
	defer close(q.done)
	var waited, posted []*Ticket[T]
	var items []*T
	take := func(t *Ticket[T]) {
		if t.state.CompareAndSwap(queued, taken) {
			waited = append(waited, t)
		}
	}
	crowded := false
	for {
		stopping := false
		select {
		case t := <-q.tickets:
			take(t)
		case <-q.wake:
		case <-q.stop:
			stopping = true
		}
		// Where several came together before, let those who can run hand in theirs first: one write for all of them costs less
		// than the yield. A lone caller does not pay for it.
		if crowded {
			runtime.Gosched()
		}
	more:
		for len(waited) < maxGroup {
			select {
			case t := <-q.tickets:
				take(t)
			default:
				break more
			}
		}
		crowded = len(waited) > 1
		// After the tickets: whatever was posted before one of them was handed in is here now, and goes before it.
		q.mu.Lock()
		posted = append(posted, q.posted...)
		clear(q.posted)
		q.posted = q.posted[:0]
		q.mu.Unlock()
		for _, list := range [...][]*Ticket[T]{posted, waited} {
			for _, t := range list {
				items = append(items, &t.Item)
			}
		}
		if len(items) == 0 && stopping {
			return
		}
		if len(items) > 0 {
			q.busy.Store(max(1, int64(time.Since(q.epoch))))
			err := q.commit(items)
			var gone []*Ticket[T]
			for _, t := range waited {
				if t.state.CompareAndSwap(taken, answered) {
					t.answer <- err
				} else if err == nil {
					gone = append(gone, t)
				}
			}
			for _, t := range gone { // after the answers, because late may take its time
				q.late(&t.Item)
			}
			q.busy.Store(0)
			if err == nil || stopping { // after the last commit there is no next one
				for _, t := range posted {
					q.pool.Put(t)
				}
				clear(posted)
				posted = posted[:0]
			}
		}
		clear(waited)
		clear(items)
		waited, items = waited[:0], items[:0]
	}
}

// Close commits what is queued and ends the goroutine. It returns ErrTimeout when that takes longer than a caller would wait;
// the goroutine then ends when the commit that hangs returns. Do must not be called after Close, and gives ErrClosed if it is.
func (q *Queue[T]) Close() error {
	if q.closed.Swap(true) {
		return ErrClosed
	}
	close(q.stop)
	timer := time.NewTimer(q.wait)
	defer timer.Stop()
	select {
	case <-q.done:
		return nil
	case <-timer.C:
		return ErrTimeout
	}
}
