// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"fmt"
	"sync"
)

// Gate is a guard in the memory of one process. It fits a resource that is
// reached only through this process, and does not outlive it: when the
// process starts again, the gate knows nothing, and admits the first token
// that comes. Where that matters, keep the tokens beside the data: see [SQL]
// and [SQLGate].
//
// It never forgets a resource by itself, since that would let a stale write
// pass: it keeps a name and a number of each resource for as long as it lives.
// [GateOptions.MaxResources] bounds that by refusing further resources.
//
// All methods may be called concurrently.
type Gate struct {
	most int
	refuser

	mu        sync.Mutex // guards the fields below, and the slots; never held while a write runs
	resources map[string]*slot
}

// slot is what a gate knows of one resource.
type slot struct {
	// busy holds one value while a write is inside. It is a channel, so that
	// a wait can be cancelled.
	busy    chan struct{}
	highest uint64 // 0 if no token has passed yet, or it was forgotten
	users   int    // inside, or waiting to be
}

var _ Guard = (*Gate)(nil)

// GateOptions are for one gate. Nil means the defaults.
type GateOptions struct {
	// MaxResources bounds how many resources the gate knows. A further one is
	// refused with [ErrFull], because to make room is to unguard another. If
	// zero, it is 1,000,000; negative means no bound.
	MaxResources int

	// OnRefusal is called with each refusal of a stale token, in the goroutine
	// of the call that is refused, which waits for it.
	OnRefusal func(*StaleError)
}

const defaultMaxResources = 1_000_000

// NewGate returns a gate that has seen no token. Options may be nil.
func NewGate(options *GateOptions) *Gate {
	var o GateOptions
	if options != nil {
		o = *options
	}
	if o.MaxResources == 0 {
		o.MaxResources = defaultMaxResources
	}
	return &Gate{most: o.MaxResources, refuser: refuser{notify: o.OnRefusal}, resources: map[string]*slot{}}
}

// Do runs write while it holds the resource, and returns its error: see
// [Guard]. The token counts from before write begins, also if write fails: it
// may have had effects.
//
// Ctx bounds the waiting for another write to the resource; write gets it as
// it is, and is not interrupted by its end.
func (g *Gate) Do(ctx context.Context, resource string, token uint64, write func(context.Context) error) error {
	s, highest, err := g.enter(ctx, resource, token)
	if err != nil {
		return err
	}
	if token < highest {
		g.leave(resource, s)
		return g.refuse(resource, token, highest) // outside, since it calls the user
	}
	defer g.leave(resource, s)
	return write(ctx)
}

// Admit has the gate remember the token without a write: when it has returned
// nil, no write under a lower token happens, a write that was inside before
// has ended, and what is read now stays. It returns errors as Do does.
func (g *Gate) Admit(ctx context.Context, resource string, token uint64) error {
	return g.Do(ctx, resource, token, func(context.Context) error { return nil })
}

// Check returns the error that Do would return now, without waiting, and
// remembers nothing. It spares a stale writer the preparations of a write. It
// does not guard the write: a higher token may pass right after it.
func (g *Gate) Check(resource string, token uint64) error {
	if err := check(resource, token); err != nil {
		return err
	}
	if highest, _ := g.Highest(resource); token < highest {
		return g.refuse(resource, token, highest)
	}
	return nil
}

// Highest returns the highest token that has passed at the resource, and
// whether any has.
func (g *Gate) Highest(resource string) (token uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.resources[resource]; s != nil {
		return s.highest, s.highest > 0
	}
	return 0, false
}

// Forget has the gate forget the token of the resource: the next one passes,
// whatever it is. It is for a resource that is gone for good, for a lock whose
// record was deleted, so that its tokens begin at 1 again, and to undo a wrong
// token. While a former holder may still run, the resource is unguarded.
func (g *Gate) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.resources[resource]; s != nil {
		s.highest = 0
		g.drop(resource, s)
	}
}

// Len returns how many resources the gate knows.
func (g *Gate) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.resources)
}

// Refusals returns how many calls were refused for a stale token.
func (g *Gate) Refusals() uint64 { return g.count.Load() }

// enter waits until it has the resource for itself. It returns the highest
// token of the resource, which is then the caller's unless that is stale.
func (g *Gate) enter(ctx context.Context, resource string, token uint64) (*slot, uint64, error) {
	if err := check(resource, token); err != nil {
		return nil, 0, err
	}
	s, err := g.slot(resource)
	if err != nil {
		return nil, 0, err
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		s.users--
		g.drop(resource, s)
		return nil, 0, fmt.Errorf("fence %q: waiting for another write: %w", shown(resource), context.Cause(ctx))
	}
	if ctx.Err() != nil { // both were ready: the caller has given up
		g.leave(resource, s)
		return nil, 0, fmt.Errorf("fence %q: %w", shown(resource), context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.highest = max(s.highest, token)
	return s, s.highest, nil
}

func (g *Gate) slot(resource string) (*slot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.resources[resource]
	if s == nil {
		if g.most > 0 && len(g.resources) >= g.most {
			return nil, fmt.Errorf("fence %q: %w: it knows %d resources; forget some, or raise MaxResources", shown(resource), ErrFull, g.most)
		}
		s = &slot{busy: make(chan struct{}, 1)}
		g.resources[resource] = s
	}
	s.users++
	return s, nil
}

func (g *Gate) leave(resource string, s *slot) {
	<-s.busy
	g.mu.Lock()
	defer g.mu.Unlock()
	s.users--
	g.drop(resource, s)
}

// drop frees a slot that is not needed. A waiter keeps its slot, or two could
// be inside of the resource at once.
func (g *Gate) drop(resource string, s *slot) {
	if s.users == 0 && s.highest == 0 {
		delete(g.resources, resource)
	}
}
