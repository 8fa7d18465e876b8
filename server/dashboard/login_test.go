// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/dashboard"
)

func TestSignIn(t *testing.T) {
	inSite(t, func(s *site) {
		form := s.send(request{method: "GET", path: "lock?name=a%26b"})
		s.status(form, http.StatusUnauthorized)
		s.has(form, `<form method="post" action="login">`, `name="next" value="lock?name=a%26b"`, `<label for="token">`)
		if form.Header().Get("WWW-Authenticate") == "" {
			s.Error("401 without WWW-Authenticate")
		}
		wrong := s.send(request{method: "POST", path: "login", form: url.Values{"token": {"guess"}}})
		s.status(wrong, http.StatusUnauthorized)
		s.has(wrong, "This token is not known.")
		if len(wrong.Result().Cookies()) > 0 {
			s.Error("a cookie for a wrong token")
		}
		right := s.send(request{method: "POST", path: "login", form: url.Values{"token": {" " + aliceToken + "\n"}, "next": {"lock?name=a%26b"}}})
		s.status(right, http.StatusSeeOther)
		if to := right.Header().Get("Location"); to != "lock?name=a%26b" {
			s.Errorf("sent to %s", to)
		}
		s.status(s.get("./"), http.StatusOK)
		out := s.send(request{method: "POST", path: "logout", cookie: s.signIn(aliceToken)})
		if c := out.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
			s.Errorf("sign-out: %v", c)
		}
	})
}

func TestCookie(t *testing.T) {
	inSite(t, func(s *site) {
		for _, c := range []struct {
			host, name string
			secure     bool
		}{
			{"127.0.0.1:8080", "tenure", false},
			{"localhost", "tenure", false},
			{"[::1]:8080", "tenure", false},
			{"locks.example", "__Host-tenure", true},
			{"10.1.2.3:8080", "__Host-tenure", true},
			{"localhost.example", "__Host-tenure", true},
		} {
			a := s.send(request{method: "POST", path: "login", form: url.Values{"token": {aliceToken}}, header: map[string]string{"Host": c.host}})
			cookies := a.Result().Cookies()
			if len(cookies) != 1 {
				s.Fatalf("%s: %v", c.host, cookies)
			}
			got := cookies[0]
			if got.Name != c.name || got.Secure != c.secure || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Path != "/" || got.MaxAge != 3600 || got.Domain != "" {
				s.Errorf("%s: %s", c.host, got)
			}
			if strings.Contains(got.Value, "alice") || strings.Contains(got.Value, aliceToken) {
				s.Errorf("%s: the cookie can be read", c.host)
			}
		}
	})
}

func TestCookieEnds(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(aliceToken)
		time.Sleep(59 * time.Minute)
		s.status(s.send(request{method: "GET", cookie: cookie}), http.StatusOK)
		time.Sleep(2 * time.Minute)
		s.status(s.send(request{method: "GET", cookie: cookie}), http.StatusUnauthorized)
		s.status(s.send(request{method: "GET", cookie: "tenure=nonsense"}), http.StatusUnauthorized)
	})
}

// A cookie ends with the secret that it was made with, although the principal has another one,
// and when its visitor signs out, also for whoever has a copy.
func TestCookieEndsWithItsSecret(t *testing.T) {
	inSite(t, func(s *site) {
		cookie, other := s.signIn(askerToken), s.signIn(aliceToken)
		asker, _ := s.users.ByToken(askerToken)
		s.holds("team/x", "web-1")
		form := url.Values{"kind": {"step-down"}, "token": {"1"}, "reason": {"stolen"}}
		s.users.replace(askerToken, "another-secret", asker)
		s.status(s.send(request{method: "GET", path: "./", cookie: cookie}), http.StatusUnauthorized)
		s.status(s.send(request{method: "POST", path: "act?name=team/x", form: form, cookie: cookie}), http.StatusUnauthorized)
		s.status(s.send(request{method: "GET", path: "./", cookie: other}), http.StatusOK)
		s.send(request{method: "POST", path: "logout", cookie: other})
		s.status(s.send(request{method: "GET", path: "./", cookie: other}), http.StatusUnauthorized)
		s.status(s.send(request{method: "POST", path: "act?name=team/x", form: form, cookie: other}), http.StatusUnauthorized)
		s.status(s.send(request{method: "GET", path: "./", cookie: s.signIn(aliceToken)}), http.StatusOK)
	})
}

// Each page and each form counts, and is refused with others when there are too many; so is a
// token that may be a guess, in the same words as a wrong one.
func TestPagesAreCounted(t *testing.T) {
	inSite(t, func(s *site) {
		wait, secrets := time.Duration(0), []string{}
		d := s.dashboard(dashboard.Options{
			Client: s.client(s.memory, tenureOptions), Access: s.users, Key: []byte(strings.Repeat("k", 32)),
			Admit: func(_ *http.Request, p access.Principal, secret string) time.Duration {
				secrets = append(secrets, p.Name()+" "+secret)
				return wait
			},
			Wrong: func(_ *http.Request, secret string) time.Duration {
				secrets = append(secrets, "wrong "+secret)
				return 0
			},
		})
		cookie := s.signIn(aliceToken)
		all := []request{
			{method: "GET", path: "./", cookie: cookie},
			{method: "GET", path: "lock?name=x", cookie: cookie},
			{method: "GET", path: "sessions", cookie: cookie},
			{method: "GET", path: "doctor", cookie: cookie},
			{method: "POST", path: "act?name=x", cookie: cookie, form: url.Values{}},
			{method: "POST", path: "measure", cookie: cookie, form: url.Values{}},
			{method: "POST", path: "login", form: url.Values{"token": {aliceToken}}},
		}
		for _, q := range all {
			if a := s.sendTo(d, q); a.Code == http.StatusTooManyRequests {
				s.Errorf("%s %s: %d", q.method, q.path, a.Code)
			}
		}
		if got := len(secrets); got != len(all) {
			s.Errorf("%d of %d are counted: %q", got, len(all), secrets)
		}
		wait = 1500 * time.Millisecond
		for _, q := range append(all, request{method: "GET", path: "live?view=now", cookie: cookie}) {
			a := s.sendTo(d, q)
			s.status(a, http.StatusTooManyRequests)
			if a.Header().Get("Retry-After") == "" {
				s.Errorf("%s %s: no Retry-After", q.method, q.path)
			}
		}
		s.sendTo(d, request{method: "GET", path: "./", header: map[string]string{"Authorization": "Bearer guess"}})
		if got := secrets[len(secrets)-1]; got != "wrong guess" {
			s.Errorf("a wrong token is counted as %q", got)
		}
	})
}

// TestCookieOfAReplica opens the pages of another process with the same key, and of none
// with another.
func TestCookieOfAReplica(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(aliceToken)
		client := s.client(s.memory, tenureOptions)
		same := s.dashboard(dashboard.Options{Client: client, Access: s.users, Key: []byte(strings.Repeat("k", 32))})
		s.status(s.sendTo(same, request{method: "GET", cookie: cookie}), http.StatusOK)
		other := s.dashboard(dashboard.Options{Client: client, Access: s.users, Key: []byte(strings.Repeat("o", 32))})
		s.status(s.sendTo(other, request{method: "GET", cookie: cookie}), http.StatusUnauthorized)
		own := s.dashboard(dashboard.Options{Client: client, Access: s.users})
		s.status(s.sendTo(own, request{method: "GET", cookie: cookie}), http.StatusUnauthorized)
	})
}

// TestNextStaysHere sends a visitor nowhere else after the sign-in.
func TestNextStaysHere(t *testing.T) {
	inSite(t, func(s *site) {
		for next, want := range map[string]string{
			"":                           "./",
			"./":                         "./",
			"./?prefix=a":                "./?prefix=a",
			"?prefix=a":                  "./?prefix=a",
			"lock?name=x":                "lock?name=x",
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
			a := s.send(request{method: "POST", path: "login", form: url.Values{"token": {aliceToken}, "next": {next}}})
			if got := a.Header().Get("Location"); got != want || a.Code != http.StatusSeeOther {
				s.Errorf("next %q leads to %q (%d), want %q", next, got, a.Code, want)
			}
		}
	})
}

func TestTooManyWrongTokens(t *testing.T) {
	inSite(t, func(s *site) {
		try := func(token string) int {
			return s.send(request{method: "POST", path: "login", form: url.Values{"token": {token}}}).Code
		}
		for range 10 {
			if code := try("guess"); code != http.StatusUnauthorized {
				s.Fatalf("status %d", code)
			}
		}
		if code := try("guess"); code != http.StatusTooManyRequests {
			s.Errorf("an eleventh wrong token: %d", code)
		}
		a := s.plain("./", "guess")
		s.status(a, http.StatusTooManyRequests)
		if a.Header().Get("Retry-After") == "" {
			s.Error("429 without Retry-After")
		}
		if n := len(s.acts); n != 10 {
			s.Errorf("%d lines of the log for wrong tokens", n)
		}
		// Somebody else has the same address, and a right token.
		if code := try(aliceToken); code != http.StatusSeeOther {
			s.Errorf("a right token: %d", code)
		}
		s.status(s.plain("./", aliceToken), http.StatusOK)
		time.Sleep(2 * time.Minute)
		if code := try("guess"); code != http.StatusUnauthorized {
			s.Errorf("a wrong token later: %d", code)
		}
		// One customer has a network of IPv6.
		from := func(address string) int {
			r := httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://127.0.0.1:8080/", nil)
			r.RemoteAddr = "[" + address + "]:1"
			r.Header.Set("Authorization", "Bearer guess")
			w := httptest.NewRecorder()
			s.pages.ServeHTTP(w, r)
			return w.Code
		}
		for i := range 11 {
			from(fmt.Sprintf("2001:db8:0:1::%x", i))
		}
		if code, other := from("2001:db8:0:1::f"), from("2001:db8:0:2::1"); code != http.StatusTooManyRequests || other != http.StatusUnauthorized {
			s.Errorf("wrong tokens from a network: %d; from another one: %d", code, other)
		}
	})
}

// TestCrossSite refuses what pages of other sites send, with the cookie of a visitor.
func TestCrossSite(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		form := url.Values{"kind": {"revoke"}, "token": {"1"}, "reason": {"evil"}}
		for what, header := range map[string]map[string]string{
			"another site":          {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
			"another port":          {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9999"},
			"a browser of old":      {"Origin": "https://evil.example"},
			"a page without origin": {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
		} {
			for _, path := range []string{"act?name=team/x", "login", "logout", "measure"} {
				s.status(s.send(request{method: "POST", path: path, form: form, cookie: cookie, header: header}), http.StatusForbidden)
			}
			if l.Check() != nil || s.audited() != "" {
				s.Fatalf("%s: %v, %s", what, l.Check(), s.audited())
			}
		}
	})
}

// TestLinkFromElsewhere opens a page by a link on another site: the browser leaves out the
// strict cookie, and sends it when the page asks again by itself.
func TestLinkFromElsewhere(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.send(request{method: "GET", path: "lock?name=x", header: map[string]string{"Sec-Fetch-Site": "cross-site"}})
		s.status(a, http.StatusOK)
		s.has(a, `<meta http-equiv="refresh" content="0">`)
		s.lacks(a, "<form")
	})
}

// A method that a page has not is told from a page that there is not.
func TestMethods(t *testing.T) {
	inSite(t, func(s *site) {
		for path, allow := range map[string]string{
			"./": "GET, HEAD", "lock": "GET, HEAD", "sessions": "GET, HEAD", "shards": "GET, HEAD", "doctor": "GET, HEAD", "live": "GET",
			"login": "GET, HEAD, POST", "logout": "POST", "act": "POST", "measure": "POST", "style.css": "GET, HEAD", "script.js": "GET, HEAD", "icon.svg": "GET, HEAD",
		} {
			for _, method := range []string{"OPTIONS", "PUT", "DELETE", "TRACE", "GET", "POST"} {
				if strings.Contains(allow, method) {
					continue
				}
				a := s.send(request{method: method, path: path, cookie: s.signIn(aliceToken)})
				if got := a.Header().Get("Allow"); a.Code != http.StatusMethodNotAllowed || got != allow {
					s.Errorf("%s %s: %d, allow %q, want 405 and %q", method, path, a.Code, got, allow)
				}
			}
		}
		s.status(s.send(request{method: "PUT", path: "nowhere"}), http.StatusNotFound)
		s.status(s.send(request{method: "HEAD", path: "login"}), http.StatusOK)
	})
}

func TestHeaders(t *testing.T) {
	inSite(t, func(s *site) {
		cookie := s.signIn(aliceToken)
		for _, q := range []request{
			{method: "GET"},
			{method: "GET", cookie: cookie},
			{method: "GET", path: "lock?name=x", cookie: cookie},
			{method: "GET", path: "nowhere", cookie: cookie},
			{method: "POST", path: "act", cookie: cookie, form: url.Values{}},
			{method: "POST", path: "act", cookie: cookie, header: map[string]string{"Sec-Fetch-Site": "cross-site"}},
			{method: "DELETE", path: "lock", cookie: cookie},
		} {
			h := s.send(q).Header()
			csp := h.Get("Content-Security-Policy")
			if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(csp, "unsafe") ||
				h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" {
				s.Errorf("%s /%s: %v", q.method, q.path, h)
			}
			for name := range h {
				if strings.HasPrefix(name, "Access-Control-") {
					s.Errorf("%s /%s: %s", q.method, q.path, name)
				}
			}
		}
	})
}

// TestNothingInline has no script and no style that the policy of the pages would refuse.
func TestNothingInline(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		for _, path := range []string{"./", "lock?name=team/x", "sessions", "shards", "doctor", "login", "nowhere"} {
			a := s.get(path)
			s.lacks(a, "<style", " style=", " onclick", " onload", "javascript:")
			if n := strings.Count(a.body, "<script"); n > 1 || n == 1 && !strings.Contains(a.body, `<script src="script.js?v=`) {
				s.Errorf("%s: another script", path)
			}
		}
	})
}

func TestStatic(t *testing.T) {
	inSite(t, func(s *site) {
		page := s.get("./").body
		for _, name := range []string{"style.css", "script.js", "icon.svg"} {
			_, rest, found := strings.Cut(page, name+"?v=")
			version, _, _ := strings.Cut(rest, `"`)
			if !found || version == "" {
				s.Errorf("the page does not use %s", name)
			}
			a := s.send(request{method: "GET", path: name + "?v=" + version})
			s.status(a, http.StatusOK)
			if !strings.Contains(a.Header().Get("Cache-Control"), "immutable") {
				s.Errorf("%s: %v", name, a.Header())
			}
			if a := s.send(request{method: "GET", path: name + "?v=old"}); strings.Contains(a.Header().Get("Cache-Control"), "immutable") {
				s.Errorf("%s of another version is kept for ever", name)
			}
		}
	})
}

// TestAuthenticate knows a visitor by its connection, as by a client certificate.
func TestAuthenticate(t *testing.T) {
	inSite(t, func(s *site) {
		carol, err := access.NewPrincipal("carol", access.Grant{Right: access.Read, Prefix: "team/"})
		if err != nil {
			s.Fatal(err)
		}
		d := s.dashboard(dashboard.Options{
			Client: s.client(s.memory, tenureOptions), Access: s.users,
			Authenticate: func(r *http.Request) (access.Principal, bool) {
				return carol, r.Header.Get("X-Certificate") == "carol"
			},
		})
		a := s.sendTo(d, request{method: "GET", header: map[string]string{"X-Certificate": "carol"}})
		s.status(a, http.StatusOK)
		s.has(a, "carol")
		s.status(s.sendTo(d, request{method: "GET"}), http.StatusUnauthorized)
		// A token that is wrong is not made good by it.
		s.status(s.sendTo(d, request{method: "GET", header: map[string]string{"X-Certificate": "carol", "Authorization": "Bearer wrong"}}), http.StatusUnauthorized)
	})
}

// TestBelowAPrefix mounts the pages below another path.
func TestBelowAPrefix(t *testing.T) {
	inSite(t, func(s *site) {
		mux := http.NewServeMux()
		mux.Handle("/locks/", http.StripPrefix("/locks", s.pages))
		r := httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://127.0.0.1/locks/", nil)
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Cookie", s.signIn(aliceToken))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), `="/`) {
			s.Errorf("status %d, or an address that leads out of the prefix:\n%s", w.Code, w.Body)
		}
	})
}

func TestOptions(t *testing.T) {
	inSite(t, func(s *site) {
		client := s.client(s.memory, tenureOptions)
		for want, o := range map[string]dashboard.Options{
			"Options.Client is nil":   {Access: s.users},
			"Options.Access is nil":   {Client: client},
			"Options.Key has 5 bytes": {Client: client, Access: s.users, Key: []byte("short")},
		} {
			if _, err := dashboard.New(o); err == nil || !strings.Contains(err.Error(), want) {
				s.Errorf("%v, want %s", err, want)
			}
		}
	})
}
