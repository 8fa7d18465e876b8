// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// History returns the terms of the lock, the newest first, the present one
// included: who held it, from when to when, and how it ended. It returns
// [Options.HistoryLimit] of them at most, and none if the lock was never taken.
//
// Terms are in the order of their tokens, whatever the wall clocks of their
// holders say. Without a history, only the latest two are known. A term that is
// missing between others is Unknown. Where a token was raised after a loss of the
// store ([EndRaised]), the next one is that of the term which the store knew last.
func (c *Client) History(ctx context.Context, name string) ([]Term, error) {
	if err := checkKey(name); err != nil {
		return nil, wrap("history", name, err)
	}
	s, err := c.engine.Status(ctx, name)
	if err != nil {
		return nil, wrap("history", name, err)
	}
	if !s.Found {
		return nil, nil
	}
	list := protocol.Present(s.Record)
	limit := uint64(max(0, c.options.HistoryLimit))
	from, to := protocol.Older(list, limit)
	if prev := s.Record.Prev; protocol.Shortened(prev) {
		whole, err := c.past(ctx, name, prev.Token, prev.Token-1)
		if err != nil {
			return nil, wrap("history", name, err)
		}
		protocol.Lengthen(list, whole[0])
	}
	past, err := c.past(ctx, name, from, to)
	for cut := true; err == nil && cut; {
		var dense []protocol.Entry
		if dense, cut = protocol.Dense(past); cut {
			list = protocol.Whole(list, dense)
			from, to = protocol.Older(list, limit)
			past, err = c.past(ctx, name, from, to)
		}
	}
	if err != nil {
		return nil, wrap("history", name, err)
	}
	list = protocol.Whole(list, past)
	history := make([]Term, len(list))
	for i, e := range list {
		history[i] = publicTerm(&e.Term)
		history[i].Unknown = e.Unknown
	}
	return history, nil
}

// HolderAt returns the term of a history that was under way at a time, by the
// wall clocks of the holders; ok is false if nobody held the lock. Certain is false
// if the answer is not sure: the holder crashed, and may have been dead already; or
// what was then is unknown, or older than the history.
func HolderAt(history []Term, at time.Time) (t Term, ok, certain bool) {
	hole := false // between this term and the one after it
	for _, t := range history {
		if t.Unknown || t.Since.IsZero() {
			hole = true
			continue
		}
		if t.Since.After(at) {
			hole = t.End == EndRaised // what was lost with the store, and was before that, nobody knows
			continue
		}
		switch {
		case t.End == "", at.Before(t.Until):
			return t, true, true
		case t.Until.IsZero():
			return t, true, false
		}
		return Term{}, false, !hole
	}
	first := len(history) == 0 || history[len(history)-1].Token == 1
	return Term{}, false, first && !hole
}

// past reads the terms with the tokens from, from-1, ... down to above to.
func (c *Client) past(ctx context.Context, name string, from, to uint64) ([]protocol.Entry, error) {
	list := make([]protocol.Entry, from-to)
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = protocol.HistoryKey(name, from-uint64(i))
	}
	found, err := c.engine.ReadAll(ctx, keys, nil)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, f := range found {
		list[i] = protocol.EntryOf(from-uint64(i), f.Record, f.Err == nil)
		if f.Err != nil && !errors.Is(f.Err, driver.ErrNotFound) && !errors.Is(f.Err, driver.ErrUnreadable) {
			errs = append(errs, f.Err)
		}
	}
	return list, errors.Join(errs...)
}

// History returns the terms of the election: see [Client.History].
func (e *Election) History(ctx context.Context) ([]Term, error) { return e.c.History(ctx, e.name) }

// Term is one holder's time with a lock, from grant to end.
type Term struct {
	Owner       string
	Token       uint64
	Host, Label string
	// Since and Until are by the wall clock of the holder. Until is zero while the
	// tenure goes on, and where its end cannot be known: a holder that crashed had
	// stopped when the next term began, and no more is known of it.
	Since, Until time.Time
	// End says how it ended, empty while it goes on.
	End string
	// Request is what the holder was asked, by whom and why, if it was asked: the
	// request that ended the term or, if the holder crashed, one that it did not
	// answer.
	Request *Request
	// Unknown says that there was a term under this token, and that nothing else
	// is known of it. Its holder and the next one crashed before they had written
	// it down; or, at the end of the list, the lock had no history yet, or the
	// tenure is not kept any more.
	Unknown bool
	// Data is what the holder left in the record. Only [Lease.Previous] has it, and not if
	// the new holder wrote data of its own and the reply that showed the old data was lost.
	Data []byte `json:",omitempty"`
}

// Ended says in words for people how the term ended, as the command and the dashboard
// show it; it is empty while it goes on. A program compares End.
func (t Term) Ended() string {
	switch t.End {
	case EndHandedOver:
		switch q := t.Request; {
		case q == nil: // to whom is not known, nor where an older version has written it without the label
		case q.ToLabel != "":
			return "handed over to label " + q.ToLabel
		case q.To != "":
			return "handed over to " + q.To
		}
	case EndExpired:
		if t.Request != nil {
			return "expired, asked in vain"
		}
	case EndAbandoned:
		return "given up before any work"
	case EndStalled:
		return "stalled: no progress"
	case EndStopTimeout:
		return "did not stop in time"
	case EndReleasedDead:
		return "released as dead"
	case EndRaised:
		return "token raised, held by nobody"
	}
	return strings.ReplaceAll(t.End, "_", " ")
}

func publicTerm(t *driver.Term) Term {
	return Term{
		Owner: t.Owner, Token: t.Token, Host: t.Host, Label: t.Label,
		Since: t.Since, Until: t.Until, End: string(t.End), Request: requestOf(t.Asked),
	}
}
