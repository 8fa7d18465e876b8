// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// freed is what a store has released itself, and nobody has taken since, as far as it
// knows. It is a guess: a claim that relies on it names version and token, and the engine
// decides. Then the engine need not read the row, nor send it back, which is a third of
// what a claim costs.
type freed struct {
	mu   sync.Mutex
	seen map[string]driver.Record
}

const (
	// mostReleased bounds how many records are remembered. Beyond it one is forgotten,
	// whose claim costs what the claim of any other does.
	mostReleased = 1 << 12
	// longestReleased bounds the data of each, in bytes.
	longestReleased = 1 << 10
)

// note remembers what has been written, if it is a lock that is free.
func (f *freed) note(rec driver.Record) {
	if rec.State != driver.Released || rec.Token >= driver.MaxToken || len(rec.Data) > longestReleased {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]driver.Record{}
	}
	if len(f.seen) >= mostReleased {
		for other := range f.seen {
			delete(f.seen, other)
			break
		}
	}
	f.seen[rec.Key] = rec.Clone() // the caller has the other one
}

// take returns what is known of a key, and forgets it.
func (f *freed) take(key string) (driver.Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rec, ok := f.seen[key]
	delete(f.seen, key)
	return rec, ok
}

// claimKnown claims a lock that was free when the store released it. It returns false if
// the lock has changed since: nothing was written then.
func (s *Store) claimKnown(ctx context.Context, next, prev driver.Record) (now driver.Record, ok bool, err error) {
	now = stored(driver.Claimed(next, prev, true))
	args, err := encode(now)
	if err != nil {
		return driver.Record{}, false, err
	}
	at, err := s.at(ctx)
	if err != nil {
		return driver.Record{}, false, err
	}
	st := at.sql.claimKnown
	if next.Data == nil {
		st = at.sql.claimKnownKeepingData
		args[len(columns)-1] = nil
	}
	a := s.ask(ctx, st, append(args, prev.Version, int64(prev.Token)), "")
	return now, a.changed > 0, a.err
}
