// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// stale has the next cheap reads of the machine show the state of some writes ago;
// count 0: all of them.
func (m *machine) stale(skip, count, ago int) (remove func()) {
	notOnEngines(m.t, noStaleReads)
	return m.faults.Inject(faultstore.Rule{
		Ops: []faultstore.Op{faultstore.OpGet, faultstore.OpList}, Skip: skip, Count: count, Fault: faultstore.Stale(ago),
	})
}

// died returns a world in which a held x, under a session or not, beat for a while
// and crashed.
func died(t *testing.T, session bool) *world {
	t.Helper()
	w := newWorld(t)
	a := w.machine("a")
	if session {
		s := a.mustOpen(nil)
		if _, err := s.Acquire(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
	} else {
		a.mustAcquire("x", nil)
	}
	time.Sleep(10*heartbeat + heartbeat/2)
	a.crash()
	return w
}

func forBoth(t *testing.T, test func(t *testing.T, session bool)) {
	t.Helper()
	for name, session := range map[string]bool{"its own lease": false, "under a session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, session) })
		})
	}
}

// Who runs unless somebody else does takes a dead holder's lock, whatever cheap
// reads show of the time when it was alive.
func TestUnlessAliveTakesADeadHoldersLockOverStaleReads(t *testing.T) {
	for ago := 1; ago <= 3; ago++ {
		for skip := range 3 {
			t.Run(fmt.Sprint(ago, " behind after ", skip), func(t *testing.T) {
				forBoth(t, func(t *testing.T, session bool) {
					w := died(t, session)
					b := w.machine("b")
					b.stale(skip, 2, ago)
					want(t, within(t, lease-heartbeat, lease+time.Second, func() error {
						_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
						return err
					}), nil)
				})
			})
		}
	}
}

// A living one's it leaves to it, and says so soon.
func TestUnlessAliveLeavesALivingHolderOverStaleReads(t *testing.T) {
	forBoth(t, func(t *testing.T, session bool) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b")
		if session {
			s, err := a.OpenSession(t.Context(), nil)
			want(t, err, nil)
			_, err = s.Acquire(t.Context(), "x", nil)
			want(t, err, nil)
		} else {
			a.mustAcquire("x", nil)
		}
		b.stale(0, 0, 1)
		want(t, within(t, 0, 3*heartbeat, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		}), tenure.ErrHeld)
	})
}

// A session that was closed in order has freed its locks: who runs unless somebody
// does, and has seen that somebody did, does not run.
func TestUnlessAliveSessionClosed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		l, err := s.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		done := started(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(heartbeat / 4)
		go func() { _ = l.Release(t.Context()) }()
		want(t, s.Close(t.Context()), nil)
		want(t, <-done, tenure.ErrHeld)
		// Who comes only now has seen nobody.
		_, err = b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
		want(t, err, nil)
	})
}

// What an operator has released of a dead holder is no sign of life of it.
func TestUnlessAliveTakesWhatWasFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := died(t, false)
		b, op := w.machine("b"), w.machine("op")
		freed := started(func() error { return op.ReleaseDead(t.Context(), "x", "test") })
		time.Sleep(time.Second)
		_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
		want(t, err, nil)
		want(t, <-freed, nil)
	})
}

// A dead holder's lock is released, whatever cheap reads show, the operator's own
// and those of others in its process.
func TestReleaseDeadOverStaleReads(t *testing.T) {
	for skip := range 4 {
		t.Run(fmt.Sprint("after ", skip), func(t *testing.T) {
			forBoth(t, func(t *testing.T, session bool) {
				w := died(t, session)
				b := w.machine("b")
				b.stale(skip, 2, 1)
				want(t, within(t, lease-heartbeat, lease+time.Second, func() error {
					return b.ReleaseDead(t.Context(), "x", "test")
				}), nil)
			})
		})
	}
}

// Nor does a sweep take a session for alive by them.
func TestSweepOverStaleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := died(t, true)
		b := w.machine("b")
		b.stale(2, 0, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for _, err := range b.Election("x", nil).Observe(ctx) {
				_ = err // it goes on
			}
		}()
		n, err := b.Sweep(t.Context())
		if n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
	})
}

// A dead holder's lock is taken over when its lease has passed since it was seen
// first, whatever cheap reads show in between.
func TestStaleReadsDelayNoTakeover(t *testing.T) {
	forBoth(t, func(t *testing.T, session bool) {
		for looks := range 16 {
			for count := range 4 {
				for _, ago := range []int{1, 2} {
					w := died(t, session)
					b := w.machine("b")
					b.stale(looks, count, ago)
					if count == 0 && looks > 0 {
						continue
					}
					if count == 0 {
						count = 1 << 20
					}
					start := time.Now()
					l := b.mustAcquire("x", nil)
					if took := time.Since(start); took > lease+lease/75 {
						t.Errorf("%d looks, then %d that are %d writes behind: taken over after %v", looks, count, ago, took)
					}
					b.mustRelease(l)
				}
			}
		}
	})
}

// Who stands beside a dead holder in the same process asks no less strongly.
func TestStaleReadsOfOthersDelayNoTakeover(t *testing.T) {
	forBoth(t, func(t *testing.T, session bool) {
		w := died(t, session)
		b := w.machine("b")
		b.stale(0, 0, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for range 3 {
			go func() {
				for _, err := range b.Election("x", nil).Observe(ctx) {
					_ = err // it goes on
				}
			}()
		}
		go func() {
			for ctx.Err() == nil {
				for _, err := range b.Locks(ctx, "") {
					_ = err // it goes on
				}
				time.Sleep(time.Second)
			}
		}()
		want(t, within(t, lease-heartbeat, lease+lease/75, func() error {
			_, err := b.Acquire(t.Context(), "x", nil)
			return err
		}), nil)
		stop()
	})
}

// Nobody takes a living holder's lock by cheap reads, those of an observer beside
// included.
func TestStaleReadsTakeNothingFromTheLiving(t *testing.T) {
	forBoth(t, func(t *testing.T, session bool) {
		w := newWorld(t)
		a, b := w.machine("a"), w.machine("b")
		var l *tenure.Lease
		if session {
			s, err := a.OpenSession(t.Context(), nil)
			want(t, err, nil)
			l, err = s.Acquire(t.Context(), "x", nil)
			want(t, err, nil)
		} else {
			l = a.mustAcquire("x", nil)
		}
		time.Sleep(2 * heartbeat)
		for ago := 1; ago <= faultstore.MaxStale; ago++ {
			remove := b.stale(0, 0, ago)
			ctx, stop := context.WithTimeout(t.Context(), 2*lease)
			go func() {
				for _, err := range b.Election("x", nil).Observe(ctx) {
					_ = err // it goes on
				}
			}()
			_, err := b.Acquire(ctx, "x", nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d writes behind: %v", ago, err)
			}
			want(t, l.Check(), nil)
			stop()
			remove()
		}
	})
}

// What a client has seen of a session long ago says nothing of whether its holder
// lives now: it died before anybody asked.
func TestUnlessAliveOfWhatWasSeenLongAgo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		s, err := a.OpenSession(t.Context(), nil)
		want(t, err, nil)
		_, err = s.Acquire(t.Context(), "x", nil)
		want(t, err, nil)
		_, err = b.TryAcquire(t.Context(), "x", nil)
		want(t, err, tenure.ErrHeld)
		time.Sleep(10 * lease)
		a.crash()
		want(t, within(t, lease-heartbeat, lease+time.Second, func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		}), nil)
	})
}

// The holder is shown, and has gone, while the first request of the acquire is under
// way: others of its process look as well.
func TestUnlessAliveOfWhatOthersSaw(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		b.fault(faultstore.OpClaim, 0, 1, faultstore.BlackHole())
		taken := started(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(requestTimeout / 10)
		if st, err := b.Status(t.Context(), "x"); err != nil || !st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		a.mustRelease(l)
		if st, err := b.Status(t.Context(), "x"); err != nil || st.Held {
			t.Fatalf("%+v, %v", st, err)
		}
		want(t, <-taken, tenure.ErrHeld)
	})
}

// What is handed over to this very owner is taken.
func TestUnlessAliveTakesWhatIsHandedToIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		l := a.mustAcquire("x", nil)
		taken := started(func() error {
			_, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{UnlessAlive: true})
			return err
		})
		time.Sleep(heartbeat / 6)
		want(t, l.HandOver("b", "yours"), nil)
		a.mustRelease(l)
		want(t, <-taken, nil)
	})
}
