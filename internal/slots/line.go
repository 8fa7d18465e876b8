// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
)

// A Line is a lock that only processes which wait take: its holder comes next. It is
// there for fairness only: safety does not depend on it, and no waiter depends on it
// alone. The lock is a lease of its own, also where there is a session.
type Line struct {
	Base
	Name string // of the lock

	mu sync.Mutex
	at time.Time // when this process was at the front last
}

// Place is where a waiter stands in the line.
type Place struct {
	line   *Line
	cancel context.CancelFunc
	lease  atomic.Pointer[tenure.Lease] // of the line, while it is at the front
	front  chan struct{}                // has room for one: it has come to the front
	ended  chan struct{}
}

// Stand takes a place in the line, until [Place.Leave].
func (n *Line) Stand(ctx context.Context) *Place {
	p := &Place{line: n, front: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.run(ctx)
	return p
}

func (p *Place) run(ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		l, err := p.line.Client.Acquire(ctx, p.line.Name, &tenure.AcquireOptions{StoreTimeout: -1})
		if errors.Is(err, tenure.ErrExpired) {
			continue // paused while it came to the front
		}
		if err != nil {
			return // it waits without a place
		}
		p.lease.Store(l)
		p.line.note()
		select {
		case p.front <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
		case <-l.Context().Done():
		}
		p.lease.Store(nil)
		p.line.note()
		p.line.GiveBack(context.WithoutCancel(ctx), l)
	}
}

// Arrived is told when the place has come to the front. A waiter without a place is
// told nothing.
func (p *Place) Arrived() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.front
}

// Ended is closed when the waiter has no place any more. Unless it has left, no line
// can be had.
func (p *Place) Ended() <-chan struct{} { return p.ended }

// Stands says that the place is in the line, at its front or behind others. One that could
// not have a lease of the line, or has left, does not.
func (p *Place) Stands() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// AtFront says that nobody stands before this place.
func (p *Place) AtFront() bool {
	if p == nil {
		return false
	}
	l := p.lease.Load()
	return l != nil && l.Check() == nil
}

// Leave leaves the line. It waits until the next one can come to the front, unless ctx
// has ended.
func (p *Place) Leave(ctx context.Context) {
	p.cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
}

func (n *Line) note() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = time.Now()
}

// StandsBack says that this process has just been at the front, and lets the others go
// first: each of them looks once a refresh period.
func (n *Line) StandsBack() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.at.IsZero() && time.Since(n.at) < 2*n.Client.Options().RefreshPeriod
}
