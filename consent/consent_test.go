package consent_test

import (
	"testing"

	"aduana/consent"
)

func TestResolve(t *testing.T) {
	tests := []struct {
		rule consent.Rule
		risk consent.Risk
		want consent.State
	}{
		{consent.Always, consent.UndeclaredRisk, consent.Ask},
		{consent.Always, consent.ReadRisk, consent.Ask},
		{consent.Always, consent.WriteRisk, consent.Ask},
		{consent.Always, consent.DestructiveRisk, consent.Ask},
		{consent.Destructive, consent.UndeclaredRisk, consent.Enabled},
		{consent.Destructive, consent.ReadRisk, consent.Enabled},
		{consent.Destructive, consent.WriteRisk, consent.Enabled},
		{consent.Destructive, consent.DestructiveRisk, consent.Ask},
		{consent.Never, consent.UndeclaredRisk, consent.Enabled},
		{consent.Never, consent.ReadRisk, consent.Enabled},
		{consent.Never, consent.WriteRisk, consent.Enabled},
		{consent.Never, consent.DestructiveRisk, consent.Enabled},
		{99, consent.ReadRisk, consent.Ask}, // a rule that nobody knows asks
	}
	for _, tt := range tests {
		if got := consent.Resolve(tt.rule, tt.risk); got != tt.want {
			t.Errorf("rule %d, risk %s: %s, want %s", tt.rule, tt.risk, got, tt.want)
		}
	}
}

func TestZeroValuesAreTheNarrowest(t *testing.T) {
	var state consent.State
	var rule consent.Rule
	var risk consent.Risk
	if state != consent.Disabled || rule != consent.Always || risk.String() != "write" {
		t.Errorf("state %s, rule %d, risk %s", state, rule, risk)
	}
}

func TestWords(t *testing.T) {
	for state, want := range map[consent.State]string{consent.Disabled: "disabled", consent.Ask: "ask", consent.Enabled: "enabled", 99: "disabled"} {
		if state.String() != want {
			t.Errorf("state %d: %q, want %q", state, state, want)
		}
	}
	for risk, want := range map[consent.Risk]string{consent.UndeclaredRisk: "write", consent.ReadRisk: "read", consent.WriteRisk: "write",
		consent.DestructiveRisk: "destructive", 99: "write"} {
		if risk.String() != want {
			t.Errorf("risk %d: %q, want %q", risk, risk, want)
		}
	}
}
