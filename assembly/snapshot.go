package assembly

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"aduana/access"
	"aduana/accounts"
	"aduana/capabilities"
	"aduana/consent"
	"aduana/internal/jsonrpc"
	"aduana/policy"
	"aduana/principals"
)

// Input is everything that a Snapshot is made of. Each is read once, and the Snapshot's hash covers them all.
type Input struct {
	Policy   *policy.Policy
	Document *policy.Document // resolves pointers to lines
	Version  string           // of the policy's text
	Label    string           // how places name the policy, "policy" when empty; never a path
	Lock     Lock
	// NoLock says that there is no catalogue of any kind: then the policy's own mappings stand for the tools. It serves
	// questions asked offline; a gateway never runs so.
	NoLock   bool
	Observed map[capabilities.UpstreamID][]Observation
}

// Tool is one mapped tool.
type Tool struct {
	Identity    capabilities.Identity
	Canonical   string
	Exposed     capabilities.ExposedName // of a withheld tool too, when the Ledger gave it one
	Capability  string
	Risk        consent.Risk
	Upstream    *policy.Upstream
	Digest      capabilities.Digest // of the accepted definition
	Raw         []byte              // the accepted definition, verbatim; empty under NoLock and for what nobody accepted
	InputSchema []byte              // inside Raw
	Withheld    capabilities.Withheld

	listed []byte // Raw under the exposed name
}

// Listed gives the bytes of the tool for a list: the accepted definition verbatim, but for the name, which is the exposed one or,
// on the upstream's own endpoint, the upstream's, and but for _meta members that are the gateway's alone.
func (t *Tool) Listed(scope capabilities.UpstreamID) []byte {
	if scope != "" {
		return t.Raw
	}
	return t.listed
}

// Snapshot is what holds. It is immutable and safe for concurrent use.
type Snapshot struct {
	Hash      string // hex SHA-256 over every input
	Version   string // of the policy
	Policy    *policy.Policy
	Access    *access.Policy
	Declared  access.Declared
	Accounts  accounts.Directory
	Issuers   principals.Directory
	Ledger    *capabilities.Ledger
	Tools     []*Tool // mapped, ordered by identity; those that nobody accepted are withheld
	Findings  []capabilities.Finding
	Reports   []Report
	Bindings  map[capabilities.UpstreamID]capabilities.Digest
	Accepted  map[capabilities.UpstreamID]bool // the binding is the one that the lock accepted
	document  *policy.Document
	label     string
	tools     map[capabilities.Identity]*Tool
	upstreams map[capabilities.UpstreamID]*policy.Upstream
	bytes     map[capabilities.UpstreamID]map[[sha256.Size]byte]*LockedTool // the accepted definitions by their bytes
	bounds    []int64
}

// Report is a change that is told but withholds nothing: the accepted text goes on being served.
type Report struct {
	Identity capabilities.Identity
	Changes  []capabilities.Change
}

// Assemble joins the inputs. It is total: whatever does not fit together is withheld or denied, with a finding, and the rest
// holds. Policy must not be nil.
func Assemble(in Input) *Snapshot {
	s := &Snapshot{
		Version:   in.Version,
		Policy:    in.Policy,
		Bindings:  map[capabilities.UpstreamID]capabilities.Digest{},
		Accepted:  map[capabilities.UpstreamID]bool{},
		document:  in.Document,
		label:     in.Label,
		tools:     map[capabilities.Identity]*Tool{},
		upstreams: map[capabilities.UpstreamID]*policy.Upstream{},
		bytes:     map[capabilities.UpstreamID]map[[sha256.Size]byte]*LockedTool{},
	}
	if s.label == "" {
		s.label = "policy"
	}
	s.Hash = hashOf(in)
	for i := range in.Policy.Upstreams {
		u := &in.Policy.Upstreams[i]
		id := capabilities.UpstreamID(u.ID)
		s.upstreams[id] = u
		s.Bindings[id] = BindingOf(u).Digest()
		locked, ok := in.Lock.Upstreams[id]
		s.bytes[id] = make(map[[sha256.Size]byte]*LockedTool, len(locked.Tools))
		for j := range locked.Tools {
			s.bytes[id][sha256.Sum256(locked.Tools[j].Raw)] = &locked.Tools[j]
		}
		s.Accepted[id] = in.NoLock || ok && (locked.Binding == "" || locked.Binding == s.Bindings[id])
	}
	s.enter(in)
	s.join(in)
	return s
}

// enter puts every identity, accepted or merely seen, into the Ledger.
func (s *Snapshot) enter(in Input) {
	var listed []capabilities.Listed
	// any order: the Ledger orders what it gets.
	for id, u := range s.upstreams {
		accepted := map[string]bool{}
		if in.NoLock {
			for _, t := range u.Tools {
				accepted[t.Name] = true
			}
		}
		times := map[string]int{}
		for _, t := range in.Lock.Upstreams[id].Tools {
			accepted[t.Pin.Identity.Name] = true
			times[t.Pin.Identity.Name]++
		}
		for _, t := range u.Tools {
			times[t.Name] = max(times[t.Name], 1)
		}
		for _, o := range in.Observed[id] {
			within := map[string]int{}
			for _, t := range o.Tools {
				within[t.Name]++
			}
			for name, n := range within {
				times[name] = max(times[name], n)
			}
		}
		// any order: the Ledger orders what it gets.
		for name, n := range times {
			t := capabilities.Listed{Accepted: accepted[name],
				Identity: capabilities.Identity{Kind: capabilities.Tool, Upstream: id, Name: name}}
			for range n {
				listed = append(listed, t)
			}
		}
	}
	s.Ledger = capabilities.NewLedger(listed, capabilities.LedgerOptions{
		MaxLength: in.Policy.Naming.MaxLength, WarnCase: in.Policy.Naming.Similar == policy.SimilarWarn})
	s.Findings = slices.Clone(s.Ledger.Findings())
}

// join builds the tools and the compiled policies of access, accounts and principals.
func (s *Snapshot) join(in Input) {
	risks := map[string]consent.Risk{}
	for _, c := range in.Policy.Capabilities {
		risks[c.ID] = riskOf(c)
	}
	realized := map[string]bool{}
	reach := map[string][]string{}
	for i := range in.Policy.Upstreams {
		u := &in.Policy.Upstreams[i]
		id := capabilities.UpstreamID(u.ID)
		mapped := map[string]string{}
		for _, t := range u.Tools {
			mapped[t.Name] = t.Capability
		}
		pins := in.Lock.Upstreams[id].Tools
		if in.NoLock {
			pins = nil
			for _, t := range u.Tools {
				pins = append(pins, LockedTool{Pin: capabilities.Pin{
					Identity: capabilities.Identity{Kind: capabilities.Tool, Upstream: id, Name: t.Name}}})
			}
		}
		drift := s.compare(id, u, pins, in.Observed[id])
		for _, pin := range pins {
			capability, ok := mapped[pin.Pin.Identity.Name]
			if !ok {
				continue
			}
			t := s.tool(u, pin, capability, risks[capability])
			switch {
			case !s.Accepted[id]:
				t.Withheld = capabilities.BindingChanged
				s.find(t.Identity, t.Withheld, "the upstream points somewhere else than where it was accepted; accept it again")
			case s.withheldByLedger(t.Identity) != "":
				t.Withheld = s.withheldByLedger(t.Identity)
			case drift[t.Identity] != "":
				t.Withheld = drift[t.Identity]
			}
			realized[capability] = true
			s.tools[t.Identity] = t
			s.Tools = append(s.Tools, t)
			delete(mapped, t.Identity.Name)
		}
		// What is mapped and accepted by nobody is withheld like the rest: it realises its capability, and nobody sees or calls it.
		for _, m := range u.Tools {
			if _, unaccepted := mapped[m.Name]; !unaccepted {
				continue
			}
			t := s.tool(u, LockedTool{Pin: capabilities.Pin{
				Identity: capabilities.Identity{Kind: capabilities.Tool, Upstream: id, Name: m.Name}}}, m.Capability, risks[m.Capability])
			if t.Withheld = s.withheldByLedger(t.Identity); t.Withheld == "" {
				t.Withheld = capabilities.NotAccepted
				s.find(t.Identity, t.Withheld, "mapped by the policy, accepted by nobody")
			}
			realized[m.Capability] = true
			s.tools[t.Identity] = t
			s.Tools = append(s.Tools, t)
		}
		s.strangers(id, pins, in.Observed[id])
	}
	slices.SortFunc(s.Tools, func(a, b *Tool) int { return capabilities.Compare(a.Identity, b.Identity) })
	slices.SortFunc(s.Findings, compareFindings)
	s.Findings = slices.CompactFunc(s.Findings, func(a, b capabilities.Finding) bool { return compareFindings(a, b) == 0 })
	// Accounts list in any order, and several may see the same change.
	slices.SortFunc(s.Reports, compareReports)
	s.Reports = slices.CompactFunc(s.Reports, func(a, b Report) bool { return compareReports(a, b) == 0 })

	for _, c := range in.Policy.Capabilities {
		s.Declared.Capabilities = append(s.Declared.Capabilities,
			access.Capability{ID: c.ID, Realized: realized[c.ID], Pointer: c.Pointer})
	}
	s.Declared.Accounts = append(s.Declared.Accounts, access.Account{Handle: access.Handle(accounts.None), Enabled: true})
	for _, a := range in.Policy.Accounts {
		s.Declared.Accounts = append(s.Declared.Accounts, access.Account{Handle: access.Handle(a.ID), Enabled: !a.Disabled})
	}
	upstreamsOf := map[string][]string{}
	for _, u := range in.Policy.Upstreams {
		for _, t := range u.Tools {
			upstreamsOf[t.Capability] = append(upstreamsOf[t.Capability], u.ID)
		}
		if u.Account != "" {
			reach[u.Account] = append(reach[u.Account], u.ID)
		}
	}
	for _, g := range in.Policy.Grants {
		s.Declared.Grants = append(s.Declared.Grants, grantOf(g))
		for _, use := range g.UsingBy {
			reach[use.Account] = append(reach[use.Account], upstreamsOf[use.Capability]...)
		}
	}
	s.Access = access.Compile(s.Declared)
	s.bounds = access.Boundaries(s.Declared)

	var list []accounts.Account
	for _, a := range in.Policy.Accounts {
		// The policy's own check (account_reaches_many) makes `for` and the grants agree; what is bound here is what the grants say.
		list = append(list, accounts.Account{Handle: accounts.Handle(a.ID), Reference: accounts.Reference(a.SecretRef),
			Disabled: a.Disabled, Reach: slices.Compact(slices.Sorted(slices.Values(reach[a.ID])))})
	}
	s.Accounts = accounts.NewDirectory(list)

	var issuers []principals.Issuer
	for _, i := range in.Policy.Issuers {
		issuer := principals.Issuer{ID: principals.IssuerID(i.ID)}
		for _, a := range i.Attributes {
			issuer.Attributes = append(issuer.Attributes, principals.Declared{Name: a.Name, Many: a.Many})
		}
		switch i.Disclosure {
		case policy.DisclosureCodes:
			issuer.Disclosure = principals.DiscloseCodes
		case policy.DisclosurePlaces:
			issuer.Disclosure = principals.DisclosePlaces
		}
		issuers = append(issuers, issuer)
	}
	s.Issuers = principals.NewDirectory(issuers)
}

func (s *Snapshot) tool(u *policy.Upstream, pin LockedTool, capability string, risk consent.Risk) *Tool {
	t := &Tool{
		Identity:   pin.Pin.Identity,
		Canonical:  pin.Pin.Identity.Canonical(),
		Capability: capability,
		Risk:       risk,
		Upstream:   u,
		Digest:     pin.Pin.Definition.Digest(),
		Raw:        withoutOwnMeta(pin.Raw),
	}
	t.Exposed, _ = s.Ledger.Exposed(t.Identity)
	if members, err := jsonrpc.ObjectMembers(nil, t.Raw); err == nil {
		if m, ok := members.Get("inputSchema"); ok {
			t.InputSchema = t.Raw[m.Value.Start:m.Value.End]
		}
		if m, ok := members.Get("name"); ok {
			name := jsonrpc.AppendString(nil, string(t.Exposed))
			t.listed, _ = jsonrpc.Splice(nil, t.Raw, jsonrpc.Edit{Span: m.Value, With: name})
		}
	}
	return t
}

// compare holds every observation against the pins.
func (s *Snapshot) compare(id capabilities.UpstreamID, u *policy.Upstream, pins []LockedTool, observed []Observation) map[capabilities.Identity]capabilities.Withheld {
	withheld := map[capabilities.Identity]capabilities.Withheld{}
	byName := map[string]LockedTool{}
	for _, p := range pins {
		byName[p.Pin.Identity.Name] = p
	}
	for _, o := range observed {
		for _, t := range o.Tools {
			pin, ok := byName[t.Name]
			if !ok {
				continue
			}
			ident := pin.Pin.Identity
			if t.Problem != "" {
				withheld[ident] = capabilities.DefinitionChanged
				s.find(ident, capabilities.DefinitionChanged, t.Problem)
				continue
			}
			class, changes := pin.Pin.Compare(t.Definition)
			switch {
			case class == capabilities.SubstanceDrift, class == capabilities.TextDrift && u.Drift == policy.DriftWithhold:
				withheld[ident] = capabilities.DefinitionChanged
				s.find(ident, capabilities.DefinitionChanged, "changed: "+names(changes))
			case class == capabilities.TextDrift:
				s.Reports = append(s.Reports, Report{Identity: ident, Changes: changes})
			}
		}
	}
	return withheld
}

// strangers reports what was seen and never accepted.
func (s *Snapshot) strangers(id capabilities.UpstreamID, pins []LockedTool, observed []Observation) {
	accepted := map[string]bool{}
	for _, p := range pins {
		accepted[p.Pin.Identity.Name] = true
	}
	for _, o := range observed {
		for _, t := range o.Tools {
			ident := capabilities.Identity{Kind: capabilities.Tool, Upstream: id, Name: t.Name}
			switch {
			case accepted[t.Name]:
			case t.Problem != "":
				s.find(ident, capabilities.InvalidDefinition, t.Problem)
			default:
				s.find(ident, capabilities.NotAccepted, "listed by the upstream, in no lock")
			}
		}
	}
}

func (s *Snapshot) find(id capabilities.Identity, why capabilities.Withheld, detail string) {
	s.Findings = append(s.Findings, capabilities.Finding{Identity: id, Reason: why, Detail: detail})
}

func (s *Snapshot) withheldByLedger(id capabilities.Identity) capabilities.Withheld {
	if _, ok := s.Ledger.Exposed(id); ok {
		return capabilities.NotWithheld
	}
	for _, f := range s.Ledger.Findings() {
		if f.Identity == id {
			return f.Reason
		}
	}
	return capabilities.InvalidName
}

// Lookup gives the tool behind a name: an exposed name on the whole house (scope ""), the upstream's own on its endpoint. It
// finds only what the Ledger serves; the tool may still be withheld for its definition.
func (s *Snapshot) Lookup(scope capabilities.UpstreamID, name string) (*Tool, bool) {
	var id capabilities.Identity
	var ok bool
	if scope == "" {
		id, ok = s.Ledger.Resolve(capabilities.Tool, capabilities.ExposedName(name))
	} else {
		id, ok = s.Ledger.ResolveVerbatim(capabilities.Tool, scope, name)
	}
	if !ok {
		return nil, false
	}
	t, ok := s.tools[id]
	return t, ok
}

// WithheldAs gives the finding for which a name resolves to nothing: the thing that would have had it. It is for people who may see
// the policy; nothing is ever called through it.
func (s *Snapshot) WithheldAs(scope capabilities.UpstreamID, name string) (capabilities.Finding, bool) {
	for _, f := range s.Ledger.Findings() {
		if scope == "" && string(capabilities.Expose(f.Identity, s.Policy.Naming.MaxLength)) == name ||
			scope != "" && f.Identity.Upstream == scope && f.Identity.Name == name {
			return f, true
		}
	}
	return capabilities.Finding{}, false
}

// ToolOf gives the tool of an identity, withheld or not.
func (s *Snapshot) ToolOf(id capabilities.Identity) (*Tool, bool) {
	t, ok := s.tools[id]
	return t, ok
}

// Observe reads one element of an upstream's tools/list, like the function of that name. What was accepted byte for byte so is not
// read again, and costs no memory: a list that says nothing new is the usual one.
func (s *Snapshot) Observe(upstream capabilities.UpstreamID, raw []byte) ObservedTool {
	if t, ok := s.bytes[upstream][sha256.Sum256(raw)]; ok {
		return ObservedTool{Name: t.Pin.Identity.Name, Raw: t.Raw, Definition: t.Pin.Definition}
	}
	return Observe(raw)
}

// Upstream gives a declared upstream.
func (s *Snapshot) Upstream(id capabilities.UpstreamID) (*policy.Upstream, bool) {
	u, ok := s.upstreams[id]
	return u, ok
}

// CallerOf translates a principal into the words of access.
func CallerOf(p principals.Principal) access.Caller {
	c := access.Caller{Issuer: string(p.Issuer()), ID: p.ID()}
	if list := p.Attributes(); len(list) > 0 {
		c.Attributes = make([]access.Attribute, len(list))
		for i, a := range list {
			c.Attributes[i] = access.Attribute(a)
		}
	}
	return c
}

// Visible reports whether a caller's list holds the tool at an instant (Unix milliseconds): it is granted, and not withheld.
func (s *Snapshot) Visible(caller access.Caller, t *Tool, at int64) bool {
	if t.Withheld != capabilities.NotWithheld {
		return false
	}
	return access.Evaluate(s.Access, access.Invocation{Caller: caller, Capability: t.Capability, At: at,
		Usage: access.Usage{State: access.NotConsulted}}).Allowed()
}

// View gives the tools that a caller sees at an instant, ordered by identity, and counts by reason those that are granted but
// withheld. With a scope it keeps to that upstream.
func (s *Snapshot) View(caller access.Caller, scope capabilities.UpstreamID, at int64) ([]*Tool, map[capabilities.Withheld]int) {
	var visible []*Tool
	withheld := map[capabilities.Withheld]int{}
	granted := map[string]bool{}
	for _, t := range s.Tools {
		if scope != "" && t.Identity.Upstream != scope {
			continue
		}
		g, known := granted[t.Capability]
		if !known {
			g = access.Evaluate(s.Access, access.Invocation{Caller: caller, Capability: t.Capability, At: at,
				Usage: access.Usage{State: access.NotConsulted}}).Allowed()
			granted[t.Capability] = g
		}
		switch {
		case !g:
		case t.Withheld != capabilities.NotWithheld:
			withheld[t.Withheld]++
		default:
			visible = append(visible, t)
		}
	}
	return visible, withheld
}

// ValidUntil gives the first instant after at when visibility may change with time alone; math.MaxInt64 when it never does.
func (s *Snapshot) ValidUntil(at int64) int64 {
	i, exact := slices.BinarySearch(s.bounds, at)
	if exact {
		i++
	}
	if i == len(s.bounds) {
		return math.MaxInt64
	}
	return s.bounds[i]
}

// Place gives "label:line:column" for a pointer into the policy, or the label alone when it addresses nothing.
func (s *Snapshot) Place(pointer string) string {
	if s.document != nil {
		if p, ok := s.document.Position(pointer); ok {
			return fmt.Sprintf("%s:%d:%d", s.label, p.Line, p.Column)
		}
	}
	return s.label
}

// BindingOf gives what an upstream's declaration binds to.
func BindingOf(u *policy.Upstream) capabilities.Binding {
	b := capabilities.Binding{Transport: string(u.Transport), URL: u.URL, Command: u.Command, Cwd: u.Cwd, Inherit: u.Inherit,
		Deliver: string(u.Deliver.Kind) + ":" + u.Deliver.Name}
	for _, a := range u.Args {
		b.Args = append(b.Args, textOf(a))
	}
	for _, v := range u.Env {
		b.Env = append(b.Env, capabilities.Setting{Name: v.Name, Value: textOf(v.Value), IsRef: v.Value.IsRef})
	}
	for _, v := range u.Headers {
		b.Headers = append(b.Headers, capabilities.Setting{Name: v.Name, Value: textOf(v.Value), IsRef: v.Value.IsRef})
	}
	return b
}

func textOf(v policy.Value) string {
	if v.IsRef {
		return "ref:" + string(v.Ref)
	}
	return "literal:" + v.Literal
}

func riskOf(c policy.Capability) consent.Risk {
	if !c.RiskDeclared {
		return consent.UndeclaredRisk
	}
	switch c.Risk {
	case policy.RiskRead:
		return consent.ReadRisk
	case policy.RiskDestructive:
		return consent.DestructiveRisk
	}
	return consent.WriteRisk
}

func grantOf(g policy.Grant) access.Grant {
	out := access.Grant{Issuer: g.Issuer, From: math.MinInt64, Until: math.MaxInt64, Pointer: g.Pointer, Ask: access.AskAlways}
	switch g.Ask {
	case policy.AskNever:
		out.Ask = access.AskNever
	case policy.AskDestructive:
		out.Ask = access.AskDestructive
	}
	if g.HasFrom {
		out.From = g.From
	}
	if g.HasUntil {
		out.Until = g.Until
	}
	for _, a := range g.Selector {
		out.Selector = append(out.Selector, access.Attribute{Name: a.Attribute, Value: a.Value})
	}
	for _, u := range g.UsingBy {
		handle := access.Handle(u.Account)
		if u.None {
			handle = access.Handle(accounts.None)
		}
		out.Uses = append(out.Uses, access.Use{Capability: u.Capability, Account: handle})
	}
	for _, c := range g.Ceilings {
		l := access.Limit{Calls: c.Calls, Window: c.Millis, Text: c.Window, Attribute: c.Attribute, Pointer: c.Pointer}
		switch c.Over {
		case policy.OverGrant:
			l.Scope = access.OverGrant
		case policy.OverAccount:
			l.Scope = access.OverAccount
		case policy.OverAttribute:
			l.Scope = access.OverAttribute
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// RuleOf translates a permit's ask into the words of consent.
func RuleOf(a access.Ask) consent.Rule {
	switch a {
	case access.AskNever:
		return consent.Never
	case access.AskDestructive:
		return consent.Destructive
	}
	return consent.Always
}

// withoutOwnMeta drops the _meta members that only the gateway may write.
func withoutOwnMeta(raw []byte) []byte {
	members, err := jsonrpc.ObjectMembers(nil, raw)
	if err != nil {
		return raw
	}
	meta, ok := members.Get("_meta")
	if !ok || meta.Kind != jsonrpc.Object {
		return raw
	}
	old := raw[meta.Value.Start:meta.Value.End]
	inner, err := jsonrpc.ObjectMembers(nil, old)
	if err != nil || !slices.ContainsFunc(inner, func(m jsonrpc.Member) bool { return strings.HasPrefix(m.Key, ownMeta) }) {
		return raw
	}
	kept := []byte{'{'}
	for _, m := range inner {
		if strings.HasPrefix(m.Key, ownMeta) {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, old[m.KeySpan.Start:m.Value.End]...)
	}
	out, err := jsonrpc.Splice(nil, raw, jsonrpc.Edit{Span: meta.Value, With: append(kept, '}')})
	if err != nil {
		return raw
	}
	return out
}

const ownMeta = "aduana/"

func names(changes []capabilities.Change) string {
	var list []string
	for _, c := range changes {
		list = append(list, c.Member)
	}
	return strings.Join(list, ", ")
}

func compareFindings(a, b capabilities.Finding) int {
	if c := capabilities.Compare(a.Identity, b.Identity); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Reason), string(b.Reason)); c != 0 {
		return c
	}
	return strings.Compare(a.Detail, b.Detail)
}

func compareReports(a, b Report) int {
	if c := capabilities.Compare(a.Identity, b.Identity); c != 0 {
		return c
	}
	return strings.Compare(names(a.Changes), names(b.Changes))
}

// hashOf covers every input, each once and in an order of its own.
func hashOf(in Input) string {
	h := sha256.New()
	fmt.Fprintf(h, "aduana snapshot 1\npolicy %s\nlock %s %t\n", in.Version, in.Lock.Digest, in.NoLock)
	ids := make([]capabilities.UpstreamID, 0, len(in.Observed))
	for id := range in.Observed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		var lines []string
		for _, o := range in.Observed[id] {
			for _, t := range o.Tools {
				lines = append(lines, fmt.Sprintf("%q %q %s %q", o.Account, t.Name, t.Definition.Digest(), t.Problem))
			}
			lines = append(lines, fmt.Sprintf("%q %d", o.Account, len(o.Tools)))
		}
		slices.Sort(lines)
		fmt.Fprintf(h, "observed %s\n%s\n", id, strings.Join(lines, "\n"))
	}
	return hex.EncodeToString(h.Sum(nil))
}
