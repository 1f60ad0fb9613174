package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// workload is one comparison: the subject against the base, in the same
// rounds.
type workload struct {
	name    string
	what    string
	clients int
	subject string
	base    string
	job     func(o options, t *target) job
	// added compares what each adds to the direct p50, not throughput.
	added bool
	must  string
}

func workloads() []workload {
	echo := func(_ options, t *target) job { return echoJob(t) }
	list := func(o options, _ *target) job { return listJob(o.tools) }
	blob := func(_ options, t *target) job { return blobJob(t) }
	return []workload{
		{name: "echo1", what: "tools/call, 100 B, 1 client: p50 added over direct, × the floor's", clients: 1, subject: "aduana", base: "floor", job: echo, added: true, must: "≤ 1.15"},
		{name: "echo32", what: "tools/call, 100 B, 32 clients: throughput", clients: 32, subject: "aduana", base: "floor", job: echo, must: "≥ 0.95"},
		{name: "list", what: "tools/list, every tool, 1 client: listings", clients: 1, subject: "aduana", base: "floor", job: list, must: "≥ 1.0"},
		{name: "blob", what: "1 MiB result, 1 client: throughput", clients: 1, subject: "aduana", base: "floor", job: blob, must: "≥ 0.95"},
		{name: "stdio32", what: "stdio upstream against HTTP upstream, 32 clients: throughput", clients: 32, subject: "aduana-stdio", base: "aduana", job: echo, must: "≥ 0.9"},
	}
}

// runs is the targets that a round of w measures: direct always when there is
// one to measure, for it is the base of everything.
func (b *bench) runs(w workload) []string {
	var out []string
	for _, n := range []string{"direct", w.base, w.subject} {
		if n == "direct" && w.name == "stdio32" {
			continue
		}
		if b.wants(n) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

func (b *bench) run(ctx context.Context) error {
	work := strings.Split(b.o.work, ",")
	known := []string{"start", "memory"}
	for _, w := range workloads() {
		known = append(known, w.name)
	}
	for _, n := range work {
		if !slices.Contains(known, n) {
			return fmt.Errorf("workload %q: want some of %s", n, strings.Join(known, ","))
		}
	}
	if err := b.startTargets(ctx); err != nil {
		return err
	}
	for _, w := range workloads() {
		names := b.runs(w)
		if !slices.Contains(work, w.name) || names == nil {
			continue
		}
		for round := range b.o.rounds {
			order := slices.Clone(names)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, n := range order {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := b.one(w, b.targets[n], round); err != nil {
					return fmt.Errorf("%s on %s: %w", w.name, n, err)
				}
			}
		}
		fmt.Fprintf(os.Stderr, "%s: %d rounds of %s\n", w.name, b.o.rounds, strings.Join(names, ", "))
	}
	if !b.wants("aduana") {
		return nil
	}
	if slices.Contains(work, "start") {
		if err := b.measureStarts(ctx); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	if slices.Contains(work, "memory") {
		if err := b.measureMemory(ctx); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
	}
	return nil
}

func (b *bench) one(w workload, t *target, round int) error {
	pids := map[string]int{"upstream": b.upstream.pid(), "generator": os.Getpid()}
	if t.cmd != nil {
		pids[t.name] = t.pid()
	}
	s, err := drive(t, w.clients, b.o.era == "legacy", b.o.dur, w.job(b.o, t), pids)
	if err != nil {
		return err
	}
	s.Workload, s.Round = w.name, round
	b.samples = append(b.samples, s)
	return nil
}

// startSample is one start from a lock to the first whole tools/list.
type startSample struct {
	Tools   int     `json:"tools"`
	ReadyMs float64 `json:"ready_ms"` // until it says that it listens
	FirstMs float64 `json:"first_list_ms"`
}

// startSizes are the catalogues that starts are measured with.
func (b *bench) startSizes() []int {
	if b.o.tools > 100 {
		return []int{100, b.o.tools}
	}
	return []int{b.o.tools}
}

func (b *bench) measureStarts(ctx context.Context) error {
	for _, n := range b.startSizes() {
		name := fmt.Sprintf("start-%d", n)
		up, err := b.smallUpstream(ctx, n)
		if err != nil {
			return err
		}
		policy, lock, err := b.lock(ctx, name, httpTransport(up.addr), n, 1)
		up.stop() // a start lists from the lock, with every upstream down
		if err != nil {
			return err
		}
		for range b.o.startRuns {
			t0 := time.Now()
			t, err := b.serveAduana(ctx, name, policy, lock, 1)
			if err != nil {
				return err
			}
			ready := time.Since(t0)
			c, err := dial(t, t.key, b.o.era == "legacy")
			if err == nil {
				err = listJob(n)(c, 0)
				c.close()
			}
			first := time.Since(t0)
			t.stop()
			if err != nil {
				return err
			}
			b.starts = append(b.starts, startSample{n, float64(ready.Microseconds()) / 1e3, float64(first.Microseconds()) / 1e3})
		}
	}
	fmt.Fprintf(os.Stderr, "start: %d each of %v tools\n", b.o.startRuns, b.startSizes())
	return nil
}

// memorySample is resident memory in one state.
type memorySample struct {
	State string  `json:"state"`
	RSSMB float64 `json:"rss_mb"`
	MaxMB float64 `json:"max_mb"` // highest so far
}

func (b *bench) measureMemory(ctx context.Context) error {
	note := func(t *target, state string) {
		time.Sleep(time.Second)
		m := memorySample{state, float64(memory(t.pid(), "VmRSS")) / 1e6, float64(memory(t.pid(), "VmHWM")) / 1e6}
		b.memory = append(b.memory, m)
		fmt.Fprintf(os.Stderr, "memory: %.1f MB %s\n", m.RSSMB, state)
	}
	up, err := b.smallUpstream(ctx, 10)
	if err != nil {
		return err
	}
	small, err := b.startAduana(ctx, "idle", httpTransport(up.addr), 10, 1)
	if err != nil {
		up.stop()
		return err
	}
	note(small, "idle, 10 tools")
	small.stop()
	up.stop()
	t, err := b.startAduana(ctx, "loaded", httpTransport(b.upstream.addr), b.o.tools, b.o.views)
	if err != nil {
		return err
	}
	defer t.stop()
	note(t, fmt.Sprintf("idle, %d tools", b.o.tools))
	var open []*client
	defer func() {
		for _, c := range open {
			c.close()
		}
	}()
	for i := range b.o.sessions {
		c, err := dial(t, principalKey(i%b.o.views), true)
		if err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		open = append(open, c)
	}
	note(t, fmt.Sprintf("%d tools, %d legacy sessions", b.o.tools, b.o.sessions))
	for i, c := range open {
		if i < b.o.views {
			want := b.o.tools
			if i > 0 {
				want -= partSize(b.o.tools, b.o.views, i)
			}
			if err := listJob(want)(c, 0); err != nil {
				return fmt.Errorf("principal %d: %w", i, err)
			}
		}
		if err := echoJob(t)(c, 0); err != nil {
			return err
		}
	}
	note(t, fmt.Sprintf("%d tools, %d legacy sessions, %d views listed, a call on every session", b.o.tools, b.o.sessions, b.o.views))
	return nil
}

// partSize is how many tools stand under the i-th capability of writePolicy.
func partSize(tools, parts, i int) int {
	n := 0
	for k := 2; k < tools; k++ {
		if k%parts == i {
			n++
		}
	}
	return n
}
