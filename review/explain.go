package review

import (
	"fmt"
	"slices"
	"strings"

	"aduana/access"
	"aduana/accounts"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/consent"
	"aduana/policy"
	"aduana/principals"
)

// Question asks what would be decided. Exactly one of Capability and Tool is set; Tool is an exposed name or a canonical identity.
type Question struct {
	Issuer     string
	Subject    string
	Attributes []principals.Attribute
	Capability string
	Tool       string
	At         int64 // Unix milliseconds
	// Usage is the number of calls that every ceiling that binds has already counted; UsageUnknown and UsageNotConsulted are the
	// other two states.
	Usage int64
}

// The states of Question.Usage that are not a number.
const (
	UsageUnknown      int64 = -1
	UsageNotConsulted int64 = -2
)

// Answer is an explained decision. Problem is set when there is no principal; then nothing was decided.
type Answer struct {
	Principal  principals.Principal
	Discarded  []string
	Problem    principals.Problem
	Capability string
	Decision   access.Decision
	Place      string
	Account    accounts.Handle
	State      consent.State
	Risk       consent.Risk
	Ceilings   []Ceiling
	Tools      []Thing
}

// Ceiling is one that binds, with its place.
type Ceiling struct {
	Calls int64
	Per   string
	Over  string
	Place string
	Point string
}

// Thing is a tool as a report names it.
type Thing struct {
	Identity capabilities.Identity
	Exposed  capabilities.ExposedName
	Withheld capabilities.Withheld
}

// NotFound says that a question names something that is not there.
type NotFound struct{ What string }

func (e *NotFound) Error() string { return e.What }

// Explain answers one question.
func Explain(s *assembly.Snapshot, q Question) (Answer, error) {
	var a Answer
	a.Principal, a.Discarded, a.Problem = admit(s, q.Issuer, q.Subject, q.Attributes)
	a.Capability = q.Capability
	if q.Tool != "" {
		t, err := find(s, q.Tool)
		if err != nil {
			return a, err
		}
		a.Capability = t.Capability
	}
	if a.Problem != principals.NoProblem {
		return a, nil
	}
	explain(s, &a, q)
	return a, nil
}

// ExplainAll answers for every declared capability that the principal is granted: everything that they see.
func ExplainAll(s *assembly.Snapshot, q Question) []Answer {
	p, discarded, problem := admit(s, q.Issuer, q.Subject, q.Attributes)
	if problem != principals.NoProblem {
		return []Answer{{Discarded: discarded, Problem: problem}}
	}
	q.Usage = UsageNotConsulted
	var all []Answer
	for _, c := range s.Policy.Capabilities {
		a := Answer{Principal: p, Discarded: discarded, Capability: c.ID}
		explain(s, &a, q)
		if a.Decision.Allowed() {
			all = append(all, a)
		}
	}
	return all
}

func explain(s *assembly.Snapshot, a *Answer, q Question) {
	inv := access.Invocation{Caller: assembly.CallerOf(a.Principal), Capability: a.Capability, At: q.At}
	ceilings := s.Access.Ceilings(nil, inv)
	switch q.Usage {
	case UsageUnknown:
		inv.Usage.State = access.UsageStateUnknown
	case UsageNotConsulted:
		inv.Usage.State = access.NotConsulted
	default:
		inv.Usage.State = access.Counted
		for _, c := range ceilings {
			inv.Usage.Counts = append(inv.Usage.Counts, access.Count{Slot: c.Slot, Used: q.Usage, FreesAt: q.At + c.Window})
		}
	}
	a.Decision = access.Evaluate(s.Access, inv)
	a.Place = s.Place(a.Decision.Reason().Pointer)
	a.Tools = realising(s, a.Capability)
	if p, ok := a.Decision.Permit(); ok {
		a.Account = accounts.Handle(p.Account)
		for _, c := range ceilings {
			a.Ceilings = append(a.Ceilings, ceiling(s, c))
		}
		a.Risk = riskOf(s, a.Capability)
		a.State = consent.Resolve(assembly.RuleOf(p.Ask), a.Risk)
	}
}

func riskOf(s *assembly.Snapshot, capability string) consent.Risk {
	for _, t := range s.Tools {
		if t.Capability == capability {
			return t.Risk
		}
	}
	return consent.UndeclaredRisk
}

func ceiling(s *assembly.Snapshot, c access.Ceiling) Ceiling {
	return Ceiling{Calls: c.Calls, Per: c.Text, Over: over(c.Scope, c.Attribute), Place: s.Place(c.Pointer), Point: c.Pointer}
}

func over(scope access.Scope, attribute string) string {
	switch scope {
	case access.OverGrant:
		return "grant"
	case access.OverAccount:
		return "account"
	case access.OverAttribute:
		return attribute
	}
	return "principal"
}

// admit completes the attributes with the literal ones of a static-key issuer, as the gateway would, and lets those asked for
// override them.
func admit(s *assembly.Snapshot, issuer, subject string, asked []principals.Attribute) (principals.Principal, []string, principals.Problem) {
	attributes := slices.Clone(asked)
	for _, i := range s.Policy.Issuers {
		if i.ID != issuer || i.Kind != policy.IssuerStaticKey {
			continue
		}
		for _, a := range i.Attributes {
			if !slices.ContainsFunc(asked, func(x principals.Attribute) bool { return x.Name == a.Name }) {
				attributes = append(attributes, principals.Attribute{Name: a.Name, Value: a.From})
			}
		}
	}
	return s.Issuers.Admit(principals.Presented{Issuer: principals.IssuerID(issuer), Subject: subject, Attributes: attributes})
}

// find looks a tool up by canonical identity or by exposed name; a name that could be either is an identity, because exposed
// names hold no ':'.
func find(s *assembly.Snapshot, name string) (*assembly.Tool, error) {
	if strings.Contains(name, ":") {
		id, err := capabilities.Parse(name)
		if err != nil {
			return nil, &NotFound{err.Error()}
		}
		if t, ok := s.ToolOf(id); ok {
			return t, nil
		}
		return nil, &NotFound{fmt.Sprintf("no declared tool is %s", id)}
	}
	if t, ok := s.Lookup("", name); ok {
		return t, nil
	}
	return nil, &NotFound{fmt.Sprintf("no tool is exposed as %q", name)}
}

func realising(s *assembly.Snapshot, capability string) []Thing {
	var list []Thing
	for _, t := range s.Tools {
		if t.Capability == capability {
			list = append(list, Thing{t.Identity, t.Exposed, t.Withheld})
		}
	}
	return list
}
