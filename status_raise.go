// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
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
func (c *Client) RaiseTokens(ctx context.Context, prefix string, by uint64, options *RaiseOptions) (RaisedTokens, error) {
	r := &raising{c: c, prefix: prefix, s: protocol.NewStandstill(c.timing)}
	if options != nil {
		r.RaiseOptions = *options
	}
	if r.Reason == "" {
		r.Reason = "the store was restored"
	}
	r.how = protocol.Raise{By: by, Owner: c.options.Owner, Host: c.options.Host, Reason: r.Reason}
	err := r.check()
	for _, step := range []func(context.Context) error{r.watch, r.close, r.raise} {
		if err == nil {
			err = step(ctx)
		}
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

	// What the first look has shown, by their keys in order.
	locks, sessions []string
	kept            []driver.Record          // tokens without a record
	closed          map[string]driver.Record // sessions that were closed before, without data
	left            map[string]error         // what was left alone
	looked          bool
}

const (
	// raiseAtOnce is how many records are read, or written, at once.
	raiseAtOnce = 16
	// maxListing is how long a page of a list may take: some engines read all that
	// there is for it.
	maxListing = time.Minute
)

// check finds what is wrong before the store is asked.
func (r *raising) check() error {
	switch {
	case r.how.By == 0:
		return refused("by 0 raises nothing: raise by more than the number of tokens that a lock was given in the lost time")
	case r.how.By > driver.MaxToken:
		return refused("%w: by %d: the highest token is %d", ErrTokenLimit, r.how.By, uint64(driver.MaxToken))
	case strings.HasPrefix(r.prefix, driver.OwnPrefix):
		return refused("no lock has a name that begins with %q: such names are for records of Tenure itself", driver.OwnPrefix)
	case r.c.store.Raiser == nil:
		return refused("%w: this store cannot raise tokens", errors.ErrUnsupported)
	case r.c.isClosed():
		return ErrClosed
	}
	if err := checkReason(r.Reason); err != nil {
		return err
	}
	r.closed, r.left = map[string]driver.Record{}, map[string]error{}
	return nil
}

// looksOfRaise is how often everything is looked at while it is waited for, so that a
// program that lives is found early.
const looksOfRaise = 6

// watch waits until everything has stood still for long enough.
func (r *raising) watch(ctx context.Context) error {
	begun := r.c.clock.Contender()
	for {
		sent := r.c.clock.Contender()
		if err := r.look(ctx); err != nil {
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
			return done(ctx)
		case <-r.c.closing:
			return ErrClosed
		}
	}
}

func (r *raising) tell(remaining time.Duration) {
	if r.OnProgress != nil {
		r.OnProgress(RaiseProgress{Locks: len(r.locks) + len(r.kept), Remaining: max(0, remaining), Done: r.done})
	}
}

// look reads all records, and returns an error if one is not what it was.
func (r *raising) look(ctx context.Context) error {
	r.s.Look()
	err := r.each(ctx, r.prefix, func(key string) bool { return !strings.HasPrefix(key, driver.OwnPrefix) }, r.sawLock)
	if err == nil {
		err = r.each(ctx, driver.SessionPrefix, func(string) bool { return true }, r.sawSession)
	}
	if err == nil && r.c.store.Lister != nil {
		err = r.eachKept(ctx)
	}
	if err != nil {
		return err
	}
	if rec, gone := r.s.Gone(); gone {
		return alive(rec, "is gone since")
	}
	if !r.looked {
		r.looked = true
		slices.Sort(r.locks)
		slices.Sort(r.sessions)
	}
	return nil
}

// each shows the records below a prefix that are wanted, by strong reads: a list alone
// may be behind.
func (r *raising) each(ctx context.Context, prefix string, wanted func(key string) bool, saw func(driver.Record) error) error {
	for cursor := ""; ; {
		var page driver.Page
		if err := r.try(ctx, func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, max(maxListing, r.c.timing.Lease))
			defer cancel()
			page, err = r.c.store.List(ctx, prefix, cursor)
			return err
		}); err != nil {
			return err
		}
		var keys []string
		for _, rec := range page.Records {
			if wanted(rec.Key) {
				keys = append(keys, rec.Key)
			}
		}
		for key, err := range page.Unreadable {
			if wanted(key) {
				r.left[key] = err
			}
		}
		if err := r.read(ctx, keys, saw); err != nil {
			return err
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

// read shows records by strong reads. Those that cannot be understood are left alone.
func (r *raising) read(ctx context.Context, keys []string, saw func(driver.Record) error) error {
	for chunk := range slices.Chunk(keys, raiseAtOnce) {
		var found []driver.Lookup
		if err := r.try(ctx, func(ctx context.Context) (err error) {
			found, err = r.c.readAll(ctx, chunk, nil)
			for i := 0; err == nil && i < len(found); i++ {
				if f := found[i].Err; !isNotFound(f) && !errors.Is(f, ErrUnreadable) {
					err = f
				}
			}
			return err
		}); err != nil {
			return err
		}
		for i, f := range found {
			switch {
			case errors.Is(f.Err, ErrUnreadable):
				r.left[chunk[i]] = f.Err
			case f.Err != nil: // gone since it was listed
			case f.Record.Lease <= 0 || !protocol.Readable(f.Record) && !f.Record.State.OfSession():
				r.left[chunk[i]] = unreadable(f.Record)
			default:
				if err := saw(f.Record); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *raising) sawLock(rec driver.Record) error {
	switch {
	case rec.State.OfSession():
		r.left[rec.Key] = unreadable(rec)
		return nil
	case rec.Beat == "" && rec.Token <= 1:
		if !r.looked { // another client's alone: the token is the one that the next holder would get
			r.done.Foreign++
		}
		return nil
	case !r.looked:
		r.locks = append(r.locks, rec.Key)
	}
	return errors.Join(r.fits(rec), r.saw(rec))
}

// fits returns an error if the token of a record cannot be raised so far.
func (r *raising) fits(rec driver.Record) error {
	if rec.Token <= driver.MaxToken-r.how.By {
		return nil
	}
	return refused("%w: %q has token %d, and by %d more it would be higher than %d: raise by less",
		ErrTokenLimit, rec.Key, rec.Token, r.how.By, uint64(driver.MaxToken))
}

func (r *raising) sawSession(rec driver.Record) error {
	if !rec.State.OfSession() {
		r.left[rec.Key] = unreadable(rec)
		return nil
	}
	switch {
	case r.looked:
	case rec.State == driver.Closed:
		r.closed[driver.SessionID(rec.Key)] = driver.Record{State: rec.State, End: rec.End, Until: rec.Until}
	default:
		r.sessions = append(r.sessions, rec.Key)
	}
	return r.saw(rec)
}

func (r *raising) saw(rec driver.Record) error {
	if !r.s.Saw(r.c.clock.Contender(), rec) {
		return alive(rec, "has changed since")
	}
	return nil
}

// eachKept shows the tokens that the store keeps of locks without a record.
func (r *raising) eachKept(ctx context.Context) error {
	for cursor := ""; ; {
		var page driver.Page
		if err := r.try(ctx, func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, max(maxListing, r.c.timing.Lease))
			defer cancel()
			page, err = r.c.store.ListTokens(ctx, r.prefix, cursor)
			return err
		}); err != nil {
			return err
		}
		for _, rec := range page.Records {
			if !r.looked {
				r.kept = append(r.kept, rec)
			}
			if err := errors.Join(r.fits(rec), r.saw(rec)); err != nil {
				return err
			}
		}
		for key, err := range page.Unreadable {
			r.left[key] = err
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

// close closes the sessions, before any token is raised: of a session that is closed
// nobody can renew a lock any more.
func (r *raising) close(ctx context.Context) error {
	return r.write(ctx, r.sessions, &r.done.Sessions, func(ctx context.Context, rec driver.Record) error {
		return r.replace(ctx, rec, protocol.Ended(rec, rand.Text()), r.c.store.Swap)
	})
}

// raise raises the tokens.
func (r *raising) raise(ctx context.Context) error {
	err := r.write(ctx, r.locks, &r.done.Locks, r.raiseOne)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(r.kept, raiseAtOnce) {
		if err := r.together(ctx, chunk, &r.done.Locks, r.raiseOne); err != nil {
			return err
		}
	}
	return nil
}

func (r *raising) raiseOne(ctx context.Context, rec driver.Record) error {
	how := r.how
	how.Version, how.At = rand.Text(), time.Now().Round(0)
	return r.replace(ctx, rec, r.s.Raised(rec, r.closed[rec.Session], how), r.c.store.Raise)
}

// write reads records once more, since they are too many to be remembered whole, and
// writes each, if it is what it was.
func (r *raising) write(ctx context.Context, keys []string, n *int, do func(context.Context, driver.Record) error) error {
	for chunk := range slices.Chunk(keys, raiseAtOnce) {
		var all []driver.Record
		missing := map[string]bool{}
		for _, key := range chunk {
			missing[key] = true
		}
		if err := r.read(ctx, chunk, func(rec driver.Record) error {
			if !r.s.Stands(rec) {
				return alive(rec, "has changed since")
			}
			delete(missing, rec.Key)
			all = append(all, rec)
			return nil
		}); err != nil {
			return err
		}
		for key := range missing {
			if r.left[key] == nil {
				return alive(driver.Record{Key: key}, "is gone since")
			}
		}
		if err := r.together(ctx, all, n, do); err != nil {
			return err
		}
	}
	return nil
}

// together makes some writes at once, and counts them.
func (r *raising) together(ctx context.Context, all []driver.Record, n *int, do func(context.Context, driver.Record) error) error {
	errs := make([]error, len(all))
	var writes sync.WaitGroup
	for i, rec := range all {
		writes.Go(func() { errs[i] = do(ctx, rec) })
	}
	writes.Wait()
	var first error
	for i, err := range errs {
		switch {
		case err == nil:
			*n++
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, ErrUnreadable):
			r.left[all[i].Key] = err
		case first == nil:
			first = err
		}
	}
	r.tell(0)
	return first
}

// replace makes a write, again if nobody knows what has become of it: it names the
// record that it replaces, so that it is applied once.
func (r *raising) replace(ctx context.Context, prev, next driver.Record, write func(context.Context, driver.Record, driver.Record) (driver.Record, error)) error {
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
			return done(ctx)
		case r.c.isClosed():
			return ErrClosed
		case errors.Is(err, ErrAlive), errors.Is(err, ErrPermanent), errors.Is(err, errors.ErrUnsupported), errors.Is(err, ErrUnreadable),
			time.Since(begun) >= r.c.timing.Lease:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return done(ctx)
		}
		pause = min(2*pause, r.c.timing.RequestTimeout)
	}
}

// leftAlone tells of the records that were left alone.
func (r *raising) leftAlone() error {
	r.done.Unreadable = len(r.left)
	const shown = 3
	var keys []string
	for key := range r.left {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var errs []error
	for _, key := range keys[:min(len(keys), shown)] {
		errs = append(errs, fmt.Errorf("%q: %w", key, r.left[key]))
	}
	return refused("%d records were left alone, as they were, and everything else is done; look at them, and repeat: %w", len(keys), errors.Join(errs...))
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
	return refused("%w: %s %s it was watched: stop all programs that use the store first, and then repeat", ErrAlive, what, how)
}
