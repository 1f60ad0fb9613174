package gatewaytest

import (
	"context"
	"math"
	"sync"
	"testing"

	"aduana/access"
	"aduana/gateway"
)

func TestUsageFake(t *testing.T) {
	RunUsage(t, func(*testing.T) gateway.Usage { return &Usage{} })
}

// bent is the fake with one thing wrong.
type bent struct {
	Usage
	facts   func(u *Usage, at int64, d []gateway.Demand) ([]access.Count, error)
	reserve func(u *Usage, at int64, d []gateway.Demand) (gateway.Reservation, bool, error)
	back    func(u *Usage, r gateway.Reservation) error
}

func (b *bent) Facts(ctx context.Context, at int64, d []gateway.Demand) ([]access.Count, error) {
	if b.facts != nil {
		return b.facts(&b.Usage, at, d)
	}
	return b.Usage.Facts(ctx, at, d)
}

func (b *bent) Reserve(ctx context.Context, at int64, d []gateway.Demand) (gateway.Reservation, bool, error) {
	if b.reserve != nil {
		return b.reserve(&b.Usage, at, d)
	}
	return b.Usage.Reserve(ctx, at, d)
}

func (b *bent) GiveBack(ctx context.Context, r gateway.Reservation) error {
	if b.back != nil {
		return b.back(&b.Usage, r)
	}
	return b.Usage.GiveBack(ctx, r)
}

// TestUsageSuiteCatches runs the suite against stores that are wrong in one way each: a suite that passes one of them guards
// nothing. The named check must be among those that report.
func TestUsageSuiteCatches(t *testing.T) {
	ctx := context.Background()
	type demands = []gateway.Demand
	each := func(d demands, change func(*gateway.Demand)) demands {
		var out demands
		for _, one := range d {
			change(&one)
			out = append(out, one)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		check  string
		broken func() gateway.Usage
	}{
		{"admits one too many", "a ceiling holds and frees one window later", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				return u.Reserve(ctx, at, each(d, func(d *gateway.Demand) { d.Calls++ }))
			}}
		}},
		{"checks and counts in two steps", "concurrent callers get exactly the ceiling", func() gateway.Usage {
			var all sync.WaitGroup
			all.Add(64)
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				counts, err := u.Facts(ctx, at, d)
				if err != nil {
					return gateway.Reservation{}, false, err
				}
				if at == usageStart && len(d) == 2 { // the first round: let all of them look before any of them takes
					all.Done()
					all.Wait()
				}
				for i, n := range counts {
					if n.Used >= d[i].Calls {
						return gateway.Reservation{}, true, nil
					}
				}
				return u.Reserve(ctx, at, each(d, func(d *gateway.Demand) { d.Calls = math.MaxInt64 }))
			}}
		}},
		{"fixed windows", "a ceiling holds and frees one window later", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				return u.Reserve(ctx, at-at%1000, d)
			}}
		}},
		{"the window is closed at both ends", "a ceiling holds and frees one window later", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				return u.Reserve(ctx, at, each(d, func(d *gateway.Demand) { d.Window++ }))
			}}
		}},
		{"takes what it can", "all demands or none", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				var whole gateway.Reservation
				for _, one := range d {
					r, lost, err := u.Reserve(ctx, at, demands{one})
					if lost || err != nil {
						return gateway.Reservation{}, lost, err
					}
					whole.At, whole.ID, whole.Keys = r.At, r.ID, append(whole.Keys, r.Keys...)
				}
				return whole, false, nil
			}}
		}},
		{"equal keys under the higher number", "equal keys are taken once, under the lower number", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				if len(d) == 2 && d[0].Key == d[1].Key {
					d = d[:1]
				}
				return u.Reserve(ctx, at, d)
			}}
		}},
		{"a new number of calls begins anew", "another number of calls keeps the counter", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				return u.Reserve(ctx, at, each(d, func(d *gateway.Demand) { d.Key[31] = byte(d.Calls) }))
			}}
		}},
		{"gives back twice", "giving back frees exactly that call, once", func() gateway.Usage {
			return &bent{back: func(u *Usage, r gateway.Reservation) error {
				for _, k := range r.Keys {
					if n := len(u.logs[k]); n > 0 {
						u.logs[k] = u.logs[k][:n-1]
					}
				}
				return nil
			}}
		}},
		{"gives back the latest call", "giving back frees exactly that call, once", func() gateway.Usage {
			given := map[uint64]bool{}
			return &bent{back: func(u *Usage, r gateway.Reservation) error {
				if given[r.ID] {
					return nil
				}
				given[r.ID] = true
				for _, k := range r.Keys {
					if n := len(u.logs[k]); n > 0 {
						u.logs[k] = u.logs[k][:n-1]
					}
				}
				return nil
			}}
		}},
		{"gives back by instant", "giving back the unknown changes nothing", func() gateway.Usage {
			return &bent{back: func(u *Usage, r gateway.Reservation) error {
				for _, k := range r.Keys {
					for _, c := range u.logs[k] {
						if c.at == r.At {
							return u.GiveBack(ctx, gateway.Reservation{At: c.at, ID: c.id, Keys: r.Keys})
						}
					}
				}
				return nil
			}}
		}},
		{"follows the clock back", "a clock that goes back gives no room", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				u.latest = 0
				for k, log := range u.logs { // calls of the future do not stand in a window that ends now
					for _, c := range log {
						if c.at > at {
							u.logs[k] = nil
						}
					}
				}
				return u.Reserve(ctx, at, d)
			}}
		}},
		{"facts take a call", "facts change nothing", func() gateway.Usage {
			return &bent{facts: func(u *Usage, at int64, d demands) ([]access.Count, error) {
				counts, err := u.Facts(ctx, at, d)
				u.Reserve(ctx, at, d)
				return counts, err
			}}
		}},
		{"facts forget", "facts change nothing", func() gateway.Usage {
			return &bent{facts: func(u *Usage, at int64, d demands) ([]access.Count, error) {
				u.latest = max(u.latest, at)
				return u.Facts(ctx, at, d)
			}}
		}},
		{"an unknown counter is an empty list", "an unused counter is zero", func() gateway.Usage {
			return &bent{facts: func(*Usage, int64, demands) ([]access.Count, error) { return nil, nil }}
		}},
		{"a free instant without the ceiling", "a ceiling holds and frees one window later", func() gateway.Usage {
			return &bent{facts: func(u *Usage, at int64, d demands) ([]access.Count, error) {
				counts, err := u.Facts(ctx, at, d)
				for i := range counts {
					counts[i].FreesAt = at
				}
				return counts, err
			}}
		}},
		{"no ceiling above 10,000", "above 10,000 calls never over, and freed in time", func() gateway.Usage {
			return &bent{reserve: func(u *Usage, at int64, d demands) (gateway.Reservation, bool, error) {
				return u.Reserve(ctx, at, each(d, func(d *gateway.Demand) {
					if d.Calls > 10_000 {
						d.Calls = math.MaxInt64
					}
				}))
			}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, check := range usageChecks {
				if check.name != c.check {
					continue
				}
				var r Recorder
				check.check(&r, c.broken())
				if len(r.Reports()) == 0 {
					t.Errorf("the check %q passes a store that is wrong", c.check)
				}
				return
			}
			t.Errorf("the suite has no check %q", c.check)
		})
	}
}

func TestUsageFakeFollowsItsScript(t *testing.T) {
	ctx := context.Background()
	d := []gateway.Demand{demand("a", 1, 1000, 0)}
	wrong := context.DeadlineExceeded
	u := &Usage{FactsErr: wrong, ReserveErr: wrong, GiveBackErr: wrong}
	if _, err := u.Facts(ctx, usageStart, d); err != wrong {
		t.Errorf("Facts: %v", err)
	}
	if _, _, err := u.Reserve(ctx, usageStart, d); err != wrong {
		t.Errorf("Reserve: %v", err)
	}
	if err := u.GiveBack(ctx, gateway.Reservation{}); err != wrong {
		t.Errorf("GiveBack: %v", err)
	}
	u.ReserveErr, u.Lose = nil, 1
	if _, lost, err := u.Reserve(ctx, usageStart, d); !lost || err != nil {
		t.Errorf("the scripted loss: lost %v, %v", lost, err)
	}
	if _, lost, err := u.Reserve(ctx, usageStart, d); lost || err != nil {
		t.Errorf("after it: lost %v, %v", lost, err)
	}
}
