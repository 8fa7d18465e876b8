// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// readings counts how often a clock is read.
type readings struct {
	tenure.Clock
	n      atomic.Int64
	enough func() // called at the thousandth
}

func (c *readings) Contender() time.Duration {
	if c.n.Add(1) == 1000 {
		c.enough()
	}
	return c.Clock.Contender()
}

// An observer that cannot know yet whether the session of a lock is alive
// waits for the look at it, and does not ask itself again and again meanwhile.
func TestObserverAwaitsTheLookAtASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		s := a.mustOpen(nil)
		l, err := s.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), requestTimeout)
		defer stop()
		clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
		b := w.machine("b", func(o *tenure.Options) { o.Clock = clock })
		b.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Key == driver.SessionKey(s.ID()) },
			Fault: faultstore.Slow(0, requestTimeout/2),
		})
		tried := started(func() error {
			time.Sleep(requestTimeout / 4)
			_, err := b.TryAcquire(ctx, "x", nil) // it sees the lock, and the observer is told
			return err
		})
		for leader, err := range b.Election("x", nil).Observe(ctx) {
			if err == nil && leader.Token != l.Token() {
				t.Errorf("observed %+v", leader)
			}
		}
		if n := clock.n.Load(); n > 100 {
			t.Errorf("the clock was read %d times", n)
		}
		want(t, <-tried, tenure.ErrHeld)
		want(t, l.Release(t.Context()), nil)
		want(t, s.Close(t.Context()), nil)
	})
}

// A request for a lock that is being acquired under the session lies there until
// the acquire knows whether the lock is its own. Meanwhile the session reads its
// requests after each heartbeat, and not again and again.
func TestKeptRequestIsReadAfterHeartbeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		clock := &hasty{Clock: tenure.MonotonicClock()}
		a := w.machine("a", func(o *tenure.Options) { o.Clock = clock })
		s := a.mustOpen(nil)
		a.fault(faultstore.OpClaim, 0, 1, faultstore.LoseReplyHang())
		acquired := started(func() error {
			_, err := s.Acquire(t.Context(), "x", nil)
			return err
		})
		b := w.machine("b")
		time.Sleep(requestTimeout / 4)
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		asked := started(func() error { return b.StepDown(ctx, "x", "a test") })
		time.Sleep(requestTimeout / 4)
		want(t, s.Renew(t.Context()), nil) // it finds the request
		time.Sleep(requestTimeout / 4)
		pending(t, "the acquire", acquired)
		if n := clock.n.Load(); n > 1000 {
			t.Fatalf("the clock was read %d times", n)
		}
		want(t, <-acquired, nil)
		stop()
		want(t, <-asked, tenure.ErrUnanswered) // its work takes no notice
		want(t, s.Context().Err(), nil)
	})
}

// hasty is a clock that jumps when it was read too often, so that who does that
// comes to an end.
type hasty struct {
	tenure.Clock
	n atomic.Int64
}

func (c *hasty) Holder() time.Duration {
	if c.n.Add(1) > 20_000 {
		return c.Clock.Holder() + time.Hour
	}
	return c.Clock.Holder()
}

// A campaign under a session that has expired ends, and does not go on for ever
// with what fails at once.
func TestCampaignUnderAnExpiredSessionEnds(t *testing.T) {
	for name, begun := range map[string]bool{"begun before": true, "begun after": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			holder := w.machine("b").mustAcquire("x", nil)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			clock := &readings{Clock: tenure.MonotonicClock(), enough: stop}
			a := w.machine("a", func(o *tenure.Options) { o.Clock = clock })
			s, err := a.OpenSession(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			campaign := func() error {
				return s.Election("x", nil).Run(ctx, func(context.Context, *tenure.Lease) error { return nil })
			}
			var done <-chan error
			if begun {
				done = started(campaign)
			}
			time.Sleep(time.Second)
			a.crash()
			<-s.Context().Done()
			want(t, s.Check(), tenure.ErrExpired)
			if !begun {
				done = started(campaign)
			}
			want(t, <-done, tenure.ErrSessionClosed)
			if ctx.Err() != nil {
				t.Error("it had to be stopped")
			}
			want(t, holder.Check(), nil)
		})
	}
}

// A store that answers reads and no write is no better than a mute one: what was not
// written is not written again and again, and calls end with its error.
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
		"open":                      func(ctx context.Context, m *machine) error { _, err := m.OpenSession(ctx, nil); return err },
		"step down":                 func(ctx context.Context, m *machine) error { return m.StepDown(ctx, "x", "why") },
		"step down under a session": func(ctx context.Context, m *machine) error { return m.StepDown(ctx, "under", "why") },
		"revoke":                    func(ctx context.Context, m *machine) error { return m.Revoke(ctx, "x", "why") },
		"release dead":              func(ctx context.Context, m *machine) error { return m.ReleaseDead(ctx, "x", "why") },
		"sweep":                     func(ctx context.Context, m *machine) error { _, err := m.Sweep(ctx); return err },
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			if strings.HasSuffix(name, "session") || name == "sweep" {
				a.mustTake(a.mustOpen(nil), "under")
			}
			a.mustAcquire("x", nil)
			if name == "release dead" || name == "sweep" {
				a.crash()
			}
			b.faults.Inject(faultstore.Rule{
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
			for _, c := range b.faults.Log() {
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
		a := w.machine("a")
		a.reads = 20 // one after each delete; the pauses between these begin at a thousandth of the lease, and may all be short
		a.fault(faultstore.OpDelete, 0, 0, faultstore.LoseRequest())
		a.mustClose(a.mustOpen(nil))
		time.Sleep(time.Hour)
		if n := len(a.faults.Log()); n > 2000 {
			t.Errorf("%d requests in an hour", n)
		}
	})
}
