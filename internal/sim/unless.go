// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// peek records that a process has seen a session, or that it is closed.
type peek struct {
	sent, at time.Duration
	closed   bool
}

// peeked records the true part of a reply: a session, for its process, with the time of
// the request; and the first record that an acquire with UnlessAlive sees. An eventual
// read may show a former sign of life, but no session is closed before its time.
func (m *machine) peeked(r *protocol.Call, res protocol.Result) {
	h := m.on
	strong := !r.Kind.Reads() || r.Consistency == driver.Strong
	answered := res.Outcome == protocol.Applied || res.Outcome == protocol.Conflicted
	if r.OfSession() && answered && (strong || res.Record.State == driver.Closed) {
		h.peeks[r.Key] = append(h.peeks[r.Key], peek{m.sentAt, h.w.now, res.Record.State == driver.Closed})
	}
	looked, known := m.p.view.Known()
	quicker := known && m.sentCont < looked // than this one
	if m.unless && m.first.Key == "" && r.Key == m.l.key && res.Found && strong && !quicker {
		m.first = res.Record
	}
}

// firstPeek returns when a session was first shown to the process of an acquire by
// what was asked after that began, by whatever asked for it, or was shown closed; zero if it was not.
func (m *machine) firstPeek(session string) time.Duration {
	for _, p := range m.p.peeks[session] {
		if p.sent >= m.begun || p.closed && p.at >= m.begun {
			return p.at
		}
	}
	return 0
}

// judgeUnless judges that the holder which was seen first has neither ended in order
// nor shown life since.
func (l *lock) judgeUnless(m *machine, g protocol.Grant) {
	first := m.first
	if !m.unless || first.State != driver.Held || m.life != l.life || first.Owner == m.p.name {
		return
	}
	l.tally.Of[GrantedUnless]++
	if l.ownBetween(m, g) {
		return
	}
	was := l.terms[first.Token]
	session := driver.SessionKey(first.Session)
	closed := l.storeOf(session)
	switch {
	case first.Session != "" && closed.closed != "" && closed.since <= max(m.begun, m.firstPeek(session)):
		return // it was free when that was first to be seen
	case was.end == driver.EndReleasedDead, was.end == driver.EndCrashed, was.end == driver.EndAbandoned:
		// Another process has seen that it was dead, or it did no work.
	case was.end != driver.EndExpired && was.end != driver.EndStalled && was.end != driver.EndStopTimeout:
		l.fail("%s is granted the lock unless somebody lives: token %d has ended since: %s", m, first.Token, was.end)
	case first.Session == "" && was.beats > l.beat(first.Beat).number:
		l.fail("%s is granted the lock unless somebody lives: token %d has shown life since", m, first.Token)
	}
}

// ownBetween says that a claim of the process itself has come between the holder which an
// acquire has seen first and its grant: one for which the lock was reserved, and which may have
// come too late to believe in it, and replaced itself.
func (l *lock) ownBetween(m *machine, g protocol.Grant) bool {
	first := m.first.Token
	for token := g.Record.Token; token > first && l.terms[token].owner == m.p.name; token-- {
		if l.terms[token].kept {
			return true
		}
	}
	return false
}

// judgeRefused judges that the holder that the acquire is refused for has shown life
// since the acquire began.
func (l *lock) judgeRefused(m *machine, r *protocol.Refusal) {
	if !m.unless || !r.Held {
		return
	}
	l.tally.Of[RefusedAlive]++
	is, of := l.store.rec, r.Record
	if is.State != driver.Held || of.State != driver.Held || is.Token != of.Token || m.life != l.life {
		return // it has ended, or did not hold
	}
	life := l.beat(is.Beat).stored
	if is.Session != "" {
		s := l.storeOf(driver.SessionKey(is.Session))
		if !s.found || s.rec.State != driver.Alive {
			return
		}
		life = max(life, l.beat(s.rec.Beat).stored)
	}
	if life <= m.begun {
		l.fail("%s gives up as if the holder lived: token %d has shown no sign of life since it began", m, is.Token)
	}
}

// clear has an operator delete the record of a lock that is released, now and then.
// What is known of its terms goes with it: the tokens begin again.
func (l *lock) clear() {
	if l.final {
		return
	}
	again := l.upTo(l.t.Lease / 8) // it is not released for long
	if rec := l.store.rec; l.store.found && rec.State == driver.Released && !l.chronicled() {
		l.note("the record of %s is deleted, with token %d", l.key, rec.Token)
		if err := l.store.remove(rec); err != nil {
			l.fail("an operator cannot delete %s: %v", l.key, err)
		}
		l.life++
		l.tally.Of[Cleared]++
		l.former = append(l.former, l.terms)
		l.checks = newChecks()
		again = l.t.Lease/2 + l.upTo(4*l.t.Lease)
	}
	l.after(time.Millisecond+again, l.clear)
}
