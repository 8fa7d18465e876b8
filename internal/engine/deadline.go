// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"sync/atomic"
	"time"
)

// leaseDeadline is the instant until which a holder may act under a lease or a session, or
// why its right to act has ended. Check reads it. The holder's work, the timer of the
// deadline, and the heartbeats share it without a mutex, and share nothing else that way.
//
// These rules hold for all concurrent calls:
//
//   - An ending is final: no call revives a deadline, and the first ending stays.
//   - The deadline never moves backwards.
//   - Once Check has reported to any caller that the deadline has expired, it has
//     expired for all: a heartbeat that is confirmed at the same moment comes too late.
//   - If the deadline passes first, the ending is expired, whatever else tries to end
//     it.
//   - A deadline with a parent is good while the parent is, and has no instant of its
//     own. It takes over the parent's ending when a caller checks it.
//
// The holder's clock may be expensive to read. So Check reads another one, and compares it with
// an instant before which the deadline has certainly not passed. Only past that instant does it
// read the holder's clock, which decides, and set a new instant, after about a third of the time
// that remains. So an unanswered heartbeat costs some forty such readings.
//
// No method blocks or allocates.
type leaseDeadline struct {
	clocks *leaseClocks
	Parent *leaseDeadline // the session's deadline; nil for a lock with its own lease, and for a session

	// until is the deadline on the holder's clock, or an ending, or inherited, if only the
	// parent counts.
	until atomic.Int64
	// good is an instant on the quick clock. Before it, the deadline has not passed. A value from
	// an earlier deadline stays right, because the deadline never moves backwards.
	good atomic.Int64
}

// leaseClocks are the clocks of all deadlines of a client.
type leaseClocks struct {
	*timers // for deadlines, on the holder's clock

	// quick is cheaper to read than the holder's clock, and counts the same suspends and steps.
	// It may be the same clock.
	quick func() time.Duration
	// slowdown is how many times slower than the holder's clock quick may run: 3 if that is
	// Linux's raw clock (clock.MaxSlowdown), 1 if both are the same.
	slowdown int
}

// inherited means that there is only the parent's deadline.
const inherited = math.MaxInt64

// ending is why the right to act has ended.
type ending int64

// The endings. They replace the deadline, which is positive.
const (
	notEnded         ending = 0
	endedExpired     ending = -1
	endedReleased    ending = -2
	endedSuperseded  ending = -3
	endedStalled     ending = -4
	endedStopTimeout ending = -5
	endedReplaced    ending = -6
)

// Begin starts the right to act, until the deadline, or as long as the parent is good.
func (d *leaseDeadline) Begin(deadline time.Duration) {
	if d.Parent != nil {
		d.until.Store(inherited)
		return
	}
	d.vouch(int64(deadline))
	d.until.Store(int64(deadline))
}

// vouch reports whether the deadline until has not passed. If so, it sets good to the quick
// clock's reading plus the remaining time divided by slowdown: the quick clock may run that much
// slower than the holder's.
func (d *leaseDeadline) vouch(until int64) bool {
	// The quick clock is read first. If this goroutine stops between the two readings, or the
	// machine is suspended, too little seems to remain, and never too much.
	quick := d.clocks.quick()
	left := time.Duration(until) - d.clocks.now()
	if left <= 0 {
		return false
	}
	d.good.Store(int64(quick + left/time.Duration(d.clocks.slowdown)))
	return true
}

// Check returns why the right has ended, by the current reading of the clock.
func (d *leaseDeadline) Check() ending {
	until := d.until.Load()
	if until == inherited && d.Parent != nil {
		// One level, and inlined by hand, because callers check before every side effect.
		if until = d.Parent.until.Load(); until <= 0 || d.Parent.good.Load() <= int64(d.clocks.quick()) {
			return d.inherit()
		}
		return notEnded
	}
	if until > 0 && d.good.Load() > int64(d.clocks.quick()) {
		return notEnded
	}
	return d.expire(until)
}

// inherit is Check if the parent has ended, or its deadline has passed.
func (d *leaseDeadline) inherit() ending {
	e := d.Parent.Check()
	if e == notEnded {
		return notEnded // it has been extended meanwhile
	}
	d.until.CompareAndSwap(inherited, int64(e))
	return d.Ended()
}

// expire ends the right as expired, if the deadline is still until, and has passed.
func (d *leaseDeadline) expire(until int64) ending {
	for until > 0 {
		if d.vouch(until) {
			return notEnded
		}
		if d.until.CompareAndSwap(until, int64(endedExpired)) {
			d.clocks.Poke() // the timer is late
			return endedExpired
		}
		until = d.until.Load()
	}
	if until == 0 {
		return endedExpired // Begin was not called
	}
	return ending(until)
}

// effective returns the effective deadline, or the ending.
func (d *leaseDeadline) effective() int64 {
	until := d.until.Load()
	if until == inherited && d.Parent != nil {
		until = d.Parent.until.Load()
	}
	return until
}

// Ended returns why the right has ended, as far as any call has found out.
func (d *leaseDeadline) Ended() ending { return ending(min(d.effective(), int64(notEnded))) }

// Own is Ended, but ignores a parent's ending that no Check has taken over yet.
func (d *leaseDeadline) Own() ending { return ending(min(d.until.Load(), int64(notEnded))) }

// Remaining returns the time until the deadline, 0 if the right has ended.
func (d *leaseDeadline) Remaining() time.Duration {
	until := d.effective()
	if until <= 0 {
		return 0
	}
	return max(0, time.Duration(until)-d.clocks.now())
}

// End ends the right, unless it has ended.
func (d *leaseDeadline) End(why ending) {
	for {
		until := d.until.Load()
		if until < 0 {
			return
		}
		if due := d.effective(); due == int64(endedExpired) || due >= 0 && int64(d.clocks.now()) >= due {
			why = endedExpired
		}
		if d.until.CompareAndSwap(until, int64(why)) {
			return
		}
	}
}

// Extend moves the deadline, unless the right has ended, or the deadline is the
// parent's.
func (d *leaseDeadline) Extend(deadline time.Duration) {
	if d.Parent != nil {
		return
	}
	for {
		until := d.until.Load()
		if until < 0 || until >= int64(deadline) {
			return
		}
		if d.until.CompareAndSwap(until, int64(deadline)) {
			d.vouch(int64(deadline))
			return
		}
	}
}

// Reach is for the timer of the deadline: it returns when to call again, or that the
// right has expired. If neither, the right has ended otherwise.
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
