package gateway

import (
	"crypto/sha256"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"aduana/access"
	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/jsonrpc"
	"aduana/internal/mcp"
	"aduana/principals"
)

// view is what one caller sees on one endpoint, in one snapshot, until an instant. Callers who see the same share the rendered pages.
type view struct {
	*rendered
	withheld []byte // the members of _meta["aduana/withheld"], nil for none
	until    int64
}

type rendered struct {
	digest [sha256.Size]byte
	scope  capabilities.UpstreamID
	tools  []*assembly.Tool
	pages  [][]byte // each `"tools":[…]`; nil when nobody asked lately. Read and set under the lock of views.
	bytes  int      // of pages

	once  sync.Once
	shown [sha256.Size]byte // see holds
}

// holds is a digest of what the list holds, independent of the snapshot that it comes from. All who see the same share it: watchers may be
// many, and each is asked at every change.
func (r *rendered) holds() [sha256.Size]byte {
	r.once.Do(func() {
		h := sha256.New()
		for _, t := range r.tools {
			h.Write([]byte(t.Canonical + " " + string(t.Digest) + "\n"))
		}
		r.shown = [sha256.Size]byte(h.Sum(nil))
	})
	return r.shown
}

// views keeps the views of one snapshot. They are made on demand and die with it.
type views struct {
	mu       sync.Mutex
	byCaller map[viewKey]view
	bySet    map[[sha256.Size]byte]*rendered
	fresh    []*rendered // those with pages, the least recently made first
	bytes    int         // of all pages
}

type viewKey struct {
	scope  capabilities.UpstreamID
	caller string
}

// maxViews bounds what one snapshot keeps; past it the cache starts anew. maxPages bounds the bytes of rendered pages: rendering
// 10,000 tools costs less than sending them, so that keeping every view's pages would buy little for much memory.
const (
	maxViews = 10_000
	maxPages = 16 << 20
)

func (g *Gateway) view(s *standing, p principals.Principal, scope capabilities.UpstreamID, at int64) view {
	key := viewKey{scope, callerKey(p)}
	s.views.mu.Lock()
	defer s.views.mu.Unlock()
	if v, ok := s.views.byCaller[key]; ok && at < v.until {
		return v
	}
	if s.views.byCaller == nil || len(s.views.byCaller) >= maxViews {
		s.views.byCaller = map[viewKey]view{}
		s.views.bySet = map[[sha256.Size]byte]*rendered{}
		s.views.fresh, s.views.bytes = nil, 0
	}
	tools, withheld := s.View(assembly.CallerOf(p), scope, at)
	digest := setDigest(s.Hash, scope, tools)
	r, ok := s.views.bySet[digest]
	if !ok {
		r = &rendered{digest: digest, scope: scope, tools: tools}
		s.views.bySet[digest] = r
	}
	v := view{rendered: r, withheld: withheldMembers(withheld), until: s.ValidUntil(at)}
	s.views.byCaller[key] = v
	return v
}

// callerKey is equal for principals whom the policy cannot tell apart.
func callerKey(p principals.Principal) string {
	var b strings.Builder
	b.WriteString(p.ID())
	for _, a := range p.Attributes() {
		b.WriteByte(0)
		b.WriteString(strconv.Itoa(len(a.Name)))
		b.WriteByte(':')
		b.WriteString(a.Name)
		b.WriteString(a.Value)
	}
	return b.String()
}

func setDigest(hash string, scope capabilities.UpstreamID, tools []*assembly.Tool) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(hash + "\n" + string(scope) + "\n"))
	for _, t := range tools {
		h.Write([]byte(t.Canonical + "\n"))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// page gives the bytes of a page, rendering all of them if they are not kept; false when there is no such page.
func (v *views) page(r *rendered, number, size int) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.pages == nil {
		r.render(size)
		v.fresh = append(v.fresh, r)
		v.bytes += r.bytes
		for v.bytes > maxPages && len(v.fresh) > 1 {
			old := v.fresh[0]
			v.fresh = v.fresh[1:]
			v.bytes -= old.bytes
			old.pages = nil
		}
	}
	if number >= len(r.pages) {
		return nil, false
	}
	return r.pages[number], true
}

func (r *rendered) render(size int) {
	r.bytes = 0
	for start := 0; start == 0 || start < len(r.tools); start += size {
		part := r.tools[start:min(start+size, len(r.tools))]
		room := len(`"tools":[]`) + len(part)
		for _, t := range part {
			room += len(t.Listed(r.scope))
		}
		page := append(make([]byte, 0, room), `"tools":[`...)
		for i, t := range part {
			if i > 0 {
				page = append(page, ',')
			}
			page = append(page, t.Listed(r.scope)...)
		}
		r.pages = append(r.pages, append(page, ']'))
		r.bytes += room
	}
}

// shownName is the name by which a tool is listed and called on an endpoint.
func shownName(t *assembly.Tool, scope capabilities.UpstreamID) string {
	if scope != "" {
		return t.Identity.Name
	}
	return string(t.Exposed)
}

func withheldMembers(counts map[capabilities.Withheld]int) []byte {
	if len(counts) == 0 {
		return nil
	}
	reasons := make([]string, 0, len(counts))
	for r := range counts {
		reasons = append(reasons, string(r))
	}
	slices.Sort(reasons)
	b := []byte{'{'}
	for i, r := range reasons {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonrpc.AppendString(b, r)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(counts[capabilities.Withheld(r)]), 10)
	}
	return append(b, '}')
}

// list answers tools/list from the snapshot alone: no upstream is asked, and one that is down costs nobody a list.
func (g *Gateway) list(rq *Request, reply Reply) {
	at := g.cfg.Clock().UnixMilli()
	s := g.current.Load()
	v := g.view(s, rq.Principal, rq.Scope, at)
	number := 0
	if c, ok := rq.Message.Params.Get("cursor"); ok && c.Kind != jsonrpc.Null {
		text, err := rq.Message.String(c)
		from, known := g.seal.openCursor(rq.Principal.ID(), text)
		// A cursor of an older snapshot or another view is refused, not guessed at: the client lists anew and sees each tool once.
		if err != nil || !known || from.view != v.digest {
			g.fail(rq, reply, mcp.InvalidParams("this cursor is not of the current list; start again without one"))
			return
		}
		number = int(from.offset)
	}
	page, ok := s.views.page(v.rendered, number, g.cfg.PageSize)
	if !ok {
		g.fail(rq, reply, mcp.InvalidParams("this list has no such page; start again without a cursor"))
		return
	}
	tail := make([]byte, 0, 512)
	if (number+1)*g.cfg.PageSize < len(v.tools) {
		tail = append(tail, `,"nextCursor":`...)
		tail = jsonrpc.AppendString(tail, g.seal.sealCursor(rq.Principal.ID(), cursor{v.digest, uint32(number + 1)}))
	}
	if rq.Era == mcp.Modern {
		ttl := g.cfg.ListTTL.Milliseconds()
		if v.until != math.MaxInt64 {
			ttl = max(0, min(ttl, v.until-at))
		}
		tail = append(tail, `,"resultType":"complete","cacheScope":"private","ttlMs":`...)
		tail = strconv.AppendInt(tail, ttl, 10)
	}
	if v.withheld != nil || rq.Era == mcp.Modern {
		tail = append(tail, `,"_meta":{`...)
		if v.withheld != nil {
			tail = append(append(tail, `"aduana/withheld":`...), v.withheld...)
		}
		if rq.Era == mcp.Modern {
			if v.withheld != nil {
				tail = append(tail, ',')
			}
			own := g.greeting.AppendServerMeta(nil)
			tail = append(tail, own[1:len(own)-1]...)
		}
		tail = append(tail, '}')
	}
	tail = append(tail, `}}`...)
	head := append(responseHead(make([]byte, 0, 96), rq.Message.ID()), '{')
	reply.Answer(mcp.StatusOK, head, page, tail)
}

// maxSimilar bounds the search for a name that was meant, in comparisons of two bytes, about 2 ns each: a wrong name must not cost much
// more than a right one.
const maxSimilar = 1 << 21

// similar gives up to three visible names that a caller may have meant. It looks only at what the caller sees, so that it tells
// nothing else.
func (v view) similar(scope capabilities.UpstreamID, asked string) []string {
	if len(v.tools) > 2000 || len(asked) > capabilities.MaxToolName {
		return nil
	}
	type match struct {
		name     string
		distance int
	}
	var close []match
	far := max(2, len(asked)/4)
	work := maxSimilar
	for _, t := range v.tools {
		name := shownName(t, scope)
		d := far + 1
		switch {
		case strings.HasSuffix(name, "__"+asked) || strings.EqualFold(name, asked):
			d = 0
		case max(len(name)-len(asked), len(asked)-len(name)) <= far:
			if work -= len(name) * len(asked); work >= 0 {
				d = distance(asked, name)
			}
		}
		if d <= far {
			close = append(close, match{name, d})
		}
	}
	slices.SortFunc(close, func(a, b match) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, m := range close[:min(3, len(close))] {
		out = append(out, m.name)
	}
	return out
}

// distance is Levenshtein's, by bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, cost)
		}
	}
	return row[len(b)]
}

// granted reports whether the caller's list would hold the capability's tools.
func granted(s *standing, p principals.Principal, capability string, at int64) bool {
	inv := invocation(p, capability, at)
	inv.Usage.State = access.NotConsulted
	return access.Evaluate(s.Access, inv).Allowed()
}
