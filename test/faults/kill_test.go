// Package faults_test answers one question: what is left when the program dies at any moment, without a chance to say anything?
//
// It kills the real program and reads what it wrote; it injects nothing into it. Start reading at
// TestMustShow10KilledDuringAThousandCalls. ADUANA_KILLS sets how often it is repeated, 1 otherwise.
package faults_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/adapters/auditfile"
	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// binary is the program under test, built once. It is written by TestMain alone.
var binary string

func TestMain(m *testing.M) {
	upstream.MainIfChild()
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "aduana-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = rig.Build(dir, "aduana/cmd/aduana"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const (
	key     = "a-key-of-the-tests-0123456789"
	calls   = 1000
	clients = 16
	held    = 4 // calls that the upstream keeps until the kill, so that some are open for certain
)

const policyHead = `version: 1
capabilities: [{ id: s.call, risk: write }]
accounts: []
principals: { issuers: [{ id: local, kind: static-key, subject: ana, secret: { ref: "env://ADUANA_KEY" } }] }
grants: [{ to: { issuer: local }, capabilities: [s.call], limits: { calls: 100000, per: 1h } }]
`

// house is one policy with its files, to be started again and again.
type house struct {
	dir, policy, audit string
}

func newHouse(t *testing.T, upstreams string) house {
	t.Helper()
	h := house{dir: t.TempDir()}
	h.policy, h.audit = filepath.Join(h.dir, "policy.yaml"), filepath.Join(h.dir, "audit.jsonl")
	if err := os.WriteFile(h.policy, []byte(policyHead+upstreams), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h house) start(t *testing.T, flags ...string) *rig.Gateway {
	t.Helper()
	return rig.Start(t, binary, rig.Env(t, "ADUANA_KEY="+key), append([]string{h.policy, "--audit", "file:" + h.audit}, flags...)...)
}

// digest is the keyed digest of raw arguments as a record has it.
func (h house) digest(t *testing.T, arguments string) string {
	t.Helper()
	secret, err := os.ReadFile(h.audit + ".key")
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(arguments))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// record is what the suite reads of a line of the audit.
type record struct {
	Event, Call, Outcome, Arguments, Identity, Sent, Detail string
}

// read gives the complete lines of the audit; a process that was killed may have left a part of one.
func (h house) read(t *testing.T) []record {
	t.Helper()
	text, err := os.ReadFile(h.audit)
	if err != nil {
		t.Fatal(err)
	}
	var out []record
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// outcomes gives, per argument digest, the calls that have an intent, each with the outcome of its finish, "" for none.
func outcomes(t *testing.T, log []record) map[string]map[string]string {
	t.Helper()
	byCall, out := map[string]string{}, map[string]map[string]string{}
	for _, r := range log {
		switch r.Event {
		case "intent":
			if _, twice := byCall[r.Call]; twice {
				t.Errorf("two intents of the call %s", r.Call)
			}
			byCall[r.Call] = r.Arguments
			if out[r.Arguments] == nil {
				out[r.Arguments] = map[string]string{}
			}
			out[r.Arguments][r.Call] = ""
		case "finish":
			arguments, ok := byCall[r.Call]
			if !ok || out[arguments][r.Call] != "" {
				t.Errorf("a finish of the call %s without its open intent", r.Call)
				continue
			}
			out[arguments][r.Call] = r.Outcome
		}
	}
	return out
}

func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ADUANA_KILLS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ADUANA_KILLS=%q: want a positive number", text)
	}
	return n
}

// TestMustShow10KilledDuringAThousandCalls: whatever reached the upstream had been recorded before, the audit verifies after the
// next start, what was open is marked as unknown, and nothing is sent twice.
// lingering is how many outcomes can be on their way at once: those of a few milliseconds, at thousands of calls a second, and never
// more than the writer lets wait.
const lingering = 128

func TestMustShow10KilledDuringAThousandCalls(t *testing.T) {
	// The log is one, through all kills: a chain that a crash breaks would be refused by the next start.
	var mu sync.Mutex
	received := map[string]int{} // raw arguments as they arrived, before anything else was done with them
	var arrived atomic.Int64
	s := upstream.New(upstream.Config{MaxLog: 1, Tools: []upstream.Tool{{Name: "work", Handler: func(ctx context.Context, c *upstream.Call) {
		arguments := string(c.Arguments)
		mu.Lock()
		received[arguments]++
		mu.Unlock()
		arrived.Add(1)
		if strings.Contains(arguments, `"held":true`) {
			<-ctx.Done()
			return
		}
		c.ReplyText("done " + arguments)
	}}}})
	t.Cleanup(func() { s.Close() })
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, fmt.Sprintf("upstreams: [{ id: s, transport: { kind: mcp-http, url: %q }, account: none, tools: [{ name: work, capability: s.call }] }]\n", url))
	g := h.start(t, "--discover")

	opened, torn := 0, 0
	for round := range kills(t) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		before := arrived.Load()
		answered, moment := h.fire(t, g, round, random, func() int64 { return arrived.Load() - before })
		<-g.Done()
		during := h.read(t)
		if whole, err := os.ReadFile(h.audit); err == nil && !bytes.HasSuffix(whole, []byte("\n")) {
			torn++
		}

		mu.Lock()
		reached := maps.Clone(received)
		clear(received)
		mu.Unlock()
		at := arrived.Load()
		g = h.start(t)
		if r := verify(t, h.audit); len(r.Open) != 0 {
			t.Errorf("round %d, seed %d: %d calls are still open after the start: %q", round, seed, len(r.Open), r.Open)
		}
		if arrived.Load() != at {
			t.Errorf("round %d, seed %d: the start sent %d calls by itself", round, seed, arrived.Load()-at)
		}
		then, now := outcomes(t, during), outcomes(t, h.read(t))

		// Every call that reached the upstream was recorded before the kill, once.
		for arguments, n := range reached {
			if n != 1 {
				t.Errorf("round %d, seed %d: %s reached the upstream %d times", round, seed, arguments, n)
			}
			if len(then[h.digest(t, arguments)]) != 1 {
				t.Errorf("round %d, seed %d: %s reached the upstream and has %d intents", round, seed, arguments, len(then[h.digest(t, arguments)]))
			}
		}
		// What a client was told is what is recorded, or it was told in the last moments: an outcome follows its answer, and one that
		// was still on its way is unknown now, never anything else.
		late := 0
		for _, arguments := range answered {
			for call, outcome := range now[h.digest(t, arguments)] {
				if outcome == "outcome_unknown" {
					late++
				}
				if outcome != "invoked" && outcome != "outcome_unknown" || reached[arguments] != 1 {
					t.Errorf("round %d, seed %d: a client has the result of %s, call %s ended as %q", round, seed, arguments, call, outcome)
				}
			}
		}
		if late > lingering {
			t.Errorf("round %d, seed %d: %d answered calls have no outcome on record", round, seed, late)
		}
		// What was open is unknown now, and nothing else changed.
		open := 0
		for digest, byCall := range then {
			for call, outcome := range byCall {
				if outcome == "" {
					open++
					outcome = "outcome_unknown"
				}
				if got := now[digest][call]; got != outcome {
					t.Errorf("round %d, seed %d: the call %s is recorded as %q, want %q", round, seed, call, got, outcome)
				}
			}
		}
		if open < held {
			t.Errorf("round %d, seed %d: %d calls were open, and %d cannot have ended", round, seed, open, held)
		}
		opened += open
		t.Logf("round %d, seed %d: killed after %d of %d calls had arrived, %d answered, %d open", round, seed, moment, calls, len(answered), open)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d open calls in all, %d torn lines", opened, torn)

	// It still serves.
	c := rig.NewClient(t, g.URL, key, true)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	if r, err := c.Call(ctx, "s__work", `{"after":"all"}`); err != nil || !strings.HasPrefix(r.Text(), "done") {
		t.Errorf("after the last start: %v, %s", err, r.Body)
	}
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d:\n%s", code, g.Stderr.String())
	}
	verify(t, h.audit)
}

// fire sends the round's calls through many clients and kills the gateway while they run. It gives the arguments whose results came
// back, and how many calls had arrived when the kill was sent.
func (h house) fire(t *testing.T, g *rig.Gateway, round int, random *rand.Rand, arrived func() int64) (answered []string, moment int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range clients {
		c := rig.NewClient(t, g.URL, key, i%2 == 0)
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > calls {
					return
				}
				arguments := fmt.Sprintf(`{"round":%d,"n":%d,"held":%t}`, round, n, n <= held)
				r, err := c.Call(ctx, "s__work", arguments)
				if err != nil {
					return // killed
				}
				if strings.Contains(r.Text(), "done") {
					mu.Lock()
					answered = append(answered, arguments)
					mu.Unlock()
				} else if r.Status != http.StatusOK {
					t.Errorf("%s: status %d, %s", arguments, r.Status, r.Body)
					return
				}
			}
		})
	}
	// Any moment, but one in which calls run: at a count that is drawn, and then a little later.
	enough := int64(held + random.IntN(calls-2*held-clients))
	for arrived() < enough && ctx.Err() == nil {
		time.Sleep(100 * time.Microsecond)
	}
	time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
	moment = arrived()
	g.Kill()
	wg.Wait()
	if ctx.Err() != nil {
		t.Errorf("the calls took longer than %s", rig.Patience)
	}
	return answered, moment
}

// verify proves the audit, by the program and by the function, and gives what it says.
func verify(t *testing.T, path string) auditfile.Report {
	t.Helper()
	if r := rig.Run(t, rig.Env(t), rig.Patience, binary, "audit", "verify", path); r.Code != 0 {
		t.Errorf("audit verify: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	report, err := auditfile.Verify(f)
	if err != nil {
		t.Error(err)
	}
	return report
}

// TestKilledGatewayLeavesNoChildren: stdio children see their input end and go, so that a crash leaves no process behind; and the
// next gateway starts its own.
func TestKilledGatewayLeavesNoChildren(t *testing.T) {
	program, args, err := upstream.Command("-tools", "pid,hang")
	if err != nil {
		t.Fatal(err)
	}
	var quoted []string
	for _, a := range args {
		quoted = append(quoted, rig.Quote(a))
	}
	h := newHouse(t, fmt.Sprintf("upstreams: [{ id: s, transport: { kind: mcp-stdio, command: %q, args: [%s] }, account: none, tools: [{ name: pid, capability: s.call }, { name: hang, capability: s.call }] }]\n",
		program, strings.Join(quoted, ", ")))
	var pids []int
	for i := range 2 {
		g := h.start(t, []string{"--discover"}[:1-i]...)
		c := rig.NewClient(t, g.URL, key, true)
		ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
		defer cancel()
		r, err := c.Call(ctx, "s__pid", `{}`)
		pid, bad := strconv.Atoi(r.Text())
		if err != nil || bad != nil || slices.Contains(pids, pid) {
			t.Fatalf("%v, %s, before %v", err, r.Body, pids)
		}
		pids = append(pids, pid)
		// A call is running in the child when its gateway dies.
		hung := make(chan struct{})
		go func() {
			c.Call(ctx, "s__hang", `{}`)
			close(hung)
		}()
		for open := false; !open && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			log := h.read(t)
			open = len(log) > 0 && log[len(log)-1].Event == "intent" && log[len(log)-1].Identity == "mcp:s:hang"
		}
		g.Kill()
		<-hung
		for rig.Alive(pid) && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		if rig.Alive(pid) {
			t.Errorf("the child %d lives on without its gateway", pid)
		}
	}
	h.start(t).Stop(t)
	unknown := 0
	for _, r := range h.read(t) {
		if r.Event == "finish" && r.Outcome == "outcome_unknown" {
			unknown++
		}
	}
	if unknown != 2 {
		t.Errorf("%d calls are marked as unknown, want the 2 that hung", unknown)
	}
	verify(t, h.audit)
}

// TestKilledWhileItRecovers: a start that is itself killed, at any moment and again and again, leaves a log that the next start can
// still make whole: the torn line is on record, and each open call is closed once.
func TestKilledWhileItRecovers(t *testing.T) {
	s := upstream.New(upstream.Config{Tools: []upstream.Tool{{Name: "work", Handler: func(ctx context.Context, _ *upstream.Call) { <-ctx.Done() }}}})
	t.Cleanup(func() { s.Close() })
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, fmt.Sprintf("upstreams: [{ id: s, transport: { kind: mcp-http, url: %q }, account: none, tools: [{ name: work, capability: s.call }] }]\n", url))
	g := h.start(t, "--discover")
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	c := rig.NewClient(t, g.URL, key, true)
	var wg sync.WaitGroup
	const open = 100
	for n := range open {
		wg.Go(func() { c.Call(ctx, "s__work", fmt.Sprintf(`{"n":%d}`, n)) })
	}
	if !s.Await(ctx, func() bool { return s.Calls("work") == open }) {
		t.Fatalf("%d of %d calls arrived", s.Calls("work"), open)
	}
	g.Kill()
	wg.Wait()

	// A loss of power may leave a part of a line, which a kill alone hardly does.
	torn := `{"seq":9999,"event":"finish","call":"half of a li`
	f, err := os.OpenFile(h.audit, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(torn); err != nil {
		t.Fatal(err)
	}
	f.Close()

	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		cmd := exec.Command(binary, "serve", h.policy, "--audit", "file:"+h.audit, "--listen", "127.0.0.1:0")
		cmd.Env = rig.Env(t, "ADUANA_KEY="+key)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(40_000)) * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	h.start(t).Stop(t)
	if r := verify(t, h.audit); len(r.Open) != 0 || r.Intents != open {
		t.Errorf("seed %d: %d intents, of which %d are open; want %d and 0", seed, r.Intents, len(r.Open), open)
	}
	closed, noted := 0, 0
	log := h.read(t)
	for _, byCall := range outcomes(t, log) {
		for _, outcome := range byCall {
			if outcome == "outcome_unknown" {
				closed++
			}
		}
	}
	for _, r := range log {
		if strings.HasPrefix(r.Detail, fmt.Sprintf("recovered: %d torn bytes", len(torn))) {
			noted++
		}
	}
	if closed != open || noted != 1 {
		t.Errorf("seed %d: %d of %d open calls are marked as unknown, and the torn line is noted %d times", seed, closed, open, noted)
	}
	if n := s.Calls("work"); n != open {
		t.Errorf("seed %d: the starts sent %d calls by themselves", seed, n-open)
	}
}
