package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"aduana/internal/jsonrpc"
	"go.yaml.in/yaml/v3"
)

const (
	maxDepth = 128     // of values inside each other
	maxNodes = 2000000 // of one file with its aliases written out: a few lines of aliases can stand for billions of values
)

// placed is an error at a line.
type placed struct {
	line int
	text string
}

func (p *placed) Error() string {
	if p.line == 0 {
		return ": " + p.text
	}
	return fmt.Sprintf(":%d: %s", p.line, p.text)
}

func at(n *yaml.Node, format string, args ...any) error {
	return &placed{line: n.Line, text: fmt.Sprintf(format, args...)}
}

// value is a YAML value with its aliases followed.
type value struct {
	*yaml.Node
}

func follow(n *yaml.Node) value {
	if n.Kind == yaml.AliasNode { // an alias never addresses an alias
		return value{n.Alias}
	}
	return value{n}
}

// readYAML reads the only document of a text and refuses what makes a text mean something else than it says.
func readYAML(text []byte) (value, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	root, err := decode(decoder)
	if errors.Is(err, io.EOF) {
		return value{}, &placed{text: "the file is empty; want a list of tools"}
	}
	if err != nil {
		return value{}, err
	}
	if second, err := decode(decoder); !errors.Is(err, io.EOF) {
		if err != nil {
			return value{}, err
		}
		return value{}, at(second, "a second document starts here; write one per file")
	}
	c := checker{open: map[*yaml.Node]bool{}}
	if err := c.check(root, 0); err != nil {
		return value{}, err
	}
	return follow(root), nil
}

// decode turns a panic of the reader into an error: it is third-party code on outside bytes.
func decode(decoder *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if recover() != nil {
			n, err = nil, &placed{text: "cannot be read as YAML"}
		}
	}()
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, &placed{text: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, &placed{text: "not a YAML document"}
	}
	return document.Content[0], nil
}

// checker walks everything once, aliases written out, so that later walks need no bounds.
type checker struct {
	open  map[*yaml.Node]bool // aliased values being walked
	nodes int
}

func (c *checker) check(n *yaml.Node, depth int) error {
	if c.nodes++; c.nodes > maxNodes {
		return at(n, "more than %d values; write aliases out", maxNodes)
	}
	if depth > maxDepth {
		return at(n, "values are nested more than %d deep", maxDepth)
	}
	if n.Style&yaml.TaggedStyle != 0 && !(n.Kind == yaml.ScalarNode && n.Tag == "!!str") {
		return at(n, "tags are not supported; remove it, and put text in quotes")
	}
	switch n.Kind {
	case yaml.AliasNode:
		if c.open[n.Alias] {
			return at(n, "an alias stands inside the value that it names")
		}
		c.open[n.Alias] = true
		defer delete(c.open, n.Alias)
		return c.check(n.Alias, depth)
	case yaml.MappingNode:
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := follow(n.Content[i])
			switch {
			case key.Kind != yaml.ScalarNode, key.ShortTag() == "!!null", key.ShortTag() == "!!binary":
				return at(n.Content[i], "a key must be text")
			case key.ShortTag() == "!!merge":
				return at(n.Content[i], "merge keys (<<) are not supported; write the members out")
			case seen[key.Value]:
				return at(n.Content[i], "the key %q is written twice", key.Value)
			}
			seen[key.Value] = true
		}
	}
	for _, child := range n.Content {
		if err := c.check(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// get gives a member of a mapping.
func (v value) get(name string) (value, bool) {
	if v.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(v.Content); i += 2 {
			if follow(v.Content[i]).Value == name {
				return follow(v.Content[i+1]), true
			}
		}
	}
	return value{}, false
}

// closed refuses what is no mapping, or has a member that is not listed.
func (v value) closed(what string, names ...string) error {
	if v.Kind != yaml.MappingNode {
		return at(v.Node, "%s must be a mapping with %s", what, strings.Join(names, ", "))
	}
next:
	for i := 0; i+1 < len(v.Content); i += 2 {
		key := follow(v.Content[i]).Value
		for _, name := range names {
			if key == name {
				continue next
			}
		}
		return at(v.Content[i], "%s has no member %q; there are %s", what, key, strings.Join(names, ", "))
	}
	return nil
}

// text gives a member that must be a string.
func (v value) text(what, name string) (string, error) {
	m, ok := v.get(name)
	if !ok {
		return "", at(v.Node, "%s has no %s", what, name)
	}
	if !m.isText() {
		return "", at(m.Node, "%s: %s must be text; put it in quotes", what, name)
	}
	return m.Value, nil
}

// isText follows the YAML 1.2 core schema, by which a date is text.
func (v value) isText() bool {
	tag := v.ShortTag()
	return v.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!timestamp")
}

// appendJSON appends a value as JSON: members in the order of the text, numbers as written.
func appendJSON(dst []byte, n *yaml.Node) ([]byte, error) {
	v := follow(n)
	var err error
	switch v.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		for i := 0; i+1 < len(v.Content); i += 2 {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonrpc.AppendString(dst, follow(v.Content[i]).Value), ':')
			if dst, err = appendJSON(dst, v.Content[i+1]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, e := range v.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	if v.Style&^yaml.FlowStyle == 0 {
		kind, err := jsonrpc.ScanValue([]byte(v.Value), jsonrpc.Limits{})
		if kind == jsonrpc.Number && err == nil {
			return append(dst, v.Value...), nil
		}
		// The reader takes a number that no float holds, such as 1e999999, for text.
		if tag := v.ShortTag(); tag == "!!int" || tag == "!!float" || isHugeNumber(v.Value, err) {
			return nil, at(v.Node, "%.40q is a number that JSON cannot say so; write it as in JSON, or in quotes if it is text", v.Value)
		}
	}
	switch v.ShortTag() {
	case "!!null":
		return append(dst, "null"...), nil
	case "!!bool":
		return append(dst, strings.ToLower(v.Value)...), nil
	}
	return jsonrpc.AppendString(dst, v.Value), nil
}

// isHugeNumber reports whether the scan refused s for its size alone: it is a JSON number, but beyond the bounds.
func isHugeNumber(s string, err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && e.Code == jsonrpc.InvalidRequest && strings.ContainsRune("-0123456789", rune(s[0]))
}
