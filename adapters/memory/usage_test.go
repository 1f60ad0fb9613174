package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"aduana/access"
	"aduana/adapters/memory"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
)

func TestContract(t *testing.T) {
	gatewaytest.RunUsage(t, func(*testing.T) gateway.Usage { return memory.New() })
}

func TestZeroValueRefuses(t *testing.T) {
	var u memory.Usage
	d := []gateway.Demand{{Key: access.Key{1}, Calls: 1, Window: 1000}}
	if _, err := u.Facts(context.Background(), 1, d); err == nil {
		t.Error("Facts of a store that was not opened: no error")
	}
	if _, lost, err := u.Reserve(context.Background(), 1, d); err == nil {
		t.Errorf("Reserve of a store that was not opened: lost %v, no error", lost)
	}
	if err := u.GiveBack(context.Background(), gateway.Reservation{ID: 1, Keys: []access.Key{{1}}}); err != nil {
		t.Error(err)
	}
}

func TestNonsenseIsUnknown(t *testing.T) {
	k := access.Key{1}
	for _, c := range []struct {
		name string
		at   int64
		d    []gateway.Demand
	}{
		{"no window", 1, []gateway.Demand{{Key: k, Calls: 1}}},
		{"negative window", 1, []gateway.Demand{{Key: k, Calls: 1, Window: -1}}},
		{"window beyond arithmetic", 1, []gateway.Demand{{Key: k, Calls: 1, Window: 1<<63 - 1}}},
		{"negative calls", 1, []gateway.Demand{{Key: k, Calls: -1, Window: 10}}},
		{"an instant beyond arithmetic", 1<<63 - 1, []gateway.Demand{{Key: k, Calls: 1, Window: 10}}},
		{"an instant before arithmetic", -1 << 63, []gateway.Demand{{Key: k, Calls: 1, Window: 10}}},
		{"two windows for one key", 1, []gateway.Demand{{Key: k, Calls: 1, Window: 10}, {Key: k, Calls: 1, Window: 20}}},
		{"another window than before", 1, []gateway.Demand{{Key: access.Key{9}, Calls: 1, Window: 20}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := memory.New()
			if _, _, err := u.Reserve(context.Background(), 0, []gateway.Demand{{Key: access.Key{9}, Calls: 5, Window: 10}}); err != nil {
				t.Fatal(err)
			}
			if r, lost, err := u.Reserve(context.Background(), c.at, c.d); err == nil {
				t.Errorf("reserved %v, lost %v; want an error", r, lost)
			}
			counts, err := u.Facts(context.Background(), 0, []gateway.Demand{{Key: k, Calls: 5, Window: 10}})
			if err != nil || counts[0].Used != 0 {
				t.Errorf("after it: %v, %v; want nothing used", counts, err)
			}
		})
	}
}

// TestModel compares with the slow, obvious count over random histories: up to 10,000 calls the two never differ.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, model := memory.New(), &gatewaytest.Usage{}
		windows := []int64{1, 7, 100, 1000, 5000}
		var mine, its []gateway.Reservation
		at := int64(1_700_000_000_000)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			at += rapid.SampledFrom([]int64{0, 0, 0, 1, 1, 3, 50, 999, 1000, 6000, -1, -700, -10_000}).Draw(t, "step")
			var demands []gateway.Demand
			for slot := range rapid.IntRange(0, 3).Draw(t, "demands") {
				k := rapid.IntRange(0, len(windows)-1).Draw(t, "key")
				demands = append(demands, gateway.Demand{Slot: slot, Key: access.Key{byte(k)}, Window: windows[k],
					Calls: rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 5, 9, 20_000}).Draw(t, "calls")})
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				a, errA := u.Facts(context.Background(), at, demands)
				b, errB := model.Facts(context.Background(), at, demands)
				if errA != nil || errB != nil || !slices.Equal(a, b) {
					t.Fatalf("Facts: %v, %v; the model %v, %v", a, errA, b, errB)
				}
			case 1:
				if len(mine) > 0 {
					i := rapid.IntRange(0, len(mine)-1).Draw(t, "which")
					if u.GiveBack(context.Background(), mine[i]) != nil || model.GiveBack(context.Background(), its[i]) != nil {
						t.Fatal("GiveBack failed")
					}
				}
			default:
				a, lostA, errA := u.Reserve(context.Background(), at, demands)
				b, lostB, errB := model.Reserve(context.Background(), at, demands)
				if errA != nil || errB != nil || lostA != lostB || a.At != b.At || !slices.Equal(a.Keys, b.Keys) {
					t.Fatalf("Reserve: %+v %v %v; the model %+v %v %v", a, lostA, errA, b, lostB, errB)
				}
				if !lostA {
					mine, its = append(mine, a), append(its, b)
				}
			}
		}
	})
}

// event is one line of a history: a call that began to stand, and when it ceased to (0: never, except by leaving the window).
type event struct {
	at    int64
	order uint64
	gone  uint64
}

// overfull is the checker of histories, written without looking at the store: for every admitted call, it counts the calls that
// stood in the half-open window that ends with it, at the moment that it was admitted. It gives the highest such count.
func overfull(history []event, window int64) int {
	most := 0
	for _, e := range history {
		n := 0
		for _, o := range history {
			if o.order <= e.order && o.at > e.at-window && o.at <= e.at && (o.gone == 0 || o.gone > e.order) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestCheckerSeesTooMany(t *testing.T) {
	ok := []event{{at: 0, order: 1}, {at: 5, order: 2}, {at: 10, order: 3}, {at: 15, order: 4}}
	if n := overfull(ok, 10); n != 2 {
		t.Errorf("%d in a window; want 2", n)
	}
	if n := overfull(append(ok, event{at: 15, order: 5}), 10); n != 3 {
		t.Errorf("%d in a window; want 3", n)
	}
	if n := overfull([]event{{at: 0, order: 1, gone: 2}, {at: 0, order: 3}}, 10); n != 1 {
		t.Errorf("%d in a window; want 1, because the first was given back", n)
	}
}

// TestHistory runs many callers with clocks that go back and forth, and checks what was admitted from the record of it. A small
// ceiling is exact; a large one is kept in buckets for its older part.
func TestHistory(t *testing.T) {
	for _, c := range []struct {
		name                  string
		calls, window         int64
		callers, each, spread int
	}{
		{"a small ceiling", 5, 100, 8, 300, 20},
		{"a window of one millisecond", 3, 1, 8, 300, 1},
		{"a middling ceiling", 200, 1000, 8, 300, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := memory.New()
			d := []gateway.Demand{{Key: access.Key{1}, Calls: c.calls, Window: c.window}, {Key: access.Key{2}, Calls: c.calls + 1, Window: c.window}}
			var mu sync.Mutex // makes the order of the history the order of the store
			var history []event
			var order uint64
			now := int64(1_700_000_000_000)
			var wait sync.WaitGroup
			for i := range c.callers {
				wait.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(i)))
					for range c.each {
						mu.Lock()
						now += random.Int64N(int64(c.spread) + 1)
						at := now - random.Int64N(int64(c.spread)*4)*random.Int64N(2)
						order++
						r, lost, err := u.Reserve(context.Background(), at, d)
						mine := -1
						if err != nil {
							t.Error(err)
						} else if !lost {
							mine = len(history)
							history = append(history, event{at: r.At, order: order})
						}
						mu.Unlock()
						if mine >= 0 && random.IntN(4) == 0 {
							mu.Lock()
							order++
							if err := u.GiveBack(context.Background(), r); err != nil {
								t.Error(err)
							}
							history[mine].gone = order
							mu.Unlock()
						}
					}
				})
			}
			wait.Wait()
			if most := overfull(history, c.window); int64(most) > c.calls {
				t.Errorf("%d calls stood in one window under a ceiling of %d", most, c.calls)
			} else if int64(most) < c.calls {
				t.Errorf("at most %d calls stood in a window: the test never reached the ceiling of %d", most, c.calls)
			}
		})
	}
}

// TestUnorderedHistory lets the store alone order the callers: ids ascend in the order of admission. Nothing is given back, so
// instants and ids are the whole history.
func TestUnorderedHistory(t *testing.T) {
	u := memory.New()
	d := []gateway.Demand{{Key: access.Key{1}, Calls: 7, Window: 50}}
	var mu sync.Mutex
	var history []event
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for j := range int64(60) {
				r, lost, err := u.Reserve(context.Background(), 1_700_000_000_000+j*5-random.Int64N(30), d)
				if err != nil || lost {
					continue
				}
				mu.Lock()
				history = append(history, event{at: r.At, order: r.ID})
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	slices.SortFunc(history, func(a, b event) int { return int(int64(a.order - b.order)) })
	for i := 1; i < len(history); i++ {
		if history[i].at < history[i-1].at {
			t.Fatalf("call %d was counted at %d, before its predecessor's %d", i, history[i].at, history[i-1].at)
		}
	}
	if most := overfull(history, 50); most != 7 {
		t.Errorf("%d calls stood in one window; want exactly the ceiling, 7", most)
	}
}

// TestBuckets drives a ceiling above 10,000 past its limit several times over: never over, and never later than window/1024.
func TestBuckets(t *testing.T) {
	const calls, window = 15_000, 30_000
	u := memory.New()
	d := []gateway.Demand{{Key: access.Key{1}, Calls: calls, Window: window}}
	random := rand.New(rand.NewPCG(3, 3))
	at := int64(1_700_000_000_123)
	var admitted []int64 // ascending
	lostFor := int64(0)
	full := 0
	for range 70_000 {
		at += random.Int64N(3)
		r, lost, err := u.Reserve(context.Background(), at, d)
		if err != nil {
			t.Fatal(err)
		}
		if !lost {
			admitted = append(admitted, r.At)
			if n := len(admitted); n > calls && admitted[n-1-calls] > r.At-window {
				t.Fatalf("call %d at %d: %d others stand in its window", n, r.At, calls)
			}
			if n := len(admitted); n > calls && admitted[n-1-calls] == r.At-window {
				full++
			}
			continue
		}
		// With the ceiling reached, the call that has to leave is the one that was admitted `calls` calls ago.
		oldest := admitted[len(admitted)-calls]
		if late := at - (oldest + window); late > lostFor {
			lostFor = late
		}
		counts, err := u.Facts(context.Background(), at, d)
		if err != nil || counts[0].Used != calls || counts[0].FreesAt <= at || counts[0].FreesAt > oldest+window+window/1024 {
			t.Fatalf("lost at %d: %v, %v; the oldest call leaves at %d", at, counts, err, oldest+window)
		}
	}
	if lostFor > window/1024 {
		t.Errorf("room came %d ms late; want at most %d", lostFor, window/1024)
	}
	if len(admitted) < 2*calls {
		t.Errorf("only %d calls were admitted: the test never went round", len(admitted))
	}
}

// TestFreesAtIsTrue asks a counter with buckets, at instants of the future, under lower ceilings: at the instant that is named there
// is room, and for whole buckets just before it there is none.
func TestFreesAtIsTrue(t *testing.T) {
	const window = 30_000
	u := memory.New()
	start := int64(1_700_000_000_000)
	for i := range int64(15_000) {
		if _, lost, err := u.Reserve(context.Background(), start+i, []gateway.Demand{{Key: access.Key{1}, Calls: 15_000, Window: window}}); err != nil || lost {
			t.Fatal(lost, err)
		}
	}
	for at := start + 15_000; at < start+15_000+window; at += 777 {
		for _, calls := range []int64{1, 100, 9_000, 9_999, 10_000, 10_001, 14_000, 15_000} {
			d := []gateway.Demand{{Key: access.Key{1}, Calls: calls, Window: window}}
			used := func(at int64) access.Count {
				counts, err := u.Facts(context.Background(), at, d)
				if err != nil {
					t.Fatal(err)
				}
				return counts[0]
			}
			now := used(at)
			if now.Used < calls {
				if now.FreesAt > at {
					t.Errorf("at +%d, ceiling %d: %d used, and free at +%d only", at-start, calls, now.Used, now.FreesAt-start)
				}
				continue
			}
			if n := used(now.FreesAt).Used; n >= calls {
				t.Errorf("at +%d, ceiling %d: free at +%d, but then %d are used", at-start, calls, now.FreesAt-start, n)
			}
			if n := used(now.FreesAt - 1 - window/1024).Used; n < calls {
				t.Errorf("at +%d, ceiling %d: free at +%d, but before that only %d are used", at-start, calls, now.FreesAt-start, n)
			}
		}
	}
}

func TestGiveBackInALargeCounter(t *testing.T) {
	u := memory.New()
	d := []gateway.Demand{{Key: access.Key{1}, Calls: 12_000, Window: 60_000}}
	var all []gateway.Reservation
	for i := range int64(12_000) {
		r, lost, err := u.Reserve(context.Background(), 1_700_000_000_000+i, d)
		if err != nil || lost {
			t.Fatal(lost, err)
		}
		all = append(all, r)
	}
	used := func() int64 {
		counts, err := u.Facts(context.Background(), 1_700_000_012_000, d)
		if err != nil {
			t.Fatal(err)
		}
		return counts[0].Used
	}
	for _, r := range []gateway.Reservation{all[11_999], all[11_999], all[5000], all[2000], all[2000]} {
		if err := u.GiveBack(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	if n := used(); n != 11_997 {
		t.Errorf("%d used; want 11997: three calls were given back", n)
	}
	if err := u.GiveBack(context.Background(), all[0]); err != nil {
		t.Fatal(err)
	}
	if n := used(); n != 11_997 {
		t.Errorf("%d used; want 11997: a call that stands in a bucket stays counted", n)
	}
}

func BenchmarkReserve(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n, " ceilings"), func(b *testing.B) {
			u := memory.New()
			var d []gateway.Demand
			for i := range n {
				d = append(d, gateway.Demand{Slot: i, Key: access.Key{byte(i)}, Calls: 10_000, Window: 1000})
			}
			b.ReportAllocs()
			for i := range b.N {
				if _, lost, err := u.Reserve(context.Background(), int64(i)/5, d); lost || err != nil {
					b.Fatal(lost, err)
				}
			}
		})
	}
}

func BenchmarkFacts(b *testing.B) {
	u := memory.New()
	d := []gateway.Demand{{Key: access.Key{1}, Calls: 10_000, Window: 100_000}}
	for i := range int64(9000) {
		if _, _, err := u.Reserve(context.Background(), i, d); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := u.Facts(context.Background(), 9000, d); err != nil {
			b.Fatal(err)
		}
	}
}
