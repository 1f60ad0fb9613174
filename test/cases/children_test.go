package cases_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// C11: a child that floods its stderr, with and without newlines, answers all the same; what it writes is tagged with its upstream and
// holds no secret that it was given, by whatever way, in the log, in an error or in the audit.
func TestC11NoisyChildTellsNoSecret(t *testing.T) {
	const variable, argument = "CANARY-VARIABLE-0123", "CANARY-ARGUMENT-0123"
	h := newHouse(t)
	h.accounts, h.using = `{ id: acc, secret: { ref: "env://CREDENTIAL" }, for: [child, talker] }`, ", using: acc"
	h.stdio("child", `account: acc, env: { EXTRA: { ref: "env://EXTRA" } }`, []string{"noisy", "crash"},
		"-stderr", "it begins with "+upstream.Canary, "-era", "legacy")
	// An argument by reference cannot be written as a flag of the helper: a second child gets one, and prints it.
	h.add("talker", fmt.Sprintf(`{ kind: mcp-stdio, command: /bin/sh, args: ["-c", "echo \"got $0\" >&2; printf 'got %%s\\r' \"$0\" >&2; exit 1", { ref: "env://ARGUMENT" }] }`), "account: acc", "t")
	h.issuer = ", disclosure: places"
	policy := h.policy()
	// talker cannot be listed, so nothing is discovered: what is declared is taken from a catalogue.
	catalogue := write(t, h.dir, "catalog.yaml", `tools:
  - { upstream: child, name: noisy, inputSchema: { type: object, properties: { cr: { type: boolean } } } }
  - { upstream: child, name: crash, inputSchema: { type: object, properties: {} } }
  - { upstream: talker, name: t, inputSchema: { type: object } }
`)
	env := rig.Env(t, keyEnv, "CREDENTIAL="+upstream.Canary, "EXTRA="+variable, "ARGUMENT="+argument)
	g := rig.Start(t, binary, env, policy, "--lock", catalogue, "--audit", "file:"+h.audit(), "--audit", "stderr")
	c := rig.NewClient(t, g.URL, key, true)
	var answers strings.Builder
	for _, arguments := range []string{`{}`, `{"cr":true}`, `{}`} {
		r := call(t, c, "child__noisy", arguments)
		if r.Text() != "noise made" {
			t.Errorf("%s: %s", arguments, r.Message)
		}
		answers.Write(r.Body)
	}
	r := call(t, c, "child__crash", `{}`)
	if outcome(r) != "outcome_unknown" {
		t.Errorf("a child that dies: %s", r.Message)
	}
	answers.Write(r.Body)
	if r = call(t, c, "talker__t", `{}`); outcome(r) != "upstream_failed" {
		t.Errorf("a child that ends at once: %s", r.Message)
	}
	answers.Write(r.Body)
	g.Stop(t)
	audit, err := os.ReadFile(h.audit())
	if err != nil {
		t.Fatal(err)
	}
	said := g.Stderr.String()
	for where, text := range map[string]string{"the client's answers": answers.String(), "stderr": said, "the audit": string(audit)} {
		for _, secret := range []string{upstream.Canary, variable, argument, "CANARY"} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s holds %s: …%s…", where, secret, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
	// The end of what a dead child wrote is kept, tagged and bounded: three quarters of a MiB came.
	for _, want := range []string{"nnn [redacted]", "got [redacted]", "upstream=child", "upstream=talker"} {
		if !strings.Contains(said, want) {
			t.Errorf("stderr has no %q:\n%.3000s", want, said)
		}
	}
	if len(said) > 300_000 {
		t.Errorf("%d bytes on stderr", len(said))
	}
}

// C12: when a child dies under calls each of them ends at once, as something whose outcome is not known and that was not repeated; the
// next call gets a new child.
func TestC12DeathOfAChildIsToldAndHealed(t *testing.T) {
	for _, way := range []string{"crash", "closeout"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			record := filepath.Join(h.dir, "record")
			h.stdio("child", "", []string{"hang", "pid", way}, "-record", record)
			g := h.start()
			c := rig.NewClient(t, g.URL, key, true)
			first := call(t, c, "child__pid", `{}`).Text()
			ended := make(chan rig.Response, 5)
			ask := func(tool string) {
				r, err := c.Call(deadline(t), tool, `{}`)
				if err != nil {
					t.Error(err)
				}
				ended <- r
			}
			for range 4 {
				go ask("child__hang")
			}
			hangs := func() int {
				n := 0
				all, err := upstream.ReadRecord(record)
				for _, m := range all {
					if m.Tool == "hang" {
						n++
					}
				}
				if err != nil {
					t.Error(err)
				}
				return n
			}
			eventually(t, "four calls hang", func() bool { return hangs() == 4 })
			started := time.Now()
			go ask("child__" + way)
			for range 5 {
				if r := <-ended; outcome(r) != "outcome_unknown" || !strings.Contains(string(r.Message), "not repeated") {
					t.Errorf("answered %s", r.Message)
				}
			}
			// Far below any timeout of a call; the house's own measure of a second is held nearer to the code.
			if took := time.Since(started); took > 10*time.Second {
				t.Errorf("the calls ended after %v", took)
			}
			second := call(t, c, "child__pid", `{}`).Text()
			if second == "" || second == first {
				t.Errorf("the next call was answered by %q, before by %q", second, first)
			}
			if n := hangs(); n != 4 {
				t.Errorf("%d calls to hang were sent, want 4", n)
			}
			pid, _ := strconv.Atoi(first)
			eventually(t, "the first child is gone", func() bool { return !rig.Alive(pid) })
		})
	}
}

// C13: a child of the real program gets a short fixed list of variables and what its upstream declares, with no shell's expansion; a
// reference that is not set starts nothing and is named without any value.
func TestC13TheProgramsEnvironmentStaysItsOwn(t *testing.T) {
	h := newHouse(t)
	h.stdio("child", `account: none, env: { TOKEN: { ref: "env://ONE_TOKEN" }, PLAIN: "p$a$$word ${HOME}" }`, []string{"printenv"})
	missing := filepath.Join(h.dir, "started")
	h.add("missing", fmt.Sprintf(`{ kind: mcp-stdio, command: /bin/sh, args: ["-c", "touch %s"] }`, missing), `account: none, env: { TOKEN: { ref: "env://NOT_SET" }, OTHER: { ref: "env://ONE_TOKEN" } }`, "t")
	h.issuer = ", disclosure: places"
	catalogue := write(t, h.dir, "catalog.yaml", `tools:
  - { upstream: child, name: printenv, inputSchema: { type: object, properties: {} } }
  - { upstream: missing, name: t, inputSchema: { type: object } }
`)
	env := rig.Env(t, keyEnv, "ONE_TOKEN=CANARY-ONE-TOKEN", "GATEWAY_SIGNING_KEY=CANARY1", "AWS_SECRET_ACCESS_KEY=CANARY2", "HTTPS_PROXY=http://u:CANARY3@p", "LD_LIBRARY_PATH=/CANARY4",
		"DYLD_INSERT_LIBRARIES=/CANARY5", "GODEBUG=", "SSH_AUTH_SOCK=/CANARY6", "LANG=C", "TZ=UTC")
	g := rig.Start(t, binary, env, h.policy(), "--lock", catalogue)
	c := rig.NewClient(t, g.URL, key, true)
	got := map[string]string{}
	for line := range strings.Lines(call(t, c, "child__printenv", `{}`).Text()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	for name, value := range got {
		switch name {
		case "PATH", "HOME", "LANG", "TZ", "TMPDIR", "TEMP", "TMP", "SystemRoot":
		case "TOKEN":
			if value != "CANARY-ONE-TOKEN" {
				t.Errorf("TOKEN is %q", value)
			}
		case "PLAIN":
			if value != "p$a$$word ${HOME}" {
				t.Errorf("PLAIN is %q", value)
			}
		default:
			t.Errorf("the child has %s=%s", name, value)
		}
	}
	if len(got["PATH"]) == 0 || got["TOKEN"] == "" || got["PLAIN"] == "" {
		t.Errorf("the child has only %q", got)
	}
	r := call(t, c, "missing__t", `{}`)
	if o := outcome(r); o != "credential_failed" || strings.Contains(string(r.Message), "CANARY") {
		t.Errorf("answered %s", r.Message)
	}
	// The operator is told which variable; no value is told to anybody.
	g.Stop(t)
	if said := g.Stderr.String(); !strings.Contains(said, "NOT_SET") || strings.Contains(said, "CANARY") {
		t.Errorf("the program said\n%s", said)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("it was started all the same")
	}
}

// X06: a server that writes nothing but a log is told as faulty, and is not started again for every call.
func TestX06NoStormOfStarts(t *testing.T) {
	h := newHouse(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	starts := filepath.Join(h.dir, "starts")
	h.add("babbler", command(self, babblerArg, starts), "", "t")
	catalogue := write(t, h.dir, "catalog.yaml", "tools:\n  - { upstream: babbler, name: t, inputSchema: { type: object } }\n")
	g := rig.Start(t, binary, rig.Env(t, keyEnv), h.policy(), "--lock", catalogue)
	c := rig.NewClient(t, g.URL, key, true)
	const calls = 40
	for range calls {
		if r := call(t, c, "babbler__t", `{}`); outcome(r) != "upstream_failed" {
			t.Errorf("answered %s", r.Message)
		}
	}
	text, err := os.ReadFile(starts)
	if err != nil {
		t.Fatal(err)
	}
	// Each attempt may start it twice, for it may have died of the first message. Back-off makes the attempts few.
	if n := len(text); n == 0 || n > calls/4 {
		t.Errorf("started %d times for %d calls", n, calls)
	}
}

// X08: an upstream that a reload takes away leaves no process behind, also when a shell stands between the gateway and the server; its
// tool is gone from list and call.
func TestX08ReloadLeavesNoSurvivors(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh here")
	}
	h := newHouse(t)
	program, args, err := upstream.Command("-tools", "pid,args", "-ignore-eof", "-name", `a&calc "C:\Dir With Space" %PATH% $HOME *`)
	if err != nil {
		t.Fatal(err)
	}
	s := h.http("stays", upstream.Config{Tools: tools("stays", "t")})
	without := h.policy()
	text, err := os.ReadFile(without)
	if err != nil {
		t.Fatal(err)
	}
	h.add("goes", command("/bin/sh", append([]string{"-c", `exec 3<&0; "$0" "$@" <&3 3<&- & wait`, program}, args...)...), "", "pid", "args")
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	pid, err := strconv.Atoi(call(t, c, "goes__pid", `{}`).Text())
	if err != nil || !rig.Alive(pid) {
		t.Fatalf("no process %d, %v", pid, err)
	}
	var argv []string
	if err := json.Unmarshal([]byte(call(t, c, "goes__args", `{}`).Text()), &argv); err != nil || strings.Join(argv[1:], "\x00") != strings.Join(args, "\x00") {
		t.Errorf("%v: the server got %q, want %q", err, argv, args)
	}
	write(t, h.dir, "policy.yaml", string(text))
	eventually(t, "the server is gone with its upstream", func() bool { return !rig.Alive(pid) })
	for _, name := range []string{"goes__pid", "goes__args"} {
		if r := call(t, c, name, `{}`); errorCode(r.Message) != -32602 {
			t.Errorf("%s answered %s", name, r.Message)
		}
	}
	reaches(t, c, "stays__t", s, "stays", "t")
	if got := c.List(t).Order; len(got) != 1 {
		t.Errorf("listed %q", got)
	}
}
