// Package policy answers one question: what was declared, and is it well
// declared?
//
// It turns the text of a policy file into a compiled [Policy] or into a list
// of diagnostics, each with a closed code, a JSON pointer (RFC 6901) and a
// line and column in that text. Nothing is ever half compiled: one error and
// there is no Policy.
//
// It is pure. It knows no clock, file, network, environment or other package
// of this module; the same bytes give the same result on every machine. It
// never sees a secret, only references to secrets, and it never repeats text
// in a message from a place where a secret may have been written by mistake.
//
// Start reading at [Compiler.Compile]; the stages follow in order: document.go
// (YAML and positions), schema.go and violations.go (shape), compile.go and
// ambiguity.go (meaning). The compiled data is in policy.go, the closed list
// of codes in diagnostic.go.
package policy
