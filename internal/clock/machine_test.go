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
	raw     time.Duration // what the raw clock shows
	rawless bool          // the machine has no raw clock
	gap     time.Duration // how long a torn reading of Go's clocks is preempted between the two
	torn    int           // how many of the next ones are torn
	reads   int           // how often all clocks were read
}

func newMachine() *machine {
	// Origins that have nothing to do with each other, as on a real machine.
	return &machine{
		Reading: Reading{Instant: Instant{Wall: 1_800_000_000 * s, Mono: 7 * s}, Boot: 3000 * s, HasBoot: true},
		raw:     500 * s,
	}
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

func (m *machine) Raw() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.raw, !m.rawless
}

// event is something that happens to a machine: time passes, the wall clock is set, the machine
// sleeps, or the next n readings of Go's clocks are torn.
type event func(*machine)

func pass(d time.Duration) event    { return slew(d, d) }
func step(d time.Duration) event    { return func(m *machine) { m.Wall += d } }
func suspend(d time.Duration) event { return func(m *machine) { m.Wall += d; m.Boot += d } }

// slew lets raw time pass, while a time service has all other clocks show another one.
func slew(raw, shown time.Duration) event {
	return func(m *machine) { m.Wall += shown; m.Mono += shown; m.Boot += shown; m.raw += raw }
}

func preempt(n int, d time.Duration) event { return func(m *machine) { m.torn, m.gap = n, d } }
