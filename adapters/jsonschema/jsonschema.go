// Package jsonschema answers "do these arguments fit the tool's schema": JSON Schema, drafts 4 to 2020-12 by $schema, 2020-12 when
// there is none; an unknown draft is an error.
//
// A library reads schemas: drafts, $id, $anchor, $ref, and whether the schema itself is one. Judging arguments is done here, since
// both sides come from people who may wish us harm: within a budget of steps that no schema can exceed (references that double at
// every level reach billions in a few lines), on the arguments' own bytes, with exact numbers, in a fixed order, and with messages
// that quote the schema and names but no value. No reference leads out of the schema: nothing is ever fetched or opened.
//
// What is not judged: format and content keywords are annotations in every draft. A pattern outside RE2 (look-ahead, \uXXXX) is not
// guessed at: where it would have to match, the arguments count as not fitting.
//
// Start at Schemas.Validate, then compile.go (schema to rules) and judge.go (rules to answer).
package jsonschema

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"

	"aduana/capabilities"
	"aduana/gateway"
	"aduana/internal/jsonrpc"
)

// What a cache holds at most: compiled schemas, and bytes of their texts. When it is full it starts anew, which costs one compilation
// per schema in use; that this happens at all takes far more tools than the figures of the design.
const (
	maxCached      = 20000
	maxCachedBytes = 64 << 20
)

// Schemas validates against schemas that it keeps compiled. Make one with New. It is safe for concurrent use.
type Schemas struct {
	mu      sync.RWMutex
	entries map[capabilities.Digest]*entry
	bytes   int
	trees   sync.Pool // of *tree: a judgement should not leave garbage for each call
}

var _ gateway.Schemas = (*Schemas)(nil)

// entry is a schema that is compiled, or cannot be: that is kept too, so that a bad schema costs its price once.
type entry struct {
	once  sync.Once
	rules *rules
	err   error
}

// New makes an empty cache.
func New() *Schemas { return &Schemas{entries: map[capabilities.Digest]*entry{}} }

// Validate gives nil when the arguments fit, a *gateway.Violation when they do not, and another error when the schema cannot be used
// or the answer would take too many steps. The digest stands for the schema: two schemas must not share one. Without a digest
// nothing is kept.
func (s *Schemas) Validate(ctx context.Context, digest capabilities.Digest, schema, arguments []byte) error {
	e := s.entry(digest, len(schema))
	e.once.Do(func() { e.rules, e.err = compile(schema) })
	if e.err != nil {
		return e.err
	}
	if e.rules.anyObject() && opensObject(arguments) {
		return nil // nothing to look at, and whoever took the message in has scanned it
	}
	if _, err := jsonrpc.ScanValue(arguments, jsonrpc.Limits{Bytes: math.MaxInt}); err != nil {
		return &gateway.Violation{Detail: "not one unambiguous JSON value"} // the reason would quote it
	}
	t, ok := s.trees.Get().(*tree)
	if !ok {
		t = new(tree)
	}
	err := judge(ctx, e.rules, t, arguments)
	if t.raw = nil; cap(t.nodes) <= 4096 { // one large call must not hold its memory for ever
		s.trees.Put(t)
	}
	return err
}

func (s *Schemas) entry(digest capabilities.Digest, size int) *entry {
	if digest == "" {
		return &entry{}
	}
	s.mu.RLock()
	e, ok := s.entries[digest]
	s.mu.RUnlock()
	if ok {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[digest]; ok {
		return e
	}
	if len(s.entries) >= maxCached || s.bytes+size > maxCachedBytes {
		clear(s.entries)
		s.bytes = 0
	}
	e = &entry{}
	s.entries[digest] = e
	s.bytes += size
	return e
}

func opensObject(arguments []byte) bool {
	arguments = bytes.TrimLeft(arguments, " \t\r\n")
	return len(arguments) > 0 && arguments[0] == '{'
}

// unusable says why a schema cannot be used.
func unusable(format string, args ...any) error {
	return fmt.Errorf("the tool's input schema cannot be used: "+format, args...)
}
