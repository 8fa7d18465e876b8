// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

const (
	// Wrong tokens of one address: so many at once, and one more each refill.
	wrongAtOnce = 10
	wrongRefill = 6 * time.Second
	// maxForm bounds the body of a form in bytes.
	maxForm = 64 << 10
	// tooMany does not tell a guesser whether a token is right.
	tooMany = "too many tokens from your address were wrong, or you ask for more pages a second than one may: " +
		"try again in a minute"
)

// visitor is who looks.
type visitor struct {
	access.Principal
	form   bool   // may send forms: a program that sends a token has /v1
	secret string // that it came with; "" if it was none
	shares bool   // the browser sends its cookie to every port of this host, too
}

// all says that the visitor has a right to all locks there are.
func (v visitor) all(right access.Right) bool {
	prefixes := v.Prefixes(right, "")
	return len(prefixes) == 1 && prefixes[0] == ""
}

// anything says that there may be a lock that the visitor may read.
func (v visitor) anything() bool { return len(v.Prefixes(access.Read, "")) > 0 }

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
	if len(all) == 0 {
		return "It has no rights at all."
	}
	return "Its rights: " + strings.Join(all, ", ") + "."
}

// visitor returns who sends a request. A token that is sent and wrong is not made good by a cookie.
func (d *Dashboard) visitor(r *http.Request) (visitor, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, secret, found := strings.Cut(header, " ")
		if !found || !strings.EqualFold(scheme, "Bearer") {
			return visitor{}, false
		}
		secret = strings.TrimSpace(secret)
		p, ok := d.options.Access.ByToken(secret)
		if !ok {
			d.wrong(r, secret)
		}
		return visitor{Principal: p, secret: secret}, ok
	}
	if p, ok := d.options.Authenticate(r); ok {
		return visitor{Principal: p, form: true}, true
	}
	for _, c := range r.CookiesNamed(cookieName(r)) {
		sum, _, ok := d.cookieOf(c)
		if !ok {
			continue
		}
		if p, ok := d.options.Access.BySum(sum); ok {
			return visitor{Principal: p, form: true, shares: c.Name == plainCookie}, true
		}
	}
	return visitor{}, false
}

// cookieOf returns what a cookie stands for: a secret, by its sum, so that a secret that is replaced ends its
// cookies.
func (d *Dashboard) cookieOf(c *http.Cookie) (sum [sha256.Size]byte, until time.Time, ok bool) {
	text, until, err := d.sealer.open(c.Name, c.Value, time.Now())
	if err != nil || len(text) != len(sum) || d.signedOut.left(c.Value) > 0 {
		return sum, until, false
	}
	return [sha256.Size]byte([]byte(text)), until, true
}

// wrong notes a token that is not known.
func (d *Dashboard) wrong(r *http.Request, secret string) {
	d.guesses.push(access.Network(r.RemoteAddr), wrongRefill)
	d.options.Wrong(r, secret)
}

// guessed says that the address has sent too many wrong tokens, so that it is not told whether another one is
// right. A right one is always let in: others may have the same address.
func (d *Dashboard) guessed(r *http.Request) bool {
	return d.guesses.left(access.Network(r.RemoteAddr)) > (wrongAtOnce-1)*wrongRefill
}

// admitted returns who sends a request, and counts it. If it returns false, the request has had its answer.
func (d *Dashboard) admitted(w http.ResponseWriter, r *http.Request) (visitor, bool) {
	who, ok := d.visitor(r)
	if !ok {
		d.unknown(w, r)
		return who, false
	}
	if wait := d.options.Admit(r, who.Principal, who.secret); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(wait.Seconds())))))
		d.failed(w, r, refuse(http.StatusTooManyRequests, "Too many", tooMany))
		return who, false
	}
	return who, true
}

// acting reads the form of a visitor who changes something. If it returns false, the request has had its
// answer.
func (d *Dashboard) acting(w http.ResponseWriter, r *http.Request) (visitor, bool) {
	who, ok := d.admitted(w, r)
	if !ok {
		return who, false
	}
	if !who.form {
		d.unknown(w, r)
		return who, false
	}
	p := readForm(w, r)
	if p == nil && who.shares {
		p = d.confirm(r, who)
	}
	if p != nil {
		d.failed(w, r, p)
	}
	return who, p == nil
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
			"port of this host, so a form sends the token of %s besides, and there was none: go back, and type it", who.Name())
	}
	p, known := d.options.Access.ByToken(secret)
	own := known && p.Name() == who.Name()
	switch {
	case own && d.options.Admit(r, p, secret) == 0:
		return nil
	case own || d.guessed(r):
		return refuse(http.StatusTooManyRequests, "Too many", tooMany)
	}
	d.wrong(r, secret)
	d.audit(r.Context(), access.Act{
		Principal: who.Name(), Action: "confirm", Outcome: "unauthenticated", Detail: from(r),
	})
	return refuse(http.StatusForbidden, "Not confirmed", "this is no token of %s: go back, and type it again", who.Name())
}

// loginView is what the form to sign in shows.
type loginView struct {
	Next     string // where to go then
	Refused  string // why the last try was refused
	Insecure bool   // a browser does not keep the cookie here
	Keeps    bool   // the forms want the token again, and a script keeps it for them
}

// unknown answers a visitor that is not signed in: by the form, at the address that it asked for, or by a line
// of text.
func (d *Dashboard) unknown(w http.ResponseWriter, r *http.Request) {
	guessed := d.guessed(r)
	if !guessed {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
	}
	if wantsText(r) {
		p := refuse(http.StatusUnauthorized, "", "no token, or one that is not known; send one: "+
			"curl -H 'Authorization: Bearer TOKEN' ...")
		if guessed {
			p = refuse(http.StatusTooManyRequests, "", tooMany)
		}
		d.failed(w, r, p)
		return
	}
	next := ""
	if r.Method == http.MethodGet {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			// A link on another page: the browser has left out a strict cookie, and sends it when this very
			// page asks again.
			d.render(w, r, http.StatusOK, "again", nil)
			return
		}
		next = strings.TrimPrefix(r.URL.Path, "/") + tail(r.URL.Query())
	}
	d.signIn(w, r, http.StatusUnauthorized, next, "")
}

// loginPage shows the form.
func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	d.signIn(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, status int, next, refused string) {
	keeps := onLoopback(r)
	p := &page{View: "login", Title: "Sign in", Status: status, Scripts: keeps}
	p.Model = loginView{Next: d.local(next), Refused: refused, Insecure: !overTLS(r) && !keeps, Keeps: keeps}
	d.showPage(w, r, p)
}

// local returns the address of one of these pages, relative to all of them; that of the first one for any
// other address.
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
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	if p := readForm(w, r); p != nil {
		d.failed(w, r, p)
		return
	}
	next, secret := r.PostForm.Get("next"), strings.TrimSpace(r.PostForm.Get("token"))
	p, known := d.options.Access.ByToken(secret)
	act := access.Act{Principal: p.Name(), Action: "sign-in", Outcome: "done", Detail: from(r)}
	switch {
	case known && d.options.Admit(r, p, secret) > 0, !known && d.guessed(r):
		d.signIn(w, r, http.StatusTooManyRequests, next, tooMany)
	case !known:
		d.wrong(r, secret)
		act.Principal, act.Outcome = "", "unauthenticated"
		d.audit(r.Context(), act)
		d.signIn(w, r, http.StatusUnauthorized, next, "This token is not known.")
	default:
		d.audit(r.Context(), act)
		sum := sha256.Sum256([]byte(secret))
		value := d.sealer.seal(cookieName(r), string(sum[:]), time.Now().Add(cookieLife))
		http.SetCookie(w, cookie(r, value))
		seeOther(w, d.local(next))
	}
}

// logout takes the cookie back: the browser forgets it, and a copy of it is over.
func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if _, until, ok := d.cookieOf(c); ok {
			d.signedOut.push(c.Value, time.Until(until))
		}
	}
	http.SetCookie(w, cookie(r, ""))
	seeOther(w, "login")
}

// seeOther sends the browser to an address relative to this one: where these pages are mounted is not known
// here.
func seeOther(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusSeeOther)
}

func (d *Dashboard) audit(ctx context.Context, act access.Act) {
	act.Via = via
	d.options.Audit(context.WithoutCancel(ctx), act)
}

// from is the address of a visitor, for audit lines.
func from(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return "from " + cmp.Or(host, r.RemoteAddr, "unknown")
}

// maxDeadlines bounds how many deadlines are kept.
const maxDeadlines = 4096

// deadlines are instants by a text, each until it has passed: when a cookie that was signed out is over
// anyway, when the wrong tokens of an address are forgotten. Other replicas do not know them. All methods may
// be called concurrently.
type deadlines struct {
	mu sync.Mutex
	by map[string]time.Time
}

func newDeadlines() *deadlines { return &deadlines{by: map[string]time.Time{}} }

// left returns how long it is until the deadline; 0 or less if there is none.
func (d *deadlines) left(key string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.by[key])
}

// push moves the deadline on from now, or from where it is.
func (d *deadlines) push(key string, by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	until := later(now, d.by[key]).Add(by)
	for old, passed := range d.by {
		if !now.Before(passed) || len(d.by) >= maxDeadlines { // any, rather than no bound
			delete(d.by, old)
		}
	}
	d.by[key] = until
}
