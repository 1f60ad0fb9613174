// Package lockfile answers "which tools were accepted, and where": it is the one owner of both formats that say so, the lock
// (aduana.lock.yaml with its file of definitions) and the plain declared catalogue.
//
// A catalogue is written by hand: it says which tools exist and pins what it says of them. A lock is written by aduana: one line
// per accepted tool for people to review, and the accepted bytes themselves, verbatim, in a generated file beside it. The lock
// holds that file's digest and a digest of every definition, and all of them are computed again when it is read. Nothing here
// decides whether a tool may be accepted; a file that cannot be believed is an error, never "no tools".
//
// Start at Read, then lock.go and catalogue.go for the two formats.
package lockfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"aduana/assembly"
	"aduana/capabilities"
)

// What is read at most of each file, in bytes.
const (
	MaxBytes           = 16 << 20
	MaxDefinitionBytes = 128 << 20
)

// Kind tells the two formats apart.
type Kind string

// The kinds.
const (
	Catalogue Kind = "catalogue"
	Locked    Kind = "lock"
)

// Info is what a reader wants to know beyond the lock itself.
type Info struct {
	Kind        Kind
	Path        string  // as given
	Definitions string  // path of the file of definitions; empty for a catalogue
	Entries     []Entry // every tool in the order of the file; a catalogue may hold one twice, which the policy compiler reports
}

// Entry is one tool as the file names it.
type Entry struct {
	Upstream, Name string
	Line           int // in the file, from 1
}

// Read reads a lock or a declared catalogue, whichever it is. A lock that group or others may write, or whose parts do not belong
// together, is an error.
func Read(path string) (assembly.Lock, Info, error) {
	const attempts = 3
	for i := 1; ; i++ {
		text, open, err := files(path)
		if err != nil {
			return assembly.Lock{}, Info{}, err
		}
		lock, info, err := parse(text, path, open)
		if errors.Is(err, fs.ErrNotExist) && i < attempts {
			// A writer removes the old file of definitions after it replaced the lock: then the lock is another one by now.
			if again, _, err := files(path); err == nil && !bytes.Equal(again.bytes, text.bytes) {
				continue
			}
		}
		if err != nil {
			return assembly.Lock{}, Info{}, err
		}
		return lock, info, nil
	}
}

// content is a file's text with what decides whether to believe it.
type content struct {
	path  string
	bytes []byte
	mode  fs.FileMode
}

// files gives the text at path, and the way to files beside it.
func files(path string) (content, func(name string) (content, error), error) {
	text, err := readFile(path, MaxBytes)
	if err != nil {
		return content{}, nil, err
	}
	beside := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		beside = target
	}
	return text, func(name string) (content, error) {
		return readFile(filepath.Join(filepath.Dir(beside), name), MaxDefinitionBytes)
	}, nil
}

func readFile(path string, limit int64) (content, error) {
	// Without O_NONBLOCK, opening a named pipe waits for a writer, possibly for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return content{}, err
	}
	if !info.Mode().IsRegular() {
		return content{}, fmt.Errorf("%s: not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return content{}, err
	}
	if int64(len(text)) > limit {
		return content{}, fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return content{path: path, bytes: text, mode: info.Mode().Perm()}, nil
}

// trusted refuses a file that somebody else can change: what was accepted would be whatever they like.
func trusted(c content) error {
	if runtime.GOOS != "windows" && c.mode&0o022 != 0 {
		return fmt.Errorf("%s: mode %04o lets group or others change what was accepted; run chmod go-w on the file and review it", c.path, c.mode)
	}
	return nil
}

func sum(b []byte) capabilities.Digest {
	s := sha256.Sum256(b)
	return capabilities.Digest("sha256:" + hex.EncodeToString(s[:]))
}

// sumOf covers several texts. The lengths keep ("ab","c") and ("a","bc") apart.
func sumOf(texts ...[]byte) capabilities.Digest {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:", len(t))
		h.Write(t)
	}
	return capabilities.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// parse reads either format. The lock's definitions are read through open.
func parse(text content, origin string, open func(string) (content, error)) (assembly.Lock, Info, error) {
	root, err := readYAML(text.bytes)
	if err != nil {
		return assembly.Lock{}, Info{}, fmt.Errorf("%s%w", origin, err)
	}
	info := Info{Kind: Catalogue, Path: origin}
	var lock assembly.Lock
	if _, ok := root.get("upstreams"); ok {
		info.Kind = Locked
		lock, err = readLock(text, root, &info, open)
	} else {
		lock, err = readCatalogue(root, &info)
		lock.Digest = sumOf(text.bytes)
	}
	if at := new(placed); errors.As(err, &at) {
		return assembly.Lock{}, Info{}, fmt.Errorf("%s%w", origin, err)
	}
	return lock, info, err
}
