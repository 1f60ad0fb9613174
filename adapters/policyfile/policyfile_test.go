package policyfile_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"aduana/adapters/policyfile"
	"aduana/gateway/gatewaytest"
)

const interval = 5 * time.Millisecond

func TestContract(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, path, text string){
		"in place": func(t *testing.T, path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		},
		"by rename": func(t *testing.T, path, text string) {
			if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Error(err)
			}
		},
		// As configuration mounts of containers do: the file is a link, and what changes is where a link on the way points.
		"by link": func(t *testing.T, path, text string) {
			target, err := os.CreateTemp(filepath.Dir(path), "target-*")
			if err != nil {
				t.Error(err)
				return
			}
			target.WriteString(text)
			target.Close()
			if err := os.Symlink(target.Name(), path+".new"); err != nil {
				t.Error(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "policy.yaml")
			gatewaytest.RunPolicySource(t, gatewaytest.PolicySourceCase{
				Source:   policyfile.New(path, interval),
				Write:    func(text string) { write(t, path, text) },
				Remove:   func() { os.Remove(path) },
				Oversize: strings.Repeat("#", policyfile.MaxBytes+1),
				Within:   10 * time.Second,
			})
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe:                         "not a regular file",
		dir:                          "not a regular file",
		filepath.Join(dir, "absent"): "cannot be opened: no such file or directory",
	} {
		if _, err := policyfile.New(path, interval).Load(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The same text with a new date, or written again, is not news.
func TestOnlyTextCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	os.WriteFile(path, []byte("version: 1"), 0o600)
	s := policyfile.New(path, interval)
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, calls := make(chan struct{}), make(chan struct{}, 8)
	go func() { s.Watch(ctx, func() { calls <- struct{}{} }); close(ended) }()
	for range 5 {
		os.Chtimes(path, time.Time{}, time.Now())
		time.Sleep(3 * interval)
	}
	cancel()
	<-ended
	if len(calls) > 0 {
		t.Errorf("%d calls", len(calls))
	}
}

// A change between Load and Watch is news: nobody was told of it.
func TestChangeBeforeWatchIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	os.WriteFile(path, []byte("version: 1"), 0o600)
	s := policyfile.New(path, interval)
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(path, []byte("version: 1 # other"), 0o600)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	noticed := false
	s.Watch(ctx, func() { noticed = true; cancel() })
	if !noticed {
		t.Error("not noticed")
	}
}
