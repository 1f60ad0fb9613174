// Package consent answers "DO THEY STILL WANT IT": of what the grants allow, is a tool enabled, does it ask first, or is it
// disabled for this person.
//
// It is pure. Consent only narrows: nothing here can allow what no grant allows, and the zero State is disabled. Documents of
// people's choices, bindings and approvals will live here too; today the state follows from risk and grant alone.
//
// Start at Resolve.
package consent

// State is what consent makes of a granted tool.
type State uint8

// The states. The zero value is the narrowest.
const (
	Disabled State = iota
	Ask
	Enabled
)

// String is the word of the policy.
func (s State) String() string {
	switch s {
	case Ask:
		return "ask"
	case Enabled:
		return "enabled"
	}
	return "disabled"
}

// Risk is how much a call can do. The zero Risk, undeclared, counts as a write.
type Risk uint8

// The risks.
const (
	UndeclaredRisk Risk = iota
	ReadRisk
	WriteRisk
	DestructiveRisk
)

// String is the word of the policy; an undeclared risk reads as the write that it counts as.
func (r Risk) String() string {
	switch r {
	case ReadRisk:
		return "read"
	case DestructiveRisk:
		return "destructive"
	}
	return "write"
}

// Rule is a grant's `ask`. The zero Rule is the strictest.
type Rule uint8

// The rules.
const (
	Always Rule = iota
	Destructive
	Never
)

// Resolve gives the state of a granted tool by its risk and the strictest `ask` of the matching grants. What it does not know
// asks.
func Resolve(rule Rule, risk Risk) State {
	switch {
	case rule == Never:
		return Enabled
	case rule == Destructive && risk < DestructiveRisk:
		return Enabled
	}
	return Ask
}
