// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
)

// fail fails the acquires that wait for a lock under the session when it has ended,
// and tells this process that it is closed.
func (s *Session) fail() {
	c := s.c
	c.seeing.Lock()
	defer c.seeing.Unlock()
	for a := range s.waiters {
		a.orphaned()
	}
	s.mu.Lock()
	freed, rec := s.h.Freed(), s.h.Record()
	s.mu.Unlock()
	if freed != protocol.Released || rec.State != driver.Closed {
		return
	}
	now := c.clock.Contender()
	c.sessions.Of(s.id).Saw(now, now, driver.Strong, rec, true)
	c.reapLater(s.id)
}

// discard closes a session that no caller waits for any more.
func (s *Session) discard() {
	s.deadline.End(engine.EndedReleased)
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

func (s *Session) done(e Event) Event {
	s.deadline.End(engine.EndedReleased)
	if e.Kind == EventReleased {
		e.Kind = EventClosed
	}
	return e
}

func (s *Session) isSession() bool { return true }

func (s *Session) asked() { s.hurries() }

func (s *Session) dropped() {
	close(s.closed)
	s.c.finished(&s.keeping)
}
