// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server/dashboard"
	"github.com/tenurelock/tenure/shard"
)

func TestNow(t *testing.T) {
	inSite(t, func(s *site) {
		s.shows(alice, "./", 200, "There are no locks yet.")
		s.holds("team/held", "web-1")
		s.dies("team/dead", "web-2")
		if err := s.holds("team/free", "web-3").Release(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.shows(alice, "./", 200, "web-1.example", "3 locks",
			`<a href="lock?name=team%2Fheld"><bdi>team/held</bdi></a>`, "had it last",
			`aria-current="page">Locks`, "!>in doubt<")
		time.Sleep(6 * time.Second) // two heartbeats and more
		s.shows(alice, "./", 200, "3 locks, 1 in doubt", `class="s-in-doubt"`)
		time.Sleep(10 * time.Second)
		s.shows(alice, "./", 200, "3 locks, 1 expired", `class="s-expired"`, "ran out", "!in doubt")
		s.shows(alice, "./?state=held", 200, "team/held", "!<bdi>team/dead", "!<bdi>team/free")
		s.shows(alice, "./?state=reserved", 200, "No lock is reserved.")
		s.shows(alice, "./?prefix=team/h", 200, "<bdi>team/held", "1 lock", "!<bdi>team/dead")
		s.shows(alice, "./?prefix=other", 200, "There is no lock whose name begins with “other”")
		s.shows(alice, "./?state=nonsense", 400)
	})
}

// record writes the record of a lock as a holder of any kind would.
func (s *site) record(r driver.Record) driver.Record {
	s.Helper()
	r.Version, r.Beat, r.State = "v"+r.Key, "v"+r.Key, driver.Held
	now, _, err := s.world.Store().Claim(s.Context(), r)
	if err != nil {
		s.Fatal(err)
	}
	return now
}

// change writes a record again.
func (s *site) change(r driver.Record, f func(*driver.Record)) {
	s.Helper()
	next := r
	next.Version += "w"
	f(&next)
	if _, err := s.world.Store().Swap(s.Context(), r, next); err != nil {
		s.Fatal(err)
	}
}

// TestManyLocks has 10,000: the page stays small, and each lock is on one page.
func TestManyLocks(t *testing.T) {
	inSite(t, func(s *site) {
		const many = 10_000
		for i := range many {
			s.record(driver.Record{Key: fmt.Sprintf("jobs/%05d", i), Owner: "runner", Lease: time.Hour, Since: time.Now()})
		}
		seen, pages, cookie := map[string]bool{}, 0, s.signIn(alice)
		for path := "./"; path != ""; pages++ {
			a := s.send(request{method: "GET", path: path, cookie: cookie})
			if len(a.body) > 60_000 || pages > 250 {
				s.Fatalf("page %d at %s has %d bytes", pages, path, len(a.body))
			}
			s.want(a, 200, "10,000 locks")
			for _, row := range strings.Split(a.body, `<a href="lock?name=`)[1:] {
				name, _, _ := strings.Cut(row, `"`)
				if seen[name] {
					s.Fatalf("%s twice", name)
				}
				seen[name] = true
			}
			before, _, found := strings.Cut(a.body, `" rel="next">`)
			path = ""
			if found {
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
		s.shows(alice, "?after=jobs/00099", 200, "101 to 150 of 10,000",
			`href="./?after=jobs%2F00049" rel="prev"`)
	})
}

// TestEscaping has texts that want to be markup, or to turn a page around.
func TestEscaping(t *testing.T) {
	nasty := []string{
		`<script>alert(1)</script>`, `"onmouseover="x`, `'><img src=x onerror=y>`, "{{.}}", "&lt;", "javascript:alert(1)",
		"a\u202eb", "line\nbreak", "\x1b[31m", "אבג", "</title>", "`${x}`", strings.Repeat("long/", 200),
	}
	inSite(t, func(s *site) {
		paths := []string{"./", "sessions", "doctor"}
		for _, text := range nasty {
			r := s.record(driver.Record{
				Key: text, Owner: text, Host: text, Label: text, Lease: time.Hour, Since: time.Now(), Data: []byte(text),
			})
			s.change(r, func(r *driver.Record) {
				r.Requests = []driver.Request{{Kind: driver.HandOver, By: text, Reason: text, To: text, At: time.Now()}}
			})
			name := url.QueryEscape(text)
			paths = append(paths, "lock?name="+name, "./?prefix="+name, "shards?group="+name)
		}
		for _, path := range paths {
			a := s.as(alice, path)
			typed, _ := url.Parse(path)
			a.body = strings.ReplaceAll(a.body, `value="`+html.EscapeString(typed.Query().Get("prefix"))+`"`, "")
			s.want(a, a.Code, "!<script>", "!<img src=x", `! "onmouseover`, `!="x"`, "!\u202e", "!\x1b",
				`!href="javascript`, "!line\nbreak", "!cannot be shown")
			if strings.Count(a.body, "</title>") > strings.Count(a.body, "<title>") {
				s.Errorf("%s: a title was ended", path)
			}
			s.want(s.plain(alice, path), a.Code, "!\u202e", "!\x1b", "!line\nbreak")
		}
		s.shows(alice, "./", 200, "&lt;script&gt;alert(1)&lt;/script&gt;", `a\u202eb`, `line\nbreak`,
			"<bdi>אבג</bdi>", strings.Repeat("long/", 200))
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
		s.shows(alice, "lock?name=team/x", 200, "Nobody holds it. web-1 had it last, under token 1.",
			`disabled aria-describedby="not-step-down"`, "Nobody holds the lock.")
		time.Sleep(50 * time.Minute)
		s.holds("team/x", "web-2")
		time.Sleep(time.Hour)
		page := s.as(alice, "lock?name=team/x")
		s.want(page, 200, "web-2 holds it under token 2.", "no such queue", "failed", "web-1, token 1, 1 h 00 min, failed",
			"nobody, for 1 h 00 min", `<svg x="33.333%" y="12" width="33.333%" height="30" class="piece gap">`,
			"<span>tenure</span> <span>step-down</span> <span>team/x</span>",
			"<span>release</span> <span>team/x</span> <span>--force</span>",
			`<noscript>stands still: <a href="lock?name=team%2Fx">refresh</a>`)
		// What happened comes before what can be done.
		at := func(id string) int { return strings.Index(page.body, `id="`+id+`-h"`) }
		if at("timeline") > at("tenures") || at("tenures") > at("acts") {
			s.Error("the forms stand before the tenures")
		}
		// Without forms the page is loaded again by itself.
		again := `<noscript><meta http-equiv="refresh" content="10">`
		s.shows(reader, "lock?name=team/x", 200, again)
		s.shows(alice, "lock?name=team/x&span=6h", 200, `aria-current="true">6h</a>`, "!"+again)
		s.shows(alice, "lock?name=team/none", 404)
		s.shows(alice, "lock", 400)
		s.shows(alice, "lock?name=tenure/session/x", 403)
		s.shows(alice, "lock?name="+strings.Repeat("x", 2000), 400)
		s.shows(alice, "lock?name=%ff", 400)
	})
}

// A record that nobody understands is shown as what it is.
func TestUnreadable(t *testing.T) {
	inSite(t, func(s *site) {
		r := s.record(driver.Record{Key: "team/odd", Owner: "x", Lease: time.Minute})
		s.change(r, func(r *driver.Record) { r.State = "paused" })
		s.shows(alice, "./", 200, "1 lock, 1 unreadable")
		s.shows(alice, "lock?name=team/odd", 200, "Its record cannot be read", "The record cannot be read.")
	})
}

// The pages say that the store is away, and show what they can.
func TestStoreAway(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		all := func(code int) {
			s.Helper()
			for _, path := range []string{"./", "lock?name=team/x", "sessions", "doctor"} {
				s.shows(alice, path, code)
			}
		}
		all(200)
		restore := s.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Fault{
			Effect: faultstore.Refused, Err: errors.New("<b>no route</b>"),
		}})
		time.Sleep(6 * time.Second)
		all(503)
		a := s.as(alice, "./")
		s.want(a, 503, "The store gives no answer", "&lt;b&gt;no route&lt;/b&gt;", `role="alert"`,
			"What stands here was read 6 s ago", "<bdi>team/x</bdi>")
		if a.Header().Get("Retry-After") == "" {
			s.Error("503 without Retry-After")
		}
		// What a store says names its address: it is for those who have all rights.
		for _, path := range []string{"./", "lock?name=team/x", "sessions", "doctor"} {
			s.shows(reader, path, 503, "the log of this server has the error, under", "!no route")
		}
		s.shows(alice, "lock?name=team/x", 503, "web-1 holds it")
		s.shows(alice, "lock?name=team/y", 503, "who holds what is not known here") // it was never read
		s.want(s.plain(alice, "./"), 503, "BAD: The store gives no answer")
		restore()
		time.Sleep(6 * time.Second)
		all(200)
		s.client.Partition() // it does not answer, and is not waited for for ever
		time.Sleep(2 * time.Second)
		begun := time.Now()
		s.shows(alice, "lock?name=team/z", 503, "The store gives no answer")
		if took := time.Since(begun); took > 15*time.Second {
			s.Errorf("it took %v", took)
		}
	})
}

// Each visitor sees what it may read, and no more, and a right that changes is another one at once.
func TestRights(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		s.holds("secret/y", "web-2")
		s.holds("secret/z", "web-3")
		s.shows(reader, "./", 200, "<bdi>team/x</bdi>", "1 lock", "!secret", "!3 locks", "!web-2")
		s.shows(reader, "sessions", 200, "!secret")
		s.shows(reader, "doctor", 200, "!3 locks", "!Measure writes")
		s.shows(reader, "lock?name=team/x", 200, "reader may not ask the holder for anything.", `!action="act`)
		s.shows(asker, "lock?name=team/x", 200, `value="step-down"`, `value="hand-over"`,
			`value="release-dead"`, `!value="revoke"`)
		there, missing := s.as(reader, "lock?name=secret/y"), s.as(reader, "lock?name=secret/none")
		s.want(there, 403, "reader may not read this lock", "read team/")
		if missing.Code != there.Code || missing.body != there.body {
			s.Error("a lock that is there, and may not be read, can be told from one that is not")
		}
		cookie := s.signIn(alice)
		s.set("alice " + alice + " read:other/\n")
		s.want(s.send(request{method: "GET", cookie: cookie}), 200, "!team/x")
		s.want(s.act(alice, "revoke", "team/x", "1", "reason", "r"), 403)
		s.set("reader " + reader + " read:team/\n")
		s.want(s.send(request{method: "GET", cookie: cookie}), 401)
	})
}

// What holders keep is shown to those who may hold the lock. No version and no beat of a record is: to know a
// beat is to be able to renew.
func TestData(t *testing.T) {
	inSite(t, func(s *site) {
		for name, data := range map[string]string{
			"team/text": "offset <4711>", "team/bytes": "\xff\x00\x01", "team/much": strings.Repeat("x", 5000),
		} {
			if _, err := s.process("web-1").Acquire(s.Context(), name, &tenure.AcquireOptions{Data: []byte(data)}); err != nil {
				s.Fatal(err)
			}
		}
		s.shows(alice, "lock?name=team/text", 200, "offset &lt;4711&gt;", "13 bytes")
		s.shows(alice, "lock?name=team/bytes", 200, "ff 00 01")
		s.shows(alice, "lock?name=team/much", 200, strings.Repeat("x", 2048)+" …")
		s.shows(reader, "lock?name=team/text", 200, "13 bytes", "!4711")
		r, err := s.world.Store().Get(s.Context(), "team/text", driver.Strong)
		if err != nil {
			s.Fatal(err)
		}
		for _, path := range []string{"./", "lock?name=team/text", "sessions", "shards", "doctor"} {
			s.want(s.as(alice, path), 200, "!"+r.Version, "!"+r.Beat)
			s.want(s.plain(alice, path), 200, "!"+r.Version, "!"+r.Beat)
		}
	})
}

// A ledger has its runs, and how long ago the last one succeeded.
func TestLedger(t *testing.T) {
	inSite(t, func(s *site) {
		c := s.process("web-1").Client
		slot := once.Minute(time.Now())
		run := func(i int64, work func(context.Context, *once.Turn) error) {
			_, _ = once.Once(s.Context(), c, "team/nightly", slot+i, nil, work)
		}
		for i, failure := range []error{nil, errors.New("the disk is full")} {
			run(int64(i), func(context.Context, *once.Turn) error {
				time.Sleep(90 * time.Second)
				return failure
			})
		}
		go run(2, func(ctx context.Context, _ *once.Turn) error {
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(30 * time.Second)
		s.shows(alice, "lock?name=team/nightly:once", 200,
			"<dt>Last success</dt><dd><bdi>2000-01-01 00:01:30Z</bdi><small>2 min 00 s ago</small>",
			"<dt>Running since</dt>", "30 s so far",
			`<th scope="row" role="rowheader" class="time">2000-01-01 00:01:00Z</th>`, "</svg>done",
			"</svg>failed<small>the disk is full</small>", "!once/2") // the ledger as it is stored
	})
}

func TestSessions(t *testing.T) {
	inSite(t, func(s *site) {
		s.shows(alice, "sessions", 200, "There is no session.")
		session, err := s.process("web-1").OpenSession(s.Context(), nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, name := range []string{"team/a", "secret/b", "orders:part/1", "orders:part/2"} {
			if _, err := session.Acquire(s.Context(), name, nil); err != nil {
				s.Fatal(err)
			}
		}
		dying := s.process("web-2")
		if _, err := dying.OpenSession(s.Context(), nil); err != nil {
			s.Fatal(err)
		}
		dying.Kill()
		time.Sleep(2 * time.Second)
		s.as(alice, "sessions")
		time.Sleep(8 * time.Second)
		a := s.as(alice, "sessions")
		s.want(a, 200, "2 sessions, 1 in doubt", "<b>4</b>", "<bdi>team/a</bdi>", "2 partitions of orders", "web-1.example")
		if strings.Index(a.body, "web-2") > strings.Index(a.body, "web-1") {
			s.Error("the session in doubt does not stand first")
		}
		s.shows(alice, "lock?name=team/a", 200, "keeps it alive", "sessions#r")
		s.shows(reader, "sessions", 200, "<bdi>team/a</bdi>", "1 session", "<b>1</b>", "!secret/b", "!web-2",
			"!orders")
		time.Sleep(8 * time.Second)
		s.shows(alice, "sessions", 200, "2 sessions, 1 expired")
	})
}

func TestShards(t *testing.T) {
	inSite(t, func(s *site) {
		s.shows(alice, "shards", 200, "There is no group of workers.")
		s.shows(alice, "shards?group=none", 404)
		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error, 2)
		for _, name := range []string{"worker-a", "worker-b"} {
			g, err := shard.New(s.process(name).Client, "team/orders", &shard.Options{Partitions: 60, LeaveTimeout: -1})
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
		s.shows(alice, "shards", 200, "60 partitions, 2 workers: 60 owned, 0 moving, 0 without an owner",
			"worker-a", "worker-b", `class="r-has"`, "1 to 50 of 60", "lock?name=team%2Forders%3Apart%2F0")
		s.shows(alice, "shards?group=team/orders&from=50", 200, "51 to 60 of 60")
		s.shows(alice, "shards?group=team/orders&only=moving", 200, "!team%2Forders%3Apart%2F0")
		s.shows(alice, "lock?name=team/orders:part/7", 200, "of the group team/orders")
		s.shows(alice, "./", 200, "partitions and workers of shards are well, and not listed here",
			"!<bdi>team/orders:part/10</bdi>")
		s.shows(alice, "./?parts=all", 200, "<bdi>team/orders:part/10</bdi>")
		s.shows(reader, "shards", 200, "60 partitions")
		s.shows(reader, "shards?group=other", 403)
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				s.Error(err)
			}
		}
		time.Sleep(time.Minute)
		s.shows(alice, "shards", 200, "60 without an owner", `class="r-nobody"`)
	})
}

func TestDoctor(t *testing.T) {
	inSite(t, func(s *site) {
		found := []driver.Finding{driver.Warn("file", "anybody can write it").Advise("chmod 600")}
		s.pages = s.dashboard(dashboard.Options{Doctor: func(context.Context) []driver.Finding { return found }})
		s.shows(alice, "doctor", 200, "Reads take", "Anybody can write it.<small>Chmod 600.</small>",
			"Measure writes", "1 finding should be looked at.")
		found = []driver.Finding{driver.Bad("engine", "db-1 is away")}
		time.Sleep(6 * time.Second)
		s.shows(alice, "doctor", 200, "Anybody can write it.") // it is asked once a minute
		time.Sleep(time.Minute)
		s.shows(alice, "doctor", 200, "Db-1 is away", "1 finding must be looked at now.")
		s.shows(reader, "doctor", 200, "the log of this server has the error", "!db-1", "!Db-1",
			"!Measure writes")
		measure := func(visitor string) answer {
			return s.send(request{
				method: "POST", path: "measure", cookie: s.signIn(visitor), form: url.Values{"secret": {visitor}},
			})
		}
		s.want(measure(alice), 303)
		s.shows(alice, "doctor?flash=measured", 200, "Measured.", "Two writes took")
		s.want(measure(reader), 403)
		if got, want := s.audited(), "dashboard alice measure done\ndashboard reader measure forbidden"; got != want {
			s.Errorf("audited %q", got)
		}
	})
}

// Those without a browser get the same as text.
func TestText(t *testing.T) {
	inSite(t, func(s *site) {
		s.holds("team/x", "web-1")
		a := s.plain(alice, "./")
		if got := a.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			s.Errorf("type %s", got)
		}
		if want := "LOCK    STATE  OWNER  TOKEN  FOR  FREE IN  HOST           LABEL\n" +
			"team/x  held   web-1  1      0 s  15 s     web-1.example  v7\n"; a.body != want {
			s.Errorf("got\n%swant\n%s", a.body, want)
		}
		s.want(s.plain(reader, "lock?name=team/x"), 200,
			"team/x: held\nweb-1 holds it under token 1.\n", "Host               web-1.example", "TOKEN  OWNER  HOST")
		s.want(s.plain(alice, "sessions"), 200, "There is no session.")
		s.want(s.plain(alice, "shards"), 200, "There is no group of workers.")
		s.want(s.plain(alice, "doctor"), 200, "CHECK", "Nothing is wrong that can be seen from here.")
		s.want(s.plain(reader, "lock?name=secret/y"), 403)
		s.want(s.plain("guess", "./"), 401)
		no := s.send(request{method: "GET", header: map[string]string{"Accept": "*/*"}})
		s.want(no, 401, "curl -H 'Authorization: Bearer TOKEN'", "!<")
	})
}
