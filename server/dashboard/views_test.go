// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

func TestNow(t *testing.T) {
	inSite(t, func(s *site) {
		empty := s.get("./")
		s.status(empty, http.StatusOK)
		s.has(empty, "There are no locks yet.")
		s.holds("team/held", "web-1")
		s.dies("team/dead", "web-2")
		if err := s.holds("team/free", "web-3").Release(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		a := s.get("./")
		s.has(a, "web-1.example", "3 locks", `<a href="lock?name=team%2Fheld"><bdi>team/held</bdi></a>`, "had it last", `aria-current="page">Locks`)
		s.lacks(a, ">in doubt<")
		time.Sleep(6 * time.Second) // two heartbeats and more
		a = s.get("./")
		s.has(a, "3 locks, 1 in doubt", `class="s-in-doubt"`)
		time.Sleep(10 * time.Second)
		a = s.get("./")
		s.has(a, "3 locks, 1 expired", `class="s-expired"`, "ran out")
		s.lacks(a, "in doubt")
		only := s.get("./?state=held")
		s.has(only, "team/held")
		s.lacks(only, "<bdi>team/dead", "<bdi>team/free")
		s.has(s.get("./?state=reserved"), "No lock is reserved.")
		s.has(s.get("./?prefix=team/h"), "<bdi>team/held", "1 lock")
		s.lacks(s.get("./?prefix=team/h"), "<bdi>team/dead")
		s.has(s.get("./?prefix=other"), "There is no lock whose name begins with “other”")
		s.status(s.get("./?state=nonsense"), http.StatusBadRequest)
	})
}

// TestManyLocks has 10,000: the page stays small, and each lock is on one page.
func TestManyLocks(t *testing.T) {
	inSite(t, func(s *site) {
		const many = 10_000
		for i := range many {
			v := fmt.Sprint("v", i)
			if _, _, err := s.memory.Claim(s.Context(), driver.Record{
				Key: fmt.Sprintf("jobs/%05d", i), Version: v, Beat: v, Owner: "runner", State: driver.Held, Lease: time.Hour, Since: time.Now(),
			}); err != nil {
				s.Fatal(err)
			}
		}
		seen, path, pages := map[string]bool{}, "./", 0
		cookie := s.signIn(aliceToken)
		for path != "" {
			a := s.send(request{method: "GET", path: path, cookie: cookie})
			s.status(a, http.StatusOK)
			if pages++; len(a.body) > 60_000 || pages > 250 {
				s.Fatalf("page %d at %s has %d bytes", pages, path, len(a.body))
			}
			if pages == 1 {
				s.has(a, "10,000 locks", "1 to 50 of 10,000")
			}
			rows := strings.Split(a.body, `<a href="lock?name=`)
			for _, row := range rows[1:] {
				name, _, _ := strings.Cut(row, `"`)
				if seen[name] {
					s.Fatalf("%s twice", name)
				}
				seen[name] = true
			}
			path = ""
			if _, next, found := strings.Cut(a.body, `rel="prev">`); found {
				a.body = next
			}
			if before, _, found := strings.Cut(a.body, `" rel="next">`); found {
				path = html.UnescapeString(before[strings.LastIndex(before, `"`)+1:])
			}
		}
		if len(seen) != many {
			s.Errorf("%d locks on %d pages", len(seen), pages)
		}
		a := s.send(request{method: "GET", cookie: cookie, header: map[string]string{"Accept-Encoding": "gzip"}})
		if n := len(a.body); n > 8000 || a.Header().Get("Content-Encoding") != "gzip" {
			s.Errorf("%d bytes compressed", n)
		}
		back := s.send(request{method: "GET", path: "?after=jobs/00099", cookie: cookie})
		s.has(back, "101 to 150 of 10,000", `href="./?after=jobs%2F00049" rel="prev"`)
	})
}

// nasty are texts of a store that want to be markup, or to turn a page around.
var nasty = []string{
	`<script>alert(1)</script>`, `"onmouseover="x`, `'><img src=x onerror=y>`, "{{.}}", "&lt;", "javascript:alert(1)", "a\u202eb", "line\nbreak", "\x1b[31m", "אבג", "</title>", "`${x}`",
}

// nastyPrefix is what the list is narrowed to at an address.
func nastyPrefix(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		return ""
	}
	return u.Query().Get("prefix")
}

func TestEscaping(t *testing.T) {
	inSite(t, func(s *site) {
		for i, text := range nasty {
			v := fmt.Sprint("v", i)
			r := driver.Record{
				Key: text, Version: v, Beat: v, Owner: text, Host: text, Label: text, State: driver.Held, Lease: time.Hour, Since: time.Now(), Data: []byte(text),
			}
			now, _, err := s.memory.Claim(s.Context(), r)
			if err != nil {
				s.Fatal(err)
			}
			next := now
			next.Version, next.Requests = v+"r", []driver.Request{{Kind: driver.HandOver, By: text, Reason: text, To: text, At: time.Now()}}
			if _, err := s.memory.Swap(s.Context(), now, next); err != nil {
				s.Fatal(err)
			}
		}
		pages := []string{"./", "sessions", "doctor"}
		for _, text := range nasty {
			pages = append(pages, "lock?name="+url.QueryEscape(text), "./?prefix="+url.QueryEscape(text), "shards?group="+url.QueryEscape(text))
		}
		for _, path := range pages {
			a := s.get(path)
			a.body = strings.ReplaceAll(a.body, `value="`+html.EscapeString(nastyPrefix(path))+`"`, "") // a field has what was typed
			s.lacks(a, "<script>", "<img src=x", ` "onmouseover`, `="x"`, "\u202e", "\x1b", `href="javascript`, "line\nbreak")
			if strings.Count(a.body, "</title>") > strings.Count(a.body, "<title>") {
				s.Errorf("%s: a title was ended", path)
			}
			plain := s.plain(path, aliceToken)
			s.lacks(plain, "\u202e", "\x1b", "line\nbreak")
		}
		s.has(s.get("./"), "&lt;script&gt;alert(1)&lt;/script&gt;", `a\u202eb`, `line\nbreak`, "<bdi>אבג</bdi>")
	})
}

func TestLongName(t *testing.T) {
	inSite(t, func(s *site) {
		name := strings.Repeat("long/", 200)
		s.holds(name, strings.Repeat("o", 1000))
		s.has(s.get("./"), name)
		s.has(s.get("lock?name="+url.QueryEscape(name)), name)
	})
}

func TestLock(t *testing.T) {
	inSite(t, func(s *site) {
		first := s.holds("team/x", "web-1")
		time.Sleep(time.Hour)
		if err := first.ReleaseWith(s.Context(), &tenure.ReleaseOptions{Failed: errors.New("no such queue")}); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		s.has(s.get("lock?name=team/x"), "Nobody holds it. web-1 had it last, under token 1.", `disabled aria-describedby="not-step-down"`, "Nobody holds the lock.")
		time.Sleep(50 * time.Minute)
		s.holds("team/x", "web-2")
		time.Sleep(time.Hour)
		a := s.get("lock?name=team/x")
		s.status(a, http.StatusOK)
		s.has(a, "web-2 holds it under token 2.", "no such queue", "failed", "web-1, token 1, 1 h 00 min, failed", "nobody, for 1 h 00 min",
			`<svg x="33.333%" y="12" width="33.333%" height="30" class="piece gap">`, "<span>tenure</span> <span>step-down</span> <span>team/x</span>", "<span>release</span> <span>team/x</span> <span>--force</span>",
			`<noscript>stands still: <a href="lock?name=team%2Fx">refresh</a>`)
		// What happened comes before what can be done.
		if text := string(a.body); !(strings.Index(text, `id="timeline-h"`) < strings.Index(text, `id="tenures-h"`) && strings.Index(text, `id="tenures-h"`) < strings.Index(text, `id="acts-h"`)) {
			s.Error("the forms stand before the tenures")
		}
		s.has(s.get("lock?name=team/x&span=6h"), `aria-current="true">6h</a>`)
		s.status(s.get("lock?name=team/none"), http.StatusNotFound)
		s.status(s.get("lock"), http.StatusBadRequest)
		s.status(s.get("lock?name=tenure/session/x"), http.StatusForbidden)
		s.status(s.get("lock?name="+strings.Repeat("x", 2000)), http.StatusBadRequest)
		s.status(s.get("lock?name=%ff"), http.StatusBadRequest)
		// Without forms the page is loaded anew by itself.
		s.has(s.send(request{method: "GET", path: "lock?name=team/x", cookie: s.signIn(readerToken)}), `<noscript><meta http-equiv="refresh" content="10">`)
	})
}

// TestUnreadable shows a record that nobody understands as what it is.
func TestUnreadable(t *testing.T) {
	inSite(t, func(s *site) {
		now, _, err := s.memory.Claim(s.Context(), driver.Record{Key: "team/odd", Version: "v", Beat: "v", Owner: "x", State: driver.Held, Lease: time.Minute})
		if err != nil {
			s.Fatal(err)
		}
		next := now
		next.Version, next.State = "w", "paused"
		if _, err := s.memory.Swap(s.Context(), now, next); err != nil {
			s.Fatal(err)
		}
		s.has(s.get("./"), "1 lock, 1 unreadable")
		a := s.get("lock?name=team/odd")
		s.status(a, http.StatusOK)
		s.has(a, "Its record cannot be read", "The record cannot be read.")
		s.has(s.get("doctor"), "1 record cannot be read: “team/odd”")
	})
}

// TestStoreAway says so, and keeps what it can.
func TestStoreAway(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		get := func(path string) answer { return s.send(request{method: "GET", path: path, cookie: cookie}) }
		pages := []string{"./", "lock?name=team/x", "sessions", "doctor"}
		for _, path := range pages {
			s.status(get(path), http.StatusOK)
		}
		restore := s.away.Inject(faultstore.Rule{Fault: faultstore.Fault{Effect: faultstore.Refused, Err: errors.New("<b>no route</b>")}})
		time.Sleep(afterLooks)
		for _, path := range pages {
			a := get(path)
			s.status(a, http.StatusServiceUnavailable)
			s.has(a, "The store gives no answer", "&lt;b&gt;no route&lt;/b&gt;", `role="alert"`)
			// What a store says names its address: it is for those who have all rights.
			other := s.send(request{method: "GET", path: path, cookie: s.signIn(readerToken)})
			s.status(other, http.StatusServiceUnavailable)
			s.lacks(other, "no route")
			s.has(other, "The store gives no answer", "an operator sees the error")
			if a.Header().Get("Retry-After") == "" {
				s.Errorf("%s: 503 without Retry-After", path)
			}
		}
		s.has(get("./"), "What stands here was read 6 s ago", "<bdi>team/x</bdi>")
		s.has(get("lock?name=team/x"), "web-1 holds it")
		s.status(s.plain("./", aliceToken), http.StatusServiceUnavailable)
		// Of what was never read there is nothing to show.
		a := get("lock?name=team/y")
		s.status(a, http.StatusServiceUnavailable)
		s.has(a, "who holds what is not known here")
		restore()
		time.Sleep(afterLooks)
		for _, path := range pages {
			s.status(get(path), http.StatusOK)
		}
	})
}

// TestStoreSilent waits for a store that does not answer, but not for ever.
func TestStoreSilent(t *testing.T) {
	inSite(t, func(s *site) {
		s.away.Inject(faultstore.Rule{Fault: faultstore.BlackHole()})
		begun := time.Now()
		a := s.get("./")
		s.status(a, http.StatusServiceUnavailable)
		s.has(a, "The store gives no answer")
		if took := time.Since(begun); took > 15*time.Second {
			s.Errorf("it took %v", took)
		}
	})
}

// TestRights shows each visitor what it may read, and no more.
func TestRights(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		s.holds("secret/y", "web-2")
		s.holds("secret/z", "web-3")
		reader := s.signIn(readerToken)
		list := s.send(request{method: "GET", cookie: reader})
		s.has(list, "<bdi>team/x</bdi>", "1 lock")
		s.lacks(list, "secret", "3 locks", "web-2")
		there := s.send(request{method: "GET", path: "lock?name=secret/y", cookie: reader})
		s.status(there, http.StatusForbidden)
		s.has(there, "reader may not read this lock", "read team/")
		missing := s.send(request{method: "GET", path: "lock?name=secret/none", cookie: reader})
		if missing.Code != there.Code || missing.body != there.body {
			s.Error("a lock that is there, and may not be read, can be told from one that is not")
		}
		s.lacks(s.send(request{method: "GET", path: "sessions", cookie: reader}), "secret")
		s.lacks(s.send(request{method: "GET", path: "doctor", cookie: reader}), "3 locks", "Measure writes")
		mine := s.send(request{method: "GET", path: "lock?name=team/x", cookie: reader})
		s.has(mine, "reader may not ask the holder for anything.")
		s.lacks(mine, `action="act"`)
		ask := s.send(request{method: "GET", path: "lock?name=team/x", cookie: s.signIn(askerToken)})
		s.has(ask, `value="step-down"`, `value="hand-over"`, `value="release-dead"`)
		s.lacks(ask, `value="revoke"`)

		none := s.send(request{method: "GET", cookie: s.signIn(nobodyToken)})
		s.status(none, http.StatusOK)
		s.has(none, "nobody may not read any lock. It has no rights at all.")
		s.lacks(none, "team/x")
		s.status(s.send(request{method: "GET", path: "doctor", cookie: s.signIn(nobodyToken)}), http.StatusForbidden)
	})
}

// TestRightsThatChange are gone at once, with a cookie that is good.
func TestRightsThatChange(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		cookie := s.signIn(aliceToken)
		s.has(s.send(request{method: "GET", cookie: cookie}), "<bdi>team/x</bdi>")
		if err := s.users.set(aliceToken, access.Grant{Right: access.Read, Prefix: "other/"}); err != nil {
			s.Fatal(err)
		}
		s.lacks(s.send(request{method: "GET", cookie: cookie}), "team/x")
		s.status(s.act(cookie, "revoke", "team/x", "1", "reason", "r"), http.StatusForbidden)
		if err := s.users.set(aliceToken); err != nil {
			s.Fatal(err)
		}
		s.status(s.send(request{method: "GET", cookie: cookie}), http.StatusUnauthorized)
	})
}

// TestData shows what holders keep to those who may hold the lock.
func TestData(t *testing.T) {
	inSite(t, func(s *site) {
		c := s.client(s.memory, tenure.Options{Owner: "web-1"})
		for name, data := range map[string]string{"team/text": "offset <4711>", "team/bytes": "\xff\x00\x01", "team/much": strings.Repeat("x", 5000)} {
			if _, err := c.Acquire(s.Context(), name, &tenure.AcquireOptions{Data: []byte(data)}); err != nil {
				s.Fatal(err)
			}
		}
		s.has(s.get("lock?name=team/text"), "offset &lt;4711&gt;", "13 bytes")
		s.has(s.get("lock?name=team/bytes"), "ff 00 01")
		s.has(s.get("lock?name=team/much"), strings.Repeat("x", 2048)+" …")
		a := s.send(request{method: "GET", path: "lock?name=team/text", cookie: s.signIn(readerToken)})
		s.has(a, "13 bytes")
		s.lacks(a, "4711")
	})
}

// TestLedger shows the runs of a ledger, and how long ago the last one succeeded.
func TestLedger(t *testing.T) {
	inSite(t, func(s *site) {
		c := s.client(s.memory, tenure.Options{Owner: "web-1"})
		slot := once.Minute(time.Now())
		for i, failure := range []error{nil, errors.New("the disk is full"), nil} {
			if i < 2 {
				_, _ = once.Once(s.Context(), c, "team/nightly", slot+int64(i), nil, func(context.Context, *once.Turn) error {
					time.Sleep(90 * time.Second)
					return failure
				})
				continue
			}
			go func() {
				_, _ = once.Once(s.Context(), c, "team/nightly", slot+int64(i), nil, func(ctx context.Context, _ *once.Turn) error {
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			time.Sleep(30 * time.Second)
		}
		a := s.get("lock?name=team/nightly:once")
		s.has(a, "<dt>Last success</dt><dd><bdi>2000-01-01 00:01:30Z</bdi><small>2 min 00 s ago</small>", "<dt>Running since</dt>", "30 s so far",
			`<th scope="row" role="rowheader" class="time">2000-01-01 00:01:00Z</th>`, "</svg>done", "</svg>failed<small>the disk is full</small>")
		s.lacks(a, "once/2") // the ledger as it is stored
	})
}

// TestNoSecrets shows no version and no beat of a record: to know a beat is to be able to
// renew.
func TestNoSecrets(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		rec, err := s.memory.Get(s.Context(), "team/x", driver.Strong)
		if err != nil {
			s.Fatal(err)
		}
		for _, path := range []string{"./", "lock?name=team/x", "sessions", "shards", "doctor"} {
			s.lacks(s.get(path), rec.Version, rec.Beat)
			s.lacks(s.plain(path, aliceToken), rec.Version, rec.Beat)
		}
	})
}

func TestSessions(t *testing.T) {
	inSite(t, func(s *site) {
		s.has(s.get("sessions"), "There is no session.")
		c := s.client(s.memory, tenure.Options{Owner: "web-1", Host: "web-1.example"})
		session, err := c.OpenSession(s.Context(), nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, name := range []string{"team/a", "secret/b", "orders:part/1", "orders:part/2"} {
			if _, err := session.Acquire(s.Context(), name, nil); err != nil {
				s.Fatal(err)
			}
		}
		faults := faultstore.New(s.memory, nil)
		defer faults.Close()
		dying := s.client(faults.Driver(), tenure.Options{Owner: "web-2"})
		if _, err := dying.OpenSession(s.Context(), nil); err != nil {
			s.Fatal(err)
		}
		faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		time.Sleep(2 * time.Second)
		s.get("sessions")
		time.Sleep(8 * time.Second)
		a := s.get("sessions")
		s.has(a, "2 sessions, 1 in doubt", "<b>4</b>", "<bdi>team/a</bdi>", "2 partitions of orders", "web-1.example")
		if strings.Index(a.body, "web-2") > strings.Index(a.body, "web-1") {
			s.Error("the session in doubt does not stand first")
		}
		s.has(s.get("lock?name=team/a"), "keeps it alive", "sessions#r")
		reader := s.send(request{method: "GET", path: "sessions", cookie: s.signIn(readerToken)})
		s.has(reader, "<bdi>team/a</bdi>", "1 session", "<b>1</b>")
		s.lacks(reader, "secret/b", "web-2", "orders")
		time.Sleep(8 * time.Second)
		s.has(s.get("sessions"), "2 sessions, 1 expired")
	})
}

func TestShards(t *testing.T) {
	inSite(t, func(s *site) {
		s.has(s.get("shards"), "There is no group of workers.")
		s.status(s.get("shards?group=none"), http.StatusNotFound)
		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error, 2)
		for _, name := range []string{"worker-a", "worker-b"} {
			g, err := shard.New(s.client(s.memory, tenure.Options{Owner: name}), "team/orders", &shard.Options{Partitions: 60, LeaveTimeout: -1})
			if err != nil {
				s.Fatal(err)
			}
			go func() {
				ended <- g.Run(ctx, func(ctx context.Context, _ *shard.Partition) error {
					<-ctx.Done()
					return nil
				})
			}()
		}
		time.Sleep(time.Minute)
		a := s.get("shards")
		s.status(a, http.StatusOK)
		s.has(a, "60 partitions, 2 workers: 60 owned, 0 moving, 0 without an owner", "worker-a", "worker-b", `class="r-has"`, "1 to 50 of 60", "lock?name=team%2Forders%3Apart%2F0")
		s.has(s.get("shards?group=team/orders&from=50"), "51 to 60 of 60")
		s.has(s.get("lock?name=team/orders:part/7"), "of the group team/orders")
		s.has(s.get("./"), "partitions and workers of shards are well, and not listed here")
		s.lacks(s.get("./"), "<bdi>team/orders:part/10</bdi>")
		s.has(s.get("./?parts=all"), "<bdi>team/orders:part/10</bdi>")
		reader := s.send(request{method: "GET", path: "shards", cookie: s.signIn(readerToken)})
		s.has(reader, "60 partitions")
		s.lacks(s.send(request{method: "GET", path: "shards", cookie: s.signIn(nobodyToken)}), "orders")
		s.status(s.send(request{method: "GET", path: "shards?group=team/orders", cookie: s.signIn(nobodyToken)}), http.StatusForbidden)
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				s.Error(err)
			}
		}
		time.Sleep(time.Minute)
		s.has(s.get("shards"), "60 without an owner", `class="r-nobody"`)
	})
}

func TestDoctor(t *testing.T) {
	inSite(t, func(s *site) {
		if err := s.holds("team/old", "web-1").Release(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(31 * 24 * time.Hour)
		v := driver.Record{Key: "team/ahead", Version: "v", Beat: "v", Owner: "x", State: driver.Held, Lease: time.Minute, Since: time.Now().Add(time.Hour)}
		if _, _, err := s.memory.Claim(s.Context(), v); err != nil {
			s.Fatal(err)
		}
		cookie := s.signIn(aliceToken)
		a := s.send(request{method: "GET", path: "doctor", cookie: cookie})
		s.status(a, http.StatusOK)
		s.has(a, "Reads take", "Released more than 30 days ago, and may be swept if tokens may begin at 1 again: 1 lock.", "tenure sweep --released-before=30d --dry-run",
			"1 holder began in the future", "Measure writes", "1 finding should be looked at.")
		s.status(s.send(request{method: "POST", path: "measure", cookie: cookie, form: url.Values{"secret": {aliceToken}}}), http.StatusSeeOther)
		s.has(s.send(request{method: "GET", path: "doctor?said=measured", cookie: cookie}), "Measured.", "Two writes took")
		s.status(s.send(request{method: "POST", path: "measure", cookie: s.signIn(readerToken), form: url.Values{"secret": {readerToken}}}), http.StatusForbidden)
		if got, want := s.audited(), "dashboard alice measure    done\ndashboard reader measure    forbidden"; got != want {
			s.Errorf("audited %q", got)
		}
	})
}

// TestText gives those without a browser the same.
func TestText(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		a := s.plain("./", aliceToken)
		s.status(a, http.StatusOK)
		if got := a.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			s.Errorf("type %s", got)
		}
		if want := "LOCK    STATE  OWNER  TOKEN  FOR  FREE IN  HOST           LABEL\nteam/x  held   web-1  1      0 s  15 s     web-1.example  v7\n"; a.body != want {
			s.Errorf("got\n%swant\n%s", a.body, want)
		}
		s.has(s.plain("lock?name=team/x", readerToken), "team/x: held\nweb-1 holds it under token 1.\n", "Host               web-1.example")
		s.has(s.plain("sessions", aliceToken), "There is no session.")
		s.has(s.plain("shards", aliceToken), "There is no group of workers.")
		s.has(s.plain("doctor", aliceToken), "CHECK", "Nothing is wrong that can be seen from here.")
		s.status(s.plain("lock?name=secret/y", readerToken), http.StatusForbidden)
		no := s.send(request{method: "GET", header: map[string]string{"Accept": "*/*"}})
		s.status(no, http.StatusUnauthorized)
		s.has(no, "curl -H 'Authorization: Bearer TOKEN'")
		s.lacks(no, "<")
		wrong := s.plain("./", "guess")
		s.status(wrong, http.StatusUnauthorized)
	})
}
