// Command mutants answers "would a test notice?": it breaks one line of the code at a time and demands that a named test turns red.
//
// It never touches the tree: each broken file is a copy in a temporary folder that `go test -overlay` reads in place of the real
// one. It fails when a mutant survives, when a mutant no longer fits the code (its old text must stand there exactly once), when
// a mutant does not compile, and when the tests are not green without any mutant.
//
//	go run ./test/mutants              all of them
//	go run ./test/mutants -only ledger those whose name or file holds "ledger"
//
// Start at the table in table.go: adding a mutant is one entry there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("only", "", "run only mutants whose name or file holds `TEXT`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	var chosen []mutant
	for _, m := range table() {
		if strings.Contains(m.name, only) || strings.Contains(m.file, only) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant's name or file holds %q", only)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	results, err := runAll(ctx, root, chosen)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESULT\tFILE\tMUTANT\tTEST")
	bad := 0
	for _, r := range results {
		word := "killed"
		if r.err != nil {
			word = "FAILED"
			bad++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", word, r.mutant.file, r.mutant.name, r.mutant.run)
	}
	w.Flush()
	for _, r := range results {
		if r.err != nil {
			fmt.Printf("\n%s: %s: %v\n", r.mutant.file, r.mutant.name, r.err)
		}
	}
	fmt.Printf("\n%d mutants, %d killed, %d failed, %.0f s\n", len(results), len(results)-bad, bad, time.Since(start).Seconds())
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", bad, len(results))
	}
	return nil
}
