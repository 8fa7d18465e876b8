// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// A cookie is opened under its name, by its key, before its end, and by one text alone.
func TestSealedCookie(t *testing.T) {
	sealerOf := func(key []byte) *sealer {
		s, err := newSealer(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	key := bytes.Repeat([]byte{7}, minKeyLen)
	s, now := sealerOf(key), time.Unix(1_800_000_000, 0)
	text := s.seal(plainCookie, "alice", now.Add(time.Hour))
	if strings.Contains(text, "alice") || s.seal(plainCookie, "alice", now.Add(time.Hour)) == text {
		t.Error("the content can be read, or told by the text")
	}
	sum, until, err := sealerOf(key).open(plainCookie, text, now)
	if err != nil || sum != "alice" || !until.Equal(now.Add(time.Hour)) {
		t.Errorf("a replica with the same key: %q, %v, %v", sum, until, err)
	}
	encoded := base64.RawURLEncoding.EncodeToString
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	turned := bytes.Clone(raw)
	turned[len(turned)-20] ^= 1
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(text) - 1
	for what, of := range map[string]struct {
		s          *sealer
		name, text string
		at         time.Time
	}{
		"another key":    {sealerOf(bytes.Repeat([]byte{8}, minKeyLen)), plainCookie, text, now},
		"a random key":   {sealerOf(nil), plainCookie, text, now},
		"another name":   {s, tlsCookie, text, now},
		"over":           {s, plainCookie, text, now.Add(time.Hour)},
		"one bit turned": {s, plainCookie, encoded(turned), now},
		"cut":            {s, plainCookie, text[:last-3], now},
		"empty":          {s, plainCookie, "", now},
		"no base64":      {s, plainCookie, "!" + text, now},
		"too long":       {s, plainCookie, strings.Repeat("A", maxCookieLen+1), now},
		"sealed nothing": {s, plainCookie, encoded(s.aead.Seal(nil, nil, nil, []byte(plainCookie))), now},
		// Else a visitor who has signed out leaves other texts of the same cookie.
		"bits to spare": {s, plainCookie, text[:last] + string(digits[strings.IndexByte(digits, text[last])^1]), now},
	} {
		if sum, _, err := of.s.open(of.name, of.text, of.at); err == nil {
			t.Errorf("%s: opened, as %q", what, sum)
		}
	}
}
