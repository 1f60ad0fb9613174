package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"aduana/access"
	"aduana/adapters/lockfile"
	"aduana/adapters/policyfile"
	"aduana/assembly"
	"aduana/policy"
)

// declared is a policy as a command sees it: compiled, and assembled when it has no errors. Nothing of it touches a network or a
// credential.
type declared struct {
	result   policy.Result
	input    assembly.Input
	snapshot *assembly.Snapshot // nil when the policy has errors
}

// load reads a policy and, when there is one, its lock. Places name the policy as it was typed, so that an editor opens them.
func load(path, lock string) (*declared, error) { return loadAs(path, path, lock) }

// loadAs is load with another word for the policy in places: clients are told the label, never a path of this machine.
func loadAs(label, path, lock string) (*declared, error) {
	source, err := policyfile.New(path, 0).Load(context.Background())
	if err != nil {
		return nil, cannot(err, "")
	}
	compiler, err := policy.NewCompiler()
	if err != nil {
		return nil, cannot(err, "")
	}
	d := &declared{input: assembly.Input{Version: source.Version, Label: label, NoLock: lock == ""}}
	options := policy.Options{Origin: path}
	if lock != "" {
		accepted, info, err := lockfile.Read(lock)
		if err != nil {
			return nil, cannot(fmt.Errorf("lock: %w", err), "")
		}
		d.input.Lock = accepted
		options.HasCatalogue, options.Lock = true, info.Kind == lockfile.Locked
		for _, e := range info.Entries {
			options.Catalogue = append(options.Catalogue, policy.CatalogueTool{Upstream: e.Upstream, Name: e.Name})
		}
	}
	d.result = compiler.Compile(source.Text, options)
	d.input.Policy, d.input.Document = d.result.Policy, d.result.Document
	if d.result.Policy != nil {
		d.snapshot = assembly.Assemble(d.input)
	}
	return d, nil
}

// sound is load for the commands that need a policy without errors. What is wrong with it is not their result.
func (p *printer) sound(path, lock string) (*declared, error) { return p.soundAs(path, path, lock) }

func (p *printer) soundAs(label, path, lock string) (*declared, error) {
	d, err := loadAs(label, path, lock)
	if err != nil {
		return nil, err
	}
	if d.snapshot == nil {
		p.note("%s has errors, so nothing can be asked of it", path)
		diagnostics(func(format string, args ...any) {
			if format != "" { // on stderr, every line says something
				p.note(format, args...)
			}
		}, path, d.result)
		return nil, findings()
	}
	return d, nil
}

// position is a place as JSON has it.
type position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// at gives the position of a pointer, nil when it addresses nothing.
func (d *declared) at(pointer string) *position {
	if d.result.Document == nil {
		return nil
	}
	at, ok := d.result.Document.Position(pointer)
	if !ok {
		return nil
	}
	return &position{at.Line, at.Column}
}

// instant reads --at; without it, it is now.
func instant(text string) (int64, error) {
	if text == "" {
		return time.Now().UnixMilli(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, usage("--at %q is no instant; write it by RFC 3339, as 2026-05-03T09:00:00Z", text)
	}
	return at.UnixMilli(), nil
}

// timestamp writes an instant in Unix milliseconds.
func timestamp(at int64) string {
	return time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// selector reads "corp [role=manager team=ventas]".
func selector(issuer string, attributes []access.Attribute) string {
	var parts []string
	for _, a := range attributes {
		parts = append(parts, a.Name+"="+a.Value)
	}
	return issuer + " [" + strings.Join(parts, " ") + "]"
}
