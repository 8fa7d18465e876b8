// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenuretest"
)

// guardedWait is how long a takeover waits on the stores of these tests: twice the lease, as for an
// engine whose old primary goes on for a lease.
const guardedWait = 2 * lease

// onGuarded runs a test in a bubble, with two clients on an engine that may lose writes.
func onGuarded(t *testing.T, test func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration = lease })
		w.Store().Guard(guardedWait)
		test(t, w, w.Client("a"), w.Client("b"))
	})
}

// TestLostGrant: the grant was lost with the primary. No process is granted the lock before the
// holder has stopped, although no record shows it, and no token is given twice.
func TestLostGrant(t *testing.T) {
	for _, held := range []string{"absent", "released"} {
		t.Run(held, func(t *testing.T) {
			onGuarded(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
				if held == "released" {
					if err := b.MustAcquire("x", nil).Release(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				earlier := w.Store().Copy()
				lost := a.MustAcquire("x", nil)
				w.Store().Lose(earlier)
				begun := time.Now()
				var e *tenure.HeldError
				if _, err := b.TryAcquire(t.Context(), "x", nil); !errors.As(err, &e) || !e.Failover {
					t.Errorf("a try at once: %v, want a HeldError with Failover", err)
				}
				if st, err := b.Status(t.Context(), "x"); err != nil || !st.Failover || st.FreeIn <= 0 {
					t.Errorf("status: %+v, %v, want Failover", st, err)
				}
				next := b.MustAcquire("x", nil)
				if lost.Check() == nil {
					t.Error("the lost holder acts beside the next one")
				}
				took(t, begun, guardedWait, guardedWait+lease/2)
				if next.Token() <= lost.Token()+1 {
					t.Errorf("token %d after %d, which is lost", next.Token(), lost.Token())
				}
			})
		})
	}
}

// TestLostGrantByAnotherClock: the grant was lost of a holder whose clock is better, and which keeps less of its lease as a
// margin. Who opens the life knows nothing of it, and waits for it nevertheless.
func TestLostGrantByAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const graces = 50 // in a lease
		w := tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration, o.Grace = lease, lease/graces })
		w.Store().Guard(lease)
		with := func(drift float64) func(*tenure.Options) {
			return func(o *tenure.Options) { o.MaxClockDrift = drift }
		}
		a, b := w.Client("a", with(0.01)), w.Client("b", with(0.09))
		earlier := w.Store().Copy()
		a.SetRate(0.99)
		b.SetRate(1.09)
		lost := a.MustAcquire("x", nil)
		a.Partition()
		w.Store().Lose(earlier)
		b.MustAcquire("x", nil)
		if lost.Check() == nil {
			t.Error("the lost holder acts beside the next one")
		}
	})
}

// TestTakeoverOnLossyStore waits as long as the store says, whatever the lease of the lock is.
func TestTakeoverOnLossyStore(t *testing.T) {
	onGuarded(t, func(t *testing.T, _ *tenuretest.World, a, b *tenuretest.Client) {
		short := &tenure.AcquireOptions{Timing: tenure.Timing{LeaseDuration: lease / 2}}
		a.MustAcquire("x", short)
		a.Kill()
		begun := time.Now()
		if next := b.MustAcquire("x", short); next.Token() != 2 {
			t.Errorf("token %d in the first life, want 2", next.Token())
		}
		took(t, begun, guardedWait, guardedWait+lease/2)
	})
}

// TestRefusedOnLossyStore: what rests on several records, or on what a record says was done.
func TestRefusedOnLossyStore(t *testing.T) {
	onGuarded(t, func(t *testing.T, _ *tenuretest.World, a, _ *tenuretest.Client) {
		if !a.Options().LossyStore {
			t.Error("the options do not say that the store may lose writes")
		}
		work := func(context.Context, *once.Turn) error { return nil }
		for name, try := range map[string]func() error{
			"semaphore": func() error { _, err := semaphore.New(a.Client, "x", 2, nil); return err },
			"rwlock":    func() error { _, err := rwlock.New(a.Client, "x", nil); return err },
			"shard":     func() error { _, err := shard.New(a.Client, "x", &shard.Options{Partitions: 2}); return err },
			"once":      func() error { _, err := once.Once(t.Context(), a.Client, "x", 1, nil, work); return err },
			"every":     func() error { return once.Every(t.Context(), a.Client, "x", time.Hour, nil, work) },
		} {
			if err := try(); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", name, err)
			}
		}
		if r, err := once.Once(t.Context(), a.Client, "x", 1, &once.Options{AllowRepeats: true}, work); err != nil || r.Run.Slot != 1 {
			t.Errorf("once, with repeats allowed: %+v, %v", r, err)
		}
	})
}

// TestSessionEndsWithLife: a failover ends each session, whatever it has lost. Until then the locks of
// the session are nobody else's, and the next session takes them under higher tokens.
func TestSessionEndsWithLife(t *testing.T) {
	for _, lost := range []string{"nothing", "the lock", "the session"} {
		t.Run(lost, func(t *testing.T) {
			onGuarded(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
				states := map[string]*memstore.Store{"the session": w.Store().Copy()}
				session, err := a.OpenSession(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				states["the lock"] = w.Store().Copy()
				held, err := session.Acquire(t.Context(), "x", nil)
				if err != nil {
					t.Fatal(err)
				}
				states["nothing"] = w.Store().Copy()
				w.Store().Lose(states[lost])
				begun := time.Now()
				if _, err := b.TryAcquire(t.Context(), "x", nil); !errors.Is(err, tenure.ErrHeld) {
					t.Errorf("a try at once: %v, want ErrHeld", err)
				}
				next := b.MustAcquire("x", nil)
				if held.Check() == nil {
					t.Error("the lock of the session is held beside the next holder")
				}
				took(t, begun, guardedWait, 2*guardedWait)
				if next.Token() <= held.Token()+1 {
					t.Errorf("token %d after %d", next.Token(), held.Token())
				}
				if err := session.Check(); err == nil {
					t.Error("the session goes on in another life")
				}
				again, err := a.OpenSession(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := again.Acquire(t.Context(), "y", nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// elsewhere is a store whose locks are claimed on another server than its sessions.
type elsewhere struct{ driver.Store }

func (s elsewhere) Waits() time.Duration { return guardedWait }

func (s elsewhere) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	if err == nil && next.State == driver.Held {
		now.Life = "another"
	}
	return now, prev, err
}

// TestLockGrantedByAnotherServer: a session does not hold a lock that was granted by another server
// than its own. The session ends, and the lock is given back.
func TestLockGrantedByAnotherServer(t *testing.T) {
	onGuarded(t, func(t *testing.T, w *tenuretest.World, _, b *tenuretest.Client) {
		client, err := tenure.New(elsewhere{w.Store().Open()}, &tenure.Options{LeaseDuration: lease})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		session, err := client.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := session.Acquire(t.Context(), "x", nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Fatalf("granted %v, %v, want ErrSessionClosed", l, err)
		}
		if err := session.Check(); !errors.Is(err, tenure.ErrSuperseded) {
			t.Errorf("the session: %v, want ErrSuperseded", err)
		}
		time.Sleep(lease / 10)
		if st, err := b.Status(t.Context(), "x"); err != nil || st.Held {
			t.Errorf("status: %+v, %v, want the lock free", st, err)
		}
	})
}

// TestDeadHolderAfterLoss: a lock whose holder is dead changes hands in the new life, whether a
// contender has waited since before the failover or not.
func TestDeadHolderAfterLoss(t *testing.T) {
	onGuarded(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		first := a.MustAcquire("x", nil)
		a.Kill()
		synctest.Wait()
		go func() {
			time.Sleep(lease)
			w.Store().Lose(w.Store().Copy())
		}()
		begun := time.Now()
		next := b.MustAcquire("x", &tenure.AcquireOptions{History: true})
		took(t, begun, lease+guardedWait, lease+guardedWait+lease/2)
		if next.Token() <= first.Token()+1 {
			t.Errorf("token %d after %d", next.Token(), first.Token())
		}
		if n := b.Faults().Count(faultstore.OpTakeover); n > 1 {
			t.Errorf("%d takeovers were tried: the count of the dead holder's beat goes on in another life", n)
		}
		terms, err := b.History(t.Context(), "x")
		if err != nil || len(terms) != 3 || terms[1].End != tenure.EndRaised || terms[2].Owner != "a" {
			t.Errorf("history: %+v, %v", terms, err)
		}
	})
}

// TestReleaseDeadAfterARestart: the engine refuses the heartbeats of a session that it has opened in a
// former life, and shows it as expired at once. The session's holder, cut off, acts until its deadline. An operator
// whose request has met the refusal does not release its locks before.
func TestReleaseDeadAfterARestart(t *testing.T) {
	onGuarded(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		session, err := a.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := session.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease)
		a.Partition()
		w.Store().Lose(w.Store().Copy())
		b.Go(func(ctx context.Context) error { // its request is refused
			return ended(b.StepDown(ctx, "x", &tenure.StepDownOptions{Reason: "a deploy"}))
		})
		begun := time.Now()
		b.Go(func(ctx context.Context) error {
			err := admin.ReleaseDead(ctx, b.Client, "x", "it is dead")
			if l.Check() == nil {
				t.Errorf("released after %v, while the holder may act", time.Since(begun))
			}
			return err
		})
		w.Until("the lock is free", func() bool { return w.MustRecord("x").State == driver.Released })
		if after := time.Since(begun); after > 2*guardedWait {
			t.Errorf("released after %v", after)
		}
	})
}

// ended leaves out that the holder has ended before it could be asked.
func ended(err error) error {
	if errors.Is(err, tenure.ErrNotHeld) {
		return nil
	}
	return err
}

// TestSurvivorOfLosses: a holder whose record survived goes on through failovers, with its data,
// even if its latest writes were lost. Its heartbeats open the life, so that the lock changes hands
// at once after the next release.
func TestSurvivorOfLosses(t *testing.T) {
	onGuarded(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		for i := range 6 {
			earlier := w.Store().Copy()
			if err := l.SetData(t.Context(), []byte{byte(i)}); err != nil {
				t.Fatalf("failover %d: %v", i, err)
			}
			time.Sleep(lease / 3)
			w.Store().Lose(earlier)
			time.Sleep(lease)
			if err := l.Check(); err != nil {
				t.Fatalf("failover %d: %v", i, err)
			}
			if rec := w.MustRecord("x"); !bytes.Equal(rec.Data, []byte{byte(i)}) {
				t.Errorf("failover %d: the data are %v, want %d", i, rec.Data, i)
			}
		}
		time.Sleep(guardedWait)
		var granted atomic.Int64
		begun := time.Now()
		b.Go(func(ctx context.Context) error {
			_, err := b.Acquire(ctx, "x", nil)
			granted.Store(int64(time.Since(begun)))
			return err
		})
		time.Sleep(time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Until("the next holder has it", func() bool { return granted.Load() != 0 })
		if after := time.Duration(granted.Load()); after > 2*time.Second {
			t.Errorf("granted %v after the wait began, a second before the release", after)
		}
	})
}

// TestCutOffPrimary: the old primary goes on for a while, and does not see the heartbeats that the
// new one takes. A contender that asks the old one does not take over.
func TestCutOffPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t, func(o *tenure.Options) { o.LeaseDuration = lease })
		w.Store().Guard(guardedWait)
		at := &atRouter{Store: w.Store().Open()}
		w.Wrap(func(name string, s driver.Store) driver.Store {
			if name == "b" {
				return at
			}
			return s
		})
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		b.Go(func(ctx context.Context) error {
			next, err := b.Acquire(ctx, "x", nil)
			if err == nil && l.Check() == nil {
				t.Errorf("token %d was granted beside the holder of token %d", next.Token(), l.Token())
			}
			return err
		})
		for last, since := "", time.Now(); time.Since(since) < lease/6; time.Sleep(100 * time.Millisecond) {
			if beat := w.MustRecord("x").Beat; beat != last {
				last, since = beat, time.Now()
			}
		} // b has seen the latest beat, and the next one is about to come
		old := w.Store().Copy()
		w.Store().Lose(old)
		at.to.Store(old) // b is on the side of the old primary, which stops after a lease
		time.Sleep(lease)
		at.to.Store(w.Store())
		time.Sleep(2 * lease)
		if err := l.Check(); err != nil {
			t.Errorf("the holder was disturbed: %v", err)
		}
	})
}

// atRouter is a store behind an address that leads to another server later.
type atRouter struct {
	*memstore.Store
	to atomic.Pointer[memstore.Store]
}

func (r *atRouter) now() *memstore.Store {
	if to := r.to.Load(); to != nil {
		return to
	}
	return r.Store
}

func (r *atRouter) Get(ctx context.Context, key string, how driver.Consistency) (driver.Record, error) {
	return r.now().Get(ctx, key, how)
}

func (r *atRouter) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return r.now().Claim(ctx, next)
}

func (r *atRouter) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return r.now().Swap(ctx, prev, next)
}
