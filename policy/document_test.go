package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"aduana/policy"
)

const minimal = "version: 1\ncapabilities: []\naccounts: []\nprincipals: { issuers: [] }\ngrants: []\n"

func TestPositions(t *testing.T) {
	c := compiler(t)
	const none = "-"
	for _, test := range []struct {
		name, text, pointer, want string
		begins                    string // the text at Offset
	}{
		{"document", minimal, "", "1:1", "version"},
		{"document by slash", minimal, "/", "1:1", "version"},
		{"fragment", minimal, "#/grants", "5:9", "[]"},
		{"fragment alone", minimal, "#", "1:1", "version"},
		{"absent member", minimal, "/upstreams", none, ""},
		{"below a scalar", minimal, "/version/0", none, ""},
		{"no leading slash", minimal, "grants", none, ""},
		{"index behind the end", minimal, "/grants/0", none, ""},
		{"bad escape", minimal, "/grants~2", none, ""},
		{"escape at the end", minimal, "/grants~", none, ""},

		{"block list", "a:\n  - x\n  - y\n", "/a/1", "3:5", "y"},
		{"block list itself", "a:\n  - x\n", "/a", "2:3", "- x"},
		{"list at the margin", "a:\n- x\n- y\n", "/a", "2:1", "- x"},
		{"index with a zero before", "a: [x, y]\n", "/a/01", none, ""},
		{"index with a sign", "a: [x, y]\n", "/a/+1", none, ""},
		{"index too long", "a: [x, y]\n", "/a/99999999999999999999", none, ""},
		{"dash", "a: [x, y]\n", "/a/-", none, ""},
		{"digits are a key in a mapping", "a: { 1: x, 0: y }\n", "/a/0", "1:15", "y"},
		{"digits in quotes too", "a: { \"1\": x }\n", "/a/1", "1:11", "x"},
		{"tilde and slash", "a: { 'x/y~z': v }\n", "/a/x~1y~0z", "1:15", "v"},
		{"tilde then one", "a: { '~1': v }\n", "/a/~01", "1:12", "v"},
		{"empty key", "a: { '': v }\n", "/a/", "1:10", "v"},
		{"quoted scalar", "a: \"x\"\n", "/a", "1:4", `"x"`},
		{"literal block", "a: |\n  x\n", "/a", "1:4", "|"},
		{"comment between", "a: # why\n  # more\n  x\n", "/a", "3:3", "x"},

		{"alias resolves to the content", "a: &n\n  b: [x]\nc: *n\n", "/c/b/0", "2:7", "x"},
		{"alias itself", "a: &n [x]\nc: *n\n", "/c", "1:4", "&n"},
		{"alias as a key", "a: &n k\n*n : v\n", "/k", "2:6", "v"},

		{"carriage returns", "a: 1\r\nb:\r\n  c: x\r\n", "/b/c", "3:6", "x"},
		{"old carriage returns", "a: 1\rb: x\r", "/b", "2:4", "x"},
		{"mixed line ends", "a: 1\n\r\nb: x\n", "/b", "3:4", "x"},
		{"byte order mark", "\ufeffa: x\nb: y\n", "/a", "1:4", "x"},
		{"byte order mark, second line", "\ufeffa: x\nb: y\n", "/b", "2:4", "y"},
		{"columns are characters", "a: { ñandú: \"漢字\", b: x }\n", "/a/b", "1:22", "x"},
		{"beyond the basic plane", "a: { \"😀😀\": 1, b: x }\n", "/a/b", "1:18", "x"},
		{"combining characters count", "a: { \"e\u0301\": 1, b: x }\n", "/a/b", "1:18", "x"},
		{"tabs are one character", "a: [ \tx ]\n", "/a/0", "1:7", "x"},
		// The YAML reader ends a line here, editors do not.
		{"line separator in a comment", "# a\u2028b\na: x\n", "/a", none, ""},
		{"next line in a text", "a: \"x\u0085y\"\nb: z\n", "/b", "2:4", "z"},
		{"paragraph separator in a text", "a: \"x\u2029y\"\nb: z\n", "/b", "2:4", "z"},
		{"after it on the same line", "a: [\"x\u2028y\", z]\n", "/a/1", "1:12", "z"},
		{"end of the text", "a:", "/a", "1:3", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := c.Compile([]byte(test.text), policy.Options{Origin: "p.yaml"}).Document
			p, ok := d.Position(test.pointer)
			got := none
			if ok {
				got = fmt.Sprintf("%d:%d", p.Line, p.Column)
			}
			if got != test.want {
				t.Fatalf("position %s, want %s", got, test.want)
			}
			want := "p.yaml"
			if ok {
				want += ":" + test.want
				if rest := string([]rune(test.text)[p.Offset:]); !strings.HasPrefix(rest, test.begins) {
					t.Errorf("at offset %d stands %q, want %q", p.Offset, rest, test.begins)
				}
			}
			if place := d.Place(test.pointer); place != want {
				t.Errorf("place %q, want %q", place, want)
			}
		})
	}
}

func TestUnreadableText(t *testing.T) {
	c := compiler(t)
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for r := 'b'; r < 'j'; r++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", r, r, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", r-1), 10), ","))
	}
	for _, test := range []struct {
		name, text, position, message string
	}{
		{"not UTF-8", "version: 1\nname: caf\xe9\n", "2:10", "not UTF-8"},
		{"UTF-16", "\xff\xfev\x00:\x00", "1:1", "not UTF-8"},
		{"NUL", "version: 1\n# \x00\n", "2:3", "NUL"},
		{"two documents", minimal + "---\n" + minimal, "7:1", "second document"},
		{"a second empty document", minimal + "---\n", "7:1", "second document"},
		{"text after the end", minimal + "...\nx: y\n", "6:1", "<document start>"},
		{"broken second document", minimal + "---\n\"\n", "7:1", ""},
		{"control character", "a: \x07\n", "1:1", "control characters"},
		{"tab as indentation", "a:\n\tb: c\n", "2:1", ""},
		{"version of YAML", "%YAML 1.2\n---\n" + minimal, "1:1", "remove the line"},
		{"unclosed list", "a: [1,\n", "1:1", ""},
		{"unknown anchor", "a: 1\nb:\n  - *hunter2\nc: 1\n", "3:3", "put text that starts with *"},
		{"unknown anchor named before in a comment", "a: 1 # *hunter2\nb: '*hunter2'\nc: *hunter2\nd: *hunter2\n", "3:1", "put text that starts with *"},
		{"unknown anchor in the last line", "a: 1\nb: *hunter2", "2:1", "put text that starts with *"},
		{"unknown anchor in the first line", "*hunter2 : 1\nb: 1\n", "1:1", "put text that starts with *"},
		{"anchor around itself", "a: &x [*x]\n", "1:8", "inside the value that it names"},
		{"anchor around itself, deeper", "a: &x { b: [{ c: *x }] }\n", "1:18", "inside the value that it names"},
		{"nested too deep", "a: " + deep + "\n", "1:68", "nested more than 64 deep"},
		{"alias bomb", bomb, "", "aliases expand to more than"},
		{"too large", strings.Repeat("#", 8<<20+1), "-", "at most 8388608"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := c.Compile([]byte(test.text), policy.Options{})
			if r.Policy != nil || len(r.Diagnostics) == 0 {
				t.Fatalf("accepted: %+v", r.Diagnostics)
			}
			d := r.Diagnostics[0]
			if d.Code != policy.YAMLSyntax || d.Severity != policy.Error || d.Pointer != "" {
				t.Errorf("got %+v", d)
			}
			if got := place(d.Position); test.position != "" && got != test.position {
				t.Errorf("position %s, want %s (%s)", got, test.position, d.Message)
			}
			if !strings.Contains(d.Message, test.message) {
				t.Errorf("message %q, want %q in it", d.Message, test.message)
			}
			if strings.Contains(fmt.Sprint(r.Diagnostics), "hunter2") {
				t.Errorf("the text is repeated: %q", d.Message)
			}
			if _, ok := r.Document.Position(""); ok {
				t.Error("a text that was not read has a position for the document")
			}
		})
	}
}

func TestReadableText(t *testing.T) {
	c := compiler(t)
	for name, text := range map[string]string{
		"plain":              minimal,
		"byte order mark":    "\ufeff" + minimal,
		"carriage returns":   strings.ReplaceAll(minimal, "\n", "\r\n"),
		"document marks":     "---\n" + minimal + "...\n",
		"comment at the end": minimal + "# end\n",
		"no line end":        strings.TrimSuffix(minimal, "\n"),
		"JSON":               `{"version": 1, "capabilities": [], "accounts": [], "principals": {"issuers": []}, "grants": []}`,
		"alias":              strings.Replace(strings.Replace(minimal, "capabilities: []", "capabilities: &none []", 1), "accounts: []", "accounts: *none", 1),
		"tagged text":        strings.Replace(minimal, "[]", "[{ id: !!str a }]", 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := c.Compile([]byte(text), policy.Options{})
			if r.Policy == nil {
				t.Fatalf("refused: %+v", r.Diagnostics)
			}
			if r.Document.Text() != text {
				t.Error("the text is not kept")
			}
		})
	}
}

func TestNothingWritten(t *testing.T) {
	c := compiler(t)
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "~\n", "\ufeff"} {
		r := c.Compile([]byte(text), policy.Options{})
		if r.Policy != nil || len(r.Diagnostics) != 1 || r.Diagnostics[0].Code != policy.SchemaViolation {
			t.Errorf("%q: %+v", text, r.Diagnostics)
		}
		checkPointers(t, r)
	}
}

// FuzzCompile: no bytes make it panic, err on the side of a policy, differ
// between two runs, or point beside the text.
func FuzzCompile(f *testing.F) {
	for _, s := range stories(f) {
		f.Add([]byte(s.policy))
	}
	for _, seed := range []string{"", "\ufeff", "\r\n", "a: &a [*a]", "? ? a", "a: !!binary x", "- - - -", "a\u2028b: *c", "%TAG ! x\n---\n", "{", "a: |+\n\n\n"} {
		f.Add([]byte(seed))
	}
	c := compiler(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		opts := policy.Options{HasCatalogue: true, Catalogue: []policy.CatalogueTool{{Upstream: "up", Name: "t"}, {Upstream: "up", Name: "t"}}}
		r := c.Compile(text, opts)
		again := c.Compile(text, opts)
		if fmt.Sprint(r.Diagnostics) != fmt.Sprint(again.Diagnostics) {
			t.Error("two runs differ")
		}
		errors := 0
		for _, d := range r.Diagnostics {
			if d.Severity == policy.Error {
				errors++
			}
			if d.Message == "" || d.Code == "" || !utf8.ValidString(d.Message) {
				t.Errorf("%+v", d)
			}
			if d.Position.Offset > len(text) {
				t.Errorf("offset %d in a text of %d bytes", d.Position.Offset, len(text))
			}
		}
		if (r.Policy == nil) != (errors > 0) {
			t.Errorf("%d errors, policy %v", errors, r.Policy != nil)
		}
		checkPointers(t, r)
	})
}
