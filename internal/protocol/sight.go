// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Sight is what one process knows of one record from reading it. It watches for
// signs of life: it notes the record's beat, and the instant after the reply that
// first showed it. All contenders of the process for the key share it, and it
// outlives them, so that a caller that only tries now and then can also take a dead
// holder's lock.
//
// A cheap reply may show an older state of the record. It can put a look off, or
// bring one forward. It proves no life: another sign of the same tenure may be an
// older one. So a sign counts from the reply that showed it first, even if later
// replies show older signs in between. Before a proved sign has been unchanged for
// its lease, a strong look tells whether it still is.
type Sight struct {
	t   Timing
	env Env

	known  bool
	found  bool
	rec    driver.Record
	since  time.Duration // after the reply that first showed rec's sign of life
	looked time.Duration // after the latest reply
	asked  time.Duration // before the call of the latest reply
	next   time.Duration // when to look again
	term   time.Duration // after the reply that first showed rec's token and state
	proved bool          // a strong reply has shown rec's sign of life
	strong time.Duration // before the call of the latest strong reply
	held   life          // the latest holder that a strong reply has shown
	heldAt time.Duration // before the call of that reply
	signs  []sign        // those of rec's tenure that were shown, the latest last

	gone     time.Duration // before the call of a strong reply that showed no record
	isGone   bool
	lived    time.Duration // before the call of a strong reply that showed a session alive
	hasLived bool
	doubt    bool          // a cheap reply showed less than was known: no record, or an older tenure
	inquired time.Duration // when the session may be asked again whether it holds this lock in this term

	rests bool // all that wait are unhurried: see LookFor

	// Of a session: whether an Observer reads it now, and the Observers that wait for
	// the answer.
	observed bool
	joined   []*Observer

	// When a contender of this process last asked a holder to make way for it.
	wished bool
	wish   time.Duration

	// The next heartbeat is expected in (lo, hi], where the record says its
	// period and a change of the beat was seen.
	phase  bool
	lo, hi time.Duration
	chased int           // looks for a heartbeat that is overdue
	astray time.Duration // until when another heartbeat may come out of turn
}

// NewSight returns the sight of a record that was not read yet.
func NewSight(t Timing, env Env) *Sight { return &Sight{t: t, env: env} }

// life is the part of a record that changes whenever its holder shows life.
type life struct {
	token uint64
	sign  string
	state driver.State
}

func lifeOf(rec driver.Record) life { return life{rec.Token, rec.Sign(), rec.State} }

// sign is a sign of life that was shown.
type sign struct {
	life
	lease  time.Duration
	since  time.Duration // after the reply that showed it first
	proved bool          // by a strong reply
}

// maxSigns is how many signs of life a sight remembers. A cheap read is behind by a
// few heartbeats at most.
const maxSigns = 8

// Saw notes a reply: rec as the store showed it, or no record. sent is the instant
// before the call, now the instant after its reply, and how says how fresh a reply the
// call asked for. The reply to a write is strong.
func (s *Sight) Saw(sent, now time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	strong := how == driver.Strong
	if strong && found && rec.State == driver.Alive && (!s.hasLived || sent > s.lived) {
		s.hasLived, s.lived = true, sent
	}
	was, asked, seen := s.rec, s.asked, s.known && s.found
	overtaken := s.known && sent < s.looked // by a quicker one
	behind := seen && found && older(rec, was)
	switch {
	case behind && overtaken:
		return
	case !strong && (behind || !found && (seen || !s.known)):
		s.doubt, s.next = true, now+s.t.Pause() // a strong look tells
		return
	case !found && (!s.isGone || sent > s.gone) && strong:
		s.isGone, s.gone = true, sent
	}
	s.doubt = false
	if strong = strong && !overtaken; strong {
		s.strong = sent
	}
	s.looked, s.asked = now, sent
	tenure := seen && found && rec.State == was.State && rec.Token == was.Token
	if !tenure {
		s.term, s.phase, s.signs, s.inquired = now, false, s.signs[:0], 0
	}
	switch i := s.shown(rec); {
	case tenure && lifeOf(rec) == lifeOf(was) && rec.Lease == was.Lease:
		// No heartbeat had reached the store when the call was sent.
		s.lo = max(s.lo, sent)
		s.proves(i, strong || s.proved)
	case i >= 0 && !strong && (s.proved || i != s.proof()):
		// This sign was shown before the present one, or before the last one that was
		// proved: it is an old state of the record.
		rec, s.asked = was, asked
	case i >= 0:
		s.since, s.phase = s.signs[i].since, false
		s.proves(i, strong || s.signs[i].proved)
	default:
		s.since, s.chased = now, 0
		if s.proved = strong; found {
			s.remember(sign{lifeOf(rec), rec.Lease, now, strong})
		}
		if tenure && (rec.State == driver.Held || rec.State == driver.Alive) {
			s.expect(asked, now)
		} else {
			s.phase = false
		}
	}
	if strong && found {
		s.recall(rec)
		if rec.State == driver.Held {
			s.held, s.heldAt = lifeOf(rec), sent
		}
	}
	if found && !tenure && s.env.Differs != nil && rec.Drift > 0 && rec.Drift != s.t.Drift &&
		(rec.State == driver.Held || rec.State == driver.Alive) {
		s.env.Differs(rec)
	}
	s.rec, s.known, s.found = rec, true, found
	s.next = s.schedule()
}

// recall continues the count of a sign of life that an earlier sight of the record
// began. It is for strong replies: a cheap one may show an old sign.
func (s *Sight) recall(rec driver.Record) {
	if s.env.Recall == nil {
		return
	}
	if at, ok := s.env.Recall(rec); ok && at < s.since {
		s.since = at
		if i := s.shown(rec); i >= 0 {
			s.signs[i].since = at
		}
	}
}

// shown returns the index of a record's sign of life among those that the tenure has
// shown, -1 if it is new.
func (s *Sight) shown(rec driver.Record) int {
	return slices.IndexFunc(s.signs, func(g sign) bool { return g.life == lifeOf(rec) && g.lease == rec.Lease })
}

func (s *Sight) remember(g sign) {
	if len(s.signs) == maxSigns {
		// Keep the latest proved sign: it is the one that may be unchanged.
		oldest := 0
		if s.proof() == 0 {
			oldest = 1
		}
		s.signs = slices.Delete(s.signs, oldest, oldest+1)
	}
	s.signs = append(s.signs, g)
}

// proves notes whether the sign of life that is shown now is proved.
func (s *Sight) proves(i int, proved bool) {
	if s.proved = proved; i >= 0 {
		s.signs[i].proved = proved
	}
}

// proof returns the index of the latest proved sign of life, -1 if there is none.
func (s *Sight) proof() int {
	for i := len(s.signs) - 1; i >= 0; i-- {
		if s.signs[i].proved {
			return i
		}
	}
	return -1
}

// stood returns the instant at which the latest proved sign of life will have been
// unchanged for its lease, and false if there is none.
func (s *Sight) stood() (time.Duration, bool) {
	i := s.proof()
	if i < 0 || !s.holds() || s.Tied() {
		return 0, false
	}
	return s.signs[i].since + s.t.wait(s.rec), true
}

// Proved says that a strong reply has shown the present sign of life.
func (s *Sight) Proved() bool { return s.proved }

// Sure says that a strong look that was sent when the sign of life had been unchanged for its
// lease has shown it still.
func (s *Sight) Sure() bool {
	dead, holds := s.DeadAt()
	return holds && s.proved && s.strong >= dead
}

// Doubts says that a cheap reply showed less than was known.
func (s *Sight) Doubts() bool { return s.doubt }

// How returns how fresh a look that is made now must be. It is strong shortly before
// the proved sign has been unchanged for its lease, or the present one if none is proved,
// or later if nobody has looked then. A machine that acts on what the look shows may need a strong one anyway.
func (s *Sight) How(now time.Duration) driver.Consistency {
	last := max(s.t.wait(s.rec)/10, s.t.Refresh+s.t.Refresh/4)
	dead, ok := s.stood()
	if !ok && s.holds() && !s.Tied() { // no sign of the tenure is proved
		dead, ok = s.since+s.t.wait(s.rec), true
	}
	if !s.known || s.doubt || ok && now >= dead-last && (now < dead || !s.proved || s.strong < dead-last) {
		return driver.Strong
	}
	return driver.Eventual
}

// Due says whether a client that looks at a session each refresh period should read its record
// now: it may show another sign of life, or that there is none yet. Without the latter nobody
// would see that heartbeats come earlier than expected. Where one has come out of turn, as a
// session's do while its locks are asked for, more may, and each look reads it for a lease.
func (s *Sight) Due(now time.Duration) bool {
	return !s.found || s.rec.State != driver.Alive || !s.phase || s.doubt || now < s.astray || now >= s.lo-s.t.Refresh/2
}

// older says that the records show a to be written before b.
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

// holds says whether the record shows an owner that others must wait for: a holder,
// or the owner of a reservation.
func (s *Sight) holds() bool {
	return s.known && s.found && (s.rec.State == driver.Held || s.rec.State == driver.Reserved || s.rec.State == driver.Alive)
}

// period returns the period of the holder's heartbeats, 0 if looks do not follow
// it: because the record has none, or an impossible one, or because looks are so rare
// that they miss most heartbeats.
func (s *Sight) period() time.Duration {
	h := s.rec.Heartbeat
	if h < minPeriod || h > s.t.wait(s.rec) || s.t.Refresh > 2*h {
		return 0
	}
	return h
}

// minPeriod is the shortest period that looks follow.
const minPeriod = time.Millisecond

// expect narrows down when the holder sends its heartbeats. The latest one was
// written in (lo, hi].
func (s *Sight) expect(lo, hi time.Duration) {
	h := s.period()
	if h == 0 {
		s.phase = false
		return
	}
	lo = max(lo, hi-h) // perhaps it is the latest of several
	if s.phase {
		missed := max(0, (hi-s.hi)/h) * h
		if l, r := max(lo, s.lo+missed), min(hi, s.hi+missed); l < r {
			lo, hi = l, r // it came as expected
		} else if hi < s.lo+missed-h/16 { // long before it was expected
			s.astray = hi + s.t.wait(s.rec)
		}
	}
	s.phase = true
	s.lo, s.hi = lo+h, hi+h
}

// Record returns the record as last seen, and false if there was none or it was
// never read.
func (s *Sight) Record() (driver.Record, bool) { return s.rec, s.known && s.found }

// Known returns when the latest reply came, and false if the record was never read.
func (s *Sight) Known() (time.Duration, bool) { return s.looked, s.known }

// Since returns the instant after the reply that first showed the record's sign
// of life.
func (s *Sight) Since() time.Duration { return s.since }

// Term returns the instant after the reply that first showed the tenure that
// the record shows.
func (s *Sight) Term() time.Duration { return s.term }

// DeadAt returns the instant at which the holder's lease has certainly expired,
// unless another sign of life is seen before, and false if the record shows no
// holder. A reservation lapses at that instant.
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
// counts as dead, so that a takeover does not fail because the sight is old.
func (s *Sight) NextLook() time.Duration { return s.next }

// LookFor has the record looked at as often as those want it who wait now: by the shortest
// refresh period and the shortest lease among them. If all of them are unhurried, looks rest
// where the record does: see [Sight.resting].
func (s *Sight) LookFor(refresh, lease time.Duration, rests bool) {
	sooner := refresh < s.t.Refresh || s.rests && !rests
	s.t.Refresh, s.t.Lease, s.rests = refresh, lease, rests
	if sooner && s.known {
		s.next = min(s.next, s.looked+refresh)
	}
}

// looks says that one machine looks now, so that the others need not for a moment.
func (s *Sight) looks(now time.Duration) { s.next = max(s.next, now+s.t.Pause()) }

func (s *Sight) schedule() time.Duration {
	next := s.regular()
	if dead, ok := s.stood(); ok && !s.proved {
		next = max(min(next, dead), s.looked+s.t.wait(s.rec)/1000)
	}
	return next
}

// regular returns when to look again as long as nothing is in doubt.
func (s *Sight) regular() time.Duration {
	r := s.t.Refresh
	if s.known && s.found && (s.rec.State == driver.Reserved || len(s.rec.Requests) > 0 || s.Tied() && s.wishes()) {
		// The lock changes hands within a time that depends on the lease, however
		// rarely this contender looks; and the lock may be meant for it.
		r = min(r, s.t.wait(s.rec)/5, s.t.Lease/5)
	}
	if s.silent() {
		r *= 2
	}
	if s.Tied() {
		if u := s.under(); u != nil && u.t.Refresh > s.t.Refresh { // it is read for those who wait for the lock
			u.LookFor(s.t.Refresh, min(u.t.Lease, s.t.Lease), false)
		}
		return s.looked + s.env.between(r-r/8, r+r/8) // the lock's own record shows only a release in time
	}
	next := s.looked + s.env.between(r-r/8, r+r/8)
	dead, held := s.DeadAt()
	if !held {
		return next
	}
	if h := s.period(); h > 0 && s.phase && !s.silent() {
		if s.resting() {
			next = max(next, s.rest(h))
		}
		next = s.aligned(next, h)
	}
	w := s.t.wait(s.rec)
	early := dead - w/10 + s.env.between(0, w/20)
	if early > s.looked && next > early-r/2 { // rather than to look now and again soon
		next = early
	}
	return next
}

// restsAfter is how many refresh periods a tenure has to be seen for before looks rest.
const restsAfter = 10

// resting reports whether looks rest: all that wait are unhurried, nobody has asked the
// holder for anything, and it has had the lock for a while. As long as it beats, two looks in
// a heartbeat period, one of them soon after the heartbeat, see its death as soon as more do.
func (s *Sight) resting() bool {
	return s.rests && len(s.rec.Requests) == 0 && s.looked-s.term >= restsAfter*s.t.Refresh
}

// rest returns the next look while looks rest: soon after a heartbeat, and once before the
// next one, at any time of that, so that of many processes some see a release soon.
func (s *Sight) rest(h time.Duration) time.Duration {
	if s.hi > s.looked && s.hi-s.looked < h-h/8 {
		return s.hi
	}
	return s.looked + s.env.between(h/4, h-h/4)
}

// silent reports whether a heartbeat is overdue by half a period. The holder is dead
// or cut off from the store then, and cannot release the lock either. So contenders
// only wait, and need fewer looks. For a lock under a session, the session's
// heartbeats count.
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
		// A heartbeat is overdue. If it is only late, these looks see it soon after
		// it comes; if the holder is dead, there are only a few of them.
		if gap := h / 8 << (3 * s.chased); gap < s.t.Refresh {
			s.chased++
			return s.looked + s.env.between(gap/2, gap)
		}
		n := (s.looked-hi)/h + 1
		lo, hi = lo+n*h, hi+n*h
	}
	late := limit + s.t.Refresh/4 // rather than to look now and again soon
	if wide := hi - lo; wide > h/32 && lo+wide/2 > s.looked && lo+wide/2 < late {
		return lo + wide/2 // the middle of the first: later heartbeats would hide it
	}
	hi += max(0, (late-hi)/h) * h
	if at := hi + s.env.between(0, h/64); at < late {
		return at
	}
	return limit
}

// Readable says whether the record may be taken over when its holder is dead. A
// record without a lease, or with an unknown state, may not be: to read a broken
// lease as zero would take the lock from a living holder.
func Readable(rec driver.Record) bool {
	return rec.Lease > 0 && stage(rec.State) > 0 && !rec.State.OfSession()
}
