// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"sync/atomic"
	"time"
)

// leaseDeadline is until when a holder may act under a lease or a session, and why that has
// ended. It is what Check reads. The holder's work, the timer of the deadline, and
// the heartbeats share it without a mutex, and share nothing else that way.
//
// What holds, whoever calls what at the same time:
//
//   - Ended is final: no call makes it good again, and the first ending stays.
//   - It never moves backwards.
//   - Once a caller of Check was told that it has expired, it has expired for all:
//     a heartbeat that is confirmed at the same moment comes too late.
//   - If it passes first, it is expired, whatever else is to end it.
//   - A deadline under a parent is good while the parent's is, and has no instant of
//     its own. The parent's ending becomes its own when a caller asks.
//
// No method blocks or allocates.
type leaseDeadline struct {
	timers *timers        // of deadlines, by the holder's clock
	Parent *leaseDeadline // that of the session; nil for a lock that is its own lease, and for a session

	// until is the deadline on the holder's clock; or an ending; or inherited, if
	// only the parent's counts.
	until atomic.Int64
}

// inherited stands for no deadline of its own.
const inherited = math.MaxInt64

// ending is why the right to act has ended.
type ending int64

// The endings. They stand in place of a deadline, which is positive.
const (
	notEnded         ending = 0
	endedExpired     ending = -1
	endedReleased    ending = -2
	endedSuperseded  ending = -3
	endedStalled     ending = -4
	endedStopTimeout ending = -5
	endedReplaced    ending = -6
)

// Begin begins it: until the deadline, or for as long as the parent's is good.
func (d *leaseDeadline) Begin(deadline time.Duration) {
	if d.Parent != nil {
		d.until.Store(inherited)
		return
	}
	d.until.Store(int64(deadline))
}

// Check returns why the right has ended, by the clock's reading now.
func (d *leaseDeadline) Check() ending {
	until := d.until.Load()
	if until == inherited && d.Parent != nil {
		// One level, and open-coded: it is asked before every side effect.
		if until = d.Parent.until.Load(); until <= 0 || int64(d.timers.now()) >= until {
			return d.inherit()
		}
		return notEnded
	}
	if until > 0 && int64(d.timers.now()) < until {
		return notEnded
	}
	return d.expire(until)
}

// inherit is check where the parent's has ended, or its deadline has passed.
func (d *leaseDeadline) inherit() ending {
	e := d.Parent.Check()
	if e == notEnded {
		return notEnded // it has been extended meanwhile
	}
	d.until.CompareAndSwap(inherited, int64(e))
	return d.Ended()
}

// expire ends a right whose deadline was until, if it still is.
func (d *leaseDeadline) expire(until int64) ending {
	for until > 0 {
		if d.until.CompareAndSwap(until, int64(endedExpired)) {
			d.timers.Poke() // the timer is late
			return endedExpired
		}
		if until = d.until.Load(); until > 0 && int64(d.timers.now()) < until {
			return notEnded
		}
	}
	if until == 0 {
		return endedExpired // it has not begun
	}
	return ending(until)
}

// bound returns the deadline that counts, or the ending.
func (d *leaseDeadline) bound() int64 {
	until := d.until.Load()
	if until == inherited && d.Parent != nil {
		until = d.Parent.until.Load()
	}
	return until
}

// Ended returns why the right has ended, as far as any caller has found out.
func (d *leaseDeadline) Ended() ending { return ending(min(d.bound(), int64(notEnded))) }

// Own is ended, without what the parent's says.
func (d *leaseDeadline) Own() ending { return ending(min(d.until.Load(), int64(notEnded))) }

// Remaining returns the time until the deadline, 0 if the right has ended.
func (d *leaseDeadline) Remaining() time.Duration {
	until := d.bound()
	if until <= 0 {
		return 0
	}
	return max(0, time.Duration(until)-d.timers.now())
}

// End ends it, unless it has ended.
func (d *leaseDeadline) End(why ending) {
	for {
		until := d.until.Load()
		if until < 0 {
			return
		}
		if due := d.bound(); due == int64(endedExpired) || due >= 0 && int64(d.timers.now()) >= due {
			why = endedExpired
		}
		if d.until.CompareAndSwap(until, int64(why)) {
			return
		}
	}
}

// Extend moves the deadline, unless the right has ended, or has none of its own.
func (d *leaseDeadline) Extend(deadline time.Duration) {
	if d.Parent != nil {
		return
	}
	for {
		until := d.until.Load()
		if until < 0 || until >= int64(deadline) || d.until.CompareAndSwap(until, int64(deadline)) {
			return
		}
	}
}

// Reach is for the timer of the deadline: it returns when to come again, or that
// the right has expired. Else it has ended otherwise.
func (d *leaseDeadline) Reach(now time.Duration) (again time.Duration, expired bool) {
	for {
		until := d.until.Load()
		switch {
		case until > int64(now):
			return time.Duration(until), false
		case until == int64(endedExpired):
			return 0, true
		case until < 0:
			return 0, false
		}
		if d.until.CompareAndSwap(until, int64(endedExpired)) {
			return 0, true
		}
	}
}
