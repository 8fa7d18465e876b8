// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

func TestStatusShowsNoDataToThoseWhoMayOnlyRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.get("/v1/status?name=jobs/a", ci), 404, "not-found")
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		w.want(h.release(object{"data": "c2VjcmV0"}), 200, "")
		if st := w.want(w.get("/v1/status?name=jobs/a", ci), 200, ""); st.string("data") != "c2VjcmV0" ||
			st.number("data_bytes") != 6 || st.string("state") != "released" {
			w.Errorf("a principal that may hold it sees %s", st.text)
		}
		if st := w.want(w.get("/v1/status?name=jobs/a", ops), 200, ""); st.json["data"] != nil ||
			st.number("data_bytes") != 6 {
			w.Errorf("a principal that may read it sees %s", st.text)
		}
		for _, secret := range []string{"beat", "version", "notify", h.beat} {
			if st := w.get("/v1/status?name=jobs/a", alice); strings.Contains(st.text, secret) {
				w.Errorf("the status has %q: %s", secret, st.text)
			}
		}
	})
}

func TestDoubtIsSeenBeforeALossIs(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		look := func() answer { return w.want(w.get("/v1/status?name=jobs/a", ci), 200, "") }
		if st := look(); st.json["in_doubt"] != false {
			w.Errorf("just after a beat: %s", st.text)
		}
		time.Sleep(4 * time.Second) // one beat is late
		if st := look(); st.json["in_doubt"] != false || st.number("seen_alive_ms") != 4000 {
			w.Errorf("one late beat: %s", st.text)
		}
		time.Sleep(2 * time.Second)
		if st := look(); st.json["in_doubt"] != true || st.number("free_in_ms") != 9000 {
			w.Errorf("two late beats: %s", st.text)
		}
	})
}

func TestLocksComeInPagesOfWhatOneMayRead(t *testing.T) {
	inWorld(t, func(w *world) {
		var jobs []string
		for i := range 7 {
			name := fmt.Sprintf("jobs/%d", i)
			w.acquire(alice, name, "web-7")
			w.acquire(alice, fmt.Sprintf("web/%d", i), "web-7")
			w.acquire(alice, fmt.Sprintf("other/%d", i), "web-7")
			jobs = append(jobs, name)
		}
		list := func(secret, query string) (names []string, next string) {
			a := w.want(w.get("/v1/locks?"+query, secret), 200, "")
			for _, l := range a.json["locks"].([]any) {
				names = append(names, l.(map[string]any)["name"].(string))
			}
			return names, a.string("next")
		}
		if got, next := list(ci, ""); !slices.Equal(got, jobs) || next != "" {
			w.Errorf("ci sees %q, and %q", got, next)
		}
		var got []string
		for after, pages := "", 0; ; pages++ {
			names, next := list(alice, "limit=4&after="+url.QueryEscape(after))
			got = append(got, names...)
			if len(names) > 4 || pages > 10 {
				w.Fatalf("page %d has %q", pages, names)
			}
			if after = next; next == "" {
				break
			}
		}
		if len(got) != 21 || !slices.IsSorted(got) {
			w.Errorf("alice sees %q", got)
		}
		if got, _ := list(alice, "prefix=web/3"); !slices.Equal(got, []string{"web/3"}) {
			w.Errorf("below web/3 there is %q", got)
		}
		if got, _ := list(alice, "prefix=tenure/"); len(got) != 0 {
			w.Errorf("records of Tenure itself are listed: %q", got)
		}
		if a := w.get("/v1/locks?prefix=nothing", alice); !strings.Contains(a.text, `"locks":[]`) {
			w.Errorf("no locks are %s", a.text)
		}
		w.want(w.get("/v1/locks?prefix=other/", ci), 403, "forbidden")
		for _, query := range []string{
			"limit=", "limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "prefx=a", "a;b",
			"after=a%00",
		} {
			w.want(w.get("/v1/locks?"+query, ci), 400, "bad-request")
		}
	})
}

// lister counts what a list reads, and has records that cannot be read.
type lister struct {
	driver.Store
	unreadable  []string
	calls, read int
}

func (l *lister) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	page, err := l.Store.List(ctx, prefix, cursor)
	l.calls, l.read = l.calls+1, l.read+len(page.Records)
	page.Unreadable = map[string]error{}
	for _, key := range l.unreadable {
		if key > cursor && (page.Cursor == "" || key <= page.Cursor) {
			page.Unreadable[key] = driver.ErrUnreadable
		}
	}
	return page, err
}

// inWorld runs a test with a server that has this store, whose pages have 100 records.
func (l *lister) inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New()
		records.PageSize = 100
		w := tenuretest.On(t, func() driver.Store { return records.Open() })
		w.Wrap(func(_ string, s driver.Store) driver.Store {
			l.Store = s
			return l
		})
		test(serve(t, w))
	})
}

// fill writes n free locks into the store, past the server.
func (w *world) fill(prefix string, n int) {
	w.Helper()
	for i := range n {
		version := fmt.Sprintf("v%d-0", i)
		_, _, err := w.Store().Claim(w.Context(), driver.Record{
			Key: fmt.Sprintf("%s%06d", prefix, i), Version: version, Beat: version, Owner: "web-7",
			State: driver.Held, Lease: lease, Heartbeat: lease / 5, Since: time.Now(),
		})
		testutil.Want(w.T, err, nil)
	}
}

func TestAPageOfLocksReadsAPage(t *testing.T) {
	l := &lister{}
	l.inWorld(t, func(w *world) {
		const locks, limit = 10_000, 100
		w.fill("jobs/", locks)
		pages, seen, after := 0, 0, ""
		for more := true; more; pages++ {
			l.calls, l.read = 0, 0
			a := w.want(w.get(fmt.Sprintf("/v1/locks?limit=%d&after=%s", limit, url.QueryEscape(after)), alice), 200, "")
			seen += len(a.json["locks"].([]any))
			// The page, and one of the store's to see whether that was all.
			if l.calls > 2 || l.read > 2*limit {
				w.Fatalf("page %d took %d calls of the store, which read %d records", pages, l.calls, l.read)
			}
			after, more = a.string("next"), a.json["next"] != nil
		}
		if pages != locks/limit || seen != locks {
			w.Errorf("%d pages have %d locks", pages, seen)
		}
	})
}

func TestAPageNamesWhatItCannotRead(t *testing.T) {
	l := &lister{unreadable: []string{"jobs/000001x", "jobs/000008x", "jobs/zz"}}
	for i := range 250 {
		l.unreadable = append(l.unreadable, fmt.Sprintf("jobs/000004-%03d", i))
	}
	slices.Sort(l.unreadable)
	l.inWorld(t, func(w *world) {
		w.fill("jobs/", 10)
		var locks, unreadable []string
		for after, more := "", true; more; {
			a := w.want(w.get("/v1/locks?limit=3&after="+url.QueryEscape(after), alice), 200, "")
			for of, to := range map[string]*[]string{"locks": &locks, "unreadable": &unreadable} {
				all, _ := a.json[of].([]any)
				for _, one := range all {
					*to = append(*to, one.(map[string]any)["name"].(string))
				}
			}
			if after, more = a.string("next"), a.json["next"] != nil; len(unreadable) > len(l.unreadable) {
				w.Fatalf("%q are unreadable", unreadable)
			}
		}
		if !slices.Equal(unreadable, l.unreadable) {
			w.Errorf("unreadable are %q, want %q", unreadable, l.unreadable)
		}
		if len(locks) != 10 || !slices.IsSorted(locks) {
			w.Errorf("the locks are %q", locks)
		}
	})
}

func TestHistoryComesInPages(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 5 {
			a := w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": fmt.Sprintf("web-%d", i), "history": true})
			h := w.hand(ci, "jobs/a", w.want(a, 200, ""))
			h.beats()
			w.want(h.release(), 200, "")
		}
		var tokens []float64
		below := ""
		for {
			a := w.want(w.get("/v1/history?name=jobs/a&limit=2"+below, ops), 200, "")
			for _, one := range a.json["tenures"].([]any) {
				tokens = append(tokens, one.(map[string]any)["token"].(float64))
			}
			if a.json["next"] == nil {
				break
			}
			below = fmt.Sprintf("&below=%v", a.number("next"))
		}
		if !slices.Equal(tokens, []float64{5, 4, 3, 2, 1}) {
			w.Errorf("tokens %v", tokens)
		}
		if a := w.want(w.get("/v1/history?name=jobs/never", ops), 200, ""); !strings.Contains(a.text, `"tenures":[]`) {
			w.Errorf("of a lock that was never taken: %s", a.text)
		}
		w.want(w.get("/v1/history?name=jobs/a&below=0", ops), 400, "bad-request")
	})
}

func TestLeaderForLoadBalancers(t *testing.T) {
	public := func(o *server.Options) { o.Public = []string{"web/"} }
	inWorld(t, func(w *world) {
		w.want(w.get("/v1/leader?name=web/a", ""), 503, "no-leader")
		h := w.acquire(web, "web/a", "web-7")
		h.beats()
		if a := w.want(w.get("/v1/leader?name=web/a", ""), 200, ""); a.string("holder") != "web-7" || a.number("token") != 1 {
			w.Errorf("the leader is %s", a.text)
		}
		w.want(w.get("/v1/leader?name=web/a&me=web-7", ""), 200, "")
		w.want(w.get("/v1/leader?name=web/a&me=web-8", ""), 503, "no-leader")
		w.want(w.get("/v1/leader?name=web/a&me=", ""), 503, "no-leader")
		w.want(w.get("/v1/leader?name=jobs/a", ""), 401, "unauthenticated")
		w.want(w.get("/v1/leader?name=web/a", "wrong"), 401, "unauthenticated")
		w.want(w.get("/v1/leader?name=jobs/a", web), 403, "forbidden")
		w.want(w.do(request("HEAD", "/v1/leader?name=web/a", "", nil)), 200, "")
		// A name is a name, whatever a path would make of it.
		odd := w.acquire(web, "web/../a//b", "web-9")
		odd.beats()
		w.want(w.get("/v1/leader?name=web/../a//b&me=web-9", ""), 200, "")
		w.client.Partition()
		time.Sleep(time.Second) // for so long an answer is kept
		if a := w.want(w.get("/v1/leader?name=web/a", ""), 503, "unavailable"); strings.Contains(a.text, "RequestTimeout") {
			w.Errorf("an answer without a token names the store: %s", a.text)
		}
		w.want(w.get("/readyz", ""), 503, "unavailable")
		w.want(w.get("/healthz", ""), 200, "")
		w.client.Heal()
		time.Sleep(lease)
		w.want(w.get("/readyz", ""), 200, "")
		w.want(w.get("/v1/leader?name=web/a", ""), 503, "no-leader") // no life for a lease
	}, public)
}

func TestFenceCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		check := func(token int) answer {
			return w.post("/v1/fence-check", ops, object{"name": "jobs/a", "token": token})
		}
		w.want(check(1), 409, "stale")
		for range 2 {
			h := w.acquire(ci, "jobs/a", "web-7")
			w.want(h.release(), 200, "")
		}
		w.want(check(2), 200, "")
		if a := w.want(check(1), 409, "stale"); a.number("token") != 2 {
			w.Errorf("stale says %s", a.text)
		}
		w.want(check(3), 409, "stale")
		w.want(check(0), 400, "bad-request")
	})
}

func TestOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		if a := w.want(w.get("/v1/once?name=jobs/n", ops), 200, ""); !strings.Contains(a.text, `"last_slot":null`) ||
			!strings.Contains(a.text, `"runs":[]`) {
			w.Errorf("of a job that was never run: %s", a.text)
		}
		run := func(slot int64, err error) {
			job := func(context.Context, *once.Turn) error { return err }
			_, _ = once.Once(w.Context(), w.client.Client, "jobs/n", slot, nil, job)
		}
		run(7, nil)
		run(8, tenure.ErrStalled)
		a := w.want(w.get("/v1/once?name=jobs/n", ops), 200, "")
		if a.number("last_slot") != 8 || !strings.Contains(a.text, `"state":"failed"`) ||
			!strings.Contains(a.text, `"state":"done"`) {
			w.Errorf("the ledger is %s", a.text)
		}
		w.want(w.get("/v1/once?name=web/n", ops), 403, "forbidden")
		w.want(w.get("/v1/once?name="+"jobs/"+strings.Repeat("x", 1015), ops), 400, "bad-request")
		w.want(w.get("/v1/once?name=jobs/%07", ops), 400, "bad-request")
		// A ledger that another client has overwritten is an error, not an empty ledger.
		h := w.acquire(ci, once.LockName("jobs/bad"), "web-7")
		w.want(h.release(object{"data": "eA=="}), 200, "")
		w.want(w.get("/v1/once?name=jobs/bad", ops), 503, "unavailable")
	})
}

func TestPagesOfTheServerItself(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.get("/", ""), 200, "")
		w.want(w.post("/", "", ""), 405, "method-not-allowed")
		w.want(w.get("/x", ""), 404, "not-found")
		w.want(w.get("/v1/x", ""), 404, "not-found")
		w.want(w.get("/v1/acquire", ci), 405, "method-not-allowed")
		if a := w.want(w.get("/openapi.json", ""), 200, ""); a.string("openapi") != "3.0.3" {
			w.Errorf("the document begins with %.100s", a.text)
		}
		w.want(w.get("/metrics", ""), 401, "unauthenticated")
		w.want(w.get("/metrics", ci), 200, "")
	})
}

func TestMetricsCountAndNameNobody(t *testing.T) {
	options := func(o *server.Options) { o.PublicMetrics = true }
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8"}), 409, "held")
		w.want(w.get("/v1/status?name=web/a", ci), 403, "forbidden")
		w.want(h.release(), 200, "")
		w.want(h.heartbeat(h.next()), 410, "lost")
		held := w.acquire(ci, "jobs/b", "web-7") // for longer than a grant that is not used
		for range 10 {
			held.beats()
			time.Sleep(time.Second)
		}
		m := w.want(w.get("/metrics", ""), 200, "").text
		for _, line := range []string{
			`tenure_server_calls_total{route="/v1/acquire",status="200"} 2`,
			`tenure_server_calls_total{route="/v1/acquire",status="409"} 1`,
			`tenure_server_heartbeats_total{result="renewed"} 11`,
			`tenure_server_heartbeats_total{result="lost"} 1`,
			`tenure_server_heartbeat_seconds_count 12`,
			`tenure_server_refused_total{reason="right"} 1`,
			`tenure_server_waits{for="acquire"} 0`,
			`tenure_server_grants_unused_total 0`,
			`# TYPE tenure_server_heartbeat_seconds histogram`,
		} {
			if !strings.Contains(m, line+"\n") {
				w.Errorf("no line %s in\n%s", line, m)
			}
		}
		for _, name := range []string{"jobs", "web-7", `"ci"`} {
			if strings.Contains(m, name) {
				w.Errorf("the metrics name %s", name)
			}
		}
	}, options)
}

// A prefix is a bound alone: what is below it, and follows the right to another name, is not
// shown.
func TestNamesAreShownOneByOne(t *testing.T) {
	const sly = "secret-of-sly-0123456789"
	const text = principalsText + "sly " + sly + " read:nightly: read:web/\n"
	options := func(o *server.Options) { o.Principals = testutil.Must(server.ParsePrincipals(text))(t) }
	inWorld(t, func(w *world) {
		for _, name := range []string{"nightly:once", "nightly:x", "other/x", "web/x"} {
			w.acquire(alice, name, "web-7").beats()
		}
		list := w.want(w.get("/v1/locks", sly), 200, "")
		s, narrow := w.follow(sly, "prefix=", "application/x-ndjson"), w.follow(sly, "prefix=nightly", "application/x-ndjson")
		time.Sleep(time.Second)
		for _, shown := range []string{list.text, s.String(), narrow.String()} {
			if strings.Contains(shown, "nightly:once") || strings.Contains(shown, "other/x") ||
				!strings.Contains(shown, "nightly:x") {
				w.Errorf("it is shown %s", shown)
			}
		}
		for _, one := range []*stream{s, narrow} {
			one.leave()
		}
	}, options)
}
