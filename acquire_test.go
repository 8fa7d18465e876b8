// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

func TestTryAcquireDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		time.Sleep(time.Second)
		err := within(t, 0, 0, func() error { _, err := b.TryAcquire(t.Context(), "x", nil); return err })
		want(t, err, tenure.ErrHeld)
		held, ok := errors.AsType[*tenure.HeldError](err)
		if !ok || held.Owner != "a" || held.Token != 1 || held.FreeIn != lease {
			t.Errorf("%+v", held)
		}
		if got := err.Error(); got != `try acquire "x": held by "a" under token 1; free in 15s at the latest if it is dead` {
			t.Errorf("error %q", got)
		}
		if n := b.faults.Count(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		// Its own client's lock is held as well.
		_, err = a.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
	})
}

// What TryAcquire sees is remembered: repeated after the lease of a dead
// holder, it takes that one's lock. And never that of a living one.
func TestTryAcquireRepeatedTakesADeadHoldersLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		for range 40 {
			_, err := b.TryAcquire(t.Context(), "x", nil)
			want(t, err, tenure.ErrHeld)
			time.Sleep(lease / 4)
		}
		a.crash()
		start := time.Now()
		for {
			l, err := b.TryAcquire(t.Context(), "x", nil)
			if err == nil {
				if l.Token() != 2 {
					t.Errorf("token %d", l.Token())
				}
				break
			}
			want(t, err, tenure.ErrHeld)
			held, _ := errors.AsType[*tenure.HeldError](err)
			if time.Sleep(lease / 4); time.Since(start) > 2*lease {
				t.Fatalf("still held: %+v", held)
			}
		}
	})
}

// Looks of others count: whoever asked for the status knows as much.
func TestLooksOfAllKindsAreRemembered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustAcquire("x", nil)
		a.crash()
		if _, err := b.Status(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease)
		l, err := b.TryAcquire(t.Context(), "x", nil)
		want(t, err, nil)
		want(t, l.Check(), nil)
	})
}

func TestAdditionalWaitBoundsTheWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// The record shows a lease of its own.
		a := w.machine("a", func(o *tenure.Options) { o.LeaseDuration = 20 * time.Second })
		b := w.machine("b")
		la := a.mustAcquire("x", nil)
		o := &tenure.AcquireOptions{AdditionalWait: 2 * time.Second}
		err := within(t, 22*time.Second, 22*time.Second, func() error { _, err := b.Acquire(t.Context(), "x", o); return err })
		want(t, err, tenure.ErrHeld)
		if held, ok := errors.AsType[*tenure.HeldError](err); !ok || held.Owner != "a" || held.FreeIn > 20*time.Second {
			t.Errorf("%+v", held)
		}
		want(t, la.Check(), nil)
		// It is long enough for the lock of a dead holder.
		a.crash()
		_, err = b.Acquire(t.Context(), "x", o)
		want(t, err, nil)
	})
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

func TestTryAcquireBoundsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		m.crash()
		want(t, within(t, 3*requestTimeout, 5*requestTimeout, func() error {
			_, err := m.TryAcquire(t.Context(), "x", nil)
			return err
		}), context.DeadlineExceeded)
	})
}

func TestUnusableStoreIsAnErrorAtOnce(t *testing.T) {
	errNoTable := errors.New("no such table")
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		f := faultstore.Refuse()
		f.Err = driver.Permanent(errNoTable)
		m.faults.Inject(faultstore.Rule{Fault: f})
		err := within(t, 0, 0, func() error { _, err := m.Acquire(t.Context(), "x", nil); return err })
		want(t, err, errNoTable)
		want(t, err, driver.ErrPermanent)
		if got := err.Error(); got != `acquire "x": no such table` {
			t.Errorf("error %q", got)
		}
		want(t, m.Election("x", nil).Run(t.Context(), noWork), errNoTable)
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

// Fifty waiters cost the looks of one, and get the lock in their order.
func TestWaitersOfAProcessShareLooksAndKeepTheirOrder(t *testing.T) {
	looks := func(t *testing.T, waiters int) (n int, order string) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			b.reads += waiters // one for each that has its turn
			la := a.mustAcquire("x", nil)
			got := make(chan int, waiters)
			var all sync.WaitGroup
			for i := range waiters {
				all.Go(func() {
					l := b.mustAcquire("x", nil)
					got <- i
					b.mustRelease(l)
				})
				synctest.Wait()
			}
			time.Sleep(4 * lease)
			n = b.faults.Count()
			a.mustRelease(la)
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

// The turn goes on when the waiter in front gives up.
func TestWaiterInFrontMayGiveUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		la := a.mustAcquire("x", nil)
		first, cancel := context.WithCancel(t.Context())
		gone := started(func() error { _, err := b.Acquire(first, "x", nil); return err })
		synctest.Wait()
		second := started(func() error { b.mustAcquire("x", nil); return nil })
		time.Sleep(time.Second)
		cancel()
		want(t, within(t, 0, 0, func() error { return <-gone }), context.Canceled)
		time.Sleep(lease)
		a.mustRelease(la)
		want(t, within(t, 0, 0, func() error { return <-second }), nil)
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

// Two acquires of one client exclude each other as those of two do.
func TestAcquiresOfOneClientExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		second := started(func() error { m.mustAcquire("x", nil); return nil })
		time.Sleep(4 * lease)
		pending(t, "acquire", second)
		want(t, l.Check(), nil)
		m.mustRelease(l)
		want(t, within(t, 0, 0, func() error { return <-second }), nil)
		want(t, l.Check(), tenure.ErrReleased)
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

// TestDeadlineOfAWaitTellsWhoHolds: to bound a wait by the context is what a program tries
// first. One that was canceled gave up for a reason of its own, and one whose store gives no
// answer cannot say who holds the lock now.
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
			m.mustAcquire("y", nil)
			_, err := m.Acquire(ctx, "y", nil)
			return err
		}, who: "b"},
		"session": {wait: func(ctx context.Context, m *machine) error {
			_, err := m.mustOpen(nil).Acquire(ctx, "x", nil)
			return err
		}, who: "a"},
		"all": {wait: func(ctx context.Context, m *machine) error {
			_, err := m.mustOpen(nil).AcquireAll(ctx, []string{"z", "x", "v"}, nil)
			return err
		}, who: "a"},
		"remote": {wait: func(ctx context.Context, m *machine) error {
			_, err := m.Remote().Acquire(ctx, "x", tenure.RemoteOptions{Owner: "r"})
			return err
		}, who: "a"},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
			ctx, stop := context.WithTimeoutCause(t.Context(), 2*lease, tt.cause)
			defer stop()
			if tt.cancel {
				time.AfterFunc(lease, stop)
			}
			if tt.cut {
				time.AfterFunc(2*lease-lease/2, b.crash)
			}
			err := tt.wait(ctx, b)
			want(t, err, ctx.Err())
			if tt.matches != nil {
				want(t, err, tt.matches)
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

// TestWaitBoundsTheWaitAlone: Wait says for how long to wait, and the error is what was waited
// for. The context goes on, and with it the work.
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
			_, err := m.mustOpen(nil).AcquireAll(ctx, []string{"v", "x"}, options)
			return err
		}},
		"store went away": {cut: true, wait: func(ctx context.Context, m *machine) error {
			_, err := m.Acquire(ctx, "x", options)
			return err
		}},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
			if tt.cut {
				time.AfterFunc(2*lease-lease/2, b.crash)
			}
			err := within(t, 2*lease, 2*lease+lease/5, func() error { return tt.wait(t.Context(), b) })
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
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		time.AfterFunc(lease, func() { want(t, l.Release(t.Context()), nil) })
		want(t, b.Run(t.Context(), "x", options, func(ctx context.Context, l *tenure.Lease) error {
			time.Sleep(4 * lease) // longer than the wait
			return errors.Join(ctx.Err(), l.Check())
		}), nil)
		_, err := b.Acquire(t.Context(), "y", &tenure.AcquireOptions{Wait: -1})
		want(t, err, tenure.ErrInvalid)
	})
}

// While every claim loses its race, the wait is bounded all the same.
func TestWaitIsBoundedWhileRacesAreLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
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
		err := within(t, lease, lease+5*time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{AdditionalWait: time.Second})
			return err
		})
		want(t, err, tenure.ErrHeld)
		stop()
		want(t, <-rival, nil)
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
