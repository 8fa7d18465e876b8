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
// the context is cancelled within a nap, and both stay so although nobody took
// the lock and the store answers.
func TestSuspendEndsTheLease(t *testing.T) {
	for name, sleep := range map[string]func(*machine){
		"suspend":                  func(m *machine) { m.suspend(lease) },
		"pause of the whole guest": func(m *machine) { m.step(lease) },
		"several short ones": func(m *machine) {
			for range 15 {
				m.suspend(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(tenuretest.New(t), "a")
				l := acquire(t, m, "x")
				untouched := acquire(t, m, "y")
				time.Sleep(10*time.Second + 123*time.Millisecond)
				start := time.Now()
				sleep(m)
				want(t, l.Check(), tenure.ErrExpired)
				if left := l.Remaining(); left != 0 {
					t.Errorf("%v remain", left)
				}
				<-l.Context().Done()
				want(t, context.Cause(l.Context()), tenure.ErrExpired)
				if late := time.Since(start); late > 0 {
					t.Errorf("context cancelled %v after Check had noticed", late)
				}
				// Where nobody asks, the nap bounds it.
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

// A suspend shorter than what remains costs just that, and the heartbeats make
// up for it.
func TestShortSuspendCostsItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(tenuretest.New(t), "a")
		l := acquire(t, m, "x")
		before := l.Remaining()
		m.suspend(5 * time.Second)
		if left := l.Remaining(); left != before-5*time.Second {
			t.Errorf("%v remain of %v", left, before)
		}
		for range 50 {
			time.Sleep(2 * time.Second)
			m.suspend(5 * time.Second)
			want(t, l.Check(), nil)
			time.Sleep(2 * nap) // an overdue heartbeat is sent
		}
	})
}

func TestStepsOfTheWallClock(t *testing.T) {
	for name, test := range map[string]struct {
		step  time.Duration
		trust bool
		want  error
	}{
		"forward, which may be a pause":      {step: lease, want: tenure.ErrExpired},
		"forward, with a trusted boot clock": {step: lease, trust: true},
		"forward a little":                   {step: 3 * time.Second},
		"back":                               {step: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(tenuretest.New(t), "a", func(o *tenure.Options) { o.TrustBootClock = test.trust })
				l := acquire(t, m, "x")
				m.step(test.step)
				want(t, l.Check(), test.want)
				time.Sleep(4 * lease)
				want(t, l.Check(), test.want)
			})
		})
	}
}

// For a contender a step of the wall clock is no time: the holder is not dead
// because somebody set the clock.
func TestStepDoesNotShortenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		a, b := newMachine(w, "a"), newMachine(w, "b")
		la := acquire(t, a, "x")
		a.Partition()
		start := time.Now()
		go func() {
			for range 28 {
				time.Sleep(time.Second / 2)
				b.step(time.Hour)
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

// A contender that saw nothing for more than a lease does not take a living
// holder's lock: its takeover is conditional on what it saw.
func TestContenderThatSleptTakesNoLivingHoldersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		a, b := newMachine(w, "a"), newMachine(w, "b")
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
		if b.Faults().Count(faultstore.OpTakeover) == 0 {
			t.Error("no takeover was tried")
		}
	})
}

// A reply that was under way during a suspend does not revive the lease.
func TestReplyFromBeforeASuspendRevivesNothing(t *testing.T) {
	for name, look := range map[string]bool{"with a look": true, "without a look": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(tenuretest.New(t), "a")
				l := acquire(t, m, "x")
				time.Sleep(time.Second)
				m.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.Slow(0, time.Second/8)})
				renewed := make(chan error)
				go func() { renewed <- l.Renew(t.Context()) }()
				time.Sleep(time.Second / 16)
				m.suspend(lease)
				if look {
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
		m := newMachine(w, "a")
		slow := func(away func(time.Duration)) {
			m.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpClaim}, Key: "x", Count: 1, Fault: faultstore.Slow(0, time.Second)})
			time.AfterFunc(time.Second/2, func() { away(lease) })
		}
		slow(m.step)
		_, err := m.Acquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrExpired)
		time.Sleep(time.Second)
		if rec, err := w.Store().Get(t.Context(), "x", driver.Strong); err != nil || rec.State != driver.Released {
			t.Errorf("record %+v, %v", rec, err)
		}
		slow(m.step)
		want(t, m.Election("x", nil).Run(t.Context(), func(_ context.Context, l *tenure.Lease) error {
			if l.Token() != 3 {
				t.Errorf("token %d", l.Token())
			}
			return l.Check()
		}), nil)
		slow(m.suspend)
		l := acquire(t, m, "x")
		want(t, l.Check(), nil)
		if l.Token() != 5 || l.Remaining() < 10*time.Second {
			t.Errorf("token %d, %v remain", l.Token(), l.Remaining())
		}
	})
}
