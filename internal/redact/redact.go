// Package redact answers "can this text be shown": it takes known secrets out of text that somebody else wrote.
//
// It recognises only what it was told, in the forms that programs print it in: as it is, escaped as JSON, percent-encoded, in
// base64. It guesses nothing from how a text looks, so it is no reason to log what need not be logged.
//
// Start at New and Redactor.Text; Redactor.Split is for text that comes in pieces.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// minLine is how long one line of a secret of several lines must be to count as a secret of its own: programs print such
// secrets line by line, but "}" is nobody's secret.
const minLine = 8

// Redactor takes a fixed set of secrets out of text. It is safe for concurrent use; a nil Redactor knows no secret.
type Redactor struct {
	forms []string // longest first
}

// New makes a redactor of secrets. Empty ones are ignored.
func New(secrets ...string) *Redactor {
	r := &Redactor{}
	for _, s := range secrets {
		r.add(s)
		if lines := strings.FieldsFunc(s, func(c rune) bool { return c == '\n' || c == '\r' }); len(lines) > 1 {
			for _, l := range lines {
				if len(l) >= minLine {
					r.add(l)
				}
			}
		}
	}
	slices.SortFunc(r.forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	r.forms = slices.Compact(r.forms)
	return r
}

func (r *Redactor) add(s string) {
	if s == "" {
		return
	}
	raw := []byte(s)
	r.forms = append(r.forms, s, url.QueryEscape(s), url.PathEscape(s),
		base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw))
	for _, html := range []bool{true, false} { // encoders differ in whether they escape < > &
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if e.Encode(s) == nil {
			quoted := strings.TrimSuffix(b.String(), "\n")
			r.forms = append(r.forms, quoted[1:len(quoted)-1])
		}
	}
}

// Text gives s without any byte of any secret. Where secrets overlap, all of them go: replacing one after the other would leave the
// rest of those that lost their beginning.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	type span struct{ from, to int }
	var found []span
	for _, f := range r.forms {
		for at := 0; ; at++ {
			i := strings.Index(s[at:], f)
			if i < 0 {
				break
			}
			at += i
			found = append(found, span{at, at + len(f)})
		}
	}
	if found == nil {
		return s
	}
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	var out strings.Builder
	shown := 0 // s[:shown] is dealt with
	for _, f := range found {
		if f.from >= shown {
			out.WriteString(s[shown:f.from])
			out.WriteString(Mark)
		}
		shown = max(shown, f.to)
	}
	out.WriteString(s[shown:])
	return out.String()
}

// Longest is the length in bytes of the longest text that is taken out.
func (r *Redactor) Longest() int {
	if r == nil || len(r.forms) == 0 {
		return 0
	}
	return len(r.forms[0])
}

// Split says how much of b, the start of a text that goes on, can be redacted and let go now, so that no secret is cut in two:
// b[:n] ends in no part of one. What remains is shorter than Longest.
func (r *Redactor) Split(b []byte) int {
	n := len(b) - max(r.Longest()-1, 0)
	if n <= 0 {
		return 0
	}
	// A secret that begins before n and ends after it lies in b whole, for it is no longer than Longest: let it go with the rest.
	for moved := true; moved; {
		moved = false
		for _, f := range r.formsOrNone() {
			from := max(n-len(f)+1, 0)
			if i := bytes.Index(b[from:min(n+len(f)-1, len(b))], []byte(f)); i >= 0 {
				n = from + i + len(f)
				moved = true
			}
		}
	}
	return n
}

func (r *Redactor) formsOrNone() []string {
	if r == nil {
		return nil
	}
	return r.forms
}
