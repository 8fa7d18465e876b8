// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestSeal(t *testing.T) {
	key := bytes.Repeat([]byte{7}, minKeyLen)
	s, err := newSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	text := s.seal(plainCookie, "alice", now.Add(time.Hour))
	name, until, err := s.open(plainCookie, text, now)
	if err != nil || name != "alice" || !until.Equal(now.Add(time.Hour)) {
		t.Errorf("open: %q, %v, %v", name, until, err)
	}
	if other, _ := newSealer(key); other != nil {
		if name, _, err := other.open(plainCookie, text, now); err != nil || name != "alice" {
			t.Errorf("a replica with the same key: %q, %v", name, err)
		}
	}
	if again := s.seal(plainCookie, "alice", now.Add(time.Hour)); again == text {
		t.Error("two cookies of one principal are the same text")
	}
	if strings.Contains(text, "alice") {
		t.Error("the name can be read")
	}
	foreign, err := newSealer(bytes.Repeat([]byte{8}, minKeyLen))
	if err != nil {
		t.Fatal(err)
	}
	own, err := newSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	turned := bytes.Clone(raw)
	turned[len(turned)-20] ^= 1
	for what, of := range map[string]struct {
		s    *sealer
		text string
		at   time.Time
		name string // plainCookie if empty
	}{
		"another key":    {foreign, text, now, ""},
		"a random key":   {own, text, now, ""},
		"over":           {s, text, now.Add(time.Hour), ""},
		"one bit turned": {s, base64.RawURLEncoding.EncodeToString(turned), now, ""},
		"cut":            {s, text[:len(text)-4], now, ""},
		"empty":          {s, "", now, ""},
		"no base64":      {s, "!" + text, now, ""},
		"too long":       {s, strings.Repeat("A", maxSealed+1), now, ""},
		"sealed nothing": {s, base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, nil, []byte(plainCookie))), now, ""},
		"another name":   {s, text, now, "__Host-tenure"},
		// Else a visitor who has signed out leaves other texts of the same cookie.
		"bits to spare":   {s, text[:len(text)-1] + string(digits[strings.IndexByte(digits, text[len(text)-1])^1]), now, ""},
		"another purpose": {s, base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, raw, []byte("x"))), now, ""},
	} {
		if name, _, err := of.s.open(cmp.Or(of.name, plainCookie), of.text, of.at); err == nil {
			t.Errorf("%s: opened, as %q", what, name)
		}
	}
}

func TestSealKey(t *testing.T) {
	if _, err := newSealer(make([]byte, minKeyLen-1)); err == nil || !strings.Contains(err.Error(), "31 bytes") {
		t.Errorf("a short key: %v", err)
	}
}
