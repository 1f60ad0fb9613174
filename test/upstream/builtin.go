package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Canary is the made-up secret that the tool noisy writes to stderr.
const Canary = "sk-CANARY-1"

// Builtins is the names of the ready-made tools, sorted.
func Builtins() []string { return slices.Sorted(maps.Keys(builtins())) }

// Builtin is a ready-made tool by its name.
func Builtin(name string) (Tool, error) {
	b, ok := builtins()[name]
	if !ok {
		return Tool{}, fmt.Errorf("tool %q: want one of %s", name, strings.Join(Builtins(), ", "))
	}
	return Tool{Name: name, Handler: b.handler, Definition: json.RawMessage(
		`{"name":` + quote(name) + `,"description":` + quote(b.about) +
			`,"inputSchema":{"type":"object","properties":{` + b.properties + `}}}`)}, nil
}

type builtin struct {
	about      string
	properties string
	handler    Handler
}

func builtins() map[string]builtin {
	return map[string]builtin{
		"echo":     {"Returns the text argument, or all arguments as they came.", `"text":{"type":"string"}`, echo},
		"add":      {"Adds a and b.", `"a":{"type":"integer"},"b":{"type":"integer"}`, add},
		"raw":      {"Returns params verbatim as structuredContent.", ``, raw},
		"count":    {"Returns how often it was called in this process.", ``, count},
		"fail":     {"Answers with isError.", ``, func(_ context.Context, c *Call) { c.ReplyToolError("failed on purpose") }},
		"error":    {"Answers with JSON-RPC error -32603.", ``, func(_ context.Context, c *Call) { c.ReplyError(-32603, "broken on purpose", nil) }},
		"printenv": {"Returns the environment, one NAME=value a line.", ``, printenv},
		"args":     {"Returns the command line as a JSON array.", ``, args},
		"cwd":      {"Returns the working directory.", ``, cwd},
		"pid":      {"Returns the process id.", ``, func(_ context.Context, c *Call) { c.ReplyText(strconv.Itoa(os.Getpid())) }},
		"fds":      {"Returns the open file descriptors, NUMBER TARGET a line.", ``, fds},
		"noisy":    {"Writes 256 KiB to stderr, a canary in it, before it answers; cr: without newlines.", `"cr":{"type":"boolean"}`, noisy},
		"dump":     {"Returns n bytes of text.", `"n":{"type":"integer"}`, dump},
		"flood":    {"Returns n bytes of text without ever holding them; json: over HTTP without a length, else as one event.", `"n":{"type":"integer"},"json":{"type":"boolean"}`, flood},
		"sleep":    {"Waits ms milliseconds; no answer when cancelled.", `"ms":{"type":"integer"}`, sleep},
		"late":     {"Answers after ms milliseconds, cancelled or not.", `"ms":{"type":"integer"}`, late},
		"hang":     {"Never answers.", ``, func(ctx context.Context, _ *Call) { <-ctx.Done() }},
		"progress": {"Reports progress n times, ms apart, then answers.", `"n":{"type":"integer"},"ms":{"type":"integer"}`, progress},
		"garbage":  {"Sends lines that are no messages before the answer; glued: a log line without a newline in front of it.", `"glued":{"type":"boolean"}`, garbage},
		"strayids": {"Answers with wrong ids, then the right one twice.", ``, strayids},
		"crash":    {"Kills its own process.", ``, func(_ context.Context, c *Call) { c.Die() }},
		"closeout": {"Closes its output and stays alive.", ``, func(ctx context.Context, c *Call) { c.Abort(); <-ctx.Done() }},
		"spawn":    {"Starts a grandchild that holds stdout and stderr open; returns its process id.", `"ms":{"type":"integer"}`, spawn},
	}
}

// input is the arguments of all built-in tools.
type input struct {
	Text  *string `json:"text"`
	A     int     `json:"a"`
	B     int     `json:"b"`
	N     int64   `json:"n"`
	Ms    int     `json:"ms"`
	CR    bool    `json:"cr"`
	JSON  bool    `json:"json"`
	Glued bool    `json:"glued"`
}

func read(c *Call) (in input, ok bool) {
	if c.Arguments == nil {
		return in, true
	}
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		c.ReplyToolError("arguments: " + err.Error())
		return in, false
	}
	return in, true
}

func (in input) wait() time.Duration { return time.Duration(in.Ms) * time.Millisecond }

func echo(_ context.Context, c *Call) {
	var in input
	if json.Unmarshal(c.Arguments, &in) == nil && in.Text != nil {
		c.ReplyText(*in.Text)
		return
	}
	c.ReplyText(string(c.Arguments))
}

func add(_ context.Context, c *Call) {
	if in, ok := read(c); ok {
		c.ReplyText(strconv.Itoa(in.A + in.B))
	}
}

func raw(_ context.Context, c *Call) {
	c.Reply(join(`{"content":[],"structuredContent":`, c.Params, c.resultType(), `}`))
}

func count(_ context.Context, c *Call) { c.ReplyText(strconv.Itoa(c.Server.Calls(c.Name))) }

func printenv(_ context.Context, c *Call) {
	env := os.Environ()
	slices.Sort(env)
	c.ReplyText(strings.Join(env, "\n"))
}

func args(_ context.Context, c *Call) {
	b, _ := json.Marshal(os.Args)
	c.ReplyText(string(b))
}

func cwd(_ context.Context, c *Call) {
	dir, err := os.Getwd()
	if err != nil {
		c.ReplyToolError(err.Error())
		return
	}
	c.ReplyText(dir)
}

// fds reads /proc, which only Linux has. The Go runtime's own descriptors are
// among them, with targets that begin with "anon_inode:".
func fds(_ context.Context, c *Call) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.ReplyToolError(err.Error())
		return
	}
	var b strings.Builder
	for _, e := range entries {
		// The descriptor that listed the folder is closed by now.
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			fmt.Fprintln(&b, e.Name(), target)
		}
	}
	c.ReplyText(b.String())
}

func noisy(_ context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	end := "\n"
	if in.CR {
		end = "\r"
	}
	line := strings.Repeat("n", 50) + " " + Canary + " " + end
	for n := 0; n < 256<<10; n += len(line) {
		io.WriteString(c.Stderr(), line)
	}
	c.ReplyText("noise made")
}

func dump(_ context.Context, c *Call) {
	if in, ok := read(c); ok {
		c.ReplyText(strings.Repeat("a", int(in.N)))
	}
}

func flood(_ context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	c.ReplyFrom(io.MultiReader(
		strings.NewReader(`{"jsonrpc":"2.0","id":`+string(c.ID)+`,"result":{"content":[{"type":"text","text":"`),
		io.LimitReader(letters{}, in.N),
		strings.NewReader(`"}]`+c.resultType()+`}}`)), in.JSON)
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func sleep(ctx context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	select {
	case <-time.After(in.wait()):
		c.ReplyText("slept")
	case <-ctx.Done():
	}
}

// late ends early only with the server, so that no test waits for it.
func late(_ context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	select {
	case <-time.After(in.wait()):
		c.ReplyText("late")
	case <-c.Server.ctx.Done():
	}
}

func progress(ctx context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	for i := range in.N {
		select {
		case <-time.After(in.wait()):
		case <-ctx.Done():
			return
		}
		c.Progress(float64(i+1), float64(in.N))
	}
	c.ReplyText("done")
}

// GarbageLines is what the tool garbage sends before its answer.
func GarbageLines() []string {
	return []string{
		"fake server 1.0 starting", `{"level":"info","msg":"x"}`, `{"id":1,"msg":"x"}`, "null", "[]",
		"\ufeff" + `{"jsonrpc":"2.0","method":"notifications/message"}`, "carriage return\r", "line\u2028separator", `{"jsonrpc":"2.0","id":`,
	}
}

func garbage(_ context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	for _, l := range GarbageLines() {
		c.Emit([]byte(l))
	}
	if in.Glued {
		c.Write([]byte("a log line without its newline"))
	}
	c.ReplyText("after the garbage")
}

func strayids(_ context.Context, c *Call) {
	wrong := []byte(`{"content":[{"type":"text","text":"for somebody else"}]` + c.resultType() + `}`)
	quoted := `"` + string(c.ID) + `"`
	if strings.HasPrefix(string(c.ID), `"`) {
		quoted = strings.Trim(string(c.ID), `"`)
		if _, err := strconv.Atoi(quoted); err != nil {
			quoted = "0"
		}
	}
	for _, id := range []string{quoted, "0", "null", "987654321", `"nobody"`} {
		c.Emit(Result([]byte(id), wrong))
	}
	c.ReplyText("for you")
	c.ReplyText("for you again")
}

func spawn(_ context.Context, c *Call) {
	in, ok := read(c)
	if !ok {
		return
	}
	if in.Ms == 0 {
		in.Ms = 60_000
	}
	self, err := os.Executable()
	if err == nil {
		cmd := exec.Command(self, grandchildArg, strconv.Itoa(in.Ms))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err = cmd.Start(); err == nil {
			go cmd.Wait()
			c.ReplyText(strconv.Itoa(cmd.Process.Pid))
			return
		}
	}
	c.ReplyToolError(err.Error())
}

// Gate is a handler for tests that decide when a call ends: each call waits
// until Open, or gives up with its ctx.
type Gate struct {
	open    chan struct{}
	waiting atomic.Int64
}

// NewGate makes a closed gate.
func NewGate() *Gate { return &Gate{open: make(chan struct{})} }

// Open lets all calls through, now and later. Call it once.
func (g *Gate) Open() { close(g.open) }

// Waiting is the number of calls at the gate.
func (g *Gate) Waiting() int { return int(g.waiting.Load()) }

// Handle is the [Handler].
func (g *Gate) Handle(ctx context.Context, c *Call) {
	g.waiting.Add(1)
	c.Server.log.wake()
	defer g.waiting.Add(-1)
	select {
	case <-g.open:
		c.ReplyText("through")
	case <-ctx.Done():
	}
}
