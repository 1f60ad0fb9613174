package mcpstdio

import (
	"io"
	"log/slog"
	"strings"
	"sync"

	"aduana/internal/redact"
)

// The bounds of a child's standard error.
const (
	keptNoise = 64 << 10 // bytes of the kept end
	lineNoise = 4 << 10  // bytes of one line of the log
)

// noise is a child's standard error: read to its end whatever comes, logged line by line, and its end kept for when the child dies.
// No text leaves it that was not redacted.
type noise struct {
	log    *slog.Logger // with the upstream's id
	redact *redact.Redactor

	mu   sync.Mutex
	kept []byte
}

// read drains r until it ends or is closed.
func (n *noise) read(r io.Reader) {
	piece := make([]byte, 8<<10)
	var line []byte
	for {
		got, err := r.Read(piece)
		for _, c := range piece[:got] {
			// A progress bar ends its lines with \r alone.
			if c != '\n' && c != '\r' {
				line = append(line, c)
				if len(line) < lineNoise+n.redact.Longest() {
					continue
				}
				cut := n.redact.Split(line)
				n.say(line[:cut])
				line = line[:copy(line, line[cut:])]
				continue
			}
			n.say(line)
			line = line[:0]
		}
		if err != nil {
			n.say(line)
			return
		}
	}
}

func (n *noise) say(line []byte) {
	if len(line) == 0 {
		return
	}
	text := strings.ToValidUTF8(n.redact.Text(string(line)), "\ufffd")
	n.log.Debug("stderr", "line", text)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(append(n.kept, text...), '\n')
	if len(n.kept) > 2*keptNoise {
		n.kept = n.kept[:copy(n.kept, n.kept[len(n.kept)-keptNoise:])]
	}
}

// end gives the kept end.
func (n *noise) end() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.ToValidUTF8(string(n.kept[max(0, len(n.kept)-keptNoise):]), "")
}
