package policy

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// oddNumber stands for a number that is not written as a plain decimal
// integer, such as 1.5, 010 or 0x1f. No field takes it, so that the schema
// refuses it as text and as an integer alike: readers of YAML 1.1 and 1.2
// disagree about what some of these mean.
const oddNumber = 0.5

// scalar is the value of a scalar node by the YAML 1.2 core schema: only true
// and false are booleans; yes, no, on, off and timestamps are text.
func scalar(n *yaml.Node) any {
	if n.Style&^(yaml.FlowStyle) != 0 { // quoted, literal, folded or !!str
		return n.Value
	}
	s := n.Value
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" {
		return s
	}
	if isDigits(digits) {
		if len(digits) > 1 && digits[0] == '0' {
			return oddNumber
		}
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i
		}
		// Beyond every bound of the schema, whatever it is exactly.
		if s[0] == '-' {
			return -1e300
		}
		return 1e300
	}
	if isOddNumber(digits) {
		return oddNumber
	}
	return s
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func isOddNumber(s string) bool {
	switch s {
	case ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN":
		return true
	}
	if rest, ok := strings.CutPrefix(s, "0x"); ok {
		return rest != "" && strings.Trim(rest, "0123456789abcdefABCDEF") == ""
	}
	if rest, ok := strings.CutPrefix(s, "0o"); ok {
		return rest != "" && strings.Trim(rest, "01234567") == ""
	}
	mantissa, exponent, hasExponent := s, "", false
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent, hasExponent = s[:i], s[i+1:], true
	}
	if hasExponent {
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		if !isDigits(exponent) {
			return false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	return (isDigits(whole) || whole == "" && fraction != "") && (fraction == "" || isDigits(fraction))
}
