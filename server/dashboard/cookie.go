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
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
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
	// cookiePurpose keeps cookies apart from what is encrypted elsewhere with the same key.
	cookiePurpose = "tenure dashboard cookie 3"
	// maxCookieLen bounds what is looked at: a sum, and what is around it.
	maxCookieLen = 1024
	// maxEnded bounds how many cookies are remembered that were signed out.
	maxEnded = 4096
)

// sum is that of a visitor's secret: a secret that is replaced ends its cookies.
type sum = [sha256.Size]byte

// cookies encrypts the sum of a visitor's secret, and the end of its time, into a text that nobody else can
// read or make.
type cookies struct {
	aead cipher.AEAD

	mu    sync.Mutex
	ended map[string]time.Time // those that were signed out here, until they are over anyway
}

// newCookies derives the key from the one given. Without one it makes a key of its own, which no other process
// has.
func newCookies(key []byte) (*cookies, error) {
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
	return &cookies{aead: aead, ended: map[string]time.Time{}}, nil
}

// seal returns the text of a cookie of that name. Under another name it is none: the name says whether a
// browser sends it over TLS alone.
func (c *cookies) seal(name string, of sum, until time.Time) string {
	plain := binary.BigEndian.AppendUint64(of[:], uint64(until.Unix()))
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, plain, []byte(name)))
}

// open returns what a cookie stands for, if it was made by this key under that name, and is not over. One
// cookie has one text, so that it can be told by that.
func (c *cookies) open(name, text string) (of sum, until time.Time, ok bool) {
	if len(text) > maxCookieLen {
		return of, until, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return of, until, false
	}
	plain, err := c.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil || len(plain) != len(of)+8 {
		return of, until, false
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(plain[len(of):])), 0) //nolint:gosec // it was made from one
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ended := c.ended[text]
	return sum(plain[:len(of)]), until, !ended && time.Now().Before(until)
}

// end ends a cookie before its time, for this process.
func (c *cookies) end(text string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old, over := range c.ended {
		if time.Now().After(over) || len(c.ended) >= maxEnded { // any, rather than no bound
			delete(c.ended, old)
		}
	}
	c.ended[text] = until
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
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}
