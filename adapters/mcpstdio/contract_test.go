package mcpstdio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"aduana/adapters/mcpstdio"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/test/upstream"
)

func TestUpstreamContract(t *testing.T) {
	variable := func(name string) gatewaytest.Delivery {
		return gatewaytest.Delivery{Deliver: policy.Deliver{Kind: policy.DeliverEnv, Name: name, Declared: true}, Place: "env " + name}
	}
	gatewaytest.RunUpstream(t, gatewaytest.UpstreamCase{Start: stage, Deliveries: []gatewaytest.Delivery{
		variable("VENDOR_TOKEN"), variable(policy.DefaultCredentialVariable),
	}})
}

// stage puts scripted servers of this process behind children: each child carries its pipes to a server of its own over loopback,
// so that a script is code of the test and still everything goes through a real process.
func stage(s gatewaytest.Script) (gatewaytest.Stage, error) {
	cfg := upstream.Config{Eras: upstream.LegacyOnly, Methods: map[string]upstream.Handler{}}
	if s.Era == mcp.Modern {
		cfg.Eras = upstream.ModernOnly
	}
	for method, h := range s.Methods {
		cfg.Methods[method] = func(ctx context.Context, c *upstream.Call) {
			h(ctx, &gatewaytest.ScriptCall{ScriptWire: c, Raw: c.Raw, ID: c.ID, Token: c.Token, Params: c.Params, Name: c.Name})
		}
	}
	self, err := os.Executable()
	if err != nil {
		return gatewaytest.Stage{}, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return gatewaytest.Stage{}, err
	}
	a := &annex{cfg: cfg}
	a.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.running.Go(func() { a.serve(conn) })
		}
	})
	adapter := mcpstdio.NewUpstream(mcpstdio.UpstreamOptions{Product: mcp.Implementation{Name: "aduana", Version: "test"}, Grace: 300 * time.Millisecond})
	u := &policy.Upstream{ID: "up", Transport: policy.TransportStdio, Command: self,
		Args: []policy.Value{{Literal: "-test.run=^TestContractChild$"}, {Literal: l.Addr().String()}},
		// A program built with -race sleeps for a second before it ends, unless told otherwise.
		Env: []policy.NamedValue{{Name: "GORACE", Value: policy.Value{Literal: "atexit_sleep_ms=0"}}}}
	return gatewaytest.Stage{Upstream: adapter, Target: gateway.Target{Upstream: u, Binding: "sha256:binding"},
		Heard: a.heard, Announce: a.announce, Die: a.kill,
		Stop: func() {
			l.Close()
			a.kill()
			a.running.Wait()
		}}, nil
}

// annex is the servers behind the children of one stage.
type annex struct {
	cfg     upstream.Config
	running sync.WaitGroup

	mu   sync.Mutex
	rows []row
}

type row struct {
	child  birth
	conn   net.Conn
	server *upstream.Server
}

// birth is the line with which a child says what it was given.
type birth struct {
	Env  []string
	Args []string
}

func (a *annex) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	r := row{conn: conn, server: upstream.New(a.cfg)}
	defer r.server.Close()
	line, err := in.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &r.child) != nil {
		return
	}
	a.mu.Lock()
	a.rows = append(a.rows, r)
	a.mu.Unlock()
	r.server.Serve(context.Background(), in, conn)
}

func (a *annex) all() []row {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]row(nil), a.rows...)
}

func (a *annex) heard() []gatewaytest.Heard {
	var all []gatewaytest.Heard
	for i, r := range a.all() {
		places := map[string]string{}
		for _, v := range r.child.Env {
			name, value, _ := strings.Cut(v, "=")
			places["env "+name] = value
		}
		for i, v := range r.child.Args {
			places[fmt.Sprint("argument ", i)] = v
		}
		for _, m := range r.server.Messages() {
			all = append(all, gatewaytest.Heard{Raw: m.Body, Places: places, Conversation: fmt.Sprint("child ", i)})
		}
	}
	return all
}

func (a *annex) announce() (n int) {
	for _, r := range a.all() {
		n += r.server.NotifyToolsChanged()
	}
	return n
}

// kill ends the children: one that has nowhere to carry to exits at once.
func (a *annex) kill() {
	for _, r := range a.all() {
		r.conn.Close()
		r.server.Close()
	}
}

// TestContractChild is no test: it is the child, when there is an address to carry to.
func TestContractChild(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("only a part of TestUpstreamContract")
	}
	time.AfterFunc(time.Minute, func() { os.Exit(3) })
	conn, err := net.Dial("tcp", flag.Arg(0))
	if err != nil {
		os.Exit(1)
	}
	line, _ := json.Marshal(birth{os.Environ(), os.Args})
	conn.Write(append(line, '\n'))
	go func() {
		io.Copy(conn, os.Stdin)
		os.Exit(0)
	}()
	io.Copy(os.Stdout, conn)
	os.Exit(0) // before the testing package writes its own words to the output
}
