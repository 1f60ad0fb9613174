package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"aduana/adapters/auditfile"
)

func newAudit(p *printer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit COMMAND",
		Short: "Prove an audit file",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("audit needs a command: verify")
			}
			return usage("unknown command %q for %q", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(newAuditVerify(p))
	return cmd
}

type proofJSON struct {
	File    string      `json:"file"`
	Intact  bool        `json:"intact"`
	Records int64       `json:"records"` // before the break, when there is one
	Intents int64       `json:"intents"`
	Open    []string    `json:"open"` // calls whose outcome was never recorded
	First   *string     `json:"first"`
	Last    *string     `json:"last"`
	Head    string      `json:"head"`
	Broken  *brokenJSON `json:"broken"`
}

type brokenJSON struct {
	Line   int64  `json:"line"`
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

func newAuditVerify(p *printer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Prove that an audit file is exactly what was written",
		Long: "verify recomputes the chain of hashes, line by line and byte by byte, and names the first line that is not what was written.\n" +
			"Calls whose outcome was never recorded are reported; they are no error. A chain cannot show that its end was cut off:\n" +
			"keep the head elsewhere and compare it.",
		Args: operands("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return cannot(fmt.Errorf("audit file: %w", err), "")
			}
			defer f.Close()
			r, err := auditfile.Verify(f)
			broken := new(auditfile.Broken)
			if err != nil && !errors.As(err, &broken) {
				return cannot(fmt.Errorf("audit file: %w", err), "")
			}
			sound := err == nil
			if asJSON {
				proof := proofJSON{File: args[0], Intact: sound, Records: r.Records, Intents: r.Intents, Open: list(r.Open), Head: r.Head}
				if r.Records > 0 {
					proof.First, proof.Last = orNull(timestamp(r.First)), orNull(timestamp(r.Last))
				}
				if !sound {
					proof.Broken = &brokenJSON{broken.Line, broken.Offset, broken.Reason}
				}
				err = p.json(proof)
			} else {
				err = nil
				p.proof(args[0], r)
				if !sound {
					p.line("BROKEN at line %d, byte %d: %s", broken.Line, broken.Offset, broken.Reason)
				}
			}
			if err != nil {
				return err
			}
			if !sound {
				return findings()
			}
			return nil
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func (p *printer) proof(file string, r auditfile.Report) {
	p.field("file", "%s", file)
	p.field("proved", "%d records", r.Records)
	if r.Records > 0 {
		p.field("from", "%s", timestamp(r.First))
		p.field("to", "%s", timestamp(r.Last))
	}
	p.field("head", "%s", r.Head)
	p.field("open", "%d of %d intents have no recorded outcome", len(r.Open), r.Intents)
	for _, call := range r.Open {
		p.line("  %s", call)
	}
}
