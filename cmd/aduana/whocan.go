package main

import (
	"math"

	"github.com/spf13/cobra"

	"aduana/access"
	"aduana/review"
)

func newWhoCan(p *printer) *cobra.Command {
	var lock, at, capability, tool string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "who-can POLICY (--capability C | --tool NAME)",
		Short: "Say who could use a capability, and by which grant",
		Long: "who-can lists every grant that leads to a capability, or to a tool's capability.\n" +
			"The list is exact, because there are no deny rules.",
		Example: "  aduana who-can policy.yaml --capability billing.invoice.issue",
		Args:    operands("POLICY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			when, err := instant(at)
			if err != nil {
				return err
			}
			if capability == "" && tool == "" {
				return usage("--capability and --tool need a name")
			}
			d, err := p.sound(args[0], lock)
			if err != nil {
				return err
			}
			reach, err := review.WhoCan(d.snapshot, capability, tool, when)
			if err != nil {
				return notThere(err, "see the names with: aduana names "+args[0])
			}
			if asJSON {
				return p.json(reachOf(d, reach, when))
			}
			p.reach(reach)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&capability, "capability", "", "`ID` of a capability")
	f.StringVar(&tool, "tool", "", "exposed `NAME` of a tool, or its identity")
	f.StringVar(&at, "at", "", "the `INSTANT` at which a grant counts as valid, by RFC 3339 (default now)")
	addLock(cmd, &lock)
	addJSON(cmd, &asJSON)
	cmd.MarkFlagsMutuallyExclusive("capability", "tool")
	cmd.MarkFlagsOneRequired("capability", "tool")
	return cmd
}

func (p *printer) reach(r review.Reach) {
	if !r.Declared {
		p.line("the policy declares no capability %s", r.Capability)
		return
	}
	p.field("capability", "%s", r.Capability)
	if len(r.Ways) == 0 {
		p.line("")
		p.field("who", "nobody")
	}
	for _, w := range r.Ways {
		p.line("")
		p.field("who", "%s", selector(w.Issuer, w.Selector))
		account := string(w.Account)
		if !w.Enabled {
			account += " (disabled: every call is denied)"
		}
		p.field("account", "%s", account)
		for _, c := range w.Ceilings {
			p.field("ceiling", "%s", ceiling(c))
		}
		if len(w.Ceilings) == 0 {
			p.field("ceiling", "no ceiling declared")
		}
		if w.Bounded() {
			note := ""
			if !w.ValidNow {
				note = " (not valid at this instant)"
			}
			p.field("valid", "%s%s", validity(w), note)
		}
		p.field("asks", "%s", w.Ask)
		p.field("place", "%s (%s)", w.Place, w.Pointer)
	}
	p.line("")
	p.tools(r.Tools)
}

func validity(w review.Way) string {
	switch {
	case w.From == math.MinInt64:
		return "before " + timestamp(w.Until)
	case w.Until == math.MaxInt64:
		return "from " + timestamp(w.From)
	}
	return "from " + timestamp(w.From) + ", before " + timestamp(w.Until)
}

type reportJSON struct {
	Reachability reachJSON            `json:"reachability"`
	Positions    map[string]*position `json:"positions"` // pointer → position
	Tools        []thingJSON          `json:"tools"`
}

type reachJSON struct {
	Capability string    `json:"capability"`
	Declared   bool      `json:"declared"`
	Realized   bool      `json:"realized"`
	At         string    `json:"at"`
	Ways       []wayJSON `json:"ways"`
}

type wayJSON struct {
	Issuer   string          `json:"issuer"`
	Selector []attributeJSON `json:"selector"`
	Account  string          `json:"account"`
	Enabled  bool            `json:"enabled"`
	Ceilings []ceilingJSON   `json:"ceilings"`
	From     *string         `json:"from"`
	Until    *string         `json:"until"`
	Valid    bool            `json:"valid"`
	Ask      string          `json:"ask"`
	Pointer  string          `json:"pointer"`
	Place    string          `json:"place"`
}

func reachOf(d *declared, r review.Reach, at int64) reportJSON {
	out := reportJSON{
		Reachability: reachJSON{Capability: r.Capability, Declared: r.Declared, Realized: r.Realized, At: timestamp(at), Ways: []wayJSON{}},
		Positions:    map[string]*position{},
		Tools:        things(r.Tools),
	}
	for _, w := range r.Ways {
		way := wayJSON{Issuer: w.Issuer, Selector: attributesOf(w.Selector), Account: string(w.Account), Enabled: w.Enabled,
			Ceilings: ceilings(w.Ceilings), Valid: w.ValidNow, Ask: string(w.Ask), Pointer: w.Pointer, Place: w.Place}
		if w.From != math.MinInt64 {
			way.From = orNull(timestamp(w.From))
		}
		if w.Until != math.MaxInt64 {
			way.Until = orNull(timestamp(w.Until))
		}
		out.Reachability.Ways = append(out.Reachability.Ways, way)
		out.Positions[w.Pointer] = d.at(w.Pointer)
		for _, c := range w.Ceilings {
			out.Positions[c.Point] = d.at(c.Point)
		}
	}
	return out
}

func attributesOf(of []access.Attribute) []attributeJSON {
	out := []attributeJSON{}
	for _, a := range of {
		out = append(out, attributeJSON(a))
	}
	return out
}
