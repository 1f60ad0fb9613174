package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document. They are far above what people write and keep memory
// bounded for what they do not.
const (
	maxBytes   = 8 << 20
	maxDepth   = 64
	maxAliased = 250_000 // nodes reached through aliases, counted with repetition
)

// Document is the text of a policy together with the places of its values. It
// is immutable and safe for concurrent use.
type Document struct {
	text   string
	origin string
	bom    bool
	root   *yaml.Node // nil when the text is not one YAML document

	// The YAML reader also breaks lines at U+0085, U+2028 and U+2029, editors
	// do not; so its places are translated, not repeated.
	readerLines []int // byte offsets of line starts
	lines       []int // the same, as editors count
	lineRunes   []int // characters before each of lines
}

// Text is the document as it was given, byte for byte.
func (d *Document) Text() string { return d.text }

// Origin is the name given at compilation.
func (d *Document) Origin() string { return d.origin }

// Position is the start of the value that pointer addresses. A leading "#" is
// dropped; "" and "/" are the document. Digits index a sequence, and are a key
// in a mapping. A pointer through an alias resolves to the aliased content. A
// pointer that addresses nothing has no position, never an invented one.
func (d *Document) Position(pointer string) (Position, bool) {
	n := d.node(pointer)
	if n == nil {
		return Position{}, false
	}
	return d.place(n.Line, n.Column), true
}

// Place prints the position of pointer as origin:line:column, or the origin
// alone when there is none.
func (d *Document) Place(pointer string) string {
	p, ok := d.Position(pointer)
	if !ok {
		return d.origin
	}
	return fmt.Sprintf("%s:%d:%d", d.origin, p.Line, p.Column)
}

func (d *Document) node(pointer string) *yaml.Node {
	n := d.root
	if n == nil {
		return nil
	}
	pointer = strings.TrimPrefix(pointer, "#")
	if pointer == "" || pointer == "/" {
		return n
	}
	if pointer[0] != '/' {
		return nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token, ok := unescape(token)
		if !ok {
			return nil
		}
		if n = child(n, token); n == nil {
			return nil
		}
	}
	return n
}

// child is the value under one unescaped pointer token, aliases followed.
func child(n *yaml.Node, token string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := follow(n.Content[i]); key.Kind == yaml.ScalarNode && key.Value == token {
				return follow(n.Content[i+1])
			}
		}
	case yaml.SequenceNode:
		if token == "" || len(token) > 9 || token[0] == '0' && token != "0" || strings.Trim(token, "0123456789") != "" {
			return nil
		}
		if i, err := strconv.Atoi(token); err == nil && i < len(n.Content) {
			return follow(n.Content[i])
		}
	}
	return nil
}

// follow needs no guard against cycles: an alias never addresses an alias.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func escape(token string) string {
	if !strings.ContainsAny(token, "~/") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescape(token string) (string, bool) {
	if !strings.Contains(token, "~") {
		return token, true
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '~' {
			b.WriteByte(token[i])
			continue
		}
		if i++; i == len(token) {
			return "", false
		}
		switch token[i] {
		case '0':
			b.WriteByte('~')
		case '1':
			b.WriteByte('/')
		default:
			return "", false
		}
	}
	return b.String(), true
}

// place translates a line and column of the YAML reader, both from 1.
func (d *Document) place(line, column int) Position {
	if line < 1 {
		return Position{}
	}
	// A place behind the last line is the end of the text.
	at := len(d.text)
	if line <= len(d.readerLines) {
		at = d.readerLines[line-1]
		for range column - 1 {
			_, size := utf8.DecodeRuneInString(d.text[at:])
			at += size
		}
	}
	return d.placeAt(at)
}

// placeAt is the position of a byte offset.
func (d *Document) placeAt(at int) Position {
	i, found := slices.BinarySearch(d.lines, at)
	if !found {
		i--
	}
	// The index has one line at least, and it starts after the mark: a place
	// before it is its start.
	i = max(i, 0)
	column := utf8.RuneCountInString(d.text[d.lines[i]:max(at, d.lines[i])])
	return Position{Line: i + 1, Column: column + 1, Offset: d.lineRunes[i] + column}
}

const byteOrderMark = "\ufeff"

func newDocument(text []byte, origin string) *Document {
	d := &Document{text: string(text), origin: origin}
	start := 0
	if d.bom = strings.HasPrefix(d.text, byteOrderMark); d.bom {
		start = len(byteOrderMark)
	}
	d.readerLines, d.lines = []int{start}, []int{start}
	d.lineRunes = []int{utf8.RuneCountInString(d.text[:start])}
	runes := d.lineRunes[0]
	for i, r := range d.text[start:] {
		i += start
		runes++
		next := i + utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size := utf8.DecodeRuneInString(d.text[i:])
			next = i + size
		}
		switch r {
		case '\r':
			if strings.HasPrefix(d.text[next:], "\n") {
				continue
			}
			fallthrough
		case '\n':
			d.lines = append(d.lines, next)
			d.lineRunes = append(d.lineRunes, runes)
			fallthrough
		case '\u0085', '\u2028', '\u2029':
			d.readerLines = append(d.readerLines, next)
		}
	}
	return d
}

// syntax is a finding of the first stage. It has no pointer: the document that
// a pointer would address does not exist.
func (d *Document) syntax(p Position, format string, args ...any) Diagnostic {
	return Diagnostic{Code: YAMLSyntax, Message: fmt.Sprintf(format, args...), Position: p}
}

// parse reads the text into nodes and into plain values for the schema.
func (d *Document) parse() (any, []Diagnostic) {
	if len(d.text) > maxBytes {
		return nil, []Diagnostic{d.syntax(Position{}, "the document has %d bytes; at most %d are read", len(d.text), maxBytes)}
	}
	if i := invalidUTF8(d.text); i >= 0 {
		return nil, []Diagnostic{d.syntax(d.placeAt(i), "the text is not UTF-8; save the file as UTF-8")}
	}
	if i := strings.IndexByte(d.text, 0); i >= 0 {
		return nil, []Diagnostic{d.syntax(d.placeAt(i), "the text holds a NUL character; remove it")}
	}
	root, diagnostic := d.read()
	if diagnostic != nil {
		return nil, []Diagnostic{*diagnostic}
	}
	c := converter{d: d, open: map[*yaml.Node]bool{}}
	value := c.convert(root, 0, false)
	if len(c.found) > 0 {
		return nil, c.found
	}
	d.root = root
	return value, nil
}

func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}

// read returns the root of the only document in the text.
func (d *Document) read() (*yaml.Node, *Diagnostic) {
	body := []byte(d.text[d.readerLines[0]:])
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	first, err := decodeNode(decoder)
	if errors.Is(err, io.EOF) {
		// Nothing but comments: the value is null, and it is at the start.
		return &yaml.Node{Kind: yaml.ScalarNode, Line: 1, Column: 1}, nil
	}
	var second *yaml.Node
	if err == nil {
		if second, err = decodeNode(decoder); errors.Is(err, io.EOF) {
			return first, nil
		}
	}
	if err != nil {
		f := d.readerError(err, body)
		return nil, &f
	}
	f := d.syntax(d.place(second.Line, second.Column), "a second document starts here; write one policy per file")
	return nil, &f
}

// decodeNode turns a panic of the reader into an error: it is third-party code
// on outside bytes, and a policy that cannot be read must only be refused.
func decodeNode(decoder *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if recover() != nil {
			n, err = nil, errors.New("yaml: the text cannot be read as YAML")
		}
	}()
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, errors.New("yaml: the text is not a YAML document")
	}
	// An alias cannot be the root: nothing stands before it.
	return document.Content[0], nil
}

// readerError says what the reader found, and where. Names of anchors are
// left out: an unquoted secret that starts with "*" is read as one.
func (d *Document) readerError(err error, body []byte) Diagnostic {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, message = n, text
			}
		}
	}
	if message == "found incompatible YAML document" {
		message = "the version of YAML is not to be declared; remove the line that starts with %YAML"
	}
	if name, ok := unknownAnchor(err); ok {
		line = d.unknownAnchorLine(name, body)
		message = "an alias names an anchor that is not defined before it; put text that starts with * in quotes"
	}
	line = min(line, len(d.readerLines))
	at := d.readerLines[line-1]
	end := len(d.text)
	if line < len(d.readerLines) {
		end = d.readerLines[line]
	}
	if trimmed := strings.TrimLeft(d.text[at:end], " "); trimmed != "" {
		at = end - len(trimmed)
	}
	return d.syntax(d.placeAt(at), "this is not YAML: %s", message)
}

// unknownAnchor is the name in the one error that the reader reports without
// its line.
func unknownAnchor(err error) (name string, ok bool) {
	if err == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(err.Error(), "yaml: unknown anchor '")
	return strings.TrimSuffix(rest, "' referenced"), ok
}

// unknownAnchorLine finds the line of the alias. Where several lines could be
// it, the first is the one whose reading brings the error about.
func (d *Document) unknownAnchorLine(name string, body []byte) int {
	base := d.readerLines[0]
	type candidate struct{ line, end int }
	var all []candidate
	for i, start := range d.readerLines {
		end := len(d.text)
		if i+1 < len(d.readerLines) {
			end = d.readerLines[i+1]
		}
		if strings.Contains(d.text[start:end], "*"+name) {
			all = append(all, candidate{i + 1, end - base})
		}
	}
	if len(all) == 0 {
		return 1
	}
	last := len(all) - 1
	n, _ := slices.BinarySearchFunc(all[:last], 0, func(c candidate, _ int) int {
		_, err := decodeNode(yaml.NewDecoder(bytes.NewReader(body[:c.end])))
		if _, unknown := unknownAnchor(err); unknown {
			return 1
		}
		return -1
	})
	return all[n].line
}

// converter turns nodes into the plain values that the schema looks at, and
// refuses the parts of YAML that make a text mean something else than it says.
type converter struct {
	d       *Document
	open    map[*yaml.Node]bool // aliased content being converted
	aliased int
	found   []Diagnostic
}

func (c *converter) refuse(n *yaml.Node, message string) any {
	if len(c.found) < maxSyntax {
		c.found = append(c.found, c.d.syntax(c.d.place(n.Line, n.Column), "%s", message))
	}
	return nil
}

// maxSyntax bounds the findings of one text; aliases would repeat them.
const maxSyntax = 10 * MaxShown

func (c *converter) convert(n *yaml.Node, depth int, secret bool) any {
	if depth > maxDepth {
		return c.refuse(n, fmt.Sprintf("values are nested more than %d deep", maxDepth))
	}
	if len(c.open) > 0 {
		if c.aliased++; c.aliased > maxAliased {
			if c.aliased == maxAliased+1 {
				c.refuse(n, fmt.Sprintf("aliases expand to more than %d values; write them out", maxAliased))
			}
			return nil
		}
	}
	if n.Style&yaml.TaggedStyle != 0 && !(n.Kind == yaml.ScalarNode && n.Tag == "!!str") {
		return c.refuse(n, "explicit tags are not supported; remove the tag, and put text in quotes")
	}
	switch n.Kind {
	case yaml.AliasNode:
		if c.open[n.Alias] {
			return c.refuse(n, "an alias stands inside the value that it names")
		}
		c.open[n.Alias] = true
		defer delete(c.open, n.Alias)
		return c.convert(n.Alias, depth, secret)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = c.convert(item, depth+1, secret)
		}
		return list
	case yaml.MappingNode:
		return c.mapping(n, depth, secret)
	default:
		return scalar(n)
	}
}

func (c *converter) mapping(n *yaml.Node, depth int, secret bool) any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := follow(n.Content[i])
		switch {
		case key.Kind != yaml.ScalarNode:
			c.refuse(n.Content[i], "a key must be text")
			continue
		case key.Style&yaml.TaggedStyle != 0 && key.Tag != "!!str":
			c.refuse(n.Content[i], "explicit tags are not supported; remove the tag, and put text in quotes")
			continue
		case key.Style == 0 && key.Value == "<<":
			c.refuse(n.Content[i], "merge keys (<<) are not supported; write the members out, or name a whole value with an alias")
			continue
		case scalar(key) == nil:
			c.refuse(n.Content[i], "a key is empty; put it in quotes if it is meant")
			continue
		}
		if _, repeated := m[key.Value]; repeated {
			message := "a key is written twice in this mapping; keep one"
			if !secret { // in a secret, the key may be the secret
				message = fmt.Sprintf("the key %.64q is written twice in this mapping; keep one", key.Value)
			}
			c.refuse(n.Content[i], message)
			continue
		}
		m[key.Value] = c.convert(n.Content[i+1], depth+1, secret || key.Value == "secret")
	}
	return m
}
