package mcphttp

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// An upstream that announces much and sends little gets memory for little.
func TestAnAnnouncedLengthIsOnlyAPromise(t *testing.T) {
	const announced = 32 << 20
	var spare []byte
	resp := &http.Response{ContentLength: announced, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 10_000)))}
	b, err := readAll(resp, announced, &spare)
	if err != nil || len(b) != 10_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if cap(spare) > 100_000 {
		t.Errorf("%d bytes of memory for 10000 that came", cap(spare))
	}
	if _, err := readAll(resp, announced-1, &spare); err != errOver {
		t.Errorf("more is announced than may come: %v", err)
	}
}
