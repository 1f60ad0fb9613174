package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"aduana/principals"
)

// This file reads expectations. It is strict, because a test that is quietly not what its author meant is worse than none: unknown
// members, members written twice and anything after the document are errors, each with its place.

// maxTests bounds a file of expectations, in bytes.
const maxTests = 8 << 20

// misread is an error at a place of the file.
type misread struct {
	line, column int
	text         string
}

func (m *misread) Error() string { return m.text }

func wrong(n *yaml.Node, format string, args ...any) error {
	return &misread{n.Line, n.Column, fmt.Sprintf(format, args...)}
}

// readExpectations reads a whole file. Errors read file:line:column: what is wrong.
func readExpectations(file string, text []byte) ([]expectation, error) {
	tests, err := parseExpectations(file, text)
	if m := new(misread); errors.As(err, &m) && m.line > 0 {
		return nil, fmt.Errorf("%s:%d:%d: %s", file, m.line, m.column, m.text)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tests, nil
}

func parseExpectations(file string, text []byte) ([]expectation, error) {
	if len(text) > maxTests {
		return nil, fmt.Errorf("larger than %d bytes", maxTests)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	document, err := decodeNode(decoder)
	if errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0 {
		return nil, errors.New("the file is empty, and no tests would pass for good ones")
	} else if err != nil {
		return nil, err
	}
	if second, err := decodeNode(decoder); err == nil {
		return nil, wrong(second, "a second document begins here; one file holds one")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	root := document.Content[0]
	var tests []expectation
	err = members(root, "the file", map[string]reader{
		"version": func(n *yaml.Node) error {
			if n.Kind != yaml.ScalarNode || n.Value != "1" {
				return wrong(n, "version is 1")
			}
			return nil
		},
		"tests": func(n *yaml.Node) error {
			return items(n, "tests", func(n *yaml.Node) error {
				e, err := readExpectation(n)
				e.place = fmt.Sprintf("%s:%d:%d", file, n.Line, n.Column)
				tests = append(tests, e)
				return err
			})
		},
	}, "version", "tests")
	if err == nil && len(tests) == 0 {
		err = wrong(root, "there are no tests, which would pass for good ones")
	}
	return tests, err
}

// decodeNode turns a panic of the YAML reader into an error: no text may stop the program.
func decodeNode(d *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the text is not YAML")
		}
	}()
	n = new(yaml.Node)
	if err := d.Decode(n); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		m := &misread{column: 1, text: strings.TrimPrefix(err.Error(), "yaml: ")}
		if rest, ok := strings.CutPrefix(m.text, "line "); ok { // as the reader names a place
			if number, rest, ok := strings.Cut(rest, ": "); ok {
				m.line, _ = strconv.Atoi(number)
				m.text = rest
			}
		}
		return nil, m
	}
	return n, nil
}

func readExpectation(n *yaml.Node) (e expectation, err error) {
	err = members(n, "a test", map[string]reader{
		"name":       text(&e.name),
		"as":         func(n *yaml.Node) error { return readPrincipal(n, &e) },
		"capability": text(&e.question.Capability),
		"tool":       text(&e.question.Tool),
		"at": func(n *yaml.Node) error {
			at, err := time.Parse(time.RFC3339, n.Value)
			if err != nil {
				return wrong(n, "at is an instant by RFC 3339, as 2026-05-03T09:00:00Z")
			}
			e.question.At, e.hasAt = at.UnixMilli(), true
			return nil
		},
		"usage": func(n *yaml.Node) (err error) {
			if e.question.Usage, err = usageOf(n.Value); err != nil || n.Kind != yaml.ScalarNode {
				return wrong(n, "usage is a number of calls from 0 on, or unknown, or none")
			}
			return nil
		},
		"expect": func(n *yaml.Node) error {
			if !slices.Contains(expectable(), n.Value) {
				return wrong(n, "expect %q is none of %s", n.Value, strings.Join(expectable(), ", "))
			}
			e.expect = n.Value
			return nil
		},
		"account": func(n *yaml.Node) error {
			e.account = new(string)
			return text(e.account)(n)
		},
		"ask": func(n *yaml.Node) error {
			ask, err := strconv.ParseBool(n.Value)
			if n.Tag != "!!bool" || err != nil {
				return wrong(n, "ask is true or false: whether a person is asked first")
			}
			e.ask = &ask
			return nil
		},
		"ceilings": func(n *yaml.Node) error {
			e.bound = true
			err := items(n, "ceilings", func(n *yaml.Node) error {
				c, ok := ceilingText(n.Value)
				if !ok {
					return wrong(n, `a ceiling reads "20 per 24h", or "20 per 24h over account"`)
				}
				e.ceilings = append(e.ceilings, c)
				return nil
			})
			slices.Sort(e.ceilings)
			e.ceilings = slices.Compact(e.ceilings)
			return err
		},
	}, "name", "as", "expect")
	switch {
	case err != nil:
		return e, err
	case (e.question.Capability == "") == (e.question.Tool == ""):
		return e, wrong(n, "a test has either capability or tool")
	case e.expect != "granted" && (e.account != nil || e.ask != nil || e.bound):
		return e, wrong(n, "account, ask and ceilings belong to what is granted, and %s is expected", e.expect)
	}
	return e, nil
}

func readPrincipal(n *yaml.Node, e *expectation) error {
	return members(n, "as", map[string]reader{
		"issuer":  text(&e.question.Issuer),
		"subject": text(&e.question.Subject),
		"attributes": func(n *yaml.Node) error {
			return pairsOf(n, "attributes", func(key, value *yaml.Node) error {
				one := func(n *yaml.Node) error {
					a := principals.Attribute{Name: key.Value}
					if err := text(&a.Value)(n); err != nil {
						return err
					}
					e.question.Attributes = append(e.question.Attributes, a)
					return nil
				}
				if value.Kind == yaml.SequenceNode {
					return items(value, "the values of "+key.Value, one)
				}
				return one(value)
			})
		},
	}, "issuer", "subject")
}

// reader reads the value of a member.
type reader func(*yaml.Node) error

// text reads text. A number or a date is text here: it is compared with what a token says, which is text too.
func text(into *string) reader {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
			return wrong(n, "text is needed here")
		}
		*into = n.Value
		return nil
	}
}

// members reads a mapping that has these members and no others.
func members(n *yaml.Node, what string, known map[string]reader, needed ...string) error {
	have := map[string]bool{}
	err := pairsOf(n, what, func(key, value *yaml.Node) error {
		read, ok := known[key.Value]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			return wrong(key, "%s has no member %q; it has %s", what, key.Value, strings.Join(names, ", "))
		}
		have[key.Value] = true
		return read(value)
	})
	if err != nil {
		return err
	}
	for _, name := range needed {
		if !have[name] {
			return wrong(n, "%s needs %s", what, name)
		}
	}
	return nil
}

func pairsOf(n *yaml.Node, what string, read func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return wrong(n, "%s is a mapping", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			return wrong(key, "a member of %s has a name that is text", what)
		case seen[key.Value]:
			return wrong(key, "%s has %q twice", what, key.Value)
		case value.Kind == yaml.AliasNode:
			return wrong(value, "aliases are not read here; write it out")
		}
		seen[key.Value] = true
		if err := read(key, value); err != nil {
			return err
		}
	}
	return nil
}

func items(n *yaml.Node, what string, read func(*yaml.Node) error) error {
	if n.Kind != yaml.SequenceNode {
		return wrong(n, "%s is a list", what)
	}
	for _, item := range n.Content {
		if item.Kind == yaml.AliasNode {
			return wrong(item, "aliases are not read here; write it out")
		}
		if err := read(item); err != nil {
			return err
		}
	}
	return nil
}
