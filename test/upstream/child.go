package upstream

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	childArg      = "mcpfake-child"
	grandchildArg = "mcpfake-grandchild"
	// ChildEnv, when set to mcpfake's arguments separated by blanks, makes
	// MainIfChild run them. For the rare test that needs argv for itself.
	ChildEnv = "MCPFAKE_ARGS"
)

// MainIfChild runs the server and exits if this process was started as a child
// by [Command] (or with ChildEnv); otherwise it returns at once. Call it first
// in TestMain, and a test binary is its own stdio server:
//
//	func TestMain(m *testing.M) { upstream.MainIfChild(); os.Exit(m.Run()) }
func MainIfChild() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == grandchildArg:
		ms, _ := strconv.Atoi(os.Args[len(os.Args)-1])
		time.Sleep(time.Duration(ms) * time.Millisecond)
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == childArg:
		os.Exit(Main(os.Args[2:]))
	case os.Getenv(ChildEnv) != "":
		os.Exit(Main(strings.Fields(os.Getenv(ChildEnv))))
	}
}

// Command is the program and arguments that run this very executable as the
// server with mcpfake's flags, for a process whose main or TestMain calls
// MainIfChild.
func Command(flags ...string) (program string, args []string, err error) {
	program, err = os.Executable()
	return program, append([]string{childArg}, flags...), err
}

// Main is the program mcpfake: it reads flags, serves, and returns the exit
// code.
func Main(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "mcpfake:", err)
		return 1
	}
	return 0
}

func run(args []string) error {
	fs := flag.NewFlagSet("mcpfake", flag.ContinueOnError)
	var (
		tools      = fs.String("tools", "", "built-in tools, comma-separated, or all: "+strings.Join(Builtins(), ", "))
		named      = fs.String("named", "", "further tools, comma-separated, that answer server=NAME tool=TOOL")
		fillers    = fs.Int("fillers", 0, "this many further tools, tool_00000 and so on")
		defs       = fs.String("definitions", "", "file with a JSON array of whole tool objects, listed verbatim")
		addr       = fs.String("http", "", "serve HTTP on this address instead of stdio")
		era        = fs.String("era", "both", "legacy, modern or both")
		probe      = fs.String("probe", "default", "legacy only, answer to server/discover: default, notfound, unsupported, legacylist, hang")
		page       = fs.Int("page", 0, "tools/list page size; 0 is all")
		record     = fs.String("record", "", "append every message to this file, one JSON object a line")
		name       = fs.String("name", "fake", "server name")
		bearer     = fs.String("bearer", "", "HTTP: required bearer token")
		sse        = fs.Bool("sse", false, "HTTP: answer as an event stream")
		banner     = fs.String("banner", "", "stdio: a line on stdout before anything")
		stderr     = fs.String("stderr", "", "a line on stderr before anything")
		ignoreEOF  = fs.Bool("ignore-eof", false, "stdio: stay after stdin ends")
		ignoreTerm = fs.Bool("ignore-term", false, "ignore SIGTERM")
		delay      = fs.Duration("delay", 0, "wait before serving")
		life       = fs.Duration("life", 5*time.Minute, "end after this time whatever happens, so that nothing outlives its test for long")
	)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("argument %q: only flags are known", fs.Arg(0))
	}
	time.AfterFunc(*life, func() { os.Exit(3) })
	cfg := Config{Name: *name, PageSize: *page, RequireBearer: *bearer, SSE: *sse, IgnoreEOF: *ignoreEOF, Stderr: os.Stderr, Die: kill}
	var err error
	if cfg.Eras, err = ParseEras(*era); err != nil {
		return err
	}
	if cfg.Probe, err = ParseProbe(*probe); err != nil {
		return err
	}
	if cfg.Tools, err = choose(*tools, *named, *fillers, *defs, *name); err != nil {
		return err
	}
	if *banner != "" {
		cfg.Banner = *banner + "\n"
	}
	if *stderr != "" {
		fmt.Fprintln(os.Stderr, *stderr)
	}
	if *ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	if *record != "" {
		// Appended in one write each, so several processes may share the file.
		f, err := os.OpenFile(*record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		cfg.Record = f
	}
	time.Sleep(*delay)
	s := New(cfg)
	defer s.Close()
	if *addr == "" {
		return s.Serve(context.Background(), os.Stdin, os.Stdout)
	}
	url, err := s.Listen(*addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "listening on", url)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	<-ctx.Done()
	return nil
}

// kill ends this process the hard way: no deferred call runs, nothing is
// flushed.
func kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		p.Kill()
	}
	select {}
}

func choose(tools, named string, fillers int, defs, server string) ([]Tool, error) {
	var out []Tool
	if tools == "all" {
		tools = strings.Join(Builtins(), ",")
	}
	for _, n := range split(tools) {
		t, err := Builtin(n)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for _, n := range split(named) {
		out = append(out, Named(server, n))
	}
	for i := range fillers {
		out = append(out, Filler(server, i))
	}
	if defs == "" {
		return out, nil
	}
	f, err := os.Open(defs)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s: want a JSON array of tools: %w", defs, err)
	}
	for _, d := range list {
		var n string
		json.Unmarshal(object(d)["name"], &n)
		t := Named(server, n)
		t.Definition = d
		out = append(out, t)
	}
	return out, nil
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// Named is a tool that answers which server and tool were reached.
func Named(server, tool string) Tool {
	return Tool{Name: tool, Handler: func(_ context.Context, c *Call) { c.ReplyText("server=" + server + " tool=" + tool) }}
}

// Filler is the i-th of many tools, with a definition of ordinary size.
func Filler(server string, i int) Tool {
	t := Named(server, fmt.Sprintf("tool_%05d", i))
	t.Definition = json.RawMessage(`{"name":"` + t.Name + `","description":"Looks up the records of kind ` + strconv.Itoa(i) +
		` and returns them with their fields, newest first.","inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"Identifier of the record."},"limit":{"type":"integer","minimum":1,"maximum":500}},"required":["id"]}}`)
	return t
}
