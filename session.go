// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/text"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A
// lock under a session is written only when it changes hands. When the session
// ends, all of them end. The session's record in the store is no lock's: see
// [Session.ID].
//
// All methods may be called concurrently. A session that was lost does not come
// back: open another one.
type Session struct {
	held   *engine.SessionHolder
	client *Client
}

// SessionOptions are for one session. Nil means the defaults.
type SessionOptions struct {
	// Data is written into the session's record, for others to read: the address of
	// the process, say. It has at most 64 KiB.
	Data []byte

	// Timing has the durations of the session and of all locks under it, if they are not
	// to be the client's. ProgressTimeout counts for each lock.
	Timing Timing

	// StoreTimeout is how long the store may fail to give any answer before
	// OpenSession returns its error. If zero, it is the lease duration; negative
	// means for ever.
	StoreTimeout time.Duration
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
	if err == ErrReleased { //nolint:errorlint // this one: it was closed
		err = ErrSessionClosed
	}
	return s.wrapped("check", err)
}

// wrapped returns err as that of an operation on the session, nil for nil.
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

// SetData writes data into the session's record, as [Lease.SetData] does into that
// of a lock. It has at most 64 KiB.
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

// Acquire takes a lock under the session, as [Client.Acquire] does for one that is
// its own lease. If the session ends meanwhile, or has ended, the error matches
// [ErrSessionClosed] and the reason for the end.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", name, options, s.held, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does for one
// that is its own lease.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", name, options, s.held, true)
}

// Run runs work while it holds a lock under the session, as [Client.Run] does
// under one that is its own lease.
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
// [ErrSessionClosed], and fails the acquires that wait for a lock under it. When
// every lease has been released by its holder, one write frees all their locks;
// until then heartbeats go on, for [Options.StopTimeout] at most.
//
// Close waits for that, or until ctx ends, and returns nil or an error as
// [Lease.Release] does: [ErrStopTimeout] if a lease was not released by then, so
// that the session's record runs out by itself. Closing again returns the same.
//
// A context that is already done at the call, or that Close itself ends, is
// ignored, so that a deferred Close works under the context of a signal. Close then
// takes no longer than [Options.StopTimeout], a lease duration, and the request
// that is under way then.
func (s *Session) Close(ctx context.Context) error { return s.wrapped("close", s.held.Close(ctx)) }

// Session returns the session that keeps the lock alive, nil if the lock is its
// own lease.
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

// OpenSession opens a session: one heartbeat that keeps any number of locks of
// this process alive. It is open until it is closed or lost. It costs one write,
// and one each heartbeat period. ctx bounds the opening alone.
//
// Its heartbeats are sent in the background, whatever [Options.ManualHeartbeat] says;
// [Options.ProgressTimeout] counts for each lock under it.
//
// The error matches the context's, [ErrClosed], [ErrExpired] if the process was
// paused until the session was over again, or the store's own error if the store
// cannot be used, cannot keep sessions, or gave no answer for StoreTimeout.
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

// SessionStatus is what the record of a session shows.
type SessionStatus struct {
	ID string
	// State is what the record says: StateAlive or StateClosed; empty if there is
	// none.
	State string
	// Alive says that the session may be alive, as far as this client can know.
	Alive              bool
	Owner, Host, Label string
	Data               []byte
	Since              time.Time // when it was opened, by its owner's wall clock
	Until              time.Time // when it was closed by its owner, zero before
	// Lease and Heartbeat are the durations that its owner keeps.
	Lease, Heartbeat time.Duration
	// End says how it was closed, as in [Tenure.End]: EndReleased by its owner,
	// EndExpired by another client that had seen no sign of its life.
	End string
	// Requests is how many requests to its locks lie in the record.
	Requests int
	// Unchanged is how long this client has seen no sign of life. FreeIn is after
	// how long at the latest its locks can be taken if none comes.
	Unchanged, FreeIn time.Duration
}

// SessionStatus reads the record of a session. It waits as [Client.Status] does.
// A session that is not there, because it was closed long ago, has an empty State.
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
	return c.sessionStatus(id), nil
}

// Sessions reads the records of all sessions, in the order of their ids. It may be
// slow. A record that cannot be read comes as an error, and the others follow.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionStatus, error] {
	return func(yield func(SessionStatus, error) bool) {
		const op, what = "list", "sessions"
		for cursor := ""; ; {
			if c.engine.Closed() {
				yield(SessionStatus{}, wrap(op, what, ErrClosed))
				return
			}
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, driver.SessionPrefix, cursor)
			if err != nil {
				yield(SessionStatus{}, wrap(op, what, err))
				return
			}
			c.engine.SawSessions(sent, page.Records)
			for _, rec := range page.Records {
				if !yield(c.sessionStatus(driver.SessionID(rec.Key)), nil) {
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

// sessionStatus says what was seen of a session last.
func (c *Client) sessionStatus(id string) SessionStatus {
	s := c.engine.Session(id)
	if !s.Found {
		return SessionStatus{ID: id}
	}
	rec := s.Record
	st := SessionStatus{
		ID: id, State: string(rec.State), Owner: rec.Owner, Host: rec.Host, Label: rec.Label, Data: rec.Data,
		Since: rec.Since, Until: rec.Until, Lease: rec.Lease, Heartbeat: rec.Heartbeat,
		End: string(rec.End), Requests: len(rec.Requests), Unchanged: s.Since, FreeIn: s.FreeIn,
	}
	st.Alive = st.FreeIn > 0
	return st
}

func checkSessionID(id string) error {
	if id == "" {
		return text.Invalid("the id of the session is empty")
	}
	return text.CheckForm("session id", id, driver.MaxSessionLen)
}
