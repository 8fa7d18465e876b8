// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package biller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/tenuretest"
)

// count returns how many invoices there are under the token, and how many were refused.
func (l *Ledger) count(token uint64) (written, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tokens {
		if t == token {
			written++
		}
	}
	return written, l.refused
}

// inOrder runs a test in a bubble, with two replicas of the service. In the end no
// invoice of a former leader may stand behind one of its successor.
func inOrder(t *testing.T, test func(t *testing.T, w *tenuretest.World, ledger *Ledger)) {
	synctest.Test(t, func(t *testing.T) {
		w, ledger := tenuretest.New(t), &Ledger{gate: fence.NewGate(nil)}
		for _, name := range []string{"a", "b"} {
			client := w.Client(name)
			client.Go(func(ctx context.Context) error { return Serve(ctx, client.Client, ledger) })
		}
		test(t, w, ledger)
		ledger.mu.Lock()
		defer ledger.mu.Unlock()
		if !slices.IsSorted(ledger.tokens) {
			t.Errorf("the ledger is out of order: %v", ledger.tokens)
		}
	})
}

func TestKilledLeaderIsReplaced(t *testing.T) {
	inOrder(t, func(t *testing.T, w *tenuretest.World, ledger *Ledger) {
		first := w.Leader("biller") // waits until one of them leads
		time.Sleep(time.Minute)     // in a bubble, this takes no time
		if written, _ := ledger.count(first.Token); written < 50 {
			t.Errorf("%d invoices in a minute", written)
		}
		killed := time.Now()
		first.Kill()
		second := w.LeaderAfter(first) // waits until the other one has taken over
		if away := time.Since(killed); away > 20*time.Second {
			t.Errorf("no replica led for %v", away)
		}
		w.Until("the second leader writes", func() bool {
			written, _ := ledger.count(second.Token)
			return written > 0
		})
	})
}

func TestPartitionedLeaderStops(t *testing.T) {
	inOrder(t, func(t *testing.T, w *tenuretest.World, ledger *Ledger) {
		first := w.Leader("biller")
		time.Sleep(time.Minute)
		first.Partition()
		second := w.LeaderAfter(first)
		before, _ := ledger.count(first.Token)
		first.Heal()
		time.Sleep(time.Minute)
		after, refused := ledger.count(first.Token)
		if after != before || refused > 0 {
			t.Errorf("%d late invoices, %d refused: it did not stop by itself", after-before, refused)
		}
		second.Kill()
		third := w.LeaderAfter(second) // the first one campaigns again
		if third.Client != first.Client {
			t.Error("the healed replica did not come back")
		}
	})
}

func TestPausedLeaderIsRefused(t *testing.T) {
	inOrder(t, func(t *testing.T, w *tenuretest.World, ledger *Ledger) {
		first := w.Leader("biller")
		time.Sleep(time.Minute)
		first.Pause() // between its Check and its write, as it were
		w.LeaderAfter(first)
		time.Sleep(10 * time.Second)
		if _, refused := ledger.count(first.Token); refused == 0 {
			t.Error("the fence did not see the late write")
		}
		first.Resume()
		time.Sleep(time.Minute) // it follows now
		if w.Leader("biller").Client == first.Client {
			t.Error("the paused replica leads again")
		}
	})
}

func TestSuspendedLeaderFollows(t *testing.T) {
	inOrder(t, func(t *testing.T, w *tenuretest.World, ledger *Ledger) {
		first := w.Leader("biller")
		first.Suspend(time.Hour) // a laptop that is shut; returns when it is open again
		time.Sleep(time.Minute)
		second := w.Leader("biller")
		if second.Client == first.Client {
			t.Fatal("the suspended replica still leads")
		}
		if written, _ := ledger.count(second.Token); written < 3600 {
			t.Errorf("%d invoices in an hour", written)
		}
	})
}

func TestStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tenuretest.Two(t)
		w, ledger := a.World(), &Ledger{gate: fence.NewGate(nil)}
		a.Go(func(ctx context.Context) error { return Serve(ctx, a.Client, ledger) })
		first := w.Leader("biller")
		b.Go(func(ctx context.Context) error { return Serve(ctx, b.Client, ledger) })
		time.Sleep(time.Minute)
		stopped := time.Now()
		a.Stop() // as a signal does
		w.LeaderAfter(first)
		if away := time.Since(stopped); away > time.Second {
			t.Errorf("no replica led for %v", away)
		}
	})
}

func TestStoreIsAway(t *testing.T) {
	inOrder(t, func(t *testing.T, w *tenuretest.World, ledger *Ledger) {
		first := w.Leader("biller")
		w.Partition() // all of them
		time.Sleep(time.Hour)
		w.Heal()
		w.LeaderAfter(first)
	})
}
