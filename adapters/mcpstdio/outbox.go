package mcpstdio

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// The bounds of what waits to be written to a child.
const (
	maxQueued = 8 << 20   // bytes in the queue; a larger frame goes alone
	maxBatch  = 256 << 10 // bytes in one write, unless one frame is larger
)

var errBoxClosed = errors.New("nothing can be written any more")

// outgoing is one frame on its way to a child.
type outgoing struct {
	text  []byte
	taken bool // by the writer: from then on bytes of it may have left
}

// outbox is the queue before a child's standard input. One goroutine writes, whatever is queued in one write, so that a child that
// does not read holds up that goroutine and nobody else: callers wait for their answer or their own ctx.
type outbox struct {
	mu     sync.Mutex
	queue  []*outgoing
	bytes  int
	closed bool
	room   chan struct{} // closed and replaced when the queue was taken
	wake   chan struct{}
}

func newOutbox() *outbox {
	return &outbox{room: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// put queues a frame, and waits for room until ctx ends.
func (o *outbox) put(ctx context.Context, f *outgoing) error {
	for {
		o.mu.Lock()
		switch {
		case o.closed:
			o.mu.Unlock()
			return errBoxClosed
		case o.bytes == 0 || o.bytes+len(f.text) <= maxQueued:
			o.add(f)
			return nil
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// offer queues a frame if there is room now. It serves what may be lost: the reader must never wait for the writer, or a child
// that reads nothing until it is read from would hold up both.
func (o *outbox) offer(text []byte) {
	o.mu.Lock()
	if o.closed || o.bytes+len(text) > maxQueued {
		o.mu.Unlock()
		return
	}
	o.add(&outgoing{text: text})
}

// add queues under the lock, and unlocks.
func (o *outbox) add(f *outgoing) {
	o.queue = append(o.queue, f)
	o.bytes += len(f.text)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a frame back. True means that no byte of it left, nor ever will.
func (o *outbox) withdraw(f *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.taken {
		return false
	}
	for i, q := range o.queue {
		if q == f {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			o.bytes -= len(f.text)
			break
		}
	}
	return true
}

// unsent says that no byte of a frame left. It is final after close.
func (o *outbox) unsent(f *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !f.taken
}

// close lets nothing more out. What is still queued never leaves.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.closed = true
	o.queue, o.bytes = nil, 0
	close(o.room)
	select {
	case o.wake <- struct{}{}:
	default: // a wake that nobody took yet serves as well
	}
}

// take gives the next frames to write; ok is false after close.
func (o *outbox) take(batch []*outgoing) (_ []*outgoing, ok bool) {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return nil, false
		}
		size, n := 0, 0
		for n < len(o.queue) && (n == 0 || size+len(o.queue[n].text) <= maxBatch) {
			size += len(o.queue[n].text)
			o.queue[n].taken = true
			n++
		}
		if n > 0 {
			batch = append(batch, o.queue[:n]...)
			left := copy(o.queue, o.queue[n:])
			clear(o.queue[left:])
			o.queue = o.queue[:left]
			o.bytes -= size
			close(o.room)
			o.room = make(chan struct{})
			o.mu.Unlock()
			return batch, true
		}
		o.mu.Unlock()
		<-o.wake
	}
}

// drain writes what is queued to w until close, a failed write, or a write that stalls. Frames of a failed write of which no byte
// left are marked so.
func (o *outbox) drain(w *os.File, stall time.Duration) error {
	var batch []*outgoing
	var joined []byte
	for {
		var ok bool
		if batch, ok = o.take(batch[:0]); !ok {
			return nil
		}
		text := batch[0].text
		if len(batch) > 1 {
			joined = joined[:0]
			for _, f := range batch {
				joined = append(joined, f.text...)
			}
			text = joined
		}
		w.SetWriteDeadline(time.Now().Add(stall)) // where pipes know no deadlines, closing them must do
		if n, err := w.Write(text); err != nil {
			o.mu.Lock()
			for _, f := range batch {
				f.taken = n > 0
				n -= len(f.text)
			}
			o.mu.Unlock()
			return err
		}
		clear(batch)
	}
}
