package memory

import (
	"math"
	"sort"

	"aduana/access"
)

const (
	// maxExact calls are kept one by one; of a counter that holds more, the oldest are kept per bucket.
	maxExact = 10_000
	buckets  = 1024
)

// call is one reservation in a counter.
type call struct {
	at int64
	id uint64
}

// bucket is n calls that leave the window together, when the latest instant that the bucket spans has left it.
type bucket struct {
	at int64
	n  int64
}

// counter is the log of one key: what left the window is forgotten, the latest maxExact calls are exact, older ones stand in
// buckets. There is no mode: a ceiling of up to maxExact calls never fills the exact part, so it never has a bucket.
type counter struct {
	key    access.Key
	window int64
	old    []bucket // ascending at
	folded int64    // the sum of old
	calls  []call   // ascending at and ascending id; calls[:head] are gone
	head   int
}

func (c *counter) live() []call { return c.calls[c.head:] }

func (c *counter) empty() bool { return c.folded == 0 && len(c.live()) == 0 }

// last gives the id of the latest call, 0 when there is none.
func (c *counter) last() uint64 {
	if len(c.live()) == 0 {
		return 0
	}
	return c.calls[len(c.calls)-1].id
}

// left counts the calls and the folded calls that have left the window at an instant: a call at t has left it at t+window.
func (c *counter) left(at int64) (old, calls int) {
	edge := at - c.window
	if len(c.old) > 0 && c.old[0].at <= edge {
		old = sort.Search(len(c.old), func(i int) bool { return c.old[i].at > edge })
	}
	if live := c.live(); len(live) > 0 && live[0].at <= edge {
		calls = sort.Search(len(live), func(i int) bool { return live[i].at > edge })
	}
	return old, calls
}

// used counts the calls in the window that ends at an instant.
func (c *counter) used(at int64) int64 {
	old, calls := c.left(at)
	n := c.folded + int64(len(c.live())-calls)
	for _, b := range c.old[:old] {
		n -= b.n
	}
	return n
}

// freesAt gives the first instant, not before at, when fewer than max calls stand in the window.
func (c *counter) freesAt(at, max int64) int64 {
	if max == 0 {
		return math.MaxInt64
	}
	over := c.used(at) - max + 1 // so many must leave
	if over <= 0 {
		return at
	}
	old, calls := c.left(at)
	edge := int64(math.MinInt64)
	for _, b := range c.old[old:] {
		over -= b.n
		edge = b.at
		if over <= 0 {
			return edge + c.window
		}
	}
	// A bucket's instant is rounded up, so it may lie after that of a call behind it; both must have left.
	if a := c.live()[calls+int(over)-1].at; a > edge {
		edge = a
	}
	return edge + c.window
}

// expire forgets what has left the window.
func (c *counter) expire(at int64) {
	old, calls := c.left(at)
	if old > 0 {
		for _, b := range c.old[:old] {
			c.folded -= b.n
		}
		c.old = c.old[:copy(c.old, c.old[old:])]
	}
	if c.head += calls; c.head == len(c.calls) {
		c.calls, c.head = c.calls[:0], 0
	}
}

// push adds a call that is not before any other.
func (c *counter) push(n call) {
	if len(c.live()) == maxExact {
		c.fold()
	}
	if len(c.calls) == cap(c.calls) && c.head > len(c.calls)/2 {
		c.calls, c.head = c.calls[:copy(c.calls, c.live())], 0
	}
	c.calls = append(c.calls, n)
}

// fold moves the oldest exact call into its bucket. The bucket's instant is the last millisecond that it spans: whatever is
// in it leaves late, by less than window/1024, and never early.
func (c *counter) fold() {
	width := (c.window + buckets - 1) / buckets
	at := c.calls[c.head].at
	c.head++
	c.folded++
	end := at - at%width + width - 1
	if at%width < 0 { // before 1970: round towards the future all the same
		end -= width
	}
	if n := len(c.old); n > 0 && c.old[n-1].at == end {
		c.old[n-1].n++
		return
	}
	c.old = append(c.old, bucket{at: end, n: 1})
}

// remove takes a call out, if it is there.
func (c *counter) remove(r call) {
	live := c.live()
	i := sort.Search(len(live), func(i int) bool { return live[i].id >= r.id })
	if i == len(live) || live[i] != r {
		return
	}
	copy(live[i:], live[i+1:])
	c.calls = c.calls[:len(c.calls)-1]
}

// trim gives storage back that a busier time needed.
func (c *counter) trim() {
	if n := len(c.live()); cap(c.calls) > 64 && n < cap(c.calls)/4 {
		c.calls, c.head = append(make([]call, 0, 2*n), c.live()...), 0
	}
	if cap(c.old) > 64 && len(c.old) == 0 {
		c.old = nil
	}
}
