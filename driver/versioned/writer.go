// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package versioned

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// maxTries bounds how often one call writes, each time after the engine has said that the
// record differs from the call's assumption, if the store sets no other bound.
const maxTries = 3

// Step is what a write makes of a state.
type Step struct {
	Record driver.Record // the new one; for a removal only its key
	Prev   driver.Record // the caller's record that a Swap replaces
	Claim  bool          // it is a Claim
	Wakes  bool          // waiters must see the change
	Remove bool          // the record is removed
}

// Writer makes the writes of a store. Known, Ready, Read and Write are required.
type Writer[S State[S]] struct {
	// Known is the memory of the store.
	Known *Memory[S]
	// Ready returns an error if a call cannot begin: the store is closed, or ctx is over.
	Ready func(ctx context.Context) error
	// Read reads the state of key, as new as all that was confirmed before.
	Read func(ctx context.Context, key string) (S, error)
	// Write makes a step, if the record is still in the state. It returns the new state,
	// or true and the state that it has found instead. Its error is marked with what is
	// certain.
	Write func(ctx context.Context, key string, was S, step Step) (is S, missed bool, err error)
	// Usable reports whether a claim can begin with a released record as the memory has
	// it. Nil means that it always can.
	Usable func(S) bool
	// Refuse returns the error of a record that the store never writes. Nil refuses none.
	Refuse func(next driver.Record) error
	// LookFirst has a claim read a record first if the memory cannot be used, where
	// Write needs one more request to return what it has found.
	LookFirst bool
	// LookUnseen has the claim of a lock read a record that the memory does not have. Other
	// claims, of a session or a part of the history, are new keys, which are assumed to be
	// absent.
	LookUnseen bool
	// Tries is how often one call writes at most: 3 times if zero.
	Tries int
}

// Claim implements [driver.Store]. It assumes that a key without a known state is absent.
func (w *Writer[S]) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := w.check(next, driver.CheckClaim(next)); err != nil {
		return now, prev, err
	}
	next = next.Detach()
	var absent S
	begin, ok := w.Known.Of(next.Key)
	look := !ok && w.LookUnseen && next.State == driver.Held
	if rec := begin.View().Record; ok && (rec.State != driver.Released || rec.Token >= driver.MaxToken || w.Usable != nil && !w.Usable(begin)) {
		begin, look = absent, w.LookFirst // it is held, or more of it is needed
	}
	err = w.change(ctx, next.Key, begin, look, func(is View) (Step, error) {
		switch {
		case is.Found && is.Record.State != driver.Released:
			return Step{}, &driver.ConflictError{Key: next.Key, Current: is.Record}
		case max(is.Record.Token, is.Kept) >= driver.MaxToken:
			return Step{}, driver.Unsupported(fmt.Errorf("claim of %q: token %d cannot rise", next.Key, max(is.Record.Token, is.Kept)))
		}
		prev = is.Record
		now = driver.Claimed(next, prev, is.Found)
		if !is.Found {
			now.Token += is.Kept
		}
		return Step{Record: now, Claim: true}, nil
	})
	if err != nil {
		return driver.Record{}, driver.Record{}, err
	}
	return now.Clone(), prev.Clone(), nil // Claimed has them share Data, and memory has prev
}

// Swap implements [driver.Store].
func (w *Writer[S]) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return w.swap(ctx, prev, next, driver.CheckSwap(prev, next))
}

// Raise implements [driver.Raiser].
func (w *Writer[S]) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return w.swap(ctx, prev, next, driver.CheckRaise(prev, next))
}

func (w *Writer[S]) swap(ctx context.Context, prev, next driver.Record, wrong error) (driver.Record, error) {
	if err := w.check(next, wrong); err != nil {
		return driver.Record{}, err
	}
	next = next.Detach()
	if err := w.changeFrom(ctx, prev, Step{Record: next, Prev: prev, Wakes: driver.Wakes(prev, next)}); err != nil {
		return driver.Record{}, err
	}
	return next.Clone(), nil
}

// check returns an error if a step is invalid, or the store refuses it.
func (w *Writer[S]) check(next driver.Record, wrong error) error {
	if wrong == nil && w.Refuse != nil {
		return w.Refuse(next)
	}
	return wrong
}

// Delete implements [driver.Store].
func (w *Writer[S]) Delete(ctx context.Context, prev driver.Record) error {
	err := w.changeFrom(ctx, prev, Step{Record: driver.Record{Key: prev.Key}, Remove: true})
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return err
}

// changeFrom is change for a write that replaces a certain version and token.
func (w *Writer[S]) changeFrom(ctx context.Context, prev driver.Record, step Step) error {
	begin, ok := w.Known.Of(prev.Key)
	seen := begin.View().Record
	look := !ok || seen.Version != prev.Version || seen.Token != prev.Token
	return w.change(ctx, prev.Key, begin, look, func(is View) (Step, error) {
		switch {
		case !is.Found && is.Kept != 0 && prev.Version == "" && is.Kept == prev.Token && !step.Remove:
			// The raise of a lock without a record, whose token is kept.
		case !is.Found:
			return Step{}, &driver.ConflictError{Key: prev.Key, Absent: true}
		case is.Record.Version != prev.Version || is.Record.Token != prev.Token:
			return Step{}, &driver.ConflictError{Key: prev.Key, Current: is.Record}
		}
		return step, nil
	})
}

// change writes what decide returns, if the record is still in the state that decide
// was given. It may begin with a guess, for which decide must return a write: the
// guess is not a state that the engine has shown. With look it reads first.
func (w *Writer[S]) change(ctx context.Context, key string, is S, look bool, decide func(View) (Step, error)) error {
	err := w.Ready(ctx)
	if err == nil && look {
		is, err = w.Read(ctx, key)
	}
	if err != nil {
		return driver.NotApplied(err)
	}
	most := w.Tries
	if most == 0 {
		most = maxTries
	}
	for try := 1; ; try++ {
		view := is.View()
		if view.Err != nil {
			return driver.NotApplied(driver.Permanent(view.Err))
		}
		step, err := decide(view)
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) {
			return err // which says by itself that nothing was written
		}
		if err != nil {
			return driver.NotApplied(err)
		}
		if try > most {
			// Others have changed it each time. The record may be free again.
			return &driver.ConflictError{Key: key, Current: view.Record, Absent: !view.Found}
		}
		missed := false
		if is, missed, err = w.Write(ctx, key, is, step); err != nil {
			w.Known.Forget(key)
			return err
		}
		w.Known.Note(key, is)
		if !missed {
			return nil
		}
	}
}
