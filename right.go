// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"math"
	"sync/atomic"
	"time"
)

// right is the right to act under a lease or a session: until when, and why it has
// ended. It is what Check reads. The holder's work, the timer of the deadline, and
// the heartbeats share it without a mutex, and share nothing else that way.
//
// What holds, whoever calls what at the same time:
//
//   - Ended is final: no call makes it good again, and the first ending stays.
//   - The deadline never moves backwards.
//   - Once a caller of check was told that it has expired, it has expired for all:
//     a heartbeat that is confirmed at the same moment comes too late.
//   - If the deadline passes first, the right is expired, whatever else is to end it.
//   - A right under a parent is good while the parent's is, and never has a deadline
//     of its own. The parent's ending becomes its own when a caller asks.
//
// No method blocks or allocates.
type right struct {
	clock  Clock
	parent *right // that of the session; nil for a lock that is its own lease, and for a session
	late   func() // is told that the deadline was found to have passed before the timer ran

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

// begin begins it: until the deadline, or for as long as the parent's is good.
func (r *right) begin(deadline time.Duration) {
	if r.parent != nil {
		r.until.Store(inherited)
		return
	}
	r.until.Store(int64(deadline))
}

// check returns why the right has ended, by the clock's reading now.
func (r *right) check() ending {
	until := r.until.Load()
	if until == inherited && r.parent != nil {
		// One level, and open-coded: it is asked before every side effect.
		if until = r.parent.until.Load(); until <= 0 || int64(r.clock.Holder()) >= until {
			return r.inherit()
		}
		return notEnded
	}
	if until > 0 && int64(r.clock.Holder()) < until {
		return notEnded
	}
	return r.expire(until)
}

// inherit is check where the parent's has ended, or its deadline has passed.
func (r *right) inherit() ending {
	e := r.parent.check()
	if e == notEnded {
		return notEnded // it has been extended meanwhile
	}
	r.until.CompareAndSwap(inherited, int64(e))
	return r.ended()
}

// expire ends a right whose deadline was until, if it still is.
func (r *right) expire(until int64) ending {
	for until > 0 {
		if r.until.CompareAndSwap(until, int64(endedExpired)) {
			r.late()
			return endedExpired
		}
		if until = r.until.Load(); until > 0 && int64(r.clock.Holder()) < until {
			return notEnded
		}
	}
	if until == 0 {
		return endedExpired // it has not begun
	}
	return ending(until)
}

// bound returns the deadline that counts, or the ending.
func (r *right) bound() int64 {
	until := r.until.Load()
	if until == inherited && r.parent != nil {
		until = r.parent.until.Load()
	}
	return until
}

// ended returns why the right has ended, as far as any caller has found out.
func (r *right) ended() ending { return ending(min(r.bound(), int64(notEnded))) }

// own is ended, without what the parent's says.
func (r *right) own() ending { return ending(min(r.until.Load(), int64(notEnded))) }

// remaining returns the time until the deadline, 0 if the right has ended.
func (r *right) remaining() time.Duration {
	until := r.bound()
	if until <= 0 {
		return 0
	}
	return max(0, time.Duration(until)-r.clock.Holder())
}

// end ends it, unless it has ended.
func (r *right) end(why ending) {
	for {
		until := r.until.Load()
		if until < 0 {
			return
		}
		if due := r.bound(); due == int64(endedExpired) || due >= 0 && int64(r.clock.Holder()) >= due {
			why = endedExpired
		}
		if r.until.CompareAndSwap(until, int64(why)) {
			return
		}
	}
}

// extend moves the deadline, unless the right has ended, or has none of its own.
func (r *right) extend(deadline time.Duration) {
	if r.parent != nil {
		return
	}
	for {
		until := r.until.Load()
		if until < 0 || until >= int64(deadline) || r.until.CompareAndSwap(until, int64(deadline)) {
			return
		}
	}
}

// reach is for the timer of the deadline: it returns when to come again, or that
// the right has expired. Else it has ended otherwise.
func (r *right) reach(now time.Duration) (again time.Duration, expired bool) {
	for {
		until := r.until.Load()
		switch {
		case until > int64(now):
			return time.Duration(until), false
		case until == int64(endedExpired):
			return 0, true
		case until < 0:
			return 0, false
		}
		if r.until.CompareAndSwap(until, int64(endedExpired)) {
			return 0, true
		}
	}
}
