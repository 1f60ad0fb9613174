// Package atomicfile answers "how is a file replaced so that a reader, and a crash at any moment, sees the old text or the new one
// and nothing between".
//
// It knows nothing of what is written. It does not lock: of two writers at once the last rename wins, whole.
//
// Start at Write.
package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Write makes data the content of the file at path: a temporary file beside it, flushed to the disk, then renamed, then the
// directory flushed. An existing file keeps its permission bits, and a symbolic link at path stays one: its target is replaced. A
// new file gets exactly perm. On error the old file stands untouched.
func Write(path string, data []byte, perm fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("write %q: not a regular file", path)
		}
		perm = info.Mode().Perm()
	}
	dir := filepath.Dir(path)
	// CreateTemp makes it 0600: nobody else can read or change the text before it has its final permissions.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := fill(f, data, perm); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("write %q: the file is written, but may be the old one again after a power failure: %w", path, err)
	}
	return nil
}

// fill writes, flushes and closes f.
func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		// Without it, a power failure after the rename can leave the new name with no text.
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // directories cannot be flushed there
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
