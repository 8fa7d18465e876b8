// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

// loseClaims has the replies of the next claim get lost, which is applied.
func (h *host) loseClaims() {
	h.faults.Inject(faultstore.Rule{
		Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpClaim },
		Fault: faultstore.LoseReply(), Count: 1,
	})
}

// A host whose claim was applied and not answered does not know what was there before,
// and reads it: that is no empty ledger.
func TestLedgerBehindALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		if _, err := a.once(7, nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, slot := range []int64{7, 6} {
			b.loseClaims()
			if _, err := b.once(slot, nil, nil); !errors.Is(err, once.ErrDone) && !errors.Is(err, once.ErrPassed) {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
		b.loseClaims()
		if res, err := b.once(8, nil, nil); err != nil || res.Run.Slot != 8 {
			t.Errorf("%+v, %v", res, err)
		}
		if st := a.show(); len(st.Runs) != 2 || st.Runs[1].Slot != 7 {
			t.Errorf("%+v", st.Runs)
		}
	})
}

// What is no ledger is told beside a holder, too.
func TestUnreadableBesideAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		go func() {
			_ = a.client.Run(t.Context(), once.LockName(name), &tenure.AcquireOptions{Data: []byte("x")}, func(ctx context.Context, _ *tenure.Lease) error {
				return takes(time.Minute)(ctx, nil)
			})
		}()
		synctest.Wait()
		if _, err := b.once(7, nil, nil); !errors.Is(err, tenure.ErrUnreadable) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
	})
}

// A holder that has begun nothing yet is not said to run what the one before it has left.
func TestHolderOfAnOpenLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b, c := s.host("a", 1), s.host("b", 1), s.host("c", 1)
		go a.quietly(7, nil, func(ctx context.Context, _ *once.Turn) error {
			a.crash()
			<-ctx.Done()
			return ctx.Err()
		})
		synctest.Wait()
		go func() {
			_ = c.client.Run(t.Context(), once.LockName(name), nil, func(ctx context.Context, _ *tenure.Lease) error {
				return takes(time.Minute)(ctx, nil)
			})
		}()
		time.Sleep(2 * lease)
		_, err := b.once(8, nil, nil)
		if running := as[*once.RunningError](t, err); running.Run.Token != 0 || running.Held.Owner != "c" {
			t.Errorf("%+v", running)
		}
		time.Sleep(time.Minute)
		// The lost run is not one that was missed: it was begun.
		res, err := b.once(9, &once.Options{Redo: true, Between: func(int64, int64) ([]int64, int) { return []int64{8}, 0 }}, nil)
		if err != nil || res.Unfinished == nil || !slices.Equal(res.Missed, []int64{8}) {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// What was begun before a reset is not told of a slot that came again.
func TestPassedAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.twice = true
		a := s.host("a", 1)
		for _, slot := range []int64{5, 6} {
			if _, err := a.once(slot, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := once.Reset(t.Context(), a.client, name, 6, "a test"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(5, nil, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		if _, err := a.once(8, nil, nil); err != nil { // it closes what is below it
			t.Fatal(err)
		}
		if _, err := a.once(6, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
	})
}

// The pauses between attempts double up to five minutes. Each shows progress, and none is
// followed by an attempt when the lease has ended.
func TestRetryPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a := s.host("a", 1, func(o *tenure.Options) { o.ProgressTimeout = 11 * time.Minute })
		var at []time.Duration
		res, err := a.once(7, &once.Options{Retries: 4, RetryDelay: 2 * time.Minute}, func(ctx context.Context, _ *once.Turn) error {
			at = append(at, time.Since(s.born))
			_ = takes(5*time.Minute+30*time.Second)(ctx, nil)
			return errWork
		})
		if !errors.Is(err, errWork) || res.Run.Attempts != 5 {
			t.Fatalf("%+v, %v", res, err)
		}
		for i, most := range []time.Duration{2, 4, 5, 5} {
			most *= time.Minute
			if d := at[i+1] - at[i] - 5*time.Minute - 30*time.Second; d > most || d < most*3/4 {
				t.Errorf("pause %d took %v", i, d)
			}
		}
		res, err = a.once(8, &once.Options{Retries: 4, RetryDelay: time.Millisecond}, func(context.Context, *once.Turn) error {
			a.clock.step(lease) // a pause that shows in the wall clock alone
			return errWork
		})
		if !errors.Is(err, tenure.ErrLost) || res.Run.Attempts != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// Work that has ended, and waits for what it has left behind, is not said to run; the slot
// is done, and the next one is told what is waited for.
func TestEndedBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		var kept *once.Turn
		go a.quietly(7, nil, func(ctx context.Context, turn *once.Turn) error {
			kept = turn
			_ = takes(10*time.Second)(ctx, turn)
			if err := turn.Ended(ctx, exit(3), "13112 (sleep)"); err != nil {
				t.Error(err)
			}
			return takes(time.Hour)(ctx, turn)
		})
		time.Sleep(time.Minute)
		if r := b.show().Runs[0]; r.State != once.StateFailed || r.Exit != 3 || r.Took != 10*time.Second || r.Left != "13112 (sleep)" || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		if _, err := b.once(7, &once.Options{Redo: true}, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		_, err := b.once(8, nil, nil)
		if running := as[*once.RunningError](t, err); running.Run.Slot != 7 || running.Run.Left != "13112 (sleep)" {
			t.Errorf("%+v", running)
		}
		time.Sleep(time.Hour)
		if r := b.show().Runs[0]; r.State != once.StateDone || r.Left != "" || r.Took != time.Hour+10*time.Second {
			t.Errorf("%+v", r)
		}
		if err := kept.Ended(t.Context(), nil, "nothing"); err != nil || b.show().Runs[0].Left != "" {
			t.Errorf("after the end: %v", err)
		}
		if _, err := b.once(8, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// The options of the acquire reach it.
func TestOnceOptionsOfTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a := s.host("a", 1)
		for slot := range int64(4) {
			if _, err := a.once(slot, &once.Options{History: true}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if history, err := a.client.History(t.Context(), once.LockName(name)); err != nil || len(history) != 4 {
			t.Errorf("%+v, %v", history, err)
		}
		a.faults.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		begun := time.Now()
		if _, err := a.once(9, &once.Options{StoreTimeout: 5 * lease}, nil); !errors.Is(err, faultstore.ErrInjected) {
			t.Error(err)
		}
		if took := time.Since(begun); took < 4*lease {
			t.Errorf("it gave up after %v", took)
		}
	})
}
