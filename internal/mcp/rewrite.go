package mcp

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"aduana/internal/jsonrpc"
)

// Implementation names a program in clientInfo and serverInfo.
type Implementation struct {
	Name    string
	Version string
}

func (i Implementation) append(dst []byte) []byte {
	dst = append(dst, `{"name":`...)
	dst = jsonrpc.AppendString(dst, i.Name)
	dst = append(dst, `,"version":`...)
	dst = jsonrpc.AppendString(dst, i.Version)
	return append(dst, '}')
}

// CallSpec says how a client's tools/call goes up: under the upstream's era, a fresh id, the tool's own name, and a fresh progress token
// when the client asked for progress.
type CallSpec struct {
	Era    Era // of the upstream
	ID     uint64
	Name   string
	Token  uint64 // 0 = the client asked for no progress
	Client Implementation
}

// AppendCall appends the tools/call for an upstream, made from a client's scanned tools/call. What changes: id, name, the protocol's
// own _meta members and progressToken; members of _meta that are the gateway's alone and capabilities that nothing here bridges are
// dropped; missing arguments become {}, so that an upstream sees one form of "none". Every other member of params and _meta goes on
// byte for byte, in its order.
func AppendCall(dst []byte, m *jsonrpc.Message, s CallSpec) ([]byte, error) {
	if s.Era == NoEra {
		return dst, errors.New("a call needs the upstream's era")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendUint(dst, s.ID, 10)
	dst = append(dst, `,"method":"tools/call","params":{"name":`...)
	dst = jsonrpc.AppendString(dst, s.Name)
	arguments := false
	for i := range m.Params {
		p := &m.Params[i]
		switch p.Key {
		case "name", "_meta", "requestState", "inputResponses", "task":
			continue
		case "arguments":
			arguments = true
		}
		dst = append(dst, ',')
		dst = append(dst, m.Raw[p.KeySpan.Start:p.Value.End]...)
	}
	if !arguments {
		dst = append(dst, `,"arguments":{}`...)
	}
	dst = appendMeta(dst, m, s)
	return append(dst, `}}`...), nil
}

func appendMeta(dst []byte, m *jsonrpc.Message, s CallSpec) []byte {
	const head = `,"_meta":{`
	start := len(dst)
	dst = append(dst, head...)
	empty := len(dst)
	sep := func() {
		if len(dst) > empty {
			dst = append(dst, ',')
		}
	}
	clientInfo := false
	for i := range m.Meta {
		p := &m.Meta[i]
		switch {
		case p.Key == MetaVersion, p.Key == MetaCapabilities, p.Key == MetaLogLevel, p.Key == MetaProgressToken,
			strings.HasPrefix(p.Key, MetaOwnPrefix):
			continue
		case p.Key == MetaClientInfo:
			if s.Era != Modern {
				continue
			}
			clientInfo = true
		}
		sep()
		dst = append(dst, m.Raw[p.KeySpan.Start:p.Value.End]...)
	}
	if s.Token != 0 {
		sep()
		dst = append(dst, `"progressToken":`...)
		dst = strconv.AppendUint(dst, s.Token, 10)
	}
	if s.Era == Modern {
		sep()
		dst = appendModernMeta(dst, s.Client, !clientInfo)
	}
	if len(dst) == empty {
		return dst[:start]
	}
	return append(dst, '}')
}

// appendModernMeta writes what every modern request must carry. No client capability is claimed: nothing that an upstream could ask of
// a client is bridged.
func appendModernMeta(dst []byte, client Implementation, withInfo bool) []byte {
	dst = append(dst, `"`+MetaVersion+`":"`+LatestModern+`","`+MetaCapabilities+`":{}`...)
	if withInfo {
		dst = append(dst, `,"`+MetaClientInfo+`":`...)
		dst = client.append(dst)
	}
	return dst
}

// AppendRequest appends a request of the gateway's own. Params holds the members of params without the braces, nil for none.
func AppendRequest(dst []byte, era Era, id uint64, method string, params []byte, client Implementation) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, `,"method":`...)
	dst = jsonrpc.AppendString(dst, method)
	dst = append(dst, `,"params":{`...)
	dst = append(dst, params...)
	if era == Modern {
		if len(params) > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `"_meta":{`...)
		dst = appendModernMeta(dst, client, true)
		dst = append(dst, '}')
	}
	return append(dst, `}}`...)
}

// AppendInitialize appends the legacy handshake's request.
func AppendInitialize(dst []byte, id uint64, client Implementation) []byte {
	params := append([]byte(nil), `"protocolVersion":"`+LatestLegacy+`","capabilities":{},"clientInfo":`...)
	return AppendRequest(dst, Legacy, id, MethodInitialize, client.append(params), client)
}

// AppendNotification appends a notification of the gateway's own; params as in AppendRequest.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = jsonrpc.AppendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":{`...)
		dst = append(dst, params...)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// AppendCancelled appends the notification that a request of ours is given up.
func AppendCancelled(dst []byte, id uint64, reason string) []byte {
	params := append([]byte(nil), `"requestId":`...)
	params = strconv.AppendUint(params, id, 10)
	params = append(params, `,"reason":`...)
	return AppendNotification(dst, MethodCancelled, jsonrpc.AppendString(params, reason))
}

// CheckResult says whether a response to a tools/call can go to a client: a result that is an object, and complete. Nothing here
// asks a client for input, so an upstream that answers input_required, or with a kind of result that is not known, has broken the
// protocol. The error quotes at most the kind.
func CheckResult(m *jsonrpc.Message) error {
	if len(m.Error) > 0 {
		return nil
	}
	r, ok := m.Top.Get("result")
	if !ok || r.Kind != jsonrpc.Object {
		return errors.New("the result is not an object")
	}
	if t, ok := m.Result.Get("resultType"); ok {
		text, err := m.String(t)
		if err != nil || text != "complete" {
			return fmt.Errorf("resultType %q, where only complete was possible", clip(text))
		}
	}
	return nil
}

// ResultIsError reports whether a tool says of its own result that it failed.
func ResultIsError(m *jsonrpc.Message) bool {
	e, ok := m.Result.Get("isError")
	return ok && string(m.Bytes(e.Value)) == "true"
}

// ResultParts appends the parts that, joined, are the client's response: the client's own id bytes, then the result or error as it
// came. What changes: a modern client gets resultType when a legacy upstream gave none; content that is null becomes the empty
// list; _meta members that are the gateway's alone are dropped. The parts share memory with m, so that a large result is not copied.
func ResultParts(parts [][]byte, id []byte, m *jsonrpc.Message, client Era) [][]byte {
	parts = append(parts, partHead, id)
	if e, ok := m.Top.Get("error"); ok {
		return append(parts, partError, m.Bytes(e.Value), partEnd)
	}
	parts = append(parts, partResult)
	r, _ := m.Top.Get("result")
	from := r.Value.Start // what comes next
	for i := range m.Result {
		switch p := &m.Result[i]; {
		case p.Key == "content" && p.Kind == jsonrpc.Null:
			parts = append(parts, m.Raw[from:p.Value.Start], partNone)
			from = p.Value.End
		case p.Key == "_meta" && slices.ContainsFunc(m.ResultMeta, own):
			parts = append(parts, m.Raw[from:p.Value.Start], appendForeign(nil, m, m.ResultMeta))
			from = p.Value.End
		}
	}
	if _, typed := m.Result.Get("resultType"); client == Modern && !typed {
		brace := r.Value.End - 1
		parts = append(parts, m.Raw[from:brace])
		if len(m.Result) > 0 {
			parts = append(parts, partComma)
		}
		parts = append(parts, partComplete)
		from = brace
	}
	return append(parts, m.Raw[from:r.Value.End], partEnd)
}

// What stands around the bytes of others. Nobody writes to these.
var (
	partHead     = []byte(`{"jsonrpc":"2.0","id":`)
	partError    = []byte(`,"error":`)
	partResult   = []byte(`,"result":`)
	partNone     = []byte(`[]`)
	partComma    = []byte(`,`)
	partComplete = []byte(`"resultType":"complete"`)
	partEnd      = []byte(`}`)
)

// own reports whether a member of _meta is the gateway's alone.
func own(m jsonrpc.Member) bool { return strings.HasPrefix(m.Key, MetaOwnPrefix) }

// appendForeign appends a _meta of the message without the members that are the gateway's alone.
func appendForeign(dst []byte, m *jsonrpc.Message, meta jsonrpc.Members) []byte {
	dst = append(dst, '{')
	empty := len(dst)
	for i := range meta {
		p := &meta[i]
		if own(*p) {
			continue
		}
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(dst, m.Raw[p.KeySpan.Start:p.Value.End]...)
	}
	return append(dst, '}')
}

// AppendProgress appends a notifications/progress for the client, made from the upstream's: the token is the client's own bytes,
// the rest as it came, but for _meta members that are the gateway's alone.
func AppendProgress(dst []byte, m *jsonrpc.Message, token []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	dst = append(dst, token...)
	for i := range m.Params {
		p := &m.Params[i]
		if p.Key == "progressToken" {
			continue
		}
		dst = append(dst, ',')
		if p.Key == "_meta" && slices.ContainsFunc(m.Meta, own) {
			dst = append(dst, `"_meta":`...)
			dst = appendForeign(dst, m, m.Meta)
			continue
		}
		dst = append(dst, m.Raw[p.KeySpan.Start:p.Value.End]...)
	}
	return append(dst, `}}`...)
}

// ProgressToken gives the token of our own that a notifications/progress names; ok is false for anything that we never gave out.
func ProgressToken(m *jsonrpc.Message) (uint64, bool) {
	t, ok := m.Params.Get(MetaProgressToken)
	if !ok || t.Kind != jsonrpc.Number {
		return 0, false
	}
	n, err := strconv.ParseUint(string(m.Bytes(t.Value)), 10, 64)
	return n, err == nil && n != 0
}

// OwnID gives the number of a response's id when it is one that AppendCall or AppendRequest can have written.
func OwnID(m *jsonrpc.Message) (uint64, bool) {
	n, err := strconv.ParseUint(string(m.ID()), 10, 64)
	// "07" and "+7" parse, but nobody here wrote them: a reply must echo our bytes.
	return n, err == nil && string(m.ID()) == strconv.FormatUint(n, 10)
}
