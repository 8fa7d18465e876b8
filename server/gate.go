// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"
)

// errDraining is the cause by which calls that wait end when the server shuts down.
var errDraining = errors.New("the server is shutting down")

// gate counts the calls that wait, until it is closed.
type gate struct {
	closing context.Context // ends with errDraining
	close   context.CancelCauseFunc

	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when it is closed and nobody is in it
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	g.closing, g.close = context.WithCancelCause(context.Background())
	return g
}

func (g *gate) closed() bool { return g.closing.Err() != nil }

// enter lets a call in, and returns a context that ends with it, and with errDraining when
// the gate is closed.
func (g *gate) enter(parent context.Context) (ctx context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed() {
		return nil, nil, errDraining
	}
	g.n++
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(g.closing, func() { cancel(errDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n--
		g.check()
	}, nil
}

// shut closes the gate, and waits until nobody is in it or ctx ends.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed() {
		g.close(errDraining)
		g.check()
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check notes that the last one has left. The caller holds the mutex.
func (g *gate) check() {
	if g.n > 0 || !g.closed() {
		return
	}
	select {
	case <-g.empty:
	default:
		close(g.empty)
	}
}
