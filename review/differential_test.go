package review_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"aduana/access"
	"aduana/assembly"
	"aduana/consent"
	"aduana/principals"
	"aduana/review"
)

// somebody is a principal as the brute force knows one: attributes that an issuer would present, or the one subject of a static key.
type somebody struct {
	issuer     string
	attributes []principals.Attribute
	key        bool
}

// everybody lists all principals that either plan could meet: every set of the values 1, 2 and one that no grant names, for each
// attribute, and every key.
func everybody(before, after plan) []somebody {
	var all []somebody
	for _, id := range []string{"i0", "i1"} {
		people, key := false, false
		for _, p := range []plan{before, after} {
			if i := p.issuer(id); i != nil {
				people, key = people || !i.static, key || i.static
			}
		}
		if key {
			all = append(all, somebody{issuer: id, key: true})
		}
		for set := range 64 {
			if !people {
				break
			}
			s := somebody{issuer: id}
			for bit, v := range []string{"1", "2", "other"} {
				if set>>bit&1 == 1 {
					s.attributes = append(s.attributes, principals.Attribute{Name: "a", Value: v})
				}
				if set>>(bit+3)&1 == 1 {
					s.attributes = append(s.attributes, principals.Attribute{Name: "b", Value: v})
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// literals gives what a key presents: its own attributes where the issuer is a key, and those of the other plan where it is not.
func literals(id string, here, there plan) []principals.Attribute {
	for _, p := range []plan{here, there} {
		i := p.issuer(id)
		if i == nil || !i.static {
			continue
		}
		var out []principals.Attribute
		if i.a.as != "" {
			out = append(out, principals.Attribute{Name: "a", Value: i.a.value})
		}
		if i.b.as != "" {
			out = append(out, principals.Attribute{Name: "b", Value: i.b.value})
		}
		return out
	}
	return nil
}

// outcome is what somebody gets.
type outcome struct {
	allowed  bool
	code     access.Code
	account  access.Handle
	ask      access.Ask
	state    consent.State
	ceilings string
}

// side is a plan with what it was assembled to.
type side struct {
	plan
	*assembly.Snapshot
}

// caller gives whom a side takes somebody for; nobody where they cannot authenticate.
func (s side) caller(there plan, who somebody) (access.Caller, bool) {
	issuer := s.issuer(who.issuer)
	if issuer == nil || issuer.static && !who.key {
		return access.Caller{}, false
	}
	presented := principals.Presented{Issuer: principals.IssuerID(who.issuer), Subject: "s", Attributes: who.attributes}
	if who.key {
		presented.Attributes = literals(who.issuer, s.plan, there)
	}
	p, _, problem := s.Issuers.Admit(presented)
	return assembly.CallerOf(p), problem == principals.NoProblem
}

// ask gives what a caller gets. A capability of -1 is a tool that is not mapped.
func (s side) ask(caller access.Caller, known bool, capability int, at int64) outcome {
	if capability < 0 || !known {
		return outcome{}
	}
	inv := access.Invocation{Caller: caller, Capability: capabilityName(capability), At: at,
		Usage: access.Usage{State: access.NotConsulted}}
	d := access.Evaluate(s.Access, inv)
	o := outcome{code: d.Reason().Code}
	permit, ok := d.Permit()
	if !ok {
		return o
	}
	o.allowed, o.account, o.ask = true, permit.Account, permit.Ask
	risk := consent.WriteRisk
	switch s.risks[capability] {
	case "read":
		risk = consent.ReadRisk
	case "destructive":
		risk = consent.DestructiveRisk
	}
	o.state = consent.Resolve(assembly.RuleOf(permit.Ask), risk)
	var ceilings []string
	for _, c := range s.Access.Ceilings(nil, inv) {
		ceilings = append(ceilings, fmt.Sprintf("%d/%d/%d/%s", c.Calls, c.Window, c.Scope, c.Attribute))
	}
	slices.Sort(ceilings)
	o.ceilings = fmt.Sprint(slices.Compact(ceilings))
	return o
}

func capabilityName(i int) string { return [...]string{"c0", "c1"}[i] }

// differ gives the kinds in which two outcomes differ.
func differ(b, a outcome) []review.Kind {
	switch {
	case !b.allowed && !a.allowed:
		return nil
	case !b.allowed:
		return []review.Kind{review.NewAccess}
	case !a.allowed:
		return []review.Kind{review.LostAccess}
	}
	var out []review.Kind
	if b.account != a.account {
		out = append(out, review.Account)
	}
	if b.ceilings != a.ceilings {
		out = append(out, review.CeilingSet)
	}
	if b.ask != a.ask || b.state != a.state {
		out = append(out, review.Ask)
	}
	return out
}

// judge holds one pair of plans against the brute force, at all instants or at one, and gives the kinds of change that it has.
func judge(before, after plan, at *int64) (map[review.Kind]bool, error) {
	bs, as := side{before, before.snapshot()}, side{after, after.snapshot()}
	when := instants()
	if at != nil {
		when = []int64{*at}
	}
	// What differs for anybody, by the capabilities that a tool maps to.
	byPair := map[[2]int]map[review.Kind]string{}
	for tool := range 2 {
		byPair[[2]int{before.mapping[tool], after.mapping[tool]}] = map[review.Kind]string{}
	}
	for _, who := range everybody(before, after) {
		bc, known := bs.caller(after, who)
		ac, knownAfter := as.caller(before, who)
		for pair, want := range byPair {
			for _, instant := range when {
				b, a := bs.ask(bc, known, pair[0], instant), as.ask(ac, knownAfter, pair[1], instant)
				for _, k := range differ(b, a) {
					if want[k] == "" {
						want[k] = fmt.Sprintf("%+v at %d: %+v, %+v", who, instant, b, a)
					}
				}
			}
		}
	}
	reported := [2]map[review.Kind]bool{{}, {}}
	all := map[review.Kind]bool{}
	for _, c := range review.Diff(bs.Snapshot, as.Snapshot, at) {
		all[c.Kind] = true
		if c.Kind == review.Trust {
			continue
		}
		if at != nil && c.At != *at {
			return nil, fmt.Errorf("%s is said to be at %d, asked was %d", c.Kind, c.At, *at)
		}
		who := somebody{issuer: c.Witness.Issuer, key: c.Witness.Fixed}
		for _, x := range c.Witness.Attributes {
			who.attributes = append(who.attributes, principals.Attribute(x))
		}
		bc, known := bs.caller(after, who)
		ac, knownAfter := as.caller(before, who)
		for _, identity := range c.Identities {
			tool := slices.Index([]string{"mcp:u:t0", "mcp:u:t1"}, identity)
			reported[tool][c.Kind] = true
			b, a := bs.ask(bc, known, before.mapping[tool], c.At), as.ask(ac, knownAfter, after.mapping[tool], c.At)
			if !slices.Contains(differ(b, a), c.Kind) {
				return nil, fmt.Errorf("%s of %s: the witness %s at %d sees no such thing: %+v, %+v", c.Kind, identity, c.Witness, c.At, b, a)
			}
			if b.code != c.Before.Code || a.code != c.After.Code || b.account != access.Handle(c.Before.Account) || a.account != access.Handle(c.After.Account) {
				return nil, fmt.Errorf("%s of %s for %s: told as %+v → %+v, is %+v → %+v", c.Kind, identity, c.Witness, c.Before, c.After, b, a)
			}
		}
	}
	for tool := range 2 {
		want := byPair[[2]int{before.mapping[tool], after.mapping[tool]}]
		for _, k := range []review.Kind{review.NewAccess, review.LostAccess, review.Account, review.CeilingSet, review.Ask} {
			if example, ok := want[k]; ok != reported[tool][k] {
				return nil, fmt.Errorf("%s of tool t%d: reported %t, brute force %t %s", k, tool, reported[tool][k], ok, example)
			}
		}
	}
	return all, nil
}

// TestDiffAgainstBruteForce is the proof by trying: for small random pairs of policies, Diff reports a kind of change for a tool
// exactly when some principal sees it at some instant, and every witness sees what is said of it. ADUANA_CASES sets how many pairs.
func TestDiffAgainstBruteForce(t *testing.T) {
	cases := 2000
	if text := os.Getenv("ADUANA_CASES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("ADUANA_CASES=%q is no number", text)
		}
		cases = n
	}
	const shards = 4
	var tallies [shards]tally
	var all sync.WaitGroup
	for i := range tallies {
		all.Go(func() { tallies[i] = tryPairs(uint64(i), shards, cases/shards) })
	}
	all.Wait()
	sum := tally{kinds: map[review.Kind]int{}}
	for _, x := range tallies {
		if x.failure != "" {
			t.Fatal(x.failure)
		}
		sum.silent, sum.refused = sum.silent+x.silent, sum.refused+x.refused
		for k, n := range x.kinds {
			sum.kinds[k] += n
		}
	}
	t.Logf("%d pairs (%d refused by the compiler), %d without changes, with changes: %v", cases, sum.refused, sum.silent, sum.kinds)
	// Agreement about nothing would prove nothing.
	for _, k := range []review.Kind{review.NewAccess, review.LostAccess, review.Account, review.CeilingSet, review.Ask} {
		if sum.kinds[k] < cases/60 {
			t.Errorf("only %d of %d pairs have a change of %s", sum.kinds[k], cases, k)
		}
	}
	if sum.silent < cases/10 {
		t.Errorf("only %d of %d pairs are without changes", sum.silent, cases)
	}
}

type tally struct {
	kinds           map[review.Kind]int
	silent, refused int
	failure         string
}

// tryPairs judges pairs until enough of them compiled. A seed gives the same pair whatever the number of cases.
func tryPairs(first, step uint64, cases int) tally {
	sum := tally{kinds: map[review.Kind]int{}}
	for seed, done := first, 0; done < cases; seed += step {
		r := rand.New(rand.NewPCG(seed, 2))
		before := randomPlan(r)
		after := mutated(r, before)
		if r.IntN(3) == 0 {
			after = randomPlan(r)
		}
		if !before.compiles() || !after.compiles() {
			sum.refused++
			continue
		}
		done++
		var at *int64
		if r.IntN(4) == 0 {
			instant := pick(r, instants()...)
			at = &instant
		}
		kinds, err := judge(before, after, at)
		if err != nil {
			sum.failure = fmt.Sprintf("pair %d: %v\n--- before\n%s--- after\n%s", seed, err, before.text(), after.text())
			return sum
		}
		for k := range kinds {
			sum.kinds[k]++
		}
		if len(kinds) == 0 {
			sum.silent++
		}
	}
	return sum
}
