package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"aduana/access"
	"aduana/capabilities"
	"aduana/consent"
	"aduana/gateway"
	"aduana/principals"
	"aduana/review"
)

func newExplain(p *printer) *cobra.Command {
	var q review.Question
	var lock, at, used string
	var attributes []string
	var all, asJSON, exitCode bool
	cmd := &cobra.Command{
		Use:   "explain POLICY --issuer ID --subject S (--capability C | --tool NAME | --all)",
		Short: "Say what would be decided for somebody, why, and where that is written",
		Long: "explain answers what the gateway would decide for one principal, with the reason and its place in the policy.\n" +
			"Attributes of a static-key issuer are known from the policy; --attr overrides them.",
		Example: "  aduana explain policy.yaml --issuer corp --subject ana --attr team=ventas --capability crm.contact.read\n" +
			"  aduana explain policy.yaml --issuer ci --subject build-agent --all",
		Args: operands("POLICY"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.Attributes, err = pairs(attributes); err != nil {
				return err
			}
			if q.At, err = instant(at); err != nil {
				return err
			}
			if q.Usage, err = usageOf(used); err != nil {
				return err
			}
			if cmd.Flags().Changed("capability") && q.Capability == "" || cmd.Flags().Changed("tool") && q.Tool == "" {
				return usage("--capability and --tool need a name")
			}
			d, err := p.sound(args[0], lock)
			if err != nil {
				return err
			}
			var answers []review.Answer
			if all {
				answers = review.ExplainAll(d.snapshot, q)
			} else {
				a, err := review.Explain(d.snapshot, q)
				if err != nil {
					return notThere(err, "see the names with: aduana names "+args[0])
				}
				answers = append(answers, a)
			}
			switch {
			case asJSON && all:
				err = p.json(allJSON(d, q, answers))
			case asJSON:
				err = p.json(explanationOf(d, answers[0]))
			default:
				p.explanation(q, answers, all)
			}
			if err != nil {
				return err
			}
			if exitCode && (len(answers) == 0 || !answers[0].Decision.Allowed()) {
				return findings()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Issuer, "issuer", "", "`ID` of the issuer that vouches for the principal")
	f.StringVar(&q.Subject, "subject", "", "the principal's `NAME` at the issuer")
	f.StringArrayVar(&attributes, "attr", nil, "an attribute of the principal, as `NAME=VALUE` (repeatable)")
	f.StringVar(&q.Capability, "capability", "", "`ID` of a capability")
	f.StringVar(&q.Tool, "tool", "", "exposed `NAME` of a tool, or its identity")
	f.BoolVar(&all, "all", false, "everything that the principal sees")
	f.StringVar(&at, "at", "", "the `INSTANT` of the call, by RFC 3339 (default now)")
	f.StringVar(&used, "usage", "0", "calls that every ceiling has counted already: a `NUMBER`, unknown, or none to leave ceilings out")
	f.BoolVar(&exitCode, "exit-code", false, "exit 1 unless the answer is a permit")
	addLock(cmd, &lock)
	addJSON(cmd, &asJSON)
	required(cmd, "issuer", "subject")
	cmd.MarkFlagsMutuallyExclusive("capability", "tool", "all")
	cmd.MarkFlagsOneRequired("capability", "tool", "all")
	return cmd
}

// pairs reads NAME=VALUE; the value is everything after the first '='.
func pairs(list []string) ([]principals.Attribute, error) {
	var out []principals.Attribute
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage("--attr %q is not NAME=VALUE", text)
		}
		out = append(out, principals.Attribute{Name: name, Value: value})
	}
	return out, nil
}

// usageOf reads --usage.
func usageOf(text string) (int64, error) {
	switch text {
	case "unknown":
		return review.UsageUnknown, nil
	case "none":
		return review.UsageNotConsulted, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, usage("--usage %q is neither a number of calls from 0 on, nor unknown, nor none", text)
	}
	return n, nil
}

func (p *printer) explanation(q review.Question, answers []review.Answer, all bool) {
	if len(answers) > 0 && answers[0].Problem != principals.NoProblem {
		p.line("NO PRINCIPAL")
		p.field("problem", "%s: %s", answers[0].Problem, problemProse(answers[0].Problem))
		p.discarded(answers[0].Discarded)
		return
	}
	if all && len(answers) == 0 {
		p.line("NOTHING is granted to %s:%s", q.Issuer, q.Subject)
		return
	}
	p.field("principal", "%s", principal(answers[0].Principal))
	p.discarded(answers[0].Discarded)
	for _, a := range answers {
		if all {
			p.line("")
		}
		p.answer(a)
	}
}

func (p *printer) discarded(names []string) {
	if len(names) > 0 {
		p.field("discarded", "%s (not declared by the issuer, or several values where one is expected)", strings.Join(names, ", "))
	}
}

func (p *printer) answer(a review.Answer) {
	r := a.Decision.Reason()
	word := "DENIED"
	if a.Decision.Allowed() {
		word = "PERMITTED"
	}
	p.field(word, "%s", a.Capability)
	p.field("reason", "%s: %s", r.Code, gateway.Prose(r.Code))
	p.field("subject", "%s", r.Subject)
	p.field("place", "%s (%s)", a.Place, documentPointer(r.Pointer))
	if r.Code == access.LimitExhausted {
		if r.FreesAt == math.MaxInt64 {
			p.field("free again", "never, the grant is suspended")
		} else {
			p.field("free again", "%s at the latest", timestamp(r.FreesAt))
		}
	}
	if a.Decision.Allowed() {
		p.field("account", "%s", a.Account)
		for _, c := range a.Ceilings {
			p.field("ceiling", "%s (%s)", ceiling(c), c.Place)
		}
		if len(a.Ceilings) == 0 {
			p.field("ceiling", "no ceiling declared")
		}
		if a.State == consent.Ask {
			p.field("asks", "a person is asked before each call (risk %s)", a.Risk)
		}
	}
	p.tools(a.Tools)
}

func (p *printer) tools(tools []review.Thing) {
	if len(tools) == 0 {
		p.field("tools", "none: no declared tool realises it")
	}
	for _, t := range tools {
		p.field("tool", "%s", thing(t))
	}
}

// thing reads "crm__get_contact (tool:crm:get_contact)".
func thing(t review.Thing) string {
	switch {
	case t.Withheld != capabilities.NotWithheld:
		return fmt.Sprintf("%s, withheld: %s", t.Identity, t.Withheld)
	case t.Exposed == "":
		return t.Identity.Canonical()
	}
	return fmt.Sprintf("%s (%s)", t.Exposed, t.Identity)
}

// ceiling reads "20 per 24h over principal".
func ceiling(c review.Ceiling) string {
	return fmt.Sprintf("%d per %s over %s", c.Calls, c.Per, c.Over)
}

func principal(who principals.Principal) string {
	var parts []string
	for _, a := range who.Attributes() {
		parts = append(parts, a.Name+"="+a.Value)
	}
	return fmt.Sprintf("%s [%s]", who.ID(), strings.Join(parts, " "))
}

// problemProse says in a sentence why there is no principal. Only those who ask offline read it: a client learns no more than that
// nobody was recognised.
func problemProse(problem principals.Problem) string {
	switch problem {
	case principals.IssuerUnknown:
		return "the policy declares no such issuer"
	case principals.CredentialMissing:
		return "nobody is named, a subject is needed"
	case principals.CredentialInvalid:
		return "what was presented proves nothing"
	case principals.CredentialExpired:
		return "what was presented is no longer valid"
	}
	return "there is none"
}

type explanationJSON struct {
	Resolution resolutionJSON `json:"resolution"`
	Decision   *decisionJSON  `json:"decision"`
	Position   *position      `json:"position"`
	Tools      []thingJSON    `json:"tools"`
}

type explanationsJSON struct {
	Resolution resolutionJSON    `json:"resolution"`
	Answers    []explanationJSON `json:"answers"`
}

type resolutionJSON struct {
	Principal *principalJSON `json:"principal"`
	Discarded []string       `json:"discarded"`
	Problem   *problemJSON   `json:"problem"`
}

type principalJSON struct {
	ID         string          `json:"id"`
	Issuer     string          `json:"issuer"`
	Subject    string          `json:"subject"`
	Attributes []attributeJSON `json:"attributes"`
}

type attributeJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type problemJSON struct {
	Code principals.Problem `json:"code"`
	Text string             `json:"text"`
}

type decisionJSON struct {
	Outcome    string        `json:"outcome"` // allow or deny
	Code       access.Code   `json:"code"`
	Text       string        `json:"text"`
	Capability string        `json:"capability"`
	Subject    string        `json:"subject"`
	Pointer    string        `json:"pointer"`
	Place      string        `json:"place"`
	FreesAt    *string       `json:"freesAt"` // of limit_exhausted; null there means never
	Account    *string       `json:"account"`
	Ask        *bool         `json:"ask"`
	Risk       *string       `json:"risk"`
	Ceilings   []ceilingJSON `json:"ceilings"`
}

type ceilingJSON struct {
	Calls   int64  `json:"calls"`
	Per     string `json:"per"`
	Over    string `json:"over"`
	Pointer string `json:"pointer"`
	Place   string `json:"place"`
}

type thingJSON struct {
	Identity string  `json:"identity"`
	Exposed  *string `json:"exposed"`
	Withheld *string `json:"withheld"`
}

func explanationOf(d *declared, a review.Answer) explanationJSON {
	out := explanationJSON{Resolution: resolutionOf(a), Tools: things(a.Tools)}
	if a.Problem != principals.NoProblem {
		return out
	}
	r := a.Decision.Reason()
	out.Position = d.at(r.Pointer)
	out.Decision = &decisionJSON{Outcome: "deny", Code: r.Code, Text: gateway.Prose(r.Code), Capability: a.Capability, Subject: r.Subject,
		Pointer: r.Pointer, Place: a.Place, Ceilings: ceilings(a.Ceilings)}
	if r.Code == access.LimitExhausted && r.FreesAt != math.MaxInt64 {
		out.Decision.FreesAt = orNull(timestamp(r.FreesAt))
	}
	if a.Decision.Allowed() {
		asks := a.State == consent.Ask
		out.Decision.Outcome, out.Decision.Account = "allow", orNull(string(a.Account))
		out.Decision.Ask, out.Decision.Risk = &asks, orNull(a.Risk.String())
	}
	return out
}

func allJSON(d *declared, q review.Question, answers []review.Answer) explanationsJSON {
	out := explanationsJSON{Answers: []explanationJSON{}}
	if len(answers) == 0 { // admitted, and granted nothing: ask for nothing in particular to know as whom
		a, _ := review.Explain(d.snapshot, q)
		out.Resolution = resolutionOf(a)
		return out
	}
	out.Resolution = resolutionOf(answers[0])
	if answers[0].Problem == principals.NoProblem {
		for _, a := range answers {
			out.Answers = append(out.Answers, explanationOf(d, a))
		}
	}
	return out
}

func resolutionOf(a review.Answer) resolutionJSON {
	out := resolutionJSON{Discarded: list(a.Discarded)}
	if a.Problem != principals.NoProblem {
		out.Problem = &problemJSON{a.Problem, problemProse(a.Problem)}
		return out
	}
	out.Principal = &principalJSON{ID: a.Principal.ID(), Issuer: string(a.Principal.Issuer()), Subject: a.Principal.Subject(),
		Attributes: []attributeJSON{}}
	for _, x := range a.Principal.Attributes() {
		out.Principal.Attributes = append(out.Principal.Attributes, attributeJSON(x))
	}
	return out
}

func ceilings(of []review.Ceiling) []ceilingJSON {
	out := []ceilingJSON{}
	for _, c := range of {
		out = append(out, ceilingJSON{c.Calls, c.Per, c.Over, c.Point, c.Place})
	}
	return out
}

func things(of []review.Thing) []thingJSON {
	out := []thingJSON{}
	for _, t := range of {
		out = append(out, thingJSON{t.Identity.Canonical(), orNull(string(t.Exposed)), orNull(string(t.Withheld))})
	}
	return out
}
