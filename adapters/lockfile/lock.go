package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"aduana/assembly"
	"aduana/capabilities"
	"aduana/internal/atomicfile"
	"aduana/internal/jsonrpc"
	"go.yaml.in/yaml/v3"
)

// The lock:
//
//	version: 1
//	definitions: {file: "aduana.lock.defs-5b2f0c1d9e77.jsonl", digest: "sha256:…"}
//	upstreams:
//	  "billing":
//	    binding: "sha256:…"
//	    tools:
//	      - {identity: "mcp:billing:create_invoice", definition: "sha256:…", verdict: "write", by: "ana", at: "2026-08-01T10:00:00Z"}
//
// and its file of definitions, one line for each line above, in the same order:
//
//	{"identity":"mcp:billing:create_invoice","definition":"{\"name\":\"create_invoice\",…}"}
//
// A definition is a JSON string and not a JSON value, so that no tool on the way can re-order or re-format it: its decoded text is
// the upstream's bytes.
//
// The file of definitions is named after its content. So a new one never overwrites the one that the old lock needs, and a crash
// between the two writes leaves the old pair whole, with a stray file at worst.

const lockVersion = "1"

const header = "# Tools that were accepted, and where. Written by aduana; review changes like code.\n"

// ErrStale is wrapped by Write when the file is not the one that the lock was read from.
var ErrStale = errors.New("the lock has changed meanwhile; read it again and repeat")

// readLock reads a lock and its definitions.
func readLock(text content, root value, info *Info, open func(string) (content, error)) (assembly.Lock, error) {
	if err := trusted(text); err != nil {
		return assembly.Lock{}, err
	}
	if err := root.closed("a lock", "version", "definitions", "upstreams"); err != nil {
		return assembly.Lock{}, err
	}
	if v, ok := root.get("version"); !ok || v.Value != lockVersion {
		return assembly.Lock{}, at(root.Node, "want version: %s; another version needs another aduana", lockVersion)
	}
	file, digest, err := definitionsOf(root)
	if err != nil {
		return assembly.Lock{}, err
	}
	side, err := open(file)
	if err != nil {
		return assembly.Lock{}, fmt.Errorf("the definitions of lock %s: %w; restore both files together", text.path, err)
	}
	if err := trusted(side); err != nil {
		return assembly.Lock{}, err
	}
	if got := sum(side.bytes); got != digest {
		return assembly.Lock{}, fmt.Errorf("%s holds definitions with digest %s, but %s has %s; restore both files together, or accept again",
			text.path, digest, side.path, got)
	}
	info.Definitions = side.path

	upstreams, _ := root.get("upstreams")
	if upstreams.Kind != yaml.MappingNode {
		return assembly.Lock{}, at(upstreams.Node, "upstreams must be a mapping")
	}
	lock := assembly.Lock{Upstreams: map[capabilities.UpstreamID]assembly.LockedUpstream{}, Digest: sumOf(text.bytes, side.bytes)}
	definitions := lines{rest: side.bytes, path: side.path}
	for i := 0; i+1 < len(upstreams.Content); i += 2 {
		id := capabilities.UpstreamID(follow(upstreams.Content[i]).Value)
		if !id.Valid() {
			return assembly.Lock{}, at(upstreams.Content[i], "%q is no upstream id", id)
		}
		u, err := readUpstream(id, follow(upstreams.Content[i+1]), info, &definitions)
		if err != nil {
			return assembly.Lock{}, err
		}
		lock.Upstreams[id] = u
	}
	return lock, nil
}

func definitionsOf(root value) (file string, digest capabilities.Digest, err error) {
	definitions, ok := root.get("definitions")
	if !ok {
		return "", "", at(root.Node, "a lock has no definitions")
	}
	if err := definitions.closed("definitions", "file", "digest"); err != nil {
		return "", "", err
	}
	if file, err = definitions.text("definitions", "file"); err != nil {
		return "", "", err
	}
	if !beside(file) {
		return "", "", at(definitions.Node, "definitions: %q must be the name of a file beside the lock", file)
	}
	digest, err = digestOf(definitions, "definitions", "digest")
	return file, digest, err
}

// beside tells the name of a file in the lock's own directory from a way to any other place.
func beside(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "." && !strings.ContainsAny(name, "/\\\x00")
}

func digestOf(v value, what, name string) (capabilities.Digest, error) {
	s, err := v.text(what, name)
	if err != nil {
		return "", err
	}
	if !isDigest(s) {
		return "", at(v.Node, "%s: %s must be sha256: and 64 lower-case hex digits", what, name)
	}
	return capabilities.Digest(s), nil
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

func readUpstream(id capabilities.UpstreamID, v value, info *Info, definitions *lines) (assembly.LockedUpstream, error) {
	what := fmt.Sprintf("upstream %q", id)
	var u assembly.LockedUpstream
	if err := v.closed(what, "binding", "tools"); err != nil {
		return u, err
	}
	var err error
	if u.Binding, err = digestOf(v, what, "binding"); err != nil {
		return u, err
	}
	tools, ok := v.get("tools")
	if !ok || tools.Kind != yaml.SequenceNode {
		return u, at(v.Node, "%s has no list of tools", what)
	}
	seen := map[string]bool{}
	for i, n := range tools.Content {
		what := fmt.Sprintf("%s, tools[%d]", what, i)
		entry := follow(n)
		if err := entry.closed(what, "identity", "definition", "verdict", "by", "at"); err != nil {
			return u, err
		}
		tool, err := readTool(id, entry, what, definitions)
		if err != nil {
			return u, err
		}
		name := tool.Pin.Identity.Name
		if seen[name] {
			return u, at(n, "%s: %s stands twice", what, tool.Pin.Identity)
		}
		seen[name] = true
		u.Tools = append(u.Tools, tool)
		info.Entries = append(info.Entries, Entry{Upstream: string(id), Name: name, Line: n.Line})
	}
	return u, nil
}

func readTool(upstream capabilities.UpstreamID, entry value, what string, definitions *lines) (assembly.LockedTool, error) {
	var none assembly.LockedTool
	canonical, err := entry.text(what, "identity")
	if err != nil {
		return none, err
	}
	id, err := capabilities.Parse(canonical)
	if err != nil {
		return none, at(entry.Node, "%s: %v", what, err)
	}
	if id.Kind != capabilities.Tool || id.Upstream != upstream {
		return none, at(entry.Node, "%s: %s is no tool of %q", what, id, upstream)
	}
	digest, err := digestOf(entry, what, "definition")
	if err != nil {
		return none, err
	}
	verdict := ""
	if _, ok := entry.get("verdict"); ok {
		if verdict, err = entry.text(what, "verdict"); err != nil {
			return none, err
		}
		if !isVerdict(verdict) || verdict == "" {
			return none, at(entry.Node, "%s: verdict %q is none of read, write, destructive", what, verdict)
		}
	}
	by, err := entry.text(what, "by")
	if err != nil {
		return none, err
	}
	when, err := entry.text(what, "at")
	if err != nil {
		return none, err
	}
	if err := acceptance(by, when); err != nil {
		return none, at(entry.Node, "%s: %v", what, err)
	}
	raw, err := definitions.next(id)
	if err != nil {
		return none, err
	}
	observed := assembly.Observe(raw)
	tool, err := assembly.Accept(upstream, observed, capabilities.Verdict(verdict), by, when)
	if err != nil {
		return none, at(entry.Node, "%s: %v", what, err)
	}
	if tool.Pin.Identity != id {
		return none, at(entry.Node, "%s: the definition is that of %s", what, tool.Pin.Identity)
	}
	if got := tool.Pin.Definition.Digest(); got != digest {
		return none, at(entry.Node, "%s: %s was accepted with definition %s, but %s:%d holds %s; accept it again",
			what, id, digest, definitions.path, definitions.line, got)
	}
	return tool, nil
}

func isVerdict(s string) bool {
	switch capabilities.Verdict(s) {
	case capabilities.NoVerdict, capabilities.ReadVerdict, capabilities.WriteVerdict, capabilities.DestructiveVerdict:
		return true
	}
	return false
}

func acceptance(by, when string) error {
	if strings.TrimSpace(by) == "" || !utf8.ValidString(by) {
		return errors.New("by must say who accepted it")
	}
	if _, err := time.Parse(time.RFC3339, when); err != nil {
		return fmt.Errorf("at %q is no instant such as 2026-08-01T10:00:00Z", when)
	}
	return nil
}

// lines walks the file of definitions.
type lines struct {
	path string
	rest []byte
	line int
}

// next gives the definition of id. Both files have one order; a definition that the lock does not list any more is passed over, so
// that an acceptance is taken back by deleting its lines in the lock.
func (l *lines) next(id capabilities.Identity) ([]byte, error) {
	for {
		whose, definition, err := l.one()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: no definition of %q; it was deleted there, or the lines of the lock were moved: restore both files together", l.path, id.Canonical())
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", l.path, l.line, err)
		case whose == id.Canonical():
			return definition, nil
		}
	}
}

// one gives the next definition and whose it is, io.EOF after the last.
func (l *lines) one() (string, []byte, error) {
	line, rest, ended := bytes.Cut(l.rest, []byte{'\n'})
	l.line++
	if len(l.rest) == 0 {
		return "", nil, io.EOF
	}
	if !ended {
		return "", nil, errors.New("the line is cut short")
	}
	l.rest = rest
	members, err := jsonrpc.ObjectMembers(nil, line)
	if err != nil {
		return "", nil, err
	}
	if len(members) != 2 || members[0].Key != "identity" || members[1].Key != "definition" {
		return "", nil, errors.New("want the members identity and definition")
	}
	whose, err := jsonrpc.DecodeString(line[members[0].Value.Start:members[0].Value.End])
	if err != nil {
		return "", nil, fmt.Errorf("identity: %w", err)
	}
	raw, err := jsonrpc.DecodeString(line[members[1].Value.Start:members[1].Value.End])
	if err != nil {
		return "", nil, fmt.Errorf("definition: %w", err)
	}
	return whose, []byte(raw), nil
}

// Write makes lock the content of the file at path and gives its new digest. Lock.Digest must be the digest of the lock that
// stands there, as Read gave it, or empty when no file does; otherwise the error wraps ErrStale and nothing is written, so that no
// acceptance is lost and no declared catalogue overwritten. Equal locks have equal bytes. What a reader sees is the old lock or the
// new one, whole, whatever fails and whenever. One process at a time should write.
func Write(path string, lock assembly.Lock) (capabilities.Digest, error) {
	return write(disk{atomicfile.Write, os.Remove}, path, lock)
}

// disk is what Write does to files: the steps that tests let fail.
type disk struct {
	write  func(path string, data []byte, perm fs.FileMode) error
	remove func(path string) error
}

func write(d disk, path string, lock assembly.Lock) (capabilities.Digest, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	text, side, sidePath, err := encode(path, lock)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	old, info, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(path):
		if lock.Digest != "" {
			return "", fmt.Errorf("write %s: %w", path, ErrStale)
		}
	case err != nil:
		return "", fmt.Errorf("write over a file that is no sound lock: %w", err)
	case old.Digest != lock.Digest:
		return "", fmt.Errorf("write %s: %w", path, ErrStale)
	case info.Kind != Locked:
		return "", fmt.Errorf("write %s: it is a declared catalogue, written by hand; choose another path for the lock", path)
	}
	if err := d.write(sidePath, side, 0o644); err != nil {
		return "", err
	}
	if err := d.write(path, text, 0o644); err != nil {
		return "", err
	}
	if info.Definitions != "" && info.Definitions != sidePath {
		// The lock that needed it is gone. If it stays, it is a stray file and no more.
		_ = d.remove(info.Definitions)
	}
	return sumOf(text, side), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// encode gives both texts, and the path of the file of definitions.
func encode(path string, lock assembly.Lock) (text, side []byte, sidePath string, err error) {
	var b bytes.Buffer
	ids := make([]capabilities.UpstreamID, 0, len(lock.Upstreams))
	for id := range lock.Upstreams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		b.WriteString("upstreams: {}\n")
	} else {
		b.WriteString("upstreams:\n")
	}
	for _, id := range ids {
		u := lock.Upstreams[id]
		if !id.Valid() || !isDigest(string(u.Binding)) {
			return nil, nil, "", fmt.Errorf("upstream %q: a lock needs a valid id and a binding", id)
		}
		fmt.Fprintf(&b, "  %q:\n    binding: %q\n", id, u.Binding)
		tools := slices.Clone(u.Tools)
		slices.SortFunc(tools, func(a, b assembly.LockedTool) int { return capabilities.Compare(a.Pin.Identity, b.Pin.Identity) })
		if len(tools) == 0 {
			b.WriteString("    tools: []\n")
		} else {
			b.WriteString("    tools:\n")
		}
		for i, t := range tools {
			if i > 0 && tools[i-1].Pin.Identity == t.Pin.Identity {
				return nil, nil, "", fmt.Errorf("%s stands twice", t.Pin.Identity)
			}
			if err := writable(id, t); err != nil {
				return nil, nil, "", fmt.Errorf("%s: %w", t.Pin.Identity, err)
			}
			b.WriteString("      - {identity: " + quote(t.Pin.Identity.Canonical()) + ", definition: " + quote(string(t.Pin.Definition.Digest())))
			if t.Pin.Verdict != capabilities.NoVerdict {
				b.WriteString(", verdict: " + quote(string(t.Pin.Verdict)))
			}
			b.WriteString(", by: " + quote(t.Pin.By) + ", at: " + quote(t.Pin.At) + "}\n")

			side = append(jsonrpc.AppendString(append(side, `{"identity":`...), t.Pin.Identity.Canonical()), `,"definition":`...)
			side = append(jsonrpc.AppendString(side, string(t.Raw)), '}', '\n')
		}
	}
	digest := string(sum(side))
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".yaml"), ".yml")
	name := base + ".defs-" + digest[len("sha256:"):][:12] + ".jsonl"
	if !beside(name) || !utf8.ValidString(name) {
		return nil, nil, "", fmt.Errorf("%q is no good name for a lock; use letters, digits, dots, - and _", filepath.Base(path))
	}
	text = fmt.Appendf(nil, "%sversion: %s\ndefinitions: {file: %s, digest: %s}\n", header, lockVersion, quote(name), quote(digest))
	text = append(text, b.Bytes()...)
	if len(text) > MaxBytes || len(side) > MaxDefinitionBytes {
		return nil, nil, "", fmt.Errorf("the lock would have %d bytes and its definitions %d; at most %d and %d can be read again",
			len(text), len(side), MaxBytes, MaxDefinitionBytes)
	}
	return text, side, filepath.Join(filepath.Dir(path), name), nil
}

// writable makes sure that what is written can be read again and means the same.
func writable(upstream capabilities.UpstreamID, t assembly.LockedTool) error {
	switch {
	case t.Pin.Partial:
		return errors.New("comes from a declared catalogue; only what an upstream really listed can be locked")
	case !isVerdict(string(t.Pin.Verdict)):
		return fmt.Errorf("verdict %q is none of read, write, destructive", t.Pin.Verdict)
	}
	if err := acceptance(t.Pin.By, t.Pin.At); err != nil {
		return err
	}
	again, err := assembly.Accept(upstream, assembly.Observe(t.Raw), t.Pin.Verdict, t.Pin.By, t.Pin.At)
	if err != nil {
		return err
	}
	if again.Pin.Identity != t.Pin.Identity || again.Pin.Definition.Digest() != t.Pin.Definition.Digest() {
		return errors.New("the pin is not that of its bytes")
	}
	if _, err := capabilities.Parse(t.Pin.Identity.Canonical()); err != nil {
		return err
	}
	return nil
}

// quote writes a double-quoted scalar. What Go escapes, and how, is inside what YAML 1.2 section 5.7 has; it escapes everything
// that does not show, so that a name cannot look like another one, or like the end of its line, to a reviewer.
func quote(s string) string { return strconv.Quote(s) }
