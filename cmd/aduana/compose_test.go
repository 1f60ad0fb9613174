package main

import (
	"testing"

	"aduana/policy"
)

// Between two policies only issuers count that both declare alike, wherever they stand.
func TestUnchangedIssuers(t *testing.T) {
	issuer := func(id, subject, ref, team, place string) policy.Issuer {
		return policy.Issuer{ID: id, Kind: policy.IssuerStaticKey, Subject: subject, SecretRef: policy.SecretRef(ref), Pointer: place,
			Attributes: []policy.Attribute{{Name: "team", From: team, Pointer: place + "/attributes/team"}}}
	}
	before := &policy.Policy{Issuers: []policy.Issuer{
		issuer("same", "a", "env://A", "x", "/0"), issuer("key", "b", "env://B", "x", "/1"), issuer("who", "c", "env://C", "x", "/2"),
		issuer("team", "d", "env://D", "x", "/3"), issuer("gone", "e", "env://E", "x", "/4"),
	}}
	after := &policy.Policy{Issuers: []policy.Issuer{
		issuer("new", "n", "env://A", "x", "/0"), issuer("same", "a", "env://A", "x", "/1"), issuer("key", "b", "env://Z", "x", "/2"),
		issuer("who", "z", "env://C", "x", "/3"), issuer("team", "d", "env://D", "y", "/4"),
	}}
	got := unchanged(before, after).Issuers
	if len(got) != 1 || got[0].ID != "same" {
		t.Errorf("%+v", got)
	}
}
