// Package policyfile answers "what does the policy file say, and has it changed": bytes of one local file, whole and unparsed.
//
// A file that is absent, unreadable, empty, too large or no regular file is an error, never an empty policy. Changes are found by
// reading, not by notifications of the operating system: those miss network mounts, renames of a parent and files that were not
// there yet, and a policy is small.
//
// Start at Source.Load and Source.Watch.
package policyfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"aduana/gateway"
)

// MaxBytes bounds a policy file.
const MaxBytes = 8 << 20

// DefaultInterval is how often Watch looks.
const DefaultInterval = 500 * time.Millisecond

// Source is a policy file. Make one with New.
type Source struct {
	path     string
	interval time.Duration

	mu   sync.Mutex
	seen string // state of the file that somebody was last given or told of
}

var _ gateway.PolicySource = (*Source)(nil)

// New makes a source for the file at path. Watch looks every interval; zero means DefaultInterval.
func New(path string, interval time.Duration) *Source {
	if interval <= 0 {
		interval = DefaultInterval
	}
	return &Source{path: path, interval: interval}
}

// Load reads the file. The origin is its path.
func (s *Source) Load(ctx context.Context) (gateway.Source, error) {
	if err := ctx.Err(); err != nil {
		return gateway.Source{}, fmt.Errorf("policy %q: %w", s.path, err)
	}
	text, state, err := s.read()
	if err != nil {
		return gateway.Source{}, fmt.Errorf("policy %q: %w", s.path, err)
	}
	s.mu.Lock()
	s.seen = state
	s.mu.Unlock()
	return gateway.Source{Text: text, Origin: s.path, Version: state[:12]}, nil
}

// Watch calls changed when the file is no longer as it was last loaded or told of, and returns when ctx ends. A file that became
// unreadable counts as changed: the next Load says what is wrong.
//
// Two looks in a row must agree first, so that an editor which truncates and then writes is not caught between the two.
func (s *Source) Watch(ctx context.Context, changed func()) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	var l look
	state := l.at(s)
	s.mu.Lock()
	if s.seen == "" { // never loaded: what stands there now is not news
		s.seen = state
	}
	s.mu.Unlock()
	last := state
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		state = l.at(s)
		if s.news(last, state) && ctx.Err() == nil {
			changed()
		}
		last = state
	}
}

// look is one look at the file after another. Content is what counts, but a file that was old already at the last look and has the
// same time, size and inode is not read again: a large policy would otherwise be read twice a second for ever.
type look struct {
	info  fs.FileInfo
	when  time.Time
	state string
}

// settled is how old a change must be for its time to be trusted: clocks of file systems are coarse, and two writes can share a tick.
const settled = 3 * time.Second

func (l *look) at(s *Source) string {
	info, err := os.Stat(s.path)
	if err == nil && l.info != nil && os.SameFile(info, l.info) && info.Size() == l.info.Size() &&
		info.ModTime().Equal(l.info.ModTime()) && l.when.Sub(info.ModTime()) > settled {
		return l.state
	}
	l.info, l.when = info, time.Now()
	_, l.state, _ = s.read()
	return l.state
}

// news reports whether somebody must be told, after a look that found state where the look before found last.
func (s *Source) news(last, state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == s.seen || state != last {
		return false
	}
	s.seen = state
	return true
}

// read gives the text and the file's state: the text's digest in hex, or what prevents reading it.
func (s *Source) read() (text []byte, state string, err error) {
	if text, err = readFile(s.path); err != nil {
		return nil, "unreadable: " + err.Error(), err
	}
	sum := sha256.Sum256(text)
	return text, hex.EncodeToString(sum[:]), nil
}

func readFile(path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a named pipe waits for a writer, possibly for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if pe := new(fs.PathError); errors.As(err, &pe) { // the caller names the path
			err = pe.Err
		}
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be examined: %w", err)
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	switch {
	case err != nil:
		return nil, errors.New("cannot be read")
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("larger than %d bytes", MaxBytes)
	case len(text) == 0:
		return nil, errors.New("the file is empty; an empty policy grants nothing and is taken for a mistake")
	}
	return text, nil
}
