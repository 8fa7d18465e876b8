// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// RaiseOptions are for [RaiseTokens].
type RaiseOptions struct {
	// Reason is stored in the history of each lock. If empty, it is "the store was
	// restored".
	Reason string
	// OnProgress, if not nil, is called each second of the wait, and after each few
	// writes, by the goroutine of the call, which waits for it.
	OnProgress func(RaiseProgress)
}

// RaiseProgress is how far a [RaiseTokens] is.
type RaiseProgress struct {
	// Locks is how many locks there are whose tokens will be raised.
	Locks int
	// Remaining is how long no record may change yet. It is 0 when that is over,
	// and tokens are raised.
	Remaining time.Duration
	// Done counts the work done so far.
	Done RaisedTokens
}

// RaisedTokens is what [RaiseTokens] has done.
type RaisedTokens struct {
	// Locks is how many locks have a higher token now.
	Locks int `json:"locks"`
	// Sessions is how many sessions were closed.
	Sessions int `json:"sessions"`
	// Unreadable is how many records were left alone because they could not be
	// decoded, or because the store refuses to overwrite them.
	Unreadable int `json:"unreadable"`
	// Foreign is how many locks of other clients were left alone because Tenure has
	// never granted a token for them.
	Foreign int `json:"foreign"`
}

// RaiseTokens raises the tokens of all locks whose names begin with prefix, and closes
// all sessions. It is for a store that was restored from a backup, or has failed over
// without its last writes. The tokens of the lost writes are then granted a second
// time, and two processes may believe that they hold one lock.
//
// Stop all programs that use the store before, whatever their locks, and start them
// after RaiseTokens has returned nil. It reads all of these records, waits for the longest lease
// among them and this client's, and reads them again. If one has changed, the error matches
// [tenure.ErrAlive], says which, and nothing was written: a program is still running. Otherwise
// no process that was granted a lock in the lost time can still believe that it holds it, and
// each record is replaced, if it is still what was read.
//
// By must be more than the number of tokens that any one of the locks was granted in the
// lost time, including raises: if one backup is restored a second time, raise by more than
// the first time. A value that is much too high does no harm. If a token would exceed
// [driver.MaxToken], the error matches [tenure.ErrTokenLimit], and nothing is written. A
// lock that did not exist when the backup was made has no record, and begins at token 1
// again: have its fences forget.
//
// All sessions are closed, whatever the prefix is. A session renews any number of
// locks, and no record shows the locks that were taken under it in the lost time.
//
// It can be repeated after an error or a crash: a token that is raised twice is only
// higher. Two calls must not run at the same time: each would look like a living
// program to the other.
//
// Records that cannot be decoded are left alone, and the error says so when everything else
// is done. It matches [tenure.ErrUnreadable] then. It matches [errors.ErrUnsupported] if the
// store cannot raise tokens. Other errors are those of the store, which is asked again for
// up to a lease, or match the context's; the result still counts what was done. The history
// of each lock shows the owner name of this client, and the reason.
func RaiseTokens(
	ctx context.Context, client *tenure.Client, prefix string, by uint64, options *RaiseOptions,
) (RaisedTokens, error) {
	o := operatorOf(client)
	r := &raising{
		operator: o, prefix: prefix, still: newQuiescenceCheck(o.Timing()),
		closed: map[string]driver.Record{}, left: map[string]error{},
	}
	if options != nil {
		r.RaiseOptions = *options
	}
	r.Reason = cmp.Or(r.Reason, "the store was restored")
	r.how = tokenRaise{By: by, Owner: o.options.Owner, Host: o.options.Host, Reason: r.Reason}
	err := r.check()
	for _, step := range []func(context.Context) error{r.watch, r.wait, r.verify, r.write} {
		if err == nil {
			err = step(ctx)
		}
	}
	return r.done, wrap("raise tokens", prefix, err)
}

// raising is one [RaiseTokens] under way.
type raising struct {
	RaiseOptions
	operator
	prefix string
	how    tokenRaise
	still  *quiescenceCheck
	found  int                      // how many locks will be raised
	closed map[string]driver.Record // sessions that were closed before
	left   map[string]error         // what was left alone
	done   RaisedTokens

	sessions, locks []driver.Record // to be written
}

// raiseAtOnce is how many records are read, or written, at once.
const raiseAtOnce = 16

// check validates the options before any request to the store.
func (r *raising) check() error {
	switch {
	case r.how.By == 0:
		return fmt.Errorf("by 0 has no effect: " +
			"raise by more than the number of tokens that a lock was granted in the lost time")
	case r.how.By > driver.MaxToken:
		return fmt.Errorf("%w: by %d: the highest token is %d", tenure.ErrTokenLimit, r.how.By, uint64(driver.MaxToken))
	case strings.HasPrefix(r.prefix, driver.OwnPrefix):
		return fmt.Errorf("no lock has a name that begins with %q: such names are for records of Tenure itself",
			driver.OwnPrefix)
	case r.Store.Raiser == nil:
		return fmt.Errorf("%w: this store cannot raise tokens", errors.ErrUnsupported)
	}
	return cmp.Or(r.Usable(), text.CheckReason(r.Reason))
}

// watch notes the state of all records.
func (r *raising) watch(ctx context.Context) error {
	return r.look(ctx, func(kind records, rec driver.Record) error {
		if kind.locks() {
			if rec.Token > driver.MaxToken-r.how.By {
				return fmt.Errorf("%w: %q has token %d, and raised by %d it would exceed %d: raise by less",
					tenure.ErrTokenLimit, rec.Key, rec.Token, r.how.By, uint64(driver.MaxToken))
			}
			r.found++
		}
		r.still.note(r.now(), rec)
		return nil
	})
}

// wait waits until no record has changed for long enough.
func (r *raising) wait(ctx context.Context) error {
	for {
		remaining := r.still.earliest() - r.now()
		if remaining <= 0 {
			return nil
		}
		r.tell(remaining)
		if err := r.Sleep(ctx, min(remaining, time.Second)); err != nil {
			return err
		}
	}
}

func (r *raising) tell(remaining time.Duration) {
	if r.OnProgress != nil {
		r.OnProgress(RaiseProgress{Locks: r.found, Remaining: remaining, Done: r.done})
	}
}

// verify returns an error if any record has changed.
func (r *raising) verify(ctx context.Context) error {
	r.done.Foreign = 0
	err := r.look(ctx, func(kind records, rec driver.Record) error {
		switch {
		case !r.still.stands(rec):
			return alive(rec, "has changed since")
		case kind.locks():
			r.locks = append(r.locks, rec)
		case rec.State == driver.Closed:
			r.closed[driver.SessionID(rec.Key)] = rec
		default:
			r.sessions = append(r.sessions, rec)
		}
		return nil
	})
	if rec, gone := r.still.gone(); err == nil && gone {
		err = alive(rec, "is gone since")
	}
	return err
}

// records are the records of one kind that [raising.look] lists.
type records struct {
	list   lister
	prefix string
	bare   bool // tokens that are kept without a record
}

func (k records) locks() bool { return k.prefix != driver.SessionPrefix }

// look visits all records, sessions first. It skips records that cannot be decoded.
func (r *raising) look(ctx context.Context, saw func(records, driver.Record) error) error {
	store := r.Store
	all := []records{{list: store.List, prefix: driver.SessionPrefix}, {list: store.List, prefix: r.prefix}}
	if store.TokenRetainer != nil {
		all = append(all, records{list: store.ListTokens, prefix: r.prefix, bare: true})
	}
	for _, kind := range all {
		list := func(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
			err = r.try(ctx, func(ctx context.Context) (err error) {
				page, err = r.bounded(kind.list)(ctx, prefix, cursor)
				return err
			})
			return page, err
		}
		other := func(key string) bool { return kind.locks() && strings.HasPrefix(key, driver.OwnPrefix) }
		if err := eachPage(ctx, list, kind.prefix, func(page driver.Page) error {
			maps.DeleteFunc(page.Unreadable, func(key string, _ error) bool { return other(key) })
			maps.Copy(r.left, page.Unreadable)
			listed := slices.DeleteFunc(page.Records, func(rec driver.Record) bool { return other(rec.Key) })
			for chunk := range slices.Chunk(listed, raiseAtOnce) {
				recs, err := r.read(ctx, kind, chunk)
				for i := 0; i < len(recs) && err == nil; i++ {
					err = saw(kind, recs[i])
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// read reads records strongly, since a list may be stale, except bare tokens. It
// returns the records to be watched.
func (r *raising) read(ctx context.Context, kind records, listed []driver.Record) ([]driver.Record, error) {
	if kind.bare {
		return listed, nil
	}
	keys := make([]string, len(listed))
	for i, rec := range listed {
		keys[i] = rec.Key
	}
	var found []driver.Lookup
	err := r.try(ctx, func(ctx context.Context) (err error) {
		found, err = r.ReadAll(ctx, keys, nil)
		for i := 0; err == nil && i < len(found); i++ {
			if f := found[i].Err; !errors.Is(f, driver.ErrNotFound) && !errors.Is(f, tenure.ErrUnreadable) {
				err = f
			}
		}
		return err
	})
	var recs []driver.Record
	for i, f := range found {
		switch rec := f.Record; {
		case errors.Is(f.Err, tenure.ErrUnreadable):
			r.left[keys[i]] = f.Err
		case f.Err != nil: // gone since it was listed
		case kind.locks() && !protocol.Readable(rec), !kind.locks() && (rec.Lease <= 0 || !rec.State.OfSession()):
			r.left[keys[i]] = engine.Unreadable(rec)
		case kind.locks() && rec.Beat == "" && rec.Token <= 1:
			r.done.Foreign++ // another client's alone: the next holder would get this token
		default:
			recs = append(recs, rec)
		}
	}
	return recs, err
}

// write closes the sessions, and raises the tokens. No process can renew a lock of a
// closed session any more.
func (r *raising) write(ctx context.Context) error {
	err := r.replaceAll(ctx, r.sessions, &r.done.Sessions, func(ctx context.Context, rec driver.Record) error {
		return r.replace(ctx, rec, protocol.Ended(rec, rand.Text()), r.Store.Swap)
	})
	if err == nil {
		err = r.replaceAll(ctx, r.locks, &r.done.Locks, func(ctx context.Context, rec driver.Record) error {
			how := r.how
			how.Version, how.At = rand.Text(), time.Now().Round(0)
			return r.replace(ctx, rec, r.still.raised(rec, r.closed[rec.Session], how), r.Store.Raise)
		})
	}
	if err != nil || len(r.left) == 0 {
		return err
	}
	r.done.Unreadable = len(r.left)
	const shown = 3
	keys := slices.Sorted(maps.Keys(r.left))
	var errs []error
	for _, key := range keys[:min(len(keys), shown)] {
		errs = append(errs, fmt.Errorf("%q: %w", key, r.left[key]))
	}
	return fmt.Errorf("%d records cannot be read and were left as they were, everything else is done; fix them, and repeat: %w",
		len(keys), errors.Join(errs...))
}

// replaceAll replaces records, a few at once, and counts them.
func (r *raising) replaceAll(
	ctx context.Context, recs []driver.Record, done *int, replace func(context.Context, driver.Record) error,
) (err error) {
	for chunk := range slices.Chunk(recs, raiseAtOnce) {
		errs := make([]error, len(chunk))
		engine.AtOnce(raiseAtOnce, chunk, func(i int, rec driver.Record) { errs[i] = replace(ctx, rec) })
		for i, failed := range errs {
			switch {
			case failed == nil:
				*done++
			case errors.Is(failed, errors.ErrUnsupported), errors.Is(failed, tenure.ErrUnreadable):
				r.left[chunk[i].Key] = failed
			default:
				err = cmp.Or(err, failed)
			}
		}
		if r.tell(0); err != nil {
			break
		}
	}
	return err
}

// replace makes a write, again after an unknown outcome: it names the record that
// it replaces, so that it is applied once.
func (r *raising) replace(ctx context.Context, prev, next driver.Record,
	write func(context.Context, driver.Record, driver.Record) (driver.Record, error),
) error {
	return r.try(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, r.options.RequestTimeout)
		defer cancel()
		_, err := write(ctx, prev, next)
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		is := conflict.Current
		if !conflict.Absent && is.Version == next.Version && is.Token == next.Token {
			return nil // an earlier try of it
		}
		is.Key = prev.Key
		return alive(is, "has changed since")
	})
}

// try makes a call again for as long as the store does not answer, or is busy: for up
// to a lease.
func (r *raising) try(ctx context.Context, do func(context.Context) error) error {
	return r.Persist(ctx, r.options.LeaseDuration, func(err error) bool {
		return !errors.Is(err, tenure.ErrAlive) && !errors.Is(err, tenure.ErrPermanent) && !errors.Is(err, errors.ErrUnsupported) &&
			!errors.Is(err, tenure.ErrUnreadable)
	}, do)
}

// alive is the error of a record that has changed.
func alive(rec driver.Record, how string) error {
	what := fmt.Sprintf("lock %q", rec.Key)
	if id, session := strings.CutPrefix(rec.Key, driver.SessionPrefix); session {
		what = "session " + id
	}
	if rec.Owner != "" {
		what += fmt.Sprintf(", of %q under token %d,", rec.Owner, rec.Token)
	}
	return fmt.Errorf("%w: %s %s it was watched: stop all programs that use the store first, and then repeat",
		tenure.ErrAlive, what, how)
}
