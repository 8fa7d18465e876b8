// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"
)

// Do runs work if at least need of the lease remains, and returns its error.
// Otherwise it returns an error that matches [ErrTooLate], or what Check says,
// and does nothing. The context of the work is that of Bind.
//
// The time that work takes counts as busy: see [Lease.Busy] and
// [Lease.BusyShare].
func (l *Lease) Do(ctx context.Context, need time.Duration, work func(context.Context) error) error {
	if err := l.Check(); err != nil {
		return err
	}
	if left := l.Remaining(); left < need {
		return wrap("do", l.key, refused("%w: %v is left, %v is needed", ErrTooLate, left.Round(time.Millisecond), need))
	}
	bound, stop := l.Bind(ctx)
	defer stop()
	l.work(+1)
	defer l.work(-1)
	return work(bound)
}

// Busy returns for how long the holder was at work in Do, of how long it has
// held the lease. Work that is under way counts until now, and work that runs
// in parallel counts for each.
func (l *Lease) Busy() (busy, held time.Duration) {
	return l.meter.Until(l.c.clock.Contender()), l.c.clock.Holder() - l.since
}

// BusyShare returns which share of its capacity the holder was at work in Do
// lately: in the last whole period of four lease durations, and since then; 1 is
// all of it. With [AcquireOptions.Capacity] the holder says how many pieces of
// work it can do at once.
//
// It is the number to plan with: a leader that is busy for 70 % of its time has
// no more than that left to grow, and takes that much longer to catch up after
// a takeover. [EventBusy] tells of it after each period.
func (l *Lease) BusyShare() float64 { return l.meter.Share(l.c.clock.Contender()) }

// busyPeriods is how many lease durations a period of the meter has: a minute
// by default.
const busyPeriods = 4

func (l *Lease) work(n int) {
	now := l.c.clock.Contender()
	if l.meter.Add(now, n) {
		l.report.Run = l.reportBusy
		l.meter.Period(now) // a holder that never uses Do is told nothing
		l.c.looks.Set(&l.report, now+busyPeriods*l.t.Lease)
	}
}

// reportBusy is run at the end of a period.
func (l *Lease) reportBusy(now time.Duration) {
	select {
	case <-l.over:
		return
	default:
	}
	busy, whole, share := l.meter.Period(now)
	l.c.events.emit(Event{Kind: EventBusy, Lock: l.key, Owner: l.Owner(), Token: l.token, Busy: busy, Held: whole, Share: share})
	l.c.looks.Set(&l.report, now+busyPeriods*l.t.Lease)
}
