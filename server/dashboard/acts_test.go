// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

func TestStepDown(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		a := s.act(s.signIn(aliceToken), "step-down", "team/x", "1", "reason", "it's slow")
		s.status(a, http.StatusSeeOther)
		if got := a.Header().Get("Location"); got != "lock?name=team%2Fx&said=done" {
			s.Errorf("sent to %s", got)
		}
		if l.Check() == nil {
			s.Error("the holder goes on")
		}
		s.has(s.get("lock?name=team/x&said=done"), "Done.", "Nobody holds it.", "<bdi>alice</bdi>: it&#39;s slow", "stepped down")
		if got, want := s.audited(), "dashboard alice step-down team/x  it's slow done"; got != want {
			s.Errorf("audited %q, want %q", got, want)
		}
	})
}

func TestHandOver(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		c := s.client(s.memory, tenure.Options{Owner: "web-2", Label: "v8"})
		got := make(chan error, 1)
		go func() {
			_, err := c.Acquire(s.Context(), "team/x", nil)
			got <- err
		}()
		time.Sleep(time.Second)
		cookie := s.signIn(aliceToken)
		for what, form := range map[string][]string{
			"needs to whom": {"reason", "r"},
			"not to both":   {"reason", "r", "to", "web-2", "to-label", "v8"},
		} {
			a := s.act(cookie, "hand-over", "team/x", "1", form...)
			s.status(a, http.StatusBadRequest)
			s.has(a, what)
		}
		for _, form := range [][]string{{"reason", "r", "to", "web-1"}, {"reason", "r", "to-label", "v7"}} {
			a := s.act(cookie, "hand-over", "team/x", "1", form...)
			s.status(a, http.StatusConflict)
			s.has(a, "the holder is the one to hand over to")
		}
		s.status(s.act(cookie, "hand-over", "team/x", "1", "reason", "new version", "to-label", "v8"), http.StatusSeeOther)
		if err := <-got; err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.has(s.get("lock?name=team/x"), "web-2 holds it under token 2.", "handed over to label v8")
		if got := s.audited(); !strings.HasSuffix(got, "hand-over team/x v8 new version done") {
			s.Errorf("audited %q", got)
		}
	})
}

// TestReleaseDead watches a holder for longer than a visitor waits.
func TestReleaseDead(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		begun := time.Now()
		a := s.act(cookie, "release-dead", "team/x", "1", "reason", "web-1 burnt")
		if a.Header().Get("Location") != "lock?name=team%2Fx&said=watching" || time.Since(begun) > 6*time.Second {
			s.Errorf("after %v: %s", time.Since(begun), a.Header().Get("Location"))
		}
		time.Sleep(20 * time.Second)
		s.has(s.get("lock?name=team/x"), "Nobody holds it.", "<bdi>alice</bdi>: web-1 burnt", "released as dead")
		if got := s.audited(); !strings.HasSuffix(got, "release-dead team/x  web-1 burnt done") {
			s.Errorf("audited %q", got)
		}
		// Of a holder that lives it is refused.
		s.holds("team/y", "web-2")
		s.act(cookie, "release-dead", "team/y", "1", "reason", "r")
		time.Sleep(20 * time.Second)
		if got := s.audited(); !strings.HasSuffix(got, "release-dead team/y  r alive") {
			s.Errorf("audited %q", got)
		}
	})
}

func TestRevoke(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		a := s.act(s.signIn(aliceToken), "revoke", "team/x", "1", "reason", "hangs")
		if got := a.Header().Get("Location"); got != "lock?name=team%2Fx&said=under-way" {
			s.Errorf("sent to %s", got)
		}
		s.has(s.get("lock?name=team/x&said=under-way"), "It was revoked from web-1, and is free in", "What comes of it shows here.", `s-reserved`)
		s.has(s.get("./"), "revoked, until it has stopped for certain")
		time.Sleep(20 * time.Second)
		s.has(s.get("lock?name=team/x"), "Nobody holds it.", "revoked", "<bdi>alice</bdi>: hangs")
		if got := s.audited(); !strings.HasSuffix(got, "revoke team/x  hangs done") {
			s.Errorf("audited %q", got)
		}
	})
}

// TestActsThatAreRefused do nothing, and each leaves a line.
func TestActsThatAreRefused(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		secret := s.holds("secret/y", "web-1")
		alice, asker, reader := s.signIn(aliceToken), s.signIn(askerToken), s.signIn(readerToken)
		for _, c := range []struct {
			what string
			a    answer
			code int
			text string
		}{
			{"a lock that may not be asked", s.act(asker, "step-down", "secret/y", "1", "reason", "r"), http.StatusForbidden, "asker may not step down the holder"},
			{"a right that is missing", s.act(asker, "revoke", "team/x", "1", "reason", "r"), http.StatusForbidden, "asker may not revoke"},
			{"a reader", s.act(reader, "step-down", "team/x", "1", "reason", "r"), http.StatusForbidden, "reader may not"},
			{"nobody", s.act("", "step-down", "team/x", "1", "reason", "r"), http.StatusUnauthorized, "Sign in"},
			{"no reason", s.act(alice, "step-down", "team/x", "1", "reason", " "), http.StatusBadRequest, "the reason is empty"},
			{"a reason that is too long", s.act(alice, "step-down", "team/x", "1", "reason", strings.Repeat("x", 1025)), http.StatusBadRequest, "1024"},
			{"a reason with a line end", s.act(alice, "step-down", "team/x", "1", "reason", "a\nb"), http.StatusBadRequest, "printable"},
			{"another kind", s.act(alice, "raise", "team/x", "1", "reason", "r"), http.StatusBadRequest, "no such request"},
			{"no token", s.act(alice, "step-down", "team/x", "", "reason", "r"), http.StatusBadRequest, "no number"},
			{"no name", s.act(alice, "step-down", "", "1", "reason", "r"), http.StatusBadRequest, "no name"},
			{"another tenure", s.act(alice, "step-down", "team/x", "7", "reason", "r"), http.StatusConflict, "another tenure has begun"},
			{"a record of Tenure itself", s.act(alice, "step-down", "tenure/session/x", "1", "reason", "r"), http.StatusForbidden, "may not"},
			{"a form that is too large", s.act(alice, "step-down", "team/x", "1", "reason", strings.Repeat("x", 70_000)), http.StatusRequestEntityTooLarge, "65536"},
			{"a token in place of a cookie", s.send(request{
				method: "POST", path: "act?name=team/x", form: map[string][]string{"kind": {"revoke"}, "token": {"1"}, "reason": {"r"}},
				header: map[string]string{"Authorization": "Bearer " + aliceToken},
			}), http.StatusUnauthorized, ""},
			{"a GET", s.send(request{method: "GET", path: "act?name=team/x&kind=revoke&token=1&reason=r", cookie: alice}), http.StatusMethodNotAllowed, ""},
		} {
			if c.a.Code != c.code || !strings.Contains(c.a.body, c.text) {
				s.Errorf("%s: %d, want %d with %q\n%s", c.what, c.a.Code, c.code, c.text, c.a.main())
			}
		}
		if l.Check() != nil || secret.Check() != nil {
			s.Error("a holder was asked")
		}
		for _, line := range []string{
			"dashboard asker step-down secret/y  r forbidden", "dashboard asker revoke team/x  r forbidden", "dashboard reader step-down team/x  r forbidden",
			"dashboard alice step-down team/x  r changed",
		} {
			if !strings.Contains(s.audited(), line) {
				s.Errorf("no audit line %q in\n%s", line, s.audited())
			}
		}
	})
}

// On plain loopback a browser sends the cookie to every port of the host. Whoever has it there,
// and all that a page shows to it, changes nothing, whatever it says about how it came.
func TestACookieAloneDoesNothing(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		stolen := strings.TrimPrefix(cookie, "tenure=")
		shown := url.Values{"kind": {"revoke"}, "reason": {"stolen"}}
		for _, input := range strings.Split(s.send(request{method: "GET", path: "lock?name=team/x", cookie: cookie}).body, "<input")[1:] {
			tag, _, _ := strings.Cut(input, ">")
			_, name, _ := strings.Cut(tag, `name="`)
			name, _, _ = strings.Cut(name, `"`)
			if _, value, ok := strings.Cut(tag, `value="`); ok && shown.Get(name) == "" {
				value, _, _ = strings.Cut(value, `"`)
				shown.Set(name, value)
			}
		}
		if shown.Get("token") != "1" {
			s.Fatalf("the page shows %v", shown)
		}
		for what, header := range map[string]map[string]string{
			"as it is":               {"Cookie": cookie},
			"as if it came over TLS": {"Cookie": "__Host-tenure=" + stolen, "X-Forwarded-Proto": "https"},
			"as if of another host":  {"Cookie": "__Host-tenure=" + stolen, "Host": "locks.example"},
			"in both names":          {"Cookie": cookie + "; __Host-tenure=" + stolen, "X-Forwarded-Proto": "https"},
		} {
			for _, secret := range []string{"", "guess", readerToken} {
				form := url.Values{"secret": {secret}}
				for name := range shown {
					form.Set(name, shown.Get(name))
				}
				for _, path := range []string{"act?name=team/x", "measure"} {
					a := s.send(request{method: "POST", path: path, form: form, header: header})
					if a.Code != http.StatusForbidden && a.Code != http.StatusUnauthorized && a.Code != http.StatusTooManyRequests {
						s.Errorf("%s, with the secret %q: %s: %d, to %s", what, secret, path, a.Code, a.Header().Get("Location"))
					}
				}
			}
		}
		if l.Check() != nil || strings.Contains(s.audited(), " done") || strings.Contains(s.audited(), "under-way") {
			s.Errorf("the holder was asked: %v, %s", l.Check(), s.audited())
		}
		for range 10 {
			s.send(request{method: "POST", path: "measure", cookie: cookie, form: url.Values{"secret": {"guess"}}})
		}
		if guesses := strings.Count(s.audited(), "alice confirm    unauthenticated"); guesses != 10 {
			s.Errorf("%d of 14 guesses were told that they are wrong, not 10", guesses)
		}
		s.status(s.send(request{method: "POST", path: "login", form: url.Values{"token": {"guess"}}}), http.StatusTooManyRequests)
	})
}

// Over TLS no other port has the cookie, and nothing is asked for twice.
func TestNothingIsConfirmedOverTLS(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		header := map[string]string{"X-Forwarded-Proto": "https"}
		a := s.send(request{method: "POST", path: "login", form: url.Values{"token": {aliceToken}}, header: header})
		cookie := a.Result().Cookies()[0]
		q := request{method: "GET", path: "lock?name=team/x", cookie: cookie.Name + "=" + cookie.Value, header: header}
		s.lacks(s.send(q), `name="secret"`)
		q.method, q.path, q.form = "POST", "act?name=team/x", url.Values{"kind": {"step-down"}, "token": {"1"}, "reason": {"r"}}
		s.status(s.send(q), http.StatusSeeOther)
	})
}

// TestAskedTwice tells who was first.
func TestAskedTwice(t *testing.T) {
	inSite(t, func(s *site) {
		c := s.client(s.memory, tenure.Options{Owner: "web-1"})
		l, err := c.Acquire(s.Context(), "team/x", nil)
		if err != nil {
			s.Fatal(err)
		}
		defer l.Release(s.Context()) //nolint:errcheck // it was asked to
		s.holds("team/other", "web-2")
		first := s.act(s.signIn(aliceToken), "step-down", "team/x", "1", "reason", "first")
		if got := first.Header().Get("Location"); got != "lock?name=team%2Fx&said=under-way" {
			s.Errorf("a holder that takes its time: sent to %s", got)
		}
		time.Sleep(2 * time.Second)
		s.has(s.get("lock?name=team/x"), "was asked to step down", "<bdi>alice</bdi>: first", "It was asked already", `s-asked`)
		second := s.act(s.signIn(askerToken), "step-down", "team/x", "1", "reason", "second")
		s.status(second, http.StatusConflict)
		s.has(second, "the holder was asked already", "<bdi>alice</bdi>: first")
		s.has(s.get("./"), "asked to step down by")
	})
}

// TestActsWhileTheStoreIsAway do not claim to be done.
func TestActsWhileTheStoreIsAway(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		s.away.Inject(faultstore.Rule{Fault: faultstore.Refuse()})
		a := s.act(cookie, "step-down", "team/x", "1", "reason", "r")
		s.status(a, http.StatusServiceUnavailable)
		s.has(a, "the store cannot be used")
		if l.Check() != nil {
			s.Error("the holder was asked")
		}
	})
}

// TestClose ends acts that are under way, and waits for them.
func TestClose(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		s.act(cookie, "release-dead", "team/x", "1", "reason", "r")
		s.pages.Close()
		if got := s.audited(); !strings.Contains(got, "release-dead team/x  r") {
			s.Errorf("audited %q", got)
		}
		s.status(s.act(cookie, "release-dead", "team/x", "1", "reason", "r"), http.StatusTooManyRequests)
	})
}
