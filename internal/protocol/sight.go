// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Sight is what one process knows of one record from looking at it. It watches
// for life: it notes the record's beat and the instant after the reply that
// first showed it. It is shared by all contenders of the process for the key
// and outlives them, so that a caller who only tries now and then takes a dead
// holder's lock as well.
type Sight struct {
	t   Timing
	env Env

	known  bool
	found  bool
	rec    driver.Record
	since  time.Duration // after the reply that first showed rec's sign of life
	looked time.Duration // after the latest reply
	asked  time.Duration // before the request of the latest reply
	next   time.Duration // when to look again
	term   time.Duration // after the reply that first showed rec's token and state

	gone     time.Duration // before the request of a strong reply that showed no record
	isGone   bool
	doubt    bool          // a reply that proves nothing showed no record
	inquired time.Duration // when the session may be asked again whether it holds this lock

	// What acquires have written that were given up. No one reads it but by
	// mistake.
	given attempts

	// When a contender of this process last asked a holder to make way for it.
	wished bool
	wish   time.Duration

	// The next heartbeat is expected in (lo, hi], where the record says its
	// period and a change of the beat was seen.
	phase  bool
	lo, hi time.Duration
	chased int // looks after a heartbeat that is overdue
}

// NewSight returns the sight of a record that was not looked at yet.
func NewSight(t Timing, env Env) *Sight { return &Sight{t: t, env: env} }

// Saw notes a reply: rec as the store showed it, or no record. sent is the
// instant before the request, now the one after its reply.
func (s *Sight) Saw(sent, now time.Duration, rec driver.Record, found bool) {
	if Making(SeenFromRequest) {
		now = sent
	}
	was, asked, seen := s.rec, s.asked, s.known && s.found
	if seen && found && sent < s.looked && older(rec, was) {
		return // overtaken by a quicker one
	}
	s.rec, s.known, s.found = rec, true, found
	s.looked, s.asked = now, sent
	switch term := seen && found && rec.State == was.State && rec.Token == was.Token; {
	case term && rec.Sign() == was.Sign() && rec.Lease == was.Lease:
		// No heartbeat had reached the store when the request was sent.
		s.lo = max(s.lo, sent)
	case term && (rec.State == driver.Held || rec.State == driver.Alive):
		s.since, s.chased = now, 0
		s.expect(asked, now)
	default:
		if !term {
			s.term = now
		}
		s.since, s.chased = now, 0
		s.phase = false
	}
	s.next = s.schedule()
}

// older says that a was written before b, as far as the records tell.
func older(a, b driver.Record) bool {
	return a.Token < b.Token || a.Token == b.Token && stage(a.State) < stage(b.State)
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

// holds says whether the record shows somebody whom others must wait for: a
// holder, or who it is reserved for.
func (s *Sight) holds() bool {
	return s.known && s.found && (s.rec.State == driver.Held || s.rec.State == driver.Reserved || s.rec.State == driver.Alive)
}

// period returns the period of the holder's heartbeats, 0 if looks do not
// follow it: because the record does not say it, or nonsense, or because they
// are so rare that most heartbeats go by unseen.
func (s *Sight) period() time.Duration {
	h := s.rec.Heartbeat
	if h < minPeriod || h > s.t.wait(s.rec) || s.t.Refresh > 2*h {
		return 0
	}
	return h
}

// minPeriod is the shortest period that looks follow.
const minPeriod = time.Millisecond

// expect narrows down when the holder beats. The beat that the record shows
// was written in (lo, hi].
func (s *Sight) expect(lo, hi time.Duration) {
	h := s.period()
	if h == 0 {
		s.phase = false
		return
	}
	lo = max(lo, hi-h) // it is the latest of several, perhaps
	if s.phase {
		missed := max(0, (hi-s.hi)/h) * h
		if l, r := max(lo, s.lo+missed), min(hi, s.hi+missed); l < r {
			lo, hi = l, r // it came as expected
		}
	}
	s.phase = true
	s.lo, s.hi = lo+h, hi+h
}

// Record returns the record as last seen, and false if there was none or
// nobody looked.
func (s *Sight) Record() (driver.Record, bool) { return s.rec, s.known && s.found }

// Known says whether the record was looked at, and when the latest reply came.
func (s *Sight) Known() (time.Duration, bool) { return s.looked, s.known }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *Sight) Since() time.Duration { return s.since }

// Term returns the instant after the reply that first showed the tenure that
// the record shows.
func (s *Sight) Term() time.Duration { return s.term }

// DeadAt returns the instant at which the holder's expiry has passed for
// certain, if no other sign of life is seen until then, and false if the
// record shows no holder. A reservation lapses at that instant.
func (s *Sight) DeadAt() (time.Duration, bool) {
	if !s.holds() {
		return 0, false
	}
	if s.Tied() {
		return s.diesAt(), true
	}
	return s.since + s.t.wait(s.rec), true
}

// NextLook returns when to look again: about a refresh period after the last
// look, or sooner. A look falls soon after the holder's next expected
// heartbeat, so that its death is counted from its last sign of life and not
// from up to a refresh period later; and one falls shortly before the holder
// counts as dead, so that a takeover does not fail for old knowledge.
func (s *Sight) NextLook() time.Duration { return s.next }

func (s *Sight) schedule() time.Duration {
	r := s.t.Refresh
	if s.known && s.found && (s.rec.State == driver.Reserved || len(s.rec.Requests) > 0) {
		// The lock changes hands within a time that goes by the lease, however
		// rarely this contender looks: it may be the one that is meant.
		r = min(r, s.t.wait(s.rec)/5, s.t.Lease/5)
	}
	if s.silent() {
		r *= 2
	}
	if s.Tied() {
		return s.looked + s.env.between(r-r/8, r+r/8) // what it shows in time is a release
	}
	next := s.looked + s.env.between(r-r/8, r+r/8)
	dead, held := s.DeadAt()
	if !held {
		return next
	}
	if h := s.period(); h > 0 && s.phase && !s.silent() {
		next = s.aligned(next, h)
	}
	w := s.t.wait(s.rec)
	early := dead - w/10 + s.env.between(0, w/20)
	if early > s.looked && next > early-r/2 { // rather than to look now and again soon
		next = early
	}
	return next
}

// silent reports whether a heartbeat was missed for certain, and half a period
// has gone by in which it could have come late. The holder is dead, or cut off
// from the store, and then cannot release the lock either: what is left is to
// wait, for which fewer looks will do. Of a lock under a session, the session
// shows it.
func (s *Sight) silent() bool {
	if s.Tied() {
		u := s.under()
		return u != nil && u.silent()
	}
	h := s.rec.Heartbeat
	return s.known && s.found && (s.rec.State == driver.Held || s.rec.State == driver.Alive) &&
		h >= minPeriod && h <= s.t.wait(s.rec) && s.looked-s.since > h+h/2
}

// aligned returns the latest instant up to about limit that lies soon after an
// expected heartbeat, or limit if none is expected until then. While the
// expectation is wide, the instant is in the middle of it, which halves it.
func (s *Sight) aligned(limit, h time.Duration) time.Duration {
	lo, hi := s.lo, s.hi
	if hi <= s.looked {
		// A heartbeat is overdue. If it is only late, it shall be seen soon
		// after it comes; if the holder is dead, these looks are few.
		if gap := h / 8 << (3 * s.chased); gap < s.t.Refresh {
			s.chased++
			return s.looked + s.env.between(gap/2, gap)
		}
		n := (s.looked-hi)/h + 1
		lo, hi = lo+n*h, hi+n*h
	}
	late := limit + s.t.Refresh/4 // rather than to look now and again soon
	if wide := hi - lo; wide > h/32 && lo+wide/2 > s.looked && lo+wide/2 < late {
		return lo + wide/2 // of the first, as the ones after it would hide it
	}
	hi += max(0, (late-hi)/h) * h
	if at := hi + s.env.between(0, h/64); at < late {
		return at
	}
	return limit
}

// Readable says whether the record may be taken over when its holder is dead.
// One whose lease cannot be told, or whose state is unknown, may not: reading
// nonsense as zero would take a lock from a living holder.
func Readable(rec driver.Record) bool {
	return rec.Lease > 0 && stage(rec.State) > 0 && !rec.State.OfSession()
}
