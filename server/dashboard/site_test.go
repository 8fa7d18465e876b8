// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/tenuretest"
)

// The secrets of the principals, and their rights.
const (
	alice      = "secret-of-alice-0123456789"
	reader     = "secret-of-reader-0123456789"
	requester  = "secret-of-requester-0123456789"
	principals = "alice " + alice + " admin:\nreader " + reader + " read:team/\nrequester " + requester + " read,ask:team/\n"
)

// site is the pages over the store of a world, and what is needed to look at them.
type site struct {
	*testing.T
	world  *tenuretest.World
	client *tenuretest.Client // of the pages
	users  *server.Principals
	file   string // of the users
	pages  *dashboard.Dashboard
	of     *server.Server                // that has the pages
	made   map[string]*tenuretest.Client // by the names of processes
	log    log
}

// log is what the server has logged, a line of JSON each.
type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(line)
}

// inSite runs a test in a bubble, where time passes at once.
func inSite(t *testing.T, f func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newSite(t)) })
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, file: filepath.Join(t.TempDir(), "tokens"), made: map[string]*tenuretest.Client{}}
	s.world = tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration = 15 * time.Second })
	s.client = s.world.Client("tenured-1")
	s.write(principals)
	users, err := server.OpenPrincipals(s.file, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.users = users
	s.pages = s.dashboard(dashboard.Options{Key: []byte(strings.Repeat("k", 32))})
	return s
}

// dashboard returns pages of a server of their own, which knows the users of the site.
func (s *site) dashboard(o dashboard.Options) *dashboard.Dashboard {
	s.Helper()
	of, err := server.New(s.client.Client, server.Options{
		Principals: s.users, Logger: slog.New(slog.NewJSONHandler(&s.log, nil)),
		Limits: server.Limits{Calls: 150, FailedTokens: 10, Waits: 32},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.of, o.Server = of, of
	d, err := dashboard.New(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(d.Close)
	return d
}

// shutdown ends the streams of the pages.
func (s *site) shutdown() {
	if err := s.of.Shutdown(context.WithoutCancel(s.Context())); err != nil {
		s.Error(err)
	}
}

// audited are the audit lines of acts so far, but for sign-ins, each in a few words.
func (s *site) audited() string {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(s.log.String()), "\n") {
		var a struct{ Msg, Via, Principal, Action, Lock, To, To_label, Reason, Outcome string }
		if json.Unmarshal([]byte(line), &a) == nil && a.Msg == "tenure: audit" && a.Action != "sign-in" {
			words := []string{a.Via, a.Principal, a.Action, a.Lock, a.To + a.To_label, a.Reason, a.Outcome}
			lines = append(lines, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
		}
	}
	return strings.Join(lines, "\n")
}

func (s *site) write(users string) {
	s.Helper()
	if err := os.WriteFile(s.file, []byte(users), 0o600); err != nil {
		s.Fatal(err)
	}
}

// set replaces the principals.
func (s *site) set(users string) {
	s.Helper()
	s.write(users)
	time.Sleep(2 * time.Second) // the file is read once a second
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
	tls          *tls.ConnectionState
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
	r.TLS = q.tls
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if q.form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if q.cookie != "" {
		r.Header.Set("Cookie", q.cookie)
	}
	for name, value := range q.header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
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

// shows says whether a visitor gets a page with a status and some texts, as want has it.
func (s *site) shows(visitor, path string, code int, texts ...string) {
	s.Helper()
	s.want(s.as(visitor, path), code, texts...)
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
