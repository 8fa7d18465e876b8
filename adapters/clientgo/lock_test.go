// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclientgo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure"
	tenureclientgo "github.com/tenurelock/tenure/adapters/clientgo"
	"github.com/tenurelock/tenure/tenuretest"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func ours(c *tenuretest.Client) *tenureclientgo.Lock {
	return tenureclientgo.NewLock(c.Client, "operator", nil)
}

// campaign has each client run an elector after the other, for work that takes its time to
// stop. It returns in how many terms the work was begun.
func campaign(stops time.Duration, release bool, clients ...*tenuretest.Client) (terms *atomic.Int64) {
	terms = new(atomic.Int64)
	for _, c := range clients {
		lock := ours(c)
		started := lock.Leading(func(ctx context.Context, _ *tenure.Lease) {
			defer c.Work("operator")()
			terms.Add(1)
			<-ctx.Done()
			<-time.After(stops)
		})
		term := func(ctx context.Context) error {
			ctx, stop := lock.Bind(ctx)
			defer stop()
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: lock, ReleaseOnCancel: release,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
			})
			if err == nil {
				elector.Run(ctx)
			}
			return err
		}
		c.Go(func(ctx context.Context) (err error) {
			for err == nil && ctx.Err() == nil {
				err = term(ctx)
			}
			return err
		})
	}
	return terms
}

// TestTwoLeaders: client-go counts its lease from the reply, so that by its own lock a leader
// that is cut off works beside the next one. With our lock it never does. The replies to the
// leader of four hosts come 4.9 s late, and then it is cut off for a minute.
func TestTwoLeaders(t *testing.T) {
	for range 20 {
		tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
			terms := campaign(200*time.Millisecond, true, w.Client("a"), w.Client("b"), w.Client("c"), w.Client("d"))
			leader := w.Worker("operator")
			time.Sleep(30 * time.Second)
			leader.Slow(2 * 4900 * time.Millisecond) // one half of it is that of the reply
			time.Sleep(11 * time.Second)
			leader.Heal()
			leader.Partition()
			time.Sleep(time.Minute)
			leader.Heal()
			time.Sleep(30 * time.Second)
			w.Stop()
			if n := terms.Load(); n < 2 {
				t.Errorf("%d terms", n)
			}
		})
	}
}

// TestLeadsAgain: a process that has lost its lease leads again, by the same lock.
func TestLeadsAgain(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		terms := campaign(200*time.Millisecond, true, w.Client("a"))
		for range 3 {
			w.Worker("operator").Partition()
			time.Sleep(time.Minute)
			w.Heal()
		}
		w.Worker("operator")
		w.Stop()
		if n := terms.Load(); n != 4 {
			t.Errorf("%d terms of 4", n)
		}
	})
}

// TestReleasesUnderWork: an elector that is stopped releases its lock while OnStartedLeading
// has not returned (kubernetes/kubernetes#139991). Ours is held until it has.
func TestReleasesUnderWork(t *testing.T) {
	for _, release := range []bool{true, false} {
		tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
			campaign(8*time.Second, release, w.Client("a"), w.Client("b"))
			leader := w.Worker("operator")
			leader.Stop()
			begun := time.Now()
			time.Sleep(time.Second)
			for w.Worker("operator") == leader {
				time.Sleep(time.Second)
			}
			if took := time.Since(begun); took > 15*time.Second { // 8 s for the work, and the next poll
				t.Errorf("release %v: the next leader works after %v", release, took)
			}
			w.Stop()
		})
	}
}

// TestEndsUnguarded: an elector that ends without a release, and without Leading, does not
// leave its lock held for ever, nor free at once: its work may go on.
func TestEndsUnguarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		first, second := ours(a), ours(b)
		hold(t, first)
		time.Sleep(time.Hour)
		first.RecordEvent("stopped leading")
		begun := time.Now()
		for update(t, second) != nil {
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took < 25*time.Second || took > time.Minute {
			t.Errorf("the lock was free after %v", took)
		}
		second.RecordEvent("stopped leading")
		time.Sleep(time.Minute)
	})
}

// TestWorkReturned: where Leading has told that the work has returned, an elector that ends
// without a release leaves its lock free.
func TestWorkReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		lock := ours(a)
		hold(t, lock)
		lock.Leading(func(context.Context, *tenure.Lease) {})(t.Context())
		if err := update(t, ours(b)); !errors.Is(err, tenure.ErrHeld) {
			t.Errorf("before the elector has ended: %v", err)
		}
		lock.RecordEvent("stopped leading")
		hold(t, ours(b))
	})
}

// TestRequest: a leader that is asked to step down ends its elector, its work, and its lease,
// in this order, and another one leads.
func TestRequest(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := w.Client("a")
		terms := campaign(3*time.Second, true, a, w.Client("b"))
		for range 5 {
			former := w.Worker("operator")
			if err := a.StepDown(t.Context(), "operator", &tenure.StepDownOptions{Reason: "a test"}); err != nil {
				t.Error(err)
			}
			if w.Worker("operator") == former {
				t.Error("the one who was asked leads again, before the other one")
			}
		}
		w.Stop()
		if n := terms.Load(); n < 2 {
			t.Errorf("%d terms", n)
		}
	})
}

// TestStuckElector: with a progress timeout, a lease does not outlive an elector that does not
// come by any more.
func TestStuckElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		options := &tenureclientgo.Options{Timing: tenure.Timing{ProgressTimeout: 30 * time.Second}}
		first := tenureclientgo.NewLock(a.Client, "operator", options)
		for range 60 {
			hold(t, first)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		if err := update(t, first); !errors.Is(err, tenure.ErrStalled) {
			t.Errorf("after a minute: %v", err)
		}
		begun, next := time.Now(), ours(b)
		for update(t, next) != nil {
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("the lock of a stuck elector was free after %v", took)
		}
	})
}

func record(lock resourcelock.Interface) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(), LeaseDurationSeconds: 15}
}

func update(t *testing.T, lock resourcelock.Interface) error {
	return lock.Update(t.Context(), record(lock))
}

func hold(t *testing.T, lock resourcelock.Interface) {
	t.Helper()
	if err := update(t, lock); err != nil {
		t.Fatal(err)
	}
}

// TestContract: what an elector goes by.
func TestContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		first, second := ours(a), ours(b)
		if _, _, err := first.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("Get without a record: %v", err)
		}
		if err := first.Create(t.Context(), record(first)); err != nil {
			t.Fatal(err)
		}
		if got, _, err := first.Get(t.Context()); err != nil || got.HolderIdentity != first.Identity() {
			t.Errorf("Get of the holder: %+v, %v", got, err)
		}
		// Another lock of the same process, with the same owner.
		if other := ours(a); other.Identity() == first.Identity() {
			t.Error("two locks have one identity")
		} else if got, _, err := other.Get(t.Context()); err != nil || got.HolderIdentity == other.Identity() {
			t.Errorf("a lock takes its sibling for itself: %+v, %v", got, err)
		} else if err := update(t, other); !apierrors.IsConflict(err) || !errors.Is(err, tenure.ErrHeld) {
			t.Errorf("Update beside its sibling: %v", err)
		}
		if err := update(t, second); !apierrors.IsConflict(err) || !errors.Is(err, tenure.ErrHeld) {
			t.Errorf("Update of another: %v", err)
		}
		if err := second.Update(t.Context(), record(first)); err == nil {
			t.Error("Update in the name of another")
		}

		// The bytes change with each beat, and with nothing else.
		got, raw, err := second.Get(t.Context())
		if err != nil || got.HolderIdentity != "a" || got.LeaseDurationSeconds != 15 || got.LeaderTransitions != 0 {
			t.Errorf("Get of another: %+v, %v", got, err)
		}
		changes, last := 0, raw
		for range 300 { // a minute, with 20 heartbeats
			time.Sleep(200 * time.Millisecond)
			if _, raw, err = second.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(raw, last) {
				changes++
			}
			last = raw
		}
		if changes < 19 || changes > 21 {
			t.Errorf("the bytes have changed %d times with 20 heartbeats", changes)
		}

		// A release is an Update without a holder.
		if err := first.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
			t.Error(err)
		}
		if err := first.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
			t.Errorf("a release of nothing: %v", err)
		}
		if got, _, err := second.Get(t.Context()); err != nil || got.HolderIdentity != "" {
			t.Errorf("Get after the release: %+v, %v", got, err)
		}
		hold(t, second)
		if got, _, err := first.Get(t.Context()); err != nil || got.HolderIdentity != "b" || got.LeaderTransitions != 1 {
			t.Errorf("Get of the next holder: %+v, %v", got, err)
		}

		// A dead holder is no longer shown when its lease has passed.
		b.Kill()
		for range 20 {
			time.Sleep(time.Second)
			if got, _, err = first.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got.HolderIdentity != "" {
			t.Errorf("Get of a dead holder: %+v", got)
		}
		hold(t, first)
	})
}

// TestLostWithinTerm: an elector whose lease was lost cannot take the lock again before it has
// ended: its work has been told to stop, and another one may have led meanwhile.
func TestLostWithinTerm(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := w.Client("a")
		lock := ours(a)
		early, stopEarly := lock.Bind(t.Context())
		defer stopEarly()
		hold(t, lock)
		bound, stop := lock.Bind(t.Context())
		defer stop()
		a.Partition()
		time.Sleep(time.Minute)
		a.Heal()
		time.Sleep(time.Minute)
		for when, ctx := range map[string]context.Context{"before": early, "after": bound} {
			if err := context.Cause(ctx); !errors.Is(err, tenure.ErrExpired) {
				t.Errorf("a context bound %s the grant: %v", when, err)
			}
		}
		if _, ok := lock.Lease(); ok {
			t.Error("a lease that was lost")
		}
		if err := update(t, lock); !apierrors.IsConflict(err) || !errors.Is(err, tenure.ErrExpired) {
			t.Errorf("Update in the same term: %v", err)
		}
		if got, _, err := lock.Get(t.Context()); err != nil || got.HolderIdentity == lock.Identity() {
			t.Errorf("Get in the same term: %+v, %v", got, err)
		}
		called := false
		lock.Leading(func(context.Context, *tenure.Lease) { called = true })(t.Context())
		if called {
			t.Error("work begins under a lease that was lost")
		}
		lock.RecordEvent("stopped leading")
		time.Sleep(time.Minute)
		hold(t, lock)
		if lease, ok := lock.Lease(); !ok || lease.Check() != nil {
			t.Error("no lease in the next term")
		}
	})
}

// TestPaused: from the first instruction after a pause on, the lock is not held any more,
// before any timer has told so.
func TestPaused(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		a := w.Client("a")
		lock := ours(a)
		hold(t, lock)
		a.Suspend(time.Minute)
		if err := update(t, lock); !apierrors.IsConflict(err) {
			t.Errorf("Update after the pause: %v", err)
		}
	})
}
