package jsonschema

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
)

// A judgement may take so many steps, about 20 ns each: a floor for small arguments, and more for large ones, which honest
// schemas walk through a few times.
const (
	floorSteps   = 50000
	stepsPerByte = 8
)

// judge answers whether the scanned arguments fit. The tree is scratch space: nothing in it is read before it is written.
func judge(ctx context.Context, r *rules, t *tree, arguments []byte) error {
	t.parse(arguments)
	j := judgement{tree: t, ctx: ctx, steps: floorSteps + stepsPerByte*len(arguments)}
	fits := j.fits(r, 0, nil)
	switch {
	case j.failed != nil:
		return j.failed
	case fits:
		return nil
	case j.violation == nil:
		return unusable("it refuses without a reason") // cannot happen; it must not count as fitting
	}
	return j.violation
}

type judgement struct {
	*tree
	ctx       context.Context
	steps     int
	path      []step
	quiet     int // inside a branch that may fail without harm
	violation *gateway.Violation
	failed    error // ends everything, whatever the answer would be
}

// step is one way down: the node of a member's name, or the index of an element.
type step struct {
	name  int // -1: an element
	index int
}

// spend takes steps and reports whether there are any left.
func (j *judgement) spend(n int) bool {
	if j.failed != nil {
		return false
	}
	before := j.steps
	if j.steps -= n; n < 0 || j.steps < 0 { // below zero: more than an int holds
		j.failed = unusable("judging these arguments takes too many steps")
		return false
	}
	if before>>12 != j.steps>>12 && j.ctx.Err() != nil {
		j.failed = j.ctx.Err()
		return false
	}
	return true
}

// no notes the first violation, unless it is one of a branch, and answers no.
func (j *judgement) no(format string, args ...any) bool {
	if j.quiet == 0 && j.violation == nil && j.failed == nil {
		j.violation = &gateway.Violation{Pointer: j.pointer(), Detail: fmt.Sprintf(format, args...)}
	}
	return false
}

// What a pointer shows at most, in bytes: names are the client's, and pointers go into records.
const (
	maxSegment = 64
	maxPointer = 256
)

func (j *judgement) pointer() string {
	var b strings.Builder
	for _, s := range j.path {
		if b.Len() > maxPointer {
			b.WriteString("/…")
			break
		}
		b.WriteByte('/')
		if s.name < 0 {
			b.WriteString(strconv.Itoa(s.index))
			continue
		}
		name := string(j.string(s.name))
		if len(name) > maxSegment {
			name = strings.ToValidUTF8(name[:maxSegment], "") + "…"
		}
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// fits judges the value at node i. With evaluated, which has a place for each child, it marks the children that a rule looked at;
// the marks count only if the answer is yes.
func (j *judgement) fits(r *rules, i int, evaluated []bool) bool {
	if !j.spend(1) {
		return false
	}
	if r.never {
		return j.no("the schema allows nothing here")
	}
	n := j.nodes[i]
	if r.kinds != 0 && !j.kindIn(r.kinds, i) {
		return j.no(`"type" must be %s, not %s`, r.kinds, n.kind)
	}
	if r.values != nil && !j.valueIn(r.values, i) {
		return j.no("%q does not list this value", r.values.keyword)
	}
	marks := evaluated
	if marks == nil && (r.object != nil && r.object.unevaluated != nil || r.array != nil && r.array.unevaluated != nil) {
		if !j.spend(n.count / 8) {
			return false
		}
		marks = make([]bool, n.count)
	}
	// References and conditions first: what is unevaluated is known only after them.
	if r.same != nil && !j.same(r.same, i, marks) {
		return false
	}
	switch n.kind {
	case jsonrpc.Number:
		return r.number == nil || j.number(r.number, i)
	case jsonrpc.String:
		return r.text == nil || j.text(r.text, i)
	case jsonrpc.Object:
		return r.object == nil || j.object(r.object, i, marks)
	case jsonrpc.Array:
		return r.array == nil || j.array(r.array, i, marks)
	}
	return true
}

// branch judges without noting violations.
func (j *judgement) branch(r *rules, i int, marks []bool) bool {
	j.quiet++
	ok := j.also(r, i, marks)
	j.quiet--
	return ok
}

// also judges the same value by another schema and takes over its marks if it fits.
func (j *judgement) also(r *rules, i int, marks []bool) bool {
	if marks == nil {
		return j.fits(r, i, nil)
	}
	if !j.spend(len(marks) / 8) {
		return false
	}
	own := make([]bool, len(marks))
	if !j.fits(r, i, own) {
		return false
	}
	for k, m := range own {
		marks[k] = marks[k] || m
	}
	return true
}

func (j *judgement) same(r *sameRules, i int, marks []bool) bool {
	for _, s := range r.all {
		if !j.also(s, i, marks) {
			return false
		}
	}
	if r.any != nil {
		found := false
		for _, s := range r.any {
			// With marks, every alternative that fits adds its own.
			if found = j.branch(s, i, marks) || found; found && marks == nil {
				break
			}
		}
		if !found {
			return j.no(`"anyOf": none of the %d alternatives fits`, len(r.any))
		}
	}
	if r.one != nil {
		found := 0
		for _, s := range r.one {
			if j.branch(s, i, marks) {
				found++
			}
			if found > 1 {
				return j.no(`"oneOf": more than one of the %d alternatives fits`, len(r.one))
			}
		}
		if found == 0 {
			return j.no(`"oneOf": none of the %d alternatives fits`, len(r.one))
		}
	}
	if r.not != nil && j.branch(r.not, i, nil) {
		return j.no(`"not": fits what it must not`)
	}
	if r.cond != nil {
		next := r.other
		if j.branch(r.cond, i, marks) {
			next = r.then
		}
		if next != nil && !j.also(next, i, marks) {
			return false
		}
	}
	for _, w := range r.when {
		if j.nodes[i].kind == jsonrpc.Object && j.has(i, w.member) && !j.also(w.rules, i, marks) {
			return false
		}
	}
	return true
}

func (j *judgement) kindIn(k kinds, i int) bool {
	switch j.nodes[i].kind {
	case jsonrpc.Null:
		return k&null != 0
	case jsonrpc.Bool:
		return k&boolean != 0
	case jsonrpc.String:
		return k&text != 0
	case jsonrpc.Array:
		return k&array != 0
	case jsonrpc.Object:
		return k&object != 0
	case jsonrpc.Number:
		return k&number != 0 || k&integer != 0 && j.tree.number(i).integer()
	}
	return false
}

func (j *judgement) valueIn(v *values, i int) bool {
	n := j.nodes[i]
	if n.kind == jsonrpc.String && !n.escaped {
		// A string without escapes is its own key.
		return v.keys[string(j.raw[n.start:n.end])]
	}
	return j.spend((n.end-n.start)/4) && v.keys[string(j.appendKey(nil, i))]
}

func (j *judgement) number(r *numberRules, i int) bool {
	d := j.tree.number(i)
	switch {
	case !j.spend(len(d.digits) / 16):
		return false
	case r.min != nil && d.compare(*r.min) < 0:
		return j.no(`"minimum": the number is too small`)
	case r.max != nil && d.compare(*r.max) > 0:
		return j.no(`"maximum": the number is too large`)
	case r.above != nil && d.compare(*r.above) <= 0:
		return j.no(`"exclusiveMinimum": the number is too small`)
	case r.below != nil && d.compare(*r.below) >= 0:
		return j.no(`"exclusiveMaximum": the number is too large`)
	case r.divisor != nil && (!j.spend(20+len(d.digits)) || !d.multipleOf(*r.divisor)):
		return j.no(`"multipleOf": the number is no multiple`)
	}
	return true
}

func (j *judgement) text(r *textRules, i int) bool {
	s := j.string(i)
	if r.min > 0 || r.max >= 0 {
		if !j.spend(len(s) / 64) {
			return false
		}
		switch n := utf8.RuneCount(s); {
		case n < r.min:
			return j.no(`"minLength": %d characters, at least %d are needed`, n, r.min)
		case r.max >= 0 && n > r.max:
			return j.no(`"maxLength": %d characters, at most %d are allowed`, n, r.max)
		}
	}
	if r.pattern != nil && !j.matches(r.pattern, s) {
		return j.no(`"pattern" does not match %.80q`, r.pattern.source)
	}
	return true
}

func (j *judgement) matches(p *pattern, s []byte) bool {
	if p.re == nil {
		// Neither yes nor no is known, and under "not" a no would become a yes: the whole ends here, as not fitting.
		if j.failed == nil {
			j.failed = &gateway.Violation{Pointer: j.pointer(),
				Detail: fmt.Sprintf("the pattern %.80q cannot be judged: it is outside RE2, or too large", p.source)}
		}
		return false
	}
	return j.spend(len(s)*p.size/64+1) && p.re.Match(s)
}

// has looks a member up by name.
func (j *judgement) has(i int, name string) bool {
	n := j.nodes[i]
	if !j.spend(1 + n.count/8) {
		return false
	}
	for c := i + 1; c < n.next; c = j.nodes[c+1].next {
		if string(j.string(c)) == name {
			return true
		}
	}
	return false
}

func (j *judgement) object(r *objectRules, i int, marks []bool) bool {
	n := j.nodes[i]
	switch {
	case n.count < r.min:
		return j.no(`"minProperties": %d members, at least %d are needed`, n.count, r.min)
	case r.max >= 0 && n.count > r.max:
		return j.no(`"maxProperties": %d members, at most %d are allowed`, n.count, r.max)
	}
	for _, name := range r.required {
		if !j.has(i, name) {
			return j.no(`"required": the member %q is missing`, name)
		}
	}
	for _, d := range r.needs {
		if !j.has(i, d.member) {
			continue
		}
		for _, name := range d.others {
			if !j.has(i, name) {
				return j.no(`"dependentRequired": with the member %q, the member %q is needed`, d.member, name)
			}
		}
	}
	if len(r.properties)+len(r.patterns) == 0 && r.rest == nil && r.names == nil && r.unevaluated == nil {
		return true
	}
	place := 0
	for c := i + 1; c < n.next; c, place = j.nodes[c+1].next, place+1 {
		if !j.spend(1) {
			return false
		}
		j.path = append(j.path, step{name: c})
		looked, ok := j.member(r, c)
		if marks != nil && looked {
			marks[place] = true
		}
		if ok && r.unevaluated != nil && !marks[place] {
			ok = j.only(r.unevaluated, c+1, `"unevaluatedProperties": no such member is allowed`)
			marks[place] = true
		}
		j.path = j.path[:len(j.path)-1]
		if !ok {
			return false
		}
	}
	return true
}

// member judges the member whose name is node c. looked says that some rule applied to its value.
func (j *judgement) member(r *objectRules, c int) (looked, ok bool) {
	name := j.string(c)
	if r.names != nil && !j.branch(r.names, c, nil) {
		return false, j.no(`"propertyNames": the name is not allowed`)
	}
	if s, ok := r.properties[string(name)]; ok {
		looked = true
		if !j.fits(s, c+1, nil) {
			return true, false
		}
	}
	for _, p := range r.patterns {
		if j.matches(p.name, name) {
			looked = true
			if !j.fits(p.rules, c+1, nil) {
				return true, false
			}
		}
	}
	if !looked && r.rest != nil {
		return true, j.only(r.rest, c+1, `"additionalProperties": no such member is allowed`)
	}
	return looked, true
}

// only judges by a schema that is often false, which has a better reason than that nothing is allowed.
func (j *judgement) only(r *rules, i int, reason string) bool {
	if r.never {
		return j.no("%s", reason)
	}
	return j.fits(r, i, nil)
}

func (j *judgement) array(r *arrayRules, i int, marks []bool) bool {
	n := j.nodes[i]
	switch {
	case n.count < r.min:
		return j.no(`"minItems": %d elements, at least %d are needed`, n.count, r.min)
	case r.max >= 0 && n.count > r.max:
		return j.no(`"maxItems": %d elements, at most %d are allowed`, n.count, r.max)
	case r.unique && !j.unique(i):
		return j.no(`"uniqueItems": two elements are equal`)
	}
	if len(r.first) == 0 && r.rest == nil && r.contains == nil && r.unevaluated == nil {
		return true
	}
	found, place := 0, 0
	for c := i + 1; c < n.next; c, place = j.nodes[c].next, place+1 {
		if !j.spend(1) {
			return false
		}
		j.path = append(j.path, step{name: -1, index: place})
		looked, ok := false, true
		if place < len(r.first) {
			looked, ok = true, j.fits(r.first[place], c, nil)
		} else if r.rest != nil {
			looked, ok = true, j.only(r.rest, c, `"items": no further element is allowed`)
		}
		if ok && r.contains != nil && j.branch(r.contains, c, nil) {
			found++
			looked = looked || r.containsEvaluates
		}
		if marks != nil && looked {
			marks[place] = true
		}
		if ok && r.unevaluated != nil && !marks[place] {
			ok = j.only(r.unevaluated, c, `"unevaluatedItems": no such element is allowed`)
			marks[place] = true
		}
		j.path = j.path[:len(j.path)-1]
		if !ok {
			return false
		}
	}
	switch {
	case r.contains == nil:
	case found < r.minContains:
		return j.no(`"contains": %d elements fit, at least %d are needed`, found, r.minContains)
	case r.maxContains >= 0 && found > r.maxContains:
		return j.no(`"contains": %d elements fit, at most %d are allowed`, found, r.maxContains)
	}
	return true
}

func (j *judgement) unique(i int) bool {
	n := j.nodes[i]
	if !j.spend((n.end - n.start) / 4) {
		return false
	}
	seen := make(map[string]bool, n.count)
	var key []byte
	for c := i + 1; c < n.next; c = j.nodes[c].next {
		key = j.appendKey(key[:0], c)
		if seen[string(key)] {
			return false
		}
		seen[string(key)] = true
	}
	return true
}

// String names the types as "type" does.
func (k kinds) String() string {
	names := []string{"null", "boolean", "integer", "number", "string", "array", "object"}
	var list []string
	for b, name := range names {
		if k&(1<<b) != 0 && !(name == "integer" && k&number != 0) {
			list = append(list, name)
		}
	}
	return strings.Join(list, " or ")
}
