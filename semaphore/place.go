// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
)

// The line is a lock that only waiters for a slot take. Its holder is the one
// process that polls the slots; the others poll it. It is there for fairness
// only: safety does not depend on it, and no waiter depends on it alone.

// place is where a waiter stands in the line.
type place struct {
	s      *Semaphore
	cancel context.CancelFunc
	lease  atomic.Pointer[tenure.Lease] // of the line, while it is at the front
	front  chan struct{}                // has room for one: it has come to the front
	ended  chan struct{}
}

// stand takes a place in the line, until leave.
func (s *Semaphore) stand(ctx context.Context) *place {
	p := &place{s: s, front: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.run(ctx)
	return p
}

func (p *place) run(ctx context.Context) {
	defer close(p.ended)
	client := p.s.client
	for ctx.Err() == nil {
		l, err := client.Acquire(ctx, p.s.name+lineSuffix, &tenure.AcquireOptions{StoreTimeout: -1})
		if errors.Is(err, tenure.ErrExpired) {
			continue // paused while it came to the front
		}
		if err != nil {
			return // it waits without a place
		}
		p.lease.Store(l)
		p.s.stood.note()
		select {
		case p.front <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
		case <-l.Context().Done():
		}
		p.lease.Store(nil)
		p.s.stood.note()
		p.s.giveBack(context.WithoutCancel(ctx), l)
	}
}

// arrived is told when the place has come to the front. A waiter without a
// place is told nothing.
func (p *place) arrived() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.front
}

// atFront says that nobody stands before this place.
func (p *place) atFront() bool {
	if p == nil {
		return false
	}
	l := p.lease.Load()
	return l != nil && l.Check() == nil
}

// leave leaves the line. It waits until the next one can come to the front,
// unless ctx has ended.
func (p *place) leave(ctx context.Context) {
	p.cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
}

// stood is when this process was at the front of the line last.
type stood struct {
	mu sync.Mutex
	at time.Time
}

func (t *stood) note() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Now()
}

// standsBack says that this process has just been at the front, and lets the
// others go first: each of them looks once a refresh period.
func (t *stood) standsBack(refresh time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.at.IsZero() && time.Since(t.at) < 2*refresh
}

// lineSight is what a waiter has seen of the line.
type lineSight struct {
	at     time.Time // zero: nothing
	behind bool
}

// lineAge is how long it is taken for granted that another process is at the
// front: the place itself tells when it has come there.
func lineAge(client *tenure.Client) time.Duration { return client.Options().HeartbeatPeriod }

// behind says that another process is at the front of the line.
func (w *waiter) behind(ctx context.Context) (bool, error) {
	client := w.s.client
	if w.line.behind && w.place != nil && time.Since(w.line.at) < lineAge(client) {
		return true, nil
	}
	at := time.Now()
	list, errs := client.EventualStatuses(ctx, []string{w.s.name + lineSuffix})
	st, err := list[0], errs[0]
	switch {
	case errors.Is(err, tenure.ErrUnreadable):
		return false, nil // nothing rests on it
	case err != nil:
		return false, err
	}
	w.line = lineSight{at, st.Held}
	return w.line.behind, nil
}
