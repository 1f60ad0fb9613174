package rig

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// The versions that the clients here speak.
const (
	ModernVersion = "2026-07-28"
	LegacyVersion = "2025-11-25"
)

// Client asks over HTTP with bytes of the test's own making. It may be used by several goroutines once it is open.
type Client struct {
	URL    string
	Key    string // "" presents nothing
	Modern bool
	Header http.Header // sent with every request, besides its own

	http    http.Client
	session string
	next    atomic.Int64
}

// Response is one HTTP response, taken apart. Message is the JSON-RPC response with the request's id, whether it came as JSON or in
// an event stream; nil when there was none. Body is the whole of what came, as it came.
type Response struct {
	Status  int
	Header  http.Header
	Body    []byte
	Message []byte
}

// Result gives the raw bytes of the message's result, nil when it has none.
func (r Response) Result() json.RawMessage { return member(r.Message, "result") }

// Error gives the raw bytes of the message's error, nil when it has none.
func (r Response) Error() json.RawMessage { return member(r.Message, "error") }

// Text gives the text of the result's first content block.
func (r Response) Text() string {
	var v struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(r.Result(), &v) != nil || len(v.Content) == 0 {
		return ""
	}
	return v.Content[0].Text
}

// NewClient makes a client and, for the legacy era, shakes hands.
func NewClient(t testing.TB, url, key string, modern bool) *Client {
	t.Helper()
	c := &Client{URL: url, Key: key, Modern: modern}
	c.http.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(c.http.CloseIdleConnections)
	if modern {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	r, err := c.Send(ctx, "0", Initialize("0"), nil)
	if err != nil || r.Result() == nil {
		t.Fatalf("initialize: %v, status %d: %s", err, r.Status, r.Body)
	}
	c.session = r.Header.Get("Mcp-Session-Id")
	if r, err = c.Send(ctx, "", Initialized, nil); err != nil || r.Status != http.StatusAccepted {
		t.Fatalf("notifications/initialized: %v, status %d: %s", err, r.Status, r.Body)
	}
	return c
}

// Initialize is the legacy handshake's request with this raw id.
func Initialize(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"initialize","params":{"protocolVersion":"` + LegacyVersion +
		`","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`
}

// Initialized is the legacy handshake's notification.
const Initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// Message is a request: params and meta are the raw members of params and of params._meta, without their braces. A modern one also
// gets what every modern request must have.
func Message(id, method, params, meta string, modern bool) string {
	if modern {
		meta = join(meta, `"io.modelcontextprotocol/protocolVersion":"`+ModernVersion+`","io.modelcontextprotocol/clientCapabilities":{}`)
	}
	if meta != "" {
		params = join(params, `"_meta":{`+meta+`}`)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}

// Call calls a tool; arguments is a raw JSON object.
func (c *Client) Call(ctx context.Context, tool, arguments string) (Response, error) {
	return c.Ask(ctx, "tools/call", tool, `"name":`+Quote(tool)+`,"arguments":`+arguments, "")
}

// Ask sends a request with a fresh id. name is what the modern Mcp-Name header says, "" for none.
func (c *Client) Ask(ctx context.Context, method, name, params, meta string) (Response, error) {
	id := strconv.FormatInt(c.next.Add(1), 10)
	header := http.Header{}
	if c.Modern {
		header.Set("Mcp-Method", method)
		if name != "" {
			header.Set("Mcp-Name", headerValue(name))
		}
	}
	return c.Send(ctx, id, Message(id, method, params, meta, c.Modern), header)
}

// Send posts these bytes and gives what came back; id is the raw id of the response to look for.
func (c *Client) Send(ctx context.Context, id, body string, header http.Header) (Response, error) {
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	rq.Header.Set("Content-Type", "application/json")
	rq.Header.Set("Accept", "application/json, text/event-stream")
	if c.Key != "" {
		rq.Header.Set("Authorization", "Bearer "+c.Key)
	}
	switch {
	case c.Modern:
		rq.Header.Set("MCP-Protocol-Version", ModernVersion)
	case c.session != "":
		rq.Header.Set("MCP-Protocol-Version", LegacyVersion)
		rq.Header.Set("Mcp-Session-Id", c.session)
	}
	for _, more := range []http.Header{c.Header, header} {
		for k, v := range more {
			rq.Header[k] = v
		}
	}
	rs, err := c.http.Do(rq)
	if err != nil {
		return Response{}, err
	}
	defer rs.Body.Close()
	r := Response{Status: rs.StatusCode, Header: rs.Header}
	if r.Body, err = io.ReadAll(io.LimitReader(rs.Body, 64<<20)); err != nil {
		return r, err
	}
	if !strings.HasPrefix(rs.Header.Get("Content-Type"), "text/event-stream") {
		if len(r.Body) > 0 {
			r.Message = r.Body
		}
		return r, nil
	}
	for event := range bytes.SplitSeq(r.Body, []byte("\n\n")) {
		var data [][]byte
		for line := range bytes.SplitSeq(event, []byte("\n")) {
			if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, bytes.TrimPrefix(d, []byte(" ")))
			}
		}
		if whole := bytes.Join(data, []byte("\n")); isResponse(whole, id) {
			r.Message = whole
		}
	}
	return r, nil
}

// Listed is what all pages of a tools/list hold together.
type Listed struct {
	Tools    map[string]json.RawMessage // by listed name, the tool's own bytes
	Order    []string
	Withheld map[string]int // _meta["aduana/withheld"] of the last page
}

// List drains tools/list.
func (c *Client) List(t testing.TB) Listed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	l := Listed{Tools: map[string]json.RawMessage{}}
	params := ""
	for range 1000 {
		r, err := c.Ask(ctx, "tools/list", "", params, "")
		if err != nil || r.Result() == nil {
			t.Fatalf("tools/list: %v, status %d: %s", err, r.Status, r.Body)
		}
		next, err := l.add(r.Result())
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			return l
		}
		params = `"cursor":` + string(next)
	}
	t.Fatal("tools/list has no end")
	return l
}

func (l *Listed) add(result []byte) (next json.RawMessage, err error) {
	var page struct {
		Tools []json.RawMessage `json:"tools"`
		Next  json.RawMessage   `json:"nextCursor"`
		Meta  struct {
			Withheld map[string]int `json:"aduana/withheld"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(result, &page); err != nil {
		return nil, err
	}
	for _, raw := range page.Tools {
		var name string
		if err := json.Unmarshal(member(raw, "name"), &name); err != nil {
			return nil, fmt.Errorf("a listed tool has no name: %s", raw)
		}
		if _, twice := l.Tools[name]; twice {
			return nil, fmt.Errorf("%q is listed twice", name)
		}
		l.Tools[name] = raw
		l.Order = append(l.Order, name)
	}
	l.Withheld = page.Meta.Withheld
	return page.Next, nil
}

// ReadList takes a whole tools/list response apart.
func ReadList(t testing.TB, message []byte) Listed {
	t.Helper()
	l := Listed{Tools: map[string]json.RawMessage{}}
	next, err := l.add(member(message, "result"))
	if err != nil || next != nil {
		t.Fatalf("%v, next page %s", err, next)
	}
	return l
}

// Quote is s as a JSON string, without the HTML escapes of encoding/json.
func Quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""`
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// headerValue writes a name as the modern era has it in headers (2026-07-28, transports): what is not plain ASCII goes in Base64.
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?")
	for i := range len(s) {
		plain = plain && s[i] >= 0x20 && s[i] < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

func isResponse(message []byte, id string) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(message, &m) == nil && m["method"] == nil && string(m["id"]) == id
}

func member(message []byte, name string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(message, &m) != nil {
		return nil
	}
	return m[name]
}
