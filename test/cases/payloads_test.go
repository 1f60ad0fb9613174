package cases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aduana/test/e2e/rig"
	"aduana/test/upstream"
)

func defined(server, name, definition string) upstream.Tool {
	tool := upstream.Named(server, name)
	tool.Definition = json.RawMessage(definition)
	return tool
}

// C17: a tool whose schema cannot be used is withheld and named with the place; every other tool of the list stays, byte for byte.
func TestC17OneBrokenSchemaCostsItselfAlone(t *testing.T) {
	const ok2 = `{"name":NAME,"inputSchema":{"type":"object","$defs":{"P":{"type":"string"}},"properties":{"p":{"$ref":"#/$defs/P"}},"additionalProperties":false,"x-vendor":1}}`
	broken := map[string]string{
		"half":   `{"name":"half","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"v":{"$ref":"#/$defs/View"}}}}`,
		"null":   `{"name":"null","inputSchema":null}`,
		"text":   `{"name":"text","inputSchema":"x"}`,
		"str":    `{"name":"str","inputSchema":{"type":"string"}}`,
		"empty":  `{"name":"empty","inputSchema":{}}`,
		"absent": `{"name":"absent"}`,
	}
	all := []upstream.Tool{upstream.Named("s", "ok1"), defined("s", "ok2", strings.Replace(ok2, "NAME", `"ok2"`, 1))}
	for name, definition := range broken {
		all = append(all, defined("s", name, definition))
	}
	all = append(all, upstream.Tool{Name: "nothing", Definition: json.RawMessage(`null`)}, upstream.Named("s", "ok3"))
	h := newHouse(t)
	s := h.http("s", upstream.Config{Tools: all}, "ok1", "ok2", "ok3")
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	l := c.List(t)
	if !slices.Equal(slices.Sorted(slices.Values(l.Order)), []string{"s__ok1", "s__ok2", "s__ok3"}) {
		t.Errorf("listed %q", l.Order)
	}
	if got, want := string(l.Tools["s__ok2"]), strings.Replace(ok2, "NAME", `"s__ok2"`, 1); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	for _, name := range []string{"ok1", "ok2", "ok3"} {
		reaches(t, c, "s__"+name, s, "s", name)
	}
	said := g.Stderr.String()
	for name := range broken {
		reachesNothing(t, c, "s__"+name, s)
		if !strings.Contains(said, fmt.Sprintf("%q", name)) {
			t.Errorf("the operator is not told of %s", name)
		}
	}
	if !strings.Contains(said, "s: ") || !strings.Contains(said, "/properties/v/$ref") {
		t.Errorf("the operator is not told where:\n%s", said)
	}
}

// C18: a schema that no struct holds passes as it is, and is what arguments are judged by, in the draft that it names; a draft that
// nobody knows judges nothing, so that the call is refused.
func TestC18SchemasAreServedAndHold(t *testing.T) {
	const body = `"type":"object","properties":{"any":true,"none":false,"s":{"type":["string","null"]},"u":{"anyOf":[{"type":"integer"},{"type":"null"}]}},` +
		`"additionalProperties":{"type":"string"},"definitions":{"D":{"const":null}}}`
	schemas := map[string]string{
		"none":    `{` + body,
		"draft07": `{"$schema":"http://json-schema.org/draft-07/schema#",` + body,
		"draft20": `{"$schema":"https://json-schema.org/draft/2020-12/schema",` + body,
		"bare":    `{"type":"object"}`,
		"future":  `{"$schema":"https://schemas.test/draft/2099",` + body,
	}
	h := newHouse(t)
	var all []upstream.Tool
	for name, schema := range schemas {
		all = append(all, defined("s", name, `{"name":"`+name+`","inputSchema":`+schema+`}`))
	}
	s := upstream.New(upstream.Config{Tools: all})
	t.Cleanup(func() { s.Close() })
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.add("s", fmt.Sprintf("{ kind: mcp-http, url: %q }", url), "account: none, arguments: strict", names(all)...)
	g := h.start()
	c := rig.NewClient(t, g.URL, key, true)
	l := c.List(t)
	for name, schema := range schemas {
		if got, want := string(l.Tools["s__"+name]), `{"name":"s__`+name+`","inputSchema":`+schema+`}`; got != want {
			t.Errorf("listed %s, want %s", got, want)
		}
	}
	for _, x := range []struct {
		tool, arguments string
		fits            bool
	}{
		{"none", `{"s":null,"u":null,"any":[1,{}]}`, true}, {"none", `{"none":1}`, false}, {"none", `{"none":null}`, false}, {"none", `{"other":1}`, false},
		{"draft07", `{"s":null,"other":"x"}`, true}, {"draft07", `{"none":1}`, false}, {"draft07", `{"u":"x"}`, false},
		{"draft20", `{"s":null}`, true}, {"draft20", `{"none":1}`, false},
		{"bare", `{"whatever":null}`, true},
		{"future", `{}`, false}, {"future", `{"s":null}`, false},
	} {
		before := s.Calls(x.tool)
		r := call(t, c, "s__"+x.tool, x.arguments)
		sent := s.Calls(x.tool) - before
		if x.fits && (outcome(r) != "" || sent != 1) || !x.fits && (outcome(r) != "invalid_arguments" || sent != 0) {
			t.Errorf("%s with %s: %s, %d calls went up", x.tool, x.arguments, r.Message, sent)
		}
	}
}

// C23: what a client puts into params._meta goes to the upstream in the body and nowhere else, except what is the gateway's own; what
// it puts into headers goes nowhere.
func TestC23MetaGoesInTheBodyOnly(t *testing.T) {
	for _, e := range []upstream.Eras{upstream.LegacyOnly, upstream.ModernOnly} {
		eras(func(modern bool) {
			h := newHouse(t)
			s := h.http("s", upstream.Config{Tools: tools("s", "t"), Eras: e})
			g := h.start()
			c := rig.NewClient(t, g.URL, key, modern)
			c.Header = http.Header{"Cookie": {"s=CANARY-COOKIE"}, "X-Api-Key": {"CANARY-KEY"}, "X-Forwarded-User": {"CANARY-USER"},
				"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-CANARY-01"}, "Baggage": {"CANARY-BAGGAGE"}, "X-Meta": {"CANARY-META"}}
			const kept = `"vendor.test/canary":{"deep":"CANARY-META","n":1.50},"traceparent":"00-11111111111111111111111111111111-2222222222222222-01"`
			r, err := c.Ask(deadline(t), "tools/call", "s__t", `"name":"s__t","arguments":{}`, kept+`,"aduana/decision":"CANARY-FORGED","\u0061duana/x":1`)
			if err != nil || r.Text() != "server=s tool=t" {
				t.Fatalf("%v %s", err, r.Body)
			}
			for _, m := range s.Messages() {
				for name, values := range m.Header {
					for _, v := range append(values, name) {
						if strings.Contains(v, "CANARY") || strings.Contains(v, key) || strings.Contains(v, "1111111111") {
							t.Errorf("header %s: %q went up with %s", name, values, m.Method)
						}
					}
				}
				switch body := m.Body; {
				case strings.Contains(body, key):
					t.Errorf("the caller's key went up: %s", body)
				case m.Method == "tools/call" && !strings.Contains(body, kept):
					t.Errorf("the upstream received %s without %s", body, kept)
				case strings.Contains(body, "FORGED") || strings.Contains(body, `duana/x`) || strings.Contains(strings.ReplaceAll(body, "CANARY-META", ""), "CANARY"):
					t.Errorf("the upstream received %s", body)
				}
			}
		})
	}
}

// X13: what nobody here knows survives in both directions, and only the gateway's own members of _meta go; neither a client nor an
// upstream can set those.
func TestX13UnknownMembersSurviveBothWays(t *testing.T) {
	const (
		definition = `{"name":NAME,"title":"T","icons":[{"src":"https://x.test/i.png","sizes":["48x48"]}],"execution":{"taskSupport":"forbidden","x":1},` +
			`"annotations":{"readOnlyHint":true,"vendorHint":[1.0]},"inputSchema":{"type":"object"},"outputSchema":{"type":"object","x-o":1e2},"x-unknown":{"a":[null]},META}`
		given     = `"_meta":{"aduana/withheld":{"definition_changed":9},"v.test/a":12345678901234567890,"\u0061duana/accepted":true}`
		served    = `"_meta":{"v.test/a":12345678901234567890}`
		arguments = `{"a":{"_meta":{"aduana/x":1}},"n":1.0}`
		result    = `{"x-r":[1.50],"content":[{"type":"text","text":"t","annotations":{"audience":["user"]},"_meta":{"k":1},"x":null},{"type":"hologram","data":"AA=="}],` +
			`"structuredContent":{"n":100000000000000000001,"_meta":{"aduana/y":1}},META,"isError":false}`
	)
	with := func(text, name, meta string) string {
		return strings.Replace(strings.Replace(text, "NAME", `"`+name+`"`, 1), "META", meta, 1)
	}
	for _, form := range []string{"http", "sse", "stdio"} {
		eras(func(modern bool) {
			t.Run(fmt.Sprint(form, " modern=", modern), func(t *testing.T) {
				handler := func(_ context.Context, c *upstream.Call) {
					text := with(result, "", given)
					if c.Modern {
						text = strings.Replace(text, "{", `{"resultType":"complete",`, 1)
					}
					c.Reply([]byte(text))
				}
				tool := upstream.Tool{Name: "t", Definition: json.RawMessage(with(definition, "t", given)), Handler: handler}
				h := newHouse(t)
				var received func() string
				if form == "stdio" {
					// Over stdio the scriptable server answers with params as structuredContent.
					record := filepath.Join(h.dir, "record")
					program, args, err := upstream.Command("-tools", "raw", "-era", map[bool]string{true: "modern", false: "legacy"}[modern], "-record", record)
					if err != nil {
						t.Fatal(err)
					}
					h.add("s", command(program, args...), "", "raw")
					received = func() string {
						all, err := upstream.ReadRecord(record)
						if err != nil {
							t.Fatal(err)
						}
						return all[len(all)-1].Body
					}
				} else {
					s := h.http("s", upstream.Config{Tools: []upstream.Tool{tool}, SSE: form == "sse", Eras: map[bool]upstream.Eras{true: upstream.ModernOnly, false: upstream.LegacyOnly}[modern]})
					received = func() string { m := s.Received("tools/call"); return m[len(m)-1].Body }
				}
				g := h.start()
				name := "t"
				if form == "stdio" {
					name = "raw"
				}
				eras(func(client bool) {
					c := rig.NewClient(t, g.URL, key, client)
					if got, want := string(c.List(t).Tools["s__"+name]), with(definition, "s__"+name, served); form != "stdio" && got != want {
						t.Errorf("listed\n%s, want\n%s", got, want)
					}
					r, err := c.Ask(deadline(t), "tools/call", "s__"+name, `"x-p":{"q":[1.0]},"name":"s__`+name+`","arguments":`+arguments, `"v.test/b":[1.0],"aduana/decision":{"forged":1}`)
					if err != nil || r.Result() == nil {
						t.Fatalf("%v %s", err, r.Body)
					}
					body := received()
					for _, want := range []string{`"arguments":` + arguments, `"x-p":{"q":[1.0]}`, `"v.test/b":[1.0]`} {
						if strings.Count(body, want) != 1 {
							t.Errorf("the upstream received %s, without %s", body, want)
						}
					}
					if strings.Contains(body, "forged") {
						t.Errorf("the upstream received %s", body)
					}
					if form == "stdio" {
						return
					}
					want := with(result, "", served)
					switch {
					case modern:
						want = strings.Replace(want, "{", `{"resultType":"complete",`, 1)
					case client:
						want = strings.TrimSuffix(want, "}") + `,"resultType":"complete"}`
					}
					if got := string(r.Result()); got != want {
						t.Errorf("the client received\n%s, want\n%s", got, want)
					}
				})
			})
		})
	}
}
