package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

// verbatimArg as first argument makes this test binary the stdio child of the tests here.
const verbatimArg = "e2e-verbatim"

// verbatim is one tool whose definition, arguments and result have bytes that any decoder on the way would change. NAME stands for
// the tool's name.
type verbatim struct {
	name       string
	definition string
	arguments  string
	result     string // without resultType
	failure    string // in place of result: the error object
}

const plainDefinition = `{"name":NAME,"inputSchema":{"type":"object"}}`

func verbatims() []verbatim {
	return []verbatim{
		{
			name: "integers",
			definition: `{"inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":123456789012345678901234567890}}},` +
				`"name":NAME,"x-limit":9007199254740993}`,
			arguments: `{"n":123456789012345678901234567890,"m":-9007199254740993,"z":18446744073709551616}`,
			result:    `{"content":[],"structuredContent":{"n":123456789012345678901234567890,"m":-9007199254740993}}`,
		},
		{
			name: "notations",
			definition: `{"name":NAME,"inputSchema":{"type":"object","properties":{"a":{"default":1e2},"b":{"default":100},"c":{"default":-0}}},` +
				`"annotations":{"unknownHint":1E+2,"readOnlyHint":true}}`,
			arguments: `{"a":1e2,"b":100,"c":1E+2,"d":100.0,"e":-0,"f":0.10,"g":-0.0,"h":1e-7}`,
			result:    `{"structuredContent":[1e2,100,100.0,-0,0.10,1E+2],"content":[]}`,
		},
		{
			name:       "order",
			definition: `{"title":"z","outputSchema":{"type":"object","x":1,"a":2},"name":NAME,"icons":[],"inputSchema":{"z":1,"type":"object","a":2},"description":"a"}`,
			arguments:  `{"z":1,"a":[ ],"m":{"y":null , "b":true},"b":2}`,
			result:     `{"zz":{"b":1,"a":2},"content":[{"text":"t","type":"text"}],"aa":[ 1 , 2 ],"structuredContent":{"z":1,"a":2}}`,
		},
		{
			name:       "escapes",
			definition: `{"n\u0061me":NAME,"description":"\u0041\u00e9 é \ud83d\ude00 😀 \/ / \u003c<","inputSchema":{"type":"object","properties":{"\u0041":{}}}}`,
			arguments:  `{"s":"\u0041\u00e9\ud83d\ude00\/\b\u003c","é":"é 😀 </x>","k\u0065y":"\u2028","":{"":[[[[[]]]]]}}`,
			result:     `{"content":[{"type":"te\u0078t","text":"\u0041 é \ud83d\ude00 \u2028 \/ <"}],"\u0061":"\u0000"}`,
		},
		{
			name: "unknown",
			definition: `{"name":NAME,"execution":{"taskSupport":"forbidden","x":1e2},"inputSchema":{"type":"object","x-thing":{"y":[null]},"properties":{"u":{"format":"nobody-knows"}}},` +
				`"x-unknown":{"deep":[{"er":1.50}]},"annotations":{"x":null}}`,
			arguments: `{"u":"x","unknown":{"n":null}}`,
			result: `{"content":[{"type":"video","data":"AA==","x":{"y":1e2}},{"type":"hologram"},{"type":"resource_link","uri":"x://y","name":"z","extra":true}],` +
				`"x-unknown":[1,2,{"b":1,"a":2}],"isError":false}`,
		},
		{
			name: "definitions",
			definition: `{"name":NAME,"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"p":{"type":["object","string","null"],"$comment":"x"}},` +
				`"properties":{"p":{"$ref":"#/$defs/p"}},"unevaluatedProperties":true},"outputSchema":{"$defs":{"q":{}},"type":"object","properties":{"q":{"$ref":"#/$defs/q"}}}}`,
			arguments: `{"p":{"$ref":"#/not/a/schema","$defs":{}}}`,
			result:    `{"content":[],"structuredContent":{"$defs":{"q":1e2},"$ref":"#/x"}}`,
		},
		{
			name:       "meta",
			definition: `{"_meta":{"example.com/b":1e2,"example.com/a":-0,"ui":{"resourceUri":"ui://x/y"}},"name":NAME,"inputSchema":{"type":"object"}}`,
			arguments:  `{"_meta":{"progressToken":1e2},"name":"not this one","id":7}`,
			result:     `{"_meta":{"example.com/b":1e2,"example.com/a":-0},"content":[{"type":"text","text":"x","_meta":{"n":1E2}}]}`,
		},
		{
			name:       "blanks",
			definition: `{ "name" : NAME , "inputSchema" : { "type" : "object" } }`,
			arguments:  `{ "a" : 1 , "b":[ 1 ,2 ] }`,
			result:     `{ "content" : [ ] , "structuredContent" : { "a" : 1 } }`,
		},
		{
			name:       "error-result",
			definition: plainDefinition,
			arguments:  `{}`,
			result:     `{"isError":true,"content":[{"type":"text","text":"no"}],"structuredContent":{"big":12345678901234567890}}`,
		},
		{
			name:       "protocol-error",
			definition: plainDefinition,
			arguments:  `{"a":1}`,
			failure:    `{"message":"\u0041 no","code":-1234,"data":{"big":12345678901234567890,"e":1e2,"b":1,"a":2}}`,
		},
	}
}

// with gives bytes of the table with the tool's name in them.
func (v verbatim) with(text, name string) string {
	return strings.Replace(text, "NAME", rig.Quote(name), 1)
}

// answered is what the upstream of an era gives as result: a modern one says first that it is complete.
func (v verbatim) answered(modern bool) string {
	if modern {
		return strings.Replace(v.result, "{", `{"resultType":"complete",`, 1)
	}
	return v.result
}

func verbatimConfig(name string, modern bool) upstream.Config {
	cfg := upstream.Config{Name: name, Eras: upstream.LegacyOnly}
	if modern {
		cfg.Eras = upstream.ModernOnly
	}
	for _, v := range verbatims() {
		cfg.Tools = append(cfg.Tools, upstream.Tool{Name: v.name, Definition: []byte(v.with(v.definition, v.name)),
			Handler: func(_ context.Context, c *upstream.Call) {
				c.Progress(1, 2)
				if v.failure != "" {
					c.ReplyFrame([]byte(`{"jsonrpc":"2.0","id":` + string(c.ID) + `,"error":` + v.failure + `}`))
					return
				}
				c.Reply([]byte(v.answered(c.Modern)))
			}})
	}
	return cfg
}

// verbatimChild is the stdio server: its arguments are name, era and the file that records what it receives.
func verbatimChild(args []string) int {
	cfg := verbatimConfig(args[0], args[1] == "modern")
	f, err := os.OpenFile(args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer f.Close()
	cfg.Record = f
	s := upstream.New(cfg)
	defer s.Close()
	if err := s.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// behind is one upstream of the verbatim house.
type behind struct {
	id       string
	modern   bool
	received func(t *testing.T) []upstream.Received
}

// verbatimHouse starts upstreams of both eras over HTTP (answering as JSON and as a stream) and declares stdio ones.
func verbatimHouse(t *testing.T) (policy string, all []behind) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("version: 1\ncapabilities:\n  - { id: all.call, risk: read }\nupstreams:\n")
	declare := func(id, transport string) {
		fmt.Fprintf(&text, "  - id: %s\n    transport: %s\n    account: none\n    tools:\n", id, transport)
		for _, v := range verbatims() {
			fmt.Fprintf(&text, "      - { name: %s, capability: all.call }\n", v.name)
		}
	}
	for _, era := range []string{"legacy", "modern"} {
		for _, form := range []string{"json", "sse"} {
			id := era + "-" + form
			cfg := verbatimConfig(id, era == "modern")
			cfg.SSE = form == "sse"
			s := upstream.New(cfg)
			t.Cleanup(func() { s.Close() })
			url, err := s.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			declare(id, fmt.Sprintf("{ kind: mcp-http, url: %q }", url))
			all = append(all, behind{id, era == "modern", func(*testing.T) []upstream.Received { return s.Received("tools/call") }})
		}
		id, record := era+"-stdio", filepath.Join(dir, era+".jsonl")
		declare(id, fmt.Sprintf("{ kind: mcp-stdio, command: %q, args: [%q, %q, %q, %q] }", self, verbatimArg, id, era, record))
		all = append(all, behind{id, era == "modern", func(t *testing.T) []upstream.Received {
			got, err := upstream.ReadRecord(record)
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(got, func(r upstream.Received) bool { return r.Method != "tools/call" })
		}})
	}
	text.WriteString("accounts: []\n" + issuer + "grants:\n  - { to: { issuer: local }, capabilities: [all.call] }\n")
	return write(t, dir, "policy.yaml", text.String()), all
}

// asker sends one message as a client of one era over one transport, and gives everything that came back with the response apart.
type asker func(t *testing.T, id, message, method, name string) (response, all []byte)

// TestMustShow6BytesAreKept: arguments, results, errors and schemas pass byte for byte through all four combinations of eras, over
// HTTP and stdio on either side (C17, C18, X06 of the cases).
func TestMustShow6BytesAreKept(t *testing.T) {
	policy, all := verbatimHouse(t)
	g := rig.Start(t, binary, rig.Env(t, keyEnv), policy, "--discover")
	for _, modern := range []bool{false, true} {
		client := rig.NewClient(t, g.URL, key, modern)
		overHTTP := func(t *testing.T, id, message, method, name string) ([]byte, []byte) {
			header := http.Header{}
			if modern {
				header.Set("Mcp-Method", method)
				if name != "" {
					header.Set("Mcp-Name", name)
				}
			}
			r, err := client.Send(deadline(t), id, message, header)
			if err != nil {
				t.Fatal(err)
			}
			return r.Message, r.Body
		}
		t.Run("http/"+eraName(modern), func(t *testing.T) { bytesAreKept(t, overHTTP, modern, all) })

		stdio := rig.StartStdio(t, binary, rig.Env(t, keyEnv), policy)
		if !modern {
			stdio.Ask(t, "0", rig.Initialize("0"))
			stdio.Tell(t, rig.Initialized)
		}
		overStdio := func(t *testing.T, id, message, _, _ string) ([]byte, []byte) {
			r := stdio.Ask(t, id, message)
			return r, nil
		}
		t.Run("stdio/"+eraName(modern), func(t *testing.T) { bytesAreKept(t, overStdio, modern, all) })
		if code := stdio.Close(t); code != 0 {
			t.Errorf("the stdio gateway ended with %d: %s", code, stdio.Stderr.String())
		}
	}
	if code := g.Stop(t); code != 0 {
		t.Errorf("the gateway stopped with %d: %s", code, g.Stderr.String())
	}
}

func eraName(modern bool) string {
	if modern {
		return "modern"
	}
	return "legacy"
}

func bytesAreKept(t *testing.T, ask asker, modern bool, all []behind) {
	response, _ := ask(t, "1", rig.Message("1", "tools/list", "", "", modern), "tools/list", "")
	listed := rig.ReadList(t, response)
	serial := 0
	for _, up := range all {
		for _, v := range verbatims() {
			t.Run(up.id+"/"+v.name, func(t *testing.T) {
				exposed := up.id + "__" + v.name
				if want := v.with(v.definition, exposed); string(listed.Tools[exposed]) != want {
					t.Errorf("listed as\n%s, want\n%s", listed.Tools[exposed], want)
				}

				// The id is a string with an escape, or an integer that no float holds.
				serial++
				id := `"\u0069d-` + strconv.Itoa(serial) + `"`
				if serial%2 == 0 {
					id = strconv.Itoa(9007199254740993 + serial)
				}
				token := `"t\u006fken ` + strconv.Itoa(serial) + `"`
				params := `"x-first":{"n":1e2},"name":` + rig.Quote(exposed) + `,"arguments":` + v.arguments + `,"x-last":[-0]`
				meta := `"example.com/b":{"big":12345678901234567890,"e":1e2},"progressToken":` + token + `,"example.com/a":-0`
				before := len(up.received(t))
				response, whole := ask(t, id, rig.Message(id, "tools/call", params, meta, modern), "tools/call", exposed)

				got := up.received(t)
				if len(got) != before+1 {
					t.Fatalf("the upstream received %d calls, want 1", len(got)-before)
				}
				body := got[before].Body
				for _, want := range []string{`"arguments":` + v.arguments, `"x-first":{"n":1e2}`, `"x-last":[-0]`,
					`"example.com/b":{"big":12345678901234567890,"e":1e2}`, `"example.com/a":-0`, `"name":` + rig.Quote(v.name)} {
					if strings.Count(body, want) != 1 {
						t.Errorf("the upstream received\n%s, without\n%s", body, want)
					}
				}
				for _, never := range []string{token, id, exposed} {
					if strings.Contains(body, never) {
						t.Errorf("the upstream received the client's own %s in\n%s", never, body)
					}
				}

				want := `{"jsonrpc":"2.0","id":` + id + `,"result":` + v.answered(up.modern) + `}`
				if modern && !up.modern {
					want = strings.TrimSuffix(want, "}}") + `,"resultType":"complete"}}`
				}
				if v.failure != "" {
					want = `{"jsonrpc":"2.0","id":` + id + `,"error":` + v.failure + `}`
				}
				if string(response) != want {
					t.Errorf("the client received\n%s, want\n%s", response, want)
				}
				if whole != nil && !bytes.Contains(whole, []byte(`"progressToken":`+token+`,"progress":1,"total":2`)) {
					t.Errorf("the client's progress token did not come back as it was in\n%s", whole)
				}
			})
		}
	}
}
