// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// written is a write as the store has made it.
type written struct {
	at         time.Time
	prev, next driver.Record
	found      bool // there was a record before
	deleted    bool
}

// alive says that the write shows life of a holder, or a proper end: anything but a
// request, or another process's write to a dead holder's record.
func (w written) alive() bool {
	return !w.found || w.deleted || w.next.Beat != w.prev.Beat || w.next.Token != w.prev.Token || w.next.State != w.prev.State
}

// ledger knows every write that the store has made, in their order: the truth
// beside which the answers of clients are judged.
type ledger struct {
	mu     sync.Mutex
	now    map[string]driver.Record
	writes map[string][]written
	told   func(key string, w written)
}

func newLedger() *ledger {
	return &ledger{now: map[string]driver.Record{}, writes: map[string][]written{}}
}

// do makes a write and writes it down.
func (l *ledger) do(key string, write func() (now driver.Record, deleted bool, err error)) {
	l.mu.Lock()
	prev, found := l.now[key]
	now, deleted, err := write()
	if err != nil || deleted && !found {
		l.mu.Unlock()
		return
	}
	w := written{at: time.Now(), prev: prev, next: now, found: found, deleted: deleted}
	if deleted {
		w.next = prev
		delete(l.now, key)
	} else {
		l.now[key] = now
	}
	l.writes[key] = append(l.writes[key], w)
	l.mu.Unlock()
	l.told(key, w)
}

// record returns what stands under key.
func (l *ledger) record(key string) (driver.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, found := l.now[key]
	return rec, found
}

// any reports whether f is true of a write of key made from one instant to another.
func (l *ledger) any(key string, from, to time.Time, f func(written) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes[key] {
		if !w.at.Before(from) && !w.at.After(to) && f(w) {
			return true
		}
	}
	return false
}

// at returns what stood under key at an instant, before the writes of that one.
func (l *ledger) at(key string, at time.Time) (driver.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, found := driver.Record{}, false
	for _, w := range l.writes[key] {
		if !w.at.Before(at) {
			break
		}
		rec, found = w.next, !w.deleted
	}
	return rec, found
}

// book is a handle onto the records through which writes are written down.
type book struct {
	*memstore.Store
	ledger *ledger
}

func (b *book) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	b.ledger.do(next.Key, func() (driver.Record, bool, error) {
		now, prev, err = b.Store.Claim(ctx, next)
		return now, false, err
	})
	return now.Clone(), prev, err
}

func (b *book) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	b.ledger.do(next.Key, func() (driver.Record, bool, error) {
		now, err = b.Store.Swap(ctx, prev, next)
		return now, false, err
	})
	return now.Clone(), err
}

func (b *book) Delete(ctx context.Context, prev driver.Record) (err error) {
	b.ledger.do(prev.Key, func() (driver.Record, bool, error) {
		err = b.Store.Delete(ctx, prev)
		return driver.Record{}, true, err
	})
	return err
}

// conflicting returns the record that an error carries.
func conflicting(err error) (driver.Record, bool) {
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) && !conflict.Absent {
		return conflict.Current, true
	}
	return driver.Record{}, false
}
