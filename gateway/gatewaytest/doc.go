// Package gatewaytest answers "does this adapter keep the contract of its port": one suite and one small fake per port.
//
// A suite takes a T, of which *testing.T is one, so that it can also be run against a broken adapter with a Recorder: a suite
// that reports nothing there guards nothing. Suites know only the port, never the technology behind it.
//
// Start at the file named after the port.
package gatewaytest

import (
	"fmt"
	"sync"
)

// T is the part of *testing.T that suites use.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Recorder collects what a suite reports instead of failing a test. It is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	reports []string
}

var _ T = (*Recorder)(nil)

// Helper does nothing.
func (r *Recorder) Helper() {}

// Errorf keeps the report.
func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, fmt.Sprintf(format, args...))
}

// Reports gives what was reported, in order.
func (r *Recorder) Reports() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.reports...)
}
