// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// freed is a lock that a store has released itself, and that no other has taken since, as
// far as it knows. It is a guess: a claim that relies on it names version and token, and the
// engine decides. Then the engine need not read the row, nor send it back, which saves a
// third of the cost of a claim.
type freed driver.Record

// longestReleased bounds the data of each remembered lock, in bytes.
const longestReleased = 1 << 10

// View implements [versioned.State].
func (f freed) View() versioned.View { return versioned.View{Record: driver.Record(f), Found: true} }

// Kept implements [versioned.State].
func (f freed) Kept() (freed, bool) {
	if f.State != driver.Released || f.Token >= driver.MaxToken || len(f.Data) > longestReleased {
		return f, false
	}
	return freed(driver.Record(f).Clone()), true // the caller has the other one
}

// Overtakes implements [versioned.State].
func (f freed) Overtakes(freed) bool { return false }

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
