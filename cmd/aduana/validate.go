package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"aduana/capabilities"
	"aduana/policy"
)

func newValidate(p *printer) *cobra.Command {
	var lock string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate POLICY",
		Short: "Say what is wrong with a policy, and where",
		Long: "validate reads a policy and reports everything that is wrong with it, each finding with its place.\n" +
			"With a lock or a catalogue it also compares the mappings with the tools that exist.\n" +
			"It exits 1 when there is an error; warnings alone are fine.",
		Example: "  aduana validate policy.yaml --lock aduana.lock.yaml",
		Args:    operands("POLICY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := load(args[0], lock)
			if err != nil {
				return err
			}
			if asJSON {
				err = p.json(validation(args[0], d))
			} else {
				diagnostics(p.line, args[0], d.result)
				if d.result.Total == 0 {
					p.line("%s: no findings", args[0])
				}
			}
			if err != nil {
				return err
			}
			if d.snapshot == nil {
				return findings()
			}
			if n := withheld(d); n > 0 {
				p.note("%d of %d mapped tools would be withheld from everybody", n, len(d.snapshot.Tools))
				p.hint("see them with: aduana names %s", args[0])
			}
			return nil
		},
	}
	addLock(cmd, &lock)
	addJSON(cmd, &asJSON)
	return cmd
}

// withheld counts what the policy maps and nobody would see.
func withheld(d *declared) int {
	n := 0
	for _, t := range d.snapshot.Tools {
		if t.Withheld != capabilities.NotWithheld {
			n++
		}
	}
	return n
}

// diagnostics writes findings for people: a line that an editor can open, what is wrong, where in the document, what else takes
// part.
func diagnostics(say func(format string, args ...any), origin string, r policy.Result) {
	for _, f := range r.Diagnostics {
		say("%s  %s  %s", place(origin, f.Position), f.Severity, f.Code)
		say("  %s", f.Message)
		say("  at %s", documentPointer(f.Pointer))
		for _, o := range f.Related {
			say("  %s  %s: %s", place(origin, o.Position), documentPointer(o.Pointer), o.Note)
		}
		say("")
	}
	if r.Total == 0 {
		return
	}
	count := "1 finding"
	if r.Total > 1 {
		count = fmt.Sprintf("%d findings", r.Total)
	}
	if r.Capped {
		count += fmt.Sprintf(", of which %d are shown", len(r.Diagnostics))
	}
	say("%s", count)
}

func place(origin string, at policy.Position) string {
	if at.Line == 0 {
		return origin
	}
	return fmt.Sprintf("%s:%d:%d", origin, at.Line, at.Column)
}

func documentPointer(pointer string) string {
	if pointer == "" {
		return "<document>"
	}
	return pointer
}

type validationJSON struct {
	Origin      string           `json:"origin"`
	Version     string           `json:"version"`
	Diagnostics []diagnosticJSON `json:"diagnostics"`
	Total       int              `json:"total"`
	Capped      bool             `json:"capped"`
}

type diagnosticJSON struct {
	Severity string        `json:"severity"`
	Code     policy.Code   `json:"code"`
	Message  string        `json:"message"`
	Pointer  string        `json:"pointer"`
	Position *position     `json:"position"`
	Related  []relatedJSON `json:"related"`
}

type relatedJSON struct {
	Pointer  string    `json:"pointer"`
	Position *position `json:"position"`
	Note     string    `json:"note"`
}

func validation(origin string, d *declared) validationJSON {
	out := validationJSON{Origin: origin, Version: d.input.Version, Diagnostics: []diagnosticJSON{}, Total: d.result.Total,
		Capped: d.result.Capped}
	for _, f := range d.result.Diagnostics {
		related := []relatedJSON{}
		for _, o := range f.Related {
			related = append(related, relatedJSON{o.Pointer, positionOf(o.Position), o.Note})
		}
		out.Diagnostics = append(out.Diagnostics, diagnosticJSON{f.Severity.String(), f.Code, f.Message, f.Pointer, positionOf(f.Position), related})
	}
	return out
}

func positionOf(at policy.Position) *position {
	if at.Line == 0 {
		return nil
	}
	return &position{at.Line, at.Column}
}
