package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// client is one closed-loop MCP client on one kept-alive connection.
type client struct {
	t       *target
	key     string // bearer key
	legacy  bool
	conn    net.Conn
	br      *bufio.Reader
	session string
	id      int
	out     []byte
	body    []byte
	pages   []seenPage
	bytes   int64 // read in all
}

const replyLimit = 60 * time.Second

// dial connects and, in the legacy era, makes a session.
func dial(t *target, key string, legacy bool) (*client, error) {
	conn, err := net.DialTimeout("tcp", t.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &client{t: t, key: key, legacy: legacy, conn: conn, br: bufio.NewReaderSize(conn, 64<<10), id: 100_000_000}
	if !legacy {
		return c, nil
	}
	if _, err := c.do("initialize", "", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}`); err != nil {
		c.close()
		return nil, err
	}
	if c.session == "" {
		c.close()
		return nil, errors.New("initialize gave no session")
	}
	if err := c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", ""); err != nil {
		c.close()
		return nil, err
	}
	if status, _, err := c.receive(); err != nil || status/100 != 2 {
		c.close()
		return nil, fmt.Errorf("notifications/initialized: HTTP %d, %v", status, err)
	}
	return c, nil
}

func (c *client) close() { c.conn.Close() }

// do sends one request and returns the reply's message, which is valid until
// the next. params is the inside of the object.
func (c *client) do(method, name, params string) ([]byte, error) {
	c.id++
	id := strconv.Itoa(c.id)
	if !c.legacy {
		if params != "" {
			params += ","
		}
		params += `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	if err := c.send(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+params+`}}`, method, name); err != nil {
		return nil, err
	}
	status, sse, err := c.receive()
	if err != nil {
		return nil, err
	}
	if status != 200 {
		return nil, fmt.Errorf("%s: HTTP %d: %.300s", method, status, c.body)
	}
	msg := c.body
	if sse {
		msg = nil
		for line := range bytes.Lines(c.body) {
			if d, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.Contains(d, []byte(id)) {
				msg = bytes.TrimSpace(d)
			}
		}
	}
	// The id stands before or after the result; a large result is not scanned.
	ends := slices.Concat(msg[:min(len(msg), 64)], msg[max(0, len(msg)-64):])
	if !bytes.Contains(ends, []byte(`"id":`+id)) {
		return nil, fmt.Errorf("%s: the reply is not for id %s: %.300s", method, id, msg)
	}
	if bytes.Contains(ends, []byte(`"error":`)) || bytes.Contains(ends, []byte(`"isError":true`)) {
		return nil, fmt.Errorf("%s: %.300s", method, msg)
	}
	return msg, nil
}

func (c *client) send(body, method, name string) error {
	b := append(c.out[:0], "POST /mcp HTTP/1.1\r\nHost: "...)
	b = append(b, c.t.addr...)
	b = append(b, "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"...)
	if c.key != "" {
		b = append(append(append(b, "Authorization: Bearer "...), c.key...), "\r\n"...)
	}
	switch {
	case !c.legacy:
		b = append(append(append(b, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: "...), method...), "\r\n"...)
		if name != "" {
			b = append(append(append(b, "Mcp-Name: "...), name...), "\r\n"...)
		}
	case c.session != "":
		b = append(append(append(b, "MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: "...), c.session...), "\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(append(b, "\r\n\r\n"...), body...)
	c.out = b
	c.conn.SetDeadline(time.Now().Add(replyLimit))
	_, err := c.conn.Write(b)
	return err
}

// receive reads one HTTP response into c.body.
func (c *client) receive() (status int, sse bool, err error) {
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return 0, false, fmt.Errorf("reply: %w", err)
	}
	f := bytes.Fields(line)
	if len(f) < 2 || !bytes.Equal(f[0], []byte("HTTP/1.1")) {
		return 0, false, fmt.Errorf("reply begins with %.60q", line)
	}
	status, _ = strconv.Atoi(string(f[1]))
	length, chunked := -1, false
	for {
		line, err = c.br.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		k, v, _ := bytes.Cut(line, []byte(":"))
		v = bytes.TrimSpace(v)
		switch {
		case bytes.EqualFold(k, []byte("Content-Length")):
			length, _ = strconv.Atoi(string(v))
		case bytes.EqualFold(k, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(v, []byte("chunked"))
		case bytes.EqualFold(k, []byte("Content-Type")):
			sse = bytes.HasPrefix(v, []byte("text/event-stream"))
		case bytes.EqualFold(k, []byte("Mcp-Session-Id")):
			c.session = string(v)
		}
	}
	c.body = c.body[:0]
	switch {
	case chunked:
		for {
			line, err = c.br.ReadSlice('\n')
			if err != nil {
				return 0, false, err
			}
			n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
			if err != nil {
				return 0, false, fmt.Errorf("chunk size %.20q", line)
			}
			if err := c.fill(int(n)); err != nil {
				return 0, false, err
			}
			if _, err := c.br.Discard(2); err != nil { // no trailers are expected
				return 0, false, err
			}
			if n == 0 {
				break
			}
		}
	case length >= 0:
		err = c.fill(length)
	case status != 204 && status != 202:
		return 0, false, errors.New("reply with neither a length nor chunks")
	}
	c.bytes += int64(len(c.body))
	return status, sse, err
}

func (c *client) fill(n int) error {
	at := len(c.body)
	c.body = slices.Grow(c.body, n)[:at+n]
	_, err := io.ReadFull(c.br, c.body[at:])
	return err
}

// job is one request with its check. i differs in every request of a client.
type job func(c *client, i int) error

// echoText is 100 bytes that differ in every request.
func echoText(c *client, i int) string {
	return fmt.Sprintf("%-16x%-16d", &c.id, i) + strings.Repeat("abcdefghijklmnopq", 4)
}

func echoJob(t *target) job {
	return func(c *client, i int) error {
		want := `"text":"` + echoText(c, i) + `"`
		got, err := c.do("tools/call", t.tool("echo"), `"name":"`+t.tool("echo")+`","arguments":{`+want+`}`)
		if err == nil && !bytes.Contains(got, []byte(want)) {
			err = fmt.Errorf("echo: wanted %s in %.300s", want, got)
		}
		return err
	}
}

func blobJob(t *target) job {
	want := []byte(pattern())
	return func(c *client, _ int) error {
		got, err := c.do("tools/call", t.tool("blob"), `"name":"`+t.tool("blob")+`","arguments":{}`)
		if err != nil {
			return err
		}
		at := bytes.Index(got, []byte(`"text":"`)) + len(`"text":"`)
		if len(got) < at+len(want) || !bytes.Equal(got[at:at+len(want)], want) {
			return fmt.Errorf("blob: %d bytes that are not the pattern", len(got))
		}
		return nil
	}
}

// listJob is a whole listing, all pages. The first listing of each client is
// counted; later ones must equal it, which costs less to check.
func listJob(tools int) job {
	return func(c *client, _ int) error {
		n, cursor, known := 0, "", len(c.pages) > 0
		for page := 0; ; page++ {
			got, err := c.do("tools/list", "", cursor)
			if err != nil {
				return err
			}
			if known && page < len(c.pages) && c.pages[page].same(got, c.id) {
				n += c.pages[page].tools
			} else {
				p := seenPage{msg: bytes.Clone(got), id: c.id, tools: bytes.Count(got, []byte(`"inputSchema":`))}
				n += p.tools
				c.pages = append(c.pages[:min(page, len(c.pages))], p)
			}
			next := nextCursor(got)
			if next == nil {
				break
			}
			cursor = `"cursor":` + string(next)
		}
		if n != tools {
			return fmt.Errorf("listed %d tools, want %d", n, tools)
		}
		return nil
	}
}

// seenPage is a page that was counted.
type seenPage struct {
	msg   []byte
	id    int
	tools int
}

// same says whether msg is this page under another id. Ids of one client have
// one length, so the id stands at the same place.
func (p seenPage) same(msg []byte, id int) bool {
	if len(msg) != len(p.msg) {
		return false
	}
	old := []byte(`"id":` + strconv.Itoa(p.id))
	at := bytes.Index(p.msg[:min(64, len(p.msg))], old)
	if at < 0 {
		at = bytes.LastIndex(p.msg, old)
	}
	end := at + len(old)
	return at >= 0 && bytes.Equal(msg[:at], p.msg[:at]) && bytes.Equal(msg[end:], p.msg[end:]) &&
		string(msg[at:end]) == `"id":`+strconv.Itoa(id)
}

// nextCursor looks only where servers put it, outside the tools.
func nextCursor(msg []byte) []byte {
	key := []byte(`"nextCursor":`)
	at := bytes.LastIndex(msg[max(0, len(msg)-4096):], key)
	if at < 0 {
		if at = bytes.Index(msg[:min(len(msg), 4096)], key); at < 0 {
			return nil
		}
	} else {
		at += max(0, len(msg)-4096)
	}
	at += len(key)
	return bytes.Clone(msg[at:skip(msg, at)])
}

// sample is one measured run.
type sample struct {
	Target   string  `json:"target"`
	Workload string  `json:"workload"`
	Round    int     `json:"round"`
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
	RPS      float64 `json:"rps"`
	P50      float64 `json:"p50_us"`
	P90      float64 `json:"p90_us"`
	P99      float64 `json:"p99_us"`
	MBPerS   float64 `json:"mb_per_s"`
	// CPU is microseconds of processor time per request, by process: the
	// target itself, the upstream behind it, and the generator.
	CPU map[string]float64 `json:"cpu_us_per_request"`
	// OtherPct is the share of the machine that went to anything else.
	OtherPct float64 `json:"other_pct"`
}

// drive runs c clients in a closed loop for d, after a warm-up of a fifth of
// it, and measures.
func drive(t *target, clients int, legacy bool, d time.Duration, j job, pids map[string]int) (sample, error) {
	cs := make([]*client, clients)
	for i := range cs {
		var err error
		if cs[i], err = dial(t, t.key, legacy); err != nil {
			return sample{}, err
		}
		defer cs[i].close()
	}
	loop := func(d time.Duration, times [][]time.Duration) error {
		var wg sync.WaitGroup
		errs := make([]error, clients)
		end := time.Now().Add(d)
		for w, c := range cs {
			wg.Go(func() {
				for i := 0; ; i++ {
					t0 := time.Now()
					if t0.After(end) && i > 0 {
						return
					}
					if errs[w] = j(c, i); errs[w] != nil {
						return
					}
					if times != nil {
						times[w] = append(times[w], time.Since(t0))
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := loop(d/5, nil); err != nil {
		return sample{}, err
	}
	times := make([][]time.Duration, clients)
	for i := range times {
		times[i] = make([]time.Duration, 0, 1<<14)
	}
	var read0 int64
	for _, c := range cs {
		read0 += c.bytes
	}
	before := map[string]time.Duration{}
	for n, pid := range pids {
		before[n] = cpu(pid)
	}
	busy0, total0 := machine()
	t0 := time.Now()
	if err := loop(d, times); err != nil {
		return sample{}, err
	}
	took := time.Since(t0)
	busy1, total1 := machine()
	all := slices.Concat(times...)
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
	var read int64
	for _, c := range cs {
		read += c.bytes
	}
	s := sample{Target: t.name, Requests: len(all), Seconds: took.Seconds(), RPS: float64(len(all)) / took.Seconds(),
		P50: at(0.5), P90: at(0.9), P99: at(0.99), MBPerS: float64(read-read0) / 1e6 / took.Seconds(), CPU: map[string]float64{}}
	var ours time.Duration
	for n, pid := range pids {
		used := cpu(pid) - before[n]
		ours += used
		s.CPU[n] = float64(used) / 1e3 / float64(len(all))
	}
	if ticks := total1 - total0; ticks > 0 {
		// 100 ticks a second and processor.
		other := float64(busy1-busy0) - ours.Seconds()*100
		s.OtherPct = max(0, 100*other/float64(ticks))
	}
	return s, nil
}
