// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
)

// Ledger is what the lock of a ledger shows to a monitor that has read its status.
type Ledger struct {
	// Runs are the last 20 runs, the newest first, without resets and changes of the
	// schedule.
	Runs []Run
	// Period is the time from the slot that was begun last to the next one of
	// [Options.Schedule], or from the one before if that is longer, if slots are minutes;
	// or the period of [Every]. It is 0 if it is not known.
	Period time.Duration
}

// longer returns the time to the next slot, or that from the slot before, if it is longer and
// none was missed: on Monday the last success of a job of working days is three days old.
func longer(next time.Duration, entries []entry) time.Duration {
	last := entries[len(entries)-1]
	for _, e := range slices.Backward(entries) {
		switch {
		case last.Missed > 0 || e.State == StateReset || e.State == StateChanged:
			return next
		case e.Slot < last.Slot:
			return max(next, MinuteTime(last.Slot).Sub(MinuteTime(e.Slot)))
		}
	}
	return next
}

// Read returns the ledger of a status of its lock, [LockName] or [EveryLockName], with
// no request. It returns false for any other lock, and for one without a ledger.
func Read(st tenure.Status) (Ledger, bool) {
	var entries []entry
	var l Ledger
	switch {
	case strings.HasSuffix(st.Name, text.OnceSuffix):
		read, err := parseOnce(st.Data, st.Token)
		if err != nil {
			return Ledger{}, false
		}
		entries = read.Runs
		if s := read.Schedule; s != nil && len(entries) > 0 && s.Next > s.After && MinuteTime(s.After).Sub(time.UnixMilli(entries[len(entries)-1].Begun)).Abs() < 366*24*time.Hour {
			l.Period = longer(MinuteTime(s.Next).Sub(MinuteTime(s.After)), entries)
		}
	case strings.HasSuffix(st.Name, text.EverySuffix):
		read, err := parseEvery(st.Data, st.Token)
		if err != nil {
			return Ledger{}, false
		}
		entries, l.Period = read.Runs, time.Duration(read.Period)*time.Millisecond
	}
	for _, r := range runsOf(entries, alive(st)) {
		if r.State != StateReset && r.State != StateChanged {
			l.Runs = append(l.Runs, r)
		}
	}
	return l, len(l.Runs) > 0
}
