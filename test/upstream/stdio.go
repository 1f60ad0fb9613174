package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"sync"
)

// Serve speaks over a pair of pipes, one message per line, until the input
// ends (unless Config.IgnoreEOF), ctx ends or the server is closed. Requests
// still being answered are then cancelled and waited for. If out is an
// io.Closer, [Call.Abort] closes it.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(s.ctx, cancel)()
	c := &stdioConn{s: s, out: out, ctx: ctx}
	defer c.wg.Wait()
	defer cancel()
	if s.cfg.Banner != "" {
		c.write([]byte(s.cfg.Banner))
	}
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		br := bufio.NewReaderSize(in, 64<<10)
		for {
			line, err := br.ReadBytes('\n')
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		select {
		case line := <-lines:
			c.receive(line)
		case err := <-failed:
			if s.cfg.IgnoreEOF {
				<-ctx.Done()
			}
			if err == io.EOF {
				err = nil
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stdioConn is one connection; it is the sink of all its calls.
type stdioConn struct {
	s    *Server
	ctx  context.Context
	wg   sync.WaitGroup
	init bool // initialize was received; touched by Serve's goroutine only

	mu  sync.Mutex
	out io.Writer
}

func (c *stdioConn) write(raw []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.out.Write(raw)
	return err
}

func (c *stdioConn) emit(frame []byte) error {
	return c.write(append(bytes.Clone(frame), '\n'))
}

func (c *stdioConn) reply(frame []byte, _ int) error { return c.emit(frame) }

func (c *stdioConn) replyFrom(r io.Reader, _ bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.Copy(c.out, r); err != nil {
		return err
	}
	_, err := io.WriteString(c.out, "\n")
	return err
}

// abort does not take the lock: a write may be stuck on a full pipe.
func (c *stdioConn) abort() {
	if cl, ok := c.out.(io.Closer); ok {
		cl.Close()
	}
}

func (c *stdioConn) receive(line []byte) {
	s := c.s
	m, code, why := parse(line)
	version := metaVersion(m.params)
	modern := version >= Modern
	s.log.add(Received{Stdio: true, Body: string(line), Method: m.method, Tool: toolName(m), Modern: modern})
	switch {
	case code != 0:
		c.reply(Error(m.id, code, why, nil), 0)
	case m.response:
		s.responded(c, m, line)
	case m.id == nil:
		if m.method == "notifications/cancelled" {
			s.cancelled(c, m.params)
		}
	case m.method == "initialize" && !modern && s.cfg.Eras != ModernOnly:
		v := s.negotiate(m.params)
		c.reply(Result(m.id, s.initializeResult(v)), 0)
		if !c.init {
			c.init = true
			remove := s.addStream(&stream{session: &session{version: v}, tools: true, send: c.emit})
			context.AfterFunc(c.ctx, remove)
		}
	case modern && s.cfg.Eras == LegacyOnly:
		c.probed(m, version)
	case modern && version != Modern:
		c.reply(Error(m.id, -32022, "unsupported protocol version: "+version, s.unsupported(version)), 0)
	case modern && badMeta(m.params) != "", !modern && s.cfg.Eras == ModernOnly && m.method != "initialize":
		c.reply(Error(m.id, -32602, badMeta(m.params), nil), 0)
	case !modern && !c.init && m.method != "ping" && s.cfg.Eras != ModernOnly:
		c.reply(Error(m.id, -32600, "initialize first, or send _meta with a protocol version", nil), 0)
	default:
		call := s.newCall(m, line, c, c)
		call.Modern, call.Stdio = modern || s.cfg.Eras == ModernOnly, true
		ctx, done := s.begin(c.ctx, call)
		c.wg.Go(func() {
			defer done()
			s.answer(ctx, call)
		})
	}
}

func (c *stdioConn) probed(m message, version string) {
	s := c.s
	probe := s.cfg.Probe
	if m.method != "server/discover" {
		probe = ProbeDefault
	}
	switch probe {
	case ProbeUnsupported:
		c.reply(Error(m.id, -32022, "unsupported protocol version: "+version, s.unsupported(version)), 0)
	case ProbeLegacyList:
		c.reply(Result(m.id, s.discoverResult(s.cfg.LegacyVersions)), 0)
	case ProbeHang:
	default:
		c.reply(Error(m.id, -32601, "method not found: "+m.method, nil), 0)
	}
}
