package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"aduana/adapters/auditfile"
	"aduana/adapters/lockfile"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata/script; the diff is what is reviewed")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"aduana": main})
}

// TestScripts runs the program as people do: testdata/script holds one script per command. Besides the usual commands of testscript
// there are
//
//	exits CODE PROGRAM ARGUMENT…    run a program and demand its exit code
//	accept POLICY FILE              write a lock that accepts every mapped tool of a policy where its upstream is now
//	audit FILE                      write an audit file of three records, one of them a call without an outcome
//	edit FILE OLD NEW               replace a text that stands in a file
//	behead FILE                     remove the first line of a file
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			return os.CopyFS(filepath.Join(env.WorkDir, "examples"), os.DirFS(filepath.Join("..", "..", "examples")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "accept": accept, "audit": writeAudit, "edit": edit, "behead": behead},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENT…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	have := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		have = exit.ExitCode()
	}
	if have != want {
		ts.Fatalf("exit code %d, want %d", have, want)
	}
}

func accept(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: accept POLICY FILE")
	}
	d, err := load(ts.MkAbs(args[0]), "")
	ts.Check(err)
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}}
	for _, t := range d.snapshot.Tools {
		observed := assembly.Observe(fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, t.Identity.Name))
		locked, err := assembly.Accept(t.Identity.Upstream, observed, capabilities.ReadVerdict, "me", "2026-05-03T00:00:00Z")
		ts.Check(err)
		u := lock.Upstreams[t.Identity.Upstream]
		u.Binding = d.snapshot.Bindings[t.Identity.Upstream]
		u.Tools = append(u.Tools, locked)
		lock.Upstreams[t.Identity.Upstream] = u
	}
	_, err = lockfile.Write(ts.MkAbs(args[1]), lock)
	ts.Check(err)
}

func writeAudit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: audit FILE")
	}
	clock := func() time.Time { return time.UnixMilli(1_777_777_777_000) }
	f, err := auditfile.Open(ts.MkAbs(args[0]), clock)
	ts.Check(err)
	record := func(event gateway.Event, call string) *gateway.Record {
		return &gateway.Record{Event: event, Call: call, At: clock().UnixMilli(), Asked: "crm__get"}
	}
	ctx := context.Background()
	ts.Check(f.Intend(ctx, record(gateway.EventIntent, "one")))
	finished := record(gateway.EventFinish, "one")
	finished.Outcome = gateway.Invoked
	ts.Check(f.Finish(ctx, finished))
	ts.Check(f.Intend(ctx, record(gateway.EventIntent, "two")))
	ts.Check(f.Close())
}

func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || !strings.Contains(ts.ReadFile(args[0]), args[1]) {
		ts.Fatalf("usage: edit FILE OLD NEW, and OLD stands there")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(ts.ReadFile(args[0]), args[1], args[2], 1)), 0o600))
}

func behead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: behead FILE")
	}
	_, rest, _ := strings.Cut(ts.ReadFile(args[0]), "\n")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(rest), 0o600))
}
