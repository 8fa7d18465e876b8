// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tenurelock/tenure/driver"
)

// yes is a truth for a script.
func yes(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// opens are the two arguments of a script for the life that a write may open.
func opens(o driver.Opening) (life, base string) {
	return o.Life, tokenText(min(o.Base, driver.MaxToken))
}

// check returns an error if the store cannot have a record. For a released one nobody waits: it may be as shown
// in a closed life, with [Store.Waits] as its lease.
func (s *Store) check(next driver.Record, err error) error {
	if err == nil && s.longest > 0 && next.Lease > s.longest && next.State != driver.Released {
		err = driver.Unsupported(fmt.Errorf("redis: write of %q with a lease of %v: the longest of this store is %v: "+
			"create a store for a longer one, by Options.Lease or lease= in the URL", next.Key, next.Lease, s.longest))
	}
	return err
}

// shown is next as the store returns it.
func shown(next driver.Record, life string) driver.Record {
	next.Life, next.Opens = life, driver.Opening{}
	return next
}

// Claim writes next if its key is absent or released, in one request. The first claim of a lock in a life
// of the engine takes two, and raises its token.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := s.check(next, driver.CheckClaim(next)); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	life, base := opens(next.Opens)
	a, err := s.call(ctx, &claimLua, s.keys(next.Key), life, base, yes(next.State == driver.Held),
		next.Version, stateOf(next), textOf(next), next.Key, yes(next.Data != nil), string(next.Data))
	if err != nil {
		return now, prev, err
	}
	prev, found, err := a.current(next.Key)
	switch {
	case a.word != "done":
		return now, driver.Record{}, s.refused(ctx, a, next, prev, found, err)
	case err != nil:
		return now, driver.Record{}, err
	}
	now = shown(driver.Claimed(next, prev, found), a.life)
	return now.Clone(), prev, nil
}

// Swap replaces prev by next if the stored version and token are those of prev, in one request.
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
	next = next.Detach()
	life, base := opens(next.Opens)
	// Data that stay are not sent again. A prev without a state was not read, and its data mean nothing.
	keeps := prev.State != "" && bytes.Equal(prev.Data, next.Data)
	data, wakes := "", ""
	if !keeps {
		data = string(next.Data)
	}
	if driver.Wakes(prev, next) {
		wakes = s.key("wake")
	}
	args := append([]string{life, base, yes(next.Token > prev.Token)}, replacement(prev, next)...)
	a, err := s.call(ctx, &swapLua, s.keys(next.Key), append(args, yes(!keeps), data, wakes, prev.Life)...)
	switch {
	case err != nil:
		return driver.Record{}, err
	case a.word == "done":
		return shown(next, a.life).Clone(), nil
	}
	current, found, err := a.current(next.Key)
	return driver.Record{}, s.refused(ctx, a, next, current, found, err)
}

// replacement are the arguments of a script that replaces prev by next.
func replacement(prev, next driver.Record) []string {
	return []string{
		prev.Version, tokenText(prev.Token), next.Version, tokenText(next.Token),
		stateOf(next), textOf(next), prevOf(next), briefOf(next), next.Key,
	}
}

// refused returns the error of a write that a script has refused. Current is the stored record.
func (s *Store) refused(ctx context.Context, a answer, next, current driver.Record, found bool, err error) error {
	switch {
	case err != nil:
		return driver.NotApplied(err)
	case a.word == "unreadable":
		return driver.NotApplied(unreadable(next.Key, errors.New("its fields contradict each other")))
	case a.word == "max":
		return driver.Unsupported(fmt.Errorf("redis: claim of %q: token %d cannot rise", next.Key, current.Token))
	case a.word == "ended":
		current.State, current.End, current.Requests = driver.Closed, driver.EndExpired, nil
	case a.word == "closed":
		current, found = s.inClosedLife(next.Key, current, found, a.life)
	case a.word == "below":
		return s.raise(ctx, a, next, current)
	case a.word != "conflict":
		return fmt.Errorf("redis: an answer %.40q cannot be understood", a.word)
	}
	return &driver.ConflictError{Key: next.Key, Current: current, Absent: !found}
}

// raise raises the token of a lock, absent (a zero record) or not, to the base of the life, before next may raise
// it. That is a second request, which other processes may come before. Whatever becomes of it, next was not written.
func (s *Store) raise(ctx context.Context, a answer, next, current driver.Record) error {
	base := ""
	if len(a.rest) > 1 {
		base, _ = a.rest[1].ToString()
	}
	least, err := strconv.ParseUint(base, 10, 64)
	if err != nil {
		return driver.NotApplied(fmt.Errorf("redis: the base of the tokens is %.30q: %w", base, err))
	}
	raised := driver.RaisedAtOpening(current, next, a.life, least)
	b, err := s.call(ctx, &raiseLua, s.keys(next.Key),
		append([]string{a.life, base, ""}, replacement(current, raised)...)...)
	if err != nil {
		return driver.NotApplied(fmt.Errorf("the token of %q must be raised first, since the server may have lost writes: %w", next.Key, err))
	}
	if b.word == "done" {
		return &driver.ConflictError{Key: next.Key, Current: shown(raised, b.life).Detach()}
	}
	now, found, err := b.current(next.Key)
	switch {
	case err != nil:
		return driver.NotApplied(err)
	case b.word == "closed":
		now, found = s.inClosedLife(next.Key, now, found, b.life)
	}
	return &driver.ConflictError{Key: next.Key, Current: now, Absent: !found}
}

// Delete removes the record of prev's key if its version and token are those of prev, in one request.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	a, err := s.call(ctx, &deleteLua, s.keys(prev.Key), prev.Version, tokenText(prev.Token), prev.Key, s.key("wake"), prev.Life)
	if err != nil || a.word == "done" {
		return err
	}
	current, found, err := a.current(prev.Key)
	if err == nil && !found {
		return nil
	}
	return s.refused(ctx, a, prev, current, found, err)
}
