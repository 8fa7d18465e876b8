// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server/dashboard"
)

func TestSignIn(t *testing.T) {
	inSite(t, func(s *site) {
		form := s.send(request{method: "GET", path: "lock?name=a%26b"})
		s.want(form, 401, `<form method="post" action="login">`, `name="next" value="lock?name=a%26b"`, `<label for="token">`)
		if form.Header().Get("WWW-Authenticate") == "" {
			s.Error("401 without WWW-Authenticate")
		}
		wrong := s.login("guess", "", nil)
		s.want(wrong, 401, "This token is not known.")
		if len(wrong.Result().Cookies()) > 0 {
			s.Error("a cookie for a wrong token")
		}
		// A visitor is sent to one of these pages, and nowhere else.
		for next, want := range map[string]string{
			"":                           "./",
			"./":                         "./",
			"./?prefix=a":                "./?prefix=a",
			"?prefix=a":                  "./?prefix=a",
			"lock?name=a%26b":            "lock?name=a%26b",
			"sessions":                   "sessions",
			"act":                        "./",
			"live?view=now":              "./",
			"https://evil.example/":      "./",
			"//evil.example/lock":        "./",
			"/\\evil.example":            "./",
			"javascript:alert(1)":        "./",
			"lock:x":                     "./",
			"../../x":                    "./",
			"lock?name=x#y\r\nX: y":      "lock?name=x",
			"//user@evil.example?a=b":    "./",
			"lock?name=%0d%0aSet-Cookie": "lock?name=%0D%0ASet-Cookie",
		} {
			a := s.login(" "+alice+"\n", next, nil)
			if got := a.Header().Get("Location"); got != want || a.Code != http.StatusSeeOther {
				s.Errorf("next %q leads to %q (%d), want %q", next, got, a.Code, want)
			}
		}
		// The browser leaves out a strict cookie after a link on another site: the page asks again by itself.
		link := request{method: "GET", path: "lock?name=x", header: map[string]string{"Sec-Fetch-Site": "cross-site"}}
		s.want(s.send(link), 200, `<meta http-equiv="refresh" content="0">`, "!<form")
	})
}

func TestCookie(t *testing.T) {
	inSite(t, func(s *site) {
		for host, name := range map[string]string{
			"127.0.0.1:8080": "tenure", "localhost": "tenure", "[::1]:8080": "tenure",
			"locks.example": "__Host-tenure", "10.1.2.3:8080": "__Host-tenure", "localhost.example": "__Host-tenure",
		} {
			got := s.login(alice, "", map[string]string{"Host": host}).Result().Cookies()[0]
			want := http.Cookie{
				Name: name, Value: got.Value, Path: "/", MaxAge: 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode,
				Secure: name != "tenure",
			}
			if got.String() != want.String() {
				s.Errorf("%s: %s, want %s", host, got, &want)
			}
		}
		cookie := s.signIn(alice)
		time.Sleep(59 * time.Minute)
		s.want(s.send(request{method: "GET", cookie: cookie}), 200)
		time.Sleep(2 * time.Minute)
		s.want(s.send(request{method: "GET", cookie: cookie}), 401)
		s.want(s.send(request{method: "GET", cookie: "tenure=nonsense"}), 401)
	})
}

// A cookie ends with the secret that it was made with, although the principal has another one, and when its
// visitor signs out, also for a copy.
func TestCookieEndsWithItsSecret(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		replaced, left := s.signIn(requester), s.signIn(alice)
		over := func(cookie string) {
			s.Helper()
			form := url.Values{"kind": {"step-down"}, "token": {"1"}, "reason": {"stolen"}, "secret": {alice}}
			s.want(s.send(request{method: "GET", cookie: cookie}), 401)
			s.want(s.send(request{method: "POST", path: "act?name=team/x", form: form, cookie: cookie}), 401)
		}
		s.set(strings.ReplaceAll(principals, requester, "another-"+requester))
		over(replaced)
		s.want(s.send(request{method: "GET", cookie: left}), 200)
		out := s.send(request{method: "POST", path: "logout", cookie: left})
		if c := out.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
			s.Errorf("sign-out: %v", c)
		}
		over(left)
		s.shows(alice, "./", 200)
	})
}

// A cookie opens the pages of another process with the same key, and of none with another.
func TestCookieOfAReplica(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(alice)
		for key, code := range map[string]int{strings.Repeat("k", 32): 200, strings.Repeat("o", 32): 401, "": 401} {
			d := s.dashboard(dashboard.Options{Key: []byte(key)})
			s.want(s.sendTo(d, request{method: "GET", cookie: cookie}), code)
		}
	})
}

// A visitor is known by a client certificate. A token that is wrong is not made good by it.
func TestAuthenticate(t *testing.T) {
	inSite(t, func(s *site) {
		s.set("carol cert read:team/\n")
		carol := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{
			Subject: pkix.Name{CommonName: "carol"}, NotAfter: time.Now().Add(time.Hour),
		}}}}
		s.want(s.send(request{method: "GET"}), 401)
		s.want(s.send(request{method: "GET", tls: carol}), 200, "carol")
		s.want(s.send(request{method: "GET", tls: carol, header: map[string]string{"Authorization": "Bearer wrong"}}), 401)
	})
}

// Each page and each form counts, and is refused with others when there are too many.
func TestPagesAreCounted(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(alice)
		all := []request{{method: "POST", path: "login", form: url.Values{"token": {alice}}}}
		for _, path := range []string{"./", "lock?name=x", "sessions", "shards", "doctor", "live?view=now"} {
			all = append(all, request{method: "GET", path: path, cookie: cookie})
		}
		for _, path := range []string{"act?name=x", "measure"} {
			all = append(all, request{method: "POST", path: path, cookie: cookie, form: url.Values{"secret": {alice}}})
		}
		for range 300 {
			s.send(request{method: "GET", path: "lock", cookie: cookie})
		}
		for _, q := range all {
			a := s.send(q)
			s.want(a, 429)
			if a.Header().Get("Retry-After") == "" {
				s.Errorf("%s %s: no Retry-After", q.method, q.path)
			}
		}
	})
}

// Wrong tokens are counted and logged, up to a bound, however they come.
func TestTooManyWrongTokens(t *testing.T) {
	inSite(t, func(s *site) {
		for i := range 10 {
			if i%2 == 0 {
				s.want(s.login("guess", "", nil), 401)
			} else {
				s.want(s.plain("guess", "./"), 401)
			}
		}
		s.want(s.login("guess", "", nil), 429)
		s.want(s.plain("guess", "./"), 429)
		if n := strings.Count(s.log.String(), "unauthenticated"); n != 5 {
			s.Errorf("%d lines of the log for tokens that were typed", n)
		}
		s.want(s.login(alice, "", nil), 303) // somebody else has the same address, and a right one
		time.Sleep(2 * time.Minute)
		s.want(s.login("guess", "", nil), 401)
	})
}

// What pages of other sites send, with the cookie of a visitor, is refused.
func TestCrossSite(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		form := url.Values{"kind": {"revoke"}, "token": {"1"}, "reason": {"evil"}, "secret": {alice}}
		for what, header := range map[string]map[string]string{
			"another site":          {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
			"another port":          {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9999"},
			"a browser of old":      {"Origin": "https://evil.example"},
			"a page without origin": {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
		} {
			for _, path := range []string{"act?name=team/x", "login", "logout", "measure"} {
				s.want(s.send(request{method: "POST", path: path, form: form, cookie: s.signIn(alice), header: header}), 403)
			}
			if l.Check() != nil || s.audited() != "" {
				s.Fatalf("%s: %v, %s", what, l.Check(), s.audited())
			}
		}
	})
}

// A wrong method on a page has another answer than a page that does not exist.
func TestMethods(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(alice)
		for path, allow := range map[string]string{
			"./": "GET, HEAD", "lock": "GET, HEAD", "sessions": "GET, HEAD", "shards": "GET, HEAD", "doctor": "GET, HEAD",
			"live": "GET", "login": "GET, HEAD, POST", "logout": "POST", "act": "POST", "measure": "POST",
			"style.css": "GET, HEAD", "script.js": "GET, HEAD", "icon.svg": "GET, HEAD",
		} {
			for _, method := range []string{"OPTIONS", "DELETE", "GET", "POST"} {
				a := s.send(request{method: method, path: path, cookie: cookie})
				allowed := strings.Contains(allow, method)
				if refused := a.Code == http.StatusMethodNotAllowed && a.Header().Get("Allow") == allow; refused == allowed {
					s.Errorf("%s %s: %d, allow %q, want %q", method, path, a.Code, a.Header().Get("Allow"), allow)
				}
			}
		}
		s.want(s.send(request{method: "HEAD", path: "live?view=now", cookie: cookie}), 405)
		s.want(s.send(request{method: "PUT", path: "nowhere"}), 404)
		s.want(s.send(request{method: "HEAD", path: "login"}), 200)
	})
}

// All answers have a strict policy, and no page has a script or a style that it would refuse. Files are kept for
// ever under an address that names their content.
func TestPolicy(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		cookie := s.signIn(alice)
		page := ""
		for _, q := range []request{
			{method: "GET"},
			{method: "GET", path: "nowhere"},
			{method: "GET", path: "login"},
			{method: "GET", path: "lock?name=team/x", cookie: cookie},
			{method: "GET", path: "sessions", cookie: cookie},
			{method: "GET", path: "shards", cookie: cookie},
			{method: "GET", path: "doctor", cookie: cookie},
			{method: "POST", path: "act", cookie: cookie, form: url.Values{}},
			{method: "POST", path: "act", cookie: cookie, header: map[string]string{"Sec-Fetch-Site": "cross-site"}},
			{method: "DELETE", path: "lock", cookie: cookie},
			{method: "GET", cookie: cookie},
		} {
			a := s.send(q)
			page = a.body // that of the locks, in the end
			policy := a.Header().Get("Content-Security-Policy")
			got := strings.Join([]string{
				policy[:min(len(policy), 56)], a.Header().Get("Cache-Control"), a.Header().Get("X-Content-Type-Options"),
				a.Header().Get("X-Frame-Options"), a.Header().Get("Access-Control-Allow-Origin"),
			}, "|")
			const want = "default-src 'none'; script-src 'self'; style-src 'self';|no-store|nosniff|DENY|"
			if got != want || strings.Contains(policy, "unsafe") {
				s.Errorf("%s /%s: %s, %s", q.method, q.path, got, policy)
			}
			s.want(a, a.Code, "!<style", "! style=", "! onclick", "! onload", "!javascript:")
			if strings.Contains(strings.ReplaceAll(page, `<script src="script.js?v=`, ""), "<script") {
				s.Errorf("%s /%s: another script", q.method, q.path)
			}
		}
		for _, name := range []string{"style.css", "script.js", "icon.svg"} {
			_, rest, _ := strings.Cut(page, name+"?v=")
			version, _, _ := strings.Cut(rest, `"`)
			for v, kept := range map[string]bool{version: true, "old": false} {
				a := s.send(request{method: "GET", path: name + "?v=" + v})
				if got := a.Header().Get("Cache-Control"); a.Code != 200 || strings.Contains(got, "immutable") != kept {
					s.Errorf("%s of version %s: %d, %s", name, v, a.Code, got)
				}
			}
		}
	})
}

// The pages can stand below another path.
func TestBelowAPrefix(t *testing.T) {
	inSite(t, func(s *site) {
		mux := http.NewServeMux()
		mux.Handle("/locks/", http.StripPrefix("/locks", s.pages))
		s.want(s.sendTo(mux, request{method: "GET", path: "locks/", cookie: s.signIn(alice)}), 200, `!="/`)
	})
}

func TestOptions(t *testing.T) {
	inSite(t, func(s *site) {
		for want, o := range map[string]dashboard.Options{
			"Options.Server is nil":   {},
			"Options.Key has 5 bytes": {Server: s.of, Key: []byte("short")},
		} {
			if _, err := dashboard.New(o); err == nil || !strings.Contains(err.Error(), want) {
				s.Errorf("%v, want %s", err, want)
			}
		}
	})
}
