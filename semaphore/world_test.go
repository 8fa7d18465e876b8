// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"sync"
	"testing"

	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/tenuretest"
)

// world fails the test when two hold the same slot, or more hold than may.
type world struct {
	*tenuretest.World
	t     *testing.T
	blind bool // no hint of the store arrives, as from those that cannot watch

	mu    sync.Mutex
	most  int                         // that may hold
	peak  int                         // that have held at once
	count map[string]int              // of slots that a process has got
	held  map[*semaphore.Lease]func() // what ends the work
}

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, most int, test func(t *testing.T, s *world)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		test(t, &world{World: w, t: t, most: most, count: map[string]int{}, held: map[*semaphore.Lease]func(){}})
	})
}

// allow changes how many may hold.
func (s *world) allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

// enter notes that a holder is at work.
func (p *process) enter(l *semaphore.Lease) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.count[p.client.Options().Owner]++
	p.s.held[l] = p.client.Work(l.Name())
	if p.s.peak = max(p.s.peak, len(p.s.held)); len(p.s.held) > p.s.most {
		p.s.t.Errorf("%d hold, of %d at most", len(p.s.held), p.s.most)
	}
}

// leave notes that the holder of a slot is not at work any more.
func (p *process) leave(l *semaphore.Lease) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.held[l]()
	delete(p.s.held, l)
}
