// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

// point is where a process dies: before or after its call of the store with
// this number, from 1. The zero point never comes.
type point struct {
	Call  int64
	After bool
}

func (p point) String() string {
	switch {
	case p == complete:
		return "as a holder"
	case p.After:
		return fmt.Sprint("after call ", p.Call)
	}
	return fmt.Sprint("before call ", p.Call)
}

// complete is the crash of a process whose acquisition is through.
var complete = point{}

// witnessed is a store of which every call, and every write of a lock that was
// applied, is told.
type witnessed struct {
	driver.Store
	driver.Watcher
	before, after func(call int64)
	wrote         func(prev, next driver.Record) // prev is zero for a claim
	calls         atomic.Int64
}

func (w *witnessed) call(op func()) {
	n := w.calls.Add(1)
	if w.before != nil {
		w.before(n)
	}
	op()
	if w.after != nil {
		w.after(n)
	}
}

func (w *witnessed) Get(ctx context.Context, key string, c driver.Consistency) (rec driver.Record, err error) {
	w.call(func() { rec, err = w.Store.Get(ctx, key, c) })
	return rec, err
}

func (w *witnessed) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	w.call(func() {
		if now, prev, err = w.Store.Claim(ctx, next); err == nil && next.Key == lockName {
			w.wrote(driver.Record{}, now)
		}
		sayUnknown(err)
	})
	return now, prev, err
}

func (w *witnessed) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	w.call(func() {
		if now, err = w.Store.Swap(ctx, prev, next); err == nil {
			w.wrote(prev, now)
		}
		sayUnknown(err)
	})
	return now, err
}

func (w *witnessed) Delete(ctx context.Context, prev driver.Record) (err error) {
	w.call(func() { err = w.Store.Delete(ctx, prev) })
	return err
}

// sayUnknown says that a write may have been applied, and nobody will be told.
func sayUnknown(err error) {
	var conflict *driver.ConflictError
	if err != nil && !errors.As(err, &conflict) && !errors.Is(err, driver.ErrNotApplied) {
		say("unknown", err)
	}
}

// childTaker takes the lock, and dies at its point; or when it has it, if that
// does not come.
func childTaker(o order) error {
	s, err := sqlitestore.Open(o.File, nil)
	if err != nil {
		return err
	}
	dead := func(after bool) func(int64) {
		return func(call int64) {
			if o.Point == (point{call, after}) {
				die()
			}
		}
	}
	w := &witnessed{Store: s, Watcher: s, before: dead(false), after: dead(true)}
	w.wrote = func(prev, next driver.Record) {
		if next.State == driver.Held && next.Token != prev.Token {
			say("granted", next.Token, time.Now().UnixNano())
		}
	}
	opts := options(o.Owner)
	opts.OnEvent = func(e tenure.Event) {
		if e.Kind == tenure.EventWaiting {
			say("waiting", e.Token)
		}
	}
	c, err := tenure.New(w, opts)
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, err := c.Acquire(ctx, lockName, recorded)
	say("calls", w.calls.Load())
	switch {
	case !o.Release:
		die()
	case err != nil:
		return err
	}
	if err := l.Release(ctx); err != nil {
		return err
	}
	if err := c.Close(ctx); err != nil {
		return err
	}
	return s.Close()
}

var recorded = &tenure.AcquireOptions{History: true, StoreTimeout: -1}
