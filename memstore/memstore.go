// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package memstore keeps Tenure's records in memory. It is the reference for
// what a store does, and the store for unit tests of programs that use Tenure:
// clients that are given the same [Store] contend for the same locks.
//
// It excludes no other process.
package memstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
)

// DefaultPageSize is the highest number of records in a page of [Store.List]
// if Store.PageSize is not set.
const DefaultPageSize = 1000

// Store is a handle onto a set of records. It implements [driver.Store],
// [driver.Watcher] and [driver.Raiser]. All methods may be called concurrently.
//
// An operation takes effect at once and waits only for other operations under
// way. If its context is done before it begins, it changes nothing and
// returns the context's error, marked with [driver.NotApplied]; after that
// the context is not checked again.
type Store struct {
	// PageSize is the highest number of records in a page of List,
	// DefaultPageSize if it is not positive. Set it before the first List.
	PageSize int

	db     *database
	closed atomic.Bool
}

// New returns a handle onto a new, empty set of records.
func New() *Store { return &Store{db: newDatabase()} }

// Open returns another handle onto the records of s, as another process would
// open the same database. Each handle is closed separately; Open works on a
// closed handle too, since the records outlive every Close.
func (s *Store) Open() *Store { return &Store{PageSize: s.PageSize, db: s.db} }

// Copy returns a handle onto a copy of the records of s as they are now, like a
// backup that is restored elsewhere. Writes to one of the two sets do not appear
// in the other. It works on a closed handle too.
func (s *Store) Copy() *Store { return &Store{PageSize: s.PageSize, db: s.db.copy()} }

// Get returns the record of key. Every read is strong.
func (s *Store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, err
	}
	return s.db.get(key, 0)
}

// Claim writes next if its key is absent or released.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, driver.Record{}, driver.NotApplied(err)
	}
	if err := driver.CheckClaim(next); err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	return s.db.claim(next)
}

// Swap replaces prev by next if the stored version and token are those of
// prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise)
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, check func(prev, next driver.Record) error) (driver.Record, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, driver.NotApplied(err)
	}
	if err := check(prev, next); err != nil {
		return driver.Record{}, err
	}
	return s.db.swap(prev, next)
}

// Delete removes the record of prev's key if its version and token are those
// of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	return s.db.delete(prev)
}

// List returns the records whose key begins with prefix and comes after
// cursor, PageSize of them at most. A page is one state of the store; records
// that are created or deleted between two pages may or may not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Page{}, err
	}
	return s.db.list(prefix, cursor, s.pageSize(), 0), nil
}

// KeepPast has s, and all handles onto the same records, keep at least the last
// n states of each key from now on, including its absence before its creation
// and after its deletion. [Store.GetPast] and [Store.ListPast] show them, to
// tests of reads that are not strong. A new set of records keeps none. The
// states are freed only with the records.
func (s *Store) KeepPast(n int) { s.db.keepPast(n) }

// GetPast returns the record of key as it was before the last ago writes of
// that key, through whichever handle: ErrNotFound, if it was absent then. It
// shows the oldest kept state (see [Store.KeepPast]) if that is newer, and the
// present state if none is kept or ago is not positive.
func (s *Store) GetPast(ctx context.Context, key string, ago int) (driver.Record, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Record{}, err
	}
	return s.db.get(key, ago)
}

// ListPast is List, in which each record is as old as GetPast shows it.
func (s *Store) ListPast(ctx context.Context, prefix, cursor string, ago int) (driver.Page, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Page{}, err
	}
	return s.db.list(prefix, cursor, s.pageSize(), ago), nil
}

func (s *Store) pageSize() int {
	if s.PageSize > 0 {
		return s.PageSize
	}
	return DefaultPageSize
}

// Watch has hint called after each write to key through any handle that
// [driver.Watcher] names: releases, reservations, closings, requests and
// deletions. It is called in the goroutine of that write and before it returns.
// No mutex is held then: hint may call the store. A nil hint panics.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("memstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.db.watch(s, key, hint)
}

// Close ends the watches of this handle and makes its other methods return
// [driver.ErrClosed]. The records stay, and so do other handles.
func (s *Store) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.db.unwatch(s)
	}
	return nil
}

// String identifies the handle in test output.
func (s *Store) String() string { return fmt.Sprintf("memstore(%p)", s) }

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return ctx.Err()
}

var (
	_ driver.Store   = (*Store)(nil)
	_ driver.Watcher = (*Store)(nil)
	_ driver.Raiser  = (*Store)(nil)
)
