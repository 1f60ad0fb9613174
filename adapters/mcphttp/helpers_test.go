package mcphttp_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/adapters/mcphttp"
	"aduana/adapters/memory"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
	"aduana/test/upstream"
)

const (
	anaKey = "ana-0123456789abcdef"
	benKey = "ben-0123456789abcdef"
)

// keys is an authenticator whose keys can be taken away.
type keys struct {
	mu sync.Mutex
	by map[string]principals.Presented
}

func (k *keys) Authenticate(_ context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Bearer.Empty() {
		return principals.Presented{}, principals.CredentialMissing
	}
	p, ok := k.by[c.Bearer.Reveal()]
	if !ok {
		return principals.Presented{}, principals.CredentialInvalid
	}
	return p, principals.NoProblem
}

func (k *keys) revoke(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, key)
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func (j *lines) put(r *gateway.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, string(r.AppendJSON(nil)))
	return nil
}

func (j *lines) Intend(_ context.Context, r *gateway.Record) error { return j.put(r) }
func (j *lines) Finish(_ context.Context, r *gateway.Record) error { return j.put(r) }
func (j *lines) Note(_ context.Context, r *gateway.Record) error   { return j.put(r) }

func (j *lines) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.all, "\n")
}

type anyArguments struct{}

func (anyArguments) Validate(context.Context, capabilities.Digest, []byte, []byte) error { return nil }

type nobody struct{}

func (nobody) Ask(context.Context, gateway.Question) (bool, error) {
	return false, gateway.ErrUnassigned
}

const policyText = `
version: 1
capabilities:
  - { id: t.use, risk: read }
upstreams:
  - id: up
    transport: { kind: mcp-http, url: %q }
    %s
    tools: [%s]
principals:
  issuers:
    - { id: a, kind: static-key, subject: ana, secret: { ref: "env://A" } }
    - { id: b, kind: static-key, subject: ben, secret: { ref: "env://B" } }
accounts:
  - { id: acc, secret: { ref: "env://ACC" } }
grants:
  - { to: { issuer: a }, capabilities: [t.use]%s }
`

// house is a gateway behind a real HTTP face.
type house struct {
	g     *gateway.Gateway
	s     *mcphttp.Server
	keys  *keys
	audit *lines
	in    assembly.Input
	url   string
	addr  string
}

func compiled(t testing.TB, text string) policy.Result {
	t.Helper()
	c, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	r := c.Compile([]byte(text), policy.Options{})
	if r.Policy == nil {
		t.Fatalf("%+v\n%s", r.Diagnostics, text)
	}
	return r
}

func definition(name string) string {
	return `{"name":` + string(jsonrpc.AppendString(nil, name)) + `,"inputSchema":{"type":"object"}}`
}

func input(t testing.TB, url string, tools ...string) assembly.Input {
	t.Helper()
	var mapped []string
	for _, n := range tools {
		mapped = append(mapped, fmt.Sprintf("{ name: %q, capability: t.use }", n))
	}
	r := compiled(t, fmt.Sprintf(policyText, url, "account: none", strings.Join(mapped, ", "), ""))
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: "sha256:test"}
	for i := range r.Policy.Upstreams {
		u := &r.Policy.Upstreams[i]
		l := assembly.LockedUpstream{Binding: assembly.BindingOf(u).Digest()}
		for _, n := range tools {
			lt, err := assembly.Accept(capabilities.UpstreamID(u.ID), assembly.Observe([]byte(definition(n))), capabilities.NoVerdict, "test", "2026-01-01T00:00:00Z")
			if err != nil {
				t.Fatal(err)
			}
			l.Tools = append(l.Tools, lt)
		}
		lock.Upstreams[capabilities.UpstreamID(u.ID)] = l
	}
	return assembly.Input{Policy: r.Policy, Document: r.Document, Version: "v1", Lock: lock}
}

// newHouse builds a gateway before an upstream and serves it by Run on a free port.
func newHouse(t testing.TB, up gateway.Upstream, in assembly.Input, o mcphttp.Options) *house {
	t.Helper()
	h := &house{audit: &lines{}, in: in, keys: &keys{by: map[string]principals.Presented{
		anaKey: {Issuer: "a", Subject: "ana"}, benKey: {Issuer: "b", Subject: "ben"}}}}
	h.g = gateway.New(gateway.Config{
		Clock: time.Now, Authenticator: h.keys, Usage: memory.New(), Credentials: &gatewaytest.Vault{}, Audit: h.audit,
		Schemas: anyArguments{}, Approvals: nobody{},
		Upstreams: map[policy.Transport]gateway.Upstream{policy.TransportHTTP: up},
		Random:    func(b []byte) { _, _ = rand.Read(b) }, Log: slog.New(slog.DiscardHandler),
		Product: mcp.Implementation{Name: "aduana", Version: "test"}, ArgumentKey: []byte("k"), ListTTL: time.Minute,
		CallTimeout: 5 * time.Second,
	}, in)
	if o.Health == nil {
		o.Health = func() mcphttp.Health { return mcphttp.Health{Version: "1.2.3", Policy: "abc"} }
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	h.s = mcphttp.NewServer(h.g, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	h.url = "http://" + h.addr
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := h.g.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func fakeHouse(t testing.TB, o mcphttp.Options, tools ...string) (*house, *gatewaytest.Upstream) {
	t.Helper()
	if len(tools) == 0 {
		tools = []string{"echo"}
	}
	up := &gatewaytest.Upstream{}
	var raw []string
	for _, n := range tools {
		raw = append(raw, definition(n))
	}
	up.SetTools("up", raw...)
	return newHouse(t, up, input(t, "http://127.0.0.1:1/mcp", tools...), o), up
}

// client is an HTTP client that follows nothing and keeps no connection beyond its test.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{Proxy: nil, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request makes a well-formed POST; change bends it.
func (h *house) request(t testing.TB, body string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", h.url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+anaKey)
	for _, f := range change {
		f(r)
	}
	return r
}

func set(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
func add(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Add(k, v) } }
func del(k string) func(*http.Request)    { return func(r *http.Request) { r.Header.Del(k) } }
func to(path string) func(*http.Request) {
	return func(r *http.Request) {
		u, err := url.Parse("http://" + r.URL.Host + path)
		if err != nil {
			panic(err)
		}
		r.URL = u
	}
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   string
}

func do(t testing.TB, c *http.Client, r *http.Request) answer {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modern makes a modern body, and the change that gives its headers.
func modern(method, params string) (string, func(*http.Request)) {
	var p struct{ Name string }
	_ = json.Unmarshal([]byte("{"+params+"}"), &p)
	sep := ""
	if params != "" {
		sep = ","
	}
	if strings.Contains(params, `"_meta"`) {
		sep = ""
	} else {
		params += sep + meta
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`, func(r *http.Request) {
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		if p.Name != "" {
			r.Header.Set("Mcp-Name", mcp.EncodeHeader(p.Name))
		}
	}
}

// begin starts a legacy session.
func (h *house) begin(t testing.TB, c *http.Client, change ...func(*http.Request)) string {
	t.Helper()
	a := do(t, c, h.request(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, change...))
	if a.status != 200 || a.header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize: %d %v %s", a.status, a.header, a.body)
	}
	return a.header.Get("Mcp-Session-Id")
}

func errorCode(body string) int {
	var b struct{ Error struct{ Code int } }
	if json.Unmarshal([]byte(body), &b) != nil {
		return 0
	}
	return b.Error.Code
}

// serve starts a scripted upstream.
func serve(t testing.TB, cfg upstream.Config) (*upstream.Server, string) {
	t.Helper()
	s := upstream.New(cfg)
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, url
}

// target makes a target for an upstream declared with more YAML after its url.
func target(t testing.TB, url, more string) gateway.Target {
	t.Helper()
	using := ", using: acc"
	if more == "" {
		more, using = "account: none", ""
	}
	r := compiled(t, fmt.Sprintf(policyText, url, more, `{ name: "echo", capability: t.use }`, using))
	return gateway.Target{Upstream: &r.Policy.Upstreams[0]}
}

func newUpstream(t testing.TB, o mcphttp.UpstreamOptions) *mcphttp.Upstream {
	u := mcphttp.NewUpstream(o)
	t.Cleanup(u.Close)
	return u
}

func open(t testing.TB, url string) (gateway.UpstreamSession, *mcphttp.Upstream) {
	t.Helper()
	u := newUpstream(t, mcphttp.UpstreamOptions{ProbeTimeout: 300 * time.Millisecond})
	return openTarget(t, u, target(t, url, "")), u
}

func openTarget(t testing.TB, u *mcphttp.Upstream, at gateway.Target) gateway.UpstreamSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := u.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// call is one call and what came of it.
type call struct {
	gateway.Answer
	response *jsonrpc.Message
	progress []string
}

func (c call) text() string { return string(c.response.Raw) }

func (c call) class() gateway.FailureClass {
	if c.Failure == nil {
		return ""
	}
	return c.Failure.Class
}

func callCtx(t testing.TB, ctx context.Context, s gateway.UpstreamSession, params string, progress bool, max int) call {
	t.Helper()
	rq := new(jsonrpc.Message)
	if err := rq.Scan([]byte(`{"jsonrpc":"2.0","id":"client","method":"tools/call","params":`+params+`}`), jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
	var p struct{ Name string }
	if err := json.Unmarshal([]byte(params), &p); err != nil {
		t.Fatal(err)
	}
	c := call{response: new(jsonrpc.Message)}
	up := &gateway.UpstreamCall{Request: rq, Name: p.Name, Response: c.response, MaxBytes: max}
	if progress {
		up.Progress = func(n *jsonrpc.Message) { c.progress = append(c.progress, string(n.Raw)) }
	}
	c.Answer = s.Call(ctx, up)
	return c
}

func callTool(t testing.TB, s gateway.UpstreamSession, params string) call {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return callCtx(t, ctx, s, params, true, 1<<20)
}

func failureOf(t testing.TB, err error) *gateway.Failure {
	t.Helper()
	var f *gateway.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v is no *Failure", err)
	}
	return f
}
