// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// View is what one process knows of one record. Only strong replies change it: replies
// to strong reads, and answers to writes. It keeps the record's sign of life, and the
// instant after the reply that first showed it. All machines of the process that read
// the record share it, and it outlives them, so that a caller that only tries now and
// then can also take a dead holder's lock.
//
// A strong reply counts if its call was sent after the latest counting reply came.
// Overlapping calls have no order: the later reply may show the older record. So any other
// reply, strong or eventual, is only a hint: if it shows another version than the known one,
// a strong read is due.
type View struct {
	t   Timing
	env Env

	found     bool
	rec       driver.Record
	replied   time.Duration // after the latest reply that counted; never: not read yet
	sent      time.Duration // before the call of that reply, or of a later reply with the same version
	since     time.Duration // after the reply that first showed rec's sign of life
	termSince time.Duration // after the reply that first showed rec's term

	polled time.Duration // when the latest call about the record was sent; never: none was sent
	spread float64       // factor of the refresh period after it: 7/8 to 9/8
	due    time.Duration // when a strong read is due, because the record may have changed; endless: not due

	shown holderShown
	asked time.Duration // when an acquire of this process asked the holder to hand over; never: none did
}

// holderShown is the latest holder that a strong reply has shown, whether the reply counted or
// not, and the instant before its call. That holder had the lock after that instant.
type holderShown struct {
	lifeSign
	sent time.Duration
}

// NewView returns the view of a record that has not been read yet.
func NewView(t Timing, env Env) *View {
	return &View{t: t, env: env, replied: never, polled: never, spread: 1, due: endless, asked: never}
}

// lifeSign is the part of a record that changes whenever its holder shows life.
type lifeSign struct {
	token uint64
	sign  string
	state driver.State
	lease time.Duration
}

func lifeSignOf(rec driver.Record) lifeSign {
	return lifeSign{rec.Token, rec.Sign(), rec.State, rec.Lease}
}

// termID is the part of a record that stays the same as long as one holder has the lock.
// Token and state alone do not identify it: tokens restart when a key is deleted.
type termID struct {
	token       uint64
	state       driver.State
	session, id string
}

func termOf(rec driver.Record) termID {
	id, _, found := strings.Cut(rec.Beat, "-")
	if !found {
		id = "" // an older process's, or none
	}
	return termID{rec.Token, rec.State, rec.Session, id}
}

// Observe notes a reply: rec as the store returned it, or no record. sent is the
// instant before the call, now the instant after its reply, and how the consistency
// that the call asked for. The reply to a write is strong.
func (s *View) Observe(sent, now time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	strong := how == driver.Strong
	if strong && found && holder(rec) && (s.shown.lifeSign == lifeSign{} || sent > s.shown.sent) {
		s.shown = holderShown{lifeSignOf(rec), sent}
	}
	_, known := s.Known()
	known = known && found == s.found
	if !strong || sent < s.replied {
		// A late duplicate of a claim brings its version back, under another token.
		same := rec.Version == s.rec.Version && rec.Token == s.rec.Token && rec.State == s.rec.State && rec.Life == s.rec.Life
		s.noteUncounted(sent, now, strong, known && same)
		return
	}
	same := known && termOf(rec) == termOf(s.rec)
	if !same {
		s.termSince = now
		s.differs(rec, found)
	}
	if !same || lifeSignOf(rec) != lifeSignOf(s.rec) || rec.Life != s.rec.Life { // in another life of the engine the count begins again
		s.since = now
		if s.env.Recall != nil && found {
			if at, ok := s.env.Recall(rec); ok {
				s.since = min(s.since, at) // an earlier view of the record began the count
			}
		}
	}
	s.found, s.rec, s.replied, s.sent = found, rec, now, sent
}

// noteUncounted notes a reply that does not count. same says that it shows the known version, in the
// known life of the engine.
func (s *View) noteUncounted(sent, now time.Duration, strong, same bool) {
	switch {
	case strong && same:
		s.sent = max(s.sent, sent) // the record was still as known
	case strong:
		s.due = min(s.due, now+2*s.t.MinPollInterval()) // other machines of this process read it too: they should not all read at once
	case !same:
		s.due = now
	}
}

// differs reports a new term whose holder has another drift bound than this process. A higher bound
// counts unless it is the default, which remote holders have.
func (s *View) differs(rec driver.Record, found bool) {
	remote := rec.Drift == DefaultDrift && rec.Drift > s.t.Drift
	if found && s.env.Differs != nil && rec.Drift > 0 && rec.Drift != s.t.Drift && !remote && holder(rec) {
		s.env.Differs(rec)
	}
}

// Hint says that the record may have changed: a strong read is due. A hint about a lock
// under a session is also a hint about the session, because closing a session frees its
// locks without writing their records.
func (s *View) Hint() {
	s.due = 0
	if u := s.under(); u != nil {
		u.due = 0
	}
}

// Hinted says that a strong read is due.
func (s *View) Hinted() bool { return s.due != endless }

// Polls notes that the record is being read. Sending the call consumes the hint: a hint
// that comes while the call is under way may be newer than its reply.
func (s *View) Polls(now time.Duration, how driver.Consistency) {
	s.polled, s.spread = now, 7./8+s.env.Random()/4
	if how == driver.Strong {
		s.due = endless
	}
}

// Unanswered says that a read got no answer, so that a strong read is due.
func (s *View) Unanswered() { s.due = 0 }

// sends notes that a machine sends a call. A write consumes no hint: its answer may be lost, and
// then the machine reads the record.
func (s *View) sends(now time.Duration, r *Call) {
	if !r.Kind.Reads() {
		s.Polls(now, driver.Eventual)
		return
	}
	s.Polls(now, r.Consistency)
}

// missed notes that such a call got no answer.
func (s *View) missed(r *Call) {
	if r.Kind.Reads() {
		s.Unanswered()
	}
}

// NextPoll returns when a machine with that refresh period reads the record again: one period
// after the latest call about it, give or take an eighth, or when the sign of life has been
// unchanged for its lease, if that is sooner. If a lock may soon change hands, a machine
// polls more often, whatever its refresh period: the lock may become reserved for
// this process, and stays reserved only for a time that depends on the lease.
func (s *View) NextPoll(refresh, lease time.Duration) time.Duration {
	switch _, known := s.Known(); {
	case !known && s.polled == never:
		return 0
	case !known:
		return min(s.polled+s.t.MinPollInterval(), s.due) // another machine reads it
	}
	if s.mayChangeHands() {
		refresh = min(refresh, s.t.Wait(s.rec)/5, lease/5)
	}
	next := s.polled + time.Duration(s.spread*float64(refresh))
	if dead, counted := s.unchangedUntil(); counted && s.sent < dead {
		next = min(next, dead) // even while another reads: its reply may not reach this machine
	}
	return min(next, s.due)
}

// mayChangeHands says that the lock may change hands soon: it is reserved, or its holder was
// asked to hand over. The next heartbeat of a session removes the request from its record, and the
// lock's record shows nothing until the holder has stopped. So a request of this process
// counts as long as the term lasts: the work may take long to stop.
func (s *View) mayChangeHands() bool {
	return s.found && (s.rec.State == driver.Reserved || len(s.rec.Requests) > 0 || s.asked >= s.termSince)
}

// PollConsistency returns the consistency that a poll needs now. An eventual poll is enough if
// the record needs no beat or if no heartbeat is due: the beat is younger than 7/8 of the heartbeat
// period (a fifth of the lease if the record names none). So a poll that is likely to show
// something new is strong, and no bound depends on how far eventual reads are behind.
func (s *View) PollConsistency(now time.Duration) driver.Consistency {
	_, counted := s.unchangedUntil()
	_, known := s.Known()
	switch {
	case !known, s.Hinted(), s.mayChangeHands():
		return driver.Strong
	case !counted:
		return driver.Eventual
	}
	period := s.rec.Heartbeat
	if wait := s.t.Wait(s.rec); period <= 0 || period > wait {
		period = wait / 5
	}
	if now-s.since < period-period/8 {
		return driver.Eventual
	}
	return driver.Strong
}

// isKnownState says that this version knows the state.
func isKnownState(s driver.State) bool {
	switch s {
	case driver.Held, driver.Alive, driver.Reserved, driver.Released, driver.Closed:
		return true
	}
	return false
}

// holds says whether the record shows an owner that others must wait for: a holder,
// or the owner of a reservation.
func (s *View) holds() bool {
	return s.found && (s.rec.State == driver.Held || s.rec.State == driver.Reserved || s.rec.State == driver.Alive)
}

// unchangedUntil returns the instant at which the sign of life will have been unchanged for its
// lease, and false if none counts: the lock has no holder, or a session keeps it alive.
func (s *View) unchangedUntil() (time.Duration, bool) {
	if !s.holds() || s.UnderSession() {
		return 0, false
	}
	return s.since + s.t.Wait(s.rec), true
}

// Record returns the record as last read, and false if it was absent or never read.
func (s *View) Record() (driver.Record, bool) { return s.rec, s.found }

// Known returns when the latest reply that counted came, and false if the record was never
// read.
func (s *View) Known() (time.Duration, bool) { return s.replied, s.replied != never }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *View) Since() time.Duration { return s.since }

// TermSince returns the instant after the reply that first showed the term that
// the record shows.
func (s *View) TermSince() time.Duration { return s.termSince }

// DeadAt returns the instant at which the holder's lease has certainly expired, unless
// another sign of life is written before, and false if the record shows no holder. A
// reservation lapses at that instant. A strong read sent then proves it: see
// [View.Dead].
func (s *View) DeadAt() (time.Duration, bool) {
	if s.UnderSession() {
		return s.diesAt(), true
	}
	return s.unchangedUntil()
}

// Dead says that the holder's lease has certainly expired: a strong read sent after the sign of
// life had been unchanged for its lease still showed it. A lock under a session is dead when its
// session has ended, or is dead; a dead session must be closed first.
func (s *View) Dead() bool {
	if u := s.under(); u != nil {
		return u.ended(s) || u.Dead()
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

// A lock under a session shows no life of its own. Its holder is dead when the session's
// record is closed, or absent from a strong read sent after the lock was read under it.
// A session whose beat has been unchanged for its lease is closed first, so that it
// cannot renew any more; then its locks are taken.
//
// Where the engine may lose writes, a server that is cut off may have the lock, and its successor
// the end of the session. So both must have been read in one life of the engine, and a write that
// takes the lock is bound to it. A reply without a record names no life: the absence must have
// lasted for as long as such a server may go on.

// UnderSession says that the record shows a lock that a session keeps alive.
func (s *View) UnderSession() bool {
	return s.found && s.rec.State == driver.Held && s.rec.Session != ""
}

// Under returns the view of the lock's session, nil if the lock is not under one, or
// the process does not follow sessions.
func (s *View) Under() *View { return s.under() }

func (s *View) under() *View {
	if !s.UnderSession() || s.env.Session == nil {
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

// settles returns the next read for a lock whose session has ended in another life of the engine, or
// is absent, as long as that does not count.
func (s *View) settles(u *View) move {
	at := max(s.polled, u.polled) + min(s.t.Refresh, s.t.Lease/5)
	return move{kind: Read, session: u.polled <= s.polled, at: at}
}

// Closed says whether the lock is held under a session that its own process has closed,
// so that no work goes on under it.
func (s *View) Closed() bool {
	u := s.under()
	return u != nil && u.found && closedInOrder(u.rec)
}

// Ended says whether the lock is held under a session that is certainly over.
func (s *View) Ended() bool {
	u := s.under()
	return u != nil && u.ended(s)
}

// ended says whether the session, under which that lock was read, is certainly over.
func (s *View) ended(lock *View) bool {
	switch _, known := s.Known(); {
	case !known:
		return false
	case s.found:
		return s.rec.State == driver.Closed && s.rec.Life == lock.rec.Life && (s.rec.End != driver.EndExpired || s.outlasts())
	}
	return s.sent >= lock.termSince && (s.t.Waits == 0 || s.sent >= s.termSince+s.t.Waits)
}

// outlasts says that this process has seen the record's life of the engine for so long that all leases of
// former lives have expired. The engine shows a session of a former life as expired at once, since it cannot be
// renewed, but its holder acts until its own deadline.
func (s *View) outlasts() bool {
	if s.t.Waits == 0 {
		return true
	}
	since, seen := s.env.LifeSince(s.rec.Life)
	return seen && s.sent >= since+s.t.Waits
}

// isRead says whether the session's record shows what has become of that lock's holder, so that it
// need not be read at once.
func (s *View) isRead(lock *View) bool {
	_, known := s.Known()
	return known && (s.holds() || s.sent >= lock.termSince)
}

// diesAt returns when the session of a lock counts as dead: at once if it has ended,
// and practically never until it has been read.
func (s *View) diesAt() time.Duration {
	u := s.under()
	switch {
	case u == nil:
		return s.replied + forever
	case u.ended(s):
		return s.termSince
	case u.t.Waits > 0 && u.isRead(s) && !u.holds():
		return u.termSince + u.t.Waits
	}
	if dead, alive := u.DeadAt(); alive {
		return dead
	}
	return s.replied + forever
}

// ending returns the term of a record that is taken over, as its successor records it.
// If the owner has closed the lock's session, the term ended with the session.
func (s *View) ending(rec driver.Record) *driver.Term {
	u := s.under()
	if u == nil || rec.Session == "" || !u.found || u.rec.State != driver.Closed || u.rec.End == "" {
		return rec.Term(driver.EndExpired).Shorten()
	}
	t := rec.Term(u.rec.End)
	t.Until = u.rec.Until
	return t.Shorten()
}

// waitingFor returns the request in a session's record for the holder of a lock, or
// nil.
func waitingFor(session, lock driver.Record) *driver.Request {
	for i, q := range session.Requests {
		if honoured(q.Kind) && q.Lock == lock.Key && (q.Token == 0 || q.Token == lock.Token) {
			return &session.Requests[i]
		}
	}
	return nil
}

// RequestDue returns when to ask the holder to hand over to a candidate of this process with that
// priority and lease, and false if the candidate has no higher priority or the holder was
// asked already. To avoid flapping, the holder is asked only after it has led for a lease,
// and at most once in a lease.
func (s *View) RequestDue(priority int, lease time.Duration) (time.Duration, bool) {
	if !s.found || s.rec.Priority >= priority {
		return 0, false
	}
	return s.asks(s.rec, lease)
}

// asks is RequestDue if the priority is higher.
func (s *View) asks(rec driver.Record, lease time.Duration) (time.Duration, bool) {
	if rec.State != driver.Held || rec.Beat == "" || rec.End != "" || len(rec.Requests) > 0 {
		return 0, false
	}
	at := s.termSince + lease
	if s.asked != never {
		at = max(at, s.asked+lease)
	}
	return at, true
}

// NoteRequest notes that the holder is asked now; never: the request was not written.
func (s *View) NoteRequest(now time.Duration) { s.asked = now }

// Readable says whether the record may be taken over when its holder is dead. A record
// without a lease, or with an unknown state, may not be: reading a broken lease as zero
// would take the lock from a living holder.
func Readable(rec driver.Record) bool {
	return rec.Lease > 0 && isKnownState(rec.State) && !rec.State.OfSession()
}
