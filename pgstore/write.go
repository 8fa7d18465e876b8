// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// maxTries bounds how often a claim is made in one call, each time after the engine has
// said that the row has changed while it was claimed.
const maxTries = 3

// Claim writes next if its key is absent or released, in one request: in two where the engine
// is not PostgreSQL, unless the store has released the lock itself.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := s.check(next, driver.CheckClaim(next)); err != nil {
		return now, prev, err
	}
	at, err := s.at(ctx)
	if err == nil {
		err = s.opens(ctx, at, next.Opens)
	}
	if err != nil {
		return now, prev, err
	}
	claim, next := s.claimAtOnce, next.Detach()
	if at.sql.claim == nil {
		claim = s.claimSeen
	}
	if free, known := s.free.Of(next.Key); known && next.State == driver.Held {
		s.free.Forget(next.Key)
		now, ok, err := s.take(ctx, at, next, driver.Record(free), true)
		switch {
		case err != nil:
			return driver.Record{}, prev, err
		case ok:
			return now, driver.Record(free), nil
		}
	}
	for try := 1; ; try++ {
		seen, done, err := claim(ctx, at, next)
		if err != nil {
			return now, prev, err
		}
		if seen.found {
			if prev, err = seen.Record(); err != nil {
				return now, driver.Record{}, unreadable(err, done)
			}
		}
		switch {
		case done:
			return s.shown(driver.Claimed(next, prev, seen.found), seen.life).Clone(), prev, nil
		case s.guard != nil && (!seen.found || prev.State == driver.Released || prev.State == driver.Reserved):
			refused := s.conflict(ctx, at, driver.Record{}, next, next.State == driver.Held)
			if try == maxTries || !isFree(refused) {
				return now, driver.Record{}, refused
			}
		case seen.found && prev.State != driver.Released:
			return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: s.shown(prev, seen.life)}
		case seen.found && prev.Token >= driver.MaxToken:
			return now, driver.Record{}, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, prev.Token))
		case try == maxTries && seen.found:
			return now, driver.Record{}, &driver.ConflictError{Key: next.Key, Current: prev}
		case try == maxTries:
			return now, driver.Record{}, s.conflict(ctx, at, driver.Record{}, next, false)
		}
		prev = driver.Record{} // it has changed under way
	}
}

// isFree says that a conflict shows a lock that may be claimed: it has changed under way.
func isFree(err error) bool {
	conflict, is := err.(*driver.ConflictError) //nolint:errorlint // it is not wrapped
	return is && (conflict.Absent || conflict.Current.State == driver.Released && conflict.Current.End != driver.EndRaised)
}

// unreadable is the error of a claim that has met a record which cannot be understood. The
// engine has claimed it only if the text was a record's by all that the statement looks at.
func unreadable(err error, claimed bool) error {
	if claimed {
		return err
	}
	return driver.NotApplied(err)
}

// claimAtOnce claims a lock in one statement. It returns what was there before.
func (s *Store) claimAtOnce(ctx context.Context, at *place, next driver.Record) (seen row, done bool, err error) {
	next.Token, next.Prev = 1, nil // those of a new key; the others are the engine's to make
	args := valuesOf(next)
	if s.guard != nil {
		args = append(args, *s.id.Load())
	}
	rows, err := s.run(ctx, at.sql.claim, args)
	switch e := (*pgconn.PgError)(nil); {
	case errors.As(err, &e) && e.Code[:2] == "22": // the text of the record is no JSON
		seen, err = s.look(ctx, next.Key, looking)
		return seen, false, driver.NotApplied(err)
	case err != nil:
		return row{}, false, err
	case len(rows) != 1:
		return row{}, false, fmt.Errorf("postgres: %d rows for a claim", len(rows))
	}
	return rows[0], rows[0].flag, nil
}

// claimSeen looks at a lock, and claims it if it is free, in a statement of its own, which
// names what the look has shown.
func (s *Store) claimSeen(ctx context.Context, at *place, next driver.Record) (seen row, done bool, err error) {
	seen, err = s.look(ctx, next.Key, looking)
	if err != nil {
		return row{}, false, driver.NotApplied(err)
	}
	prev, err := seen.Record()
	if seen.found && (err != nil || prev.State != driver.Released || prev.Token >= driver.MaxToken) {
		return seen, false, nil
	}
	_, done, err = s.take(ctx, at, next, prev, seen.found)
	return seen, done, err
}

// take claims a lock that was as prev says, or absent. It returns false if that has changed
// since: nothing was written then.
func (s *Store) take(
	ctx context.Context, at *place, next, prev driver.Record, found bool,
) (now driver.Record, ok bool, err error) {
	now = driver.Claimed(next, prev, found).Clone()
	st, args := at.sql.insert, valuesOf(now)
	switch {
	case found && next.Data == nil:
		st, args[len(args)-1] = at.sql.takeKeepingData, nil
	case found:
		st = at.sql.take
	}
	if found {
		args = append(args, prev.Version, int64(prev.Token))
	}
	if found && s.guard != nil { // in another life the token is too low
		args = append(args, "", *s.id.Load())
	}
	a := s.ask(ctx, st, args, "")
	return s.shown(now, a.life()), a.changed > 0, a.err
}

// freed is a lock that a store has released itself, and that no other has taken since, as
// far as it knows. It is a guess: a claim that relies on it names version and token, and the
// engine decides. Then the engine need not read the row, nor send it back.
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

// Swap replaces prev by next if the stored version and token are those of prev, in one
// request. A conflict takes two.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap(prev, next))
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise(prev, next))
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, wrong error) (driver.Record, error) {
	if err := s.check(next, wrong); err != nil {
		return driver.Record{}, err
	}
	at, err := s.at(ctx)
	if err == nil {
		err = s.opens(ctx, at, next.Opens)
	}
	if err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	st, args := at.sql.swap, valuesOf(next)
	// A prev without a state was not read, and its data mean nothing.
	if prev.State != "" && bytes.Equal(prev.Data, next.Data) {
		st, args[len(args)-1] = at.sql.swapKeepingData, nil
	}
	raises := next.Token > prev.Token
	args = append(args, prev.Version, int64(prev.Token))
	switch {
	case s.guard == nil:
	case raises:
		st, args = at.sql.takeover, append(valuesOf(next), prev.Version, int64(prev.Token), prev.Life, *s.id.Load())
	case next.State == driver.Released:
		st, args = at.sql.release, append(valuesOf(next), prev.Version, int64(prev.Token), prev.Life)
	default:
		args = append(args, prev.Life)
	}
	a := s.replace(ctx, at, st, prev, args, driver.Wakes(prev, next))
	switch {
	case a.err != nil:
		return driver.Record{}, a.err
	case a.changed == 0:
		return driver.Record{}, s.conflict(ctx, at, prev, next, raises)
	}
	next = s.shown(next, a.life())
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
	args := []any{prev.Key, prev.Version, int64(prev.Token)}
	if s.guard != nil {
		args = append(args, prev.Life)
	}
	a := s.replace(ctx, at, at.sql.remove, prev, args, true)
	if a.err != nil || a.changed > 0 {
		return a.err
	}
	err = s.conflict(ctx, at, prev, prev, false)
	if conflict, ok := err.(*driver.ConflictError); ok && (conflict.Absent || conflict.Current.Token == 0) { //nolint:errorlint // it is not wrapped
		return nil
	}
	return err
}

// replace runs a statement that replaces the version and token of prev. It changes nothing if they are not there.
func (s *Store) replace(ctx context.Context, at *place, st *statement, prev driver.Record, args []any, wakes bool) answer {
	if prev.Token > driver.MaxToken {
		return answer{}
	}
	changed := ""
	if wakes && !at.foreign {
		changed = prev.Key
	}
	return s.ask(ctx, st, args, changed)
}

// conflict returns the conflict of a write that has not been applied, with what is there by now, after a second
// request; or why a guarded store has refused it.
func (s *Store) conflict(ctx context.Context, at *place, prev, next driver.Record, raises bool) error {
	r, err := s.look(ctx, next.Key, looking)
	if err != nil {
		return driver.NotApplied(err)
	}
	return s.refused(ctx, at, &r, prev, next, raises)
}
