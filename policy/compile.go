package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Compiler holds the compiled schema. It is safe for concurrent use and meant
// to be kept: making one costs more than compiling a small policy.
type Compiler struct {
	parsed any
	schema *jsonschema.Schema
}

// NewCompiler prepares a compiler. It fails only when the schema that is part
// of this package does not compile.
func NewCompiler() (*Compiler, error) {
	parsed, schema, err := compileSchema()
	if err != nil {
		return nil, err
	}
	return &Compiler{parsed: parsed, schema: schema}, nil
}

// Compile reads text as a policy. It never fails otherwise than by findings,
// and takes any bytes. The stages are YAML, schema, meaning; an error in one
// stops the next.
func (c *Compiler) Compile(text []byte, opts Options) Result {
	d := newDocument(text, opts.Origin)
	value, found := d.parse()
	if len(found) > 0 {
		return result(d, nil, found)
	}
	if found = c.violations(d, value); len(found) > 0 {
		return result(d, nil, found)
	}
	k := checker{p: &Policy{}}
	k.policy(value.(map[string]any)) // the schema lets nothing else through
	if opts.HasCatalogue {
		k.catalogue(opts.Catalogue, opts.Lock)
	}
	return result(d, k.p, k.found)
}

// result deduplicates, counts, caps and places the findings.
func result(d *Document, p *Policy, found []Diagnostic) Result {
	type key struct {
		code                      Code
		pointer, message, related string
		position                  Position
	}
	seen := make(map[key]bool, len(found))
	errors := 0
	found = slices.DeleteFunc(found, func(f Diagnostic) bool {
		k := key{f.Code, f.Pointer, f.Message, "", f.Position}
		for _, r := range f.Related {
			k.related += r.Pointer + " "
		}
		if seen[k] {
			return true
		}
		seen[k] = true
		if f.Severity == Error {
			errors++
		}
		return false
	})
	r := Result{Document: d, Total: len(found)}
	if errors == 0 {
		r.Policy = p
	}
	if r.Capped = len(found) > MaxShown; r.Capped {
		// The errors decide, so they are shown first where not all fits; the
		// order stays.
		warnings := max(0, MaxShown-errors)
		found = slices.DeleteFunc(found, func(f Diagnostic) bool {
			if f.Severity == Error {
				return false
			}
			warnings--
			return warnings < 0
		})
		found = found[:min(len(found), MaxShown)]
	}
	for i := range found {
		f := &found[i]
		if f.Position.Line == 0 {
			f.Position, _ = d.Position(f.Pointer)
		}
		for j := range f.Related {
			if r := &f.Related[j]; r.Position.Line == 0 {
				r.Position, _ = d.Position(r.Pointer)
			}
		}
	}
	r.Diagnostics = slices.Clone(found) // lets the capped rest go
	return r
}

// checker builds the policy and collects findings, in the order in which
// policy calls its steps.
type checker struct {
	p     *Policy
	found []Diagnostic

	capability map[string]int // first declaration of each id
	upstream   map[string]int
	account    map[string]int
	issuer     map[string]int
	attributes []map[string]Attribute // by issuer index

	realizedBy map[string][]int // capability id → upstreams, ascending
	places     places
}

// places holds pointers that the checks need and the compiled policy does not.
type places struct {
	urls       []string             // by upstream, "" for stdio
	refs       []place              // every secret reference, in document order of sections
	issuerMaps []string             // /attributes of each issuer, or the issuer itself
	first      map[[2]string]string // first mapping of (upstream, tool)
}

type place struct {
	ref     SecretRef
	pointer string
}

func (k *checker) error(code Code, pointer string, related []Related, format string, args ...any) {
	k.found = append(k.found, Diagnostic{Code: code, Pointer: pointer, Related: related, Message: fmt.Sprintf(format, args...)})
}

func (k *checker) warn(code Code, pointer string, format string, args ...any) {
	k.found = append(k.found, Diagnostic{Severity: Warning, Code: code, Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

func related(pointer, note string) []Related { return []Related{{Pointer: pointer, Note: note}} }

// The order of findings is part of the contract: reports are reviewed as
// diffs. It is the order of reading; what new checks find goes beside what
// they resemble.
func (k *checker) policy(root object) {
	k.p.Anchors = Anchors{
		Capabilities: "/capabilities", Upstreams: anchor(root, "upstreams"), Accounts: "/accounts",
		Issuers: "/principals/issuers", Grants: "/grants",
	}
	k.naming(root)
	k.capabilities(root.list("capabilities"))
	k.accounts(root.list("accounts"))
	k.upstreams(root.list("upstreams"))
	k.issuers(root.object("principals").list("issuers"))

	k.checkCapabilities()
	k.checkTools()
	k.checkUpstreams()
	k.checkAccounts()
	k.checkIssuers()
	k.grants(root.list("grants"))
	k.checkAmbiguity()
	reached := k.checkReach()
	k.checkUse(reached)
	k.checkSecretSchemes()
	k.checkPlainHTTP()
	k.checkPackages()
}

// object and its methods read values that the schema has let through.
type object map[string]any

func (o object) text(name string) string { s, _ := o[name].(string); return s }
func (o object) flag(name string) bool   { b, _ := o[name].(bool); return b }
func (o object) list(name string) []any  { l, _ := o[name].([]any); return l }
func (o object) object(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

func (o object) number(name string) int64 {
	switch n := o[name].(type) {
	case int64:
		return n
	case float64: // an integer in the eyes of the schema, bounded by it
		return int64(n)
	}
	return 0
}

func (o object) texts(name string) []string {
	var all []string
	for _, item := range o.list(name) {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func (o object) names() []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func toObject(v any) object { m, _ := v.(map[string]any); return m }

func at(base string, i int) string { return base + "/" + strconv.Itoa(i) }

func anchor(root object, name string) string {
	if _, ok := root[name]; ok {
		return "/" + name
	}
	return ""
}

func (k *checker) naming(root object) {
	n := root.object("naming")
	k.p.Naming = Naming{MaxLength: 50, Similar: SimilarWithhold, Pointer: anchor(root, "naming")}
	if length := n.number("maxLength"); length != 0 {
		k.p.Naming.MaxLength = int(length)
	}
	if similar := n.text("similar"); similar != "" {
		k.p.Naming.Similar = Similar(similar)
	}
}

func (k *checker) capabilities(list []any) {
	k.capability = make(map[string]int, len(list))
	for i, item := range list {
		o := toObject(item)
		c := Capability{ID: o.text("id"), Description: o.text("description"), Risk: RiskWrite, Pointer: at("/capabilities", i)}
		if risk := o.text("risk"); risk != "" {
			c.Risk, c.RiskDeclared = Risk(risk), true
		}
		k.p.Capabilities = append(k.p.Capabilities, c)
		first(k.capability, c.ID, i)
	}
}

func first(index map[string]int, id string, i int) {
	if _, ok := index[id]; !ok {
		index[id] = i
	}
}

func (k *checker) accounts(list []any) {
	k.account = make(map[string]int, len(list))
	for i, item := range list {
		o := toObject(item)
		pointer := at("/accounts", i)
		a := Account{ID: o.text("id"), Disabled: o.flag("disabled"), For: o.texts("for"), Pointer: pointer}
		a.SecretRef = k.ref(o.object("secret"), pointer+"/secret")
		k.p.Accounts = append(k.p.Accounts, a)
		first(k.account, a.ID, i)
	}
}

func (k *checker) ref(secret object, pointer string) SecretRef {
	ref := SecretRef(secret.text("ref"))
	if ref != "" {
		k.places.refs = append(k.places.refs, place{ref, pointer + "/ref"})
	}
	return ref
}

func (k *checker) value(v any, pointer string) Value {
	if s, ok := v.(string); ok {
		return Value{Literal: s, Pointer: pointer}
	}
	return Value{Ref: k.ref(toObject(v), pointer), IsRef: true, Pointer: pointer}
}

func (k *checker) named(values object, pointer string) []NamedValue {
	var all []NamedValue
	for _, name := range values.names() {
		all = append(all, NamedValue{Name: name, Value: k.value(values[name], pointer+"/"+escape(name))})
	}
	return all
}

func (k *checker) upstreams(list []any) {
	k.upstream = make(map[string]int, len(list))
	k.realizedBy = map[string][]int{}
	for i, item := range list {
		o := toObject(item)
		pointer := at("/upstreams", i)
		transport := o.object("transport")
		u := Upstream{
			ID: o.text("id"), Pointer: pointer,
			Command: transport.text("command"), Cwd: o.text("cwd"), Inherit: o.texts("inherit"),
			URL:         transport.text("url"),
			Timeout:     duration(o.text("timeout")),
			Concurrency: int(o.number("concurrency")),
			Arguments:   ArgumentsLenient, Drift: DriftDefault,
		}
		for j, arg := range transport.list("args") {
			u.Args = append(u.Args, k.value(arg, at(pointer+"/transport/args", j)))
		}
		u.Env = k.named(o.object("env"), pointer+"/env")
		u.Headers = k.named(o.object("headers"), pointer+"/headers")
		slices.SortStableFunc(u.Headers, func(a, b NamedValue) int {
			return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
		})
		url := ""
		if transport.text("kind") == "mcp-http" {
			u.Transport, url = TransportHTTP, pointer+"/transport/url"
		} else {
			u.Transport = TransportStdio
		}
		k.places.urls = append(k.places.urls, url)
		u.Deliver = deliver(o.text("deliver"), u.Transport)
		if account := o.text("account"); account == "none" {
			u.AccountNone = true
		} else {
			u.Account = account
		}
		if o.text("arguments") == "strict" {
			u.Arguments = ArgumentsStrict
		}
		if o.text("drift") == "withhold" {
			u.Drift = DriftWithhold
		}
		for j, item := range o.list("tools") {
			tool := toObject(item)
			t := Tool{Name: tool.text("name"), Capability: tool.text("capability"), Pointer: at(pointer+"/tools", j)}
			u.Tools = append(u.Tools, t)
			if by := k.realizedBy[t.Capability]; len(by) == 0 || by[len(by)-1] != i {
				k.realizedBy[t.Capability] = append(by, i)
			}
		}
		k.p.Upstreams = append(k.p.Upstreams, u)
		first(k.upstream, u.ID, i)
	}
}

func deliver(text string, transport Transport) Deliver {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case text != "":
		return Deliver{Kind: DeliverKind(kind), Name: name, Declared: true}
	case transport == TransportStdio:
		return Deliver{Kind: DeliverEnv, Name: DefaultCredentialVariable}
	default:
		return Deliver{Kind: DeliverBearer}
	}
}

// duration is the milliseconds of a number and a unit. The schema bounds the
// digits so that the result also fits a time.Duration.
func duration(text string) int64 {
	digits := strings.TrimRight(text, "smhd")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	switch text[len(digits):] {
	case "ms":
		return n
	case "s":
		return n * 1_000
	case "m":
		return n * 60_000
	case "h":
		return n * 3_600_000
	case "d":
		return n * 86_400_000
	}
	return 0
}

func (k *checker) issuers(list []any) {
	k.issuer = make(map[string]int, len(list))
	for i, item := range list {
		o := toObject(item)
		pointer := at("/principals/issuers", i)
		issuer := Issuer{
			ID: o.text("id"), Kind: IssuerKind(o.text("kind")), Pointer: pointer,
			Discovery: o.text("discovery"), Audience: o.text("audience"), Subject: o.text("subject"),
			Disclosure: Disclosure(o.text("disclosure")),
		}
		issuer.SecretRef = k.ref(o.object("secret"), pointer+"/secret")
		sources := o.object("attributes")
		byName := make(map[string]Attribute, len(sources))
		for _, name := range sources.names() {
			a := Attribute{Name: name, Pointer: pointer + "/attributes/" + escape(name)}
			if from, ok := sources[name].(string); ok {
				a.From = from
			} else {
				form := sources.object(name)
				a.From, a.Many = form.text("from"), form.flag("many")
			}
			issuer.Attributes = append(issuer.Attributes, a)
			byName[name] = a
		}
		k.p.Issuers = append(k.p.Issuers, issuer)
		k.attributes = append(k.attributes, byName)
		where := pointer
		if _, ok := o["attributes"]; ok {
			where += "/attributes"
		}
		k.places.issuerMaps = append(k.places.issuerMaps, where)
		first(k.issuer, issuer.ID, i)
	}
}

// checkDuplicates reports each repetition at the later entry.
func (k *checker) checkDuplicates(kind string, index map[string]int, n int, at func(int) (id, pointer string)) {
	for i := range n {
		id, pointer := at(i)
		if earlier := index[id]; earlier != i {
			_, place := at(earlier)
			k.error(DuplicateID, pointer, related(place, "first declared here"),
				"the %s %q is declared twice; rename or remove one", kind, id)
		}
	}
}

func (k *checker) checkCapabilities() {
	k.checkDuplicates("capability", k.capability, len(k.p.Capabilities), func(i int) (string, string) {
		return k.p.Capabilities[i].ID, k.p.Capabilities[i].Pointer
	})
}

func (k *checker) checkTools() {
	k.places.first = map[[2]string]string{}
	for _, u := range k.p.Upstreams {
		for _, t := range u.Tools {
			if _, ok := k.capability[t.Capability]; !ok {
				k.error(UnknownCapabilityInTool, t.Pointer+"/capability", related(k.p.Anchors.Capabilities, "capabilities are declared here"),
					"the capability %q is not declared%s", t.Capability, suggestion(t.Capability, keys(k.capability)))
			}
			name := t.Pointer + "/name"
			key := [2]string{u.ID, t.Name}
			if earlier, ok := k.places.first[key]; ok {
				k.error(ToolMappedTwice, name, related(earlier, "first mapped here"),
					"the tool %.128q of %.128q is mapped twice; a tool realises exactly one capability", t.Name, u.ID)
				continue
			}
			k.places.first[key] = name
		}
	}
}

// keys is sorted, so that equally near suggestions do not depend on chance.
func keys(index map[string]int) []string {
	names := make([]string, 0, len(index))
	for name := range index {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (k *checker) checkUpstreams() {
	for i := range k.p.Upstreams {
		u := &k.p.Upstreams[i]
		if u.Transport == TransportHTTP {
			k.checkURL(u.URL, k.places.urls[i])
		}
		if _, ok := k.account[u.Account]; u.Account != "" && !ok {
			k.error(UnknownAccountInUpstream, u.Pointer+"/account", related(k.p.Anchors.Accounts, "accounts are declared here"),
				"the account %q is not declared%s", u.Account, suggestion(u.Account, keys(k.account)))
		}
		k.checkHeaders(u)
		k.checkDeliver(u)
	}
	k.checkDuplicates("upstream", k.upstream, len(k.p.Upstreams), func(i int) (string, string) {
		return k.p.Upstreams[i].ID, k.p.Upstreams[i].Pointer
	})
}

func (k *checker) checkAccounts() {
	k.checkDuplicates("account", k.account, len(k.p.Accounts), func(i int) (string, string) {
		return k.p.Accounts[i].ID, k.p.Accounts[i].Pointer
	})
	for _, a := range k.p.Accounts {
		for i, id := range a.For {
			if _, ok := k.upstream[id]; !ok {
				k.error(UnknownUpstreamInAccount, at(a.Pointer+"/for", i), related(k.p.Anchors.Upstreams, "upstreams are declared here"),
					"the upstream %q is not declared%s", id, suggestion(id, keys(k.upstream)))
			}
		}
	}
}

func (k *checker) checkIssuers() {
	for i := range k.p.Issuers {
		issuer := &k.p.Issuers[i]
		for _, a := range issuer.Attributes {
			rest, isClaim := strings.CutPrefix(a.From, "claim:")
			if issuer.Kind == IssuerOIDC && (!isClaim || rest == "") {
				k.error(ClaimMappingExpected, a.Pointer, nil,
					"an attribute of an oidc issuer comes from a claim; write claim:NAME")
			}
			rest, isName := strings.CutPrefix(a.From, "dn:")
			if issuer.Kind == IssuerMTLS && (!isName || rest == "") {
				k.error(DNMappingExpected, a.Pointer, nil,
					"an attribute of an mtls issuer comes from the certificate's name; write dn:COMPONENT, such as dn:OU")
			}
		}
		if issuer.Discovery != "" {
			k.checkURL(issuer.Discovery, issuer.Pointer+"/discovery")
		}
	}
	k.checkDuplicates("issuer", k.issuer, len(k.p.Issuers), func(i int) (string, string) {
		return k.p.Issuers[i].ID, k.p.Issuers[i].Pointer
	})
}

func (k *checker) grants(list []any) {
	derived := map[string]derivation{}
	for i, item := range list {
		k.grant(toObject(item), at("/grants", i), derived)
	}
}

func (k *checker) grant(o object, pointer string, derived map[string]derivation) {
	to := o.object("to")
	g := Grant{Issuer: to.text("issuer"), Using: o.text("using"), Ask: AskDestructive, Pointer: pointer}
	if ask := o.text("ask"); ask != "" {
		g.Ask = Ask(ask)
	}
	var declared map[string]Attribute // nil when the issuer is unknown
	if issuer, ok := k.issuer[g.Issuer]; ok {
		declared = k.attributes[issuer]
	} else {
		k.error(UnknownIssuerInGrant, pointer+"/to/issuer", related(k.p.Anchors.Issuers, "issuers are declared here"),
			"the issuer %q is not declared%s", g.Issuer, suggestion(g.Issuer, keys(k.issuer)))
	}
	wanted := to.object("attributes")
	for _, name := range wanted.names() {
		g.Selector = append(g.Selector, AttributeValue{name, wanted.text(name)})
		if _, ok := declared[name]; !ok && declared != nil {
			k.error(AttributeNotDeclared, pointer+"/to/attributes/"+escape(name),
				related(k.places.issuerMaps[k.issuer[g.Issuer]], "the issuer declares its attributes here"),
				"the issuer %q declares no attribute %.128q", g.Issuer, name)
		}
	}
	seen := map[string]bool{}
	for j, id := range o.texts("capabilities") {
		if seen[id] {
			continue
		}
		seen[id] = true
		g.Capabilities = append(g.Capabilities, id)
		if _, ok := k.capability[id]; !ok {
			k.error(UnknownCapabilityInGrant, at(pointer+"/capabilities", j), related(k.p.Anchors.Capabilities, "capabilities are declared here"),
				"the capability %q is not declared%s", id, suggestion(id, keys(k.capability)))
		}
	}
	k.accountOf(&g, derived)
	k.limits(&g, o["limits"], declared)
	k.validity(&g, o)
	k.p.Grants = append(k.p.Grants, g)
}

// derivation is the account that the upstreams of a capability agree on.
type derivation struct {
	account CapabilityAccount
	named   []Related // /account of the upstreams that name one
	unnamed []Related // upstreams that name none
	agree   bool
}

func (k *checker) derive(capability string) derivation {
	d := derivation{agree: true}
	for _, i := range k.realizedBy[capability] {
		u := &k.p.Upstreams[i]
		if u.Account == "" && !u.AccountNone {
			d.unnamed = append(d.unnamed, Related{Pointer: u.Pointer, Note: "names no account"})
			continue
		}
		account := CapabilityAccount{Capability: capability, Account: u.Account, None: u.AccountNone}
		if len(d.named) > 0 && account != d.account {
			d.agree = false
		}
		d.account = account
		d.named = append(d.named, Related{Pointer: u.Pointer + "/account", Note: "names " + accountText(account)})
	}
	return d
}

func accountText(a CapabilityAccount) string {
	if a.None {
		return "no account"
	}
	return "the account " + strconv.Quote(a.Account)
}

// accountOf settles with which account each capability of the grant runs.
func (k *checker) accountOf(g *Grant, derived map[string]derivation) {
	if g.Using != "" {
		if _, ok := k.account[g.Using]; !ok {
			k.error(UnknownAccountInGrant, g.Pointer+"/using", related(k.p.Anchors.Accounts, "accounts are declared here"),
				"the account %q is not declared%s", g.Using, suggestion(g.Using, keys(k.account)))
		}
	}
	var contradictions []Related
	for _, id := range g.Capabilities {
		d, ok := derived[id]
		if !ok {
			d = k.derive(id)
			derived[id] = d
		}
		if g.Using != "" {
			for _, i := range k.realizedBy[id] {
				u := &k.p.Upstreams[i]
				if u.AccountNone || u.Account != "" && u.Account != g.Using {
					place := Related{Pointer: u.Pointer + "/account", Note: "names " + accountText(CapabilityAccount{Account: u.Account, None: u.AccountNone})}
					if !slices.Contains(contradictions, place) {
						contradictions = append(contradictions, place)
					}
				}
			}
			g.UsingBy = append(g.UsingBy, CapabilityAccount{Capability: id, Account: g.Using})
			continue
		}
		_, known := k.capability[id]
		switch {
		case !known: // reported already
		case len(d.named)+len(d.unnamed) == 0:
			k.error(AccountMissing, g.Pointer, related(k.p.Capabilities[k.capability[id]].Pointer, "no upstream realises it"),
				"no upstream realises %q, so the grant has no account for it; write using, or map a tool", id)
		case len(d.unnamed) > 0:
			k.error(AccountMissing, g.Pointer, slices.Clone(d.unnamed),
				"the grant has no account for %q; write using, or an account on the upstreams that realise it", id)
		case !d.agree:
			k.error(AmbiguousGrant, g.Pointer, slices.Clone(d.named),
				"the upstreams that realise %q name different accounts; map them to different capabilities, or name one account", id)
		default:
			g.UsingBy = append(g.UsingBy, d.account)
		}
	}
	if len(contradictions) > 0 {
		k.error(AccountContradicts, g.Pointer+"/using", contradictions,
			"the grant uses the account %q, but an upstream of its capabilities names another; remove using, or change one of them", g.Using)
	}
}

func (k *checker) limits(g *Grant, v any, declared map[string]Attribute) {
	if v == nil {
		return
	}
	if list, ok := v.([]any); ok {
		for i, item := range list {
			pointer := at(g.Pointer+"/limits", i)
			k.limit(g, toObject(item), pointer, pointer, declared)
		}
		return
	}
	// A single ceiling is reported at its grant, as it always was.
	k.limit(g, toObject(v), g.Pointer, g.Pointer+"/limits", declared)
}

func (k *checker) limit(g *Grant, o object, pointer, place string, declared map[string]Attribute) {
	c := Ceiling{Calls: o.number("calls"), Window: o.text("per"), Over: OverPrincipal, Pointer: pointer}
	c.Millis = duration(c.Window)
	over := o.text("over")
	switch Scope(over) {
	case "", OverPrincipal:
	case OverGrant:
		c.Over = OverGrant
	case OverAccount:
		c.Over = OverAccount
		if slices.ContainsFunc(g.UsingBy, func(a CapabilityAccount) bool { return a.None }) {
			k.error(LimitScopeInvalid, place+"/over", nil,
				"the grant has calls without an account, so nothing can be counted over it; count over principal or grant")
		}
	default:
		c.Over, c.Attribute = OverAttribute, over
		if declared == nil {
			break // the issuer is unknown: nothing to compare with
		}
		where := related(k.places.issuerMaps[k.issuer[g.Issuer]], "the issuer declares its attributes here")
		if a, ok := declared[over]; !ok {
			k.error(LimitScopeInvalid, place+"/over", where,
				"the issuer %q declares no attribute %.128q; count over principal, grant, account or a declared attribute", g.Issuer, over)
		} else if a.Many {
			k.error(LimitScopeInvalid, place+"/over", related(a.Pointer, "has many values"),
				"the attribute %.128q can have many values, so a call has no single count; use a single-valued attribute", over)
		}
	}
	g.Ceilings = append(g.Ceilings, c)
}

func (k *checker) validity(g *Grant, o object) {
	g.From, g.HasFrom = k.instant(g, o, "from")
	g.Until, g.HasUntil = k.instant(g, o, "until")
	if g.HasFrom && g.HasUntil && g.Until <= g.From {
		k.error(ValidityEmpty, g.Pointer+"/until", related(g.Pointer+"/from", "valid from here"),
			"the grant ends before it begins, so it never holds; correct one of the instants")
	}
}

func (k *checker) instant(g *Grant, o object, name string) (int64, bool) {
	text := o.text(name)
	if text == "" {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		k.error(InstantInvalid, g.Pointer+"/"+name, nil, "no such instant exists; write one such as 2026-05-03T00:00:00Z")
		return 0, false
	}
	return t.UnixMilli(), true
}

func (k *checker) checkAmbiguity() {
	type group struct {
		capability, issuer string
	}
	groups := map[group][]*contender{}
	var order []group
	for i := range k.p.Grants {
		g := &k.p.Grants[i]
		single := g.Selector
		if issuer, ok := k.issuer[g.Issuer]; ok {
			declared := k.attributes[issuer]
			isMany := func(av AttributeValue) bool { return declared[av.Attribute].Many }
			if slices.ContainsFunc(single, isMany) {
				single = slices.DeleteFunc(slices.Clone(single), isMany)
			}
		}
		from, until := validity(g)
		for _, a := range g.UsingBy {
			key := group{a.Capability, g.Issuer}
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], &contender{
				grant: i, account: CapabilityAccount{Account: a.Account, None: a.None}, single: single, from: from, until: until,
			})
		}
	}
	search := pairSearch{found: map[pair][]string{}}
	for _, key := range order {
		search.within(key.capability, groups[key], nil)
	}
	if search.tooComplex() {
		k.error(TooComplex, k.p.Anchors.Grants, nil,
			"the selectors of these grants overlap in too many ways to be checked; give grants of one capability a common attribute with different values")
	}
	pairs := make([]pair, 0, len(search.found))
	for p := range search.found {
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.earlier, b.earlier), cmp.Compare(a.later, b.later))
	})
	for _, p := range pairs {
		a, b := &k.p.Grants[p.earlier], &k.p.Grants[p.later]
		capabilities := search.found[p]
		slices.Sort(capabilities)
		k.error(AmbiguousGrant, a.Pointer, related(b.Pointer, "with "+accountText(accountFor(b, capabilities[0]))),
			"one principal can match this grant, with %s, and another grant for %s; make the selectors exclude each other, or use one account",
			accountText(accountFor(a, capabilities[0])), enumerate(capabilities))
	}
}

func accountFor(g *Grant, capability string) CapabilityAccount {
	i := slices.IndexFunc(g.UsingBy, func(a CapabilityAccount) bool { return a.Capability == capability })
	return g.UsingBy[max(i, 0)]
}

// enumerate names a few and counts the rest.
func enumerate(names []string) string {
	const shown = 5
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// checkReach compares the upstreams that each account reaches with the ones
// it may reach, and returns the accounts that are used at all.
func (k *checker) checkReach() map[string]bool {
	used := map[string]bool{}
	capabilities := map[string]map[string]bool{}
	for i := range k.p.Grants {
		g := &k.p.Grants[i]
		used[g.Using] = true
		for _, a := range g.UsingBy {
			if a.None {
				continue
			}
			used[a.Account] = true
			if capabilities[a.Account] == nil {
				capabilities[a.Account] = map[string]bool{}
			}
			capabilities[a.Account][a.Capability] = true
		}
	}
	for i := range k.p.Accounts {
		a := &k.p.Accounts[i]
		if k.account[a.ID] != i {
			continue // a duplicate, reported already
		}
		reached := map[string]bool{}
		for capability := range capabilities[a.ID] {
			for _, i := range k.realizedBy[capability] {
				// An upstream that names another account is a contradiction,
				// reported as such, and gets nothing from this one.
				if u := &k.p.Upstreams[i]; !u.AccountNone && (u.Account == "" || u.Account == a.ID) {
					reached[u.ID] = true
				}
			}
		}
		var beyond []Related
		for j, u := range k.p.Upstreams {
			if reached[u.ID] && !slices.Contains(a.For, u.ID) && k.upstream[u.ID] == j {
				beyond = append(beyond, Related{Pointer: u.Pointer, Note: "reached by a grant"})
			}
		}
		switch {
		case len(a.For) > 0 && len(beyond) > 0:
			k.error(AccountReachesMany, a.Pointer+"/for", beyond,
				"grants let the account %q reach upstreams that its for does not list; list them, or use another account", a.ID)
		case len(a.For) == 0 && len(beyond) > 1:
			k.error(AccountReachesMany, a.Pointer, beyond,
				"grants let the account %q reach more than one upstream; use an account for each, or list them under for", a.ID)
		}
		for j, id := range a.For {
			if _, known := k.upstream[id]; known && used[a.ID] && !reached[id] {
				k.warn(UnreachedUpstreamInFor, at(a.Pointer+"/for", j),
					"no grant lets the account %q reach %q; remove it from for", a.ID, id)
			}
		}
	}
	return used
}

func (k *checker) checkUse(usedAccounts map[string]bool) {
	granted, issuers := map[string]bool{}, map[string]bool{}
	for i := range k.p.Grants {
		issuers[k.p.Grants[i].Issuer] = true
		for _, id := range k.p.Grants[i].Capabilities {
			granted[id] = true
		}
	}
	for _, c := range k.p.Capabilities {
		if len(k.realizedBy[c.ID]) == 0 {
			k.warn(CapabilityNotRealized, c.Pointer, "no tool is mapped to the capability %q, so nobody can use it", c.ID)
		}
	}
	for _, c := range k.p.Capabilities {
		if !granted[c.ID] {
			k.warn(CapabilityNotGranted, c.Pointer, "no grant gives the capability %q to anybody", c.ID)
		}
	}
	for _, a := range k.p.Accounts {
		if !usedAccounts[a.ID] {
			k.warn(UnusedAccount, a.Pointer, "no grant uses the account %q", a.ID)
		}
	}
	for _, issuer := range k.p.Issuers {
		if !issuers[issuer.ID] {
			k.warn(UnusedIssuer, issuer.Pointer, "no grant names the issuer %q", issuer.ID)
		}
	}
}

// catalogue compares the mappings with what upstreams list. Places are in the
// policy: the catalogue is another document.
func (k *checker) catalogue(listed []CatalogueTool, lock bool) {
	listed = slices.Clone(listed)
	slices.SortFunc(listed, func(a, b CatalogueTool) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Name, b.Name))
	})
	exists := make(map[CatalogueTool]bool, len(listed))
	for i, t := range listed {
		exists[t] = true
		if i > 0 && t == listed[i-1] {
			k.error(CatalogDuplicate, k.mappingOf(t), nil,
				"the catalogue lists the tool %.128q of %.128q more than once; one name must be one tool", t.Name, t.Upstream)
		}
	}
	for _, u := range k.p.Upstreams {
		for _, t := range u.Tools {
			switch {
			case exists[CatalogueTool{u.ID, t.Name}]:
			case lock:
				k.warn(ToolNotAccepted, t.Pointer+"/name", "nobody accepted the tool %.128q of %q, so it is not served%s",
					t.Name, u.ID, suggestion(t.Name, namesOf(listed, u.ID)))
			default:
				k.error(ToolNotInCatalog, t.Pointer+"/name", nil,
					"the catalogue has no tool %.128q of %q%s", t.Name, u.ID, suggestion(t.Name, namesOf(listed, u.ID)))
			}
		}
	}
	for _, t := range slices.Compact(listed) {
		if _, mapped := k.places.first[[2]string{t.Upstream, t.Name}]; mapped {
			continue
		}
		if _, declared := k.upstream[t.Upstream]; !declared {
			k.warn(CatalogToolUnmapped, k.p.Anchors.Upstreams, "the tool %.128q of %.128q is not mapped: the upstream is not declared", t.Name, t.Upstream)
			continue
		}
		k.warn(CatalogToolUnmapped, k.p.Anchors.Upstreams, "the tool %.128q of %.128q is not mapped to a capability, so nobody can see or call it", t.Name, t.Upstream)
	}
}

// mappingOf is the place of a tool's mapping, or of all upstreams.
func (k *checker) mappingOf(t CatalogueTool) string {
	if place, ok := k.places.first[[2]string{t.Upstream, t.Name}]; ok {
		return place
	}
	return k.p.Anchors.Upstreams
}

func namesOf(listed []CatalogueTool, upstream string) []string {
	var names []string
	for _, t := range listed {
		if t.Upstream == upstream {
			names = append(names, t.Name)
		}
	}
	return names
}
