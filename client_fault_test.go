// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// each runs a test in a bubble for each of the faults.
func each(t *testing.T, faults map[string]faultstore.Fault, test func(*testing.T, faultstore.Fault)) {
	t.Helper()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, f) })
		})
	}
}

// lostReplies are writes that are applied without the caller's knowledge.
var lostReplies = map[string]faultstore.Fault{
	"error": faultstore.LoseReply(),
	"hangs": faultstore.LoseReplyHang(),
	"late":  faultstore.Slow(0, 10*requestTimeout),
}

// noWrites are writes that are not applied.
var noWrites = map[string]faultstore.Fault{
	"says so":          faultstore.Refuse(),
	"does not say so":  faultstore.LoseRequest(),
	"hangs":            faultstore.BlackHole(),
	"slower than that": faultstore.Slow(10*requestTimeout, 0),
}

func TestClaimWithLostReplyCostsOneRead(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, f)

		var l *tenure.Lease
		testutil.Want(t, testutil.Within(t, 0, requestTimeout+50*time.Millisecond, func() (err error) {
			l, err = m.Acquire(t.Context(), "x", nil)
			return err
		}), nil)
		count := m.Faults().Count
		if claims, looks := count(faultstore.OpClaim), count(faultstore.OpGet); claims != 1 || looks != 1 {
			t.Errorf("%d claims and %d looks, want one of each", claims, looks)
		}
		if l.Token() != 1 {
			t.Errorf("token %d, want 1", l.Token())
		}
		time.Sleep(4 * lease)
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.Release(t.Context()), nil)
		if got := kinds(m); got != "store_error store_answers acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestTakeoverWithLostReplyHoldsTheLock(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", &tenure.AcquireOptions{Data: []byte("of a")})
		a.Partition()
		b.Inject(faultstore.OpTakeover, 0, 1, f)
		l := b.MustAcquire("x", nil)
		if n := b.Faults().Count(faultstore.OpTakeover); n != 1 {
			t.Errorf("%d takeovers, want 1", n)
		}
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
		if p, ok := l.Previous(); !ok || p.Owner != "a" || p.End != "expired" || string(p.Data) != "of a" {
			t.Errorf("previous %+v, %v", p, ok)
		}
		time.Sleep(3 * lease)
		testutil.Want(t, l.Check(), nil)
	})
}

func TestHeartbeatWithLostReplyLosesNothing(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpHeartbeat, 2, 1, f)
		time.Sleep(4 * lease)
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.Context().Err(), nil)
		mustRelease(m, l)
		if got := kinds(m); got != "acquired jeopardy safe stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestReleaseWithLostReplyIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpRelease, 0, 1, f)
		testutil.Want(t, l.Release(t.Context()), nil)
		rec := w.MustRecord("x")
		if rec.State != driver.Released || rec.Token != 1 || rec.Until.IsZero() {
			t.Errorf("record %+v", rec)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		if n := m.Faults().Count(faultstore.OpRelease); n != 2 {
			t.Errorf("%d requests to release, want 2", n)
		}
	})
}

func TestSetDataWithLostReplyIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpSetData, 0, 1, f)
		testutil.Want(t, l.SetData(t.Context(), []byte("checkpoint")), nil)
		if got := string(w.MustRecord("x").Data); got != "checkpoint" {
			t.Errorf("data %q", got)
		}
		time.Sleep(4 * lease)
		testutil.Want(t, l.Check(), nil)
		if got := string(w.MustRecord("x").Data); got != "checkpoint" {
			t.Errorf("data %q after heartbeats", got)
		}
	})
}

func TestErrorBeforeApplyIsRetried(t *testing.T) {
	each(t, noWrites, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m := w.Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, f)
		m.Inject(faultstore.OpHeartbeat, 1, 1, f)
		m.Inject(faultstore.OpSetData, 0, 1, f)
		m.Inject(faultstore.OpRelease, 0, 1, f)
		l := m.MustAcquire("x", nil)
		time.Sleep(2 * lease)
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.SetData(t.Context(), []byte("d")), nil)
		if got := string(w.MustRecord("x").Data); got != "d" {
			t.Errorf("data %q", got)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.Token != 1 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestTakeoverIsRetriedAfterAnError(t *testing.T) {
	each(t, noWrites, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		a, b := w.Client("a"), w.Client("b")
		a.MustAcquire("x", nil)
		a.Partition()
		b.Inject(faultstore.OpTakeover, 0, 1, f)
		l := b.MustAcquire("x", nil)
		testutil.Want(t, l.Check(), nil)
		if l.Token() != 2 {
			t.Errorf("token %d, want 2", l.Token())
		}
	})
}

func TestRefusalsOfAMomentAreNoJeopardy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpHeartbeat, 0, 2, faultstore.Refuse()) // an engine that is busy
		time.Sleep(lease)
		mustRelease(m, l)
		if got := kinds(m); got != "acquired stopping released" {
			t.Errorf("events: %s", got)
		}
	})
}

// A store that is down for less than the lease costs jeopardy and safe events,
// and nothing else.
func TestOutageShorterThanTheLease(t *testing.T) {
	each(t, map[string]faultstore.Fault{
		"hangs": faultstore.BlackHole(), "fails": faultstore.LoseRequest(), "refuses": faultstore.Refuse(),
	}, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		time.Sleep(2 * lease)

		remove := m.Faults().Inject(faultstore.Rule{Fault: f})
		time.Sleep(usable - heartbeat - requestTimeout)
		remove()
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.Context().Err(), nil)

		time.Sleep(2 * lease)
		testutil.Want(t, l.Check(), nil)
		testutil.Want(t, l.Context().Err(), nil)
		mustRelease(m, l)
		if got := kinds(m); got != "acquired jeopardy safe stopping released" {
			t.Errorf("events: %s", got)
		}
		e := m.Events(tenure.EventJeopardy)[0]
		if e.Err == nil || e.Remaining <= 0 || e.Remaining > usable || e.Token != 1 {
			t.Errorf("jeopardy %+v", e)
		}
	})
}

func TestLateHeartbeatDoesNotReviveAReleasedRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		l := m.MustAcquire("x", nil)
		m.Inject(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(lease))
		time.Sleep(heartbeat)
		mustRelease(m, l)
		released := w.MustRecord("x")
		m.Faults().Wait() // for the late heartbeat
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.Version != released.Version {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestLateHeartbeatDoesNotDisturbTheSuccessor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("same name"), w.Client("another", ownedBy("same name"))
		la := a.MustAcquire("x", nil)
		time.Sleep(heartbeat)
		a.Inject(faultstore.OpHeartbeat, 0, 0, faultstore.LateAfterError(2*lease))
		lb := b.MustAcquire("x", nil)
		testutil.Want(t, la.Check(), tenure.ErrExpired)
		a.Faults().Wait()
		time.Sleep(3 * lease)
		testutil.Want(t, lb.Check(), nil)
		testutil.Want(t, la.Check(), tenure.ErrExpired)
		if rec := w.MustRecord("x"); rec.State != driver.Held || rec.Token != 2 {
			t.Errorf("record %+v", rec)
		}
	})
}

// Every other heartbeat arrives after its caller gave up: it is applied all the same,
// and the next attempt conflicts with it. The lease is not lost.
func TestHeartbeatsThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		l := m.MustAcquire("x", nil)
		m.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpHeartbeat && c.N%2 == 1 },
			Fault: faultstore.Late(requestTimeout + time.Millisecond),
		})
		for range 100 {
			time.Sleep(heartbeat)
			testutil.Want(t, l.Check(), nil)
		}
	})
}

// A claim that is applied after its caller gave up is cleaned up, and the lock
// is free long before its lease would be over.
func TestClaimAppliedAfterGivingUpIsCleanedUp(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"soon":       faultstore.Late(requestTimeout / 2),
		"late":       faultstore.Late(3 * requestTimeout),
		"lost":       faultstore.LoseReplyHang(),
		"much later": faultstore.LateAfterError(2*requestTimeout + requestTimeout/2),
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			m.Inject(faultstore.OpClaim, 0, 0, f)
			ctx, stop := context.WithTimeout(t.Context(), requestTimeout/4)
			defer stop()
			_, err := m.Acquire(ctx, "x", nil)
			testutil.Want(t, err, context.DeadlineExceeded)
			time.Sleep(requestTimeout)
			m.Faults().Wait()
			time.Sleep(lease / 2)
			if rec := w.MustRecord("x"); rec.State != driver.Released {
				t.Errorf("the record shows a holder that nobody believes in: %+v", rec)
			}
			// After a lease there is nothing left to clean up.
			time.Sleep(lease)
			n := m.Faults().Count()
			time.Sleep(10 * lease)
			if more := m.Faults().Count() - n; more != 0 {
				t.Errorf("%d more requests", more)
			}
		})
	}
}

// A later acquire of the same client does not adopt the claim of an earlier one,
// because a lease must not count from the wrong instant.
func TestLateClaimIsNotAdoptedByALaterAcquire(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.LateAfterError(2*time.Second))
		m.Inject(faultstore.OpGet, 0, 1, faultstore.Slow(time.Second, 0))
		ctx, stop := context.WithTimeout(t.Context(), time.Second/2)
		defer stop()
		_, err := m.Acquire(ctx, "x", nil)
		testutil.Want(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		l := m.MustAcquire("x", nil)
		if l.Token() == 1 {
			t.Error("the lease goes by the token of a claim that was given up")
		}
		time.Sleep(3 * lease)
		testutil.Want(t, l.Check(), nil)
	})
}

// A client pauses between claims to a store that answers reads, but no claims.
func TestClaimsWithoutAnAnswerComeSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).Client("b")
		b.Inject(faultstore.OpClaim, 0, 0, faultstore.LoseRequest())
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		_, err := b.Acquire(ctx, "x", nil)
		testutil.Want(t, err, context.DeadlineExceeded)
		if n := b.Faults().Count(faultstore.OpClaim); n > 30 {
			t.Errorf("%d claims in %v", n, lease)
		}
	})
}

// A release whose reply is lost lets a waiter in. That the record is then the waiter's
// does not make it a loss.
func TestReleaseWithLostReplyAndAWaiterIsDone(t *testing.T) {
	each(t, lostReplies, func(t *testing.T, f faultstore.Fault) {
		w := newWorld(t)
		m, b := w.Client("a"), w.Client("b")
		m.Inject(faultstore.OpRelease, 0, 1, f)
		go func() {
			time.Sleep(time.Second)
			b.MustAcquire("x", nil)
		}()
		testutil.Want(t, m.Run(t.Context(), "x", nil, func(_ context.Context, l *tenure.Lease) error {
			time.Sleep(5 * time.Second)
			return l.Check()
		}), nil)
	})
}

// A lease that is granted at the moment at which its acquire is given up is
// released again.
func TestGrantAtTheLastMomentIsReleased(t *testing.T) {
	for range 50 {
		inWorld(t, func(t *testing.T, w *world) {
			m := w.Client("a")
			m.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			l, err := m.Acquire(ctx, "x", nil)
			if err == nil {
				mustRelease(m, l)
			}
			time.Sleep(lease / 10)
			if rec := w.MustRecord("x"); rec.State != driver.Released {
				t.Errorf("the record is %s after %v", rec.State, err)
			}
		})
	}
}

// freeInTheWay is a store whose conflicts show a free record, as a store may that reads
// it after the condition has failed.
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
		testutil.Want(t, err, nil)
		defer func() { testutil.Want(t, c.Close(t.Context()), nil) }()
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		_, err = c.Acquire(ctx, "x", nil)
		testutil.Want(t, err, context.DeadlineExceeded)
		if n := s.claims.Load(); n > 100 {
			t.Errorf("%d claims in a lease", n)
		}
	})
}

// A store that answers reads and no write counts as silent: writes are not repeated
// without a pause, and calls end with its error.
func TestStoreThatOnlyReads(t *testing.T) {
	for name, call := range map[string]func(context.Context, *machine) error{
		"try": func(ctx context.Context, m *machine) error {
			_, err := m.TryAcquire(ctx, "free", nil)
			return err
		},
		"acquire": func(ctx context.Context, m *machine) error {
			_, err := m.Acquire(ctx, "free", &tenure.AcquireOptions{StoreTimeout: lease})
			return err
		},
		"open": func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"step down": func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "x", because("why"))
		},
		"step down under a session": func(ctx context.Context, m *machine) error {
			return m.StepDown(ctx, "under", because("why"))
		},
		"revoke":       func(ctx context.Context, m *machine) error { return admin.Revoke(ctx, m.Client, "x", "why") },
		"release dead": func(ctx context.Context, m *machine) error { return admin.ReleaseDead(ctx, m.Client, "x", "why") },
		"sweep":        func(ctx context.Context, m *machine) error { _, err := admin.Sweep(ctx, m.Client); return err },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			if strings.HasSuffix(name, "session") || name == "sweep" {
				mustTake(a, mustOpen(a, nil), "under")
			}
			a.MustAcquire("x", nil)
			if name == "release dead" || name == "sweep" {
				a.Partition()
			}
			b.Faults().Inject(faultstore.Rule{
				Match: func(c faultstore.Call) bool { return c.Op != faultstore.OpGet && c.Op != faultstore.OpList },
				Fault: faultstore.LoseRequest(),
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			begun := time.Now()
			err := call(ctx, b)
			if took := time.Since(begun); err == nil || ctx.Err() != nil || took > 3*lease {
				t.Errorf("%v after %v", err, took)
			}
			writes := 0
			for _, c := range b.Faults().Log() {
				if c.Op != faultstore.OpGet && c.Op != faultstore.OpList {
					writes++
				}
			}
			if writes > 60 {
				t.Errorf("%d writes", writes)
			}
		})
	}
}

// A session that was closed is deleted in the background, by a store that does not
// answer deletes.
func TestSweepInTheBackgroundRests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a")
		// One after each delete. The pauses between these begin at a thousandth of the lease, and may all be short.
		a.BoundReads(20)
		a.Inject(faultstore.OpDelete, 0, 0, faultstore.LoseRequest())
		mustClose(a, mustOpen(a, nil))
		time.Sleep(time.Hour)
		if n := len(a.Faults().Log()); n > 2000 {
			t.Errorf("%d requests in an hour", n)
		}
	})
}

// deaf is a call without an effect that ignores its context for d, as in a bad driver.
func deaf(d time.Duration) faultstore.Fault {
	f := faultstore.BlackHole()
	f.Deaf = d
	return f
}

// hangs are the ways in which a store can give no answer.
var hangs = map[string]faultstore.Fault{
	"hears its context": faultstore.BlackHole(),
	"deaf":              deaf(10 * lease),
}

// With a store that hangs for ever, Check fails at the deadline and not before,
// and the context is cancelled then, for each of 1,000 locks.
func TestHangingStoreEndsAllLeasesInTime(t *testing.T) {
	each(t, hangs, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).Client("a")
		slow := m.Faults().Inject(faultstore.Rule{Fault: faultstore.Slow(10*time.Millisecond, 10*time.Millisecond)})
		held := make(chan *tenure.Lease, crowd())
		for _, name := range names(crowd()) {
			go func() { held <- m.MustAcquire(name, nil) }()
		}
		time.Sleep(3 * heartbeat)
		slow()
		m.Faults().Inject(faultstore.Rule{Fault: f})
		last := map[string]time.Time{} // when the last confirmed write was sent
		time.Sleep(50 * time.Millisecond)
		for _, c := range m.Faults().Log() {
			if c.Done && c.Err == nil {
				last[c.Key] = c.Begin
			}
		}
		var all sync.WaitGroup
		for range crowd() {
			l := <-held
			all.Go(func() {
				deadline := last[l.Name()].Add(usable)
				if left := l.Remaining(); left < time.Until(deadline)-5*time.Millisecond || left > time.Until(deadline) {
					t.Errorf("%v remain, want at most %v", left, time.Until(deadline))
				}
				deadline = time.Now().Add(l.Remaining())
				time.Sleep(time.Until(deadline) - time.Nanosecond)
				if err := l.Check(); err != nil {
					t.Errorf("before the deadline: %v", err)
				}
				testutil.Want(t, l.Context().Err(), nil)
				time.Sleep(time.Nanosecond)
				testutil.Want(t, l.Check(), tenure.ErrExpired)
				<-l.Context().Done()
				if late := time.Since(deadline); late != 0 {
					t.Errorf("context cancelled %v late", late)
				}
				testutil.Want(t, context.Cause(l.Context()), tenure.ErrExpired)
			})
		}
		all.Wait()
	})
}

// hanging returns a machine that holds "held", and whose store gives no answer any
// more.
func hanging(t *testing.T, f faultstore.Fault) (*machine, *tenure.Lease) {
	t.Helper()
	w := newWorld(t)
	w.Client("other").MustAcquire("taken", nil)
	m := w.Client("a")
	l := m.MustAcquire("held", nil)
	time.Sleep(time.Millisecond)
	m.Faults().Inject(faultstore.Rule{Fault: f})
	return m, l
}

// Every wait honours its context at once, even if the store hangs, and even if the
// store ignores its own context.
func TestWaitsHonourTheirContextAtOnce(t *testing.T) {
	acquire := func(ctx context.Context, m *machine, _ *tenure.Lease) error {
		_, err := m.Acquire(ctx, "free", nil)
		return err
	}
	work := func(context.Context, *tenure.Lease) error { panic("work without a lease") }
	waits := map[string]func(context.Context, *machine, *tenure.Lease) error{
		"acquire": acquire,
		"acquire of a held lock": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Acquire(ctx, "taken", nil)
			return err
		},
		"acquire behind another": func(ctx context.Context, m *machine, l *tenure.Lease) error {
			first := testutil.Go(func() error { return acquire(context.WithoutCancel(m.World().T().Context()), m, l) })
			m.World().T().Cleanup(func() {
				m.Close(context.WithoutCancel(m.World().T().Context()))
				testutil.Want(m.World().T(), <-first, tenure.ErrClosed)
			})
			synctest.Wait()
			return acquire(ctx, m, l)
		},
		"try acquire": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.TryAcquire(ctx, "free", nil)
			return err
		},
		"run": func(ctx context.Context, m *machine, _ *tenure.Lease) error { return m.Run(ctx, "free", nil, work) },
		"election": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			testutil.Want(m.World().T(), m.Election("free", nil).Run(ctx, work), nil)
			return ctx.Err()
		},
		"observe": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			for _, err := range m.Election("free", nil).Observe(ctx) {
				return err
			}
			return ctx.Err() // it ends with that, without a word
		},
		"status": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Status(ctx, "free")
			return err
		},
		"leader": func(ctx context.Context, m *machine, _ *tenure.Lease) error {
			_, err := m.Election("free", nil).Leader(ctx)
			return err
		},
		"renew":    func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.Renew(ctx) },
		"set data": func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.SetData(ctx, []byte("d")) },
		"release":  func(ctx context.Context, _ *machine, l *tenure.Lease) error { return l.Release(ctx) },
		"close":    func(ctx context.Context, m *machine, _ *tenure.Lease) error { return m.Close(ctx) },
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			each(t, hangs, func(t *testing.T, f faultstore.Fault) {
				m, l := hanging(t, f)
				const patience = 777 * time.Millisecond
				ctx, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				testutil.Want(t, testutil.Within(t, patience, patience, func() error {
					return wait(ctx, m, l)
				}), context.DeadlineExceeded)
			})
		})
	}
}

// A store that ignores its context delays no caller beyond the limits that the calls
// have of their own.
func TestDeafStoreHoldsUpNobody(t *testing.T) {
	const (
		deafness = 100 * lease
		slack    = 5 * requestTimeout // of a request that is given up late, and its repetition
	)
	waits := map[string]struct {
		most time.Duration
		want error
		wait func(*machine, *tenure.Lease) error
	}{
		"acquire": {lease + slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.Acquire(m.World().T().Context(), "free", nil)
			return err
		}},
		"try acquire": {3*requestTimeout + slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.TryAcquire(m.World().T().Context(), "free", nil)
			return err
		}},
		"status": {slack, errOfStore, func(m *machine, _ *tenure.Lease) error {
			_, err := m.Status(m.World().T().Context(), "free")
			return err
		}},
		"renew": {usable + slack, tenure.ErrExpired, func(m *machine, l *tenure.Lease) error {
			return l.Renew(m.World().T().Context())
		}},
		"release": {lease + slack, tenure.ErrUncertain, func(m *machine, l *tenure.Lease) error {
			return l.Release(m.World().T().Context())
		}},
	}
	for name, w := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := hanging(t, deaf(deafness))
				err := testutil.Within(t, 0, w.most, func() error { return w.wait(m, l) })
				if !errors.Is(w.want, errOfStore) {
					testutil.Want(t, err, w.want)
				} else if err == nil {
					t.Error("no error")
				}
				time.Sleep(deafness) // the calls return in the end, and nothing minds
			})
		})
	}
}

// errOfStore stands for the error of a store, whatever it is.
var errOfStore = errors.New("the store's error")

// A call with a context that is done sends nothing.
func TestDoneContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := hanging(t, faultstore.BlackHole())
		m.Faults().ResetLog()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, err := m.Acquire(ctx, "free", nil)
		testutil.Want(t, err, context.Canceled)
		_, err = m.TryAcquire(ctx, "free", nil)
		testutil.Want(t, err, context.Canceled)
		testutil.Want(t, l.Renew(ctx), context.Canceled)
		testutil.Want(t, l.SetData(ctx, nil), context.Canceled)
		if n := m.Faults().Count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// The release goes on in the background when its caller does not wait for it,
// and it is as good as any.
func TestReleaseGoesOnAfterItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		l := m.MustAcquire("x", nil)
		m.Faults().SetBlackHole(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		testutil.Want(t, l.Release(ctx), tenure.ErrUncertain)
		m.Faults().SetBlackHole(false)
		time.Sleep(2 * requestTimeout)
		if rec := w.MustRecord("x"); rec.State != driver.Released {
			t.Errorf("record %+v", rec)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// A lock whose requests get no answer delays no other lock.
func TestSlowKeyDelaysNoOtherLock(t *testing.T) {
	each(t, hangs, func(t *testing.T, f faultstore.Fault) {
		m := newWorld(t).Client("a")
		slow := m.MustAcquire("slow", nil)
		other := m.MustAcquire("other", nil)
		m.Faults().Inject(faultstore.Rule{Key: "slow", Fault: f})
		time.Sleep(2 * lease)
		testutil.Want(t, slow.Check(), tenure.ErrExpired)
		testutil.Want(t, other.Check(), nil)
		testutil.Want(t, testutil.Within(t, 0, 0, func() error { return other.Renew(t.Context()) }), nil)
		testutil.Want(t, testutil.Within(t, 0, 0, func() error {
			l, err := m.Acquire(t.Context(), "third", nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			return err
		}), nil)
		for _, e := range m.Events(tenure.EventRenewed) {
			if e.Lock == "other" && e.Took > 0 {
				t.Errorf("a heartbeat of the other lock took %v", e.Took)
			}
		}
	})
}

// More hanging requests than MaxInFlight delay the others, and those whose
// lease ends first go first; nothing is lost if the hanging ones time out.
func TestRequestsOfUrgentLeasesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a", func(o *tenure.Options) { o.MaxInFlight = 1 })
		l := m.MustAcquire("x", nil)
		time.Sleep(heartbeat)
		m.Inject(faultstore.OpClaim, 0, 0, faultstore.BlackHole())
		for _, name := range names(20) {
			go func() { _, _ = m.Acquire(t.Context(), name, nil) }()
		}
		time.Sleep(3 * lease)
		testutil.Want(t, l.Check(), nil)
	})
}

// Hanging calls may use up MaxInFlight: waiting calls fail in time, and leases are not
// lost without a warning.
func TestRequestsWithoutAPlaceAreGivenUp(t *testing.T) {
	few := func(o *tenure.Options) { o.MaxInFlight = 4 }
	inWorldRun(t, "waits", func(t *testing.T, w *world) {
		m := w.Client("a", few)
		l := m.MustAcquire("held", nil)
		for _, n := range names(4) {
			m.MustAcquire(n, nil)
		}
		m.Faults().Inject(faultstore.Rule{Fault: deaf(100 * lease)})
		time.Sleep(heartbeat + time.Second) // the places are taken
		for name, wait := range map[string]func() error{
			"acquire":     func() error { _, err := m.Acquire(t.Context(), "free", nil); return err },
			"try acquire": func() error { _, err := m.TryAcquire(t.Context(), "free", nil); return err },
			"status":      func() error { _, err := m.Status(t.Context(), "free"); return err },
			"release":     func() error { return l.Release(t.Context()) },
		} {
			if err := testutil.Within(t, 0, 2*lease, wait); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		time.Sleep(100 * lease)
	})
	inWorldRun(t, "jeopardy", func(t *testing.T, w *world) {
		m := w.Client("a", few)
		for _, n := range names(100) {
			m.MustAcquire(n, nil)
		}
		m.Faults().SetBlackHole(true)
		time.Sleep(lease)
		warned := map[string]bool{}
		for _, e := range m.Events(tenure.EventJeopardy) {
			warned[e.Lock] = true
		}
		for _, e := range m.Events(tenure.EventLost) {
			if !warned[e.Lock] {
				t.Errorf("%s was lost without jeopardy", e.Lock)
			}
		}
	})
}

func TestStoreTimeoutHoldsInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Faults().SetBlackHole(true)
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
