// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/shell"
)

// Everything under a session is stepped under one mutex, that of the session: its
// machine and those of its locks read each other. What to do when is decided there:
// see [protocol.Keeper].

// admit notes an acquire under the session, unless that has ended. The caller
// holds the trackers.
func (s *Session) admit(a *acquire) error {
	if !s.isOpen() {
		return s.why()
	}
	a.want.Under = s.keeper
	s.acquires[a] = struct{}{}
	return nil
}

// newLease returns the lease that was granted under the session, and false if the
// session has ended meanwhile, so that no caller may have the lease.
func (s *Session) newLease(g protocol.Grant, o AcquireOptions) (_ *Lease, open bool) {
	l := s.c.leaseOf(g, o)
	l.under = s
	ctx := s.ctx
	if !s.isOpen() {
		ctx = context.Background() // that of the session may be busy with ending all others
	}
	l.prepare(ctx, s.mu, &s.right)
	s.mu.Lock()
	h := protocol.NewTied(s.c.timing, s.c.env, g, s.keeper)
	began := l.begin(h)
	s.leases[h] = l
	open = s.keeper.Open(s.c.clock.Holder())
	s.mu.Unlock()
	l.do(l.h.Step)
	return l, l.standing() && began && open
}

// isOpen says that locks may be taken under the session.
func (s *Session) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper.Open(s.c.clock.Holder())
}

// wake steps the lease whose machine the session's asks to step.
func (s *Session) wake(m protocol.Machine) {
	if h, ok := m.(*protocol.Holder); ok {
		if l := s.leases[h]; l != nil {
			l.loop.Act(l.h.Step)
		}
		return
	}
	s.loop.Act(m.Step)
}

// drive drives a machine that the session's has begun: it releases a lock that is
// held in the session's name without the session knowing of it.
func (s *Session) drive(m protocol.Machine) {
	run := &shell.Run{Machine: m, Mutex: s.mu, Clock: s.c.contender, Timers: s.c.looks, Send: s.c.unhurried}
	run.Act(m.Step)
}

// fail fails the acquires that wait for a lock under the session when it has ended,
// and tells this process that it is closed.
func (s *Session) fail() {
	c := s.c
	c.seeing.Lock()
	defer c.seeing.Unlock()
	for a := range s.acquires {
		if a.con == nil {
			a.settle(nil, s.why())
			a.giveUp()
		} else {
			a.run.Act(a.con.Step)
		}
	}
	s.mu.Lock()
	freed, rec := s.h.Freed(), s.h.Record()
	s.mu.Unlock()
	if freed != protocol.Released || rec.State != driver.Closed {
		return
	}
	now := c.clock.Contender()
	c.seen.of(s.id).Saw(now, now, driver.Strong, rec, true)
	c.reapLater(s.id)
}

// discard closes a session that no caller waits for any more.
func (s *Session) discard() {
	s.right.end(endedReleased)
	s.do(func(now time.Duration) protocol.Action {
		s.stopFor(ErrReleased)
		return s.keeper.GiveUp(now)
	})
}

func (s *Session) event(kind EventKind) Event {
	return Event{Kind: kind, Session: s.id, Owner: s.c.options.Owner}
}

func (s *Session) moves() {}

func (s *Session) after(_ time.Duration, a protocol.Action) {
	for _, n := range a.Notes {
		if n == protocol.NoteEnded || n == protocol.NoteQuiet || n == protocol.NoteOver {
			s.c.looks.Set(&s.ending, 0)
		}
	}
}

// cancelFor cancels the context, and with it those of all locks under the session,
// one by one: not under the mutex of its heartbeats, and not while others wait for
// a timer.
func (s *Session) cancelFor(cause error) {
	s.c.calls.Beside(func() { s.cancel(cause) })
}

func (s *Session) followed() (yes bool, cause error) { return false, nil }

func (s *Session) done(e *Event) {
	s.right.end(endedReleased)
	if e.Kind == EventReleased {
		e.Kind = EventClosed
	}
}

func (s *Session) dropped() {
	close(s.closed)
	s.c.finished(&s.keeping)
}
