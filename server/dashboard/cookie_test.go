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
	cookiesOf := func(key []byte) *cookies {
		c, err := newCookies(key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	key := bytes.Repeat([]byte{7}, minKeyLen)
	c, alice, until := cookiesOf(key), sum([]byte(strings.Repeat("alice!!!", 4))), time.Now().Add(time.Hour)
	text := c.seal(plainCookie, alice, until)
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	if bytes.Contains(raw, []byte("alice")) || c.seal(plainCookie, alice, until) == text {
		t.Error("the content can be read, or told by the text")
	}
	of, end, ok := cookiesOf(key).open(plainCookie, text)
	if !ok || of != alice || end.Unix() != until.Unix() {
		t.Errorf("a replica with the same key: %q, %v, %v", of, end, ok)
	}
	turned := bytes.Clone(raw)
	turned[len(turned)-20] ^= 1
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(text) - 1
	for what, of := range map[string]struct {
		c          *cookies
		name, text string
	}{
		"another key":    {cookiesOf(bytes.Repeat([]byte{8}, minKeyLen)), plainCookie, text},
		"a random key":   {cookiesOf(nil), plainCookie, text},
		"another name":   {c, tlsCookie, text},
		"over":           {c, plainCookie, c.seal(plainCookie, alice, time.Now().Add(-time.Second))},
		"one bit turned": {c, plainCookie, base64.RawURLEncoding.EncodeToString(turned)},
		"cut":            {c, plainCookie, text[:last-3]},
		"empty":          {c, plainCookie, ""},
		"no base64":      {c, plainCookie, "!" + text},
		"too long":       {c, plainCookie, strings.Repeat("A", maxCookieLen+1)},
		// Else a visitor who has signed out leaves other texts of the same cookie.
		"bits to spare": {c, plainCookie, text[:last] + string(digits[strings.IndexByte(digits, text[last])^1])},
	} {
		if _, _, ok := of.c.open(of.name, of.text); ok {
			t.Errorf("%s: opened", what)
		}
	}
}
