// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name    = "x"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
)

// world counts who holds a slot, and fails the test when two have the same one, or more hold
// than may.
type world struct {
	*tenuretest.World
	t     *testing.T
	blind bool // no hint of the store arrives, as from those that cannot watch

	mu    sync.Mutex
	most  int // that may hold
	held  map[int]string
	peak  int
	count map[string]int // of slots that a process has got
}

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, most int, test func(t *testing.T, s *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		quiet := func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }
		test(t, &world{World: tenuretest.New(t, quiet), t: t, most: most, held: map[int]string{}, count: map[string]int{}})
	})
}

// allow changes how many may hold.
func (s *world) allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.peak = most, len(s.held)
}

func (s *world) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

func (s *world) highest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// process is a client with a semaphore.
type process struct {
	*semaphore.Semaphore
	s      *world
	owner  string
	client *tenuretest.Client
}

// process starts a process.
func (s *world) process(owner string, slots int, edit ...func(*tenure.Options)) *process {
	s.t.Helper()
	p := &process{s: s, owner: owner, client: s.Client(owner, edit...)}
	if s.blind {
		p.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Fault: faultstore.LoseRequest()})
	}
	var err error
	if p.Semaphore, err = semaphore.New(p.client.Client, name, slots, nil); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// enter notes that a holder is at work.
func (p *process) enter(l *semaphore.Lease) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.held[l.Slot()]; other != "" {
		s.t.Errorf("%s has slot %d, which %s has", p.owner, l.Slot(), other)
	}
	s.held[l.Slot()] = p.owner
	s.count[p.owner]++
	if s.peak = max(s.peak, len(s.held)); len(s.held) > s.most {
		s.t.Errorf("%d hold, of %d at most: %v", len(s.held), s.most, s.held)
	}
}

func (p *process) leave(l *semaphore.Lease) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	delete(p.s.held, l.Slot())
}

// hold takes a slot. It is noted until release.
func (p *process) hold(ctx context.Context) *semaphore.Lease {
	p.s.t.Helper()
	l, err := p.Acquire(ctx, nil)
	if err != nil {
		p.s.t.Fatalf("%s: %v", p.owner, err)
	}
	p.enter(l)
	return l
}

// holdAll takes so many slots, and returns their leases by slot.
func (p *process) holdAll(slots int) []*semaphore.Lease {
	all := make([]*semaphore.Lease, slots)
	for range slots {
		l := p.hold(p.s.t.Context())
		all[l.Slot()] = l
	}
	return all
}

func (p *process) release(l *semaphore.Lease) {
	p.s.t.Helper()
	p.leave(l)
	if err := l.Release(p.s.t.Context()); err != nil {
		p.s.t.Errorf("%s: %v", p.owner, err)
	}
}

// work takes slots again and again until ctx ends, and works for a while under
// each.
func (p *process) work(ctx context.Context, took time.Duration) {
	for ctx.Err() == nil {
		err := p.Run(ctx, nil, func(ctx context.Context, l *semaphore.Lease) error {
			p.enter(l)
			defer p.leave(l)
			select {
			case <-time.After(took):
			case <-ctx.Done():
			}
			return l.Check()
		})
		if err != nil && ctx.Err() == nil {
			p.s.t.Errorf("%s: %v", p.owner, err)
			return
		}
	}
}

// crash cuts a process off for good, as if it were killed: nothing that it does
// reaches the store any more.
func (p *process) crash(l *semaphore.Lease) {
	p.leave(l)
	p.client.Partition()
}
