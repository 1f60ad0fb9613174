package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// blobSize is the text of the blob tool, in bytes.
const blobSize = 1 << 20

// pattern is the blob's text; it needs no escaping in JSON.
func pattern() string {
	const row = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	return strings.Repeat(row, blobSize/len(row))
}

// toolName is the i-th of the upstream's tools.
func toolName(i int) string {
	switch i {
	case 0:
		return "echo"
	case 1:
		return "blob"
	}
	return fmt.Sprintf("tool_%05d", i)
}

const toolAbout = "Looks up records by identifier and returns them with their fields, newest first."
const toolSchema = `{"type":"object","properties":{"text":{"type":"string","description":"Text to look for."},"limit":{"type":"integer","description":"Largest number of records.","minimum":1,"maximum":500},"verbose":{"type":"boolean"}}}`

// answers holds everything that can be rendered before the first request.
type answers struct {
	pages []string // results of tools/list
	blob  string
}

func render(tools, page int) *answers {
	if page <= 0 {
		page = tools
	}
	a := &answers{blob: `{"content":[{"type":"text","text":"` + pattern() + `"}],"resultType":"complete"}`}
	for at := 0; at < tools; at += page {
		var b strings.Builder
		b.WriteString(`{"tools":[`)
		end := min(at+page, tools)
		for i := at; i < end; i++ {
			if i > at {
				b.WriteByte(',')
			}
			b.WriteString(`{"name":"` + toolName(i) + `","description":"` + toolAbout + `","inputSchema":` + toolSchema + `}`)
		}
		b.WriteByte(']')
		if end < tools {
			b.WriteString(`,"nextCursor":"` + strconv.Itoa(len(a.pages)+1) + `"`)
		}
		b.WriteString(`,"resultType":"complete","ttlMs":3600000,"cacheScope":"public"}`)
		a.pages = append(a.pages, b.String())
	}
	return a
}

const (
	capabilities = `"capabilities":{"tools":{"listChanged":true}}`
	discovered   = `{"supportedVersions":["2026-07-28","2025-11-25"],` + capabilities + `,"resultType":"complete","ttlMs":3600000,"cacheScope":"public"}`
	initialized  = `{"protocolVersion":"2025-11-25",` + capabilities + `,"serverInfo":{"name":"bench","version":"1"}}`
)

// result is the reply's result for a message, "" when there is no such method.
func (a *answers) result(method, params []byte) string {
	switch string(method) {
	case `"tools/call"`:
		if string(member(params, "name")) == `"blob"` {
			return a.blob
		}
		text := member(member(params, "arguments"), "text")
		if text == nil {
			text = []byte(`""`)
		}
		return `{"content":[{"type":"text","text":` + string(text) + `}],"resultType":"complete"}`
	case `"tools/list"`:
		cursor := string(bytes.Trim(member(params, "cursor"), `"`))
		n, _ := strconv.Atoi(cursor)
		if n < len(a.pages) {
			return a.pages[n]
		}
	case `"server/discover"`:
		return discovered
	case `"initialize"`:
		return initialized
	case `"ping"`:
		return "{}"
	}
	return ""
}

// runUpstream is an HTTP server by hand: net/http alone would cost more than
// what is being measured.
func runUpstream(o options) error {
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	a := render(o.tools, o.page)
	fmt.Fprintf(os.Stderr, "listening on http://%s/mcp\n", l.Addr())
	go endWithParent()
	var sessions atomic.Int64
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			a.serve(c, &sessions)
		}()
	}
}

// endWithParent ends this process when its stdin does.
func endWithParent() {
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func (a *answers) serve(c net.Conn, sessions *atomic.Int64) {
	br := bufio.NewReaderSize(c, 16<<10)
	var body, out []byte
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return
		}
		post := bytes.HasPrefix(line, []byte("POST "))
		get := bytes.HasPrefix(line, []byte("GET "))
		length := 0
		for {
			line, err = br.ReadSlice('\n')
			if err != nil {
				return
			}
			line = bytes.TrimRight(line, "\r\n")
			if len(line) == 0 {
				break
			}
			k, v, _ := bytes.Cut(line, []byte(":"))
			switch {
			case bytes.EqualFold(k, []byte("Content-Length")):
				length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
			case bytes.EqualFold(k, []byte("Transfer-Encoding")):
				io.WriteString(c, "HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				return
			}
		}
		if cap(body) < length {
			body = make([]byte, length)
		}
		body = body[:length]
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		if get {
			stream(c, br, "")
			return
		}
		if !post { // DELETE
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			continue
		}
		var id, method, params []byte
		members(body, func(k, v []byte) {
			switch string(k) {
			case "id":
				id = v
			case "method":
				method = v
			case "params":
				params = v
			}
		})
		if id == nil || method == nil {
			io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		if string(method) == `"subscriptions/listen"` {
			stream(c, br, acknowledged(id))
			return
		}
		result := a.result(method, params)
		status, head := "200 OK", `{"jsonrpc":"2.0","id":`
		member := `,"result":`
		if result == "" {
			status, member, result = "404 Not Found", `,"error":`, `{"code":-32601,"message":"method not found"}`
		}
		out = append(out[:0], "HTTP/1.1 "+status+"\r\nContent-Type: application/json\r\n"...)
		if string(method) == `"initialize"` {
			out = fmt.Appendf(out, "Mcp-Session-Id: s%d\r\n", sessions.Add(1))
		}
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, int64(len(head)+len(id)+len(member)+len(result)+1), 10)
		out = append(out, "\r\n\r\n"...)
		out = append(append(append(out, head...), id...), member...)
		if len(result) < 8<<10 {
			out = append(append(out, result...), '}')
			_, err = c.Write(out)
		} else {
			// Large results go out as they are stored.
			bufs := net.Buffers{out, []byte(result), []byte("}")}
			_, err = bufs.WriteTo(c)
		}
		if err != nil {
			return
		}
	}
}

func acknowledged(id []byte) string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(id) + `}}}`
}

// stream holds an event stream open until the client closes it.
func stream(c net.Conn, br *bufio.Reader, first string) {
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	if first != "" {
		event := "data: " + first + "\n\n"
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(event), event)
	}
	io.Copy(io.Discard, br)
}

// runStdio is the same server over stdio. It flushes when no further request
// is waiting, as a server that pipelines would.
func runStdio(o options) error {
	a := render(o.tools, o.page)
	br := bufio.NewReaderSize(os.Stdin, 64<<10)
	bw := bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return bw.Flush()
		}
		var id, method, params []byte
		members(line, func(k, v []byte) {
			switch string(k) {
			case "id":
				id = v
			case "method":
				method = v
			case "params":
				params = v
			}
		})
		switch {
		case id == nil || method == nil:
		case string(method) == `"subscriptions/listen"`: // stays open: the tools never change
			bw.WriteString(acknowledged(id) + "\n")
		default:
			bw.WriteString(`{"jsonrpc":"2.0","id":`)
			bw.Write(id)
			if result := a.result(method, params); result != "" {
				bw.WriteString(`,"result":` + result + "}\n")
			} else {
				bw.WriteString(`,"error":{"code":-32601,"message":"method not found"}}` + "\n")
			}
		}
		if br.Buffered() == 0 {
			if err := bw.Flush(); err != nil {
				return err
			}
		}
	}
}
