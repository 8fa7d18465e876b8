// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// database is the records that all handles of one New share.
//
// A record in the map is never changed, only replaced, so that the copies for
// callers are made outside the mutex.
type database struct {
	mu      sync.Mutex
	records map[string]driver.Record
	sorted  []string // the keys in order; nil if a key came or went since
	watches map[string][]*watch
}

type watch struct {
	owner *Store
	hint  func()
}

func newDatabase() *database {
	return &database{records: map[string]driver.Record{}, watches: map[string][]*watch{}}
}

func (db *database) get(key string) (driver.Record, error) {
	db.mu.Lock()
	rec, ok := db.records[key]
	db.mu.Unlock()
	if !ok {
		return driver.Record{}, fmt.Errorf("%q: %w", key, driver.ErrNotFound)
	}
	return rec.Clone(), nil
}

func (db *database) claim(next driver.Record) (now, prev driver.Record, err error) {
	next = next.Detach()
	db.mu.Lock()
	prev, found := db.records[next.Key]
	if found && prev.State != driver.Released {
		db.mu.Unlock()
		return driver.Record{}, driver.Record{}, conflict(next.Key, prev, found)
	}
	if prev.Token >= driver.MaxToken {
		db.mu.Unlock()
		err := fmt.Errorf("claim of %q: token %d cannot rise", next.Key, prev.Token)
		return driver.Record{}, driver.Record{}, driver.NotApplied(driver.Permanent(err))
	}
	now = driver.Claimed(next, prev, found)
	db.records[now.Key] = now
	if !found {
		db.sorted = nil
	}
	db.mu.Unlock()
	return now.Clone(), prev.Clone(), nil
}

func (db *database) swap(prev, next driver.Record) (driver.Record, error) {
	next = next.Detach()
	db.mu.Lock()
	stored, found := db.records[next.Key]
	if !found || stored.Version != prev.Version || stored.Token != prev.Token {
		db.mu.Unlock()
		return driver.Record{}, conflict(next.Key, stored, found)
	}
	db.records[next.Key] = next
	var hints []*watch
	if driver.Wakes(stored, next) {
		hints = slices.Clone(db.watches[next.Key])
	}
	db.mu.Unlock()
	call(hints)
	return next.Clone(), nil
}

func (db *database) delete(prev driver.Record) error {
	db.mu.Lock()
	stored, found := db.records[prev.Key]
	if !found {
		db.mu.Unlock()
		return nil
	}
	if stored.Version != prev.Version || stored.Token != prev.Token {
		db.mu.Unlock()
		return conflict(prev.Key, stored, found)
	}
	delete(db.records, prev.Key)
	db.sorted = nil
	hints := slices.Clone(db.watches[prev.Key])
	db.mu.Unlock()
	call(hints)
	return nil
}

func (db *database) list(prefix, cursor string, size int) driver.Page {
	var page driver.Page
	db.mu.Lock()
	keys := db.sortedKeys()
	i, found := slices.BinarySearch(keys, max(prefix, cursor))
	if found && cursor >= prefix && cursor != "" {
		i++ // the cursor is the last key of the page before
	}
	for ; i < len(keys) && strings.HasPrefix(keys[i], prefix); i++ {
		if len(page.Records) == size {
			page.Cursor = page.Records[size-1].Key
			break
		}
		page.Records = append(page.Records, db.records[keys[i]])
	}
	db.mu.Unlock()
	for i, rec := range page.Records {
		page.Records[i] = rec.Clone()
	}
	return page
}

func (db *database) sortedKeys() []string {
	if db.sorted == nil {
		db.sorted = make([]string, 0, len(db.records))
		for key := range db.records {
			db.sorted = append(db.sorted, key)
		}
		slices.Sort(db.sorted)
	}
	return db.sorted
}

func (db *database) watch(owner *Store, key string, hint func()) (stop func(), err error) {
	w := &watch{owner: owner, hint: hint}
	db.mu.Lock()
	defer db.mu.Unlock()
	// Asked under the mutex, so that a Close either sees this watch or is seen.
	if owner.closed.Load() {
		return nil, driver.ErrClosed
	}
	db.watches[key] = append(db.watches[key], w)
	return func() { db.remove(key, func(other *watch) bool { return other == w }) }, nil
}

// unwatch ends the watches of owner, which is closed and gets no new ones.
func (db *database) unwatch(owner *Store) {
	db.mu.Lock()
	keys := make([]string, 0, len(db.watches))
	for key := range db.watches {
		keys = append(keys, key)
	}
	db.mu.Unlock()
	for _, key := range keys {
		db.remove(key, func(w *watch) bool { return w.owner == owner })
	}
}

func (db *database) remove(key string, gone func(*watch) bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	left := slices.DeleteFunc(db.watches[key], gone)
	if len(left) == 0 {
		delete(db.watches, key)
		return
	}
	db.watches[key] = left
}

func conflict(key string, stored driver.Record, found bool) error {
	return &driver.ConflictError{Key: key, Current: stored.Clone(), Absent: !found}
}

func call(hints []*watch) {
	for _, w := range hints {
		w.hint()
	}
}
