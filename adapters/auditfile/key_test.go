//go:build unix

package auditfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	var all sync.WaitGroup
	keys := make([][]byte, 16)
	for i := range keys { // as processes that start at once do
		all.Go(func() {
			var err error
			if keys[i], err = Key(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) || bytes.Equal(k, make([]byte, 32)) {
			t.Fatalf("keys differ, or are none: %d bytes", len(k))
		}
	}
	if info, err := os.Stat(path + ".key"); err != nil || info.Mode() != 0o600 || info.Size() != 32 {
		t.Errorf("%v, %v; want 32 bytes of mode 600", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d files; want the key alone", len(left))
	}
	other, err := Key(filepath.Join(t.TempDir(), "audit"))
	if err != nil || bytes.Equal(other, keys[0]) {
		t.Errorf("another file's key: %v; want another key", err)
	}
}

func TestKeyRefuses(t *testing.T) {
	file := func(size int, mode os.FileMode) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, bytes.Repeat([]byte{7}, size), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for _, c := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"readable by the group", file(32, 0o640), "chmod 600"},
		{"readable by all", file(32, 0o604), "chmod 600"},
		{"writable by others", file(32, 0o602), "chmod 600"},
		{"empty", file(0, 0o600), "32 bytes"},
		{"short", file(31, 0o600), "32 bytes"},
		{"long", file(33, 0o600), "32 bytes"},
		{"a link", func(path string) error {
			if err := file(32, 0o600)(path + ".real"); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		}, "not a regular file"},
		{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit")
			if err := c.make(path + ".key"); err != nil {
				t.Fatal(err)
			}
			k, err := Key(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path+".key") {
				t.Errorf("%v; want %q and the path", err, c.want)
			}
			if k != nil {
				t.Error("an error with a key")
			}
		})
	}
	if _, err := Key(filepath.Join(t.TempDir(), "absent", "audit")); err == nil {
		t.Error("a key in a directory that is not there")
	}
}
