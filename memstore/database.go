// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"fmt"
	"maps"
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
	keep    int                // how many former states of each key are kept
	past    map[string][]state // the former states, the oldest first
	guard   guard
}

// state is what a key had at one time.
type state struct {
	rec   driver.Record
	found bool
}

type watch struct {
	owner *Store
	hint  func()
}

func newDatabase() *database {
	return &database{records: map[string]driver.Record{}, watches: map[string][]*watch{}, past: map[string][]state{}}
}

// copy returns a database with the same records, and neither watches nor former
// states.
func (db *database) copy() *database {
	next := newDatabase()
	db.mu.Lock()
	defer db.mu.Unlock()
	next.records, next.guard = maps.Clone(db.records), db.guard
	next.guard.sessions = maps.Clone(db.guard.sessions)
	return next
}

// get returns the record of key as it was before its last ago writes.
func (db *database) get(key string, ago int) (driver.Record, error) {
	db.mu.Lock()
	at := db.guard.show(key, db.at(key, ago))
	db.mu.Unlock()
	if !at.found {
		return driver.Record{}, fmt.Errorf("%q: %w", key, driver.ErrNotFound)
	}
	return at.rec.Clone(), nil
}

// at returns the state of key before its last ago writes, or the oldest kept
// state.
func (db *database) at(key string, ago int) state {
	if past := db.past[key]; ago > 0 && len(past) > 0 {
		return past[max(0, len(past)-ago)]
	}
	rec, found := db.records[key]
	return state{rec, found}
}

// put stores a record.
func (db *database) put(rec driver.Record) {
	rec.Life, rec.Opens = "", driver.Opening{}
	if found := db.remember(rec.Key); !found {
		db.sorted = nil
	}
	db.records[rec.Key] = rec
}

// drop removes a record.
func (db *database) drop(key string) {
	db.remember(key)
	db.sorted = nil
	delete(db.records, key)
}

// remember keeps the state of a key that is about to be written, and reports
// whether there is a record.
func (db *database) remember(key string) (found bool) {
	rec, found := db.records[key]
	if db.keep > 0 {
		past := append(db.past[key], state{rec, found})
		db.past[key] = past[max(0, len(past)-db.keep):]
	}
	return found
}

// keepPast has at least the last n states of each key kept from now on.
func (db *database) keepPast(n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.keep = max(db.keep, n)
}

func (db *database) claim(next driver.Record) (now, prev driver.Record, err error) {
	next = next.Detach()
	db.mu.Lock()
	if err := db.guard.check(next); err != nil {
		db.mu.Unlock()
		return driver.Record{}, driver.Record{}, err
	}
	prev, found := db.records[next.Key]
	free := !found || prev.State == driver.Released
	if shown, refused := db.guards(next, "", state{prev, found}, next.State == driver.Held, free); refused {
		db.mu.Unlock()
		return driver.Record{}, driver.Record{}, conflict(next.Key, shown.rec, shown.found)
	}
	if !free {
		db.mu.Unlock()
		prev.Life = db.guard.life
		return driver.Record{}, driver.Record{}, conflict(next.Key, prev, found)
	}
	if prev.Token >= driver.MaxToken {
		db.mu.Unlock()
		err := fmt.Errorf("claim of %q: token %d cannot rise", next.Key, prev.Token)
		return driver.Record{}, driver.Record{}, driver.Unsupported(err)
	}
	now = driver.Claimed(next, prev, found)
	db.put(now)
	db.guard.enter(now)
	now.Life, now.Opens = db.guard.life, driver.Opening{}
	if found {
		prev.Life = now.Life
	}
	db.mu.Unlock()
	return now.Clone(), prev.Clone(), nil
}

func (db *database) swap(prev, next driver.Record) (driver.Record, error) {
	next = next.Detach()
	db.mu.Lock()
	if err := db.guard.check(next); err != nil {
		db.mu.Unlock()
		return driver.Record{}, err
	}
	stored, found := db.records[next.Key]
	matches := found && stored.Version == prev.Version && stored.Token == prev.Token
	at := state{stored, found}
	if shown, refused := db.guards(next, prev.Life, at, next.Token > prev.Token, matches || db.guard.shown(prev, at)); refused {
		db.mu.Unlock()
		return driver.Record{}, conflict(next.Key, shown.rec, shown.found)
	}
	if !matches {
		db.mu.Unlock()
		if found {
			stored.Life = db.guard.life
		}
		return driver.Record{}, conflict(next.Key, stored, found)
	}
	db.put(next)
	next.Life, next.Opens = db.guard.life, driver.Opening{}
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
	elsewhere := db.guard.waits > 0 && prev.Life != "" && prev.Life != db.guard.life
	if elsewhere || stored.Version != prev.Version || stored.Token != prev.Token {
		db.mu.Unlock()
		stored.Life = db.guard.life
		return conflict(prev.Key, stored, found)
	}
	db.drop(prev.Key)
	hints := slices.Clone(db.watches[prev.Key])
	db.mu.Unlock()
	call(hints)
	return nil
}

// list returns a page of the records as they were before the last ago writes of
// each.
func (db *database) list(prefix, cursor string, size, ago int) driver.Page {
	var page driver.Page
	db.mu.Lock()
	keys := db.sortedKeys()
	if ago > 0 {
		keys = db.keysEver()
	}
	i, found := slices.BinarySearch(keys, max(prefix, cursor))
	if found && cursor >= prefix && cursor != "" {
		i++ // the cursor is the last key of the page before
	}
	for ; i < len(keys) && strings.HasPrefix(keys[i], prefix); i++ {
		at := db.at(keys[i], ago)
		if !at.found {
			continue
		}
		at = db.guard.show(keys[i], at)
		if len(page.Records) == size {
			page.Cursor = page.Records[size-1].Key
			break
		}
		page.Records = append(page.Records, at.rec)
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

// keysEver returns, in order, the keys that have a record or whose former
// states are kept.
func (db *database) keysEver() []string {
	keys := slices.AppendSeq(slices.Clone(db.sortedKeys()), maps.Keys(db.past))
	slices.Sort(keys)
	return slices.Compact(keys)
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
