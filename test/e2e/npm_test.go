package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"aduana/test/e2e/rig"
)

// e2eEnv names the folder of npm packages; the script "run" installs them and sets it.
const e2eEnv = "ADUANA_E2E"

// maintainerKey is the other issuer's in examples/npm.
const maintainerKey = "the-other-key-of-the-tests-98765"

// shelf is the example in a folder of its own, with the real servers in reach.
type shelf struct {
	dir, policy, inspector string
	env                    []string
}

func npm(t *testing.T) shelf {
	t.Helper()
	modules := os.Getenv(e2eEnv)
	if modules == "" {
		t.Skip("NOT RUN: this needs the real servers and client from npm; test/e2e/run installs them and runs it")
	}
	s := shelf{dir: t.TempDir(), inspector: filepath.Join(modules, ".bin", "mcp-inspector")}
	if err := os.CopyFS(s.dir, os.DirFS(filepath.Join("..", "..", "examples", "npm"))); err != nil {
		t.Fatal(err)
	}
	s.policy = filepath.Join(s.dir, "policy.yaml")
	s.env = rig.Env(t, keyEnv, "ADUANA_MAINTAINER_KEY="+maintainerKey, "MEMORY_FILE_PATH="+filepath.Join(s.dir, "memory.json"))
	for i, v := range s.env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			s.env[i] = "PATH=" + filepath.Join(modules, ".bin") + string(os.PathListSeparator) + path
		}
	}
	return s
}

func (s shelf) path(name string) string { return filepath.Join(s.dir, name) }

// laptopTools is what the holder of the laptop's key sees.
func laptopTools() []string {
	return []string{
		"everything__echo", "everything__get-resource-links", "everything__get-structured-content", "everything__get-sum",
		"everything__get-tiny-image", "everything__trigger-long-running-operation",
		"files__directory_tree", "files__get_file_info", "files__list_allowed_directories", "files__list_directory",
		"files__read_text_file", "files__search_files",
		"memory__add_observations", "memory__create_entities", "memory__create_relations", "memory__open_nodes", "memory__read_graph",
		"memory__search_nodes",
		"thinking__sequentialthinking",
	}
}

// inspect runs the Inspector's CLI: target is what it is pointed at, before the method's flags and after them.
func (s shelf) inspect(t *testing.T, before, after []string, method ...string) (result json.RawMessage, r rig.Result) {
	t.Helper()
	args := append([]string{"--cli", "-q", "--format", "json"}, before...)
	args = append(append(args, method...), after...)
	r = rig.Run(t, s.env, time.Minute, s.inspector, args...)
	var out struct {
		Result json.RawMessage `json:"result"`
	}
	if r.Stdout != "" {
		if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil {
			t.Fatalf("the Inspector said %s%s: %v", r.Stdout, r.Stderr, err)
		}
	}
	return out.Result, r
}

func textOf(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var v struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(result, &v) != nil || len(v.Content) == 0 {
		return ""
	}
	return v.Content[0].Text
}

// TestNpmInspector: the official client, in both eras, over HTTP and over stdio.
func TestNpmInspector(t *testing.T) {
	s := npm(t)
	hello, err := os.ReadFile(s.path("files/hello.txt"))
	if err != nil {
		t.Fatal(err)
	}
	g := rig.Start(t, binary, s.env, s.policy, "--discover", "--audit", "file:"+s.path("http.jsonl"))
	for _, transport := range []string{"http", "stdio"} {
		images := 0
		for _, era := range []string{"legacy", "modern"} {
			t.Run(transport+"/"+era, func(t *testing.T) {
				before := []string{"--protocol-era", era}
				var after []string
				if transport == "http" {
					before = append(before, "--transport", "http", "--header", "Authorization: Bearer "+key, "--server-url", g.URL)
				} else {
					before = append(before, "-e", keyEnv, "-e", "ADUANA_MAINTAINER_KEY="+maintainerKey, "-e", "MEMORY_FILE_PATH="+s.path("memory.json"), "--cwd", s.dir)
					after = []string{"--", binary, "serve", s.policy, "--stdio", "--audit", "file:" + s.path("stdio.jsonl")}
				}
				result, r := s.inspect(t, before, after, "--method", "tools/list")
				var list struct {
					Tools []struct {
						Name string `json:"name"`
					} `json:"tools"`
				}
				json.Unmarshal(result, &list)
				var names []string
				for _, tool := range list.Tools {
					names = append(names, tool.Name)
				}
				slices.Sort(names)
				if !slices.Equal(names, laptopTools()) {
					t.Errorf("tools/list: exit %d, %q, want %q\n%s", r.Code, names, laptopTools(), r.Stderr)
				}
				call := func(tool string, args ...string) (json.RawMessage, rig.Result) {
					method := []string{"--method", "tools/call", "--tool-name", tool}
					for _, a := range args {
						method = append(method, "--tool-arg", a)
					}
					return s.inspect(t, before, after, method...)
				}
				if result, r := call("files__read_text_file", "path=hello.txt"); r.Code != 0 || textOf(t, result) != string(hello) {
					t.Errorf("reading a file: exit %d, %s%s; want %q", r.Code, result, r.Stderr, hello)
				}
				if result, r := call("everything__echo", "message=año 1"); r.Code != 0 || textOf(t, result) != "Echo: año 1" {
					t.Errorf("echo: exit %d, %s%s", r.Code, result, r.Stderr)
				}
				// Over HTTP one gateway counts for both eras, over stdio each client has its own.
				if transport == "stdio" {
					return
				}
				for range 2 {
					images++
					result, r := call("everything__get-tiny-image")
					if allowed := images <= 2; (r.Code == 0) != allowed {
						t.Errorf("picture %d: exit %d, %s%s", images, r.Code, result, r.Stderr)
					} else if !allowed && !strings.Contains(textOf(t, result), "limit_exhausted") {
						t.Errorf("picture %d was refused with %s%s, want limit_exhausted", images, result, r.Stderr)
					}
				}
				// The Inspector itself refuses to call what it was not shown.
				if _, r := call("files__write_file", "path=written.txt", "content=x"); r.Code == 0 {
					t.Error("a tool that is not granted was called")
				}
			})
		}
	}
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d:\n%s", code, g.Stderr.String())
	}
	if _, err := os.Stat(s.path("files/written.txt")); err == nil {
		t.Error("a file was written that nobody may write")
	}
	log := records(t, s.path("http.jsonl"))
	for _, x := range []struct {
		want    int
		members map[string]string
	}{
		{2, map[string]string{"event": "finish", "outcome": "invoked", "identity": "mcp:files:read_text_file", "issuer": "laptop"}},
		{2, map[string]string{"event": "finish", "outcome": "invoked", "identity": "mcp:everything:get-tiny-image"}},
		{2, map[string]string{"event": "note", "outcome": "denied", "identity": "mcp:everything:get-tiny-image", "code": "limit_exhausted"}},
	} {
		if n := count(log, x.members); n != x.want {
			t.Errorf("the audit has %d records with %v, want %d", n, x.members, x.want)
		}
	}
	for _, name := range []string{"http.jsonl", "stdio.jsonl"} {
		if r := verifies(t, s.path(name)); r.Code != 0 {
			t.Errorf("audit verify %s: exit %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// bearer adds a key to every request, as a client's configuration does.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// TestNpmGoSDK: the official Go client, in both eras, over HTTP and over stdio; and a denial that reaches the gateway.
func TestNpmGoSDK(t *testing.T) {
	s := npm(t)
	hello, err := os.ReadFile(s.path("files/hello.txt"))
	if err != nil {
		t.Fatal(err)
	}
	g := rig.Start(t, binary, s.env, s.policy, "--discover", "--audit", "file:"+s.path("http.jsonl"))
	for _, transport := range []string{"http", "stdio"} {
		for _, version := range []string{rig.LegacyVersion, rig.ModernVersion} {
			t.Run(transport+"/"+version, func(t *testing.T) {
				var over mcp.Transport = &mcp.StreamableClientTransport{Endpoint: g.URL, HTTPClient: &http.Client{Transport: bearer{key}}}
				if transport == "stdio" {
					cmd := exec.Command(binary, "serve", s.policy, "--stdio", "--audit", "file:"+s.path("stdio.jsonl"))
					cmd.Env, cmd.Dir = s.env, s.dir
					over = &mcp.CommandTransport{Command: cmd, TerminateDuration: rig.Patience}
				}
				ctx := deadline(t)
				cs := connect(t, ctx, over, version)
				defer cs.Close()
				var names []string
				for tool, err := range cs.Tools(ctx, nil) {
					if err != nil {
						t.Fatal(err)
					}
					names = append(names, tool.Name)
				}
				slices.Sort(names)
				if !slices.Equal(names, laptopTools()) {
					t.Errorf("listed %q, want %q", names, laptopTools())
				}
				for _, x := range []struct {
					tool, want string
					arguments  map[string]any
				}{
					{"files__read_text_file", string(hello), map[string]any{"path": "hello.txt"}},
					{"everything__get-sum", "The sum of 2 and 40 is 42.", map[string]any{"a": 2, "b": 40}},
					{"memory__create_entities", `"customs"`, map[string]any{"entities": []any{map[string]any{"name": "customs", "entityType": "house", "observations": []string{version}}}}},
					{"memory__search_nodes", `"customs"`, map[string]any{"query": "customs"}},
					{"thinking__sequentialthinking", `"thoughtNumber": 1`, map[string]any{"thought": "x", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}},
				} {
					r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: x.tool, Arguments: x.arguments})
					if err != nil || r.IsError || len(r.Content) == 0 {
						t.Errorf("%s: %v, %+v", x.tool, err, r)
						continue
					}
					text, _ := r.Content[0].(*mcp.TextContent)
					// The second client finds the entity there already, and is told that nothing was created.
					if text == nil || !strings.Contains(text.Text, x.want) && x.tool != "memory__create_entities" {
						t.Errorf("%s answered %+v, want %q", x.tool, r.Content[0], x.want)
					}
				}
				for _, tool := range []string{"files__write_file", "memory__delete_entities", "files__move_file", "everything__get-env"} {
					r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"path": "written.txt", "content": "x"}})
					if err == nil && !r.IsError {
						t.Errorf("%s was not refused: %+v", tool, r)
					}
				}
			})
		}
	}
	// What is denied to one is allowed to another, and really done.
	ctx := deadline(t)
	cs := connect(t, ctx, &mcp.StreamableClientTransport{Endpoint: g.URL, HTTPClient: &http.Client{Transport: bearer{maintainerKey}}}, rig.ModernVersion)
	if _, err := os.Stat(s.path("files/written.txt")); err == nil {
		t.Error("a file was written that nobody may write")
	}
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "files__write_file", Arguments: map[string]any{"path": "written.txt", "content": "by the maintainer"}})
	if err != nil || r.IsError {
		t.Errorf("the maintainer may write: %v, %+v", err, r)
	}
	if text, _ := os.ReadFile(s.path("files/written.txt")); string(text) != "by the maintainer" {
		t.Errorf("the maintainer wrote %q", text)
	}
	// Nobody can be asked here, so what needs a person's yes is refused.
	if r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "memory__delete_entities", Arguments: map[string]any{"entityNames": []string{"customs"}}}); err == nil && !r.IsError {
		t.Errorf("a destructive call was made without a yes: %+v", r)
	}
	cs.Close()
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d:\n%s", code, g.Stderr.String())
	}

	for _, name := range []string{"http.jsonl", "stdio.jsonl"} {
		log := records(t, s.path(name))
		for _, x := range []struct {
			want    int
			members map[string]string
		}{
			{2, map[string]string{"event": "finish", "outcome": "invoked", "identity": "mcp:files:read_text_file", "issuer": "laptop"}},
			{2, map[string]string{"event": "note", "outcome": "denied", "identity": "mcp:files:write_file", "issuer": "laptop", "code": "no_grant_matches"}},
			{2, map[string]string{"event": "note", "outcome": "denied", "identity": "mcp:memory:delete_entities", "issuer": "laptop", "code": "no_grant_matches"}},
			{2, map[string]string{"event": "note", "outcome": "unknown_tool", "asked": "files__move_file"}},
			{0, map[string]string{"event": "intent", "identity": "mcp:files:write_file", "issuer": "laptop"}},
		} {
			if n := count(log, x.members); n != x.want {
				t.Errorf("%s has %d records with %v, want %d", name, n, x.members, x.want)
			}
		}
		if r := verifies(t, s.path(name)); r.Code != 0 {
			t.Errorf("audit verify %s: exit %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
		}
	}
	log := records(t, s.path("http.jsonl"))
	if n := count(log, map[string]string{"outcome": "invoked", "identity": "mcp:files:write_file", "issuer": "maintainer"}); n != 1 {
		t.Errorf("the audit has %d writes of the maintainer, want 1", n)
	}
	if n := count(log, map[string]string{"outcome": "ask_unavailable", "identity": "mcp:memory:delete_entities", "issuer": "maintainer"}); n != 1 {
		t.Errorf("the audit has %d refusals for want of a yes, want 1", n)
	}
}

func connect(t *testing.T, ctx context.Context, over mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	cs, err := client.Connect(ctx, over, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if got := cs.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("negotiated %s, want %s", got, version)
	}
	return cs
}

// TestNpmListsWithEveryServerAbsent: from the lock, the same list; and a call says that the server is what failed.
func TestNpmListsWithEveryServerAbsent(t *testing.T) {
	s := npm(t)
	first := rig.Start(t, binary, s.env, s.policy, "--discover")
	before := rig.NewClient(t, first.URL, key, true).List(t)
	first.Stop(t)

	absent := slices.DeleteFunc(slices.Clone(s.env), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	second := rig.Start(t, binary, append(absent, "PATH="+t.TempDir()), s.policy)
	c := rig.NewClient(t, second.URL, key, true)
	after := c.List(t)
	if !slices.Equal(after.Order, before.Order) || len(after.Order) != len(laptopTools()) {
		t.Errorf("listed %q, before %q", after.Order, before.Order)
	}
	for name, raw := range before.Tools {
		if string(after.Tools[name]) != string(raw) {
			t.Errorf("%s is listed as\n%s, before\n%s", name, after.Tools[name], raw)
		}
	}
	r, err := c.Call(deadline(t), "everything__echo", `{"message":"x"}`)
	if err != nil || !strings.Contains(string(r.Result()), `"outcome":"upstream_failed"`) {
		t.Errorf("calling an absent server: %v, %s", err, r.Body)
	}
	second.Stop(t)
}
