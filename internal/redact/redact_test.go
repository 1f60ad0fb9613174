package redact_test

import (
	"strings"
	"testing"

	"aduana/internal/redact"
)

func TestText(t *testing.T) {
	const key = "-----BEGIN-----\nline one of it\nline two of it\n-----END-----"
	for _, c := range []struct {
		name    string
		secrets []string
		text    string
		want    string
	}{
		{"nothing known", nil, "sk-1", "sk-1"},
		{"empty secrets", []string{"", ""}, "a b", "a b"},
		{"as it is", []string{"sk-1"}, "key=sk-1, again sk-1sk-1", "key=[redacted], again [redacted][redacted]"},
		{"the longer first", []string{"abc", "abcdef"}, "abcdef abc", "[redacted] [redacted]"},
		{"in JSON", []string{"a\"b\\c\t<"}, `{"k":"a\"b\\c\t<"} and "a\"b\\c\t\u003c"`, `{"k":"[redacted]"} and "[redacted]"`},
		{"in a URL", []string{"a b/c+d"}, "?k=a+b%2Fc%2Bd and /a%20b%2Fc+d", "?k=[redacted] and /[redacted]"},
		{"in base64", []string{"user:pass?>"}, "Basic dXNlcjpwYXNzPz4= and dXNlcjpwYXNzPz4 and dXNlcjpwYXNzPz4=", "Basic [redacted] and [redacted] and [redacted]"},
		{"line by line", []string{key}, "read:\nline one of it\nline two of it\n", "read:\n[redacted]\n[redacted]\n"},
		{"short lines of it are nobody's secret", []string{"{\nthe long line\n}"}, "{ } the long line", "{ } [redacted]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := redact.New(c.secrets...).Text(c.text); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
	var none *redact.Redactor
	if got := none.Text("x"); got != "x" || none.Longest() != 0 || none.Split([]byte("x")) != 1 {
		t.Error("a nil redactor changes text")
	}
}

// FuzzSplit: redacted piece by piece, a text shows what it shows redacted whole, and never a secret.
func FuzzSplit(f *testing.F) {
	f.Add("a secret here, and a secret there", "secret", 3)
	f.Add("aaaaaaaaaaaa", "aa", 5)
	f.Add("abcabcabc", "bcab", 4)
	f.Fuzz(func(t *testing.T, text, secret string, step int) {
		if secret == "" || len(secret) > 100 || step < 1 || step > 1000 || strings.Contains(redact.Mark, secret) {
			return
		}
		r := redact.New(secret)
		var out strings.Builder
		var held []byte
		for len(text) > 0 {
			n := min(step, len(text))
			held, text = append(held, text[:n]...), text[n:]
			cut := r.Split(held)
			if cut < 0 || cut > len(held) || len(held)-cut >= max(r.Longest(), 1) && cut == 0 && len(held) >= r.Longest() {
				t.Fatalf("split at %d of %d", cut, len(held))
			}
			out.WriteString(r.Text(string(held[:cut])))
			held = held[cut:]
		}
		out.WriteString(r.Text(string(held)))
		for _, piece := range strings.Split(out.String(), redact.Mark) {
			if strings.Contains(piece, secret) {
				t.Fatalf("shows %q in %q", secret, out.String())
			}
		}
	})
}
