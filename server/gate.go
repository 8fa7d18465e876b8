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

	mu    sync.Mutex // between the last call that enters and the first that closes
	calls sync.WaitGroup
}

func newGate() *gate {
	g := &gate{}
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
	g.calls.Add(1)
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(g.closing, func() { cancel(errDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.calls.Done()
	}, nil
}

// shut closes the gate, and waits until nobody is in it or ctx ends.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	g.close(errDraining)
	g.mu.Unlock()
	empty := make(chan struct{})
	go func() {
		g.calls.Wait()
		close(empty)
	}()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
