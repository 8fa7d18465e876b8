// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// ReapOptions say which locks [Reap] watches.
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

// Reaped is a lock that [Reap] has released, or a session that it has closed.
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
// life for that lease, as [ReleaseDead] does. A session that shows none is closed,
// which frees all locks under it, and its record is deleted later, as by [Sweep].
//
// A dead holder's lock is free within one and a half of its lease. Any number of clients
// may watch the same locks: a release that another one was quicker with is done. Each lock
// costs two strong reads in a lease, whatever its state is.
//
// It returns nil when ctx ends, or with [ReapOptions.Once] when that is done; else the
// error says what is wrong with the options, or that the client is closed. With Once it
// is that of the store if the names cannot be listed.
func Reap(ctx context.Context, client *tenure.Client, options ReapOptions) error {
	r := &reap{operator: operatorOf(client), client: client, ReapOptions: options, locks: map[string]*reapLock{}}
	err := r.check()
	if err == nil {
		err = r.run(ctx)
	}
	return wrap("reap", strings.Join(options.Prefixes, " "), err)
}

// reap is one [Reap] under way.
type reap struct {
	ReapOptions
	operator
	client *tenure.Client
	listed time.Duration // when the next list is due
	locks  map[string]*reapLock
}

// reapLock is a lock that is watched.
type reapLock struct {
	named bool          // by the caller
	due   time.Duration // when it is to be looked at
	seen  bool
	first time.Duration // after the first look
	over  bool          // with Once: nothing is left to do
}

func (r *reap) check() error {
	if len(r.Names)+len(r.Prefixes) == 0 {
		return text.Invalid("no names and no prefixes: " +
			"name the locks to watch, or a prefix of their names, which may be empty")
	}
	for _, name := range r.Names {
		if err := checkName(name); err != nil {
			return err
		}
		r.locks[name] = &reapLock{named: true}
	}
	for _, prefix := range r.Prefixes {
		if strings.HasPrefix(prefix, driver.OwnPrefix) {
			return text.Invalid("no lock has a name that begins with %q: such names are for records of Tenure itself",
				driver.OwnPrefix)
		}
	}
	if r.ListEvery != 0 && r.ListEvery < protocol.MinPeriod {
		return text.Invalid("the pause %v between two lists must be at least %v, since each reads the whole list: "+
			"is its unit right?", r.ListEvery, protocol.MinPeriod)
	}
	r.ListEvery = cmp.Or(r.ListEvery, reapListEvery)
	r.Reason = cmp.Or(r.Reason, "no sign of life for its lease")
	if r.OnError == nil {
		r.OnError = func(error) {}
	}
	if r.OnReaped == nil {
		r.OnReaped = func(Reaped) {}
	}
	return text.CheckReason(r.Reason)
}

// run watches until nothing is left to do, or ctx ends, which is no error.
func (r *reap) run(ctx context.Context) error {
	for again := true; again && ctx.Err() == nil; {
		var err error
		if again, err = r.round(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// round does what is due, or waits until something is. It returns false if nothing will be.
func (r *reap) round(ctx context.Context) (again bool, err error) {
	if err := r.Usable(); err != nil {
		return false, err
	}
	now := r.now()
	if len(r.Prefixes) > 0 && now >= r.listed {
		err := r.find(ctx)
		if r.listed = now + r.ListEvery; r.Once {
			r.listed = math.MaxInt64
		}
		switch {
		case err != nil && r.Once:
			return false, err
		case err != nil && ctx.Err() == nil:
			r.OnError(err)
			r.listed = now + min(r.ListEvery, r.options.LeaseDuration)
		}
	}
	var due []string
	next := r.listed
	if len(r.Prefixes) == 0 {
		next = math.MaxInt64
	}
	for name, k := range r.locks {
		switch {
		case k.over:
		case k.due <= now:
			due = append(due, name)
		default:
			next = min(next, k.due)
		}
	}
	slices.Sort(due)
	for names := range slices.Chunk(due, reapReads) {
		r.look(ctx, names)
	}
	if len(due) > 0 || next == math.MaxInt64 {
		return len(due) > 0, nil
	}
	return true, r.Rest(ctx, next-now)
}

// find finds the names. Those that are gone are watched no longer.
func (r *reap) find(ctx context.Context) error {
	there := map[string]*reapLock{}
	for _, prefix := range r.Prefixes {
		if err := eachPage(ctx, r.bounded(r.Store.List), prefix, func(page driver.Page) error {
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

// death is a lock that a dead holder has left, or those of a dead session.
type death struct {
	tenure.Status
	locks []*reapLock
}

// look reads records, and frees what stands for longer than its lease.
func (r *reap) look(ctx context.Context, names []string) {
	begun := r.now()
	list, errs := r.client.Statuses(ctx, names, nil)
	if ctx.Err() != nil {
		return
	}
	now := r.now()
	var dead []*death
	sessions := map[string]*death{}
	failed := false
	for i, st := range list {
		k := r.locks[names[i]]
		if err := errs[i]; err != nil {
			unread := errors.Is(err, tenure.ErrUnreadable)
			if !failed || unread { // an outage is one error, not one for each lock
				r.OnError(err)
			}
			failed = true
			if k.due = now + r.options.LeaseDuration/2; unread {
				k.due, k.over = now+max(reapErrors, r.options.LeaseDuration/2), r.Once
			}
			continue
		}
		pause := max(cmp.Or(st.Lease, r.options.LeaseDuration)/2, reapLeast)
		holds := st.State == tenure.StateHeld || st.State == tenure.StateReserved
		if holds && st.FreeIn > 0 {
			pause = max(min(pause, st.FreeIn), reapLeast)
		}
		k.due = now + pause
		lives := k.seen && st.Held && st.Unchanged < begun-k.first // a reservation shows no life
		k.over = r.Once && (!holds || lives)
		if !k.seen {
			k.seen, k.first = true, now
		}
		if !holds || st.FreeIn > 0 {
			continue
		}
		d := sessions[st.Session]
		if d == nil {
			d = &death{Status: st}
			dead = append(dead, d)
		}
		if d.locks = append(d.locks, k); st.Session != "" {
			sessions[st.Session] = d
		}
	}
	r.free(ctx, dead)
}

// free releases the locks of the dead, and closes their sessions.
func (r *reap) free(ctx context.Context, dead []*death) {
	errs := make([]error, len(dead))
	engine.AtOnce(reapWrites, dead, func(i int, d *death) {
		if d.Session != "" {
			errs[i] = r.close(ctx, d.Session)
		} else {
			errs[i] = ReleaseDead(ctx, r.client, d.Name, r.Reason)
		}
	})
	for i, d := range dead {
		over := true
		switch err := errs[i]; {
		case err == nil && d.Session != "":
			r.OnReaped(Reaped{Session: d.Session, Owner: d.Owner, Host: d.Host})
		case err == nil:
			r.OnReaped(Reaped{Name: d.Name, Owner: d.Owner, Token: d.Token, Host: d.Host})
		case errors.Is(err, tenure.ErrAlive), errors.Is(err, tenure.ErrNotHeld):
			// it has shown life after all, or another one was quicker
		default:
			if over = false; ctx.Err() == nil {
				r.OnError(err)
			}
		}
		for _, k := range d.locks {
			k.over = r.Once && over
		}
	}
}

// close closes a dead session. Its record is deleted later, when no write of it can be late.
func (r *reap) close(ctx context.Context, id string) error {
	if r.Session(id).Record.State != driver.Alive {
		return tenure.ErrNotHeld // the locks under it can be taken at once
	}
	s := r.ReapSession(id)
	for {
		select {
		case <-s.Ended():
			_, err := s.Wait(ctx)
			return cmp.Or(err, tenure.ErrAlive)
		default:
		}
		if now := r.Session(id).Record; now.State == driver.Closed && now.End == driver.EndExpired {
			return nil
		}
		if err := r.Rest(ctx, r.Timing().Pause()); err != nil {
			_, _ = s.Wait(ctx) // gives up
			return err
		}
	}
}
