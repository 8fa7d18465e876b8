// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

const (
	// tolerance is by how much wall clock and monotonic clock may disagree
	// about the elapsed time before the boot clock is asked, and so the most
	// that an answer can miss.
	//
	// It is far above what time.Now needs between its two readings (tens of
	// nanoseconds; some 50 µs where each is a trap into a hypervisor), so that
	// the slow path stays rare. It is below what a lease keeps in hand for
	// clocks of unlike rates: with a bound of 9 % that is 16 % of its duration, with
	// 1 % by the raw clock 2 %, which is 2 ms of the shortest lease that makes any sense,
	// 100 ms. It bounds the error for good, not for each call, because the comparison is
	// with a fixed reference.
	tolerance = time.Millisecond

	// settled is the disagreement that a coherent reading of all clocks leaves
	// standing. Half the tolerance, so that a step of just about the tolerance
	// does not send every later call into the slow path.
	settled = tolerance / 2

	// maxOffset bounds what is added to a monotonic reading, so that absurd
	// steps of the wall clock cannot overflow: 73 years, past any lease.
	maxOffset = time.Duration(1) << 61
)

// reference is what all readings are compared with until it is replaced: how
// the clocks stood to each other when everything up to then was accounted for.
// It is immutable once it is published.
type reference struct {
	level     time.Duration // wall - mono: what a reading is expected to show
	slept     time.Duration // boot - mono
	boot      bool          // whether the boot clock could be read at the origin
	holder    time.Duration // holder's instant - mono; never falls
	contender time.Duration // contender's instant - mono; never falls
}

// origin returns the reference of a clock that starts with r.
func origin(r Reading) reference {
	return reference{
		level:     r.Wall - r.Mono,
		slept:     r.Boot - r.Mono,
		boot:      r.HasBoot,
		holder:    -r.Mono,
		contender: -r.Mono,
	}
}

// agrees reports whether wall clock and monotonic clock agree on the time
// elapsed since the reference.
func (ref *reference) agrees(now Instant) bool {
	// One comparison for both bounds; below the lower one the sum wraps round.
	return uint64(now.Wall-now.Mono-ref.level+tolerance) <= uint64(2*tolerance)
}

// advance returns the reference that follows from r, and whether it differs:
//
//   - The time by which the boot clock is ahead of the monotonic clock is a
//     suspend: it counts for both.
//   - The time by which the wall clock is ahead of the boot clock is an
//     unexplained step: it counts for the holder, unless trust is set and there
//     is a boot clock to trust.
//   - The time by which the wall clock is behind is a step back: it counts for
//     neither. The reference follows it, so that a later step forward is seen.
//
// A difference that is too small to count leaves the reference as it is, and is
// compared again next time: so small steps add up, and noise does not.
func (ref *reference) advance(r Reading, trust bool) (next reference, moved bool) {
	// The longer a reading took, the less it says about how the clocks stand to
	// each other. The next call settles what this one leaves open.
	least := max(settled, r.Span)

	next = *ref
	if ref.boot && r.HasBoot {
		if slept := r.Boot - r.Mono - ref.slept; slept > least {
			next.slept += slept
			next.level += slept
			next.holder = push(next.holder, slept)
			next.contender = push(next.contender, slept)
			moved = true
		}
	}
	switch step := r.Wall - r.Mono - next.level; {
	case step > least:
		next.level += step
		if !trust || !ref.boot {
			next.holder = push(next.holder, step)
		}
		moved = true
	case step < -least:
		next.level += step
		moved = true
	}
	return next, moved
}

// push returns offset + by, at most maxOffset.
func push(offset, by time.Duration) time.Duration {
	if offset > maxOffset-by {
		return maxOffset
	}
	return offset + by
}
