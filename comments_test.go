package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var sentenceEnd = regexp.MustCompile(`[.?!:;](\s|$)`)

// packageComments demands that a package says what it is for: one comment, in one file, of two sentences or more. With two
// comments, readers see one of them, and never learn which.
func packageComments(p pkg) []string {
	var out, where []string
	name := ""
	for _, s := range p.files {
		if s.test() {
			continue
		}
		name = s.file.Name.Name
		if s.file.Doc == nil {
			continue
		}
		text := s.file.Doc.Text()
		where = append(where, s.path)
		if len(sentenceEnd.FindAllString(text, -1)) < 2 {
			out = append(out, s.path+": a package comment says which question the package answers, what it may not do and where to start: two sentences at least")
		}
		if !strings.HasPrefix(text, "Package "+name+" ") && (name != "main" || !strings.HasPrefix(text, "Command ")) {
			out = append(out, s.path+`: a package comment begins with "Package `+name+` ", that of a command with "Command "`)
		}
	}
	switch {
	case name == "": // tests only
	case len(where) == 0:
		out = append(out, p.path+" has no package comment")
	case len(where) > 1:
		out = append(out, p.path+" has a package comment in each of "+strings.Join(where, ", ")+"; keep one")
	}
	return out
}

// undocumented finds exported names without a comment. The comment of a group of constants or variables is enough for each of
// them, and so is that of the type of constants, which says what the closed set is. Methods that every reader knows by their
// interface (Error, String, Unwrap) need none.
func undocumented(s source) []string {
	var out []string
	say := func(n *ast.Ident) {
		out = append(out, s.at(n.Pos())+": exported "+n.Name+" has no comment (units, shapes, errors, where a rule comes from)")
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			known := d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap"}, d.Name.Name)
			if d.Doc == nil && !known && d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
				say(d.Name)
			}
		case *ast.GenDecl:
			of := false // constants of a type of ours
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() && spec.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
						say(spec.Name)
					}
				case *ast.ValueSpec:
					if x, ok := spec.Type.(*ast.Ident); ok && x.IsExported() {
						of = true
					}
					enough := d.Tok == token.CONST && (of || spec.Comment != nil)
					for _, n := range spec.Names {
						if n.IsExported() && d.Doc == nil && spec.Doc == nil && !enough {
							say(n)
						}
					}
				}
			}
		}
	}
	return out
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

func TestPackageComments(t *testing.T) {
	for _, p := range mustPackages(t) {
		report(t, packageComments(p))
	}
}

func TestPackageCommentsCanFail(t *testing.T) {
	at := func(texts ...string) pkg {
		p := pkg{path: "planted"}
		for i, text := range texts {
			p.files = append(p.files, parse(t, "planted/"+string(rune('a'+i))+".go", text))
		}
		return p
	}
	good := "// Package planted answers nothing. It may do nothing.\npackage planted"
	if got := packageComments(at(good, "package planted")); got != nil {
		t.Errorf("refused without reason: %q", got)
	}
	refused(t, packageComments(at("package planted")), "no package comment")
	refused(t, packageComments(at("// Package planted answers nothing. It may.\n\npackage planted")), "no package comment")
	refused(t, packageComments(at(good, good)), "keep one")
	refused(t, packageComments(at("// Package planted helps.\npackage planted")), "two sentences")
	refused(t, packageComments(at("// This package helps. A lot.\npackage planted")), "begins with")
	refused(t, packageComments(at("// Planted helps. A lot.\npackage main")), "begins with")
}

func TestDocstrings(t *testing.T) {
	for _, p := range mustPackages(t) {
		if p.path != "gateway" && !slices.Contains(purePackages, p.path) {
			continue
		}
		for _, s := range p.files {
			if !s.test() {
				report(t, undocumented(s))
			}
		}
	}
}

func TestDocstringsCanFail(t *testing.T) {
	s := parse(t, "access/planted.go", `package access

func Bare() {}

// Good is documented.
func Good() {}

type T struct{}

func (t *T) Bare2() {}

func (t *T) Error() string { return "" }

func Error() {}

type hidden struct{}

func (hidden) String() string { return "" }

const Bare3 = 1

const Bare6 string = ""

const (
	Of1 T = iota
	Of2
)

// The good ones.
const (
	Good2 = 1
	Good3 = 2
)

// One comment does not describe two types.
type (
	Bare4 int
)

var Bare5 = 1
`)
	got := undocumented(s)
	for _, name := range []string{"Bare", "T", "Bare2", "Bare3", "Bare4", "Bare5", "Bare6", "Error"} {
		refused(t, got, "exported "+name+" has")
	}
	if len(got) != 8 {
		t.Errorf("want 8 violations, got %q", got)
	}
}
