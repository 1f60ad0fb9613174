// Package cases_test answers one question: does each acceptance case, a fault that gateways really had, end as its right behaviour
// on the program as a whole?
//
// A test is named after its case (TestC08…, TestX22…) and covers the sentences that no test nearer to the code covers; docs/threats.md
// says which test proves what. It may not look inside: it knows the program by its command line, messages and files, or, where a clock
// or a small bound must be set, the gateway composed with its real adapters. Start reading at house below, then at names_test.go.
package cases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// binary is the program under test, built once. It is written by TestMain alone.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == babblerArg {
		os.Exit(babble(os.Args[2:]))
	}
	upstream.MainIfChild()
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "aduana-cases-")
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

// key is what the tests' one caller presents; it is nobody's secret.
const key = "a-key-of-the-tests-0123456789"

const keyEnv = "ADUANA_KEY=" + key

// house is a policy under construction, in a folder of its own, with everything that its one caller may use.
type house struct {
	t         *testing.T
	dir       string
	upstreams strings.Builder
	issuer    string // further members of the issuer
	risk      string // of all tools; "" = read
	accounts  string
	using     string
}

func newHouse(t *testing.T) *house { return &house{t: t, dir: t.TempDir()} }

// add declares an upstream; more is further YAML members in flow style.
func (h *house) add(id, transport, more string, tools ...string) {
	if more == "" {
		more = "account: none"
	}
	fmt.Fprintf(&h.upstreams, "  - { id: %s, transport: %s, %s, tools: [", id, transport, more)
	for i, tool := range tools {
		if i > 0 {
			h.upstreams.WriteString(", ")
		}
		fmt.Fprintf(&h.upstreams, "{ name: %s, capability: all.call }", rig.Quote(tool))
	}
	h.upstreams.WriteString("] }\n")
}

// http starts an upstream over HTTP and declares it. Without tools, all that it lists are mapped.
func (h *house) http(id string, cfg upstream.Config, tools ...string) *upstream.Server {
	h.t.Helper()
	if cfg.Name == "" {
		cfg.Name = id
	}
	s := upstream.New(cfg)
	h.t.Cleanup(func() { s.Close() })
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	if tools == nil {
		for _, tool := range cfg.Tools {
			tools = append(tools, tool.Name)
		}
	}
	h.add(id, fmt.Sprintf("{ kind: mcp-http, url: %q }", url), "", tools...)
	return s
}

// stdio declares an upstream that is a child of the gateway: the scriptable server with flags.
func (h *house) stdio(id, more string, tools []string, flags ...string) {
	h.t.Helper()
	program, args, err := upstream.Command(append(flags, "-tools", strings.Join(tools, ","), "-name", id)...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.add(id, command(program, args...), more, tools...)
}

func command(program string, args ...string) string {
	var quoted []string
	for _, a := range args {
		quoted = append(quoted, rig.Quote(a))
	}
	return fmt.Sprintf("{ kind: mcp-stdio, command: %s, args: [%s] }", rig.Quote(program), strings.Join(quoted, ", "))
}

// policy writes the policy and gives its path.
func (h *house) policy() string {
	h.t.Helper()
	risk := h.risk
	if risk == "" {
		risk = "read"
	}
	text := "version: 1\ncapabilities:\n  - { id: all.call, risk: " + risk + " }\nupstreams:\n" + h.upstreams.String() + "accounts: [" + h.accounts + "]\n" +
		"principals:\n  issuers:\n    - { id: local, kind: static-key, subject: ana, secret: { ref: \"env://ADUANA_KEY\" }" + h.issuer + " }\n" +
		"grants:\n  - { to: { issuer: local }, capabilities: [all.call]" + h.using + " }\n"
	return write(h.t, h.dir, "policy.yaml", text)
}

func (h *house) audit() string { return filepath.Join(h.dir, "audit.jsonl") }

// start serves the house over HTTP, and trusts what it finds.
func (h *house) start(args ...string) *rig.Gateway {
	h.t.Helper()
	return rig.Start(h.t, binary, rig.Env(h.t, keyEnv), append([]string{h.policy(), "--discover", "--audit", "file:" + h.audit()}, args...)...)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// deadline is a context that ends before the test's patience does.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	t.Cleanup(cancel)
	return ctx
}

// call calls a tool, which must be answered somehow.
func call(t *testing.T, c *rig.Client, tool, arguments string) rig.Response {
	t.Helper()
	r, err := c.Call(deadline(t), tool, arguments)
	if err != nil || r.Message == nil {
		t.Fatalf("calling %q: %v, status %d: %s", tool, err, r.Status, r.Body)
	}
	return r
}

// outcome is what a refusal says of itself, "" when the call succeeded or was a JSON-RPC error.
func outcome(r rig.Response) string {
	var v struct {
		Meta struct {
			Decision struct{ Outcome string } `json:"aduana/decision"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(r.Result(), &v)
	return v.Meta.Decision.Outcome
}

// errorCode is the code of a JSON-RPC error, 0 when there is none.
func errorCode(message []byte) int {
	var v struct{ Error struct{ Code int } }
	_ = json.Unmarshal(message, &v)
	return v.Error.Code
}

// records reads an audit file, each line as its members.
func records(t *testing.T, path string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in audit line %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// settled is records when no call is open any more: the answer may reach the client before the record of the outcome is written.
func settled(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	eventually(t, "every intent has its finish", func() bool {
		all = records(t, path)
		open := 0
		for _, r := range all {
			switch r["event"] {
			case "intent":
				open++
			case "finish":
				open--
			}
		}
		return open == 0
	})
	return all
}

// outcomes are the audit's outcomes, in order, from the n-th record on.
func outcomes(t *testing.T, path string, n int) []string {
	t.Helper()
	var out []string
	for _, r := range settled(t, path)[n:] {
		if o, ok := r["outcome"].(string); ok {
			out = append(out, o)
		}
	}
	return out
}

// eventually waits for something that the program does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(rig.Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

func names(tools []upstream.Tool) []string {
	var out []string
	for _, tool := range tools {
		out = append(out, tool.Name)
	}
	slices.Sort(out)
	return out
}

func eras(f func(modern bool)) {
	f(false)
	f(true)
}
