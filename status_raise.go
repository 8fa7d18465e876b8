// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// RaiseOptions are for [Client.RaiseTokens].
type RaiseOptions struct {
	// Reason says why. It is kept in the history of each lock. If empty, it is "the
	// store was restored".
	Reason string
	// OnProgress, if not nil, is called after each look at the store, and after each
	// few writes, by the goroutine of the call, which waits for it.
	OnProgress func(RaiseProgress)
}

// RaiseProgress is how far a [Client.RaiseTokens] is.
type RaiseProgress struct {
	// Locks is how many locks there are whose tokens will be raised.
	Locks int
	// Remaining is how long everything must stand still yet. It is 0 when that is
	// over, and tokens are raised.
	Remaining time.Duration
	// Done is what was done so far.
	Done RaisedTokens
}

// RaisedTokens is what [Client.RaiseTokens] has done.
type RaisedTokens struct {
	// Locks is how many locks have a higher token now.
	Locks int
	// Sessions is how many sessions were closed.
	Sessions int
	// Unreadable is how many records were left alone because they could not be
	// understood, or because the store refuses to write over them.
	Unreadable int
	// Foreign is how many locks of other clients were left alone because Tenure has
	// never given a token for them.
	Foreign int
}

// RaiseTokens raises the tokens of all locks whose names begin with prefix, and closes
// all sessions. It is for the time after a loss of the store, when it was restored from
// a backup, or has failed over without its last writes. Tokens that were given since
// are given again then, and two processes may believe that they hold one lock.
//
// Stop all programs that use the store before, whatever their locks, and start them
// after RaiseTokens has returned nil. Before it writes anything, it watches all of
// these records until they have stood unchanged for the longest lease that any of them
// names, and for that of this client. If one changes the error matches [ErrAlive], and
// says which: a program is still running. After that nobody who was granted a lock in
// the lost time can believe to hold it any more.
//
// By must be more than the number of tokens that any one of the locks was given in the
// lost time, those included by which they were raised then: if one backup is restored
// a second time, raise by more than the first time. If it is much too high that does no
// harm. If a token would be higher than [driver.MaxToken], the error matches
// [ErrTokenLimit], and nothing is written. A lock that did not exist when the backup
// was made has no record, and begins at token 1 again: have its fences forget.
//
// All sessions are closed, whatever the prefix is. A session keeps alive any number of
// locks, and those that were taken under it in the lost time stand in no record.
//
// It can be repeated: after an error, or a crash, what is done is done, and is done
// again. A token that is raised twice is only higher. Nobody may call it twice at the
// same time: each call would be a sign of life to the other one.
//
// Records that cannot be understood are left alone, and the error says so when all else
// is done. It matches [ErrUnreadable] then. It matches [errors.ErrUnsupported] if the
// store cannot raise tokens. Other errors are those of the store, which is asked again
// for up to a lease, or match the context's; the result still counts what was done. The
// history of each lock shows the owner name of this client, and the reason.
func (c *Client) RaiseTokens(
	ctx context.Context, prefix string, by uint64, options *RaiseOptions,
) (RaisedTokens, error) {
	r := &raising{
		c: c, prefix: prefix, s: protocol.NewStandstill(c.timing),
		closed: map[string]driver.Record{}, left: map[string]error{},
	}
	if options != nil {
		r.RaiseOptions = *options
	}
	if r.Reason == "" {
		r.Reason = "the store was restored"
	}
	r.how = protocol.Raise{By: by, Owner: c.options.Owner, Host: c.options.Host, Reason: r.Reason}
	err := r.check()
	if err == nil {
		err = r.watch(ctx)
	}
	if err == nil {
		err = r.pass(ctx, true)
	}
	if err == nil && len(r.left) > 0 {
		err = r.leftAlone()
	}
	if err != nil {
		return r.done, wrap(opRaise, prefix, err)
	}
	return r.done, nil
}

// raising is one [Client.RaiseTokens] under way.
type raising struct {
	RaiseOptions
	c      *Client
	prefix string
	how    protocol.Raise
	s      *protocol.Standstill
	done   RaisedTokens
	locks  int                      // how many will be raised
	closed map[string]driver.Record // sessions that were closed before, without data
	left   map[string]error         // what was left alone
}

// raiseAtOnce is how many records are read, or written, at once.
const raiseAtOnce = 16

// check finds what is wrong before the store is asked.
func (r *raising) check() error {
	switch {
	case r.how.By == 0:
		return refused("by 0 raises nothing: " +
			"raise by more than the number of tokens that a lock was given in the lost time")
	case r.how.By > driver.MaxToken:
		return refused("%w: by %d: the highest token is %d", ErrTokenLimit, r.how.By, uint64(driver.MaxToken))
	case strings.HasPrefix(r.prefix, driver.OwnPrefix):
		return refused("no lock has a name that begins with %q: such names are for records of Tenure itself",
			driver.OwnPrefix)
	case r.c.store.Raiser == nil:
		return refused("%w: this store cannot raise tokens", errors.ErrUnsupported)
	case r.c.engine.Closed():
		return ErrClosed
	}
	return checkReason(r.Reason)
}

// looksOfRaise is how often everything is looked at while it is waited for, so that a
// program that lives is found early.
const looksOfRaise = 6

// watch waits until everything has stood still for long enough.
func (r *raising) watch(ctx context.Context) error {
	begun := r.c.clock.Contender()
	for {
		sent := r.c.clock.Contender()
		if err := r.pass(ctx, false); err != nil {
			return err
		}
		until := r.s.Until()
		if sent >= until {
			return nil
		}
		now := r.c.clock.Contender()
		r.tell(until - now)
		pause := max(min(until-now, (until-begun)/looksOfRaise), r.c.timing.Pause())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return engine.Done(ctx)
		case <-r.c.engine.Closing():
			return ErrClosed
		}
	}
}

func (r *raising) tell(remaining time.Duration) {
	if r.OnProgress != nil {
		r.OnProgress(RaiseProgress{Locks: r.locks, Remaining: max(0, remaining), Done: r.done})
	}
}

// records are those of one kind that [raising.pass] goes through.
type records struct {
	list     lister
	prefix   string
	sessions bool
	bare     bool // tokens that are kept without a record
	write    func(context.Context, driver.Record) error
	written  *int
}

// pass goes through all records, and returns an error if one is not what it was. The
// last pass writes those which are. It closes the sessions before it raises any token:
// of a session that is closed nobody can renew a lock any more.
func (r *raising) pass(ctx context.Context, write bool) error {
	r.s.Look()
	store := r.c.store
	sessions := records{
		list: store.List, prefix: driver.SessionPrefix, sessions: true, write: r.close, written: &r.done.Sessions,
	}
	locks := records{list: store.List, prefix: r.prefix, write: r.raise, written: &r.done.Locks}
	all := []records{sessions, locks}
	if store.Keeper != nil {
		kept := locks
		kept.list, kept.bare = store.ListTokens, true
		all = append(all, kept)
	}
	for _, kind := range all {
		list := func(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
			err = r.try(ctx, func(ctx context.Context) error {
				page, err = r.c.bounded(kind.list)(ctx, prefix, cursor)
				return err
			})
			return page, err
		}
		if err := eachPage(ctx, list, kind.prefix, func(page driver.Page) error {
			for key, err := range page.Unreadable {
				if kind.has(key) {
					r.left[key] = err
				}
			}
			listed := slices.DeleteFunc(page.Records, func(rec driver.Record) bool { return !kind.has(rec.Key) })
			for chunk := range slices.Chunk(listed, raiseAtOnce) {
				if err := r.take(ctx, kind, chunk, write); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if rec, gone := r.s.Gone(); gone {
		return alive(rec, "is gone since")
	}
	return nil
}

func (k records) has(key string) bool {
	return k.sessions || !strings.HasPrefix(key, driver.OwnPrefix)
}

// take looks at a few records that were listed, and writes them if it is time.
func (r *raising) take(ctx context.Context, kind records, recs []driver.Record, write bool) error {
	if !kind.bare {
		var err error
		if recs, err = r.read(ctx, recs); err != nil {
			return err
		}
	}
	var due []driver.Record
	for _, rec := range recs {
		mine, err := r.saw(kind, rec)
		if err != nil {
			return err
		}
		if mine {
			due = append(due, rec)
		}
	}
	if !write {
		return nil
	}
	errs := make([]error, len(due))
	engine.AtOnce(raiseAtOnce, due, func(i int, rec driver.Record) { errs[i] = kind.write(ctx, rec) })
	var first error
	for i, err := range errs {
		switch {
		case err == nil:
			*kind.written++
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, ErrUnreadable):
			r.left[due[i].Key] = err
		case first == nil:
			first = err
		}
	}
	r.tell(0)
	return first
}

// read reads records strongly, since a list may be behind. Those that cannot be
// understood are left alone.
func (r *raising) read(ctx context.Context, listed []driver.Record) (recs []driver.Record, err error) {
	keys := make([]string, len(listed))
	for i, rec := range listed {
		keys[i] = rec.Key
	}
	var found []driver.Lookup
	err = r.try(ctx, func(ctx context.Context) (err error) {
		found, err = r.c.engine.ReadAll(ctx, keys, nil)
		for i := 0; err == nil && i < len(found); i++ {
			if f := found[i].Err; !isNotFound(f) && !errors.Is(f, ErrUnreadable) {
				err = f
			}
		}
		return err
	})
	for i, f := range found {
		switch {
		case errors.Is(f.Err, ErrUnreadable):
			r.left[keys[i]] = f.Err
		case f.Err != nil: // gone since it was listed
		case f.Record.Lease <= 0 || !protocol.Readable(f.Record) && !f.Record.State.OfSession():
			r.left[keys[i]] = engine.Unreadable(f.Record)
		default:
			recs = append(recs, f.Record)
		}
	}
	return recs, err
}

// saw notes a record, and reports whether it is one to write.
func (r *raising) saw(kind records, rec driver.Record) (mine bool, err error) {
	mine = true
	first := r.s.First()
	switch {
	case rec.State.OfSession() != kind.sessions:
		r.left[rec.Key] = engine.Unreadable(rec)
		return false, nil
	case rec.State == driver.Closed:
		if mine = false; first {
			r.closed[driver.SessionID(rec.Key)] = driver.Record{State: rec.State, End: rec.End, Until: rec.Until}
		}
	case kind.sessions:
	case !kind.bare && rec.Beat == "" && rec.Token <= 1:
		if first { // another client's alone: the token is the one that the next holder would get
			r.done.Foreign++
		}
		return false, nil
	case rec.Token > driver.MaxToken-r.how.By:
		return false, refused("%w: %q has token %d, and by %d more it would be higher than %d: raise by less",
			ErrTokenLimit, rec.Key, rec.Token, r.how.By, uint64(driver.MaxToken))
	case first:
		r.locks++
	}
	if !r.s.Saw(r.c.clock.Contender(), rec) {
		return false, alive(rec, "has changed since")
	}
	return mine, nil
}

// close closes a session.
func (r *raising) close(ctx context.Context, rec driver.Record) error {
	return r.replace(ctx, rec, protocol.Ended(rec, rand.Text()), r.c.store.Swap)
}

// raise raises the token of a lock.
func (r *raising) raise(ctx context.Context, rec driver.Record) error {
	how := r.how
	how.Version, how.At = rand.Text(), time.Now().Round(0)
	return r.replace(ctx, rec, r.s.Raised(rec, r.closed[rec.Session], how), r.c.store.Raise)
}

// replace makes a write, again if nobody knows what has become of it: it names the
// record that it replaces, so that it is applied once.
func (r *raising) replace(ctx context.Context, prev, next driver.Record,
	write func(context.Context, driver.Record, driver.Record) (driver.Record, error),
) error {
	return r.try(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, r.c.timing.RequestTimeout)
		defer cancel()
		_, err := write(ctx, prev, next)
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		if is := conflict.Current; !conflict.Absent && is.Version == next.Version && is.Token == next.Token {
			return nil // an earlier try of it
		}
		rec := conflict.Current
		rec.Key = prev.Key
		return alive(rec, "has changed since")
	})
}

// try makes a call again for as long as the store does not answer, or is busy: for up
// to a lease.
func (r *raising) try(ctx context.Context, do func(context.Context) error) error {
	begun, pause := time.Now(), r.c.timing.RequestTimeout/20
	for {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return engine.Done(ctx)
		case r.c.engine.Closed():
			return ErrClosed
		case errors.Is(err, ErrAlive), errors.Is(err, ErrPermanent), errors.Is(err, errors.ErrUnsupported),
			errors.Is(err, ErrUnreadable), time.Since(begun) >= r.c.timing.Lease:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return engine.Done(ctx)
		}
		pause = min(2*pause, r.c.timing.RequestTimeout)
	}
}

// leftAlone tells of the records that were left alone.
func (r *raising) leftAlone() error {
	r.done.Unreadable = len(r.left)
	const shown = 3
	keys := slices.Sorted(maps.Keys(r.left))
	var errs []error
	for _, key := range keys[:min(len(keys), shown)] {
		errs = append(errs, fmt.Errorf("%q: %w", key, r.left[key]))
	}
	return refused("%d records were left alone, as they were, and everything else is done; look at them, and repeat: %w",
		len(keys), errors.Join(errs...))
}

// alive is the error of a record that somebody has changed.
func alive(rec driver.Record, how string) error {
	what := fmt.Sprintf("lock %q", rec.Key)
	if id, session := strings.CutPrefix(rec.Key, driver.SessionPrefix); session {
		what = "session " + id
	}
	if rec.Owner != "" {
		what += fmt.Sprintf(", of %q under token %d,", rec.Owner, rec.Token)
	}
	return refused("%w: %s %s it was watched: stop all programs that use the store first, and then repeat",
		ErrAlive, what, how)
}
