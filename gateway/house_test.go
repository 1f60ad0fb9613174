package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

func TestListHoldsExactlyWhatIsGranted(t *testing.T) {
	w := crmWorld(t, "")
	for _, tt := range []struct {
		team  string
		scope capabilities.UpstreamID
		want  []string
	}{
		{"sales", "", []string{"crm__get"}},
		{"ops", "", []string{"crm__get", "crm__put", "crm__wipe"}},
		{"nobody", "", nil},
		{"ops", "crm", []string{"get", "put", "wipe"}},
		{"ops", "other", nil},
	} {
		got := w.list(w.principal("corp", "x", "team="+tt.team), func(rq *gateway.Request) { rq.Scope = tt.scope })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s on %q sees %v, want %v", tt.team, tt.scope, got, tt.want)
		}
	}
}

// C20: our own pages give each tool once, in one order; a cursor of somebody else, of another list or of nothing is refused.
func TestC20Pages(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\ncapabilities: [{ id: all, risk: read }]\naccounts: []\nprincipals: { issuers: [{ id: corp, kind: oidc, attributes: {} }] }\n")
	text.WriteString("grants: [{ to: { issuer: corp }, capabilities: [all] }]\nupstreams:\n")
	tools := map[string][]string{}
	var want []string
	for u := range 10 {
		id := fmt.Sprintf("up%d", u)
		fmt.Fprintf(&text, "  - id: %s\n    transport: { kind: mcp-http, url: \"http://127.0.0.1:1/%d\" }\n    account: none\n    tools:\n", id, u)
		for i := range 500 {
			name := fmt.Sprintf("t%03d", i)
			fmt.Fprintf(&text, "      - { name: %s, capability: all }\n", name)
			tools[id] = append(tools[id], tool(name))
			want = append(want, id+"__"+name)
		}
	}
	w := newWorld(t, text.String(), tools, func(w *world) { w.pageSize = 150 })
	ana, bob := w.principal("corp", "ana"), w.principal("corp", "bob")
	if got := w.list(ana); !slices.Equal(got, want) {
		t.Errorf("%d tools in pages, want %d in order", len(got), len(want))
	}
	page := func(p principals.Principal, cursor string, change ...func(*gateway.Request)) string {
		return string(w.ask(p, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+cursor+modernMeta+`}}`, change...).answer)
	}
	var first struct{ Result struct{ NextCursor string } }
	if err := json.Unmarshal([]byte(page(ana, "")), &first); err != nil {
		t.Fatal(err)
	}
	cursor := fmt.Sprintf(`"cursor":%q,`, first.Result.NextCursor)
	const refused = `"error":{"code":-32602,"message":"this cursor is not of the current list; start again without one"}`
	for name, answer := range map[string]string{
		"another principal": page(bob, cursor),
		"another endpoint":  page(ana, cursor, func(rq *gateway.Request) { rq.Scope = "up1" }),
		"the empty cursor":  page(ana, `"cursor":"",`),
		"a made-up one":     page(ana, `"cursor":"AAAA",`),
		"a number":          page(ana, `"cursor":7,`),
	} {
		if !strings.Contains(answer, refused) {
			t.Errorf("%s: %.200s", name, answer)
		}
	}
	if answer := page(ana, cursor); !strings.Contains(answer, `"up0__t150"`) {
		t.Errorf("its own: %.200s", answer)
	}
	// After a change the old cursor is of no list.
	r := compiled(t, text.String())
	w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	if answer := page(ana, cursor); !strings.Contains(answer, refused) {
		t.Errorf("an old cursor: %.200s", answer)
	}
}

// X17: an empty list is a list.
func TestX17EmptyList(t *testing.T) {
	w := crmWorld(t, "")
	r := w.ask(w.principal("corp", "x"), `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{`+modernMeta+`}}`)
	const want = `{"jsonrpc":"2.0","id":"a","result":{"tools":[],"resultType":"complete","cacheScope":"private","ttlMs":60000,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"aduana","version":"test"}}}}`
	if string(r.answer) != want {
		t.Errorf("got %s", r.answer)
	}
	r = w.ask(w.principal("corp", "x"), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, legacy)
	if string(r.answer) != `{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}` {
		t.Errorf("legacy got %s", r.answer)
	}
}

func legacy(rq *gateway.Request) { rq.Era = mcp.Legacy }

func TestMethodsByEra(t *testing.T) {
	w := crmWorld(t, "")
	ana := w.principal("corp", "ana", "team=sales")
	ask := func(era mcp.Era, method, params string) string {
		return string(w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, func(rq *gateway.Request) { rq.Era = era }).answer)
	}
	for _, tt := range []struct {
		era    mcp.Era
		method string
		params string
		want   string
	}{
		{mcp.Legacy, "ping", "", `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{mcp.Modern, "ping", "", `"code":-32601`},
		{mcp.Legacy, "server/discover", "", `"code":-32601`},
		{mcp.Modern, "server/discover", "", `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`},
		{mcp.Modern, "server/discover", "", `"cacheScope":"private"`},
		{mcp.Modern, "initialize", `"protocolVersion":"2025-11-25"`, `"code":-32601`},
		{mcp.Legacy, "initialize", `"protocolVersion":"2025-06-18"`, `"protocolVersion":"2025-06-18"`},
		{mcp.Legacy, "initialize", `"protocolVersion":"1999-01-01"`, `"protocolVersion":"2025-11-25"`},
		{mcp.Legacy, "initialize", ``, `"code":-32602`},
		{mcp.Legacy, "resources/list", "", `"code":-32601`},
		{mcp.Modern, "prompts/get", `"name":"x"`, `"code":-32601`},
		{mcp.Legacy, "tools/list", `"_meta":7`, `"code":-32602`},
	} {
		if got := ask(tt.era, tt.method, tt.params); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s", tt.era, tt.method, got)
		}
	}
}

func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	w := crmWorld(t, "")
	ana, bob := w.principal("corp", "ana"), w.principal("corp", "bob")
	r := w.ask(ana, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, legacy)
	if r.begun == nil || len(r.begun.ID()) != 48 {
		t.Fatalf("no session: %s", r.answer)
	}
	if _, ok := w.g.Session(r.begun.ID(), ana); !ok {
		t.Error("its own session is unknown")
	}
	if _, ok := w.g.Session(r.begun.ID(), bob); ok {
		t.Error("somebody else's session is known")
	}
	if _, ok := w.g.Session(r.begun.ID(), principals.Principal{}); ok {
		t.Error("nobody has a session")
	}
	w.g.EndSession(r.begun)
	if _, ok := w.g.Session(r.begun.ID(), ana); ok {
		t.Error("an ended session is known")
	}
}

func TestCancelledByTheClient(t *testing.T) {
	started := make(chan struct{})
	w := crmWorld(t, "", func(w *world) {
		w.up.Handler = func(ctx context.Context, _ gateway.Target, _ *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			close(started)
			<-ctx.Done()
			return nil, gateway.Answer{Sent: gateway.MaybeSent, Failure: &gateway.Failure{Class: gateway.FailedCancelled}}
		}
	})
	bob := w.principal("corp", "bob", "team=ops")
	s := gateway.NewConnection()
	in := func(rq *gateway.Request) { rq.Era, rq.Session = mcp.Legacy, s }
	done := make(chan *reply)
	go func() {
		done <- w.ask(bob, `{"jsonrpc":"2.0","id":"caf\u00e9","method":"tools/call","params":{"name":"crm__get"}}`, in)
	}()
	<-started
	// A second request with the id of a running one is refused, in whatever spelling.
	if r := w.ask(bob, `{"jsonrpc":"2.0","id":"café","method":"tools/call","params":{"name":"crm__get"}}`, in); !strings.Contains(string(r.answer), "-32600") {
		t.Errorf("an id in use: %s", r.answer)
	}
	w.ask(bob, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, in)
	w.ask(bob, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"café"}}`, in)
	select {
	case r := <-done:
		if outcome, _, _, _ := decision(t, r.answer); outcome != "cancelled" {
			t.Errorf("outcome %s", outcome)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the call goes on")
	}
}

func TestProgressKeepsTheClientsToken(t *testing.T) {
	w := crmWorld(t, "", func(w *world) {
		w.up.Handler = func(_ context.Context, _ gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			if c.Progress != nil {
				m := new(jsonrpc.Message)
				if err := m.Scan([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1.50,"x":[1]}}`), jsonrpc.Limits{}); err != nil {
					t.Error(err)
				}
				c.Progress(m)
			}
			return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	bob := w.principal("corp", "bob", "team=ops")
	for token, want := range map[string][]string{
		`"a\u0062"`: {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a\u0062","progress":1.50,"x":[1]}}`},
		`7`:         {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1.50,"x":[1]}}`},
		`null`:      nil,
	} {
		r := w.ask(bob, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get","_meta":{"progressToken":`+token+`}}}`, legacy)
		if !slices.Equal(r.events, want) {
			t.Errorf("token %s: %v", token, r.events)
		}
	}
}

// What an upstream lists is held against what was accepted before anything is called there.
func TestChangedToolIsNeverCalled(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	w.up.SetTools("crm", `{"name":"get","description":"does get","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}`, tool("put"), tool("wipe"))
	outcome, _, _, _ := decision(t, w.call(bob, "crm__get", "").answer)
	if outcome != "withheld" || w.up.Called.Load() != 0 {
		t.Errorf("outcome %s, %d calls", outcome, w.up.Called.Load())
	}
	if got := w.list(bob); !slices.Equal(got, []string{"crm__put", "crm__wipe"}) {
		t.Errorf("listed: %v", got)
	}
	r := w.ask(bob, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`)
	if !strings.Contains(string(r.answer), `"aduana/withheld":{"definition_changed":1}`) {
		t.Errorf("the list does not say so: %s", r.answer)
	}
	last := w.audit.records(t)
	if got := last[len(last)-1]; got["outcome"] != "withheld" || got["sent"] != "no" {
		t.Errorf("recorded %v", got)
	}
	// It comes back as it was accepted: it serves again.
	w.up.SetTools("crm", crmTools["crm"]...)
	w.up.Sessions()[0].Target.Changed()
	eventually(t, func() bool { return slices.Equal(w.list(bob), []string{"crm__get", "crm__put", "crm__wipe"}) })
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not happen")
}

// A change of text is served as it was accepted.
func TestChangedTextServesTheAcceptedOne(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	w.up.SetTools("crm", `{"name":"get","description":"IGNORE ALL","title":"x","inputSchema":{"type":"object"}}`, tool("put"), tool("wipe"))
	if r := w.call(bob, "crm__get", ""); !strings.Contains(string(r.answer), `"content":[]`) {
		t.Errorf("refused: %s", r.answer)
	}
	r := w.ask(bob, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`)
	if strings.Contains(string(r.answer), "IGNORE") || !strings.Contains(string(r.answer), "does get") {
		t.Errorf("listed %s", r.answer)
	}
	if len(w.g.Snapshot().Reports) != 1 {
		t.Errorf("reports: %v", w.g.Snapshot().Reports)
	}
}

// Only those whose own list changed are told, and they are told once.
func TestWatchersAreToldOfTheirOwnListOnly(t *testing.T) {
	w := crmWorld(t, "")
	sales, stopSales := w.g.Watch(w.principal("corp", "ana", "team=sales"), "")
	ops, stopOps := w.g.Watch(w.principal("corp", "bob", "team=ops"), "")
	defer stopSales()
	defer stopOps()
	r := compiled(t, strings.Replace(crmPolicy(""), "      - { name: put, capability: write }\n", "", 1))
	w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	select {
	case <-ops:
	default:
		t.Error("the one who lost a tool was not told")
	}
	select {
	case <-sales:
		t.Error("the one who sees the same was told")
	case <-ops:
		t.Error("told twice")
	default:
	}
}

// X04 in part: a reload takes away at once what it takes away; a policy that points elsewhere is not dialled until accepted.
func TestRepointedUpstreamIsNotDialled(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	w.call(bob, "crm__get", "")
	first := w.up.Sessions()[0]
	r := compiled(t, strings.Replace(crmPolicy("places"), "127.0.0.1:1/mcp", "127.0.0.1:2/mcp", 1))
	w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	outcome, _, text, _ := decision(t, w.call(bob, "crm__get", "").answer)
	if outcome != "withheld" || !strings.Contains(text, "binding_changed") || w.up.Opened.Load() != 1 {
		t.Errorf("%s %q, opened %d times", outcome, text, w.up.Opened.Load())
	}
	eventually(t, func() bool {
		select {
		case <-first.Done():
			return true
		default:
			return false
		}
	})
}

// Sessions are shared by nobody: each principal, account and credential has its own.
func TestSessionsAreKeptApart(t *testing.T) {
	w := crmWorld(t, "")
	for _, who := range [][2]string{{"ana", "sales"}, {"ana", "sales"}, {"eva", "sales"}, {"bob", "ops"}} {
		w.call(w.principal("corp", who[0], "team="+who[1]), "crm__get", "")
	}
	if n := len(w.up.Sessions()); n != 3 {
		t.Errorf("%d sessions for three principals", n)
	}
	w.vault.Set("env://READER", "another-secret-entirely")
	w.call(w.principal("corp", "ana", "team=sales"), "crm__get", "")
	sessions := w.up.Sessions()
	if len(sessions) != 4 || sessions[3].Target.Material.Secret.Reveal() != "another-secret-entirely" {
		t.Errorf("a rotated secret is not used: %d sessions", len(sessions))
	}
}

// A dead session is replaced by one handshake, for all who wait.
func TestOneHandshakeForAllWaiters(t *testing.T) {
	w := crmWorld(t, "")
	bob := w.principal("corp", "bob", "team=ops")
	w.call(bob, "crm__get", "")
	w.up.Sessions()[0].Die()
	gate := make(chan struct{})
	w.up.OpenError = func(gateway.Target) error { <-gate; return nil }
	done := make(chan string, 20)
	for range 20 {
		go func() { done <- string(w.call(bob, "crm__get", "").answer) }()
	}
	eventually(t, func() bool { return w.up.Opened.Load() == 2 })
	close(gate)
	for range 20 {
		if a := <-done; !strings.Contains(a, `"content":[]`) {
			t.Errorf("failed: %s", a)
		}
	}
	if n := w.up.Opened.Load(); n != 2 {
		t.Errorf("%d handshakes", n)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{}, 10)
	w := newWorld(t, strings.Replace(crmPolicy(""), "    tools:", "    concurrency: 2\n    tools:", 1), crmTools, func(w *world) {
		w.vault.Set("env://WRITER", "secret-of-the-writer")
		w.up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			entered <- struct{}{}
			<-gate
			return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	bob := w.principal("corp", "bob", "team=ops")
	done := make(chan struct{})
	for range 5 {
		go func() { w.call(bob, "crm__get", ""); done <- struct{}{} }()
	}
	<-entered
	<-entered
	select {
	case <-entered:
		t.Error("a third call runs")
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	for range 5 {
		<-done
	}
}

// A call that waited for a slot is judged by the policy that holds when it gets one.
func TestDecidedAgainAfterWaiting(t *testing.T) {
	text := strings.Replace(crmPolicy("places"), "    tools:", "    concurrency: 1\n    tools:", 1)
	gate, entered := make(chan struct{}), make(chan struct{}, 2)
	w := newWorld(t, text, crmTools, func(w *world) {
		w.vault.Set("env://WRITER", "secret-of-the-writer")
		w.up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			entered <- struct{}{}
			<-gate
			return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	bob := w.principal("corp", "bob", "team=ops")
	first, second := make(chan *reply, 1), make(chan *reply, 1)
	go func() { first <- w.call(bob, "crm__get", "") }()
	<-entered
	go func() { second <- w.call(bob, "crm__get", "") }()
	time.Sleep(20 * time.Millisecond) // let it queue; if it does not, the test proves less but never fails wrongly
	r := compiled(t, strings.Replace(text, "capabilities: [read, write, wipe]", "capabilities: [write, wipe]", 1))
	w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	close(gate)
	<-first
	if outcome, code, _, _ := decision(t, (<-second).answer); outcome != "denied" || code != "no_grant_matches" {
		t.Errorf("%s %s", outcome, code)
	}
	if n := w.up.Called.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A yes is for what was asked: when the policy changed while the person thought, the new policy rules.
func TestDecidedAgainAfterAsking(t *testing.T) {
	var w *world
	asked := 0
	meanwhile := func() {}
	w = crmWorld(t, "places", func(w *world) {
		w.approve = asking(func() bool { asked++; meanwhile(); return true })
	})
	bob := w.principal("corp", "bob", "team=ops")
	if r := w.call(bob, "crm__wipe", ""); !strings.Contains(string(r.answer), `"content":[]`) || asked != 1 {
		t.Errorf("asked %d times: %s", asked, r.answer)
	}
	meanwhile = func() {
		r := compiled(t, strings.Replace(crmPolicy("places"), "capabilities: [read, write, wipe]", "capabilities: [read]", 1))
		w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	}
	if outcome, code, _, _ := decision(t, w.call(bob, "crm__wipe", "").answer); outcome != "denied" || code != "no_grant_matches" || asked != 2 {
		t.Errorf("asked %d times: %s %s", asked, outcome, code)
	}
	if n := w.up.Called.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

type asking func() bool

func (a asking) Ask(context.Context, gateway.Question) (bool, error) { return a(), nil }

// An id is free as soon as its answer is out, also while the outcome is still being recorded.
func TestAnIDIsFreeWithItsAnswer(t *testing.T) {
	w := crmWorld(t, "")
	bob := w.principal("corp", "bob", "team=ops")
	s := gateway.NewConnection()
	in := func(rq *gateway.Request) { rq.Era, rq.Session = mcp.Legacy, s }
	again := &reply{}
	first := &answering{reply: &reply{}}
	first.then = func() {
		m := new(jsonrpc.Message)
		if err := m.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get"}}`), jsonrpc.Limits{}); err != nil {
			t.Error(err)
		}
		rq := &gateway.Request{Message: m, Surface: gateway.OverStdio, Principal: bob}
		in(rq)
		w.g.Handle(context.Background(), rq, again)
	}
	m := new(jsonrpc.Message)
	if err := m.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get"}}`), jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	rq := &gateway.Request{Message: m, Surface: gateway.OverStdio, Principal: bob}
	in(rq)
	w.g.Handle(context.Background(), rq, first)
	if !strings.Contains(string(again.answer), `"content":[]`) {
		t.Errorf("the id was not free: %s", again.answer)
	}
}

// answering does something as soon as the answer is out.
type answering struct {
	*reply
	then func()
}

func (a *answering) Answer(status int, parts ...[]byte) {
	a.reply.Answer(status, parts...)
	a.then()
}

func TestSubscriptionsListen(t *testing.T) {
	w := crmWorld(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bob := w.principal("corp", "bob", "team=ops")
	sink := &stream{events: make(chan string, 10), answers: make(chan string, 1)}
	m := new(jsonrpc.Message)
	if err := m.Scan([]byte(`{"jsonrpc":"2.0","id":"s1","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},`+modernMeta+`}}`), jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	go w.g.Handle(ctx, &gateway.Request{Message: m, Era: mcp.Modern, Surface: gateway.OverHTTP, Principal: bob}, sink)
	want := func(text string) {
		t.Helper()
		select {
		case got := <-sink.events:
			if got != text {
				t.Errorf("got %s\nwant %s", got, text)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("no %s", text)
		}
	}
	want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"s1"}}}`)
	r := compiled(t, strings.Replace(crmPolicy(""), "      - { name: put, capability: write }\n", "", 1))
	w.g.Declare(r.Policy, r.Document, "v2", w.in.Lock)
	want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s1"}}}`)
	w.g.Drain()
	if got := <-sink.answers; got != `{"jsonrpc":"2.0","id":"s1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s1"}}}` {
		t.Errorf("the end: %s", got)
	}
}

type stream struct {
	events  chan string
	answers chan string
}

func (s *stream) Event(m []byte) { s.events <- string(m) }
func (s *stream) Answer(_ int, parts ...[]byte) {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	s.answers <- string(b)
}
func (s *stream) Begin(*gateway.ClientSession) {}

// Whoever has no credential cannot fill the audit: beyond a budget failures are counted, and the count is told.
func TestStrangersHaveABudget(t *testing.T) {
	w := crmWorld(t, "")
	for range 1000 {
		if _, problem := w.g.Authenticate(context.Background(), gateway.Credential{}); problem != principals.CredentialMissing {
			t.Fatal(problem)
		}
	}
	if n := len(w.audit.records(t)); n != 100 {
		t.Errorf("%d records of 1000 failures in a second", n)
	}
	w.advance(time.Second)
	w.g.Authenticate(context.Background(), gateway.Credential{})
	records := w.audit.records(t)
	if got := records[len(records)-1]["detail"]; len(records) != 101 || got != "900 more since the last of these were counted and not recorded" {
		t.Errorf("%d records, the last says %v", len(records), got)
	}
}

// One principal's calls are bounded, whatever its sessions; nobody else is held up by them.
func TestOnePrincipalsRunningCallsAreBounded(t *testing.T) {
	gate := make(chan struct{})
	var once sync.Once
	w := crmWorld(t, "", func(w *world) {
		w.up.Handler = func(_ context.Context, target gateway.Target, _ *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			if target.Principal == "corp:bob" {
				<-gate
			}
			return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	defer once.Do(func() { close(gate) })
	bob, eva := w.principal("corp", "bob", "team=ops"), w.principal("corp", "eva", "team=ops")
	done := make(chan *reply, 512)
	for range 512 {
		go func() { done <- w.call(bob, "crm__get", "") }()
	}
	eventually(t, func() bool { return w.up.Called.Load() == 512 })
	more := make(chan *reply, 1)
	go func() { more <- w.call(bob, "crm__get", "") }()
	select {
	case r := <-more:
		if outcome, _, _, _ := decision(t, r.answer); outcome != "busy" {
			t.Errorf("one more: %s", outcome)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("one more is called")
	}
	if r := w.call(eva, "crm__get", ""); !strings.Contains(string(r.answer), `"content":[]`) {
		t.Errorf("somebody else: %s", r.answer)
	}
	once.Do(func() { close(gate) })
	for range 512 {
		<-done
	}
	if r := w.call(bob, "crm__get", ""); !strings.Contains(string(r.answer), `"content":[]`) {
		t.Errorf("afterwards: %s", r.answer)
	}
}

// A call that was decided before the policy left a place does not dial it any more.
func TestAnOldSnapshotDialsNothing(t *testing.T) {
	var w *world
	meanwhile := func() {}
	w = crmWorld(t, "places", func(w *world) { w.realAudit = interrupting{w.audit, func() { meanwhile() }} })
	moved := compiled(t, strings.Replace(crmPolicy("places"), "127.0.0.1:1/mcp", "127.0.0.1:2/mcp", 1))
	// Between the decision and the session stands the record of the intent.
	meanwhile = func() { w.g.Declare(moved.Policy, moved.Document, "v2", w.in.Lock) }
	r := w.call(w.principal("corp", "bob", "team=ops"), "crm__get", "")
	if outcome, _, _, _ := decision(t, r.answer); outcome != "upstream_failed" || w.up.Opened.Load() != 0 {
		t.Errorf("%s, opened %d times", outcome, w.up.Opened.Load())
	}
}

// interrupting lets something happen after each intent is recorded.
type interrupting struct {
	*journal
	then func()
}

func (i interrupting) Intend(ctx context.Context, r *gateway.Record) error {
	err := i.journal.Intend(ctx, r)
	i.then()
	return err
}
