// Package memory answers "how many calls stood in this window" from the memory of one process. Its counts begin empty at start
// and are shared with nobody, so it serves one process; replicas need a shared store.
//
// It decides nothing and reads no clock: instants come in with each request. Start at Usage.Reserve; the arithmetic of one
// counter is in counter.go.
package memory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"aduana/access"
	"aduana/gateway"
)

const (
	// maxCounters bounds memory. A counter without a call in its window is dropped, so this many principals (times their
	// ceilings) must have called within their windows before somebody is refused.
	maxCounters = 1_000_000

	// Each request examines sweepStep counters in turn and drops those without a live call. A table that grows by one counter
	// per request is therefore walked faster than it grows. At the cap one request walks further, to make room.
	sweepStep    = 2
	sweepAtLimit = 1024

	// Bounds that keep sums of an instant and a window inside 64 bits, with room to spare: 285,000 years.
	maxWindow  = int64(1) << 53
	maxInstant = int64(1) << 60
)

// ErrFull says that there are as many counters as the store may hold. What the call would have used is unknown, so it is refused.
var ErrFull = errors.New("memory usage: 1000000 counters are live; refuse, or share the load between processes with a common store")

// Usage implements gateway.Usage. New makes one; the zero value counts nothing and fails every request.
//
// One lock guards everything: a request holds it for some hundred nanoseconds, and with one lock "all demands or none" needs no
// order of locks and cannot deadlock.
type Usage struct {
	mu       sync.Mutex
	counters map[access.Key]*counter
	turn     []*counter // every counter once, in the order of the sweep
	hand     int        // the next of turn to examine
	latest   int64      // the latest instant that a Reserve brought
	next     uint64     // the next reservation's id; ids ascend
	limit    int
}

// New gives an empty store.
func New() *Usage {
	return &Usage{
		counters: map[access.Key]*counter{},
		latest:   math.MinInt64,
		// A random start keeps a reservation of another process, or of before a restart, from meaning one of ours.
		next:  rand.Uint64()>>1 + 1,
		limit: maxCounters,
	}
}

// Facts implements gateway.Usage. It changes nothing.
func (u *Usage) Facts(_ context.Context, at int64, demands []gateway.Demand) ([]access.Count, error) {
	if len(demands) == 0 {
		return nil, nil
	}
	counts := make([]access.Count, len(demands))
	u.mu.Lock()
	defer u.mu.Unlock()
	at, err := u.instant(at)
	if err != nil {
		return nil, err
	}
	for i, d := range demands {
		c, err := u.find(d)
		if err != nil {
			return nil, err
		}
		counts[i] = access.Count{Slot: d.Slot, FreesAt: at}
		if c != nil {
			counts[i].Used = c.used(at)
			counts[i].FreesAt = c.freesAt(at, d.Calls)
		} else if d.Calls == 0 {
			counts[i].FreesAt = math.MaxInt64
		}
	}
	return counts, nil
}

// Reserve implements gateway.Usage.
func (u *Usage) Reserve(_ context.Context, at int64, demands []gateway.Demand) (gateway.Reservation, bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, err := u.instant(at)
	if err != nil {
		return gateway.Reservation{}, false, err
	}
	u.latest = at // also when the reservation is lost: below, counters forget what has left the window at this instant
	u.sweep(sweepStep)

	// First look at all, then take from all: a failure in the middle must leave nothing taken and no counter made. A key that
	// stands in two demands is compared with both, which is the lower of them.
	missing := 0
	for _, d := range demands {
		c, err := u.find(d)
		switch {
		case err != nil:
			return gateway.Reservation{}, false, err
		case d.Calls == 0:
			return gateway.Reservation{}, true, nil
		case c == nil:
			missing++
		default:
			c.expire(at)
			if c.used(at) >= d.Calls {
				return gateway.Reservation{}, true, nil
			}
		}
	}
	if len(u.turn)+missing > u.limit {
		if u.sweep(sweepAtLimit); len(u.turn)+missing > u.limit {
			return gateway.Reservation{}, false, ErrFull
		}
	}
	// The sweep may have dropped a counter that the loop above found: it was empty, and is made again here.
	r := gateway.Reservation{At: at, ID: u.next, Keys: make([]access.Key, 0, len(demands))}
	u.next++
	for i, d := range demands {
		c := u.counters[d.Key]
		if c == nil {
			c = &counter{key: d.Key, window: d.Window}
			u.counters[d.Key] = c
			u.turn = append(u.turn, c)
		} else if c.window != d.Window { // two demands of this request disagree about a counter that did not exist
			u.undo(r)
			return gateway.Reservation{}, false, disagree(demands[i], c.window)
		}
		if c.last() != r.ID {
			c.push(call{at: at, id: r.ID})
			r.Keys = append(r.Keys, d.Key)
		}
	}
	return r, false, nil
}

// GiveBack implements gateway.Usage. A call that is not among the latest 10,000 of its counter stays counted: never over.
func (u *Usage) GiveBack(_ context.Context, r gateway.Reservation) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.undo(r)
	return nil
}

func (u *Usage) undo(r gateway.Reservation) {
	for _, k := range r.Keys {
		if c := u.counters[k]; c != nil {
			c.remove(call{at: r.At, id: r.ID})
		}
	}
}

// instant never goes back: a clock that is set back would otherwise let calls of "the future" stand outside every window, and
// give the same room twice. After a step back, time stands still here until the clock has caught up.
func (u *Usage) instant(at int64) (int64, error) {
	if u.counters == nil {
		return 0, errors.New("memory usage: not made by New")
	}
	if at > maxInstant || at < -maxInstant {
		return 0, fmt.Errorf("memory usage: the instant %d is no Unix time in milliseconds", at)
	}
	return max(at, u.latest), nil
}

func (u *Usage) find(d gateway.Demand) (*counter, error) {
	if d.Calls < 0 || d.Window <= 0 || d.Window > maxWindow {
		return nil, fmt.Errorf("memory usage: %d calls in %d ms is no ceiling", d.Calls, d.Window)
	}
	c := u.counters[d.Key]
	if c != nil && c.window != d.Window {
		return nil, disagree(d, c.window)
	}
	return c, nil
}

func disagree(d gateway.Demand, window int64) error {
	return fmt.Errorf("memory usage: counter %x counts in windows of %d ms, and is asked for %d ms", d.Key[:8], window, d.Window)
}

// sweep examines the next n counters, drops the dead and trims the living.
func (u *Usage) sweep(n int) {
	for range min(n, len(u.turn)) {
		if u.hand >= len(u.turn) {
			u.hand = 0
		}
		c := u.turn[u.hand]
		c.expire(u.latest)
		if !c.empty() {
			c.trim()
			u.hand++
			continue
		}
		delete(u.counters, c.key)
		last := len(u.turn) - 1
		u.turn[u.hand], u.turn[last] = u.turn[last], nil
		u.turn = u.turn[:last]
	}
}

var _ gateway.Usage = (*Usage)(nil)
