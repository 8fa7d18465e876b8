// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"context"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// Write is a write that the store has made.
type Write struct {
	// Prev is the record as it stood before, without a Key if there was none.
	Prev driver.Record
	// Next is the record as it stands now, without a Key if it was deleted.
	Next driver.Record
}

// Observe calls f with each write of a client, in their order, when the store has made
// it: also for a write that is late, or whose reply is lost. A test can judge by it what
// no client may know. Call it before the first client is made. f must not block; it may
// read [World.Store]. Only a memstore reports its writes.
func (w *World) Observe(f func(Write)) { w.observer = f }

// Wrap has f wrap the store of each client that is made from now on. f gets the name of
// the client and its store, and returns the store that the client uses: a store that
// records calls and replies, say, or a store without Watch, like engines that cannot
// watch. A call is under way there for as long as the client waits for it, through
// pauses and faults. The store that f gets is a [driver.Watcher] and a [driver.Raiser]
// if the world's store is, as memstore is.
func (w *World) Wrap(f func(name string, s driver.Store) driver.Store) { w.wrap = f }

// handle returns a further handle onto the records, whose writes the observer sees.
func (w *World) handle() driver.Store {
	store := w.open()
	if memory, ok := store.(*memstore.Store); ok && w.observer != nil {
		return observed{memory, w}
	}
	return store
}

// observed is a store whose writes the world's observer sees.
type observed struct {
	*memstore.Store
	w *World
}

func (o observed) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	err = o.write(next.Key, func() (driver.Record, error) {
		now, prev, err = o.Store.Claim(ctx, next)
		return now, err
	})
	return now, prev, err
}

func (o observed) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = o.write(next.Key, func() (driver.Record, error) {
		now, err = o.Store.Swap(ctx, prev, next)
		return now, err
	})
	return now, err
}

func (o observed) Raise(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	err = o.write(next.Key, func() (driver.Record, error) {
		now, err = o.Store.Raise(ctx, prev, next)
		return now, err
	})
	return now, err
}

func (o observed) Delete(ctx context.Context, prev driver.Record) error {
	return o.write(prev.Key, func() (driver.Record, error) {
		return driver.Record{}, o.Store.Delete(ctx, prev)
	})
}

// write makes a write, and reports it to the observer.
func (o observed) write(key string, make func() (driver.Record, error)) error {
	o.w.writing.Lock()
	defer o.w.writing.Unlock()
	before, _ := o.Store.Get(context.Background(), key, driver.Strong) // no record is the zero one
	now, err := make()
	if err == nil && (before.Key != "" || now.Key != "") {
		o.w.observer(Write{Prev: before, Next: now.Clone()})
	}
	return err
}
