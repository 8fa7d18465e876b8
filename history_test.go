// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
)

var recorded = &tenure.AcquireOptions{History: true}

func history(m *machine, name string) []tenure.Term {
	t := m.World().T()
	t.Helper()
	list, err := m.History(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// brief returns a term in short form.
func brief(t tenure.Term) string {
	if t.Unknown {
		return fmt.Sprintf("%d unknown", t.Token)
	}
	s := fmt.Sprintf("%d %s %s", t.Token, t.Owner, t.End)
	if t.Request != nil {
		s += fmt.Sprintf(" (%s by %s: %s)", t.Request.Kind, t.Request.By, t.Request.Reason)
	}
	return s
}

func expectHistory(t *testing.T, got []tenure.Term, want ...string) {
	t.Helper()
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = brief(got[i]) == want[i]
	}
	if same {
		return
	}
	t.Errorf("history of %d terms, want %d:", len(got), len(want))
	for _, g := range got {
		t.Logf("  got  %s", brief(g))
	}
	for _, w := range want {
		t.Logf("  want %s", w)
	}
}

func TestHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, boss := w.Client("a"), w.Client("b"), w.Client("boss")
		expectHistory(t, history(boss, "x"))

		begun := time.Now()
		l := a.MustAcquire("x", recorded)
		expectHistory(t, history(boss, "x"), "1 a ")
		time.Sleep(time.Minute)
		mustRelease(a, l)
		expectHistory(t, history(boss, "x"), "1 a released")

		c, ctx := newCampaign(t)
		c.join(ctx, b, nil, 0)
		time.Sleep(time.Minute)
		testutil.Want(t, boss.StepDown(t.Context(), "x", because("deploy")), nil)
		time.Sleep(time.Minute)
		c.over(t)
		dead := w.Client("dead")
		dead.MustAcquire("x", recorded)
		dead.Partition()
		l = a.MustAcquire("x", recorded)
		got := history(boss, "x")
		expectHistory(t, got, "5 a ", "4 dead expired", "3 b released", "2 b stepped_down (step_down by boss: deploy)", "1 a released")

		if first := got[4]; !first.Since.Equal(begun) || !first.Until.Equal(begun.Add(time.Minute)) || first.Host != "host-of-a" {
			t.Errorf("the first: %+v", first)
		}
		if crashed := got[1]; !crashed.Until.IsZero() || !crashed.Since.Before(got[0].Since) {
			t.Errorf("the crashed one: %+v", crashed)
		}
		mustRelease(a, l)
		for s, err := range boss.Locks(t.Context(), nil) {
			if err != nil || s.Name != "x" {
				t.Errorf("the history is listed among the locks: %+v, %v", s, err)
			}
		}
	})
}

// HolderAt across a release, a crash, a takeover and a hole.
func TestHolderAt(t *testing.T) {
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return day.Add(time.Duration(minute) * time.Minute) }
	history := []tenure.Term{
		{Token: 7, Owner: "g", Since: at(70)},
		{Token: 6, Owner: "f", Since: at(60), Until: at(65), End: tenure.EndReleased},
		{Token: 5, Unknown: true},
		{Token: 4, Owner: "d", Since: at(40), Until: at(45), End: tenure.EndSteppedDown},
		{Token: 3, Owner: "c", Since: at(30), End: tenure.EndExpired},
		{Token: 2, Owner: "b", Since: at(20), Until: at(25), End: tenure.EndReleased},
	}
	for _, tc := range []struct {
		minute  int
		owner   string
		certain bool
	}{
		{10, "", false}, // older than what is kept
		{20, "b", true},
		{24, "b", true},
		{25, "", true},
		{29, "", true},
		{30, "c", false},
		{39, "c", false}, // or dead already
		{40, "d", true},
		{44, "d", true},
		{45, "", false},
		{59, "", false}, // the hole
		{60, "f", true},
		{65, "", true},
		{70, "g", true},
		{99, "g", true},
	} {
		got, ok, certain := tenure.HolderAt(history, at(tc.minute))
		if got.Owner != tc.owner || ok != (tc.owner != "") || certain != tc.certain {
			t.Errorf("minute %d: %q, certain=%v; want %q, %v", tc.minute, got.Owner, certain, tc.owner, tc.certain)
		}
	}
	history[5].Token = 1
	if _, ok, certain := tenure.HolderAt(history, at(10)); ok || !certain {
		t.Error("before the first term there was certainly no holder")
	}
	if _, ok, certain := tenure.HolderAt(nil, at(10)); ok || !certain {
		t.Error("a lock that was never taken")
	}
}

// A process that is killed at any point of its acquisition, twice in a row
// perhaps, leaves a history that is complete, or has a hole that is shown.
func TestHistoryAfterACrashAtEveryPoint(t *testing.T) {
	const calls = 6
	for first := range calls {
		for second := range calls {
			for _, reply := range []bool{false, true} {
				t.Run(fmt.Sprint(first, second, reply), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { crashTwice(t, first, second, reply) })
				})
			}
		}
	}
}

func crashTwice(t *testing.T, first, second int, reply bool) {
	w := newWorld(t)
	truth := map[uint64]driver.Record{} // every term, as the records showed it
	see := func() {
		if rec, err := w.Records().Get(t.Context(), "x", driver.Strong); err == nil && rec.State == driver.Held {
			truth[rec.Token] = rec
		}
	}
	a := w.Client("a")
	l := a.MustAcquire("x", recorded)
	see()
	mustRelease(a, l)

	for i, n := range []int{first, second} {
		m := w.Client(fmt.Sprint("crash-", i))
		// The n-th call is the last that reaches the records; with its reply, or
		// without.
		dead := faultstore.LoseRequest()
		dead.Hang = true
		m.Faults().Inject(faultstore.Rule{Skip: n, Fault: dead})
		if !reply && n > 0 {
			m.Faults().Inject(faultstore.Rule{Skip: n - 1, Count: 1, Fault: faultstore.LoseReplyHang()})
		}
		ctx, stop := context.WithCancel(t.Context())
		done := testutil.Go(func() error {
			_, err := m.Acquire(ctx, "x", recorded)
			return err
		})
		for range 40 {
			time.Sleep(time.Second)
			see()
		}
		m.Partition()
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			testutil.Want(t, err, context.DeadlineExceeded) // it had given up by itself
		}
	}
	z := w.Client("z")
	l = z.MustAcquire("x", recorded)
	see()
	time.Sleep(time.Minute)

	got := history(z, "x")
	if len(got) == 0 || got[0].Token != l.Token() || got[len(got)-1].Token != 1 {
		t.Fatalf("history %v", got)
	}
	holes := 0
	for i, g := range got {
		if g.Token != l.Token()-uint64(i) {
			t.Errorf("tokens are not dense: %v", got)
		}
		was, known := truth[g.Token]
		switch {
		case g.Unknown:
			holes++
		case known && (g.Owner != was.Owner || !g.Since.Equal(was.Since)):
			t.Errorf("history says %s, since %v; the record said %s, since %v", brief(g), g.Since, was.Owner, was.Since)
		case i > 0 && g.End == "":
			t.Errorf("%s has no end", brief(g))
		}
	}
	if holes > 1 {
		t.Errorf("%d holes after two crashes in a row: %v", holes, got)
	}
	mustRelease(z, l)
}

// If the store is away for a moment, the history is written while the work runs.
func TestHistoryIsWrittenLater(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", recorded))
		remove := b.Inject(faultstore.OpClaim, 1, 0, faultstore.LoseRequest())
		begun := time.Now()
		l := b.MustAcquire("x", recorded)
		if took := time.Since(begun); took > requestTimeout {
			t.Errorf("the work waited for %v", took)
		}
		remove()
		time.Sleep(lease)
		mustRelease(b, l)
		mustRelease(b, b.MustAcquire("x", nil))
		mustRelease(b, b.MustAcquire("x", nil))
		expectHistory(t, history(b, "x"), "4 b released", "3 b released", "2 unknown", "1 a released")
	})
}

// An acquire whose context ends while the history is written has the lock, and waits no longer.
func TestGrantDoesNotWaitForTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", recorded))
		b.Inject(faultstore.OpClaim, 1, 0, faultstore.BlackHole())
		ctx, stop := context.WithTimeout(t.Context(), requestTimeout/2)
		defer stop()
		testutil.Want(t, testutil.Within(t, requestTimeout/2, requestTimeout/2, func() error {
			l, err := b.Acquire(ctx, "x", recorded)
			if err == nil {
				err = l.Check()
			}
			return err
		}), nil)
	})
}

func TestHistoryLimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", func(o *tenure.Options) { o.HistoryLimit = 5 })
		for range 20 {
			mustRelease(a, a.MustAcquire("x", recorded))
			time.Sleep(time.Second)
		}
		got := history(a, "x")
		if len(got) != 5 || got[0].Token != 20 || got[4].Token != 16 {
			t.Errorf("%d terms: %v", len(got), got)
		}
		page, err := w.Records().List(t.Context(), driver.OwnPrefix, "")
		if err != nil || len(page.Records) > 6 {
			t.Errorf("%d records are kept, %v", len(page.Records), err)
		}
		none := w.Client("none", func(o *tenure.Options) { o.HistoryLimit = -1 })
		calls := none.Faults().Count()
		mustRelease(none, none.MustAcquire("x", recorded))
		if n := none.Faults().Count() - calls; n != 2 {
			t.Errorf("%d requests to take and to release without history", n)
		}
	})
}

// Work that shows no progress loses the lock while its process lives, and the successor
// learns why.
func TestStalledWorkTellsItsSuccessor(t *testing.T) {
	const progress = 20 * time.Second
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", func(o *tenure.Options) { o.ProgressTimeout = progress })
		b := w.Client("b")
		release := make(chan struct{})
		done := testutil.Go(func() error {
			return a.Run(t.Context(), "x", recorded, func(_ context.Context, l *tenure.Lease) error {
				l.Progress()
				<-release // stuck: it ignores its context
				return nil
			})
		})
		time.Sleep(time.Second)
		begun := time.Now()
		l := b.MustAcquire("x", recorded)
		if took := time.Since(begun); took > progress+lease+refresh {
			t.Errorf("took over after %v", took)
		}
		if p, _ := l.Previous(); p.Owner != "a" || p.End != tenure.EndStalled {
			t.Errorf("previous %+v", p)
		}
		expectHistory(t, history(b, "x"), "2 b ", "1 a stalled")
		close(release)
		testutil.Want(t, <-done, tenure.ErrStalled)
		mustRelease(b, l)
	})
}

// So does work that does not stop in time.
func TestWorkThatDoesNotStopTellsItsSuccessor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		release := make(chan struct{})
		done := testutil.Go(func() error {
			return a.Run(t.Context(), "x", recorded, func(context.Context, *tenure.Lease) error {
				<-release
				return errWork
			})
		})
		time.Sleep(time.Second)
		asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("deploy")) })
		l := b.MustAcquire("x", recorded)
		if err := <-asked; err != nil { // else b was quicker to take the lock
			testutil.Want(t, err, tenure.ErrUnanswered)
		}
		if p, _ := l.Previous(); p.End != tenure.EndStopTimeout || p.Request == nil || p.Request.By != "b" {
			t.Errorf("previous %+v", p)
		}
		close(release)
		err := <-done
		testutil.Want(t, err, tenure.ErrStopTimeout)
		testutil.Want(t, err, errWork)
		mustRelease(b, l)
	})
}

// A late or repeated delete of a history entry removes only that entry: not the entry
// with the same token of a lock whose tokens have restarted.
func TestLateDeletesInTheHistory(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"twice": faultstore.Duplicate(lease),
		"late":  faultstore.LateAfterError(lease),
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a := w.Client("a", func(o *tenure.Options) { o.HistoryLimit = 2 })
			terms := func(n int) {
				for range n {
					mustRelease(a, a.MustAcquire("x", recorded))
				}
			}
			a.Inject(faultstore.OpDelete, 0, 1, f)
			terms(4) // the fourth has the first one's record deleted
			time.Sleep(time.Second)
			testutil.Want(t, w.Records().Delete(t.Context(), w.MustRecord("x")), nil)
			terms(3)
			time.Sleep(2 * lease)
			list, err := w.Client("b").History(t.Context(), "x")
			testutil.Want(t, err, nil)
			if len(list) != 3 || list[2].Unknown || list[2].Owner != "a" {
				t.Errorf("history %+v", list)
			}
		})
	}
}

// One crash between the grant and the history leaves no hole, whatever comes
// next: b, the second holder, dies there.
func TestOneCrashLeavesNoHole(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(t *testing.T, w *world)
		end  string
	}{
		{"taken over", func(_ *testing.T, w *world) {
			c := w.Client("c")
			mustRelease(c, c.MustAcquire("x", recorded))
		}, "2 b expired"},
		{"taken over, and the reply is lost", func(_ *testing.T, w *world) {
			c := w.Client("c")
			c.Inject(faultstore.OpTakeover, 0, 1, faultstore.LoseReply())
			mustRelease(c, c.MustAcquire("x", recorded))
		}, "2 b expired"},
		{"taken over too late to be believed in, and replaced", func(t *testing.T, w *world) {
			t.Helper()
			c := w.Client("c")
			c.Inject(faultstore.OpTakeover, 0, 1, faultstore.LoseReplyHang())
			var outage sync.WaitGroup
			defer outage.Wait()
			outage.Go(func() {
				for w.MustRecord("x").Token < 3 {
					time.Sleep(requestTimeout / 10)
				}
				remove := c.Inject(faultstore.OpGet, 0, 0, faultstore.LoseRequest())
				time.Sleep(lease)
				remove()
			})
			l := c.MustAcquire("x", &tenure.AcquireOptions{History: true, StoreTimeout: -1})
			if l.Token() != 4 {
				t.Errorf("token %d: the test has lost its point", l.Token())
			}
			mustRelease(c, l)
		}, "2 b expired"},
		{"revoked", func(t *testing.T, w *world) {
			t.Helper()
			testutil.Want(t, admin.Revoke(t.Context(), w.Client("boss").Client, "x", "hangs"), nil)
		}, "2 b revoked (revoke by boss: hangs)"},
		{"released as dead", func(t *testing.T, w *world) {
			t.Helper()
			testutil.Want(t, admin.ReleaseDead(t.Context(), w.Client("boss").Client, "x", "gone"), nil)
		}, "2 b freed (free by boss: gone)"},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			mustRelease(a, a.MustAcquire("x", recorded))
			b.Inject(faultstore.OpClaim, 1, 0, faultstore.Fault{Effect: faultstore.RequestLost, Hang: true})
			b.MustAcquire("x", recorded)
			b.Partition()
			tc.next(t, w)
			complete(t, w, tc.end)
		})
	}
}

// complete lets three more clients hold the lock, and expects a history without holes.
func complete(t *testing.T, w *world, second string) {
	t.Helper()
	z := w.Client("z")
	for range 3 {
		mustRelease(z, z.MustAcquire("x", recorded))
	}
	got := history(z, "x")
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

// A term whose acquire was given up is not clean: its holder has written no entry for the
// previous term. There is no hole either if the reply to the next claim is lost, which
// alone shows what came before that grant.
func TestGivenUpGrantLeavesNoHole(t *testing.T) {
	for name, lost := range map[string]bool{"alone": false, "lost": true} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b, c := w.Client("a"), w.Client("b"), w.Client("c")
			mustRelease(a, a.MustAcquire("x", recorded))
			b.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(0, 10*time.Millisecond))
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer stop()
			_, err := b.Acquire(ctx, "x", recorded)
			testutil.Want(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			if lost {
				c.Inject(faultstore.OpClaim, 0, 1, faultstore.LoseReply())
				mustRelease(c, c.MustAcquire("x", recorded))
			}
			complete(t, w, "2 b "+tenure.EndAbandoned)
		})
	}
}

// A hole at the end of the list is shown, too.
func TestOldestHoleIsShown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.Client("a")
		mustRelease(m, m.MustAcquire("x", nil))
		mustRelease(m, m.MustAcquire("x", nil))
		expectHistory(t, history(m, "x"), "2 a released", "1 a released")
		mustRelease(m, m.MustAcquire("x", nil)) // without a history
		expectHistory(t, history(m, "x"), "3 a released", "2 a released")
		mustRelease(m, m.MustAcquire("x", recorded))
		mustRelease(m, m.MustAcquire("x", recorded))
		expectHistory(t, history(m, "x"), "5 a released", "4 a released", "3 a released", "2 unknown", "1 unknown")
	})
}

// When a lock's record was deleted, its tokens restart. The entries of the new terms
// replace those of the old ones.
func TestHistoryAfterADeletion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		for range 4 {
			mustRelease(a, a.MustAcquire("x", recorded))
			time.Sleep(time.Second)
		}
		testutil.Want(t, w.Records().Delete(t.Context(), w.MustRecord("x")), nil)
		for range 4 {
			mustRelease(b, b.MustAcquire("x", recorded))
			time.Sleep(time.Second)
		}
		time.Sleep(lease)
		expectHistory(t, history(b, "x"), "4 b released", "3 b released", "2 b released", "1 b released")
	})
}

// If the store loses writes for a moment, a client that is closed meanwhile still
// writes the history first.
func TestCloseWritesTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", recorded))
		b.Inject(faultstore.OpClaim, 1, 9, faultstore.LoseRequest()) // for longer than the work waits
		mustRelease(b, b.MustAcquire("x", recorded))
		testutil.Want(t, b.Close(t.Context()), nil)
		c := w.Client("c")
		mustRelease(c, c.MustAcquire("x", recorded)) // its record knows of one term before it
		expectHistory(t, history(c, "x"), "3 c released", "2 b released", "1 a released")
	})
}

// A store that loses all writes delays Close for half a lease, and no more.
func TestCloseWaitsHalfALeaseForTheHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.Client("a"), w.Client("b")
		mustRelease(a, a.MustAcquire("x", recorded))
		b.Inject(faultstore.OpClaim, 1, 0, faultstore.LoseRequest())
		mustRelease(b, b.MustAcquire("x", recorded))
		begun := time.Now()
		testutil.Want(t, b.Close(t.Context()), nil)
		if took := time.Since(begun); took < lease/2 || took > lease/2+requestTimeout {
			t.Errorf("it took %v, want half of %v", took, lease)
		}
	})
}

// TestHistoryKeepsALongReason: the next holder's record has only the beginning of the
// reason, because each heartbeat carries it.
func TestHistoryKeepsALongReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, boss := w.Client("a"), w.Client("b"), w.Client("boss")
		reason := strings.Repeat("ü", driver.MaxReasonLen/2)
		ended := "1 a stepped_down (step_down by boss: " + reason + ")"
		l := a.MustAcquire("x", recorded)
		go func() {
			<-l.Context().Done()
			mustRelease(a, l)
		}()
		testutil.Want(t, boss.StepDown(t.Context(), "x", because(reason)), nil)
		synctest.Wait()
		expectHistory(t, history(boss, "x"), ended)
		l = b.MustAcquire("x", recorded)
		time.Sleep(time.Minute)
		if kept := w.MustRecord("x").Prev.Asked.Reason; len(kept) > driver.MaxPrevReasonLen {
			t.Errorf("the record keeps a reason of %d bytes", len(kept))
		}
		expectHistory(t, history(boss, "x"), "2 b ", ended)
		mustRelease(b, l)
		expectHistory(t, history(boss, "x"), "2 b released", ended)
		mustRelease(b, b.MustAcquire("x", recorded))
		expectHistory(t, history(boss, "x"), "3 b released", "2 b released", ended)
	})
}
