package main

import (
	"encoding/json"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain lets the test binary play the roles that the bench starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-role" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestMembers(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", `{}`, ``},
		{"scalars", `{"a":1,"b":"x","c":null}`, `a=1;b="x";c=null;`},
		{"blanks", " {\n\"a\" : [1, {\"b\":\"}]\"}] , \"c\":{ }} ", `a=[1, {"b":"}]"}];c={ };`},
		{"escapes", `{"a":"\\\"","b":"\\\\","c":"x\"y"}`, `a="\\\"";b="\\\\";c="x\"y";`},
		{"no object", `[1]`, ``},
	} {
		got := ""
		members([]byte(tc.in), func(k, v []byte) { got += string(k) + "=" + string(v) + ";" })
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestSeenPage(t *testing.T) {
	p := seenPage{msg: []byte(`{"jsonrpc":"2.0","id":100,"result":{}}`), id: 100}
	for _, tc := range []struct {
		msg  string
		want bool
	}{
		{`{"jsonrpc":"2.0","id":101,"result":{}}`, true},
		{`{"jsonrpc":"2.0","id":102,"result":{}}`, false},
		{`{"jsonrpc":"2.0","id":101,"result":[]}`, false},
		{`{"jsonrpc":"2.0","id":101,"result":{ }}`, false},
	} {
		if got := p.same([]byte(tc.msg), 101); got != tc.want {
			t.Errorf("%s: %v", tc.msg, got)
		}
	}
}

func TestFigures(t *testing.T) {
	w := workload{name: "w", added: true}
	var samples []sample
	for i, p50 := range [][3]float64{{10, 20, 21}, {10, 30, 32}, {10, 9, 50}, {10, 20, 25}} {
		for j, n := range []string{"direct", "floor", "aduana"} {
			samples = append(samples, sample{Workload: "w", Round: i, Target: n, P50: p50[j], RPS: 1 / p50[j]})
		}
	}
	f := compare(w, "aduana", "floor", samples)
	if f.Dropped != 1 || f.Median != 1.1 || f.Low != 1.1 || f.High != 1.5 {
		t.Errorf("added: %+v", f)
	}
	w.added = false
	f = compare(w, "floor", "direct", samples)
	if len(f.Ratios) != 4 || f.Ratios[0] != 0.5 || math.Abs(f.Median-0.5) > 1e-9 {
		t.Errorf("throughput: %+v", f)
	}
}

// TestUpstreamAndGenerator lets the two raw ends talk to each other.
func TestUpstreamAndGenerator(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := render(25, 10)
	var sessions atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); a.serve(c, &sessions) }()
		}
	}()
	up := &target{name: "direct", addr: l.Addr().String()}
	for _, legacy := range []bool{false, true} {
		c, err := dial(up, "", legacy)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		for i := range 3 {
			for name, j := range map[string]job{"echo": echoJob(up), "blob": blobJob(up), "list": listJob(25)} {
				if err := j(c, i); err != nil {
					t.Errorf("legacy %v: %s: %v", legacy, name, err)
				}
			}
		}
		// The checks can fail.
		if listJob(24)(c, 0) == nil {
			t.Error("a listing with one tool too many passes")
		}
		if _, err := c.do("no/such", "", ""); err == nil || !strings.Contains(err.Error(), "-32601") {
			t.Errorf("unknown method: %v", err)
		}
		lying := &target{addr: up.addr, prefix: "not-"}
		if blobJob(lying)(c, 0) == nil {
			t.Error("an echo passes for a blob")
		}
	}
	if sessions.Load() != 1 {
		t.Errorf("%d sessions", sessions.Load())
	}
}

// TestRunsWithoutAduana is the whole program, small, against the floor.
func TestRunsWithoutAduana(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.json")
	o := options{tools: 20, page: 8, targets: "direct,floor", work: "echo1,list,blob", era: "modern", rounds: 2, dur: 20 * time.Millisecond, jsonOut: out}
	if err := runBench(o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Figures []figure
		Samples []sample
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Figures) != 3 || len(got.Samples) != 3*2*2 {
		t.Errorf("%d figures, %d samples", len(got.Figures), len(got.Samples))
	}
	// The order of a pair alternates.
	if s := got.Samples; s[0].Target != "direct" || s[2].Target != "floor" {
		t.Errorf("order %s, %s, %s, %s", s[0].Target, s[1].Target, s[2].Target, s[3].Target)
	}
}

func TestPolicyViewsDiffer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := writePolicy(path, httpTransport("127.0.0.1:1"), 10, 3); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Grants []struct{ Capabilities []string }
	}
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range p.Grants {
		got = append(got, strings.Join(g.Capabilities, " "))
	}
	want := "bench.base bench.part-0 bench.part-1 bench.part-2|bench.base bench.part-0 bench.part-2|bench.base bench.part-0 bench.part-1"
	if strings.Join(got, "|") != want {
		t.Errorf("granted %s", strings.Join(got, "|"))
	}
}
