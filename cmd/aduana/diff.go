package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"aduana/access"
	"aduana/consent"
	"aduana/gateway"
	"aduana/review"
)

// kinds are the values of --fail-on, in the order of the help text.
func kinds() []string {
	return []string{string(review.NewAccess), string(review.LostAccess), string(review.Account), string(review.CeilingSet),
		string(review.Ask), string(review.Trust), "any"}
}

func newDiff(p *printer) *cobra.Command {
	var at, lock, lockBefore, lockAfter string
	var failOn []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Say what a change of policy changes, for whom",
		Long: "diff compares what two policies decide, not how they are written: every change of access, account, ceiling or ask, with a\n" +
			"principal for whom it is so, and every change of what is trusted. Reordering is no change.\n" +
			"It exits 1 when anything changed, or with --fail-on only when something of those kinds did.",
		Example: "  aduana diff main.yaml branch.yaml --fail-on new-access,trust",
		Args:    operands("BEFORE", "AFTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, k := range failOn {
				if !slices.Contains(kinds(), k) {
					return usage("--fail-on %q is none of %s", k, strings.Join(kinds(), ", "))
				}
			}
			var when *int64
			if at != "" {
				instant, err := instant(at)
				if err != nil {
					return err
				}
				when = &instant
			}
			if lock != "" {
				lockBefore, lockAfter = lock, lock
			}
			before, err := p.sound(args[0], lockBefore)
			if err != nil {
				return err
			}
			after, err := p.sound(args[1], lockAfter)
			if err != nil {
				return err
			}
			changes := review.Diff(before.snapshot, after.snapshot, when)
			if asJSON {
				err = p.json(differenceOf(before, after, changes))
			} else {
				p.changes(changes, timed(before) || timed(after))
			}
			if err != nil {
				return err
			}
			if fails(changes, failOn) {
				return findings()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "compare at this `INSTANT` only, by RFC 3339 (default: at every instant)")
	f.StringSliceVar(&failOn, "fail-on", nil, "exit 1 only for these `KINDS`: "+strings.Join(kinds(), ", ")+" (repeatable)")
	f.StringVar(&lock, "lock", "", "`FILE` of accepted tools for both sides: a lock, or a declared catalogue")
	f.StringVar(&lock, "catalog", "", "the same as --lock `FILE`")
	f.StringVar(&lockBefore, "lock-before", "", "`FILE` of accepted tools before")
	f.StringVar(&lockAfter, "lock-after", "", "`FILE` of accepted tools after")
	addJSON(cmd, &asJSON)
	cmd.MarkFlagsMutuallyExclusive("lock", "catalog")
	for _, both := range []string{"lock", "catalog"} {
		cmd.MarkFlagsMutuallyExclusive(both, "lock-before")
		cmd.MarkFlagsMutuallyExclusive(both, "lock-after")
	}
	// With a lock on one side only, every tool outside it would look like a change.
	cmd.MarkFlagsRequiredTogether("lock-before", "lock-after")
	return cmd
}

func fails(changes []review.Change, failOn []string) bool {
	if len(failOn) == 0 || slices.Contains(failOn, "any") {
		return len(changes) > 0
	}
	return slices.ContainsFunc(changes, func(c review.Change) bool { return slices.Contains(failOn, string(c.Kind)) })
}

// timed reports whether what a policy decides depends on the instant.
func timed(d *declared) bool { return len(access.Boundaries(d.snapshot.Declared)) > 0 }

func (p *printer) changes(changes []review.Change, timed bool) {
	switch len(changes) {
	case 0:
		p.line("no changes")
	case 1:
		p.line("1 change")
	default:
		p.line("%d changes", len(changes))
	}
	for _, c := range changes {
		p.line("")
		if c.Kind == review.Trust {
			p.field(string(c.Kind), "%s: %s", c.Subject, c.Aspect)
			p.field("before", "%s", trusted(c.Before))
			p.field("after", "%s", trusted(c.After))
			continue
		}
		for i, identity := range c.Identities {
			label := ""
			if i == 0 {
				label = string(c.Kind)
			}
			p.field(label, "%s", identity)
		}
		at := ""
		if timed {
			at = ", at " + timestamp(c.At)
		}
		p.field("for", "%s%s", c.Witness, at)
		p.field("before", "%s", decided(c.Before))
		p.field("after", "%s", decided(c.After))
	}
}

func trusted(s review.Side) string {
	switch {
	case !s.Declared:
		return "not declared"
	case s.Place == "":
		return "not set"
	}
	return fmt.Sprintf("%s at %s", s.Value, s.Place)
}

func decided(s review.Side) string {
	switch {
	case !s.Declared:
		return "the tool was not mapped"
	case s.Code == "":
		return "nobody: the issuer vouches for no such principal"
	case s.Code != access.Granted:
		return fmt.Sprintf("denied (%s: %s) at %s", s.Code, gateway.Prose(s.Code), s.Place)
	}
	ceilings := "no ceiling declared"
	if len(s.Ceilings) > 0 {
		ceilings = strings.Join(s.Ceilings, ", ")
	}
	asked := "nobody is asked"
	if s.State == consent.Ask {
		asked = "a person is asked"
	}
	return fmt.Sprintf("permitted (account %s; %s; ask %s: %s) at %s", s.Account, ceilings, askWord(s.Ask), asked, s.Place)
}

// askWord is the policy's word.
func askWord(a access.Ask) string {
	switch a {
	case access.AskNever:
		return "never"
	case access.AskDestructive:
		return "destructive"
	}
	return "always"
}

type differenceJSON struct {
	Before  string       `json:"before"` // version
	After   string       `json:"after"`
	Changes []changeJSON `json:"changes"`
}

// changeJSON is a change of a decision (identities, witness, at, code …) or of trust (subject, aspect, value); what belongs to the
// other sort is null or empty.
type changeJSON struct {
	Kind       review.Kind  `json:"kind"`
	Identities []string     `json:"identities"`
	Witness    *witnessJSON `json:"witness"`
	At         *string      `json:"at"` // null when no decision depends on the instant
	Subject    *string      `json:"subject"`
	Aspect     *string      `json:"aspect"`
	Before     sideJSON     `json:"before"`
	After      sideJSON     `json:"after"`
}

type witnessJSON struct {
	Issuer     string          `json:"issuer"`
	Attributes []attributeJSON `json:"attributes"`
	Fixed      bool            `json:"fixed"` // the one subject of a static-key issuer
}

type sideJSON struct {
	Declared bool     `json:"declared"`
	Outcome  *string  `json:"outcome"` // allow or deny
	Code     *string  `json:"code"`
	Account  *string  `json:"account"`
	Ask      *string  `json:"ask"`   // the policy's word
	Asked    *bool    `json:"asked"` // what it comes to: a person is asked
	Ceilings []string `json:"ceilings"`
	Value    *string  `json:"value"`
	Place    *string  `json:"place"`
}

func differenceOf(before, after *declared, changes []review.Change) differenceJSON {
	out := differenceJSON{Before: before.input.Version, After: after.input.Version, Changes: []changeJSON{}}
	for _, c := range changes {
		x := changeJSON{Kind: c.Kind, Identities: list(c.Identities), Subject: orNull(c.Subject), Aspect: orNull(c.Aspect),
			Before: sideOf(c.Before, c.Kind), After: sideOf(c.After, c.Kind)}
		if c.Witness != nil {
			x.Witness = &witnessJSON{c.Witness.Issuer, attributesOf(c.Witness.Attributes), c.Witness.Fixed}
			if timed(before) || timed(after) {
				x.At = orNull(timestamp(c.At))
			}
		}
		out.Changes = append(out.Changes, x)
	}
	return out
}

func sideOf(s review.Side, kind review.Kind) sideJSON {
	out := sideJSON{Declared: s.Declared, Code: orNull(string(s.Code)), Account: orNull(string(s.Account)), Ceilings: list(s.Ceilings),
		Value: orNull(s.Value), Place: orNull(s.Place)}
	if kind == review.Trust {
		return out
	}
	outcome := "deny"
	if s.Code == access.Granted {
		outcome = "allow"
		asked := s.State == consent.Ask
		out.Ask, out.Asked = orNull(askWord(s.Ask)), &asked
	}
	out.Outcome = &outcome
	return out
}
