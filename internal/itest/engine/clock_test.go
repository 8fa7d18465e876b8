// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// After a suspend that outlasted the lease, Check fails with its first call,
// the context is cancelled within a nap, and both stay so although no process took
// the lock and the store answers.
func TestSuspendEndsTheLease(t *testing.T) {
	for name, sleep := range map[string]func(*tenuretest.Client){
		"suspend":                  func(m *tenuretest.Client) { suspend(m, lease) },
		"pause of the whole guest": func(m *tenuretest.Client) { m.Step(lease) },
		"several short ones": func(m *tenuretest.Client) {
			for range 15 {
				suspend(m, time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := tenuretest.New(t).Client("a")
				l := acquire(t, m, "x")
				untouched := acquire(t, m, "y")
				time.Sleep(10*time.Second + 123*time.Millisecond)
				sleep(m)
				start := time.Now()
				want(t, l.Check(), tenure.ErrExpired)
				if left := l.Remaining(); left != 0 {
					t.Errorf("%v remain", left)
				}
				<-l.Context().Done()
				want(t, context.Cause(l.Context()), tenure.ErrExpired)
				if late := time.Since(start); late > 0 {
					t.Errorf("context cancelled %v after Check had noticed", late)
				}
				// If no caller asks, the nap bounds it.
				<-untouched.Context().Done()
				if late := time.Since(start); late > nap {
					t.Errorf("context cancelled after %v, want %v at most", late, nap)
				}
				want(t, untouched.Check(), tenure.ErrExpired)
				for range 100 {
					time.Sleep(time.Second)
					want(t, l.Check(), tenure.ErrExpired)
				}
				want(t, l.Release(t.Context()), tenure.ErrExpired)
			})
		})
	}
}

// For an acquirer a step of the wall clock is no time: the holder is not dead
// because the clock was set.
func TestStepDoesNotShortenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		a, b := w.Client("a"), w.Client("b")
		la := acquire(t, a, "x")
		a.Partition()
		start := time.Now()
		go func() {
			for range 28 {
				time.Sleep(time.Second / 2)
				b.Step(time.Hour)
			}
		}()
		lb := acquire(t, b, "x")
		if took := time.Since(start); took < lease {
			t.Errorf("taken over after %v", took)
		}
		want(t, la.Check(), tenure.ErrExpired)
		want(t, lb.Check(), nil)
	})
}

// An acquirer that saw nothing for more than a lease does not even try to take a live
// holder's lock: it reads the record again first.
func TestContenderThatSleptTakesNoLivingHoldersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		a, b := w.Client("a"), w.Client("b")
		la := acquire(t, a, "x")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, "x", &tenure.AcquireOptions{StoreTimeout: -1})
			done <- err
		}()
		for range 20 {
			time.Sleep(5 * time.Second)
			b.Partition()
			time.Sleep(2 * lease)
			b.Heal()
		}
		want(t, la.Check(), nil)
		stop()
		want(t, <-done, context.Canceled)
		if rec, err := w.Store().Get(t.Context(), "x", driver.Strong); err != nil || rec.Owner != "a" || rec.Token != 1 {
			t.Errorf("record %+v, %v", rec, err)
		}
		if n := b.Faults().Count(faultstore.OpTakeover); n > 0 {
			t.Errorf("%d takeovers were tried", n)
		}
	})
}

// A reply that was under way during a suspend does not revive the lease.
func TestReplyFromBeforeASuspendRevivesNothing(t *testing.T) {
	for name, check := range map[string]bool{"with a check": true, "without a check": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := tenuretest.New(t).Client("a")
				l := acquire(t, m, "x")
				time.Sleep(time.Second)
				m.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.Slow(0, time.Second/8)})
				renewed := make(chan error)
				go func() { renewed <- l.Renew(t.Context()) }()
				time.Sleep(time.Second / 16)
				suspend(m, lease)
				if check {
					want(t, l.Check(), tenure.ErrExpired)
				}
				want(t, <-renewed, tenure.ErrExpired)
				want(t, l.Check(), tenure.ErrExpired)
				time.Sleep(lease)
				want(t, l.Check(), tenure.ErrExpired)
			})
		})
	}
}

// A grant that came while the machine was away, for longer than the lease, is
// not handed out, and its record does not stay behind. After a suspend, which
// the contender counts as well, the lock is taken again from there.
func TestGrantFromBeforeAPauseIsNotBelievedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		m := w.Client("a")
		slow := func(away func(time.Duration)) {
			m.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Key: "x", Count: 1, Fault: faultstore.Slow(0, time.Second)})
			time.AfterFunc(time.Second/2, func() { away(lease) })
		}
		slow(m.Step)
		_, err := m.Acquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrExpired)
		time.Sleep(time.Second)
		if rec, err := w.Store().Get(t.Context(), "x", driver.Strong); err != nil || rec.State != driver.Released {
			t.Errorf("record %+v, %v", rec, err)
		}
		slow(m.Step)
		want(t, m.Election("x", nil).Run(t.Context(), func(_ context.Context, l *tenure.Lease) error {
			if l.Token() != 3 {
				t.Errorf("token %d", l.Token())
			}
			return l.Check()
		}), nil)
		slow(func(d time.Duration) { suspend(m, d) })
		l := acquire(t, m, "x")
		want(t, l.Check(), nil)
		if l.Token() != 5 || l.Remaining() < 10*time.Second {
			t.Errorf("token %d, %v remain", l.Token(), l.Remaining())
		}
	})
}
