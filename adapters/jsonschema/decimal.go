package jsonschema

import (
	"bytes"
	"math/big"
	"strconv"
)

// decimal is an exact number: ±0.digits × 10^exp, without zeros at either end of the digits. Zero has no digits. Equal numbers
// have equal decimals, however they were written.
type decimal struct {
	neg    bool
	digits []byte
	exp    int
}

// parseDecimal reads a JSON number that has been scanned, so that its exponent is small. It shares memory with text where it can.
func parseDecimal(text []byte) decimal {
	var d decimal
	if len(text) > 0 && text[0] == '-' {
		d.neg = true
		text = text[1:]
	}
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		d.exp, _ = strconv.Atoi(string(bytes.TrimPrefix(text[i+1:], []byte{'+'})))
		text = text[:i]
	}
	whole, fraction, point := bytes.Cut(text, []byte{'.'})
	d.exp += len(whole)
	d.digits = whole
	if point {
		d.digits = append(whole[:len(whole):len(whole)], fraction...)
	}
	leading := len(d.digits) - len(bytes.TrimLeft(d.digits, "0"))
	d.exp -= leading
	d.digits = bytes.TrimRight(d.digits[leading:], "0")
	if len(d.digits) == 0 {
		return decimal{}
	}
	return d
}

// ofRat gives the decimal of a number of a schema: JSON has no others than those with an end.
func ofRat(r *big.Rat) decimal {
	n, _ := r.FloatPrec()
	d := parseDecimal([]byte(r.FloatString(n)))
	d.digits = bytes.Clone(d.digits)
	return d
}

func (d decimal) integer() bool { return len(d.digits) <= d.exp || len(d.digits) == 0 }

func (d decimal) compare(o decimal) int {
	switch {
	case d.sign() != o.sign():
		return d.sign() - o.sign()
	case d.exp != o.exp:
		if d.exp < o.exp != d.neg {
			return -1
		}
		return 1
	}
	// Without zeros at the end, the order of digits is the order of texts.
	c := bytes.Compare(d.digits, o.digits)
	if d.neg {
		return -c
	}
	return c
}

func (d decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.neg:
		return -1
	}
	return 1
}

// multipleOf reports whether d is an integer times m, which is positive. It never writes an exponent out: with d = D×10^p and
// m = M×10^q, D and M not divisible by 10, M×10^q divides D×10^p exactly when p >= q and M divides D×10^(p-q).
func (d decimal) multipleOf(m decimal) bool {
	if len(d.digits) == 0 {
		return true
	}
	shift := (d.exp - len(d.digits)) - (m.exp - len(m.digits))
	if shift < 0 {
		return false
	}
	D, _ := new(big.Int).SetString(string(d.digits), 10)
	M, _ := new(big.Int).SetString(string(m.digits), 10)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), M)
	D.Mul(D.Mod(D, M), power)
	return D.Mod(D, M).Sign() == 0
}

// appendKey appends a text that equal numbers share.
func (d decimal) appendKey(dst []byte) []byte {
	if d.neg {
		dst = append(dst, '-')
	}
	dst = append(append(dst, d.digits...), 'e')
	return strconv.AppendInt(dst, int64(d.exp), 10)
}
