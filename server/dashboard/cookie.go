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
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	// cookieLife is for how long a visitor is signed in.
	cookieLife = time.Hour
	// plainCookie is the name of the cookie where there is no TLS. A browser sends it to every port of the
	// host, so that by itself it changes nothing. tlsCookie is bound to TLS and to this host.
	plainCookie = "tenure"
	tlsCookie   = "__Host-tenure"
	// minKeyLen is the least length of Options.Key in bytes.
	minKeyLen = 32
	// cookiePurpose keeps cookies apart from what is sealed elsewhere with the same key.
	cookiePurpose = "tenure dashboard cookie 3"
	// maxCookieLen bounds what is looked at: a sum, and what is around it.
	maxCookieLen = 1024
)

// errCookie says that a cookie was not sealed by this key, or is over.
var errCookie = errors.New("not a cookie of this dashboard, or one that is over")

// sealer seals the sum of a visitor's secret, and the end of its time, into a text that nobody else can read
// or make.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer with a key that is derived from the one given. Without one it makes a key of its
// own, which no other process has.
func newSealer(key []byte) (*sealer, error) {
	switch {
	case len(key) == 0:
		key = make([]byte, minKeyLen)
		rand.Read(key) // it never fails
	case len(key) < minKeyLen:
		return nil, fmt.Errorf("dashboard: Options.Key has %d bytes: it must have %d at least, random ones; "+
			"leave it empty for a key of this process alone", len(key), minKeyLen)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, cookiePurpose, minKeyLen)
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

// seal returns the text of a cookie of that name. Under another name it is none: the name says whether a
// browser sends it over TLS alone.
func (s *sealer) seal(name, sum string, until time.Time) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(until.Unix()))
	plain = append(plain, sum...)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(name)))
}

// open returns what was sealed, if it was sealed by this key for a cookie of that name, and is not over. One
// cookie has one text, so that it can be told by that.
func (s *sealer) open(name, text string, now time.Time) (sum string, until time.Time, err error) {
	if len(text) > maxCookieLen {
		return "", time.Time{}, errCookie
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", time.Time{}, errCookie
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil || len(plain) < 8 {
		return "", time.Time{}, errCookie
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(plain)), 0) //nolint:gosec // it was made from one
	if !now.Before(until) {
		return "", time.Time{}, errCookie
	}
	return string(plain[8:]), until, nil
}

// cookieName binds the cookie to TLS and to this host where there is TLS.
func cookieName(r *http.Request) string {
	if onLoopback(r) {
		return plainCookie
	}
	return tlsCookie
}

// cookie returns the cookie that signs a visitor in; out, with an empty value.
func cookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: int(cookieLife.Seconds()),
		HttpOnly: true, Secure: !onLoopback(r), SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// overTLS says that the browser has come by TLS, to this server or to a proxy in front of it.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// onLoopback says that the browser has come without TLS to an address of its own machine: there it may refuse
// a cookie that is for TLS alone.
func onLoopback(r *http.Request) bool {
	if overTLS(r) {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
