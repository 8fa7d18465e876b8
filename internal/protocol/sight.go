// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Sight is what one process knows of one record. It changes by strong replies only:
// those of strong reads, and the answers of writes. It notes the sign of life that the
// record shows, and the instant after the reply that first showed it. All machines of
// the process that read the record share it, and it outlives them, so that a caller that
// only tries now and then can also take a dead holder's lock.
//
// A strong reply counts if its call was sent after the latest reply that counted had
// come. Two calls that overlap are in no order, so the later reply may show the older
// record. Such a reply is a hint, and so is every cheap reply: if it shows anything else than
// the version that is known, a strong read is due.
type Sight struct {
	t   Timing
	env Env

	known   bool
	found   bool
	rec     driver.Record
	replied time.Duration // after the latest reply that counted
	sent    time.Duration // before the call of that reply
	since   time.Duration // after the reply that first showed rec's sign of life
	term    time.Duration // after the reply that first showed rec's term

	polled time.Duration // when the latest call about the record was sent
	spread float64       // of the refresh period that follows it: 7/8 to 9/8
	due    time.Duration // when a strong read is, since the record may have changed; endless: it is not

	// The latest holder that a strong reply has shown, whether that counted or not, and
	// the instant before its call. Such a holder was there after that instant.
	holder     life
	holderSent time.Duration

	inquired time.Duration // when the session may be asked again whether it holds this lock in this term
	wished   bool          // a contender of this process has asked a holder to make way for it
	wish     time.Duration // when it did so last

	// Of a session: whether an Observer reads it now, and the Observers that wait for
	// the answer.
	observed bool
	joined   []*Observer
}

// NewSight returns the sight of a record that was not read yet.
func NewSight(t Timing, env Env) *Sight { return &Sight{t: t, env: env, spread: 1, due: endless} }

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

// Saw notes a reply: rec as the store showed it, or no record. sent is the instant
// before the call, now the instant after its reply, and how says how fresh a reply the
// call asked for. The reply to a write is strong.
func (s *Sight) Saw(sent, now time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	strong := how == driver.Strong
	if strong && found && (rec.State == driver.Held || rec.State == driver.Alive) &&
		(s.holder == life{} || sent > s.holderSent) {
		s.holder, s.holderSent = lifeOf(rec), sent
	}
	same := s.known && found == s.found && rec.Version == s.rec.Version
	switch counts := strong && !(s.known && sent < s.replied); {
	case counts:
	case strong && same:
		s.sent = max(s.sent, sent) // the record was still what is known
		return
	case strong:
		s.due = min(s.due, now+2*s.t.Pause()) // others of this process read it, too: not all of them at once
		return
	case !same:
		s.due = now
		return
	default:
		return
	}
	had := s.known && found == s.found
	if had = had && termOf(rec) == termOf(s.rec); !had {
		s.term, s.inquired = now, 0
		s.differs(rec, found)
	}
	if !had || lifeOf(rec) != lifeOf(s.rec) {
		s.since = now
		if s.env.Recall != nil && found {
			if at, ok := s.env.Recall(rec); ok {
				s.since = min(s.since, at) // an earlier sight of the record began the count
			}
		}
	}
	s.known, s.found, s.rec, s.replied, s.sent = true, found, rec, now, sent
}

// differs tells of a new term of a holder whose bound of the drift is not this process's.
func (s *Sight) differs(rec driver.Record, found bool) {
	if found && s.env.Differs != nil && rec.Drift > 0 && rec.Drift != s.t.Drift &&
		(rec.State == driver.Held || rec.State == driver.Alive) {
		s.env.Differs(rec)
	}
}

// Hint says that the record may have changed: a strong read is due. A hint about a lock
// under a session is one about the session, too, since a session that closes frees its
// locks without writing their records.
func (s *Sight) Hint() {
	s.due = 0
	if u := s.under(); u != nil {
		u.due = 0
	}
}

// Hinted says that a strong read is due.
func (s *Sight) Hinted() bool { return s.due != endless }

// Polls notes that the record is being read. A hint is consumed by the sending: what
// comes while the call is under way may be newer than its reply.
func (s *Sight) Polls(now time.Duration, how driver.Consistency) {
	s.polled, s.spread = now, 7./8+s.env.Random()/4
	if how == driver.Strong {
		s.due = endless
	}
}

// Unanswered says that such a read has got no answer: what it was to show is still due.
func (s *Sight) Unanswered() { s.due = 0 }

// sends notes that a machine sends a call. A write consumes no hint: its answer is none if it is
// lost, and then the machine reads what became of it.
func (s *Sight) sends(now time.Duration, r *Call) {
	if !r.Kind.Reads() {
		s.Polls(now, driver.Eventual)
		return
	}
	s.Polls(now, r.Consistency)
}

// missed notes that such a call has got no answer.
func (s *Sight) missed(r *Call) {
	if r.Kind.Reads() {
		s.Unanswered()
	}
}

// NextPoll returns when the record is to be read again by one that looks once in a refresh
// period: that long after the latest call about it, give or take an eighth, and when the sign
// of life has been unchanged for its lease, if that is sooner. What may change hands soon is
// looked at more often, however long the refresh period is, since the lock may be meant for
// this process, and stays reserved for a time that depends on the lease.
func (s *Sight) NextPoll(refresh, lease time.Duration) time.Duration {
	if !s.known {
		return 0
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
func (s *Sight) moves() bool {
	wishes := s.wished && s.wish >= s.term
	return s.found && (s.rec.State == driver.Reserved || len(s.rec.Requests) > 0 || wishes)
}

// How returns how fresh a poll must be that is made now. It is cheap where the record counts no
// beat, or shows a holder that no heartbeat is due of: its beat is younger than 7/8 of the
// heartbeat period, of a fifth of the lease if the record names none. So a poll that is likely
// to show something new shows it at once, and how far cheap reads are behind bounds nothing.
func (s *Sight) How(now time.Duration) driver.Consistency {
	_, counted := s.unchangedUntil()
	switch {
	case !s.known, s.Hinted(), s.moves():
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

// stage is the order in which a tenure goes through the states.
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
func (s *Sight) holds() bool {
	return s.known && s.found && (s.rec.State == driver.Held || s.rec.State == driver.Reserved || s.rec.State == driver.Alive)
}

// unchangedUntil returns the instant at which the sign of life will have been unchanged for its
// lease, and false if the record counts none: nobody holds it, or a session keeps it alive.
func (s *Sight) unchangedUntil() (time.Duration, bool) {
	if !s.holds() || s.Tied() {
		return 0, false
	}
	return s.since + s.t.wait(s.rec), true
}

// Record returns the record as last seen, and false if there was none or it was
// never read.
func (s *Sight) Record() (driver.Record, bool) { return s.rec, s.known && s.found }

// Known returns when the latest reply that counted came, and false if the record was never
// read.
func (s *Sight) Known() (time.Duration, bool) { return s.replied, s.known }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *Sight) Since() time.Duration { return s.since }

// Term returns the instant after the reply that first showed the tenure that
// the record shows.
func (s *Sight) Term() time.Duration { return s.term }

// DeadAt returns the instant at which the holder's lease has certainly expired,
// unless another sign of life was written before, and false if the record shows no
// holder. A reservation lapses at that instant. A strong read that is sent then tells:
// see [Sight.Dead].
func (s *Sight) DeadAt() (time.Duration, bool) {
	if s.Tied() {
		return s.diesAt(), true
	}
	return s.unchangedUntil()
}

// Dead says that the holder's lease has expired for certain: a strong reply to a call that was
// sent when the sign of life had been unchanged for its lease has shown it still. A lock under a
// session is dead when the session has ended, or is dead and so has to be closed first.
func (s *Sight) Dead() bool {
	if u := s.under(); u != nil {
		return u.ended(s.term) || u.Dead()
	}
	dead, counted := s.unchangedUntil()
	return counted && s.sent >= dead
}

// LookFor has the record looked at as often as those want it who wait now: by the shortest
// refresh period and the shortest lease among them.
func (s *Sight) LookFor(refresh, lease time.Duration) { s.t.Refresh, s.t.Lease = refresh, lease }

// NextLook is NextPoll for those whom [Sight.LookFor] knows of.
func (s *Sight) NextLook() time.Duration { return s.NextPoll(s.t.Refresh, s.t.Lease) }

// Readable says whether the record may be taken over when its holder is dead. A
// record without a lease, or with an unknown state, may not be: to read a broken
// lease as zero would take the lock from a living holder.
func Readable(rec driver.Record) bool {
	return rec.Lease > 0 && stage(rec.State) > 0 && !rec.State.OfSession()
}
