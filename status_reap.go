// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// ReapOptions say which locks [Client.Reap] watches.
type ReapOptions struct {
	// Names are locks, and Prefixes begin the names of all that are watched besides; ""
	// begins all names. One of both is needed.
	Names, Prefixes []string
	// ListEvery is how often the names of Prefixes are listed, which may be slow: a
	// millisecond at least. If zero, every ten minutes. A lock that is new is watched from the next list on.
	ListEvery time.Duration
	// Once has it return when each lock that has a holder now was released, or its
	// holder has shown that it lives, which takes a lease.
	Once bool
	// Reason is written into the history with each release. If empty, it says that the
	// holder has shown no sign of life.
	Reason string
	// OnReaped is told of what was freed, and OnError of what went wrong meanwhile: an
	// error of the store, which is asked again, or a record that cannot be read. Both may
	// be nil, and are called one at a time. They hold up the watching.
	OnReaped func(Reaped)
	OnError  func(error)
}

// Reaped is a lock that [Client.Reap] has released, or a session that it has closed.
type Reaped struct {
	// Name is that of the lock, empty for a session.
	Name string
	// Session is the id of the session, empty for a lock.
	Session string
	// Owner, Token and Host are those of the holder.
	Owner string
	Token uint64
	Host  string
}

// reapReason is [ReapOptions.Reason] if it is empty.
const reapReason = "no sign of life for its lease"

const (
	reapListEvery = 10 * time.Minute
	// reapLeast is the least pause between two looks at a lock, whatever lease its record
	// names, and reapErrors that between two looks at one which gave an error.
	reapLeast, reapErrors = 100 * time.Millisecond, time.Minute
	// reapReads is how many locks are read, and reapWrites how many are released, at once.
	reapReads, reapWrites = 1000, 16
)

// Reap watches locks, and releases those whose holders are dead, so that one who looks
// just once finds them free: a job of a scheduler, say, that does not wait. It takes
// nothing that a waiting contender would not: it looks at each record each half of the
// lease that the record names, and releases the lock when the holder has shown no sign of
// life for that lease, as [Client.ReleaseDead] does. A session that shows none is closed,
// which frees all locks under it, and its record is deleted later, as by [Client.Sweep].
//
// A dead holder's lock is free within one and a half of its lease. Any number of clients
// may watch the same locks: a release that another one was quicker with is done. Each lock
// costs two strong reads in a lease, whatever its state is.
//
// It returns nil when ctx ends, or with [ReapOptions.Once] when that is done; else the
// error says what is wrong with the options, or that the client is closed. With Once it
// is that of the store if the names cannot be listed.
func (c *Client) Reap(ctx context.Context, options ReapOptions) error {
	r := &reap{c: c, ReapOptions: options, locks: map[string]*reapLock{}, sessions: map[string]*reapSession{}}
	err := r.check()
	if err == nil {
		within, stop := context.WithCancel(ctx)
		err = r.run(within)
		stop()
		r.closed(within)
		for _, s := range r.sessions {
			_, _ = s.Wait(within) // gives up what is left to do
		}
	}
	if err != nil {
		return wrap("reap", strings.Join(options.Prefixes, " "), err)
	}
	return nil
}

// reap is one [Client.Reap] under way.
type reap struct {
	ReapOptions
	c        *Client
	listed   time.Duration // when the next list is due
	locks    map[string]*reapLock
	sessions map[string]*reapSession // those that are being closed
}

// reapLock is a lock that is watched.
type reapLock struct {
	named bool          // by the caller
	due   time.Duration // when it is to be looked at
	seen  bool
	first time.Duration // after the first look
	over  bool          // with Once: nothing is left to do
}

// reapSession is a dead session.
type reapSession struct {
	*engine.SessionReaper
	Reaped
	told bool
}

func (r *reap) check() error {
	if len(r.Names)+len(r.Prefixes) == 0 {
		return invalid("no names and no prefixes: " +
			"name the locks to watch, or a prefix of their names, which may be empty")
	}
	for _, name := range r.Names {
		if err := checkKey(name); err != nil {
			return err
		}
		r.locks[name] = &reapLock{named: true}
	}
	for _, prefix := range r.Prefixes {
		if strings.HasPrefix(prefix, driver.OwnPrefix) {
			return invalid("no lock has a name that begins with %q: such names are for records of Tenure itself",
				driver.OwnPrefix)
		}
	}
	switch {
	case r.ListEvery < 0:
		return invalid("the pause %v between two lists must not be negative", r.ListEvery)
	case r.ListEvery > 0 && r.ListEvery < protocol.MinPeriod:
		return invalid("the pause %v between two lists must be at least %v, since each reads the whole list: "+
			"is its unit right?", r.ListEvery, protocol.MinPeriod)
	case r.ListEvery == 0:
		r.ListEvery = reapListEvery
	}
	r.Reason = cmp.Or(r.Reason, reapReason)
	if err := checkReason(r.Reason); err != nil {
		return err
	}
	if r.OnError == nil {
		r.OnError = func(error) {}
	}
	if r.OnReaped == nil {
		r.OnReaped = func(Reaped) {}
	}
	return r.c.engine.Usable()
}

// run looks, and waits, until ctx ends.
func (r *reap) run(ctx context.Context) error {
	for first := true; ; first = false {
		if len(r.Prefixes) > 0 && r.c.clock.Contender() >= r.listed && (first || !r.Once) {
			err := r.list(ctx)
			now := r.c.clock.Contender()
			r.listed = now + r.ListEvery
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && r.Once:
				return err
			case err != nil:
				r.OnError(err)
				r.listed = now + min(r.ListEvery, r.c.timing.Lease)
			}
		}
		for names := range slices.Chunk(r.due(), reapReads) {
			r.look(ctx, names)
		}
		r.closed(ctx)
		next, more := r.next()
		if !more && (r.Once || len(r.Prefixes) == 0) {
			return nil
		}
		select {
		case <-time.After(max(next-r.c.clock.Contender(), time.Millisecond)):
		case <-ctx.Done():
			return nil
		case <-r.c.engine.Closing():
			return ErrClosed
		case <-r.c.engine.Replaced():
			return r.c.engine.Usable()
		}
	}
}

// list finds the names. Those that are gone are watched no longer.
func (r *reap) list(ctx context.Context) error {
	there := map[string]*reapLock{}
	for _, prefix := range r.Prefixes {
		if err := eachPage(ctx, r.c.bounded(r.c.store.List), prefix, func(page driver.Page) error {
			for _, rec := range page.Records {
				if strings.HasPrefix(rec.Key, driver.OwnPrefix) || rec.State.OfSession() {
					continue
				}
				if r.locks[rec.Key] == nil {
					r.locks[rec.Key] = &reapLock{}
				}
				there[rec.Key] = r.locks[rec.Key]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	maps.DeleteFunc(r.locks, func(name string, k *reapLock) bool { return !k.named && there[name] == nil })
	return nil
}

// due returns the locks that are to be looked at now.
func (r *reap) due() (names []string) {
	now := r.c.clock.Contender()
	for name, k := range r.locks {
		if !k.over && k.due <= now {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// next returns when there is something to do, and false if no lock is to be looked at, ever.
func (r *reap) next() (at time.Duration, more bool) {
	now := r.c.clock.Contender()
	at = now + r.ListEvery
	if len(r.Prefixes) > 0 && !r.Once {
		at = r.listed
	}
	if len(r.sessions) > 0 {
		at = min(at, now+max(reapLeast, r.c.timing.Pause()))
	}
	for _, k := range r.locks {
		if !k.over {
			at, more = min(at, k.due), true
		}
	}
	return at, more
}

// look reads records, and frees what stands for longer than its lease.
func (r *reap) look(ctx context.Context, names []string) {
	begun := r.c.clock.Contender()
	list, errs := r.c.Statuses(ctx, names, nil)
	if ctx.Err() != nil {
		return
	}
	now := r.c.clock.Contender()
	var dead []Status
	failed := false
	for i, st := range list {
		k := r.locks[names[i]]
		if err := errs[i]; err != nil {
			unread := errors.Is(err, ErrUnreadable)
			if !failed || unread { // an outage is one error, not one for each lock
				r.OnError(err)
			}
			failed = true
			if k.due = now + r.c.timing.Lease/2; unread {
				k.due, k.over = now+max(reapErrors, r.c.timing.Lease/2), r.Once
			}
			continue
		}
		lease := st.Lease
		if lease <= 0 {
			lease = r.c.timing.Lease
		}
		pause := max(lease/2, reapLeast)
		holds := st.State == StateHeld || st.State == StateReserved
		if holds && st.FreeIn > 0 {
			pause = max(min(pause, st.FreeIn), reapLeast)
		}
		k.due = now + pause
		lives := k.seen && st.Held && st.Unchanged < begun-k.first // a reservation shows no life
		k.over = r.Once && (!holds || lives)
		if !k.seen {
			k.seen, k.first = true, now
		}
		switch {
		case !holds || st.FreeIn > 0:
		case st.Session != "":
			r.close(k, st)
		default:
			dead = append(dead, st)
		}
	}
	r.release(ctx, dead)
}

// release releases the locks of the dead.
func (r *reap) release(ctx context.Context, dead []Status) {
	errs := make([]error, len(dead))
	engine.AtOnce(reapWrites, dead, func(i int, st Status) {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = r.c.ReleaseDead(ctx, st.Name, r.Reason)
		}
	})
	for i, st := range dead {
		over := true
		switch err := errs[i]; {
		case err == nil:
			r.OnReaped(Reaped{Name: st.Name, Owner: st.Owner, Token: st.Token, Host: st.Host})
		case errors.Is(err, ErrAlive), errors.Is(err, ErrNotHeld):
			// it has shown life after all, or another one was quicker
		default:
			if over = false; ctx.Err() == nil {
				r.OnError(err)
			}
		}
		r.locks[st.Name].over = r.Once && over
	}
}

// close has a dead session closed, under which a lock is held.
func (r *reap) close(k *reapLock, st Status) {
	s := r.c.sessionStatus(st.Session)
	if s.State != StateAlive { // it is closed, or gone: the lock can be taken at once
		k.over = r.Once
		return
	}
	if r.sessions[s.ID] == nil {
		what := Reaped{Session: s.ID, Owner: s.Owner, Host: s.Host}
		r.sessions[s.ID] = &reapSession{SessionReaper: r.c.engine.ReapSession(s.ID), Reaped: what}
	}
	// to see that it is done
	k.due = min(k.due, r.c.clock.Contender()+max(reapLeast, r.c.timing.RequestTimeout))
}

// closed tells of sessions that are closed now, which is long before they are deleted.
func (r *reap) closed(ctx context.Context) {
	for id, s := range r.sessions {
		if now := r.c.sessionStatus(id); !s.told && now.State == StateClosed && now.End == EndExpired {
			s.told = true
			r.OnReaped(s.Reaped)
		}
		select {
		case <-s.Ended():
			delete(r.sessions, id)
			if _, err := s.Wait(ctx); err != nil && ctx.Err() == nil {
				r.OnError(wrap("reap", "session "+id, err))
			}
		default:
		}
	}
}
