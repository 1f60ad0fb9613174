package unassigned_test

import (
	"context"
	"errors"
	"testing"

	"aduana/adapters/unassigned"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
)

func TestEveryPortRefuses(t *testing.T) {
	ctx := t.Context()
	gatewaytest.RunAuthenticator(t, gatewaytest.AuthenticatorCase{Authenticator: unassigned.Authenticator{}})

	_, load := unassigned.PolicySource{}.Load(ctx)
	_, facts := unassigned.Usage{}.Facts(ctx, 0, nil)
	_, _, reserve := unassigned.Usage{}.Reserve(ctx, 0, nil)
	_, resolve := unassigned.Credentials{}.Resolve(ctx, "env://X")
	approved, ask := unassigned.Approvals{}.Ask(ctx, gateway.Question{})
	validate := unassigned.Schemas{}.Validate(ctx, "", []byte(`{"type":"object"}`), []byte(`{}`))
	for name, err := range map[string]error{
		"policy source": load, "facts": facts, "reserve": reserve, "resolve": resolve, "ask": ask, "validate": validate,
		"give back": unassigned.Usage{}.GiveBack(ctx, gateway.Reservation{}),
		"intend":    unassigned.Audit{}.Intend(ctx, &gateway.Record{}),
		"finish":    unassigned.Audit{}.Finish(ctx, &gateway.Record{}),
		"note":      unassigned.Audit{}.Note(ctx, &gateway.Record{}),
	} {
		if !errors.Is(err, gateway.ErrUnassigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if approved {
		t.Error("approved")
	}
	if v := new(gateway.Violation); errors.As(validate, &v) {
		t.Error("arguments are blamed where nothing was compared")
	}
	session, err := unassigned.Upstream{}.Open(ctx, gateway.Target{})
	if f := new(gateway.Failure); session != nil || !errors.As(err, &f) || f.Class != gateway.FailedDial {
		t.Errorf("open: %v, %v", session, err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unassigned.PolicySource{}.Watch(ctx, func() { t.Error("changed") })
}
