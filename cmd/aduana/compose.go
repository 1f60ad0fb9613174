package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"aduana/accounts"
	"aduana/adapters/auditfile"
	"aduana/adapters/auditlog"
	"aduana/adapters/env"
	"aduana/adapters/jsonschema"
	"aduana/adapters/mcphttp"
	"aduana/adapters/mcpstdio"
	"aduana/adapters/memory"
	"aduana/adapters/secretfile"
	"aduana/adapters/statickey"
	"aduana/adapters/unassigned"
	"aduana/assembly"
	"aduana/gateway"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/principals"
)

// house is a composed gateway: the flow with an adapter on every port. This file is the only place that knows which.
type house struct {
	gateway     *gateway.Gateway
	keys        *keys
	credentials gateway.Credentials
	log         *slog.Logger
	closers     []io.Closer
}

// compose puts the house together. Closing it ends upstream sessions first and the audit last, so that what happens while closing
// is still recorded.
func compose(in assembly.Input, sinks []string, log *slog.Logger, stderr io.Writer) (*house, error) {
	credentials := gateway.ByScheme{
		env.Scheme:        env.New(),
		secretfile.Scheme: secretfile.New(),
	}
	audit, argumentKey, closers, err := openAudit(sinks, stderr)
	if err != nil {
		return nil, err
	}
	h := &house{log: log, closers: closers, credentials: credentials, keys: &keys{credentials: credentials}}
	h.keys.declare(in.Policy)
	h.gateway = gateway.New(gateway.Config{
		Clock:         time.Now,
		Authenticator: h.keys,
		Usage:         memory.New(),
		Credentials:   credentials,
		Audit:         audit,
		Schemas:       jsonschema.New(),
		Approvals:     unassigned.Approvals{},
		Upstreams: map[policy.Transport]gateway.Upstream{
			policy.TransportHTTP:  mcphttp.NewUpstream(mcphttp.UpstreamOptions{Client: product(), Log: log}),
			policy.TransportStdio: mcpstdio.NewUpstream(mcpstdio.UpstreamOptions{Product: product(), Log: log}),
		},
		Random:      func(b []byte) { _, _ = rand.Read(b) }, // never fails: crypto/rand ends the process first
		Log:         log,
		Product:     product(),
		ArgumentKey: argumentKey,
		ListTTL:     time.Minute,
	}, in)
	return h, nil
}

func product() mcp.Implementation { return mcp.Implementation{Name: "aduana", Version: productVersion} }

// openAudit opens every listed sink; each is required. Without a file the key of argument digests lives as long as the process.
func openAudit(sinks []string, stderr io.Writer) (gateway.Audit, []byte, []io.Closer, error) {
	var all gateway.AllSinks
	var key []byte
	var closers []io.Closer
	for _, sink := range sinks {
		if sink == "stderr" {
			all = append(all, auditlog.New(stderr, time.Now))
			continue
		}
		path, ok := strings.CutPrefix(sink, "file:")
		if !ok || path == "" {
			return nil, nil, closers, usage("--audit %q is neither file:PATH nor stderr", sink)
		}
		f, err := auditfile.Open(path, time.Now)
		if err != nil {
			return nil, nil, closers, cannot(fmt.Errorf("audit: %w", err), "")
		}
		closers = append(closers, f)
		all = append(all, f)
		if key == nil {
			if key, err = auditfile.Key(path); err != nil {
				return nil, nil, closers, cannot(fmt.Errorf("audit: %w", err), "")
			}
		}
	}
	if key == nil {
		key = make([]byte, 32)
		_, _ = rand.Read(key)
	}
	return all, key, closers, nil
}

// close ends what the house started.
func (h *house) close() error {
	errs := []error{h.gateway.Close()}
	h.gateway.Note(context.Background(), gateway.Stopped, "")
	for _, c := range h.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// declare puts another policy and lock in force: who may authenticate, and everything else.
//
// Keys and grants cannot change in one step. In between only issuers count that both policies declare alike: a key that comes to
// stand for somebody else must have neither the old grants nor the new ones meanwhile.
func (h *house) declare(p *policy.Policy, d *policy.Document, version string, lock assembly.Lock) *assembly.Snapshot {
	h.keys.declare(unchanged(h.gateway.Snapshot().Policy, p))
	s := h.gateway.Declare(p, d, version, lock)
	h.keys.declare(p)
	return s
}

// unchanged gives the issuers that two policies declare alike.
func unchanged(before, after *policy.Policy) *policy.Policy {
	alike := &policy.Policy{}
	for _, a := range after.Issuers {
		for _, b := range before.Issuers {
			if a.ID == b.ID && reflect.DeepEqual(withoutPlaces(a), withoutPlaces(b)) {
				alike.Issuers = append(alike.Issuers, a)
			}
		}
	}
	return alike
}

func withoutPlaces(i policy.Issuer) policy.Issuer {
	i.Pointer = ""
	i.Attributes = slices.Clone(i.Attributes)
	for j := range i.Attributes {
		i.Attributes[j].Pointer = ""
	}
	return i
}

// keys is the static-key authenticator of the policy in force.
type keys struct {
	credentials gateway.Credentials
	current     atomic.Pointer[statickey.Authenticator]
}

// Authenticate asks the current one.
func (k *keys) Authenticate(ctx context.Context, c gateway.Credential) (principals.Presented, principals.Problem) {
	return k.current.Load().Authenticate(ctx, c)
}

func (k *keys) declare(p *policy.Policy) {
	var issuers []statickey.Issuer
	for _, i := range p.Issuers {
		if !usable(i) {
			continue
		}
		s := statickey.Issuer{ID: principals.IssuerID(i.ID), Subject: i.Subject, Ref: accounts.Reference(i.SecretRef)}
		for _, a := range i.Attributes {
			s.Attributes = append(s.Attributes, principals.Attribute{Name: a.Name, Value: a.From})
		}
		issuers = append(issuers, s)
	}
	k.current.Store(statickey.New(issuers, k.credentials))
}

// check tells of keys that will authenticate nobody: missing, too short, or two alike.
func (k *keys) check(ctx context.Context) error { return k.current.Load().Check(ctx) }

// usable reports whether an issuer can authenticate anybody here.
func usable(i policy.Issuer) bool {
	return i.Kind == policy.IssuerStaticKey && i.Subject != "" && i.SecretRef != ""
}

// unusable says, per issuer that authenticates nobody, why.
func unusable(p *policy.Policy) []string {
	var out []string
	for _, i := range p.Issuers {
		switch {
		case usable(i):
		case i.Kind == policy.IssuerStaticKey:
			out = append(out, fmt.Sprintf("issuer %s authenticates nobody: a static-key issuer needs subject and secret", i.ID))
		default:
			out = append(out, fmt.Sprintf("issuer %s authenticates nobody: this version serves static-key issuers, not %s", i.ID, i.Kind))
		}
	}
	return out
}
