package accounts_test

import (
	"testing"

	"aduana/accounts"
)

func TestBind(t *testing.T) {
	d := accounts.NewDirectory([]accounts.Account{
		{Handle: "erp", Reference: "env://ERP", Reach: []string{"billing", "ledger"}},
		{Handle: "old", Reference: "env://OLD", Disabled: true, Reach: []string{"billing"}},
		{Handle: "idle", Reference: "env://IDLE"},
		{Handle: "erp", Reference: "env://SECOND", Reach: []string{"crm"}},    // a second one of the same handle never takes over
		{Handle: "none", Reference: "env://NONE", Reach: []string{"billing"}}, // nobody can declare None
		{Handle: "", Reference: "env://EMPTY", Reach: []string{"crm"}},        // an empty handle is a handle like any other
	})
	tests := []struct {
		name     string
		handle   accounts.Handle
		upstream string
		want     accounts.Reference
		state    accounts.State
	}{
		{"bound", "erp", "billing", "env://ERP", accounts.Bound},
		{"bound elsewhere too", "erp", "ledger", "env://ERP", accounts.Bound},
		{"another upstream", "erp", "crm", "", accounts.OutOfReach},
		{"an upstream with a common beginning", "erp", "billing2", "", accounts.OutOfReach},
		{"no upstream", "erp", "", "", accounts.OutOfReach},
		{"reaches nothing", "idle", "billing", "", accounts.OutOfReach},
		{"disabled", "old", "billing", "", accounts.Disabled},
		{"disabled goes before reach", "old", "crm", "", accounts.Disabled},
		{"never declared", "ghost", "billing", "", accounts.Unknown},
		{"another spelling", "ERP", "billing", "", accounts.Unknown},
		{"none carries nothing, anywhere", accounts.None, "billing", "", accounts.Bound},
		{"none, no upstream", accounts.None, "", "", accounts.Bound},
		{"the empty handle is not none", "", "billing", "", accounts.OutOfReach},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref, state := d.Bind(tt.handle, tt.upstream)
			if ref != tt.want || state != tt.state {
				t.Errorf("%q, %s; want %q, %s", ref, state, tt.want, tt.state)
			}
		})
	}
	if ref, state := (accounts.Directory{}).Bind("erp", "billing"); ref != "" || state != accounts.Unknown {
		t.Errorf("the zero directory binds: %q, %s", ref, state)
	}
	if ref, state := (accounts.Directory{}).Bind(accounts.None, "billing"); ref != "" || state != accounts.Bound {
		t.Errorf("the zero directory and none: %q, %s", ref, state)
	}
}

func TestStateString(t *testing.T) {
	for state, want := range map[accounts.State]string{accounts.Unknown: "unknown", accounts.Disabled: "disabled",
		accounts.OutOfReach: "out of reach", accounts.Bound: "bound", 99: "unknown"} {
		if state.String() != want {
			t.Errorf("%d: %q, want %q", state, state.String(), want)
		}
	}
	if new(accounts.State).String() != "unknown" {
		t.Error("the zero state is good for something")
	}
}
