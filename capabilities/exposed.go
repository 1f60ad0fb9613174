package capabilities

import (
	"crypto/sha256"
	"strings"
)

// ExposedName is the one name under which clients see a thing: upstream__name, matching ^[A-Za-z0-9_-]{1,max}$.
type ExposedName string

// The bounds of the naming limit. Model APIs refuse names over 64 bytes; clients put their own prefix before ours, hence 50.
const (
	MinNameLength     = 48
	DefaultNameLength = 50
	MaxNameLength     = 64
)

// Expose gives the exposed name of an identity: always qualified, and a pure function of the identity and the limit (in bytes),
// never of what else is declared, of order or of time. A limit outside MinNameLength..MaxNameLength counts as DefaultNameLength.
//
// The name's part after "upstream__" falls in one of three images, disjoint because the first holds no "--", the second no
// "---", and the third always one "---":
//
//  1. a name inside [A-Za-z0-9_-] without "--" that fits: verbatim;
//  2. such a name with dots, each between two of [A-Za-z0-9_], that fits: each dot becomes "--";
//  3. anything else: a readable head, "---", and the first 30 bits of SHA-256(canonical identity) in lower-case base32.
//
// The first two are injective; the third collides only where 30 bits of SHA-256 do, and then the Ledger withholds both.
func Expose(id Identity, limit int) ExposedName {
	if limit < MinNameLength || limit > MaxNameLength {
		limit = DefaultNameLength
	}
	room := limit - len(id.Upstream) - len("__")
	return ExposedName(string(id.Upstream) + "__" + local(id, room))
}

func local(id Identity, room int) string {
	name := id.Name
	dots, plain := 0, name != "" && !strings.Contains(name, "--")
	for i := range len(name) {
		if name[i] == '.' && i > 0 && i+1 < len(name) && wordByte(name[i-1]) && wordByte(name[i+1]) {
			dots++
		} else if !wordByte(name[i]) && name[i] != '-' {
			plain = false
		}
	}
	if plain && len(name)+dots <= room {
		return strings.ReplaceAll(name, ".", "--")
	}
	digest := nameDigest(id)
	return head(name, room-len("---")-len(digest)) + "---" + digest
}

// head keeps what a reader can recognise of a name. It is decoration: the digest behind it carries the identity.
func head(name string, room int) string {
	b := make([]byte, 0, max(room, 0)) // an upstream id that is too long leaves none; the Ledger refuses it
	for i := 0; i < len(name) && len(b) < room; i++ {
		c := name[i]
		if !wordByte(c) {
			c = '-'
		}
		if c == '-' && len(b) > 0 && b[len(b)-1] == '-' {
			continue
		}
		b = append(b, c)
	}
	return strings.TrimRight(string(b), "-")
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// nameDigest is the first 30 bits of SHA-256 over the canonical identity, as six digits of the RFC 4648 base32 alphabet in lower
// case.
func nameDigest(id Identity) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	sum := sha256.Sum256([]byte(id.Canonical()))
	bits := uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
	var d [6]byte
	for i := range d {
		d[i] = alphabet[bits>>27]
		bits <<= 5
	}
	return string(d[:])
}
