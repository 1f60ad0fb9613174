package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"aduana/accounts"
)

// AllSinks is an Audit in which every sink is required: a record counts only when all of them took it.
type AllSinks []Audit

// Intend asks each sink in turn. When one refuses, those that took the intent already are told that nothing came of it.
func (a AllSinks) Intend(ctx context.Context, r *Record) error {
	if len(a) == 0 {
		return errors.New("no audit sink is configured")
	}
	for i, sink := range a {
		err := sink.Intend(ctx, r)
		if err == nil {
			continue
		}
		undone := *r
		undone.Event, undone.Outcome, undone.Sent = EventFinish, AuditUnavailable, NotSent
		for _, earlier := range a[:i] {
			err = errors.Join(err, earlier.Finish(ctx, &undone))
		}
		return err
	}
	return nil
}

// Finish tells every sink, whatever the others say.
func (a AllSinks) Finish(ctx context.Context, r *Record) error {
	var errs []error
	for _, sink := range a {
		errs = append(errs, sink.Finish(ctx, r))
	}
	return errors.Join(errs...)
}

// FinishLater tells every sink; those that make callers wait do so here too.
func (a AllSinks) FinishLater(ctx context.Context, r *Record) error {
	var errs []error
	for _, sink := range a {
		if later, ok := sink.(AuditLater); ok {
			errs = append(errs, later.FinishLater(ctx, r))
		} else {
			errs = append(errs, sink.Finish(ctx, r))
		}
	}
	return errors.Join(errs...)
}

// Note tells every sink, whatever the others say.
func (a AllSinks) Note(ctx context.Context, r *Record) error {
	var errs []error
	for _, sink := range a {
		errs = append(errs, sink.Note(ctx, r))
	}
	return errors.Join(errs...)
}

// ByScheme resolves each reference with the adapter of its scheme. A scheme that nothing serves is refused by name.
type ByScheme map[string]Credentials

// Resolve picks by the text before "://".
func (b ByScheme) Resolve(ctx context.Context, ref accounts.Reference) (Material, error) {
	scheme, _, ok := strings.Cut(string(ref), "://")
	if !ok {
		return Material{}, fmt.Errorf("reference %q is not scheme://place", ref)
	}
	c, ok := b[scheme]
	if !ok {
		return Material{}, fmt.Errorf("reference %q: no adapter serves %s://", ref, scheme)
	}
	return c.Resolve(ctx, ref)
}
