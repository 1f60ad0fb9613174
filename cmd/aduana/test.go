package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aduana/access"
	"aduana/assembly"
	"aduana/consent"
	"aduana/principals"
	"aduana/review"
)

func newTest(p *printer) *cobra.Command {
	var lock string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test POLICY TESTS",
		Short: "Hold a policy against what it is expected to decide",
		Long: "test reads expectations and says which of them the policy does not meet. TESTS is a YAML file:\n\n" +
			"  version: 1\n" +
			"  tests:\n" +
			"    - name: sales read contacts\n" +
			"      as: { issuer: corp, subject: ana, attributes: { team: ventas } } # a list where there are several values\n" +
			"      capability: crm.contact.read                                    # or tool: an exposed name or an identity\n" +
			"      at: 2026-05-03T09:00:00Z                                        # default now\n" +
			"      usage: 20                                                       # default 0; unknown, or none\n" +
			"      expect: granted                                                 # a reason code, or unauthenticated\n" +
			"      account: crm-ro                                                 # what follows is checked when it is there\n" +
			"      ask: false                                                      # whether a person is asked first\n" +
			"      ceilings: [500 per 1h]                                          # all that bind; \"over principal\" is the default",
		Example: "  aduana test policy.yaml policy.tests.yaml",
		Args:    operands("POLICY", "TESTS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[1])
			if err != nil {
				return cannot(fmt.Errorf("tests: %w", err), "")
			}
			tests, err := readExpectations(args[1], text)
			if err != nil {
				return cannot(err, "the format is in: aduana help test")
			}
			d, err := p.sound(args[0], lock)
			if err != nil {
				return err
			}
			now := time.Now().UnixMilli()
			results := []resultJSON{}
			failed := 0
			for _, e := range tests {
				r := e.check(d.snapshot, now)
				if !r.Passed {
					failed++
				}
				results = append(results, r)
			}
			if asJSON {
				err = p.json(resultsJSON{Policy: args[0], Version: d.input.Version, Tests: results, Failed: failed})
			} else {
				p.results(args[1], results, failed)
			}
			if err != nil {
				return err
			}
			if failed > 0 {
				return findings()
			}
			return nil
		},
	}
	addLock(cmd, &lock)
	addJSON(cmd, &asJSON)
	return cmd
}

// unauthenticated is what `expect` says where there is no principal.
const unauthenticated = "unauthenticated"

// expectation is one test. Nil fields are not checked.
type expectation struct {
	name     string
	place    string // file:line:column
	question review.Question
	hasAt    bool
	expect   string // a code, or unauthenticated
	account  *string
	ask      *bool
	ceilings []string // "20 per 24h over principal", sorted, the window in its largest unit
	bound    bool     // ceilings are checked
}

// expectable are the values of `expect`.
func expectable() []string {
	return []string{string(access.Granted), string(access.CapabilityNotDeclared), string(access.CapabilityNotRealized),
		string(access.NoGrantMatches), string(access.GrantExpired), string(access.AmbiguousGrant), string(access.AccountDisabled),
		string(access.UsageUnknown), string(access.LimitExhausted), unauthenticated}
}

type resultsJSON struct {
	Policy  string       `json:"policy"`
	Version string       `json:"version"`
	Tests   []resultJSON `json:"tests"`
	Failed  int          `json:"failed"`
}

type resultJSON struct {
	Name        string           `json:"name"`
	Place       string           `json:"place"` // of the test
	Passed      bool             `json:"passed"`
	Differences []differenceLine `json:"differences"`
	Decision    *string          `json:"decision"` // place in the policy; null where nothing was decided
	Pointer     *string          `json:"pointer"`
}

type differenceLine struct {
	What     string `json:"what"`
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
}

// check asks the policy and compares.
func (e expectation) check(s *assembly.Snapshot, now int64) resultJSON {
	r := resultJSON{Name: e.name, Place: e.place, Differences: []differenceLine{}}
	differ := func(what, expected, actual string) {
		if expected != actual {
			r.Differences = append(r.Differences, differenceLine{what, expected, actual})
		}
	}
	q := e.question
	if !e.hasAt {
		q.At = now
	}
	a, err := review.Explain(s, q)
	switch {
	case err != nil:
		differ("code", e.expect, err.Error())
	case a.Problem != principals.NoProblem:
		differ("code", e.expect, unauthenticated+" ("+string(a.Problem)+")")
		if e.expect == unauthenticated {
			r.Differences = r.Differences[:0]
		}
	default:
		reason := a.Decision.Reason()
		r.Decision, r.Pointer = orNull(a.Place), &reason.Pointer
		differ("code", e.expect, string(reason.Code))
		if e.account != nil {
			differ("account", *e.account, string(a.Account))
		}
		if e.ask != nil {
			differ("ask", strconv.FormatBool(*e.ask), strconv.FormatBool(a.State == consent.Ask))
		}
		if e.bound {
			var have []string
			for _, c := range a.Ceilings {
				text, _ := ceilingText(ceiling(c)) // what the policy compiler let through has this form
				have = append(have, text)
			}
			slices.Sort(have)
			differ("ceilings", strings.Join(e.ceilings, ", "), strings.Join(slices.Compact(have), ", "))
		}
	}
	r.Passed = len(r.Differences) == 0
	return r
}

func (p *printer) results(file string, results []resultJSON, failed int) {
	for _, r := range results {
		if r.Passed {
			continue
		}
		p.line("%s  FAIL  %s", r.Place, r.Name)
		for _, d := range r.Differences {
			p.line("  %s: expected %s, got %s", d.What, orNothing(d.Expected), orNothing(d.Actual))
		}
		if r.Decision != nil {
			p.line("  decided at %s (%s)", *r.Decision, documentPointer(*r.Pointer))
		}
		p.line("")
	}
	p.line("%s: %d passed, %d failed", file, len(results)-failed, failed)
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// ceilingText reads "20 per 24h" or "20 per 24h over account" and writes it in one form: with its scope, and with the window in its
// largest unit, so that 60m and 1h are the same.
func ceilingText(text string) (string, bool) {
	f := strings.Fields(text)
	scope := "principal"
	switch {
	case len(f) == 5 && f[3] == "over":
		scope = f[4]
	case len(f) != 3:
		return "", false
	}
	calls, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || calls < 0 || f[1] != "per" || len(f[2]) < 2 {
		return "", false
	}
	n, err := strconv.ParseInt(f[2][:len(f[2])-1], 10, 32)
	if err != nil || n < 1 {
		return "", false
	}
	units := []struct {
		name byte
		in   int64 // of the next larger unit
	}{{'s', 60}, {'m', 60}, {'h', 24}, {'d', 0}}
	i := slices.IndexFunc(units, func(u struct {
		name byte
		in   int64
	}) bool {
		return u.name == f[2][len(f[2])-1]
	})
	if i < 0 {
		return "", false
	}
	for ; units[i].in > 0 && n%units[i].in == 0; i++ {
		n /= units[i].in
	}
	return fmt.Sprintf("%d per %d%c over %s", calls, n, units[i].name, scope), true
}
