// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// leapingClock is one whose holder's side can leap, as after a pause that no timer
// has noticed.
type leapingClock struct {
	tenure.Clock
	leapt atomic.Int64
	asked atomic.Pointer[func()] // to be called when it is asked next
}

func (c *leapingClock) Holder() time.Duration {
	if f := c.asked.Swap(nil); f != nil {
		(*f)()
	}
	return c.Clock.Holder() + time.Duration(c.leapt.Load())
}

// hookedStore calls a function when a claim was applied, and before its reply.
type hookedStore struct {
	driver.Store
	claimed func(key string)
}

func (s *hookedStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	s.claimed(next.Key)
	return now, prev, err
}

// hooked returns a client on such a store, with such a clock.
func hooked(t *testing.T, claimed func(string)) (*tenure.Client, *leapingClock) {
	t.Helper()
	clock := &leapingClock{Clock: tenure.MonotonicClock()}
	c := mustNew(t, &hookedStore{memstore.New(), claimed}, &tenure.Options{Clock: clock})
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c, clock
}

// Check of a lock under a session is exact where timers are late, and final.
func TestSessionCheckIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, clock := hooked(t, func(string) {})
		s, err := c.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		clock.leapt.Store(int64(lease))
		if err := l.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("check after a pause of a lease: %v", err)
		}
		if l.Remaining() > 0 || s.Remaining() > 0 {
			t.Errorf("%v and %v remain", l.Remaining(), s.Remaining())
		}
		if err := s.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("check of the session: %v", err)
		}
		clock.leapt.Store(0)
		if err := l.Check(); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("what has expired is held again: %v", err)
		}
		_ = l.Release(t.Context())
	})
}

// A session that was over before its opening was answered is not handed out.
func TestSessionOpenedDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leap := func() {}
		c, clock := hooked(t, func(string) { leap() })
		leap = func() { clock.leapt.Store(int64(lease)) }
		if s, err := c.OpenSession(t.Context(), nil); !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("opened %v, %v", s, err)
		}
	})
}

// Nor is a lock that was granted when its session had ended, or was closing:
// whether those who wait under it have been told by then, or the reply comes
// before. Nobody is told while a reply is dealt with, so that a close which comes
// when that has asked the clock finds the acquire in the second state.
func TestSessionGrantComesTooLate(t *testing.T) {
	for name, duringReply := range map[string]bool{"told first": false, "answered first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *tenure.Session
				var clock *leapingClock
				var works *tenure.Lease
				closes := func() {
					go func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
					<-works.Context().Done()
				}
				var c *tenure.Client
				c, clock = hooked(t, func(key string) {
					switch {
					case key != "job":
					case duringReply:
						synctest.Wait() // no timer is about to ask the clock in its place
						clock.asked.Store(&closes)
					default:
						closes()
						time.Sleep(time.Millisecond)
					}
				})
				var err error
				if s, err = c.OpenSession(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				// Work that goes on under it: the session is closing for a while.
				if works, err = s.Acquire(t.Context(), "other", nil); err != nil {
					t.Fatal(err)
				}
				if l, err := s.Acquire(t.Context(), "job", nil); !errors.Is(err, tenure.ErrSessionClosed) {
					t.Errorf("got error %v", err)
					if l != nil {
						t.Errorf("acquired under a session that is closing: its check says %v", l.Check())
						_ = l.Release(t.Context())
					}
				}
				if clock.asked.Load() != nil {
					t.Error("the session was not closed")
				}
				want(t, works.Check(), nil)
				want(t, works.Release(t.Context()), nil)
				want(t, s.Close(t.Context()), nil)
			})
		})
	}
}

// The session counts from before its opening was sent, not from the reply.
func TestSessionCountsFromBeforeTheRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		a.fault(faultstore.OpClaim, 0, 1, faultstore.Fault{After: requestTimeout / 2})
		s := a.mustOpen(nil)
		if most := usable(t) - requestTimeout/2; s.Remaining() > most {
			t.Errorf("%v remain, want %v at most", s.Remaining(), most)
		}
		seen := 0
		for st, err := range w.machine("b").Sessions(t.Context()) {
			if err != nil || st.ID != s.ID() || !st.Alive || st.State != tenure.StateAlive || st.Owner != "a" {
				t.Errorf("session %+v, %v", st, err)
			}
			seen++
		}
		if seen != 1 {
			t.Errorf("%d sessions are listed", seen)
		}
		a.mustClose(s)
		before := a.faults.Count()
		if _, err := s.Acquire(t.Context(), "job", nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Errorf("acquire under a closed session: %v", err)
		}
		if n := a.faults.Count() - before; n > 0 {
			t.Errorf("%d requests under a closed session", n)
		}
	})
}

// A request for a lock under a session that is closing is found when it closes. The
// lock is kept for the one that is meant, unless its holder has said that nobody comes.
func TestAskedWhileTheSessionCloses(t *testing.T) {
	for name, comes := range map[string]bool{"somebody comes": true, "nobody comes": false} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			s := a.mustOpen(nil)
			l := a.mustTake(s, "x")
			time.Sleep(heartbeat / 6)
			closed := started(func() error { return s.Close(t.Context()) })
			<-l.Context().Done()
			if !comes {
				want(t, l.StepDown("nobody comes"), nil)
			}
			asked := started(func() error { return b.Transfer(t.Context(), "x", "gone", "maintenance") })
			time.Sleep(heartbeat / 6) // it lies in the session's record, and a has not looked
			a.mustRelease(l)
			want(t, <-closed, nil)
			want(t, <-asked, nil)
			var free error
			if comes {
				free = tenure.ErrHeld
			}
			_, err := b.TryAcquire(t.Context(), "x", nil)
			want(t, err, free)
		})
	}
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
