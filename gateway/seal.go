package gateway

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// seal makes the state that leaves us unreadable and unforgeable: AES-256-GCM under a key of this process, with the purpose and the
// principal as associated data.
type seal struct {
	aead   cipher.AEAD
	random func([]byte)
}

func newSeal(random func([]byte)) *seal {
	var key [32]byte
	random(key[:])
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // a 32-byte key is always accepted
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return &seal{aead: aead, random: random}
}

// cursor is where the next page of a list begins, for one view of one snapshot.
type cursor struct {
	view   [sha256.Size]byte
	offset uint32
}

func (s *seal) sealCursor(principal string, c cursor) string {
	var nonce [12]byte
	s.random(nonce[:])
	plain := binary.BigEndian.AppendUint32(c.view[:], c.offset)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce[:], nonce[:], plain, bound("cursor", principal)))
}

func (s *seal) openCursor(principal, text string) (cursor, bool) {
	var c cursor
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 12 {
		return c, false
	}
	plain, err := s.aead.Open(nil, b[:12], b[12:], bound("cursor", principal))
	if err != nil || len(plain) != sha256.Size+4 {
		return c, false
	}
	copy(c.view[:], plain)
	c.offset = binary.BigEndian.Uint32(plain[sha256.Size:])
	return c, true
}

func bound(purpose, principal string) []byte {
	return append(append([]byte(purpose), 0), principal...)
}

// digester makes the keyed digests of arguments: equal arguments can be recognised in the records of one gateway, and guessed by
// nobody who has not the key.
type digester struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

func newDigester(key []byte) *digester { return &digester{mac: hmac.New(sha256.New, key)} }

func (d *digester) digest(b []byte) string {
	d.mac.Reset()
	d.mac.Write(b)
	return "hmac-sha256:" + hexText(d.mac.Sum(d.sum[:0])[:16])
}

func hexText(b []byte) string { return hex.EncodeToString(b) }
