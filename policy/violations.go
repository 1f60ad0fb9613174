package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

// violations turns what the schema found into findings for people: deepest
// place first, because the innermost failure is the one to act on, then in
// document order.
//
// No message repeats a value of the document: a secret may have been written
// where it does not belong. Names of members are repeated, except inside a
// secret reference.
func (c *Compiler) violations(d *Document, value any) []Diagnostic {
	err := c.schema.Validate(value)
	if err == nil {
		return nil
	}
	root, ok := err.(*jsonschema.ValidationError)
	if !ok { // the library answers with nothing else; fail closed if it ever does
		return []Diagnostic{{Code: SchemaViolation, Message: "the document does not fit the schema"}}
	}
	var found []Diagnostic
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			found = append(found, c.violation(d, e)...)
			return
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(root)
	for i := range found {
		found[i].Position, _ = d.Position(found[i].Pointer)
	}
	slices.SortStableFunc(found, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(strings.Count(b.Pointer, "/"), strings.Count(a.Pointer, "/")),
			cmp.Compare(a.Position.Offset, b.Position.Offset),
			cmp.Compare(a.Pointer, b.Pointer),
			cmp.Compare(a.Message, b.Message))
	})
	return found
}

// violation is one failure of the schema; several when one keyword reports
// several members.
func (c *Compiler) violation(d *Document, e *jsonschema.ValidationError) []Diagnostic {
	pointer := join(e.InstanceLocation)
	definition := c.definition(e.SchemaURL)
	one := func(format string, args ...any) []Diagnostic {
		return []Diagnostic{{Code: SchemaViolation, Pointer: pointer, Message: fmt.Sprintf(format, args...)}}
	}
	last := ""
	if n := len(e.InstanceLocation); n > 0 {
		last = e.InstanceLocation[n-1]
	}
	title := titleOf(definition, last)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		if title == secretTitle {
			return one(refOnly) // the member's name may be the secret
		}
		var all []Diagnostic
		for _, member := range k.Properties {
			all = append(all, Diagnostic{
				Code:    SchemaViolation,
				Pointer: pointer + "/" + escape(member),
				Message: unexpected(title, member, definition),
			})
		}
		return all
	case *kind.Required:
		if title == secretTitle {
			return one(refOnly)
		}
		slices.Sort(k.Missing)
		return one("%s misses %s", title, strings.Join(k.Missing, ", "))
	case *kind.Type:
		return one("%s", wrongType(title, k.Want, d.node(pointer)))
	case *kind.Enum:
		var names []string
		for _, v := range k.Want {
			names = append(names, fmt.Sprint(v))
		}
		hint := ""
		if got, ok := k.Got.(string); ok {
			hint = suggestion(got, names)
		}
		return one("must be one of %s%s", strings.Join(names, ", "), hint)
	case *kind.Const:
		return one("must be %v, the only version of this format", k.Want)
	case *kind.Pattern, *kind.MaxLength:
		if title == secretTitle {
			return one("a secret is never written here, only where it is kept: scheme://place, such as env://NAME")
		}
		description, _ := definition["description"].(string)
		if last == "account" && len(e.InstanceLocation) == 3 {
			description += " A secret reference belongs into accounts."
		}
		return one("is not a valid %s: %s", title, sentencePart(description))
	case *kind.Not:
		switch title {
		case secretTitle:
			return one("braces in a secret reference are reserved for per-principal accounts, which this version does not support")
		case "upstream id":
			return one("the id aduana is reserved for the gateway itself; choose another")
		default:
			return one("the id none is reserved, it means no account; choose another")
		}
	case *kind.FalseSchema:
		if last == "headers" {
			return one("headers belong to an upstream with transport mcp-http; a process takes env or args")
		}
		return one("%s belongs to an upstream with transport mcp-stdio", last)
	case *kind.MinLength:
		return one("must not be empty; write a value or remove the line")
	case *kind.MinItems:
		return one("must have at least one item; write one or remove the line")
	case *kind.MaxItems:
		return one("has %d items; at most %d are allowed", k.Got, k.Want)
	case *kind.Minimum:
		return one("must be at least %s", k.Want.RatString())
	case *kind.Maximum:
		return one("must be at most %s", k.Want.RatString())
	default:
		return one("does not fit the schema")
	}
}

const (
	secretTitle = "secret reference"
	refOnly     = "a secret reference has the one member ref; write { ref: scheme://place }, such as { ref: env://NAME }"
)

// definition is the part of the schema that a failure names.
func (c *Compiler) definition(url string) map[string]any {
	_, fragment, _ := strings.Cut(url, "#")
	at := c.parsed
	for token := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		if token == "" {
			continue
		}
		name, _ := unescape(token)
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			return nil // no failure below a list is looked up
		}
	}
	m, _ := at.(map[string]any)
	return m
}

func titleOf(definition map[string]any, fallback string) string {
	if title, ok := definition["title"].(string); ok {
		return title
	}
	return fallback
}

// sentencePart makes a description of the schema fit behind a colon.
func sentencePart(description string) string {
	description = strings.TrimSuffix(description, ".")
	if len(description) > 1 && description[1] >= 'a' { // not RFC
		description = strings.ToLower(description[:1]) + description[1:]
	}
	return description
}

func join(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(escape(t))
	}
	return b.String()
}

func unexpected(title, member string, definition map[string]any) string {
	shown := fmt.Sprintf("%.64q", member)
	switch title {
	case "env":
		return shown + " is not a name of an environment variable: letters, digits and underscores, not starting with a digit"
	case "headers":
		return shown + " is not a name of a header"
	}
	properties, _ := definition["properties"].(map[string]any)
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	hint := advice(title, member)
	if hint == "" {
		hint = suggestion(member, names)
	}
	return fmt.Sprintf("unexpected member %s in %s; allowed: %s%s", shown, title, strings.Join(names, ", "), hint)
}

// advice knows the members that people look for and that are not there.
func advice(title, member string) string {
	const later = "; this version does not support it"
	switch member {
	case "deny", "effect", "except", "exclude", "priority", "order":
		return "; there are only grants: what none allows is denied, and an exception is a narrower selector"
	case "password", "token", "key", "apiKey", "api_key", "credential", "value":
		if title == "account" || title == "issuer" {
			return "; a secret is never written here, write secret: { ref: env://NAME }"
		}
	case "cwd", "env", "inherit", "headers":
		if strings.HasSuffix(title, "transport") {
			return "; it stands beside transport, not in it"
		}
	case "command", "args", "url", "kind":
		if title == "upstream" {
			return "; it stands in transport"
		}
	case "cost", "unit", "sharing", "prompts", "resources", "elicitation", "sampling", "roots", "approver", "surface", "oneOf", "local":
		return later
	case "upstreams", "risk":
		if title == "grant" {
			return later
		}
	}
	return ""
}

// wrongType says what is expected, and how to write it when the text only
// looks like something else to YAML.
func wrongType(title string, want []string, n *yaml.Node) string {
	empty, word, quoted := false, false, false
	if n != nil && n.Kind == yaml.ScalarNode {
		quoted = n.Style != 0
		empty = scalar(n) == nil
		switch strings.ToLower(n.Value) {
		case "yes", "no", "on", "off", "y", "n":
			word = !quoted
		}
	}
	isScalar := n != nil && n.Kind == yaml.ScalarNode && !empty
	switch wants := strings.Join(want, " "); {
	case title == secretTitle && wants == "object":
		if empty {
			return "a secret needs its place; write { ref: scheme://place }, such as { ref: env://NAME }"
		}
		return "a secret is never written here, only where it is kept; write { ref: scheme://place }, such as { ref: env://NAME }"
	case strings.Contains(wants, "array") && strings.Contains(wants, "object"):
		return "must be one mapping or a list of them"
	case wants == "array" && title == "tools" && isScalar:
		return "must be a list of { name, capability }; tools: accepted is not supported by this version"
	case wants == "array":
		if empty {
			return "must be a list, and is empty; write [] for an empty list"
		}
		return "must be a list"
	case wants == "object":
		if empty {
			return "must be a mapping, and is empty; write {} or its members"
		}
		return "must be a mapping with members, as in name: value"
	case wants == "boolean":
		if word {
			return "must be true or false; yes, no, on and off are only text"
		}
		if quoted {
			return "must be true or false, without quotes"
		}
		return "must be true or false"
	case wants == "integer":
		if quoted && isDigits(n.Value) {
			return "must be a whole number, without quotes"
		}
		return "must be a whole number in plain decimal digits, such as 500"
	case strings.Contains(wants, "string"):
		either := "must be text"
		if strings.Contains(wants, "object") {
			either = "must be text or a mapping"
		}
		if empty {
			return either + `, and is empty; write it, or "" where empty text is meant`
		}
		if isScalar {
			return either + "; YAML reads this as a number or a boolean: put it in quotes"
		}
		return either
	}
	return "has the wrong type"
}

// suggestion is a hint when got is nearly one of names.
func suggestion(got string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if n := distance(strings.ToLower(got), strings.ToLower(name)); n < least && n < len(name)/2+1 {
			best, least = name, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the Levenshtein distance in bytes; lengths that differ by more
// than a near miss are not compared.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
