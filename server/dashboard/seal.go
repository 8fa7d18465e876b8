// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	// minKeyLen is the least length of Options.Key in bytes.
	minKeyLen = 32
	// sealPurpose keeps what is sealed here apart from what is sealed elsewhere with the
	// same key.
	sealPurpose = "tenure dashboard cookie 3"
	// maxSealed bounds what is looked at: a sum, and what is around it.
	maxSealed = 1024
)

// errSeal says that a cookie was not sealed by this key, or is over.
var errSeal = errors.New("not a cookie of this dashboard, or one that is over")

// sealer seals who a visitor is, by the sum of its secret, and the end of its time into a text
// that nobody else can read or make.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer with a key that is derived from the one given. Without one it
// makes a key of its own, which no other process has.
func newSealer(key []byte) (*sealer, error) {
	switch {
	case len(key) == 0:
		key = make([]byte, minKeyLen)
		rand.Read(key) // it never fails
	case len(key) < minKeyLen:
		return nil, fmt.Errorf("dashboard: Options.Key has %d bytes: it must have %d at least, random ones; leave it empty for a key of this process alone", len(key), minKeyLen)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, sealPurpose, minKeyLen)
	if err != nil {
		return nil, fmt.Errorf("dashboard: deriving the key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return &sealer{aead}, nil
}

// seal returns the text of a cookie of that name. Under another name it is none: the name says
// whether a browser sends it over TLS alone.
func (s *sealer) seal(cookie, who string, until time.Time) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(until.Unix()))
	plain = append(plain, who...)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(cookie)))
}

// open returns what was sealed, if it was sealed by this key for a cookie of that name, and is
// not over. One cookie has one text, so that it can be told by that.
func (s *sealer) open(cookie, text string, now time.Time) (who string, until time.Time, err error) {
	if len(text) > maxSealed {
		return "", time.Time{}, errSeal
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", time.Time{}, errSeal
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(cookie))
	if err != nil || len(plain) < 8 {
		return "", time.Time{}, errSeal
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(plain)), 0) //nolint:gosec // it was made from one
	if !now.Before(until) {
		return "", time.Time{}, errSeal
	}
	return string(plain[8:]), until, nil
}
