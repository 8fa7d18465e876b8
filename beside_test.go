// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// After a hint an observer asks for what the record is, however far behind cheap
// reads are.
func TestObserverSeesWhatItWasHintedAt(t *testing.T) {
	for ago := 1; ago <= 3; ago++ {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
			seen := make(chan tenure.Leader, 10)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				for who, err := range b.Election("x", nil).Observe(ctx) {
					if err == nil {
						seen <- who
					}
				}
			}()
			if who := <-seen; who.Owner != "a" {
				t.Fatalf("%+v leads", who)
			}
			time.Sleep(2 * heartbeat)
			b.stale(0, 0, ago)
			a.mustRelease(l)
			start := time.Now()
			if who := <-seen; who.Owner != "" || time.Since(start) > requestTimeout {
				t.Errorf("%d writes behind: %+v is seen %v after the release", ago, who, time.Since(start))
			}
		})
	}
}

// A waiter takes a lock when it is told of the release, however far behind cheap reads
// are.
func TestWaiterTakesWhatItWasToldOf(t *testing.T) {
	for ago := range 4 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.machine("a"), w.machine("b")
			l := a.mustAcquire("x", nil)
			taken := started(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
			time.Sleep(2*heartbeat + time.Second)
			b.stale(0, 0, ago)
			a.mustRelease(l)
			want(t, within(t, 0, requestTimeout, func() error { return <-taken }), nil)
		})
	}
}

// seldom has a client look rarely.
func seldom(o *tenure.Options) { o.RefreshPeriod = 20 * lease }

// Who waits has what others of its process see: it takes the lock when one of them
// sees that it is free, however rarely it looks itself.
func TestWhoWaitsActsOnWhatOthersSee(t *testing.T) {
	looks := map[string]func(ctx context.Context, b *machine) error{
		"status": func(ctx context.Context, b *machine) error {
			_, err := b.Status(ctx, "x")
			return err
		},
		"statuses": func(ctx context.Context, b *machine) error {
			_, errs := b.Statuses(ctx, []string{"x"})
			return errs[0]
		},
		"list": func(ctx context.Context, b *machine) error {
			for _, err := range b.Locks(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, session bool) {
				w := newWorld(t)
				a, b := w.machine("a"), w.machine("b", seldom)
				b.fault(faultstore.OpWatch, 0, 0, faultstore.Refuse())
				free := holding(a, session)
				taken := started(func() error {
					_, err := b.Acquire(t.Context(), "x", nil)
					return err
				})
				time.Sleep(heartbeat + heartbeat/2)
				free()
				time.Sleep(time.Second)
				pending(t, "acquire", taken) // it has not looked since
				want(t, within(t, 0, requestTimeout, func() error {
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
	m.t.Helper()
	if session {
		s := m.mustOpen(nil)
		l := m.mustTake(s, "x")
		return func() { m.mustClose(s, l) }
	}
	l := m.mustAcquire("x", nil)
	return func() { m.mustRelease(l) }
}

// Who waits takes a dead holder's lock when it can be taken, whoever looks at it
// besides in the same process.
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
			forBoth(t, func(t *testing.T, session bool) {
				for after := time.Duration(0); after < heartbeat; after += heartbeat / 8 {
					w := newWorld(t)
					a, b := w.machine("a"), w.machine("b")
					holding(a, session)
					ctx, stop := context.WithCancel(t.Context())
					taken := started(func() error {
						l, err := b.Acquire(t.Context(), "x", nil)
						stop()
						if err == nil {
							err = l.Release(t.Context())
						}
						return err
					})
					synctest.Wait()
					go beside(ctx, b)
					time.Sleep(8*heartbeat + after) // until b knows when a beats: each look halves what it knows
					a.crash()
					// Its last sign of life was at most a heartbeat before.
					want(t, within(t, lease-heartbeat-heartbeat/100, lease+lease/75, func() error { return <-taken }), nil)
					stop()
				}
			})
		})
	}
}
