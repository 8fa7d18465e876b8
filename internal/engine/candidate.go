// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Candidate follows a lock that its caller wants to take, without a waiting acquire: it reads
// the lock, observes it while the caller waits, and tries to take it when the caller says so.
// It emits the same events as an acquire. It is for one goroutine.
type Candidate struct {
	k        *tracker
	timing   protocol.Timing
	patience time.Duration
	observer *Observer // nil before the first wait
	seen     Snapshot
	looks    int           // reads of the observer that were noted
	failed   error         // the error of the latest read
	silent   time.Duration // since when the store has given no answer, if failed is not nil
	reported uint64        // the token of the last holder that an event has reported
	asking   *asking       // the latest request for a hand-over, or nil
}

// Candidate begins to follow a lock. patience is how long the store may give no answer, 0
// for ever.
func (c *Client) Candidate(key string, t protocol.Timing, patience time.Duration) (*Candidate, error) {
	k, err := c.tracker(key)
	if err != nil {
		return nil, err
	}
	return &Candidate{k: k, timing: t, patience: patience}, nil
}

// Close ends the candidate. A request that is already written stays.
func (n *Candidate) Close() {
	if n.asking != nil {
		n.asking.run.do(n.asking.m.GiveUp)
	}
	if n.observer != nil {
		n.observer.Close()
	}
	n.k.leave()
}

// Latest returns the latest state. fresh says that it was read since the candidate began. An
// error says that waiting is useless.
func (n *Candidate) Latest(ctx context.Context) (s Snapshot, fresh bool, err error) {
	if n.observer == nil {
		s, err := n.k.c.Status(ctx, n.k.key)
		n.seen, fresh = s, err == nil // the observer reports the error
	} else {
		n.seen, fresh, _ = n.observer.Latest()
		if err := n.answered(); err != nil {
			return n.seen, fresh, err
		}
	}
	switch rec := n.seen.Record; {
	case !fresh || !n.seen.Found:
	case !protocol.Readable(rec):
		return n.seen, fresh, Unreadable(rec)
	case rec.State == driver.Held && rec.Token != n.reported:
		n.reported = rec.Token
		n.k.c.events.emit(Event{
			Kind: EventWaiting, Lock: n.k.key, Owner: rec.Owner, Token: rec.Token, Remaining: n.seen.FreeIn,
			Own: n.k.c.owns(rec),
		})
	}
	return n.seen, fresh, nil
}

// answered notes the results of the polls of the lock.
func (n *Candidate) answered() error {
	k, c := n.k, n.k.c
	k.c.viewMu.Lock()
	looks, err := k.poller.Looks()
	k.c.viewMu.Unlock()
	if looks == n.looks {
		return nil
	}
	now := c.clock()
	if n.failed == nil {
		n.silent = now
	}
	n.looks, n.failed = looks, err
	if err == nil {
		c.events.answered()
		return nil
	}
	silence := now - n.silent
	if newsworthy(err) || silence >= n.timing.RequestTimeout {
		c.events.emit(Event{Kind: EventStoreError, Lock: k.key, Err: err})
	}
	if n.patience > 0 && silence >= n.patience || errors.Is(err, driver.ErrPermanent) || errors.Is(err, driver.ErrUnreadable) {
		return err
	}
	return nil
}

// Failed emits an event for a failed read of the history.
func (n *Candidate) Failed(err error) { n.k.c.events.storeFailed(n.k.key, 0, err) }

var errDue = errors.New("something is due")

// Wait waits until the state may have changed, or until the given time, if that is not
// zero. If ctx ends, the error is that of an acquire.
func (n *Candidate) Wait(ctx context.Context, until time.Time) error {
	if n.observer == nil {
		o, err := n.k.c.Observe(n.k.key)
		n.observer = o
		return err
	}
	polls := false // more often than the client's observers
	if refresh := n.timing.Refresh; refresh < n.k.c.timing.Refresh {
		if poll := time.Now().Add(refresh); until.IsZero() || poll.Before(until) {
			until, polls = poll, true
		}
	}
	bound, stop := ctx, func() {}
	if !until.IsZero() {
		bound, stop = context.WithDeadlineCause(ctx, until, errDue)
	}
	defer stop()
	err := n.observer.Wait(bound, n.seen)
	switch {
	case errors.Is(err, errDue):
		if polls {
			_, _ = n.k.c.Status(ctx, n.k.key) // the observer reports the error
		}
		return nil
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case n.failed != nil:
		return &waitError{err, n.failed}
	case n.seen.FreeIn > 0:
		return &waitError{err, n.Held()}
	}
	return err
}

// Held returns the error for a lock that is held as Latest has shown it.
func (n *Candidate) Held() error { return n.k.c.heldBy(n.seen.Record, n.seen.FreeIn) }

// Try tries to take the lock as Latest has shown it. If another term has begun meanwhile, the
// error says that the lock is held. waited is how long the caller has waited for the lock.
func (n *Candidate) Try(ctx context.Context, o AcquireOptions, waited time.Duration) (*LeaseHolder, error) {
	of := n.seen.Record
	o.Want.Try, o.Want.ViewFresh, o.Want.Observed, o.Waited = true, true, &of, waited
	return n.k.c.Acquire(ctx, o)
}

// RequestDue returns how long to wait before asking the holder to hand over to this client, and
// false if the client has no higher priority or must not ask.
func (n *Candidate) RequestDue(priority int) (time.Duration, bool) {
	k := n.k
	k.c.viewMu.Lock()
	defer k.c.viewMu.Unlock()
	at, ok := k.view.RequestDue(priority, n.timing.Lease)
	return at - k.c.clock(), ok
}

// Prefer asks the holder to hand over, and does not wait for the answer.
func (n *Candidate) Prefer(priority int) {
	k := n.k
	k.c.viewMu.Lock()
	rec, _ := k.view.Record()
	k.view.NoteRequest(k.c.clock())
	k.c.viewMu.Unlock()
	if n.asking != nil {
		n.asking.run.do(n.asking.m.GiveUp)
	}
	n.asking = k.ask(protocol.Preferring(k.c.options.Owner, priority, rec))
}
