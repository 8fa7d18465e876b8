// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"sync"
	"time"
)

// clock is that of one process: it runs too fast or too slow, stands still while
// the process is paused, and then goes to where it belongs. It is a
// tenure.Clock.
type clock struct {
	mu     sync.Mutex
	since  time.Time     // of the readings below
	read   time.Duration // what it had counted for certain
	hidden time.Duration // what it found afterwards, and may have passed
	rate   float64
	clockState
}

// clockState is what has happened to a clock.
type clockState struct {
	paused    bool
	wasPaused bool // once
	steady    bool // never wrong by a rate, never paused
}

func newClock(rate float64) *clock {
	return &clock{since: time.Now(), read: time.Hour, rate: rate, clockState: clockState{steady: rate == 1}}
}

func (c *clock) now() time.Duration {
	if c.paused {
		return c.read
	}
	return c.read + c.ran()
}

// ran returns what has passed since the readings.
func (c *clock) ran() time.Duration {
	return time.Duration(float64(time.Since(c.since)) * c.rate)
}

func (c *clock) Contender() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *clock) Holder() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now() + c.hidden
}

// set changes the rate.
func (c *clock) set(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused {
		c.read, c.since = c.now(), time.Now()
	}
	c.rate = rate
	c.steady = c.steady && rate == 1
}

// pause stops the clock.
func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.since, c.paused, c.steady = c.now(), time.Now(), true, false
	c.wasPaused = true
}

// resume lets the clock go on. What has passed meanwhile has passed for certain
// (a suspend that the boot clock has counted), or only may have (a step of the
// wall clock).
func (c *clock) resume(certain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused {
		return
	}
	if certain {
		c.read += c.ran()
	} else {
		c.hidden += c.ran()
	}
	c.since, c.paused = time.Now(), false
}

func (c *clock) state() clockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clockState
}
