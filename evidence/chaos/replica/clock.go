// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"time"

	"github.com/tenurelock/tenure/internal/clock"
)

// shifted is the source of clocks that a nemesis has moved, and that go at a
// rate of their own. Nobody can move those of one Go process from outside,
// because it does not ask libc for the time: so this replica hands them to its
// locks, by the hook that package clock has for tests. No other program can
// import either.
type shifted struct {
	machine clock.Source
	page    *Page
	rate    float64 // by what part of it the rate differs
	began   clock.Reading
}

var _ clock.Source = (*shifted)(nil)

func newShifted(page *Page, rate float64) *shifted {
	machine := clock.System()
	return &shifted{machine, page, rate, machine.Read()}
}

// Now reads wall clock and monotonic clock.
func (s *shifted) Now() clock.Instant {
	for {
		before := s.page.changes()
		now := s.machine.Now()
		by, after := s.page.Load()
		if before == after { // else the process was stopped in between
			return s.move(now, by)
		}
	}
}

// Read reads all clocks.
func (s *shifted) Read() clock.Reading {
	_, seen, _ := s.both()
	return seen
}

// both reads all clocks, and says how they stand and how they are seen, and
// under which change of the page.
func (s *shifted) both() (real, seen clock.Reading, change int64) {
	for {
		before := s.page.changes()
		real := s.machine.Read()
		by, after := s.page.Load()
		if before != after {
			continue
		}
		seen := real
		seen.Instant = s.move(real.Instant, by)
		seen.Boot = s.ownRate(s.began.Boot, real.Boot-by.BootBack)
		return real, seen, after
	}
}

func (s *shifted) move(now clock.Instant, by Shift) clock.Instant {
	return clock.Instant{
		Mono: s.ownRate(s.began.Mono, now.Mono-by.MonoBack),
		Wall: s.ownRate(s.began.Wall, now.Wall+by.WallOn),
	}
}

// ownRate returns an instant as a clock of the rate shows it that was right at
// the beginning. All clocks of a machine are slewed together.
func (s *shifted) ownRate(began, now time.Duration) time.Duration {
	return now + time.Duration(s.rate*float64(now-began))
}

// slow is a wrong clock: for the holder a quarter of the time passes. It is as
// if the lease were counted from long after the reply.
type slow struct{ clock.Clock }

func (s slow) Holder() time.Duration { return s.Clock.Holder() / 4 }

// sleepy is a wrong clock, the one that package time has: it stands still while
// the machine sleeps.
type sleepy struct{ source clock.Source }

func (s sleepy) Holder() time.Duration    { return s.source.Now().Mono }
func (s sleepy) Contender() time.Duration { return s.source.Now().Mono }
