// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

// Instant is a reading of Go's two clocks, one right after the other.
type Instant struct {
	Wall time.Duration // since 1970, within the years 1885 to 2157
	Mono time.Duration // since any origin; stands still in a suspend
}

// Reading is a reading of all clocks at very nearly the same instant.
type Reading struct {
	Instant
	Boot    time.Duration // since any origin; counts suspends
	HasBoot bool          // false where there is no boot clock
	Span    time.Duration // how far apart the readings may lie
}

// Source reads clocks. Its methods may be called concurrently. Mono never
// falls: a reading that starts after another one has ended is not smaller.
type Source interface {
	// Now is cheap. A gap may lie between its two readings.
	Now() Instant
	// Read reads all clocks, and takes care that no gap lies between them.
	Read() Reading
}

// System returns the source of this machine's clocks, to which a test can add steps and
// suspends. [New] does not need it.
func System() Source {
	s := makeSystem()
	return &s
}

const (
	// minWall is the first second for which time.Now has a monotonic part: it
	// keeps 33 bits for the seconds since 1885. See the comment of time.Time.
	minWall     = -2682288000 // 1885-01-01T00:00:00Z
	maxWallBits = 33
)

// inRange reports whether the wall clock of t leaves room for a monotonic part.
func inRange(t time.Time) bool { return uint64(t.Unix()-minWall)>>maxWallBits == 0 }

// system reads this machine's clocks.
type system struct {
	base time.Time // where Mono starts; has a monotonic part
}

func makeSystem() system { return system{base: time.Now()} }

// Now reads time.Now.
func (s *system) Now() Instant {
	t := time.Now()
	if !inRange(t) {
		return s.beyond(t)
	}
	return Instant{Wall: time.Duration(t.UnixNano()), Mono: t.Sub(s.base)}
}

// beyond is Now for a wall clock so far out that t has no monotonic part, and
// t.Sub would take the difference of wall clocks for elapsed time. The wall
// clock's value is cut to the bound, so that no sum of two can overflow.
func (s *system) beyond(t time.Time) Instant {
	sec := int64(minWall)
	if t.Unix() > minWall {
		sec += 1 << maxWallBits
	}
	return Instant{Wall: time.Duration(sec) * time.Second, Mono: time.Since(s.base)}
}

// Read reads time.Now and the boot clock.
func (s *system) Read() Reading { return coherent(s.Now, readBoot) }

// Raw reads the raw clock.
func (s *system) Raw() (time.Duration, bool) { return readRaw() }

const (
	// maxSpan is how far apart the readings of a coherent one may lie: well
	// below settled, and well above the four reads that it takes.
	maxSpan = 100 * time.Microsecond

	// maxTries bounds how often a reading is repeated because the goroutine was
	// preempted within it. Each takes below a microsecond, so several in a row
	// are hardly ever hit, unless each read is slow: then the best one serves.
	maxTries = 8
)

// coherent reads all clocks within maxSpan, or else as near to each other as it
// got in maxTries, and says how near that is.
//
// The reading that it returns stands between two others. If these are close on
// both clocks, so is all between them: whichever of its two clocks time.Now
// reads first (the wall clock on Linux, the monotonic one on Windows), and even
// if the machine was suspended meanwhile, which only the wall clock shows.
func coherent(now func() Instant, boot func() (time.Duration, bool)) Reading {
	var best Reading
	for try := range maxTries {
		before := now()
		r := Reading{Instant: now()}
		r.Boot, r.HasBoot = boot()
		after := now()

		r.Span = max(after.Mono-before.Mono, (after.Wall - before.Wall).Abs())
		if try == 0 || r.Span < best.Span {
			best = r
		}
		if best.Span <= maxSpan {
			break
		}
	}
	return best
}
