// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Session is one heartbeat that keeps any number of locks of a process alive. A
// lock under a session is written only when it changes hands. When the session
// ends, all of them end. The session's record in the store is no lock's: see
// [Session.ID].
//
// All methods may be called concurrently. A session that was lost does not come
// back: open another one.
type Session struct {
	parent
	client *Client
	closed chan struct{} // when it is over, or its heartbeats have stopped
	ending engine.Timer  // on the contender's clock: fails the acquires that wait under it
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
func (s *Session) ID() string { return s.id }

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.client }

// Context returns a context that ends when no lock may be held under the session
// any more: at its deadline, on its loss, and when it is closed. The contexts of
// all leases under it end with it. context.Cause says why: an error that matches
// [ErrLost], or [ErrSessionClosed], or [ErrClosed].
func (s *Session) Context() context.Context { return s.ctx }

// Check returns nil while the holders of the locks under the session may act, if
// nothing else has ended their leases, as [Lease.Check] does.
func (s *Session) Check() error {
	switch why := s.deadline.Check(); why {
	case engine.NotEnded:
		return nil
	case engine.EndedReleased:
		return wrap("check", s.name(), ErrSessionClosed)
	default:
		return wrap("check", s.name(), s.endedError(why))
	}
}

// Remaining returns the time until the deadline, 0 when the session has ended.
func (s *Session) Remaining() time.Duration { return s.deadline.Remaining() }

// Renew sends a heartbeat now, as [Lease.Renew] does.
func (s *Session) Renew(ctx context.Context) error { return s.wrapped("renew", s.renew(ctx)) }

// SetData writes data into the session's record, as [Lease.SetData] does into that
// of a lock. It has at most 64 KiB.
func (s *Session) SetData(ctx context.Context, data []byte) error {
	err := checkSessionData(data)
	if err == nil {
		err = s.setData(ctx, data)
	}
	return s.wrapped("set data", err)
}

// Leases returns how many locks are held under the session, including those whose
// work is still stopping.
func (s *Session) Leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper.Locks()
}

// Acquire takes a lock under the session, as [Client.Acquire] does for one that is
// its own lease. If the session ends meanwhile, or has ended, the error matches
// [ErrSessionClosed] and the reason for the end.
func (s *Session) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "acquire", name, options, &s.parent, false)
}

// TryAcquire takes a lock under the session, as [Client.TryAcquire] does for one
// that is its own lease.
func (s *Session) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return s.client.acquire(ctx, "try acquire", name, options, &s.parent, true)
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
	return s.client.election(name, options, &s.parent)
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
func (s *Session) Close(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	s.stop(ErrSessionClosed)
	select {
	case <-s.closed:
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrSessionClosed) {
			// A context of a lease under it, which this call has ended.
			return s.Close(context.WithoutCancel(ctx))
		}
		return wrap("close", s.name(), uncertain(done(ctx)))
	case <-s.c.gone:
		select {
		case <-s.closed:
		default:
			return wrap("close", s.name(), uncertain(ErrClosed))
		}
	}
	return s.wrapped("close", s.result())
}

// Session returns the session that keeps the lock alive, nil if the lock is its
// own lease.
func (l *Lease) Session() *Session {
	if l.under == nil {
		return nil
	}
	return l.under.of.(*Session)
}

func checkSessionData(data []byte) error {
	if len(data) > driver.MaxSessionDataLen {
		return invalid("data has %d bytes: at most %d are allowed for a session", len(data), driver.MaxSessionDataLen)
	}
	return nil
}

// OpenSession opens a session: one heartbeat that keeps any number of locks of
// this process alive. It is open until it is closed or lost. It costs one write,
// and one each heartbeat period. ctx bounds the opening alone.
//
// Its heartbeats are sent in the background, whatever [Options.Heartbeat] says;
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
		err = done(ctx)
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
	p := c.open(t, append([]byte(nil), o.Data...), patience)
	select {
	case <-p.ended:
	case <-ctx.Done():
		err = done(ctx)
	case <-c.closing:
		err = ErrClosed
	case <-c.voided:
		err = c.refusal()
	}
	if err != nil {
		p.giveUp()
		return nil, wrap(op, what, err)
	}
	if p.err != nil {
		return nil, wrap(op, what, p.err)
	}
	return p.s, nil
}

// opening is one call of OpenSession.
type opening struct {
	c     *Client
	t     protocol.Timing
	begun time.Duration
	ended chan struct{} // closed when s or err is there

	mu   sync.Mutex // guards the fields below; taken before a session's
	run  engine.Run
	m    *protocol.Opener
	left bool // nobody waits for it
	over bool
	s    *Session
	err  error
}

func (c *Client) open(t protocol.Timing, data []byte, patience time.Duration) *opening {
	p := &opening{
		c: c, t: t, begun: c.clock.Contender(), ended: make(chan struct{}),
		m: protocol.NewOpener(t, c.env, driver.Record{
			Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label, Data: data, Bell: c.ringer.own(),
		}, patience),
	}
	p.run = engine.Run{
		Machine: p.m, Mutex: &p.mu, Clock: c.contender, Timers: c.looks, Send: c.sender(t),
		Stepped: p.stepped,
		Replied: func(_ time.Duration, _ *protocol.Call, r protocol.Result) {
			if r.Err != nil {
				c.events.emit(Event{Kind: EventStoreError, Err: r.Err})
			} else if r.Err == nil {
				c.events.answered()
			}
		},
	}
	if c.began(nil) != nil {
		p.left = true
	}
	p.run.Step()
	return p
}

func (p *opening) giveUp() {
	p.mu.Lock()
	p.left = true
	s := p.s
	p.mu.Unlock()
	if s != nil {
		s.discard() // it came at the same moment
		return
	}
	p.run.Do(p.m.GiveUp)
}

func (p *opening) stepped(time.Duration, protocol.Action) {
	if p.over {
		return
	}
	if g, ok := p.m.Granted(); ok {
		p.opened(g)
	} else if err := p.m.Err(); err != nil && p.err == nil {
		p.err = err
		close(p.ended)
	}
	if p.over = p.m.Over(); p.over {
		p.c.finished(nil)
	}
}

// opened begins the session.
func (p *opening) opened(g protocol.Grant) {
	c := p.c
	s := &Session{client: c, closed: make(chan struct{})}
	s.id, s.keeper = driver.SessionID(g.Record.Key), protocol.NewKeeper(p.t, c.env, g)
	s.waiters, s.leases = map[*acquire]struct{}{}, map[*protocol.Holder]*keeping{}
	s.c, s.t, s.key, s.since = &c.base, p.t, g.Record.Key, c.clock.Holder()
	s.prepare(context.Background(), s, new(sync.Mutex), nil)
	s.loop.Wake, s.loop.Begin = s.wake, s.drive
	s.ending.Run = func(time.Duration) { s.fail() }
	s.mu.Lock()
	s.begin(s.keeper, s.keeper.Holder)
	open := c.began(&s.keeping) == nil
	s.mu.Unlock()
	s.do(s.m.Step)
	open = s.standing() && open
	c.events.emit(Event{
		Kind: EventOpened, Session: s.id, Owner: g.Record.Owner,
		Took: c.clock.Contender() - p.begun, Remaining: s.Remaining(), Grace: p.t.Grace,
	})
	switch {
	case p.left || !open:
		s.discard()
		if p.err = c.refusal(); p.err == nil {
			p.err = ErrClosed // given up
		}
	case s.Check() != nil:
		s.discard()
		p.err = ErrExpired // paused between the call and now
	default:
		p.s = s
	}
	close(p.ended)
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

// What a session's record says, in [SessionStatus.State].
const (
	StateAlive  = string(driver.Alive)  // it keeps locks alive, if its owner lives
	StateClosed = string(driver.Closed) // it has ended, and nobody holds a lock under it
)

// SessionStatus reads the record of a session. It waits as [Client.Status] does.
// A session that is not there, because it was closed long ago, has an empty State.
func (c *Client) SessionStatus(ctx context.Context, id string) (SessionStatus, error) {
	if err := checkSessionID(id); err != nil {
		return SessionStatus{}, wrap("status", "session", err)
	}
	err := ctx.Err()
	if err == nil && c.isClosed() {
		err = ErrClosed
	}
	if err == nil {
		err = c.seeSessions(ctx, []string{id}, false)
	}
	if err != nil {
		return SessionStatus{}, wrap("status", "session "+id, err)
	}
	return c.sessionStatus(id), nil
}

// EventualSessionStatuses is [Client.SessionStatus] of many sessions, for programs that look
// again and again: by reads that may be behind, and only of those that have a heartbeat due.
// The answers are in the order of the ids. They may be behind by as long as such a read is,
// and the end of a session by a heartbeat period.
func (c *Client) EventualSessionStatuses(ctx context.Context, ids []string) ([]SessionStatus, []error) {
	list, errs := make([]SessionStatus, len(ids)), make([]error, len(ids))
	err := ctx.Err()
	if err == nil && c.isClosed() {
		err = ErrClosed
	}
	good := map[string]struct{}{}
	for i, id := range ids {
		if errs[i] = checkSessionID(id); errs[i] == nil {
			good[id] = struct{}{}
		}
	}
	if err == nil {
		err = c.seeSessions(ctx, slices.Sorted(maps.Keys(good)), true)
	}
	for i, id := range ids {
		switch {
		case errs[i] != nil:
			errs[i] = wrap("status", "session", errs[i])
		case err != nil:
			errs[i] = wrap("status", "session "+id, err)
		default:
			list[i] = c.sessionStatus(id)
		}
	}
	return list, errs
}

// Sessions reads the records of all sessions, in the order of their ids. It may be
// slow. A record that cannot be read comes as an error, and the others follow.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionStatus, error] {
	return func(yield func(SessionStatus, error) bool) {
		const op, what = "list", "sessions"
		for cursor := ""; ; {
			if c.isClosed() {
				yield(SessionStatus{}, wrap(op, what, ErrClosed))
				return
			}
			sent := c.clock.Contender()
			page, err := c.store.List(ctx, driver.SessionPrefix, cursor)
			if err != nil {
				yield(SessionStatus{}, wrap(op, what, err))
				return
			}
			c.seeing.Lock()
			now := c.clock.Contender()
			for _, rec := range page.Records {
				c.sessions.Of(driver.SessionID(rec.Key)).Saw(sent, now, driver.Eventual, rec, true)
			}
			c.seeing.Unlock()
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
	c.seeing.Lock()
	defer c.seeing.Unlock()
	st := SessionStatus{ID: id}
	u := c.sessions.Of(id)
	rec, found := u.Record()
	if !found {
		return st
	}
	st.State, st.Owner, st.Host, st.Label, st.Data = string(rec.State), rec.Owner, rec.Host, rec.Label, rec.Data
	st.Since, st.Until, st.Lease, st.Heartbeat = rec.Since, rec.Until, rec.Lease, rec.Heartbeat
	st.End, st.Requests = string(rec.End), len(rec.Requests)
	now := c.clock.Contender()
	if dead, alive := u.DeadAt(); alive {
		st.Unchanged, st.FreeIn = now-u.Since(), max(0, dead-now)
		st.Alive = st.FreeIn > 0
	}
	return st
}

func checkSessionID(id string) error {
	if id == "" {
		return invalid("the id of the session is empty")
	}
	return checkForm("session id", id, driver.MaxSessionLen)
}
