// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"reflect"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// tenure is what the world knows of one, from what really happened.
type tenure struct {
	owner   string
	session string        // that keeps it alive
	sent    time.Duration // when the write was that began it
	kept    bool          // the lock was kept for it
	since   time.Time
	told    bool             // it was in the history, once
	hidden  bool             // a write of a former life has replaced what the record said of it
	end     driver.EndReason // empty while it goes on
	asked   *driver.Request  // what ended it, or what it did not answer
	prompt  bool             // its work returns within a lease of being told
}

// ending returns how the sender of a release or a quit leaves, by what it has
// been through.
func ending(m *machine, r *protocol.Call) (driver.EndReason, *driver.Request) {
	var asked *driver.Request
	switch {
	case m.r != nil && len(r.Prev.Requests) > 0:
		asked = &r.Prev.Requests[0]
	case m.r != nil:
	case m.offered != nil:
		asked = m.offered
	case m.h != nil && m.under != nil:
		asked = m.h.Asked()
	case len(r.Prev.Requests) > 0 && !(m.unkept && r.Prev.Requests[0].Kind == driver.HandOver):
		asked = &r.Prev.Requests[0]
	}
	switch {
	case m.r != nil:
		return finished(m, r, asked)
	case m.h == nil: // nobody ever believed in it
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

// finished returns how one leaves whose work has returned in time.
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

// wrote judges what a write has made of the record.
func (l *lock) wrote(m *machine, r *protocol.Call, was driver.Record, found bool) {
	is := l.store.rec
	if len(is.Requests) > 0 && is.State != driver.Held {
		l.fail("%s leaves requests in a record that is %s", m, is.State)
	}
	if found && was.State == driver.Released && r.Kind != protocol.Claim {
		l.fail("%v of %s changes a released record", r.Kind, m)
	}
	// What each write may change, beside the version.
	same := was
	same.Version = is.Version
	if m.life != l.life && !reflect.DeepEqual(was.Prev, is.Prev) {
		// Late duplicates, of its claim first, have come upon the tenures of the present life.
		same.Prev = is.Prev
		if was.Prev != nil && l.tenures[was.Prev.Token] != nil {
			l.tenures[was.Prev.Token].hidden = true
		}
	}
	switch r.Kind {
	case protocol.Ask:
		same.Requests = is.Requests
		l.only(m, r, same)
		l.asked(m, was)
	case protocol.Quit:
		same.End = is.End
		l.only(m, r, same)
		if how := l.written[r.Next.Version].end; is.End != how {
			l.fail("%s says why it is quiet: %q, want %q", m, is.End, how)
		}
	case protocol.Heartbeat:
		same.Beat, same.Data = is.Beat, is.Data
		if m.r != nil {
			same.Data = was.Data
		}
		if l.cfg.Harm {
			same.Lease, same.Heartbeat, same.Drift = is.Lease, is.Heartbeat, is.Drift
		}
		l.only(m, r, same)
	case protocol.Claim, protocol.Takeover:
		l.began(m, r, was, found)
	case protocol.Release:
		l.released(m, r, was)
	case protocol.Free:
		if m.family != nil {
			l.buried(m, was)
		} else {
			l.freed(m, r, was)
		}
	}
	if is.Beat != was.Beat || is.Token != was.Token { // a claim that was doubled has the beat that it had the first time
		l.beats[is.Token]++
		l.number[is.Beat] = l.beats[is.Token]
		l.stored[is.Beat] = l.now
		if _, again := l.first[is.Beat]; !again {
			l.first[is.Beat] = l.now
		}
	}
	l.beatOf[is.Version] = is.Beat
}

func (l *lock) only(m *machine, r *protocol.Call, same driver.Record) {
	if !reflect.DeepEqual(same, l.store.rec) {
		l.fail("%v of %s changes more than it may: %+v, want %+v", r.Kind, m, l.store.rec, same)
	}
}

// began judges the beginning of a tenure, and what its record says of the one before.
func (l *lock) began(m *machine, r *protocol.Call, was driver.Record, found bool) {
	is := l.store.rec
	if is.Owner != m.owner() || is.State != driver.Held || is.End != "" || is.Asked != nil || len(is.Requests) > 0 {
		l.fail("%s begins with %+v", m, is)
	}
	l.tenures[is.Token] = &tenure{owner: m.owner(), session: is.Session, sent: l.written[r.Next.Version].at, since: is.Since, kept: found && m.heirOf(was)}
	if !found {
		return
	}
	before := l.tenures[was.Token]
	if was.State == driver.Held && was.Session != "" && !l.sessionEnded(was.Session) {
		l.fail("%s takes the lock from session %s, which is alive", m, was.Session)
	}
	switch was.State {
	case driver.Held:
		before.end = driver.EndExpired
		if s := l.sessions[driver.SessionKey(was.Session)]; s != nil && s.closed != "" && is.Prev != nil &&
			(s.found || is.Prev.End == s.closed) { // the end of a session whose record is gone is unknown
			before.end = s.closed
		}
		if was.End != "" {
			before.end = was.End
		}
		if before.asked = nil; len(was.Requests) > 0 {
			before.asked = &was.Requests[0]
		}
	case driver.Reserved:
		if !m.heirOf(was) {
			l.stood(m, r, was)
		}
		l.inherited(m, was)
	}
	l.remembers(m, is.Prev, was.Token)
}

// stood says that r was sent when the record had been unchanged for its lease, by the
// clock of a correct observer. A claim that is doubled when the record was deleted
// brings a beat back that an observer has seen before. That shows no life: whoever
// sent it counts from the sending.
func (l *lock) stood(m *machine, r *protocol.Call, was driver.Record) {
	least := time.Duration(float64(was.Lease)/(1+l.cfg.Skew)) - time.Microsecond
	if stood := l.written[r.Next.Version].at - l.first[was.Beat]; stood < least {
		l.fail("%v of %s is early: %s for %q, token %d, has stood for %v", r.Kind, m, was.State, was.Owner, was.Token, stood)
	}
}

// remembers compares how a record shows the end of a tenure with what was.
func (l *lock) remembers(m *machine, t *driver.Tenure, token uint64) {
	want := l.tenures[token]
	switch {
	case t == nil:
		l.fail("%s writes nothing of token %d, which has ended: %s", m, token, want.end)
	case t.Owner != want.owner || t.Token != token || t.End != want.end:
		l.fail("%s writes that %s with token %d has ended: %q; it was %s with token %d: %q", m, t.Owner, t.Token, t.End, want.owner, token, want.end)
	case (t.Asked == nil) != (want.asked == nil), t.Asked != nil && *t.Asked != *want.asked:
		l.fail("%s writes that token %d was asked %+v, it was %+v", m, token, t.Asked, want.asked)
	}
}

// released judges how a holder leaves its record.
func (l *lock) released(m *machine, r *protocol.Call, was driver.Record) {
	is, t := l.store.rec, l.tenures[was.Token]
	by := l.written[r.Next.Version]
	t.end, t.asked = by.end, by.asked
	kept := t.end == driver.EndHandedOver
	if q := t.asked; q != nil && q.Token != 0 && q.Token != was.Token {
		l.fail("%s with token %d has ended for a request that is meant for token %d", m, was.Token, q.Token)
	}
	switch {
	case is.Token != was.Token || was.State != driver.Held:
		l.fail("%s releases token %d from %s, token %d", m, is.Token, was.State, was.Token)
	case kept && (is.State != driver.Reserved || is.Owner != t.asked.To || is.Label != t.asked.ToLabel || is.Lease != m.timing().Reservation()):
		l.fail("%s was to hand over to %q%q, and leaves %+v", m, t.asked.To, t.asked.ToLabel, is)
	case kept:
		l.remembers(m, is.Prev, is.Token)
	case is.State != driver.Released:
		l.fail("%s has ended: %q, and leaves %+v", m, t.end, is)
	default:
		l.remembers(m, is.Tenure(""), is.Token)
	}
}

// freed judges an operator's write.
func (l *lock) freed(m *machine, r *protocol.Call, was driver.Record) {
	is, t := l.store.rec, l.tenures[was.Token]
	want := l.written[r.Next.Version].want
	if is.Token != was.Token {
		l.fail("%s changes the token", m)
	}
	if is.State == driver.Reserved {
		if was.State != driver.Held || is.Owner != "" || is.Label != "" || is.Lease < was.Lease || m.want.Kind != driver.Revoke {
			l.fail("%s makes %+v of %s", m, is, was.State)
		}
		t.end, t.asked = driver.EndRevoked, &want
		l.remembers(m, is.Prev, is.Token)
		return
	}
	if was.Session == "" {
		l.stood(m, r, was)
	} else if !l.sessionEnded(was.Session) {
		l.fail("%s frees a lock under session %s, which is alive", m, was.Session)
	}
	if holder := l.holder(); holder != nil && holder.token() == was.Token {
		l.fail("%s frees the lock while %s holds it", m, holder)
	}
	if was.State == driver.Held {
		t.end, t.asked = driver.EndReleasedDead, &want
	}
	l.remembers(m, is.Tenure(""), is.Token)
}
