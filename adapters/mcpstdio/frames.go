package mcpstdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// pieceBytes is the reader's buffer, and with it the longest line that is looked at without copying.
const pieceBytes = 64 << 10

// tailBytes is what is kept of the end of a line that is too long to keep: enough for an id that stands last.
const tailBytes = 256

// frames cuts a stream into lines. A line that is longer than its limit is read to its end without being kept.
type frames struct {
	in   *bufio.Reader
	max  int
	less func(head []byte) int // may lower max for a line that is longer than a piece
	over func(head []byte)     // told as soon as a line is over its limit, which may be long before it ends
	tail [tailBytes]byte       // the end of the last over-long line
	have int                   // bytes of it
}

func newFrames(r io.Reader, limit int) *frames {
	return &frames{in: bufio.NewReaderSize(r, pieceBytes), max: limit,
		less: func([]byte) int { return limit }, over: func([]byte) {}}
}

// line is one line without its newline. Kept says that the text is the caller's for good; otherwise it is valid until the next
// line is read. Over says that the line was too long: text is then only how it began, and end how it ended.
type line struct {
	text []byte
	end  []byte
	kept bool
	over bool
}

// next reads one line. What follows the last newline counts as a line. The error is io.EOF at the end.
func (f *frames) next() (line, error) {
	piece, err := f.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		if len(piece) == 0 && err != nil {
			return line{}, err
		}
		text := bytes.TrimSuffix(piece, []byte{'\n'})
		if len(text) > f.max {
			f.over(text)
			f.have = copy(f.tail[:], text[max(0, len(text)-tailBytes):])
			return line{text: text, end: f.tail[:f.have], over: true}, nil
		}
		return line{text: text}, nil
	}
	limit := min(f.max, f.less(piece))
	buf := append(make([]byte, 0, 2*pieceBytes), piece...)
	over := false
	for {
		if !over && len(bytes.TrimSuffix(buf, []byte{'\n'})) > limit {
			over = true
			f.over(buf)
			f.have = copy(f.tail[:], buf[len(buf)-tailBytes:])
			buf = append([]byte(nil), buf[:pieceBytes]...) // lets go of the rest before the wait
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		piece, err = f.in.ReadSlice('\n')
		if over {
			f.keepEnd(piece)
			continue
		}
		if need := len(buf) + len(piece); need > cap(buf) {
			// Doubling, but not beyond what the line may have.
			bigger := make([]byte, len(buf), max(need, min(2*cap(buf), limit+pieceBytes)))
			copy(bigger, buf)
			buf = bigger
		}
		buf = append(buf, piece...)
	}
	if over {
		return line{text: buf, end: bytes.TrimSuffix(f.tail[:f.have], []byte{'\n'}), over: true}, nil
	}
	return line{text: bytes.TrimSuffix(buf, []byte{'\n'}), kept: true}, nil
}

// keepEnd keeps the last bytes of what was read so far.
func (f *frames) keepEnd(piece []byte) {
	if len(piece) >= tailBytes {
		f.have = copy(f.tail[:], piece[len(piece)-tailBytes:])
		return
	}
	keep := min(f.have, tailBytes-len(piece))
	copy(f.tail[:], f.tail[f.have-keep:f.have])
	f.have = keep + copy(f.tail[keep:], piece)
}

// oneLine makes a message a frame: one line with its newline. A message that came over HTTP may hold newlines between its tokens,
// where they mean nothing; inside a JSON string a raw one cannot stand, so that every one of them can go.
func oneLine(message []byte) []byte {
	for _, c := range [...]byte{'\n', '\r'} {
		for rest := message; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
	return append(message, '\n')
}
