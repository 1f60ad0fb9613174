package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/policy"
)

// Script is a server that RunUpstream wants started behind an adapter.
type Script struct {
	Era mcp.Era // the only one that the server speaks
	// Methods answers requests by their method. What is not among them is answered as a sound server does. A handler's ctx ends
	// when the client cancels that request, and when the conversation or the server ends.
	Methods map[string]func(ctx context.Context, c *ScriptCall)
}

// ScriptCall is one request at a scripted server, as it came. A part that was not sent is nil.
type ScriptCall struct {
	ScriptWire
	Raw    []byte // the whole message
	ID     []byte // raw JSON
	Token  []byte // params._meta.progressToken, raw JSON
	Params []byte // raw JSON
	Name   string // params.name, decoded
}

// ScriptWire is the way back. What cannot be sent any more is an error, which the suite expects: it does such things on purpose.
type ScriptWire interface {
	Reply(result []byte) error
	ReplyError(code int, message string, data []byte) error
	ReplyFrame(frame []byte) error // a whole message in place of the reply
	Emit(frame []byte) error       // a whole message besides the reply
}

// Heard is one message that a scripted server received.
type Heard struct {
	Raw string
	// Places is where a credential can arrive besides the message: headers, variables, arguments of a command.
	Places map[string]string
	// Conversation tells sessions apart where the transport has a name for one.
	Conversation string
}

// Stage is a scripted server behind an adapter.
type Stage struct {
	Upstream gateway.Upstream
	Target   gateway.Target // with neither Material nor Changed
	Heard    func() []Heard // everything so far, in the order of each conversation
	Announce func() int     // announces that the tools changed, and says how many were told
	// Die kills the server: connections and conversations end without a word. A transport whose servers can come back has it
	// back at once, with no memory of any conversation.
	Die func()
	// Stop ends the server and the adapter, and returns when nothing of them is left.
	Stop func()
}

// Delivery is one way to deliver a credential.
type Delivery struct {
	Deliver policy.Deliver
	Place   string // of Heard.Places, where the credential has to be
	Prefix  string // before it
}

// UpstreamCase is what RunUpstream cannot know.
type UpstreamCase struct {
	Start      func(s Script) (Stage, error)
	Deliveries []Delivery // every one that the adapter has
}

// RunUpstream holds an adapter to the contract of gateway.Upstream and gateway.UpstreamSession, in both eras. Every check has its
// own server. It counts goroutines, so that nothing else may start any meanwhile.
func RunUpstream(t T, c UpstreamCase) {
	t.Helper()
	runUpstream(t, c, 5*time.Second, func(string) bool { return true })
}

// runUpstream runs the checks that are wanted, by era/name.
func runUpstream(t T, c UpstreamCase, atMost time.Duration, wanted func(check string) bool) {
	t.Helper()
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, k := range upstreamChecks {
			if !wanted(era.String() + "/" + k.name) {
				continue
			}
			one := func(t T) {
				x := &exam{t: t, c: c, era: era, atMost: atMost, about: era.String() + ": " + k.name + ": "}
				defer x.end()
				defer func() {
					if r := recover(); r != nil && r != (givenUp{}) {
						panic(r)
					}
				}()
				k.check(x)
			}
			if tt, ok := t.(*testing.T); ok {
				tt.Run(era.String()+"/"+k.name, func(t *testing.T) { one(t) })
			} else {
				one(t)
			}
		}
	}
}

// How long things may take. They are bounds for what must not hang, far above what it takes.
const (
	promptly = time.Second // from the end of a ctx, a session or a server to the return of what hung on it
	quiet    = 50 * time.Millisecond
)

// exam is one run of one check.
type exam struct {
	t      T
	c      UpstreamCase
	era    mcp.Era
	about  string
	atMost time.Duration // for everything that has no bound of its own
	last   int           // the mark of the last call
	stage  []*scene
}

// givenUp unwinds a check that cannot go on. Everything that it started ends by exam.end.
type givenUp struct{}

func (x *exam) errorf(format string, args ...any) {
	x.t.Helper()
	x.t.Errorf("%s%s", x.about, fmt.Sprintf(format, args...))
}

func (x *exam) giveUp(format string, args ...any) {
	x.t.Helper()
	x.errorf(format, args...)
	panic(givenUp{})
}

func (x *exam) end() {
	for _, st := range x.stage {
		st.end()
	}
}

// scene is a stage with what happened on it.
type scene struct {
	Stage
	x        *exam
	quit     chan struct{} // releases every handler
	ended    bool
	changed  atomic.Int64
	sessions []gateway.UpstreamSession
	calls    []*asking
}

type handler = func(ctx context.Context, c *ScriptCall)

// start starts a server. Handlers get a third way to end: the scene's.
func (x *exam) start(methods map[string]handler) *scene {
	x.t.Helper()
	st := &scene{x: x, quit: make(chan struct{})}
	var err error
	if st.Stage, err = x.c.Start(Script{Era: x.era, Methods: methods}); err != nil {
		x.giveUp("the server did not start: %v", err)
	}
	x.stage = append(x.stage, st)
	return st
}

func (x *exam) serve(call handler) *scene {
	x.t.Helper()
	return x.start(map[string]handler{mcp.MethodToolsCall: call})
}

func (st *scene) target(secret string, deliver policy.Deliver) gateway.Target {
	t := st.Target
	u := *t.Upstream
	t.Upstream = &u
	t.Changed = func() { st.changed.Add(1) }
	if secret != "" {
		u.Deliver = deliver
		t.Account = "account-of-" + t.Account
		t.Material = gateway.Material{Secret: gateway.NewSecret(secret), Generation: fmt.Sprint("generation ", len(st.sessions))}
	}
	return t
}

func (st *scene) open() gateway.UpstreamSession {
	st.x.t.Helper()
	return st.openAs(st.target("", policy.Deliver{}))
}

func (st *scene) openAs(t gateway.Target) gateway.UpstreamSession {
	st.x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), st.x.atMost)
	defer cancel()
	s, err := st.Upstream.Open(ctx, t)
	if err != nil {
		st.x.giveUp("Open: %v", err)
	}
	st.sessions = append(st.sessions, s)
	return s
}

// end ends the scene and looks at what is only certain then: which calls arrived, and how often.
func (st *scene) end() {
	if st.ended {
		return
	}
	st.ended = true
	for _, s := range st.sessions {
		if !within(st.x.atMost, func() { _ = s.Close() }) {
			st.x.errorf("Close did not return within %v", st.x.atMost)
		}
	}
	close(st.quit)
	st.Stop()
	arrived := map[int]int{}
	for _, h := range st.Heard() {
		if n, ok := markOf([]byte(h.Raw)); ok {
			arrived[n]++
		}
	}
	for _, a := range st.calls {
		if n := arrived[a.mark]; n > 1 {
			st.x.errorf("one call reached the server %d times", n)
		}
		select {
		case <-a.done:
		default:
			continue // reported by whoever waited for it
		}
		switch n := arrived[a.mark]; {
		case n > 0 && a.Sent == gateway.NotSent:
			st.x.errorf("a call that was not sent reached the server")
		case n == 0 && a.Sent == gateway.Answered:
			st.x.errorf("a call was answered that never reached the server")
		}
		if a.late.Load() > 0 {
			st.x.errorf("progress came after Call returned")
		}
	}
}

// within runs something and says whether it ended in time.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// soon waits until something holds.
func soon(d time.Duration, holds func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(2 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// query is a call to make. Its zero value is an ordinary one.
type query struct {
	name     string // "" = "tool"
	params   string // raw members besides name, "" for arguments
	progress bool
	max      int
}

// asking is a call under way, and then its outcome.
type asking struct {
	gateway.Answer
	mark     int
	ctx      context.Context
	response *jsonrpc.Message
	done     chan struct{}
	raw      string // of the response, when Call returned
	result   string // raw
	err      string // raw

	mu       sync.Mutex
	returned bool
	notes    []string
	late     atomic.Int64
}

// markName is the member of params by which the suite knows its calls. It also is a member that nobody knows.
const markName = "x-mark"

func markOf(raw []byte) (int, bool) {
	var m struct {
		Method string
		Params map[string]json.RawMessage
	}
	if json.Unmarshal(raw, &m) != nil || m.Method != mcp.MethodToolsCall {
		return 0, false
	}
	n, err := strconv.Atoi(string(m.Params[markName]))
	return n, err == nil
}

// ask begins a call.
func (st *scene) ask(ctx context.Context, s gateway.UpstreamSession, q query) *asking {
	st.x.t.Helper()
	if q.name == "" {
		q.name = "tool"
	}
	if q.params == "" {
		q.params = `"arguments":{"a":1}`
	}
	if q.max == 0 {
		q.max = 1 << 20
	}
	st.x.last++
	a := &asking{mark: st.x.last, ctx: ctx, response: new(jsonrpc.Message), done: make(chan struct{})}
	st.calls = append(st.calls, a)
	request := new(jsonrpc.Message)
	raw := fmt.Sprintf(`{"jsonrpc":"2.0","id":"of-the-client","method":"tools/call","params":{"name":"up__shown",%s,"%s":%d}}`, q.params, markName, a.mark)
	if err := request.Scan([]byte(raw), jsonrpc.Limits{}); err != nil {
		st.x.giveUp("the suite's own call is refused: %v", err)
	}
	c := &gateway.UpstreamCall{Request: request, Name: q.name, Response: a.response, MaxBytes: q.max}
	if q.progress {
		c.Progress = func(n *jsonrpc.Message) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.returned {
				a.late.Add(1)
			}
			a.notes = append(a.notes, string(n.Raw))
		}
	}
	go func() {
		defer close(a.done)
		answer := s.Call(ctx, c)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.returned, a.Answer, a.raw = true, answer, string(a.response.Raw)
		for key, to := range map[string]*string{"result": &a.result, "error": &a.err} {
			if m, ok := a.response.Top.Get(key); ok {
				*to = string(a.response.Bytes(m.Value))
			}
		}
	}()
	return a
}

// wait waits for the end of a call, which must come soon after its ctx ended.
func (st *scene) wait(a *asking) *asking {
	st.x.t.Helper()
	select {
	case <-a.done:
	case <-a.ctx.Done():
		if !within(promptly, func() { <-a.done }) {
			st.x.giveUp("Call did not return within %v after its ctx ended", promptly)
		}
	}
	switch {
	case a.Failure == nil && (a.result == "") == (a.err == ""):
		st.x.errorf("no failure, and the response has neither a result nor an error: %.100s", a.raw)
	case a.Failure == nil && a.Sent != gateway.Answered:
		st.x.errorf("an answer came, but Sent is %d", a.Sent)
	case a.Failure != nil:
		st.judge(a.Failure)
	}
	return a
}

// judge holds a failure to what may stand in one.
func (st *scene) judge(f *gateway.Failure) {
	st.x.t.Helper()
	if len(f.Detail) > 256 {
		st.x.errorf("the detail of a failure has %d bytes", len(f.Detail))
	}
	if strings.Contains(f.Detail, secretMark) {
		st.x.errorf("the detail of a failure shows a secret")
	}
	switch f.Class {
	case gateway.FailedDial, gateway.FailedTLS, gateway.FailedTimeout, gateway.FailedProtocol, gateway.FailedStatus, gateway.FailedExited,
		gateway.FailedTooLarge, gateway.FailedCancelled, gateway.FailedRefused:
	default:
		st.x.errorf("a failure has the unknown class %q", f.Class)
	}
}

// secretMark is in every secret of the suite.
const secretMark = "sEcReT"

// call calls and waits.
func (st *scene) call(s gateway.UpstreamSession, q query) *asking {
	st.x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), st.x.atMost)
	defer cancel()
	return st.wait(st.ask(ctx, s, q))
}

// answered reports unless a call has exactly this result.
func (st *scene) answered(a *asking, result string) {
	st.x.t.Helper()
	if a.Failure != nil {
		st.x.errorf("call failed: %v; want %.100s", a.Failure, result)
	} else if a.result != result {
		st.x.errorf("got result %.200s %.100s; want %.200s", a.result, a.err, result)
	}
}

// failed reports unless a call failed so.
func (st *scene) failed(a *asking, sent gateway.Sent, classes ...gateway.FailureClass) {
	st.x.t.Helper()
	if a.Failure == nil {
		st.x.errorf("call has the answer %.100s; want a failure", a.raw)
		return
	}
	if a.Sent != sent {
		st.x.errorf("call failed with Sent %d (%v); want %d", a.Sent, a.Failure, sent)
	}
	for _, c := range classes {
		if a.Failure.Class == c {
			return
		}
	}
	if classes != nil {
		st.x.errorf("call failed with %v; want class %s", a.Failure, classes[0])
	}
}

// works reports unless the session still serves, or says that it does not.
func (st *scene) works(s gateway.UpstreamSession) {
	st.x.t.Helper()
	a := st.call(s, query{name: "works"})
	if a.Failure != nil && !soon(promptly, func() bool { return closed(s.Done()) }) {
		st.x.errorf("the session serves no more (%v), but Done is open", a.Failure)
	}
}

// said is a result with one text.
func (x *exam) said(text string) string {
	kind := ""
	if x.era == mcp.Modern {
		kind = `,"resultType":"complete"`
	}
	return `{"content":[{"type":"text","text":"` + text + `"}]` + kind + `}`
}

// own is what the server says to the call of this mark.
func (x *exam) own(mark int) string { return x.said("to call " + strconv.Itoa(mark)) }

// echo answers every call with what is only its own.
func (x *exam) echo(_ context.Context, c *ScriptCall) {
	mark, _ := markOf(c.Raw)
	_ = c.Reply([]byte(x.own(mark)))
}

// visit is a call that stays at the server until it is told to go.
type visit struct {
	*ScriptCall
	ctx  context.Context
	mark int
	over chan struct{}
}

func (v *visit) leave() { close(v.over) }

// desk is a handler that lets the check answer. Calls named "works" are answered at once.
type desk struct {
	x    *exam
	come chan *visit
	st   *scene
}

func (x *exam) desk() *desk {
	x.t.Helper()
	d := &desk{x: x, come: make(chan *visit, 200)}
	d.st = x.serve(d.handle)
	return d
}

func (d *desk) handle(ctx context.Context, c *ScriptCall) {
	if c.Name == "works" {
		d.x.echo(ctx, c)
		return
	}
	v := &visit{ScriptCall: c, ctx: ctx, over: make(chan struct{})}
	v.mark, _ = markOf(c.Raw)
	d.come <- v
	select {
	case <-v.over:
	case <-d.st.quit:
	}
}

// next is the next call that arrives.
func (d *desk) next() *visit {
	d.x.t.Helper()
	select {
	case v := <-d.come:
		return v
	case <-time.After(d.x.atMost):
		d.x.giveUp("a call did not reach the server")
		return nil
	}
}

// frame is a response with any id.
func frame(id, result string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`)
}

func progressOf(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d.50,"x":[ 1 ]}}`, token, n)
}

// page is one page of a list as it goes over the wire.
func (x *exam) page(tools, next string) []byte {
	if next != "" {
		next = `,"nextCursor":` + next
	}
	if x.era == mcp.Modern {
		next += `,"resultType":"complete","ttlMs":0,"cacheScope":"public"`
	}
	return []byte(`{"tools":[` + tools + `]` + next + `}`)
}

// cursor is the raw cursor of a tools/list, "" for none.
func cursor(c *ScriptCall) string {
	var p map[string]json.RawMessage
	_ = json.Unmarshal(c.Params, &p)
	return string(p["cursor"])
}

// list lists within the suite's atMost.
func (x *exam) list(s gateway.UpstreamSession) (tools []mcp.ListedTool, err error) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), x.atMost)
	defer cancel()
	if !within(x.atMost+promptly, func() { tools, err = s.Tools(ctx) }) {
		x.giveUp("Tools did not return within %v after its ctx ended", promptly)
	}
	return tools, err
}

type upstreamExam struct {
	name  string
	check func(x *exam)
}

var upstreamChecks = []upstreamExam{
	{"the handshake is that of the era", func(x *exam) {
		st := x.serve(x.echo)
		s := st.open()
		if s.Era() != x.era {
			x.errorf("Era is %v", s.Era())
		}
		if closed(s.Done()) {
			x.errorf("Done is closed on a new session")
		}
		a := st.call(s, query{})
		st.answered(a, x.own(a.mark))
		order := map[string][]int{}
		for i, h := range st.Heard() {
			var m struct {
				ID     json.RawMessage
				Method string
				Params struct {
					Meta map[string]json.RawMessage `json:"_meta"`
				}
			}
			if err := json.Unmarshal([]byte(h.Raw), &m); err != nil || m.Method == "" {
				continue
			}
			order[m.Method] = append(order[m.Method], i)
			version, capabilities := string(m.Params.Meta[mcp.MetaVersion]), m.Params.Meta[mcp.MetaCapabilities]
			switch {
			case x.era == mcp.Modern && m.ID != nil && (version != `"2026-07-28"` || !bytes.HasPrefix(capabilities, []byte("{"))):
				x.errorf("%s lacks the version or the capabilities in its _meta: %.200s", m.Method, h.Raw)
			case x.era == mcp.Legacy && m.Method == mcp.MethodToolsCall && (version != "" || capabilities != nil):
				x.errorf("a legacy server was called with modern _meta: %.200s", h.Raw)
			}
		}
		begin, begun, calls := order[mcp.MethodInitialize], order[mcp.MethodInitialized], order[mcp.MethodToolsCall]
		if x.era == mcp.Modern && len(begin)+len(begun) > 0 {
			x.errorf("a modern server was asked to initialize")
		}
		if x.era == mcp.Legacy && (len(begin) != 1 || len(begun) != 1 || len(calls) != 1 || begin[0] > begun[0] || begun[0] > calls[0]) {
			x.errorf("initialize came as messages %v, initialized as %v, the call as %v; want one of each in this order", begin, begun, calls)
		}
	}},
	{"Open fails with a Failure", func(x *exam) {
		if x.era == mcp.Legacy {
			return // a server that speaks neither era has none
		}
		hang := func(ctx context.Context, _ *ScriptCall) { <-ctx.Done() }
		refuse := func(_ context.Context, c *ScriptCall) { _ = c.ReplyError(-32601, "method not found", nil) }
		for name, k := range map[string]struct {
			h      handler
			cancel bool
			want   gateway.FailureClass // "" = any
		}{
			"no answer":          {hang, false, gateway.FailedTimeout},
			"cancelled":          {hang, true, gateway.FailedCancelled},
			"refuses handshakes": {refuse, false, ""},
		} {
			st := x.start(map[string]handler{mcp.MethodDiscover: k.h, mcp.MethodInitialize: k.h})
			wait := 300 * time.Millisecond
			if k.want == "" {
				wait = x.atMost
			}
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			if k.cancel {
				ctx, cancel = context.WithCancel(context.Background())
				time.AfterFunc(wait, cancel)
			}
			var s gateway.UpstreamSession
			var err error
			// A child that does not answer has to be ended before Open can return.
			if !within(wait+x.atMost, func() { s, err = st.Upstream.Open(ctx, st.target("", policy.Deliver{})) }) {
				x.giveUp("%s: Open did not return", name)
			}
			cancel()
			var f *gateway.Failure
			switch {
			case err == nil:
				st.sessions = append(st.sessions, s)
				x.errorf("%s: Open gave a session", name)
			case !errors.As(err, &f):
				x.errorf("%s: Open gave %T, which is no *Failure", name, err)
			default:
				st.judge(f)
				if s != nil {
					x.errorf("%s: Open gave a session with its failure", name)
				}
				if k.want != "" && f.Class != k.want {
					x.errorf("%s: Open failed with %v; want class %s", name, f, k.want)
				}
			}
		}
	}},
	{"Tools drains every page and changes nothing", func(x *exam) {
		tools := []string{
			`{"name":"a","inputSchema":{"type":"object"}}`,
			`{ "inputSchema" : {"$defs":{"n":{"const":12345678901234567890}}},	"name":"b\u002fc","x":[1.0e2, null ,""],"description":"\u00e9 é ☃"}`,
			`{"name":"a","inputSchema":{"type":"object"}}`, // a name that comes twice is not for the adapter to judge
			`{"name":"Z","inputSchema":{}}`,
			`{"name":"A","inputSchema":{}}`,
		}
		pages := map[string][]byte{
			"":                x.page(tools[0], `""`),
			`""`:              x.page(tools[1]+" ,\t"+tools[2], `"p\u0032 \"x\/"`),
			`"p\u0032 \"x\/"`: x.page("", `"4"`),
			`"4"`:             x.page(tools[3], `"5"`),
			`"5"`:             x.page(tools[4], "null"),
		}
		st := x.start(map[string]handler{mcp.MethodToolsList: func(_ context.Context, c *ScriptCall) {
			if p, ok := pages[cursor(c)]; ok {
				_ = c.Reply(p)
			} else {
				_ = c.ReplyError(-32602, "unknown cursor", nil)
			}
		}})
		s := st.open()
		for range 2 {
			got, err := x.list(s)
			if err != nil || len(got) != len(tools) {
				x.errorf("Tools: %d tools, %v; want all %d of five pages", len(got), err, len(tools))
				continue
			}
			for i, g := range got {
				if string(g.Raw) != tools[i] || g.Problem != "" {
					x.errorf("tool %d: %s %s; want exactly %s", i, g.Raw, g.Problem, tools[i])
				}
			}
		}
	}},
	{"a cursor that repeats is an error", func(x *exam) {
		for name, next := range map[string]func(string) string{
			"the same":    func(string) string { return `"x"` },
			"empty":       func(string) string { return `""` },
			"in a circle": func(c string) string { return map[string]string{"": `"a"`, `"a"`: `"b"`, `"b"`: `"a"`}[c] },
			"later a fix": func(c string) string {
				return map[string]string{"": `"a"`, `"a"`: `"b"`, `"b"`: `"c"`, `"c"`: `"c"`}[c]
			},
		} {
			var asked atomic.Int64
			st := x.start(map[string]handler{mcp.MethodToolsCall: x.echo, mcp.MethodToolsList: func(_ context.Context, c *ScriptCall) {
				asked.Add(1)
				_ = c.Reply(x.page(`{"name":"a","inputSchema":{}}`, next(cursor(c))))
			}})
			s := st.open()
			if tools, err := x.list(s); err == nil {
				x.errorf("%s: Tools gave %d tools; want an error for a repeated cursor", name, len(tools))
			}
			if n := asked.Load(); n > 5 {
				x.errorf("%s: %d pages were asked for", name, n)
			}
			st.works(s)
		}
	}},
	{"an unsound tool alone has a problem", func(x *exam) {
		list := []string{`{"name":"a","inputSchema":{}}`, `{"name":"b","name":"c"}`, `{"name":"\ud800"}`, `7`, "{\"name\":\"\xff\"}",
			`{"name":"d","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `{"name":"z","inputSchema":{ }}`}
		st := x.start(map[string]handler{mcp.MethodToolsList: func(_ context.Context, c *ScriptCall) {
			_ = c.Reply(x.page(strings.Join(list, ","), ""))
		}})
		got, err := x.list(st.open())
		if err != nil || len(got) != len(list) {
			x.giveUp("Tools: %d elements, %v; want %d", len(got), err, len(list))
		}
		for i, g := range got {
			sound := i == 0 || i == len(list)-1
			switch {
			case sound && (g.Problem != "" || string(g.Raw) != list[i]):
				x.errorf("element %d: %q with problem %q; want it verbatim", i, g.Raw, g.Problem)
			case !sound && g.Problem == "":
				x.errorf("unsound element %d has no problem", i)
			}
		}
	}},
	{"a list that cannot be had is an error", func(x *exam) {
		reply := func(b string) handler { return func(_ context.Context, c *ScriptCall) { _ = c.Reply([]byte(b)) } }
		for name, h := range map[string]handler{
			"error":           func(_ context.Context, c *ScriptCall) { _ = c.ReplyError(-32603, "no", nil) },
			"no list":         reply(`{}`),
			"no array":        reply(`{"tools":{}}`),
			"a number cursor": reply(`{"tools":[],"nextCursor":7}`),
			"second page": func(_ context.Context, c *ScriptCall) {
				if cursor(c) == "" {
					_ = c.Reply(x.page(`{"name":"a","inputSchema":{}}`, `"2"`))
				} else {
					_ = c.ReplyError(-32603, "no", nil)
				}
			},
		} {
			st := x.start(map[string]handler{mcp.MethodToolsCall: x.echo, mcp.MethodToolsList: h})
			s := st.open()
			if tools, err := x.list(s); err == nil {
				x.errorf("%s: Tools gave %d tools and no error", name, len(tools))
			}
			st.works(s)
			st.end()
		}
		st := x.start(map[string]handler{mcp.MethodToolsCall: x.echo, mcp.MethodToolsList: func(ctx context.Context, _ *ScriptCall) { <-ctx.Done() }})
		s := st.open()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(quiet, cancel)
		var err error
		if !within(quiet+promptly, func() { _, err = s.Tools(ctx) }) {
			x.giveUp("Tools did not return within %v after its ctx ended", promptly)
		}
		if err == nil {
			x.errorf("Tools gave no error although its ctx ended")
		}
		st.works(s)
	}},
	{"a call goes up as it is", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		for _, name := range []string{"tool", "a.b/c-d", "näme☃", `quo"te\back`, " edge ", "=?base64?eA==?=", "tab\tnew\nline", strings.Repeat("n", 300)} {
			a := d.st.ask(d.st.soon(), s, query{name: name})
			v := d.next()
			if v.Name != name {
				x.errorf("the name %q arrived as %q", name, v.Name)
			}
			_ = v.Reply([]byte(x.own(v.mark)))
			v.leave()
			d.st.answered(d.st.wait(a), x.own(a.mark))
		}
		for _, k := range []struct{ params, want string }{
			{`"x-other":1`, `"arguments":{}`},
			{`"arguments":{}`, `"arguments":{}`},
			{`"arguments":{ "b":1,	"a":12345678901234567890,"f":1.0e-7,"s":"\u0041\/é","d":{"$defs":[ 1 , 2 ]},"":null}`, ""},
			{`"x-other":{"k":[1.0, 2]},"arguments":{"name":"x","_meta":{"progressToken":1}}`, ""},
			{`"arguments":{},"_meta":{"vendor/x":{"big":9007199254740993 }}`, `"vendor/x":{"big":9007199254740993 }`},
		} {
			if k.want == "" {
				k.want = k.params
			}
			a := d.st.ask(d.st.soon(), s, query{params: k.params})
			v := d.next()
			if !bytes.Contains(v.Params, []byte(k.want)) {
				x.errorf("params %s arrived as %s; want %s in it", k.params, v.Params, k.want)
			}
			if mark := fmt.Sprintf(`"%s":%d`, markName, a.mark); !bytes.Contains(v.Params, []byte(mark)) {
				x.errorf("a member that nobody knows was lost: %s", v.Params)
			}
			if bytes.Contains(v.ID, []byte("of-the-client")) {
				x.errorf("the client's id went up: %s", v.ID)
			}
			_ = v.Reply([]byte(x.own(v.mark)))
			v.leave()
			d.st.answered(d.st.wait(a), x.own(a.mark))
		}
	}},
	{"an answer comes down as it is", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		for _, result := range []string{
			x.said("plain"),
			`{ "content":[],	"structuredContent":{"n":12345678901234567890,"f":1.0e-7,"s":"\u0041\/é☃"},"x-unknown":[ {} ],"isError":false,"resultType":"complete"}`,
			`{"content":[{"type":"x-kind","data":null}],"isError":true,"_meta":{"vendor/x":1},"resultType":"complete"}`,
		} {
			a := d.st.ask(d.st.soon(), s, query{})
			v := d.next()
			_ = v.Reply([]byte(result))
			v.leave()
			d.st.answered(d.st.wait(a), result)
		}
		for _, k := range []struct {
			code int
			data string
		}{{-32603, ""}, {-32602, `{"a":[ 1.0 ]}`}, {-32000, `"x"`}, {-32601, "null"}, {7, ""}} {
			a := d.st.ask(d.st.soon(), s, query{})
			v := d.next()
			want := fmt.Sprintf(`{"code":%d,"message":"no <é>"`, k.code)
			var data []byte
			if k.data != "" {
				data = []byte(k.data)
				want += `,"data":` + k.data
			}
			want += "}"
			_ = v.ReplyError(k.code, "no <é>", data)
			v.leave()
			if d.st.wait(a); a.Failure != nil || a.err != want {
				x.errorf("error %d: %v, %s; want the answer %s", k.code, a.Failure, a.err, want)
			}
		}
	}},
	{"progress is of this call only, in order, before the answer", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		a := d.st.ask(d.st.soon(), s, query{progress: true, params: `"arguments":{},"_meta":{"progressToken":"token-of-the-client"}`})
		v := d.next()
		if v.Token == nil || bytes.Contains(v.Token, []byte("of-the-client")) {
			x.giveUp("the progress token that went up is %s", v.Token)
		}
		b := d.st.ask(d.st.soon(), s, query{progress: true})
		w := d.next()
		if bytes.Equal(v.Token, w.Token) {
			x.errorf("two calls at once have the same progress token")
		}
		var wantA, wantB []string
		for i := range 5 {
			for _, foreign := range []string{`"x"`, "987654321", "0", "null", `"` + strings.Trim(string(v.Token), `"`) + `x"`, "[" + string(v.Token) + "]"} {
				_ = v.Emit([]byte(progressOf(foreign, 100)))
			}
			wantA, wantB = append(wantA, progressOf(string(v.Token), i)), append(wantB, progressOf(string(w.Token), i+50))
			_ = v.Emit([]byte(wantA[i]))
			_ = w.Emit([]byte(wantB[i]))
		}
		_ = v.Reply([]byte(x.own(v.mark)))
		_ = v.Emit([]byte(progressOf(string(v.Token), 99)))
		d.st.answered(d.st.wait(a), x.own(a.mark))
		_ = v.Emit([]byte(progressOf(string(v.Token), 99)))
		_ = w.Emit([]byte(progressOf(string(v.Token), 99)))
		_ = w.Reply([]byte(x.own(w.mark)))
		d.st.answered(d.st.wait(b), x.own(b.mark))
		for name, k := range map[string]struct {
			a    *asking
			want []string
		}{"first": {a, wantA}, "second": {b, wantB}} {
			if got := strings.Join(k.a.seen(), "\n"); got != strings.Join(k.want, "\n") {
				x.errorf("progress of the %s call:\n%s\nwant:\n%s", name, got, strings.Join(k.want, "\n"))
			}
		}
		v.leave()
		w.leave()

		c := d.st.ask(d.st.soon(), s, query{params: `"arguments":{},"_meta":{"progressToken":"token-of-the-client"}`})
		u := d.next()
		if u.Token != nil {
			x.errorf("nobody asked for progress, but the server got the token %s", u.Token)
		}
		_ = u.Emit([]byte(progressOf(string(u.ID), 1)))
		_ = u.Reply([]byte(x.own(u.mark)))
		u.leave()
		d.st.answered(d.st.wait(c), x.own(c.mark))

		ctx, cancel := context.WithCancel(context.Background())
		g := d.st.ask(ctx, s, query{progress: true})
		u = d.next()
		cancel()
		d.st.failed(d.st.wait(g), gateway.MaybeSent, gateway.FailedCancelled)
		for i := range 5 {
			_ = u.Emit([]byte(progressOf(string(u.Token), i)))
		}
		u.leave()
		time.Sleep(quiet)
	}},
	{"a foreign, late or second reply answers nothing", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		ctx, cancel := context.WithCancel(context.Background())
		gone := d.st.ask(ctx, s, query{})
		left := d.next()
		cancel()
		d.st.wait(gone)
		before := gone.raw

		first := d.st.ask(d.st.soon(), s, query{})
		v := d.next()
		id := string(v.ID)
		for _, foreign := range []string{`"` + strings.Trim(id, `"`) + `x"`, "[" + id + "]", "null", "0", "987654321", `"nobody"`, "-1", id + ".0", id + "e0", string(left.ID)} {
			_ = v.Emit(frame(foreign, x.said("to nobody")))
		}
		if id[0] != '"' {
			_ = v.Emit(frame(`"`+id+`"`, x.said("to nobody")))
		}
		_ = left.Reply([]byte(x.own(left.mark)))
		left.leave()
		_ = v.Reply([]byte(x.own(v.mark)))
		_ = v.Emit(frame(id, x.said("again")))
		d.st.answered(d.st.wait(first), x.own(first.mark))

		second := d.st.ask(d.st.soon(), s, query{})
		w := d.next()
		_ = v.Emit(frame(id, x.said("once more")))
		_ = w.Emit(frame(id, x.said("once more")))
		_ = w.Reply([]byte(x.own(w.mark)))
		d.st.answered(d.st.wait(second), x.own(second.mark))
		v.leave()
		w.leave()
		if string(gone.response.Raw) != before {
			x.errorf("a response was written after Call returned")
		}

		short, cancel := context.WithTimeout(context.Background(), 8*quiet)
		defer cancel()
		only := d.st.ask(short, s, query{})
		u := d.next()
		_ = u.ReplyFrame(frame("987654321", x.said("to nobody")))
		u.leave()
		d.st.failed(d.st.wait(only), gateway.MaybeSent)
		d.st.works(s)
	}},
	{"what is no reply is a failure", func(x *exam) {
		frames := []string{
			`{"jsonrpc":"2.0","id":ID}`, `{"id":ID,"result":{}}`, `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`,
			`{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}`, `{"jsonrpc":"2.0","id":ID,"result":`, `[{"jsonrpc":"2.0","id":ID,"result":{}}]`,
			`{"jsonrpc":"2.0","id":ID,"id":ID,"result":{}}`, `{"jsonrpc":"1.0","id":ID,"result":{}}`, `{"jsonrpc":"2.0","id":ID,"error":"x"}`, `null`,
		}
		st := x.serve(func(ctx context.Context, c *ScriptCall) {
			if i, err := strconv.Atoi(c.Name); err == nil {
				_ = c.ReplyFrame([]byte(strings.ReplaceAll(frames[i], "ID", string(c.ID))))
				return
			}
			x.echo(ctx, c)
		})
		s := st.open()
		ctx, cancel := context.WithTimeout(context.Background(), 10*quiet)
		defer cancel()
		var all []*asking
		for i := range frames {
			all = append(all, st.ask(ctx, s, query{name: strconv.Itoa(i)}))
		}
		for i, a := range all {
			if st.wait(a); a.Failure == nil || a.Sent == gateway.NotSent {
				x.errorf("%s: Sent %d, failure %v; want a failure that may have been sent", frames[i], a.Sent, a.Failure)
			}
		}
		st.works(s)
	}},
	{"fifty calls at once get their own answers", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		var all []*asking
		var there []*visit
		for range 50 {
			all = append(all, d.st.ask(d.st.soon(), s, query{}))
		}
		for range all {
			there = append(there, d.next())
		}
		for i := len(there) - 1; i >= 0; i-- {
			_ = there[i].Reply([]byte(x.own(there[i].mark)))
			there[i].leave()
		}
		for _, a := range all {
			d.st.answered(d.st.wait(a), x.own(a.mark))
		}
	}},
	{"the end of ctx ends the call and cancels it at the server", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		other := d.st.ask(d.st.soon(), s, query{})
		stays := d.next()
		for _, class := range []gateway.FailureClass{gateway.FailedCancelled, gateway.FailedTimeout} {
			ctx, cancel := context.WithTimeout(context.Background(), 6*quiet)
			if class == gateway.FailedCancelled {
				ctx, cancel = context.WithCancel(context.Background())
			}
			a := d.st.ask(ctx, s, query{})
			v := d.next()
			if class == gateway.FailedCancelled {
				cancel()
			}
			d.st.failed(d.st.wait(a), gateway.MaybeSent, class)
			cancel()
			if !soon(x.atMost, func() bool { return v.ctx.Err() != nil }) {
				x.errorf("%s: the server was not told that the call is cancelled", class)
			}
			v.leave()
		}
		if stays.ctx.Err() != nil {
			x.errorf("the cancellation of one call cancelled another")
		}
		_ = stays.Reply([]byte(x.own(stays.mark)))
		stays.leave()
		d.st.answered(d.st.wait(other), x.own(other.mark))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if a := d.st.wait(d.st.ask(ctx, s, query{name: "works"})); a.Failure == nil && a.result != x.own(a.mark) {
			x.errorf("a call whose ctx had ended before: %.100s", a.raw)
		}
		d.st.works(s)
	}},
	{"an answer over MaxBytes is too large, and only that", func(x *exam) {
		const most = 8 << 10
		d := x.desk()
		for _, k := range []struct {
			size   int
			stream bool
		}{{most, false}, {most, true}, {most + 1, false}, {most + 1, true}, {300 << 10, false}, {300 << 10, true}} {
			s := d.st.open()
			other := d.st.ask(d.st.soon(), s, query{})
			stays := d.next()
			a := d.st.ask(d.st.soon(), s, query{max: most})
			v := d.next()
			if k.stream {
				_ = v.Emit([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`))
			}
			room := k.size - len(frame(string(v.ID), x.said("")))
			_ = v.Reply([]byte(x.said(strings.Repeat("a", room))))
			v.leave()
			if d.st.wait(a); k.size > most {
				d.st.failed(a, gateway.Answered, gateway.FailedTooLarge)
			} else {
				d.st.answered(a, x.said(strings.Repeat("a", room)))
			}
			_ = stays.Reply([]byte(x.own(stays.mark)))
			stays.leave()
			if d.st.wait(other); other.Failure == nil || !closed(s.Done()) {
				d.st.answered(other, x.own(other.mark))
			}
			d.st.works(s)
		}
	}},
	{"a death under a call leaves it open, and is known", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		d.st.works(s) // over a connection that was used before, a careless transport repeats
		a := d.st.ask(d.st.soon(), s, query{})
		d.next()
		d.st.Die()
		if !within(promptly, func() { <-a.done }) {
			x.errorf("Call did not return within %v after the server died", promptly)
		}
		d.st.failed(d.st.wait(a), gateway.MaybeSent)
		d.st.afterDeath(s)
	}},
	{"a death between calls is known", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		d.st.works(s)
		d.st.Die()
		d.st.afterDeath(s)
	}},
	{"Close ends everything, however often", func(x *exam) {
		d := x.desk()
		s := d.st.open()
		a := d.st.ask(d.st.soon(), s, query{progress: true})
		d.next()
		var errs [3]error
		if !within(x.atMost, func() {
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = s.Close() })
			}
			all.Wait()
		}) {
			x.giveUp("Close did not return within %v", x.atMost)
		}
		if errs != [3]error{} {
			x.errorf("Close: %v", errs)
		}
		if !within(promptly, func() { <-a.done }) {
			x.errorf("Call did not return within %v after Close", promptly)
		}
		d.st.failed(d.st.wait(a), gateway.MaybeSent)
		d.st.isClosed(s)

		s = d.st.open()
		var all []*asking
		for range 20 {
			all = append(all, d.st.ask(d.st.soon(), s, query{name: "works"}))
		}
		if err := s.Close(); err != nil {
			x.errorf("Close: %v", err)
		}
		for _, a := range all {
			if d.st.wait(a); a.Failure == nil {
				d.st.answered(a, x.own(a.mark))
			}
		}
		d.st.isClosed(s)
	}},
	{"a change of the tools is told", func(x *exam) {
		st := x.serve(x.echo)
		s := st.open()
		if !soon(x.atMost, func() bool { return st.Announce() > 0 }) {
			x.giveUp("the session does not listen for changes")
		}
		if !soon(x.atMost, func() bool { return st.changed.Load() > 0 }) {
			x.errorf("Changed was not called")
		}
		st.works(s)
	}},
	{"a credential arrives where it should and nowhere else", func(x *exam) {
		for _, k := range x.c.Deliveries {
			secret := secretMark + "-1/+="
			st := x.serve(func(ctx context.Context, c *ScriptCall) {
				if c.Name == "broken" { // an error about this message would quote the name
					_ = c.ReplyFrame(frame(string(c.ID), `{"`+secret+`":1,"`+secret+`":2}`))
					return
				}
				x.echo(ctx, c)
			})
			s := st.openAs(st.target(secret, k.Deliver))
			st.works(s)
			if _, err := x.list(s); err != nil {
				x.errorf("Tools: %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 6*quiet)
			if a := st.wait(st.ask(ctx, s, query{name: "broken"})); a.Failure == nil {
				x.errorf("a message with a duplicate member is an answer: %.100s", a.raw)
			}
			cancel()
			st.end()
			heard := st.Heard()
			if len(heard) == 0 {
				x.errorf("deliver %s: nothing was heard", k.Deliver.Kind)
			}
			for _, h := range heard {
				if h.Places[k.Place] != k.Prefix+secret {
					x.errorf("deliver %s: the credential is not in %s with %.80s", k.Deliver.Kind, k.Place, h.Raw)
				}
				for place, v := range h.Places {
					if place != k.Place && strings.Contains(v, secretMark) {
						x.errorf("deliver %s: the credential is in %s, too", k.Deliver.Kind, place)
					}
				}
				if strings.Contains(h.Raw, secretMark) {
					x.errorf("deliver %s: the credential is in a message", k.Deliver.Kind)
				}
			}
		}
	}},
	{"sessions share no credential", func(x *exam) {
		for _, k := range x.c.Deliveries {
			st := x.serve(x.echo)
			want, of := map[int]string{}, map[int]int{}
			var all []*asking
			var sessions []gateway.UpstreamSession
			secrets := []string{secretMark + "-ana", secretMark + "-ben", ""}
			for _, secret := range secrets {
				sessions = append(sessions, st.openAs(st.target(secret, k.Deliver)))
			}
			for range 5 {
				for i, s := range sessions {
					a := st.ask(st.soon(), s, query{})
					all, want[a.mark], of[a.mark] = append(all, a), secrets[i], i
				}
			}
			for _, a := range all {
				st.answered(st.wait(a), x.own(a.mark))
			}
			talks := map[string]int{}
			for _, h := range st.Heard() {
				mark, ok := markOf([]byte(h.Raw))
				if !ok {
					continue
				}
				secret := want[mark]
				if secret != "" {
					secret = k.Prefix + secret
				}
				if h.Places[k.Place] != secret {
					x.errorf("deliver %s: a call of session %d came with another credential than its own", k.Deliver.Kind, of[mark])
				}
				if i, known := talks[h.Conversation]; h.Conversation != "" && known && i != of[mark] {
					x.errorf("deliver %s: sessions %d and %d share a conversation", k.Deliver.Kind, i, of[mark])
				}
				talks[h.Conversation] = of[mark]
			}
		}
	}},
	{"Close returns when everything has ended", func(x *exam) {
		count := runtime.NumGoroutine()
		d := x.desk()
		before := goroutines("")
		s := d.st.open()
		ctx, cancel := context.WithCancel(context.Background())
		a := d.st.ask(ctx, s, query{progress: true})
		v := d.next()
		if !soon(x.atMost, func() bool { return d.st.Announce() > 0 }) {
			x.errorf("the session does not listen for changes")
		}
		cancel()
		d.st.wait(a)
		v.leave()
		d.st.works(s)
		if err := s.Close(); err != nil {
			x.errorf("Close: %v", err)
		}
		// A goroutine may have said that it has ended and still be on its last step.
		var left []string
		if !soon(4*quiet, func() bool {
			left = nil
			for id, stack := range goroutines(packageOf(s)) {
				if _, old := before[id]; !old {
					left = append(left, stack)
				}
			}
			return len(left) == 0
		}) {
			x.errorf("after Close %d goroutines of the session still run:\n%s", len(left), strings.Join(left, "\n\n"))
		}
		d.st.end()
		if !soon(2*promptly, func() bool { return runtime.NumGoroutine() <= count }) {
			x.errorf("%d goroutines run after everything was stopped; there were %d", runtime.NumGoroutine(), count)
		}
	}},
}

func (a *asking) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.notes...)
}

// soon is a ctx with the suite's atMost. It outlives the call that it is for, which must not depend on its end.
func (st *scene) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), st.x.atMost)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// afterDeath reports unless the session either says that it is done, or serves on: over some transports a server can come back.
// A call or two may find out first.
func (st *scene) afterDeath(s gateway.UpstreamSession) {
	st.x.t.Helper()
	end := time.Now().Add(promptly)
	for first := true; ; first = false {
		if closed(s.Done()) {
			st.failed(st.call(s, query{name: "works"}), gateway.NotSent)
			if _, err := st.x.list(s); err == nil {
				st.x.errorf("Tools of a dead session gave no error")
			}
			return
		}
		if !first {
			if a := st.call(s, query{name: "works"}); a.Failure == nil {
				st.answered(a, st.x.own(a.mark))
				return
			}
		}
		if time.Now().After(end) {
			st.x.errorf("%v after its server died the session neither serves nor is Done", promptly)
			return
		}
		time.Sleep(quiet)
	}
}

// isClosed reports unless a session is over for good.
func (st *scene) isClosed(s gateway.UpstreamSession) {
	st.x.t.Helper()
	if !closed(s.Done()) {
		st.x.errorf("Done is open after Close")
	}
	st.failed(st.call(s, query{name: "works"}), gateway.NotSent)
	if _, err := st.x.list(s); err == nil {
		st.x.errorf("Tools of a closed session gave no error")
	}
	if !within(st.x.atMost, func() { _ = s.Close() }) {
		st.x.errorf("Close of a closed session did not return")
	}
}

// packageOf is the package of a session's type.
func packageOf(s gateway.UpstreamSession) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

// goroutines gives the stacks of the goroutines that run code of a package, or were started by it, by their heading; "" for all. Those
// of tests and of this suite are left out.
func goroutines(pkg string) map[string]string {
	b := make([]byte, 4<<20)
	b = b[:runtime.Stack(b, true)]
	found := map[string]string{}
	for stack := range strings.SplitSeq(string(b), "\n\n") {
		id, _, _ := strings.Cut(stack, " [") // "goroutine 12"
		if pkg != "" && (!strings.Contains(stack, pkg+".") || strings.Contains(stack, "/upstreamsuite.go:") || strings.Contains(stack, "testing.(*T).Run(")) {
			continue
		}
		found[id] = stack
	}
	return found
}
