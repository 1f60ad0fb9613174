// Package unassigned answers every port with a refusal. It stands where nothing else does, so that a port without an adapter is
// a refusal by construction and not a nil that somebody forgot to test.
//
// Start anywhere: every method refuses.
package unassigned

import (
	"context"

	"aduana/access"
	"aduana/accounts"
	"aduana/capabilities"
	"aduana/gateway"
	"aduana/principals"
)

var (
	_ gateway.Authenticator = Authenticator{}
	_ gateway.PolicySource  = PolicySource{}
	_ gateway.Usage         = Usage{}
	_ gateway.Credentials   = Credentials{}
	_ gateway.Audit         = Audit{}
	_ gateway.Schemas       = Schemas{}
	_ gateway.Approvals     = Approvals{}
	_ gateway.Upstream      = Upstream{}
)

// Authenticator authenticates nobody.
type Authenticator struct{}

// Authenticate knows no issuer, so that whatever was presented is invalid.
func (Authenticator) Authenticate(_ context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	if c.Bearer.Empty() {
		return principals.Presented{}, principals.CredentialMissing
	}
	return principals.Presented{}, principals.CredentialInvalid
}

// PolicySource has no policy.
type PolicySource struct{}

// Load fails.
func (PolicySource) Load(context.Context) (gateway.Source, error) {
	return gateway.Source{}, gateway.ErrUnassigned
}

// Watch waits until ctx ends: nothing ever changes.
func (PolicySource) Watch(ctx context.Context, _ func()) { <-ctx.Done() }

// Usage knows no counter: usage is unknown, never zero.
type Usage struct{}

// Facts fails.
func (Usage) Facts(context.Context, int64, []gateway.Demand) ([]access.Count, error) {
	return nil, gateway.ErrUnassigned
}

// Reserve fails.
func (Usage) Reserve(context.Context, int64, []gateway.Demand) (gateway.Reservation, bool, error) {
	return gateway.Reservation{}, false, gateway.ErrUnassigned
}

// GiveBack fails.
func (Usage) GiveBack(context.Context, gateway.Reservation) error { return gateway.ErrUnassigned }

// Credentials has no secret.
type Credentials struct{}

// Resolve fails.
func (Credentials) Resolve(context.Context, accounts.Reference) (gateway.Material, error) {
	return gateway.Material{}, gateway.ErrUnassigned
}

// Audit can write nothing, so that no call is made.
type Audit struct{}

// Intend fails.
func (Audit) Intend(context.Context, *gateway.Record) error { return gateway.ErrUnassigned }

// Finish fails.
func (Audit) Finish(context.Context, *gateway.Record) error { return gateway.ErrUnassigned }

// Note fails.
func (Audit) Note(context.Context, *gateway.Record) error { return gateway.ErrUnassigned }

// Schemas can use no schema.
type Schemas struct{}

// Validate fails; the error is not a *gateway.Violation, because nothing was compared.
func (Schemas) Validate(context.Context, capabilities.Digest, []byte, []byte) error {
	return gateway.ErrUnassigned
}

// Approvals can ask nobody.
type Approvals struct{}

// Ask fails.
func (Approvals) Ask(context.Context, gateway.Question) (bool, error) {
	return false, gateway.ErrUnassigned
}

// Upstream reaches nothing.
type Upstream struct{}

// Open fails with a *gateway.Failure, as the port demands. Its class is dial: nothing was reached, nothing was sent.
func (Upstream) Open(context.Context, gateway.Target) (gateway.UpstreamSession, error) {
	return nil, &gateway.Failure{Class: gateway.FailedDial, Detail: gateway.ErrUnassigned.Error()}
}
