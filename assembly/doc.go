// Package assembly answers "what holds right now": it joins the policy, the lock and what upstreams list into one immutable Snapshot,
// and is the only place where the six core packages meet.
//
// It is pure: the same inputs give the same Snapshot with the same hash, in whatever order they came. It opens nothing, and a
// Snapshot never changes; a change of any input is a new Snapshot.
//
// Start at Assemble, then Snapshot.Lookup and Snapshot.View.
package assembly
