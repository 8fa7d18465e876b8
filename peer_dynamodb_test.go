// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// Each test here is named for what DynamoDB lock clients do wrong, and fails
// when the rule behind it is broken.

// peerFailing runs the test of one failing in a bubble.
func peerFailing(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func TestPeerFailing_AmbiguousClaimWaitsOutItsOwnRecord(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.fault(faultstore.OpClaim, 0, 1, faultstore.LoseReply())
		start := time.Now()
		l := m.mustAcquire("x", nil)
		if took := time.Since(start); took > time.Second {
			t.Errorf("a free lock took %v", took)
		}
		if l.Token() != 1 {
			t.Errorf("token %d", l.Token())
		}
	})
}

func TestPeerFailing_AmbiguousHeartbeatDropsTheLock(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpHeartbeat, 0, 1, faultstore.LoseReply())
		time.Sleep(2 * lease)
		want(t, l.Check(), nil)
	})
}

func TestPeerFailing_AmbiguousReleaseIsReportedAsStolen(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
		want(t, l.Release(t.Context()), nil)
	})
}

func TestPeerFailing_LossIsNeverToldWhileTheStoreHangs(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.faults.Inject(faultstore.Rule{Fault: deaf(10 * lease)})
		deadline := time.Now().Add(l.Remaining())
		ctx, stop := context.WithTimeout(l.Context(), 5*lease)
		defer stop()
		<-ctx.Done()
		if late := time.Since(deadline); late != 0 {
			t.Errorf("told %v after the deadline", late)
		}
	})
}

func TestPeerFailing_CheckWaitsForAHangingHeartbeat(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.faults.Inject(faultstore.Rule{Fault: deaf(10 * lease)})
		time.Sleep(heartbeat)
		want(t, within(t, 0, 0, func() error {
			l.Remaining()
			return l.Check()
		}), nil)
	})
}

func TestPeerFailing_LossToAnotherHolderIsNotTold(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		seize(t, w, "x", func(r *driver.Record) { r.Owner, r.Token = "b", 2 })
		time.Sleep(heartbeat)
		synctest.Wait()
		want(t, l.Check(), tenure.ErrSuperseded)
		want(t, context.Cause(l.Context()), tenure.ErrSuperseded)
	})
}

func TestPeerFailing_HungCallsStallEveryLock(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		leases := map[string]*tenure.Lease{}
		for i, name := range names(200) {
			leases[name] = m.mustAcquire(name, nil)
			if i < 20 {
				m.faults.Inject(faultstore.Rule{Key: name, Fault: faultstore.BlackHole()})
			}
		}
		time.Sleep(2 * lease)
		for i, name := range names(200) {
			if err := leases[name].Check(); (err == nil) != (i >= 20) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestPeerFailing_HeartbeatsComeInOneBurst(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		for _, name := range names(1000) {
			m.mustAcquire(name, nil)
		}
		const slice = 100 * time.Millisecond
		for range 4 * heartbeat / slice {
			before := m.faults.Count(faultstore.OpHeartbeat)
			time.Sleep(slice)
			if n := m.faults.Count(faultstore.OpHeartbeat) - before; n > 150 {
				t.Errorf("%d of 1000 heartbeats within %v", n, slice)
			}
		}
	})
}

func TestPeerFailing_CloseWithAPendingAcquireStopsHeartbeats(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("taken", nil)
		l := b.mustAcquire("own", nil)
		waiter := started(func() error { _, err := b.Acquire(t.Context(), "taken", nil); return err })
		time.Sleep(time.Second)
		closed := started(func() error { return b.Close(t.Context()) })
		time.Sleep(time.Second)
		select {
		case err := <-waiter:
			want(t, err, tenure.ErrClosed)
		default:
			t.Error("the waiter still waits")
		}
		time.Sleep(stopTimeout - 2*time.Second)
		want(t, l.Check(), nil)
		want(t, l.Release(t.Context()), nil)
		want(t, <-closed, nil)
	})
}

func TestPeerFailing_CloseStopsAtTheFirstFailedRelease(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
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

func TestPeerFailing_FailedReleaseIsNotTriedAgain(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpRelease, 0, 2, faultstore.Refuse())
		want(t, l.Release(t.Context()), nil)
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestPeerFailing_LateHeartbeatRevivesAReleasedRecord(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.fault(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(time.Second))
		for m.faults.Count(faultstore.OpHeartbeat) == 0 {
			time.Sleep(time.Millisecond)
		}
		m.mustRelease(l)
		m.faults.Wait()
		if rec := w.record("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestPeerFailing_ReleasedHandleStillSaysHeld(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		m.mustRelease(l)
		want(t, l.Check(), tenure.ErrReleased)
		if left := l.Remaining(); left != 0 {
			t.Errorf("%v remain", left)
		}
		n := m.faults.Count()
		want(t, l.Release(t.Context()), nil)
		if more := m.faults.Count() - n; more != 0 {
			t.Errorf("releasing again made %d requests", more)
		}
	})
}

func TestPeerFailing_AcquireWritesBackOldData(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", &tenure.AcquireOptions{Data: []byte("old")}))
		if _, err := b.Status(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
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

func TestPeerFailing_WaitLimitIsIgnoredWhileRacesAreLost(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		ctx, stop := context.WithCancel(t.Context())
		rival := started(func() error {
			for ctx.Err() == nil {
				l := a.mustAcquire("x", nil)
				time.Sleep(time.Second)
				a.mustRelease(l)
				time.Sleep(time.Second)
			}
			return nil
		})
		// A claim that finds the lock free comes too late.
		b.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Decide: func(faultstore.Call) faultstore.Fault {
			if w.record("x").State == driver.Released {
				return faultstore.Slow(time.Second+50*time.Millisecond, 0)
			}
			return faultstore.Fault{}
		}})
		time.Sleep(time.Second / 2)
		limit, give := context.WithTimeout(t.Context(), 10*lease)
		defer give()
		err := within(t, lease, lease+5*time.Second, func() error {
			_, err := b.Acquire(limit, "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		})
		want(t, err, tenure.ErrHeld)
		stop()
		want(t, <-rival, nil)
	})
}

func TestPeerFailing_NonBlockingCallsNeverTakeADeadLock(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		_, err := b.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
		time.Sleep(lease)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		want(t, err, nil)
	})
}

func TestPeerFailing_EachCallWaitsALeaseFromZero(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		var err error
		for range 2 {
			ctx, stop := context.WithTimeout(t.Context(), lease*6/10)
			_, err = b.Acquire(ctx, "x", nil)
			stop()
		}
		want(t, err, nil)
	})
}

func TestPeerFailing_RecordThatIsGonePanics(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		l := m.mustAcquire("x", nil)
		want(t, w.records.Delete(t.Context(), w.record("x")), nil)
		time.Sleep(time.Millisecond)
		want(t, l.Renew(t.Context()), tenure.ErrSuperseded)
	})
}

func TestPeerFailing_OneErrorEndsAnAcquire(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		w.machine("a").mustAcquire("x", nil)
		b := w.machine("b")
		for _, f := range []faultstore.Fault{faultstore.LoseRequest(), faultstore.Refuse(), faultstore.BlackHole()} {
			b.fault(faultstore.OpClaim, 0, 1, f)
			b.fault(faultstore.OpGet, 0, 2, f)
		}
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
	})
}

func TestPeerFailing_NoFencingToken(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		last := uint64(0)
		for i := range 9 {
			m := w.machine(fmt.Sprint("m", i))
			l := m.mustAcquire("x", nil)
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			switch last = l.Token(); i % 3 {
			case 0:
				m.mustRelease(l)
			case 1:
				m.crash() // taken over
			case 2: // expired, and released late
				m.faults.SetBlackHole(true)
				<-l.Context().Done()
				m.faults.SetBlackHole(false)
				want(t, l.Release(t.Context()), tenure.ErrExpired)
			}
		}
	})
}

func TestPeerFailing_OwnersOfOneNameShareALock(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		a, b := w.machine("same"), w.machine("same")
		la := a.mustAcquire("x", nil)
		_, err := b.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
		// A heartbeat of the first one, late, does not become the second one's.
		a.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.LateAfterError(2 * lease)})
		lb := b.mustAcquire("x", nil)
		for range 3 * lease / (10 * time.Millisecond) {
			time.Sleep(10 * time.Millisecond)
			if rec := w.record("x"); rec.Token != 2 {
				t.Fatalf("record %+v", rec)
			}
		}
		want(t, la.Check(), tenure.ErrLost)
		want(t, lb.Check(), nil)
	})
}

func TestPeerFailing_CancelledContextDoesNotEndTheWork(t *testing.T) {
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		ctx, stop := context.WithCancel(t.Context())
		err := m.Run(ctx, "x", nil, func(_ context.Context, l *tenure.Lease) error {
			stop()
			synctest.Wait()
			want(t, l.Context().Err(), context.Canceled)
			time.Sleep(stopTimeout + time.Second)
			want(t, l.Check(), tenure.ErrStopTimeout) // the heartbeats have ended
			return nil
		})
		want(t, err, tenure.ErrStopTimeout)
	})
}

func TestPeerFailing_GoroutinesGrowWithTheLocks(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	peerFailing(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.mustAcquire("x", nil)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for _, name := range names(1000) {
			m.mustAcquire(name, nil)
		}
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; more > 20 {
			t.Errorf("%d goroutines for 1,000 locks", more)
		}
	})
}
