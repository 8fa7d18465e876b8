// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// maxTries bounds how often a claim is made in one call, each time after the engine has
// said that the row has changed while it was claimed.
const maxTries = 3

// Claim writes next if its key is absent or released, in one request.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	next = stored(next)
	if free, known := s.free.Of(next.Key); known {
		s.free.Forget(next.Key)
		now, ok, err := s.claimKnown(ctx, next, driver.Record(free))
		switch {
		case err != nil:
			return now, prev, err
		case ok:
			return now, driver.Record(free), nil
		}
	}
	next.Token, next.Prev = 1, nil // those of a new key; the others are the engine's to make
	args, err := encode(next)
	if err != nil {
		return now, prev, err
	}
	at, err := s.at(ctx)
	if err != nil {
		return now, prev, err
	}
	for try := 1; ; try++ {
		rows, err := s.run(ctx, at.sql.claim, args, "")
		if err != nil {
			return now, prev, err
		}
		var done, seen *row
		for i := range rows {
			if rows[i].flag {
				done = &rows[i]
			} else {
				seen = &rows[i]
			}
		}
		if seen != nil {
			if prev, err = seen.record(); err != nil {
				return now, driver.Record{}, driver.NotApplied(err)
			}
		}
		if done != nil {
			now, err = done.record()
			return now, prev, err
		}
		switch {
		case seen != nil && prev.State != driver.Released:
			return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: prev}
		case seen != nil && prev.Token >= driver.MaxToken:
			return now, driver.Record{}, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, prev.Token))
		case try == maxTries && seen != nil:
			return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: prev}
		case try == maxTries:
			return now, driver.Record{}, s.conflict(ctx, next.Key)
		}
		prev = driver.Record{} // it has changed under way
	}
}

// Swap replaces prev by next if the stored version and token are those of prev, in one
// request. A conflict takes two.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise)
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, check func(prev, next driver.Record) error) (driver.Record, error) {
	if err := check(prev, next); err != nil {
		return driver.Record{}, err
	}
	next = stored(next)
	args, err := encode(next)
	if err != nil {
		return driver.Record{}, err
	}
	at, err := s.at(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	st := at.sql.swap
	// Data that stay are not sent again, nor written: a heartbeat is small, whatever the
	// record holds. A prev without a state was not read, and its data mean nothing.
	if prev.State != "" && bytes.Equal(prev.Data, next.Data) {
		st = at.sql.swapKeepingData
		args[len(columns)-1] = nil
	}
	changed := ""
	if driver.Wakes(prev, next) {
		changed = next.Key
	}
	if err := s.replace(ctx, st, prev, append(args, prev.Version, int64(prev.Token)), changed); err != nil {
		return driver.Record{}, err
	}
	s.free.Note(next.Key, freed(next))
	return next, nil
}

// Delete removes the record of prev's key if its version and token are those of prev, in
// one request. A conflict takes two.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	if !isKey(prev.Key) {
		return nil
	}
	at, err := s.at(ctx)
	if err != nil {
		return err
	}
	err = s.replace(ctx, at.sql.remove, prev, []any{prev.Key, prev.Version, int64(prev.Token)}, prev.Key)
	if conflict, ok := err.(*driver.ConflictError); ok && conflict.Absent { //nolint:errorlint // it is not wrapped
		return nil
	}
	return err
}

// replace runs a statement that replaces the version and token of prev, and returns a
// conflict if they are not there: then a second request reads the current record.
func (s *Store) replace(ctx context.Context, st *statement, prev driver.Record, args []any, changed string) error {
	if prev.Token > driver.MaxToken {
		return s.conflict(ctx, prev.Key)
	}
	switch a := s.ask(ctx, st, args, changed); {
	case a.err != nil:
		return a.err
	case a.changed == 0:
		return s.conflict(ctx, prev.Key)
	}
	return nil
}

// conflict returns the conflict of a write that has not been applied, with what is there
// by now.
func (s *Store) conflict(ctx context.Context, key string) error {
	r, err := s.look(ctx, key)
	switch {
	case err != nil:
		return driver.NotApplied(err)
	case r.absent():
		return &driver.ConflictError{Key: key, Absent: true}
	}
	current, err := r.record()
	if err != nil {
		return driver.NotApplied(err)
	}
	return &driver.ConflictError{Key: key, Current: current}
}
