package gatewaytest

import (
	"context"
	"fmt"
	"math"
	"sort"
	"sync"
	"testing"

	"aduana/access"
	"aduana/gateway"
)

// usageCall is one call in the log of the fake.
type usageCall struct {
	at int64
	id uint64
}

// Usage is a fake of gateway.Usage: the slow, obvious count, exact for any ceiling, which forgets nothing. Its zero value is
// ready. The fields script what goes wrong; set them while no call runs.
type Usage struct {
	FactsErr    error // every Facts fails
	ReserveErr  error // every Reserve fails, and takes nothing
	GiveBackErr error // every GiveBack fails, and gives nothing back
	Lose        int   // so many Reserves are lost, whatever the counts

	mu     sync.Mutex
	latest int64
	next   uint64
	logs   map[access.Key][]usageCall
}

// Facts implements gateway.Usage.
func (u *Usage) Facts(_ context.Context, at int64, demands []gateway.Demand) ([]access.Count, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.FactsErr != nil {
		return nil, u.FactsErr
	}
	at = max(at, u.latest)
	var counts []access.Count
	for _, d := range demands {
		in := u.standing(d, at)
		c := access.Count{Slot: d.Slot, Used: int64(len(in)), FreesAt: at}
		if over := c.Used - d.Calls + 1; d.Calls == 0 {
			c.FreesAt = math.MaxInt64
		} else if over > 0 {
			c.FreesAt = in[over-1].at + d.Window
		}
		counts = append(counts, c)
	}
	return counts, nil
}

// Reserve implements gateway.Usage.
func (u *Usage) Reserve(_ context.Context, at int64, demands []gateway.Demand) (gateway.Reservation, bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ReserveErr != nil {
		return gateway.Reservation{}, false, u.ReserveErr
	}
	if u.Lose > 0 {
		u.Lose--
		return gateway.Reservation{}, true, nil
	}
	u.latest = max(at, u.latest)
	for _, d := range demands {
		if int64(len(u.standing(d, u.latest))) >= d.Calls {
			return gateway.Reservation{}, true, nil
		}
	}
	u.next++
	r := gateway.Reservation{At: u.latest, ID: u.next}
	taken := map[access.Key]bool{}
	for _, d := range demands {
		if taken[d.Key] {
			continue
		}
		taken[d.Key] = true
		if u.logs == nil {
			u.logs = map[access.Key][]usageCall{}
		}
		u.logs[d.Key] = append(u.logs[d.Key], usageCall{at: r.At, id: r.ID})
		r.Keys = append(r.Keys, d.Key)
	}
	return r, false, nil
}

// GiveBack implements gateway.Usage.
func (u *Usage) GiveBack(_ context.Context, r gateway.Reservation) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.GiveBackErr != nil {
		return u.GiveBackErr
	}
	for _, k := range r.Keys {
		for i, c := range u.logs[k] {
			if c == (usageCall{at: r.At, id: r.ID}) {
				u.logs[k] = append(u.logs[k][:i:i], u.logs[k][i+1:]...)
				break
			}
		}
	}
	return nil
}

// standing gives the calls in the window that ends at an instant. Instants ascend in a log, because Reserve never goes back.
func (u *Usage) standing(d gateway.Demand, at int64) []usageCall {
	log := u.logs[d.Key]
	return log[sort.Search(len(log), func(i int) bool { return log[i].at > at-d.Window }):]
}

type usageCheck struct {
	name  string
	check func(t T, u gateway.Usage)
}

// RunUsage holds an adapter to the contract of gateway.Usage. Each call of open gives an empty store; the suite brings its own
// instants, so a store that uses a clock of its own must be opened with one that follows them.
func RunUsage(t *testing.T, open func(t *testing.T) gateway.Usage) {
	for _, c := range usageChecks {
		t.Run(c.name, func(t *testing.T) { c.check(t, open(t)) })
	}
}

const usageStart = int64(1_700_000_000_000)

var usageChecks = []usageCheck{
	{"an unused counter is zero", func(t T, u gateway.Usage) {
		counts, err := u.Facts(context.Background(), usageStart, []gateway.Demand{demand("a", 3, 1000, 7), demand("b", 0, 1000, 2)})
		if err != nil || len(counts) != 2 {
			t.Errorf("Facts: %v, %v; want two counts", counts, err)
			return
		}
		if counts[0].Slot != 7 || counts[0].Used != 0 || counts[0].FreesAt > usageStart {
			t.Errorf("count of a: %+v; want slot 7, 0 used, free now", counts[0])
		}
		if counts[1].Slot != 2 || counts[1].Used != 0 || counts[1].FreesAt != math.MaxInt64 {
			t.Errorf("count of b: %+v; want slot 2, 0 used, never free, because its ceiling is 0", counts[1])
		}
	}},
	{"a ceiling holds and frees one window later", func(t T, u gateway.Usage) {
		d := demand("a", 2, 1000, 0)
		take(t, u, usageStart, true, d)
		take(t, u, usageStart+400, true, d)
		take(t, u, usageStart+500, false, d)
		count(t, u, usageStart+500, d, 2, usageStart+1000)
		take(t, u, usageStart+999, false, d)
		take(t, u, usageStart+1000, true, d) // half-open: the call at 0 has left the window at 1000
		count(t, u, usageStart+1000, d, 2, usageStart+1400)
		take(t, u, usageStart+1399, false, d)
		take(t, u, usageStart+1400, true, d)
	}},
	{"a ceiling of zero admits nothing", func(t T, u gateway.Usage) {
		take(t, u, usageStart, false, demand("a", 0, 1000, 0))
	}},
	{"facts change nothing", func(t T, u gateway.Usage) {
		d := demand("a", 1, 1000, 0)
		for i := range int64(5) {
			count(t, u, usageStart+i*10_000, d, 0, usageStart+i*10_000)
		}
		take(t, u, usageStart, true, d) // facts of later instants did not move time
		count(t, u, usageStart+999, d, 1, usageStart+1000)
		count(t, u, usageStart+5000, d, 0, usageStart+5000)
		count(t, u, usageStart+999, d, 1, usageStart+1000)
		take(t, u, usageStart+999, false, d)
	}},
	{"all demands or none", func(t T, u gateway.Usage) {
		a, b := demand("a", 5, 1000, 0), demand("b", 1, 1000, 1)
		take(t, u, usageStart, true, a, b)
		take(t, u, usageStart, false, a, b)
		take(t, u, usageStart, false, b, a)
		count(t, u, usageStart, a, 1, usageStart)
		count(t, u, usageStart, b, 1, usageStart+1000)
	}},
	{"no demands are granted and hold nothing", func(t T, u gateway.Usage) {
		r := take(t, u, usageStart, true)
		if len(r.Keys) != 0 {
			t.Errorf("keys %v; want none", r.Keys)
		}
	}},
	{"equal keys are taken once, under the lower number", func(t T, u gateway.Usage) {
		high, low := demand("a", 5, 1000, 0), demand("a", 2, 1000, 1)
		take(t, u, usageStart, true, high, low)
		count(t, u, usageStart, high, 1, usageStart)
		take(t, u, usageStart, true, low, high)
		take(t, u, usageStart, false, high, low)
		count(t, u, usageStart, low, 2, usageStart+1000)
	}},
	{"another number of calls keeps the counter", func(t T, u gateway.Usage) {
		for range 3 {
			take(t, u, usageStart, true, demand("a", 20_000, 1000, 0))
		}
		take(t, u, usageStart+1, false, demand("a", 3, 1000, 0))
		count(t, u, usageStart+1, demand("a", 2, 1000, 0), 3, usageStart+1000)
		take(t, u, usageStart+1, true, demand("a", 4, 1000, 0))
	}},
	{"giving back frees exactly that call, once", func(t T, u gateway.Usage) {
		a, b := demand("a", 2, 1000, 0), demand("b", 2, 1000, 1)
		first := take(t, u, usageStart, true, a, b)
		take(t, u, usageStart+100, true, a, b)
		for range 3 {
			give(t, u, first)
		}
		count(t, u, usageStart+100, a, 1, usageStart+100)
		count(t, u, usageStart+100, b, 1, usageStart+100)
		take(t, u, usageStart+100, true, a, b)
		take(t, u, usageStart+100, false, a)
		count(t, u, usageStart+100, a, 2, usageStart+1100) // the call at 0 is the one that went
	}},
	{"giving back the unknown changes nothing", func(t T, u gateway.Usage) {
		d := demand("a", 1, 1000, 0)
		r := take(t, u, usageStart, true, d)
		give(t, u, gateway.Reservation{})
		give(t, u, gateway.Reservation{At: r.At, ID: r.ID + 1, Keys: r.Keys})
		give(t, u, gateway.Reservation{At: r.At, ID: r.ID, Keys: []access.Key{key("b")}})
		take(t, u, usageStart, false, d)
		count(t, u, usageStart, demand("b", 1, 1000, 0), 0, usageStart)
	}},
	{"giving back after the window changes nothing", func(t T, u gateway.Usage) {
		d := demand("a", 1, 1000, 0)
		r := take(t, u, usageStart, true, d)
		take(t, u, usageStart+1000, true, d)
		give(t, u, r)
		take(t, u, usageStart+1000, false, d)
	}},
	{"a clock that goes back gives no room", func(t T, u gateway.Usage) {
		d := demand("a", 2, 1000, 0)
		take(t, u, usageStart+5000, true, d)
		r := take(t, u, usageStart-5000, true, d)
		if r.At != usageStart+5000 {
			t.Errorf("counted at %d; want the latest instant seen, %d", r.At, usageStart+5000)
		}
		for _, back := range []int64{0, 1000, 2000, 10_000, 1 << 40} {
			take(t, u, usageStart+5000-back, false, d)
			count(t, u, usageStart+5000-back, d, 2, usageStart+6000)
		}
		take(t, u, usageStart+6000, true, d)
	}},
	{"concurrent callers get exactly the ceiling", func(t T, u gateway.Usage) {
		for round := range 100 {
			a, b := demand(fmt.Sprint("a", round), 5, 60_000, 0), demand(fmt.Sprint("b", round), 7, 60_000, 1)
			if n := crowd(u, usageStart+int64(round), 64, a, b); n != 5 {
				t.Errorf("round %d: %d calls of 64 got through a ceiling of 5", round, n)
			}
			count(t, u, usageStart+int64(round), b, 5, usageStart+int64(round))
		}
	}},
	{"above 10,000 calls never over, and freed in time", func(t T, u gateway.Usage) {
		const calls, window = 12_000, 4_096_000
		d := demand("a", calls, window, 0)
		for i := range int64(calls) { // one call every 100 ms
			take(t, u, usageStart+i*100, true, d)
		}
		end := usageStart + calls*100
		take(t, u, end, false, d)
		counts, err := u.Facts(context.Background(), end, []gateway.Demand{d})
		if err != nil || len(counts) != 1 || counts[0].Used != calls {
			t.Errorf("Facts: %v, %v; want %d used", counts, err, calls)
			return
		}
		frees := counts[0].FreesAt
		if frees < usageStart+window || frees > usageStart+window+window/1024 {
			t.Errorf("frees %d ms after the first call; want from %d to %d", frees-usageStart, window, window+window/1024)
		}
		take(t, u, usageStart+window-1, false, d)
		take(t, u, frees, true, d)
	}},
}

func key(name string) access.Key {
	var k access.Key
	copy(k[:], name)
	return k
}

func demand(name string, calls, window int64, slot int) gateway.Demand {
	return gateway.Demand{Slot: slot, Key: key(fmt.Sprint(name, "/", window)), Calls: calls, Window: window}
}

// take reserves and says whether that went as it should.
func take(t T, u gateway.Usage, at int64, want bool, d ...gateway.Demand) gateway.Reservation {
	t.Helper()
	r, lost, err := u.Reserve(context.Background(), at, d)
	if err != nil || lost == want {
		t.Errorf("Reserve at +%d ms: lost %v, error %v; want lost %v", at-usageStart, lost, err, !want)
	}
	return r
}

func give(t T, u gateway.Usage, r gateway.Reservation) {
	t.Helper()
	if err := u.GiveBack(context.Background(), r); err != nil {
		t.Errorf("GiveBack: %v", err)
	}
}

// count compares the facts of one demand. An instant of the past, or now, means that there is room: any such instant will do.
func count(t T, u gateway.Usage, at int64, d gateway.Demand, used, frees int64) {
	t.Helper()
	counts, err := u.Facts(context.Background(), at, []gateway.Demand{d})
	if err != nil || len(counts) != 1 {
		t.Errorf("Facts: %v, %v; want one count", counts, err)
		return
	}
	c := counts[0]
	if c.Used != used || (c.FreesAt != frees && (used >= d.Calls || c.FreesAt > at)) {
		t.Errorf("Facts at +%d ms: %d used, free at +%d ms; want %d and +%d ms", at-usageStart, c.Used, c.FreesAt-usageStart, used,
			frees-usageStart)
	}
}

// crowd lets callers reserve at once and says how many did.
func crowd(u gateway.Usage, at int64, callers int, d ...gateway.Demand) int {
	var begin, end sync.WaitGroup
	begin.Add(1)
	got := make([]bool, callers)
	for i := range callers {
		end.Go(func() {
			begin.Wait()
			mine := d
			if i%2 == 1 && len(d) == 2 { // both orders, because a store that locks per counter could deadlock
				mine = []gateway.Demand{d[1], d[0]}
			}
			_, lost, err := u.Reserve(context.Background(), at, mine)
			got[i] = err == nil && !lost
		})
	}
	begin.Done()
	end.Wait()
	n := 0
	for _, ok := range got {
		if ok {
			n++
		}
	}
	return n
}

var _ gateway.Usage = (*Usage)(nil)
