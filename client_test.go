// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// Close with an acquire pending returns the waiter at once, and disturbs no lease:
// neither another client's, nor its own until that is released.
func TestCloseReturnsWaitersAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		taken := a.MustAcquire("taken", nil)
		own := b.MustAcquire("own", nil)
		waiters := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := b.Acquire(t.Context(), "taken", nil)
				waiters <- err
			}()
		}
		observer := testutil.Go(func() (last error) {
			for _, last = range b.Election("taken", nil).Observe(t.Context()) {
			}
			return last
		})
		time.Sleep(lease)

		closed := testutil.Go(func() error { return b.Close(t.Context()) })
		testutil.Want(t, testutil.Within(t, 0, 0, func() error {
			return errors.Join(<-waiters, <-waiters, <-waiters)
		}), tenure.ErrClosed)
		testutil.Want(t, testutil.Within(t, 0, 0, func() error { return <-observer }), tenure.ErrClosed)
		testutil.Want(t, testutil.Within(t, 0, 0, func() error {
			<-own.Context().Done()
			return context.Cause(own.Context())
		}), tenure.ErrClosed)

		time.Sleep(stopTimeout - time.Second)
		testutil.Pending(t, "close", closed)
		testutil.Want(t, own.Check(), nil) // it can still write its checkpoint
		testutil.Want(t, own.Renew(t.Context()), nil)
		testutil.Want(t, own.Release(t.Context()), nil)
		testutil.Want(t, testutil.Within(t, 0, 0, func() error { return <-closed }), nil)
		testutil.Want(t, taken.Check(), nil)
		testutil.Want(t, taken.Context().Err(), nil)
	})
}

// If work is running when the client is closed, heartbeats go on until it has returned,
// and no other holder starts before.
func TestCloseSendsHeartbeatsUntilTheWorkIsDone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		const drain = lease - time.Second
		working := false
		run := testutil.Go(func() error {
			return a.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				working = true
				<-ctx.Done()
				testutil.Want(t, context.Cause(ctx), tenure.ErrClosed)
				time.Sleep(drain)
				testutil.Want(t, l.Check(), nil)
				working = false
				return nil
			})
		})
		time.Sleep(lease)
		next := testutil.Go(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if working {
				t.Error("another holder began beside the work")
			}
			return errors.Join(err, l.Release(t.Context()))
		})
		testutil.Want(t, testutil.Within(t, drain, drain, func() error { return a.Close(t.Context()) }), nil)
		testutil.Want(t, <-run, nil)
		testutil.Want(t, <-next, nil)
	})
}

// For work that never returns, heartbeats go on for StopTimeout and no longer. Then
// Close returns an error, and the record expires by itself.
func TestCloseLeavesWorkBehindAfterStopTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		stuck := make(chan struct{})
		run := testutil.Go(func() error {
			return a.Run(t.Context(), "x", nil, func(context.Context, *tenure.Lease) error { <-stuck; return nil })
		})
		time.Sleep(lease)
		err := testutil.Within(t, stopTimeout, stopTimeout, func() error { return a.Close(t.Context()) })
		if err == nil || err.Error() != `tenure: close: leases not released: 1; their records expire within 15s` {
			t.Errorf("close: %v", err)
		}
		if rec := w.MustRecord("x"); rec.State != driver.Held || rec.Owner != "a" {
			t.Errorf("record %+v", rec)
		}
		n := a.Faults().Count()
		l := b.MustAcquire("x", nil)
		if l.Token() != 2 {
			t.Errorf("token %d", l.Token())
		}
		close(stuck)
		testutil.Want(t, <-run, tenure.ErrStopTimeout)
		if more := a.Faults().Count() - n; more != 0 {
			t.Errorf("%d requests after Close", more)
		}
	})
}

// Close ends even if its context does not.
func TestCloseWithoutAnswerEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := hanging(t, faultstore.BlackHole())
		acquired := testutil.Go(func() error { _, err := m.Acquire(t.Context(), "free", nil); return err })
		released := testutil.Go(func() error { return l.Release(t.Context()) })
		time.Sleep(requestTimeout)
		if err := testutil.Within(t, 0, lease+2*requestTimeout, func() error { return m.Close(t.Context()) }); err != nil {
			t.Logf("close: %v", err)
		}
		testutil.Want(t, <-acquired, tenure.ErrClosed)
		testutil.Want(t, <-released, tenure.ErrUncertain)
	})
}

func TestClosedClientRefusesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		mustRelease(m, l)
		testutil.Want(t, m.Close(t.Context()), nil)
		n := m.Faults().Count()

		ctx := t.Context()
		work := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
		_, err := m.Acquire(ctx, "x", nil)
		testutil.Want(t, err, tenure.ErrClosed)
		_, err = m.TryAcquire(ctx, "x", nil)
		testutil.Want(t, err, tenure.ErrClosed)
		testutil.Want(t, m.Run(ctx, "x", nil, work), tenure.ErrClosed)
		_, err = m.Status(ctx, "x")
		testutil.Want(t, err, tenure.ErrClosed)
		for _, err := range m.Locks(ctx, nil) {
			testutil.Want(t, err, tenure.ErrClosed)
		}
		e := m.Election("x", nil)
		testutil.Want(t, e.Run(ctx, work), tenure.ErrClosed)
		_, err = e.Leader(ctx)
		testutil.Want(t, err, tenure.ErrClosed)
		for _, err := range e.Observe(ctx) {
			testutil.Want(t, err, tenure.ErrClosed)
		}
		testutil.Want(t, m.Close(ctx), tenure.ErrClosed)
		testutil.Want(t, l.Release(ctx), nil) // it was released before
		if got := m.Faults().Count(); got != n {
			t.Errorf("%d requests after Close", got-n)
		}
	})
}

// A lease that Close has left behind is not released later.
func TestLeaseAfterCloseSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		testutil.Want(t, m.Close(ctx), context.DeadlineExceeded)
		n := m.Faults().Count()
		testutil.Want(t, l.Release(t.Context()), tenure.ErrUncertain)
		testutil.Want(t, l.Release(t.Context()), tenure.ErrClosed)
		time.Sleep(lease)
		if more := m.Faults().Count() - n; more != 0 {
			t.Errorf("%d requests after Close", more)
		}
	})
}

// The moment of Close does not matter to an acquire that is just winning: it
// fails with ErrClosed, or has a lease that is released.
func TestCloseWhileAClaimIsUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		acquired := testutil.Go(func() error { _, err := m.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(time.Second / 2)
		closed := testutil.Go(func() error { return m.Close(t.Context()) })
		testutil.Want(t, testutil.Within(t, 0, 0, func() error { return <-acquired }), tenure.ErrClosed)
		testutil.Want(t, testutil.Within(t, time.Second/2, time.Second/2, func() error { return <-closed }), nil)
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
	})
}

// A failed release does not keep Close from the others.
func TestCloseReleasesWhatItCan(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		for _, name := range names(10) {
			go func() {
				_ = m.Run(t.Context(), name, nil, func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
			}()
		}
		time.Sleep(time.Second)
		m.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Key: "lock-00003", Fault: faultstore.BlackHole()})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := m.Close(ctx); err == nil {
			t.Error("Close says that all was released")
		}
		for i, name := range names(10) {
			if rec := w.MustRecord(name); (rec.State == driver.Released) != (i != 3) {
				t.Errorf("%s is %s", name, rec.State)
			}
		}
	})
}

// service does what the README's service does, with a session and three locks whose
// work ends with their contexts; closing comes when ctx is done.
func service(t *testing.T, m *machine, ctx context.Context, drain time.Duration) *tenure.Session {
	t.Helper()
	s, err := m.OpenSession(ctx, nil)
	testutil.Want(t, err, nil)
	for _, name := range []string{"x", "y", "z"} {
		l, err := s.Acquire(ctx, name, nil)
		testutil.Want(t, err, nil)
		go func() {
			<-l.Context().Done()
			time.Sleep(drain)
			_ = l.Release(ctx)
		}()
	}
	return s
}

// A deferred Close under the context of a signal frees all locks before it returns.
func TestCloseUnderAContextThatIsDone(t *testing.T) {
	for name, closes := range map[string]func(context.Context, *machine, *tenure.Session) error{
		"client":  func(ctx context.Context, m *machine, _ *tenure.Session) error { return m.Close(ctx) },
		"session": func(ctx context.Context, _ *machine, s *tenure.Session) error { return s.Close(ctx) },
		"both": func(ctx context.Context, m *machine, s *tenure.Session) error {
			return errors.Join(s.Close(ctx), m.Close(ctx))
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			ctx, stop := context.WithCancelCause(t.Context())
			s := service(t, a, ctx, 2*time.Second)
			time.Sleep(lease)
			next := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "y", nil); return err })
			time.Sleep(lease)
			testutil.Pending(t, "the next holder", next)
			stop(errors.New("terminated"))
			testutil.Want(t, testutil.Within(t, 2*time.Second, 2*time.Second, func() error { return closes(ctx, a, s) }), nil)
			testutil.Want(t, testutil.Within(t, 0, byLooks, func() error { return <-next }), nil)
		})
	}
}

// Work that does not return delays such a Close for StopTimeout, and no longer.
func TestCloseUnderADoneContextEnds(t *testing.T) {
	for name, closes := range map[string]func(context.Context, *machine, *tenure.Session) error{
		"client":  func(ctx context.Context, m *machine, _ *tenure.Session) error { return m.Close(ctx) },
		"session": func(ctx context.Context, _ *machine, s *tenure.Session) error { return s.Close(ctx) },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a", func(o *tenure.Options) { o.StopTimeout = 5 * time.Second })
			ctx, stop := context.WithCancel(t.Context())
			s := service(t, a, ctx, time.Hour)
			stop()
			if err := testutil.Within(t, 5*time.Second, 5*time.Second, func() error { return closes(ctx, a, s) }); err == nil {
				t.Error("no error, and locks are left behind")
			}
			time.Sleep(2 * time.Hour) // for the work
		})
	}
}

// An OnEvent that never returns delays Close for the stop timeout and a lease, even if its
// context never ends.
func TestCloseUnderAnEventThatNeverReturns(t *testing.T) {
	inWorldRun(t, "client", func(t *testing.T, w *world) {
		never := make(chan struct{})
		a := w.Client("a", func(o *tenure.Options) {
			o.StopTimeout = 5 * time.Second
			o.OnEvent = func(tenure.Event) { <-never }
		})
		l, err := a.Acquire(t.Context(), "x", nil)
		testutil.Want(t, err, nil)
		testutil.Want(t, l.Release(t.Context()), nil)
		closes := func() error { return a.Close(context.WithoutCancel(t.Context())) }
		if err := testutil.Within(t, 5*time.Second+lease, 5*time.Second+lease, closes); err == nil || !strings.Contains(err.Error(), "OnEvent") {
			t.Errorf("%v", err)
		}
		close(never)
	})
}

// A store that never answers and ignores contexts delays Close for the stop timeout and
// a lease.
func TestCloseUnderADoneContextWithoutAnswer(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{"hangs": faultstore.BlackHole(), "deaf": {Effect: faultstore.RequestLost, Hang: true, Deaf: time.Hour}} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			ctx, stop := context.WithCancel(t.Context())
			_ = service(t, a, ctx, 0)
			alone := a.MustAcquire("alone", nil)
			context.AfterFunc(alone.Context(), func() { _ = alone.Release(ctx) })
			defer a.Faults().Inject(faultstore.Rule{Fault: f})()
			stop()
			if err := testutil.Within(t, lease, stopTimeout+lease, func() error { return a.Close(ctx) }); err == nil {
				t.Error("no error, and locks are left behind")
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// If no lease is left to release, Close returns no error.
func TestCloseWithNothingLeft(t *testing.T) {
	for name, before := range map[string]func(context.Context, *machine){
		"nothing":  func(context.Context, *machine) {},
		"released": func(ctx context.Context, m *machine) { mustRelease(m, m.MustAcquire("x", nil)) },
		"waiting": func(ctx context.Context, m *machine) {
			go func() { _, _ = m.Acquire(ctx, "held", nil) }()
			time.Sleep(lease)
		},
		"observing": func(ctx context.Context, m *machine) {
			go observes(m, ctx, "held")
			time.Sleep(lease)
		},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			w.Client("b").MustAcquire("held", nil)
			a := w.Client("a")
			ctx, stop := context.WithCancel(t.Context())
			before(ctx, a)
			stop()
			testutil.Want(t, testutil.Within(t, 0, 0, func() error { return a.Close(ctx) }), nil)
		})
	}
}

// A lease's context, which Close itself ends, does not end the waiting.
func TestCloseUnderAContextOfALease(t *testing.T) {
	for name, under := range map[string]bool{"client": false, "session": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a")
			s := service(t, a, t.Context(), 2*time.Second)
			l, err := s.Acquire(t.Context(), "own", nil)
			testutil.Want(t, err, nil)
			released := testutil.Go(func() error { <-l.Context().Done(); return l.Release(t.Context()) })
			testutil.Want(t, testutil.Within(t, 2*time.Second, 2*time.Second, func() error {
				if under {
					return s.Close(l.Context())
				}
				return a.Close(l.Context())
			}), nil)
			testutil.Want(t, <-released, nil)
			if rec := w.MustRecord(driver.SessionKey(s.ID())); rec.State != driver.Closed {
				t.Errorf("the session is %s", rec.State)
			}
		})
	}
}

// far is a store whose calls take a while. It counts the calls under way.
type far struct {
	driver.Store
	away     time.Duration
	underWay atomic.Int64
	most     atomic.Int64
	calls    atomic.Int64
}

func (s *far) travel(ctx context.Context) (arrived func(), err error) {
	s.calls.Add(1)
	for n := s.underWay.Add(1); ; {
		if most := s.most.Load(); n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	timer := time.NewTimer(s.away)
	defer timer.Stop()
	select {
	case <-timer.C:
		return func() { s.underWay.Add(-1) }, nil
	case <-ctx.Done():
		s.underWay.Add(-1)
		return nil, driver.NotApplied(ctx.Err())
	}
}

func (s *far) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer arrived()
	return s.Store.Get(ctx, key, c)
}

func (s *far) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	defer arrived()
	return s.Store.Claim(ctx, next)
}

func (s *far) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	arrived, err := s.travel(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	defer arrived()
	return s.Store.Swap(ctx, prev, next)
}

// inParallel calls f with each of 0 to n-1, many at once.
func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 200 {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// names returns n names of locks.
func names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%05d", i)
	}
	return names
}

func acquireAll(tb testing.TB, c *tenure.Client, n int) []*tenure.Lease {
	tb.Helper()
	leases, locks := make([]*tenure.Lease, n), names(n)
	inParallel(n, func(i int) {
		var err error
		if leases[i], err = c.Acquire(tb.Context(), locks[i], nil); err != nil {
			tb.Error(err)
		}
	})
	return leases
}

func releaseAll(tb testing.TB, leases []*tenure.Lease) {
	tb.Helper()
	inParallel(len(leases), func(i int) {
		if err := leases[i].Release(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
}

// One client keeps 10,000 locks alive over a store whose calls take 10 ms each, with
// the default lease, and with a handful of goroutines.
func TestTenThousandLocksOfOneClient(t *testing.T) {
	enginetest.MakeVerify(t)
	synctest.Test(t, func(t *testing.T) {
		const locks = 10_000
		store := &far{Store: memstore.New(), away: 10 * time.Millisecond}
		var lost atomic.Int64
		base := runtime.NumGoroutine()
		c, err := tenure.New(store, &tenure.Options{
			Clock: tenure.MonotonicClock(),
			OnEvent: func(e tenure.Event) {
				switch e.Kind {
				case tenure.EventLost, tenure.EventJeopardy:
					lost.Add(1)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		leases := acquireAll(t, c, locks)

		most := 0
		for range 17 { // a little more than two leases
			time.Sleep(lease / 8)
			for _, l := range leases {
				testutil.Want(t, l.Check(), nil)
			}
			most = max(most, runtime.NumGoroutine()-base-int(store.underWay.Load()))
		}
		if n := lost.Load(); n != 0 {
			t.Errorf("%d leases lost or in jeopardy", n)
		}
		if most >= 50 {
			t.Errorf("%d goroutines beside the requests under way", most)
		}
		// The claim, and 17/8 leases of 5 heartbeats each.
		if n := store.calls.Load(); n < locks*10 || n > locks*12 {
			t.Errorf("%d requests", n)
		}
		t.Logf("%d requests, %d at once at most; %d goroutines besides", store.calls.Load(), store.most.Load(), most)
		releaseAll(t, leases)
	})
}

// Concurrent requests never exceed MaxInFlight.
func TestMaxInFlightBoundsTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &far{Store: memstore.New(), away: 10 * time.Millisecond}
		c := testutil.Must(tenure.New(store, &tenure.Options{Clock: tenure.MonotonicClock(), MaxInFlight: 7}))(t)
		defer c.Close(context.WithoutCancel(t.Context()))
		leases := acquireAll(t, c, 1000)
		time.Sleep(2 * lease)
		releaseAll(t, leases)
		if most := store.most.Load(); most != 7 {
			t.Errorf("%d requests at once, want 7", most)
		}
	})
}

// A request beyond MaxInFlight is not sent, so its outcome is known, and the error says
// what to do.
func TestNoPlaceForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.New(memstore.New(), nil)
		c := testutil.Must(tenure.New(store, &tenure.Options{Clock: tenure.MonotonicClock(), MaxInFlight: 1}))(t)
		defer c.Close(context.WithoutCancel(t.Context()))
		store.Inject(faultstore.Rule{Fault: deaf(10 * lease), Count: 1})
		go c.TryAcquire(t.Context(), "first", nil) //nolint:errcheck // nobody answers
		synctest.Wait()
		_, err := c.TryAcquire(t.Context(), "second", nil)
		testutil.Want(t, err, driver.ErrNotApplied)
		if err == nil || !strings.Contains(err.Error(), "not sent: 1 requests to the store are under way (MaxInFlight)") {
			t.Errorf("%v", err)
		}
	})
}

// twoClocks reads as after a step of the wall clock, which counts for a holder only.
type twoClocks struct{}

func (twoClocks) Holder() time.Duration    { return time.Hour }
func (twoClocks) Contender() time.Duration { return time.Minute }

// The options of a client have the clock that it uses, for callers that measure time too.
func TestOptionsHaveTheClock(t *testing.T) {
	c := testutil.Must(tenure.New(memstore.New(), &tenure.Options{Clock: twoClocks{}}))(t)
	if got := c.Options().Clock.Contender(); got != time.Minute {
		t.Errorf("%v", got)
	}
	if testutil.Must(tenure.New(memstore.New(), nil))(t).Options().Clock == nil {
		t.Error("no clock")
	}
}

func drift(rho float64) func(*tenure.Options) {
	return func(o *tenure.Options) { o.MaxClockDrift = rho }
}

// A holder with another bound for clock drift is reported once by each client that
// waits, observes or requests, for a lock with its own lease or under a session.
func TestDriftsThatDiffer(t *testing.T) {
	forBoth(t, func(t *testing.T, w *world, session bool) {
		a, same := w.Client("a", drift(0.02)), w.Client("same", drift(0.02))
		raw := w.Client("raw", drift(0.01)) // as by default, where the client counts by the raw clock
		raw.MustAcquire("of raw", nil)
		locks := names(3)
		s := mustOpen(a, nil)
		for _, name := range locks {
			if session {
				mustTake(a, s, name)
			} else {
				a.MustAcquire(name, nil)
			}
		}
		watched := append(names(3), "of raw")
		waiter, observer, requester := w.Client("waiter"), w.Client("observer", drift(0.001)), w.Client("requester")
		ctx, stop := context.WithTimeout(t.Context(), 2*lease)
		defer stop()
		go observes(observer, ctx, locks[0])
		for _, name := range watched {
			_, err := requester.Status(ctx, name)
			testutil.Want(t, err, nil)
			for _, m := range []*machine{waiter, same} {
				if m == same && name == "of raw" {
					continue // its bound was set, and differs
				}
				go func() {
					if _, err := m.Acquire(ctx, name, nil); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}()
			}
		}
		<-ctx.Done()
		synctest.Wait()
		for m, bound := range map[*machine]string{waiter: "0.09", observer: "0.001", requester: "0.09"} {
			got := m.Events(tenure.EventDrift)
			if len(got) != 1 || got[0].Owner != "a" || !strings.Contains(got[0].Err.Error(), "0.02,") || !strings.HasSuffix(got[0].Err.Error(), bound) {
				t.Errorf("%s was told %+v", m.Options().Owner, got)
			}
		}
		for _, m := range []*machine{a, same} {
			if got := m.Events(tenure.EventDrift); len(got) > 0 {
				t.Errorf("%s was told %+v", m.Options().Owner, got)
			}
		}
	})
}

// engine returns how a test opens its records on another store than package memstore. The root
// module cannot import one: internal/itest/testdata/engine_test.go does, and scripts/nightly
// adds that file to these. Tests with a store of their own do not use it.
var engine func(t *testing.T) (open func() driver.Store)

// notOnEngines skips a test that only package memstore can pass.
func notOnEngines(t testing.TB, why string) {
	t.Helper()
	if engine != nil {
		t.Skip("not on this engine: " + why)
	}
}

const (
	noStaleReads = "its reads are not behind when they are told to be"
	tooManyCalls = "it makes thousands of calls, for what is no matter of the store"
)

// crowd is how many locks are many: fewer where each request goes to an engine.
func crowd() int {
	switch {
	case engine != nil:
		return 100
	case testing.Short():
		return 300
	}
	return 1000
}

// slewedMachine has a raw clock, and others that a time service slews: they show the time of a
// bubble.
type slewedMachine struct {
	began time.Time
	rate  float64 // of the other clocks, as a share of the raw clock's
}

func (m *slewedMachine) Now() clock.Instant {
	d := time.Since(m.began)
	return clock.Instant{Wall: d, Mono: d}
}

func (m *slewedMachine) Read() clock.Reading {
	now := m.Now()
	return clock.Reading{Instant: now, Boot: now.Mono, HasBoot: true}
}

func (m *slewedMachine) Raw() (time.Duration, bool) { return m.raw(), true }

func (m *slewedMachine) raw() time.Duration {
	return time.Duration(float64(time.Since(m.began)) / m.rate)
}

// clock returns the clock of a client on the machine.
func (m *slewedMachine) clock() *clock.Raw {
	raw, _ := clock.From(m, clock.Options{}).Raw()
	return raw
}

// A holder that is cut off acts until its deadline by the raw clock, and no longer, however fast
// or slow its machine's other clocks run; and its waiter begins a lease by that clock later.
func TestLeaseByTheRawClock(t *testing.T) {
	for _, rate := range []float64{0.4, 0.917, 1, 1.083, 1.6} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 15 * time.Second
				m := &slewedMachine{began: time.Now(), rate: rate}
				cut := faultstore.New(memstore.New(), nil)
				open := func() *tenure.Client {
					return testutil.Must(tenure.New(cut.Driver(), &tenure.Options{LeaseDuration: lease, Clock: m.clock()}))(t)
				}
				holder, waiter := open(), open()
				defer cut.Close()
				defer holder.Close(t.Context())
				defer waiter.Close(t.Context())
				held := testutil.Must(holder.Acquire(t.Context(), "x", nil))(t)
				next := testutil.Go(func() error {
					_, err := waiter.Acquire(t.Context(), "x", nil)
					return err
				})
				time.Sleep(100 * time.Millisecond)
				heal := cut.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.BlackHole()})
				deadline := m.raw() + held.Remaining()
				for m.raw() < deadline-time.Millisecond {
					testutil.Want(t, held.Check(), nil)
					time.Sleep(time.Millisecond / 2)
				}
				time.Sleep(2 * time.Millisecond)
				testutil.Want(t, held.Check(), tenure.ErrExpired)
				// Check has told the timer.
				synctest.Wait()
				testutil.Want(t, context.Cause(held.Context()), tenure.ErrExpired)
				testutil.Pending(t, "the waiter's acquire", next)
				testutil.Want(t, <-next, nil)
				heal()
				// The sleep before a poll is by the slewed clock.
				if took, poll := m.raw(), time.Duration(2/min(rate, 1)*float64(time.Second)); took < lease || took > lease+poll {
					t.Errorf("taken over %v after the grant, want %v and a poll", took, lease)
				}
			})
		})
	}
}

// sharedStore says whether other lock clients use it.
type sharedStore struct {
	*memstore.Store
	shared bool
}

func (s sharedStore) SharesLocks() bool { return s.shared }

// The default of MaxClockDrift is low only where all clocks that count are exact: this client's is
// raw, and no program counts by another without saying so in a record.
func TestClockDriftByTheClock(t *testing.T) {
	raw := (&slewedMachine{began: time.Now(), rate: 1}).clock()
	own := 0.09
	if _, ok := clock.Machine(clock.Options{}); ok {
		own = 0.01
	}
	for name, tt := range map[string]struct {
		store   driver.Store
		options tenure.Options
		want    float64
	}{
		"the machine's clock":         {memstore.New(), tenure.Options{}, own},
		"a raw clock":                 {memstore.New(), tenure.Options{Clock: raw}, 0.01},
		"a clock that is given":       {memstore.New(), tenure.Options{Clock: tenure.MonotonicClock()}, 0.09},
		"a raw clock that is wrapped": {memstore.New(), tenure.Options{Clock: twoClocks{}}, 0.09},
		"a store that is not shared":  {sharedStore{memstore.New(), false}, tenure.Options{Clock: raw}, 0.01},
		"a store that is shared":      {sharedStore{memstore.New(), true}, tenure.Options{Clock: raw}, 0.09},
		"a bound, and a shared store": {sharedStore{memstore.New(), true}, tenure.Options{Clock: raw, MaxClockDrift: 0.05}, 0.05},
		"a bound that is set":         {memstore.New(), tenure.Options{MaxClockDrift: 0.001}, 0.001},
	} {
		c := testutil.Must(tenure.New(tt.store, &tt.options))(t)
		if got := c.Options().MaxClockDrift; got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		testutil.Want(t, c.Close(t.Context()), nil)
	}
}

// bucketLike is a store whose writes may take long.
type bucketLike struct{ driver.Store }

func (bucketLike) SlowWrites() {}

// A heartbeat that hangs is repeated after a fifteenth of the lease, any other call after a
// tenth; in a bucket, and with a RequestTimeout, all calls are alike.
func TestHeartbeatsTimeOutSooner(t *testing.T) {
	for name, tt := range map[string]struct {
		slow            bool
		timeout         time.Duration
		claims, renewed time.Duration
	}{
		"by default": {false, 0, 1500 * time.Millisecond, time.Second},
		"a bucket":   {true, 0, 1500 * time.Millisecond, 1500 * time.Millisecond},
		"a timeout":  {false, 800 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := faultstore.New(memstore.New(), nil)
				defer faults.Close()
				store := faults.Driver()
				if tt.slow {
					store = bucketLike{store}
				}
				c := testutil.Must(tenure.New(store, &tenure.Options{RequestTimeout: tt.timeout, Clock: tenure.MonotonicClock()}))(t)
				defer c.Close(t.Context())
				hangs := func(op faultstore.Op) func() {
					return faults.Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Count: 2, Fault: faultstore.BlackHole()})
				}
				defer hangs(faultstore.OpClaim)()
				testutil.Must(c.Acquire(t.Context(), "x", nil))(t)
				defer hangs(faultstore.OpHeartbeat)()
				time.Sleep(8 * time.Second)
				for op, want := range map[faultstore.Op]time.Duration{faultstore.OpClaim: tt.claims, faultstore.OpHeartbeat: tt.renewed} {
					var begun []time.Time
					for _, call := range faults.Log() {
						if call.Op == op {
							begun = append(begun, call.Begin)
						}
					}
					if took := begun[1].Sub(begun[0]); took < want || took > want+100*time.Millisecond {
						t.Errorf("%s: repeated after %v, want %v", op, took, want)
					}
				}
			})
		})
	}
}

// The sums that README, Options and the guides give for a lease of 15 s.
func TestUsablePartOfALease(t *testing.T) {
	for drift, want := range map[float64]struct{ window, usable, outage time.Duration }{
		0.01: {14703 * time.Millisecond, 12828 * time.Millisecond, 7828 * time.Millisecond},
		0.09: {12523 * time.Millisecond, 10648 * time.Millisecond, 5648 * time.Millisecond},
	} {
		timing := protocol.Timing{Drift: drift}.WithDefaults()
		got := timing.Usable() - timing.Heartbeat - 2*timing.HeartbeatTimeout()
		for what, is := range map[string][2]time.Duration{
			"window": {timing.Window(), want.window}, "usable": {timing.Usable(), want.usable}, "outage": {got, want.outage},
		} {
			if is[0].Round(time.Millisecond) != is[1] {
				t.Errorf("drift %v: %s %v, want %v", drift, what, is[0], is[1])
			}
		}
	}
}
