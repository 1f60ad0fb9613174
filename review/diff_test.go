package review_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/access"
	"aduana/review"
)

// told puts a change into one line.
func told(c review.Change) string {
	side := func(s review.Side) string {
		switch {
		case c.Kind == review.Trust && s.Place == "":
			return "-"
		case c.Kind == review.Trust:
			return s.Value
		case !s.Declared:
			return "unmapped"
		case s.Code == "":
			return "nobody"
		case s.Code != access.Granted:
			return string(s.Code)
		}
		return fmt.Sprintf("%s %v ask=%d/%s", s.Account, s.Ceilings, s.Ask, s.State)
	}
	if c.Kind == review.Trust {
		return fmt.Sprintf("trust %s %s: %s → %s", c.Subject, c.Aspect, side(c.Before), side(c.After))
	}
	fixed := ""
	if c.Witness.Fixed {
		fixed = "!"
	}
	at := ""
	if c.At > 1_000_000_000_000 {
		at = " " + time.UnixMilli(c.At).UTC().Format("2006-01-02T15:04:05.000")
	}
	return fmt.Sprintf("%s %s %s%s%s: %s → %s", c.Kind, strings.Join(c.Identities, ","), c.Witness, fixed, at, side(c.Before), side(c.After))
}

func TestDiffStories(t *testing.T) {
	const (
		read     = "mcp:crm:find,mcp:crm:get"
		sales    = "  - to: { issuer: corp, attributes: { team: sales } }\n    capabilities: [crm.read]\n    using: ro\n    limits: { calls: 500, per: 1h }\n"
		managers = "  - to: { issuer: corp, attributes: { team: sales, role: manager } }\n    capabilities: [crm.write, crm.wipe]\n    using: rw\n"
		before   = " 2025-12-31T23:59:59.999"
	)
	for name, c := range map[string]struct {
		edit []string
		want []string
	}{
		"nothing":              {nil, nil},
		"another order":        {[]string{sales + managers, managers + sales}, nil},
		"60m is 1h":            {[]string{"calls: 500, per: 1h", "calls: 500, per: 60m"}, nil},
		"24h is 1d":            {[]string{"calls: 20, per: 24h", "calls: 20, per: 1d"}, nil},
		"comments":             {[]string{"grants:\n", "# nobody else\ngrants:\n"}, nil},
		"a grant twice":        {[]string{managers, managers + managers}, nil},
		"two grants for one":   {[]string{managers, strings.Replace(managers, ", crm.wipe", "", 1) + strings.Replace(managers, "crm.write, ", "", 1)}, nil},
		"a description is not": {[]string{"- { id: idle }", "- { id: idle, description: nothing }"}, nil},
		"a grant is added": {[]string{sales, sales + "  - to: { issuer: corp, attributes: { team: buying } }\n    capabilities: [crm.read]\n    using: ro\n"},
			[]string{"new-access " + read + " corp [team=buying]: no_grant_matches → ro [] ask=1/enabled"}},
		"a grant is taken away": {[]string{managers, ""}, []string{
			"lost-access mcp:crm:put corp [role=manager team=sales]: rw [] ask=1/enabled → no_grant_matches",
			"lost-access mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → no_grant_matches"}},
		"a selector is narrowed": {[]string{sales, strings.Replace(sales, "team: sales", "team: sales, role: clerk", 1)},
			[]string{"lost-access " + read + " corp [team=sales]" + before + ": ro [500 per 1h over principal] ask=1/enabled → no_grant_matches"}},
		"a selector is widened": {[]string{managers, strings.Replace(managers, ", role: manager", "", 1)}, []string{
			"new-access mcp:crm:put corp [team=sales]" + before + ": no_grant_matches → rw [] ask=1/enabled",
			"new-access mcp:crm:wipe corp [team=sales]" + before + ": no_grant_matches → rw [] ask=1/ask"}},
		"another account": {[]string{managers, strings.Replace(managers, "using: rw", "using: ro", 1)}, []string{
			"account mcp:crm:put corp [role=manager team=sales]: rw [] ask=1/enabled → ro [] ask=1/enabled",
			"account mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → ro [] ask=1/ask"}},
		"an account is disabled": {[]string{"{ id: rw,", "{ id: rw, disabled: true,"}, []string{
			"lost-access mcp:crm:put corp [role=manager team=sales]: rw [] ask=1/enabled → account_disabled",
			"lost-access mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → account_disabled"}},
		"a ceiling is raised": {[]string{"calls: 20,", "calls: 25,"},
			[]string{"ceiling mcp:bill:issue ci [role=automation]!: ops [0 per 7d over account 20 per 1d over principal] ask=1/enabled → ops [0 per 7d over account 25 per 1d over principal] ask=1/enabled"}},
		"a ceiling counts others": {[]string{"limits: { calls: 500, per: 1h }", "limits: { calls: 500, per: 1h, over: grant }"},
			[]string{"ceiling " + read + " corp [team=sales]: ro [500 per 1h over principal] ask=1/enabled → ro [500 per 1h over grant] ask=1/enabled"}},
		"asking always": {[]string{managers, managers + "    ask: always\n"}, []string{
			"ask mcp:crm:put corp [role=manager team=sales]: rw [] ask=1/enabled → rw [] ask=2/ask",
			"ask mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → rw [] ask=2/ask"}},
		"a risk decides whether a person is asked": {[]string{"- { id: crm.wipe, risk: destructive }", "- { id: crm.wipe, risk: read }"},
			[]string{"ask mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → rw [] ask=1/enabled"}},
		"a mapping moves": {[]string{"{ name: wipe, capability: crm.wipe }", "{ name: wipe, capability: crm.read }", "crm.wipe, risk: destructive", "crm.wipe, risk: write",
			"[crm.write, crm.wipe]", "[crm.write]"}, []string{
			"new-access mcp:crm:wipe corp [team=ops] 2026-01-01T00:00:00.000: no_grant_matches → ro [] ask=1/enabled",
			"new-access mcp:crm:wipe corp [team=sales]: no_grant_matches → ro [500 per 1h over principal] ask=1/enabled",
			"account mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → ro [500 per 1h over principal] ask=1/enabled",
			"ceiling mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → ro [500 per 1h over principal] ask=1/enabled",
			"ask mcp:crm:wipe corp [role=manager team=sales]: rw [] ask=1/ask → ro [500 per 1h over principal] ask=1/enabled",
			`trust upstream crm mapping: "find" → crm.read, "get" → crm.read, "put" → crm.write, "wipe" → crm.wipe → "find" → crm.read, "get" → crm.read, "put" → crm.write, "wipe" → crm.read`}},
		"a tool is mapped": {[]string{"    tools:\n      - { name: issue,", "    tools:\n      - { name: cancel, capability: bill.issue }\n      - { name: issue,"}, []string{
			"new-access mcp:bill:cancel ci [role=automation]!: unmapped → ops [0 per 7d over account 20 per 1d over principal] ask=1/enabled",
			`trust upstream bill mapping: "issue" → bill.issue → "cancel" → bill.issue, "issue" → bill.issue`}},
		"an upstream moves": {[]string{"https://crm.example/mcp", "https://elsewhere.example/mcp"},
			[]string{"trust upstream crm url: https://crm.example/mcp → https://elsewhere.example/mcp"}},
		"another command": {[]string{"command: bill-server, args: [--safe]", "command: bill2, args: [--unsafe]"}, []string{
			`trust upstream bill args: "--safe" → "--unsafe"`, "trust upstream bill command: bill-server → bill2"}},
		"arguments have an order": {[]string{"args: [--safe]", "args: [--safe, x]"}, []string{`trust upstream bill args: "--safe" → "--safe" "x"`}},
		"another secret":          {[]string{"env://OPS", "env://OPS2"}, []string{"trust account ops secret: env://OPS → env://OPS2"}},
		"valid for longer": {[]string{"until: 2026-06-01", "until: 2026-07-01"},
			[]string{"new-access mcp:bill:issue ci [role=automation]! 2026-06-01T00:00:00.000: grant_expired → ops [0 per 7d over account 20 per 1d over principal] ask=1/enabled"}},
		"valid later": {[]string{"from: 2026-01-01", "from: 2026-01-15"},
			[]string{"lost-access " + read + " corp [team=ops] 2026-01-01T00:00:00.000: ro [] ask=1/enabled → grant_expired"}},
		"a key changes its role": {[]string{"attributes: { role: automation }\ngrants", "attributes: { role: human }\ngrants"}, []string{
			"lost-access mcp:bill:issue ci [role=automation role=human]!: ops [0 per 7d over account 20 per 1d over principal] ask=1/enabled → no_grant_matches",
			`trust issuer ci attributes: role ← "automation" → role ← "human"`}},
		"a key becomes people": {[]string{"      kind: static-key\n      subject: agent\n      secret: { ref: \"env://CI\" }\n      attributes: { role: automation }", "      kind: oidc\n      attributes: { role: \"claim:role\" }"}, []string{
			"new-access mcp:bill:issue ci [role=automation]: nobody → ops [0 per 7d over account 20 per 1d over principal] ask=1/enabled",
			`trust issuer ci attributes: role ← "automation" → role ← "claim:role"`, "trust issuer ci kind: static-key → oidc",
			"trust issuer ci secret: env://CI → -", "trust issuer ci subject: agent → -"}},
		"a value becomes a set": {[]string{"team: \"claim:team\"", "team: { from: \"claim:team\", many: true }"}, []string{
			"new-access mcp:crm:put corp [role=manager team=another team=sales]: no_grant_matches → rw [] ask=1/enabled",
			"new-access mcp:crm:wipe corp [role=manager team=another team=sales]: no_grant_matches → rw [] ask=1/ask",
			"new-access " + read + " corp [team=another team=ops] 2026-01-01T00:00:00.000: no_grant_matches → ro [] ask=1/enabled",
			"new-access " + read + " corp [team=another team=sales]: no_grant_matches → ro [500 per 1h over principal] ask=1/enabled",
			"new-access " + read + " corp [team=ops team=sales]: no_grant_matches → ro [500 per 1h over principal] ask=1/enabled",
			`trust issuer corp attributes: groups ← "claim:groups" (many), role ← "claim:role", team ← "claim:team" → groups ← "claim:groups" (many), role ← "claim:role", team ← "claim:team" (many)`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range review.Diff(snapshot(t, base), snapshot(t, edit(t, c.edit...)), nil) {
				got = append(got, told(c))
			}
			same := func(got, want string) bool {
				// The instant of the first interval is of no interest, except where a story is about instants.
				return strings.HasPrefix(strings.ReplaceAll(got, before, ""), strings.ReplaceAll(want, before, ""))
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(g string) bool { return same(g, want) }) {
					t.Errorf("missing  %s", want)
				}
			}
			for _, g := range got {
				if !slices.ContainsFunc(c.want, func(want string) bool { return same(g, want) }) {
					t.Errorf("surplus  %s", g)
				}
			}
		})
	}
}

// Some changes are seen only by those whom one grant covered before and another one does after. What they differ in may even be a
// ceiling that somebody else's grant puts on the account.
func TestDiffNeedsPairs(t *testing.T) {
	const text = `version: 1
capabilities: [{ id: c }]
upstreams:
  - { id: u, transport: { kind: mcp-http, url: "https://u.example/mcp" }, tools: [{ name: t, capability: c }] }
accounts: [{ id: x, secret: { ref: "env://X" } }]
principals: { issuers: [{ id: i, kind: oidc, attributes: { a: "claim:a", b: "claim:b" } }, { id: j, kind: oidc }] }
grants:
  - { to: { issuer: i, attributes: { a: "1" } }, capabilities: [c], using: x }
  - { to: { issuer: j }, capabilities: [c], using: x, limits: { calls: 5, per: 1h, over: account }, until: 2026-06-01T00:00:00Z }
`
	after := strings.Replace(strings.Replace(text, `a: "1"`, `b: "1"`, 1), "2026-06-01", "2026-05-01", 1)
	var got []string
	for _, c := range review.Diff(snapshot(t, text), snapshot(t, after), nil) {
		if c.Kind == review.CeilingSet {
			got = append(got, told(c))
		}
	}
	want := []string{"ceiling mcp:u:t i [a=1 b=1] 2026-05-01T00:00:00.000: x [5 per 1h over account] ask=1/enabled → x [] ask=1/enabled"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A change between two policies is the opposite change between the two, read backwards.
func TestDiffBackwards(t *testing.T) {
	after := edit(t, "team: sales, role: manager", "team: sales", "calls: 20,", "calls: 25,")
	opposite := map[review.Kind]review.Kind{review.NewAccess: review.LostAccess, review.LostAccess: review.NewAccess}
	var there, back []string
	for _, c := range review.Diff(snapshot(t, base), snapshot(t, after), nil) {
		if o, ok := opposite[c.Kind]; ok {
			c.Kind = o
		}
		c.Before, c.After = c.After, c.Before
		there = append(there, told(c))
	}
	for _, c := range review.Diff(snapshot(t, after), snapshot(t, base), nil) {
		back = append(back, told(c))
	}
	slices.Sort(there)
	slices.Sort(back)
	if len(there) < 3 || !slices.Equal(there, back) {
		t.Errorf("there\n%s\nback\n%s", strings.Join(there, "\n"), strings.Join(back, "\n"))
	}
}

func TestDiffAtOneInstant(t *testing.T) {
	after := snapshot(t, edit(t, "from: 2026-01-01", "from: 2026-01-15"))
	for text, want := range map[string]int{"2025-12-31T00:00:00Z": 0, "2026-01-10T00:00:00Z": 1, "2026-01-15T00:00:00Z": 0} {
		instant := at(t, text)
		if got := review.Diff(snapshot(t, base), after, &instant); len(got) != want {
			t.Errorf("at %s: %d changes, want %d", text, len(got), want)
		}
	}
}
