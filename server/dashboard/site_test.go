// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/tenuretest"
)

// The secrets of the principals, and their rights.
const (
	alice      = "secret-of-alice-0123456789"
	reader     = "secret-of-reader-0123456789"
	asker      = "secret-of-asker-0123456789"
	nobody     = "secret-of-nobody-0123456789"
	principals = "alice " + alice + " admin:\nreader " + reader + " read:team/\nasker " + asker + " read,ask:team/\n"
)

// site is the pages over the store of a world, and what is needed to look at them.
type site struct {
	*testing.T
	world  *tenuretest.World
	client *tenuretest.Client // of the pages
	pages  *dashboard.Dashboard
	users  users
	made   map[string]*tenuretest.Client // by the names of processes

	mu   sync.Mutex
	acts []access.Act
}

// inSite runs a test in a bubble, where time passes at once.
func inSite(t *testing.T, f func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newSite(t)) })
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, made: map[string]*tenuretest.Client{}}
	s.world = tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration = 15 * time.Second })
	s.client = s.world.Client("tenured-1")
	s.set(principals)
	s.pages = s.dashboard(dashboard.Options{Key: []byte(strings.Repeat("k", 32)), Audit: s.audit})
	return s
}

// dashboard returns pages with the client and the principals of the site, unless there are others.
func (s *site) dashboard(o dashboard.Options) *dashboard.Dashboard {
	s.Helper()
	o.Client, o.Access = s.client.Client, &s.users
	d, err := dashboard.New(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(d.Close)
	return d
}

func (s *site) audit(_ context.Context, act access.Act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts = append(s.acts, act)
}

// audited are the audit lines of acts so far, but for sign-ins, each in a few words.
func (s *site) audited() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, a := range s.acts {
		if a.Action != "sign-in" {
			words := []string{a.Via, a.Principal, a.Action, a.Lock, a.To + a.ToLabel, a.Reason, a.Outcome}
			lines = append(lines, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
		}
	}
	return strings.Join(lines, "\n")
}

// users are the principals, who can change, and one without rights, whom no file has.
type users struct {
	now atomic.Pointer[server.Principals]
}

func (u *users) ByToken(secret string) (access.Principal, bool) {
	return u.BySum(sha256.Sum256([]byte(secret)))
}

func (u *users) BySum(sum [sha256.Size]byte) (access.Principal, bool) {
	if sum == sha256.Sum256([]byte(nobody)) {
		p, err := access.NewPrincipal("nobody")
		return p, err == nil
	}
	return u.now.Load().BySum(sum)
}

// set replaces the principals.
func (s *site) set(text string) {
	s.Helper()
	now, err := server.ParsePrincipals(text)
	if err != nil {
		s.Fatal(err)
	}
	s.users.now.Store(now)
}

// process returns the client of the process of that name.
func (s *site) process(owner string) *tenuretest.Client {
	if s.made[owner] == nil {
		s.made[owner] = s.world.Client(owner, func(o *tenure.Options) { o.Host, o.Label = owner+".example", "v7" })
	}
	return s.made[owner]
}

// holds has a process of that name hold a lock until the test ends, or it is asked to make way, which it does
// at once.
func (s *site) holds(name, owner string) *tenure.Lease {
	s.Helper()
	l, err := s.process(owner).Acquire(s.Context(), name, &tenure.AcquireOptions{History: true, WatchRequests: true})
	if err != nil {
		s.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		<-l.Context().Done()
		_ = l.Release(context.Background())
	})
	s.Cleanup(func() {
		_ = l.Release(context.Background())
		running.Wait()
	})
	return l
}

// dies has a process of that name take a lock, and show no life after it.
func (s *site) dies(name, owner string) {
	s.Helper()
	c := s.process(owner)
	if _, err := c.Acquire(s.Context(), name, nil); err != nil {
		s.Fatal(err)
	}
	c.Kill()
}

// request is what a visitor sends, as a browser unless the header says otherwise.
type request struct {
	method, path string
	form         url.Values
	header       map[string]string
	cookie       string
}

// answer is what a request got.
type answer struct {
	*httptest.ResponseRecorder
	body string
}

func (s *site) send(q request) answer { return s.sendTo(s.pages, q) }

func (s *site) sendTo(pages http.Handler, q request) answer {
	s.Helper()
	address := "http://127.0.0.1:8080/" + strings.TrimPrefix(q.path, "./")
	r := httptest.NewRequestWithContext(s.Context(), q.method, address, strings.NewReader(q.form.Encode()))
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if q.form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if q.cookie != "" {
		r.Header.Set("Cookie", q.cookie)
	}
	for name, value := range q.header {
		switch name {
		case "Host":
			r.Host = value
		case "From": // the address of the visitor
			r.RemoteAddr = value
		default:
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	return answer{w, w.Body.String()}
}

// signIn returns the cookie that a token gets.
func (s *site) signIn(token string) string {
	s.Helper()
	a := s.login(token, "", nil)
	cookies := a.Result().Cookies()
	if a.Code != http.StatusSeeOther || len(cookies) != 1 {
		s.Fatalf("sign-in: %d, %v\n%s", a.Code, cookies, a.body)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

func (s *site) login(token, next string, header map[string]string) answer {
	s.Helper()
	form := url.Values{"token": {token}, "next": {next}}
	return s.send(request{method: "POST", path: "login", form: form, header: header})
}

// as returns a page as the one who has the token sees it.
func (s *site) as(token, path string) answer {
	s.Helper()
	return s.send(request{method: "GET", path: path, cookie: s.signIn(token)})
}

// plain returns a page as curl gets it.
func (s *site) plain(token, path string) answer {
	s.Helper()
	header := map[string]string{"Accept": "*/*", "Authorization": "Bearer " + token}
	return s.send(request{method: "GET", path: path, header: header})
}

// act sends the form of an act, with the secret of the visitor.
func (s *site) act(visitor, kind, name, token string, more ...string) answer {
	s.Helper()
	form := url.Values{"kind": {kind}, "token": {token}, "secret": {visitor}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	q := request{method: "POST", path: "act?name=" + url.QueryEscape(name), form: form}
	if visitor != "" {
		q.cookie = s.signIn(visitor)
	}
	return s.send(q)
}

// want says whether an answer has a status, and each of some texts; none of those that begin with "!".
func (s *site) want(a answer, code int, texts ...string) {
	s.Helper()
	if a.Code != code {
		s.Errorf("status %d, want %d\n%s", a.Code, code, a.body)
	}
	for _, text := range texts {
		text, not := strings.CutPrefix(text, "!")
		if strings.Contains(a.body, text) == not {
			_, main, _ := strings.Cut(a.body, "<main")
			s.Errorf("%q: there is %v, in\n%s", text, not, main)
		}
	}
}
