package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/access"
	"aduana/accounts"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/mcp"
)

const crm = `version: 1
capabilities:
  - { id: read, risk: read }
  - { id: write, risk: write }
  - { id: wipe, risk: destructive }
upstreams:
  - id: crm
    transport: { kind: mcp-http, url: "http://127.0.0.1:1/mcp" }
    tools:
      - { name: get, capability: read }
      - { name: put, capability: write }
      - { name: wipe, capability: wipe }
accounts:
  - { id: reader, secret: { ref: "env://READER" } }
  - { id: writer, secret: { ref: "env://WRITER" } }
principals:
  issuers:
    - id: corp
      kind: oidc
      attributes: { team: "claim:team" }
      DISCLOSURE
grants:
  - to: { issuer: corp, attributes: { team: sales } }
    capabilities: [read]
    using: reader
    limits: { calls: 5, per: 1m }
  - to: { issuer: corp, attributes: { team: ops } }
    capabilities: [read, write, wipe]
    using: writer
`

func crmPolicy(disclosure string) string {
	if disclosure != "" {
		disclosure = "disclosure: " + disclosure
	}
	return strings.Replace(crm, "DISCLOSURE", disclosure, 1)
}

var crmTools = map[string][]string{"crm": {tool("get"), tool("put"), tool("wipe")}}

func crmWorld(t testing.TB, disclosure string, change ...func(*world)) *world {
	w := newWorld(t, crmPolicy(disclosure), crmTools, change...)
	w.vault.Set("env://READER", "secret-of-the-reader")
	w.vault.Set("env://WRITER", "secret-of-the-writer")
	return w
}

// decision takes the outcome and code out of a result's _meta.
func decision(t *testing.T, answer []byte) (outcome, code, text, place string) {
	t.Helper()
	var got struct {
		Result struct {
			Content []struct{ Text string }
			IsError bool
			Meta    map[string]struct{ Outcome, Code, Place string } `json:"_meta"`
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Result.Content) != 1 || !got.Result.IsError {
		t.Fatalf("not a refusal: %v in %s", err, answer)
	}
	d := got.Result.Meta["aduana/decision"]
	return d.Outcome, d.Code, got.Result.Content[0].Text, d.Place
}

func TestCallOutcomes(t *testing.T) {
	slow := func(ctx context.Context, _ gateway.Target, _ *gateway.UpstreamCall) ([]byte, gateway.Answer) {
		<-ctx.Done()
		return nil, gateway.Answer{Sent: gateway.MaybeSent, Failure: &gateway.Failure{Class: gateway.FailedTimeout}}
	}
	failing := func(sent gateway.Sent, class gateway.FailureClass) func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
		return func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			return nil, gateway.Answer{Sent: sent, Failure: &gateway.Failure{Class: class, Detail: "crm"}}
		}
	}
	tests := []struct {
		name      string
		team      string
		tool      string
		arguments string
		change    func(*world)
		after     func(*world)
		outcome   string
		code      string
		says      string
		called    int64 // calls that reached the upstream
		sent      string
		givenBack bool
	}{
		{name: "a denied tool", team: "sales", tool: "crm__put", outcome: "denied", code: "no_grant_matches", says: "no grant gives"},
		{name: "arguments that misfit a destructive tool", team: "ops", tool: "crm__wipe", arguments: `{"misfit":1}`,
			outcome: "invalid_arguments", code: "granted", says: "/misfit"},
		{name: "a destructive tool and nobody to ask", team: "ops", tool: "crm__wipe", outcome: "ask_unavailable", code: "granted", says: "no way to ask"},
		{name: "a person says no", team: "ops", tool: "crm__wipe", change: func(w *world) { w.approve = answer{} }, outcome: "ask_refused", code: "granted"},
		{name: "nobody answers", team: "ops", tool: "crm__wipe", change: func(w *world) { w.approve = answer{err: gateway.ErrAskExpired} },
			outcome: "ask_expired", code: "granted"},
		{name: "the counters are down", team: "sales", tool: "crm__get", change: func(w *world) { w.usage = deadUsage{} },
			outcome: "denied", code: "usage_unknown", says: "not known"},
		{name: "the audit is down", team: "sales", tool: "crm__get",
			change:  func(w *world) { w.audit.fail[gateway.EventIntent] = errors.New("disk full") },
			outcome: "audit_unavailable", code: "granted", says: "not made"},
		{name: "the credential is missing", team: "sales", tool: "crm__get", after: func(w *world) { w.vault.Set("env://READER", "") },
			outcome: "credential_failed", code: "granted", says: "account reader", sent: "no", givenBack: true},
		{name: "the upstream is down", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.OpenError = func(gateway.Target) error {
				return &gateway.Failure{Class: gateway.FailedDial, Detail: "crm at 127.0.0.1:1"}
			}
		}, outcome: "upstream_failed", code: "granted", says: "dial", sent: "no", givenBack: true},
		{name: "the upstream answers with a status", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = failing(gateway.Answered, gateway.FailedStatus)
		}, outcome: "upstream_failed", code: "granted", says: "status", called: 1, sent: "yes"},
		{name: "the call never left", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = failing(gateway.NotSent, gateway.FailedDial)
		}, outcome: "upstream_failed", code: "granted", called: 1, sent: "no", givenBack: true},
		{name: "the upstream dies under the call", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = failing(gateway.MaybeSent, gateway.FailedExited)
		}, outcome: "outcome_unknown", code: "granted", says: "not repeated", called: 1, sent: "unknown"},
		{name: "no answer in time", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = slow
			w.in.Policy.Upstreams[0].Timeout = 20
		}, outcome: "outcome_unknown", code: "granted", says: "timeout", called: 1, sent: "unknown"},
		{name: "too large", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = failing(gateway.Answered, gateway.FailedTooLarge)
		}, outcome: "too_large", code: "granted", called: 1, sent: "yes"},
		{name: "an upstream that asks for input", team: "sales", tool: "crm__get", change: func(w *world) {
			w.up.Handler = func(context.Context, gateway.Target, *gateway.UpstreamCall) ([]byte, gateway.Answer) {
				return []byte(`{"resultType":"input_required","requestState":"x"}`), gateway.Answer{Sent: gateway.Answered}
			}
		}, outcome: "upstream_failed", code: "granted", says: "input_required", called: 1, sent: "yes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*world) {}
			}
			w := crmWorld(t, "places", change)
			if tt.after != nil {
				tt.after(w)
			}
			r := w.call(w.principal("corp", "ana", "team="+tt.team), tt.tool, tt.arguments)
			outcome, code, text, place := decision(t, r.answer)
			if outcome != tt.outcome || code != tt.code || !strings.Contains(text, tt.says) {
				t.Errorf("got %s, %s, %q; want %s, %s, %q", outcome, code, text, tt.outcome, tt.code, tt.says)
			}
			if !strings.HasPrefix(place, "policy:") {
				t.Errorf("no place: %q", place)
			}
			if got := w.up.Called.Load(); got != tt.called {
				t.Errorf("%d calls reached the upstream, want %d", got, tt.called)
			}
			records := w.audit.records(t)
			if len(records) == 0 {
				if tt.outcome == "audit_unavailable" {
					return
				}
				t.Fatal("no record")
			}
			last := records[len(records)-1]
			if last["outcome"] != tt.outcome {
				t.Errorf("recorded %v", last)
			}
			if tt.sent != "" && (last["sent"] != tt.sent || (last["given_back"] == true) != tt.givenBack || last["event"] != "finish") {
				t.Errorf("recorded %v, want sent %s, given back %t", last, tt.sent, tt.givenBack)
			}
			if tt.sent == "" && last["event"] != "note" {
				t.Errorf("recorded %v, want one note", last)
			}
			for _, m := range records {
				if s := fmt.Sprint(m); strings.Contains(s, "secret-of") {
					t.Errorf("a secret in a record: %s", s)
				}
			}
		})
	}
}

type deadUsage struct{ gateway.Usage }

func (deadUsage) Facts(context.Context, int64, []gateway.Demand) ([]access.Count, error) {
	return nil, errors.New("the store is gone")
}

func TestCallThatSucceeds(t *testing.T) {
	w := crmWorld(t, "", func(w *world) {
		w.up.Handler = func(_ context.Context, target gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			if target.Material.Secret.Reveal() != "secret-of-the-reader" || target.Account != "reader" || target.Principal != "corp:ana" || c.Name != "get" {
				t.Errorf("called as %v with account %s for %s by name %q", target.Material.Secret.Reveal(), target.Account, target.Principal, c.Name)
			}
			return []byte(`{"content":[{"type":"text","text":"hi"}],"n":12345678901234567890}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	r := w.call(w.principal("corp", "ana", "team=sales"), "crm__get", `{"id":1}`)
	const want = `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}],"n":12345678901234567890,"resultType":"complete"}}`
	if string(r.answer) != want || r.status != 200 {
		t.Errorf("%d\n got %s\nwant %s", r.status, r.answer, want)
	}
	rec := w.audit.records(t)
	if len(rec) != 2 || rec[0]["event"] != "intent" || rec[1]["event"] != "finish" || rec[0]["call"] != rec[1]["call"] {
		t.Fatalf("records: %v", rec)
	}
	for name, want := range map[string]any{"principal": "corp:ana", "identity": "mcp:crm:get", "asked": "crm__get", "capability": "read", "code": "granted",
		"pointer": "/grants/0", "account": "reader", "risk": "read", "consent": "enabled", "outcome": "invoked", "sent": "yes", "surface": "http", "era": "modern",
		"argument_bytes": 8.0} {
		if rec[1][name] != want {
			t.Errorf("record %s is %v, want %v", name, rec[1][name], want)
		}
	}
	if ceilings := fmt.Sprint(rec[1]["ceilings"]); !strings.Contains(ceilings, "calls:5") || !strings.Contains(ceilings, "per:1m") {
		t.Errorf("ceilings recorded as %s", ceilings)
	}
}

// Only the account that the decision named is resolved, and only after the record of the intent.
func TestCredentialAfterIntent(t *testing.T) {
	w := crmWorld(t, "places", func(w *world) { w.audit.fail[gateway.EventIntent] = errors.New("no") })
	w.call(w.principal("corp", "ana", "team=sales"), "crm__get", "")
	w.call(w.principal("corp", "ana", "team=sales"), "crm__put", "")
	if asked := w.vault.Asked(); len(asked) != 0 {
		t.Fatalf("a credential was resolved without a record: %v", asked)
	}
	delete(w.audit.fail, gateway.EventIntent)
	w.call(w.principal("corp", "ana", "team=sales"), "crm__get", "")
	if asked := w.vault.Asked(); !slices.Equal(asked, []accounts.Reference{"env://READER"}) {
		t.Errorf("resolved %v", asked)
	}
}

func TestSlidingCeiling(t *testing.T) {
	w := crmWorld(t, "places")
	ana := w.principal("corp", "ana", "team=sales")
	for range 5 {
		w.call(ana, "crm__get", "")
	}
	_, code, text, place := decision(t, w.call(ana, "crm__get", "").answer)
	if code != "limit_exhausted" || !strings.Contains(text, "2026-05-03T12:01:00Z") || !strings.HasPrefix(place, "policy:23:5") {
		t.Errorf("%s %q %s", code, text, place)
	}
	w.advance(59_999 * time.Millisecond)
	if _, code, _, _ = decision(t, w.call(ana, "crm__get", "").answer); code != "limit_exhausted" {
		t.Errorf("one millisecond early: %s", code)
	}
	w.advance(time.Millisecond)
	if r := w.call(ana, "crm__get", ""); !strings.Contains(string(r.answer), `"content":[]`) {
		t.Errorf("there is room again, but: %s", r.answer)
	}
	if got := w.up.Called.Load(); got != 6 {
		t.Errorf("%d calls", got)
	}
}

// C24: whatever the interleaving, the upstream sees exactly what the ceiling lets through.
func TestC24ExactCeilingUnderConcurrency(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		w := crmWorld(t, "codes")
		ana := w.principal("corp", "ana", "team=sales")
		var ready, done sync.WaitGroup
		gate := make(chan struct{})
		var ok, refused atomic.Int64
		for i := range 64 {
			ready.Add(1)
			done.Go(func() {
				// One tool by its two spellings: the whole house and its own endpoint.
				scoped := i%2 == 1
				ready.Done()
				<-gate
				var r *reply
				if scoped {
					r = w.call(ana, "get", "", func(rq *gateway.Request) { rq.Scope = "crm" })
				} else {
					r = w.call(ana, "crm__get", "")
				}
				if strings.Contains(string(r.answer), "limit_exhausted") {
					refused.Add(1)
				} else if strings.Contains(string(r.answer), `"content":[]`) {
					ok.Add(1)
				}
			})
		}
		ready.Wait()
		close(gate)
		done.Wait()
		if got := w.up.Called.Load(); got != 5 || ok.Load() != 5 || refused.Load() != 59 {
			t.Fatalf("round %d: %d calls, %d allowed, %d refused", round, got, ok.Load(), refused.Load())
		}
	}
}

// Must show 11: under disclosure by codes nobody learns whether a thing is hidden, withheld or absent.
func TestHiddenWithheldAndAbsentAnswerAlike(t *testing.T) {
	world := func(lists ...string) *world {
		w := crmWorld(t, "codes")
		if lists != nil {
			w.up.SetTools("crm", lists...)
			// A call to a tool that is granted shows what the upstream lists now.
			w.call(w.principal("corp", "bob", "team=ops"), "crm__get", "")
		}
		return w
	}
	changed := `{"name":"put","description":"does put","inputSchema":{"type":"object","required":["x"]}}`
	withheld := world(tool("get"), changed, tool("wipe"))
	if tl, _ := withheld.g.Snapshot().Lookup("", "crm__put"); tl == nil || tl.Withheld != "definition_changed" {
		t.Fatalf("the tool should be withheld: %+v", tl)
	}
	absent := newWorld(t, strings.Replace(crmPolicy("codes"), "      - { name: put, capability: write }\n", "", 1),
		map[string][]string{"crm": {tool("get"), tool("wipe")}})
	for _, arguments := range []string{"", `{}`, `{"misfit":1}`, `null`, `[]`, `"x"`} {
		for _, scope := range []struct{ upstream, name string }{{"", "crm__put"}, {"crm", "put"}} {
			in := func(rq *gateway.Request) { rq.Scope = capabilities.UpstreamID(scope.upstream) }
			hidden := world()
			answers := map[string]string{
				"hidden":   string(hidden.call(hidden.principal("corp", "ana", "team=sales"), scope.name, arguments, in).answer),
				"withheld": string(withheld.call(withheld.principal("corp", "ana", "team=sales"), scope.name, arguments, in).answer),
				"absent":   string(absent.call(absent.principal("corp", "ana", "team=sales"), scope.name, arguments, in).answer),
			}
			if answers["hidden"] != answers["absent"] || answers["withheld"] != answers["absent"] {
				t.Errorf("arguments %s on %q differ: %v", arguments, scope.upstream, answers)
			}
			if strings.Contains(answers["absent"], "decision") {
				t.Errorf("a decision id tells that there was one: %s", answers["absent"])
			}
		}
	}
	// Granted, but withheld: also as if it did not exist, for the caller who may use it.
	r := withheld.call(withheld.principal("corp", "bob", "team=ops"), "crm__put", "")
	a := absent.call(absent.principal("corp", "bob", "team=ops"), "crm__put", "")
	if string(r.answer) != string(a.answer) {
		t.Errorf("withheld from its own users:\n%s\n%s", r.answer, a.answer)
	}
	if n := withheld.up.Called.Load(); n != 1 {
		t.Errorf("%d calls reached the upstream, want the first alone", n)
	}
}

func TestMalformedCallsSendNothing(t *testing.T) {
	w := crmWorld(t, "places")
	bob := w.principal("corp", "bob", "team=ops")
	for name, message := range map[string]string{
		"no params":              `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		"no name":                `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`,
		"a name that is no text": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`,
		"arguments null":         `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get","arguments":null}}`,
		"arguments a list":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get","arguments":[]}}`,
		"arguments a text":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get","arguments":"x"}}`,
		"state never given":      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__get","requestState":"x"}}`,
		"an unknown name":        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__nope"}}`,
		"the raw name":           `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get"}}`,
		"an identity as a name":  `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp:crm:get"}}`,
	} {
		r := w.ask(bob, message)
		if !strings.Contains(string(r.answer), `"error":{"code":-32602,`) {
			t.Errorf("%s: %s", name, r.answer)
		}
	}
	if n := w.up.Opened.Load() + w.up.Called.Load(); n != 0 {
		t.Errorf("%d things reached the upstream", n)
	}
}

// C19: absent and empty arguments are the same to an upstream, inner nulls are kept.
func TestC19Arguments(t *testing.T) {
	var got []string
	w := crmWorld(t, "", func(w *world) {
		w.up.Handler = func(_ context.Context, _ gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
			b, err := mcp.AppendCall(nil, c.Request, mcp.CallSpec{Era: mcp.Legacy, ID: 1, Name: c.Name})
			if err != nil {
				t.Error(err)
			}
			got = append(got, string(b))
			return []byte(`{"content":[]}`), gateway.Answer{Sent: gateway.Answered}
		}
	})
	bob := w.principal("corp", "bob", "team=ops")
	w.call(bob, "crm__get", "")
	w.call(bob, "crm__get", "{}")
	w.call(bob, "crm__get", `{"a":null,"b":{"c":null}}`)
	want := []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{"a":null,"b":{"c":null}}}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the upstream got\n%s", strings.Join(got, "\n"))
	}
}
