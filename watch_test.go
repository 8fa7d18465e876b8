// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// watchCounter is a store that knows how many watches are on.
type watchCounter struct {
	*memstore.Store
	on atomic.Int64
}

func (s *watchCounter) Watch(ctx context.Context, key string, hint func()) (func(), error) {
	stop, err := s.Store.Watch(ctx, key, hint)
	if err != nil {
		return nil, err
	}
	s.on.Add(1)
	var ended atomic.Bool
	return func() {
		stop()
		if ended.CompareAndSwap(false, true) {
			s.on.Add(-1)
		}
	}, nil
}

// A watch is on for as long as somebody waits, observes or leads, and no
// longer: a program that takes many locks in turn does not gather watches.
func TestWatchesAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watchCounter{Store: memstore.New()}
		client := func() *tenure.Client {
			c := mustNew(t, store, &tenure.Options{Clock: tenure.MonotonicClock()})
			t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
			return c
		}
		on := func(n int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := store.on.Load(); got != n {
				t.Errorf("%s: %d watches, want %d", when, got, n)
			}
		}
		a, b := client(), client()
		l, err := a.Acquire(t.Context(), "x", &tenure.AcquireOptions{WatchRequests: true})
		if err != nil {
			t.Fatal(err)
		}
		on(1, "a attentive holder")
		ctx, stop := context.WithCancel(t.Context())
		waits := started(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		on(2, "and a waiter")
		stop()
		want(t, <-waits, context.Canceled)
		on(1, "the waiter has given up")
		ctx, stop = context.WithCancel(t.Context())
		done := started(func() error {
			for _, err := range b.Election("x", nil).Observe(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		time.Sleep(time.Second)
		on(2, "an observer")
		stop()
		want(t, <-done, nil)
		on(1, "no observer")
		want(t, l.Release(t.Context()), nil)
		on(0, "released")
	})
}

// A store that hints all the time does not make a holder write all the time.
func TestStormOfHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		store := &stormy{Store: m.faults.Driver()}
		c := mustNew(t, store, &tenure.Options{Clock: tenure.MonotonicClock()})
		defer func() {
			_ = c.Close(t.Context())
			time.Sleep(time.Second) // for the storm to end
		}()
		l, err := c.Acquire(t.Context(), "x", &tenure.AcquireOptions{WatchRequests: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n, most := m.faults.Count(), int(time.Minute/heartbeat)*21; n > most {
			t.Errorf("%d requests in a minute, at most %d are for hints and heartbeats", n, most)
		}
		want(t, l.Release(t.Context()), nil)
	})
}

// stormy is a store that hints every millisecond.
type stormy struct{ driver.Store }

func (s *stormy) Watch(_ context.Context, _ string, hint func()) (func(), error) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			hint()
			time.Sleep(time.Millisecond)
		}
	}()
	return stop, nil
}

// What changes between the first look and the watch is seen, because the watch
// is followed by a look of its own.
func TestReleaseBeforeTheWatchIsSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		b := w.machine("b", func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
		l := a.mustAcquire("x", nil)
		// The watch takes a second to set up, and the release comes within it: the
		// hint that follows from the watch is all there is.
		slow := &slowWatch{Store: b.faults.Driver(), delay: time.Second}
		c := mustNew(t, slow, &tenure.Options{Owner: "b", RefreshPeriod: time.Hour, Clock: tenure.MonotonicClock()})
		defer func() { _ = c.Close(t.Context()) }()
		begun := time.Now()
		got := started(func() error {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second / 2)
		a.mustRelease(l)
		want(t, <-got, nil)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("seen after %v", took)
		}
	})
}

// slowWatch takes its time to set up a watch, and sees nothing before.
type slowWatch struct {
	driver.Store
	delay time.Duration
}

func (s *slowWatch) Watch(ctx context.Context, key string, hint func()) (func(), error) {
	time.Sleep(s.delay)
	return s.Store.(driver.Watcher).Watch(ctx, key, hint)
}

// Who comes next in the queue of a process knows what the one before it saw: it
// makes no claim of its own on a lock that is held.
func TestNextInTheQueueMakesNoClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		first := started(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		second := started(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second)
		stop()
		want(t, <-first, context.Canceled)
		time.Sleep(10 * time.Second)
		if n := b.faults.Count(faultstore.OpClaim, faultstore.OpTakeover); n != 1 {
			t.Errorf("%d claims of two waiters on a held lock", n)
		}
		a.mustRelease(l)
		want(t, <-second, nil)
	})
}

// A watch that the engine does not set up ends with its timeout, and gives its place
// among the calls to the next one.
func TestWatchThatHangsGivesUpItsPlace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		if _, watches := b.faults.Driver().(driver.Watcher); !watches {
			t.Skip("this engine does not tell of changes")
		}
		b.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpWatch}, Fault: faultstore.BlackHole()})
		c := mustNew(t, b.faults.Driver(), &tenure.Options{Owner: "c", MaxInFlight: 1, Clock: tenure.MonotonicClock()})
		defer func() { _ = c.Close(t.Context()) }()
		got := started(func() error {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second)
		begun := time.Now()
		a.mustRelease(l)
		want(t, <-got, nil)
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("granted %v after the release", took)
		}
		if b.faults.Count(faultstore.OpWatch) == 0 {
			t.Error("nothing was watched")
		}
	})
}

func hourly(o *tenure.Options) { o.RefreshPeriod = time.Hour }

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

// blind is a store that cannot watch.
type blind struct{ driver.Store }

// A release wakes those of its own process, although the store has no watch.
func TestReleaseWakesItsOwnProcess(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *tenure.Client) error{
		"waiter": func(ctx context.Context, c *tenure.Client) error {
			l, err := c.Acquire(ctx, "x", nil)
			if err == nil {
				err = l.Release(ctx)
			}
			return err
		},
		"observer": func(ctx context.Context, c *tenure.Client) error {
			for who, err := range c.Election("x", nil).Observe(ctx) {
				if err != nil || who.None() {
					return err
				}
			}
			return nil
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			c := mustNew(t, blind{w.records}, &tenure.Options{Clock: tenure.MonotonicClock(), RefreshPeriod: time.Hour})
			l, err := c.Acquire(t.Context(), "x", nil)
			want(t, err, nil)
			told := started(func() error { return wait(t.Context(), c) })
			time.Sleep(time.Second)
			want(t, l.Release(t.Context()), nil)
			want(t, within(t, 0, time.Millisecond, func() error { return <-told }), nil)
			want(t, c.Close(t.Context()), nil)
		})
	}
}

// A waiter takes a lock when it is told of the release, however far behind cheap reads
// are.
func TestWaiterTakesWhatItWasToldOf(t *testing.T) {
	for ago := range 4 {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
			taken := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
			time.Sleep(2*heartbeat + time.Second)
			b.stale(0, 0, ago)
			a.mustRelease(l)
			want(t, within(t, 0, requestTimeout, func() error { return <-taken }), nil)
		})
	}
}
