// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// maxForm bounds the body of a form in bytes.
const maxForm = 64 << 10

// loginModel is what the form to sign in shows.
type loginModel struct {
	Next    string // where to go then
	Refused string // why the last try was refused
	// Insecure says that a browser does not keep the cookie here.
	Insecure bool
	// Keeps says that the forms want the token again, and a script keeps it for them.
	Keeps bool
}

// loginPage shows the form.
func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	d.signIn(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
}

// unknown answers a visitor that is not signed in: by the form, at the address that it asked
// for, or by a line of text.
func (d *Dashboard) unknown(w http.ResponseWriter, r *http.Request) {
	if d.failures.allow(r.RemoteAddr) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
	}
	if wantsText(r) {
		status, detail := http.StatusUnauthorized, "no token, or one that is not known; send one: curl -H 'Authorization: Bearer TOKEN' ...\n"
		if !d.failures.allow(r.RemoteAddr) {
			status, detail = http.StatusTooManyRequests, tooMany+"\n"
			w.Header().Set("Retry-After", retryAfter)
		}
		d.write(w, r, status, textType, []byte("tenure: "+detail))
		return
	}
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// A link on another page: the browser has left out a strict cookie, and sends it
		// when this very page asks again.
		d.render(w, r, http.StatusOK, "again", nil)
		return
	}
	next := ""
	if r.Method == http.MethodGet {
		next = strings.TrimPrefix(r.URL.Path, "/")
		if r.URL.RawQuery != "" {
			next += "?" + r.URL.RawQuery
		}
	}
	d.signIn(w, r, http.StatusUnauthorized, next, "")
}

const (
	// tooMany does not tell a guesser whether a token is right.
	tooMany    = "too many tokens from your address were wrong, or you ask for more pages a second than one may: try again in a minute"
	retryAfter = "60"
)

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, status int, next, refused string) {
	insecure := r.TLS == nil && r.Header.Get("X-Forwarded-Proto") != "https" && !onLoopback(r)
	d.render(w, r, status, "login", loginModel{Next: d.local(next), Refused: refused, Insecure: insecure, Keeps: onLoopback(r)})
}

// local returns the address of one of these pages, relative to all of them; that of the
// first one for any other address.
func (d *Dashboard) local(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return "./"
	}
	v, ok := d.views()[u.Path]
	if !ok {
		v = d.views()["now"]
		if u.Path != "" && u.Path != "./" {
			return v.path()
		}
	}
	if query := u.Query().Encode(); query != "" {
		return v.path() + "?" + query
	}
	return v.path()
}

// login takes a token, and answers with a cookie.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.failed(w, r, badForm(err))
		return
	}
	next := r.PostForm.Get("next")
	secret := strings.TrimSpace(r.PostForm.Get("token"))
	p, ok := d.options.Access.ByToken(secret)
	switch {
	case ok:
		if wait := d.options.Admit(r, p, secret); wait > 0 {
			w.Header().Set("Retry-After", retryAfter)
			d.signIn(w, r, http.StatusTooManyRequests, next, tooMany)
			return
		}
	case !d.failures.allow(r.RemoteAddr):
		w.Header().Set("Retry-After", retryAfter)
		d.signIn(w, r, http.StatusTooManyRequests, next, tooMany)
		return
	default:
		d.failures.add(r.RemoteAddr)
		d.options.Wrong(r, secret)
		d.audit(r.Context(), access.Act{Action: "sign-in", Outcome: "unauthenticated", Detail: "from " + host(r.RemoteAddr)})
		d.signIn(w, r, http.StatusUnauthorized, next, "This token is not known.")
		return
	}
	d.audit(r.Context(), access.Act{Principal: p.Name(), Action: "sign-in", Outcome: "done", Detail: "from " + host(r.RemoteAddr)})
	sum := sha256.Sum256([]byte(secret))
	http.SetCookie(w, d.cookie(r, d.sealer.seal(cookieName(r), string(sum[:]), time.Now().Add(cookieLife)), cookieLife))
	seeOther(w, d.local(next))
}

// logout takes the cookie back: the browser forgets it, and whoever has a copy finds it over.
func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if until, _, ok := d.cookieOf(c); ok {
			d.signedOut.add(c.Value, until)
		}
	}
	http.SetCookie(w, d.cookie(r, "", 0))
	seeOther(w, "login")
}

// seeOther sends the browser to an address relative to this one: where these pages are
// mounted is not known here.
func seeOther(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Content-Length", strconv.Itoa(0))
	w.WriteHeader(http.StatusSeeOther)
}

func (d *Dashboard) audit(ctx context.Context, act access.Act) {
	act.Via = via
	d.options.Audit(context.WithoutCancel(ctx), act)
}
