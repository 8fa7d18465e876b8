// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tenuretest"
)

// A leader that is cut off stops at its deadline, before the next one begins, and
// campaigns again when the network is there again.
func TestPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		first := campaign(t, a)
		led := w.Leader("x")
		campaign(t, b)
		begun := time.Now()
		a.Partition()
		w.Until("the first has lost", func() bool { _, cause := first.latest(); return cause != nil })
		_, cause := first.latest()
		testutil.Want(t, cause, tenure.ErrLost)
		if next := w.Leader("x"); next.Client != a {
			t.Error("the second began before the first had stopped")
		}
		next := w.LeaderAfter(led)
		expect(t, next, b, 2)
		took(t, begun, lease*3/4, lease*3/2)

		a.Heal()
		b.Partition()
		expect(t, w.LeaderAfter(next), a, 3)
	})
}

// All of the world's clients can be cut off at once; then no client leads.
func TestWorldPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		first, second := campaign(t, a), campaign(t, b)
		led := w.Leader("x")
		w.Partition()
		time.Sleep(3 * lease)
		for _, k := range []*candidate{first, second} {
			if l, _ := k.latest(); l != nil && l.Check() == nil {
				t.Errorf("%s still leads", k.Options().Owner)
			}
		}
		w.Heal()
		w.LeaderAfter(led)
	})
}

// A killed leader releases nothing; its record stays until another one takes over, and
// the program of the killed one ends.
func TestKill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		first := campaign(t, a)
		led := w.Leader("x")
		campaign(t, b)
		l, _ := first.latest()
		begun := time.Now()
		a.Kill()
		if l.Check() == nil {
			t.Error("the killed leader may still act")
		}
		testutil.Want(t, <-first.ended, tenure.ErrClosed)
		_, cause := first.latest()
		testutil.Want(t, cause, tenure.ErrClosed)
		took(t, begun, 0, 10*time.Millisecond)
		if !w.Held("x") {
			t.Error("the killed leader has released the lock")
		}
		expect(t, w.LeaderAfter(led), b, 2)
		took(t, begun, lease*3/4, lease*3/2)
		for _, call := range a.Faults().Log() {
			if call.Begin.After(begun) && call.Done && call.Err == nil && call.Op != faultstore.OpHint {
				t.Errorf("after the kill: %v", call)
			}
		}

		again := w.Client("a")
		if owner := again.Options().Owner; owner != "a-2" {
			t.Errorf("started again as %q", owner)
		}
		_, err := a.TryAcquire(t.Context(), "y", nil)
		testutil.Want(t, err, tenure.ErrClosed)
		_, err = again.TryAcquire(t.Context(), "y", nil)
		testutil.Want(t, err, nil)
	})
}

// Whatever a client is doing, a kill ends it: also in a pause, and also what waits.
func TestKillOfPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, b *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		waiting := campaign(t, b)
		synctest.Wait()
		a.Pause()
		b.Pause()
		time.Sleep(time.Second)
		a.Kill()
		b.Kill()
		testutil.Want(t, context.Cause(l.Context()), tenure.ErrClosed)
		testutil.Want(t, l.Check(), tenure.ErrLost)
		testutil.Want(t, <-waiting.ended, tenure.ErrClosed)
	})
}

// In a pause nothing of the client moves; after it, all the time has passed.
func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		elapsed := a.Options().Clock.Contender
		left, age := l.Remaining(), elapsed()
		a.Pause()
		second := b.MustAcquire("x", nil)
		time.Sleep(10 * lease)
		if l.Check() != nil || l.Context().Err() != nil || left-l.Remaining() > lease/100 || elapsed()-age > lease/100 {
			t.Errorf("the pause is seen: %v, %v, %v of %v remain", l.Check(), l.Context().Err(), l.Remaining(), left)
		}
		if second.Token() != 2 {
			t.Errorf("token %d", second.Token())
		}
		a.Resume()
		testutil.Want(t, l.Check(), tenure.ErrLost)
		if passed := elapsed() - age; passed < 10*lease {
			t.Errorf("%v have passed", passed)
		}
		begun := time.Now()
		<-l.Context().Done()
		took(t, begun, 0, time.Second)
		testutil.Want(t, second.Check(), nil)
	})
}

// A pause that is shorter than what the lease has in hand changes nothing.
func TestShortPause(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, _ *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		for range 20 {
			a.Suspend(lease / 3)
			time.Sleep(lease / 10)
			testutil.Want(t, l.Check(), nil)
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// Suspend returns when the machine is awake again.
func TestSuspend(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		campaign(t, a)
		led := w.Leader("x")
		campaign(t, b)
		begun := time.Now()
		a.Suspend(lease * 2)
		took(t, begun, lease*2, lease*2)
		expect(t, w.Leader("x"), b, 2)
		b.Suspend(time.Hour)
		next := w.LeaderAfter(led)
		if next.Client != a || next.Token < 3 {
			t.Errorf("%q under token %d", next.Options().Owner, next.Token)
		}
	})
}

// A request that begins in a pause is made after it, or fails with its timeout; and one
// that was under way is answered after it.
func TestPauseHoldsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, _ *tenuretest.Client) {
		status := func() <-chan error {
			done := make(chan error, 1)
			go func() { _, err := a.Status(t.Context(), "x"); done <- err }()
			synctest.Wait()
			return done
		}
		is := func(done <-chan error, ready bool) {
			t.Helper()
			synctest.Wait()
			if (len(done) == 1) != ready {
				t.Errorf("returned: %v, want %v", !ready, ready)
			}
		}

		a.Slow(100 * time.Millisecond)
		under := status()
		a.Pause()
		begins := status()
		time.Sleep(time.Second)
		is(under, false)
		is(begins, false)
		if n := a.Faults().Count(faultstore.OpGet); n != 1 {
			t.Errorf("%d reads reached the store in the pause", n-1)
		}
		a.Resume()
		is(under, true)
		is(begins, false)
		time.Sleep(100 * time.Millisecond)
		is(begins, true)
		testutil.Want(t, <-under, nil)
		testutil.Want(t, <-begins, nil)

		a.Pause()
		late := status()
		time.Sleep(lease / 10)
		is(late, true)
		testutil.Want(t, <-late, context.DeadlineExceeded)
		a.Resume()
	})
}

// A hint that comes in a pause is seen right after it.
func TestPauseHoldsHints(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, _ *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		waiter := w.Client("waiter", func(o *tenure.Options) { o.RefreshPeriod = 10 * time.Second })
		campaign(t, waiter)
		time.Sleep(time.Second)
		waiter.Pause()
		testutil.Want(t, l.Release(t.Context()), nil)
		time.Sleep(100 * time.Millisecond)
		if w.Held("x") {
			t.Error("acquired in the pause")
		}
		waiter.Resume()
		begun := time.Now()
		expect(t, w.Leader("x"), waiter, 2)
		took(t, begun, 0, 10*time.Millisecond)
	})
}

// readings counts how often a clock is read.
type readings struct {
	tenure.Clock
	n atomic.Int64
}

func (r *readings) Holder() time.Duration { r.n.Add(1); return r.Clock.Holder() }

// However near the next instant of a paused client is, it does not spin.
func TestPauseDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &readings{Clock: tenure.MonotonicClock()}
		a := tenuretest.New(t).Client("a", func(o *tenure.Options) { o.Clock = clock })
		l := a.MustAcquire("x", nil)
		// A heartbeat is due after 3 s: stop just before it.
		for _, ahead := range []time.Duration{1, time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			testutil.Want(t, l.Renew(t.Context()), nil)
			time.Sleep(lease/5 - ahead)
			before := clock.n.Load()
			a.Pause()
			time.Sleep(lease / 3)
			a.Resume()
			if n := clock.n.Load() - before; n > 20_000 {
				t.Errorf("stopped %v before a heartbeat: %d readings of the clock in %v", ahead, n, lease/3)
			}
		}
		testutil.Want(t, l.Release(t.Context()), nil)
	})
}

// Slow delays each call, until it is told otherwise or healed.
func TestSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, b *tenuretest.Client) {
		status := func(c *tenuretest.Client, least, most time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := c.Status(t.Context(), "x")
			testutil.Want(t, err, nil)
			took(t, begun, least, most)
		}
		a.Slow(time.Second)
		status(a, time.Second, time.Second)
		status(b, 0, 0)
		a.Slow(time.Second + 1)
		status(a, time.Second+1, time.Second+1)
		a.Slow(0)
		status(a, 0, 0)
		a.Slow(time.Second)
		a.Heal()
		status(a, 0, 0)
	})
}

// A write whose reply is lost has been made. Reads are spared, and Heal ends it.
func TestLoseReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, _ *tenuretest.Client) {
		a.Slow(time.Second)
		a.LoseReplies(1)
		_, err := a.Status(t.Context(), "x")
		testutil.Want(t, err, nil)
		begun := time.Now()
		l := a.MustAcquire("x", nil)
		took(t, begun, lease/10, lease/2)
		if l.Token() != 1 {
			t.Errorf("token %d: the claim whose reply was lost was not recognised", l.Token())
		}
		if n := a.Faults().Count(faultstore.OpClaim); n != 1 {
			t.Errorf("%d claims", n)
		}

		a.Slow(0)
		time.Sleep(2 * time.Second) // what was slow has ended
		a.LoseReplies(1)
		a.LoseReplies(1)
		a.Heal()
		begun = time.Now()
		testutil.Want(t, l.Release(t.Context()), nil)
		took(t, begun, 0, 0)
		if w.Held("x") {
			t.Error("still held")
		}
	})
}

// Rules of the user's own work beside these.
func TestFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *tenuretest.World, a, _ *tenuretest.Client) {
		a.Slow(time.Second)
		a.Slow(0)
		a.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Count: 1, Fault: faultstore.LoseRequest()})
		_, err := a.Status(t.Context(), "x")
		testutil.Want(t, err, faultstore.ErrInjected)
		a.Heal()
		_, err = a.Status(t.Context(), "x")
		testutil.Want(t, err, nil)
	})
}
