// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
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
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// maxForm bounds the body of a form in bytes.
const maxForm = 64 << 10

var (
	// tooMany does not reveal to a guesser whether a token is right.
	tooMany = refuse(http.StatusTooManyRequests, "Too many", "too many wrong tokens came from your address, or you ask "+
		"for too many pages a second: try again in a minute")
	// notSignedIn is answered by the form to sign in, to a browser.
	notSignedIn = refuse(http.StatusUnauthorized, "", "no token, or an unknown token; send a token: "+
		"curl -H 'Authorization: Bearer TOKEN' ...")
)

// visitor is the sender of a request.
type visitor struct {
	access.Principal
	form   bool   // may send forms: a program that sends a token has /v1
	secret string // that the request had; "" without one
	shares bool   // the browser sends its cookie to every port of this host, too
}

// all says that the visitor has a right to all locks there are.
func (v visitor) all(right access.Right) bool {
	prefixes := v.Prefixes(right, "")
	return len(prefixes) == 1 && prefixes[0] == ""
}

// rights says what the visitor may do.
func (v visitor) rights() string {
	var all []string
	for _, g := range v.Grants() {
		if g.Prefix == "" {
			all = append(all, string(g.Right)+" all")
		} else {
			all = append(all, fmt.Sprintf("%s %s…", g.Right, g.Prefix))
		}
	}
	return "Its rights: " + strings.Join(all, ", ") + "."
}

// visitor returns the sender of a request. If a wrong token was sent, a cookie does not help.
func (d *Dashboard) visitor(r *http.Request) (visitor, bool) {
	secret, token := bearer(r)
	if p, ok := d.server.Principal(r); ok || token {
		return visitor{Principal: p, form: !token, secret: secret}, ok
	}
	for _, c := range r.CookiesNamed(cookieName(r)) {
		of, _, ok := d.cookies.open(c.Name, c.Value)
		if !ok {
			continue
		}
		if p, ok := d.server.Principals().BySum(of); ok {
			return visitor{Principal: p, form: true, shares: c.Name == plainCookie}, true
		}
	}
	return visitor{}, false
}

// bearer returns the token that a request has, and whether it has any.
func bearer(r *http.Request) (secret string, sent bool) {
	header := r.Header.Get("Authorization")
	_, secret, _ = strings.Cut(header, " ")
	return strings.TrimSpace(secret), header != ""
}

// admitted returns the sender of a request, and counts the request.
func (d *Dashboard) admitted(w http.ResponseWriter, r *http.Request) (visitor, *problem) {
	who, ok := d.visitor(r)
	if secret, sent := bearer(r); !ok && sent && d.server.WrongToken(r, secret) > 0 {
		return who, tooMany
	}
	if !ok {
		return who, notSignedIn
	}
	if wait := d.server.Admit(r, who.Principal, who.secret); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int((wait+time.Second-1)/time.Second)))
		return who, tooMany
	}
	return who, nil
}

// acting reads a form that changes something.
func (d *Dashboard) acting(w http.ResponseWriter, r *http.Request) (visitor, *problem) {
	who, p := d.admitted(w, r)
	if p == nil && !who.form {
		p = refuse(http.StatusUnauthorized, "Sign in", "forms need a sign-in; a program that has a token "+
			"calls /v1/requests")
	}
	if p == nil {
		p = readForm(w, r)
	}
	if p == nil && who.shares {
		p = d.confirm(r, who)
	}
	return who, p
}

// readForm reads the form of a request.
func readForm(w http.ResponseWriter, r *http.Request) *problem {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "Too large", "the form has more than %d bytes", maxForm)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "Not understood", "the form cannot be read: %v", err)
	}
	return nil
}

// confirm returns a problem unless the form has a secret of the visitor. No page knows it, so a program
// that has the cookie from another port of this host does not have it.
func (d *Dashboard) confirm(r *http.Request, who visitor) *problem {
	secret := strings.TrimSpace(r.PostForm.Get("secret"))
	if secret == "" {
		return refuse(http.StatusForbidden, "Not confirmed", "a browser sends the cookie of a page without TLS to every "+
			"port of this host, so this form also needs the token of %s: go back and type it", who.Name())
	}
	p, known := d.server.Principals().ByToken(secret)
	own := known && p.Name() == who.Name()
	switch {
	case own && d.server.Admit(r, p, secret) == 0:
		return nil
	case own || d.server.WrongToken(r, secret) > 0:
		return tooMany
	}
	d.audit(r.Context(), access.Act{
		Principal: who.Name(), Action: "confirm", Outcome: "unauthenticated", Detail: from(r),
	})
	return refuse(http.StatusForbidden, "Not confirmed", "this is not a token of %s: go back and type it again", who.Name())
}

// askWho answers a browser whose visitor is not signed in: by the form, at the address that it asked for.
func (d *Dashboard) askWho(w http.ResponseWriter, r *http.Request) {
	next := ""
	if r.Method == http.MethodGet {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			// A link on another page: the browser has left out a strict cookie, and sends it when this very
			// page asks again.
			d.html(w, http.StatusOK, "again", nil)
			return
		}
		next = strings.TrimPrefix(r.URL.Path, "/") + tail(r.URL.Query())
	}
	d.signIn(w, r, http.StatusUnauthorized, next, "")
}

// loginView is what the form to sign in shows.
type loginView struct {
	Next     string // where to go then
	Refused  string // why the last try was refused
	Insecure bool   // a browser does not keep the cookie here
	Keeps    bool   // the forms want the token again, and a script keeps it for them
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, status int, next, refused string) *problem {
	keeps := onLoopback(r)
	d.html(w, status, "page", &page{
		View: "login", Title: "Sign in", Site: d.options.Title, Scripts: keeps,
		Model: loginView{Next: d.local(next), Refused: refused, Insecure: !overTLS(r) && !keeps, Keeps: keeps},
	})
	return nil
}

// local returns the relative address of one of these pages; for any other address, the address of the first
// page.
func (d *Dashboard) local(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return "./"
	}
	name := cmp.Or(strings.TrimPrefix(u.Path, "./"), "now")
	if _, ok := d.views[name]; !ok || u.Path == "now" {
		return "./"
	}
	return pathOf(name) + tail(u.Query())
}

// login takes a token, and answers with a cookie.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) *problem {
	if p := readForm(w, r); p != nil {
		return p
	}
	next, secret := r.PostForm.Get("next"), strings.TrimSpace(r.PostForm.Get("token"))
	p, known := d.server.Principals().ByToken(secret)
	act := access.Act{Principal: p.Name(), Action: "sign-in", Outcome: "done", Detail: from(r)}
	switch {
	case known && d.server.Admit(r, p, secret) > 0, !known && d.server.WrongToken(r, secret) > 0:
		return d.signIn(w, r, http.StatusTooManyRequests, next, tooMany.Detail)
	case !known:
		act.Principal, act.Outcome = "", "unauthenticated"
		d.audit(r.Context(), act)
		return d.signIn(w, r, http.StatusUnauthorized, next, "This token is not known.")
	}
	d.audit(r.Context(), act)
	value := d.cookies.seal(cookieName(r), sha256.Sum256([]byte(secret)), time.Now().Add(cookieLife))
	http.SetCookie(w, cookie(r, value))
	return seeOther(w, d.local(next))
}

// logout takes the cookie back: the browser forgets it, and a copy of it is over.
func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) *problem {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if _, until, ok := d.cookies.open(c.Name, c.Value); ok {
			d.cookies.end(c.Value, until)
		}
	}
	http.SetCookie(w, cookie(r, ""))
	return seeOther(w, "login")
}

// seeOther sends the browser to an address relative to this one: where these pages are mounted is not known
// here.
func seeOther(w http.ResponseWriter, address string) *problem {
	w.Header().Set("Location", address)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// audit logs an act, even if the visitor does not wait for its answer any more.
func (d *Dashboard) audit(ctx context.Context, act access.Act) {
	act.Via = "dashboard"
	d.server.Audit(context.WithoutCancel(ctx), act)
}

// from is the address of a visitor, for audit lines.
func from(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return "from " + cmp.Or(host, r.RemoteAddr, "unknown")
}

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
	// maxCookieLen bounds the cookies that are read: a sum, and what surrounds it.
	maxCookieLen = 1024
	// maxEnded bounds how many cookies are remembered that were signed out.
	maxEnded = 4096
)

// sum is the hash of a visitor's secret: replacing a secret ends its cookies.
type sum = [sha256.Size]byte

// cookies encrypts the sum of a visitor's secret and an expiry into a text that no one else can read or
// make.
type cookies struct {
	aead cipher.AEAD

	mu    sync.Mutex
	ended map[string]time.Time // cookies that were signed out here, until they expire
}

// newCookies derives the key from the one given. Without one it makes a key of its own, which no other process
// has.
func newCookies(key []byte) (*cookies, error) {
	switch {
	case len(key) == 0:
		key = make([]byte, minKeyLen)
		rand.Read(key) // it never fails
	case len(key) < minKeyLen:
		return nil, fmt.Errorf("dashboard: Options.Key has %d bytes: it must have at least %d random bytes; "+
			"leave it empty for a key that only this process has", len(key), minKeyLen)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, cookiePurpose, minKeyLen)
	if err != nil {
		return nil, fmt.Errorf("dashboard: deriving the key: %w", err)
	}
	block, _ := aes.NewCipher(derived) // it takes a key of this length
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return &cookies{aead: aead, ended: map[string]time.Time{}}, nil
}

// seal returns the text of a cookie of that name. It is not valid under another name: the name says whether
// a browser sends it only over TLS.
func (c *cookies) seal(name string, of sum, until time.Time) string {
	plain := binary.BigEndian.AppendUint64(of[:], uint64(until.Unix()))
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, plain, []byte(name)))
}

// open returns the contents of a cookie, if it was made with this key under that name, and has not expired.
// A cookie has only one valid text, which identifies it.
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

// onLoopback says that the browser used an address of its own machine without TLS: there it may refuse a
// cookie that is only for TLS.
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
