package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"aduana/capabilities"
	"aduana/review"
)

func newNames(p *printer) *cobra.Command {
	var lock string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "names POLICY [MATCH]",
		Short: "Say under which name each tool is served, and what is withheld",
		Long: "names lists every tool by its identity with the one name that clients see, its capability, and what is wrong with it.\n" +
			"With MATCH it keeps to names and identities that hold that text, and exits 1 when none does.",
		Example: "  aduana names policy.yaml --lock aduana.lock.yaml\n" +
			"  aduana names policy.yaml crm-principal__get_contact",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return operands("POLICY")(cmd, args)
			}
			return operands("POLICY", "MATCH")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := p.sound(args[0], lock)
			if err != nil {
				return err
			}
			match := ""
			if len(args) == 2 {
				match = args[1]
			}
			names := review.Names(d.snapshot, d.input, match)
			if asJSON {
				err = p.json(namesOf(args[0], d, names))
			} else {
				p.names(names)
			}
			if err != nil {
				return err
			}
			if match != "" && len(names) == 0 {
				return notThere(fmt.Errorf("no name or identity holds %q", match), "")
			}
			return nil
		},
	}
	addLock(cmd, &lock)
	addJSON(cmd, &asJSON)
	return cmd
}

func (p *printer) names(names []review.Name) {
	wide, exposed := 0, 0
	for _, n := range names {
		wide, exposed = max(wide, len(n.Identity.Canonical())), max(exposed, len(served(n)))
	}
	for _, n := range names {
		capability := n.Capability
		if capability == "" {
			capability = "(not mapped)"
		}
		p.line("%-*s  %-*s  %s", wide, n.Identity.Canonical(), exposed, served(n), capability)
		for _, f := range n.Findings {
			p.line("  %s", f)
		}
	}
}

// served is the name that clients see, or that they see none.
func served(n review.Name) string {
	if n.Withheld != capabilities.NotWithheld || n.Exposed == "" {
		return "(withheld)"
	}
	return string(n.Exposed)
}

type namesJSON struct {
	Origin  string     `json:"origin"`
	Version string     `json:"version"`
	Names   []nameJSON `json:"names"`
}

type nameJSON struct {
	Identity   string        `json:"identity"`
	Exposed    *string       `json:"exposed"`    // null when no name is served
	Capability *string       `json:"capability"` // null when nothing maps it
	Withheld   *string       `json:"withheld"`
	Findings   []findingJSON `json:"findings"`
}

type findingJSON struct {
	Identity string   `json:"identity"`
	Reason   string   `json:"reason"`
	Peers    []string `json:"peers"`
	Detail   *string  `json:"detail"`
}

func namesOf(origin string, d *declared, names []review.Name) namesJSON {
	out := namesJSON{Origin: origin, Version: d.input.Version, Names: []nameJSON{}}
	for _, n := range names {
		x := nameJSON{Identity: n.Identity.Canonical(), Exposed: orNull(string(n.Exposed)), Capability: orNull(n.Capability),
			Withheld: orNull(string(n.Withheld)), Findings: []findingJSON{}}
		for _, f := range n.Findings {
			peers := []string{}
			for _, i := range f.Peers {
				peers = append(peers, i.Canonical())
			}
			x.Findings = append(x.Findings, findingJSON{f.Identity.Canonical(), string(f.Reason), peers, orNull(f.Detail)})
		}
		out.Names = append(out.Names, x)
	}
	return out
}
