package cases_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/adapters/jsonschema"
	"aduana/adapters/mcphttp"
	"aduana/adapters/mcpstdio"
	"aduana/adapters/memory"
	"aduana/adapters/statickey"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

const benKey = "the-key-of-ben-0123456789"

// composed is a gateway with its real adapters, served over HTTP, where a clock or a bound can be set that the program has no flag for.
// Its callers are ana, who presents key, and ben, who presents benKey.
func composed(t *testing.T, text string, definitions map[string][]string, change func(*gateway.Config)) (url string) {
	t.Helper()
	compiler, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	r := compiler.Compile([]byte(text), policy.Options{Origin: "policy"})
	if r.Policy == nil {
		t.Fatalf("%+v\n%s", r.Diagnostics, text)
	}
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: "sha256:test"}
	for i := range r.Policy.Upstreams {
		u := &r.Policy.Upstreams[i]
		accepted := assembly.LockedUpstream{Binding: assembly.BindingOf(u).Digest()}
		for _, raw := range definitions[u.ID] {
			tool, err := assembly.Accept(capabilities.UpstreamID(u.ID), assembly.Observe([]byte(raw)), capabilities.NoVerdict, "test", "2026-01-01T00:00:00Z")
			if err != nil {
				t.Fatal(err)
			}
			accepted.Tools = append(accepted.Tools, tool)
		}
		lock.Upstreams[capabilities.UpstreamID(u.ID)] = accepted
	}
	vault := &gatewaytest.Vault{}
	vault.Set("env://A", key)
	vault.Set("env://B", benKey)
	log := slog.New(slog.DiscardHandler)
	cfg := gateway.Config{
		Clock:         time.Now,
		Authenticator: statickey.New([]statickey.Issuer{{ID: "a", Subject: "ana", Ref: "env://A"}, {ID: "b", Subject: "ben", Ref: "env://B"}}, vault),
		Usage:         memory.New(), Credentials: vault, Audit: &gatewaytest.Audit{}, Schemas: jsonschema.New(), Approvals: nobody{},
		Upstreams: map[policy.Transport]gateway.Upstream{
			policy.TransportHTTP:  mcphttp.NewUpstream(mcphttp.UpstreamOptions{Log: log}),
			policy.TransportStdio: mcpstdio.NewUpstream(mcpstdio.UpstreamOptions{Log: log, Grace: 300 * time.Millisecond}),
		},
		Random: func(b []byte) { _, _ = rand.Read(b) }, Log: log, Product: mcp.Implementation{Name: "aduana", Version: "test"},
		ArgumentKey: []byte("a key for tests, 32 bytes long!!"), ListTTL: time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	g := gateway.New(cfg, assembly.Input{Policy: r.Policy, Document: r.Document, Version: "v1", Lock: lock})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mcphttp.NewServer(g, mcphttp.Options{Grace: time.Second}).Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/mcp"
}

type nobody struct{}

func (nobody) Ask(context.Context, gateway.Question) (bool, error) {
	return false, gateway.ErrUnassigned
}

const twoPeople = `principals:
  issuers:
    - { id: a, kind: static-key, subject: ana, secret: { ref: "env://A" } }
    - { id: b, kind: static-key, subject: ben, secret: { ref: "env://B" } }
accounts: []
`

// C10: an answer up to the cap passes unchanged; one over it ends its own call with an error that names the cap, on every transport,
// with bounded memory, while another call on the same upstream is answered.
func TestC10AnswersOverTheCap(t *testing.T) {
	const limit = 256 << 10
	var text strings.Builder
	text.WriteString("version: 1\ncapabilities: [{ id: all.call, risk: read }]\nupstreams:\n")
	definitions := map[string][]string{}
	declare := func(id, transport string) {
		fmt.Fprintf(&text, "  - { id: %s, transport: %s, account: none, tools: [{ name: dump, capability: all.call }, { name: flood, capability: all.call }, { name: sleep, capability: all.call }] }\n", id, transport)
		for _, name := range []string{"dump", "flood", "sleep"} {
			definitions[id] = append(definitions[id], string(builtin(t, name).Definition))
		}
	}
	for _, era := range []string{"legacy", "modern"} {
		e, err := upstream.ParseEras(era)
		if err != nil {
			t.Fatal(err)
		}
		for _, sse := range []bool{false, true} {
			s := upstream.New(upstream.Config{Eras: e, SSE: sse, Tools: []upstream.Tool{builtin(t, "dump"), builtin(t, "flood"), builtin(t, "sleep")}})
			t.Cleanup(func() { s.Close() })
			url, err := s.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			declare(era+map[bool]string{true: "-sse", false: "-json"}[sse], fmt.Sprintf("{ kind: mcp-http, url: %q }", url))
		}
		program, args, err := upstream.Command("-tools", "dump,flood,sleep", "-era", era)
		if err != nil {
			t.Fatal(err)
		}
		declare(era+"-stdio", command(program, args...))
	}
	text.WriteString(twoPeople + "grants: [{ to: { issuer: a }, capabilities: [all.call] }]\n")
	url := composed(t, text.String(), definitions, func(c *gateway.Config) { c.MaxAnswer = limit })
	eras(func(modern bool) {
		c := rig.NewClient(t, url, key, modern)
		for id := range definitions {
			t.Run(fmt.Sprint(id, " modern=", modern), func(t *testing.T) {
				for _, n := range []int{0, 70_000, limit - 200} {
					if r := call(t, c, id+"__dump", fmt.Sprintf(`{"n":%d}`, n)); r.Text() != strings.Repeat("a", n) {
						t.Errorf("%d bytes: %.200s", n, r.Message)
					}
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				beside := make(chan string, 1)
				go func() {
					r, _ := c.Call(deadline(t), id+"__sleep", `{"ms":30}`)
					beside <- r.Text()
				}()
				for _, over := range []rig.Response{call(t, c, id+"__dump", fmt.Sprintf(`{"n":%d}`, limit)), call(t, c, id+"__flood", `{"n":67108864}`)} {
					if outcome(over) != "too_large" || !strings.Contains(string(over.Message), fmt.Sprint(limit)) || len(over.Body) > 2000 {
						t.Errorf("over the cap: %.500s", over.Message)
					}
				}
				if got := <-beside; got != "slept" {
					t.Errorf("the call beside it was answered %q", got)
				}
				runtime.ReadMemStats(&after)
				// The scriptable upstream and the client allocate in this process too, a few times the cap.
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 32*limit {
					t.Errorf("allocated %d bytes for answers over a cap of %d", grown, limit)
				}
				if r := call(t, c, id+"__dump", `{"n":10}`); r.Text() != "aaaaaaaaaa" {
					t.Errorf("afterwards: %s", r.Message)
				}
			})
		}
	})
}

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const ceilings = `version: 1
capabilities: [{ id: c.use, risk: read }, { id: c.other, risk: read }, { id: c.shared, risk: read }]
upstreams:
  - { id: up, transport: { kind: mcp-http, url: %q }, account: none,
      tools: [{ name: t, capability: c.use }, { name: other, capability: c.other }, { name: shared, capability: c.shared }] }
` + twoPeople + `grants:
  - { to: { issuer: a }, capabilities: [c.use], limits: { calls: 5, per: 1m } }
  - { to: { issuer: b }, capabilities: [c.use], limits: { calls: 5, per: 1m } }
  - { to: { issuer: a }, capabilities: [c.shared], limits: { calls: 2, per: 1m, over: grant } }
`

// C24: whatever the session, era, endpoint or spelling, and whatever else is refused beside it, one principal gets exactly what the
// ceiling lets through; a clock that steps back gives nothing.
func TestC24OneBudgetWhateverTheWay(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	s := upstream.New(upstream.Config{Tools: tools("up", "t", "other", "shared")})
	t.Cleanup(func() { s.Close() })
	at, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	now := &clock{now: time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)}
	var definitions []string
	for _, name := range []string{"t", "other", "shared"} {
		definitions = append(definitions, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	url := composed(t, fmt.Sprintf(ceilings, at), map[string][]string{"up": definitions}, func(c *gateway.Config) { c.Clock = now.Now })
	type way struct {
		c    *rig.Client
		name string
	}
	ways := []way{{rig.NewClient(t, url, key, false), "up__t"}, {rig.NewClient(t, url, key, false), "up__t"}, {rig.NewClient(t, url, key, true), "up__t"},
		{rig.NewClient(t, url+"/up", key, false), "t"}, {rig.NewClient(t, url+"/up", key, true), "t"}}
	// X24: what a client says of itself in headers is no part of the key.
	for i, w := range ways {
		w.c.Header = http.Header{"X-Forwarded-For": {fmt.Sprintf("192.0.2.%d", i)}, "X-Real-Ip": {fmt.Sprintf("192.0.2.%d", i)}, "User-Agent": {fmt.Sprint("client ", i)}}
	}
	ben := rig.NewClient(t, url, benKey, true)
	for round := range rounds {
		before := s.Calls("t")
		start := make(chan struct{})
		var wg sync.WaitGroup
		var allowed, refused atomic.Int64
		for i := range 200 {
			wg.Go(func() {
				<-start
				w := ways[i%len(ways)]
				r, err := w.c.Call(deadline(t), w.name, `{}`)
				switch {
				case err == nil && r.Text() == "server=up tool=t":
					allowed.Add(1)
				case err == nil && strings.Contains(string(r.Message), "limit_exhausted"):
					refused.Add(1)
				default:
					t.Errorf("%v %s", err, r.Body)
				}
				if i%4 == 0 { // refused by policy: uses up nothing
					if r, err := ways[2].c.Call(deadline(t), "up__other", `{}`); err != nil || errorCode(r.Message) != -32602 {
						t.Errorf("%v %s", err, r.Body)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		if got := s.Calls("t") - before; got != 5 || allowed.Load() != 5 || refused.Load() != 195 {
			t.Fatalf("round %d: %d calls went up, %d were allowed and %d refused", round, got, allowed.Load(), refused.Load())
		}
		// Somebody else has a budget of their own.
		if r := call(t, ben, "up__t", `{}`); r.Text() == "" {
			t.Errorf("ben: %s", r.Message)
		}
		now.add(-10 * time.Second)
		if r := call(t, ways[0].c, "up__t", `{}`); !strings.Contains(string(r.Message), "limit_exhausted") {
			t.Errorf("after a step back: %s", r.Message)
		}
		now.add(10*time.Second + time.Minute)
	}
	if s.Calls("other") != 0 {
		t.Error("what nobody granted was called")
	}
}

// C24: calls that clients give up never make room for more than the ceiling, and none is lost for good; a refusal says when there is
// room again and nothing about anybody else.
func TestC24CancelledCallsAndRefusals(t *testing.T) {
	var started atomic.Int64
	slow := upstream.Tool{Name: "t", Definition: json.RawMessage(`{"name":"t","inputSchema":{"type":"object"}}`), Handler: func(ctx context.Context, c *upstream.Call) {
		if started.Add(1)%2 == 0 {
			<-ctx.Done()
			return
		}
		c.ReplyText("done")
	}}
	s := upstream.New(upstream.Config{Eras: upstream.ModernOnly, Tools: append(tools("up", "other", "shared"), slow)})
	t.Cleanup(func() { s.Close() })
	at, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	now := &clock{now: time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)}
	var definitions []string
	for _, name := range []string{"t", "other", "shared"} {
		definitions = append(definitions, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	url := composed(t, fmt.Sprintf(ceilings, at), map[string][]string{"up": definitions}, func(c *gateway.Config) { c.Clock = now.Now })
	c := rig.NewClient(t, url, key, true)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i)*5*time.Millisecond)
			defer cancel()
			c.Call(ctx, "up__t", `{}`)
		})
	}
	wg.Wait()
	for range 10 { // use up what was given back
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		c.Call(ctx, "up__t", `{}`)
		cancel()
	}
	if got := s.Calls("t"); got != 5 {
		t.Errorf("%d calls went up, want 5", got)
	}
	// A ceiling over the grant, used up by one caller's calls.
	call(t, c, "up__shared", `{}`)
	call(t, c, "up__shared", `{}`)
	r := call(t, c, "up__shared", `{}`)
	if text := r.Text(); !strings.Contains(text, "2026-05-03T12:01:00Z") || strings.Contains(string(r.Message), "ben") || s.Calls("shared") != 2 {
		t.Errorf("%d calls, refused with %s", s.Calls("shared"), r.Message)
	}
}

// C24: a slot of an upstream's concurrency comes back after an error, a cancelled call, and a panic inside the gateway.
func TestC24SlotsComeBack(t *testing.T) {
	fake := &gatewaytest.Upstream{Handler: func(ctx context.Context, _ gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
		switch c.Name {
		case "panics":
			panic("on purpose")
		case "fails":
			return nil, gateway.Answer{Sent: gateway.Answered, Failure: &gateway.Failure{Class: gateway.FailedStatus}}
		case "hangs":
			<-ctx.Done()
			return nil, gateway.Answer{Sent: gateway.MaybeSent, Failure: &gateway.Failure{Class: gateway.FailedCancelled}}
		}
		return []byte(`{"content":[{"type":"text","text":"fine"}]}`), gateway.Answer{Sent: gateway.Answered}
	}}
	var definitions []string
	for _, name := range []string{"panics", "fails", "hangs", "works"} {
		definitions = append(definitions, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	fake.SetTools("up", definitions...)
	url := composed(t, `version: 1
capabilities: [{ id: c.use, risk: read }]
upstreams:
  - { id: up, transport: { kind: mcp-http, url: "http://127.0.0.1:1/mcp" }, account: none, concurrency: 1,
      tools: [{ name: panics, capability: c.use }, { name: fails, capability: c.use }, { name: hangs, capability: c.use }, { name: works, capability: c.use }] }
`+twoPeople+`grants: [{ to: { issuer: a }, capabilities: [c.use] }]
`, map[string][]string{"up": definitions}, func(c *gateway.Config) {
		c.Upstreams = map[policy.Transport]gateway.Upstream{policy.TransportHTTP: fake}
	})
	c := rig.NewClient(t, url, key, true)
	for _, name := range []string{"panics", "fails", "hangs", "panics"} {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		c.Call(ctx, "up__"+name, `{}`)
		cancel()
		if r := call(t, c, "up__works", `{}`); r.Text() != "fine" {
			t.Errorf("after %s: %s", name, r.Message)
		}
	}
}

// X17: what is empty is an empty list or object, never null, from the gateway and from the command line.
func TestX17NothingIsNull(t *testing.T) {
	h := newHouse(t)
	h.http("none", upstream.Config{}, []string{}...)
	h.http("hidden", upstream.Config{Tools: tools("hidden", "t")}, []string{}...)
	empty := upstream.Named("s", "empty")
	empty.Handler = func(_ context.Context, c *upstream.Call) { c.Reply([]byte(`{"content":null}`)) }
	h.http("s", upstream.Config{Eras: upstream.LegacyOnly, Tools: []upstream.Tool{empty}})
	g := h.start()
	eras(func(modern bool) {
		for _, scope := range []string{"/none", "/hidden", "/nobody"} {
			r, err := rig.NewClient(t, g.URL+scope, key, modern).Ask(deadline(t), "tools/list", "", "", "")
			if err != nil || !strings.Contains(string(r.Result()), `"tools":[]`) {
				t.Errorf("%s: %v %s", scope, err, r.Body)
			}
		}
		c := rig.NewClient(t, g.URL, key, modern)
		if got := string(c.List(t).Tools["s__empty"]); got != `{"name":"s__empty","inputSchema":{"type":"object"}}` {
			t.Errorf("listed %s", got)
		}
		if r := call(t, c, "s__empty", `{}`); !strings.Contains(string(r.Result()), `"content":[]`) {
			t.Errorf("an empty content came as %s", r.Message)
		}
	})
	lists := map[string]bool{}
	for _, args := range [][]string{
		{"validate", h.policy(), "--json"}, {"names", h.policy(), "--lock", h.dir + "/aduana.lock.yaml", "--json"},
		{"diff", h.policy(), h.policy(), "--json"}, {"who-can", h.policy(), "--capability", "all.call", "--lock", h.dir + "/aduana.lock.yaml", "--json"},
		{"explain", h.policy(), "--lock", h.dir + "/aduana.lock.yaml", "--issuer", "local", "--subject", "ana", "--all", "--json"},
	} {
		r := rig.Run(t, rig.Env(t, keyEnv), rig.Patience, binary, args...)
		var v any
		if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
			t.Errorf("%q: %v, exit %d\n%s%s", args, err, r.Code, r.Stdout, r.Stderr)
			continue
		}
		walk(v, "", func(at string, v any) {
			if l, ok := v.([]any); ok {
				lists[args[0]+at] = true
				for _, e := range l {
					if e == nil {
						t.Errorf("%s %s holds null", args[0], at)
					}
				}
			}
		})
	}
	// A member that is a list in one answer is null in none: those that were seen as lists are asked for again in an empty house.
	dir := t.TempDir()
	bare := write(t, dir, "policy.yaml", "version: 1\ncapabilities: []\nupstreams: []\naccounts: []\nprincipals: { issuers: [{ id: local, kind: static-key, subject: ana, secret: { ref: \"env://ADUANA_KEY\" } }] }\ngrants: []\n")
	lock := write(t, dir, "catalog.yaml", "tools: []\n")
	for _, args := range [][]string{
		{"validate", bare, "--json"}, {"names", bare, "--lock", lock, "--json"}, {"diff", bare, bare, "--json"},
		{"who-can", bare, "--capability", "all.call", "--lock", lock, "--json"},
		{"explain", bare, "--lock", lock, "--issuer", "local", "--subject", "ana", "--all", "--json"},
	} {
		r := rig.Run(t, rig.Env(t, keyEnv), rig.Patience, binary, args...)
		var v any
		if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
			t.Errorf("%q: %v, exit %d\n%s%s", args, err, r.Code, r.Stdout, r.Stderr)
			continue
		}
		walk(v, "", func(at string, v any) {
			if v == nil && lists[args[0]+at] {
				t.Errorf("%s: %s is null where it may be a list", args[0], at)
			}
		})
	}
}

// walk visits every value of a JSON document with its place; elements of lists share theirs.
func walk(v any, at string, visit func(at string, v any)) {
	visit(at, v)
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			walk(e, at+"/"+k, visit)
		}
	case []any:
		for _, e := range x {
			walk(e, at+"/-", visit)
		}
	}
}
