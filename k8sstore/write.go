// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenurelock/tenure/driver"
)

// maxTries bounds how often one call writes, each time after the API server has said that
// what the call had taken for the record is not so.
const maxTries = 3

// step is what a write makes of a state.
type step struct {
	rec    driver.Record
	wakes  bool
	remove bool
}

// errMissed says that a record does not stand as a write has it.
var errMissed = errors.New("the record has changed meanwhile")

// Claim writes next if its key is absent or released. Without knowledge of the key it
// takes it for absent.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	if err := s.refuse(next); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	begin, ok := s.known.of(next.Key)
	if ok && (begin.rec.State != driver.Released || begin.rec.Token >= driver.MaxToken || begin.parts != (parts{})) {
		begin.rev = unseen // it is held, or its data are needed
	}
	err = s.change(ctx, next.Key, begin, func(is *state) (step, error) {
		switch {
		case is.err != nil:
			return step{}, driver.Permanent(is.err)
		case is.found() && is.rec.State != driver.Released:
			return step{}, &driver.ConflictError{Key: next.Key, Current: is.rec}
		case is.found() && is.rec.Token >= driver.MaxToken:
			return step{}, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, is.rec.Token))
		}
		prev = is.rec
		now = driver.Claimed(next, prev, is.found())
		return step{rec: now}, nil
	})
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	return now.Clone(), prev.Clone(), nil // Claimed has them share Data, and memory has prev
}

// Swap replaces prev by next if the stored version and token are those of prev.
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
	if err := s.refuse(next); err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	if err := s.changeFrom(ctx, prev, step{rec: next, wakes: driver.Wakes(prev, next)}); err != nil {
		return driver.Record{}, err
	}
	return next.Clone(), nil
}

// Delete removes the record of prev's key if its version and token are those of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	err := s.changeFrom(ctx, prev, step{rec: driver.Record{Key: prev.Key}, remove: true})
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return err
}

// refuse returns an error if next is a session that lives, or a lock under one, where
// electors of client-go see it.
func (s *Store) refuse(next driver.Record) error {
	if !s.options.SharedLease || next.Session == "" && next.State != driver.Alive {
		return nil
	}
	return driver.Unsupported(fmt.Errorf("write of %q: the names of locks are shared with electors of client-go (SharedLease), "+
		"which take a lock whose own Lease nobody renews; take it without a session, or keep locks under sessions in a store without SharedLease", next.Key))
}

// guard returns an error if a write must not replace what another client has written.
func (s *Store) guard(is *state, do step) error {
	switch {
	case !is.foreign:
	case do.remove:
		return driver.Unsupported(fmt.Errorf("deletion of %q: another client has written Lease %s/%s, and with it the token would go; use kubectl", do.rec.Key, s.namespace, s.object(do.rec.Key)))
	case !s.shared(do.rec.Key):
		return driver.Unsupported(fmt.Errorf("write of %q: another client has written Lease %s/%s, whose name it does not share with Tenure: stop that client, and delete the Lease, or set SharedLease",
			do.rec.Key, s.namespace, s.object(do.rec.Key)))
	}
	return nil
}

// changeFrom is change for a write that replaces a certain version and token.
func (s *Store) changeFrom(ctx context.Context, prev driver.Record, do step) error {
	begin, ok := s.known.of(prev.Key)
	if !ok || begin.rec.Version != prev.Version || begin.rec.Token != prev.Token {
		begin.rev = unseen
	}
	return s.change(ctx, prev.Key, begin, func(is *state) (step, error) {
		switch {
		case is.err != nil:
			return step{}, driver.Permanent(is.err)
		case !is.found():
			return step{}, &driver.ConflictError{Key: prev.Key, Absent: true}
		case is.rec.Version != prev.Version || is.rec.Token != prev.Token:
			return step{}, &driver.ConflictError{Key: prev.Key, Current: is.rec}
		}
		return do, nil
	})
}

// unseen stands for the resourceVersion of a record of which nothing is known.
const unseen = "?"

// change writes what decide says, if the record is still in the state for which decide
// has said it. It may begin with a guess, for which decide has no other answer than a
// write: what the API server shows then is none.
func (s *Store) change(ctx context.Context, key string, is state, decide func(*state) (step, error)) error {
	if err := s.ready(ctx); err != nil {
		return driver.NotApplied(err)
	}
	look := is.rev == unseen
	for try := 1; ; try++ {
		if look {
			var err error
			if is, err = s.read(ctx, key, driver.Strong); err != nil {
				return driver.NotApplied(err)
			}
		}
		do, err := decide(&is)
		if err == nil {
			err = s.guard(&is, do)
		}
		if err != nil {
			return definite(err)
		}
		if try > maxTries {
			// Others have changed it each time. The record may be free again.
			return &driver.ConflictError{Key: key, Current: is.rec, Absent: !is.found()}
		}
		bound, done := s.bound(ctx)
		becomes, err := s.apply(bound, &is, do)
		done()
		switch {
		case err == nil:
			s.known.note(key, becomes)
			return nil
		case err != errMissed: //nolint:errorlint // ours
			s.known.forget(key)
			return err
		}
		look = true
	}
}

// definite marks an answer of decide as one after which nothing was written, unless it
// is a conflict, which says so itself.
func definite(err error) error {
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
		return err
	}
	return driver.NotApplied(err)
}

// apply takes a step, in one request that the API server makes depend on the state, and
// in more before and after it if there are parts.
func (s *Store) apply(ctx context.Context, is *state, do step) (state, error) {
	name := s.object(do.rec.Key)
	if do.remove {
		var old []string
		if is.parts != (parts{}) {
			old = append(s.partsOf(ctx, do.rec.Key), is.parts.names()...)
		}
		if err := s.calls.remove(ctx, leases, s.namespace, name, is.rev); err != nil {
			return state{}, s.missed(is, err)
		}
		s.dropParts(ctx, parts{}, old...)
		return state{}, nil
	}
	text, apart, written, old, err := s.lay(ctx, is, do.rec)
	if err != nil {
		return state{}, driver.NotApplied(err) // nothing names what it may have written
	}
	// The wall clock is for people alone: see specOf.
	change, becomes := s.encode(is, do.rec, text, apart, do.wakes, time.Now())
	var o v1.Lease
	if is.found() {
		err = s.calls.patch(ctx, leases, s.namespace, name, change, &o)
	} else {
		err = s.calls.create(ctx, leases, s.namespace, change, &o)
	}
	if err != nil {
		if err = s.missed(is, err); err == errMissed || errors.Is(err, driver.ErrNotApplied) { //nolint:errorlint // ours
			s.dropParts(ctx, parts{}, written.names()...)
		}
		return state{}, err
	}
	s.dropParts(ctx, apart, old...)
	becomes.rev = o.ResourceVersion
	return becomes, nil
}

// missed returns errMissed if the API server has said that the Lease does not stand as it
// was taken to, and else what is certain about the error.
func (s *Store) missed(is *state, err error) error {
	if mismatch(err) || is.found() && apierrors.IsNotFound(err) {
		return errMissed
	}
	return s.failed(err)
}
