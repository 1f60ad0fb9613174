package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFit costs nothing and always runs: every mutant must fit the code as it is, under a name of its own.
func TestFit(t *testing.T) {
	root, err := moduleRoot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range table() {
		if _, err := mutated(root, m); err != nil {
			t.Errorf("%s: %s: %v", m.file, m.name, err)
		}
		if key := m.file + m.name; seen[key] {
			t.Errorf("%s: two mutants are called %q", m.file, m.name)
		} else {
			seen[key] = true
		}
		if m.run == "" || m.name == "" {
			t.Errorf("%s: %q has no name or no test", m.file, m.name)
		}
	}
}

// TestKilled plants them all; it takes minutes, so that it must be asked for.
func TestKilled(t *testing.T) {
	if os.Getenv("ADUANA_MUTANTS") == "" {
		t.Skipf("SKIPPED: %d mutants were not planted; set ADUANA_MUTANTS=1, or go run ./test/mutants", len(table()))
	}
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results, err := runAll(t.Context(), root, table())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.err != nil {
			t.Errorf("%s: %s: %v", r.mutant.file, r.mutant.name, r.err)
		}
	}
}

// TestRunnerCanFail is the runner's own negative control, on a module of three lines: a survivor, a stale mutant, one that stands
// twice, one that does not compile, and tests that were never green must each be told apart from a kill.
func TestRunnerCanFail(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const code = "package a\n\nfunc Two() int { return 2 }\n\nfunc Untested() int { return 3 }\n"
	write("go.mod", "module planted\n\ngo 1.26\n")
	write("a/a.go", code)
	write("a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Error(\"not two\")\n\t}\n}\n")
	write("b/b.go", "package b\n")
	write("b/b_test.go", "package b\n\nimport \"testing\"\n\nfunc TestRed(t *testing.T) { t.Error(\"red\") }\n")
	plantOne := func(m mutant) error {
		t.Helper()
		if _, err := mutated(root, m); err != nil {
			return err // what plant says first; no need to run anything
		}
		results, err := runAll(t.Context(), root, []mutant{m})
		if err != nil {
			return err
		}
		return results[0].err
	}
	tests := []struct {
		name string
		m    mutant
		says string // empty: killed
	}{
		{"killed", mutant{file: "a/a.go", old: "return 2", new: "return 4", run: "TestTwo"}, ""},
		{"survivor", mutant{file: "a/a.go", old: "return 3", new: "return 4", run: "TestTwo"}, "survived"},
		{"stale", mutant{file: "a/a.go", old: "return 5", new: "return 4", run: "TestTwo"}, "stale"},
		{"twice", mutant{file: "a/a.go", old: "return", new: "return 1 +", run: "TestTwo"}, "2 times"},
		{"changes nothing", mutant{file: "a/a.go", old: "return 2", new: "return 2", run: "TestTwo"}, "changes nothing"},
		{"no such file", mutant{file: "a/none.go", old: "x", new: "y", run: "TestTwo"}, "no such file"},
		{"does not compile", mutant{file: "a/a.go", old: "return 2", new: "return x", run: "TestTwo"}, "not because a test"},
		{"no such test", mutant{file: "a/a.go", old: "return 2", new: "return 4", run: "TestThree"}, "no test that matches"},
		{"never green", mutant{file: "b/b.go", old: "package b", new: "package b // x", run: "TestRed"}, "not green"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := plantOne(tt.m)
			switch {
			case tt.says == "" && err != nil:
				t.Errorf("not killed: %v", err)
			case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(root, "a/a.go")); err != nil || string(text) != code {
		t.Errorf("the tree was touched: %s, %v", text, err)
	}
}
