// Package capabilities answers "WHAT can be done": which thing of which upstream is meant (Identity), under which one name
// a client sees it (Expose), whether two things would be confused (Ledger), what exactly was accepted (Definition, Pin) and
// where it was accepted (Binding).
//
// It is pure: no clock, I/O, randomness or globals, and it imports none of its sibling packages. It never parses JSON: the
// members of a definition arrive already canonical. Nothing here, or anywhere else, splits an exposed name; the way back
// from a name is the Ledger's index.
//
// Start at Identity, then Expose (the three images), then NewLedger.
package capabilities
