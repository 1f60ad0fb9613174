package mcp_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"aduana/internal/mcp"
)

func events(r io.Reader, limit int) (out []string, err error) {
	e := mcp.NewEventReader(r, limit)
	for {
		data, err := e.Next()
		if err != nil {
			return out, err
		}
		out = append(out, string(data))
	}
}

func TestC15EventStream(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"one event", "data: {}\n\n", []string{"{}"}},
		{"event and type", "event: message\ndata: {}\n\n", []string{"{}"}},
		{"type after data", "data: a\nevent: message\n\n", []string{"a"}},
		{"other type", "event: ping\ndata: a\n\ndata: b\n\n", []string{"b"}},
		{"longer type that begins alike", "event: messages\ndata: a\n\n", nil},
		{"the last type counts", "event: ping\nevent: message\ndata: a\n\n", []string{"a"}},
		{"type does not last", "event: ping\n\ndata: b\n\n", []string{"b"}},
		{"three lines", "data: {\ndata: \"a\":1\ndata: }\n\n", []string{"{\n\"a\":1\n}"}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []string{"a\nb", "c"}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []string{"a\nb", "c"}},
		{"mixed ends", "data: a\rdata: b\n\r\ndata: c\n\n", []string{"a\nb", "c"}},
		{"CR then LF is one end", "data: a\r\n\n", []string{"a"}},
		{"no blank after the colon", "data:a\n\n", []string{"a"}},
		{"only one blank is taken", "data:  a \n\n", []string{" a "}},
		{"comments, ids, retry", ": hi\nid: 7\nretry: 100\ndata: a\n: more\n\n", []string{"a"}},
		{"comment without text", ":\n\ndata: a\n\n", []string{"a"}},
		{"unknown fields", "dat: x\ndatum: y\ndataset: z\nDATA: q\ndata: a\n\n", []string{"a"}},
		{"a long unknown field", strings.Repeat("x", 5000) + ": y\ndata: a\n\n", []string{"a"}},
		{"a long line without colon", strings.Repeat("data", 2000) + "\ndata: a\n\n", []string{"a"}},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\n", []string{"a"}},
		{"byte order mark before a type", "\xEF\xBB\xBFevent: ping\ndata: a\n\n", nil},
		{"byte order mark before a blank line", "\xEF\xBB\xBF\ndata: a\n\n", []string{"a"}},
		{"byte order mark later is part of a name", "data: a\n\n\xEF\xBB\xBFdata: b\n\n", []string{"a"}},
		{"field without colon", "data\n\n", []string{""}},
		{"empty data lines", "data\ndata\n\n", []string{"\n"}},
		{"blank before the colon is part of the name", "data : a\n\n", nil},
		{"blank lines", "\n\n\ndata: a\n\n\n\n", []string{"a"}},
		{"colon in the value", "data: a:b\n\n", []string{"a:b"}},
		{"runes", "data: žluťoučký 🎉\n\n", []string{"žluťoučký 🎉"}},
		{"unterminated", "data: a\n\ndata: b\n", []string{"a"}},
		{"unterminated line", "data: a\n\ndata: b", []string{"a"}},
		{"line separator of Unicode is none here", "data: a\u2028b\n\n", []string{"a\u2028b"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "one byte at a time": iotest.OneByteReader,
			"halves": iotest.HalfReader, "data with error": iotest.DataErrReader,
		} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				got, err := events(wrap(strings.NewReader(c.in)), 1<<20)
				if err != io.EOF {
					t.Errorf("ended with %v, want EOF", err)
				}
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

func TestC10EventBound(t *testing.T) {
	const limit = 1000
	for _, c := range []struct {
		name string
		size int
		ok   bool
	}{{"below", limit - 1, true}, {"exactly", limit, true}, {"above", limit + 1, false}} {
		got, err := events(strings.NewReader("data: "+strings.Repeat("a", c.size)+"\n\n"), limit)
		if ok := len(got) == 1 && err == io.EOF; ok != c.ok {
			t.Errorf("%s the limit: %d events, %v", c.name, len(got), err)
		}
		if !c.ok && !errors.Is(err, mcp.ErrEventTooLarge) {
			t.Errorf("%s the limit: %v", c.name, err)
		}
	}
	for name, in := range map[string]io.Reader{
		"many lines": strings.NewReader(strings.Repeat("data: aaaaaaaaa\n", 101) + "\n"),
		"no end":     io.MultiReader(strings.NewReader("data: "), endless{}),
	} {
		if _, err := events(in, limit); !errors.Is(err, mcp.ErrEventTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// After the error the stream stays over.
	e := mcp.NewEventReader(strings.NewReader("data: "+strings.Repeat("a", 50)+"\n\ndata: b\n\n"), 10)
	for range 2 {
		if d, err := e.Next(); !errors.Is(err, mcp.ErrEventTooLarge) {
			t.Errorf("%q, %v", d, err)
		}
	}
	// What is not data is not kept.
	long := ": " + strings.Repeat("c", 1<<20) + "\nevent: " + strings.Repeat("d", 1<<20) + "\n\ndata: a\n\n"
	if got, err := events(strings.NewReader(long), limit); err != io.EOF || len(got) != 1 {
		t.Errorf("long comment and type: %q, %v", got, err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// reference reads a whole stream in the obvious way.
func reference(in []byte) (out []string) {
	in = bytes.TrimPrefix(in, []byte("\xEF\xBB\xBF"))
	in = bytes.ReplaceAll(in, []byte("\r\n"), []byte("\n"))
	in = bytes.ReplaceAll(in, []byte("\r"), []byte("\n"))
	lines := strings.Split(string(in), "\n")
	var data []string
	kind := ""
	for _, l := range lines[:len(lines)-1] { // the last is unterminated
		if l == "" {
			if data != nil && (kind == "" || kind == "message") {
				out = append(out, strings.Join(data, "\n"))
			}
			data, kind = nil, ""
			continue
		}
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data = append(data, value)
		case "event":
			kind = value
		}
	}
	return out
}

func FuzzSSE(f *testing.F) {
	for _, s := range []string{"data: {}\n\n", "event: message\r\ndata:a\r\rdata\n\n", "\xEF\xBB\xBF:\n\ndata: b\n\r\n", "event:messages\ndata: c\n\n", "\r\n\r\ndata: d\r\n\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		want := reference(in)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(in), "bytes": iotest.OneByteReader(bytes.NewReader(in))} {
			got, err := events(r, len(in)+1)
			if err != io.EOF {
				t.Fatalf("%s: %v", name, err)
			}
			if len(got) != len(want) {
				t.Fatalf("%s: got %q, want %q", name, got, want)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s: event %d: got %q, want %q", name, i, got[i], want[i])
				}
			}
		}
		if got, err := events(bytes.NewReader(in), 3); err == nil || len(got) > 0 && len(got[0]) > 3 {
			t.Fatalf("limit 3: %q, %v", got, err)
		}
	})
}
