// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/once"
)

// every returns the schedule of the multiples of a number, plus an offset, and options that
// go by it.
func every(n, offset int64, text string) *once.Options {
	after := func(slot int64, count int) (slots []int64) {
		for s := (slot-offset)/n*n + n + offset; len(slots) < count; s += n {
			slots = append(slots, s)
		}
		return slots
	}
	return &once.Options{
		OutOfOrder: true, CatchUp: 3, Schedule: &once.Schedule{Text: text, After: after},
		Between: func(last, slot int64) (slots []int64, more int) {
			for _, s := range after(last, 1000) {
				if s < slot {
					slots = append(slots, s)
				}
			}
			return slots, 0
		},
	}
}

// Two schedules under one name are not taken for one: the second is refused, whatever its
// slot is, until a caller says that the schedule was changed. Then nothing runs that was
// not scheduled, and nothing again.
func TestTwoSchedules(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, b *host) {
		utc, berlin := every(1440, 185, "5 3 * * * in UTC"), every(1440, 125, "5 3 * * * in Berlin")
		hourly := every(60, 0, "0 * * * * in UTC")
		day := int64(1440)
		for i := range int64(2) {
			if _, err := a.once(i*day+185, utc, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, slot := range []int64{day + 125, 2*day + 125, day + 185} {
			_, err := b.once(slot, berlin, nil)
			e := as[*once.ScheduleError](t, err)
			if !errors.Is(err, once.ErrSchedule) || e.Slot != slot || e.Text != "5 3 * * * in Berlin" || e.Ledger != "5 3 * * * in UTC" || e.Run.Owner != "a" || e.Run.Slot != day+185 {
				t.Errorf("slot %d: %+v", slot, e)
			}
		}
		// The same times by another name are the same schedule, and one of numbers has none.
		same := every(1440, 185, "5 4 * * * in another zone")
		if _, err := b.once(2*day+185, same, nil); err != nil {
			t.Error(err)
		}
		// Also while another host is at work.
		a.begins(3*day+185, utc, takes(time.Minute))
		if _, err := b.once(3*day+125, berlin, nil); !errors.Is(err, once.ErrSchedule) {
			t.Error(err)
		}
		if _, err := once.Reschedule(t.Context(), b.Client.Client, name, *hourly.Schedule, 0); !errors.Is(err, once.ErrRunning) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)

		// Each hour from now on.
		now := 3*day + 15*60
		for _, want := range []bool{true, false} {
			if changed, err := once.Reschedule(t.Context(), b.Client.Client, name, *hourly.Schedule, now-1); err != nil || changed != want {
				t.Errorf("%v, %v", changed, err)
			}
		}
		if r := a.show().Runs[0]; r.State != once.StateChanged || r.Owner != "b" || r.Error != "0 * * * * in UTC" || r.Slot != now-1 {
			t.Errorf("%+v", r)
		}
		if _, err := a.once(4*day+185, utc, nil); !errors.Is(err, once.ErrSchedule) {
			t.Error(err)
		}
		for _, slot := range []int64{now - 60, 3*day + 185} {
			if _, err := b.once(slot, hourly, nil); !errors.Is(err, once.ErrPassed) && !errors.Is(err, once.ErrDone) {
				t.Errorf("slot %d: %v", slot, err)
			}
		}
		if _, err := b.once(now-1, nil, nil); !errors.Is(err, once.ErrPassed) { // it is no run
			t.Error(err)
		}
		if res, err := b.once(now, hourly, nil); err != nil || res.MissedCount != 0 || res.Caught != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := a.once(now+120, hourly, nil); err != nil || len(res.Caught) != 1 || res.Caught[0].Slot != now+60 {
			t.Errorf("%+v, %v", res, err)
		}
		// A new ledger has no schedule.
		s.twice = true
		if err := once.Reset(t.Context(), b.Client.Client, name, -1<<63, "a test"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(185, utc, nil); err != nil {
			t.Error(err)
		}
	})
}

// A ledger without runs has nothing to change; a ledger without a schedule takes the
// first one.
func TestRescheduleWithoutALedger(t *testing.T) {
	onHosts(t, func(t *testing.T, s *world, a, _ *host) {
		s.unordered = true
		tens := every(10, 0, "each ten")
		if changed, err := once.Reschedule(t.Context(), a.Client.Client, name, *tens.Schedule, 1000); err != nil || changed || a.show().Runs != nil && len(a.show().Runs) > 0 {
			t.Errorf("%v, %v", changed, err)
		}
		if _, err := a.once(7, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.once(20, tens, nil); err != nil {
			t.Error(err)
		}
		if _, err := a.once(25, every(5, 0, "each five"), nil); !errors.Is(err, once.ErrSchedule) {
			t.Error(err)
		}
		if _, err := a.once(26, nil, nil); err != nil { // a number named by an operator
			t.Error(err)
		}
		if _, err := once.Reschedule(t.Context(), a.Client.Client, name, once.Schedule{}, 0); err == nil || !strings.Contains(err.Error(), "no Text") {
			t.Error(err)
		}
		if !slices.ContainsFunc(a.show().Runs, func(r once.Run) bool { return r.Slot == 26 }) {
			t.Error("the run of 26 is not in the ledger")
		}
	})
}
