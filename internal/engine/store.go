// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// CheckedStore is the store as the client uses it. It remembers whether the store has
// ever given this client a good answer.
//
// An error counts as permanent only while the store has never worked. A missing table,
// or a wrong key, shows when a process begins. A failure after that is an incident: an
// edited policy, a rotated key, one wrong answer among millions. A candidate that gave
// up then would not come back after the incident, and there would be no leader. So
// after the first good answer, callers see a permanent error as an ordinary failure: it
// is reported, and the call is retried as long as patience lasts.
//
// A replaced store is no incident, whatever it has answered before. The client sends
// nothing more to it.
type CheckedStore struct {
	Store         driver.Store
	Batch         driver.BatchGetter   // nil if the store cannot read many at once
	Raiser        driver.Raiser        // nil if it cannot raise tokens
	TokenRetainer driver.TokenRetainer // nil if it keeps no tokens of deleted locks
	lives         *lives               // nil if the engine loses nothing
	answered      atomic.Bool
	replaced      atomic.Pointer[replacement]
	end           func(error) // ends everything that depends on the store
}

// replacement says how the client knows that the store was replaced.
type replacement struct{ err error }

// newCheckedStore wraps a store that the client has not called yet. The first reply that
// shows that the store was replaced calls end.
func newCheckedStore(store driver.Store, end func(error)) *CheckedStore {
	s := &CheckedStore{Store: store, end: end}
	s.Batch, _ = store.(driver.BatchGetter)
	s.Raiser, _ = store.(driver.Raiser)
	s.TokenRetainer, _ = store.(driver.TokenRetainer)
	return s
}

// Gone returns the error that shows that the store was replaced, or nil.
func (s *CheckedStore) Gone() error {
	if r := s.replaced.Load(); r != nil {
		return r.err
	}
	return nil
}

// Before returns an error if no call may be sent any more.
func (s *CheckedStore) Before() error { return driver.NotApplied(s.Gone()) }

// Judge returns what the error of a call means for this client.
func (s *CheckedStore) Judge(err error) error {
	switch {
	case showsAnswer(err):
		if !s.answered.Load() {
			s.answered.Store(true)
		}
		return err
	case errors.Is(err, driver.ErrReplaced):
		s.Replace(err)
		return err
	case !s.answered.Load(), !errors.Is(err, driver.ErrPermanent), errors.Is(err, errors.ErrUnsupported):
		return err
	}
	return &transientError{err}
}

// showsAnswer reports whether a call with that error has shown that the store answers.
func showsAnswer(err error) bool {
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		return true
	}
	var conflict *driver.ConflictError
	return errors.As(err, &conflict)
}

// Replace notes that the store was replaced. The first error stays.
func (s *CheckedStore) Replace(err error) {
	if s.replaced.CompareAndSwap(nil, &replacement{err}) {
		s.end(err)
	}
}

// Get calls the store's Get.
func (s *CheckedStore) Get(ctx context.Context, key string, how driver.Consistency) (rec driver.Record, err error) {
	if err = s.Before(); err == nil {
		rec, err = s.Store.Get(ctx, key, how)
		err = s.Judge(s.lives.saw(rec, err))
	}
	return rec, err
}

// GetBatch calls the store's GetBatch.
func (s *CheckedStore) GetBatch(ctx context.Context, keys []string, how driver.Consistency) (found []driver.Lookup, err error) {
	if err = s.Before(); err != nil {
		return nil, err
	}
	found, err = s.Batch.GetBatch(ctx, keys, how)
	err = s.Judge(err)
	for i, f := range found {
		if s.lives.saw(f.Record, f.Err) != nil {
			found[i].Err = s.Judge(f.Err)
		}
	}
	return found, err
}

// Claim calls the store's Claim.
func (s *CheckedStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err = s.Before(); err == nil {
		now, prev, err = s.Store.Claim(ctx, s.lives.opens(next))
		err = s.Judge(s.lives.saw(now, err))
	}
	return now, prev, err
}

// Swap calls the store's Swap.
func (s *CheckedStore) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	if err = s.Before(); err == nil {
		now, err = s.Store.Swap(ctx, prev, s.lives.opens(next))
		err = s.Judge(s.lives.saw(now, err))
	}
	return now, err
}

// Raise calls the store's Raise.
func (s *CheckedStore) Raise(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	if err = s.Before(); err == nil {
		now, err = s.Raiser.Raise(ctx, prev, s.lives.opens(next))
		err = s.Judge(s.lives.saw(now, err))
	}
	return now, err
}

// ListTokens calls the store's ListTokens.
func (s *CheckedStore) ListTokens(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	if err = s.Before(); err == nil {
		page, err = s.TokenRetainer.ListTokens(ctx, prefix, cursor)
		err = s.Judge(err)
	}
	return page, err
}

// Delete calls the store's Delete.
func (s *CheckedStore) Delete(ctx context.Context, prev driver.Record) (err error) {
	if err = s.Before(); err == nil {
		err = s.Judge(s.Store.Delete(ctx, prev))
	}
	return err
}

// List calls the store's List.
func (s *CheckedStore) List(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	if err = s.Before(); err == nil {
		page, err = s.Store.List(ctx, prefix, cursor)
		err = s.Judge(err)
	}
	return page, err
}

// watch asks the store to call hint. The context bounds the set-up only.
func (c *Client) watch(ctx context.Context, key string, hint func()) (unwatch func(), err error) {
	if err := c.Store.Before(); err != nil {
		return nil, err
	}
	unwatch, err = c.watcher.Watch(ctx, key, hint)
	if err != nil {
		err = c.Store.Judge(err)
	}
	return unwatch, err
}

// unwatch ends a watch in the background: a store may take its time.
func (c *Client) unwatch(unwatch func()) {
	c.sendUnanswered(func(context.Context) error {
		unwatch()
		return nil
	})
}

// transientError wraps an error that the store calls permanent, after it has given the
// client good answers. It matches all that the store's error matches, except permanent.
type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }

func (e *transientError) Is(target error) bool {
	return target != driver.ErrPermanent && errors.Is(e.err, target)
}

func (e *transientError) As(target any) bool { return errors.As(e.err, target) }

// newsworthy says whether a store error is worth an event at once. A store that was
// busy for a moment is not; a store that stays busy is.
func newsworthy(err error) bool {
	var passing *transientError
	return err != nil && (!errors.Is(err, driver.ErrNotApplied) || errors.As(err, &passing))
}

// Call returns a machine's store call as a request whose answer goes to its caller.
func (s *CheckedStore) Call(call *protocol.Call, to caller) request {
	return &machineCall{s, call, to}
}

// machineCall is the store call of a machine.
type machineCall struct {
	store *CheckedStore
	*protocol.Call
	to caller
}

// Make implements [request].
func (q *machineCall) Make(ctx context.Context) (rec, former driver.Record, err error) {
	switch q.Kind {
	case protocol.Read:
		rec, err = q.store.Get(ctx, q.Key, q.Consistency)
	case protocol.Claim, protocol.HistoryPut:
		rec, former, err = q.store.Claim(ctx, q.Next)
	case protocol.Delete:
		err = q.store.Delete(ctx, q.Prev)
	default:
		rec, err = q.store.Swap(ctx, q.Prev, q.Next)
		former = q.Prev
	}
	return rec, former, err
}

// Answer implements [request].
func (q *machineCall) Answer(rec, former driver.Record, err error) {
	q.to.result(q.Call, protocol.ResultOf(q.Kind, rec, former, err))
}
