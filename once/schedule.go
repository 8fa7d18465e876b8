// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
)

// Schedule is where slots come from, so that two schedules are not taken for one: the
// same line in two time zones, or a line that was changed on one host alone.
type Schedule struct {
	// Text shows it to people, with its time zone. It is cut to 200 bytes.
	Text string
	// After returns the first slots after a slot, count at most, in their order. It
	// must not block.
	After func(slot int64, count int) []int64
}

// compared is how many slots two schedules must have in common: more than a year of a
// nightly one.
const compared = 400

// known is what a ledger knows of the schedule of its slots.
type known struct {
	Text  string `json:"text"`
	After int64  `json:"after"` // the slot that was begun last
	Next  int64  `json:"next"`  // the one after it, for people
	Sum   string `json:"sum"`   // of the slots after it
}

func (s *Schedule) known(after int64) *known {
	k := &known{Text: cut(text.Line(s.Text)), After: after, Next: after, Sum: s.sum(after)}
	if next := s.After(after, 1); len(next) > 0 {
		k.Next = next[0]
	}
	return k
}

func (s *Schedule) sum(after int64) string {
	h := sha256.New()
	for _, slot := range s.After(after, compared) {
		_ = binary.Write(h, binary.BigEndian, slot) // a hash returns no error
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// refuseSchedule returns why the slots of a schedule are not those of the ledger, nil if
// they are, or if nothing is known of it.
func (l ledger) refuseSchedule(s *Schedule, slot int64, alive uint64) error {
	if s == nil || l.Schedule == nil || s.sum(l.Schedule.After) == l.Schedule.Sum {
		return nil
	}
	return &ScheduleError{Slot: slot, Text: s.Text, Ledger: l.Schedule.Text, Run: l.runOf(l.Schedule.After, alive)}
}

const opReschedule = "change the schedule of"

// Reschedule writes into the ledger that the schedule was changed. All slots up to
// over, the last one whose time has passed, count as begun: earlier slots of the new
// schedule are neither missed nor caught up. Call it when [Once] returns a
// [*ScheduleError], and the schedule is meant. It returns false, and writes nothing, if
// the ledger has no run, or has that schedule.
//
// The change is in the ledger, as a run of StateChanged with the text of the schedule
// and the owner name. The error is a [*RunningError] if a holder is at work.
func Reschedule(ctx context.Context, client *tenure.Client, name string, schedule Schedule, over int64) (bool, error) {
	err := checkCall(client, name, true)
	if err == nil {
		err = schedule.check()
	}
	if err != nil {
		return false, wrap(opReschedule, name, err)
	}
	_, l, err := look(ctx, client, name)
	if err != nil {
		return false, wrap(opReschedule, name, err)
	}
	if !l.changes(&schedule) {
		return false, nil
	}
	lease, err := reserve(ctx, client, LockName(name))
	if err != nil {
		return false, wrap(opReschedule, name, err)
	}
	data, err := dataOf(ctx, client, lease)
	if err == nil {
		l, err = parseOnce(data, lease.Token())
	}
	if err != nil || !l.changes(&schedule) { // another host has come first
		_ = lease.Release(context.WithoutCancel(ctx))
		if err != nil {
			err = wrap(opReschedule, name, err)
		}
		return false, err
	}
	l = l.begin(entry{
		Slot: over, Token: lease.Token(), Owner: lease.Owner(), Begun: time.Now().UnixMilli(),
		State: StateChanged, Error: schedule.known(over).Text,
	}, math.MinInt64)
	l.Schedule = schedule.known(over)
	err = lease.ReleaseWith(context.WithoutCancel(ctx), &tenure.ReleaseOptions{Data: l.bytes()})
	if err != nil {
		return false, wrap(opReschedule, name, err)
	}
	return true, nil
}

// changes reports whether the ledger has runs of another or an unknown schedule.
func (l ledger) changes(s *Schedule) bool {
	return len(l.Runs) > 0 && (l.Schedule == nil || s.sum(l.Schedule.After) != l.Schedule.Sum)
}

func (s *Schedule) check() error {
	if s.Text == "" || s.After == nil {
		return errors.New("the schedule has no Text or no function After")
	}
	return nil
}
