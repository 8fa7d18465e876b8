// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// stale makes the machine's next cheap reads show the state of some writes ago; count
// 0: all of them.
func stale(m *machine, skip, count, ago int) (remove func()) {
	notOnEngines(m.World().T(), noStaleReads)
	return m.Faults().Inject(faultstore.Rule{
		Ops: []faultstore.Op{faultstore.OpGet, faultstore.OpList}, Skip: skip, Count: count, Fault: faultstore.Stale(ago),
	})
}

// died has client a hold x, under a session or not, send heartbeats for a while and
// crash.
func died(w *world, session bool) {
	a := w.Client("a")
	takes(a, "x", session)
	time.Sleep(10*heartbeat + heartbeat/2)
	a.Partition()
}

// forBoth runs a test with a lock under its own lease, and with one under a session.
func forBoth(t *testing.T, test func(t *testing.T, w *world, session bool)) {
	t.Helper()
	for name, session := range map[string]bool{"its own lease": false, "under a session": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) { test(t, w, session) })
	}
}

// An acquire with UnlessAlive takes a dead holder's lock, even if cheap reads still
// show the time when it was alive.
func TestUnlessAliveTakesADeadHoldersLockOverStaleReads(t *testing.T) {
	for ago := 1; ago <= 3; ago++ {
		for skip := range 3 {
			t.Run(fmt.Sprint(ago, " behind after ", skip), func(t *testing.T) {
				forBoth(t, func(t *testing.T, w *world, session bool) {
					died(w, session)
					b := w.Client("b")
					stale(b, skip, 2, ago)
					testutil.Want(t, testutil.Within(t, lease-heartbeat, lease+time.Second, func() error {
						_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
						return err
					}), nil)
				})
			})
		}
	}
}

// It leaves a living holder's lock alone, and returns soon.
func TestUnlessAliveLeavesALivingHolderOverStaleReads(t *testing.T) {
	forBoth(t, func(t *testing.T, w *world, session bool) {
		a, b := w.Client("a"), w.Client("b")
		takes(a, "x", session)
		stale(b, 0, 0, 1)
		testutil.Want(t, testutil.Within(t, 0, 3*heartbeat, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		}), tenure.ErrHeld)
	})
}

// A session that was closed in order has freed its locks: an acquire with UnlessAlive
// that has observed its holder gives up.
func TestUnlessAliveSessionClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "x")
		done := testutil.Go(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(heartbeat / 4)
		go func() { _ = l.Release(t.Context()) }()
		testutil.Want(t, s.Close(t.Context()), nil)
		testutil.Want(t, <-done, tenure.ErrHeld)
		// An acquire that begins now has observed no holder.
		_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
		testutil.Want(t, err, nil)
	})
}

// An operator's release of a dead holder's lock is no sign of life of that holder.
func TestUnlessAliveTakesWhatWasFreed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		died(w, false)
		b, op := w.Client("b"), w.Client("op")
		freed := testutil.Go(func() error { return admin.ReleaseDead(t.Context(), op.Client, "x", "test") })
		time.Sleep(time.Second)
		_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
		testutil.Want(t, err, nil)
		testutil.Want(t, <-freed, nil)
	})
}

// A dead holder's lock is released, whatever the cheap reads of the operator and of
// others in its process show.
func TestReleaseDeadOverStaleReads(t *testing.T) {
	for skip := range 4 {
		t.Run(fmt.Sprint("after ", skip), func(t *testing.T) {
			forBoth(t, func(t *testing.T, w *world, session bool) {
				died(w, session)
				b := w.Client("b")
				stale(b, skip, 2, 1)
				testutil.Want(t, testutil.Within(t, lease-heartbeat, lease+refresh*9/8+requestTimeout, func() error {
					return admin.ReleaseDead(t.Context(), b.Client, "x", "test")
				}), nil)
			})
		})
	}
}

// A sweep does not take a session for alive because of them either.
func TestSweepOverStaleReads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		died(w, true)
		b := w.Client("b")
		stale(b, 2, 0, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go observes(b, ctx, "x")
		n, err := admin.Sweep(t.Context(), b.Client)
		if n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
	})
}

// A dead holder's lock is taken over when its lease has passed since its sign of life
// was first read, whatever cheap reads show in between.
func TestStaleReadsDelayNoTakeover(t *testing.T) {
	forBoth(t, func(t *testing.T, w *world, session bool) {
		for looks := range 16 {
			for count := range 4 {
				if count == 0 && looks > 0 {
					continue
				}
				if count == 0 {
					count = 1 << 20
				}
				for _, ago := range []int{1, 2} {
					w := newWorld(t)
					died(w, session)
					b := w.Client("b")
					stale(b, looks, count, ago)
					start := time.Now()
					l := b.MustAcquire("x", nil)
					if took := time.Since(start); took > lease+lease/75 {
						t.Errorf("%d looks, then %d that are %d writes behind: taken over after %v", looks, count, ago, took)
					}
					mustRelease(b, l)
				}
			}
		}
	})
}

// No process takes a living holder's lock because of cheap reads, including those of an
// observer.
func TestStaleReadsTakeNothingFromTheLiving(t *testing.T) {
	forBoth(t, func(t *testing.T, w *world, session bool) {
		a, b := w.Client("a"), w.Client("b")
		l := takes(a, "x", session)
		time.Sleep(2 * heartbeat)
		for ago := 1; ago <= faultstore.MaxStale; ago++ {
			remove := stale(b, 0, 0, ago)
			ctx, stop := context.WithTimeout(t.Context(), 2*lease)
			go observes(b, ctx, "x")
			_, err := b.Acquire(ctx, "x", nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d writes behind: %v", ago, err)
			}
			testutil.Want(t, l.Check(), nil)
			stop()
			remove()
		}
	})
}

// An old view of a session does not show whether its holder lives now: the holder died
// before the acquire began.
func TestUnlessAliveOfWhatWasSeenLongAgo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		mustTake(a, s, "x")
		_, err := b.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, tenure.ErrHeld)
		time.Sleep(10 * lease)
		a.Partition()
		testutil.Want(t, testutil.Within(t, lease-heartbeat, lease+time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		}), nil)
	})
}

// The holder appears, and is gone, while the first request of the acquire is under way:
// other machines of its process read as well.
func TestUnlessAliveOfWhatOthersSaw(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		b.Inject(faultstore.OpClaim, 0, 1, faultstore.BlackHole())
		taken := testutil.Go(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(requestTimeout / 10)
		if st, err := b.Status(t.Context(), "x"); err != nil || !st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		mustRelease(a, l)
		if st, err := b.Status(t.Context(), "x"); err != nil || st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		testutil.Want(t, <-taken, tenure.ErrHeld)
	})
}

// A lock that is handed over to this owner is taken.
func TestUnlessAliveTakesWhatIsHandedToIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		taken := testutil.Go(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(heartbeat / 6)
		testutil.Want(t, l.StepDown(&tenure.StepDownOptions{To: "b", Reason: "yours"}), nil)
		mustRelease(a, l)
		testutil.Want(t, <-taken, nil)
	})
}

// ofSessions says whether a call is about the record of a session.
func ofSessions(call faultstore.Call) bool { return strings.HasPrefix(call.Key, driver.SessionPrefix) }

// sessionsUnborn makes the machine's cheap reads show a young session as not opened
// yet.
func sessionsUnborn(m *machine) {
	notOnEngines(m.World().T(), noStaleReads)
	m.Faults().Inject(faultstore.Rule{Match: ofSessions, Fault: faultstore.Stale(faultstore.MaxStale)})
}

// batching is a store that reads many records in one request.
type batching struct {
	driver.Store
	batches *atomic.Int64
}

func (s batching) GetBatch(ctx context.Context, keys []string, how driver.Consistency) ([]driver.Lookup, error) {
	s.batches.Add(1)
	found := make([]driver.Lookup, len(keys))
	for i, key := range keys {
		found[i].Record, found[i].Err = s.Get(ctx, key, how)
	}
	return found, nil
}

// staysHeld fails the test if another process takes x within half a lease while its
// holder lives.
func staysHeld(t *testing.T, b *tenure.Client, l *tenure.Lease, beside func()) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lease/2)
	defer stop()
	taken := testutil.Go(func() error {
		_, err := b.Acquire(ctx, "x", nil)
		return err
	})
	for ctx.Err() == nil && !t.Failed() {
		time.Sleep(refresh / 3)
		beside()
		testutil.Want(t, l.Check(), nil)
	}
	if err := <-taken; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while its holder lives, and its check says %v, an acquire returns %v", l.Check(), err)
	}
}

// Statuses of many locks read the sessions strongly: a session that a cheap read does
// not show yet is alive, and a waiter takes no lock from it.
func TestReadsOfManyTakeNothingFromTheLiving(t *testing.T) {
	for _, tc := range []struct {
		name  string
		batch bool
		ask   func(ctx context.Context, c *tenure.Client, id string) (held bool, err error)
	}{
		{"statuses, in a batch", true, manyHeld},
		{"statuses, one by one", false, manyHeld},
		{"status, in a batch", true, oneHeld},
		{"status, one by one", false, oneHeld},
		{"the session's", true, func(ctx context.Context, c *tenure.Client, id string) (bool, error) {
			st, err := c.SessionStatus(ctx, id, nil)
			return st.Alive, err
		}},
		{"a list", true, func(ctx context.Context, c *tenure.Client, _ string) (held bool, err error) {
			for st, err := range c.Locks(ctx, nil) {
				if err != nil || !st.Held {
					return false, err
				}
			}
			return true, nil
		}},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			a, m := w.Client("a"), w.Client("b")
			b := m.Client
			var batches atomic.Int64
			if tc.batch {
				var err error
				b, err = tenure.New(batching{m.Faults(), &batches}, &tenure.Options{Owner: "b"})
				testutil.Want(t, err, nil)
				t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
			}
			s := mustOpen(a, nil)
			l := mustTake(a, s, "x")
			mustTake(a, s, "y")
			sessionsUnborn(m)
			staysHeld(t, b, l, func() {
				if held, err := tc.ask(t.Context(), b, s.ID()); err != nil || !held {
					t.Errorf("held %t, %v", held, err)
				}
			})
			if tc.batch && batches.Load() == 0 {
				t.Error("nothing was read in a batch")
			}
		})
	}
}

func manyHeld(ctx context.Context, c *tenure.Client, _ string) (bool, error) {
	list, errs := c.Statuses(ctx, []string{"x", "y"}, nil)
	return list[0].Held && list[1].Held, errors.Join(errs...)
}

func oneHeld(ctx context.Context, c *tenure.Client, _ string) (bool, error) {
	st, err := c.Status(ctx, "y")
	return st.Held, err
}

// An observer's cheap read that does not show a session yet proves nothing to an
// acquire for another lock under it.
func TestAbsentToAnObserverIsNotGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		s := mustOpen(a, nil)
		l := mustTake(a, s, "x")
		mustTake(a, s, "y")
		st, err := b.Status(t.Context(), "x")
		if err != nil || !st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		sessionsUnborn(b)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go observes(b, ctx, "y")
		time.Sleep(3 * refresh)
		absent := 0
		for _, call := range b.Faults().Log() {
			if ofSessions(call.Call) && call.Consistency == driver.Eventual && errors.Is(call.Err, driver.ErrNotFound) {
				absent++
			}
		}
		if absent == 0 {
			t.Error("no look has missed the session: the test has lost its point")
		}
		_, err = b.TryAcquire(t.Context(), "x", nil)
		testutil.Want(t, err, tenure.ErrHeld)
		staysHeld(t, b.Client, l, func() {})
	})
}

// The absence of a session only counts for the time before the read was sent. A session
// that was opened while the reply was on its way is alive.
func TestAbsentBeforeItWasOpened(t *testing.T) {
	opensLate := func(t *testing.T, look func(t *testing.T, w *world, b *machine, id string)) {
		t.Helper()
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			var id string
			a.Faults().Inject(faultstore.Rule{Match: ofSessions, Count: 1, Decide: func(call faultstore.Call) faultstore.Fault {
				id = driver.SessionID(call.Key)
				return faultstore.Slow(requestTimeout/4, 0)
			}})
			opened := make(chan *tenure.Session)
			go func() { opened <- mustOpen(a, nil) }()
			synctest.Wait()
			replied := b.Faults().Inject(faultstore.Rule{
				Match: ofSessions, Count: 1, Fault: faultstore.Slow(0, requestTimeout/2),
			})
			defer replied()
			look(t, w, b, id)
			l := mustTake(a, <-opened, "x")
			staysHeld(t, b.Client, l, func() {})
		})
	}
	t.Run("asked for", func(t *testing.T) {
		opensLate(t, func(t *testing.T, _ *world, b *machine, id string) {
			t.Helper()
			asked := testutil.Go(func() error {
				_, err := b.SessionStatus(t.Context(), id, nil)
				return err
			})
			synctest.Wait()
			t.Cleanup(func() { testutil.Want(t, <-asked, nil) })
		})
	})
	t.Run("observed", func(t *testing.T) {
		opensLate(t, func(t *testing.T, w *world, b *machine, id string) {
			t.Helper()
			// No client of this test writes the name of a session before it is open.
			if _, _, err := w.Records().Claim(t.Context(), driver.Record{
				Key: "y", Version: "v", Beat: "v", Owner: "z", Token: 1, Lease: lease, State: driver.Held, Session: id,
			}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			t.Cleanup(stop)
			go observes(b, ctx, "y")
			synctest.Wait()
		})
	})
}
