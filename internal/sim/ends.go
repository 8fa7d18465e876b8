// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// term is what really happened in one term.
type term struct {
	owner   string
	session string        // that keeps it alive
	sent    time.Duration // when the write was that began it
	kept    bool          // the lock was reserved for it
	since   time.Time
	told    bool             // it was in the history, once
	hidden  bool             // a write of a former life has replaced what the record said of it
	end     driver.EndReason // empty while it goes on
	asked   *driver.Request  // the request that ended it, or that it did not answer
	request struct {         // that is in the record of the lock
		id       string
		at       time.Duration
		honoured bool // by a holder
	}
	debts   []*debt       // the duties to write it down
	beats   int           // how many the store has seen
	applied time.Duration // when the latest applied write of it was sent, by the holder's clock
	prompt  bool          // its work returns within a lease of the end of its context
	cut     bool          // it began at a server that was cut off
	opened  bool          // it began in a life of the engine that was opened
}

// ending returns how the sender of a release or an abdication must end its term.
func ending(m *machine, r *protocol.Call) (driver.EndReason, *driver.Request) {
	var asked *driver.Request
	switch {
	case m.offered != nil:
		asked = m.offered
	case m.h != nil && (m.under != nil || m.l.engine != nil): // the record may have lost it
		asked = m.h.Asked()
	case m.of.Of != nil && m.of.Of.Asked != nil:
		asked = m.of.Of.Asked
	case len(r.Prev.Requests) > 0 && !(m.noHandOver && r.Prev.Requests[0].Kind == driver.HandOver):
		asked = &r.Prev.Requests[0]
	}
	switch {
	case m.role == parting:
	case m.h == nil: // no process ever believed in it
		return driver.EndAbandoned, nil
	case m.unwanted:
		return driver.EndAbandoned, asked
	case m.h.Cause() == protocol.Stalled:
		return driver.EndStalled, asked
	case m.h.Quiet():
		return driver.EndStopTimeout, asked
	case m.h.Expired():
		return driver.EndExpired, asked
	}
	return finished(m, r, asked)
}

// finished returns how a holder ends whose work has returned in time.
func finished(m *machine, r *protocol.Call, asked *driver.Request) (driver.EndReason, *driver.Request) {
	switch {
	case asked == nil && m.failed && r.Next.Asked != nil:
		q := failure(m)
		q.ID = r.Next.Asked.ID
		return driver.EndFailed, &q
	case asked == nil:
		return driver.EndReleased, nil
	case asked.Kind == driver.HandOver:
		return driver.EndHandedOver, asked
	}
	return driver.EndSteppedDown, asked
}

// apply has the store carry out a call, and judges what it did.
func (l *lock) apply(m *machine, r *protocol.Call, behind int) protocol.Result {
	s := l.storeOf(r.Key)
	was := *s
	do := s.do
	if l.engine != nil {
		do = l.engine.at.do
	}
	rec, former, err := do(r, behind)
	res := protocol.ResultOf(r.Kind, rec, former, err)
	l.guarded(m, r, was, res)
	if r.Kind.Reads() || err != nil {
		return res
	}
	l.note("store: %v of %s: %s %s", r.Kind, m, r.Key, shown(s.rec))
	l.counted(m, r)
	switch {
	case r.Key == l.key:
		l.wrote(m, r, was.rec, was.found)
	case m.role == recording:
		l.entered(m, r, was)
	default:
		l.wroteSession(m, r, was, s)
	}
	return res
}

// counted counts what a write is about.
func (l *lock) counted(m *machine, r *protocol.Call) {
	switch releases := r.Kind == protocol.Release && r.Key == l.key; {
	case r.Kind == protocol.Request, r.Kind == protocol.ForceRelease:
		l.tally.Of[Request]++
	case releases && m.role == denying:
		l.tally.Of[Orphan]++
	case releases && m.role == offering:
		l.tally.Of[Unused]++
		if m.keeps && !l.cfg.Harm {
			l.fail("%s frees a grant that its client may count", m)
		}
	case releases && m.c != nil && m.h == nil && !m.left:
		l.tally.Of[OrphanFound]++
	}
}

// wrote judges what a write has made of the lock's record.
func (l *lock) wrote(m *machine, r *protocol.Call, was driver.Record, found bool) {
	is := l.store.rec
	l.judgeWrite(m, r, was, found)
	switch r.Kind {
	case protocol.Request:
		if len(was.Requests) > 0 {
			l.fail("%s writes a second request over that of %s", m, was.Requests[0].By)
		}
		l.asked(m, is.Requests[len(is.Requests)-1], was)
	case protocol.Abdicate:
		if how := l.written[r.Next.Version].end; is.End != how {
			l.fail("%s abdicates with end %q, want %q", m, is.End, how)
		}
	case protocol.Claim, protocol.Takeover:
		l.began(m, r, was, found)
	case protocol.Release:
		l.released(m, r, was)
	case protocol.ForceRelease:
		if m.role == afterCrash {
			l.crashReleased(m, was)
		} else {
			l.freed(m, r, was)
		}
	}
	l.only(m, r, was, is)
	l.lives(r, was)
	l.carried(m, r, was, is)
	var token, number uint64
	if _, err := fmt.Sscanf(string(is.Data), "%d.%d", &token, &number); err != nil {
		token, number = 0, 0
	}
	l.lain = serial(token, number)
	if m.life != l.life {
		l.kept = 0 // a duplicate from before the record was deleted has replaced what was confirmed since
	}
}

// lives notes what a write shows of the life of the holder.
func (l *lock) lives(r *protocol.Call, was driver.Record) {
	is := l.store.rec
	t := l.terms[is.Token]
	if is.Beat != was.Beat || is.Token != was.Token { // a duplicate of a claim has the same beat
		t.beats++
		l.beaten(is.Beat, t.beats)
	}
	switch sent := l.written[r.Next.Version].hold; r.Kind {
	case protocol.Claim, protocol.Takeover, protocol.Heartbeat: // and nothing else counts
		t.applied = max(t.applied, sent)
	}
}

// judgeWrite judges what holds for every write.
func (l *lock) judgeWrite(m *machine, r *protocol.Call, was driver.Record, found bool) {
	is := l.store.rec
	newTerm := is.Token != was.Token
	for a := range l.actors {
		if m, ok := a.(*machine); ok && newTerm && m.believes() {
			m.traced(trace.Check, trace.Event{}) // at an instant at which it must not believe
		}
	}
	switch {
	case is.Token < was.Token:
		l.fail("the stored token falls from %d to %d", was.Token, is.Token)
	case newTerm && found && !bytes.Equal(was.Data, is.Data):
		l.fail("the data changed from %q to %q with the holder", was.Data, is.Data)
	case r.Kind == protocol.Takeover && !protocol.Readable(was):
		l.fail("%s takes over an unreadable record", m)
	case len(is.Requests) > 0 && is.State != driver.Held:
		l.fail("%s leaves requests in a record that is %s", m, is.State)
	case found && was.State == driver.Released && r.Kind != protocol.Claim:
		l.fail("%v of %s changes a released record", r.Kind, m)
	}
}

// only judges what a write may change of a record, besides the version. A request is
// added at the end; a heartbeat removes some of the requests in a session's record.
func (l *lock) only(m *machine, r *protocol.Call, was, is driver.Record) {
	same, session := was, r.Key != l.key
	same.Version = is.Version
	if !session {
		same.Prev = l.hidden(m, was, is)
	}
	switch r.Kind {
	case protocol.Request:
		same.Requests = append(slices.Clone(was.Requests), is.Requests[len(is.Requests)-1])
	case protocol.Abdicate:
		same.End = is.End
	case protocol.Heartbeat:
		same.Beat = is.Beat
		if m.role != relaying {
			same.Data = is.Data
		} else if of := m.of.Of; of != nil && of.ID != "" {
			same.Session, same.Heartbeat = of.ID, 0
			l.terms[is.Token].session = of.ID
		}
		if session {
			same.Requests = is.Requests
		} else if l.cfg.Harm {
			same.Lease, same.Heartbeat, same.Drift = is.Lease, is.Heartbeat, is.Drift
		}
	case protocol.Release, protocol.ForceRelease:
		if !session {
			return // see released
		}
		same.State, same.End, same.Until, same.Requests = driver.Closed, is.End, is.Until, nil
	default:
		return
	}
	if len(same.Requests) == 0 && len(is.Requests) == 0 {
		same.Requests = is.Requests
	}
	if !reflect.DeepEqual(same, is) {
		l.fail("%v of %s changes more than it may: %+v, want %+v", r.Kind, m, is, same)
	}
}

// hidden returns what a write that changes no holder may say of the previous term: the
// same, unless late duplicates, first of its claim, have met the terms of another life.
func (l *lock) hidden(m *machine, was, is driver.Record) *driver.Term {
	if m.life == l.life || reflect.DeepEqual(was.Prev, is.Prev) {
		return was.Prev
	}
	if was.Prev != nil && l.terms[was.Prev.Token] != nil {
		l.terms[was.Prev.Token].hidden = true
	}
	return is.Prev
}

// began judges the beginning of a term, and what its record says of the previous term.
func (l *lock) began(m *machine, r *protocol.Call, was driver.Record, found bool) {
	is := l.store.rec
	if is.Owner != m.owner() || is.State != driver.Held || is.End != "" || is.Asked != nil || len(is.Requests) > 0 {
		l.fail("%s begins with %+v", m, is)
	}
	if l.terms[is.Token] != nil {
		l.fail("%s begins token %d a second time", m, is.Token)
	}
	l.terms[is.Token] = &term{
		owner: m.owner(), session: is.Session, since: is.Since,
		sent: l.written[r.Next.Version].at, kept: found && m.hasReservation(was), cut: l.engine.cutOff(), opened: l.engine.opened(),
	}
	switch {
	case !found:
		return
	case was.State == driver.Held:
		l.overtaken(m, was)
	case was.State == driver.Reserved:
		if !m.hasReservation(was) {
			l.stood(m, r, was, l.beat(was.Beat).first)
		}
		l.inherited(m, was)
	}
	l.remembers(m, was.Token)
}

// overtaken judges the end of a term by the beginning of the next one.
func (l *lock) overtaken(m *machine, was driver.Record) {
	if was.Session != "" && !l.sessionEnded(was.Session) {
		l.fail("%s takes the lock from session %s, which is alive", m, was.Session)
	}
	before, prev := l.terms[was.Token], l.store.rec.Prev
	before.ends(driver.EndExpired, was)
	s := l.storeOf(driver.SessionKey(was.Session))
	// The end of a session whose record is gone is unknown.
	if s.closed != "" && was.End == "" && prev != nil && (s.found || prev.End == s.closed) {
		before.end = s.closed
	}
	if l.engine != nil && prev != nil {
		before.end = prev.End // another server may have shown another end of the session
	}
}

// ends records how a term without a release ends: as its record says, else with end.
func (t *term) ends(end driver.EndReason, was driver.Record) {
	if t.end = end; was.End != "" {
		t.end = was.End
	}
	if t.asked = nil; len(was.Requests) > 0 {
		t.asked = &was.Requests[0]
	}
}

// stood judges that r was sent when the record had been unchanged for its lease, by the
// clock of a correct observer. A duplicate of a claim, applied after a lock's record was
// deleted, brings back a beat that an observer has seen before. That shows no life: its
// sender counts from the sending.
func (l *lock) stood(m *machine, r *protocol.Call, was driver.Record, since time.Duration) {
	least := l.fast(was.Lease) - time.Microsecond
	if stood := l.written[r.Next.Version].at - since; stood < least {
		l.fail("%v of %s is early: %s for %q, token %d, has stood for %v", r.Kind, m, was.State, was.Owner, was.Token, stood)
	}
}

// remembers compares the end of a term in the record with its true end.
func (l *lock) remembers(m *machine, token uint64) {
	t, want := l.store.rec.Prev, l.terms[token]
	if l.store.rec.State == driver.Released {
		t = l.store.rec.Term("")
	}
	switch {
	case t == nil:
		l.fail("%s writes nothing of token %d, which has ended: %s", m, token, want.end)
	case l.engine != nil && t.Owner == want.owner && t.Token == token: // it may have ended otherwise on another server
	case t.Owner != want.owner || t.Token != token || t.End != want.end:
		l.fail("%s writes that %s with token %d has ended: %q; it was %s with token %d: %q",
			m, t.Owner, t.Token, t.End, want.owner, token, want.end)
	case !reflect.DeepEqual(t.Asked, want.asked):
		l.fail("%s writes that token %d was asked %+v, it was %+v", m, token, t.Asked, want.asked)
	}
}

// released judges how a holder leaves its record.
func (l *lock) released(m *machine, r *protocol.Call, was driver.Record) {
	is, t := l.store.rec, l.terms[was.Token]
	by := l.written[r.Next.Version]
	t.end, t.asked = by.end, by.asked
	kept := t.end == driver.EndHandedOver
	if q := t.asked; q != nil && q.Token != 0 && q.Token != was.Token {
		l.fail("%s with token %d has ended for a request that is meant for token %d", m, was.Token, q.Token)
	}
	switch {
	case is.Token != was.Token || was.State != driver.Held:
		l.fail("%s releases token %d from %s, token %d", m, is.Token, was.State, was.Token)
	case kept && (is.State != driver.Reserved || is.Owner != t.asked.To || is.Label != t.asked.ToLabel ||
		is.Lease != m.timing.Reservation()):
		l.fail("%s was to hand over to %q%q, but leaves %+v", m, t.asked.To, t.asked.ToLabel, is)
	case !kept && is.State != driver.Released:
		l.fail("%s has ended: %q, but leaves %+v", m, t.end, is)
	}
	l.remembers(m, was.Token)
}

// freed judges an operator's write.
func (l *lock) freed(m *machine, r *protocol.Call, was driver.Record) {
	is, t := l.store.rec, l.terms[was.Token]
	want := l.written[r.Next.Version].want
	if is.Token != was.Token {
		l.fail("%s changes the token", m)
	}
	if is.State == driver.Reserved {
		nobody := is.Owner == "" && is.Label == ""
		if was.State != driver.Held || !nobody || is.Lease < was.Lease || m.want.Kind != driver.Revoke {
			l.fail("%s makes %+v of %s", m, is, was.State)
		}
		t.end, t.asked = driver.EndRevoked, &want
		l.remembers(m, was.Token)
		return
	}
	if was.Session == "" {
		l.stood(m, r, was, l.beat(was.Beat).first)
	} else if !l.sessionEnded(was.Session) {
		l.fail("%s frees a lock under session %s, which is alive", m, was.Session)
	}
	if holder := l.holder(); holder != nil && holder.token() == was.Token {
		l.fail("%s frees the lock while %s holds it", m, holder)
	}
	if was.State == driver.Held {
		t.end, t.asked = driver.EndReleasedDead, &want
	}
	l.remembers(m, was.Token)
}
