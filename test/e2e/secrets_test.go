package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// leakyArg as first argument makes this test binary the stdio child of the test here: a server that does everything with its
// credential that it should not.
const leakyArg = "e2e-leaky"

func leakyChild(args []string) int {
	if err := os.WriteFile(args[0], []byte(strings.Join(os.Environ(), "\n")), 0o600); err != nil {
		return 1
	}
	credential := os.Getenv("MCP_UPSTREAM_CREDENTIAL")
	fmt.Fprintln(os.Stderr, "starting with credential "+credential)
	s := upstream.New(upstream.Config{Eras: upstream.LegacyOnly, Die: func() { os.Exit(1) }, Tools: []upstream.Tool{
		upstream.Named("child", "fine"),
		{Name: "dies", Handler: func(_ context.Context, c *upstream.Call) {
			fmt.Fprintln(os.Stderr, "dying with "+credential)
			c.Emit([]byte("no message, but " + credential))
			c.Die()
		}},
	}})
	defer s.Close()
	s.Serve(context.Background(), os.Stdin, os.Stdout)
	return 0
}

// canary is a made-up secret with the places where it may be, and must be, seen.
type canary struct {
	value string
	at    []string
}

// TestC23SecretsStayWhereTheyBelong: every key, credential, header and argument of a busy run is looked for in everything that the
// program wrote, answered and sent. Each must be where it belongs, so that a search that finds nothing proves something.
func TestC23SecretsStayWhereTheyBelong(t *testing.T) {
	secret := func(name string) string { return "CANARY-" + name + "-5f3a91c7d2" }
	canaries := map[string]*canary{}
	for name, at := range map[string][]string{
		"caller":    nil,
		"stranger":  nil, // a key that opens nothing
		"operator":  nil, // another issuer's key, in a file
		"cookie":    nil,
		"api-key":   nil,
		"forwarded": nil,
		"session":   nil,
		"agent":     nil,
		"one":       {"upstream one"},
		"one-proof": {"upstream one"},
		"two":       {"upstream two"},
		"broken":    {"upstream broken"},
		"refusing":  {"upstream refusing"},
		"child":     {"child"},
		"child-env": {"child"},
		"argument":  {"upstream three"},
		"meta":      {"upstream three"},
		"result":    {"client"},
		"toolerror": {"client"},
	} {
		canaries[name] = &canary{secret(name), at}
	}

	dir, kept := t.TempDir(), t.TempDir()
	childEnv := filepath.Join(kept, "environment")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]*upstream.Server{}
	listen := func(id string, cfg upstream.Config) string {
		cfg.Name = id
		s := upstream.New(cfg)
		t.Cleanup(func() { s.Close() })
		url, err := s.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		servers[id] = s
		return url
	}
	named := func(id string) []upstream.Tool { return []upstream.Tool{upstream.Named(id, "t")} }
	failing := func(status int) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if !strings.Contains(string(body), `"tools/call"`) {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Bearer error="`+r.Header.Get("Authorization")+`"`)
			http.Error(w, "you sent "+r.Header.Get("Authorization"), status)
			return true
		}
	}
	one := listen("one", upstream.Config{Tools: named("one"), RequireBearer: secret("one")})
	two := listen("two", upstream.Config{Tools: named("two"), Eras: upstream.LegacyOnly})
	three := listen("three", upstream.Config{Tools: []upstream.Tool{
		{Name: "t", Handler: func(_ context.Context, c *upstream.Call) { c.ReplyText("the result is " + secret("result")) }},
		{Name: "e", Handler: func(_ context.Context, c *upstream.Call) { c.ReplyToolError("it failed: " + secret("toolerror")) }},
	}})
	broken := listen("broken", upstream.Config{Tools: named("broken"), Hook: failing(http.StatusInternalServerError)})
	refusing := listen("refusing", upstream.Config{Tools: named("refusing"), Eras: upstream.LegacyOnly, Hook: failing(http.StatusUnauthorized)})
	absent := listen("absent", upstream.Config{Tools: named("absent")})

	policy := write(t, dir, "policy.yaml", fmt.Sprintf(`version: 1
capabilities: [{ id: c.one, risk: read }, { id: c.two, risk: read }, { id: c.three, risk: read }, { id: c.broken, risk: read },
  { id: c.refusing, risk: read }, { id: c.absent, risk: read }, { id: c.child, risk: read }]
upstreams:
  - { id: one, transport: { kind: mcp-http, url: %q }, account: one, headers: { X-Proof: { ref: "env://ONE_PROOF" } }, tools: [{ name: t, capability: c.one }] }
  - { id: two, transport: { kind: mcp-http, url: %q }, account: two, deliver: "header:X-Api-Key", tools: [{ name: t, capability: c.two }] }
  - { id: three, transport: { kind: mcp-http, url: %q }, account: none, tools: [{ name: t, capability: c.three }, { name: e, capability: c.three }] }
  - { id: broken, transport: { kind: mcp-http, url: %q }, account: broken, tools: [{ name: t, capability: c.broken }] }
  - { id: refusing, transport: { kind: mcp-http, url: %q }, account: refusing, tools: [{ name: t, capability: c.refusing }] }
  - { id: absent, transport: { kind: mcp-http, url: %q }, account: absent, tools: [{ name: t, capability: c.absent }] }
  - { id: child, transport: { kind: mcp-stdio, command: %q, args: [%q, %q] }, account: child, env: { EXTRA: { ref: "env://CHILD_ENV" } },
      tools: [{ name: fine, capability: c.child }, { name: dies, capability: c.child }] }
accounts:
  - { id: one, secret: { ref: "env://ONE" } }
  - { id: two, secret: { ref: "file://%s" } }
  - { id: broken, secret: { ref: "env://BROKEN" } }
  - { id: refusing, secret: { ref: "env://REFUSING" } }
  - { id: absent, secret: { ref: "file://%s" } }
  - { id: child, secret: { ref: "env://CHILD" } }
principals:
  issuers:
    - { id: local, kind: static-key, subject: ana, secret: { ref: "env://ADUANA_KEY" }, disclosure: places }
    - { id: ops, kind: static-key, subject: bob, secret: { ref: "file://%s" } }
grants:
  - { to: { issuer: local }, capabilities: [c.one, c.two, c.three, c.broken, c.refusing, c.absent, c.child] }
  - { to: { issuer: ops }, capabilities: [c.three] }
`, one, two, three, broken, refusing, absent, self, leakyArg, childEnv,
		write(t, kept, "two", secret("two")+"\n"), write(t, kept, "absent", "to-be-removed-before-the-call\n"), write(t, kept, "ops", secret("operator"))))
	env := rig.Env(t, "ADUANA_KEY="+secret("caller"), "ONE="+secret("one"), "ONE_PROOF="+secret("one-proof"), "BROKEN="+secret("broken"),
		"REFUSING="+secret("refusing"), "CHILD="+secret("child"), "CHILD_ENV="+secret("child-env"), "UNRELATED="+secret("agent"))
	audit := filepath.Join(dir, "audit.jsonl")
	g := rig.Start(t, binary, env, policy, "--discover", "--audit", "file:"+audit, "--audit", "stderr")
	if err := os.Remove(filepath.Join(kept, "absent")); err != nil {
		t.Fatal(err)
	}

	var answers strings.Builder // everything that clients got
	note := func(r rig.Response, err error) rig.Response {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintln(&answers, r.Status, r.Header)
		answers.Write(r.Body)
		return r
	}
	outcomes := map[string]string{"one__t": "", "two__t": "", "three__t": "", "three__e": "", "child__fine": "", "broken__t": "outcome_unknown",
		"refusing__t": "upstream_failed", "absent__t": "credential_failed", "child__dies": "outcome_unknown"}
	for _, modern := range []bool{false, true} {
		c := rig.NewClient(t, g.URL, secret("caller"), modern)
		c.Header = http.Header{"Cookie": {"s=" + secret("cookie")}, "X-Api-Key": {secret("api-key")}, "X-Forwarded-User": {secret("forwarded")},
			"X-Forwarded-For": {secret("forwarded")}, "Proxy-Authorization": {"Bearer " + secret("forwarded")}, "User-Agent": {secret("agent")}}
		if modern {
			c.Header["Mcp-Session-Id"] = []string{secret("session")}
		}
		for tool, outcome := range outcomes {
			arguments, meta := `{}`, ""
			if tool == "three__t" {
				arguments, meta = `{"password":"`+secret("argument")+`"}`, `"example.com/token":"`+secret("meta")+`"`
			}
			r := note(c.Ask(deadline(t), "tools/call", tool, `"name":`+rig.Quote(tool)+`,"arguments":`+arguments, meta))
			switch {
			case r.Result() == nil:
				t.Errorf("%s: status %d, %s", tool, r.Status, r.Body)
			case outcome != "" && !strings.Contains(string(r.Result()), `"outcome":"`+outcome+`"`):
				t.Errorf("%s ended with %s, want %s", tool, r.Result(), outcome)
			}
		}
		// Who puts the own credential into a message would have it forwarded.
		for _, params := range []string{`"name":"three__t","arguments":{"x":"` + secret("caller") + `"}`, `"name":"three__t","_meta":{"x":"Bearer ` + secret("caller") + `"}`} {
			if r := note(c.Send(deadline(t), "77", rig.Message("77", "tools/call", params, "", false), http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"three__t"}})); r.Status != http.StatusBadRequest {
				t.Errorf("a body with the caller's own key: status %d, %s", r.Status, r.Body)
			}
		}
		note(c.Call(deadline(t), "nothing__"+"here", `{}`))
		for _, wrong := range []string{secret("stranger"), secret("caller") + "x", ""} {
			stranger := &rig.Client{URL: g.URL, Key: wrong, Modern: modern}
			if r := note(stranger.Call(deadline(t), "one__t", `{}`)); r.Status != http.StatusUnauthorized {
				t.Errorf("a wrong key: status %d, %s", r.Status, r.Body)
			}
		}
		ops := rig.NewClient(t, g.URL, secret("operator"), modern)
		if r := note(ops.Call(deadline(t), "three__t", `{}`)); r.Text() == "" {
			t.Errorf("the other issuer may call three: %s", r.Body)
		}
		note(ops.Call(deadline(t), "one__t", `{}`))
	}
	query := &rig.Client{URL: g.URL + "?key=" + secret("stranger"), Key: secret("stranger")}
	note(query.Call(deadline(t), "one__t", `{}`))
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d", code)
	}

	// The stdio face, with the same calls in one era.
	stdio := rig.StartStdio(t, binary, env, policy, "--audit", "file:"+audit, "--audit", "stderr")
	serial := 0
	for tool := range outcomes {
		serial++
		id := fmt.Sprint(serial)
		answers.Write(stdio.Ask(t, id, rig.Message(id, "tools/call", `"name":`+rig.Quote(tool)+`,"arguments":{}`, "", true)))
	}
	stdio.Close(t)

	places := map[string]string{"client": answers.String(), "stdout": g.Stdout.String(), "stderr": g.Stderr.String() + stdio.Stderr.String()}
	for id, s := range servers {
		text, err := json.Marshal(s.Messages())
		if err != nil {
			t.Fatal(err)
		}
		places["upstream "+id] = string(text)
	}
	child, err := os.ReadFile(childEnv)
	if err != nil {
		t.Error(err)
	}
	places["child"] = string(child)
	// Everything beside the policy: the audit and its key, the lock and its definitions, and whatever nobody expects there.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		places["file "+filepath.Base(path)] = string(text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(places["file audit.jsonl"]) == 0 || len(places["file aduana.lock.yaml"]) == 0 || !strings.Contains(places["stderr"], `"event":"intent"`) {
		t.Errorf("something that the search is about is not there: %q", slices.Sorted(func(yield func(string) bool) {
			for k := range places {
				if !yield(k) {
					return
				}
			}
		}))
	}
	// Where the policy says something may be told, where it lies may not.
	for _, folder := range []string{dir, kept} {
		if at := strings.Index(places["client"], folder); at >= 0 {
			t.Errorf("clients are told a path of this machine: …%s…", places["client"][max(0, at-300):min(len(places["client"]), at+120)])
		}
	}
	for name, c := range canaries {
		encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(c.value)), "=")
		for place, text := range places {
			found := strings.Contains(text, c.value) || strings.Contains(text, encoded)
			if belongs := slices.Contains(c.at, place); found && !belongs {
				at := max(0, strings.Index(text, c.value))
				t.Errorf("the secret %s is in %s: …%s…", name, place, text[max(0, at-120):min(len(text), at+160)])
			} else if !found && belongs {
				t.Errorf("the secret %s is not in %s, where it belongs", name, place)
			}
		}
	}
	if r := verifies(t, audit); r.Code != 0 {
		t.Errorf("audit verify: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
