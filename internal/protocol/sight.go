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

	// The next heartbeat is expected in (lo, hi], where the record says its
	// period and a change of the beat was seen.
	phase  bool
	lo, hi time.Duration
}

// NewSight returns the sight of a record that was not looked at yet.
func NewSight(t Timing, env Env) *Sight { return &Sight{t: t, env: env} }

// Saw notes a reply: rec as the store showed it, or no record. sent is the
// instant before the request, now the one after its reply.
func (s *Sight) Saw(sent, now time.Duration, rec driver.Record, found bool) {
	same := s.known && s.found && found && rec.State == s.rec.State &&
		rec.Token == s.rec.Token && rec.Sign() == s.rec.Sign() && rec.Lease == s.rec.Lease
	switch {
	case same:
		// No heartbeat had reached the store when the request was sent.
		s.lo = max(s.lo, sent)
	case found && rec.State == driver.Held:
		s.expect(sent, now, rec)
		s.since = now
	default:
		s.phase = false
		s.since = now
	}
	s.known, s.found, s.rec = true, found, rec
	s.looked, s.asked = now, sent
	s.next = s.schedule()
}

// expect narrows down when the holder beats. The beat that rec shows was
// written after the look before was sent, and before now.
func (s *Sight) expect(sent, now time.Duration, rec driver.Record) {
	renewed := s.known && s.found && s.rec.State == driver.Held && s.rec.Token == rec.Token && rec.Heartbeat > 0
	if !renewed {
		s.phase = false
		return
	}
	lo, hi := s.asked, now
	if s.phase && max(lo, s.lo) < min(hi, s.hi) {
		lo, hi = max(lo, s.lo), min(hi, s.hi) // it came as expected
	}
	s.phase = true
	s.lo, s.hi = lo+rec.Heartbeat, hi+rec.Heartbeat
}

// Record returns the record as last seen, and false if there was none or
// nobody looked.
func (s *Sight) Record() (driver.Record, bool) { return s.rec, s.known && s.found }

// Known says whether the record was looked at, and when the latest reply came.
func (s *Sight) Known() (time.Duration, bool) { return s.looked, s.known }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *Sight) Since() time.Duration { return s.since }

// DeadAt returns the instant at which the holder's expiry has passed for
// certain, if no other sign of life is seen until then, and false if the
// record shows no holder.
func (s *Sight) DeadAt() (time.Duration, bool) {
	if !s.known || !s.found || s.rec.State != driver.Held {
		return 0, false
	}
	return s.since + s.t.wait(s.rec), true
}

// NextLook returns when to look again: a refresh period after the last look,
// or sooner. A look falls soon after the holder's next expected heartbeat, so
// that its death is counted from its last sign of life and not from up to a
// refresh period later; and one falls shortly before the holder counts as
// dead, so that a takeover does not fail for old knowledge.
func (s *Sight) NextLook() time.Duration { return s.next }

func (s *Sight) schedule() time.Duration {
	r := s.t.Refresh
	next := s.looked + s.env.between(r-r/8, r+r/8)
	dead, ok := s.DeadAt()
	if !ok {
		return next
	}
	w := s.t.wait(s.rec)
	if early := dead - w/10; early > s.looked {
		next = min(next, early+s.env.between(0, w/20))
	}
	if s.phase {
		next = min(next, s.aligned(next))
	}
	return next
}

// aligned returns the latest instant up to limit that lies soon after an
// expected heartbeat, or limit if none is expected until then. While the
// expectation is wide, the instant is in the middle of it, which halves it.
func (s *Sight) aligned(limit time.Duration) time.Duration {
	h := s.rec.Heartbeat
	lo, hi := s.lo, s.hi
	if hi <= s.looked { // a heartbeat is overdue: expect the ones after it
		n := (s.looked-hi)/h + 1
		lo, hi = lo+n*h, hi+n*h
	}
	if n := (limit - hi) / h; limit > hi && n > 0 {
		lo, hi = lo+n*h, hi+n*h
	}
	if wide := hi - lo; wide > h/32 && lo+wide/2 > s.looked && lo+wide/2 < limit {
		return lo + wide/2
	}
	if at := hi + s.env.between(0, h/64); at < limit {
		return at
	}
	return limit
}

// readable says whether the record may be taken over when its holder is dead.
// One whose lease cannot be told, or whose state is unknown, may not: reading
// nonsense as zero would take a lock from a living holder.
func readable(rec driver.Record) bool {
	return rec.Lease > 0 && (rec.State == driver.Held || rec.State == driver.Released)
}
