// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

// A slot that is too far ahead is refused, and shuts out no other. A reset opens the
// slot that it names, and no other.
func TestOnceAhead(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		s.twice = true // by the reset
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
		if err := once.Reset(t.Context(), b.Client.Client, name, 2440, "the disk was full"); err != nil {
			t.Fatal(err)
		}
		st := a.show()
		if r := st.Runs[0]; *st.Last != 1<<62 || r.State != once.StateReset || r.Slot != 2440 || r.Owner != "b" || r.Error != "the disk was full" {
			t.Errorf("%+v", st)
		}
		history, err := a.History(t.Context(), once.LockName(name))
		if err != nil || history[0].Request == nil || !strings.Contains(history[0].Request.Reason, "the disk was full") {
			t.Errorf("history %+v, %v", history, err)
		}
		for _, slot := range []int64{2439, 2441, 1000, 1 << 62} {
			if _, err := a.once(slot, nil, nil); !errors.Is(err, once.ErrPassed) && !errors.Is(err, once.ErrDone) {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
		if _, err := a.once(2440, nil, nil); err != nil {
			t.Error(err)
		}
		if _, err := b.once(2440, nil, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		if err := once.Reset(t.Context(), b.Client.Client, name, -1<<63, "all again"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(1, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// A host whose clock is ahead takes the slots that it runs, and no others; one whose clock is
// behind runs at worst, once, what was missed.
func TestOnceOutOfOrder(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		s.unordered = true
		fast, right, slow := s.host("fast"), s.host("right"), s.host("slow")
		o := &once.Options{Between: lattice, OutOfOrder: true}
		for slot := int64(180); slot < 220; slot += 10 { // before anybody else
			if _, err := fast.once(slot, o, nil); err != nil {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
		for slot := int64(10); slot <= 250; slot += 10 {
			if slot == 70 || slot == 80 {
				continue // an outage
			}
			res, err := right.once(slot, o, nil)
			switch ahead := slot >= 180 && slot < 220; {
			case ahead != errors.Is(err, once.ErrDone), !ahead && err != nil:
				t.Errorf("slot %d: %v", slot, err)
			case slot == 90 && !slices.Equal(res.Missed, []int64{70, 80}), slot != 90 && res.Missed != nil:
				t.Errorf("slot %d: missed %v", slot, res.Missed)
			}
		}
		for slot := int64(300); slot < 600; slot += 10 { // the ledger forgets the runs before
			if _, err := right.once(slot, o, nil); err != nil {
				t.Error(err)
			}
		}
		for _, slot := range []int64{60, 70, 80, 90} {
			_, err := slow.once(slot, o, nil)
			if missed := slot == 70 || slot == 80; missed != (err == nil) || !missed && !errors.Is(err, once.ErrDone) {
				t.Errorf("slot %d on the slow host: %v", slot, err)
			}
		}
		// Where numbers only rise, nothing below the highest is begun.
		if _, err := slow.once(601, nil, nil); err != nil {
			t.Error(err)
		}
		if _, err := slow.once(5, nil, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
	})
}

// A host whose clock is ahead is at work whenever the others come. They wait for it, until
// their next slot at the longest, and run their own.
func TestWaitAhead(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, _, _ *host) {
		s.unordered = true
		fast, right := s.host("fast"), s.host("right")
		o := &once.Options{Between: lattice, OutOfOrder: true, WaitAhead: time.Minute}
		for i := range int64(3) {
			fast.begins(1000+10*i, o, takes(20*time.Second))
			if _, err := right.once(10+10*i, o, nil); err != nil || s.count(10+10*i) != 1 {
				t.Errorf("slot %d: %v", 10+10*i, err)
			}
			time.Sleep(time.Minute)
		}
		fast.begins(2000, o, takes(time.Hour))
		begun := time.Now()
		if _, err := right.once(100, o, nil); !errors.Is(err, once.ErrRunning) || time.Since(begun) < time.Minute || time.Since(begun) > time.Minute+2*beat {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		// It waits for no lower slot: that of a job that takes long.
		begun = time.Now()
		if _, err := right.once(2010, o, nil); !errors.Is(err, once.ErrRunning) || time.Since(begun) > 2*beat {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		time.Sleep(time.Hour)
	})
}

// What a holder that was lost has begun is redone out of order too, as long as the ledger
// has it, and never when its end is known.
func TestRedoOutOfOrder(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		s.twice = true
		a.dies(20)
		o := &once.Options{Between: lattice, OutOfOrder: true, Redo: true}
		res, err := b.once(10, o, nil)
		if !errors.Is(err, once.ErrPassed) { // a has closed what is below it
			t.Errorf("%+v, %v", res, err)
		}
		if res, err = b.once(50, o, nil); err != nil || res.Unfinished == nil || res.Unfinished.Slot != 20 {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := b.once(20, &once.Options{Redo: true}, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err) // in order the last run alone is redone
		}
		if _, err := b.once(20, o, nil); err != nil || s.count(20) != 2 {
			t.Errorf("%v, begun %d times", err, s.count(20))
		}
		if _, err := b.once(20, o, nil); !errors.Is(err, once.ErrDone) {
			t.Error(err)
		}
		if _, err := b.once(30, o, nil); err != nil { // the redo has closed nothing
			t.Error(err)
		}
	})
}

// What Between counts, and does not list, stays open.
func TestOnceMissedMore(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		s.unordered = true
		o := &once.Options{OutOfOrder: true, CatchUp: 2, Between: func(last, slot int64) ([]int64, int) {
			slots, _ := lattice(last, slot)
			n := max(0, len(slots)-2)
			return slots[n:], n
		}}
		for _, slot := range []int64{10, 50, 20} {
			res, err := a.once(slot, o, nil)
			if missed := slot == 50; err != nil || (res.MissedCount == 1) != missed || (len(res.Caught) == 2) != missed || res.Missed != nil {
				t.Errorf("slot %d: %+v, %v", slot, res, err)
			}
		}
	})
}

// A ledger keeps sixteen spans. With the next one the lowest slots that were missed are given
// up, which is reported; nothing is refused for it.
func TestGapsAreGivenUp(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		s.unordered = true
		o := &once.Options{Between: lattice, OutOfOrder: true, MaxAhead: -1}
		for slot := int64(20); slot <= 340; slot += 20 {
			res, err := a.once(slot, o, nil)
			if err != nil || (res.Closed != nil) != (slot == 340) {
				t.Errorf("slot %d: %+v, %v", slot, res, err)
			}
		}
		if res, err := a.once(360, o, nil); err != nil || res.Closed == nil || *res.Closed != 40 {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := a.once(30, o, nil); !errors.Is(err, once.ErrPassed) {
			t.Error(err)
		}
		if _, err := a.once(50, o, nil); err != nil {
			t.Error(err)
		}
	})
}

// A reset waits for no holder at work.
func TestResetWhileItRuns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		a.begins(7, nil, takes(time.Minute))
		if err := once.Reset(t.Context(), b.Client.Client, name, 1, "why not"); !errors.Is(err, once.ErrRunning) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := once.Reset(t.Context(), b.Client.Client, name, 1, ""); err == nil {
			t.Error("a reset without a reason")
		}
		if r := b.show().Runs[0]; r.State != once.StateDone || r.Slot != 7 {
			t.Errorf("%+v", r)
		}
	})
}

// A reset says so if the store did not confirm that it was written.
func TestResetWithoutAnswer(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		if _, err := a.once(7, nil, nil); err != nil {
			t.Fatal(err)
		}
		b.Inject(faultstore.OpSetData, 0, 0, faultstore.BlackHole())
		if err := once.Reset(t.Context(), b.Client.Client, name, 1, "why not"); err == nil {
			t.Error("a reset that was not written")
		}
	})
}

func lattice(last, slot int64) ([]int64, int) {
	var slots []int64
	for s := last + 10 - last%10; s < slot; s += 10 {
		slots = append(slots, s)
	}
	return slots, 0
}

// Missed slots are listed, and with CatchUp the newest of them are run in order.
func TestOnceMissed(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, h, _ *host) {
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
		res, err = h.once(126, &once.Options{Between: func(int64, int64) ([]int64, int) { return []int64{124, 125}, 1000 }}, nil)
		if err != nil || !slices.Equal(res.Missed, []int64{124, 125}) || res.MissedCount != 1002 || res.Run.Missed != 1002 {
			t.Errorf("%+v, %v", res, err)
		}
		for _, more := range []int{-1, 1} {
			_, err := h.once(130, &once.Options{Between: func(int64, int64) ([]int64, int) { return nil, more }}, nil)
			if err == nil || !strings.Contains(err.Error(), "Between") || s.count(130) != 0 {
				t.Errorf("%d more: %v", more, err)
			}
		}
		for _, wrong := range [][]int64{{120}, {127, 127}, {130}, {128, 127}} {
			_, err := h.once(130, &once.Options{Between: func(int64, int64) ([]int64, int) { return wrong, 0 }}, nil)
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
		onHosts(t, func(t *testing.T, s *world, a, b *host) {
			s.twice = redo
			o := &once.Options{Between: lattice, CatchUp: 10, Redo: redo}
			if _, err := a.once(10, o, nil); err != nil {
				t.Fatal(err)
			}
			a.begins(50, o, func(ctx context.Context, turn *once.Turn) error {
				if turn.Slot() == 30 {
					a.Partition()
					<-ctx.Done()
				}
				return ctx.Err()
			})
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

// A slot that was begun is not missed, even if there is no room to redo it.
func TestBegunIsNotMissed(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		s.twice = true
		a.dies(30)
		res, err := b.once(60, &once.Options{Between: lattice, CatchUp: 1, Redo: true}, nil)
		if err != nil || !slices.Equal(res.Missed, []int64{40}) || res.MissedCount != 1 || len(res.Caught) != 1 || res.Unfinished == nil {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A host that loses its lease while it catches up begins none of the slots that follow,
// and says that they were not begun: they cannot be mistaken for run.
func TestCatchUpWithoutALease(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		o := &once.Options{Between: lattice, CatchUp: 10}
		if _, err := a.once(10, o, nil); err != nil {
			t.Fatal(err)
		}
		res, err := a.once(40, o, func(ctx context.Context, turn *once.Turn) error {
			a.Partition()
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

// The timeout applies to each slot: a slot that has used it up takes no time from the
// next one, nor its lease.
func TestCatchUpTimeout(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
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
