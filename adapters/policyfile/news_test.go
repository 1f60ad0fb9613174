package policyfile

import "testing"

// Each letter is what one look finds: "." is a file that is truncated or gone. Capitals are looks after which somebody is told.
func TestNews(t *testing.T) {
	for name, looks := range map[string]string{
		"nothing happens":            "aaaa",
		"whole at once":              "abBbb",
		"truncated, then written":    "a.bBbb",
		"written in pieces":          "a.bcdDd",
		"there and back":             "abaaa",
		"changes all the time":       "abcbcb",
		"gone for good":              "a.!..",
		"gone and back as it was":    "a.!.aAa",
		"gone for a moment, no news": "a.aa",
	} {
		s := &Source{seen: "a"}
		last := "a"
		for i := 1; i < len(looks); i++ {
			state, want := string(looks[i]), false
			switch c := looks[i]; {
			case c == '!':
				state, want = ".", true
			case 'A' <= c && c <= 'Z':
				state, want = string(c-'A'+'a'), true
			}
			if got := s.news(last, state); got != want {
				t.Errorf("%s: look %d: told %v, want %v", name, i, got, want)
			}
			last = state
		}
	}
}
