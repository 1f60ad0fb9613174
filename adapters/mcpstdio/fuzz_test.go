package mcpstdio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"aduana/gateway"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/internal/redact"
)

// fuzzed is a session of a child that has ended, with three requests that wait.
func fuzzed(t *testing.T, frame int) (*session, []*pending) {
	ended := make(chan struct{})
	close(ended)
	s := &session{o: NewUpstream(UpstreamOptions{MaxFrame: frame}).o, id: "fake", log: slog.New(slog.DiscardHandler), redact: redact.New("secret"),
		child: &child{exited: ended}, out: newOutbox(), era: mcp.Legacy, pending: map[uint64]*pending{},
		done: make(chan struct{}), gone: make(chan struct{}), noise: &noise{}}
	var all []*pending
	for i := range 3 {
		p := &pending{response: new(jsonrpc.Message), frame: &outgoing{}, list: i == 2}
		if i == 0 {
			p.notices = make(chan []byte, maxNotices)
		}
		if f := s.register(p); f != nil {
			t.Fatal(f)
		}
		s.out.put(t.Context(), p.frame)
		all = append(all, p)
	}
	return s, all
}

// FuzzChildOutput: whatever a child writes, an answer reaches only the request whose id it has, by another reading of JSON than ours.
func FuzzChildOutput(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n",
		`{"result":{"content":[]},"jsonrpc":"2.0","id":2}` + "\n",
		`{"x":0,"result":{},"id":2,"jsonrpc":"2.0"}` + "\r\n",
		`{"jsonrpc":"2.0","id":"1","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":01,"result":{}}` + "\n",
		`{"id":1,"msg":"x"}` + "\nnull\n[]\n\ufeff\n",
		`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"a":1,"a":2}]}}` + "\n",
		`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}` + "\n",
		`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}` + "\n",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":""}}`,
		`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("a", 5000) + `"}` + "\n" + `{"jsonrpc":"2.0","id":2,"result":{}}` + "\n",
		`{"result":"` + strings.Repeat("a", 70_000) + `","jsonrpc":"2.0","id":2}` + "\n",
		strings.Repeat("log\n", 120), strings.Repeat("a", 70_000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		const frame = 4096
		s, waiting := fuzzed(t, frame)
		s.readFrom(bytes.NewReader(out))
		s.end(s.failure(gateway.FailedExited, "ended"))
		<-s.gone
		for _, p := range waiting {
			a := <-p.done
			if a.Failure != nil || a.Sent != gateway.Answered {
				continue
			}
			if len(p.response.Raw) > frame {
				t.Fatalf("an answer of %d bytes", len(p.response.Raw))
			}
			if !bytes.Contains(out, p.response.Raw) {
				t.Fatal("an answer that was never written")
			}
			var got struct {
				JSONRPC string
				ID      json.RawMessage
				Result  json.RawMessage
				Error   json.RawMessage
			}
			d := json.NewDecoder(bytes.NewReader(p.response.Raw))
			if err := d.Decode(&got); err != nil && !p.list {
				t.Fatalf("%v in %q", err, p.response.Raw)
			} else if err == nil && (string(got.ID) != strconv.FormatUint(p.id, 10) || got.JSONRPC != "2.0" || got.Result == nil && got.Error == nil) {
				t.Fatalf("%q answers %d", p.response.Raw, p.id)
			}
		}
	})
}

// FuzzFrames: lines come out as they went in, whatever their length and however they are read.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 2)
	f.Add([]byte(strings.Repeat("x", 3*pieceBytes)+"\n"+strings.Repeat("y", pieceBytes)+"\n"), 2*pieceBytes)
	f.Add([]byte(strings.Repeat("x", pieceBytes-1)+"\n"+strings.Repeat("y", pieceBytes)), pieceBytes)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		if limit < 0 || limit > 1<<20 {
			return
		}
		want := bytes.Split(in, []byte{'\n'})
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		fr := newFrames(bytes.NewReader(in), limit)
		for i, w := range want {
			l, err := fr.next()
			switch {
			case err != nil:
				t.Fatalf("line %d: %v", i, err)
			case l.over != (len(w) > limit):
				t.Fatalf("line %d of %d bytes: over is %v", i, len(w), l.over)
			case l.over && (!bytes.HasPrefix(w, l.text) || !bytes.HasSuffix(w, l.end)):
				t.Fatalf("line %d: ends are not the line's", i)
			case !l.over && !bytes.Equal(l.text, w):
				t.Fatalf("line %d: got %d bytes, want %d", i, len(l.text), len(w))
			}
		}
		if l, err := fr.next(); err == nil {
			t.Fatalf("a line too many: %q", l.text)
		}
	})
}

// What the ends of a line say must never be taken for more than it is; TestX06 and FuzzChildOutput hold the whole to that. Here is
// what they must see, or long answers fail whole sessions.
func TestGlance(t *testing.T) {
	for _, c := range []struct {
		line string
		want string
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{`, "7 reply"},
		{` { "id" : 7 , "jsonrpc" : "2.0" , "error" : {`, "7 reply"},
		{`{"result":{},"jsonrpc":"2.0","id":7}`, "7 reply"},
		{`{"result":{}, "id": 7, "jsonrpc": "2.0" } ` + "\r", "7 reply"},
		{`{"jsonrpc":"2.0","result":{},"id":7}`, "7 reply"},
		{`{"result":{},"id":7}`, "7"},
		{`{"id":7,"msg":"x"}`, "7"},
		{`{"result":{"id":7}}`, ""},
		{`{"id":"7","jsonrpc":"2.0","result":{}}`, ""},
		{`{"id":07,"jsonrpc":"2.0","result":{}}`, ""},
		{`{"id":7.5,"jsonrpc":"2.0","result":{}}`, "7"}, // the scan sees the rest
		{`{"jsonrpc":"2.0","id":7,"method":"ping"}`, "7 method"},
		{`{"jsonrpc":"2.0","method":"x","id":7}`, "method"},
		{`{"jsonrpc":"1.0","id":7,"result":{}}`, ""},
		{`{"id":18446744073709551616,"result":{}}`, ""},
		{`{"`, ""}, {`{`, ""}, {``, ""}, {`[7]`, ""}, {`"id":7}`, ""}, {`{"id"`, ""}, {`{"id":`, ""}, {`{"result":1}`, ""}, {`{"result"`, ""}, {`}`, ""},
	} {
		g := look([]byte(c.line), []byte(c.line))
		got := ""
		if g.hasID {
			got = fmt.Sprint(g.id)
		}
		if g.reply() {
			got += " reply"
		}
		if g.method {
			got = strings.TrimSpace(got + " method")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.line, got, c.want)
		}
	}
}
