package mcp

import (
	"errors"
	"fmt"

	"aduana/internal/jsonrpc"
)

// ListedTool is one element of an upstream's tools/list, verbatim. Problem is set when the element alone is unsound; it then says
// why, and Raw must not go anywhere.
type ListedTool struct {
	Raw     []byte
	Problem string
}

// ReadToolsPage takes the tools and the next cursor out of a scanned tools/list response (scanned with ScanTolerant and "tools").
// More reports that there is a next page; the cursor's raw JSON string is copied, and an empty string is a cursor like any other.
// The tools' bytes are copied.
func ReadToolsPage(m *jsonrpc.Message) (tools []ListedTool, cursor []byte, more bool, err error) {
	list, ok := m.Result.Get("tools")
	if !ok || list.Kind != jsonrpc.Array {
		return nil, nil, false, errors.New("tools/list answered without an array of tools")
	}
	for _, e := range m.List {
		t := ListedTool{}
		switch {
		case e.Err != nil:
			t.Problem = e.Err.Reason
		case e.Kind != jsonrpc.Object:
			t.Problem = fmt.Sprintf("a tool must be an object, not %s", e.Kind)
		default:
			t.Raw = append([]byte(nil), m.Bytes(e.Span)...)
		}
		tools = append(tools, t)
	}
	next, ok := m.Result.Get("nextCursor")
	if !ok || next.Kind == jsonrpc.Null {
		return tools, nil, false, nil
	}
	if next.Kind != jsonrpc.String {
		return nil, nil, false, errors.New("tools/list answered with a nextCursor that is not a string")
	}
	return tools, append([]byte(nil), m.Bytes(next.Value)...), true, nil
}

// The bounds of draining a list.
const (
	MaxPages = 1000
	MaxTools = 100_000
)
