// Package e2e_test answers one question: does the program as a whole, started as its users start it, do what the documents say?
//
// It knows the gateway by its command line, its messages and its files only. What needs nothing but Go runs always; what needs the
// real servers and the real client from npm runs under ADUANA_E2E, which the script "run" beside this file sets. Start reading at
// names_test.go; how things are started and asked is in package rig.
package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// binary is the program under test, built once. It is written by TestMain alone.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == verbatimArg {
		os.Exit(verbatimChild(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == leakyArg {
		os.Exit(leakyChild(os.Args[2:]))
	}
	upstream.MainIfChild()
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "aduana-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = rig.Build(dir, "aduana/cmd/aduana"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// key is what the tests' one caller presents; it is nobody's secret.
const key = "a-key-of-the-tests-0123456789"

// keyEnv gives it to the gateway, as the issuer's secret and, over stdio, as the client's key.
const keyEnv = "ADUANA_KEY=" + key

// issuer is the policy's declaration of that caller.
const issuer = `
principals:
  issuers:
    - { id: local, kind: static-key, subject: ana, secret: { ref: "env://ADUANA_KEY" } }
`

// write puts a file into a directory and gives its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// deadline is a context that ends before the test's patience does.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	t.Cleanup(cancel)
	return ctx
}

// records reads an audit file, each line as its members.
func records(t *testing.T, path string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(text)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in audit line %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// count gives the number of records that have all these members.
func count(records []map[string]any, want map[string]string) int {
	n := 0
	for _, r := range records {
		all := true
		for k, v := range want {
			all = all && r[k] == v
		}
		if all {
			n++
		}
	}
	return n
}

// verifies runs "aduana audit verify".
func verifies(t *testing.T, path string) rig.Result {
	t.Helper()
	return rig.Run(t, rig.Env(t), rig.Patience, binary, "audit", "verify", path)
}
