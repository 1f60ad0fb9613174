package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aduana/adapters/auditfile"
	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// TestMustShow4EveryFlippedByteIsFound: a small log of the real program verifies, and with a byte of it changed, whichever, it does
// not.
func TestMustShow4EveryFlippedByteIsFound(t *testing.T) {
	echo, err := upstream.Builtin("echo")
	if err != nil {
		t.Fatal(err)
	}
	s := upstream.New(upstream.Config{Tools: []upstream.Tool{echo, upstream.Named("s", "other")}})
	t.Cleanup(func() { s.Close() })
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	policy := write(t, dir, "policy.yaml", fmt.Sprintf(`version: 1
capabilities: [{ id: s.echo, risk: read }, { id: s.other }]
upstreams:
  - id: s
    transport: { kind: mcp-http, url: %q }
    account: none
    tools: [{ name: echo, capability: s.echo }, { name: other, capability: s.other }]
accounts: []
%s
grants: [{ to: { issuer: local }, capabilities: [s.echo] }]
`, url, issuer))
	audit := filepath.Join(dir, "audit.jsonl")
	g := rig.Start(t, binary, rig.Env(t, keyEnv), policy, "--discover", "--audit", "file:"+audit)
	for _, modern := range []bool{false, true} {
		c := rig.NewClient(t, g.URL, key, modern)
		if r, err := c.Call(deadline(t), "s__echo", `{"text":"hello"}`); err != nil || r.Text() != "hello" {
			t.Errorf("echo: %v, %s", err, r.Body)
		}
		if r, err := c.Call(deadline(t), "s__other", `{}`); err != nil || r.Error() == nil && !strings.Contains(string(r.Result()), `"isError":true`) {
			t.Errorf("what is not granted was not refused: %v, %s", err, r.Body)
		}
	}
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d: %s", code, g.Stderr.String())
	}
	if n := s.Calls("other"); n != 0 {
		t.Errorf("%d calls of a tool that is not granted reached the upstream", n)
	}

	log := records(t, audit)
	for _, x := range []struct {
		want    int
		members map[string]string
	}{
		{2, map[string]string{"event": "intent", "identity": "mcp:s:echo"}},
		{2, map[string]string{"event": "finish", "identity": "mcp:s:echo", "outcome": "invoked"}},
		{2, map[string]string{"event": "note", "identity": "mcp:s:other", "outcome": "denied", "code": "no_grant_matches"}},
		{1, map[string]string{"event": "note", "outcome": "started"}},
		{1, map[string]string{"event": "note", "outcome": "stopped"}},
	} {
		if n := count(log, x.members); n != x.want {
			t.Errorf("the audit has %d records with %v, want %d", n, x.members, x.want)
		}
	}
	if r := verifies(t, audit); r.Code != 0 {
		t.Errorf("audit verify: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	whole, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := auditfile.Verify(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		bit := i % 8
		whole[i] ^= 1 << bit
		if _, err := auditfile.Verify(bytes.NewReader(whole)); !auditfile.IsBroken(err) {
			t.Fatalf("bit %d of byte %d of %d was flipped, and nobody saw: %v", bit, i, len(whole), err)
		}
		whole[i] ^= 1 << bit
	}
	// The program says the same as the function, at the ends and between.
	for _, i := range []int{0, 1, len(whole) / 3, len(whole) / 2, len(whole) - 2, len(whole) - 1} {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		if r := verifies(t, write(t, t.TempDir(), "changed.jsonl", string(changed))); r.Code != 1 || !strings.Contains(r.Stdout, "BROKEN at line ") {
			t.Errorf("byte %d was changed: exit %d\n%s%s", i, r.Code, r.Stdout, r.Stderr)
		}
	}
	// Without any one of its lines but the last, too.
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	for i := range len(lines) - 1 {
		without := strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "") + "\n"
		if _, err := auditfile.Verify(strings.NewReader(without)); !auditfile.IsBroken(err) {
			t.Errorf("line %d is missing, and nobody saw: %v", i+1, err)
		}
	}
	// Somebody who knows the format changes a line and seals it anew: the line after it says so.
	for i := range len(lines) - 1 {
		body, _, ok := strings.Cut(strings.Replace(lines[i], `"at":"20`, `"at":"30`, 1), `,"hash":"`)
		if !ok {
			t.Fatalf("line %d has no hash: %s", i+1, lines[i])
		}
		forged := fmt.Sprintf("%s,\"hash\":\"%x\"}\n", body, sha256.Sum256([]byte(body)))
		text := strings.Join(lines[:i], "") + forged + strings.Join(lines[i+1:], "") + "\n"
		var broken *auditfile.Broken
		if _, err := auditfile.Verify(strings.NewReader(text)); !errors.As(err, &broken) || broken.Line != int64(i+2) {
			t.Errorf("line %d was forged, and line %d does not say so: %v", i+1, i+2, err)
		}
	}
}
