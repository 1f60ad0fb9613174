package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// The rules of everything that the program writes:
//
//   - Results go to stdout, and nothing else does: what is piped on is only the answer.
//   - All else goes to stderr, one thought a line, as "aduana: …", no capital, no full stop.
//   - What to do next is a line of its own, "aduana: hint: …".
//   - A complaint about usage is followed by the usage of the command it is about.
//   - --json gives one document, indented by two spaces, whose members are always there: empty lists are [], absent things null.
//   - Text from outside (names, values, messages) is shown, never obeyed: what cannot be seen is written as \u escapes.
//   - No colour.
//
// Exit codes: 0 fine, 1 findings (errors in a policy, changes, failing tests, a broken chain), 2 wrong usage, 3 it could not be done.
//
// This printer is the only way out; no command writes to a stream itself.
type printer struct{ out, err io.Writer }

const (
	exitFindings = 1
	exitUsage    = 2
	exitCannot   = 3
)

// failure is why a command ends with another exit code than 0. An empty text means that all was said.
type failure struct {
	code int
	text string
	hint string
}

func (f *failure) Error() string { return f.text }

// findings ends a command whose output holds the findings.
func findings() error { return &failure{code: exitFindings} }

// notThere ends a command whose question names something that is not there.
func notThere(err error, hint string) error {
	return &failure{code: exitFindings, text: err.Error(), hint: hint}
}

// usage complains about the command line.
func usage(format string, args ...any) error {
	return &failure{code: exitUsage, text: fmt.Sprintf(format, args...)}
}

// cannot says what could not be done.
func cannot(err error, hint string) error {
	return &failure{code: exitCannot, text: err.Error(), hint: hint}
}

// end says what is left to say and gives the exit code. An error that is no failure comes from cobra, which complains only about
// usage.
func (p *printer) end(command *cobra.Command, args []string, err error) int {
	if err == nil {
		return 0
	}
	f := new(failure)
	if !errors.As(err, &f) {
		f = &failure{code: exitUsage, text: err.Error()}
		if !command.HasParent() && len(args) > 0 {
			if near := command.SuggestionsFor(args[0]); len(near) > 0 {
				f.hint = "did you mean " + strings.Join(near, " or ")
			}
		}
	}
	if f.text != "" {
		p.note("%s", f.text)
	}
	if f.hint != "" {
		p.hint("%s", f.hint)
	}
	if f.code == exitUsage && f.text != "" {
		fmt.Fprintf(p.err, "\n%s", command.UsageString())
	}
	return f.code
}

// line writes one line of a result.
func (p *printer) line(format string, args ...any) {
	fmt.Fprintln(p.out, visible(fmt.Sprintf(format, args...)))
}

// field writes one line of a result that has a label before it.
func (p *printer) field(label, format string, args ...any) {
	p.line("%-11s %s", label, fmt.Sprintf(format, args...))
}

// note writes one line of everything else.
func (p *printer) note(format string, args ...any) {
	fmt.Fprintln(p.err, "aduana: "+visible(fmt.Sprintf(format, args...)))
}

// hint says what to do next.
func (p *printer) hint(format string, args ...any) { p.note("hint: "+format, args...) }

// text writes a result that is made of lines already, such as a schema.
func (p *printer) text(s string) { io.WriteString(p.out, s) }

// json writes a result for machines.
func (p *printer) json(v any) error {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return cannot(fmt.Errorf("write the result: %w", err), "")
	}
	return nil
}

// visible escapes what would not be seen, or would move the cursor, or turn text around.
func visible(s string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError } // bytes that are no text, too
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// list gives an empty list where there is none, so that JSON has [] and not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// orNull gives nil, null in JSON, for an empty text.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
