// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// How a tenure ended, in [Tenure.End].
const (
	EndReleased    = string(driver.EndReleased)    // its holder released the lock
	EndExpired     = string(driver.EndExpired)     // it showed no life for its lease; another one took over
	EndSteppedDown = string(driver.EndSteppedDown) // it was asked to stop
	EndHandedOver  = string(driver.EndHandedOver)  // it was asked to make way for another one
	EndStalled     = string(driver.EndStalled)     // its work showed no progress
	EndStopTimeout = string(driver.EndStopTimeout) // its work did not stop in time
	EndAbandoned   = string(driver.EndAbandoned)   // its acquire was given up; nothing was done under it
	EndFreed       = string(driver.EndFreed)       // dead, and released by an operator
	EndRevoked     = string(driver.EndRevoked)     // taken from it by an operator
	EndFailed      = string(driver.EndFailed)      // released by its holder, whose work had failed
	EndCrashed     = string(driver.EndCrashed)     // its process had ended for certain
)

// Tenure is one holder's time with a lock, from grant to end.
type Tenure struct {
	Owner       string
	Token       uint64
	Host, Label string
	// Since and Until are by the wall clock of the holder. Until is zero while
	// it goes on, and where nobody can know it: of a holder that crashed it is
	// known only that it had stopped when the next tenure began.
	Since, Until time.Time
	// End says how it ended, empty while it goes on.
	End string
	// Request is what it was asked, by whom and why, if it was: what ended it,
	// or, if it crashed, what it did not answer.
	Request *Request
	// Unknown says that there was a tenure under this token of which nothing is
	// known but that: its holder and the next one crashed before they had
	// written it down; or, at the end of the list, the lock had no history yet,
	// or it is not kept any more.
	Unknown bool
}

func tenureOf(t *driver.Tenure) Tenure {
	return Tenure{
		Owner: t.Owner, Token: t.Token, Host: t.Host, Label: t.Label,
		Since: t.Since, Until: t.Until, End: string(t.End), Request: requestOf(t.Asked),
	}
}

// The history of a lock is kept in records of their own, one for each tenure
// that has ended, under a key made of lock and token. Nobody knows how a tenure
// ends before it has, and who crashes does not write: so it is the successor
// that writes the record of the tenure before its own, from what its grant
// showed, before it begins its work. One that crashes before it has done so
// leaves the end of its predecessor in its own record, from which the one after
// it completes the history. Two such crashes in a row leave a hole.

func historyKey(lock string, token uint64) string {
	return fmt.Sprintf("%shistory/%s/%019d", driver.OwnPrefix, lock, token)
}

// record writes the history before the work begins. It waits for one request
// timeout; what is not written by then is tried again beside the work.
func (l *Lease) record(ctx context.Context) error {
	if len(l.past) == 0 || l.c.options.HistoryLimit < 0 {
		return nil
	}
	l.c.chronicle(ctx, l.key, l.past)
	if errors.Is(l.Check(), ErrLost) {
		// Paused meanwhile. The work has not begun.
		l.free()
		return ErrExpired
	}
	return nil
}

// chronicle writes tenures into the history of a lock. It waits for one request
// timeout, or until ctx ends, and goes on beside.
func (c *Client) chronicle(ctx context.Context, lock string, past []driver.Tenure) {
	written := c.note(lock, past)
	timer := time.NewTimer(c.options.RequestTimeout)
	defer timer.Stop()
	for range past {
		select {
		case <-written:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-c.gone:
			return
		}
	}
}

// note begins to write tenures into the history of a lock. Each is told of once
// it is written.
func (c *Client) note(lock string, past []driver.Tenure) <-chan struct{} {
	written := make(chan struct{}, len(past))
	for _, t := range past {
		e := &entryWrite{c: c, lock: lock, tenure: t, written: written}
		e.run = func(time.Duration) { e.send() }
		e.send()
	}
	return written
}

// maxEntryTries bounds how often the writing of one tenure is tried. With the
// pauses between the tries that is a few leases.
const maxEntryTries = 20

// entryWrite writes one tenure into the history.
type entryWrite struct {
	entry
	c       *Client
	lock    string
	tenure  driver.Tenure
	version string // of the record
	tries   int
	written chan<- struct{} // has room
}

func (e *entryWrite) send() {
	t := e.tenure
	if e.version == "" {
		e.version = e.c.env.Fresh() // a delete that comes late removes this tenure alone
	}
	rec := driver.Record{
		Key: historyKey(e.lock, t.Token), Version: e.version, Beat: e.version, State: driver.Past,
		Owner: t.Owner, Host: t.Host, Label: t.Label, Since: t.Since, Until: t.Until,
		End: t.End, Asked: t.Asked, Lease: e.c.timing.Lease,
	}
	e.c.requests.send(unhurried, request{
		kind: protocol.Claim,
		ask: func(ctx context.Context) (now, prev driver.Record, err error) {
			return e.c.store.Claim(ctx, rec)
		},
		answer: e.answered,
	})
}

func (e *entryWrite) answered(res protocol.Result) {
	old := res.Record
	switch {
	case res.Outcome == protocol.Conflicted && res.Found && old.State == driver.Past &&
		(old.Owner != e.tenure.Owner || !old.Since.Equal(e.tenure.Since)) && e.tries < maxEntryTries:
		// Of another tenure under the same token: the lock's record was deleted
		// since, and the tokens have begun again.
		e.tries++
		e.delete(old, func() { e.send() })
		return
	case res.Outcome == protocol.Applied, res.Outcome == protocol.Conflicted: // somebody else has written it
		e.written <- struct{}{}
		e.trim()
		return
	case e.tries == maxEntryTries, errors.Is(res.Err, driver.ErrPermanent), errors.Is(res.Err, driver.ErrClosed):
		e.c.events.emit(Event{Kind: EventStoreError, Lock: e.lock, Token: e.tenure.Token, Err: fmt.Errorf("history of token %d is not written: %w", e.tenure.Token, res.Err)})
		return
	}
	e.tries++
	e.c.looks.set(&e.entry, e.c.clock.Contender()+e.c.timing.Lease/10)
}

// trim removes the tenure that is one too many now. If that fails it stays, and
// is not shown.
func (e *entryWrite) trim() {
	limit := uint64(e.c.options.HistoryLimit)
	if e.tenure.Token <= limit {
		return
	}
	e.c.get(historyKey(e.lock, e.tenure.Token-limit), driver.Eventual, func(res protocol.Result) {
		if res.Found && res.Record.State == driver.Past {
			e.delete(res.Record, func() {})
		}
	})
}

// delete removes a record of the history, if it can, and goes on.
func (e *entryWrite) delete(old driver.Record, next func()) {
	e.c.requests.send(unhurried, request{
		kind: protocol.Free,
		ask: func(ctx context.Context) (now, prev driver.Record, err error) {
			return now, prev, e.c.store.Delete(ctx, old)
		},
		answer: func(protocol.Result) { next() },
	})
}

// History returns who held the lock, from when to when, and how it ended, the
// newest tenure first, the present one included: [Options.HistoryLimit] of them
// at most. It is empty if the lock was never taken.
//
// Tenures are in the order of their tokens, whatever the wall clocks of their
// holders say. Under a lock without a history, only the latest two are known.
// One that is missing between others is Unknown.
func (c *Client) History(ctx context.Context, name string) ([]Tenure, error) {
	if err := checkKey(name); err != nil {
		return nil, wrap("history", name, err)
	}
	s, err := c.look(ctx, name)
	if err != nil {
		return nil, wrap("history", name, err)
	}
	if !s.found {
		return nil, nil
	}
	list := present(s.rec)
	oldest := list[len(list)-1].Token
	if err := c.lengthen(ctx, name, s.rec.Prev, &list[len(list)-1]); err != nil {
		return nil, wrap("history", name, err)
	}
	limit := uint64(max(0, c.options.HistoryLimit))
	from := oldest - 1
	to := from - min(from, limit-min(limit, uint64(len(list))))
	past, err := c.past(ctx, name, from, to)
	if err != nil {
		return nil, wrap("history", name, err)
	}
	if slices.ContainsFunc(past, func(t Tenure) bool { return !t.Unknown }) {
		list = append(list, past...)
	}
	return list, nil
}

// HolderAt returns who of a history held the lock at a time, by the wall clocks
// of the holders: ok is false if nobody did. Certain is false if that cannot be
// told for sure: because the holder crashed, and may have been dead already; or
// because what was then is unknown, or older than the history.
func HolderAt(history []Tenure, at time.Time) (t Tenure, ok, certain bool) {
	hole := false // between this tenure and the one after it
	for _, t := range history {
		if t.Unknown || t.Since.IsZero() {
			hole = true
			continue
		}
		if t.Since.After(at) {
			hole = false
			continue
		}
		switch {
		case t.End == "", at.Before(t.Until):
			return t, true, true
		case t.Until.IsZero():
			return t, true, false
		}
		return Tenure{}, false, !hole
	}
	first := len(history) == 0 || history[len(history)-1].Token == 1
	return Tenure{}, false, first && !hole
}

// present returns what the record of a lock itself tells, the newest first.
func present(rec driver.Record) []Tenure {
	var list []Tenure
	if rec.State != driver.Reserved {
		t := tenureOf(rec.Tenure(rec.End))
		if rec.State == driver.Held && len(rec.Requests) == 0 {
			t.Request = nil
		}
		list = append(list, t)
	}
	switch {
	case rec.Prev != nil:
		list = append(list, tenureOf(rec.Prev))
	case rec.State == driver.Reserved:
		list = append(list, Tenure{Token: rec.Token, Unknown: true})
	}
	return list
}

// lengthen puts the whole of a tenure in the place of what the record of its
// successor kept of it, if that is less.
func (c *Client) lengthen(ctx context.Context, name string, prev *driver.Tenure, last *Tenure) error {
	if prev == nil || prev.Asked == nil || len(prev.Asked.Reason) < driver.MaxPrevReasonLen-utf8.UTFMax || prev.Token == 0 {
		return nil
	}
	found, err := c.past(ctx, name, prev.Token, prev.Token-1)
	if err != nil {
		return err
	}
	if t := found[0]; !t.Unknown && t.Owner == last.Owner && t.Since.Equal(last.Since) {
		*last = t
	}
	return nil
}

// past reads the tenures with the tokens from, from-1, ... down to above to.
func (c *Client) past(ctx context.Context, name string, from, to uint64) ([]Tenure, error) {
	list := make([]Tenure, from-to)
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = historyKey(name, from-uint64(i))
	}
	found, err := c.readAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, f := range found {
		token := from - uint64(i)
		list[i] = Tenure{Token: token, Unknown: true}
		switch {
		case errors.Is(f.Err, driver.ErrNotFound), errors.Is(f.Err, driver.ErrUnreadable):
		case f.Err != nil:
			errs = append(errs, f.Err)
		case f.Record.State == driver.Past:
			t := f.Record.Tenure(f.Record.End)
			t.Token = token
			list[i] = tenureOf(t)
		}
	}
	return list, errors.Join(errs...)
}

// readAll reads many records, in few requests where the store can do that.
func (c *Client) readAll(ctx context.Context, keys []string) ([]driver.Lookup, error) {
	if c.store.batch != nil && len(keys) > 0 {
		return c.readBatch(ctx, keys)
	}
	const atOnce = 8
	found := make([]driver.Lookup, len(keys))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, key := range keys {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return nil, done(ctx)
		}
		all.Go(func() {
			defer func() { <-places }()
			found[i].Record, found[i].Err = c.read(ctx, key)
		})
	}
	all.Wait()
	return found, nil
}

func (c *Client) readBatch(ctx context.Context, keys []string) ([]driver.Lookup, error) {
	var found []driver.Lookup
	answer := make(chan protocol.Result, 1)
	c.requests.send(unhurried, request{
		kind: protocol.Look,
		ask: func(ctx context.Context) (rec, former driver.Record, err error) {
			found, err = c.store.GetBatch(ctx, keys, driver.Strong)
			if err == nil && len(found) != len(keys) {
				err = fmt.Errorf("the store answered %d of %d reads", len(found), len(keys))
			}
			return rec, former, err
		},
		answer: func(res protocol.Result) { answer <- res },
	})
	if _, err := c.answered(ctx, answer); err != nil {
		return nil, err // found may still be written to
	}
	return found, nil
}

// read reads one record. It waits as look does.
func (c *Client) read(ctx context.Context, key string) (driver.Record, error) {
	answer := make(chan protocol.Result, 1)
	c.get(key, driver.Strong, func(res protocol.Result) { answer <- res })
	res, err := c.answered(ctx, answer)
	if err == nil && !res.Found {
		err = driver.ErrNotFound
	}
	return res.Record, err
}

// History returns the tenures of the election: see [Client.History].
func (e *Election) History(ctx context.Context) ([]Tenure, error) { return e.c.History(ctx, e.name) }
