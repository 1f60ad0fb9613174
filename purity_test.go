package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clock is what package time must not be asked for in a pure package: the clock, timers, and what depends on the machine's
// zone. Instants are arguments.
var clock = []string{
	"After", "AfterFunc", "LoadLocation", "Local", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Ticker", "Timer", "Until",
}

// impurities finds what the import table cannot see: state that outlives a call, concurrency, and ways around the language.
func impurities(p pkg) []string {
	var out []string
	for _, name := range p.other {
		out = append(out, name+": a pure package holds Go only")
	}
	for _, s := range p.files {
		if s.test() {
			out = append(out, doubles(s)...)
			continue
		}
		say := func(at token.Pos, what string) { out = append(out, s.at(at)+": "+what) }
		timeName := ""
		for name, target := range s.imports() {
			if target == "time" {
				timeName = name
			}
			if name == "." {
				say(s.file.Pos(), "a dot import hides what is used")
			}
		}
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				for _, directive := range []string{"//go:linkname", "//go:embed", "//go:cgo_", "//go:wasmimport"} {
					if strings.HasPrefix(c.Text, directive) {
						say(c.Pos(), directive+" reaches around the language")
					}
				}
			}
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					say(d.Pos(), "init runs before anybody asked")
				}
				if d.Body == nil {
					say(d.Pos(), "func "+d.Name.Name+" has its body elsewhere")
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					for i, n := range spec.(*ast.ValueSpec).Names {
						if n.Name != "_" && !sentinel(spec.(*ast.ValueSpec), i) {
							say(n.Pos(), "package variable "+n.Name+": pass it in, or make it a constant or a function")
						}
					}
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say(n.Pos(), "go starts what nobody waits for")
			case *ast.SelectStmt:
				say(n.Pos(), "select makes the outcome depend on timing")
			case *ast.ChanType:
				say(n.Pos(), "channels belong to the edges")
			case *ast.SendStmt:
				say(n.Pos(), "channels belong to the edges")
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					say(n.Pos(), "channels belong to the edges")
				}
			case *ast.SelectorExpr:
				x, _ := n.X.(*ast.Ident)
				ofTime := timeName != "" && x != nil && x.Name == timeName
				if ofTime && slices.Contains(clock, n.Sel.Name) || timeName != "" && n.Sel.Name == "Local" {
					say(n.Pos(), "time."+n.Sel.Name+" is the machine's, not the caller's: take the instant as an argument")
				}
			}
			return true
		})
	}
	return out
}

// sentinel reports whether a package variable is an error that callers compare with: Err… made by errors.New.
func sentinel(v *ast.ValueSpec, i int) bool {
	if !strings.HasPrefix(v.Names[i].Name, "Err") || i >= len(v.Values) {
		return false
	}
	call, ok := v.Values[i].(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == "errors" && f.Sel.Name == "New"
}

var doubleName = regexp.MustCompile(`(?i)^(fake|mock|stub|spy|dummy)`)

// doubles finds stand-ins in the tests of a pure package. It needs none: everything it takes is a value.
func doubles(s source) []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if d, ok := n.(*ast.TypeSpec); ok && doubleName.MatchString(d.Name.Name) {
			out = append(out, s.at(d.Pos())+": "+d.Name.Name+" is a double; a test of the core hands over values")
		}
		return true
	})
	return out
}

// disorder finds loops over maps whose order could show. Go shuffles them on purpose, so that what leaves such a loop differs
// from run to run. Accepted are loops whose every statement is indifferent to order (see indifferent), keys or values that go
// straight into slices.Sorted, and anything with a comment "// any order: why" on the line above.
func disorder(c checked) []string {
	var out []string
	for _, s := range c.files {
		reasons := map[int]bool{}
		for _, g := range s.file.Comments {
			for _, line := range g.List {
				if rest, ok := strings.CutPrefix(line.Text, "// any order: "); ok && len(rest) >= 10 {
					reasons[s.fset.Position(g.End()).Line+1] = true
				}
			}
		}
		for _, d := range s.file.Decls {
			sorts := c.sorts(d)
			accepted := map[ast.Node]bool{} // calls inside slices.Sorted
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.RangeStmt:
					if c.isMap(n.X) && !reasons[s.fset.Position(n.Pos()).Line] && !c.indifferent(n, n.Body.List, sorts) {
						out = append(out, s.at(n.Pos())+": a loop over a map; sort what it collects, or say why order cannot show (// any order: …)")
					}
				case *ast.CallExpr:
					name := called(n, c.info)
					if strings.HasPrefix(name, "slices.Sorted") {
						accepted[n.Args[0]] = true
					}
					if (name == "maps.Keys" || name == "maps.Values" || name == "maps.All") && !accepted[n] && !reasons[s.fset.Position(n.Pos()).Line] {
						out = append(out, s.at(n.Pos())+": "+name+" gives any order; hand it to slices.Sorted, or say why order cannot show (// any order: …)")
					}
				}
				return true
			})
		}
	}
	return out
}

func (c checked) isMap(x ast.Expr) bool {
	t := c.info.Types[x].Type
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// sorts gives, for each expression that a declaration sorts in place, where it does so last.
func (c checked) sorts(d ast.Decl) map[string]token.Pos {
	last := map[string]token.Pos{}
	ast.Inspect(d, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
			switch called(call, c.info) {
			case "slices.Sort", "slices.SortFunc", "slices.SortStableFunc":
				last[types.ExprString(call.Args[0])] = call.Pos()
			}
		}
		return true
	})
	return last
}

// indifferent reports whether the statements of a loop give the same in any order: they collect into a slice that is sorted
// after the loop, add up integers, set an entry of a map that is this loop's own or always the same, declare, or sort. A break or a return
// is not: which entry ends the loop would be chance.
func (c checked) indifferent(loop *ast.RangeStmt, body []ast.Stmt, sorts map[string]token.Pos) bool {
	return !slices.ContainsFunc(body, func(stmt ast.Stmt) bool {
		switch x := stmt.(type) {
		case *ast.IncDecStmt:
			return false
		case *ast.BlockStmt:
			return !c.indifferent(loop, x.List, sorts)
		case *ast.RangeStmt:
			return !c.indifferent(loop, x.Body.List, sorts)
		case *ast.IfStmt:
			return !c.indifferent(loop, x.Body.List, sorts) || x.Else != nil && !c.indifferent(loop, []ast.Stmt{x.Else}, sorts)
		case *ast.BranchStmt:
			return x.Tok != token.CONTINUE
		case *ast.ExprStmt:
			call, ok := x.X.(*ast.CallExpr)
			return !ok || !strings.HasPrefix(called(call, c.info), "slices.Sort")
		case *ast.AssignStmt:
			return !c.indifferentAssign(loop, x, sorts)
		}
		return true
	})
}

func (c checked) indifferentAssign(loop *ast.RangeStmt, x *ast.AssignStmt, sorts map[string]token.Pos) bool {
	if x.Tok == token.DEFINE {
		return true
	}
	if len(x.Lhs) != 1 || len(x.Rhs) != 1 {
		return false
	}
	to, from := x.Lhs[0], x.Rhs[0]
	if x.Tok == token.ADD_ASSIGN || x.Tok == token.SUB_ASSIGN {
		basic, ok := c.info.Types[to].Type.Underlying().(*types.Basic)
		return ok && basic.Info()&types.IsInteger != 0
	}
	if call, ok := from.(*ast.CallExpr); ok && types.ExprString(call.Fun) == "append" {
		return sorts[types.ExprString(to)] > loop.End()
	}
	entry, ok := to.(*ast.IndexExpr)
	if !ok || !c.isMap(entry.X) {
		return false
	}
	own := loop.Key != nil && types.ExprString(entry.Index) == types.ExprString(loop.Key)
	return own || c.info.Types[from].Value != nil
}

// called names the function of a call as "package.Name" ("package.Type.Name" for a method), or "" where that is not known.
func called(n *ast.CallExpr, info *types.Info) string {
	fun := n.Fun
	if i, ok := fun.(*ast.IndexExpr); ok { // an explicit type argument
		fun = i.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	f, ok := info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil {
		return ""
	}
	name := f.Name()
	if recv := f.Signature().Recv(); recv != nil {
		t := recv.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if named, ok := t.(*types.Named); ok {
			name = named.Obj().Name() + "." + name
		}
	}
	return f.Pkg().Path() + "." + name
}

func TestPurity(t *testing.T) {
	for _, p := range mustPackages(t) {
		if slices.Contains(purePackages, p.path) {
			report(t, impurities(p))
		}
	}
}

func TestPurityCanFail(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"init":             {`func init() {}`, "init runs"},
		"package variable": {`var cache = map[string]int{}`, "package variable cache"},
		"grouped variable": {`var ( _ = 1; seen bool )`, "package variable seen"},
		"disguised error":  {`var ErrCount int`, "package variable ErrCount"},
		"go statement":     {`func f() { go f() }`, "go starts"},
		"select":           {`func f() { select {} }`, "select makes"},
		"channel type":     {`func f(c chan int) {}`, "channels belong"},
		"channel send":     {`func f(c pipe) { c <- 1 }`, "channels belong"},
		"channel receive":  {`func f(c pipe) { <-c }`, "channels belong"},
		"linkname":         {"//go:linkname now runtime.nanotime\nfunc now() int64", "//go:linkname"},
		"bodiless":         {"func now() int64", "body elsewhere"},
		"embed":            {"//go:embed a.txt\nvar text string", "package variable text"},
		"clock":            {`import "time"; func f() { time.Now() }`, "time.Now"},
		"elapsed":          {`import "time"; func f(t time.Time) { time.Since(t) }`, "time.Since"},
		"remaining":        {`import "time"; func f(t time.Time) { time.Until(t) }`, "time.Until"},
		"sleep":            {`import "time"; func f() { time.Sleep(1) }`, "time.Sleep"},
		"clock as value":   {`import "time"; func f() func() time.Time { return time.Now }`, "time.Now"},
		"renamed clock":    {`import t "time"; func f() { t.Now() }`, "time.Now"},
		"hidden clock":     {`import . "time"; func f() { Now() }`, "dot import"},
		"zone":             {`import "time"; func f(t time.Time) time.Time { return t.In(time.Local) }`, "time.Local"},
		"zone by method":   {`import "time"; func f(t time.Time) time.Time { return t.Local() }`, "time.Local"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, "access/planted.go", "package access\n"+strings.ReplaceAll(c.text, "; ", "\n"))
			refused(t, impurities(pkg{path: "access", files: []source{s}}), c.want)
		})
	}
	refused(t, impurities(pkg{path: "access", other: []string{"access/fast_amd64.s"}}), "Go only")
	double := parse(t, "access/x_test.go", "package access\ntype fakeClock struct{}\n")
	refused(t, impurities(pkg{path: "access", files: []source{double}}), "fakeClock is a double")

	sound := parse(t, "access/sound.go", `package access
import ("errors"; "time")
var _ error = T{}
var ErrClosed = errors.New("closed")
func f(now time.Time, d time.Duration) time.Time { return now.Add(d).UTC() }
`)
	if got := impurities(pkg{path: "access", files: []source{sound}}); got != nil {
		t.Errorf("refused without reason: %q", got)
	}
}

func TestMapOrder(t *testing.T) {
	for _, c := range mustTyped(t) {
		if slices.Contains(purePackages, c.path) {
			report(t, disorder(c))
		}
	}
}

func TestMapOrderCanFail(t *testing.T) {
	file := `package access
import ("maps"; "slices")
var _, _ = maps.Keys[map[string]int], slices.Sorted[string]
func f(m map[string]int) (out []string) {
	%s
	return out
}`
	for name, c := range map[string]struct {
		body string
		bad  bool
	}{
		"unsorted":       {"for k := range m { out = append(out, k) }", true},
		"named type":     {"type set map[string]int; for k := range set(m) { out = append(out, k) }", true},
		"another sorted": {"var x []string; for k := range m { out = append(out, k) }; slices.Sort(x)", true},
		"sorted before":  {"slices.Sort(out); for k := range m { out = append(out, k) }", true},
		"last one wins":  {"x := map[string]string{}; for k := range m { x[\"\"] = k }", true},
		"last one stays": {"x := \"\"; for k := range m { x = k }; out = append(out, x)", true},
		"concatenation":  {"x := \"\"; for k := range m { x += k }; out = append(out, x)", true},
		"first one":      {"for k := range m { return []string{k} }", true},
		"a call":         {"for k := range m { f(map[string]int{k: 1}) }", true},
		"first few":      {"for k := range m { out = append(out, k); if k == \"\" { break } }; slices.Sort(out)", true},
		"unsorted keys":  {"out = slices.Collect(maps.Keys(m))", true},
		"keys in a loop": {"for k := range maps.Keys(m) { out = append(out, k) }", true},
		"no reason":      {"// any order: ok\nfor k := range m { out = append(out, k) }", true},
		"distant reason": {"// any order: it only counts\n\nfor k := range m { out = append(out, k) }", true},
		"sorted":         {"for k := range m { out = append(out, k) }; slices.Sort(out)", false},
		"sorted later":   {"for k := range m { if k != \"\" { out = append(out, k) } }; out = append(out, \"\"); slices.Sort(out)", false},
		"a sum":          {"n := 0; for _, v := range m { n += v }", false},
		"a copy":         {"x := map[string]int{}; for k, v := range m { x[k] = v }", false},
		"a set":          {"x := map[int]bool{}; for _, v := range m { x[v] = true }", false},
		"sorted keys":    {"out = slices.Sorted(maps.Keys(m))", false},
		"a slice":        {"for range out { _ = m }", false},
		"reason":         {"n := 0\n// any order: it only counts\nfor range m { n++ }", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := disorder(plant(t, "access", fmt.Sprintf(file, strings.ReplaceAll(c.body, "; ", "\n"))))
			if (len(got) > 0) != c.bad {
				t.Errorf("bad is %v, but got %q", c.bad, got)
			}
		})
	}
}
