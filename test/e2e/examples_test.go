package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
)

// TestExampleOfRealServers: what the example's README says about its policy, without any server.
func TestExampleOfRealServers(t *testing.T) {
	policy := filepath.Join("..", "..", "examples", "npm", "policy.yaml")
	if r := rig.Run(t, rig.Env(t), rig.Patience, binary, "validate", policy); r.Code != 0 || !strings.Contains(r.Stdout, "no findings") {
		t.Errorf("validate: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, x := range []struct{ issuer, capability, want string }{
		{"laptop", "files.write", "no_grant_matches"},
		{"maintainer", "files.write", "granted"},
		{"laptop", "files.read", "granted"},
	} {
		r := rig.Run(t, rig.Env(t), rig.Patience, binary, "explain", policy, "--issuer", x.issuer, "--subject", "me", "--capability", x.capability)
		if !strings.Contains(r.Stdout, x.want) {
			t.Errorf("explain %s for %s: exit %d\n%s%s, want %s", x.capability, x.issuer, r.Code, r.Stdout, r.Stderr, x.want)
		}
	}
}
