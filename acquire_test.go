// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

func TestFreeLockCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		for token := range uint64(3) { // new, then released
			m.faults.ResetLog()
			l := m.mustAcquire("x", nil)
			if n := m.faults.Count(); n != 1 {
				t.Errorf("%d requests to acquire, want 1", n)
			}
			if l.Token() != token+1 || l.Name() != "x" || l.Owner() != "a" {
				t.Errorf("token %d, name %q, owner %q", l.Token(), l.Name(), l.Owner())
			}
			if left := l.Remaining(); left != usable(t) {
				t.Errorf("%v remain, want %v", left, usable(t))
			}
			m.mustRelease(l)
			want(t, l.Check(), tenure.ErrReleased)
			want(t, l.Release(t.Context()), nil) // again
			if n, left := m.faults.Count(), l.Remaining(); n != 2 || left != 0 {
				t.Errorf("%d requests to acquire and release, want 2; %v remain", n, left)
			}
		}
		for range 2 { // a history costs a second one
			m.faults.ResetLog()
			l := m.mustAcquire("x", recorded)
			if n := m.faults.Count(); n != 2 {
				t.Errorf("%d requests to acquire with a history, want 2", n)
			}
			m.mustRelease(l)
		}
	})
}

// The lease counts from before the request was sent, not from the reply.
func TestLeaseCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(300*time.Millisecond, 400*time.Millisecond))
		if l, want := m.mustAcquire("x", nil), usable(t)-700*time.Millisecond; l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
		}
	})
}

// A waiter takes the lock of a crashed holder when it has seen no sign of life
// for a lease, and not before; a look or two later at most.
func TestCrashedHolderIsReplacedAfterALease(t *testing.T) {
	for i := range 10 {
		inWorldRun(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			la := a.mustAcquire("x", nil)
			acquired := started(func() error { b.mustAcquire("x", nil); return nil })
			time.Sleep(time.Duration(i)*777*time.Millisecond + 2*lease)
			a.crash()
			var last time.Time
			for _, c := range a.faults.Log() {
				if c.Done && c.Err == nil {
					last = c.Begin
				}
			}
			want(t, <-acquired, nil)
			want(t, la.Check(), tenure.ErrExpired)
			if took := time.Since(last); took < lease || took > lease+200*time.Millisecond {
				t.Errorf("taken over %v after the last heartbeat, want %v and a little", took, lease)
			}
		})
	}
}

// A release is seen at once where the store has a watch, and after a refresh
// period where it has none.
func TestReleaseWakesTheWaiter(t *testing.T) {
	for name, test := range map[string]struct {
		driver func(*machine) driver.Store
		most   time.Duration
	}{
		"watch":    {func(m *machine) driver.Store { return m.faults.Driver() }, 0},
		"no watch": {func(m *machine) driver.Store { return m.faults }, refresh + refresh/8},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.machine("a")
			c := mustNew(t, test.driver(w.machine("unused")), &tenure.Options{Clock: tenure.MonotonicClock()})
			defer c.Close(t.Context())
			la := a.mustAcquire("x", nil)
			acquired := started(func() error {
				l, err := c.Acquire(t.Context(), "x", nil)
				if err == nil {
					err = l.Release(t.Context())
				}
				return err
			})
			time.Sleep(2 * lease)
			a.mustRelease(la)
			want(t, within(t, 0, test.most, func() error { return <-acquired }), nil)
		})
	}
}

func TestStoreTimeoutBoundsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.crash()
		acquire := func(o *tenure.AcquireOptions) func() error {
			return func() error { _, err := m.Acquire(t.Context(), "x", o); return err }
		}
		// By default the lease duration.
		want(t, within(t, lease, lease+2*requestTimeout, acquire(nil)), context.DeadlineExceeded)
		o := &tenure.AcquireOptions{StoreTimeout: time.Minute}
		want(t, within(t, time.Minute, time.Minute+2*requestTimeout, acquire(o)), context.DeadlineExceeded)
		// Negative: for ever.
		forever := started(acquire(&tenure.AcquireOptions{StoreTimeout: -1}))
		time.Sleep(time.Hour)
		pending(t, "acquire", forever)
		m.faults.SetBlackHole(false)
		want(t, <-forever, nil)
	})
}

// Silence in a row counts, not all of it together.
func TestAnswersNowAndThenAreEnough(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.machine("a").mustAcquire("x", nil)
		b := w.machine("b")
		b.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.N%5 != 0 },
			Fault: faultstore.BlackHole(),
		})
		ctx, stop := context.WithTimeout(t.Context(), 20*lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		want(t, err, ctx.Err())
	})
}

// A record that cannot be understood is never taken, however long it stands.
func TestUnreadableRecordIsNeverTaken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		plant := func(name string, edit func(*driver.Record)) {
			rec := driver.Record{Key: name, Version: "v", Owner: "stranger", Token: 7, Lease: lease, State: driver.Held}
			now, _, err := w.records.Claim(t.Context(), rec)
			if err != nil {
				t.Fatal(err)
			}
			next := now
			next.Version = "w"
			if edit(&next); next.Lease <= 0 {
				return
			}
			if _, err := w.records.Swap(t.Context(), now, next); err != nil {
				t.Fatal(err)
			}
		}
		plant("state", func(r *driver.Record) { r.State = "paused" })
		for range 3 {
			_, err := m.Acquire(t.Context(), "state", nil)
			want(t, err, tenure.ErrUnreadable)
			if got := err.Error(); got != `acquire "state": record unreadable: lease 15s, state "paused", written by "stranger"` {
				t.Errorf("error %q", got)
			}
			_, err = m.TryAcquire(t.Context(), "state", nil)
			want(t, err, tenure.ErrUnreadable)
			_, err = m.Status(t.Context(), "state")
			want(t, err, tenure.ErrUnreadable)
			_, err = m.Election("state", nil).Leader(t.Context())
			want(t, err, tenure.ErrUnreadable)
			for s, err := range m.Locks(t.Context(), "state") {
				want(t, err, tenure.ErrUnreadable)
				if s.Name != "state" {
					t.Errorf("listed %+v", s)
				}
			}
			time.Sleep(10 * lease)
		}
		if rec := w.record("state"); rec.Owner != "stranger" {
			t.Errorf("record %+v", rec)
		}
		// And a store that says so itself.
		f := faultstore.Refuse()
		f.Err = driver.ErrUnreadable
		m.faults.Inject(faultstore.Rule{Key: "lease", Fault: f})
		_, err := m.Acquire(t.Context(), "lease", nil)
		want(t, err, tenure.ErrUnreadable)
	})
}

// A foreign client's record has no beat: its version serves, and the wait is
// longer, because its holder keeps no margin for drift.
func TestForeignRecordIsTakenAfterALongerWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		_, _, err := w.records.Claim(t.Context(), driver.Record{
			Key: "x", Version: "v", Owner: "stranger", Lease: 10 * time.Second, State: driver.Held,
		})
		want(t, err, nil)
		drift := 0.09
		wait := time.Duration(10e9 * (1 + drift) / (1 - drift))
		want(t, within(t, wait, wait+100*time.Millisecond, func() error { _, err := m.Acquire(t.Context(), "x", nil); return err }), nil)
	})
}

func TestDataIsKeptOrReplaced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		previous := func(l *tenure.Lease) string {
			p, _ := l.Previous()
			return p.Owner + " " + p.End + " " + string(p.Data)
		}

		data := []byte("one")
		l := a.mustAcquire("x", &tenure.AcquireOptions{Data: data})
		copy(data, "xxx") // it was copied
		if _, ok := l.Previous(); ok {
			t.Error("a new lock has a previous tenure")
		}
		a.mustRelease(l)
		l = b.mustAcquire("x", nil)
		if got, data := previous(l), string(w.record("x").Data); got != "a released one" || data != "one" {
			t.Errorf("previous %q, data %q", got, data)
		}
		b.crash()
		l = a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte("two")})
		if got, data := previous(l), string(w.record("x").Data); got != "b expired one" || data != "two" {
			t.Errorf("previous %q, data %q", got, data)
		}
		a.mustRelease(l)
		l = a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte{}})
		if got, data := previous(l), w.record("x").Data; got != "a released two" || len(data) != 0 {
			t.Errorf("previous %q, data %q", got, data)
		}
	})
}

// A process that looks once cannot tell a dead holder from a living one. With
// UnlessAlive it watches until it can.
func TestUnlessAlive(t *testing.T) {
	unless := &tenure.AcquireOptions{UnlessAlive: true}
	inWorldRun(t, "free", func(t *testing.T, w *world) {
		b := w.machine("b")
		l, err := b.Acquire(t.Context(), "x", unless)
		want(t, err, nil)
		want(t, l.Check(), nil)
		if n := b.faults.Count(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
	inWorldRun(t, "held", func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		for range 5 {
			want(t, within(t, 0, heartbeat+2*refresh, func() error {
				_, err := b.Acquire(t.Context(), "x", unless)
				return err
			}), tenure.ErrHeld)
		}
	})
	inWorldRun(t, "released meanwhile", func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		asked := started(func() error {
			_, err := b.Acquire(t.Context(), "x", unless)
			return err
		})
		time.Sleep(time.Millisecond)
		a.mustRelease(l) // it was at work: that is a sign of life
		want(t, <-asked, tenure.ErrHeld)
	})
	inWorldRun(t, "dead", func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		var l *tenure.Lease
		want(t, within(t, lease, lease+refresh, func() (err error) {
			l, err = b.Acquire(t.Context(), "x", unless)
			return err
		}), nil)
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
	})
}

// Data that another holder writes while a claim is under way stay.
func TestClaimKeepsDataWrittenMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte("old")}))
		_, err := b.Status(t.Context(), "x")
		want(t, err, nil)
		b.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(time.Second, 0))
		acquired := started(func() error { b.mustAcquire("x", nil); return nil })
		time.Sleep(time.Second / 2)
		l := a.mustAcquire("x", nil)
		want(t, l.SetData(t.Context(), []byte("new")), nil)
		a.mustRelease(l)
		want(t, <-acquired, nil)
		if got := string(w.record("x").Data); got != "new" {
			t.Errorf("data %q", got)
		}
	})
}
