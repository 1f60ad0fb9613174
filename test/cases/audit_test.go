package cases_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// X22: the audit holds names, sizes, digests and outcomes. Whatever stands in arguments is in none of its bytes, nor in what goes to
// stderr; a record is one line, whatever a name holds; only its owner may read it.
func TestX22AuditHoldsNoArguments(t *testing.T) {
	const (
		token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJDQU5BUlktSldUIn0.c2lnbmF0dXJl"
		large = 5 << 20
	)
	plain := "CANARY-PLAIN-0123456789"
	encoded := base64.StdEncoding.EncodeToString([]byte("CANARY-ENCODED-0123456789"))
	arguments := map[string]string{
		"names of secrets": `{"apiKey":"` + plain + `","PASSWORD":"` + plain + `","deep":[[{"Authorization":"Bearer ` + plain + `"}]]}`,
		"free text":        `{"note":"please use ` + token + ` to log in"}`,
		"base64":           `{"blob":"` + encoded + `"}`,
		"a name":           `{"` + plain + `":1}`,
		"5 MiB":            `{"big":"` + strings.Repeat(plain, large/len(plain)+1) + `"}`,
	}
	h := newHouse(t)
	s := h.http("srv", upstream.Config{Tools: append(tools("srv", "t"), builtin(t, "fail"))}, "t", "fail")
	g := h.start("--max-body", "8388608", "--audit", "stderr")
	eras(func(modern bool) {
		c := rig.NewClient(t, g.URL, key, modern)
		for name, a := range arguments {
			if len(a) > large && !modern {
				continue // once is enough
			}
			before := len(settled(t, h.audit()))
			if r := call(t, c, "srv__t", a); r.Text() != "server=srv tool=t" {
				t.Fatalf("%s: %.200s", name, r.Message)
			}
			got := settled(t, h.audit())[before:]
			if len(got) != 2 || got[1]["event"] != "finish" || got[1]["outcome"] != "invoked" || got[1]["argument_bytes"] != float64(len(a)) {
				t.Fatalf("%s: recorded %v", name, got)
			}
			if digest, _ := got[1]["arguments"].(string); len(digest) < 32 {
				t.Errorf("%s: no digest: %v", name, got[1])
			}
			if len(a) < large {
				call(t, c, "srv__fail", a)
				call(t, c, "srv__absent", a)
			}
		}
		// Names that would end a line, colour it, turn it round, or forge a record.
		for _, name := range []string{"a\nb", "a\r\n{\"event\":\"intent\"}", "\x1b[31mred\x1b[0m", "\u009b31m", "a\u2028b\u2029", "\u202egnp", "\x00", strings.Repeat("long", 10_000)} {
			before := len(settled(t, h.audit()))
			call(t, c, name, `{"x":"`+plain+`"}`)
			if got := records(t, h.audit())[before:]; len(got) != 1 || got[0]["outcome"] != "unknown_tool" {
				t.Errorf("%q: recorded %v", name, got)
			}
		}
	})
	g.Stop(t)
	text, err := os.ReadFile(h.audit())
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"the audit": string(text), "stderr": g.Stderr.String()} {
		for _, secret := range []string{plain, token, "CANARY", encoded[:20], base64.StdEncoding.EncodeToString([]byte(plain))[:20], key} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s holds %s: …%s…", where, secret, text[max(0, at-100):min(len(text), at+100)])
			}
		}
		for _, r := range []string{"\x1b", "\u009b", "\u2028", "\u202e", "\x00", "\r"} {
			if strings.Contains(text, r) {
				t.Errorf("%s holds %q as it is", where, r)
			}
		}
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "}\n") || !json.Valid([]byte(line)) || len(line) > 4096 {
			t.Errorf("no record on a line of its own, %d bytes: %.300s", len(line), line)
		}
	}
	if s.Calls("t") == 0 {
		t.Error("nothing was called")
	}
	if runtime.GOOS != "windows" {
		for _, path := range []string{h.audit(), h.audit() + ".key"} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v: %v", info, err)
			}
		}
	}
	if r := rig.Run(t, rig.Env(t), rig.Patience, binary, "audit", "verify", h.audit()); r.Code != 0 {
		t.Errorf("audit verify: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// X22: equal arguments have equal digests, which tell nobody without the key what they were: another house's are others.
func TestX22DigestsAreKeyed(t *testing.T) {
	digests := func() []string {
		h := newHouse(t)
		h.http("srv", upstream.Config{Tools: tools("srv", "t")})
		c := rig.NewClient(t, h.start().URL, key, true)
		for _, a := range []string{`{"pin":"1234"}`, `{"pin":"1234"}`, `{"pin":"1235"}`} {
			call(t, c, "srv__t", a)
		}
		var out []string
		for _, r := range settled(t, h.audit()) {
			if r["event"] == "finish" {
				out = append(out, r["arguments"].(string))
			}
		}
		return out
	}
	a, b := digests(), digests()
	if len(a) != 3 || a[0] != a[1] || a[0] == a[2] || slices.Contains(b, a[0]) {
		t.Errorf("%q and %q", a, b)
	}
}

// X22: when a record cannot be written the call is not made, and the client is told so.
func TestX22NoRecordNoCall(t *testing.T) {
	full := "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("this platform has no device that is always full")
	}
	h := newHouse(t)
	s := h.http("srv", upstream.Config{Tools: tools("srv", "t")})
	h.start().Stop(t)
	stderr, err := os.OpenFile(full, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	for name, sinks := range map[string][]string{"the only sink": nil, "one of two sinks": {"--audit", "file:" + h.audit(), "--audit", "stderr"}} {
		// The first of two records before the second fails: that intent is closed as one that never left.
		cmd := exec.CommandContext(deadline(t), binary, append([]string{"serve", h.policy(), "--stdio"}, sinks...)...)
		cmd.Env, cmd.Stderr = rig.Env(t, keyEnv), stderr
		cmd.Stdin = strings.NewReader(rig.Message("1", "tools/call", `"name":"srv__t","arguments":{}`, "", true) + "\n")
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), `"outcome":"audit_unavailable"`) || s.Calls("t") != 0 {
			t.Errorf("%s: %v, answered %s, %d calls went up", name, err, out, s.Calls("t"))
		}
	}
	if r := rig.Run(t, rig.Env(t), rig.Patience, binary, "audit", "verify", h.audit()); r.Code != 0 {
		t.Errorf("audit verify: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func builtin(t *testing.T, name string) upstream.Tool {
	t.Helper()
	tool, err := upstream.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}
