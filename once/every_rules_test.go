// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

// claimsOf matches the writes that begin a period.
func claimsOf(c faultstore.Call) bool {
	return c.Op.IsWrite() && numberOf(c.Next.Data) > max(0, numberOf(c.Prev.Data))
}

// The lease ends between the claim, which is confirmed late, and the work.
func TestEveryClaimConfirmedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 1)
		a.faults.Inject(faultstore.Rule{
			Match: claimsOf,
			Decide: func(faultstore.Call) faultstore.Fault {
				a.clock.step(lease) // a pause that shows in the wall clock alone
				return faultstore.Fault{}
			},
			Count: 1,
		})
		var told error
		defer a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = err }}, nil)()
		time.Sleep(hour + minute)
		synctest.Wait()
		if !errors.Is(told, once.ErrNotRun) || s.count(1) != 0 {
			t.Errorf("told %v, begun %d times", told, s.count(1))
		}
	})
}

// The lease ends before the claim: no period is begun, and nobody is told of one.
func TestEveryWithoutALeaseBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 1)
		var told []error
		defer a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = append(told, err) }}, nil)()
		time.Sleep(hour - 10*time.Millisecond)
		a.clock.step(lease)
		time.Sleep(minute)
		synctest.Wait()
		if len(told) != 1 || told[0] != nil || s.count(1) != 1 {
			t.Errorf("told %v, begun %d times", told, s.count(1))
		}
	})
}

// The context ends while a claim is under way: the period counts as begun, nobody runs
// it, and the next one is the next one.
func TestEveryGivenUpDuringAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		a.faults.Inject(faultstore.Rule{Match: claimsOf, Fault: faultstore.Slow(0, time.Second), Count: 1})
		var told error
		stop := a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) { told = err }}, nil)
		time.Sleep(hour + 500*time.Millisecond)
		stop()
		if st := b.showEvery(); !errors.Is(told, once.ErrNotRun) || st.Number != 1 || st.Runs[0].State != once.StateUnknown {
			t.Errorf("told %v, %+v", told, st)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(hour + minute)
		if s.count(1) != 0 || s.count(2) != 1 {
			t.Errorf("%v", s.starts)
		}
		s.spaced(hour)
	})
}

// Time goes on while the work runs, also for a process that comes when its leader has
// crashed. How the run ended is in the ledger as soon as it has.
func TestEveryAgesWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, nil, func(ctx context.Context, turn *once.Turn) error {
			if turn.Slot() == 1 {
				return takes(9*time.Second)(ctx, turn)
			}
			return takes(50*minute)(ctx, turn)
		})
		defer stop()
		time.Sleep(hour + 9500*time.Millisecond) // before the age is written again
		if r := b.showEvery().Runs[0]; r.State != once.StateDone || r.Took != 9*time.Second {
			t.Errorf("%+v", r)
		}
		time.Sleep(hour)
		if r := b.showEvery().Runs[0]; r.State != once.StateRunning || r.Slot != 2 {
			t.Errorf("%+v", r)
		}
		time.Sleep(40 * minute)
		a.crash()
		defer b.lives(hour, nil, nil)()
		time.Sleep(30 * minute)
		if at := s.begun(); len(at) != 3 || !near(at[2]-at[1], hour, hour/50+2*lease) {
			t.Errorf("begun at %v", at)
		}
	})
}

// A claim of the lock that was applied and not answered makes no new ledger.
func TestEveryBehindALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		stop := a.lives(hour, nil, nil)
		time.Sleep(hour + 30*minute)
		stop()
		b.loseClaims()
		defer b.lives(hour, nil, nil)()
		time.Sleep(35 * minute)
		if at := s.begun(); len(at) != 2 || !near(at[1]-at[0], hour, minute) || s.count(2) != 1 {
			t.Errorf("begun at %v, %v", at, s.starts)
		}
	})
}

// A name under which nobody has kept time has no number; and a reset wants a reason.
func TestShowEveryOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a := s.host("a", 1)
		st := a.showEvery()
		text, err := json.Marshal(st)
		if st.Kept || err != nil || strings.Contains(string(text), "number") {
			t.Errorf("%s, %v", text, err)
		}
		if err := once.ResetEvery(t.Context(), a.client, name, ""); err == nil || !strings.Contains(err.Error(), "reason") {
			t.Error(err)
		}
		if n := a.faults.Count(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}
