// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// clock is a local clock: it runs at a rate of its own from an origin of its
// own. Real time is known to the world alone.
type clock struct {
	offset time.Duration
	rate   float64
	halted time.Duration // real time at which it stopped, 0 if it runs
}

func (c *clock) at(real time.Duration) time.Duration {
	if c.halted > 0 {
		real = c.halted
	}
	return c.offset + time.Duration(c.rate*float64(real))
}

// halt stops the clock until resume.
func (c *clock) halt(real time.Duration) {
	if c.halted == 0 {
		c.halted = real
	}
}

// resume lets a halted clock run on from where it stands.
func (c *clock) resume(real time.Duration) {
	if c.halted > 0 {
		c.offset -= time.Duration(c.rate * float64(real-c.halted))
		c.halted = 0
	}
}

// when returns the first real instant, not before now, at which the clock
// shows local or more.
func (c *clock) when(local, now time.Duration) time.Duration {
	if c.halted > 0 || c.at(now) >= local {
		return now
	}
	real := max(now, time.Duration(float64(local-c.offset)/c.rate))
	for c.at(real) < local {
		real++
	}
	return real
}
