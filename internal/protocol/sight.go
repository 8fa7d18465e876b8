// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Sight is what one process knows of one record from looking at it. It watches
// for life: it notes the record's beat and the instant after the reply that
// first showed it. It is shared by all contenders of the process for the key
// and outlives them, so that a caller who only tries now and then takes a dead
// holder's lock as well.
//
// A cheap reply may show what the record was a while ago. It puts a look off, or
// brings one forward. It is no proof of life: one that shows another sign of the
// same tenure may show an older one. So a sign counts from the reply that showed
// it first, however often the looks go to and fro, and before a sign that was
// proved has stood for its lease a strong look tells whether it stands still.
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
	proved bool          // a strong reply has shown rec's sign of life
	strong time.Duration // before the request of the latest strong reply
	held   life          // the latest holder that a strong reply has shown
	heldAt time.Duration // before the request of that reply
	signs  []sign        // those of rec's tenure that were shown, the latest last

	gone     time.Duration // before the request of a strong reply that showed no record
	isGone   bool
	doubt    bool          // a cheap reply showed less than was known: no record, or an older tenure
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

// life is what a record shows of its holder, and would change if it lived.
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

// maxSigns is how many signs of life a sight remembers. Cheap reads are not behind
// by more heartbeats than a few.
const maxSigns = 8

// Saw notes a reply: rec as the store showed it, or no record. sent is the
// instant before the request, now the one after its reply, and how says how fresh
// the reply was asked to be. That of a write is strong.
func (s *Sight) Saw(sent, now time.Duration, how driver.Consistency, rec driver.Record, found bool) {
	if Making(SeenFromRequest) {
		now = sent
	}
	strong := how == driver.Strong || Making(AbsentFromStale) && !found
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
		s.term, s.phase, s.signs = now, false, s.signs[:0]
	}
	switch i := s.shown(rec); {
	case tenure && lifeOf(rec) == lifeOf(was) && rec.Lease == was.Lease:
		// No heartbeat had reached the store when the request was sent.
		s.lo = max(s.lo, sent)
		s.proves(i, strong || s.proved)
	case i >= 0 && !strong && (s.proved || !s.signs[i].proved):
		rec, s.asked = was, asked // it was shown before what is known now: an old state of the record
	case i >= 0:
		s.since, s.phase = s.signs[i].since, false
		s.proves(i, strong || s.signs[i].proved)
	default:
		s.since, s.chased = now, 0
		if s.proved = strong; found {
			s.remember(sign{lifeOf(rec), rec.Lease, s.since, strong})
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

// recall has the count of a sign of life go on that an earlier sight of the record
// began. What a cheap reply shows may be long over.
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

// shown returns the place of a record's sign of life among those of the tenure
// that were shown, -1 if it was not.
func (s *Sight) shown(rec driver.Record) int {
	return slices.IndexFunc(s.signs, func(g sign) bool { return g.life == lifeOf(rec) && g.lease == rec.Lease })
}

func (s *Sight) remember(g sign) {
	if len(s.signs) == maxSigns {
		// Not the latest that was proved: it is the one that may have stood still.
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

// proof returns the place of the latest sign of life that was proved, -1 if none
// was.
func (s *Sight) proof() int {
	for i := len(s.signs) - 1; i >= 0; i-- {
		if s.signs[i].proved {
			return i
		}
	}
	return -1
}

// stood returns the instant at which the sign of life that was proved last has
// stood for its lease, if it has.
func (s *Sight) stood() (time.Duration, bool) {
	i := s.proof()
	if i < 0 || !s.holds() || s.Tied() {
		return 0, false
	}
	return s.signs[i].since + s.t.wait(s.rec), true
}

// Proved says that a strong reply has shown the sign of life that is known.
func (s *Sight) Proved() bool { return s.proved }

// How returns how fresh a look must be that is made now: a strong one tells before
// what was proved has stood for its lease. Who acts on what it shows asks for more.
func (s *Sight) How(now time.Duration) driver.Consistency {
	last := max(s.t.wait(s.rec)/10, s.t.Refresh+s.t.Refresh/4)
	dead, ok := s.stood()
	if !s.known || s.doubt || ok && now >= dead-last && (now < dead || !s.proved) {
		return driver.Strong
	}
	return driver.Eventual
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

// looks says that somebody looks now: others need not for a moment.
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
