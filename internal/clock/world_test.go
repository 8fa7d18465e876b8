// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"sync"
	"time"
)

// world is a machine whose clocks a test moves. It is a Source.
type world struct {
	mu       sync.Mutex
	wall     time.Duration
	mono     time.Duration
	boot     time.Duration
	bootless bool

	// gap is the time for which each of the next torn readings of Go's clocks is
	// preempted between the two. Time passes meanwhile.
	gap  time.Duration
	torn int

	reads int
}

func newWorld() *world {
	// Origins that have nothing to do with each other, as on a real machine.
	return &world{wall: 1_800_000_000 * time.Second, mono: 7 * time.Second, boot: 3000 * time.Second}
}

func (w *world) Now() Instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	wall := w.wall
	if w.torn > 0 {
		w.torn--
		w.pass(w.gap)
	}
	return Instant{Wall: wall, Mono: w.mono}
}

func (w *world) Read() Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	r := Reading{Instant: Instant{Wall: w.wall, Mono: w.mono}}
	if !w.bootless {
		r.Boot, r.HasBoot = w.boot, true
	}
	return r
}

func (w *world) pass(d time.Duration) {
	w.wall += d
	w.mono += d
	w.boot += d
}

// event is something that happens to a machine.
type event func(*world)

// pass lets time go by.
func pass(d time.Duration) event { return func(w *world) { w.pass(d) } }

// step sets the wall clock by d.
func step(d time.Duration) event { return func(w *world) { w.wall += d } }

// suspend puts the machine to sleep for d.
func suspend(d time.Duration) event {
	return func(w *world) {
		w.wall += d
		w.boot += d
	}
}

// pause stops the virtual machine from outside: nothing moves, and then a time
// service in the guest sets the wall clock right.
func pause(d time.Duration) event { return step(d) }

// preempt lets the next n readings of Go's clocks be torn apart.
func preempt(n int, d time.Duration) event { return func(w *world) { w.torn, w.gap = n, d } }

// unseen lets events happen without a look at the clock in between.
func unseen(events ...event) event {
	return func(w *world) {
		for _, e := range events {
			e(w)
		}
	}
}

// repeat lets events happen n times, with a look at the clock after each.
func repeat(n int, events ...event) []event {
	var all []event
	for range n {
		all = append(all, events...)
	}
	return all
}
