// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
)

// A slot that is too far ahead is refused, and shuts out nobody; a reset undoes what
// a wrong clock has done.
func TestOnceAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.twice = true // by the reset
		a, b := s.host("a", 1), s.host("b", 1)
		if _, err := a.once(1000, nil, nil); err != nil {
			t.Fatal(err)
		}
		day := &once.Options{MaxAhead: 1440}
		_, err := b.once(1000+1441, day, nil)
		if ahead := as[*once.SlotAheadError](t, err); ahead.Last != 1000 || ahead.Slot != 2441 || ahead.MaxAhead != 1440 || !errors.Is(err, once.ErrSlotAhead) {
			t.Errorf("%+v", ahead)
		}
		if _, err := b.once(1000+1440, day, nil); err != nil {
			t.Error(err)
		}
		// Seconds for minutes, by default.
		if _, err := b.once(2440*60*60, nil, nil); !errors.Is(err, once.ErrSlotAhead) {
			t.Error(err)
		}
		if _, err := b.once(1<<62, &once.Options{MaxAhead: -1}, nil); err != nil {
			t.Error(err)
		}
		if _, err := a.once(2441, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
		if err := once.Reset(t.Context(), b.client, name, 2440, "the clock of b was wrong"); err != nil {
			t.Fatal(err)
		}
		st := a.show()
		if r := st.Runs[0]; *st.Last != 2440 || r.State != once.StateReset || r.Owner != "b" || r.Error != "the clock of b was wrong" {
			t.Errorf("%+v", st)
		}
		history, err := a.client.History(t.Context(), once.LockName(name))
		if err != nil || history[0].Request == nil || !strings.Contains(history[0].Request.Reason, "the clock of b was wrong") {
			t.Errorf("history %+v, %v", history, err)
		}
		if _, err := a.once(2440, nil, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		if _, err := a.once(2441, nil, nil); err != nil {
			t.Error(err)
		}
		if err := once.Reset(t.Context(), b.client, name, -1<<63, "all anew"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(1, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// A reset waits for nobody who is at work.
func TestResetWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		go a.quietly(7, nil, takes(time.Minute))
		synctest.Wait()
		if err := once.Reset(t.Context(), b.client, name, 1, "why not"); !errors.Is(err, once.ErrRunning) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := once.Reset(t.Context(), b.client, name, 1, ""); err == nil {
			t.Error("a reset without a reason")
		}
		if r := b.show().Runs[0]; r.State != once.StateDone || r.Slot != 7 {
			t.Errorf("%+v", r)
		}
	})
}

func lattice(last, slot int64) []int64 {
	var slots []int64
	for s := last + 10 - last%10; s < slot; s += 10 {
		slots = append(slots, s)
	}
	return slots
}

// Missed slots are listed, and with CatchUp the newest of them are run in order.
func TestOnceMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		h := s.host("a", 1)
		all := &once.Options{Between: lattice}
		if res, err := h.once(10, all, nil); err != nil || res.Missed != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err := h.once(50, all, nil)
		if err != nil || !slices.Equal(res.Missed, []int64{20, 30, 40}) || res.Run.Missed != 3 || res.Caught != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err = h.once(60, all, nil); err != nil || res.Missed != nil {
			t.Errorf("%+v, %v", res, err)
		}
		var ran []int64
		res, err = h.once(120, &once.Options{Between: lattice, CatchUp: 3}, func(_ context.Context, turn *once.Turn) error {
			ran = append(ran, turn.Slot())
			if turn.Slot() == 100 {
				return errWork
			}
			return nil
		})
		if !errors.Is(err, errWork) || !slices.Equal(ran, []int64{90, 100, 110, 120}) || !slices.Equal(res.Missed, []int64{70, 80}) {
			t.Errorf("ran %v, %+v, %v", ran, res, err)
		}
		if len(res.Caught) != 3 || res.Caught[1].State != once.StateFailed || res.Caught[0].Missed != 2 || res.Caught[1].Missed != 0 || res.Run.State != once.StateDone {
			t.Errorf("%+v", res)
		}
		if st := h.show(); st.Runs[1].Slot != 110 || st.Runs[2].State != once.StateFailed || st.Runs[0].State != once.StateDone {
			t.Errorf("%+v", st.Runs)
		}
		for _, wrong := range [][]int64{{120}, {121, 121}, {130}, {125, 122}} {
			_, err := h.once(130, &once.Options{Between: func(int64, int64) []int64 { return wrong }}, nil)
			if err == nil || !strings.Contains(err.Error(), "Between") || s.count(130) != 0 {
				t.Errorf("%v: %v", wrong, err)
			}
		}
	})
}

// A host that crashes while it catches up leaves the rest to the next one. With Redo
// the slot that it had begun is caught up too.
func TestCatchUpAfterACrash(t *testing.T) {
	for _, redo := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.twice = redo
			a, b := s.host("a", 1), s.host("b", 1)
			o := &once.Options{Between: lattice, CatchUp: 10, Redo: redo}
			if _, err := a.once(10, o, nil); err != nil {
				t.Fatal(err)
			}
			go a.quietly(50, o, func(ctx context.Context, turn *once.Turn) error {
				if turn.Slot() == 30 {
					a.crash()
					<-ctx.Done()
				}
				return ctx.Err()
			})
			synctest.Wait()
			var ran []int64
			res, err := b.once(50, o, func(_ context.Context, turn *once.Turn) error {
				ran = append(ran, turn.Slot())
				return nil
			})
			want := []int64{40, 50}
			if redo {
				want = []int64{30, 40, 50}
			}
			if err != nil || !slices.Equal(ran, want) || res.Unfinished == nil || res.Unfinished.Slot != 30 {
				t.Errorf("redo %v: ran %v, %+v, %v", redo, ran, res, err)
			}
		})
	}
}

// A host that loses its lease while it catches up begins none of the slots that follow,
// and says that they were not begun: nobody need take them for run.
func TestCatchUpWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		o := &once.Options{Between: lattice, CatchUp: 10}
		if _, err := a.once(10, o, nil); err != nil {
			t.Fatal(err)
		}
		res, err := a.once(40, o, func(ctx context.Context, turn *once.Turn) error {
			a.crash()
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, tenure.ErrLost) || errors.Is(err, once.ErrNotRun) || res.Run.Token != 0 || !slices.Equal(res.Missed, []int64{30}) ||
			len(res.Caught) != 1 || s.count(30)+s.count(40) != 0 {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err = b.once(40, o, nil); err != nil || len(res.Caught) != 1 || s.count(30) != 1 || s.count(40) != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// The time of the work is that of each slot: one that has used it up takes none of the
// time of the next one, nor its lease.
func TestCatchUpTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		a := s.host("a", 1)
		o := &once.Options{Between: lattice, CatchUp: 10, Timeout: time.Minute}
		if _, err := a.once(10, o, nil); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		res, err := a.once(40, o, func(ctx context.Context, turn *once.Turn) error {
			if turn.Slot() == 20 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return takes(50*time.Second)(ctx, turn)
		})
		if !errors.Is(err, once.ErrTimeout) || len(res.Caught) != 2 || res.Caught[0].State != once.StateFailed || res.Caught[0].Took != time.Minute ||
			res.Caught[1].State != once.StateDone || res.Run.State != once.StateDone || !res.Recorded {
			t.Errorf("%+v, %v", res, err)
		}
		if took := time.Since(begun); took < 160*time.Second || took > 161*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
