// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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

var update = flag.Bool("update", false, "write the pages to testdata")

// TestPages has each page of a world in which there is something of everything: from its body on in
// testdata, and as text in testdata/pages.txt.
func TestPages(t *testing.T) {
	inSite(t, func(s *site) {
		s.pages = s.dashboard(dashboard.Options{Title: "production", Doctor: func(context.Context) []driver.Finding {
			return []driver.Finding{
				driver.OK("clock", "it is right"), driver.Warn("file", "anybody can write it").Advise("chmod 600"),
				driver.Bad("engine", "db-1 is away"),
			}
		}})
		ids := s.somethingOfEverything()
		pages := []struct{ name, visitor, path string }{
			{"now", alice, "./"},
			{"", alice, "./?prefix=team/&state=in+doubt"},
			{"lock", alice, "lock?name=team/terms"},
			{"", reader, "lock?name=team/dead"},
			{"", reader, "lock?name=team/doubt"},
			{"", reader, "lock?name=team/asked"},
			{"", reader, "lock?name=team/free"},
			{"", reader, "lock?name=team/odd"},
			{"", reader, "lock?name=team/reserved"},
			{"", reader, "lock?name=team/labelled"},
			{"", reader, "lock?name=team/revoked"},
			{"", alice, "lock?name=under/app-1"},
			{"ledger", requester, "lock?name=team/nightly:once"},
			{"problem", alice, "lock?name=team/none"},
			{"sessions", alice, "sessions"},
			{"", reader, "sessions"},
			{"", alice, "shards"},
			{"doctor", alice, "doctor"},
			{"login", "", "login?next=lock%3Fname%3Dx"},
		}
		for _, p := range pages { // the dead holder has been seen before
			s.plain(alice, p.path)
		}
		time.Sleep(20 * time.Second)
		s.untilTheMinute()
		time.Sleep(300 * time.Millisecond)
		texts := ""
		for _, p := range pages {
			if p.visitor != "" {
				texts += "-- /" + strings.TrimPrefix(p.path, "./") + " --\n" + s.plain(p.visitor, p.path).body
			}
			if p.name == "" {
				continue
			}
			a := s.send(request{method: "GET", path: p.path})
			if p.visitor != "" {
				a = s.as(p.visitor, p.path)
			}
			_, body, _ := strings.Cut(a.body, "<body")
			s.golden(p.name+".html", ids.Replace("<body"+body))
		}
		s.golden("pages.txt", ids.Replace(texts))
	})
}

// rowID finds the ids of rows for sessions, whose own ids are random.
var rowID = regexp.MustCompile(` id="r[0-9a-z]+"`)

// golden compares a page with the one in testdata.
func (s *site) golden(name, got string) {
	s.Helper()
	file := filepath.Join("testdata", name)
	if name == "sessions.html" {
		got = rowID.ReplaceAllString(got, ` id="ROW"`)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // it is for everybody
			s.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		s.Errorf("%s has another page, which -update writes: %v\n%s", file, err, got)
	}
}

// untilTheMinute waits for a full one, so that times are the same in each run.
func (s *site) untilTheMinute() {
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
}

// somethingOfEverything has an hour pass in which locks get to each state, for each reason. It returns
// what names the ids that are random.
func (s *site) somethingOfEverything() *strings.Replacer {
	s.Helper()
	term := func(owner string, lasts time.Duration) *tenure.Lease {
		s.untilTheMinute()
		l := s.holds("team/terms", owner)
		time.Sleep(lasts + 300*time.Millisecond) // so that no time is near to its next second
		return l
	}
	_ = term("web-1", 20*time.Minute).Release(s.Context())
	time.Sleep(4 * time.Minute)
	failed := &tenure.ReleaseOptions{Failed: errors.New("no such queue")}
	_ = term("web-2", 30*time.Minute).ReleaseWith(s.Context(), failed)
	term("web-1", 10*time.Minute)
	s.act(alice, "step-down", "team/terms", "3", "reason", "it's <slow>")
	term("web-3", 2*time.Minute)
	s.process("web-3").Kill()
	term("web-2", 5*time.Minute)
	s.act(alice, "hand-over", "team/terms", "5", "reason", "v8 comes", "to", "web-4")
	term("web-4", 3*time.Minute)

	s.untilTheMinute()
	slot := once.Minute(time.Now())
	run := func(i int64, lasts time.Duration, err error) {
		_, _ = once.Once(s.Context(), s.process("web-1").Client, "team/nightly", slot+i, nil,
			func(ctx context.Context, _ *once.Turn) error {
				select {
				case <-time.After(lasts):
				case <-ctx.Done():
				}
				return err
			})
	}
	run(0, 90*time.Second, nil)
	run(1, 90*time.Second, errors.New("the disk is full"))
	go run(2, time.Hour, nil)
	s.untilTheMinute()
	var ids []string
	for _, owner := range []string{"app-1", "app-2"} {
		session, err := s.process(owner).OpenSession(s.Context(), nil)
		if err != nil {
			s.Fatal(err)
		}
		ids = append(ids, session.ID(), "SESSION-OF-"+owner)
		for _, name := range []string{"under/" + owner, "orders:part/1" + owner[4:]} {
			if _, err := session.Acquire(s.Context(), name, nil); err != nil {
				s.Fatal(err)
			}
		}
	}
	s.process("app-2").Kill()

	held := func(name string, lease, heartbeat time.Duration) driver.Record {
		return driver.Record{
			Key: "team/" + name, Owner: "job-1", Host: "job-1.example", Label: "v7", Lease: lease, Heartbeat: heartbeat,
			Since: time.Now().Add(-90 * time.Minute),
		}
	}
	s.record(held("held", time.Hour, 10*time.Minute))
	s.record(held("dead", time.Second, 0))
	s.record(held("doubt", 10*time.Minute, time.Second))
	s.record(held("revoked", time.Hour, 10*time.Minute))
	for name, change := range map[string]func(*driver.Record){
		"asked": func(r *driver.Record) {
			r.Requests = []driver.Request{{ID: "q", Kind: driver.HandOver, By: "ops", Reason: "new", ToLabel: "v8", At: r.Since}}
		},
		"free":     func(r *driver.Record) { r.State, r.End, r.Until = driver.Released, driver.EndReleased, r.Since },
		"odd":      func(r *driver.Record) { r.State = "paused" },
		"reserved": func(r *driver.Record) { r.State, r.Owner, r.Until = driver.Reserved, "job-2", r.Since },
		"labelled": func(r *driver.Record) { r.State, r.Owner, r.Label, r.Until = driver.Reserved, "", "v8", r.Since },
	} {
		s.change(s.record(held(name, time.Hour, 10*time.Minute)), change)
	}
	s.act(alice, "revoke", "team/revoked", "1", "reason", "hangs")
	return strings.NewReplacer(ids...)
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

// TestManyLocks has 2,500, which the store lists in three pages: the page stays small, and each lock is on one page.
func TestManyLocks(t *testing.T) {
	inSite(t, func(s *site) {
		const many = 2500
		for i := range many {
			s.record(driver.Record{Key: fmt.Sprintf("jobs/%05d", i), Owner: "runner", Lease: time.Hour, Since: time.Now()})
		}
		seen, pages, cookie := map[string]bool{}, 0, s.signIn(alice)
		for path := "./"; path != ""; pages++ {
			a := s.send(request{method: "GET", path: path, cookie: cookie})
			if len(a.body) > 60_000 || pages > 60 {
				s.Fatalf("page %d at %s has %d bytes", pages, path, len(a.body))
			}
			s.want(a, 200, "2,500 locks")
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
		a = s.send(request{method: "POST", path: "logout", header: map[string]string{"Accept-Encoding": "gzip"}})
		if a.body != "" || a.Header().Get("Content-Encoding") != "" {
			s.Errorf("an answer without a body has %q", a.body)
		}
		s.shows(alice, "?after=jobs/00099", 200, "101 to 150 of 2,500",
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

// What addresses ask for, what data is shown to those who may hold the lock, and what is refused. No version and
// no beat of a record is shown: to know a beat is to be able to renew.
func TestQueries(t *testing.T) {
	inSite(t, func(s *site) {
		for name, data := range map[string]string{
			"team/text": "offset <4711>", "team/bytes": "\xff\x00\x01", "team/much": strings.Repeat("x", 5000),
		} {
			if _, err := s.process("web-1").Acquire(s.Context(), name, &tenure.AcquireOptions{Data: []byte(data)}); err != nil {
				s.Fatal(err)
			}
		}
		r, err := s.world.Store().Get(s.Context(), "team/text", driver.Strong)
		if err != nil {
			s.Fatal(err)
		}
		for _, c := range []struct {
			visitor, path string
			code          int
			text          string
		}{
			{alice, "lock?name=team/text", 200, "offset &lt;4711&gt;"},
			{alice, "lock?name=team/bytes", 200, "ff 00 01"},
			{alice, "lock?name=team/much", 200, strings.Repeat("x", 2048) + " …"},
			{reader, "lock?name=team/text", 200, "13 bytes"},
			{reader, "lock?name=team/text", 200, "!4711"},
			// Without forms the page is loaded again by itself.
			{reader, "lock?name=team/text", 200, `<noscript><meta http-equiv="refresh" content="10">`},
			{alice, "lock?name=team/text", 200, `!http-equiv="refresh"`},
			{alice, "lock?name=team/text&span=6h", 200, `aria-current="true">6h</a>`},
			{alice, "./?state=held", 200, "3 locks"},
			{alice, "./?state=reserved", 200, "No lock is reserved."},
			{alice, "./?prefix=team/t", 200, "1 lock"},
			{alice, "./?prefix=other", 200, "There is no lock whose name begins with “other”"},
			{alice, "./?state=nonsense", 400, "No such state"},
			{alice, "lock", 400, "name the lock"},
			{alice, "lock?name=" + strings.Repeat("x", 2000), 400, "No such name"},
			{alice, "lock?name=%ff", 400, "No such name"},
			{alice, "lock?name=tenure/session/x", 403, "may not read"},
			{alice, "sessions", 200, "There are no sessions."},
			{alice, "shards", 200, "There are no groups of workers."},
		} {
			s.shows(c.visitor, c.path, c.code, c.text, "!"+r.Version, "!"+r.Beat)
			s.want(s.plain(c.visitor, c.path), c.code, "!"+r.Version, "!"+r.Beat)
		}
		if got := s.plain(alice, "./").Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			s.Errorf("type %s", got)
		}
		s.want(s.plain("guess", "./"), 401)
		no := s.send(request{method: "GET", header: map[string]string{"Accept": "*/*"}})
		s.want(no, 401, "curl -H 'Authorization: Bearer TOKEN'", "!<")
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
		s.want(a, 503, "The store does not answer", "&lt;b&gt;no route&lt;/b&gt;", `role="alert"`,
			"This page shows what was read 6 s ago", "<bdi>team/x</bdi>")
		if a.Header().Get("Retry-After") == "" {
			s.Error("503 without Retry-After")
		}
		// What a store says names its address: it is for those who have all rights.
		for _, path := range []string{"./", "lock?name=team/x", "sessions", "doctor"} {
			s.shows(reader, path, 503, "see the log of this server, under", "!no route")
		}
		s.shows(alice, "lock?name=team/x", 503, "web-1 holds it")
		s.shows(alice, "lock?name=team/y", 503, "the holders of locks are not known here") // it was never read
		s.want(s.plain(alice, "./"), 503, "BAD: The store does not answer")
		restore()
		time.Sleep(6 * time.Second)
		all(200)
		s.client.Partition() // it does not answer, and is not waited for for ever
		time.Sleep(2 * time.Second)
		begun := time.Now()
		s.shows(alice, "lock?name=team/z", 503, "The store does not answer")
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
		s.shows(reader, "lock?name=team/x", 200, "reader may not send requests to the holder.", `!action="act`)
		s.shows(requester, "lock?name=team/x", 200, `value="step-down"`, `value="hand-over"`,
			`value="release-dead"`, `!value="revoke"`)
		there, missing := s.as(reader, "lock?name=secret/y"), s.as(reader, "lock?name=secret/none")
		s.want(there, 403, "reader may not read this lock", "read team/")
		if missing.Code != there.Code || missing.body != there.body {
			s.Error("a lock that exists but may not be read can be told from a lock that does not exist")
		}
		cookie := s.signIn(alice)
		s.set("alice " + alice + " read:other/\n")
		s.want(s.send(request{method: "GET", cookie: cookie}), 200, "!team/x")
		s.want(s.act(alice, "revoke", "team/x", "1", "reason", "r"), 403)
		s.set("reader " + reader + " read:team/\n")
		s.want(s.send(request{method: "GET", cookie: cookie}), 401)
	})
}

func TestShards(t *testing.T) {
	inSite(t, func(s *site) {
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
		s.want(s.plain(alice, "shards"), 200, ", coordinator worker-", "HAS OF PLANNED", "PARTITION", "1 to 50 of 60")
		s.shows(alice, "shards?group=team/orders&from=50", 200, "51 to 60 of 60")
		s.shows(alice, "shards?group=team/orders&only=moving", 200, "!team%2Forders%3Apart%2F0")
		s.shows(alice, "lock?name=team/orders:part/7", 200, "of the group team/orders")
		s.shows(alice, "./", 200, "partitions and workers of shards have no problems and are not listed here",
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
		found := []driver.Finding{driver.Warn("file", "anybody can write it")}
		s.pages = s.dashboard(dashboard.Options{Doctor: func(context.Context) []driver.Finding { return found }})
		s.shows(alice, "doctor", 200, "1 finding should be checked.")
		found = []driver.Finding{driver.Bad("engine", "db-1 is away")}
		time.Sleep(6 * time.Second)
		s.shows(alice, "doctor", 200, "Anybody can write it.") // it is asked once a minute
		time.Sleep(time.Minute)
		s.shows(alice, "doctor", 200, "Db-1 is away", "1 finding must be fixed now.")
		s.shows(reader, "doctor", 200, "see the log of this server", "!db-1", "!Db-1", "!Measure writes")
		for visitor, code := range map[string]int{alice: 303, reader: 403} {
			s.want(s.send(request{
				method: "POST", path: "measure", cookie: s.signIn(visitor), form: url.Values{"secret": {visitor}},
			}), code)
		}
		s.shows(alice, "doctor?flash=measured", 200, "Measured.", "Two writes took")
		for _, line := range []string{"dashboard alice measure done", "dashboard reader measure forbidden"} {
			if !strings.Contains(s.audited(), line) {
				s.Errorf("no audit line %q in\n%s", line, s.audited())
			}
		}
	})
}
