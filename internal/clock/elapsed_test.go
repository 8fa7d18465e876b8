// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

// unseen lets events happen without a reading of the clock in between.
func unseen(events ...event) event {
	return func(m *machine) {
		for _, happen := range events {
			happen(m)
		}
	}
}

// repeat lets events happen n times, with a reading of the clock after each.
func repeat(n int, events ...event) []event { return slices.Repeat(events, n) }

// TestElapsed applies the same events to five clocks: with and without a boot clock,
// with TrustBootClock set and unset, and a clock that is not read before the end.
func TestElapsed(t *testing.T) {
	tests := []struct {
		name   string
		events []event

		holder    time.Duration
		contender time.Duration // trusting or not
		trusting  time.Duration // holder with TrustBootClock

		bootless time.Duration // holder without a boot clock
		bare     time.Duration // contender without one

		rushed time.Duration // holder that is asked only at the end
	}{{
		name:   "all agree",
		events: repeat(1000, pass(10*ms)),
		holder: 10 * s, contender: 10 * s, trusting: 10 * s,
		bootless: 10 * s, bare: 10 * s, rushed: 10 * s,
	}, {
		name:   "wall steps forward",
		events: []event{pass(s), step(5 * s), pass(s)},
		holder: 7 * s, contender: 2 * s, trusting: 2 * s,
		bootless: 7 * s, bare: 2 * s, rushed: 7 * s,
	}, {
		name:   "wall steps back",
		events: []event{pass(s), step(-5 * s), pass(s)},
		holder: 2 * s, contender: 2 * s, trusting: 2 * s,
		bootless: 2 * s, bare: 2 * s, rushed: 2 * s,
	}, {
		name:   "forward, then back: the holder keeps the step",
		events: []event{pass(s), step(5 * s), pass(s), step(-5 * s), pass(s)},
		holder: 8 * s, contender: 3 * s, trusting: 3 * s,
		bootless: 8 * s, bare: 3 * s, rushed: 3 * s,
	}, {
		name:   "back, then forward: the forward step counts from where it began",
		events: []event{pass(s), step(-5 * s), pass(s), step(5 * s), pass(s)},
		holder: 8 * s, contender: 3 * s, trusting: 3 * s,
		bootless: 8 * s, bare: 3 * s, rushed: 3 * s,
	}, {
		name:   "forward and back between two looks",
		events: []event{pass(s), unseen(step(5*s), step(-5*s)), pass(s)},
		holder: 2 * s, contender: 2 * s, trusting: 2 * s,
		bootless: 2 * s, bare: 2 * s, rushed: 2 * s,
	}, {
		name:   "suspend",
		events: []event{pass(s), suspend(time.Hour), pass(s)},
		holder: time.Hour + 2*s, contender: time.Hour + 2*s, trusting: time.Hour + 2*s,
		bootless: time.Hour + 2*s, bare: 2 * s, rushed: time.Hour + 2*s,
	}, {
		name:   "two suspends",
		events: []event{suspend(time.Hour), pass(s), suspend(time.Minute), pass(s)},
		holder: time.Hour + 62*s, contender: time.Hour + 62*s, trusting: time.Hour + 62*s,
		bootless: time.Hour + 62*s, bare: 2 * s, rushed: time.Hour + 62*s,
	}, {
		name:   "suspend, and the wall clock set forward at its end",
		events: []event{pass(s), unseen(suspend(10*s), step(5*s)), pass(s)},
		holder: 17 * s, contender: 12 * s, trusting: 12 * s,
		bootless: 17 * s, bare: 2 * s, rushed: 17 * s,
	}, {
		name:   "suspend, and the wall clock set back at its end",
		events: []event{pass(s), unseen(suspend(10*s), step(-3*s)), pass(s)},
		holder: 12 * s, contender: 12 * s, trusting: 12 * s,
		bootless: 9 * s, bare: 2 * s, rushed: 12 * s,
	}, {
		name:   "suspend, and the wall clock set back by more",
		events: []event{pass(s), unseen(suspend(10*s), step(-30*s)), pass(s)},
		holder: 12 * s, contender: 12 * s, trusting: 12 * s,
		bootless: 2 * s, bare: 2 * s, rushed: 12 * s,
	}, {
		name:   "suspend, later the wall clock set forward, later back",
		events: []event{suspend(10 * s), pass(s), step(5 * s), pass(s), step(-5 * s), pass(s)},
		holder: 18 * s, contender: 13 * s, trusting: 13 * s,
		bootless: 18 * s, bare: 3 * s, rushed: 13 * s,
	}, {
		name:   "paused machine",
		events: []event{pass(s), step(30 * s), pass(s)}, // a time service sets the wall clock when it goes on
		holder: 32 * s, contender: 2 * s, trusting: 2 * s,
		bootless: 32 * s, bare: 2 * s, rushed: 32 * s,
	}, {
		name:   "small steps forward add up",
		events: repeat(20, pass(s), step(300*time.Microsecond)),
		// Seen each time that they come to 1.2 ms.
		holder: 20*s + 6*ms, contender: 20 * s, trusting: 20 * s,
		bootless: 20*s + 6*ms, bare: 20 * s, rushed: 20*s + 6*ms,
	}, {
		name: "small steps on both sides of a suspend add up",
		events: []event{
			step(700 * time.Microsecond), pass(s), suspend(s), pass(s), step(700 * time.Microsecond), pass(s),
		},
		// The suspend settles the first one: it stands above the noise.
		holder: 4*s + 700*time.Microsecond, contender: 4 * s, trusting: 4 * s,
		bootless: 4*s + 700*time.Microsecond, bare: 3 * s, rushed: 4*s + 1400*time.Microsecond,
	}, {
		name: "noise on both sides of a suspend adds up",
		events: []event{
			step(400 * time.Microsecond), suspend(s), step(400 * time.Microsecond), suspend(s),
			step(400 * time.Microsecond), pass(s),
		},
		holder: 3*s + 800*time.Microsecond, contender: 3 * s, trusting: 3 * s,
		bootless: 3*s + 800*time.Microsecond, bare: s, rushed: 3*s + 1200*time.Microsecond,
	}, {
		name:   "a step below the tolerance",
		events: []event{pass(s), step(tolerance), pass(s)},
		holder: 2 * s, contender: 2 * s, trusting: 2 * s,
		bootless: 2 * s, bare: 2 * s, rushed: 2 * s,
	}, {
		name:   "a step just above the tolerance",
		events: []event{pass(s), step(tolerance + 1), pass(s)},
		holder: 2*s + tolerance + 1, contender: 2 * s, trusting: 2 * s,
		bootless: 2*s + tolerance + 1, bare: 2 * s, rushed: 2*s + tolerance + 1,
	}, {
		name:   "preempted between the two readings of time.Now",
		events: repeat(50, pass(s), preempt(1, 20*ms)),
		// The gap itself passes; the next reading finds it.
		holder: 51 * s, contender: 51 * s, trusting: 51 * s,
		bootless: 51 * s, bare: 51 * s, rushed: 50*s + 20*ms,
	}, {
		name:   "preempted within the second look too",
		events: repeat(50, pass(s), preempt(3, 20*ms), pass(s)),
		// The third gap tears the next caller's first look.
		holder: 103 * s, contender: 103 * s, trusting: 103 * s,
		bootless: 103 * s, bare: 103 * s, rushed: 100*s + 40*ms,
	}, {
		name:   "preempted at the very moment of a suspend",
		events: []event{pass(s), unseen(suspend(10*s), preempt(1, 20*ms)), pass(s)},
		holder: 12*s + 20*ms, contender: 12*s + 20*ms, trusting: 12*s + 20*ms,
		bootless: 12*s + 20*ms, bare: 2*s + 20*ms, rushed: 12*s + 20*ms,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range []struct {
				name              string
				bootless, trust   bool
				holder, contender time.Duration
			}{
				{"boot clock", false, false, tt.holder, tt.contender},
				{"trusted boot clock", false, true, tt.trusting, tt.contender},
				{"no boot clock", true, false, tt.bootless, tt.bare},
				{"no boot clock but trusted", true, true, tt.bootless, tt.bare},
			} {
				m := newMachine()
				m.HasBoot = !c.bootless
				follow(t, c.name, m, From(m, Options{TrustBootClock: c.trust}), tt.events, c.holder, c.contender)

				m = newMachine()
				m.HasBoot = !c.bootless
				raw, _ := From(m, Options{TrustBootClock: c.trust}).Raw()
				follow(t, c.name+", raw", m, raw, tt.events, c.holder, c.contender)
			}

			m := newMachine()
			clock := From(m, Options{})
			unseen(tt.events...)(m)
			if got := clock.Holder(); got != tt.rushed {
				t.Errorf("asked only at the end: holder %v; want %v", got, tt.rushed)
			}
		})
	}
}

// follow reads a clock after each event, and checks what it shows in the end.
func follow(t *testing.T, name string, m *machine, clock Clock, events []event, wantHolder, wantContender time.Duration) {
	t.Helper()
	holder, contender := clock.Holder(), clock.Contender()
	if holder != 0 || contender != 0 {
		t.Errorf("%s: starts at %v, %v; want 0, 0", name, holder, contender)
	}
	for i, happen := range events {
		happen(m)
		h, c := clock.Holder(), clock.Contender()
		if h < holder || c < contender {
			t.Fatalf("%s: fell from %v, %v to %v, %v after event %d", name, holder, contender, h, c, i)
		}
		holder, contender = h, c
	}
	// The last event may have torn the last reading.
	holder, contender = clock.Holder(), clock.Contender()
	if holder != wantHolder || contender != wantContender {
		t.Errorf("%s: holder %v, contender %v; want %v, %v", name, holder, contender, wantHolder, wantContender)
	}
}

// TestFastPath counts how often the source is asked for all clocks: once at the
// start, and once for each thing that happens.
func TestFastPath(t *testing.T) {
	tests := []struct {
		name   string
		events []event
		reads  int
	}{
		{"nothing happens", repeat(1000, pass(s)), 1},
		{"suspend", append([]event{suspend(10 * s)}, repeat(100, pass(s))...), 2},
		{"step forward", append([]event{step(10 * s)}, repeat(100, pass(s))...), 2},
		{"step back", append([]event{step(-10 * s)}, repeat(100, pass(s))...), 2},
		{"step of just above the tolerance", append([]event{step(tolerance + 1)}, repeat(100, pass(s))...), 2},
		{"step back of just above the tolerance", append([]event{step(-tolerance - 1)}, repeat(100, pass(s))...), 2},
		{"small steps to and fro", repeat(100, step(900*time.Microsecond), step(-900*time.Microsecond)), 1},
		{"preempted now and then", repeat(100, preempt(1, 20*ms), pass(s)), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, trust := range []bool{false, true} {
				m := newMachine()
				clock := From(m, Options{TrustBootClock: trust})
				for _, happen := range tt.events {
					happen(m)
					clock.Holder()
					clock.Contender()
				}
				if m.reads != tt.reads {
					t.Errorf("trust %v: read all clocks %d times; want %d", trust, m.reads, tt.reads)
				}
			}
		})
	}
}

// TestAlwaysPreempted tears every single reading of Go's clocks.
func TestAlwaysPreempted(t *testing.T) {
	m := newMachine()
	clock := From(m, Options{})
	m.torn, m.gap = math.MaxInt, 5*ms
	start := m.Boot
	for range 100 {
		pass(s)(m)
		if got, passed := clock.Holder(), m.Boot-start; got != passed {
			t.Fatalf("holder %v after %v", got, passed)
		}
		if got, passed := clock.Contender(), m.Boot-start; got != passed {
			t.Fatalf("contender %v after %v", got, passed)
		}
	}
}

// TestSmallStepsStayWithinTolerance follows the error through many steps that
// are each too small to be seen.
func TestSmallStepsStayWithinTolerance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := newMachine()
	clock := From(m, Options{})
	start := m.Wall
	for i := range 10_000 {
		pass(time.Duration(random.Int64N(int64(s))))(m)
		m.Wall += time.Duration(random.Int64N(int64(tolerance)))
		shown, got := m.Wall-start, clock.Holder()
		if got > shown || got < shown-tolerance {
			t.Fatalf("after %d steps: holder %v, the wall clock shows %v", i+1, got, shown)
		}
	}
}

// TestAbsurdWallClock sets the wall clock from one end of its range to the
// other, again and again.
func TestAbsurdWallClock(t *testing.T) {
	const low, high = minWall * s, (minWall + 1<<maxWallBits) * s
	m := newMachine()
	clock := From(m, Options{})
	var last time.Duration
	for i := range 100 {
		for _, wall := range []time.Duration{low, high, 0} {
			pass(s)(m)
			m.Wall = wall
			holder, contender := clock.Holder(), clock.Contender()
			if holder < last || holder < contender {
				t.Fatalf("round %d: holder %v after %v, contender %v", i, holder, last, contender)
			}
			last = holder
		}
	}
	if want := 300 * s; clock.Contender() != want {
		t.Errorf("contender %v; want %v", clock.Contender(), want)
	}
	if last < maxOffset {
		t.Errorf("holder %v, below what a single step came to", last)
	}
}

// troubled is a machine to which something happens at every hundredth reading.
type troubled struct {
	*machine
	random *rand.Rand
	set    time.Duration // sum of all steps
	slept  time.Duration
}

func (m *troubled) Now() Instant {
	m.trouble()
	return m.machine.Now()
}

func (m *troubled) Read() Reading {
	m.trouble()
	return m.machine.Read()
}

func (m *troubled) trouble() {
	m.mu.Lock()
	defer m.mu.Unlock()
	pass(time.Microsecond)(m.machine)
	switch m.random.IntN(100) {
	case 0:
		// Much longer than all that a step can come to, so that none hides it.
		m.slept += 10 * s
		suspend(10 * s)(m.machine)
	case 1:
		// To and fro, within half a second.
		d := time.Duration(m.random.Int64N(int64(s))) - s/2 - m.set
		m.set += d
		step(d)(m.machine)
	case 2:
		preempt(m.random.IntN(4), 3*ms)(m.machine)
	}
}

// TestConcurrent asks one clock from many goroutines while its source is in
// trouble. No call may return less than an earlier call that had returned before it
// began.
func TestConcurrent(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprint("raw ", raw), func(t *testing.T) { testConcurrent(t, raw) })
	}
}

func testConcurrent(t *testing.T, raw bool) {
	m := &troubled{machine: newMachine(), random: rand.New(rand.NewPCG(3, 4))}
	elapsed := From(m, Options{})
	var clock Clock = elapsed
	if raw {
		clock, _ = elapsed.Raw()
	}
	start := m.Boot

	var highest struct{ holder, contender atomic.Int64 }
	check := func(what string, ask func() time.Duration, highest *atomic.Int64) {
		before := highest.Load()
		got := int64(ask())
		if got < before {
			t.Errorf("%s %v, after %v had been returned", what, time.Duration(got), time.Duration(before))
		}
		for before < got && !highest.CompareAndSwap(before, got) {
			before = highest.Load()
		}
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5_000 {
				check("holder", clock.Holder, &highest.holder)
				check("contender", clock.Contender, &highest.contender)
			}
		})
	}
	group.Wait()

	if m.slept == 0 {
		t.Fatal("nothing happened to the source")
	}
	holder, contender := clock.Holder(), clock.Contender()
	m.mu.Lock()
	passed := m.Boot - start
	m.mu.Unlock()
	// A last suspend may have come after the last reading.
	if contender > passed+tolerance || contender < passed-10*s-tolerance {
		t.Errorf("contender %v of %v", contender, passed)
	}
	if holder < contender-tolerance {
		t.Errorf("holder %v, behind contender %v", holder, contender)
	}
}
