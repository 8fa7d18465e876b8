// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"sync"
	"time"
)

// machine is a Source whose clocks a test moves.
type machine struct {
	mu      sync.Mutex
	Reading               // what the clocks show; Boot is hidden without HasBoot
	gap     time.Duration // how long a torn reading of Go's clocks is preempted between the two
	torn    int           // how many of the next ones are torn
	reads   int           // how often all clocks were read
}

func newMachine() *machine {
	// Origins that have nothing to do with each other, as on a real machine.
	return &machine{Reading: Reading{Instant: Instant{Wall: 1_800_000_000 * s, Mono: 7 * s}, Boot: 3000 * s, HasBoot: true}}
}

func (m *machine) Now() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	wall := m.Wall
	if m.torn > 0 {
		m.torn--
		pass(m.gap)(m)
	}
	return Instant{Wall: wall, Mono: m.Mono}
}

func (m *machine) Read() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if !m.HasBoot {
		return Reading{Instant: m.Instant}
	}
	return m.Reading
}

// event is something that happens to a machine: time passes, the wall clock is set, the machine
// sleeps, or the next n readings of Go's clocks are torn.
type event func(*machine)

func pass(d time.Duration) event    { return func(m *machine) { m.Wall += d; m.Mono += d; m.Boot += d } }
func step(d time.Duration) event    { return func(m *machine) { m.Wall += d } }
func suspend(d time.Duration) event { return func(m *machine) { m.Wall += d; m.Boot += d } }

func preempt(n int, d time.Duration) event { return func(m *machine) { m.torn, m.gap = n, d } }
