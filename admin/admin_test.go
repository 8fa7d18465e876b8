// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

// A process that knows for certain that a holder has ended frees its lock after the last
// requests of the dead holder: others need not wait for the lease.
func TestReleaseCrashed(t *testing.T) {
	const grace = lease / 8
	inWorld(t, func(t *testing.T, w *world) {
		history := func(o *tenure.Options) { o.HistoryLimit = 10 }
		a, b, c := w.Client("a"), w.Client("b", history), w.Client("c")
		l := a.MustAcquire("x", nil)
		time.Sleep(heartbeat + heartbeat/2)
		a.Partition()
		waiter := testutil.Go(func() error {
			l, err := b.Acquire(t.Context(), "x", &tenure.AcquireOptions{History: true})
			if err == nil {
				testutil.Want(t, l.Check(), nil)
				if p, ok := l.Previous(); !ok || p.End != tenure.EndCrashed || p.Until.IsZero() || p.Ended() != "crashed" {
					t.Errorf("previous %+v", p)
				}
			}
			return err
		})
		died := time.Now()
		testutil.Want(t, testutil.Within(t, grace, grace+lease/100, func() error {
			return admin.ReleaseCrashed(t.Context(), c.Client, "x", l.ID(), nil)
		}), nil)
		st, err := c.Status(t.Context(), "x")
		if testutil.Want(t, err, nil); st.Owner != "b" && (st.State != tenure.StateReleased || st.End != tenure.EndCrashed || st.Until.Sub(died) < grace) {
			t.Errorf("status %+v", st) // unless b has read at exactly that instant
		}
		testutil.Want(t, testutil.Within(t, 0, 2*refresh, func() error { return <-waiter }), nil)
		list, err := b.History(t.Context(), "x")
		if testutil.Want(t, err, nil); len(list) != 2 || list[1].End != tenure.EndCrashed || list[1].Owner != "a" || list[1].Until.Before(died) {
			t.Errorf("history %+v", list)
		}

		// b holds it now, and is not a.
		testutil.Want(t, admin.ReleaseCrashed(t.Context(), c.Client, "x", l.ID(), nil), tenure.ErrNotHeld)
		if st, _ := c.Status(t.Context(), "x"); !st.Held || st.Owner != "b" {
			t.Errorf("status %+v", st)
		}
	})
}

// The lock of another lease is left alone, whatever its owner and its token are.
func TestReleaseCrashedKnowsTheLeaseAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, c := w.Client("a"), w.Client("c")
		same := w.Client("same", func(o *tenure.Options) { o.Owner = "a" })
		l := a.MustAcquire("x", nil)
		a.Partition()
		testutil.Want(t, w.Store().Delete(t.Context(), w.MustRecord("x")), nil)
		other := same.MustAcquire("x", nil)
		if other.Token() != l.Token() {
			t.Fatalf("token %d, the former one was %d", other.Token(), l.Token())
		}
		testutil.Want(t, admin.ReleaseCrashed(t.Context(), c.Client, "x", l.ID(), nil), tenure.ErrNotHeld)
		time.Sleep(2 * lease)
		testutil.Want(t, other.Check(), nil)
	})
}

// A release without an answer in time leaves the lease to expire; a late answer is still
// applied.
func TestReleaseCrashedAndTheStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, c := w.Client("a"), w.Client("c")
		l := a.MustAcquire("x", nil)
		a.Partition()
		lost := c.Inject(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
		testutil.Want(t, admin.ReleaseCrashed(t.Context(), c.Client, "x", l.ID(), &admin.CrashOptions{After: -1}), nil)
		lost()
		if rec := w.MustRecord("x"); rec.State != driver.Released || rec.End != driver.EndCrashed {
			t.Errorf("record %+v", rec)
		}

		b := w.Client("b")
		l = b.MustAcquire("y", nil)
		b.Partition()
		c.Partition()
		err := testutil.Within(t, lease, lease+2*requestTimeout, func() error {
			return admin.ReleaseCrashed(t.Context(), c.Client, "y", l.ID(), &admin.CrashOptions{After: -1, Within: lease})
		})
		if err == nil {
			t.Error("done without a store")
		}
		testutil.Want(t, admin.ReleaseCrashed(t.Context(), c.Client, "y", "", nil), tenure.ErrInvalid)
		testutil.Want(t, admin.ReleaseCrashed(t.Context(), c.Client, "y", l.ID(), &admin.CrashOptions{After: time.Hour, Within: time.Minute}), tenure.ErrInvalid)
	})
}

// A caller that has asked a holder to step down does not return while the holder
// may be at work: a holder whose lock was revoked meanwhile learns of that by its
// next heartbeat, or by its clock.
func TestStepDownOfWhatIsRevokedMeanwhile(t *testing.T) {
	for name, crashes := range map[string]bool{"alive": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
				l := a.MustAcquire("x", nil)
				if crashes {
					time.Sleep(heartbeat / 2)
					a.Partition()
				}
				revoked := testutil.Go(func() error {
					time.Sleep(heartbeat / 30)
					return admin.Revoke(t.Context(), c.Client, "x", "now")
				})
				if err := b.StepDown(t.Context(), "x", &tenure.StepDownOptions{Reason: "please"}); err == nil && l.Check() == nil {
					t.Errorf("it reports that the term has ended, and the holder may act for %v", l.Remaining())
				}
				testutil.Want(t, <-revoked, nil)
			})
		})
	}
}

// The error of an acquire of a revoked lock says for how long its holder may
// still be at work.
func TestStepDownOfARevokedLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
		l := a.MustAcquire("x", nil)
		a.Partition()
		revoked := testutil.Go(func() error { return admin.Revoke(t.Context(), c.Client, "x", "now") })
		time.Sleep(time.Second)
		err := b.StepDown(t.Context(), "x", &tenure.StepDownOptions{Reason: "please"})
		testutil.Want(t, err, tenure.ErrNotHeld)
		if held := (*tenure.HeldError)(nil); !errors.As(err, &held) || held.FreeIn < l.Remaining() {
			t.Errorf("%v; want it to say that the holder may act for %v", err, l.Remaining())
		}
		testutil.Want(t, <-revoked, nil)
	})
}

func TestReleaseDeadRefusesTheLiving(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		l := a.MustAcquire("x", nil)
		begun := time.Now()
		testutil.Want(t, admin.ReleaseDead(t.Context(), b.Client, "x", "I thought so"), tenure.ErrAlive)
		if took := time.Since(begun); took > heartbeat+2*refresh {
			t.Errorf("told after %v", took)
		}
		if l.Check() != nil {
			t.Error(l.Check())
		}
		mustRelease(a, l)
	})
}

// A revoked lock is free when its holder has stopped for certain, and not
// before: cut off at once, or only after a while.
func TestRevoke(t *testing.T) {
	for _, reachable := range []bool{true, false} {
		t.Run(fmt.Sprint("reachable=", reachable), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b, boss := w.Client("a"), w.Client("b"), w.Client("boss")
				l := a.MustAcquire("x", nil)
				if !reachable {
					a.Partition()
				}
				var free time.Time
				go func() {
					got := b.MustAcquire("x", nil)
					free = time.Now()
					if l.Check() == nil {
						t.Error("two hold it")
					}
					p, _ := got.Previous()
					if p.Owner != "a" || p.End != tenure.EndRevoked || p.Request.By != "boss" || p.Request.Reason != "mad" {
						t.Errorf("previous %+v", p)
					}
				}()
				time.Sleep(time.Second)
				begun := time.Now()
				testutil.Want(t, admin.Revoke(t.Context(), boss.Client, "x", "mad"), nil)
				took := time.Since(begun)
				if took < lease || took > lease+2*time.Second {
					t.Errorf("revoked after %v", took)
				}
				synctest.Wait()
				if got := free.Sub(begun); got < lease || got > lease+2*time.Second {
					t.Errorf("taken after %v", got)
				}
				testutil.Want(t, l.Check(), tenure.ErrLost)
				var superseded *tenure.SupersededError
				if err := l.Release(t.Context()); reachable && (!errors.As(err, &superseded) || superseded.Request.By != "boss") {
					t.Errorf("release: %v", err)
				}
			})
		})
	}
}

// A process that gets the lock by a hand-over while an operator revokes it from
// the former holder has it: the operator gets that as an error, and not a success.
func TestRevokeDuringHandOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, boss := w.Client("a"), w.Client("b"), w.Client("boss")
		l := a.MustAcquire("x", nil)
		b.Inject(faultstore.OpTakeover, 0, 1, faultstore.Slow(time.Second, 0))
		next := make(chan *tenure.Lease, 1)
		go func() { next <- b.MustAcquire("x", nil) }()
		time.Sleep(heartbeat)
		testutil.Want(t, l.StepDown(&tenure.StepDownOptions{To: "b", Reason: "deploy"}), nil)
		handing := testutil.Go(func() error { return l.Release(t.Context()) })
		time.Sleep(requestTimeout / 10)
		if rec := w.MustRecord("x"); rec.State != driver.Reserved || rec.Owner != "b" {
			t.Fatalf("the test has lost its point: %+v", rec)
		}
		err := admin.Revoke(t.Context(), boss.Client, "x", "mad")
		got := <-next
		testutil.Want(t, got.Check(), nil)
		testutil.Want(t, err, tenure.ErrNotHeld)
		testutil.Want(t, <-handing, nil)
		mustRelease(b, got)
	})
}
