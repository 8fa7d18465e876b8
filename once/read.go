// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
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
	// [Options.Schedule], if slots are minutes, or the period of [Every]. It is 0 if
	// it is not known.
	Period time.Duration
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
			l.Period = MinuteTime(s.Next).Sub(MinuteTime(s.After))
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
