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
	"github.com/tenurelock/tenure/internal/terms"
)

// History returns the terms of the lock, newest first, including the current one: who
// held it, from when to when, and how it ended. It returns at most
// [Options.HistoryLimit] terms, and none if the lock was never taken.
//
// Terms are in the order of their tokens, whatever the wall clocks of their holders
// say. Without a history, only the latest two are known. A term that is missing between
// others is Unknown. After an entry for a token that was raised after a loss of the
// store ([EndRaised]), the next entry is the last term that the store still knew.
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
	list := terms.Of(s.Record)
	limit := uint64(max(0, c.options.HistoryLimit))
	from, to := terms.Older(list, limit)
	if prev := s.Record.Prev; terms.Shortened(prev) {
		whole, err := c.past(ctx, name, prev.Token, prev.Token-1)
		if err != nil {
			return nil, wrap("history", name, err)
		}
		terms.Lengthen(list, whole[0])
	}
	past, err := c.past(ctx, name, from, to)
	for cut := true; err == nil && cut; {
		var dense []terms.Entry
		if dense, cut = terms.UpToGap(past); cut {
			list = terms.Whole(list, dense)
			from, to = terms.Older(list, limit)
			past, err = c.past(ctx, name, from, to)
		}
	}
	if err != nil {
		return nil, wrap("history", name, err)
	}
	list = terms.Whole(list, past)
	history := make([]Term, len(list))
	for i, e := range list {
		history[i] = publicTerm(&e.Term)
		history[i].Unknown = e.Unknown
	}
	return history, nil
}

// HolderAt returns the term of a history that was under way at a time, by the wall
// clocks of the holders; ok is false if the lock had no holder. certain is false if the
// answer is uncertain: the holder crashed, and may have been dead already; or the term
// at that time is unknown, or older than the history.
func HolderAt(history []Term, at time.Time) (t Term, ok, certain bool) {
	hole := false // between this term and the one after it
	for _, t := range history {
		if t.Unknown || t.Since.IsZero() {
			hole = true
			continue
		}
		if t.Since.After(at) {
			hole = t.End == EndRaised // the terms lost with the store, and those before them, are unknown
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

// past reads the terms with the tokens from, from-1, ... down to to+1.
func (c *Client) past(ctx context.Context, name string, from, to uint64) ([]terms.Entry, error) {
	list := make([]terms.Entry, from-to)
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
		list[i] = terms.EntryOf(from-uint64(i), f.Record, f.Err == nil)
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
	// Since and Until are by the wall clock of the holder. Until is zero while the term
	// goes on, and if its end is unknown: a crashed holder had stopped when the next term
	// began, and nothing more is known about it.
	Since, Until time.Time
	// End says how the term ended; it is empty while the term goes on.
	End string
	// Request is what the holder was asked, by whom and why: the request that ended the
	// term or, if the holder crashed, a request that it did not answer.
	Request *Request
	// Unknown says that there was a term with this token, and that nothing else is known
	// about it. Its holder and the next one crashed before they wrote the entry; or, at
	// the end of the list, the lock had no history yet, or the entry was removed.
	Unknown bool
	// Data is the data that the holder left in the record. Only [Lease.Previous] has it,
	// and not if the new holder wrote its own data and the reply with the old data was
	// lost.
	Data []byte `json:",omitempty"`
}

// Ended says in words how the term ended, as the command and the dashboard show it; it
// is empty while the term goes on. Programs should compare End.
func (t Term) Ended() string {
	switch t.End {
	case EndHandedOver:
		switch q := t.Request; {
		case q == nil: // the receiver is unknown; older versions did not write the label
		case q.ToLabel != "":
			return "handed over to label " + q.ToLabel
		case q.To != "":
			return "handed over to " + q.To
		}
	case EndExpired:
		if t.Request != nil {
			return "expired, request unanswered"
		}
	case EndAbandoned:
		return "abandoned before any work"
	case EndStalled:
		return "stalled: no progress"
	case EndStopTimeout:
		return "did not stop in time"
	case EndReleasedDead:
		return "released as dead"
	case EndRaised:
		return "token raised, no holder"
	}
	return strings.ReplaceAll(t.End, "_", " ")
}

func publicTerm(t *driver.Term) Term {
	return Term{
		Owner: t.Owner, Token: t.Token, Host: t.Host, Label: t.Label,
		Since: t.Since, Until: t.Until, End: string(t.End), Request: requestOf(t.Asked),
	}
}
