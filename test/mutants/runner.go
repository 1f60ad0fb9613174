package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
)

// mutant is one planted fault.
type mutant struct {
	name string // what is broken, in words
	file string // in the module, with slashes
	old  string // must stand in the file exactly once
	new  string
	pkg  string // whose tests must notice, "./" and a folder; empty: the file's own
	run  string // -run pattern of the test that must turn red
}

func (m mutant) tests() string {
	if m.pkg != "" {
		return m.pkg
	}
	return "./" + path.Dir(m.file)
}

type result struct {
	mutant mutant
	err    error // nil: killed
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask go where the module is: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", errors.New("not inside the module; run it from its folder")
	}
	return filepath.Dir(file), nil
}

// mutated gives the file's text with the fault in it.
func mutated(root string, m mutant) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", err
	}
	switch n := strings.Count(string(text), m.old); {
	case m.old == m.new:
		return "", errors.New("the mutant changes nothing")
	case n == 0:
		return "", fmt.Errorf("stale: %q does not stand in the file; write the mutant anew for the code as it is", m.old)
	case n > 1:
		return "", fmt.Errorf("stale: %q stands in the file %d times; give more of the text around it", m.old, n)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// runAll first sees to it that everything is green, then plants the mutants, a few at a time.
func runAll(ctx context.Context, root string, list []mutant) ([]result, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	green := map[string]bool{}
	for _, m := range list {
		key := m.tests() + " " + m.run
		if green[key] {
			continue
		}
		green[key] = true
		out, err := goTest(ctx, root, m, "")
		if err != nil {
			return nil, fmt.Errorf("without any mutant, %s of %s is not green:\n%s", m.run, m.tests(), out)
		}
		if strings.Contains(out, "no tests to run") {
			return nil, fmt.Errorf("%s has no test that matches %s", m.tests(), m.run)
		}
	}
	results := make([]result, len(list))
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, m := range list {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[i] = result{m, plant(ctx, root, filepath.Join(dir, fmt.Sprint(i)), m)}
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

func plant(ctx context.Context, root, dir string, m mutant) error {
	text, err := mutated(root, m)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	broken := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, filepath.FromSlash(m.file)): broken}})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return err
	}
	out, err := goTest(ctx, root, m, overlayFile)
	switch {
	case err == nil:
		return fmt.Errorf("survived: %s of %s stays green", m.run, m.tests())
	case !namesFailure(out, m.run):
		return fmt.Errorf("the run failed, but not because a test that matches %s turned red:\n%s", m.run, out)
	}
	return nil
}

// namesFailure tells a red test from code that does not compile: only the former counts.
func namesFailure(out, pattern string) bool {
	top, _, _ := strings.Cut(pattern, "/")
	wanted, err := regexp.Compile(top)
	if err != nil {
		return false
	}
	for _, m := range regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllStringSubmatch(out, -1) {
		if wanted.MatchString(m[1]) {
			return true
		}
	}
	return false
}

// goTest runs the named tests. Vet is off, because the fault may be one that vet sees; the code must go red by its tests.
func goTest(ctx context.Context, root string, m mutant, overlay string) (string, error) {
	args := []string{"test", "-count=1", "-vet=off", "-timeout=120s", "-run", m.run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, m.tests())...)
	cmd.Dir = root
	// The default number of cases, whatever the caller's shell says; and no mutants within mutants.
	cmd.Env = append(os.Environ(), "ADUANA_MUTANTS=", "ADUANA_CASES=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := out.String()
	if len(text) > 4000 {
		text = text[:2000] + "\n[…]\n" + text[len(text)-2000:]
	}
	return text, err
}
