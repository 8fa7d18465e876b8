// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// during counts the calls of a kind on a key while a duration passes.
func (m *machine) during(d time.Duration, op faultstore.Op, key string) int {
	m.faults.ResetLog()
	time.Sleep(d)
	n := 0
	for _, c := range m.faults.Log() {
		if c.Op == op && c.Key == key {
			n++
		}
	}
	return n
}

// TestTimingPerLock: one client has a leader of 2 s, a job of 5 min and a session of many
// locks, each with what follows from its own lease.
func TestTimingPerLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		quick := a.mustAcquire("leader", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		long := a.mustAcquire("job", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Minute}})
		plain := a.mustAcquire("plain", nil)
		s, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: 30 * time.Second}})
		want(t, err, nil)
		for _, name := range names(crowd()) {
			a.mustTake(s, name)
		}
		for name, lease := range map[string]time.Duration{
			"leader": 2 * time.Second, "job": 5 * time.Minute, "plain": lease, "lock-00000": 30 * time.Second,
			driver.SessionKey(s.ID()): 30 * time.Second,
		} {
			if got := w.record(name).Lease; got != lease {
				t.Errorf("%s has a lease of %v, want %v", name, got, lease)
			}
		}
		if got := quick.Timing(); got.HeartbeatPeriod != 400*time.Millisecond || got.RequestTimeout != 200*time.Millisecond || got.StopTimeout != 2*time.Second {
			t.Errorf("the leader has %+v", got)
		}
		if r := long.Remaining(); r < 3*time.Minute || r > 5*time.Minute {
			t.Errorf("the job has %v left", r)
		}
		const minute = time.Minute
		beats := map[string]int{}
		a.faults.ResetLog()
		time.Sleep(10 * minute)
		for _, c := range a.faults.Log() {
			beats[c.Key]++
		}
		for key, n := range map[string]int{"leader": 1500, "job": 10, "plain": 200, driver.SessionKey(s.ID()): 100, "lock-00000": 0} {
			if got := beats[key]; got < n-n/20-1 || got > n+n/20+1 {
				t.Errorf("%s was written %d times in 10 minutes, want about %d", key, got, n)
			}
		}
		for _, l := range []*tenure.Lease{quick, long, plain} {
			want(t, l.Check(), nil)
		}

		// Cut off, each ends at its own deadline, and a contender with the defaults waits
		// for just that.
		b := w.machine("b")
		begun := time.Now()
		took := make(chan string, 3)
		for _, name := range []string{"leader", "job", "plain"} {
			go func() {
				if _, err := b.Acquire(t.Context(), name, nil); err == nil {
					took <- fmt.Sprintf("%s after %v", name, time.Since(begun).Round(time.Second))
				}
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		last := time.Now()
		a.crash()
		want(t, within(t, 500*time.Millisecond, 2*time.Second, func() error { <-quick.Context().Done(); return context.Cause(quick.Context()) }), tenure.ErrExpired)
		<-took
		if d := time.Since(last); d > 2*time.Second+2*refresh {
			t.Errorf("the leader's successor came after %v", d)
		}
		<-plain.Context().Done()
		<-took
		want(t, long.Check(), nil)
		if d := time.Since(last); d > lease+2*refresh {
			t.Errorf("the plain lock's successor came after %v", d)
		}
		<-long.Context().Done()
		<-took
		if d := time.Since(last); d < 4*time.Minute || d > 5*time.Minute+2*refresh {
			t.Errorf("the job's successor came after %v", d)
		}
	})
}

// TestTimingOfWaiters: those who wait for one lock share its looks, as often as the most
// impatient of them wants them.
func TestTimingOfWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		held := a.mustAcquire("x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute}})
		unhinted := b.fault(faultstore.OpHint, 0, 0, faultstore.Refuse())
		defer unhinted()
		wait := func(refresh time.Duration) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := started(func() error {
				_, err := b.Acquire(ctx, "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute, RefreshPeriod: refresh}})
				return err
			})
			synctest.Wait()
			return func() {
				cancel()
				want(t, <-ended, context.Canceled)
			}
		}
		looks := func(want int) {
			t.Helper()
			// Besides, one falls soon after each heartbeat, of which there are five.
			if n := b.during(time.Minute, faultstore.OpGet, "x"); n < want-want/3 || n > want+want/3+7 {
				t.Errorf("%d looks in a minute, want about %d", n, want)
			}
		}
		slow := wait(10 * time.Second)
		looks(6)
		quick := wait(time.Second)
		looks(60)
		third := wait(2 * time.Second)
		looks(60)
		quick()
		looks(30)
		third()
		looks(6)
		slow()

		// One that gives up at a sign of life waits for no turn, and looks as well.
		var lived atomic.Int64
		ended := started(func() error {
			defer func() { lived.Store(time.Now().UnixNano()) }()
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{
				UnlessAlive: true, Timing: tenure.Timing{LeaseDuration: time.Minute, RefreshPeriod: 500 * time.Millisecond},
			})
			return err
		})
		// It ends with the next heartbeat, which comes within 12 s.
		begun := time.Now()
		n := b.during(12*time.Second, faultstore.OpGet, "x")
		want(t, <-ended, tenure.ErrHeld)
		if each := float64(lived.Load()-begun.UnixNano()) / 5e8; float64(n) < 0.6*each-1 || float64(n) > 1.4*each+4 {
			t.Errorf("%d looks in the time of %.1f of one each 0.5 s", n, each)
		}
		want(t, held.Check(), nil)
	})
}

// TestTimingOfCalls: a call of a lock with a short lease ends before that of the client
// would.
func TestTimingOfCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		l := a.mustAcquire("x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		a.fault(faultstore.OpHeartbeat, 0, 1, faultstore.BlackHole())
		time.Sleep(2 * time.Second)
		want(t, l.Check(), nil)
		begun := time.Now()
		a.crash()
		_, err := a.TryAcquire(t.Context(), "y", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		if took := time.Since(begun); err == nil || took > requestTimeout {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestTimingUnderASession: a lock under a session has that of the session.
func TestTimingUnderASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Second}})
		want(t, err, nil)
		other := &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: time.Minute}}
		_, err = s.Acquire(t.Context(), "x", other)
		want(t, err, tenure.ErrInvalid)
		want(t, s.Run(t.Context(), "x", other, noWork), tenure.ErrInvalid)
		want(t, s.Election("x", &tenure.ElectionOptions{Timing: other.Timing}).Run(t.Context(), noWork), tenure.ErrInvalid)
		l, err := s.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		if got := l.Timing().LeaseDuration; got != 5*time.Second {
			t.Errorf("the lock has a lease of %v", got)
		}
		waits := started(func() error {
			_, err := b.Acquire(t.Context(), "x", nil)
			return err
		})
		time.Sleep(time.Minute)
		pending(t, "the other's acquire", waits)
		begun := time.Now()
		a.crash()
		want(t, <-waits, nil)
		if took := time.Since(begun); took > 5*time.Second+2*refresh {
			t.Errorf("taken over after %v", took)
		}
	})
}

// TestProgressUnderASession: the work of a lock has the session's time to show progress, and
// the time that the session gives it to stop.
func TestProgressUnderASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		s, err := a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: time.Minute, ProgressTimeout: 5 * time.Second}})
		want(t, err, nil)
		l, err := s.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		want(t, within(t, 5*time.Second, 5*time.Second, func() error { <-l.Context().Done(); return context.Cause(l.Context()) }), tenure.ErrStalled)
		want(t, s.Check(), nil)
	})
}

// TestSuspendUnderAShortLease: a jump of the clock is noticed within a fraction of the grace
// of the lock, however long the client's is.
func TestSuspendUnderAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &leapingClock{Clock: tenure.MonotonicClock()}
		c := mustNew(t, memstore.New(), &tenure.Options{Clock: clock, LeaseDuration: time.Minute})
		l, err := c.Acquire(t.Context(), "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 2 * time.Second}})
		want(t, err, nil)
		time.Sleep(10 * time.Millisecond)
		clock.leapt.Store(int64(time.Hour))
		grace := l.Timing().Grace
		want(t, within(t, 0, grace/4+time.Millisecond, func() error { <-l.Context().Done(); return context.Cause(l.Context()) }), tenure.ErrExpired)
		_ = c.Close(context.WithoutCancel(t.Context()))
	})
}

// TestTimingOfAnElection: a leader of 5 s, where the client's own call timeout would not do.
func TestTimingOfAnElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		o := &tenure.ElectionOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Second}}
		leads := make(chan string, 2)
		for _, m := range []*machine{a, b} {
			go func() {
				_ = m.Election("x", o).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
					leads <- l.Owner()
					<-ctx.Done()
					return nil
				})
			}()
		}
		first, machines := <-leads, map[string]*machine{"a": a, "b": b}
		time.Sleep(time.Minute)
		begun := time.Now()
		machines[first].crash()
		if second := <-leads; second == first {
			t.Errorf("%s leads again", first)
		}
		if took := time.Since(begun); took > 5*time.Second+2*refresh {
			t.Errorf("a successor after %v", took)
		}
	})
}

// TestTimingIsChecked: each broken rule is named.
func TestTimingIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		for rule, of := range map[string]tenure.Timing{
			"must be from":              {LeaseDuration: time.Millisecond},
			"shorter than its parts":    {LeaseDuration: 5 * time.Second, RequestTimeout: 1500 * time.Millisecond},
			"grace":                     {Grace: -time.Second},
			"whole number of milli":     {LeaseDuration: 5*time.Second + 1},
			"progress timeout":          {ProgressTimeout: -1},
			"15s is shorter than its p": {HeartbeatPeriod: 14 * time.Second},
		} {
			calls := a.calls(func() {
				_, err := a.Acquire(t.Context(), "x", &tenure.AcquireOptions{Timing: of})
				want(t, err, tenure.ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), rule) {
					t.Errorf("got %v, want %q", err, rule)
				}
				_, err = a.OpenSession(t.Context(), &tenure.SessionOptions{Timing: of})
				want(t, err, tenure.ErrInvalid)
			})
			if calls != "" {
				t.Errorf("sent %q", calls)
			}
		}
	})
}

// TestCloseWaitsForTheLongest: the work of a lock with a long stop timeout has its time.
func TestCloseWaitsForTheLongest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		done := started(func() error {
			return a.Run(t.Context(), "x", &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: 5 * time.Minute}}, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				time.Sleep(4 * time.Minute)
				return nil
			})
		})
		time.Sleep(time.Second)
		ended, stop := context.WithCancel(t.Context())
		stop()
		want(t, within(t, 4*time.Minute, 4*time.Minute+time.Second, func() error { return a.Close(ended) }), nil)
		want(t, <-done, nil)
	})
}
