// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// One crash between the grant and the history leaves no hole, whatever comes
// next: b, the second holder, dies there.
func TestOneCrashLeavesNoHole(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(t *testing.T, w *world)
		end  string
	}{
		{"taken over", func(_ *testing.T, w *world) {
			c := w.machine("c")
			c.mustRelease(c.mustAcquire("x", recorded))
		}, "2 b expired"},
		{"taken over, and the reply is lost", func(_ *testing.T, w *world) {
			c := w.machine("c")
			c.fault(faultstore.OpTakeover, 0, 1, faultstore.LoseReply())
			c.mustRelease(c.mustAcquire("x", recorded))
		}, "2 b expired"},
		{"taken over too late to be believed in, and replaced", func(t *testing.T, w *world) {
			t.Helper()
			c := w.machine("c")
			c.fault(faultstore.OpTakeover, 0, 1, faultstore.LoseReplyHang())
			go func() {
				for w.record("x").Token < 3 {
					time.Sleep(requestTimeout / 10)
				}
				remove := c.fault(faultstore.OpGet, 0, 0, faultstore.LoseRequest())
				time.Sleep(lease)
				remove()
			}()
			l := c.mustAcquire("x", &tenure.AcquireOptions{History: true, StoreTimeout: -1})
			if l.Token() != 4 {
				t.Errorf("token %d: the test has lost its point", l.Token())
			}
			c.mustRelease(l)
		}, "2 b expired"},
		{"revoked", func(t *testing.T, w *world) {
			t.Helper()
			want(t, w.machine("boss").Revoke(t.Context(), "x", "hangs"), nil)
		}, "2 b revoked (revoke by boss: hangs)"},
		{"released as dead", func(t *testing.T, w *world) {
			t.Helper()
			want(t, w.machine("boss").ReleaseDead(t.Context(), "x", "gone"), nil)
		}, "2 b freed (free by boss: gone)"},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			a.mustRelease(a.mustAcquire("x", recorded))
			b.fault(faultstore.OpClaim, 1, 0, faultstore.Fault{Effect: faultstore.RequestLost, Hang: true})
			b.mustAcquire("x", recorded)
			b.crash()
			tc.next(t, w)
			complete(t, w, tc.end)
		})
	}
}

// complete lets three more hold the lock, and wants a history without holes.
func complete(t *testing.T, w *world, second string) {
	t.Helper()
	z := w.machine("z")
	for range 3 {
		z.mustRelease(z.mustAcquire("x", recorded))
	}
	got := z.history("x")
	for _, h := range got {
		if h.Unknown {
			t.Errorf("token %d is unknown", h.Token)
		}
	}
	if n := len(got); n < 5 || brief(got[n-1]) != "1 a released" || brief(got[n-2]) != second {
		for _, h := range got {
			t.Log(brief(h))
		}
		t.Errorf("want %q, and 1 a released", second)
	}
}

// An acquire that is given up while the lock is granted to it is no clean
// tenure: it has written nothing of the one before.
func TestGivenUpGrantLeavesNoHole(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", recorded))
		b.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, 10*time.Millisecond))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer stop()
		_, err := b.Acquire(ctx, "x", recorded)
		want(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		complete(t, w, "2 b "+tenure.EndAbandoned)
	})
}

// Nor does it if the reply to the next claim is lost, which alone shows what
// came before the given up grant.
func TestGivenUpGrantAndLostReplyLeaveNoHole(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		a.mustRelease(a.mustAcquire("x", recorded))
		b.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, 10*time.Millisecond))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer stop()
		_, err := b.Acquire(ctx, "x", recorded)
		want(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		c.fault(faultstore.OpClaim, 0, 1, faultstore.LoseReply())
		c.mustRelease(c.mustAcquire("x", recorded))
		complete(t, w, "2 b "+tenure.EndAbandoned)
	})
}

// A hole at the end of the list is shown, too.
func TestOldestHoleIsShown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		m.mustRelease(m.mustAcquire("x", nil))
		m.mustRelease(m.mustAcquire("x", nil))
		expectHistory(t, m.history("x"), "2 a released", "1 a released")
		m.mustRelease(m.mustAcquire("x", nil)) // without a history
		expectHistory(t, m.history("x"), "3 a released", "2 a released")
		m.mustRelease(m.mustAcquire("x", recorded))
		m.mustRelease(m.mustAcquire("x", recorded))
		expectHistory(t, m.history("x"), "5 a released", "4 a released", "3 a released", "2 unknown", "1 unknown")
	})
}

// When a lock's record was deleted, the tokens begin again. What is written of
// the new tenures replaces what stands there of the old ones.
func TestHistoryAfterADeletion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		for range 4 {
			a.mustRelease(a.mustAcquire("x", recorded))
			time.Sleep(time.Second)
		}
		want(t, w.records.Delete(t.Context(), w.record("x")), nil)
		for range 4 {
			b.mustRelease(b.mustAcquire("x", recorded))
			time.Sleep(time.Second)
		}
		time.Sleep(lease)
		expectHistory(t, b.history("x"), "4 b released", "3 b released", "2 b released", "1 b released")
	})
}

// A store that loses writes for a moment is no crash: a client that is closed meanwhile
// writes the history first.
func TestCloseWritesTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", recorded))
		b.fault(faultstore.OpClaim, 1, 2, faultstore.LoseRequest())
		b.mustRelease(b.mustAcquire("x", recorded))
		want(t, b.Close(t.Context()), nil)
		c := w.machine("c")
		c.mustRelease(c.mustAcquire("x", recorded)) // its record knows of one tenure before it
		expectHistory(t, c.history("x"), "3 c released", "2 b released", "1 a released")
	})
}

// A store that loses all of it holds Close up for half a lease, and no more.
func TestCloseWaitsHalfALeaseForTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.mustRelease(a.mustAcquire("x", recorded))
		b.fault(faultstore.OpClaim, 1, 0, faultstore.LoseRequest())
		b.mustRelease(b.mustAcquire("x", recorded))
		begun := time.Now()
		want(t, b.Close(t.Context()), nil)
		if took := time.Since(begun); took < lease/2 || took > lease/2+requestTimeout {
			t.Errorf("it took %v, want half of %v", took, lease)
		}
	})
}
