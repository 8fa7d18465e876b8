// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

func hourly(o *tenure.Options) { o.RefreshPeriod = time.Hour }

// A release whose reply is lost is what lets a waiter in. That the record is
// the waiter's then does not make it a loss.
func TestReleaseWithLostReplyAndAWaiterIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m, b := w.machine("a"), w.machine("b")
		m.fault(faultstore.OpRelease, 0, 1, f)
		go func() {
			time.Sleep(time.Second)
			b.mustAcquire("x", nil)
		}()
		want(t, m.Run(t.Context(), "x", nil, func(_ context.Context, l *tenure.Lease) error {
			time.Sleep(5 * time.Second)
			return l.Check()
		}), nil)
	})
}

// A hint that comes while a look is under way, or before a look that fails, is
// not lost, however long the refresh period is.
func TestHintBeforeALookThatFails(t *testing.T) {
	each(t, map[string]faultstore.Fault{"busy": faultstore.Refuse(), "lost": faultstore.LoseRequest()}, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b", hourly)
		l := a.mustAcquire("x", nil)
		got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(time.Second)
		b.fault(faultstore.OpGet, 0, 1, f)
		a.mustRelease(l)
		want(t, within(t, 0, time.Second, func() error { return <-got }), nil)
	})
}

func TestWatchThatFailedIsTriedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b", hourly)
		l := a.mustAcquire("x", nil)
		b.fault(faultstore.OpWatch, 0, 1, faultstore.LoseRequest())
		got := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(10 * time.Minute)
		a.mustRelease(l)
		want(t, within(t, 0, time.Second, func() error { return <-got }), nil)
	})
}

// observed records what an observer yields.
type observed struct {
	mu      sync.Mutex
	leaders []tenure.Leader
}

func (o *observed) run(ctx context.Context, e *tenure.Election) {
	for l, err := range e.Observe(ctx) {
		if err == nil {
			o.mu.Lock()
			o.leaders = append(o.leaders, l)
			o.mu.Unlock()
		}
	}
}

func (o *observed) owners() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.leaders {
		all = append(all, l.Owner)
	}
	return all
}

// One failed look does not make a living leader nobody.
func TestObserverOutlivesAFailedLook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b", hourly)
		a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(2 * time.Second)
		b.fault(faultstore.OpGet, 0, 1, faultstore.Refuse())
		time.Sleep(30 * time.Minute)
		if got := o.owners(); len(got) != 1 || got[0] != "a" {
			t.Errorf("observed %q", got)
		}
	})
}

// No watch tells that somebody takes a free lock.
func TestObserverSeesANewLeaderWithinALease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b", hourly), w.machine("c")
		l := a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(time.Second)
		a.mustRelease(l)
		time.Sleep(time.Millisecond)
		c.mustAcquire("x", nil)
		time.Sleep(lease)
		if got := o.owners(); len(got) == 0 || got[len(got)-1] != "c" {
			t.Errorf("observed %q", got)
		}
	})
}

// A slow reply that a quicker look has overtaken does not bring an old leader
// back.
func TestObserverDoesNotGoBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		l := a.mustAcquire("x", nil)
		var o observed
		go o.run(t.Context(), b.Election("x", nil))
		time.Sleep(heartbeat)
		b.fault(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second))
		n := b.faults.Count(faultstore.OpGet)
		for b.faults.Count(faultstore.OpGet) == n {
			time.Sleep(10 * time.Millisecond)
		}
		a.mustRelease(l)
		c.mustAcquire("x", nil)
		_, err := b.Status(t.Context(), "x")
		want(t, err, nil)
		time.Sleep(heartbeat)
		owners := o.owners()
		o.mu.Lock()
		defer o.mu.Unlock()
		last := uint64(0)
		for _, l := range o.leaders {
			if l.Token < last && !l.None() {
				t.Errorf("token %d after %d", l.Token, last)
			}
			last = max(last, l.Token)
		}
		if last != 2 {
			t.Errorf("observed %q", owners)
		}
	})
}

func TestEachObserverIsToldOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).machine("b")
		b.faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		for i := range 2 {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			for _, err := range b.Election("x", nil).Observe(ctx) {
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("observer %d: a minute of silence, with a store that fails", i)
				}
				break
			}
			stop()
		}
	})
}

// Calls that hang may take all places: whoever waits for one is answered in
// time, and leases are not lost without a warning.
func TestRequestsWithoutAPlaceAreGivenUp(t *testing.T) {
	few := func(o *tenure.Options) { o.MaxInFlight = 4 }
	inWorldRun(t, "waits", func(t *testing.T, w *world) {
		m := w.machine("a", few)
		l := m.mustAcquire("held", nil)
		for _, n := range names(4) {
			m.mustAcquire(n, nil)
		}
		m.faults.Inject(faultstore.Rule{Fault: deaf(100 * lease)})
		time.Sleep(heartbeat + time.Second) // the places are taken
		for name, wait := range map[string]func() error{
			"acquire":     func() error { _, err := m.Acquire(t.Context(), "free", nil); return err },
			"try acquire": func() error { _, err := m.TryAcquire(t.Context(), "free", nil); return err },
			"status":      func() error { _, err := m.Status(t.Context(), "free"); return err },
			"release":     func() error { return l.Release(t.Context()) },
		} {
			if err := within(t, 0, 2*lease, wait); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		time.Sleep(100 * lease)
	})
	inWorldRun(t, "jeopardy", func(t *testing.T, w *world) {
		m := w.machine("a", few)
		for _, n := range names(100) {
			m.mustAcquire(n, nil)
		}
		m.faults.SetBlackHole(true)
		time.Sleep(lease)
		warned := map[string]bool{}
		for _, e := range m.events.of(tenure.EventJeopardy) {
			warned[e.Lock] = true
		}
		for _, e := range m.events.of(tenure.EventLost) {
			if !warned[e.Lock] {
				t.Errorf("%s was lost without jeopardy", e.Lock)
			}
		}
	})
}

func TestStoreTimeoutHoldsInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.faults.SetBlackHole(true)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				begin := time.Now()
				_, err := m.Acquire(t.Context(), "x", nil)
				if d := time.Since(begin); err == nil || d > lease+3*requestTimeout {
					t.Errorf("took %v: %v", d, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestAdditionalWaitCountsBehindAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.machine("a").mustAcquire("x", nil)
		b := w.machine("b", hourly)
		ctx, stop := context.WithCancel(t.Context())
		first := started(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		want(t, within(t, lease+time.Second, lease+2*time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		}), tenure.ErrHeld)
		stop()
		want(t, <-first, context.Canceled)
	})
}

// What is seen counts from after the reply that showed it, whoever looked.
func TestStatusCountsFromTheReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		b.fault(faultstore.OpGet, 0, 1, faultstore.Slow(0, time.Second))
		_, err := b.Status(t.Context(), "x")
		want(t, err, nil)
		time.Sleep(lease - time.Millisecond)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
		time.Sleep(2 * time.Millisecond)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		want(t, err, nil)
	})
}

// A lease that is granted at the moment at which its acquire is given up is
// released again.
func TestGrantAtTheLastMomentIsReleased(t *testing.T) {
	for range 50 {
		inWorld(t, func(t *testing.T, w *world) {
			m := w.machine("a")
			m.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			l, err := m.Acquire(ctx, "x", nil)
			if err == nil {
				m.mustRelease(l)
			}
			time.Sleep(lease / 10)
			if rec := w.record("x"); rec.State != driver.Released {
				t.Errorf("the record is %s after %v", rec.State, err)
			}
		})
	}
}

// blind is a store that cannot watch.
type blind struct{ driver.Store }

func TestReleaseWakesWaitersOfTheSameProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.New(blind{memstore.New()}, &tenure.Options{Clock: tenure.MonotonicClock(), RefreshPeriod: time.Hour})
		want(t, err, nil)
		defer func() { want(t, c.Close(t.Context()), nil) }()
		l, err := c.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		got := started(func() error {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second)
		want(t, l.Release(t.Context()), nil)
		want(t, within(t, 0, time.Millisecond, func() error { return <-got }), nil)
	})
}

func TestReleaseWakesObserversOfTheSameProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.New(blind{memstore.New()}, &tenure.Options{Clock: tenure.MonotonicClock(), RefreshPeriod: time.Hour})
		want(t, err, nil)
		defer func() { want(t, c.Close(t.Context()), nil) }()
		l, err := c.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		free := started(func() error {
			for who, err := range c.Election("x", nil).Observe(t.Context()) {
				if err != nil || who.None() {
					return err
				}
			}
			return nil
		})
		time.Sleep(time.Second)
		want(t, l.Release(t.Context()), nil)
		want(t, within(t, 0, time.Millisecond, func() error { return <-free }), nil)
	})
}

func TestContextOfAnEndedLeaseIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		m.mustRelease(l)
		ctx, stop := l.Bind(t.Context())
		defer stop()
		want(t, ctx.Err(), context.Canceled)
		want(t, context.Cause(ctx), tenure.ErrReleased)
	})
}

// freeInTheWay is a store whose conflicts show a free record, as one may that
// reads it after the condition has failed.
type freeInTheWay struct {
	driver.Store
	claims atomic.Int64
}

func (s *freeInTheWay) Claim(_ context.Context, next driver.Record) (driver.Record, driver.Record, error) {
	s.claims.Add(1)
	next.Version, next.Token, next.State, next.End = "other", 1, driver.Released, driver.EndReleased
	return driver.Record{}, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: next}
}

func TestLostRacesAreNotRunHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &freeInTheWay{Store: memstore.New()}
		c, err := tenure.New(s, &tenure.Options{Clock: tenure.MonotonicClock()})
		want(t, err, nil)
		defer func() { want(t, c.Close(t.Context()), nil) }()
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		_, err = c.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		if n := s.claims.Load(); n > 100 {
			t.Errorf("%d claims in a lease", n)
		}
	})
}
