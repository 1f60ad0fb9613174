package gateway

import (
	"maps"
	"slices"
	"sync"

	"aduana/assembly"
	"aduana/capabilities"
	"aduana/policy"
)

// keeper holds the inputs of the snapshot. Every change of one makes a whole new snapshot and swaps it in; readers hold the old one
// as long as they need it.
type keeper struct {
	mu sync.Mutex
	in assembly.Input
}

// Declare puts a new policy and lock in force. What was observed of upstreams that now point elsewhere is forgotten, their sessions end,
// and exactly those whose visible set changed are told.
func (g *Gateway) Declare(p *policy.Policy, d *policy.Document, version string, lock assembly.Lock) *assembly.Snapshot {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	in := g.keeper.in
	old := g.current.Load()
	in.Policy, in.Document, in.Version, in.Lock = p, d, version, lock
	in.Observed = maps.Clone(in.Observed)
	for id := range in.Observed {
		if !slices.ContainsFunc(p.Upstreams, func(u policy.Upstream) bool {
			return capabilities.UpstreamID(u.ID) == id && assembly.BindingOf(&u).Digest() == old.Bindings[id]
		}) {
			delete(in.Observed, id)
		}
	}
	return g.swap(in)
}

// observe takes what an upstream listed for an account. A list equal to the one before changes nothing, and one from where the upstream
// does not point any more is nobody's: it is asked under the lock, or a reload could come between.
func (g *Gateway) observe(id capabilities.UpstreamID, binding capabilities.Digest, o assembly.Observation) {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	if g.Snapshot().Bindings[id] != binding {
		return
	}
	in := g.keeper.in
	have := in.Observed[id]
	i := slices.IndexFunc(have, func(x assembly.Observation) bool { return x.Account == o.Account })
	if i >= 0 && slices.EqualFunc(have[i].Tools, o.Tools, func(a, b assembly.ObservedTool) bool {
		return a.Name == b.Name && a.Problem == b.Problem && a.Definition.Digest() == b.Definition.Digest()
	}) {
		return
	}
	for i := range o.Tools {
		o.Tools[i].Raw = nil // what is served is always the accepted definition
	}
	in.Observed = maps.Clone(in.Observed)
	if in.Observed == nil {
		in.Observed = map[capabilities.UpstreamID][]assembly.Observation{}
	}
	have = slices.Clone(have)
	if i >= 0 {
		have[i] = o
	} else {
		have = append(have, o)
	}
	in.Observed[id] = have
	before := g.Snapshot()
	g.tell(before, g.swap(in))
}

// tell logs what an upstream changed since the snapshot before: what is withheld for it, and what goes on being served as it was
// accepted. Never the changed text itself: it may be written for whoever reads it.
func (g *Gateway) tell(before, after *assembly.Snapshot) {
	known := make(map[string]bool, len(before.Findings)+len(before.Reports))
	for _, f := range before.Findings {
		known[f.String()] = true
	}
	for _, r := range before.Reports {
		known[changedMembers(r)] = true
	}
	for _, f := range after.Findings {
		if !known[f.String()] {
			g.cfg.Log.Warn("withheld", "identity", f.Identity.Canonical(), "reason", string(f.Reason), "finding", f.String())
		}
	}
	for _, r := range after.Reports {
		if !known[changedMembers(r)] {
			g.cfg.Log.Warn("changed at the upstream, served as accepted", "change", changedMembers(r))
		}
	}
}

func changedMembers(r assembly.Report) string {
	text := r.Identity.Canonical() + ":"
	for _, c := range r.Changes {
		text += " " + c.Member
	}
	return text
}

// swap assembles, publishes and tells. The caller holds the keeper's lock, so that snapshots follow each other in one order.
func (g *Gateway) swap(in assembly.Input) *assembly.Snapshot {
	g.keeper.in = in
	s := &standing{Snapshot: assembly.Assemble(in)}
	g.current.Store(s)
	g.pool.keepOnly(s.Snapshot)
	g.watchers.changed(g)
	return s.Snapshot
}
