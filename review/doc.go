// Package review answers questions before anything runs: what would be decided and why (Explain), who could do this (WhoCan), which
// decisions a change alters (Diff), and which names stand for what (Names).
//
// It is pure: it works on snapshots and needs no network, no credential and no clock. It decides nothing itself; every answer is
// access.Evaluate's.
//
// Start at Explain; Diff carries the argument for why few witnesses are enough.
package review
