// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// ownedBy gives a client that owner name, which another client may have too.
func ownedBy(owner string) func(*tenure.Options) {
	return func(o *tenure.Options) { o.Owner, o.Host = owner, "host-of-"+owner }
}

// seize takes the lock from its holder behind the protocol's back, as an
// operator can.
func seize(t *testing.T, w *world, name string, edit func(*driver.Record)) {
	t.Helper()
	rec := w.MustRecord(name)
	next := rec.Clone()
	next.Version += "'"
	edit(&next)
	if _, err := w.Records().Swap(t.Context(), rec, next); err != nil {
		t.Fatal(err)
	}
}

func TestSupersededLeaseSaysByWhom(t *testing.T) {
	for name, test := range map[string]struct {
		seize func(*testing.T, *world)
		by    tenure.SupersededError
		text  string
	}{
		"another holder": {
			func(t *testing.T, w *world) {
				seize(t, w, "x", func(r *driver.Record) { r.Owner, r.Token = "operator", 2 })
			},
			tenure.SupersededError{Owner: "operator", Token: 2},
			`release "x": lease superseded by "operator" under token 2`,
		},
		"another holder, after a revoked one": {
			func(t *testing.T, w *world) {
				seize(t, w, "x", func(r *driver.Record) { r.Owner, r.Token = "b", 2 })
				seize(t, w, "x", func(r *driver.Record) {
					asked := &driver.Request{ID: "r", Kind: driver.Revoke, By: "somebody", Reason: "not of this term"}
					r.Owner, r.Token = "operator", 3
					r.Prev = &driver.Term{Token: 2, Owner: "b", End: driver.EndRevoked, Asked: asked}
				})
			},
			tenure.SupersededError{Owner: "operator", Token: 3},
			`release "x": lease superseded by "operator" under token 3`,
		},
		"released": {
			func(t *testing.T, w *world) {
				seize(t, w, "x", func(r *driver.Record) { r.State = driver.Released })
			},
			tenure.SupersededError{Owner: "a", Token: 1, Released: true},
			`release "x": lease superseded: the record was released under token 1`,
		},
		"deleted": {
			func(t *testing.T, w *world) {
				testutil.Want(t, w.Records().Delete(t.Context(), w.MustRecord("x")), nil)
			},
			tenure.SupersededError{},
			`release "x": lease superseded: the record is gone`,
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			l := m.MustAcquire("x", nil)
			time.Sleep(lease)
			test.seize(t, w)
			testutil.Want(t, testutil.Within(t, 0, heartbeat, func() error { <-l.Context().Done(); return nil }), nil)
			testutil.Want(t, l.Check(), tenure.ErrSuperseded)
			testutil.Want(t, l.Check(), tenure.ErrLost)
			by, ok := errors.AsType[*tenure.SupersededError](context.Cause(l.Context()))
			if !ok || *by != test.by {
				t.Errorf("superseded by %+v, want %+v", by, test.by)
			}
			testutil.Want(t, l.Renew(t.Context()), tenure.ErrSuperseded)
			testutil.Want(t, l.SetData(t.Context(), nil), tenure.ErrSuperseded)
			err := l.Release(t.Context())
			testutil.Want(t, err, tenure.ErrSuperseded)
			testutil.Want(t, err, tenure.ErrLost)
			if err.Error() != test.text {
				t.Errorf("error %q", err)
			}
			if got := kinds(m); got != "acquired lost ended" {
				t.Errorf("events: %s", got)
			}
		})
	}
}

// The lease can still be lost while work drains, and Check then fails at once.
func TestSupersededWhileDraining(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		ctx, stop := context.WithCancel(t.Context())
		err := m.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			stop()
			<-ctx.Done()
			testutil.Want(t, l.Check(), nil)
			seize(t, w, "x", func(r *driver.Record) { r.Owner, r.Token = "operator", 2 })
			time.Sleep(time.Millisecond)
			testutil.Want(t, l.Renew(context.WithoutCancel(ctx)), tenure.ErrSuperseded)
			testutil.Want(t, l.Check(), tenure.ErrSuperseded)
			if left := l.Remaining(); left != 0 {
				t.Errorf("%v remain", left)
			}
			return nil
		})
		testutil.Want(t, err, tenure.ErrSuperseded)
	})
}

func TestRenewAndManualHeartbeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a", func(o *tenure.Options) { o.ManualHeartbeat = true })
		l := m.MustAcquire("x", nil)
		for range 10 {
			time.Sleep(usable - time.Second)
			testutil.Want(t, l.Check(), nil)
			testutil.Want(t, l.Renew(t.Context()), nil)
			if left := l.Remaining(); left != usable {
				t.Errorf("%v remain", left)
			}
		}
		if n := m.Faults().Count(faultstore.OpHeartbeat); n != 10 {
			t.Errorf("%d heartbeats, want 10", n)
		}
		if rec := w.MustRecord("x"); rec.Heartbeat != 0 {
			t.Errorf("the record promises a heartbeat every %v", rec.Heartbeat)
		}
		time.Sleep(usable)
		testutil.Want(t, l.Check(), tenure.ErrExpired)
		testutil.Want(t, l.Renew(t.Context()), tenure.ErrExpired)
	})
}

// A heartbeat that was sent before the call does not answer it.
func TestRenewWaitsForAHeartbeatOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpHeartbeat, 0, 0, faultstore.Slow(0, time.Second))
		before := m.Faults().Count(faultstore.OpHeartbeat)
		for m.Faults().Count(faultstore.OpHeartbeat) == before {
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Now() // one is under way
		testutil.Want(t, l.Renew(t.Context()), nil)
		if took := time.Since(start); took < 1900*time.Millisecond || took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestRenewIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		time.Sleep(time.Millisecond)
		m.Inject(faultstore.OpHeartbeat, 0, 3, faultstore.LoseRequest())
		testutil.Want(t, l.Renew(t.Context()), nil)
		// Renew does not retry for ever: the lease ends.
		m.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		time.Sleep(time.Nanosecond)
		testutil.Want(t, testutil.Within(t, usable-1, usable-1, func() error {
			return l.Renew(t.Context())
		}), tenure.ErrExpired)
	})
}

func TestSetDataKeepsTheLastOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		l := m.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("first")})
		m.Inject(faultstore.OpSetData, 0, 0, faultstore.Slow(time.Second-1, 0))
		one, two, three := []byte("one"), []byte("two"), []byte("three")
		var done []<-chan error
		for _, data := range [][]byte{one, two, three} {
			done = append(done, testutil.Go(func() error { return l.SetData(t.Context(), data) }))
			synctest.Wait()
		}
		copy(three, "xxxxx") // it was copied
		for _, d := range done {
			testutil.Want(t, <-d, nil)
		}
		if got := string(w.MustRecord("x").Data); got != "three" {
			t.Errorf("data %q", got)
		}
		if n := m.Faults().Count(faultstore.OpSetData); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		if left := l.Remaining(); left < usable-time.Second {
			t.Errorf("%v remain: the lease was not renewed", left)
		}
		testutil.Want(t, l.SetData(t.Context(), nil), nil)
		if got := w.MustRecord("x").Data; len(got) != 0 {
			t.Errorf("data %q", got)
		}
		err := l.SetData(t.Context(), make([]byte, driver.MaxDataLen+1))
		if err == nil || err.Error() != `set data "x": data has 262145 bytes: at most 262144 are allowed` {
			t.Errorf("error %v", err)
		}
		mustRelease(m, l)
		testutil.Want(t, l.SetData(t.Context(), nil), tenure.ErrReleased)
	})
}

func TestDoNeedsEnoughOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a", func(o *tenure.Options) { o.ManualHeartbeat = true })
		l := m.MustAcquire("x", nil)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, 1)
		ran := 0
		work := func(ctx context.Context) error {
			ran++
			if from, ok := tenure.FromContext(ctx); !ok || from != l || ctx.Value(key{}) != 1 {
				t.Error("the context of the work is not that of Bind")
			}
			time.Sleep(time.Second)
			return errWork
		}
		testutil.Want(t, l.Do(ctx, usable, work), errWork)
		err := l.Do(ctx, usable, work)
		testutil.Want(t, err, tenure.ErrTooLate)
		if got := err.Error(); got != `do "x": not enough of the lease remains: 9.648s left, 10.647935779s needed` {
			t.Errorf("error %q", got)
		}
		if ran != 1 {
			t.Errorf("work ran %d times", ran)
		}
		time.Sleep(time.Second)
		if busy, held := l.Busy(); busy != time.Second || held != 2*time.Second {
			t.Errorf("busy %v of %v", busy, held)
		}
		func() {
			defer func() { _ = recover() }()
			_ = l.Do(ctx, 0, func(context.Context) error { time.Sleep(time.Second); panic("boom") })
		}()
		if busy, _ := l.Busy(); busy != 2*time.Second {
			t.Errorf("busy %v after a panic", busy)
		}
		time.Sleep(lease)
		testutil.Want(t, l.Do(ctx, 0, work), tenure.ErrExpired)
		mustRelease(m, m.MustAcquire("y", nil))
	})
}

func TestBindEndsWithEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)

		ctx, cancel := context.WithCancelCause(t.Context())
		bound, stop := l.Bind(ctx)
		defer stop()
		cancel(errWork)
		<-bound.Done()
		testutil.Want(t, context.Cause(bound), errWork)
		testutil.Want(t, l.Check(), nil) // the lease lives on
		testutil.Want(t, l.Context().Err(), nil)

		bound, stop = l.Bind(t.Context())
		stop()
		testutil.Want(t, bound.Err(), context.Canceled)

		bound, stop = l.Bind(t.Context())
		defer stop()
		mustRelease(m, l)
		<-bound.Done()
		testutil.Want(t, context.Cause(bound), tenure.ErrReleased)
		bound, stop = l.Bind(t.Context()) // too late
		defer stop()
		testutil.Want(t, context.Cause(bound), tenure.ErrReleased)
		if _, ok := tenure.FromContext(t.Context()); ok {
			t.Error("a lease in a context without one")
		}
		if from, ok := tenure.FromContext(l.Context()); !ok || from != l {
			t.Error("no lease in its own context")
		}
	})
}

// Release with the lease's own context is a release like any other.
func TestReleaseUnderItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for range 50 {
			l := m.MustAcquire("x", nil)
			m.Inject(faultstore.OpRelease, 0, 1, faultstore.Slow(0, time.Millisecond))
			bound, stop := l.Bind(t.Context())
			testutil.Want(t, l.Release(bound), nil)
			stop()
			l = m.MustAcquire("x", nil)
			testutil.Want(t, l.Release(l.Context()), nil)
		}
	})
}

// Work that shows no progress loses the lock while its process lives.
func TestStalledWorkLosesTheLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const patience = lease / 2
		a, b := w.Client("a", func(o *tenure.Options) { o.ProgressTimeout = patience }), w.Client("b")
		next := make(chan time.Time, 1)
		err := a.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			go func() { b.MustAcquire("x", nil); next <- time.Now() }()
			for range 40 {
				time.Sleep(patience - time.Millisecond)
				l.Progress()
				testutil.Want(t, l.Check(), nil)
			}
			testutil.Want(t, testutil.Within(t, patience, patience, func() error {
				<-ctx.Done()
				return context.Cause(ctx)
			}), tenure.ErrStalled)
			stalled := time.Now()
			testutil.Want(t, l.Check(), tenure.ErrStalled)
			testutil.Want(t, l.Check(), tenure.ErrLost)
			l.Progress() // too late
			testutil.Want(t, l.Check(), tenure.ErrStalled)
			// The work shows no progress: no more heartbeats.
			if took := (<-next).Sub(stalled); took < 0 || took > lease+time.Second {
				t.Errorf("the next holder began after %v", took)
			}
			return nil
		})
		testutil.Want(t, err, tenure.ErrStalled)
		testutil.Want(t, err, tenure.ErrLost)
	})
}

// Expired is final: although no process took the lock, and the store is back, the lease
// has ended.
func TestExpiredIsFinal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		l := m.MustAcquire("x", nil)
		m.Faults().SetBlackHole(true)
		<-l.Context().Done()
		m.Faults().SetBlackHole(false)
		for range 100 {
			time.Sleep(lease / 10)
			testutil.Want(t, l.Check(), tenure.ErrExpired)
			if left := l.Remaining(); left != 0 {
				t.Errorf("%v remain", left)
			}
		}
		testutil.Want(t, l.Renew(t.Context()), tenure.ErrExpired)
		testutil.Want(t, l.SetData(t.Context(), nil), tenure.ErrExpired)
		testutil.Want(t, l.Do(t.Context(), 0, nil), tenure.ErrExpired)
		err := l.Release(t.Context())
		testutil.Want(t, err, tenure.ErrExpired)
		if got := err.Error(); got != `release "x": lease expired` {
			t.Errorf("error %q", got)
		}
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

// A beat has the form T-n. Each acquire makes its own T, the id of its lease, each beat its own
// n; and the version that a grant or a heartbeat writes is the beat.
func TestBeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		terms, seen := map[string]uint64{}, map[string]bool{}
		for range 5 {
			l := a.MustAcquire("x", nil)
			for range 4 {
				rec := w.MustRecord("x")
				term, n, ok := strings.Cut(rec.Beat, "-")
				if !ok || term == "" || term != l.ID() || n == "" || strings.Contains(n, "-") || rec.Version != rec.Beat {
					t.Errorf("beat %q, version %q", rec.Beat, rec.Version)
				}
				if token, used := terms[term]; used && token != l.Token() {
					t.Errorf("beat %q of token %d has the term of token %d", rec.Beat, l.Token(), token)
				}
				if seen[n] {
					t.Errorf("the second part of %q was used before", rec.Beat)
				}
				terms[term], seen[n] = l.Token(), true
				time.Sleep(heartbeat)
			}
			mustRelease(a, l)
			if rec := w.MustRecord("x"); rec.State != driver.Released {
				t.Fatal(rec.State)
			}
		}
		if len(terms) != 5 {
			t.Errorf("%d terms in the beats of 5 leases", len(terms))
		}
	})
}

// The client repeats a throttled heartbeat later than after another failure: after an
// eighth of the period at first, then twice that.
func TestThrottledHeartbeatWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		f := faultstore.Refuse()
		f.Err = driver.Throttled(faultstore.ErrInjected)
		a.Inject(faultstore.OpHeartbeat, 0, 3, f)
		l := a.MustAcquire("x", nil)
		time.Sleep(heartbeat + heartbeat/2 + heartbeat)
		var at []time.Time
		for _, call := range a.Faults().Log() {
			if call.Op == faultstore.OpHeartbeat {
				at = append(at, call.Begin)
			}
		}
		if len(at) < 4 {
			t.Fatalf("%d heartbeats", len(at))
		}
		for i, most := range []time.Duration{heartbeat / 8, heartbeat / 4, heartbeat / 2} {
			if pause := at[i+1].Sub(at[i]); pause < most/2 || pause > most {
				t.Errorf("tried again after %v the %d. time, want %v to %v", pause, i+1, most/2, most)
			}
		}
		testutil.Want(t, l.Check(), nil)
		mustRelease(a, l)
	})
}

// The heartbeats of many locks do not come in one burst.
func TestHeartbeatsAreSpreadOut(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		for _, name := range names(1000) {
			m.MustAcquire(name, nil)
		}
		const slice = 100 * time.Millisecond
		for range 4 * heartbeat / slice {
			before := m.Faults().Count(faultstore.OpHeartbeat)
			time.Sleep(slice)
			if n := m.Faults().Count(faultstore.OpHeartbeat) - before; n > 150 {
				t.Errorf("%d of 1000 heartbeats within %v", n, slice)
			}
		}
	})
}

// Work of known length gives the known share.
func TestBusyShare(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for _, tc := range []struct {
		name       string
		work, rest time.Duration
		parallel   int
		capacity   int
		share      float64
	}{
		{"idle", 0, time.Second, 1, 0, 0},
		{"a quarter", time.Second, 3 * time.Second, 1, 0, 0.25},
		{"always", time.Second, 0, 1, 1, 1},
		{"long pieces", 10 * time.Minute, 0, 1, 1, 1},
		{"three of four", time.Second, 0, 3, 4, 0.75},
		{"two at once, by halves", 2 * time.Second, 2 * time.Second, 2, 2, 0.5},
		{"more than it can", time.Second, 0, 3, 2, 1.5},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			m := w.Client("a")
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			l := m.MustAcquire("x", &tenure.AcquireOptions{Capacity: tc.capacity})
			var all sync.WaitGroup
			for range tc.parallel {
				all.Go(func() {
					for ctx.Err() == nil {
						testutil.Want(t, l.Do(ctx, 0, func(context.Context) error { time.Sleep(tc.work); return nil }), nil)
						time.Sleep(tc.rest)
					}
				})
			}
			time.Sleep(30*time.Minute + 1)
			near := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got-want) > 0.02 {
					t.Errorf("%s: %.3f, want %.3f", what, got, want)
				}
			}
			near("share", l.BusyShare(), tc.share)
			busy, held := l.Busy()
			near("busy of held", float64(busy)/float64(held)/float64(max(1, tc.capacity)), tc.share)
			events := m.Events(tenure.EventBusy)
			if len(events) != 30 && len(events) != 29 {
				t.Errorf("%d events in half an hour", len(events))
			}
			for _, e := range events {
				near("event", e.Share, tc.share)
				if e.Held != 4*lease || e.Token != l.Token() {
					t.Errorf("event %+v", e)
				}
			}
			stop()
			all.Wait()
			mustRelease(m, l)
		})
	}
}

// The share of a holder that was busy and is idle now goes down.
func TestBusyShareIsRecent(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		_ = l.Do(t.Context(), 0, func(context.Context) error { time.Sleep(time.Hour); return nil })
		if s := l.BusyShare(); s < 0.99 {
			t.Errorf("share %.2f after an hour of work", s)
		}
		time.Sleep(9 * lease)
		if s := l.BusyShare(); s != 0 {
			t.Errorf("share %.2f after two periods of rest", s)
		}
		mustRelease(m, l)
		late := m.MustAcquire("z", nil)
		time.Sleep(time.Hour)
		_ = late.Do(t.Context(), 0, func(context.Context) error { time.Sleep(time.Second); return nil })
		if s := late.BusyShare(); s > 0.01 {
			t.Errorf("share %.2f after an hour without work and a second of it", s)
		}
		mustRelease(m, late)
		quiet := m.MustAcquire("y", nil)
		time.Sleep(time.Hour)
		mustRelease(m, quiet)
		for _, e := range m.Events(tenure.EventBusy) {
			if e.Lock == "y" {
				t.Error("an event of a holder that never used Do")
			}
		}
	})
}

// A deleted record restarts with token 1. A holder from before the deletion does not
// take the new record for its own, although owner and token are the same.
func TestDeletedRecordIsNotAdopted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("same name"), w.Client("another", ownedBy("same name"))
		l := a.MustAcquire("x", nil)
		testutil.Want(t, w.Records().Delete(t.Context(), w.MustRecord("x")), nil)
		m := b.MustAcquire("x", nil)
		if l.Token() != m.Token() || l.Owner() != m.Owner() {
			t.Fatalf("tokens %d and %d, owners %q and %q: the test has lost its point", l.Token(), m.Token(), l.Owner(), m.Owner())
		}
		time.Sleep(heartbeat)
		testutil.Want(t, l.Check(), tenure.ErrSuperseded)
		time.Sleep(time.Minute)
		testutil.Want(t, m.Check(), nil)
		mustRelease(b, m)
	})
}

var errWork = errors.New("work failed")

func TestRunHoldsTheLockAroundTheWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		for _, result := range []error{nil, errWork} {
			err := m.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				testutil.Want(t, l.Check(), nil)
				testutil.Want(t, ctx.Err(), nil)
				if rec := w.MustRecord("x"); rec.State != driver.Held || rec.Token != l.Token() {
					t.Errorf("record %+v", rec)
				}
				if ctx.Value(key{}) != "value" {
					t.Error("the context of the work lacks the caller's values")
				}
				if from, ok := tenure.FromContext(ctx); !ok || from != l {
					t.Error("FromContext does not return the lease")
				}
				return result
			})
			if err != result { //nolint:errorlint // what work returns, as it is
				t.Errorf("got %v, want %v", err, result)
			}
			if rec := w.MustRecord("x"); rec.State != driver.Released {
				t.Errorf("record %+v", rec)
			}
		}
	})
}

func TestTryRunRunsOrSkips(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		unwanted := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
		err := a.TryRun(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			testutil.Want(t, l.Check(), nil)
			err := testutil.Within(t, 0, lease/5, func() error { return b.TryRun(ctx, "x", nil, unwanted) })
			testutil.Want(t, err, tenure.ErrHeld)
			var held *tenure.HeldError
			if !errors.As(err, &held) || held.Token != l.Token() {
				t.Errorf("error %v does not say who holds the lock", err)
			}
			return errWork
		})
		if err != errWork { //nolint:errorlint // what work returns, as it is
			t.Errorf("got %v, want %v", err, errWork)
		}
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestRunSaysThatTheLeaseWasLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		err := m.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			m.Partition()
			<-ctx.Done()
			testutil.Want(t, context.Cause(ctx), tenure.ErrExpired)
			testutil.Want(t, l.Check(), tenure.ErrLost)
			m.Faults().SetBlackHole(false)
			return errWork
		})
		testutil.Want(t, err, tenure.ErrLost)
		testutil.Want(t, err, tenure.ErrExpired)
		testutil.Want(t, err, errWork)
		if got := err.Error(); got != "run \"x\": lease expired\nwork failed" {
			t.Errorf("error %q", got)
		}
		// A release after a loss saves others the rest of the lease.
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

// When the caller's context ends, so does the work's, and heartbeats go on until the
// work has returned.
func TestRunCoversWorkThatDrains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		ctx, stop := context.WithCancelCause(t.Context())
		const drain = stopTimeout - time.Second
		var done time.Time
		run := testutil.Go(func() error {
			return a.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				<-ctx.Done()
				testutil.Want(t, context.Cause(ctx), errWork)
				<-l.Context().Done()
				testutil.Want(t, context.Cause(l.Context()), errWork)
				for range drain / time.Second {
					time.Sleep(time.Second)
					testutil.Want(t, l.Check(), nil)
				}
				testutil.Want(t, l.SetData(context.WithoutCancel(ctx), []byte("last checkpoint")), nil)
				done = time.Now()
				return nil
			})
		})
		next := make(chan time.Time)
		time.Sleep(time.Second)
		go func() {
			l := b.MustAcquire("x", nil)
			next <- time.Now()
			if p, _ := l.Previous(); p.End != "released" || string(p.Data) != "last checkpoint" {
				t.Errorf("previous %+v", p)
			}
		}()
		time.Sleep(3 * lease)
		stop(errWork)
		if at := <-next; at.Before(done) || at.Sub(done) > 0 {
			t.Errorf("the next holder began %v after the work ended", at.Sub(done))
		}
		testutil.Want(t, <-run, nil)
		if got := kinds(a); got != "acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

// Work that outlasts StopTimeout: heartbeats end, Check fails, the lock is not released
// before the work returns, and no other holder begins until the record has expired.
func TestWorkThatOutlastsStopTimeout(t *testing.T) {
	for name, drain := range map[string]time.Duration{"a little": stopTimeout + 3*time.Second, "long": 4 * lease} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			ctx, stop := context.WithCancel(t.Context())
			var told, done time.Time
			run := testutil.Go(func() error {
				return a.Run(ctx, "x", nil, func(ctx context.Context, l *tenure.Lease) error {
					<-ctx.Done()
					told = time.Now()
					time.Sleep(stopTimeout - 1)
					testutil.Want(t, l.Check(), nil)
					time.Sleep(2 * time.Nanosecond)
					testutil.Want(t, l.Check(), tenure.ErrStopTimeout)
					testutil.Want(t, l.Renew(context.WithoutCancel(ctx)), tenure.ErrStopTimeout)
					time.Sleep(drain - time.Since(told))
					testutil.Want(t, l.Check(), tenure.ErrStopTimeout)
					done = time.Now()
					return nil
				})
			})
			time.Sleep(time.Second)
			next := make(chan time.Time)
			go func() { b.MustAcquire("x", nil); next <- time.Now() }()
			time.Sleep(lease)
			stop()
			testutil.Want(t, <-run, tenure.ErrStopTimeout)
			at := <-next
			if least := stopTimeout + lease - heartbeat; at.Before(done) && at.Sub(told) < least {
				t.Errorf("the next holder began %v after the stop, want %v at least", at.Sub(told), least)
			}
			if got := kinds(a); got[:len("acquired stopping stop_timeout")] != "acquired stopping stop_timeout" {
				t.Errorf("events: %s", got)
			}
		})
	}
}

// Work that releases its lease itself has done what Run would have done.
func TestWorkMayRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		testutil.Want(t, m.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
			testutil.Want(t, l.Release(ctx), nil)
			<-ctx.Done()
			testutil.Want(t, context.Cause(ctx), tenure.ErrReleased)
			testutil.Want(t, l.Check(), tenure.ErrReleased)
			return nil
		}), nil)
	})
}

// runners are the ways in which work is run under a lock.
var runners = map[string]func(context.Context, *machine, func(context.Context, *tenure.Lease) error) error{
	"run": func(ctx context.Context, m *machine, work func(context.Context, *tenure.Lease) error) error {
		return m.Run(ctx, "x", nil, work)
	},
	"election": func(ctx context.Context, m *machine, work func(context.Context, *tenure.Lease) error) error {
		return m.Election("x", nil).Run(ctx, work)
	},
}
