// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/semaphore"
)

const (
	name    = "x"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
)

// stage is where processes act, inside a synctest bubble. It counts who holds a
// slot, and fails the test when two have the same one, or more hold than may.
type stage struct {
	t       *testing.T
	records *memstore.Store
	blind   bool // the store cannot watch, as many cannot

	mu    sync.Mutex
	most  int // that may hold
	held  map[int]string
	peak  int
	count map[string]int // of slots that a process has got
}

func newStage(t *testing.T, most int) *stage {
	t.Helper()
	return &stage{t: t, records: memstore.New(), most: most, held: map[int]string{}, count: map[string]int{}}
}

// onStage runs the test in a bubble, with a stage.
func onStage(t *testing.T, most int, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t, most)) })
}

// allow changes how many may hold.
func (s *stage) allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.peak = most, len(s.held)
}

func (s *stage) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

func (s *stage) highest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// process is a client with a semaphore, on a store that can fail.
type process struct {
	*semaphore.Semaphore
	s      *stage
	owner  string
	client *tenure.Client
	faults *faultstore.Store
	leases []*semaphore.Lease // of hold
}

// process starts a process.
func (s *stage) process(owner string, slots int, edit ...func(*tenure.Options)) *process {
	s.t.Helper()
	p := &process{s: s, owner: owner, faults: faultstore.New(s.records.Open(), nil)}
	o := &tenure.Options{Owner: owner, Clock: tenure.MonotonicClock()}
	for _, e := range edit {
		e(o)
	}
	var err error
	store := p.faults.Driver()
	if s.blind {
		store = struct{ driver.Store }{store}
	}
	if p.client, err = tenure.New(store, o); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		p.faults.SetBlackHole(false)
		for _, l := range p.leases {
			_ = l.Release(context.WithoutCancel(s.t.Context()))
		}
		if err := p.client.Close(context.WithoutCancel(s.t.Context())); err != nil && !errors.Is(err, tenure.ErrClosed) {
			s.t.Errorf("close of %s: %v", owner, err)
		}
		p.faults.Close()
	})
	if p.Semaphore, err = semaphore.New(p.client, name, slots, nil); err != nil {
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

// hold takes a slot. The lease is noted until release.
func (p *process) hold(ctx context.Context) *semaphore.Lease {
	p.s.t.Helper()
	l, err := p.Acquire(ctx, nil)
	if err != nil {
		p.s.t.Fatalf("%s: %v", p.owner, err)
	}
	p.enter(l)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.leases = append(p.leases, l)
	return l
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
	p.faults.SetBlackHole(true)
}

func (s *stage) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.count)
}
