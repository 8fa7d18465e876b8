// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Tag stands for a beat in a message. Whoever reads the store can make that of any beat
// that was ever written, and nobody can make that of a beat before the beat is made.
type Tag [16]byte

// heard is a tag that came in a message.
type heard struct {
	tag Tag
	at  time.Duration         // after it came, for the first time
	of  func(beat string) Tag // what the tag of a beat would be
}

// maxHeard is how many tags a sight remembers. A holder sends one each heartbeat period;
// more of them within a lease are somebody else's.
const maxHeard = 16

// Heard notes a message in which the holder of the tenure that was seen last says that it
// has confirmed a heartbeat: the tag of its beat, and how tags are made. It came at now,
// or before. The message may be late, lost, doubled, or forged by whoever reads the store.
// So it is no observation of the record. It does two things:
//
//   - When a reply shows a sign of life for the first time, and a tag of it was noted
//     before, the sign counts from the instant of the tag. That is early enough for
//     nobody: a beat is made after the instant from which its holder counts, and its tag
//     after the beat.
//   - A tag of no beat that is known puts the next look off: to half a lease after the last
//     reply at most, and never past the end of the count. A little more than a heartbeat
//     period without another one, looks go on at their pace.
//
// Looks that are put off are cheap and strong in turn: where a cheap one shows a sign that was
// told of since another one was proved, that puts off when the next strong look is due, by half
// a lease at most. Whoever repeats old messages while replies are as far behind gains no more
// by it than by messages alone.
//
// A holder is dead when the sign that a look has shown is unchanged for its lease, whatever
// is heard or not heard.
func (s *Sight) Heard(now time.Duration, tag Tag, of func(beat string) Tag) {
	if u := s.under(); u != nil {
		u.Heard(now, tag, of) // all this is said of the session's record
		return
	}
	if !s.known || !s.found || s.rec.State != driver.Held && s.rec.State != driver.Alive {
		return
	}
	lease := s.t.wait(s.rec)
	s.heard = slices.DeleteFunc(s.heard, func(h heard) bool { return now-h.at > lease })
	again := slices.ContainsFunc(s.heard, func(h heard) bool { return h.tag == tag })
	again = again || slices.ContainsFunc(s.signs, func(g sign) bool { return of(g.sign) == tag })
	if again {
		return
	}
	if len(s.heard) < maxHeard {
		s.heard = append(s.heard, heard{tag, now, of})
	}
	h := s.rec.Heartbeat
	if h < minPeriod || h > lease {
		return
	}
	r := s.t.Refresh
	s.putOff = now + h + s.env.between(r/8, r/4)
	s.most = lease/2 - s.env.between(0, lease/32)
}

// quiet returns until when messages put off the next look, zero if they do not.
func (s *Sight) quiet() time.Duration {
	u := s
	if s.Tied() { // the lock's own record shows only a release, which is told, too
		if u = s.under(); u == nil || s.Ended() {
			return 0
		}
	}
	if u.putOff == 0 || s.doubt || u.doubt || s.rec.State == driver.Held && len(s.rec.Requests) > 0 {
		return 0
	}
	until := min(u.putOff, s.looked+u.most)
	end, ok := u.stood()
	if !ok { // no sign of the tenure is proved
		end, ok = u.DeadAt()
	}
	if ok {
		until = min(until, end-u.t.wait(u.rec)/10)
	}
	return until
}

// proven returns from when on a look that messages have put off is strong: the one after it,
// half a lease later, would come too late for the proved sign, or for what it is worth if this
// look shows one that was told of.
func (s *Sight) proven(last time.Duration) time.Duration {
	i := s.proof()
	if i < 0 {
		return 0
	}
	return s.signs[i].since + s.t.wait(s.rec) - last
}

// dated returns from when a sign of life counts that a reply has just shown for the first
// time, and whether it was told of after the call that has proved the latest one.
func (s *Sight) dated(rec driver.Record, now time.Duration) (since time.Duration, told bool) {
	for _, h := range s.heard {
		if h.tag != h.of(rec.Sign()) {
			continue
		}
		return min(now, h.at), h.at > s.strong
	}
	return now, false
}
