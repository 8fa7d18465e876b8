// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// watcher polls locks each second, by a client that holds nothing.
func watcher(t *testing.T, w *tenuretest.World, o tenureprom.LocksOptions) (*tenuretest.Client, *tenureprom.Locks) {
	t.Helper()
	c := w.Client("watcher")
	o.Interval = time.Second
	l := testutil.Must(tenureprom.NewLocks(c.Client, &o))(t)
	return c, l
}

func run(ctx context.Context, l *tenureprom.Locks) { go func() { _ = l.Run(ctx, nil) }() }

func recordEnded(name, end string) string {
	return fmt.Sprintf("tenure_lock_tenures_ended_total{end=%s,name=%s}", end, name)
}

func TestLocks(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Leaders: []string{"leader"}, Names: []string{"job"}})
		want(t, l, "before the first poll", map[string]float64{"tenure_store_up{}": 0, "tenure_lock_held{name=leader}": absent, "tenure_lock_expected{name=leader}": 1})
		run(t.Context(), l)
		time.Sleep(30 * time.Second)
		want(t, l, "never held", map[string]float64{
			"tenure_store_up{}": 1, "tenure_lock_held{name=leader}": 0, "tenure_lock_token{name=leader}": 0, "tenure_lock_vacant_seconds{name=leader}": 30,
			"tenure_lock_lease_seconds{name=leader}": 15, "tenure_lock_holder{holder=a,name=leader}": absent, "tenure_lock_free_in_seconds{name=leader}": absent,
			"tenure_lock_expected{name=leader}": 1, "tenure_lock_expected{name=job}": absent, "tenure_lock_tenures_total{name=leader}": 0,
		})
		a := w.Client("a")
		lease := testutil.Must(a.Acquire(t.Context(), "leader", nil))(t)
		time.Sleep(time.Hour)
		want(t, l, "held for an hour", map[string]float64{
			"tenure_lock_held{name=leader}": 1, "tenure_lock_token{name=leader}": 1, "tenure_lock_vacant_seconds{name=leader}": 0,
			"tenure_lock_holder{holder=a,name=leader}": 1, "tenure_lock_tenures_total{name=leader}": 1, recordEnded("leader", "released"): 0,
		})
		_ = lease.Release(t.Context())
		time.Sleep(10 * time.Second)
		want(t, l, "released", map[string]float64{
			"tenure_lock_held{name=leader}": 0, "tenure_lock_vacant_seconds{name=leader}": 10, "tenure_lock_holder{holder=a,name=leader}": absent,
			recordEnded("leader", "released"): 1, "tenure_lock_token{name=leader}": 1,
		})
		for range 3 { // terms that begin and end between two polls
			lease := testutil.Must(a.Acquire(t.Context(), "leader", nil))(t)
			_ = lease.Release(t.Context())
		}
		time.Sleep(2 * time.Second)
		want(t, l, "three more", map[string]float64{
			"tenure_lock_tenures_total{name=leader}": 4, recordEnded("leader", "released"): 3, recordEnded("leader", "unseen"): 1, "tenure_lock_vacant_seconds{name=leader}": 2, // the record tells of the last two
		})
		testutil.Must(a.Acquire(t.Context(), "leader", nil))(t)
		time.Sleep(2 * time.Second)
		a.Kill()
		time.Sleep(8*time.Second + settle)
		want(t, l, "killed", map[string]float64{"tenure_lock_held{name=leader}": 1})
		const free, unchanged = "tenure_lock_free_in_seconds{name=leader}", "tenure_lock_unchanged_seconds{name=leader}"
		before := scrape(t, l)
		time.Sleep(settle) // between two polls
		if after := scrape(t, l); before[free]-after[free] < 0.09 || after[unchanged]-before[unchanged] < 0.09 {
			t.Errorf("0.1 s later: free in %v s and then %v s, unchanged for %v s and then %v s", before[free], after[free], before[unchanged], after[unchanged])
		}
		time.Sleep(12 * time.Second)
		shown := scrape(t, l)
		if v := shown["tenure_lock_vacant_seconds{name=leader}"]; shown["tenure_lock_held{name=leader}"] != 0 || v < 1 || v > 8 {
			t.Errorf("20 s after a kill: held %v, without a holder for %v s", shown["tenure_lock_held{name=leader}"], v)
		}
		testutil.Must(w.Client("b").Acquire(t.Context(), "leader", nil))(t)
		time.Sleep(2 * time.Second)
		want(t, l, "taken over", map[string]float64{
			"tenure_lock_holder{holder=b,name=leader}": 1, recordEnded("leader", "expired"): 1, recordEnded("leader", "released"): 3, "tenure_lock_token{name=leader}": 6,
		})
	})
}

// TestStoreAway cuts the store off: no lock is shown as without a holder then, nor for having
// had none while no poll could see it.
func TestStoreAway(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, l := watcher(t, w, tenureprom.LocksOptions{Leaders: []string{"leader", "free"}})
		testutil.Must(w.Client("a").Acquire(t.Context(), "leader", nil))(t)
		var failed, fine atomic.Int64
		go func() {
			_ = l.Run(t.Context(), func(err error) {
				if err != nil {
					failed.Add(1)
				} else {
					fine.Add(1)
				}
			})
		}()
		time.Sleep(time.Minute)
		want(t, l, "at first", map[string]float64{"tenure_store_up{}": 1, "tenure_lock_held{name=leader}": 1, "tenure_lock_vacant_seconds{name=free}": 60})
		c.Partition()
		time.Sleep(5 * time.Second)
		want(t, l, "just away", map[string]float64{"tenure_store_up{}": 0, "tenure_lock_held{name=leader}": absent})
		for range 550 {
			time.Sleep(100 * time.Millisecond)
			if shown := scrape(t, l); shown["tenure_store_up{}"] == 1 && shown["tenure_lock_held{name=leader}"] != 1 {
				t.Fatal("the store was away, and a lock with a living holder has none by the metrics")
			}
		}
		want(t, l, "away", map[string]float64{
			"tenure_store_up{}": 0, "tenure_lock_held{name=leader}": absent, "tenure_lock_held{name=free}": absent, "tenure_lock_token{name=leader}": absent,
			"tenure_lock_vacant_seconds{name=free}": absent, "tenure_lock_tenures_total{name=leader}": absent, "tenure_polls_total{result=failed}": float64(failed.Load()),
		})
		if n := failed.Load(); n < 10 {
			t.Errorf("%d polls failed in a minute without a store", n)
		}
		c.Heal()
		time.Sleep(10*time.Second + settle)
		want(t, l, "back", map[string]float64{"tenure_store_up{}": 1, "tenure_lock_held{name=leader}": 1, "tenure_polls_total{result=ok}": float64(fine.Load())})
		if v := scrape(t, l)["tenure_lock_vacant_seconds{name=free}"]; v > 10 {
			t.Errorf("10 s after an outage a lock is shown without a holder for %v s", v)
		}
	})
}

// TestStopped shows no lock if polling has stopped.
func TestStopped(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Names: []string{"x"}})
		ctx, stop := context.WithCancel(t.Context())
		run(ctx, l)
		time.Sleep(time.Minute)
		stop()
		want(t, l, "at first", map[string]float64{"tenure_store_up{}": 1, "tenure_lock_held{name=x}": 0, "tenure_lock_vacant_seconds{name=x}": 60})
		time.Sleep(time.Minute)
		want(t, l, "later", map[string]float64{"tenure_store_up{}": 0, "tenure_lock_held{name=x}": absent})
		testutil.Want(t, l.Poll(t.Context()), nil)
		want(t, l, "after a pause", map[string]float64{"tenure_store_up{}": 1, "tenure_lock_vacant_seconds{name=x}": 0})
	})
}

// TestTokenFell loses the record of a lock: the token is shown as it is.
func TestTokenFell(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Names: []string{"x"}})
		run(t.Context(), l)
		a := w.Client("a")
		cycle := func() {
			lease := testutil.Must(a.Acquire(t.Context(), "x", nil))(t)
			time.Sleep(2 * time.Second)
			_ = lease.Release(t.Context())
			time.Sleep(2 * time.Second)
		}
		time.Sleep(settle)
		for range 3 {
			cycle()
		}
		testutil.Want(t, w.Store().Delete(t.Context(), w.Record("x")), nil)
		time.Sleep(2 * time.Second)
		want(t, l, "deleted", map[string]float64{"tenure_lock_token{name=x}": 0, "tenure_lock_tenures_total{name=x}": 3, recordEnded("x", "released"): 3})
		w.Client("b").Kill()
		a = w.Client("c")
		cycle()
		want(t, l, "again", map[string]float64{"tenure_lock_token{name=x}": 1, "tenure_lock_tenures_total{name=x}": 4, recordEnded("x", "released"): 4})
	})
}

// TestRaised has tokens raised by an operator: no term has begun with that.
func TestRaised(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Names: []string{"x"}})
		lease := testutil.Must(w.Client("a").Acquire(t.Context(), "x", nil))(t)
		run(t.Context(), l)
		time.Sleep(2 * time.Second)
		_ = lease.Release(t.Context())
		time.Sleep(2 * time.Second)
		testutil.Must(admin.RaiseTokens(t.Context(), w.Client("operator").Client, "", 1000, nil))(t)
		time.Sleep(2 * time.Second)
		shown := scrape(t, l)
		if shown["tenure_lock_token{name=x}"] < 1000 || shown["tenure_lock_tenures_total{name=x}"] > 1 || shown[recordEnded("x", "raised")] != 1 {
			t.Errorf("after tokens were raised by 1000: token %v, terms %v, raised %v", shown["tenure_lock_token{name=x}"], shown["tenure_lock_tenures_total{name=x}"], shown[recordEnded("x", "raised")])
		}
	})
}

// TestPrefix finds locks by a prefix, as many as may be shown.
func TestPrefix(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Prefixes: []string{"jobs/", "jobs/1"}, Names: []string{"jobs/3", "x"}, Max: 10, Discover: 20 * time.Second})
		run(t.Context(), l)
		time.Sleep(2 * time.Second)
		a := w.Client("a")
		for i := range 14 {
			testutil.Must(a.Acquire(t.Context(), fmt.Sprintf("jobs/%d", i), nil))(t)
		}
		testutil.Must(a.Acquire(t.Context(), "others", nil))(t)
		time.Sleep(30 * time.Second)
		want(t, l, "found", map[string]float64{
			"tenure_lock_held{name=jobs/0}": 1, "tenure_lock_held{name=jobs/3}": 1, "tenure_lock_held{name=others}": absent, "tenure_lock_held{name=x}": 0,
			"tenure_locks_omitted{}": 3, "tenure_lock_held{name=jobs/9}": absent,
		})
		testutil.Want(t, w.Store().Delete(t.Context(), w.Record("jobs/0")), nil)
		time.Sleep(2 * time.Second)
		want(t, l, "deleted", map[string]float64{"tenure_lock_held{name=jobs/0}": absent, "tenure_lock_token{name=jobs/0}": absent, "tenure_lock_held{name=jobs/1}": 1})
		time.Sleep(30 * time.Second)
		want(t, l, "long ago", map[string]float64{"tenure_lock_tenures_total{name=jobs/0}": absent, "tenure_lock_held{name=jobs/1}": 1, "tenure_locks_omitted{}": 2})
		b := w.Client("b")
		for range 3 {
			lease := testutil.Must(b.Acquire(t.Context(), "jobs/0", nil))(t)
			_ = lease.Release(t.Context())
		}
		time.Sleep(30 * time.Second)
		want(t, l, "found again", map[string]float64{"tenure_lock_tenures_total{name=jobs/0}": 0, "tenure_lock_token{name=jobs/0}": 3})
	})
}

// unreadable is a store with an unreadable record.
type unreadable struct{ driver.Store }

func (u unreadable) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	if strings.HasPrefix(key, "strange") {
		return driver.Record{}, driver.ErrUnreadable
	}
	return u.Store.Get(ctx, key, c)
}

// TestUnreadable counts records that cannot be read, and shows the other locks.
func TestUnreadable(t *testing.T) {
	c := testutil.Must(tenure.New(unreadable{memstore.New()}, nil))(t)
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	l := testutil.Must(tenureprom.NewLocks(c, &tenureprom.LocksOptions{Names: []string{"strange", "x"}}))(t)
	testutil.Want(t, l.Poll(t.Context()), nil)
	want(t, l, "polled", map[string]float64{"tenure_store_up{}": 1, "tenure_locks_unreadable{}": 1, "tenure_lock_held{name=strange}": absent, "tenure_lock_held{name=x}": 0})
}

func TestLocksOptions(t *testing.T) {
	c := testutil.Must(tenure.New(memstore.New(), nil))(t)
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	for _, o := range []*tenureprom.LocksOptions{nil, {}, {Names: []string{"x"}, Interval: -1}, {Names: []string{"x"}, Interval: 5}, {Names: []string{"x"}, Discover: 5}, {Names: []string{"x"}, Max: -1}, {Names: []string{"x"}, Discover: -1}} {
		if _, err := tenureprom.NewLocks(c, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	l := testutil.Must(tenureprom.NewLocks(c, &tenureprom.LocksOptions{Names: []string{""}}))(t)
	testutil.Want(t, l.Poll(t.Context()), tenure.ErrInvalid) // a lock without a name
}

// TestClosed ends Run when its client can see nothing any more.
func TestClosed(t *testing.T) {
	c := testutil.Must(tenure.New(memstore.New(), nil))(t)
	l := testutil.Must(tenureprom.NewLocks(c, &tenureprom.LocksOptions{Names: []string{"x"}}))(t)
	testutil.Want(t, c.Close(t.Context()), nil)
	testutil.Want(t, l.Run(t.Context(), nil), tenure.ErrClosed)
	want(t, l, "closed", map[string]float64{"tenure_store_up{}": 0})
}
