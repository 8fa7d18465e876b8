// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
)

// watching is a Store whose inner store is a Watcher. It is a type of its own
// so that a type assertion is right for both.
type watching struct {
	*Store
	inner driver.Watcher
}

// Watch passes the watch on to the inner store, and its hints back, unless a
// fault or the black hole swallows them. As with any call, Before, Deaf and Hang of
// the fault say how long it takes.
func (w *watching) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if err := ctx.Err(); err != nil && !w.isClosed() {
		return nil, err
	}
	if err := w.running(ctx); err != nil {
		return nil, err
	}
	entry, err := w.begin(Call{Op: OpWatch, Key: key})
	if err != nil {
		return nil, err
	}
	fault := w.decide(entry.Call)
	waits := waiter{ctx: ctx, closing: w.ctx.Done(), deaf: entry.Begin.Add(fault.Deaf)}
	if fault.Before > 0 {
		err = waits.wait(fault.Before)
	}
	switch {
	case err != nil:
	case fault.Effect == Applied:
		stop, err = w.watch(ctx, key, hint)
	default:
		err = fault.lost(waits)
	}
	w.end(entry, fault, reply{}, err)
	if ended := w.running(ctx); ended != nil && err == nil {
		stop() // its caller will never know
		return nil, ended
	}
	return stop, err
}

// watch watches, and drops hints that are on their way when the watch is stopped.
func (w *watching) watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	var stopped atomic.Bool
	unwatch, err := w.inner.Watch(ctx, key, func() {
		w.hint(key, func() {
			if !stopped.Load() {
				hint()
			}
		})
	})
	if err != nil {
		return nil, err
	}
	return func() { stopped.Store(true); unwatch() }, nil
}

func (w *watching) hint(key string, hint func()) {
	entry, err := w.begin(Call{Op: OpHint, Key: key})
	if err != nil {
		return
	}
	fault := w.decide(entry.Call)
	switch {
	case fault.Effect != Applied:
	case fault.Before > 0 || w.isPaused():
		w.async(fault.Before, func() {
			if w.running(w.ctx) == nil {
				hint()
			}
		})
	default:
		hint()
	}
	w.end(entry, fault, reply{}, nil)
}

func (s *Store) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed != nil
}

var (
	_ driver.Store   = (*watching)(nil)
	_ driver.Watcher = (*watching)(nil)
)
