// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A lock
// under a session is written only when it changes hands. When the session ends, all its
// locks end. The session has a record of its own in the store: see [Session.ID].
//
// All methods may be called concurrently. A lost session does not come back: open
// another one.
type Session struct {
	held   *engine.SessionHolder
	client *Client
}

// SessionOptions are the options of one session. Nil means the defaults.
type SessionOptions struct {
	// Data is written into the session's record, for others to read, for example the
	// address of the process. It has at most 64 KiB.
	Data []byte

	// Timing has the durations of the session and of all locks under it, if they differ
	// from the client's. ProgressTimeout counts for each lock.
	Timing Timing

	// StoreTimeout is how long the store may fail to give any answer before
	// OpenSession returns its error. If zero, it is the lease duration; negative
	// means for ever.
	StoreTimeout time.Duration
}

// OpenSession opens a session: one heartbeat that keeps any number of locks of
// this process alive. It is open until it is closed or lost. It costs one write,
// and one each heartbeat period. ctx bounds only the opening. On a store that may lose
// writes ([Options.LossyStore]) each failover ends it.
//
// Its heartbeats are sent in the background, whatever [Options.ManualHeartbeat] says;
// [Options.ProgressTimeout] counts for each lock under it.
//
// The error matches the context's, [ErrClosed], [ErrExpired] if the process was paused
// until the session was already over, or the store's own error if the store is
// unusable, cannot keep sessions, or gave no answer for StoreTimeout.
func (c *Client) OpenSession(ctx context.Context, options *SessionOptions) (*Session, error) {
	const op, what = "open", "session"
	var o SessionOptions
	if options != nil {
		o = *options
	}
	err := checkSessionData(o.Data)
	if err == nil && ctx.Err() != nil {
		err = engine.Done(ctx)
	}
	if err != nil {
		return nil, wrap(op, what, err)
	}
	t, err := o.Timing.of(c.timing)
	if err != nil {
		return nil, wrap(op, what, err)
	}
	patience := t.Lease
	if o.StoreTimeout != 0 {
		patience = max(0, o.StoreTimeout)
	}
	held, err := c.engine.OpenSession(ctx, engine.SessionOptions{Timing: t, Data: append([]byte(nil), o.Data...), Patience: patience})
	if err != nil {
		return nil, wrap(op, what, err)
	}
	s := &Session{held: held, client: c}
	held.Of = s
	return s, nil
}

// ID returns the id of the session. No id is ever used twice.
func (s *Session) ID() string { return s.held.ID() }

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.client }

// Context returns a context that ends when no lock may be held under the session
// any more: at its deadline, on its loss, and when it is closed. The contexts of
// all leases under it end with it. context.Cause says why: an error that matches
// [ErrLost], or [ErrSessionClosed], or [ErrClosed].
func (s *Session) Context() context.Context { return s.held.Context() }

// Check returns nil while the holders of the locks under the session may act, if
// nothing else has ended their leases, as [Lease.Check] does.
func (s *Session) Check() error {
	err := s.held.Check()
	if err == ErrReleased { //nolint:errorlint // this value: the session was closed
		err = ErrSessionClosed
	}
	return s.wrapped("check", err)
}

// wrapped returns err as the error of an operation on the session, nil for nil.
func (s *Session) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, "session "+s.ID(), err)
}

// Remaining returns the time until the deadline, 0 when the session has ended.
func (s *Session) Remaining() time.Duration { return s.held.Remaining() }

// Renew sends a heartbeat now, as [Lease.Renew] does.
func (s *Session) Renew(ctx context.Context) error { return s.wrapped("renew", s.held.Renew(ctx)) }

// SetData writes data into the session's record, as [Lease.SetData] does for a lock.
// The data have at most 64 KiB.
func (s *Session) SetData(ctx context.Context, data []byte) error {
	err := checkSessionData(data)
	if err == nil {
		err = s.held.SetData(ctx, data)
	}
	return s.wrapped("set data", err)
}

// Leases returns how many locks are held under the session, including those whose
// work is still stopping.
func (s *Session) Leases() int { return s.held.Locks() }

// Acquire takes a lock under the session, as [Client.Acquire] does without one. If the
// session ends meanwhile, or has ended, the error matches [ErrSessionClosed] and the
// reason for the end.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", name, options, s.held, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does without one.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", name, options, s.held, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does without
// one.
func (s *Session) Run(ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error) error {
	if err := checkWork("run", name, work == nil); err != nil {
		return err
	}
	return run(ctx, name, options, work, s.Acquire)
}

// Election returns the election of the given name, as [Client.Election] does; its
// winner leads under the session. When the session is lost, the election's Run
// returns an error that matches [ErrSessionClosed]; when the session is closed, Run
// returns what work returned.
func (s *Session) Election(name string, options *ElectionOptions) *Election {
	return s.client.election(name, options, s.held)
}

// Close ends the session. It cancels the contexts of all leases under it with
// [ErrSessionClosed], and fails the acquires that wait for a lock under it. When all
// leases have been released, one write frees all their locks; until then heartbeats go
// on, for [Options.StopTimeout] at most.
//
// Close waits for that, or until ctx ends, and returns nil or an error as
// [Lease.Release] does: [ErrStopTimeout] if a lease was not released by then, so that
// the session's record expires by itself. Closing again returns the same.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works with the context of a signal. Close then
// takes at most [Options.StopTimeout], a lease duration, and the request that is under
// way then.
func (s *Session) Close(ctx context.Context) error { return s.wrapped("close", s.held.Close(ctx)) }

// Session returns the session that keeps the lock alive, nil if the lock has its own
// lease.
func (l *Lease) Session() *Session {
	if s := l.held.Under(); s != nil {
		return s.Of.(*Session)
	}
	return nil
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return text.Invalid("data has %d bytes: at most %d are allowed for a session", len(data), driver.MaxSessionDataLen)
	}
	return nil
}

// SessionStatus is what the record of a session shows.
type SessionStatus struct {
	ID string
	// State is the state in the record: StateAlive or StateClosed; empty without a record.
	State string
	// Alive says that the session may be alive, as far as this client can know.
	Alive              bool
	Owner, Host, Label string
	Data               []byte
	Since              time.Time // when it was opened, by its owner's wall clock
	Until              time.Time // when it was closed by its owner, zero before
	// Lease and Heartbeat are its owner's durations.
	Lease, Heartbeat time.Duration
	// End says how it was closed, as in [Term.End]: EndReleased by its owner, EndExpired
	// by another client that had observed no sign of life.
	End string
	// Requests is how many requests for its locks are in the record.
	Requests int
	// Unchanged is how long this client has observed no sign of life. FreeIn is how long
	// its locks stay held at most if none comes.
	Unchanged, FreeIn time.Duration
}

// SessionStatus reads the record of a session. It waits as [Client.Status] does.
// A session without a record, because it was closed long ago, has an empty State.
func (c *Client) SessionStatus(ctx context.Context, id string, options *ReadOptions) (SessionStatus, error) {
	if err := checkSessionID(id); err != nil {
		return SessionStatus{}, wrap("status", "session", err)
	}
	err := ctx.Err()
	if err == nil && c.engine.Closed() {
		err = ErrClosed
	}
	if err == nil {
		err = c.engine.ReadSessions(ctx, []string{id}, options.orDefault().Eventual)
	}
	if err != nil {
		return SessionStatus{}, wrap("status", "session "+id, err)
	}
	return sessionStatusOf(id, c.engine.Session(id)), nil
}

// Sessions reads the records of all sessions, in the order of their ids. It may be
// slow. An unreadable record is yielded as an error, and the others follow.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionStatus, error] {
	return func(yield func(SessionStatus, error) bool) {
		const op, what = "list", "sessions"
		for cursor := ""; ; {
			if c.engine.Closed() {
				yield(SessionStatus{}, wrap(op, what, ErrClosed))
				return
			}
			page, seen, err := c.engine.ListSessions(ctx, cursor)
			if err != nil {
				yield(SessionStatus{}, wrap(op, what, err))
				return
			}
			for i, rec := range page.Records {
				if !yield(sessionStatusOf(driver.SessionID(rec.Key), seen[i]), nil) {
					return
				}
			}
			for key, err := range page.Unreadable {
				if !yield(SessionStatus{ID: driver.SessionID(key)}, wrap(op, key, err)) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

func sessionStatusOf(id string, s engine.SessionSnapshot) SessionStatus {
	if !s.Found {
		return SessionStatus{ID: id}
	}
	rec := s.Record
	st := SessionStatus{
		ID: id, State: string(rec.State), Owner: rec.Owner, Host: rec.Host, Label: rec.Label, Data: bytes.Clone(rec.Data),
		Since: rec.Since, Until: rec.Until, Lease: rec.Lease, Heartbeat: rec.Heartbeat,
		End: string(rec.End), Requests: len(rec.Requests), Unchanged: s.Since, FreeIn: s.FreeIn,
	}
	st.Alive = s.Alive
	return st
}

func checkSessionID(id string) error {
	if id == "" {
		return text.Invalid("session id is empty")
	}
	return text.CheckForm("session id", id, driver.MaxSessionLen)
}

// LeaseSet is a set of locks that are held together, under one session: see
// [Session.AcquireAll]. All methods may be called concurrently.
type LeaseSet struct {
	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	leases  []*Lease // in the order of their names
}

// AcquireAll takes several locks under the session, all of them or none, and waits until
// it has them. names may be in any order. At least one must be given, and none twice.
//
// The locks are taken one after the other in the order of their names, the same in every
// process, so that callers of AcquireAll never deadlock. That holds for one call at a
// time: a program that has some locks and then waits for others must keep to that order
// itself.
//
// If one of the locks cannot be taken, or ctx ends, AcquireAll releases the others and
// returns the error of [Session.Acquire] for that lock. A lock that was taken may end
// while AcquireAll waits for another, for example by a request to step down. Then all are
// released, and AcquireAll begins again.
//
// The options apply to each lock, but Wait to all of them together. AcquireAll costs two
// writes for each lock, to take and to release it, and no heartbeat but the session's.
func (s *Session) AcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "acquire all", names, options, false)
}

// TryAcquireAll is like AcquireAll, but does not wait for holders. If one of the locks
// is held, the error is a [*HeldError], which matches [ErrHeld].
func (s *Session) TryAcquireAll(ctx context.Context, names []string, options *AcquireOptions) (*LeaseSet, error) {
	return s.acquireAll(ctx, "try acquire all", names, options, true)
}

// RunAll takes several locks as AcquireAll does, runs work while all of them are held,
// waits for it to return, and releases them. The context of work carries ctx's values,
// and ends with ctx and with the first of the leases. RunAll returns what [Client.Run]
// would.
func (s *Session) RunAll(ctx context.Context, names []string, options *AcquireOptions, work func(context.Context, *LeaseSet) error) error {
	if work == nil && checkNames(names) == nil {
		return wrap("run all", names[0], errNoWork)
	}
	t, err := s.AcquireAll(ctx, names, options)
	if err != nil {
		return err
	}
	return t.run(ctx, work)
}

// Leases returns the leases, in the order of the names of their locks.
func (t *LeaseSet) Leases() []*Lease { return slices.Clone(t.leases) }

// Lease returns the lease of a lock, nil if the set does not contain it.
func (t *LeaseSet) Lease(name string) *Lease {
	i, found := slices.BinarySearchFunc(t.leases, name, func(l *Lease, name string) int { return cmp.Compare(l.Name(), name) })
	if !found {
		return nil
	}
	return t.leases[i]
}

// Session returns the session that keeps all of the locks alive.
func (t *LeaseSet) Session() *Session { return t.session }

// Context returns a context that ends when the first of the leases ends, or must stop:
// see [Lease.Context]. context.Cause says which, and why.
func (t *LeaseSet) Context() context.Context { return t.ctx }

// Check returns nil while the holder may act under all of the locks, otherwise the
// error of [Lease.Check] of the first lease that has ended. Call it before every side
// effect.
func (t *LeaseSet) Check() error {
	for _, l := range t.leases {
		if err := l.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Remaining returns the time until the first deadline of the leases, 0 when the right to
// act under one of them has ended.
func (t *LeaseSet) Remaining() time.Duration {
	least := t.leases[0].Remaining()
	for _, l := range t.leases[1:] {
		least = min(least, l.Remaining())
	}
	return least
}

// Release releases all of the locks in parallel, each as [Lease.Release] does, and returns
// their errors joined. Call it when the work has returned. Releasing again returns the
// same.
func (t *LeaseSet) Release(ctx context.Context) error {
	return errors.Join(t.release(ctx, nil)...)
}

func (t *LeaseSet) release(ctx context.Context, options *ReleaseOptions) []error {
	t.cancel(ErrReleased)
	failed := make([]error, len(t.leases))
	var all sync.WaitGroup
	for i, l := range t.leases {
		all.Go(func() { failed[i] = l.ReleaseWith(ctx, options) })
	}
	all.Wait()
	return failed
}

func (s *Session) acquireAll(
	ctx context.Context, op string, names []string, options *AcquireOptions, try bool,
) (*LeaseSet, error) {
	if err := checkNames(names); err != nil {
		return nil, wrap(op, "session "+s.ID(), err)
	}
	var o AcquireOptions
	if options != nil {
		o = *options
	}
	over := func(err error) error { return err }
	if !try && o.Wait > 0 { // for all locks together
		var stop context.CancelFunc
		ctx, stop, over = engine.Within(ctx, o.Wait)
		defer stop()
		o.Wait = 0
	}
	acquire := func(ctx context.Context, name string) (*Lease, error) {
		return s.client.acquire(ctx, op, name, &o, s.held, try)
	}
	for {
		t := &LeaseSet{session: s}
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		missing, err := t.take(ctx, slices.Sorted(slices.Values(names)), acquire)
		switch e := new(Error); {
		case err == nil:
			return t, nil
		case errors.Is(err, errSetEnded):
			t.giveBack(ctx, missing)
		default:
			t.free()
			if errors.As(err, &e) {
				err = wrap(e.Op, e.Key, over(e.Err))
			}
			return nil, err
		}
	}
}

// errSetEnded is why a set is released: one of its locks has ended while others were taken.
var errSetEnded = errors.New("another lock of the set has ended")

// take takes the locks one after the other. All processes do so in the same order: each waits
// for a lock while it holds only lesser ones, so that they never deadlock. Waiting again for a
// lock that has ended, while others are still held, would break that order. So take gives up
// with errSetEnded when one of them ends. missing is the lock that it could not take, empty if
// it has all.
func (t *LeaseSet) take(
	ctx context.Context, sorted []string, acquire func(ctx context.Context, name string) (*Lease, error),
) (missing string, err error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(t.ctx, func() { stop(errSetEnded) })()
	for _, name := range sorted {
		l, err := acquire(waiting, name)
		switch {
		case err == nil:
			t.leases = append(t.leases, l)
			context.AfterFunc(l.Context(), func() { // the set ends with the lease
				t.cancel(wrap("hold", name, context.Cause(l.Context())))
			})
		case ctx.Err() == nil && t.ctx.Err() != nil:
			return name, errSetEnded
		default:
			return name, err
		}
	}
	// An ended lease stays ended: if all pass, all were good when the first was checked.
	for _, l := range t.leases {
		if l.Context().Err() != nil || l.Check() != nil {
			return "", errSetEnded
		}
	}
	return "", nil
}

// free begins to release the leases of the set.
func (t *LeaseSet) free() {
	t.cancel(ErrReleased)
	for _, l := range t.leases {
		l.held.Free()
	}
}

// giveBack releases the locks that were taken, and returns when the releases have ended:
// waiting for a lesser lock before that would break the order. That includes the missing lock,
// whose claim may have been applied. A release without an answer ends after a lease. If it was
// not applied, the session holds an orphan. It releases the orphan when another process waits
// for the lock, within two leases.
func (t *LeaseSet) giveBack(ctx context.Context, missing string) {
	t.free()
	for _, l := range t.leases {
		if ctx.Err() == nil {
			_ = l.Release(ctx)
		}
	}
	t.session.held.Settle(ctx, missing)
}

// run runs work under all leases, and releases them.
func (t *LeaseSet) run(ctx context.Context, work func(context.Context, *LeaseSet) error) error {
	bound, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(t.ctx, func() { stop(context.Cause(t.ctx)) })()
	defer context.AfterFunc(ctx, func() {
		for _, l := range t.leases {
			l.held.Stop(context.Cause(ctx))
		}
	})()
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			t.release(context.WithoutCancel(ctx), t.failure(ctx, errBroken))
		}
	}()
	err := work(bound, t)
	returned = true

	asked := context.Cause(t.ctx)
	for i, lost := range t.release(context.WithoutCancel(ctx), t.failure(ctx, err)) {
		if errors.Is(lost, ErrLost) || errors.Is(lost, ErrStopTimeout) {
			err = lostWith(&Error{"run all", t.leases[i].Name(), errors.Unwrap(lost)}, err)
		}
	}
	if told := new(Error); err != nil && errors.Is(asked, ErrSteppedDown) && errors.As(asked, &told) {
		return lostWith(&Error{"run all", told.Key, told.Err}, err)
	}
	return err
}

// failure returns the release options for the error of work: see [Lease.failure].
func (t *LeaseSet) failure(ctx context.Context, err error) *ReleaseOptions {
	if err == nil || ctx.Err() != nil || t.ctx.Err() != nil || t.Check() != nil {
		return nil
	}
	return &ReleaseOptions{Failed: err}
}

// checkNames returns an error if names are not valid for a set.
func checkNames(names []string) error {
	if len(names) == 0 {
		return text.Invalid("no lock name given: name at least one")
	}
	seen := map[string]bool{}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if seen[name] {
			return text.Invalid("lock name %q is given twice: a set has each lock only once", name)
		}
		seen[name] = true
	}
	return nil
}
