package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figure is one ratio with its interval.
type figure struct {
	Workload string    `json:"workload"`
	What     string    `json:"what"`
	Subject  string    `json:"subject"`
	Base     string    `json:"base"`
	Median   float64   `json:"median"`
	Low      float64   `json:"low"`
	High     float64   `json:"high"`
	Ratios   []float64 `json:"ratios"`
	// Dropped rounds have a base that added nothing measurable.
	Dropped int    `json:"dropped,omitempty"`
	Must    string `json:"must,omitempty"`
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// interval is the 95 % percentile bootstrap interval of the median. The seed
// is fixed: the same runs give the same report.
func interval(v []float64) (low, high float64) {
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	r := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, 10_000)
	draw := make([]float64, len(v))
	for i := range medians {
		for j := range draw {
			draw[j] = v[r.IntN(len(v))]
		}
		medians[i] = median(draw)
	}
	slices.Sort(medians)
	return medians[len(medians)*25/1000], medians[len(medians)*975/1000]
}

// compare makes the figure of one workload from its rounds.
func compare(w workload, subject, base string, samples []sample) figure {
	f := figure{Workload: w.name, What: w.what, Subject: subject, Base: base, Must: w.must}
	rounds := map[int]map[string]sample{}
	for _, s := range samples {
		if s.Workload != w.name {
			continue
		}
		if rounds[s.Round] == nil {
			rounds[s.Round] = map[string]sample{}
		}
		rounds[s.Round][s.Target] = s
	}
	for i := range len(rounds) {
		r := rounds[i]
		a, ok := r[subject]
		if !ok {
			continue
		}
		if w.added {
			floor := r[base].P50 - r["direct"].P50
			if floor <= 0 {
				f.Dropped++
				continue
			}
			f.Ratios = append(f.Ratios, (a.P50-r["direct"].P50)/floor)
			continue
		}
		f.Ratios = append(f.Ratios, a.RPS/r[base].RPS)
	}
	f.Median = median(f.Ratios)
	f.Low, f.High = interval(f.Ratios)
	return f
}

// figures compares the subject with its base, and whatever was measured beside
// direct with it.
func (b *bench) figures() []figure {
	var out []figure
	measured := map[string]map[string]bool{}
	for _, s := range b.samples {
		if measured[s.Workload] == nil {
			measured[s.Workload] = map[string]bool{}
		}
		measured[s.Workload][s.Target] = true
	}
	for _, w := range workloads() {
		m := measured[w.name]
		if m[w.subject] && m[w.base] && (!w.added || m["direct"]) {
			out = append(out, compare(w, w.subject, w.base, b.samples))
		}
		if m["direct"] {
			beside := w
			beside.added, beside.must, beside.what = false, "", w.name+": throughput"
			for _, n := range []string{"floor", "aduana"} {
				if m[n] {
					out = append(out, compare(beside, n, "direct", b.samples))
				}
			}
		}
	}
	return out
}

func (b *bench) report() error {
	fs := b.figures()
	if b.o.jsonOut != "" {
		text, err := json.MarshalIndent(map[string]any{
			"when": time.Now().UTC().Format(time.RFC3339), "go": runtime.Version(), "cpus": runtime.NumCPU(),
			"era": b.o.era, "tools": b.o.tools, "seconds": b.o.dur.Seconds(),
			"figures": fs, "samples": b.samples, "starts": b.starts, "memory": b.memory,
		}, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.o.jsonOut, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	md := b.markdown(fs)
	fmt.Print(md)
	if b.o.mdOut != "" {
		return os.WriteFile(b.o.mdOut, []byte(md), 0o644)
	}
	return nil
}

func (b *bench) markdown(fs []figure) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s, %d processors, %s era, %d tools, %d rounds of %v.\n", runtime.Version(), runtime.NumCPU(), b.o.era, b.o.tools, b.o.rounds, b.o.dur)
	if b.o.quick {
		s.WriteString("**-quick: a smoke test, not a figure.**\n")
	}
	if len(fs) > 0 {
		s.WriteString("\n| What | Ratio | Median | 95 % interval | Rounds | Must |\n|---|---|---|---|---|---|\n")
		for _, f := range fs {
			rounds := fmt.Sprint(len(f.Ratios))
			if f.Dropped > 0 {
				rounds += fmt.Sprintf(" (%d dropped)", f.Dropped)
			}
			fmt.Fprintf(&s, "| %s | %s / %s | %.3f | %.3f to %.3f | %s | %s |\n", f.What, f.Subject, f.Base, f.Median, f.Low, f.High, rounds, f.Must)
		}
	}
	b.absolute(&s)
	if len(b.starts) > 0 {
		s.WriteString("\n| Start from a lock, median | Listening | First whole tools/list |\n|---|---|---|\n")
		for _, n := range b.startSizes() {
			var ready, first []float64
			for _, x := range b.starts {
				if x.Tools == n {
					ready, first = append(ready, x.ReadyMs), append(first, x.FirstMs)
				}
			}
			fmt.Fprintf(&s, "| %d tools | %.0f ms | %.0f ms |\n", n, median(ready), median(first))
		}
	}
	if len(b.memory) > 0 {
		s.WriteString("\n| Resident memory | Now | Highest |\n|---|---|---|\n")
		for _, m := range b.memory {
			fmt.Fprintf(&s, "| %s | %.1f MB | %.1f MB |\n", m.State, m.RSSMB, m.MaxMB)
		}
	}
	return s.String()
}

// absolute is the table of medians, which holds for this machine only.
func (b *bench) absolute(s *strings.Builder) {
	type key struct{ workload, target string }
	var order []key
	by := map[key][]sample{}
	for _, x := range b.samples {
		k := key{x.Workload, x.Target}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], x)
	}
	if len(order) == 0 {
		return
	}
	s.WriteString("\nMedians over the rounds; absolute values hold for this machine at this hour only.\n\n" +
		"| Workload | Target | req/s | p50 µs | p90 µs | p99 µs | MB/s | CPU µs/req: target | upstream | generator | Others' share of the machine |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, k := range order {
		of := func(f func(sample) float64) float64 {
			var v []float64
			for _, x := range by[k] {
				v = append(v, f(x))
			}
			return median(v)
		}
		cpuOf := func(process string) string {
			if _, ok := by[k][0].CPU[process]; !ok {
				return "–"
			}
			return fmt.Sprintf("%.1f", of(func(x sample) float64 { return x.CPU[process] }))
		}
		fmt.Fprintf(s, "| %s | %s | %.0f | %.1f | %.1f | %.1f | %.1f | %s | %s | %s | %.0f %% |\n", k.workload, k.target,
			of(func(x sample) float64 { return x.RPS }), of(func(x sample) float64 { return x.P50 }),
			of(func(x sample) float64 { return x.P90 }), of(func(x sample) float64 { return x.P99 }),
			of(func(x sample) float64 { return x.MBPerS }),
			cpuOf(k.target), cpuOf("upstream"), cpuOf("generator"), of(func(x sample) float64 { return x.OtherPct }))
	}
}
