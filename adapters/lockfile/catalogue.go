package lockfile

import (
	"fmt"
	"slices"

	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/jsonrpc"
	"go.yaml.in/yaml/v3"
)

// members of an entry besides upstream: those of a tool in MCP. Others are refused, so that a slip of the pen does not become a
// tool that is pinned by less than its author thinks.
var entryMembers = []string{"upstream", "name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution", "icons", "_meta"}

// openSchema is served for a tool of which the catalogue gives no schema. It is not pinned: only what was written is.
const openSchema = `{"type":"object"}`

// readCatalogue reads
//
//	version: 1
//	tools:
//	  - upstream: billing
//	    name: create_invoice
//	    description: Issue an invoice
//	    inputSchema: {type: object}
//
// The version is not looked at. A tool that stands twice is kept in no lock, since nobody could say which of the two was meant;
// both stay in the entries.
func readCatalogue(root value, info *Info) (assembly.Lock, error) {
	if root.Kind != yaml.MappingNode {
		return assembly.Lock{}, at(root.Node, "want a mapping with version and tools")
	}
	tools, ok := root.get("tools")
	if !ok || tools.Kind != yaml.SequenceNode {
		return assembly.Lock{}, at(root.Node, "no list of tools; write tools: [] if there are none")
	}
	if err := root.closed("a catalogue", "version", "tools"); err != nil {
		return assembly.Lock{}, err
	}
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}}
	times := map[capabilities.Identity]int{}
	var list []assembly.LockedTool
	for i, n := range tools.Content {
		tool, err := readEntry(follow(n), fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return assembly.Lock{}, err
		}
		id := tool.Pin.Identity
		times[id]++
		list = append(list, tool)
		info.Entries = append(info.Entries, Entry{Upstream: string(id.Upstream), Name: id.Name, Line: n.Line})
	}
	for _, tool := range list {
		id := tool.Pin.Identity
		if times[id] > 1 {
			continue
		}
		u := lock.Upstreams[id.Upstream]
		u.Tools = append(u.Tools, tool)
		lock.Upstreams[id.Upstream] = u
	}
	for _, u := range lock.Upstreams {
		slices.SortFunc(u.Tools, func(a, b assembly.LockedTool) int { return capabilities.Compare(a.Pin.Identity, b.Pin.Identity) })
	}
	return lock, nil
}

func readEntry(entry value, what string) (assembly.LockedTool, error) {
	var none assembly.LockedTool
	if entry.Kind != yaml.MappingNode {
		return none, at(entry.Node, "%s must be a mapping with upstream and name", what)
	}
	upstream, err := entry.text(what, "upstream")
	if err != nil {
		return none, err
	}
	name, err := entry.text(what, "name")
	if err != nil {
		return none, err
	}
	if upstream == "" || name == "" {
		return none, at(entry.Node, "%s: upstream and name must not be empty", what)
	}
	if err := entry.closed(what, entryMembers...); err != nil {
		return none, err
	}
	raw := []byte{'{'}
	for i := 0; i+1 < len(entry.Content); i += 2 {
		key := follow(entry.Content[i]).Value
		if key == "upstream" || key == "description" && !follow(entry.Content[i+1]).isText() {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(jsonrpc.AppendString(raw, key), ':')
		if raw, err = appendJSON(raw, entry.Content[i+1]); err != nil {
			return none, err
		}
	}
	raw = append(raw, '}')
	declared := assembly.Observe(raw)
	if _, ok := entry.get("inputSchema"); !ok {
		raw = append(raw[:len(raw)-1:len(raw)-1], `,"inputSchema":`+openSchema+`}`...)
	}
	if served := assembly.Observe(raw); served.Problem != "" {
		return none, at(entry.Node, "%s: %s", what, served.Problem)
	}
	id := capabilities.Identity{Kind: capabilities.Tool, Upstream: capabilities.UpstreamID(upstream), Name: name}
	return assembly.LockedTool{Pin: capabilities.Pin{Identity: id, Definition: declared.Definition, Partial: true}, Raw: raw}, nil
}
