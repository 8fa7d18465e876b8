// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// holder is a client that tells metrics of an election "leader".
func holder(w *tenuretest.World, name string, edit ...func(*tenure.Options)) (*tenuretest.Client, *tenureprom.Metrics) {
	m := tenureprom.New(&tenureprom.Options{Elections: []string{"leader"}})
	return w.Client(name, append(edit, m.Attach)...), m
}

func ended(end string) string {
	return fmt.Sprintf("tenure_tenures_ended_total{end=%s,name=leader}", end)
}

func TestTenure(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		want(t, m, "at first", map[string]float64{
			"leader_election_master_status{name=leader}": 0, "tenure_held{name=leader}": 0, "tenure_token{name=leader}": absent,
			"tenure_remaining_seconds{name=leader}": absent, ended("released"): 0, ended("expired"): 0,
			"tenure_acquired_total{name=leader}": 0, "tenure_lease_seconds{}": 15, "tenure_grace_seconds{}": 1.875,
		})
		testutil.Must(c.Acquire(t.Context(), "another", nil))(t)
		time.Sleep(settle)
		want(t, m, "another one is held", map[string]float64{"leader_election_master_status{name=leader}": 0, "tenure_held{name=other}": 1, "tenure_held{name=leader}": 0})
		lease := testutil.Must(c.Acquire(t.Context(), "leader", nil))(t)
		time.Sleep(settle)
		want(t, m, "held", map[string]float64{
			"leader_election_master_status{name=leader}": 1, "tenure_held{name=leader}": 1, "tenure_token{name=leader}": 1,
			"tenure_remaining_seconds{name=leader}": lease.Remaining().Seconds(), "tenure_slack_seconds{name=leader}": (lease.Remaining() - lease.Timing().Grace).Seconds(),
			"tenure_acquired_total{name=leader}": 1,
			"tenure_deadline_seconds{}":          lease.Remaining().Seconds() + settle.Seconds(), "tenure_busy_share{name=leader}": absent,
			"tenure_acquire_wait_seconds{name=leader} count": 1,
		})
		c.Slow(200 * time.Millisecond)
		time.Sleep(time.Hour)
		shown := scrape(t, m)
		beats, took := shown["tenure_heartbeat_seconds{} count"], shown["tenure_heartbeat_seconds{} sum"]
		if beats < 2000 || beats > 2600 || took/beats < 0.199 || took/beats > 0.201 {
			t.Errorf("in an hour %v heartbeats took %v s, want some 1200 of 0.2 s for each of two leases", beats, took)
		}
		want(t, m, "after an hour", map[string]float64{
			"leader_election_master_status{name=leader}": 1, "tenure_remaining_seconds{name=leader}": lease.Remaining().Seconds(),
			"tenure_heartbeats_late_total{name=leader}": 0, "tenure_jeopardy_total{name=leader}": 0, "tenure_events_dropped_total{}": 0,
		})
		testutil.Want(t, lease.Release(t.Context()), nil)
		time.Sleep(settle)
		want(t, m, "released", map[string]float64{
			"leader_election_master_status{name=leader}": 0, "tenure_held{name=leader}": 0, "tenure_token{name=leader}": absent, ended("released"): 1,
		})
	})
}

// TestEnds has a term end in each way that a holder can tell of.
func TestEnds(t *testing.T) {
	for end, way := range map[string]func(t *testing.T, w *tenuretest.World, c *tenuretest.Client, lease *tenure.Lease){
		"stepped_down": func(t *testing.T, w *tenuretest.World, _ *tenuretest.Client, lease *tenure.Lease) {
			go func() {
				_ = w.Client("operator").StepDown(t.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"})
			}()
			<-lease.Context().Done()
			_ = lease.Release(t.Context())
		},
		"handed_over": func(t *testing.T, w *tenuretest.World, _ *tenuretest.Client, lease *tenure.Lease) {
			go func() {
				_ = w.Client("operator").StepDown(t.Context(), "leader", &tenure.StepDownOptions{To: "b", Reason: "a test"})
			}()
			<-lease.Context().Done()
			_ = lease.Release(t.Context())
		},
		"expired": func(t *testing.T, _ *tenuretest.World, c *tenuretest.Client, lease *tenure.Lease) {
			c.Partition()
			<-lease.Context().Done()
			_ = lease.Release(t.Context())
			time.Sleep(time.Minute)
		},
		"revoked": func(t *testing.T, w *tenuretest.World, _ *tenuretest.Client, lease *tenure.Lease) {
			go func() { _ = admin.Revoke(t.Context(), w.Client("operator").Client, "leader", "a test") }()
			<-lease.Context().Done()
			_ = lease.Release(t.Context())
		},
		"stalled": func(t *testing.T, _ *tenuretest.World, _ *tenuretest.Client, lease *tenure.Lease) {
			<-lease.Context().Done()
			_ = lease.Release(t.Context())
		},
		"stop_timeout": func(t *testing.T, w *tenuretest.World, _ *tenuretest.Client, lease *tenure.Lease) {
			go func() {
				_ = w.Client("operator").StepDown(t.Context(), "leader", &tenure.StepDownOptions{Reason: "a test"})
			}()
			<-lease.Context().Done()
			time.Sleep(time.Minute) // it does not stop
		},
		"unreleased": func(t *testing.T, _ *tenuretest.World, c *tenuretest.Client, lease *tenure.Lease) {
			c.Partition()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = lease.Release(ctx)
			time.Sleep(time.Minute)
		},
	} {
		t.Run(end, func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
				c, m := holder(w, "a", func(o *tenure.Options) {
					if end == "stalled" {
						o.ProgressTimeout = 30 * time.Second
					}
				})
				lease := testutil.Must(c.Acquire(t.Context(), "leader", nil))(t)
				way(t, w, c, lease)
				time.Sleep(settle)
				wanted := map[string]float64{"leader_election_master_status{name=leader}": 0, "tenure_held{name=leader}": 0}
				for _, other := range []string{"released", "stepped_down", "handed_over", "expired", "revoked", "superseded", "stalled", "stop_timeout", "unreleased"} {
					wanted[ended(other)] = 0
				}
				wanted[ended(end)] = 1
				want(t, m, "after it ended", wanted)
				w.Heal()
				_ = lease.Release(t.Context())
				time.Sleep(time.Minute)
				want(t, m, "later", wanted) // it ended once
			})
		})
	}
}

// TestNoEvents has a holder that is stopped: its metrics do not say that it leads when its
// deadline has passed, although no event has said so.
func TestNoEvents(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		lease := testutil.Must(c.Acquire(t.Context(), "leader", nil))(t)
		time.Sleep(settle)
		left := lease.Remaining()
		c.Pause()
		time.Sleep(left - time.Second)
		want(t, m, "before the deadline", map[string]float64{"leader_election_master_status{name=leader}": 1, "tenure_remaining_seconds{name=leader}": 1})
		time.Sleep(time.Second + time.Millisecond)
		want(t, m, "after the deadline", map[string]float64{
			"leader_election_master_status{name=leader}": 0, "tenure_held{name=leader}": 0, "tenure_remaining_seconds{name=leader}": absent, ended("expired"): 0,
		})
		c.Resume()
		time.Sleep(time.Minute)
		want(t, m, "after the pause", map[string]float64{"leader_election_master_status{name=leader}": 0, ended("expired"): 1})
	})
}

// TestTwoPrograms counts leaders over a failover: their sum is 1, or 0 for a while, and never 2.
func TestTwoPrograms(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a, am := holder(w, "a")
		b, bm := holder(w, "b")
		lead := func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil }
		for _, c := range []*tenuretest.Client{a, b} {
			go func() { _ = c.Election("leader", nil).Run(t.Context(), lead) }()
		}
		w.Leader("leader").Partition()
		sums := map[float64]int{}
		for range 3000 {
			time.Sleep(20 * time.Millisecond)
			const name = "leader_election_master_status{name=leader}"
			sums[scrape(t, am)[name]+scrape(t, bm)[name]]++
		}
		if sums[1] < 1000 || sums[0] < 100 || sums[2] > 0 {
			t.Errorf("a minute of scrapes saw so many with each number of leaders: %v", sums)
		}
	})
}

// TestLate has heartbeats come through when less than the grace is left.
func TestLate(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		lease := testutil.Must(c.Acquire(t.Context(), "leader", nil))(t)
		for i, late := range []float64{0, 1} {
			time.Sleep(time.Minute)
			c.Partition()
			if i == 0 {
				time.Sleep(4 * time.Second)
			} else {
				time.Sleep(lease.Remaining() - 1700*time.Millisecond) // the grace is 1.875 s
			}
			c.Heal()
			time.Sleep(5 * time.Second)
			want(t, m, fmt.Sprint("outage ", i), map[string]float64{
				"tenure_heartbeats_late_total{name=leader}": late, "tenure_jeopardy_total{name=leader}": float64(i + 1), "leader_election_master_status{name=leader}": 1,
			})
		}
	})
}

// TestSession has locks under a session share its deadline.
func TestSession(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		s := testutil.Must(c.OpenSession(t.Context(), nil))(t)
		for _, name := range []string{"leader", "x", "y"} {
			testutil.Must(s.Acquire(t.Context(), name, nil))(t)
		}
		time.Sleep(time.Hour)
		want(t, m, "after an hour", map[string]float64{
			"leader_election_master_status{name=leader}": 1, "tenure_held{name=other}": 2, "tenure_sessions_open{}": 1,
			"tenure_remaining_seconds{name=leader}": s.Remaining().Seconds(), "tenure_remaining_seconds{name=other}": s.Remaining().Seconds(),
		})
		c.Partition()
		time.Sleep(time.Minute)
		want(t, m, "cut off", map[string]float64{
			"leader_election_master_status{name=leader}": 0, "tenure_held{name=other}": 0, "tenure_sessions_open{}": 0,
		})
		c.Heal()
		_ = s.Close(t.Context())
		time.Sleep(time.Minute)
		want(t, m, "closed", map[string]float64{ended("expired"): 1, "tenure_tenures_ended_total{end=expired,name=other}": 2, "tenure_sessions_ended_total{end=expired}": 1})
	})
}

// TestOwnTiming: a lock with a lease shorter than the client's grace is not always late.
func TestOwnTiming(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		short := tenure.Timing{LeaseDuration: 2 * time.Second}
		lease := testutil.Must(c.Acquire(t.Context(), "leader", &tenure.AcquireOptions{Timing: short}))(t)
		s := testutil.Must(c.OpenSession(t.Context(), &tenure.SessionOptions{Timing: short}))(t)
		testutil.Must(s.Acquire(t.Context(), "x", nil))(t)
		time.Sleep(time.Hour)
		grace := lease.Timing().Grace
		want(t, m, "after an hour", map[string]float64{
			"tenure_slack_seconds{name=leader}": (lease.Remaining() - grace).Seconds(), "tenure_slack_seconds{name=other}": (s.Remaining() - grace).Seconds(),
			"tenure_heartbeats_late_total{name=leader}": 0, "tenure_heartbeats_late_total{name=}": absent, "tenure_grace_seconds{}": 1.875,
		})
		if least := min(lease.Remaining(), s.Remaining()) - grace; least < 0 {
			t.Errorf("the slack is %v while nothing fails", least)
		}
	})
}

// TestBusy shows the busy share.
func TestBusy(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		c, m := holder(w, "a")
		lease := testutil.Must(c.Acquire(t.Context(), "leader", nil))(t)
		for range 60 {
			testutil.Want(t, lease.Do(t.Context(), time.Second, func(context.Context) error { time.Sleep(time.Second); return nil }), nil)
			time.Sleep(3 * time.Second)
		}
		want(t, m, "a quarter", map[string]float64{"tenure_busy_share{name=leader}": 0.25})
	})
}

// TestLabels has the number of series not follow the number of locks, and composes the
// metrics with another callback.
func TestLabels(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		var seen atomic.Int64 // each client has a goroutine for its events
		own := func(o *tenure.Options) { o.OnEvent = func(tenure.Event) { seen.Add(1) } }
		byTenant := tenureprom.New(&tenureprom.Options{Label: func(lock string) string { tenant, _, _ := strings.Cut(lock, "/"); return tenant }})
		a, am := holder(w, "a", own)
		b := w.Client("b", own, byTenant.Attach)
		before := len(scrape(t, am))
		for i := range 500 {
			for _, c := range []*tenuretest.Client{a, b} {
				lease, err := c.Acquire(t.Context(), fmt.Sprintf("t%d/job-%d", i%3, i), nil)
				if errors.Is(err, tenure.ErrInvalid) {
					t.Fatal(err)
				}
				if err == nil {
					_ = lease.Release(t.Context())
				}
			}
		}
		time.Sleep(settle)
		if more := len(scrape(t, am)) - before; more > 30 {
			t.Errorf("500 locks made %d series", more)
		}
		want(t, am, "500 locks", map[string]float64{"tenure_acquired_total{name=other}": 500, "tenure_tenures_ended_total{end=released,name=other}": 500})
		want(t, byTenant, "by tenant", map[string]float64{"tenure_acquired_total{name=t0}": 167, "tenure_acquired_total{name=t2}": 166})
		if n := seen.Load(); n < 2000 {
			t.Errorf("the program's own callback saw %d events, want 2000 and more", n)
		}
	})
}

// TestDropped counts events that were dropped.
func TestDropped(t *testing.T) {
	m := tenureprom.New(nil)
	m.OnEvent(tenure.Event{Kind: tenure.EventWaiting, Lock: "x", Missed: 7})
	m.OnEvent(tenure.Event{Kind: tenure.EventStoreError, Missed: 2}) // of a session that is to be opened
	want(t, m, "dropped", map[string]float64{"tenure_events_dropped_total{}": 9, "tenure_store_errors_total{name=}": 1, "tenure_lease_seconds{}": absent})
}
