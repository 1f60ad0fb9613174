package review_test

import (
	"strings"
	"testing"

	"aduana/assembly"
	"aduana/policy"
)

// base is the policy that the tables ask about. Lines are counted in expected places: change it with care.
const base = `version: 1
capabilities:
  - { id: crm.read, risk: read }
  - { id: crm.write, risk: write }
  - { id: crm.wipe, risk: destructive }
  - { id: bill.issue }
  - { id: idle }
upstreams:
  - id: crm
    transport: { kind: mcp-http, url: "https://crm.example/mcp" }
    tools:
      - { name: get, capability: crm.read }
      - { name: find, capability: crm.read }
      - { name: put, capability: crm.write }
      - { name: wipe, capability: crm.wipe }
  - id: bill
    transport: { kind: mcp-stdio, command: bill-server, args: [--safe] }
    tools:
      - { name: issue, capability: bill.issue }
accounts:
  - { id: ro, secret: { ref: "env://RO" } }
  - { id: rw, secret: { ref: "env://RW" } }
  - { id: ops, secret: { ref: "env://OPS" } }
  - { id: old, disabled: true, secret: { ref: "env://OLD" } }
principals:
  issuers:
    - id: corp
      kind: oidc
      attributes: { team: "claim:team", role: "claim:role", groups: { from: "claim:groups", many: true } }
    - id: ci
      kind: static-key
      subject: agent
      secret: { ref: "env://CI" }
      attributes: { role: automation }
grants:
  - to: { issuer: corp, attributes: { team: sales } }
    capabilities: [crm.read]
    using: ro
    limits: { calls: 500, per: 1h }
  - to: { issuer: corp, attributes: { team: sales, role: manager } }
    capabilities: [crm.write, crm.wipe]
    using: rw
  - to: { issuer: ci, attributes: { role: automation } }
    capabilities: [bill.issue]
    using: ops
    limits: [{ calls: 20, per: 24h }, { calls: 0, per: 7d, over: account }]
    until: 2026-06-01T00:00:00Z
  - to: { issuer: corp, attributes: { groups: audit } }
    capabilities: [bill.issue]
    using: old
    ask: always
  - to: { issuer: corp, attributes: { team: ops } }
    capabilities: [crm.read]
    using: ro
    from: 2026-01-01T00:00:00Z
    until: 2026-02-01T00:00:00Z
`

func compiler(t *testing.T) *policy.Compiler {
	t.Helper()
	c, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// input compiles a text and gives what it is assembled from, without a lock.
func input(t *testing.T, text string) assembly.Input {
	t.Helper()
	r := compiler(t).Compile([]byte(text), policy.Options{})
	if r.Policy == nil {
		t.Fatalf("the policy has errors: %+v\n%s", r.Diagnostics, text)
	}
	return assembly.Input{Policy: r.Policy, Document: r.Document, Label: "p", NoLock: true}
}

func snapshot(t *testing.T, text string) *assembly.Snapshot {
	t.Helper()
	return assembly.Assemble(input(t, text))
}

// edit replaces texts of the base, each of which stands there once.
func edit(t *testing.T, pairs ...string) string {
	t.Helper()
	text := base
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("%q stands %d times in the base", pairs[i], strings.Count(text, pairs[i]))
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}
