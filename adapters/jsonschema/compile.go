package jsonschema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"aduana/internal/jsonrpc"
	lib "github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a schema. Beyond them it cannot be used, and its tool cannot be called.
const (
	maxSchemaBytes = 512 << 10
	maxSchemaDepth = 128
	maxSubschemas  = 4096      // the library compares each with all others …
	maxPointers    = 512 << 10 // … by their pointers: bytes of all of them
	maxIDs         = 64        // the library looks through all of them for each schema
	maxChain       = 128       // of schemas that apply to the same value: $ref to $ref to …
	maxLength      = 1 << 53
	maxDivisor     = 64    // digits of multipleOf
	maxScale       = 1000  // digits before or after the point of a bound: the library writes them out
	maxPattern     = 10000 // steps of one pattern when repetitions are written out
	maxPatterns    = 100000
)

// kinds is a set of types. Every integer is a number too.
type kinds uint8

const (
	null kinds = 1 << iota
	boolean
	integer
	number
	text
	array
	object
)

// rules is a compiled schema: what applies to one value. A part that is nil has no rules. The zero rules accept everything.
type rules struct {
	never  bool  // the schema false
	kinds  kinds // 0: all
	values *values
	number *numberRules
	text   *textRules
	object *objectRules
	array  *arrayRules
	same   *sameRules
}

// values are const and enum, by the key of tree.appendKey.
type values struct {
	keyword string
	keys    map[string]bool
}

type numberRules struct {
	min, max, above, below, divisor *decimal
}

type textRules struct {
	min, max int // characters; max -1: none
	pattern  *pattern
}

type objectRules struct {
	min, max    int // members; max -1: none
	required    []string
	properties  map[string]*rules
	patterns    []patternRules
	rest        *rules // members that neither of the two above has
	names       *rules
	unevaluated *rules
	needs       []needed // dependentRequired
}

type patternRules struct {
	name  *pattern
	rules *rules
}

type needed struct {
	member string
	others []string
}

type arrayRules struct {
	min, max                 int // elements; max -1: none
	unique                   bool
	first                    []*rules // by place
	rest                     *rules
	contains                 *rules
	minContains, maxContains int // maxContains -1: none
	containsEvaluates        bool
	unevaluated              *rules
}

// sameRules apply other schemas to the same value.
type sameRules struct {
	all         []*rules // $ref, allOf
	any, one    []*rules
	not         *rules
	cond        *rules
	then, other *rules
	when        []whenRules // dependentSchemas
}

type whenRules struct {
	member string
	rules  *rules
}

// pattern is a regular expression that applies to texts. Without re it is none that can be judged here.
type pattern struct {
	source string
	re     *regexp.Regexp
	size   int
}

var _ lib.Regexp = (*pattern)(nil)

func (p *pattern) String() string { return p.source }

// MatchString satisfies the library, which never judges arguments here.
func (p *pattern) MatchString(s string) bool { return p.re != nil && p.re.MatchString(s) }

// anyObject reports whether every object fits.
func (r *rules) anyObject() bool {
	return !r.never && r.kinds == object && r.values == nil && r.object == nil && r.same == nil
}

// nowhere is the library's way to other documents: there is none.
type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("a schema may refer to nothing outside itself")
}

// base is where the library believes the schema to be. The domain cannot exist (RFC 6761), and nothing would look.
const base = "https://schema.invalid/"

// compile makes rules of a schema's text.
func compile(text []byte) (r *rules, err error) {
	// Third-party code on outside bytes: one schema must not end the process.
	defer func() {
		if recover() != nil {
			r, err = nil, unusable("it confuses the compiler")
		}
	}()
	if _, err := jsonrpc.ScanValue(text, jsonrpc.Limits{Bytes: maxSchemaBytes, Depth: maxSchemaDepth}); err != nil {
		return nil, unusable("%v", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, unusable("%v", err)
	}
	c := compiler{done: map[*lib.Schema]*rules{}}
	if err := c.prepare(document, latest(document), false, 0); err != nil {
		return nil, err
	}
	l := lib.NewCompiler()
	l.DefaultDraft(lib.Draft2020)
	l.UseLoader(nowhere{})
	l.UseRegexpEngine(c.pattern)
	if err := l.AddResource(base, document); err != nil {
		return nil, unusable("%s", brief(err))
	}
	root, err := l.Compile(base)
	if err != nil {
		return nil, unusable("%s", brief(err))
	}
	r = c.rules(root)
	switch {
	case c.err != nil:
		return nil, c.err
	case c.dynamic && c.resources > 0:
		return nil, unusable("it uses $dynamicRef or $recursiveRef across an $id")
	}
	return r, c.chains()
}

// brief is a library's error on one line and bounded. The schema's own text may stand in it; that is not the client's.
func brief(err error) string {
	s := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), base, "")), " ")
	if len(s) > 256 {
		s = strings.ToValidUTF8(s[:256], "") + "…"
	}
	return s
}

func latest(document any) bool {
	m, _ := document.(map[string]any)
	draft, ok := m["$schema"].(string)
	return !ok || strings.Contains(draft, "2020-12")
}

type compiler struct {
	done      map[*lib.Schema]*rules
	order     []*rules
	pointers  int // bytes of the pointers of all parts
	ids       int
	parts     int  // objects, true and false in the text: at least as many as schemas
	sizes     int  // of patterns
	dynamic   bool // there is a $dynamicRef or $recursiveRef
	resources int  // schemas with an $id of their own, or of another document
	err       error
}

// prepare bounds a document and repairs in place what is common, has only one meaning, and would make the whole schema unusable:
// required: null, as some serialisers write an empty list, and before 2020-12 items: [...], which 2020-12 calls prefixItems.
func (c *compiler) prepare(v any, latest, data bool, pointer int) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := c.prepare(e, latest, data, pointer+5); err != nil { // a slash and a few digits
				return err
			}
		}
	case bool:
		c.parts++
		c.pointers += pointer
	case map[string]any:
		// Counted in data too: a property may be called "default", and then what is in it is schema.
		if c.parts++; c.parts > maxSubschemas {
			return unusable("it has more than %d parts", maxSubschemas)
		}
		if c.pointers += pointer; c.pointers > maxPointers {
			return unusable("its parts are many, and nested deeply under long names")
		}
		for _, keyword := range []string{"$id", "id"} {
			if _, ok := v[keyword].(string); ok {
				c.ids++
			}
		}
		if c.ids > maxIDs {
			return unusable("more than %d parts have an $id", maxIDs)
		}
		if err := readable(v); err != nil {
			return err
		}
		if !data {
			repair(v, latest)
		}
		for key, e := range v {
			data := data || key == "enum" || key == "const" || key == "default" || key == "examples"
			if err := c.prepare(e, latest, data, pointer+1+len(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readable refuses numbers that the library would silently read as others, or with much work.
func readable(v map[string]any) error {
	for i, keyword := range [...]string{
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains", // lengths
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	} {
		n, ok := v[keyword].(json.Number)
		if !ok {
			continue
		}
		d := parseDecimal([]byte(n))
		switch {
		case max(d.exp, len(d.digits)-d.exp) > maxScale:
			return unusable("%s has more than %d digits on one side of its point", keyword, maxScale)
		case i < 8 && d.compare(parseDecimal(fmt.Append(nil, maxLength))) > 0:
			return unusable("%s is beyond 2^53", keyword)
		case keyword == "multipleOf" && len(d.digits) > maxDivisor:
			return unusable("multipleOf has more than %d digits", maxDivisor)
		}
	}
	return nil
}

func repair(v map[string]any, latest bool) {
	if required, ok := v["required"]; ok && required == nil {
		delete(v, "required")
	}
	list, ok := v["items"].([]any)
	if _, both := v["prefixItems"]; ok && latest && !both {
		v["prefixItems"] = list
		delete(v, "items")
		if rest, ok := v["additionalItems"]; ok {
			v["items"] = rest
		}
	}
}

// pattern is the library's regular expression engine. It never fails: what it cannot judge is marked.
func (c *compiler) pattern(source string) (lib.Regexp, error) {
	p := &pattern{source: source}
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return p, nil
	}
	// The size is taken before the program is made: counted repetitions make it a thousand times longer than the text.
	p.size = size(parsed)
	if p.size > maxPattern || c.sizes+p.size > maxPatterns {
		return p, nil
	}
	c.sizes += p.size
	p.re, _ = regexp.Compile(source)
	return p, nil
}

func size(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n = min(n+size(sub), maxPattern+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxPattern+1)
}

// rules makes the rules of a schema, each schema once.
func (c *compiler) rules(s *lib.Schema) *rules {
	if s == nil {
		return nil
	}
	if r, ok := c.done[s]; ok {
		return r
	}
	r := &rules{}
	c.done[s] = r
	c.order = append(c.order, r)
	if len(c.done) > 2*maxSubschemas {
		c.fail(unusable("it has more than %d parts", 2*maxSubschemas))
		return r
	}
	if s.Bool != nil {
		r.never = !*s.Bool
		return r
	}
	if !strings.HasPrefix(s.Location, base+"#") || s.ID != "" && s.Location != base+"#" {
		c.resources++
	}
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			r.kinds |= kindOf(name)
		}
	}
	if s.Enum != nil {
		r.values = c.values("enum", s.Enum.Values)
	}
	if s.Const != nil {
		// With both, const decides and enum can only agree or contradict: then no value is left.
		v := c.values("const", []any{*s.Const})
		for key := range v.keys {
			if r.values != nil && !r.values.keys[key] {
				v.keys = map[string]bool{}
			}
		}
		r.values = v
	}
	r.number = numbers(s)
	r.text = texts(s)
	r.object = c.objectRules(s)
	r.array = c.arrayRules(s)
	r.same = c.sameRules(s)
	return r
}

func (c *compiler) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func kindOf(name string) kinds {
	switch name {
	case "null":
		return null
	case "boolean":
		return boolean
	case "integer":
		return integer
	case "number":
		return number | integer
	case "string":
		return text
	case "array":
		return array
	case "object":
		return object
	}
	return 0
}

func (c *compiler) values(keyword string, list []any) *values {
	v := &values{keyword: keyword, keys: make(map[string]bool, len(list))}
	var t tree
	for _, e := range list {
		b, err := json.Marshal(e) // of what was decoded: numbers are kept as written
		if err != nil {
			c.fail(unusable("%v", err))
			return v
		}
		t.parse(b)
		v.keys[string(t.appendKey(nil, 0))] = true
	}
	return v
}

func numbers(s *lib.Schema) *numberRules {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return nil
	}
	of := func(r *big.Rat) *decimal {
		if r == nil {
			return nil
		}
		d := ofRat(r)
		return &d
	}
	return &numberRules{min: of(s.Minimum), max: of(s.Maximum), above: of(s.ExclusiveMinimum), below: of(s.ExclusiveMaximum), divisor: of(s.MultipleOf)}
}

func bound(p *int, none int) int {
	if p == nil {
		return none
	}
	return *p
}

func texts(s *lib.Schema) *textRules {
	if s.MinLength == nil && s.MaxLength == nil && s.Pattern == nil {
		return nil
	}
	r := &textRules{min: bound(s.MinLength, 0), max: bound(s.MaxLength, -1)}
	r.pattern, _ = s.Pattern.(*pattern)
	return r
}

// each gives the names of a map in order, so that answers do not depend on chance.
func each[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *compiler) objectRules(s *lib.Schema) *objectRules {
	r := &objectRules{min: bound(s.MinProperties, 0), max: bound(s.MaxProperties, -1), required: s.Required,
		names: c.rules(s.PropertyNames), unevaluated: c.rules(s.UnevaluatedProperties)}
	for _, name := range each(s.Properties) {
		if r.properties == nil {
			r.properties = make(map[string]*rules, len(s.Properties))
		}
		r.properties[name] = c.rules(s.Properties[name])
	}
	for re, sub := range s.PatternProperties {
		if p, ok := re.(*pattern); ok {
			r.patterns = append(r.patterns, patternRules{p, c.rules(sub)})
		} else {
			c.fail(unusable("it refers to a schema of another document"))
		}
	}
	slices.SortFunc(r.patterns, func(a, b patternRules) int { return cmp.Compare(a.name.source, b.name.source) })
	switch rest := s.AdditionalProperties.(type) {
	case bool:
		r.rest = &rules{never: !rest}
	case *lib.Schema:
		r.rest = c.rules(rest)
	}
	for _, name := range each(s.DependentRequired) {
		r.needs = append(r.needs, needed{name, s.DependentRequired[name]})
	}
	for _, name := range each(s.Dependencies) {
		if others, ok := s.Dependencies[name].([]string); ok {
			r.needs = append(r.needs, needed{name, others})
		}
	}
	if r.min <= 0 && r.max < 0 && len(r.required)+len(r.properties)+len(r.patterns)+len(r.needs) == 0 &&
		r.rest == nil && r.names == nil && r.unevaluated == nil {
		return nil
	}
	return r
}

func (c *compiler) arrayRules(s *lib.Schema) *arrayRules {
	r := &arrayRules{min: bound(s.MinItems, 0), max: bound(s.MaxItems, -1), unique: s.UniqueItems,
		contains: c.rules(s.Contains), minContains: bound(s.MinContains, 1), maxContains: bound(s.MaxContains, -1),
		containsEvaluates: s.DraftVersion >= 2020, unevaluated: c.rules(s.UnevaluatedItems)}
	if s.DraftVersion >= 2020 {
		for _, sub := range s.PrefixItems {
			r.first = append(r.first, c.rules(sub))
		}
		r.rest = c.rules(s.Items2020)
	} else {
		switch items := s.Items.(type) {
		case *lib.Schema:
			r.rest = c.rules(items)
		case []*lib.Schema:
			for _, sub := range items {
				r.first = append(r.first, c.rules(sub))
			}
			switch rest := s.AdditionalItems.(type) {
			case bool:
				r.rest = &rules{never: !rest}
			case *lib.Schema:
				r.rest = c.rules(rest)
			}
		}
	}
	if r.min <= 0 && r.max < 0 && !r.unique && len(r.first) == 0 && r.rest == nil && r.contains == nil && r.unevaluated == nil {
		return nil
	}
	return r
}

func (c *compiler) sameRules(s *lib.Schema) *sameRules {
	r := &sameRules{not: c.rules(s.Not), cond: c.rules(s.If), then: c.rules(s.Then), other: c.rules(s.Else)}
	if s.Ref != nil {
		r.all = append(r.all, c.rules(s.Ref))
	}
	// Within one resource, an anchor is one place: the dynamic reference is a plain one. Across resources it is refused.
	if s.RecursiveRef != nil {
		c.dynamic = true
		r.all = append(r.all, c.rules(s.RecursiveRef))
	}
	if s.DynamicRef != nil {
		c.dynamic = true
		r.all = append(r.all, c.rules(s.DynamicRef.Ref))
	}
	for _, sub := range s.AllOf {
		r.all = append(r.all, c.rules(sub))
	}
	for _, sub := range s.AnyOf {
		r.any = append(r.any, c.rules(sub))
	}
	for _, sub := range s.OneOf {
		r.one = append(r.one, c.rules(sub))
	}
	for _, name := range each(s.DependentSchemas) {
		r.when = append(r.when, whenRules{name, c.rules(s.DependentSchemas[name])})
	}
	for _, name := range each(s.Dependencies) {
		if sub, ok := s.Dependencies[name].(*lib.Schema); ok {
			r.when = append(r.when, whenRules{name, c.rules(sub)})
		}
	}
	if len(r.all)+len(r.any)+len(r.one)+len(r.when) == 0 && r.not == nil && r.cond == nil {
		return nil
	}
	return r
}

// others gives every schema that applies to the same value.
func (r *rules) others() []*rules {
	if r.same == nil {
		return nil
	}
	list := slices.Concat(r.same.all, r.same.any, r.same.one, []*rules{r.same.not, r.same.cond, r.same.then, r.same.other})
	for _, w := range r.same.when {
		list = append(list, w.rules)
	}
	return slices.DeleteFunc(list, func(r *rules) bool { return r == nil })
}

// chains refuses schemas that apply themselves to the same value, which has no answer, and chains so long that judging would need a
// deep stack.
func (c *compiler) chains() error {
	length := map[*rules]int{} // -1: being measured
	var measure func(r *rules, depth int) (int, error)
	measure = func(r *rules, depth int) (int, error) {
		if n, ok := length[r]; ok {
			if n < 0 {
				return 0, unusable("a $ref in it leads back to itself without entering a member or an element")
			}
			return n, nil
		}
		if depth > maxChain {
			return 0, unusable("more than %d schemas refer to each other for one value", maxChain)
		}
		length[r] = -1
		longest := 0
		for _, o := range r.others() {
			n, err := measure(o, depth+1)
			if err != nil {
				return 0, err
			}
			longest = max(longest, n+1)
		}
		if length[r] = longest; longest > maxChain {
			return 0, unusable("more than %d schemas refer to each other for one value", maxChain)
		}
		return longest, nil
	}
	for _, r := range c.order {
		if _, err := measure(r, 0); err != nil {
			return err
		}
	}
	return nil
}
