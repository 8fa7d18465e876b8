// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package admin has the operations of operators on locks that others hold, or have left:
// release the locks of dead holders, revoke the lock of a holder that does not answer,
// delete unused records from a store, and raise its tokens after a loss. Its functions act
// through a [tenure.Client], whose owner name the history shows.
//
// # Guarantees
//
// No function frees a lock while its holder may act, or deletes a record that may be in
// use: a holder that has written a heartbeat within its lease is alive. Each write names
// the record that it replaces.
//
// # What is not guaranteed
//
// [RaiseTokens] and [ReleaseCrashed] believe their callers: that all programs are stopped,
// and that a holder has ended.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// ReleaseDead releases the lock of a dead holder, for a caller that cannot wait
// until an acquirer takes it over. It watches the record until the holder has shown no
// sign of life for the lease duration that the record states, and releases it then. If
// there is a sign of life the error matches [tenure.ErrAlive]; if there is no holder,
// [tenure.ErrNotHeld].
func ReleaseDead(ctx context.Context, client *tenure.Client, name, reason string) error {
	return ask(ctx, client, "release", name, driver.Request{Kind: driver.ReleaseDead, Reason: reason})
}

// Revoke takes the lock away from its holder, alive or not. From the first write
// on, the holder cannot renew any more. It may be at work until its lease has
// expired, so the lock is free only after that, and Revoke waits until then. If ctx
// ends before, the lock stays reserved for nobody, and is free for any client that
// has watched this record for the lease duration.
//
// Use it for a holder that does not answer. Ask a responsive holder to step down
// instead: it can end its work in order, and is faster. A single lock of a session
// cannot be revoked while the session is alive, or may be alive as far as this
// client has seen: the error matches [tenure.ErrAlive]. [ReleaseDead] watches, and
// releases the lock when the session is dead.
func Revoke(ctx context.Context, client *tenure.Client, name, reason string) error {
	return ask(ctx, client, "revoke", name, driver.Request{Kind: driver.Revoke, Reason: reason})
}

// CrashOptions are the options of [ReleaseCrashed].
type CrashOptions struct {
	// After is how long the lock stays held, from the call on: the last requests of the dead
	// holder to its resource may still be on their way. If zero, it is
	// [tenure.Options.Grace], as after a lease that expires; a negative value means no time
	// at all, which is right only if the resource is fenced.
	After time.Duration
	// Within bounds the retries, from the call on; it is at least as long as After.
	// If zero, two lease durations. By then the lease has expired by itself.
	Within time.Duration
}

// ReleaseCrashed releases the lock of a lease whose holder has certainly ended without
// releasing it, so that others need not wait until the lease has expired. The id is the id of
// the lease: [tenure.Lease.ID]. The caller answers for the death: the holder's process, all
// that it had started, and every other process that has worked under the lease, must have
// ended. Neither the end of a connection proves that, nor the exit of a process that may have
// left children. For a holder without a heartbeat for its lease, [ReleaseDead] needs no proof.
//
// Only a record that shows exactly this lease is written. If the lock was taken, released or
// reserved meanwhile, the error matches [tenure.ErrNotHeld]. The term ends as
// [tenure.EndCrashed], unless the holder has recorded why it stopped. Other errors are the
// store's, or match the context's; the lease then expires by itself.
func ReleaseCrashed(ctx context.Context, client *tenure.Client, name, id string, options *CrashOptions) error {
	timing := client.Options()
	var o CrashOptions
	if options != nil {
		o = *options
	}
	o.After = cmp.Or(o.After, timing.Grace)
	o.Within = cmp.Or(o.Within, max(o.After, 0)+2*timing.LeaseDuration)
	err := checkName(name)
	switch {
	case err != nil:
	case id == "":
		err = text.Invalid("the id of the lease is empty")
	case text.CheckForm("lease id", id, driver.MaxSessionLen) != nil:
		err = text.CheckForm("lease id", id, driver.MaxSessionLen)
	case o.Within < 0 || o.Within < o.After:
		err = text.Invalid("within %v must not be shorter than after %v", o.Within, o.After)
	case ctx.Err() != nil:
		err = engine.Done(ctx)
	default:
		err = client.Engine().ReleaseCrashed(ctx, name, id, o.After, o.Within)
	}
	return wrap("release", name, err)
}

// ask asks something of the record of a lock, in the name of the client.
func ask(ctx context.Context, client *tenure.Client, op, name string, q driver.Request) error {
	err := cmp.Or(checkName(name), text.CheckReason(q.Reason))
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err == nil {
		err = client.Engine().Ask(ctx, name, q)
	}
	return wrap(op, name, err)
}

func checkName(name string) error { return text.CheckKey("lock name", name, driver.MaxNameLen) }

func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: key, Err: err}
}

// operator is what the functions of this package are carried out by.
type operator struct {
	*engine.Client
	options tenure.Options
}

func operatorOf(client *tenure.Client) operator { return operator{client.Engine(), client.Options()} }

func (o operator) now() time.Duration { return o.options.Clock.Contender() }

// lister returns a page of records, as [driver.Store.List] does.
type lister func(ctx context.Context, prefix, cursor string) (driver.Page, error)

// maxListing is how long a page of a list may take: some engines read all that there is
// for it.
const maxListing = time.Minute

// bounded returns a list whose pages each take at most maxListing, or a lease.
func (o operator) bounded(list lister) lister {
	return func(ctx context.Context, prefix, cursor string) (driver.Page, error) {
		ctx, cancel := context.WithTimeout(ctx, max(maxListing, o.options.LeaseDuration))
		defer cancel()
		return list(ctx, prefix, cursor)
	}
}

// eachPage shows records, page by page, until an error.
func eachPage(ctx context.Context, list lister, prefix string, show func(driver.Page) error) error {
	for cursor := ""; ; {
		page, err := list(ctx, prefix, cursor)
		if err == nil {
			err = show(page)
		}
		if cursor = page.Cursor; err != nil || cursor == "" {
			return err
		}
	}
}

// sweepAtOnce is how many sessions are watched at once.
const sweepAtOnce = 64

// Sweep deletes the records of ended sessions. It closes sessions whose heartbeat
// has not changed for their lease, so that their locks are free. It deletes all
// closed sessions, once it has seen them closed for longer than any write of theirs
// can be late. It watches each session, which takes up to five times the longer of
// its lease and this client's. It returns the number of deleted records. It leaves
// living sessions alone.
//
// It reads the records of all sessions, and is for occasional use: a client
// deletes the sessions that it has closed, if it lives long enough. The error is
// the store's, or matches the context's; swept still counts the records deleted
// before it.
func Sweep(ctx context.Context, client *tenure.Client) (swept int, err error) {
	var ids []string
	for st, err := range client.Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		ids = append(ids, st.ID)
	}
	gone, errs := make([]bool, len(ids)), make([]error, len(ids))
	engine.AtOnce(sweepAtOnce, ids, func(i int, id string) {
		if ctx.Err() != nil {
			return
		}
		if gone[i], errs[i] = client.Engine().ReapSession(id).Wait(ctx); errs[i] != nil {
			errs[i] = wrap("sweep", "session "+id, errs[i])
		}
	})
	for i, deleted := range gone {
		if deleted {
			swept++
		}
		err = cmp.Or(err, errs[i])
	}
	if err == nil && ctx.Err() != nil {
		err = wrap("sweep", "sessions", engine.Done(ctx))
	}
	return swept, err
}

// SweepOptions say which locks [SweepReleased] deletes.
type SweepOptions struct {
	// ReleasedFor is how long a lock must have been free. It is at least a
	// minute: by then no write of its last holder can come late any more. For the
	// same reason four leases of that holder must have passed.
	ReleasedFor time.Duration
	// RestartTokens says that the tokens of the locks may begin at 1 again. A
	// fence that remembers a higher token then refuses the next holders, until
	// it is reset. It is not needed where the store keeps the tokens of deleted
	// locks (see [driver.TokenRetainer]).
	RestartTokens bool
	// DryRun counts the locks, and deletes nothing.
	DryRun bool
}

// SweptLocks are what [SweepReleased] has found.
type SweptLocks struct {
	// Locks is how many were deleted, and History how many records of their
	// history. After a dry run Locks is how many would be deleted; History is 0.
	Locks   int `json:"locks"`
	History int `json:"history"`
	// WithData is how many were left alone because they have data: of a holder
	// for the next holder, or the size of a semaphore, which is in use although
	// it has not been written for long.
	WithData int `json:"with_data"`
	// Taken is how many were left alone because a process took them meanwhile.
	Taken int `json:"taken"`
}

// minReleasedFor is the least [SweepOptions.ReleasedFor], and lingerLeases how many
// leases of its last holder a lock must have been free for.
const (
	minReleasedFor = time.Minute
	lingerLeases   = 4
)

// SweepReleased deletes the records of locks that were released long ago, and their
// history, so that a store whose locks always have new names does not grow. It lists the
// locks whose names begin with prefix, and their history; it may be slow. It compares the
// time of a release, by the wall clock of the last holder, with the clock of this machine.
// With a wrong clock a lock is deleted early or late, which harms only users that need its
// token or its history. A lock that is held, reserved, under a session, or has data, is
// left alone.
//
// This client holds a lock while it deletes the lock's history. So a process that
// takes the lock meanwhile does not lose its terms. The error is the store's, or
// matches the context's; the result still counts the records deleted before it.
func SweepReleased(
	ctx context.Context, client *tenure.Client, prefix string, options *SweepOptions,
) (SweptLocks, error) {
	var o SweepOptions
	if options != nil {
		o = *options
	}
	s := releasedSweep{operator: operatorOf(client), SweepOptions: o, past: map[string][]driver.Record{}}
	keeps := s.Store.TokenRetainer != nil && s.Store.TokenRetainer.KeepsTokens()
	err := s.Usable()
	switch {
	case o.ReleasedFor < minReleasedFor:
		err = fmt.Errorf("released for %v must be at least %v", o.ReleasedFor, minReleasedFor)
	case !keeps && !o.RestartTokens && !o.DryRun:
		err = fmt.Errorf("this store does not keep the tokens of deleted locks: they begin at 1 again, " +
			"and fences refuse them, so RestartTokens must allow it")
	}
	if err == nil {
		err = s.run(ctx, prefix)
	}
	return s.swept, wrap("sweep", prefix, err)
}

// releasedSweep is one [SweepReleased] under way.
type releasedSweep struct {
	SweepOptions
	operator
	locks []driver.Record            // to be deleted
	past  map[string][]driver.Record // the history of those, by name, the oldest first
	swept SweptLocks
}

func (s *releasedSweep) run(ctx context.Context, prefix string) error {
	err := eachPage(ctx, s.bounded(s.Store.List), prefix, func(page driver.Page) error {
		for _, rec := range page.Records {
			switch {
			case strings.HasPrefix(rec.Key, driver.OwnPrefix), rec.State != driver.Released, !protocol.Readable(rec),
				rec.Until.IsZero(), time.Since(rec.Until.Round(0)) < max(s.ReleasedFor, lingerLeases*rec.Lease),
				rec.Token >= driver.MaxToken:
			case len(rec.Data) > 0:
				s.swept.WithData++
			default:
				s.locks, s.past[rec.Key] = append(s.locks, rec), nil
			}
		}
		return nil
	})
	if s.DryRun {
		s.swept.Locks = len(s.locks)
	}
	if err != nil || s.DryRun || len(s.locks) == 0 {
		return err
	}
	err = eachPage(ctx, s.bounded(s.Store.List), protocol.HistoryPrefix+prefix, func(page driver.Page) error {
		for _, rec := range page.Records {
			name, _ := protocol.HistoryOf(rec.Key)
			if past, swept := s.past[name]; swept && rec.State == driver.Past {
				s.past[name] = append(past, rec)
			}
		}
		return nil
	})
	for i := 0; i < len(s.locks) && err == nil; i++ {
		err = s.remove(ctx, s.locks[i])
	}
	return err
}

// remove deletes a lock and its history, if the lock has not changed since it was read.
// It leaves alone a lock that another process has written meanwhile.
func (s *releasedSweep) remove(ctx context.Context, rec driver.Record) error {
	history, err := s.DeleteReleased(ctx, rec, s.past[rec.Key])
	s.swept.History += history
	var conflict *driver.ConflictError
	switch {
	case err == nil:
		s.swept.Locks++
	case errors.As(err, &conflict):
		s.swept.Taken++
	default:
		return err
	}
	return nil
}

// ReapOptions say which locks [Reap] watches.
type ReapOptions struct {
	// Names are the locks to watch; in addition all locks whose names begin with one of
	// Prefixes are watched; "" begins all names. At least one of both is needed.
	Names, Prefixes []string
	// ListEvery is how often the names of Prefixes are listed, which may be slow: a
	// millisecond at least. If zero, every ten minutes. A new lock is watched from the next list
	// on.
	ListEvery time.Duration
	// Once makes Reap return when each lock that has a holder now was released, or
	// its holder has written a heartbeat, which takes a lease.
	Once bool
	// Reason is written into the history with each release. If empty, it says that the
	// holder has shown no sign of life.
	Reason string
	// OnReaped is called with what was released, and OnError with what went wrong
	// meanwhile: an error of the store, which is asked again, or a record that cannot be
	// read. Both may be nil, and are called one at a time. They hold up the watching.
	OnReaped func(Reaped)
	OnError  func(error)
}

// Reaped is a lock that [Reap] has released, or a session that it has closed.
type Reaped struct {
	// Name is the name of the lock, empty for a session.
	Name string `json:"lock,omitempty"`
	// Session is the id of the session, empty for a lock.
	Session string `json:"session,omitempty"`
	// Owner, Token and Host describe the holder.
	Owner string `json:"owner,omitempty"`
	Token uint64 `json:"token,omitempty"`
	Host  string `json:"host,omitempty"`
}

const (
	reapListEvery = 10 * time.Minute
	// reapLeast is the least pause between two reads of a lock, whatever lease its record
	// names, and reapErrors the pause after a read with an error.
	reapLeast, reapErrors = 100 * time.Millisecond, time.Minute
	// reapReads is how many locks are read, and reapWrites how many are released, at once.
	reapReads, reapWrites = 1000, 16
)

// Reap watches locks, and releases those whose holders are dead, so that a caller that
// tries only once, such as a scheduled job, finds them free. It releases only locks that
// a waiting acquirer would take: it reads each record every half of the record's lease,
// and releases the lock when the holder has written no heartbeat for that lease, as
// [ReleaseDead] does. It closes a session without a heartbeat, which frees all locks
// under it, and deletes its record later, like [Sweep].
//
// A dead holder's lock is free within one and a half times its lease. Any number of
// clients may watch the same locks: if another client releases a lock first, nothing is
// left to do. Each lock costs two strong reads in a lease, whatever its state is.
//
// It returns nil when ctx ends, or with [ReapOptions.Once] when that is done; otherwise
// the error says what is wrong with the options, or that the client is closed. With
// Once it is that of the store if the names cannot be listed.
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

// reapLock is a watched lock.
type reapLock struct {
	named bool          // by the caller
	due   time.Duration // when it is due
	seen  bool
	first time.Duration // after the first read
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

// round reads the locks that are due, or waits until one is. It returns false if none will be.
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
	return true, r.Sleep(ctx, next-now)
}

// find lists the names. Locks that were deleted are no longer watched.
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

// death is a lock of a dead holder, or a dead session with its locks.
type death struct {
	tenure.Status
	locks []*reapLock
}

// look reads records, and releases locks whose record has not changed for longer than its
// lease.
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
			// it has written a heartbeat after all, or another client was faster
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
		if err := r.Sleep(ctx, r.Timing().MinPollInterval()); err != nil {
			_, _ = s.Wait(ctx) // gives up
			return err
		}
	}
}
