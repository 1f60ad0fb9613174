package review

import (
	"fmt"
	"slices"
	"strings"

	"aduana/assembly"
	"aduana/policy"
)

// aspect is one thing that a declaration trusts, as text.
type aspect struct{ name, value, pointer string }

// trust compares what the policy trusts rather than what it grants: where upstreams are and how they are run, where identities come
// from, where secrets are kept, and what maps to what.
func trust(before, after *assembly.Snapshot) []Change {
	var out []Change
	b, a := trusted(before.Policy), trusted(after.Policy)
	subjects := make([]string, 0, len(b)+len(a))
	for s := range b {
		subjects = append(subjects, s)
	}
	for s := range a {
		if _, ok := b[s]; !ok {
			subjects = append(subjects, s)
		}
	}
	slices.Sort(subjects)
	for _, s := range subjects {
		names := map[string]bool{}
		old, young := map[string]aspect{}, map[string]aspect{}
		for _, x := range b[s] {
			old[x.name], names[x.name] = x, true
		}
		for _, x := range a[s] {
			young[x.name], names[x.name] = x, true
		}
		sorted := make([]string, 0, len(names))
		for n := range names {
			sorted = append(sorted, n)
		}
		slices.Sort(sorted)
		for _, n := range sorted {
			if old[n].value == young[n].value {
				continue
			}
			out = append(out, Change{Kind: Trust, Subject: s, Aspect: n,
				Before: Side{Declared: b[s] != nil, Value: old[n].value, Place: placeOf(before, old[n])},
				After:  Side{Declared: a[s] != nil, Value: young[n].value, Place: placeOf(after, young[n])}})
		}
	}
	return out
}

func placeOf(s *assembly.Snapshot, x aspect) string {
	if x.pointer == "" {
		return ""
	}
	return s.Place(x.pointer)
}

func trusted(p *policy.Policy) map[string][]aspect {
	out := map[string][]aspect{}
	for _, u := range p.Upstreams {
		put := func(name, value string) {
			if value != "" {
				out["upstream "+u.ID] = append(out["upstream "+u.ID], aspect{name, value, u.Pointer})
			}
		}
		put("transport", string(u.Transport))
		put("url", u.URL)
		put("command", u.Command)
		put("args", values(u.Args))
		put("cwd", u.Cwd)
		put("env", named(u.Env))
		put("inherit", quoted(slices.Sorted(slices.Values(u.Inherit)))) // a set
		put("headers", named(u.Headers))
		put("deliver", strings.TrimSuffix(string(u.Deliver.Kind)+":"+u.Deliver.Name, ":"))
		var mapping []string
		for _, t := range u.Tools {
			mapping = append(mapping, fmt.Sprintf("%q → %s", t.Name, t.Capability))
		}
		slices.Sort(mapping)
		put("mapping", strings.Join(mapping, ", "))
	}
	for _, i := range p.Issuers {
		put := func(name, value string) {
			if value != "" {
				out["issuer "+i.ID] = append(out["issuer "+i.ID], aspect{name, value, i.Pointer})
			}
		}
		put("kind", string(i.Kind))
		put("discovery", i.Discovery)
		put("audience", i.Audience)
		put("subject", i.Subject)
		put("secret", string(i.SecretRef))
		put("disclosure", string(i.Disclosure))
		var attributes []string
		for _, a := range i.Attributes {
			text := fmt.Sprintf("%s ← %q", a.Name, a.From)
			if a.Many {
				text += " (many)"
			}
			attributes = append(attributes, text)
		}
		put("attributes", strings.Join(attributes, ", "))
	}
	for _, c := range p.Accounts {
		out["account "+c.ID] = append(out["account "+c.ID], aspect{"secret", string(c.SecretRef), c.Pointer})
	}
	return out
}

func values(list []policy.Value) string {
	var out []string
	for _, v := range list {
		out = append(out, value(v))
	}
	return strings.Join(out, " ")
}

func named(list []policy.NamedValue) string {
	var out []string
	for _, v := range list {
		out = append(out, v.Name+"="+value(v.Value))
	}
	return strings.Join(out, " ")
}

func value(v policy.Value) string {
	if v.IsRef {
		return "{ref: " + string(v.Ref) + "}"
	}
	return fmt.Sprintf("%q", v.Literal)
}

func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, " ")
}
