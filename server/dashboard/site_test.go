// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/dashboard"
)

// site is the pages over a store, and what is needed to look at them.
type site struct {
	*testing.T
	memory *memstore.Store
	away   *faultstore.Store // in front of the pages alone
	pages  *dashboard.Dashboard
	users  *users

	mu   sync.Mutex
	acts []access.Act

	secrets map[string]string // with which cookies were given
}

// inSite runs a test in a bubble, where time passes at once.
func inSite(t *testing.T, f func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newSite(t)) })
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, memory: memstore.New(), users: newUsers(t), secrets: map[string]string{}}
	s.away = faultstore.New(s.memory, nil)
	t.Cleanup(func() { _ = s.away.Close() })
	c := s.client(s.away.Driver(), tenure.Options{Owner: "tenured-1"})
	s.pages = s.dashboard(dashboard.Options{Client: c, Access: s.users, Key: []byte(strings.Repeat("k", 32)), Audit: s.audit})
	return s
}

func (s *site) dashboard(o dashboard.Options) *dashboard.Dashboard {
	s.Helper()
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

// audited are the audit lines of acts on locks so far, each in a few words.
func (s *site) audited() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, a := range s.acts {
		if a.Action != "sign-in" {
			lines = append(lines, strings.TrimSpace(strings.Join([]string{a.Via, a.Principal, a.Action, a.Lock, a.To + a.ToLabel, a.Reason, a.Outcome}, " ")))
		}
	}
	return strings.Join(lines, "\n")
}

// client returns a client that ends with the test.
func (s *site) client(store driver.Store, o tenure.Options) *tenure.Client {
	s.Helper()
	if o.Clock == nil {
		o.Clock = tenure.MonotonicClock()
	}
	c, err := tenure.New(store, &o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// holds has a process of that name hold a lock until the test ends, or it is asked to make
// way, which it does at once.
func (s *site) holds(name, owner string) *tenure.Lease {
	s.Helper()
	c := s.client(s.memory, tenure.Options{Owner: owner, Host: owner + ".example", Label: "v7"})
	l, err := c.Acquire(s.Context(), name, &tenure.AcquireOptions{History: true, WatchRequests: true})
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
	faults := faultstore.New(s.memory, nil)
	s.Cleanup(func() { _ = faults.Close() })
	c := s.client(faults.Driver(), tenure.Options{Owner: owner})
	if _, err := c.Acquire(s.Context(), name, nil); err != nil {
		s.Fatal(err)
	}
	faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
}

// answer is what a request got.
type answer struct {
	*httptest.ResponseRecorder
	body string
}

// request is what a visitor sends.
type request struct {
	method, path string
	form         url.Values
	header       map[string]string
	cookie       string
}

func (s *site) send(q request) answer { return s.sendTo(s.pages, q) }

func (s *site) sendTo(pages http.Handler, q request) answer {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), q.method, "http://127.0.0.1:8080/"+strings.TrimPrefix(q.path, "./"), strings.NewReader(q.form.Encode()))
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if q.form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if q.cookie != "" {
		r.Header.Set("Cookie", q.cookie)
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	return answer{w, w.Body.String()}
}

// signIn returns the cookie that a token gets.
func (s *site) signIn(token string) string {
	s.Helper()
	a := s.send(request{method: "POST", path: "login", form: url.Values{"token": {token}}})
	cookies := a.Result().Cookies()
	if a.Code != http.StatusSeeOther || len(cookies) != 1 {
		s.Fatalf("sign-in: %d, %v\n%s", a.Code, cookies, a.body)
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	s.secrets[cookie] = token
	return cookie
}

// get returns a page as alice sees it.
func (s *site) get(path string) answer {
	s.Helper()
	return s.send(request{method: "GET", path: path, cookie: s.signIn(aliceToken)})
}

// plain returns a page as curl gets it.
func (s *site) plain(path, token string) answer {
	s.Helper()
	return s.send(request{method: "GET", path: path, header: map[string]string{"Accept": "*/*", "Authorization": "Bearer " + token}})
}

// act sends the form of an act with the token that the lock has now, and the secret of the visitor.
func (s *site) act(cookie, kind, name, token string, more ...string) answer {
	s.Helper()
	form := url.Values{"kind": {kind}, "token": {token}, "secret": {s.secrets[cookie]}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return s.send(request{method: "POST", path: "act?name=" + url.QueryEscape(name), form: form, cookie: cookie})
}

// main is the part of a page that a test is about.
func (a answer) main() string {
	if _, main, found := strings.Cut(a.body, "<main"); found {
		return "<main" + main
	}
	return a.body
}

// has says whether a page has each of some texts.
func (s *site) has(a answer, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			s.Errorf("no %q in\n%s", text, a.main())
		}
	}
}

// lacks says whether a page has none of some texts.
func (s *site) lacks(a answer, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			s.Errorf("%q in\n%s", text, a.main())
		}
	}
}

// status says whether an answer has a status.
func (s *site) status(a answer, want int) {
	s.Helper()
	if a.Code != want {
		s.Errorf("status %d, want %d\n%s", a.Code, want, a.body)
	}
}

const (
	aliceToken  = "alice-secret"  // all rights to all locks
	readerToken = "reader-secret" // may read team/
	askerToken  = "asker-secret"  // may read and ask team/
	nobodyToken = "nobody-secret" // no rights
)

// users are the principals, who can change.
type users struct {
	mu sync.Mutex
	by map[string]access.Principal // by their secrets
}

func newUsers(t *testing.T) *users {
	u := &users{by: map[string]access.Principal{}}
	for secret, p := range map[string]struct {
		name   string
		grants []access.Grant
	}{
		aliceToken:  {"alice", []access.Grant{{Right: access.Admin}}},
		readerToken: {"reader", []access.Grant{{Right: access.Read, Prefix: "team/"}}},
		askerToken:  {"asker", []access.Grant{{Right: access.Read, Prefix: "team/"}, {Right: access.Ask, Prefix: "team/"}}},
		nobodyToken: {"nobody", nil},
	} {
		principal, err := access.NewPrincipal(p.name, p.grants...)
		if err != nil {
			t.Fatal(err)
		}
		u.by[secret] = principal
	}
	return u
}

// set gives a principal other rights; without any it is removed.
func (u *users) set(secret string, grants ...access.Grant) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, ok := u.by[secret]
	if !ok {
		return errors.New("no such principal")
	}
	if len(grants) == 0 {
		delete(u.by, secret)
		return nil
	}
	p, err := access.NewPrincipal(p.Name(), grants...)
	u.by[secret] = p
	return err
}

// replace gives a principal another secret.
func (u *users) replace(before, after string, p access.Principal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.by, before)
	u.by[after] = p
}

func (u *users) ByToken(secret string) (access.Principal, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, ok := u.by[secret]
	return p, ok
}

func (u *users) BySum(sum [sha256.Size]byte) (access.Principal, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for secret, p := range u.by {
		if sha256.Sum256([]byte(secret)) == sum {
			return p, true
		}
	}
	return access.Principal{}, false
}

// afterLooks is long enough for what was read to be read again.
const afterLooks = 6 * time.Second

// tenureOptions are those of a client that only looks.
var tenureOptions = tenure.Options{Owner: "tenured-2"}
