// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// Monotonic is a [Clock] by Go's reading alone: both methods give the
// monotonic part of time.Now, which stands still in a suspend.
//
// It is the clock for a testing/synctest bubble, where it gives the bubble's
// time: [Elapsed] would ask the real boot clock, which knows nothing of
// bubbles. Make it in the bubble in which it is used.
type Monotonic struct {
	base time.Time
}

var _ Clock = (*Monotonic)(nil)

// Go returns a clock that reads Go's clock and no other, and starts at zero.
func Go() *Monotonic {
	return &Monotonic{base: time.Now()}
}

// Holder returns the time since the clock was made, without suspends.
func (m *Monotonic) Holder() time.Duration { return time.Since(m.base) }

// Contender returns the same as Holder.
func (m *Monotonic) Contender() time.Duration { return time.Since(m.base) }
