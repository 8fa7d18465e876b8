// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"crypto/rand"
	"strings"
	"time"
)

// state is what a term is at an instant.
type state int

const (
	unconfirmed state = iota // granted; nothing counts yet, so the holder must not act
	held
	expired
	lost
	released // or its release has begun
)

const (
	countedPart = 10 // the part of a lease in which a grant must come to be counted
	idlePart    = 5  // the part of a lease for which the release of a lock that is not held is tried
)

// grant is the answer to an acquire, or to the opening of a session.
type grant struct {
	name   string
	token  uint64
	beat   string
	lease  time.Duration
	usable time.Duration // how long the holder may act after it sent the acquire; 0: it must not be counted
	period time.Duration // between heartbeats
	data   []byte        // what the record holds

	slot, slots int     // of a semaphore
	fence       uint64  // the token for the resource of readers and writers
	last        *Writer // the last writer; nil if there was none
	drains      bool    // readers were there when the writer took the gate
	unwritten   []byte  // the data of a release by a writer that has not written
}

// heartbeat is the same in each sending; sent is the instant before the first.
type heartbeat struct {
	after, next string
	sent        time.Duration
}

// renewal is the answer to a heartbeat.
type renewal struct{ usable, period time.Duration }

// term has the rules by which a client may believe that it holds a lock or a session, without I/O:
//
//   - A grant is no lease. The lock is held from the first confirmed heartbeat on; or at once if the
//     grant may be counted and came in less than a tenth of the lease. It counts from the instant
//     before its acquire was sent.
//   - A session is held from the first confirmed heartbeat on, if that is answered within usable of the
//     instant before the opening was sent.
//   - A confirmed heartbeat counts from the instant before its first sending.
//   - An unanswered heartbeat is sent again as it was.
//   - The deadline never moves back. Expired, lost and released are final.
//
// Instants are of one clock that counts suspends. It must not be used concurrently.
type term struct {
	grant
	stopTimeout time.Duration
	random      func() string

	is        state
	opening   bool          // it is of a session
	opened    time.Duration // the instant before the opening of the session was sent
	confirmed string        // the beat that was confirmed last
	open      *heartbeat    // sent, not answered
	deadline  time.Duration // counts in held
	next      time.Duration // when the next heartbeat is due; 0: at once
	asked     bool
	stopBy    time.Duration // if asked: no heartbeats from then on
	refusedBy string        // the holder that a refusal named
}

func newTerm(g grant, stopTimeout time.Duration) *term {
	return &term{grant: g, stopTimeout: stopTimeout, random: randomPart, confirmed: g.beat}
}

// newSessionTerm returns the term of a session whose opening was sent after the instant sent.
func newSessionTerm(g grant, sent time.Duration) *term {
	t := newTerm(g, 0)
	t.opening, t.opened = true, sent
	return t
}

// granted records that the grant has answered the acquire that was sent after the instant sent, and no
// other one; now is an instant after that answer.
func (t *term) granted(sent, now time.Duration) {
	soon := now >= sent && now-sent < t.lease/countedPart
	if t.is == unconfirmed && t.usable > 0 && soon {
		t.deadline, t.next, t.is = sent+t.usable, sent+t.period, held
		t.state(now)
	}
}

// state returns what the term is. Once it has said that it has ended it says so for ever.
func (t *term) state(now time.Duration) state {
	switch {
	case t.is == held && now >= t.deadline:
		t.is = expired
	case t.is == unconfirmed && t.open != nil && now >= t.open.sent+t.lease,
		t.is == unconfirmed && t.opening && now >= t.opened+t.lease:
		t.is = expired // a confirmation now would be past its deadline
	}
	return t.is
}

// remaining returns how long the holder may still act if no more heartbeat is confirmed.
func (t *term) remaining(now time.Duration) time.Duration {
	if t.state(now) != held {
		return 0
	}
	return t.deadline - now
}

// due returns the time until the next heartbeat is due. It is false after the last one.
func (t *term) due(now time.Duration) (time.Duration, bool) {
	switch {
	case t.state(now) > held:
		return 0, false
	case t.asked && now >= t.stopBy:
		return 0, false // the work did not stop in time: the lock expires
	case t.open != nil:
		return 0, true
	}
	return max(0, t.next-now), true
}

// send returns the heartbeat to send now: an unanswered one as it was, else a new one; nil after the
// last one.
func (t *term) send(now time.Duration) *heartbeat {
	if _, goes := t.due(now); !goes {
		return nil
	}
	if t.open == nil {
		t.open = &heartbeat{t.confirmed, t.successor(t.confirmed), now}
	}
	return t.open
}

// successor returns a new beat that may follow the given one.
func (t *term) successor(beat string) string {
	stable := beat[:strings.IndexByte(beat, '-')+1]
	for {
		if next := stable + t.random(); next != beat {
			return next
		}
	}
}

// confirm records that the server has confirmed the heartbeat; now is an instant after that answer. It reports whether
// that counts.
func (t *term) confirm(h *heartbeat, r renewal, now time.Duration) bool {
	if h != t.open || t.state(now) > held {
		return false
	}
	if t.opening && t.is == unconfirmed && now >= t.opened+r.usable {
		// The session may have been closed, deleted, and opened again by a late duplicate.
		t.is = lost
		return false
	}
	t.confirmed, t.open = h.next, nil
	t.next = h.sent + r.period
	t.deadline = max(t.deadline, h.sent+r.usable)
	if t.is == unconfirmed {
		t.deadline, t.is = h.sent+r.usable, held
	}
	return t.state(now) == held
}

// ask records that the holder was asked to stop: heartbeats go on for the stop timeout at most. It
// reports whether this was the first request.
func (t *term) ask(now time.Duration) bool {
	if t.asked || t.is != held {
		return false
	}
	t.asked, t.stopBy = true, now+t.stopTimeout
	return true
}

// refuse records that the server has answered 410 to the heartbeat: the lock is lost.
func (t *term) refuse(h *heartbeat, holder string, now time.Duration) {
	if h == t.open && t.state(now) <= held {
		t.is, t.refusedBy = lost, holder
	}
}

// release begins the release: from now on the holder must not act, whatever the answer.
func (t *term) release(now time.Duration) *release {
	before := t.state(now)
	if before == lost {
		return &release{}
	}
	if before != expired {
		t.is = released
	}
	r := &release{beats: []string{t.confirmed}, until: now + t.lease/idlePart}
	if t.open != nil {
		// It may be applied already, or between two calls.
		r.beats = []string{t.open.next, t.confirmed, t.open.next}
	}
	if before == held { // else it is freed anyway: its user must not wait for that
		r.until = now + t.lease
	}
	return r
}

// outcome is what came of a release.
type outcome int

const (
	pending      outcome = iota
	wasReleased          // by this release
	wasLost              // the lock was free, or another holder's, before
	maybeRelease         // released, or it expires by itself
)

// release has the calls of a release: the newest beat sent, then the confirmed one. Without an answer
// the same call is made again, for a lease at most; then the record expires by itself.
type release struct {
	beats []string
	until time.Duration
	doubt bool // a call may have been applied
	is    outcome
}

// call returns the beat that the next call names, empty after the last call.
func (r *release) call(now time.Duration) string {
	switch {
	case r.is != pending:
		return ""
	case len(r.beats) == 0:
		r.is = wasLost
		return ""
	case now >= r.until:
		r.is = maybeRelease
		return ""
	}
	return r.beats[0]
}

// applied records that the server has answered 200.
func (r *release) applied() { r.is = wasReleased }

// refused records that the server has answered 410.
func (r *release) refused() {
	if r.beats = r.beats[1:]; len(r.beats) > 0 {
		return
	}
	r.is = wasLost
	if r.doubt { // after an unknown answer it is our own release, or a later write
		r.is = wasReleased
	}
}

// unknown records that no answer came, or not the service's.
func (r *release) unknown() { r.doubt = true }

// randomPart returns what is new in each beat: 65 random bits.
func randomPart() string { return rand.Text()[:beatLength] }

const beatLength = 13
