package mcphttp

import (
	"context"
	"net/http"
	"time"

	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
)

// The back-off between streams. A stream that lasted resets it.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	lasted     = 30 * time.Second
)

// maxNotice bounds one message on a stream of notices.
const maxNotice = 1 << 20

// watch keeps the stream open on which the server announces that its tools changed. It gives up when the server has none, and ends
// with the session.
func (s *session) watch(ctx context.Context) {
	pause := firstPause
	for again := false; ; again = true {
		began := time.Now()
		resp := s.openStream(ctx)
		if resp == nil {
			return
		}
		types := resp.Header["Content-Type"]
		stream := len(types) == 1 && mediaType(types[0]) == "text/event-stream"
		if resp.StatusCode == http.StatusOK && stream {
			if again {
				s.changed() // what was announced between the streams went nowhere
			}
			s.follow(resp)
		}
		resp.Body.Close()
		switch code := resp.StatusCode; {
		case ctx.Err() != nil:
			return
		case code == http.StatusNotFound && s.sessionID != "":
			s.die()
			return
		case code == http.StatusOK && !stream:
			return // an error in JSON, or something that is no MCP
		case code >= 300 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
			return // 405 above all: there is no stream
		}
		if time.Since(began) > lasted {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// openStream asks for the stream, with pauses as long as the server cannot be reached; nil when ctx has ended.
func (s *session) openStream(ctx context.Context) *http.Response {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var resp *http.Response
		var err error
		if s.era == mcp.Modern {
			body := mcp.AppendRequest(nil, mcp.Modern, s.ids.Add(1), mcp.MethodListen, []byte(`"notifications":{"toolsListChanged":true}`), s.u.o.Client)
			resp, _, err = s.post(ctx, s.modernHead(mcp.MethodListen, ""), body)
		} else {
			resp, _, err = s.do(ctx, http.MethodGet, []byte(s.line(http.MethodGet)+"Accept: text/event-stream\r\n"+s.legacy+"\r\n"))
		}
		if err == nil {
			return resp
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// follow reads a stream of notices until it ends.
func (s *session) follow(resp *http.Response) {
	events := mcp.NewEventReader(resp.Body, maxNotice)
	m := new(jsonrpc.Message)
	for {
		data, err := events.Next()
		if err != nil {
			return
		}
		if len(data) == 0 || m.Scan(data, jsonrpc.Limits{Bytes: maxNotice}) != nil {
			continue
		}
		if m.Form() == jsonrpc.Response {
			if s.era == mcp.Modern {
				return // the server ends the subscription
			}
			s.u.foreign.Add(1)
			continue
		}
		s.aside(m, wanted{})
	}
}
