// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
)

// busyMeter adds up the time at work.
type busyMeter struct {
	capacity int

	mu      sync.Mutex // guards the fields below; held for a moment alone
	running int
	at      time.Duration // until when busy is counted
	busy    time.Duration
	used    bool
	from    window // where the last whole period began
	to      window // and ended
}

// window is what the meter showed at a time.
type window struct{ at, busy time.Duration }

// begin begins to count at now. The share is of capacity, 1 at least.
func (m *busyMeter) begin(now time.Duration, capacity int) {
	m.capacity, m.at, m.from, m.to = max(1, capacity), now, window{at: now}, window{at: now}
}

// count adds what has passed since it was called last. The caller holds mu.
func (m *busyMeter) count(now time.Duration) {
	m.busy += time.Duration(m.running) * max(0, now-m.at)
	m.at = max(m.at, now)
}

// until returns the time at work of all until now.
func (m *busyMeter) until(now time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	return m.busy
}

// add counts n more at work, or fewer; first says that nobody was before.
func (m *busyMeter) add(now time.Duration, n int) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	m.running += n
	first, m.used = !m.used, true
	return first
}

// share returns the part of the capacity at work in this period and the one before.
func (m *busyMeter) share(now time.Duration) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	return m.of(m.busy-m.from.busy, m.at-m.from.at)
}

// period ends a period, and returns what it was.
func (m *busyMeter) period(now time.Duration) (busy, whole time.Duration, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	m.from, m.to = m.to, window{m.at, m.busy}
	busy, whole = m.to.busy-m.from.busy, m.to.at-m.from.at
	return busy, whole, m.of(busy, whole)
}

func (m *busyMeter) of(busy, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(busy) / float64(whole) / float64(m.capacity)
}
