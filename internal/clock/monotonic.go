// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// Monotonic is a [Clock] that only uses Go's reading: both methods return the monotonic
// part of time.Now, which stops in a suspend.
//
// It is the clock for a testing/synctest bubble, where it gives the bubble's
// time: [Elapsed] would ask the real boot clock, which knows nothing of bubbles.
//
// It has no state, and each reading depends on where it is made: outside of bubbles it
// is the time since the process began, inside a bubble the time since the bubble began.
// So one value may be made anywhere, and used in many bubbles. A stored origin would be
// decades ahead of a bubble's time, or an hour ahead of the next bubble's, and instants
// would be negative there.
type Monotonic struct{}

var _ Clock = Monotonic{}

// Go returns a clock that reads Go's clock and no other.
func Go() Monotonic { return Monotonic{} }

// Holder returns the time since the process or the bubble began, without suspends.
func (Monotonic) Holder() time.Duration { return elapsed() }

// Contender returns the same as Holder.
func (Monotonic) Contender() time.Duration { return elapsed() }

// The origins of Monotonic. Neither is ever changed.
var (
	processStart = time.Now()                                  // package variables are set outside of all bubbles
	bubbleStart  = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where testing/synctest begins, by its documentation
)

func elapsed() time.Duration {
	now := time.Now()
	if wallAlone(now) && !wallAlone(processStart) {
		return now.Sub(bubbleStart)
	}
	return now.Sub(processStart)
}

// InBubble reports whether the caller is in a testing/synctest bubble, as far as
// its time shows: until the year 2157.
func InBubble() bool {
	now := time.Now()
	return wallAlone(now) && inRange(now)
}

// wallAlone reports whether t has no monotonic part. A time from time.Now has
// none in a bubble, or if the wall clock is out of range.
func wallAlone(t time.Time) bool { return t == t.Round(0) } //nolint:staticcheck // Equal would not see the part that is asked after
