// Package access answers "MAY THEY": may this caller use this capability now, with which account, under which ceilings, and which
// line of the policy says so.
//
// It is pure and total: no clock, I/O, randomness, globals or errors; every question ends in a Decision, and the zero Decision
// denies. There are grants only: no deny rules, no order, no precedence. It knows nothing of tools, tokens or secrets.
//
// Start at Evaluate; everything else exists to make it short and fast.
package access
