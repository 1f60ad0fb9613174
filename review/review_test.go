package review_test

import (
	"testing"

	"aduana/policy"
)

func compiler(t *testing.T) *policy.Compiler {
	t.Helper()
	c, err := policy.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
