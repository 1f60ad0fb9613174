package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzExpectations: whatever a file of tests holds, reading it ends in tests that can be asked, or in an error that names the file.
func FuzzExpectations(f *testing.F) {
	for _, script := range []string{"test.txtar", "crm.txtar"} {
		text, err := os.ReadFile(filepath.Join("testdata", "script", script))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(text).Files {
			f.Add(file.Data)
		}
	}
	f.Add([]byte("version: 1\ntests:\n  - &a [*a]\n"))
	f.Add([]byte("version: 1\ntests: [{name: x, as: {issuer: i, subject: s, <<: {}}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tests, err := readExpectations("f.yaml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml:") || tests != nil {
				t.Fatalf("the error names no place: %v", err)
			}
			return
		}
		if len(tests) == 0 {
			t.Fatal("no tests and no error")
		}
		for _, e := range tests {
			q := e.question
			if e.name == "" || e.expect == "" || q.Issuer == "" || q.Subject == "" || (q.Capability == "") == (q.Tool == "") ||
				!strings.HasPrefix(e.place, "f.yaml:") {
				t.Fatalf("half a test: %+v", e)
			}
			for _, c := range e.ceilings {
				if again, ok := ceilingText(c); !ok || again != c {
					t.Fatalf("the ceiling %q reads as %q, %t", c, again, ok)
				}
			}
		}
	})
}

func TestCeilingText(t *testing.T) {
	for text, want := range map[string]string{
		"20 per 24h":               "20 per 1d over principal",
		"20 per 1d":                "20 per 1d over principal",
		"5 per 60m over account":   "5 per 1h over account",
		"5  per  3600s over team":  "5 per 1h over team",
		"5 per 90m":                "5 per 90m over principal",
		"0 per 86400s over grant":  "0 per 1d over grant",
		"5 per 1w":                 "",
		"5 per h":                  "",
		"5 per 0h":                 "",
		"-1 per 1h":                "",
		"5 an 1h":                  "",
		"5 per 1h for account":     "",
		"5 per 1h over":            "",
		"5 per 1h over a b":        "",
		"":                         "",
		"5 per 99999999999999999h": "",
	} {
		got, ok := ceilingText(text)
		if got != want || ok != (want != "") {
			t.Errorf("%q reads as %q, %t; want %q", text, got, ok, want)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ñ, 漢":    "plain, ñ, 漢",
		"\x1b[31mred":    `\u001b[31mred`,
		"two\nlines":     `two\u000alines`,
		"turned \u202e!": `turned \u202e!`,
		"\u200bhidden":   `\u200bhidden`,
		"\U000e0041tag":  `\U000e0041tag`,
		"bad \xff byte":  `bad \ufffd byte`,
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
