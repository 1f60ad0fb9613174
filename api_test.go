package house

import (
	"fmt"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// surface prints what a package exports, one line each: the part of it that others build on. Values of constants are part of
// it, because codes and limits stand in records and documents. keep chooses by place of declaration; nil takes all.
func surface(p *types.Package, keep func(types.Object) bool) string {
	names := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	var blocks []string
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() || keep != nil && !keep(o) {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			blocks = append(blocks, fmt.Sprintf("const %s %s = %s", name, types.TypeString(o.Type(), names), o.Val().ExactString()))
		case *types.TypeName:
			blocks = append(blocks, typeLines(o, names))
		default:
			blocks = append(blocks, types.ObjectString(o, names))
		}
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n") + "\n"
}

// typeLines prints a type with its exported fields and methods. What is not exported shows only as "…": that it is there says
// that nobody outside can build the value, or compare it by meaning.
func typeLines(o *types.TypeName, names types.Qualifier) string {
	if o.IsAlias() {
		return types.ObjectString(o, names)
	}
	t := o.Type().(*types.Named)
	head := "type " + o.Name()
	if params := t.TypeParams(); params.Len() > 0 {
		var list []string
		for p := range params.TypeParams() {
			list = append(list, p.Obj().Name()+" "+types.TypeString(p.Constraint(), names))
		}
		head += "[" + strings.Join(list, ", ") + "]"
	}
	var lines []string
	switch u := t.Underlying().(type) {
	case *types.Struct:
		head += " struct"
		hidden := false
		for f := range u.Fields() {
			switch {
			case !f.Exported():
				hidden = true
			case f.Embedded():
				lines = append(lines, "\t"+types.TypeString(f.Type(), names)+" (embedded)")
			default:
				lines = append(lines, "\t"+f.Name()+" "+types.TypeString(f.Type(), names))
			}
		}
		if hidden {
			lines = append(lines, "\t…")
		}
	case *types.Interface:
		head += " interface"
		for m := range u.Methods() { // in the order of their names
			if m.Exported() {
				lines = append(lines, "\t"+m.Name()+strings.TrimPrefix(types.TypeString(m.Type(), names), "func"))
			} else {
				lines = append(lines, "\t…")
			}
		}
	default:
		head += " " + types.TypeString(u, names)
	}
	var methods []string
	for m := range t.Methods() {
		if m.Exported() {
			methods = append(methods, "\t"+types.ObjectString(m, names))
		}
	}
	slices.Sort(methods)
	return strings.Join(slices.Concat([]string{head}, lines, methods), "\n")
}

// portsOnly keeps what gateway/ports.go declares: what adapters are written against. The rest of the flow may still move.
func portsOnly(fset *token.FileSet) func(types.Object) bool {
	return func(o types.Object) bool { return path.Base(fset.Position(o.Pos()).Filename) == "ports.go" }
}

// TestAPI compares what the core, assembly and the ports export with api/. A surface that is easy to change is changed; this
// makes the change visible in the diff that is reviewed.
func TestAPI(t *testing.T) {
	for _, c := range mustTyped(t) {
		switch {
		case c.path == "gateway":
			compared(t, "api/gateway-ports.txt", surface(c.types, portsOnly(c.files[0].fset)))
		case c.path == "assembly" || slices.Contains(corePackages, c.path):
			compared(t, "api/"+c.path+".txt", surface(c.types, nil))
		}
	}
}

func TestAPICanFail(t *testing.T) {
	text := `package access
import "errors"
// A.
type A struct { N int; n int }
type a struct{}
type I interface { M(a A) error }
type E string
type G[T any] struct { V T }
const Max = 3
const one E = "one"
var ErrA = errors.New("a")
func (x *A) P() {}
func (x A) V(n int) bool { return false }
func (x A) hidden() {}
func F(a A, more ...string) (n int, err error) { return 0, nil }
func g() {}
`
	want := `const Max untyped int = 3
func F(a A, more ...string) (n int, err error)
type A struct
	N int
	…
	func (*A).P()
	func (A).V(n int) bool
type E string
type G[T any] struct
	V T
type I interface
	M(a A) error
var ErrA error
`
	before := surface(plant(t, "access", text).types, nil)
	if before != want {
		t.Fatalf("got\n%s\nwant\n%s", before, want)
	}
	for name, change := range map[string][2]string{
		"a parameter more":   {"V(n int)", "V(n int, m int)"},
		"a method less":      {"func (x *A) P() {}", ""},
		"a receiver":         {"func (x *A) P()", "func (x A) P()"},
		"a field":            {"N int;", "N int64;"},
		"a constant":         {"Max = 3", "Max = 4"},
		"an interface":       {"M(a A) error", "M(a A) error; N()"},
		"a name more":        {"func g()", "func G2()"},
		"comparable no more": {"n int }", "n []int; M int }"},
	} {
		after := surface(plant(t, "access", strings.Replace(text, change[0], change[1], 1)).types, nil)
		if differences("api/access.txt", before, after) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	inner := surface(plant(t, "access", strings.Replace(text, "func g() {}", "func h() {}", 1)).types, nil)
	if got := differences("api/access.txt", before, inner); got != nil {
		t.Errorf("an inner change is not one of the surface: %q", got)
	}
}
