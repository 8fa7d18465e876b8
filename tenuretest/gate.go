// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"context"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
)

// inner is a store with the abilities of memstore, behind faults.
type inner interface {
	driver.Store
	driver.Watcher
	driver.Raiser
}

// gate is a store as a process sees it that may be stopped: a call that begins in a
// pause is made after it, and a reply that comes in a pause is seen after it.
type gate struct {
	inner   inner
	process *process
}

var _ inner = (*gate)(nil)

// pass makes a call. One whose context ends in a pause fails with that.
func (g *gate) pass(ctx context.Context, call func() error) error {
	if err := g.process.running(ctx); err != nil {
		return driver.NotApplied(err)
	}
	err := call()
	if ended := g.process.running(ctx); ended != nil {
		return ended
	}
	return err
}

// Get calls Get of the inner store.
func (g *gate) Get(ctx context.Context, key string, how driver.Consistency) (rec driver.Record, err error) {
	err = g.pass(ctx, func() error {
		rec, err = g.inner.Get(ctx, key, how)
		return err
	})
	return rec, err
}

// Claim calls Claim of the inner store.
func (g *gate) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	err = g.pass(ctx, func() error {
		now, prev, err = g.inner.Claim(ctx, next)
		return err
	})
	return now, prev, err
}

// Swap calls Swap of the inner store.
func (g *gate) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = g.pass(ctx, func() error {
		now, err = g.inner.Swap(ctx, prev, next)
		return err
	})
	return now, err
}

// Raise calls Raise of the inner store.
func (g *gate) Raise(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = g.pass(ctx, func() error {
		now, err = g.inner.Raise(ctx, prev, next)
		return err
	})
	return now, err
}

// Delete calls Delete of the inner store.
func (g *gate) Delete(ctx context.Context, prev driver.Record) error {
	return g.pass(ctx, func() error { return g.inner.Delete(ctx, prev) })
}

// List calls List of the inner store.
func (g *gate) List(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	err = g.pass(ctx, func() error {
		page, err = g.inner.List(ctx, prefix, cursor)
		return err
	})
	return page, err
}

// Watch calls Watch of the inner store. A hint that comes in a pause is given after it,
// once for all that came.
func (g *gate) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	var waits, stopped atomic.Bool
	passOn := func() {
		waits.Store(false)
		if !stopped.Load() {
			hint()
		}
	}
	unwatch := func() {}
	err = g.pass(ctx, func() error {
		ended, err := g.inner.Watch(ctx, key, func() {
			if waits.CompareAndSwap(false, true) {
				g.process.whenRunning(passOn)
			}
		})
		if err == nil {
			unwatch = ended
		}
		return err
	})
	if err != nil {
		unwatch() // if it stands, its caller will never know
		return nil, err
	}
	return func() { stopped.Store(true); unwatch() }, nil
}

// Close closes the inner store.
func (g *gate) Close() error { return g.inner.Close() }
