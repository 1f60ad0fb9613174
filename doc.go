// Package house holds the house rules of this module as tests, and nothing else. It answers "does the tree still have the shape
// that ARCHITECTURE.md describes": who may import whom, what is pure, what is exported, what the binary depends on, what the
// documents claim.
//
// Each rule is a function over data that returns violations, so that the rule which judges the tree also judges planted
// violations (Test…CanFail). A rule that could not fail would be worse than none: it would be believed.
//
// Start at importTable in imports_test.go. The compared files (api/, docs/deps/, test/fuzz.txt) are rewritten by
// "go test . -update"; the diff is what is reviewed.
package house
