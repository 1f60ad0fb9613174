package auditfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const keySize = 32

// Key gives the key of argument digests that belongs to an audit file: 32 random bytes in <path>.key. It is made when there is
// none. With the key, a digest of arguments can be compared with a guess, so a file that others can read is refused, and so is one
// of another size: digests under a new key would silently stop matching the old ones.
func Key(auditPath string) ([]byte, error) {
	path := auditPath + ".key"
	key, err := readKey(path)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeKey(path); err == nil {
			key, err = readKey(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key of argument digests %q: %w", path, err)
	}
	return key, nil
}

func readKey(path string) ([]byte, error) {
	// The check of what the name is comes before the opening, because opening a pipe would wait.
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := checkMode(path, named, 0o077, "read or write"); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !os.SameFile(named, info) {
		return nil, errors.New("it was replaced while it was read; try again")
	}
	key, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err != nil {
		return nil, err
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("it does not hold %d bytes; restore it, or remove it to begin with a new key", keySize)
	}
	return key, nil
}

// makeKey makes the file whole or not at all, and never over another: of two processes that start at once, one makes it and both
// read that one.
func makeKey(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
