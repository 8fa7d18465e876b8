// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name    = "catalog"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
)

// world fails the test
// when somebody writes beside somebody else.
type world struct {
	*tenuretest.World
	t *testing.T

	mu   sync.Mutex
	held map[*rwlock.Lease]*process
}

// onStage runs the test in a bubble, with a world.
func onWorld(t *testing.T, test func(t *testing.T, s *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{World: tenuretest.New(t), t: t, held: map[*rwlock.Lease]*process{}})
	})
}

// process is a client with a lock, on a store that can fail.
type process struct {
	*rwlock.Lock
	s      *world
	owner  string
	client *tenuretest.Client
}

// process starts a process.
func (s *world) process(owner string, edit ...func(*tenure.Options)) *process {
	s.t.Helper()
	p := &process{s: s, owner: owner, client: s.Client(owner, edit...)}
	p.Lock = p.lock(nil)
	return p
}

func (p *process) lock(o *rwlock.Options) *rwlock.Lock {
	p.s.t.Helper()
	l, err := rwlock.New(p.client.Client, name, o)
	if err != nil {
		p.s.t.Fatal(err)
	}
	return l
}

// enter notes that a holder is at work.
func (p *process) enter(l *rwlock.Lease) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, by := range s.held {
		if other.Check() == nil && l.Check() == nil && (l.Writing() || other.Writing()) {
			s.t.Errorf("%s has %d, beside %s with %d", p.owner, l.Token(), by.owner, other.Token())
		}
	}
	s.held[l] = p
}

// leave notes that a holder is not at work any more.
func (p *process) leave(l *rwlock.Lease) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	delete(p.s.held, l)
}

func (p *process) got(l *rwlock.Lease, err error) *rwlock.Lease {
	p.s.t.Helper()
	if err != nil {
		p.s.t.Fatalf("%s: %v", p.owner, err)
	}
	p.enter(l)
	return l
}

func (p *process) read(ctx context.Context) *rwlock.Lease {
	p.s.t.Helper()
	return p.got(p.AcquireRead(ctx, nil))
}

func (p *process) write(ctx context.Context) *rwlock.Lease {
	p.s.t.Helper()
	return p.got(p.AcquireWrite(ctx, nil))
}

func (p *process) release(l *rwlock.Lease) {
	p.s.t.Helper()
	p.leave(l)
	if err := l.Release(p.s.t.Context()); err != nil {
		p.s.t.Errorf("%s: %v", p.owner, err)
	}
}

// busy expects an error that says that somebody is in the way.
func (p *process) busy(_ *rwlock.Lease, err error) *rwlock.BusyError {
	p.s.t.Helper()
	var busy *rwlock.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, tenure.ErrHeld) || !errors.Is(err, rwlock.ErrBusy) {
		p.s.t.Fatalf("%s: %v", p.owner, err)
	}
	return busy
}

// blackHoleAfter lets some calls through, and no other one.
func blackHoleAfter(calls int) faultstore.Rule {
	return faultstore.Rule{Skip: calls, Fault: faultstore.BlackHole()}
}
