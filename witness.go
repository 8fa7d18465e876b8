// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
)

// witness is the store as a client sees it. It remembers whether the store has
// ever given this client a good answer.
//
// "Permanent" needs a witness. A table that is not there, or a key that is wrong,
// is found when a process begins: nothing has ever worked. What fails after that is
// an incident: a policy that somebody edits, a key that is rotated, one answer
// among millions that is simply wrong. A candidate that gives up then does not come
// back when the incident has passed, and nobody leads. So after the first good
// answer a permanent error is shown to everything above as an ordinary failure,
// which is reported, and the store is asked again for as long as patience lasts.
//
// A store that others do not find under its name any more is no incident, whatever
// it has answered before. From then on nothing is sent to it.
type witness struct {
	store    driver.Store
	batch    driver.BatchGetter // nil if the store cannot read many at once
	raiser   driver.Raiser      // nil if it cannot raise tokens
	lister   driver.TokenLister // nil if it keeps none of deleted locks
	answered atomic.Bool
	replaced atomic.Pointer[replacement]
	end      func(error) // ends all that rests on the store
}

// replacement is how it is known that the store was replaced.
type replacement struct{ err error }

func newWitness(store driver.Store, end func(error)) *witness {
	w := &witness{store: store, end: end}
	w.batch, _ = store.(driver.BatchGetter)
	w.raiser, _ = store.(driver.Raiser)
	w.lister, _ = store.(driver.TokenLister)
	return w
}

// gone returns how it is known that the store was replaced, nil if it was not.
func (w *witness) gone() error {
	if r := w.replaced.Load(); r != nil {
		return r.err
	}
	return nil
}

// before returns an error if nothing may be sent any more.
func (w *witness) before() error { return driver.NotApplied(w.gone()) }

// judge says what the error of a call means for this client.
func (w *witness) judge(err error) error {
	var conflict *driver.ConflictError
	switch {
	case err == nil, errors.Is(err, driver.ErrNotFound), errors.As(err, &conflict):
		if !w.answered.Load() {
			w.answered.Store(true)
		}
		return err
	case errors.Is(err, driver.ErrReplaced):
		w.replace(err)
		return err
	case !w.answered.Load(), !errors.Is(err, driver.ErrPermanent), errors.Is(err, errors.ErrUnsupported):
		return err
	}
	return &incident{err}
}

// replace notes that the store was replaced. The first error stays.
func (w *witness) replace(err error) {
	if w.replaced.CompareAndSwap(nil, &replacement{err}) {
		w.end(err)
	}
}

func (w *witness) Get(ctx context.Context, key string, how driver.Consistency) (rec driver.Record, err error) {
	if err = w.before(); err == nil {
		rec, err = w.store.Get(ctx, key, how)
		err = w.judge(err)
	}
	return rec, err
}

func (w *witness) GetBatch(ctx context.Context, keys []string, how driver.Consistency) (found []driver.Lookup, err error) {
	if err = w.before(); err != nil {
		return nil, err
	}
	found, err = w.batch.GetBatch(ctx, keys, how)
	err = w.judge(err)
	for i, f := range found {
		if f.Err != nil {
			found[i].Err = w.judge(f.Err)
		}
	}
	return found, err
}

// review reads tenures from the history, in one request where the store can. One that
// is not there, or that nobody can read, is zero.
func (w *witness) review(ctx context.Context, keys []string) ([]driver.Record, error) {
	past := make([]driver.Record, len(keys))
	found := make([]driver.Lookup, len(keys))
	if w.batch != nil {
		var err error
		if found, err = w.GetBatch(ctx, keys, driver.Strong); err == nil && len(found) != len(keys) {
			err = fmt.Errorf("the store answered %d of %d reads", len(found), len(keys))
		}
		if err != nil {
			return nil, err
		}
	} else {
		var all sync.WaitGroup
		for i, key := range keys {
			all.Go(func() { found[i].Record, found[i].Err = w.Get(ctx, key, driver.Strong) })
		}
		all.Wait()
	}
	for i, f := range found {
		switch {
		case f.Err == nil:
			past[i] = f.Record
		case !errors.Is(f.Err, driver.ErrNotFound) && !errors.Is(f.Err, driver.ErrUnreadable):
			return nil, f.Err
		}
	}
	return past, nil
}

func (w *witness) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err = w.before(); err == nil {
		now, prev, err = w.store.Claim(ctx, next)
		err = w.judge(err)
	}
	return now, prev, err
}

func (w *witness) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	if err = w.before(); err == nil {
		now, err = w.store.Swap(ctx, prev, next)
		err = w.judge(err)
	}
	return now, err
}

func (w *witness) Raise(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	if err = w.before(); err == nil {
		now, err = w.raiser.Raise(ctx, prev, next)
		err = w.judge(err)
	}
	return now, err
}

func (w *witness) ListTokens(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	if err = w.before(); err == nil {
		page, err = w.lister.ListTokens(ctx, prefix, cursor)
		err = w.judge(err)
	}
	return page, err
}

func (w *witness) Delete(ctx context.Context, prev driver.Record) (err error) {
	if err = w.before(); err == nil {
		err = w.judge(w.store.Delete(ctx, prev))
	}
	return err
}

func (w *witness) List(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	if err = w.before(); err == nil {
		page, err = w.store.List(ctx, prefix, cursor)
		err = w.judge(err)
	}
	return page, err
}

// incident is an error that the store calls permanent, for a client to which it has
// given good answers before. It is all that the store's error is, but permanent.
type incident struct{ err error }

func (e *incident) Error() string { return e.err.Error() }

func (e *incident) Is(target error) bool {
	return target != driver.ErrPermanent && errors.Is(e.err, target)
}

func (e *incident) As(target any) bool { return errors.As(e.err, target) }

// news says whether an error of the store is worth an event at once. A store that
// was busy for a moment is not; one that stays so is.
func news(err error) bool {
	var passing *incident
	return err != nil && (!errors.Is(err, driver.ErrNotApplied) || errors.As(err, &passing))
}
