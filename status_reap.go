// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
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
	// reapAtOnce is how many locks are read, and how many are released, at once.
	reapAtOnce, reapWrites = 1000, 16
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
	r := &reap{c: c, ReapOptions: options, locks: map[string]*reapLock{}, sessions: map[string]bool{}, places: make(chan struct{}, reapWrites)}
	if err := r.check(); err != nil {
		return wrap("reap", strings.Join(options.Prefixes, " "), err)
	}
	ctx, stop := context.WithCancel(ctx)
	err := r.run(ctx)
	stop()
	r.writes.Wait()
	if err != nil {
		return wrap("reap", strings.Join(options.Prefixes, " "), err)
	}
	return nil
}

// reap is one [Client.Reap] under way.
type reap struct {
	ReapOptions
	c      *Client
	listed time.Duration // when the next list is due
	writes sync.WaitGroup
	places chan struct{}

	telling sync.Mutex // held while the caller is told of something

	mu       sync.Mutex
	locks    map[string]*reapLock // guarded by mu
	sessions map[string]bool      // guarded by mu: those that are being closed
}

// reapLock is a lock that is watched.
type reapLock struct {
	name  string
	named bool          // by the caller
	list  int           // the latest that has shown it
	due   time.Duration // when it is to be looked at
	seen  bool
	first time.Duration // after the first look
	busy  bool          // it is being released
	over  bool          // with Once: nothing is left to do
}

func (r *reap) check() error {
	if len(r.Names)+len(r.Prefixes) == 0 {
		return invalid("no names and no prefixes: name the locks to watch, or a prefix of their names, which may be empty")
	}
	for _, name := range r.Names {
		if err := checkKey(name); err != nil {
			return err
		}
	}
	for _, prefix := range r.Prefixes {
		if strings.HasPrefix(prefix, driver.OwnPrefix) {
			return invalid("no lock has a name that begins with %q: such names are for records of Tenure itself", driver.OwnPrefix)
		}
	}
	switch {
	case r.ListEvery < 0:
		return invalid("the pause %v between two lists must not be negative", r.ListEvery)
	case r.ListEvery > 0 && r.ListEvery < protocol.MinPeriod:
		return invalid("the pause %v between two lists must be at least %v, since each reads the whole list: is its unit right?", r.ListEvery, protocol.MinPeriod)
	case r.ListEvery == 0:
		r.ListEvery = reapListEvery
	}
	if r.Reason == "" {
		r.Reason = reapReason
	}
	if err := checkReason(r.Reason); err != nil {
		return err
	}
	if r.OnError == nil {
		r.OnError = func(error) {}
	}
	if r.OnReaped == nil {
		r.OnReaped = func(Reaped) {}
	}
	for _, name := range r.Names {
		r.locks[name] = &reapLock{name: name, named: true}
	}
	return r.c.refusal()
}

// run looks, and waits, until ctx ends.
func (r *reap) run(ctx context.Context) error {
	for lists := 0; ; {
		now := r.c.clock.Contender()
		if len(r.Prefixes) > 0 && now >= r.listed && (lists == 0 || !r.Once) {
			lists++
			err := r.list(ctx, lists)
			now = r.c.clock.Contender()
			r.listed = now + r.ListEvery
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && r.Once:
				return err
			case err != nil:
				r.failed(err)
				r.listed = now + min(r.ListEvery, r.c.timing.Lease)
			}
		}
		for due := range slices.Chunk(r.due(now), reapAtOnce) {
			r.look(ctx, due)
		}
		next, more := r.next()
		if !more && (r.Once || len(r.Prefixes) == 0) {
			return nil
		}
		if len(r.Prefixes) > 0 && !r.Once {
			next = min(next, r.listed)
		}
		select {
		case <-time.After(max(next-r.c.clock.Contender(), time.Millisecond)):
		case <-ctx.Done():
			return nil
		case <-r.c.closing:
			return ErrClosed
		case <-r.c.voided:
			return r.c.refusal()
		}
	}
}

func (r *reap) failed(err error) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.OnError(err)
}

// list finds the names. Those that are gone are watched no longer.
func (r *reap) list(ctx context.Context, n int) error {
	for _, prefix := range r.Prefixes {
		for cursor := ""; ; {
			within, cancel := context.WithTimeout(ctx, max(maxListing, r.c.timing.Lease))
			page, err := r.c.store.List(within, prefix, cursor)
			cancel()
			if err != nil {
				return err
			}
			r.mu.Lock()
			for _, rec := range page.Records {
				if strings.HasPrefix(rec.Key, driver.OwnPrefix) || rec.State.OfSession() {
					continue
				}
				k := r.locks[rec.Key]
				if k == nil {
					k = &reapLock{name: rec.Key}
					r.locks[rec.Key] = k
				}
				k.list = n
			}
			r.mu.Unlock()
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, k := range r.locks {
		if !k.named && k.list < n && !k.busy {
			delete(r.locks, name)
		}
	}
	return nil
}

// due returns the locks that are to be looked at now, or so soon that one request serves.
func (r *reap) due(now time.Duration) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, k := range r.locks {
		if !k.over && !k.busy && k.due <= now {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// next returns when a lock is to be looked at, and false if none is, ever.
func (r *reap) next() (at time.Duration, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = r.c.clock.Contender() + r.ListEvery
	for _, k := range r.locks {
		switch {
		case k.over:
			continue
		case k.busy:
			at = min(at, r.c.clock.Contender()+reapLeast)
		default:
			at = min(at, k.due)
		}
		more = true
	}
	return at, more
}

// look reads records, and has those freed that stand for longer than their lease.
func (r *reap) look(ctx context.Context, names []string) {
	begun := r.c.clock.Contender()
	list, errs := r.c.Statuses(ctx, names)
	if ctx.Err() != nil {
		return
	}
	now := r.c.clock.Contender()
	for _, err := range r.noted(ctx, names, list, errs, begun, now) {
		r.failed(err)
	}
}

// noted takes in what a look has shown, and returns the errors to tell.
func (r *reap) noted(ctx context.Context, names []string, list []Status, errs []error, begun, now time.Duration) (failed []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, st := range list {
		k := r.locks[names[i]]
		if k == nil {
			continue
		}
		if err := errs[i]; err != nil {
			if len(failed) == 0 || errors.Is(err, ErrUnreadable) {
				failed = append(failed, err) // an outage is one error, not one for each lock
			}
			if k.due = now + r.c.timing.Lease/2; errors.Is(err, ErrUnreadable) {
				k.due = now + max(reapErrors, r.c.timing.Lease/2)
				k.over = r.Once
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
		if holds && st.FreeIn == 0 {
			begun := r.bury(ctx, k, st)
			k.over = r.Once && !begun
		}
	}
	return failed
}

// bury has a lock released, or the session under which it is held closed. It returns false
// if that is done already. The caller holds the mutex.
func (r *reap) bury(ctx context.Context, k *reapLock, st Status) bool {
	if st.Session == "" {
		k.busy = true
		r.writes.Go(func() { r.release(ctx, k, st) })
		return true
	}
	s := r.c.sessionStatus(st.Session)
	if s.State != StateAlive {
		return false // it is closed, or gone: the lock can be taken at once
	}
	if !r.sessions[s.ID] {
		r.sessions[s.ID] = true
		r.writes.Go(func() { r.close(ctx, s) })
	}
	k.due = min(k.due, r.c.clock.Contender()+max(reapLeast, r.c.timing.RequestTimeout)) // to see that it is done
	return true
}

// place waits until few enough others write.
func (r *reap) place(ctx context.Context) (leave func(), ok bool) {
	select {
	case r.places <- struct{}{}:
		return func() { <-r.places }, true
	case <-ctx.Done():
		return nil, false
	}
}

func (r *reap) release(ctx context.Context, k *reapLock, st Status) {
	leave, ok := r.place(ctx)
	if !ok {
		return
	}
	defer leave()
	err := r.c.ReleaseDead(ctx, k.name, r.Reason)
	if ctx.Err() != nil && err != nil {
		return
	}
	r.mu.Lock()
	k.busy, k.due = false, r.c.clock.Contender()+max(st.Lease/2, reapLeast)
	k.over = r.Once && (err == nil || errors.Is(err, ErrAlive) || errors.Is(err, ErrNotHeld))
	r.mu.Unlock()
	r.told(err, Reaped{Name: k.name, Owner: st.Owner, Token: st.Token, Host: st.Host})
}

// close closes a dead session. It lives on until the session's record can be deleted, or
// ctx ends.
func (r *reap) close(ctx context.Context, s SessionStatus) {
	reaping := r.c.reap(s.ID)
	watched := make(chan struct{})
	go func() { // tells when it is closed, which is long before it is deleted
		defer close(watched)
		for end := false; ; {
			now := r.c.sessionStatus(s.ID)
			if now.State == StateClosed && now.End == EndExpired {
				r.told(nil, Reaped{Session: s.ID, Owner: s.Owner, Host: s.Host})
			}
			if now.State != StateAlive || end {
				return
			}
			select {
			case <-reaping.ended:
				end = true
			case <-ctx.Done():
				end = true
			case <-time.After(max(reapLeast, r.c.timing.Pause())):
			}
		}
	}()
	_, err := reaping.wait(ctx)
	<-watched
	r.mu.Lock()
	delete(r.sessions, s.ID)
	r.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		r.failed(wrap("reap", "session "+s.ID, err))
	}
}

// told tells the caller what came of a release.
func (r *reap) told(err error, what Reaped) {
	switch {
	case err == nil:
		r.telling.Lock()
		defer r.telling.Unlock()
		r.OnReaped(what)
	case errors.Is(err, ErrAlive), errors.Is(err, ErrNotHeld):
		// it has shown life after all, or another one was quicker
	default:
		r.failed(err)
	}
}
