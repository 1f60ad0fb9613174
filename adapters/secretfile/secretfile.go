// Package secretfile answers "which secret stands behind file:///path": the text of a file that only its owner can read.
//
// The secret is the whole file without one line end at its end, as editors and echo write it. The file is read afresh each time,
// so that a rotated secret counts from the next call. Nothing is read that is not a regular file, and what group or others may
// read is refused: a secret that everybody on the machine can read is none. Symbolic links are followed, as secret mounts of
// containers need; what counts is the file at their end.
//
// Start at Credentials.Resolve.
package secretfile

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"aduana/accounts"
	"aduana/gateway"
)

// Scheme is the scheme of the references that this adapter resolves.
const Scheme = "file"

// MaxBytes bounds a secret's file.
const MaxBytes = 64 << 10

const prefix = Scheme + "://"

// Credentials resolves file:///absolute/path. Make one with New.
type Credentials struct {
	key [32]byte // makes generations; a plain hash of a weak secret could be searched for
}

var _ gateway.Credentials = (*Credentials)(nil)

// New makes a resolver. Generations of two resolvers do not compare.
func New() *Credentials {
	c := &Credentials{}
	rand.Read(c.key[:]) // never fails: crypto/rand.Read ends the process instead
	return c
}

// Resolve gives the text of the file that ref names. The path is absolute and taken literally: % is no escape, and it holds no
// # and no ?, which a later version may give a meaning.
func (c *Credentials) Resolve(ctx context.Context, ref accounts.Reference) (gateway.Material, error) {
	if err := ctx.Err(); err != nil {
		return gateway.Material{}, fmt.Errorf("secret %q: %w", ref, err)
	}
	path, ok := strings.CutPrefix(string(ref), prefix)
	if !ok {
		scheme, _, _ := strings.Cut(string(ref), "://")
		return gateway.Material{}, fmt.Errorf("secret %q: the scheme %q is not %s", ref, scheme, Scheme)
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:] // file:///C:/…
	}
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "#?\x00") || filepath.ToSlash(filepath.Clean(path)) != path {
		return gateway.Material{}, fmt.Errorf("secret %q: want file:///absolute/path, without . or .. segments, # and ?", ref)
	}
	text, err := read(path)
	if err != nil {
		return gateway.Material{}, fmt.Errorf("secret %q: %w", ref, err)
	}
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write([]byte(text))
	return gateway.Material{Secret: gateway.NewSecret(text), Generation: hex.EncodeToString(mac.Sum(nil)[:8])}, nil
}

func read(path string) (string, error) {
	// Without O_NONBLOCK, opening a named pipe waits for a writer, possibly for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// The path stands in the reference already.
		if pe := new(fs.PathError); errors.As(err, &pe) {
			err = pe.Err
		}
		return "", fmt.Errorf("cannot be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what is open, not of what the path means by now
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be examined: %w", err)
	case !info.Mode().IsRegular():
		return "", errors.New("not a regular file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("mode %04o lets group or others at it; run chmod 600 on the file", info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return "", errors.New("cannot be read")
	}
	if len(b) > MaxBytes {
		return "", fmt.Errorf("larger than %d bytes", MaxBytes)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if text == "" {
		return "", errors.New("the file is empty; write the secret into it")
	}
	return text, nil
}
