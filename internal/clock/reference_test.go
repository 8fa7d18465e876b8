// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// reading returns what a coherent reading shows a second after an origin at zero.
func reading(wall, boot, span time.Duration) Reading {
	return Reading{Instant: Instant{Wall: s + wall, Mono: s}, Boot: s + boot, HasBoot: true, Span: span}
}

func TestAdvance(t *testing.T) {
	blind := reading(10*s, time.Hour, 0)
	blind.HasBoot = false
	const half = 500 * time.Microsecond // of the tolerance

	tests := []struct {
		name              string
		r                 Reading
		holder, contender time.Duration // what is added
		moved             bool
	}{
		{"nothing", reading(0, 0, 0), 0, 0, false},
		{"noise", reading(half, 0, 0), 0, 0, false},
		{"noise back", reading(-half, 0, 0), 0, 0, false},
		{"noise of the boot clock", reading(0, half, 0), 0, 0, false},
		{"step", reading(half+1, 0, 0), half + 1, 0, true},
		{"step back", reading(-half-1, 0, 0), 0, 0, true},
		{"suspend", reading(s, s, 0), s, s, true},
		{"step within the span", reading(3*ms, 0, 3*ms), 0, 0, false},
		{"step beyond the span", reading(3*ms, 0, 3*ms-1), 3 * ms, 0, true},
		{"step back within the span", reading(-3*ms, 0, 3*ms), 0, 0, false},
		{"suspend within the span", reading(3*ms, 3*ms, 3*ms), 0, 0, false},
		{"suspend beyond the span", reading(3*ms, 3*ms, 3*ms-1), 3 * ms, 3 * ms, true},
		{"suspend that the wall clock missed", reading(0, s, 0), s, s, true},
		{"boot clock falls back", reading(0, -s, 0), 0, 0, false},
		{"boot clock falls back, wall clock steps", reading(s, -s, 0), s, 0, true},
		{"boot clock fails", blind, 10 * s, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first := origin(Reading{HasBoot: true})
			next, moved := first.advance(tt.r, false)
			if next.holder != tt.holder || next.contender != tt.contender || moved != tt.moved {
				t.Errorf("holder +%v, contender +%v, moved %v; want %v, %v, %v",
					next.holder, next.contender, moved, tt.holder, tt.contender, tt.moved)
			}
			if !moved && next != first {
				t.Errorf("not moved, but %+v became %+v", first, next)
			}
			if moved && !next.agrees(tt.r.Instant) {
				t.Errorf("moved, but disagrees with the reading that moved it: %+v", next)
			}
		})
	}
}

// TestBootClockAppears has a boot clock that could not be read at first. Its
// whole uptime must not count as a suspend.
func TestBootClockAppears(t *testing.T) {
	m := newMachine()
	m.HasBoot = false
	clock := From(m, Options{})
	m.HasBoot = true
	pass(s)(m)
	step(5 * s)(m)
	if h, c := clock.Holder(), clock.Contender(); h != 6*s || c != s {
		t.Errorf("holder %v, contender %v; want 6s, 1s", h, c)
	}
}

// TestNoiseDoesNotAddUp makes every reading of the boot clock a little wrong.
func TestNoiseDoesNotAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	ref := origin(Reading{HasBoot: true})
	for i := range 10_000 {
		noise := time.Duration(random.Int64N(int64(2*maxSpan))) - maxSpan
		r := reading(noise/2, noise, maxSpan)
		if next, moved := ref.advance(r, false); moved {
			t.Fatalf("reading %d with noise %v moved the reference to %+v", i, noise, next)
		}
	}
}
