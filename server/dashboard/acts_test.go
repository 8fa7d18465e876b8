// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// ends says whether an act has led back to the page of a lock with a word, and what its audit line is.
func (s *site) ends(a answer, name, word, line string) {
	s.Helper()
	if got, want := a.Header().Get("Location"), "lock?name="+url.QueryEscape(name)+"&flash="+word; got != want {
		s.Errorf("sent to %q, want %q\n%s", got, want, a.body)
	}
	if got := s.audited(); !strings.HasSuffix(got, line) {
		s.Errorf("audited %q, want %q", got, line)
	}
}

func TestStepDown(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		a := s.act(alice, "step-down", "team/x", "1", "reason", "it's slow")
		s.ends(a, "team/x", "done", "dashboard alice step-down team/x it's slow done")
		if l.Check() == nil {
			s.Error("the holder goes on")
		}
		s.shows(alice, "lock?name=team/x&flash=done", 200, "Done.", "It has no holder.")

		// A second visitor who asks a holder sees who was first.
		if _, err := s.process("web-1").Acquire(s.Context(), "team/y", nil); err != nil {
			s.Fatal(err)
		}
		first := s.act(alice, "step-down", "team/y", "1", "reason", "first")
		s.ends(first, "team/y", "under-way", "") // the holder takes its time
		s.want(s.act(requester, "step-down", "team/y", "1", "reason", "second"), 409,
			"the holder was already asked", "<bdi>alice</bdi>: first", "It was already asked")
	})
}

func TestHandOver(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		next := s.world.Client("web-2", func(o *tenure.Options) { o.Label = "v8" })
		got := make(chan error, 1)
		go func() {
			_, err := next.Acquire(s.Context(), "team/x", nil)
			got <- err
		}()
		time.Sleep(time.Second)
		hand := func(form ...string) answer {
			return s.act(alice, "hand-over", "team/x", "1", append(form, "reason", "new version")...)
		}
		s.want(hand(), 400, "needs a target")
		s.want(hand("to", "web-2", "to-label", "v8"), 400, "not to both")
		s.want(hand("to", "web-1"), 409, "this owner already has the lock")
		s.want(hand("to-label", "v7"), 409, "this owner already has the lock")
		s.ends(hand("to-label", "v8"), "team/x", "done", "hand-over team/x v8 new version done")
		if err := <-got; err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.shows(alice, "lock?name=team/x", 200, "web-2 holds it under token 2.", "handed over to label v8")
	})
}

// A holder is watched for longer than a visitor waits.
func TestReleaseDead(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		begun := time.Now()
		a := s.act(alice, "release-dead", "team/x", "1", "reason", "web-1 burnt")
		s.ends(a, "team/x", "watching", "")
		if took := time.Since(begun); took > 6*time.Second {
			s.Errorf("it took %v", took)
		}
		time.Sleep(20 * time.Second)
		s.ends(a, "team/x", "watching", "release-dead team/x web-1 burnt done")
		s.shows(alice, "lock?name=team/x", 200, "It has no holder.", "<bdi>alice</bdi>: web-1 burnt",
			"released as dead")
		s.holds("team/y", "web-2")
		s.want(s.act(alice, "release-dead", "team/y", "1", "reason", "r"), 409, "the holder is alive")
		if got := s.audited(); !strings.HasSuffix(got, "release-dead team/y r alive") {
			s.Errorf("audited %q", got)
		}
	})
}

func TestRevoke(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		a := s.act(alice, "revoke", "team/x", "1", "reason", "hangs")
		s.shows(alice, "lock?name=team/x&flash=under-way", 200, "It was revoked from web-1, and is free in",
			"This page shows the result.")
		time.Sleep(20 * time.Second)
		s.ends(a, "team/x", "under-way", "revoke team/x hangs done")
		s.shows(alice, "lock?name=team/x", 200, "It has no holder.", "revoked", "<bdi>alice</bdi>: hangs")
	})
}

// Acts that are refused do nothing, and those that were understood leave a line.
func TestActsThatAreRefused(t *testing.T) {
	inSite(t, func(s *site) {
		holders := []*tenure.Lease{s.holds("team/x", "web-1"), s.holds("secret/y", "web-1")}
		for _, c := range []struct {
			visitor, kind, name, token, reason string
			code                               int
			text                               string
		}{
			{requester, "step-down", "secret/y", "1", "r", 403, "requester may not step down the holder"},
			{requester, "revoke", "team/x", "1", "r", 403, "requester may not revoke"},
			{reader, "step-down", "team/x", "1", "r", 403, "reader may not"},
			{"", "step-down", "team/x", "1", "r", 401, "Sign in"},
			{alice, "step-down", "team/x", "1", " ", 400, "the reason is empty"},
			{alice, "step-down", "team/x", "1", strings.Repeat("x", 1025), 400, "1024"},
			{alice, "step-down", "team/x", "1", "a\nb", 400, "printable"},
			{alice, "raise", "team/x", "1", "r", 400, "unknown request"},
			{alice, "step-down", "team/x", "", "r", 400, "is not a number"},
			{alice, "step-down", "", "1", "r", 400, "no lock name"},
			{alice, "step-down", "team/x", "7", "r", 409, "another term has begun"},
			{alice, "step-down", "tenure/session/x", "1", "r", 403, "may not"},
			{alice, "step-down", "team/x", "1", strings.Repeat("x", 70_000), 413, "65536"},
		} {
			s.want(s.act(c.visitor, c.kind, c.name, c.token, "reason", c.reason), c.code, c.text)
		}
		s.want(s.send(request{
			method: "POST", path: "act?name=team/x", form: url.Values{"kind": {"revoke"}, "token": {"1"}, "reason": {"r"}},
			header: map[string]string{"Authorization": "Bearer " + alice}, // in the place of a cookie
		}), 401, "forms need a sign-in")
		for _, l := range holders {
			if l.Check() != nil {
				s.Error("a holder was asked")
			}
		}
		for _, line := range []string{
			"requester step-down secret/y r forbidden", "requester revoke team/x r forbidden",
			"reader step-down team/x r forbidden", "alice step-down team/x r changed",
		} {
			if !strings.Contains(s.audited(), "dashboard "+line) {
				s.Errorf("no audit line %q in\n%s", line, s.audited())
			}
		}
		// Nothing claims to be done while the store is away.
		s.client.Partition()
		s.want(s.act(alice, "step-down", "team/x", "1", "reason", "r"), 503, "!Done.")
		if holders[0].Check() != nil {
			s.Error("the holder was asked")
		}
	})
}

// On plain loopback a browser sends the cookie to every port of the host. A program that has it there,
// and all that a page shows to it, changes nothing, whatever it says about how it came.
func TestACookieAloneDoesNothing(t *testing.T) {
	inSite(t, func(s *site) {
		l := s.holds("team/x", "web-1")
		cookie := s.signIn(alice)
		stolen := strings.TrimPrefix(cookie, "tenure=")
		form := url.Values{"kind": {"revoke"}, "reason": {"stolen"}}
		page := s.send(request{method: "GET", path: "lock?name=team/x", cookie: cookie}).body
		inputs := regexp.MustCompile(`<input[^>]* name="([^"]+)" value="([^"]*)"`)
		for _, input := range inputs.FindAllStringSubmatch(page, -1) {
			if form.Get(input[1]) == "" {
				form.Set(input[1], input[2])
			}
		}
		if form.Get("token") != "1" {
			s.Fatalf("the page shows %v", form)
		}
		for what, header := range map[string]map[string]string{
			"as it is":               {"Cookie": cookie},
			"as if it came over TLS": {"Cookie": "__Host-tenure=" + stolen, "X-Forwarded-Proto": "https"},
			"as if of another host":  {"Cookie": "__Host-tenure=" + stolen, "Host": "locks.example"},
			"in both names":          {"Cookie": cookie + "; __Host-tenure=" + stolen, "X-Forwarded-Proto": "https"},
		} {
			for _, secret := range []string{"", "guess", reader} {
				form.Set("secret", secret)
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
		if guesses := strings.Count(s.audited(), "alice confirm unauthenticated"); guesses != 10 {
			s.Errorf("%d of 14 guesses were told that they are wrong, not 10", guesses)
		}
		s.want(s.login("guess", "", nil), 429)
	})
}

// Over TLS no other port has the cookie, and nothing is asked for twice.
func TestNothingIsConfirmedOverTLS(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		header := map[string]string{"X-Forwarded-Proto": "https"}
		cookie := s.login(alice, "", header).Result().Cookies()[0]
		q := request{method: "GET", path: "lock?name=team/x", cookie: cookie.Name + "=" + cookie.Value, header: header}
		s.want(s.send(q), 200, `!name="secret"`)
		q.method, q.path = "POST", "act?name=team/x"
		q.form = url.Values{"kind": {"step-down"}, "token": {"1"}, "reason": {"r"}}
		s.want(s.send(q), 303)
	})
}

// Close ends acts that are under way, and waits for them.
func TestClose(t *testing.T) {
	inSite(t, func(s *site) {
		s.dies("team/x", "web-1")
		s.act(alice, "release-dead", "team/x", "1", "reason", "r")
		s.pages.Close()
		if got := s.audited(); !strings.Contains(got, "release-dead team/x r") {
			s.Errorf("audited %q", got)
		}
		s.want(s.act(alice, "release-dead", "team/x", "1", "reason", "r"), 429)
	})
}
