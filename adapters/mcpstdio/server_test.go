//go:build unix

package mcpstdio_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"aduana/adapters/mcpstdio"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
)

const housePolicy = `version: 1
capabilities:
  - { id: use, risk: read }
  - { id: more, risk: read }
upstreams:
  - id: fake
    transport: { kind: mcp-stdio, command: COMMAND, args: ARGS }
    account: none
    tools:
      - { name: echo, capability: use }
      - { name: sleep, capability: use }
      - { name: progress, capability: use }
      - { name: dump, capability: more }
accounts: []
principals:
  issuers:
    - { id: local, kind: static-key }
grants:
  - { to: { issuer: local }, capabilities: [GRANTED] }
`

type anyArguments struct{}

func (anyArguments) Validate(context.Context, capabilities.Digest, []byte, []byte) error { return nil }

type noApprovals struct{}

func (noApprovals) Ask(context.Context, gateway.Question) (bool, error) {
	return false, gateway.ErrUnassigned
}

// front is a gateway behind one stdio connection, and the client's ends of it.
type front struct {
	t       testing.TB
	g       *gateway.Gateway
	audit   *gatewaytest.Audit
	in      *io.PipeWriter
	lines   *bufio.Scanner
	ended   chan error
	stop    context.CancelFunc
	key     atomic.Value
	declare func(granted string)
}

// house policy over an upstream; nil is a fake in memory.
func newGateway(t testing.TB, up gateway.Upstream, command string, args []string) (*gateway.Gateway, *gatewaytest.Audit, func(string)) {
	t.Helper()
	compiler, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	compile := func(granted string) policy.Result {
		list, _ := json.Marshal(args)
		c, _ := json.Marshal(command)
		text := strings.NewReplacer("COMMAND", string(c), "ARGS", string(list), "GRANTED", granted).Replace(housePolicy)
		r := compiler.Compile([]byte(text), policy.Options{Origin: "policy"})
		if r.Policy == nil {
			t.Fatalf("the policy does not compile: %.300s", fmt.Sprint(r.Diagnostics))
		}
		return r
	}
	r := compile("use")
	var locked assembly.LockedUpstream
	locked.Binding = assembly.BindingOf(&r.Policy.Upstreams[0]).Digest()
	var real map[string]string
	if up != nil {
		real = definitions(t, up, r.Policy)
	}
	var raw []string
	for _, name := range []string{"echo", "sleep", "progress", "dump"} {
		definition := `{"name":"` + name + `","description":"d","inputSchema":{"type":"object"}}`
		if up != nil {
			definition = real[name]
		}
		raw = append(raw, definition)
		l, err := assembly.Accept("fake", assembly.Observe([]byte(definition)), capabilities.NoVerdict, "test", "2026-01-01T00:00:00Z")
		if err != nil {
			t.Fatal(err)
		}
		locked.Tools = append(locked.Tools, l)
	}
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{"fake": locked}, Digest: "sha256:test"}
	if up == nil {
		fake := &gatewaytest.Upstream{Handler: fakeTool}
		fake.SetTools("fake", raw...)
		up = fake
	}
	audit := &gatewaytest.Audit{}
	g := gateway.New(gateway.Config{
		Clock:         time.Now,
		Authenticator: gatewaytest.Keys{"good": principals.Presented{Issuer: "local", Subject: "ana"}},
		Usage:         &gatewaytest.Usage{},
		Credentials:   &gatewaytest.Vault{},
		Audit:         audit,
		Schemas:       anyArguments{},
		Approvals:     noApprovals{},
		Upstreams:     map[policy.Transport]gateway.Upstream{policy.TransportStdio: up},
		Random:        func(b []byte) { rand.Read(b) },
		Log:           slog.New(slog.DiscardHandler),
		Product:       mcp.Implementation{Name: "aduana", Version: "test"},
		ArgumentKey:   []byte("a key for tests, 32 bytes long!!"),
		ListTTL:       time.Minute,
	}, assembly.Input{Policy: r.Policy, Document: r.Document, Version: "v1", Lock: lock})
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, audit, func(granted string) {
		r := compile(granted)
		g.Declare(r.Policy, r.Document, "v-"+granted, lock)
	}
}

// fakeTool answers with the tool's name; sleep waits for its end, progress reports once.
func fakeTool(ctx context.Context, _ gateway.Target, c *gateway.UpstreamCall) ([]byte, gateway.Answer) {
	switch c.Name {
	case "sleep":
		<-ctx.Done()
		return nil, gateway.Answer{Failure: &gateway.Failure{Class: gateway.FailedCancelled, Detail: "cancelled"}}
	case "progress":
		if c.Progress != nil {
			var m jsonrpc.Message
			m.Scan([]byte("{\"jsonrpc\":\"2.0\",\n\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\n\"progress\":1}}"), jsonrpc.Limits{})
			c.Progress(&m)
		}
	}
	// As an upstream over HTTP may write it.
	return []byte("{\n  \"content\": [\r\n    {\"type\": \"text\", \"text\": \"" + c.Name + "\"}\n  ]\n}"), gateway.Answer{Sent: gateway.Answered}
}

// connect serves one client of g.
func connect(t testing.TB, change ...func(*mcpstdio.ServerOptions)) *front {
	t.Helper()
	g, audit, declare := newGateway(t, nil, "x", []string{})
	return connectTo(t, g, audit, declare, change...)
}

func connectTo(t testing.TB, g *gateway.Gateway, audit *gatewaytest.Audit, declare func(string), change ...func(*mcpstdio.ServerOptions)) *front {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	f := &front{t: t, g: g, audit: audit, in: inW, ended: make(chan error, 1), declare: declare}
	f.key.Store("good")
	o := mcpstdio.ServerOptions{Key: func() string { return f.key.Load().(string) }}
	for _, c := range change {
		c(&o)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.lines = bufio.NewScanner(outR)
	f.lines.Buffer(nil, 64<<20)
	go func() {
		f.ended <- mcpstdio.Serve(ctx, g, inR, outW, o)
		outW.Close()
	}()
	t.Cleanup(func() {
		stop()
		inW.Close()
		go io.Copy(io.Discard, outR)
		select {
		case <-f.ended:
		case <-time.After(5 * time.Second):
			t.Error("Serve did not return")
		}
	})
	return f
}

// send writes lines as they are.
func (f *front) send(lines ...string) {
	f.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(f.in, l+"\n"); err != nil {
			f.t.Fatal(err)
		}
	}
}

// next reads one line.
func (f *front) next() string {
	f.t.Helper()
	got := make(chan bool, 1)
	go func() { got <- f.lines.Scan() }()
	select {
	case ok := <-got:
		if !ok {
			f.t.Fatal("the output ended")
		}
		return f.lines.Text()
	case <-time.After(5 * time.Second):
		f.t.Fatal("no line came")
		return ""
	}
}

// want sends a line and compares what comes back.
func (f *front) want(line, want string) {
	f.t.Helper()
	f.send(line)
	f.wantNext(want)
}

func (f *front) wantNext(want string) {
	f.t.Helper()
	if got := f.next(); got != want {
		f.t.Errorf("got  %s\nwant %s", got, want)
	}
}

func modern(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + modernMeta + `}}`
}

const echoed = `{   "content": [      {"type": "text", "text": "echo"}   ] }`

func TestServerLegacy(t *testing.T) {
	f := connect(t)
	f.want(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"aduana","version":"test"}}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	f.want(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"p","result":{}}`)
	f.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if got := f.next(); !strings.Contains(got, `"name":"fake__echo"`) || strings.Contains(got, "dump") {
		t.Errorf("got %s", got)
	}
	// An id keeps its bytes, and a message of several lines becomes one.
	f.want(`{"jsonrpc":"2.0","id":"\u0061\u2028","method":"tools/call","params":{"name":"fake__echo"}}`,
		`{"jsonrpc":"2.0","id":"\u0061\u2028","result":`+echoed+`}`)
	f.want(`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"fake__echo"}}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"result":`+echoed+`}`)
	f.want(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fake__progress","_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`)
	if got := f.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":3,"result":`) {
		t.Errorf("got %s", got)
	}
	f.want(`{"jsonrpc":"2.0","id":4,"method":"resources/list"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"method not found: resources/list"}}`)

	f.declare("use, more")
	f.wantNext(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

func TestServerModern(t *testing.T) {
	f := connect(t)
	f.send(modern("1", "server/discover", ""))
	if got := f.next(); !strings.Contains(got, `"supportedVersions":["2026-07-28",`) {
		t.Errorf("got %s", got)
	}
	f.send(modern("2", "tools/call", `"name":"fake__echo"`))
	var flat bytes.Buffer
	json.Compact(&flat, []byte(f.next()))
	if want := `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"echo"}],"resultType":"complete"}}`; flat.String() != want {
		t.Errorf("got  %s\nwant %s", &flat, want)
	}
	f.want(`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"params._meta must hold io.modelcontextprotocol/clientCapabilities, an object"}}`)
	f.want(modern("4", "ping", ""), `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"method not found: ping"}}`)

	const of = `"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}`
	f.want(modern(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},`+of+`}}`)
	f.declare("use, more")
	f.wantNext(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + of + `}}`)
	// The same id again is refused, and that is not the end of the first one.
	f.want(modern(`"\u0073"`, "subscriptions/listen", `"notifications":{}`),
		`{"jsonrpc":"2.0","id":"\u0073","error":{"code":-32600,"message":"this id is of a request that still runs"}}`)
	f.g.Drain()
	f.wantNext(`{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete",` + of + `}}`)
	f.wantNext(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`)
}

func TestC08ServerRefusesWhatIsNoMessage(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__echo"}}]`, `null,"error":{"code":-32600,`},
		{"an empty batch", `[]`, `null,"error":{"code":-32600,`},
		{"a batch behind blanks", `   [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `null,"error":{"code":-32600,`},
		{"a byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `null,"error":{"code":-32600,`},
		{"no JSON", `hello`, `null,"error":{"code":-32700,`},
		{"half a message", `{"jsonrpc":"2.0","id":1,"method":`, `null,"error":{"code":-32700,`},
		{"no version", `{"id":1,"method":"ping"}`, `1,"error":{"code":-32600,`},
		{"a name in two spellings", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fake__echo","Name":"x"}}`, `7,"error":{"code":-32600,`},
		{"an id of null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `null,"error":{"code":-32600,`},
		{"a line that is too long", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("a", 2000) + `"}}`, `null,"error":{"code":-32600,"message":"the message is larger than 1000 bytes"`},
		{"a line that is far too long", strings.Repeat("a", 300_000), `null,"error":{"code":-32600,"message":"the message is larger than 1000 bytes"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := connect(t, func(o *mcpstdio.ServerOptions) { o.MaxFrame = 1000 })
			// What a client must not send, but may be ignored: an answer to nothing, a blank line.
			f.send(`{"jsonrpc":"2.0","id":99,"result":{}}`, "", " \r")
			f.send(c.line)
			if got := f.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+c.want) {
				t.Errorf("got %s", got)
			}
			f.want(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
			records := f.audit.Records()
			if len(records) != 1 || records[0].Outcome != gateway.Malformed || records[0].Principal.ID() != "local:ana" {
				t.Errorf("records: %+v", records)
			}
		})
	}
}

func TestServerAuthenticatesEveryRequest(t *testing.T) {
	f := connect(t)
	const refused = `"error":{"code":-31004,"message":"unauthenticated: `
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	f.want(ping, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	for _, key := range []string{"bad", ""} {
		f.key.Store(key)
		for _, l := range []string{ping, modern("1", "server/discover", ""), modern("1", "tools/call", `"name":"fake__echo"`),
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`} {
			f.send(l)
			if got := f.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,`+refused) {
				t.Errorf("%s\ngot %s", l, got)
			}
		}
		f.send(`[]`)
		if got := f.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":null,`+refused) {
			t.Errorf("got %s", got)
		}
	}
	f.key.Store("good")
	f.want(ping, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	for _, r := range f.audit.Records() {
		if r.Outcome != gateway.Unauthenticated {
			t.Errorf("record %+v", r)
		}
	}
}

// intents counts the calls that were let through.
func (f *front) intents() (n int) {
	for _, r := range f.audit.Records() {
		if r.Event == gateway.EventIntent {
			n++
		}
	}
	return n
}

func TestServerCancel(t *testing.T) {
	f := connect(t)
	// Right behind each other: the second must find the first, and nothing may answer it.
	for i := range 20 {
		f.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"\u0061%d","method":"tools/call","params":{"name":"fake__sleep"}}`, i),
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a%d"}}`, i))
		f.want(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	}
	for until := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		ends := 0
		for _, r := range f.audit.Records() {
			if r.Outcome == gateway.Cancelled {
				ends++
			}
		}
		if ends == 20 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d of 20 calls ended as cancelled", ends)
		}
	}
	before := f.intents()
	// A number is not the string that looks like it.
	f.send(`{"jsonrpc":"2.0","id":"5","method":"tools/call","params":{"name":"fake__sleep"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	for until := time.Now().Add(3 * time.Second); f.intents() == before && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // requests run beside each other: this one must have begun
	}
	f.want(`{"jsonrpc":"2.0","id":"5","method":"tools/call","params":{"name":"fake__echo"}}`,
		`{"jsonrpc":"2.0","id":"5","error":{"code":-32600,"message":"this id is of a request that still runs"}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"5"}}`)
	f.want(modern("8", "subscriptions/listen", `"notifications":{}`),
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":8}}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	f.want(`{"jsonrpc":"2.0","id":9,"method":"ping"}`, `{"jsonrpc":"2.0","id":9,"result":{}}`)
}

func TestServerLimits(t *testing.T) {
	f := connect(t, func(o *mcpstdio.ServerOptions) { o.MaxInFlight = 40; o.DrainWait = 50 * time.Millisecond })
	for i := range 16 {
		f.send(modern(fmt.Sprint(i), "subscriptions/listen", `"notifications":{}`))
		f.next()
	}
	f.want(modern("16", "subscriptions/listen", `"notifications":{}`),
		`{"jsonrpc":"2.0","id":16,"error":{"code":-31001,"message":"too many subscriptions on this connection; end one first"}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
	for until := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.send(modern(`"again"`, "subscriptions/listen", `"notifications":{}`))
		if got := f.next(); strings.Contains(got, "acknowledged") {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the place of a subscription that was cancelled is not free")
		}
	}
}

func TestServerEnds(t *testing.T) {
	t.Run("a client that sends and leaves gets its answers", func(t *testing.T) {
		g, _, _ := newGateway(t, nil, "x", []string{})
		var out bytes.Buffer
		in := modern("1", "tools/call", `"name":"fake__echo"`) + "\n" + modern("2", "subscriptions/listen", `"notifications":{}`) + "\n" +
			`{"jsonrpc":"2.0","id":3,"method":"ping"}` // no newline at the end
		err := mcpstdio.Serve(context.Background(), g, strings.NewReader(in), &out, mcpstdio.ServerOptions{Key: func() string { return "good" }})
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{`{"jsonrpc":"2.0","id":1,"result":`, `{"jsonrpc":"2.0","id":3,"result":{}}` + "\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in\n%s", want, &out)
			}
		}
	})
	t.Run("running calls end with the wait", func(t *testing.T) {
		f := connect(t, func(o *mcpstdio.ServerOptions) { o.DrainWait = 50 * time.Millisecond })
		f.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__sleep"}}`)
		f.in.Close()
		if got := f.next(); !strings.Contains(got, "cancelled") {
			t.Errorf("got %s", got)
		}
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
		f.ended <- nil
	})
	t.Run("a drain lets subscriptions end well", func(t *testing.T) {
		f := connect(t)
		f.send(modern("1", "subscriptions/listen", `"notifications":{}`))
		f.next()
		f.g.Drain()
		f.stop()
		f.wantNext(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
		f.next()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
		f.ended <- nil
	})
	t.Run("an output that fails ends the connection", func(t *testing.T) {
		g, _, _ := newGateway(t, nil, "x", []string{})
		in, w := io.Pipe()
		defer w.Close()
		broken := errors.New("broken")
		ended := make(chan error, 1)
		go func() {
			ended <- mcpstdio.Serve(context.Background(), g, in, failing{broken}, mcpstdio.ServerOptions{Key: func() string { return "good" }})
		}()
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__sleep"}}`+"\n"+`{"jsonrpc":"2.0","id":3,"method":"ping"}`+"\n")
		select {
		case err := <-ended:
			if !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("Serve goes on")
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// definitions asks the real upstream for the definitions of its tools, by name.
func definitions(t testing.TB, up gateway.Upstream, p *policy.Policy) map[string]string {
	t.Helper()
	s, err := up.Open(soon(), gateway.Target{Upstream: &p.Upstreams[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tools, err := s.Tools(soon())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, l := range tools {
		out[assembly.Observe(l.Raw).Name] = string(l.Raw)
	}
	return out
}

// The whole way: a client, the gateway, a child, over pipes on both sides, in the four combinations of eras.
func TestBothFaces(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era+" child", func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			program := h.target("-tools", "echo,sleep,progress,dump", "-era", era)
			var args []string
			for _, a := range program.Upstream.Args {
				args = append(args, a.Literal)
			}
			g, audit, declare := newGateway(t, mcpstdio.NewUpstream(h.opts), program.Upstream.Command, args)
			f := connectTo(t, g, audit, declare)
			const arguments = `{"n":12345678901234567890.50,"z":{"b":1,"a":2}}`
			q, _ := json.Marshal(arguments)
			f.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__echo","arguments":` + arguments + `}}`)
			if got := f.next(); !strings.Contains(got, `"text":`+string(q)) {
				t.Errorf("legacy client: %s", got)
			}
			f.send(modern("2", "tools/call", `"name":"fake__echo","arguments":`+arguments))
			if got := f.next(); !strings.Contains(got, `"text":`+string(q)) || !strings.Contains(got, `"resultType":"complete"`) {
				t.Errorf("modern client: %s", got)
			}
			f.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fake__progress","arguments":{"n":2},"_meta":{"progressToken":1}}}`)
			for i := range 2 {
				if got := f.next(); !regexp.MustCompile(fmt.Sprintf(`"progressToken":1,.*"progress":%d`, i+1)).MatchString(got) {
					t.Errorf("progress %d: %s", i+1, got)
				}
			}
			if got := f.next(); !strings.Contains(got, `"id":3`) || !strings.Contains(got, "done") {
				t.Errorf("after the progress: %s", got)
			}
		})
	}
}

// FuzzStdioServer: whatever a client sends, every line that comes back is one message, and nobody is answered more often than there
// were lines.
func FuzzStdioServer(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}` + "\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n",
		modern("1", "tools/call", `"name":"fake__echo"`) + "\r\n" + modern(`"\u0061"`, "server/discover", ""),
		modern("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`) + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		"[]\nnull\n\xff\n{\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__progress","_meta":{"progressToken":1}}}`,
		strings.Repeat("a", 5000) + "\n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
	} {
		f.Add([]byte(seed))
	}
	g, _, _ := newGateway(f, nil, "x", []string{})
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.Contains(in, []byte("sleep")) {
			return // waits for the end of the wait
		}
		var out bytes.Buffer
		err := mcpstdio.Serve(t.Context(), g, bytes.NewReader(in), &out,
			mcpstdio.ServerOptions{Key: func() string { return "good" }, MaxFrame: 4096, DrainWait: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		answers := 0
		for _, l := range strings.SplitAfter(out.String(), "\n") {
			if l == "" {
				continue
			}
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if !strings.HasSuffix(l, "\n") || json.Unmarshal([]byte(l), &m) != nil || strings.ContainsRune(l, '\r') {
				t.Fatalf("no message: %q", l)
			}
			if m.Method == "" {
				answers++
			}
		}
		if lines := bytes.Count(in, []byte{'\n'}) + 1; answers > lines {
			t.Fatalf("%d answers to %d lines", answers, lines)
		}
	})
}
