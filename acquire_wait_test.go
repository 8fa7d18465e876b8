// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

func TestAdditionalWaitBoundsTheWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// The record shows a lease of its own.
		a := w.Client("a", func(o *tenure.Options) { o.LeaseDuration = 20 * time.Second })
		b := w.Client("b")
		la := a.MustAcquire("x", nil)
		o := &tenure.AcquireOptions{AdditionalWait: 2 * time.Second}
		err := testutil.Within(t, 22*time.Second, 22*time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", o)
			return err
		})
		testutil.Want(t, err, tenure.ErrHeld)
		if held, ok := errors.AsType[*tenure.HeldError](err); !ok || held.Owner != "a" || held.FreeIn > 20*time.Second {
			t.Errorf("%+v", held)
		}
		testutil.Want(t, la.Check(), nil)
		// It is long enough for the lock of a dead holder.
		a.Partition()
		_, err = b.Acquire(t.Context(), "x", o)
		testutil.Want(t, err, nil)
	})
}

// Fifty waiters cost the polls of one, and get the lock in their order.
func TestWaitersOfAProcessShareLooksAndKeepTheirOrder(t *testing.T) {
	looks := func(t *testing.T, waiters int) (n int, order string) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			b.BoundReads(12 + waiters) // one for each that has its turn
			la := a.MustAcquire("x", nil)
			got := make(chan int, waiters)
			var all sync.WaitGroup
			for i := range waiters {
				all.Go(func() {
					l := b.MustAcquire("x", nil)
					got <- i
					mustRelease(b, l)
				})
				synctest.Wait()
			}
			time.Sleep(4 * lease)
			n = b.Faults().Count()
			mustRelease(a, la)
			all.Wait()
			var s []string
			for range waiters {
				s = append(s, fmt.Sprint(<-got))
			}
			order = strings.Join(s, " ")
		})
		return n, order
	}
	one, _ := looks(t, 1)
	fifty, order := looks(t, 50)
	if fifty > one+one/4 { // jitter
		t.Errorf("50 waiters cost %d requests, 1 costs %d", fifty, one)
	}
	if want := strings.Trim(fmt.Sprint(upTo(50)), "[]"); order != want {
		t.Errorf("order %s", order)
	}
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// TestDeadlineOfAWaitTellsWhoHolds: a program bounds a wait by the context first. A canceled
// wait has a reason of its own, and a wait without an answer of the store cannot say who
// holds the lock now.
func TestDeadlineOfAWaitTellsWhoHolds(t *testing.T) {
	errOwn := errors.New("the caller's")
	acquire := func(ctx context.Context, m *machine) error {
		_, err := m.Acquire(ctx, "x", nil)
		return err
	}
	for name, tt := range map[string]struct {
		wait    func(ctx context.Context, m *machine) error
		cut     bool // the store is away before the deadline
		cancel  bool
		cause   error
		nobody  bool // holds the lock that is waited for
		who     string
		matches error
	}{
		"acquire":         {wait: acquire, who: "a"},
		"with a cause":    {wait: acquire, cause: errOwn, who: "a", matches: errOwn},
		"canceled":        {wait: acquire, cancel: true, matches: context.Canceled},
		"store went away": {wait: acquire, cut: true},
		"second in a queue": {wait: func(ctx context.Context, m *machine) error {
			go func() { _ = acquire(ctx, m) }()
			synctest.Wait()
			return acquire(ctx, m)
		}, who: "a"},
		"run": {wait: func(ctx context.Context, m *machine) error { return m.Run(ctx, "x", nil, noWork) }, who: "a"},
		"held by itself": {wait: func(ctx context.Context, m *machine) error {
			m.MustAcquire("y", nil)
			_, err := m.Acquire(ctx, "y", nil)
			return err
		}, who: "b"},
		"session": {wait: func(ctx context.Context, m *machine) error {
			_, err := mustOpen(m, nil).Acquire(ctx, "x", nil)
			return err
		}, who: "a"},
		"all": {wait: func(ctx context.Context, m *machine) error {
			_, err := mustOpen(m, nil).AcquireAll(ctx, []string{"z", "x", "v"}, nil)
			return err
		}, who: "a"},
		"remote": {wait: func(ctx context.Context, m *machine) error {
			_, err := m.Engine().RemoteAcquire(ctx, protocol.Want{Key: "x", Owner: "r", Patience: lease}, false, nil)
			return err
		}, who: "a"},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			l := a.MustAcquire("x", nil)
			ctx, stop := context.WithTimeoutCause(t.Context(), 2*lease, tt.cause)
			defer stop()
			if tt.cancel {
				time.AfterFunc(lease, stop)
			}
			if tt.cut {
				time.AfterFunc(2*lease-lease/2, b.Partition)
			}
			err := tt.wait(ctx, b)
			testutil.Want(t, err, ctx.Err())
			if tt.matches != nil {
				testutil.Want(t, err, tt.matches)
			}
			var held *tenure.HeldError
			switch found := errors.As(err, &held); {
			case found != (tt.who != ""):
				t.Errorf("it carries %v: %v", held, err)
			case tt.who == "a" && (held.Token != l.Token() || held.FreeIn <= 0 || held.FreeIn > lease+refresh):
				t.Errorf("it carries %+v, want token %d", held, l.Token())
			case found && (held.Owner != tt.who || !errors.Is(err, tenure.ErrHeld) || !strings.Contains(err.Error(), held.Error())):
				t.Errorf("it carries %+v: %v", held, err)
			case tt.cut && !strings.Contains(err.Error(), "no answer within"):
				t.Errorf("it does not tell why: %v", err)
			}
		})
	}
}

// TestWaitBoundsTheWaitAlone: Wait bounds the waiting, and the error says what was waited for.
// The context goes on, and so does the work.
func TestWaitBoundsTheWaitAlone(t *testing.T) {
	options := &tenure.AcquireOptions{Wait: 2 * lease}
	for name, tt := range map[string]struct {
		wait func(ctx context.Context, m *machine) error
		cut  bool // the store is away before the end
	}{
		"acquire": {wait: func(ctx context.Context, m *machine) error {
			_, err := m.Acquire(ctx, "x", options)
			return err
		}},
		"run": {wait: func(ctx context.Context, m *machine) error { return m.Run(ctx, "x", options, noWork) }},
		"all": {wait: func(ctx context.Context, m *machine) error {
			_, err := mustOpen(m, nil).AcquireAll(ctx, []string{"v", "x"}, options)
			return err
		}},
		"store went away": {cut: true, wait: func(ctx context.Context, m *machine) error {
			_, err := m.Acquire(ctx, "x", options)
			return err
		}},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			l := a.MustAcquire("x", nil)
			if tt.cut {
				time.AfterFunc(2*lease-lease/2, b.Partition)
			}
			err := testutil.Within(t, 2*lease, 2*lease+lease/5, func() error { return tt.wait(t.Context(), b) })
			var held *tenure.HeldError
			if errors.As(err, &held) == tt.cut || !tt.cut && errors.Is(err, context.DeadlineExceeded) || tt.cut && !strings.Contains(err.Error(), "no answer within") {
				t.Fatalf("got %v", err)
			}
			if held != nil && held.Token != l.Token() {
				t.Errorf("held under token %d, want %d", held.Token, l.Token())
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		time.AfterFunc(lease, func() { testutil.Want(t, l.Release(t.Context()), nil) })
		testutil.Want(t, b.Run(t.Context(), "x", options, func(ctx context.Context, l *tenure.Lease) error {
			time.Sleep(4 * lease) // longer than the wait
			return errors.Join(ctx.Err(), l.Check())
		}), nil)
		_, err := b.Acquire(t.Context(), "y", &tenure.AcquireOptions{Wait: -1})
		testutil.Want(t, err, tenure.ErrInvalid)
	})
}

// While every claim loses its race, the wait is bounded all the same.
func TestWaitIsBoundedWhileRacesAreLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		ctx, stop := context.WithCancel(t.Context())
		rival := testutil.Go(func() error {
			for ctx.Err() == nil {
				l := a.MustAcquire("x", nil)
				time.Sleep(time.Second)
				mustRelease(a, l)
				time.Sleep(time.Second)
			}
			return nil
		})
		// A claim that finds the lock free comes too late.
		b.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Decide: func(faultstore.Call) faultstore.Fault {
			if w.MustRecord("x").State == driver.Released {
				return faultstore.Slow(time.Second+50*time.Millisecond, 0)
			}
			return faultstore.Fault{}
		}})
		time.Sleep(time.Second / 2)
		err := testutil.Within(t, lease, lease+5*time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		})
		testutil.Want(t, err, tenure.ErrHeld)
		stop()
		testutil.Want(t, <-rival, nil)
	})
}

func TestAdditionalWaitCountsBehindAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Client("a").MustAcquire("x", nil)
		b := w.Client("b", hourly)
		ctx, stop := context.WithCancel(t.Context())
		first := testutil.Go(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		testutil.Want(t, testutil.Within(t, lease+time.Second, lease+2*time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		}), tenure.ErrHeld)
		stop()
		testutil.Want(t, <-first, context.Canceled)
	})
}

// seldom makes a client poll rarely.
func seldom(o *tenure.Options) { o.RefreshPeriod = 20 * lease }

// A waiter uses what others of its process read: it takes the lock when one of them
// reads it as free, however rarely it polls itself.
func TestWhoWaitsActsOnWhatOthersSee(t *testing.T) {
	looks := map[string]func(ctx context.Context, b *machine) error{
		"status": func(ctx context.Context, b *machine) error {
			_, err := b.Status(ctx, "x")
			return err
		},
		"statuses": func(ctx context.Context, b *machine) error {
			_, errs := b.Statuses(ctx, []string{"x"}, nil)
			return errs[0]
		},
		"list": func(ctx context.Context, b *machine) error {
			for _, err := range b.Locks(ctx, nil) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, w *world, session bool) {
				a, b := w.Client("a"), w.Client("b", seldom)
				b.Inject(faultstore.OpWatch, 0, 0, faultstore.Refuse())
				free := holding(a, session)
				taken := testutil.Go(func() error {
					_, err := b.Acquire(t.Context(), "x", nil)
					return err
				})
				time.Sleep(heartbeat + heartbeat/2)
				free()
				time.Sleep(time.Second)
				testutil.Pending(t, "acquire", taken) // it has not looked since
				testutil.Want(t, testutil.Within(t, 0, requestTimeout, func() error {
					if err := look(t.Context(), b); err != nil {
						return err
					}
					return <-taken
				}), nil)
			})
		})
	}
}

// holding has a machine hold x, under a session or not, and returns what frees it.
func holding(m *machine, session bool) (free func()) {
	m.World().T().Helper()
	if session {
		s := mustOpen(m, nil)
		l := mustTake(m, s, "x")
		return func() { mustClose(m, s, l) }
	}
	l := m.MustAcquire("x", nil)
	return func() { mustRelease(m, l) }
}

// A waiter takes a dead holder's lock as soon as it can be taken, whatever else in the
// same process reads it.
func TestWhoWaitsBesideOthersTakesOverInTime(t *testing.T) {
	for name, beside := range map[string]func(ctx context.Context, b *machine){
		"an observer": func(ctx context.Context, b *machine) {
			for _, err := range b.Election("x", nil).Observe(ctx) {
				_ = err // it goes on
			}
		},
		"tries": func(ctx context.Context, b *machine) {
			for ctx.Err() == nil {
				if l, err := b.TryAcquire(ctx, "x", nil); err == nil {
					_ = l.Release(context.WithoutCancel(ctx))
				}
				time.Sleep(refresh / 3)
			}
		},
		"statuses": func(ctx context.Context, b *machine) {
			for ctx.Err() == nil {
				_, _ = b.Status(ctx, "x")
				time.Sleep(refresh / 3)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, w *world, session bool) {
				for after := time.Duration(0); after < heartbeat; after += heartbeat / 8 {
					w := newWorld(t)
					a, b := w.Client("a"), w.Client("b")
					holding(a, session)
					ctx, stop := context.WithCancel(t.Context())
					taken := testutil.Go(func() error {
						l, err := b.Acquire(t.Context(), "x", nil)
						stop()
						if err == nil {
							err = l.Release(t.Context())
						}
						return err
					})
					synctest.Wait()
					var others sync.WaitGroup
					others.Go(func() { beside(ctx, b) })
					time.Sleep(8*heartbeat + after) // until b knows when a sends heartbeats: each read halves the interval
					a.Partition()
					// Its last sign of life was at most a heartbeat before.
					testutil.Want(t, testutil.Within(t, lease-heartbeat-heartbeat/100, lease+refresh*9/8+lease/75, func() error {
						return <-taken
					}), nil)
					stop()
					others.Wait()
				}
			})
		})
	}
}

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

// A watch exists as long as a caller waits, observes or leads, and no longer: a program
// that takes many locks in turn does not accumulate watches.
func TestWatchesAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watchCounter{Store: memstore.New()}
		client := func() *tenure.Client {
			c := testutil.Must(tenure.New(store, &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
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
		on(1, "a holder with WatchRequests")
		ctx, stop := context.WithCancel(t.Context())
		waits := testutil.Go(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		on(2, "and a waiter")
		stop()
		testutil.Want(t, <-waits, context.Canceled)
		on(1, "the waiter has given up")
		ctx, stop = context.WithCancel(t.Context())
		done := testutil.Go(func() error {
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
		testutil.Want(t, <-done, nil)
		on(1, "no observer")
		testutil.Want(t, l.Release(t.Context()), nil)
		on(0, "released")
	})
}

// A store that hints continuously does not make a holder write continuously.
func TestStormOfHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		store := &stormy{Store: m.Faults().Driver()}
		c := testutil.Must(tenure.New(store, &tenure.Options{Clock: tenure.MonotonicClock()}))(t)
		defer func() {
			_ = c.Close(t.Context())
			time.Sleep(time.Second) // for the storm to end
		}()
		l, err := c.Acquire(t.Context(), "x", &tenure.AcquireOptions{WatchRequests: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n, most := m.Faults().Count(), int(time.Minute/heartbeat)*21; n > most {
			t.Errorf("%d requests in a minute, at most %d are for hints and heartbeats", n, most)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
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

// A change between the first read and the watch is found, because another read follows
// the watch.
func TestReleaseBeforeTheWatchIsSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		b := w.Client("b", func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
		l := a.MustAcquire("x", nil)
		// The watch takes a second to set up, and the release comes within it: the read that
		// follows the watch is the only chance.
		slow := &slowWatch{Store: b.Faults().Driver(), delay: time.Second}
		c := testutil.Must(tenure.New(slow, &tenure.Options{
			Owner: "b", RefreshPeriod: time.Hour, Clock: tenure.MonotonicClock(),
		}))(t)
		defer func() { _ = c.Close(t.Context()) }()
		begun := time.Now()
		got := testutil.Go(func() error {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second / 2)
		mustRelease(a, l)
		testutil.Want(t, <-got, nil)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("seen after %v", took)
		}
	})
}

// slowWatch takes its time to set up a watch, and reports nothing before.
type slowWatch struct {
	driver.Store
	delay time.Duration
}

func (s *slowWatch) Watch(ctx context.Context, key string, hint func()) (func(), error) {
	time.Sleep(s.delay)
	return s.Store.(driver.Watcher).Watch(ctx, key, hint)
}

// The next acquire in the queue of a process knows what the previous one has read: it
// makes no claim on a held lock.
func TestNextInTheQueueMakesNoClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		first := testutil.Go(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
		time.Sleep(time.Second)
		second := testutil.Go(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second)
		stop()
		testutil.Want(t, <-first, context.Canceled)
		time.Sleep(10 * time.Second)
		if n := b.Faults().Count(faultstore.OpClaim, faultstore.OpTakeover); n != 1 {
			t.Errorf("%d claims of two waiters on a held lock", n)
		}
		mustRelease(a, l)
		testutil.Want(t, <-second, nil)
	})
}

// A watch that the engine does not set up ends with its timeout, so that the next call
// can be sent.
func TestWatchThatHangsGivesUpItsPlace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		if _, watches := b.Faults().Driver().(driver.Watcher); !watches {
			t.Skip("this engine does not tell of changes")
		}
		b.Inject(faultstore.OpWatch, 0, 0, faultstore.BlackHole())
		c := testutil.Must(tenure.New(b.Faults().Driver(), &tenure.Options{
			Owner: "c", MaxInFlight: 1, Clock: tenure.MonotonicClock(),
		}))(t)
		defer func() { _ = c.Close(t.Context()) }()
		got := testutil.Go(func() error {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		})
		time.Sleep(time.Second)
		begun := time.Now()
		mustRelease(a, l)
		testutil.Want(t, <-got, nil)
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("granted %v after the release", took)
		}
		if b.Faults().Count(faultstore.OpWatch) == 0 {
			t.Error("nothing was watched")
		}
	})
}

func hourly(o *tenure.Options) { o.RefreshPeriod = time.Hour }

// A hint that comes while a read is under way, or before a read that fails, is not
// lost, however long the refresh period is.
func TestHintBeforeALookThatFails(t *testing.T) {
	each(t, map[string]faultstore.Fault{"busy": faultstore.Refuse(), "lost": faultstore.LoseRequest()}, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.Client("a"), w.Client("b", hourly)
		l := a.MustAcquire("x", nil)
		got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(time.Second)
		b.Inject(faultstore.OpGet, 0, 1, f)
		mustRelease(a, l)
		testutil.Want(t, testutil.Within(t, 0, time.Second, func() error { return <-got }), nil)
	})
}

func TestWatchThatFailedIsTriedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b", hourly)
		l := a.MustAcquire("x", nil)
		b.Inject(faultstore.OpWatch, 0, 1, faultstore.LoseRequest())
		got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(10 * time.Minute)
		mustRelease(a, l)
		testutil.Want(t, testutil.Within(t, 0, time.Second, func() error { return <-got }), nil)
	})
}

// blind is a store that cannot watch.
type blind struct{ driver.Store }

// A release wakes the waiters of its own process, although the store has no watch.
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
			c := testutil.Must(tenure.New(blind{w.Records()}, &tenure.Options{
				Clock: tenure.MonotonicClock(), RefreshPeriod: time.Hour,
			}))(t)
			l, err := c.Acquire(t.Context(), "x", nil)
			testutil.Want(t, err, nil)
			told := testutil.Go(func() error { return wait(t.Context(), c) })
			time.Sleep(time.Second)
			testutil.Want(t, l.Release(t.Context()), nil)
			testutil.Want(t, testutil.Within(t, 0, time.Millisecond, func() error { return <-told }), nil)
			testutil.Want(t, c.Close(t.Context()), nil)
		})
	}
}

// A waiter takes a lock when it is notified of the release, however stale cheap reads
// are.
func TestWaiterTakesWhatANotificationFrees(t *testing.T) {
	for ago := range 4 {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			l := a.MustAcquire("x", nil)
			taken := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
			time.Sleep(2*heartbeat + time.Second)
			stale(b, 0, 0, ago)
			mustRelease(a, l)
			testutil.Want(t, testutil.Within(t, 0, requestTimeout, func() error { return <-taken }), nil)
		})
	}
}

// What an earlier acquire has read causes no event: the lock is free now.
func TestFreeLockIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		for range 3 {
			mustRelease(m, m.MustAcquire("x", nil))
			time.Sleep(time.Second)
		}
		if es := m.Events(tenure.EventWaiting); len(es) > 0 {
			t.Errorf("%+v", es)
		}
	})
}

// The monthly cost on DynamoDB of fifty processes that wait for one lock.
func TestCostOfWaiting(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		const waiters, long = 10, 5 * time.Minute
		w.Client("a").MustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		var all []*machine
		var ended []<-chan error
		for i := range waiters {
			m := w.Client(fmt.Sprint("b", i), ownedBy("b"))
			all = append(all, m)
			ended = append(ended, testutil.Go(func() error { _, err := m.Acquire(ctx, "x", nil); return err }))
		}
		time.Sleep(lease)
		for _, m := range all {
			m.Faults().ResetLog()
		}
		time.Sleep(long)
		units := 0.0
		for _, m := range all {
			for _, c := range m.Faults().Log() {
				switch {
				case c.Op != faultstore.OpGet:
					t.Fatalf("it writes: %v", c.Op)
				case c.Consistency == driver.Eventual:
					units += 0.5
				default:
					units++
				}
			}
		}
		const month, read = 30 * 24 * time.Hour, 0.125e-6
		dollars := 50 / waiters * units * float64(month/long) * read
		t.Logf("50 waiting processes cost $%.2f a month", dollars)
		if dollars > 14 {
			t.Errorf("50 waiting processes cost $%.2f a month, want $14 at most", dollars)
		}
		stop()
		for _, e := range ended {
			testutil.Want(t, <-e, context.Canceled)
		}
	})
}
