// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// SessionHolder is a session of this client, and the acquires that wait for a lock under
// it. Everything under a session is stepped under one mutex, the session's, because its
// machine and its locks' machines read each other. The machine decides what happens:
// see [protocol.SessionHolder].
type SessionHolder struct {
	heldRecord // of the session's own record: the heartbeat, and the deadline of all locks
	// Of is the API's session.
	Of any

	id      string
	machine *protocol.SessionHolder
	closed  chan struct{} // closed when it is over, or its heartbeats have stopped
	ending  timer         // on the contender's clock: fails the acquires that wait under it

	// releaseMu admits one release at a time, and is taken before mu, but never by a timer: a
	// burst of releases delays a heartbeat by at most one of them.
	releaseMu sync.Mutex

	waiters map[*acquire]struct{}             // not ended; guarded by the client's viewMu
	leases  map[*protocol.Holder]*LeaseHolder // not over; guarded by mu
}

// ID returns the id of the session.
func (s *SessionHolder) ID() string { return s.id }

// Locks returns how many locks are held under the session, including those whose work is
// still stopping.
func (s *SessionHolder) Locks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Locks()
}

// Close ends the session, and waits until its locks are free, or ctx ends.
func (s *SessionHolder) Close(ctx context.Context) error {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	s.Stop(ErrSessionClosed)
	select {
	case <-s.closed:
	case <-ended:
		if errors.Is(context.Cause(ctx), ErrSessionClosed) {
			// ctx belongs to a lease under the session, which this call has ended.
			return s.Close(context.WithoutCancel(ctx))
		}
		return uncertain(Done(ctx))
	case <-s.c.gone:
		select {
		case <-s.closed:
		default:
			return uncertain(ErrClosed)
		}
	}
	return s.result()
}

// Settle waits until the abandoned acquires of a lock under the session have ended, and what
// they wrote is released. Settle waits for at most a lease, as a release does: a write
// without an answer may be applied as long as the session lives.
func (s *SessionHolder) Settle(ctx context.Context, key string) {
	ctx, stop := context.WithTimeout(ctx, s.t.Lease)
	defer stop()
	var ends []chan struct{}
	s.c.viewMu.Lock()
	for a := range s.waiters {
		if !a.settled || a.Want.Key != key {
			continue
		}
		if a.over == nil {
			a.over = make(chan struct{})
		}
		ends = append(ends, a.over)
	}
	s.c.viewMu.Unlock()
	for _, over := range ends {
		select {
		case <-over:
		case <-s.c.gone:
		case <-ctx.Done():
		}
	}
}

// fail fails the acquires that wait for a lock under the session, which has ended. If its
// record is closed, fail notes that in the view.
func (s *SessionHolder) fail() {
	c := s.c
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	for a := range s.waiters {
		a.failIfSessionEnded()
	}
	s.mu.Lock()
	freed, rec := s.h.Freed(), s.h.Record()
	s.mu.Unlock()
	if freed != protocol.Released || rec.State != driver.Closed {
		return
	}
	now := c.clock()
	c.sessions.Of(s.id).Observe(now, now, driver.Strong, rec, true)
	c.reapLater(s.id)
}

// discard closes a session that no caller waits for any more.
func (s *SessionHolder) discard() {
	s.deadline.End(endedReleased)
	s.do(func(now time.Duration) protocol.Action {
		s.stopFor(ErrReleased)
		return s.machine.GiveUp(now)
	})
}

// noted fails the acquires that wait under the session when it has ended. The caller holds
// the mutex.
func (s *SessionHolder) noted(notes []protocol.Note) {
	for _, n := range notes {
		if n == protocol.NoteEnded || n == protocol.NoteQuiet || n == protocol.NoteOver {
			s.c.readTimers.Set(&s.ending, 0)
		}
	}
}

// ended is called when no call is sent any more, with the event that reports it. It returns
// the event to emit.
func (s *SessionHolder) ended(e Event) Event {
	s.deadline.End(endedReleased)
	if e.Kind == EventReleased {
		e.Kind = EventClosed
	}
	return e
}

// why returns why no lock can be taken under the session.
func (s *SessionHolder) why() error {
	s.mu.Lock()
	cause := s.cause // not the context's cause: the context may be busy cancelling all others
	s.mu.Unlock()
	switch {
	case cause == nil && s.c.Closed():
		cause = ErrClosed
	case cause == nil:
		cause = ErrExpired // the expiry has not been reported yet
	}
	if errors.Is(cause, ErrSessionClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrSessionClosed, cause)
}

// admit notes an acquire under the session, unless that has ended. The caller
// holds viewMu.
func (s *SessionHolder) admit(a *acquire) error {
	if !s.isOpen() {
		return s.why()
	}
	s.waiters[a] = struct{}{}
	return nil
}

// isOpen says that locks may be taken under the session.
func (s *SessionHolder) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Open(s.c.leaseClock())
}

// wake steps a lease's machine for the session's machine, or the session's machine for a
// lease's.
func (s *SessionHolder) wake(m protocol.Machine) {
	if h, ok := m.(*protocol.Holder); ok {
		if l := s.leases[h]; l != nil {
			l.loop.act(h.Step)
		}
		return
	}
	s.loop.act(m.Step)
}

// drive drives a machine that the session's has begun, which releases an orphan: a lock
// held in the session's name without the session's knowledge.
func (s *SessionHolder) drive(m protocol.Machine) {
	run := s.c.run(m, nobody{}, s.mu)
	run.act(m.Step)
}

// SessionOptions are for one session.
type SessionOptions struct {
	Timing protocol.Timing
	Data   []byte
	// Patience is how long the store may fail to give any answer; 0: for ever.
	Patience time.Duration
}

// OpenSession opens a session. ctx bounds the opening only.
func (c *Client) OpenSession(ctx context.Context, o SessionOptions) (*SessionHolder, error) {
	p := &opening{
		c: c, t: new(o.Timing), begun: c.clock(), ended: make(chan struct{}),
		m: protocol.NewSessionOpener(o.Timing, c.env, driver.Record{
			Owner: c.options.Owner, Host: c.options.Host, Label: c.options.Label, Data: o.Data, Notify: c.notifier.own(),
		}, o.Patience),
	}
	p.run = c.run(p.m, p, &p.mu)
	p.run.timeout = o.Timing.RequestTimeout
	if c.began() != nil {
		p.abandoned = true
	}
	p.run.step()
	if err := c.wait(ctx, p.ended); err != nil {
		p.giveUp()
		return nil, err
	}
	return p.s, p.err
}

// opening is one call of OpenSession.
type opening struct {
	nobody
	c     *Client
	t     *protocol.Timing
	begun time.Duration
	ended chan struct{} // closed when s or err is there

	mu        sync.Mutex // guards the fields below
	run       run
	m         *protocol.SessionOpener
	abandoned bool // no caller waits for it
	over      bool
	s         *SessionHolder
	err       error
}

func (p *opening) giveUp() {
	p.mu.Lock()
	p.abandoned = true
	s := p.s
	p.mu.Unlock()
	if s != nil {
		s.discard() // the session was opened at the same moment
		return
	}
	p.run.do(p.m.GiveUp)
}

func (p *opening) replied(_ time.Duration, _ *protocol.Call, r protocol.Result) {
	if r.Err != nil {
		p.c.events.emit(Event{Kind: EventStoreError, Err: r.Err})
	} else {
		p.c.events.answered()
	}
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
		p.c.finished()
	}
}

// opened begins the session.
func (p *opening) opened(g protocol.Grant) {
	c := p.c
	s := &SessionHolder{
		id: driver.SessionID(g.Record.Key), machine: protocol.NewSessionHolder(*p.t, c.env, g), closed: make(chan struct{}),
		waiters: map[*acquire]struct{}{}, leases: map[*protocol.Holder]*LeaseHolder{},
	}
	s.c, s.t, s.key, s.since, s.session = c, p.t, g.Record.Key, c.leaseClock(), s
	s.prepare(context.Background(), new(sync.Mutex), nil)
	s.loop.wake, s.loop.begin = s.wake, s.drive
	s.ending.Run = func(time.Duration) { s.fail() }
	s.mu.Lock()
	s.begin(s.machine.Holder)
	open := c.beganRecord(&s.heldRecord) == nil
	s.mu.Unlock()
	s.do(s.machine.Step)
	open = s.storeInPlace() && open
	c.events.emit(Event{
		Kind: EventOpened, Session: s.id, Owner: g.Record.Owner,
		Took: c.clock() - p.begun, Remaining: s.Remaining(), Grace: p.t.Grace,
	})
	switch {
	case p.abandoned || !open:
		s.discard()
		if p.err = c.Usable(); p.err == nil {
			p.err = ErrClosed // the opening was given up
		}
	case s.Check() != nil:
		s.discard()
		p.err = ErrExpired // paused between the call and now
	default:
		p.s = s
	}
	close(p.ended)
}

// SessionReaper watches one session that may have ended, and deletes its record once
// that is allowed.
type SessionReaper struct {
	nobody
	c     *Client
	run   run
	m     *protocol.Reaper
	ended chan struct{}
}

// ReapSession begins to watch a session.
func (c *Client) ReapSession(id string) *SessionReaper {
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	r := c.newReaper(id)
	r.run.act(r.m.Step)
	return r
}

// reapLater deletes a session that was just closed, once that is allowed. The caller
// holds viewMu.
func (c *Client) reapLater(id string) {
	rec, _ := c.sessions.Of(id).Record()
	c.newReaper(id).run.setAt(c.clock() + c.timing.Linger(rec))
}

func (c *Client) newReaper(id string) *SessionReaper {
	r := &SessionReaper{c: c, ended: make(chan struct{}), m: protocol.NewReaper(c.timing, c.env, id, c.sessions.Of(id))}
	r.run = c.run(r.m, r, &c.viewMu)
	return r
}

func (r *SessionReaper) stepped(time.Duration, protocol.Action) {
	if r.m.Over() {
		closeOnce(r.ended)
	}
}

// Ended returns a channel that is closed when the result of Wait is known.
func (r *SessionReaper) Ended() <-chan struct{} { return r.ended }

// Wait returns whether the session's record was deleted, or why not.
func (r *SessionReaper) Wait(ctx context.Context) (bool, error) {
	if err := r.c.wait(ctx, r.ended); err != nil {
		r.run.do(r.m.GiveUp)
		return false, err
	}
	r.c.viewMu.Lock()
	defer r.c.viewMu.Unlock()
	answer, rec, failed := r.m.Answer()
	if answer == protocol.Unusable && rec.Key != "" {
		failed = Unreadable(rec)
	}
	return r.m.Swept(), failed
}
