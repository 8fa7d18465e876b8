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

// A Line is a lock that only waiting processes take: its holder comes next. It serves
// fairness only: safety does not depend on it, and no waiter depends on it alone. The
// lock has its own lease, even with a session.
type Line struct {
	Base
	Name string // of the lock

	mu sync.Mutex
	at time.Time // when this process was last at the front
}

// Place is where a waiter stands in the line.
type Place struct {
	line   *Line
	cancel context.CancelFunc
	lease  atomic.Pointer[tenure.Lease] // of the line, while the place is at the front
	front  chan struct{}                // buffer of one: the place has come to the front
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
			continue // the process was paused while it came to the front
		}
		if err != nil {
			return // the process waits without a place
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

// Arrived gets a value when the place has come to the front, never without a place.
func (p *Place) Arrived() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.front
}

// Ended is closed when the waiter has no place any more. Unless it has left, the line
// is unusable.
func (p *Place) Ended() <-chan struct{} { return p.ended }

// Stands says that the place is in the line, at its front or behind others. It is false
// for a place that could not get a lease of the line, or has left.
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

// AtFront says that the place is at the front of the line.
func (p *Place) AtFront() bool {
	if p == nil {
		return false
	}
	l := p.lease.Load()
	return l != nil && l.Check() == nil
}

// Leave leaves the line. It waits until the next place can come to the front, unless
// ctx has ended.
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
// first: each of them polls once a refresh period.
func (n *Line) StandsBack() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.at.IsZero() && time.Since(n.at) < 2*n.Client.Options().RefreshPeriod
}
