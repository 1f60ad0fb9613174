package review_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"aduana/access"
	"aduana/capabilities"
	"aduana/principals"
	"aduana/review"
)

func at(t *testing.T, text string) int64 {
	t.Helper()
	x, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return x.UnixMilli()
}

func attributes(text string) []principals.Attribute {
	var out []principals.Attribute
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		out = append(out, principals.Attribute{Name: name, Value: value})
	}
	return out
}

// said puts an answer into one line.
func said(a review.Answer) string {
	if a.Problem != principals.NoProblem {
		return string(a.Problem)
	}
	r := a.Decision.Reason()
	s := fmt.Sprintf("%s %s %s", r.Code, r.Pointer, a.Place)
	if a.Decision.Allowed() {
		s += fmt.Sprintf(" %s %s", a.Account, a.State)
	}
	for _, c := range a.Ceilings {
		s += fmt.Sprintf(" %d/%s/%s@%s", c.Calls, c.Per, c.Over, c.Point)
	}
	return s
}

func TestExplain(t *testing.T) {
	s := snapshot(t, base)
	const spring = "2026-04-01T00:00:00Z"
	for name, c := range map[string]struct {
		issuer, attributes, capability, tool, at string
		usage                                    int64
		want                                     string
	}{
		"granted":                       {"corp", "team=sales", "crm.read", "", spring, 0, "granted /grants/0 p:36:5 ro enabled 500/1h/principal@/grants/0"},
		"last call":                     {"corp", "team=sales", "crm.read", "", spring, 499, "granted /grants/0 p:36:5 ro enabled 500/1h/principal@/grants/0"},
		"used up":                       {"corp", "team=sales", "crm.read", "", spring, 500, "limit_exhausted /grants/0 p:36:5"},
		"usage unknown":                 {"corp", "team=sales", "crm.read", "", spring, review.UsageUnknown, "usage_unknown /grants/0 p:36:5"},
		"usage not asked":               {"corp", "team=sales", "crm.read", "", spring, review.UsageNotConsulted, "granted /grants/0 p:36:5 ro enabled 500/1h/principal@/grants/0"},
		"unknown usage, no ceiling":     {"corp", "team=sales role=manager", "crm.write", "", spring, review.UsageUnknown, "granted /grants/1 p:40:5 rw enabled"},
		"destructive asks":              {"corp", "team=sales role=manager", "crm.wipe", "", spring, 0, "granted /grants/1 p:40:5 rw ask"},
		"by exposed name":               {"corp", "team=sales", "", "crm__find", spring, 0, "granted /grants/0 p:36:5 ro enabled 500/1h/principal@/grants/0"},
		"by identity":                   {"corp", "team=sales", "", "mcp:crm:put", spring, 0, "no_grant_matches /grants p:36:3"},
		"no grant":                      {"corp", "team=buying", "crm.read", "", spring, 0, "no_grant_matches /grants p:36:3"},
		"two teams are no team":         {"corp", "team=sales team=buying", "crm.read", "", spring, 0, "no_grant_matches /grants p:36:3"},
		"a set may hold more":           {"corp", "groups=audit groups=all", "bill.issue", "", spring, 0, "account_disabled /grants/3 p:48:5"},
		"expired":                       {"corp", "team=ops", "crm.read", "", spring, 0, "grant_expired /grants/4 p:52:5"},
		"valid at its beginning":        {"corp", "team=ops", "crm.read", "", "2026-01-01T00:00:00Z", 0, "granted /grants/4 p:52:5 ro enabled"},
		"over at its end":               {"corp", "team=ops", "crm.read", "", "2026-02-01T00:00:00Z", 0, "grant_expired /grants/4 p:52:5"},
		"not declared":                  {"corp", "", "crm.delete", "", spring, 0, "capability_not_declared /capabilities p:3:3"},
		"not realised":                  {"corp", "", "idle", "", spring, 0, "capability_not_realized /capabilities/4 p:7:5"},
		"literals are known":            {"ci", "", "bill.issue", "", spring, review.UsageNotConsulted, "granted /grants/2 p:43:5 ops enabled 0/7d/account@/grants/2/limits/1 20/24h/principal@/grants/2/limits/0"},
		"a ceiling of 0 suspends":       {"ci", "", "bill.issue", "", spring, 0, "limit_exhausted /grants/2/limits/1 p:46:39"},
		"literals are overridden":       {"ci", "role=other", "bill.issue", "", spring, 0, "no_grant_matches /grants p:36:3"},
		"unknown issuer":                {"ldap", "", "crm.read", "", spring, 0, "issuer_unknown"},
		"unknown issuer, by a tool":     {"ldap", "", "", "crm__get", spring, 0, "issuer_unknown"},
		"undeclared attributes go away": {"corp", "team=sales shoe=44", "crm.read", "", spring, 0, "granted /grants/0 p:36:5 ro enabled 500/1h/principal@/grants/0"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := review.Explain(s, review.Question{Issuer: c.issuer, Subject: "ana", Attributes: attributes(c.attributes),
				Capability: c.capability, Tool: c.tool, At: at(t, c.at), Usage: c.usage})
			if err != nil {
				t.Fatal(err)
			}
			if got := said(a); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestExplainNames(t *testing.T) {
	s := snapshot(t, base)
	for name, c := range map[string]struct{ tool, want string }{
		"not served":         {"crm__nothing", `no tool is exposed as "crm__nothing"`},
		"a verbatim name":    {"get", `no tool is exposed as "get"`},
		"not declared":       {"mcp:crm:nothing", "no declared tool is mcp:crm:nothing"},
		"no identity at all": {"tool:crm", "not a canonical identity"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := review.Explain(s, review.Question{Issuer: "corp", Subject: "ana", Tool: c.tool})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := review.WhoCan(s, "", c.tool, 0); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("who can: got %v, want %q", err, c.want)
			}
		})
	}
}

func TestExplainSaysWhoAndWhat(t *testing.T) {
	a, err := review.Explain(snapshot(t, base), review.Question{Issuer: "corp", Subject: "ana",
		Attributes: attributes("team=sales shoe=44 role=a role=b"), Capability: "crm.read"})
	if err != nil {
		t.Fatal(err)
	}
	if a.Principal.ID() != "corp:ana" || !slices.Equal(a.Principal.Attributes(), attributes("team=sales")) {
		t.Errorf("principal %s %v", a.Principal.ID(), a.Principal.Attributes())
	}
	if !slices.Equal(a.Discarded, []string{"role", "shoe"}) {
		t.Errorf("discarded %q", a.Discarded)
	}
	if got := fmt.Sprint(a.Tools); got != "[{mcp:crm:find crm__find } {mcp:crm:get crm__get }]" {
		t.Errorf("tools %s", got)
	}
	if a, _ = review.Explain(snapshot(t, base), review.Question{Issuer: "corp", Subject: " ", Capability: "crm.read"}); a.Problem != principals.CredentialMissing || a.Decision.Allowed() {
		t.Errorf("a blank subject gives %q, allowed %t", a.Problem, a.Decision.Allowed())
	}
}

func TestExplainAll(t *testing.T) {
	s := snapshot(t, base)
	for name, c := range map[string]struct{ issuer, attributes, want string }{
		"a seller":        {"corp", "team=sales", "crm.read"},
		"a manager":       {"corp", "team=sales role=manager", "crm.read crm.write crm.wipe"},
		"a suspended key": {"ci", "", "bill.issue"}, // a ceiling of 0 is for calls; the tool stays visible
		"disabled":        {"corp", "groups=audit", ""},
		"a stranger":      {"corp", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range review.ExplainAll(s, review.Question{Issuer: c.issuer, Subject: "x", Attributes: attributes(c.attributes), Usage: 999}) {
				if a.Decision.Reason().Code != access.Granted {
					t.Errorf("%s: %s", a.Capability, a.Decision.Reason().Code)
				}
				got = append(got, a.Capability)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if all := review.ExplainAll(s, review.Question{Issuer: "ldap", Subject: "x"}); len(all) != 1 || all[0].Problem != principals.IssuerUnknown {
		t.Errorf("an unknown issuer gives %+v", all)
	}
}

func TestWhoCan(t *testing.T) {
	s := snapshot(t, base)
	const spring = "2026-04-01T00:00:00Z"
	for name, c := range map[string]struct {
		capability, tool, at string
		want                 []string
	}{
		"two ways, one over": {"crm.read", "", spring, []string{
			"corp [{team sales}] ro true now=true bounded=false destructive /grants/0 p:36:5 500/1h/principal",
			"corp [{team ops}] ro true now=false bounded=true destructive /grants/4 p:52:5"}},
		"by a tool, in time": {"", "crm__get", "2026-01-15T00:00:00Z", []string{
			"corp [{team sales}] ro true now=true bounded=false destructive /grants/0 p:36:5 500/1h/principal",
			"corp [{team ops}] ro true now=true bounded=true destructive /grants/4 p:52:5"}},
		"a disabled account is said": {"bill.issue", "", spring, []string{
			"ci [{role automation}] ops true now=true bounded=true destructive /grants/2 p:43:5 20/24h/principal 0/7d/account",
			"corp [{groups audit}] old false now=true bounded=false always /grants/3 p:48:5"}},
		"at its end":        {"bill.issue", "", "2026-06-01T00:00:00Z", []string{"now=false", "now=true"}},
		"nobody":            {"idle", "", spring, nil},
		"undeclared":        {"crm.delete", "", spring, nil},
		"one of two in one": {"crm.wipe", "", spring, []string{"corp [{role manager} {team sales}] rw true now=true bounded=false destructive /grants/1 p:40:5"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := review.WhoCan(s, c.capability, c.tool, at(t, c.at))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Ways) != len(c.want) {
				t.Fatalf("%d ways, want %d: %+v", len(r.Ways), len(c.want), r.Ways)
			}
			for i, w := range r.Ways {
				got := fmt.Sprintf("%s %v %s %t now=%t bounded=%t %s %s %s", w.Issuer, w.Selector, w.Account, w.Enabled, w.ValidNow, w.Bounded(), w.Ask, w.Pointer, w.Place)
				for _, l := range w.Ceilings {
					got += fmt.Sprintf(" %d/%s/%s", l.Calls, l.Per, l.Over)
				}
				if !strings.Contains(got, c.want[i]) {
					t.Errorf("way %d:\ngot  %s\nwant %s", i, got, c.want[i])
				}
			}
		})
	}
	for capability, want := range map[string]string{"crm.read": "true true 2", "idle": "true false 0", "crm.delete": "false false 0"} {
		r, err := review.WhoCan(s, capability, "", 0)
		if got := fmt.Sprint(r.Declared, r.Realized, len(r.Tools)); err != nil || got != want {
			t.Errorf("%s: declared, realised, tools = %s (%v), want %s", capability, got, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	text := edit(t, "      - { name: find, capability: crm.read }\n",
		"      - { name: find, capability: crm.read }\n      - { name: foo.bar, capability: crm.read }\n      - { name: foo_bar, capability: crm.read }\n      - { name: Foo_Bar, capability: crm.read }\n")
	in := input(t, text)
	s := snapshot(t, text)
	line := func(n review.Name) string {
		out := fmt.Sprintf("%s=%s %s %s", n.Identity, n.Exposed, n.Capability, n.Withheld)
		for _, f := range n.Findings {
			out += fmt.Sprintf(" (%s)", f)
		}
		return strings.TrimSpace(out)
	}
	for name, c := range map[string]struct {
		match string
		want  []string
	}{
		"all": {"", []string{
			"mcp:bill:issue=bill__issue bill.issue",
			"mcp:crm:Foo_Bar= crm.read similar_name (withheld mcp:crm:Foo_Bar: similar_name with mcp:crm:foo_bar",
			"mcp:crm:find=crm__find crm.read",
			"mcp:crm:foo.bar=crm__foo--bar crm.read",
			"mcp:crm:foo_bar= crm.read similar_name (withheld mcp:crm:foo_bar: similar_name with mcp:crm:Foo_Bar",
			"mcp:crm:get=crm__get crm.read",
			"mcp:crm:put=crm__put crm.write",
			"mcp:crm:wipe=crm__wipe crm.wipe"}},
		"by exposed name": {"crm__foo--bar", []string{"mcp:crm:foo.bar=crm__foo--bar crm.read"}},
		"by identity":     {"mcp:crm:foo.bar", []string{"mcp:crm:foo.bar=crm__foo--bar crm.read"}},
		"by a part":       {"iss", []string{"mcp:bill:issue=bill__issue bill.issue"}},
		"nothing":         {"zzz", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := review.Names(s, in, c.match)
			if len(got) != len(c.want) {
				t.Fatalf("%d names, want %d: %+v", len(got), len(c.want), got)
			}
			for i, n := range got {
				if !strings.HasPrefix(line(n), c.want[i]) {
					t.Errorf("line %d\ngot  %s\nwant %s", i, line(n), c.want[i])
				}
				// The table must say what a call would find.
				found, ok := s.Lookup("", string(n.Exposed))
				if served := n.Exposed != ""; served != ok || ok && found.Identity != n.Identity {
					t.Errorf("%s: the table says served %t, a call finds %t", n.Identity, served, ok)
				}
			}
		})
	}
	if f := review.Names(s, in, "Foo_Bar")[0].Findings; len(f) != 1 || len(f[0].Peers) != 1 || f[0].Reason != capabilities.SimilarName {
		t.Errorf("findings %+v", f)
	}
}
