package atomicfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"aduana/internal/atomicfile"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := atomicfile.Write(path, []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	if read(t, path) != "one" || mode(t, path) != 0o640 {
		t.Errorf("%q, mode %v", read(t, path), mode(t, path))
	}
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if read(t, path) != "" || mode(t, path) != 0o604 {
		t.Errorf("%q, mode %v: an existing file must keep its mode", read(t, path), mode(t, path))
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestLinkStays(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	os.WriteFile(target, []byte("one"), 0o600)
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(link, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if read(t, target) != "two" || mode(t, link)&os.ModeSymlink == 0 {
		t.Errorf("target %q, link %v", read(t, target), mode(t, link))
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	if err := atomicfile.Write(dir, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if err := atomicfile.Write(filepath.Join(dir, "absent", "file"), []byte("x"), 0o600); err == nil {
		t.Error("wrote into a directory that is not there")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// Readers see one whole text or the other, however the writes interleave.
func TestReadersSeeWholeTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	texts := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<15)}
	if err := atomicfile.Write(path, texts[0], 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, text := range texts {
		wg.Go(func() {
			for range 20 {
				if err := atomicfile.Write(path, text, 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, texts[0]) && !bytes.Equal(got, texts[1]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
