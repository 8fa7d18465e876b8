// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// Close with an acquire pending returns the waiter at once, and disturbs no
// lease: that of another client, and its own until it is released.
func TestCloseReturnsWaitersAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		taken := a.mustAcquire("taken", nil)
		own := b.mustAcquire("own", nil)
		waiters := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := b.Acquire(t.Context(), "taken", nil)
				waiters <- err
			}()
		}
		observer := started(func() (last error) {
			for _, last = range b.Election("taken", nil).Observe(t.Context()) {
			}
			return last
		})
		time.Sleep(lease)

		closed := started(func() error { return b.Close(t.Context()) })
		want(t, within(t, 0, 0, func() error { return errors.Join(<-waiters, <-waiters, <-waiters) }), tenure.ErrClosed)
		want(t, within(t, 0, 0, func() error { return <-observer }), tenure.ErrClosed)
		want(t, within(t, 0, 0, func() error { <-own.Context().Done(); return context.Cause(own.Context()) }), tenure.ErrClosed)

		time.Sleep(stopTimeout - time.Second)
		pending(t, "close", closed)
		want(t, own.Check(), nil) // it can still write its checkpoint
		want(t, own.Renew(t.Context()), nil)
		want(t, own.Release(t.Context()), nil)
		want(t, within(t, 0, 0, func() error { return <-closed }), nil)
		want(t, taken.Check(), nil)
		want(t, taken.Context().Err(), nil)
	})
}

// Work that is running when the client is closed is covered by heartbeats
// until it has returned, and nobody starts beside it.
func TestCloseKeepsBeatingUntilTheWorkIsDone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		const drain = lease - time.Second
		working := false
		run := started(func() error {
			return a.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				working = true
				<-ctx.Done()
				want(t, context.Cause(ctx), tenure.ErrClosed)
				time.Sleep(drain)
				want(t, l.Check(), nil)
				working = false
				return nil
			})
		})
		time.Sleep(lease)
		next := started(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if working {
				t.Error("another holder began beside the work")
			}
			return errors.Join(err, l.Release(t.Context()))
		})
		want(t, within(t, drain, drain, func() error { return a.Close(t.Context()) }), nil)
		want(t, <-run, nil)
		want(t, <-next, nil)
	})
}

// Work that never returns is covered for StopTimeout and no longer. Then Close
// returns and says so, and the record runs out by itself.
func TestCloseLeavesWorkBehindAfterStopTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		stuck := make(chan struct{})
		run := started(func() error {
			return a.Run(t.Context(), "x", nil, func(context.Context, *tenure.Lease) error { <-stuck; return nil })
		})
		time.Sleep(lease)
		err := within(t, stopTimeout, stopTimeout, func() error { return a.Close(t.Context()) })
		if err == nil || err.Error() != `tenure: close: leases not released: 1; their records run out within 15s` {
			t.Errorf("close: %v", err)
		}
		if rec := w.record("x"); rec.State != driver.Held || rec.Owner != "a" {
			t.Errorf("record %+v", rec)
		}
		n := a.faults.Count()
		l := b.mustAcquire("x", nil)
		if l.Token() != 2 {
			t.Errorf("token %d", l.Token())
		}
		close(stuck)
		want(t, <-run, tenure.ErrStopTimeout)
		if more := a.faults.Count() - n; more != 0 {
			t.Errorf("%d requests after Close", more)
		}
	})
}

func TestCloseWithoutAnswerEndsWithItsContext(t *testing.T) {
	each(t, hangs, func(t *testing.T, f faultstore.Fault) {
		m, l := hanging(t, f)
		go func() { _, _ = m.Acquire(t.Context(), "free", nil) }()
		go func() { _ = l.Release(t.Context()) }()
		time.Sleep(heartbeat)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		want(t, within(t, time.Second, time.Second, func() error { return m.Close(ctx) }), context.DeadlineExceeded)
	})
}

// Without an end of its context, Close ends all the same.
func TestCloseWithoutAnswerEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := hanging(t, faultstore.BlackHole())
		acquired := started(func() error { _, err := m.Acquire(t.Context(), "free", nil); return err })
		released := started(func() error { return l.Release(t.Context()) })
		time.Sleep(requestTimeout)
		if err := within(t, 0, lease+2*requestTimeout, func() error { return m.Close(t.Context()) }); err != nil {
			t.Logf("close: %v", err)
		}
		want(t, <-acquired, tenure.ErrClosed)
		want(t, <-released, tenure.ErrUncertain)
	})
}

func TestClosedClientRefusesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		m.mustRelease(l)
		want(t, m.Close(t.Context()), nil)
		n := m.faults.Count()

		ctx := t.Context()
		work := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
		_, err := m.Acquire(ctx, "x", nil)
		want(t, err, tenure.ErrClosed)
		_, err = m.TryAcquire(ctx, "x", nil)
		want(t, err, tenure.ErrClosed)
		want(t, m.Run(ctx, "x", nil, work), tenure.ErrClosed)
		_, err = m.Status(ctx, "x")
		want(t, err, tenure.ErrClosed)
		for _, err := range m.Locks(ctx, "") {
			want(t, err, tenure.ErrClosed)
		}
		e := m.Election("x", nil)
		want(t, e.Run(ctx, work), tenure.ErrClosed)
		_, err = e.Leader(ctx)
		want(t, err, tenure.ErrClosed)
		for _, err := range e.Observe(ctx) {
			want(t, err, tenure.ErrClosed)
		}
		want(t, m.Close(ctx), tenure.ErrClosed)
		want(t, l.Release(ctx), nil) // it was released before
		if got := m.faults.Count(); got != n {
			t.Errorf("%d requests after Close", got-n)
		}
	})
}

// A lease of which Close did not wait for the release is not released later.
func TestLeaseAfterCloseSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		want(t, m.Close(ctx), context.DeadlineExceeded)
		n := m.faults.Count()
		want(t, l.Release(t.Context()), tenure.ErrUncertain)
		want(t, l.Release(t.Context()), tenure.ErrClosed)
		time.Sleep(lease)
		if more := m.faults.Count() - n; more != 0 {
			t.Errorf("%d requests after Close", more)
		}
	})
}

// The moment of Close does not matter to an acquire that is just winning: it
// fails with ErrClosed, or has a lease that is released.
func TestCloseWhileAClaimIsUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		acquired := started(func() error { _, err := m.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(time.Second / 2)
		closed := started(func() error { return m.Close(t.Context()) })
		want(t, within(t, 0, 0, func() error { return <-acquired }), tenure.ErrClosed)
		want(t, within(t, time.Second/2, time.Second/2, func() error { return <-closed }), nil)
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

// One release that fails keeps Close from none of the others.
func TestCloseReleasesWhatItCan(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		for _, name := range names(10) {
			go func() {
				_ = m.Run(t.Context(), name, nil, func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
			}()
		}
		time.Sleep(time.Second)
		m.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Key: "lock-00003", Fault: faultstore.BlackHole()})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := m.Close(ctx); err == nil {
			t.Error("Close says that all was released")
		}
		for i, name := range names(10) {
			if rec := w.record(name); (rec.State == driver.Released) != (i != 3) {
				t.Errorf("%s is %s", name, rec.State)
			}
		}
	})
}
