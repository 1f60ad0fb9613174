// Command bench answers one question: what does aduana cost in front of an MCP
// server, compared with the least that any HTTP hop in Go costs (a bare
// httputil.ReverseProxy, "the floor") before the same server in the same run?
//
// It starts everything itself, on loopback: an upstream that costs almost
// nothing (-role upstream, or stdio), the floor (-role floor) and aduana, with
// policy, ledger, a ceiling and an audit file on. Pairs are interleaved and
// their order alternates, so that a busy moment hits both sides; only ratios
// within a round count. It may not import any package of this module: the
// generator and the upstream are raw HTTP and raw JSON, cheap beside what they
// measure. Start reading at workloads in plan.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	role      string
	listen    string
	to        string
	tools     int
	page      int
	floorPool bool

	targets   string
	work      string
	aduana    string
	repo      string
	era       string
	rounds    int
	dur       time.Duration
	quick     bool
	startRuns int
	sessions  int
	views     int
	jsonOut   string
	mdOut     string
	keep      bool
}

func main() {
	var o options
	flag.StringVar(&o.role, "role", "", "what this process is: upstream, stdio or floor; empty runs the bench")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "role upstream, floor: address")
	flag.StringVar(&o.to, "to", "", "role floor: origin of the upstream")
	flag.IntVar(&o.tools, "tools", 10_000, "tools of the upstream, echo and blob among them")
	flag.IntVar(&o.page, "page", 0, "upstream's tools/list page size; 0 is all in one")
	flag.BoolVar(&o.floorPool, "floor-pool", false, "give the floor a buffer pool (a floor lower than a bare ReverseProxy)")
	flag.StringVar(&o.targets, "targets", "direct,floor,aduana,aduana-stdio", "what to measure")
	flag.StringVar(&o.work, "work", "echo1,echo32,list,blob,stdio32,start,memory", "workloads")
	flag.StringVar(&o.aduana, "aduana", "", "aduana's binary; empty builds ./cmd/aduana in -repo")
	flag.StringVar(&o.repo, "repo", ".", "root of the repository, to build aduana")
	flag.StringVar(&o.era, "era", "modern", "protocol of the generator: modern (2026-07-28) or legacy (2025-11-25)")
	flag.IntVar(&o.rounds, "rounds", 9, "interleaved rounds of each workload")
	flag.DurationVar(&o.dur, "d", time.Second, "length of one run")
	flag.BoolVar(&o.quick, "quick", false, "runs of 200 ms and fewer starts: a smoke test, not a figure")
	flag.IntVar(&o.startRuns, "starts", 9, "starts for each size in the start workload")
	flag.IntVar(&o.sessions, "sessions", 1000, "legacy sessions in the memory workload")
	flag.IntVar(&o.views, "views", 20, "principals, each with its own view, in the memory workload")
	flag.StringVar(&o.jsonOut, "json", "", "write every run and figure to this file")
	flag.StringVar(&o.mdOut, "md", "", "write the report here as well as to stdout")
	flag.BoolVar(&o.keep, "keep", false, "keep the working folder (policies, logs, audit) and print its name")
	flag.Parse()
	if o.quick {
		o.dur, o.startRuns = 200*time.Millisecond, 3
	}
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(o options) error {
	if o.tools < 2 {
		return fmt.Errorf("-tools %d: at least 2, echo and blob", o.tools)
	}
	switch o.role {
	case "upstream":
		return runUpstream(o)
	case "stdio":
		return runStdio(o)
	case "floor":
		return runFloor(o)
	case "":
		return runBench(o)
	}
	return fmt.Errorf("-role %q: want upstream, stdio or floor", o.role)
}

func runBench(o options) error {
	if o.era != "modern" && o.era != "legacy" {
		return fmt.Errorf("-era %q: want modern or legacy", o.era)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "aduana-bench-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(os.Stderr, "working folder:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	b := &bench{o: o, dir: dir, targets: map[string]*target{}}
	defer b.stop()
	for _, name := range strings.Split(o.targets, ",") {
		if !slices.Contains([]string{"direct", "floor", "aduana", "aduana-stdio"}, name) {
			return fmt.Errorf("target %q: want direct, floor, aduana or aduana-stdio", name)
		}
		b.names = append(b.names, name)
	}
	if b.wants("aduana") || b.wants("aduana-stdio") {
		if err := b.build(ctx); err != nil {
			return err
		}
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	return b.report()
}

// build finds or makes aduana's binary.
func (b *bench) build(ctx context.Context) error {
	if b.o.aduana != "" {
		abs, err := filepath.Abs(b.o.aduana)
		b.o.aduana = abs
		return err
	}
	out := filepath.Join(b.dir, "aduana")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "./cmd/aduana")
	cmd.Dir = b.o.repo
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building aduana: %w (name a binary with -aduana, or leave it out with -targets floor,direct)\n%s", err, text)
	}
	b.o.aduana = out
	return nil
}
