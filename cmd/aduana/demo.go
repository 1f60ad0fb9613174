package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aduana/adapters/auditfile"
	"aduana/adapters/mcphttp"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/mcp"
	"aduana/policy"
)

//go:embed demo.yaml
var demoPolicy string

// demoKey is the variable that the demo's policy reads its client's key from. The key is made anew each time.
const demoKey = "ADUANA_DEMO_KEY"

func newDemo(p *printer) *cobra.Command {
	var once bool
	var listen string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a minute what a gateway decides, with nothing installed",
		Long: "demo runs a real gateway in front of two small MCP servers that are part of this program, asks it what a client would ask,\n" +
			"and says what it decided and why. Then it keeps serving, so that you can ask yourself.",
		Args: operands(),
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(p, listen, once) },
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the walk")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`HOST:PORT` to listen on")
	return cmd
}

func demo(p *printer, listen string, once bool) error {
	ctx, disarm := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer disarm()
	var random [16]byte
	_, _ = rand.Read(random[:])
	key := hex.EncodeToString(random[:])
	if err := os.Setenv(demoKey, key); err != nil {
		return cannot(err, "")
	}
	dir, err := os.MkdirTemp("", "aduana-demo-")
	if err != nil {
		return cannot(err, "")
	}
	defer os.RemoveAll(dir)
	audit := filepath.Join(dir, "audit.jsonl")

	in, err := demoInput()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	h, err := compose(in, []string{"file:" + audit}, log, p.err)
	if err != nil {
		return err
	}
	defer h.close()
	if err := acceptDemo(ctx, h, in); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return cannot(fmt.Errorf("listen: %w", err), "choose another port with --listen")
	}
	url := "http://" + listener.Addr().String() + "/mcp"
	server := mcphttp.NewServer(h.gateway, mcphttp.Options{Log: log, Health: func() mcphttp.Health {
		return mcphttp.Health{Version: productVersion, Policy: h.gateway.Snapshot().Version}
	}})
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Run(serving, listener) }()

	w := &walk{p: p, url: url, key: key, snapshot: h.gateway.Snapshot}
	if err := w.run(ctx); err != nil {
		return cannot(err, "")
	}
	if err := w.audit(audit); err != nil {
		return cannot(err, "")
	}
	if !once {
		p.line("")
		p.line("The gateway goes on. Point an MCP client at it, and end it with ctrl-c:")
		p.line("  url     %s", url)
		p.line("  header  Authorization: Bearer %s", key)
		p.line("For example:")
		p.line("  curl -s %s -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\", url, key)
		p.line("    -H 'MCP-Protocol-Version: %s' -H 'Mcp-Method: tools/list' \\", mcp.LatestModern)
		p.line(`    -d '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"%s":"%s","%s":{}}}}'`, mcp.MetaVersion, mcp.LatestModern, mcp.MetaCapabilities)
		p.note("listening on %s", url)
		<-ctx.Done()
	}
	stop()
	if err := <-served; err != nil {
		return cannot(err, "")
	}
	return nil
}

// demoInput compiles the embedded policy. Its upstreams are this program itself, under hidden commands.
func demoInput() (assembly.Input, error) {
	self, err := os.Executable()
	if err != nil {
		return assembly.Input{}, cannot(err, "")
	}
	compiler, err := policy.NewCompiler()
	if err != nil {
		return assembly.Input{}, cannot(err, "")
	}
	r := compiler.Compile([]byte(demoPolicy), policy.Options{Origin: "policy"})
	if r.Policy == nil {
		return assembly.Input{}, cannot(fmt.Errorf("the demo's own policy is wrong: %s", r.Diagnostics[0].Message), "")
	}
	for i := range r.Policy.Upstreams {
		// The policy says `aduana`, which is on nobody's PATH yet.
		r.Policy.Upstreams[i].Command = self
	}
	return assembly.Input{Policy: r.Policy, Document: r.Document, Version: "demo"}, nil
}

// acceptDemo accepts what the two servers list, in memory.
func acceptDemo(ctx context.Context, h *house, in assembly.Input) error {
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: "demo"}
	for _, u := range in.Policy.Upstreams {
		id := capabilities.UpstreamID(u.ID)
		tools, err := h.gateway.Survey(ctx, id)
		if err != nil {
			return cannot(fmt.Errorf("upstream %s: %w", id, err), "")
		}
		locked := assembly.LockedUpstream{Binding: h.gateway.Snapshot().Bindings[id]}
		for _, t := range tools {
			pin, err := assembly.Accept(id, t, capabilities.NoVerdict, "demo", time.Now().UTC().Format(time.RFC3339))
			if err != nil {
				return cannot(err, "")
			}
			locked.Tools = append(locked.Tools, pin)
		}
		lock.Upstreams[id] = locked
	}
	h.declare(in.Policy, in.Document, in.Version, lock)
	return nil
}

// walk asks the gateway what a client would ask, over HTTP, and shows the answers.
type walk struct {
	p        *printer
	url, key string
	snapshot func() *assembly.Snapshot
	step     int
}

func (w *walk) title(format string, args ...any) {
	w.step++
	if w.step > 1 {
		w.p.line("")
	}
	w.p.line("%d. %s", w.step, fmt.Sprintf(format, args...))
}

func (w *walk) run(ctx context.Context) error {
	w.title("What exists: tools/list as agent \"desk\" of team support")
	names, err := w.list(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		w.p.line("   %s", n)
	}
	w.p.line("   Both servers offer more. What no grant gives is not listed.")

	w.title("A call that a grant covers")
	if err := w.call(ctx, "notes__add_note", `{"text":"call Ana back"}`); err != nil {
		return err
	}

	w.title("A tool that exists and is granted to nobody here")
	if err := w.call(ctx, "billing__issue_invoice", `{"customer":"ana","cents":990}`); err != nil {
		return err
	}

	w.title("A ceiling: at most two refunds in any hour")
	for range 3 {
		if err := w.call(ctx, "billing__refund", `{"invoice":"2026-17"}`); err != nil {
			return err
		}
	}

	w.title("Two tools that a reader would confuse: neither is served, and the rest is")
	for _, f := range w.snapshot().Findings {
		w.p.line("   %s", f)
	}
	if err := w.call(ctx, "notes__Export", `{}`); err != nil {
		return err
	}

	w.title("A server changes a tool after it was accepted")
	if err := w.call(ctx, "notes__update_server", `{}`); err != nil {
		return err
	}
	if err := w.until(ctx, func() bool {
		t, ok := w.snapshot().Lookup("", "notes__read_notes")
		return ok && t.Withheld == capabilities.DefinitionChanged
	}); err != nil {
		return err
	}
	for _, f := range w.snapshot().Findings {
		if f.Reason == capabilities.DefinitionChanged {
			w.p.line("   %s", f)
		}
	}
	return w.call(ctx, "notes__read_notes", `{}`)
}

// until waits for what a server does in its own time.
func (w *walk) until(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the changed tool was not noticed in time")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (w *walk) audit(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := auditfile.Verify(f)
	if err != nil {
		return err
	}
	w.title("All of it is on record, each record chained to the one before")
	w.p.line("   %d records, %d calls begun, %d without an outcome; the chain holds", r.Records, r.Intents, len(r.Open))
	w.p.line("   head %s", r.Head)
	return nil
}

func (w *walk) list(ctx context.Context) ([]string, error) {
	answer, err := w.ask(ctx, mcp.MethodToolsList, "", "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range answer.Result.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

// call shows one call and its answer, with the line of the policy that a refusal names.
func (w *walk) call(ctx context.Context, name, arguments string) error {
	answer, err := w.ask(ctx, mcp.MethodToolsCall, name, `"name":"`+name+`","arguments":`+arguments+`,`)
	if err != nil {
		return err
	}
	w.p.line("   %s %s", name, arguments)
	if answer.Error.Message != "" {
		w.p.line("   → error %d: %s", answer.Error.Code, answer.Error.Message)
		return nil
	}
	for _, c := range answer.Result.Content {
		w.p.line("   → %s", c.Text)
	}
	// A missing grant has no line of its own: its place is the list of grants.
	if d := answer.Result.Meta.Decision; d.Place != "" && d.Code != "no_grant_matches" {
		place := d.Place
		var line, column int
		if _, err := fmt.Sscanf(place, "policy:%d:%d", &line, &column); err == nil {
			w.p.line("     %s │ %s", place, strings.Split(demoPolicy, "\n")[line-1])
		}
	}
	return nil
}

// reply is what the walk reads of an answer.
type demoReply struct {
	Result struct {
		Tools   []struct{ Name string }
		Content []struct{ Text string }
		Meta    struct {
			Decision struct{ Code, Place string } `json:"aduana/decision"`
		} `json:"_meta"`
	}
	Error struct {
		Code    int
		Message string
	}
}

func (w *walk) ask(ctx context.Context, method, name, params string) (demoReply, error) {
	var reply demoReply
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"` + mcp.MetaVersion + `":"` + mcp.LatestModern +
		`","` + mcp.MetaCapabilities + `":{}}}}`
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply, err
	}
	rq.Header.Set("Authorization", "Bearer "+w.key)
	rq.Header.Set("Content-Type", "application/json")
	rq.Header.Set("Accept", "application/json, text/event-stream")
	rq.Header.Set("MCP-Protocol-Version", mcp.LatestModern)
	rq.Header.Set("Mcp-Method", method)
	if name != "" {
		rq.Header.Set("Mcp-Name", mcp.EncodeHeader(name))
	}
	rs, err := http.DefaultClient.Do(rq)
	if err != nil {
		return reply, err
	}
	defer rs.Body.Close()
	b, err := io.ReadAll(rs.Body)
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal(b, &reply); err != nil {
		return reply, fmt.Errorf("the gateway answered %s: %s", rs.Status, b)
	}
	return reply, nil
}
