package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/adapters/memory"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
)

// world is a gateway with fakes around it, and what happened, in order.
type world struct {
	t        testing.TB
	g        *gateway.Gateway
	up       *gatewaytest.Upstream
	in       assembly.Input
	vault    *gatewaytest.Vault
	audit    *journal
	usage    gateway.Usage
	schemas  gateway.Schemas
	approve  gateway.Approvals
	now      time.Time
	mu       sync.Mutex
	pageSize int

	realAudit gateway.Audit // in place of the journal
	realClock gateway.Clock // in place of the one that stands still
}

// journal is an Audit that keeps the lines.
type journal struct {
	mu    sync.Mutex
	lines []string
	fail  map[gateway.Event]error
}

func (j *journal) put(r *gateway.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fail[r.Event]; err != nil {
		return err
	}
	j.lines = append(j.lines, string(r.AppendJSON(nil)))
	return nil
}

func (j *journal) Intend(_ context.Context, r *gateway.Record) error { return j.put(r) }
func (j *journal) Finish(_ context.Context, r *gateway.Record) error { return j.put(r) }
func (j *journal) Note(_ context.Context, r *gateway.Record) error   { return j.put(r) }

// records gives the lines decoded.
func (j *journal) records(t testing.TB) []map[string]any {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []map[string]any
	for _, l := range j.lines {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("record is not JSON: %v\n%s", err, l)
		}
		out = append(out, m)
	}
	return out
}

// anyArguments is a Schemas that everything fits, except arguments that hold "misfit".
type anyArguments struct{}

func (anyArguments) Validate(_ context.Context, _ capabilities.Digest, _, arguments []byte) error {
	if bytes.Contains(arguments, []byte("misfit")) {
		return &gateway.Violation{Pointer: "/misfit", Detail: "is not allowed"}
	}
	return nil
}

type answer struct {
	approved bool
	err      error
}

func (a answer) Ask(context.Context, gateway.Question) (bool, error) { return a.approved, a.err }

// compiled compiles a policy text, which must be free of errors.
func compiled(t testing.TB, text string) policy.Result {
	t.Helper()
	c, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	r := c.Compile([]byte(text), policy.Options{Origin: "policy"})
	if r.Policy == nil {
		t.Fatalf("policy does not compile: %+v", r.Diagnostics)
	}
	return r
}

// tool gives the raw bytes of a tool's definition.
func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"does %s","inputSchema":{"type":"object"}}`, name, name)
}

// locked accepts tools, as an operator would.
func locked(t testing.TB, p *policy.Policy, tools map[string][]string) assembly.Lock {
	t.Helper()
	l := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: "sha256:test"}
	for i := range p.Upstreams {
		u := &p.Upstreams[i]
		lu := assembly.LockedUpstream{Binding: assembly.BindingOf(u).Digest()}
		for _, raw := range tools[u.ID] {
			lt, err := assembly.Accept(capabilities.UpstreamID(u.ID), assembly.Observe([]byte(raw)), capabilities.NoVerdict, "test", "2026-01-01T00:00:00Z")
			if err != nil {
				t.Fatal(err)
			}
			lu.Tools = append(lu.Tools, lt)
		}
		l.Upstreams[capabilities.UpstreamID(u.ID)] = lu
	}
	return l
}

// newWorld builds a gateway for a policy. The upstreams list exactly what was accepted.
func newWorld(t testing.TB, text string, tools map[string][]string, change ...func(*world)) *world {
	t.Helper()
	r := compiled(t, text)
	w := &world{t: t, up: &gatewaytest.Upstream{}, vault: &gatewaytest.Vault{}, audit: &journal{fail: map[gateway.Event]error{}},
		usage: memory.New(), schemas: anyArguments{}, approve: answer{err: gateway.ErrUnassigned},
		now: time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)}
	w.in = assembly.Input{Policy: r.Policy, Document: r.Document, Version: "v1", Lock: locked(t, r.Policy, tools)}
	for id, list := range tools {
		w.up.SetTools(id, list...)
	}
	for _, f := range change {
		f(w)
	}
	var audit gateway.Audit = w.audit
	if w.realAudit != nil {
		audit = w.realAudit
	}
	clock := w.clock
	if w.realClock != nil {
		clock = w.realClock
	}
	w.g = gateway.New(gateway.Config{
		Clock:         clock,
		Authenticator: gatewaytest.Keys{},
		Usage:         w.usage,
		Credentials:   w.vault,
		Audit:         audit,
		Schemas:       w.schemas,
		Approvals:     w.approve,
		Upstreams:     map[policy.Transport]gateway.Upstream{policy.TransportHTTP: w.up, policy.TransportStdio: w.up},
		Random:        func(b []byte) { _, _ = rand.Read(b) },
		Log:           slog.New(slog.NewTextHandler(io.Discard, nil)),
		Product:       mcp.Implementation{Name: "aduana", Version: "test"},
		ArgumentKey:   []byte("a key for tests, 32 bytes long!!"),
		PageSize:      w.pageSize,
		ListTTL:       time.Minute,
	}, w.in)
	t.Cleanup(func() {
		if err := w.g.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// principal admits somebody by the current snapshot.
func (w *world) principal(issuer, subject string, attributes ...string) principals.Principal {
	w.t.Helper()
	p := principals.Presented{Issuer: principals.IssuerID(issuer), Subject: subject}
	for _, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		p.Attributes = append(p.Attributes, principals.Attribute{Name: name, Value: value})
	}
	out, _, problem := w.g.Snapshot().Issuers.Admit(p)
	if problem != principals.NoProblem {
		w.t.Fatalf("%s:%s is nobody: %s", issuer, subject, problem)
	}
	return out
}

// reply keeps what came back.
type reply struct {
	status int
	answer []byte
	events []string
	begun  *gateway.ClientSession
}

func (r *reply) Event(m []byte) { r.events = append(r.events, string(m)) }
func (r *reply) Answer(status int, parts ...[]byte) {
	if r.answer != nil {
		panic("answered twice")
	}
	r.status, r.answer = status, []byte{}
	for _, p := range parts {
		r.answer = append(r.answer, p...)
	}
}
func (r *reply) Begin(s *gateway.ClientSession) { r.begun = s }

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// ask sends one message for a principal over HTTP, in the modern era unless the request says otherwise.
func (w *world) ask(p principals.Principal, message string, change ...func(*gateway.Request)) *reply {
	w.t.Helper()
	return w.askCtx(context.Background(), p, message, change...)
}

func (w *world) askCtx(ctx context.Context, p principals.Principal, message string, change ...func(*gateway.Request)) *reply {
	w.t.Helper()
	m := new(jsonrpc.Message)
	if err := m.Scan([]byte(message), jsonrpc.Limits{}); err != nil {
		w.t.Fatalf("%v in %s", err, message)
	}
	rq := &gateway.Request{Message: m, Era: mcp.Modern, Surface: gateway.OverHTTP, Principal: p}
	for _, f := range change {
		f(rq)
	}
	r := &reply{}
	w.g.Handle(ctx, rq, r)
	return r
}

func (w *world) call(p principals.Principal, name, arguments string, change ...func(*gateway.Request)) *reply {
	w.t.Helper()
	if arguments != "" {
		arguments = `"arguments":` + arguments + `,`
	}
	n, _ := json.Marshal(name)
	return w.ask(p, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":`+string(n)+`,`+arguments+modernMeta+`}}`, change...)
}

func (w *world) list(p principals.Principal, change ...func(*gateway.Request)) []string {
	w.t.Helper()
	var names []string
	cursor := ""
	for {
		r := w.ask(p, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+cursor+modernMeta+`}}`, change...)
		var got struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor *string
			}
		}
		if err := json.Unmarshal(r.answer, &got); err != nil {
			w.t.Fatalf("%v in %s", err, r.answer)
		}
		if got.Result.Tools == nil {
			w.t.Fatalf("no list of tools in %s", r.answer)
		}
		for _, tool := range got.Result.Tools {
			names = append(names, tool.Name)
		}
		if got.Result.NextCursor == nil {
			return names
		}
		c, _ := json.Marshal(*got.Result.NextCursor)
		cursor = `"cursor":` + string(c) + `,`
	}
}
