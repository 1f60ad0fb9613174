package secretfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"aduana/accounts"
	"aduana/adapters/secretfile"
	"aduana/gateway/gatewaytest"
)

func write(t *testing.T, path, text string, mode os.FileMode) accounts.Reference {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return accounts.Reference("file://" + path)
}

func TestContract(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	ref := write(t, path, "s3cret-of-the-test\n", 0o600)
	readable := write(t, filepath.Join(dir, "readable"), "x", 0o604)
	group := write(t, filepath.Join(dir, "group"), "x", 0o640)
	large := write(t, filepath.Join(dir, "large"), strings.Repeat("x", secretfile.MaxBytes+1), 0o600)
	blank := write(t, filepath.Join(dir, "blank"), "\n", 0o600)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	gatewaytest.RunCredentials(t, gatewaytest.CredentialsCase{
		Credentials: secretfile.New(),
		Ref:         ref,
		Secret:      "s3cret-of-the-test",
		Bad: []accounts.Reference{
			readable, group, large, blank,
			accounts.Reference("file://" + pipe), accounts.Reference("file://" + dir), "file:///dev/null",
			accounts.Reference("file://" + filepath.Join(dir, "absent")),
			"file://", "file://relative/key", "file:" + accounts.Reference(path), "file://~/key", "file://localhost/key",
			ref + "#field", ref + "?x", ref + "/", accounts.Reference("file://" + dir + "/./key"), accounts.Reference("file://" + dir + "/x/../key"),
			accounts.Reference("file:///" + path), ref + "\x00",
		},
		Set:   func(s string) { write(t, path, s, 0o600) },
		Unset: func() { os.Remove(path) },
	})
}

func TestExactlyOneLineEndIsDropped(t *testing.T) {
	for text, want := range map[string]string{
		"abc": "abc", "abc\n": "abc", "abc\r\n": "abc", "abc\n\n": "abc\n", " abc ": " abc ", "a\nb\n": "a\nb",
	} {
		ref := write(t, filepath.Join(t.TempDir(), "key"), text, 0o400)
		m, err := secretfile.New().Resolve(t.Context(), ref)
		if err != nil || m.Secret.Reveal() != want {
			t.Errorf("file %q: secret %q, error %v, want %q", text, m.Secret.Reveal(), err, want)
		}
	}
}

func TestLinksAreJudgedByTheirTarget(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "private"), "abc", 0o600)
	write(t, filepath.Join(dir, "public"), "abc", 0o644)
	for target, good := range map[string]bool{"private": true, "public": false} {
		link := filepath.Join(dir, "link-to-"+target)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := secretfile.New().Resolve(t.Context(), accounts.Reference("file://"+link)); (err == nil) != good {
			t.Errorf("link to a %s file: %v", target, err)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	ref := write(t, filepath.Join(t.TempDir(), "key"), "abc", 0o644)
	if _, err := secretfile.New().Resolve(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v, want the remedy chmod 600", err)
	}
}
