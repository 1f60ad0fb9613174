package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"aduana/access"
	"aduana/gateway"
)

func numbered(i int) access.Key {
	var k access.Key
	binary.BigEndian.PutUint64(k[:], uint64(i))
	return k
}

func reserve(t *testing.T, u *Usage, at int64, k access.Key, calls int64) error {
	t.Helper()
	_, lost, err := u.Reserve(context.Background(), at, []gateway.Demand{{Key: k, Calls: calls, Window: 1000}})
	if lost {
		t.Fatalf("lost at %d", at)
	}
	return err
}

// TestDeadCountersAreDropped: a caller that never comes back costs nothing after its window.
func TestDeadCountersAreDropped(t *testing.T) {
	u := New()
	for i := range 50_000 {
		if err := reserve(t, u, int64(i), numbered(i), 1); err != nil {
			t.Fatal(err)
		}
		if n := len(u.counters); n > 3000 || n != len(u.turn) {
			t.Fatalf("%d counters in the map, %d in turn; 1000 are live", n, len(u.turn))
		}
	}
	for i := range 3000 { // one caller alone empties the table
		if err := reserve(t, u, int64(60_000+i*1000), numbered(0), 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(u.counters); n != 1 {
		t.Errorf("%d counters; want 1", n)
	}
}

func TestStorageFollowsTheLiveCalls(t *testing.T) {
	u := New()
	for range 30_000 {
		if err := reserve(t, u, 0, numbered(1), 40_000); err != nil {
			t.Fatal(err)
		}
	}
	c := u.counters[numbered(1)]
	if len(c.live()) != maxExact || cap(c.calls) > 4*maxExact || len(c.old) != 1 {
		t.Errorf("%d exact calls in storage for %d, %d buckets; want 10000, at most 40000, 1", len(c.live()), cap(c.calls), len(c.old))
	}
	for i := range int64(10) { // the first of them while the others live, so that the counter does not die
		if err := reserve(t, u, 995+i*2, numbered(1), 40_000); err != nil {
			t.Fatal(err)
		}
	}
	if c = u.counters[numbered(1)]; cap(c.calls) > 64 {
		t.Errorf("storage for %d calls; 10 are live", cap(c.calls))
	}
}

func TestTooManyCountersRefuse(t *testing.T) {
	u := New()
	u.limit = 3
	for i := range 3 {
		if err := reserve(t, u, 0, numbered(i), 9); err != nil {
			t.Fatal(err)
		}
	}
	if err := reserve(t, u, 999, numbered(7), 9); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth counter: %v; want ErrFull", err)
	}
	if err := reserve(t, u, 999, numbered(1), 9); err != nil {
		t.Errorf("a counter that is there: %v", err)
	}
	if err := reserve(t, u, 1000, numbered(7), 9); err != nil {
		t.Errorf("after two of the others died: %v", err)
	}
}

// TestStorageOfABusyCounter: a counter need not be swept to keep its storage.
func TestStorageOfABusyCounter(t *testing.T) {
	c := &counter{window: 10}
	for i := range int64(100_000) {
		c.expire(i)
		c.push(call{at: i, id: uint64(i + 1)})
	}
	if n := len(c.live()); n != 10 || cap(c.calls) > 64 {
		t.Errorf("storage for %d calls, %d live; want at most 64, and 10", cap(c.calls), n)
	}
}
