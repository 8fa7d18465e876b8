// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"testing"
	"time"
	"unsafe"
)

func TestCoherent(t *testing.T) {
	const us = time.Microsecond
	calm, away, asleep, torn, set := pass(us), pass(20*ms), suspend(10*s), preempt(1, 20*ms), step(-10*s)

	// One try is four reads, in this order: Now, Now, boot clock, Now.
	tests := []struct {
		name  string
		reads []event // what happens before each; then calm
		tries int
	}{
		{"calm", nil, 1},
		{"preempted before the first", []event{away}, 1},
		{"preempted before the second", []event{calm, away}, 2},
		{"preempted before the boot clock", []event{calm, calm, away}, 2},
		{"preempted after the boot clock", []event{calm, calm, calm, away}, 2},
		{"preempted twice", []event{calm, calm, away, calm, calm, calm, calm, away}, 3},
		{"suspended before the second", []event{calm, asleep}, 2},
		{"suspended before the boot clock", []event{calm, calm, asleep}, 2},
		{"suspended after the boot clock", []event{calm, calm, calm, asleep}, 2},
		{"first torn", []event{torn}, 2},
		{"second torn", []event{calm, torn}, 2},
		{"last torn", []event{calm, calm, calm, torn}, 2},
		{"set back", []event{calm, calm, set}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			boots, i := 0, 0
			happen := func() {
				if i < len(tt.reads) {
					tt.reads[i](m)
				} else {
					calm(m)
				}
				i++
			}
			r := coherent(func() Instant {
				happen()
				return m.Now()
			}, func() (time.Duration, bool) {
				happen()
				boots++
				return m.Boot, true
			})
			if boots != tt.tries {
				t.Errorf("%d tries; want %d", boots, tt.tries)
			}
			if r.Span > maxSpan || !r.HasBoot {
				t.Errorf("not coherent: %+v", r)
			}
			// How the clocks stand to each other, to within the span.
			wall, boot := r.Wall-r.Mono-(m.Wall-m.Mono), r.Boot-r.Mono-(m.Boot-m.Mono)
			if wall.Abs() > r.Span || boot.Abs() > r.Span {
				t.Errorf("wall off by %v, boot by %v, but the span is %v", wall, boot, r.Span)
			}
		})
	}
}

// TestCoherentGivesUp has clocks that are slow to read. The best try serves, and
// the number of tries has a limit.
func TestCoherentGivesUp(t *testing.T) {
	m := newMachine()
	boots := 0
	r := coherent(func() Instant {
		pass(ms)(m)
		return Instant{Wall: m.Wall, Mono: m.Mono}
	}, func() (time.Duration, bool) {
		boots++
		if boots != 3 {
			pass(ms)(m)
		}
		return m.Boot, true
	})
	if boots != maxTries {
		t.Errorf("%d tries; want %d", boots, maxTries)
	}
	if r.Span != 2*ms {
		t.Errorf("span %v; want that of the best try, 2ms", r.Span)
	}
}

// TestSystem reads this machine's clocks against time.Now.
func TestSystem(t *testing.T) {
	src := makeSystem()
	before := time.Now()
	for i, got := range []Instant{src.Now(), src.Read().Instant} {
		after := time.Now()
		if lo, hi := before.Sub(src.base), after.Sub(src.base); got.Mono < lo || got.Mono > hi {
			t.Errorf("reading %d: mono %v, not within %v and %v", i, got.Mono, lo, hi)
		}
		if lo, hi := before.UnixNano(), after.UnixNano(); int64(got.Wall) < lo || int64(got.Wall) > hi {
			t.Errorf("reading %d: wall %d, not within %d and %d", i, got.Wall, lo, hi)
		}
	}
}

// TestSystemAsleep shifts the monotonic part of the base, as a suspend would have
// shifted that of all later readings, and has the two clocks part.
func TestSystemAsleep(t *testing.T) {
	src := makeSystem()
	awake := src.Now()
	// The layout of time.Time; monotonic readings cannot be made in any other way.
	base := (*struct {
		wall uint64
		mono int64
		loc  *time.Location
	})(unsafe.Pointer(&src.base))
	base.mono += int64(time.Hour)
	if shifted := time.Since(src.base); shifted > -time.Hour+time.Minute {
		t.Skipf("time.Time has another layout: %v since the base", shifted)
	}
	asleep := src.Now()
	slept := (asleep.Wall - asleep.Mono) - (awake.Wall - awake.Mono)
	if (slept - time.Hour).Abs() > s {
		t.Errorf("wall and mono parted by %v; want 1h", slept)
	}
}

// TestBeyond is about a wall clock for which time.Now has no monotonic part.
// The elapsed time must not be taken from it.
func TestBeyond(t *testing.T) {
	low := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	high := time.Date(2157, 3, 16, 12, 56, 32, 0, time.UTC)
	if low.Unix() != minWall || high.Unix() != minWall+1<<maxWallBits {
		t.Fatalf("the range of time.Now is %d to %d", low.Unix(), high.Unix())
	}
	src := makeSystem()
	for _, tt := range []struct{ wall, want time.Time }{
		{low.Add(-1), low},
		{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), low},
		{high, high},
		{time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), high},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), high},
	} {
		before := time.Since(src.base)
		got := src.beyond(tt.wall)
		if got.Mono < before || got.Mono > time.Since(src.base) {
			t.Errorf("%v: mono %v", tt.wall, got.Mono)
		}
		if int64(got.Wall) != tt.want.UnixNano() {
			t.Errorf("%v: wall %v; want %v", tt.wall, time.Unix(0, int64(got.Wall)).UTC(), tt.want)
		}
	}
}
