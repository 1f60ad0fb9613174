package house

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exposedFile is the one place that knows how an exposed name is put together.
const exposedFile = "capabilities/exposed.go"

// takesApart are the functions by which a name would be split. Contains and Count only look.
var takesApart = []string{
	"Cut", "CutPrefix", "CutSuffix", "Fields", "FieldsFunc", "FieldsFuncSeq", "FieldsSeq", "HasPrefix", "HasSuffix", "Index",
	"IndexAny", "IndexByte", "IndexFunc", "IndexRune", "LastIndex", "LastIndexAny", "LastIndexByte", "LastIndexFunc", "NewReplacer",
	"Replace", "ReplaceAll", "Split", "SplitAfter", "SplitAfterN", "SplitAfterSeq", "SplitN", "SplitSeq", "Trim", "TrimFunc",
	"TrimLeft", "TrimLeftFunc", "TrimPrefix", "TrimRight", "TrimRightFunc", "TrimSuffix",
	"Compile", "CompilePOSIX", "MustCompile", "MustCompilePOSIX", // regexp
	"Sscanf", // fmt
}

// splits finds calls that take a text apart at "__". The way back from an exposed name is the ledger's index and nothing else:
// "a__b__c" has more than one reading, and a gateway that guesses one calls the wrong tool (ARCHITECTURE.md).
//
// info may be nil (test files); then only literals are seen, and with it also constants.
func splits(s source, info *types.Info) []string {
	if s.path == exposedFile {
		return nil
	}
	var out []string
	imports := s.imports()
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(takesApart, f.Sel.Name) {
			return true
		}
		x, ok := f.X.(*ast.Ident)
		if !ok || !slices.Contains([]string{"strings", "bytes", "regexp", "fmt"}, imports[x.Name]) {
			return true
		}
		// A test may replace a whole name in a message by another one; taking a name apart needs the separator by itself.
		message := strings.HasSuffix(s.path, "_test.go") && strings.HasPrefix(f.Sel.Name, "Replace")
		for _, a := range call.Args {
			if t := text(a, info); strings.Contains(t, "__") && (!message || t == "__") {
				out = append(out, s.at(call.Pos())+": "+x.Name+"."+f.Sel.Name+` with "__": nobody takes exposed names apart; ask the ledger`)
			}
		}
		return true
	})
	return out
}

// text is the constant text of an expression: a literal, a []byte of one, and with types also a named constant or a sum.
func text(x ast.Expr, info *types.Info) string {
	if call, ok := x.(*ast.CallExpr); ok && len(call.Args) == 1 {
		return text(call.Args[0], info)
	}
	if info != nil {
		if v := info.Types[x].Value; v != nil && v.Kind() == constant.String {
			return constant.StringVal(v)
		}
	}
	if l, ok := x.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// readings finds, by types, other ways to read an exposed name: slicing, indexing or ranging over one, giving one (also as a
// plain string) to a function that takes texts apart, and any function from an ExposedName to an UpstreamID.
func readings(c checked) []string {
	var out []string
	if c.path == "capabilities" { // the ledger's index is keyed by exposed names, and exposed.go builds them
		c.files = slices.DeleteFunc(slices.Clone(c.files), func(s source) bool { return s.path == exposedFile })
	}
	for _, s := range c.files {
		say := func(p token.Pos, what string) { out = append(out, s.at(p)+": "+what) }
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SliceExpr:
				if c.exposed(n.X) {
					say(n.Pos(), "slices an exposed name")
				}
			case *ast.IndexExpr:
				if c.exposed(n.X) {
					say(n.Pos(), "indexes an exposed name")
				}
			case *ast.RangeStmt:
				if c.exposed(n.X) {
					say(n.Pos(), "ranges over an exposed name")
				}
			case *ast.CallExpr:
				pkg, name, _ := strings.Cut(called(n, c.info), ".")
				if (pkg == "strings" || pkg == "bytes") && slices.Contains(takesApart, name) && len(n.Args) > 0 && c.exposed(n.Args[0]) {
					say(n.Pos(), pkg+"."+name+" takes an exposed name apart")
				}
			case *ast.FuncType:
				if c.translates(n) {
					say(n.Pos(), "a function from an exposed name to an upstream id: only an Identity out of the ledger knows its upstream")
				}
			}
			return true
		})
	}
	return out
}

// exposed reports whether an expression is an exposed name, or one just turned into a string or bytes.
func (c checked) exposed(x ast.Expr) bool {
	if p, ok := x.(*ast.ParenExpr); ok {
		return c.exposed(p.X)
	}
	if isNamed(c.info.Types[x].Type, "ExposedName") {
		return true
	}
	call, ok := x.(*ast.CallExpr)
	return ok && len(call.Args) == 1 && c.info.Types[call.Fun].IsType() && c.exposed(call.Args[0])
}

func (c checked) translates(f *ast.FuncType) bool {
	holds := func(list *ast.FieldList, name string) bool {
		return list != nil && slices.ContainsFunc(list.List, func(field *ast.Field) bool {
			return isNamed(c.info.Types[field.Type].Type, name)
		})
	}
	return holds(f.Params, "ExposedName") && holds(f.Results, "UpstreamID")
}

// isNamed reports whether a type is, or points to, a type of package capabilities. It compares by name: the same package is
// seen once from source and once from export data.
func isNamed(t types.Type, name string) bool {
	switch u := t.(type) {
	case *types.Alias:
		return isNamed(types.Unalias(u), name)
	case *types.Pointer:
		return isNamed(u.Elem(), name)
	case *types.Slice:
		return isNamed(u.Elem(), name)
	case *types.Named:
		o := u.Obj()
		return o.Name() == name && o.Pkg() != nil && o.Pkg().Path() == modulePath+"/capabilities"
	}
	return false
}

func TestNamesAreNotParsed(t *testing.T) {
	for _, p := range mustPackages(t) {
		for _, s := range p.files {
			if p.path != "." { // this file names what it forbids
				report(t, splits(s, nil))
			}
		}
	}
	for _, c := range mustTyped(t) {
		for _, s := range c.files {
			report(t, splits(s, c.info))
		}
		report(t, readings(c))
	}
}

func TestNamesAreNotParsedCanFail(t *testing.T) {
	file := `package planted
import ("bytes"; "regexp"; s "strings"; "aduana/capabilities")
const separator = "_" + "_"
var _, _, _ = bytes.Cut, regexp.MustCompile, s.Cut
type alias = capabilities.ExposedName
func f(name capabilities.ExposedName, text string, raw []byte) { %s }
%s`
	for name, c := range map[string]struct{ body, decl, want string }{
		"split":            {`_ = s.Split(text, "__")`, "", `Split with "__"`},
		"cut":              {`_, _, _ = s.Cut(text, "__")`, "", `Cut with "__"`},
		"index":            {`_ = s.Index(text, "__")`, "", `Index with "__"`},
		"last index":       {`_ = s.LastIndex(text, "__")`, "", `LastIndex with "__"`},
		"raw literal":      {"_ = s.SplitN(text, `__`, 2)", "", `SplitN with "__"`},
		"escaped literal":  {`_ = s.SplitN(text, "\x5f_", 2)`, "", `SplitN with "__"`},
		"prefix":           {`_ = s.HasPrefix(text, "crm__")`, "", `HasPrefix with "__"`},
		"trim":             {`_ = s.TrimPrefix(text, "crm__")`, "", `TrimPrefix with "__"`},
		"bytes":            {`_, _, _ = bytes.Cut(raw, []byte("__"))`, "", `Cut with "__"`},
		"pattern":          {`_ = regexp.MustCompile("^(.*?)__(.*)$")`, "", `MustCompile with "__"`},
		"constant":         {`_ = s.Split(text, separator)`, "", `Split with "__"`},
		"local constant":   {`const sep = "__"; _ = s.Split(text, sep)`, "", `Split with "__"`},
		"sliced":           {`_ = name[:3]`, "", "slices an exposed name"},
		"sliced as string": {`_ = string(name)[3:]`, "", "slices an exposed name"},
		"sliced as bytes":  {`_ = ([]byte)(name)[3:]`, "", "slices an exposed name"},
		"indexed":          {`_ = name[3]`, "", "indexes an exposed name"},
		"ranged":           {`for range name {}`, "", "ranges over an exposed name"},
		"by underscore":    {`_ = s.FieldsFunc(string(name), func(r rune) bool { return r == '_' })`, "", "FieldsFunc takes an exposed name apart"},
		"by one byte":      {`_ = s.IndexByte(string(name), '_')`, "", "IndexByte takes an exposed name apart"},
		"translation":      {"", "func g(n capabilities.ExposedName) (u capabilities.UpstreamID, ok bool) { return }", "a function from"},
		"method":           {"", "type t struct{}\nfunc (t) g(n *capabilities.ExposedName) capabilities.UpstreamID { return \"\" }", "a function from"},
		"closure":          {"", "var g = func(n alias) *capabilities.UpstreamID { return nil }", "a function from"},
		"many":             {"", "func g(n []capabilities.ExposedName) []capabilities.UpstreamID { return nil }", "a function from"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plant(t, "planted", fmt.Sprintf(file, c.body, c.decl))
			refused(t, append(splits(p.files[0], p.info), readings(p)...), c.want)
		})
	}
	unseen := parse(t, "planted/x_test.go", "package planted\nimport \"strings\"\nvar _ = strings.Split(\"a__b\", \"_\")\n")
	refused(t, splits(unseen, nil), `Split with "__"`)

	sound := plant(t, "planted", fmt.Sprintf(file, `_ = s.Split(text, "_"); _ = s.Contains(text, "__"); _ = len(name) > 3`,
		"func g(n capabilities.ExposedName) (id capabilities.Identity, ok bool) { return }"))
	if got := append(splits(sound.files[0], sound.info), readings(sound)...); got != nil {
		t.Errorf("refused without reason: %q", got)
	}
}
