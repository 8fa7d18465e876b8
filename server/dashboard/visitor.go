// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"crypto/sha256"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// cookieLife is for how long a visitor is signed in.
const cookieLife = time.Hour

// visitor is who looks.
type visitor struct {
	access.Principal
	until time.Time // when the cookie is over; zero if it was none
	form  bool      // may send forms: a program that sends a token has /v1

	secret string // that it came with; "" if it was none
	shares bool   // the browser sends its cookie to every port of this host, too
}

// all says that the visitor may read all locks there are.
func (v visitor) all() bool {
	prefixes := v.Prefixes(access.Read, "")
	return len(prefixes) == 1 && prefixes[0] == ""
}

// anything says that there may be a lock that the visitor may read.
func (v visitor) anything() bool { return len(v.Prefixes(access.Read, "")) > 0 }

// visitor returns who sends a request. A token that is sent and wrong is not made good by a
// cookie.
func (d *Dashboard) visitor(r *http.Request) (visitor, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		if p, ok := d.byHeader(r, header); ok {
			return visitor{Principal: p, secret: secretOf(header)}, true
		}
		return visitor{}, false
	}
	if p, ok := d.options.Authenticate(r); ok {
		return visitor{Principal: p, form: true}, true
	}
	return d.byCookie(r)
}

func (d *Dashboard) byHeader(r *http.Request, header string) (access.Principal, bool) {
	scheme, _, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return access.Principal{}, false
	}
	p, ok := d.options.Access.ByToken(secretOf(header))
	if !ok {
		d.failures.add(r.RemoteAddr)
		d.options.Wrong(r, secretOf(header))
	}
	return p, ok
}

// secretOf returns the secret in an Authorization header.
func secretOf(header string) string {
	_, secret, _ := strings.Cut(header, " ")
	return strings.TrimSpace(secret)
}

// admitted returns who sends a request, and counts it. If it returns false, the request has
// had its answer.
func (d *Dashboard) admitted(w http.ResponseWriter, r *http.Request) (visitor, bool) {
	who, ok := d.visitor(r)
	if !ok {
		d.unknown(w, r)
		return who, false
	}
	if wait := d.options.Admit(r, who.Principal, who.secret); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(wait.Seconds())))))
		d.failed(w, r, &problem{http.StatusTooManyRequests, "Too many", tooMany})
		return who, false
	}
	return who, true
}

func (d *Dashboard) byCookie(r *http.Request) (visitor, bool) {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		until, sum, ok := d.cookieOf(c)
		if !ok {
			continue
		}
		if p, ok := d.options.Access.BySum(sum); ok {
			return visitor{Principal: p, until: until, form: true, shares: c.Name == plainCookie}, true
		}
	}
	return visitor{}, false
}

// cookieOf returns what a cookie stands for: a secret, by its sum, so that a secret that is
// replaced ends its cookies.
func (d *Dashboard) cookieOf(c *http.Cookie) (until time.Time, sum [sha256.Size]byte, ok bool) {
	text, until, err := d.sealer.open(c.Name, c.Value, time.Now())
	if err != nil || len(text) != len(sum) || d.signedOut.has(c.Value) {
		return time.Time{}, sum, false
	}
	copy(sum[:], text)
	return until, sum, true
}

// signedOut are the cookies of those who have signed out here, until they are over. Other
// replicas do not know them.
type signedOut struct {
	mu sync.Mutex
	by map[string]time.Time // when it is over
}

// signedOutKept bounds how many cookies are remembered.
const signedOutKept = 4096

func newSignedOut() *signedOut { return &signedOut{by: map[string]time.Time{}} }

func (s *signedOut) has(cookie string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.by[cookie]
	return found
}

func (s *signedOut) add(cookie string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for old, over := range s.by {
		if !now.Before(over) || len(s.by) >= signedOutKept { // any, rather than no bound
			delete(s.by, old)
		}
	}
	s.by[cookie] = until
}

// plainCookie is the name of the cookie where there is no TLS. A browser sends it to every port
// of the host, so that by itself it changes nothing.
const plainCookie = "tenure"

// cookieName binds the cookie to TLS and to this host where there is TLS.
func cookieName(r *http.Request) string {
	if onLoopback(r) {
		return plainCookie
	}
	return "__Host-tenure"
}

// cookie returns the cookie that signs a visitor in; out, with an empty value.
func (d *Dashboard) cookie(r *http.Request, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: int(life.Seconds()),
		HttpOnly: true, Secure: !onLoopback(r), SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// onLoopback says that the browser has come without TLS to an address of its own machine:
// there it may refuse a cookie that is for TLS alone.
func onLoopback(r *http.Request) bool {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// Failed tokens of one address: so many at once, and one more each refill.
const (
	failuresAtOnce = 10
	failuresRefill = 6 * time.Second
	failuresKept   = 4096 // addresses; of IPv6, networks
)

// failures bounds how often somebody is told that a token is wrong, and how many lines that
// leaves. A right one is always let in: others may have the same address.
type failures struct {
	mu sync.Mutex
	by map[string]time.Time // when all is forgotten
}

func newFailures() *failures { return &failures{by: map[string]time.Time{}} }

// allow says whether the address has not sent too many yet.
func (f *failures) allow(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.by[access.Network(address)]) <= (failuresAtOnce-1)*failuresRefill
}

// add notes a wrong token.
func (f *failures) add(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if len(f.by) >= failuresKept {
		for a, forgotten := range f.by {
			if now.After(forgotten) {
				delete(f.by, a)
			}
		}
		for a := range f.by { // any, rather than no bound
			if len(f.by) < failuresKept {
				break
			}
			delete(f.by, a)
		}
	}
	network := access.Network(address)
	from := f.by[network]
	if from.Before(now) {
		from = now
	}
	f.by[network] = from.Add(failuresRefill)
}

// host returns the address without its port.
func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return cmp.Or(address, "unknown")
	}
	return h
}
