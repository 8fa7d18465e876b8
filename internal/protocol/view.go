// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// View is what one process knows of one record. It changes by strong replies only:
// those of strong reads, and the answers of writes. It notes the sign of life that the
// record shows, and the instant after the reply that first showed it. All machines of
// the process that read the record share it, and it outlives them, so that a caller that
// only tries now and then can also take a dead holder's lock.
//
// A strong reply counts if its call was sent after the latest reply that counted had
// come. Two calls that overlap are in no order, so the later reply may show the older
// record. Such a reply is a hint, and so is every cheap reply: if it shows anything else than
// the version that is known, a strong read is due.
type View struct {
	t   Timing
	env Env

	found   bool
	rec     driver.Record
	replied time.Duration // after the latest reply that counted; never: it was not read
	sent    time.Duration // before the call of that reply
	since   time.Duration // after the reply that first showed rec's sign of life
	term    time.Duration // after the reply that first showed rec's term

	polled time.Duration // when the latest call about the record was sent; never: none was
	spread float64       // of the refresh period that follows it: 7/8 to 9/8
	due    time.Duration // when a strong read is, since the record may have changed; endless: it is not

	shown holderShown
	asked time.Duration // when a contender of this process asked a holder to make way; never: none did
}

// holderShown is the latest holder that a strong reply has shown, whether that counted or not, and
// the instant before its call. Such a holder was there after that instant.
type holderShown struct {
	life
	sent time.Duration
}

// NewView returns the view of a record that was not read yet.
func NewView(t Timing, env Env) *View {
	return &View{t: t, env: env, replied: never, polled: never, spread: 1, due: endless, asked: never}
}

// life is the part of a record that changes whenever its holder shows life.
type life struct {
	token uint64
	sign  string
	state driver.State
	lease time.Duration
}

func lifeOf(rec driver.Record) life { return life{rec.Token, rec.Sign(), rec.State, rec.Lease} }

// term is the part of a record that stays the same as long as one holder has the lock.
// Token and state alone do not tell: when a key is deleted its tokens begin again.
type term struct {
	token       uint64
	state       driver.State
	session, id string
}

func termOf(rec driver.Record) term {
	id, _, found := strings.Cut(rec.Beat, "-")
	if !found {
		id = "" // an older process's, or none
	}
	return term{rec.Token, rec.State, rec.Session, id}
}

// Observe notes a reply: rec as the store showed it, or no record. sent is the instant
// before the call, now the instant after its reply, and how says how fresh a reply the
// call asked for. The reply to a write is strong.
func (s *View) Observe(sent, now time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	strong := how == driver.Strong
	if strong && found && holder(rec) && (s.shown.life == life{} || sent > s.shown.sent) {
		s.shown = holderShown{lifeOf(rec), sent}
	}
	_, known := s.Known()
	known = known && found == s.found
	if !strong || sent < s.replied {
		s.hinted(sent, now, strong, known && rec.Version == s.rec.Version)
		return
	}
	same := known && termOf(rec) == termOf(s.rec)
	if !same {
		s.term = now
		s.differs(rec, found)
	}
	if !same || lifeOf(rec) != lifeOf(s.rec) {
		s.since = now
		if s.env.Recall != nil && found {
			if at, ok := s.env.Recall(rec); ok {
				s.since = min(s.since, at) // an earlier view of the record began the count
			}
		}
	}
	s.found, s.rec, s.replied, s.sent = found, rec, now, sent
}

// hinted notes a reply that does not count. Same says that it shows the version that is known.
func (s *View) hinted(sent, now time.Duration, strong, same bool) {
	switch {
	case strong && same:
		s.sent = max(s.sent, sent) // the record was still what is known
	case strong:
		s.due = min(s.due, now+2*s.t.Pause()) // others of this process read it, too: not all of them at once
	case !same:
		s.due = now
	}
}

// differs tells of a new term of a holder whose bound of the drift is not this process's.
func (s *View) differs(rec driver.Record, found bool) {
	if found && s.env.Differs != nil && rec.Drift > 0 && rec.Drift != s.t.Drift && holder(rec) {
		s.env.Differs(rec)
	}
}

// Hint says that the record may have changed: a strong read is due. A hint about a lock
// under a session is one about the session, too, since a session that closes frees its
// locks without writing their records.
func (s *View) Hint() {
	s.due = 0
	if u := s.under(); u != nil {
		u.due = 0
	}
}

// Hinted says that a strong read is due.
func (s *View) Hinted() bool { return s.due != endless }

// Polls notes that the record is being read. A hint is consumed by the sending: what
// comes while the call is under way may be newer than its reply.
func (s *View) Polls(now time.Duration, how driver.Consistency) {
	s.polled, s.spread = now, 7./8+s.env.Random()/4
	if how == driver.Strong {
		s.due = endless
	}
}

// Unanswered says that such a read has got no answer: what it was to show is still due.
func (s *View) Unanswered() { s.due = 0 }

// sends notes that a machine sends a call. A write consumes no hint: its answer is none if it is
// lost, and then the machine reads what became of it.
func (s *View) sends(now time.Duration, r *Call) {
	if !r.Kind.Reads() {
		s.Polls(now, driver.Eventual)
		return
	}
	s.Polls(now, r.Consistency)
}

// missed notes that such a call has got no answer.
func (s *View) missed(r *Call) {
	if r.Kind.Reads() {
		s.Unanswered()
	}
}

// NextPoll returns when the record is to be read again by one that looks once in a refresh
// period: that long after the latest call about it, give or take an eighth, and when the sign
// of life has been unchanged for its lease, if that is sooner. What may change hands soon is
// looked at more often, however long the refresh period is, since the lock may be meant for
// this process, and stays reserved for a time that depends on the lease.
func (s *View) NextPoll(refresh, lease time.Duration) time.Duration {
	switch _, known := s.Known(); {
	case !known && s.polled == never:
		return 0
	case !known:
		return min(s.polled+s.t.Pause(), s.due) // another machine reads it
	}
	if s.moves() {
		refresh = min(refresh, s.t.wait(s.rec)/5, lease/5)
	}
	next := s.polled + time.Duration(s.spread*float64(refresh))
	if dead, counted := s.unchangedUntil(); counted && s.sent < dead {
		next = min(next, dead) // whoever else has just asked: nobody is told what was answered
	}
	return min(next, s.due)
}

// moves says that the lock may change hands soon: it is reserved, or its holder was asked for
// it. A session has a request in its record no longer than until its next heartbeat, and the
// record of the lock shows nothing before the holder has stopped; so a wish of this process
// counts as long as the term lasts: its work may take long to stop.
func (s *View) moves() bool {
	return s.found && (s.rec.State == driver.Reserved || len(s.rec.Requests) > 0 || s.asked >= s.term)
}

// How returns how fresh a poll must be that is made now. It is cheap where the record counts no
// beat, or shows a holder that no heartbeat is due of: its beat is younger than 7/8 of the
// heartbeat period, of a fifth of the lease if the record names none. So a poll that is likely
// to show something new shows it at once, and how far cheap reads are behind bounds nothing.
func (s *View) How(now time.Duration) driver.Consistency {
	_, counted := s.unchangedUntil()
	_, known := s.Known()
	switch {
	case !known, s.Hinted(), s.moves():
		return driver.Strong
	case !counted:
		return driver.Eventual
	}
	period := s.rec.Heartbeat
	if wait := s.t.wait(s.rec); period <= 0 || period > wait {
		period = wait / 5
	}
	if now-s.since < period-period/8 {
		return driver.Eventual
	}
	return driver.Strong
}

// stage is the order in which a term goes through the states.
func stage(s driver.State) int {
	switch s {
	case driver.Held, driver.Alive:
		return 1
	case driver.Reserved:
		return 2
	case driver.Released, driver.Closed:
		return 3
	}
	return 0
}

// holds says whether the record shows an owner that others must wait for: a holder,
// or the owner of a reservation.
func (s *View) holds() bool {
	return s.found && (s.rec.State == driver.Held || s.rec.State == driver.Reserved || s.rec.State == driver.Alive)
}

// unchangedUntil returns the instant at which the sign of life will have been unchanged for its
// lease, and false if the record counts none: nobody holds it, or a session keeps it alive.
func (s *View) unchangedUntil() (time.Duration, bool) {
	if !s.holds() || s.Tied() {
		return 0, false
	}
	return s.since + s.t.wait(s.rec), true
}

// Record returns the record as last seen, and false if there was none or it was
// never read.
func (s *View) Record() (driver.Record, bool) { return s.rec, s.found }

// Known returns when the latest reply that counted came, and false if the record was never
// read.
func (s *View) Known() (time.Duration, bool) { return s.replied, s.replied != never }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *View) Since() time.Duration { return s.since }

// Term returns the instant after the reply that first showed the term that
// the record shows.
func (s *View) Term() time.Duration { return s.term }

// DeadAt returns the instant at which the holder's lease has certainly expired,
// unless another sign of life was written before, and false if the record shows no
// holder. A reservation lapses at that instant. A strong read that is sent then tells:
// see [View.Dead].
func (s *View) DeadAt() (time.Duration, bool) {
	if s.Tied() {
		return s.diesAt(), true
	}
	return s.unchangedUntil()
}

// Dead says that the holder's lease has expired for certain: a strong reply to a call that was
// sent when the sign of life had been unchanged for its lease has shown it still. A lock under a
// session is dead when the session has ended, or is dead and so has to be closed first.
func (s *View) Dead() bool {
	if u := s.under(); u != nil {
		return u.ended(s.term) || u.Dead()
	}
	dead, counted := s.unchangedUntil()
	return counted && s.sent >= dead
}

// over says that the lock may be taken as it is: its holder is dead, or its session has ended.
func (s *View) over() bool {
	if s.under() != nil {
		return s.Ended()
	}
	return s.Dead()
}

// A lock under a session shows no life of its own. Its holder is dead when the
// session is: closed, or absent in a strong read that was sent after the lock was
// seen under it. A session whose beat has been unchanged for its lease is closed
// first, so that it cannot renew any more; then its locks are taken.

// Tied says that the record shows a lock that a session keeps alive.
func (s *View) Tied() bool { return s.found && s.rec.State == driver.Held && s.rec.Session != "" }

// Under returns what the process has seen of the lock's session, nil if the lock is
// not under one, or the process does not follow sessions.
func (s *View) Under() *View { return s.under() }

func (s *View) under() *View {
	if !s.Tied() || s.env.Session == nil {
		return nil
	}
	return s.env.Session(s.rec.Session)
}

// of returns the view of the record that a call is about. s is the view of the record with the
// given key; any other call is about a session.
func (s *View) of(r *Call, key string) *View {
	if r.Key == key {
		return s
	}
	return s.env.Session(driver.SessionID(r.Key))
}

// Closed says whether the lock is held under a session that its own process has closed,
// so that no work goes on under it.
func (s *View) Closed() bool {
	u := s.under()
	return u != nil && u.found && closedInOrder(u.rec)
}

// Ended says whether the lock is held under a session that is over for certain.
func (s *View) Ended() bool {
	u := s.under()
	return u != nil && u.ended(s.term)
}

// ended says whether the session is certainly over, given that a lock was seen under
// it at the given instant.
func (s *View) ended(at time.Duration) bool {
	_, known := s.Known()
	return known && (s.found && s.rec.State == driver.Closed || !s.found && s.sent >= at)
}

// diesAt returns when the session of a tied lock counts as dead: at once if it has
// ended, and practically never as long as it was not read.
func (s *View) diesAt() time.Duration {
	u := s.under()
	switch {
	case u == nil:
		return s.replied + forever
	case u.ended(s.term):
		return s.term
	}
	if dead, alive := u.DeadAt(); alive {
		return dead
	}
	return s.replied + forever
}

// ending returns the term of a record that is taken over, as its successor records
// it. If the owner has closed the session of the lock, the term ended with that.
func (s *View) ending(rec driver.Record) *driver.Term {
	u := s.under()
	if u == nil || rec.Session == "" || !u.found || u.rec.State != driver.Closed || u.rec.End == "" {
		return rec.Term(driver.EndExpired).Brief()
	}
	t := rec.Term(u.rec.End)
	t.Until = u.rec.Until
	return t.Brief()
}

// waitingFor returns the request in a session's record that is for the holder of a
// lock, nil if there is none.
func waitingFor(session, lock driver.Record) *driver.Request {
	for i, q := range session.Requests {
		if honoured(q.Kind) && q.Lock == lock.Key && (q.Token == 0 || q.Token == lock.Token) {
			return &session.Requests[i]
		}
	}
	return nil
}

// Wish returns when to ask the holder to hand over to a candidate of this process with that
// priority and lease, and false if the candidate is not preferred to it or the holder was
// asked. Leaders must not change to and fro: the holder is asked only when it has led for a
// lease, and at most once in a lease.
func (s *View) Wish(priority int, lease time.Duration) (time.Duration, bool) {
	if !s.found || s.rec.Priority >= priority {
		return 0, false
	}
	return s.asks(s.rec, lease)
}

// asks is Wish for a candidate that is preferred.
func (s *View) asks(rec driver.Record, lease time.Duration) (time.Duration, bool) {
	if rec.State != driver.Held || rec.Beat == "" || rec.End != "" || len(rec.Requests) > 0 {
		return 0, false
	}
	at := s.term + lease
	if s.asked != never {
		at = max(at, s.asked+lease)
	}
	return at, true
}

// Asked notes that the holder is asked now; never: it was not.
func (s *View) Asked(now time.Duration) { s.asked = now }

// Readable says whether the record may be taken over when its holder is dead. A
// record without a lease, or with an unknown state, may not be: to read a broken
// lease as zero would take the lock from a living holder.
func Readable(rec driver.Record) bool {
	return rec.Lease > 0 && stage(rec.State) > 0 && !rec.State.OfSession()
}
