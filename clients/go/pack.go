// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"slices"
	"time"
)

const maxAnswered = 64 // ids in one heartbeat

// pack has the rules by which a client may believe that it holds the locks under a session, without I/O:
//
//   - A lock under a session never has heartbeats of its own.
//   - It is held once it is attached, as long as the session is; before that only by a grant that may be
//     counted, until the earlier of both deadlines.
//   - An attachment without an answer is sent again as it was, for a lease at most.
//   - A request is for one lock, which is held for the stop timeout at most. It needs nothing more once the
//     lock is released, or if the client does not hold it: then one heartbeat says so.
//   - Once the closing has begun nothing is held.
//
// It must not be used concurrently.
type pack struct {
	*term       // of the session
	stopTimeout time.Duration
	closing     bool

	members  map[lockTerm]*member
	answered []string   // ids of requests that need nothing more
	says     []string   // those in the newest heartbeat, in each of its sendings
	of       *heartbeat // the newest one
}

// lockTerm names a term of a lock.
type lockTerm struct {
	name  string
	token uint64
}

// member is a lock under a session.
type member struct {
	grant
	cancel      func(error) // of the context of its lease
	after, next string      // of its attachment

	is       state
	with     bool          // it has ended with the session
	counted  time.Duration // the deadline of a grant that counts; 0: none
	attached bool
	sent     bool          // the attachment
	first    time.Duration // if sent: the instant before the first sending
	asked    bool
	request  string        // the id of what was asked, if that came with a heartbeat of the session
	stopBy   time.Duration // if asked: the right ends
}

func newPack(t *term, stopTimeout time.Duration) *pack {
	return &pack{term: t, stopTimeout: stopTimeout, members: map[lockTerm]*member{}}
}

// sessionState returns what the session is at an instant.
func (p *pack) sessionState(now time.Duration) state {
	if s := p.term.state(now); s != held || !p.closing {
		return s
	}
	return released
}

// saying returns the ids that a heartbeat names as answered, the same in each sending.
func (p *pack) saying(h *heartbeat) []string {
	if p.of != h {
		p.of, p.says = h, slices.Clone(p.answered[:min(len(p.answered), maxAnswered)])
	}
	return p.says
}

// hear records what a heartbeat that was confirmed says. A request for a lock that the client does not hold needs
// nothing more.
func (p *pack) hear(requests []wireAsked, now time.Duration) {
	p.answered = slices.DeleteFunc(p.answered, func(id string) bool { return slices.Contains(p.says, id) })
	for _, q := range requests {
		m := p.members[lockTerm{q.Name, q.Token}]
		if m == nil {
			p.answer(q.ID)
			continue
		}
		m.request = q.ID
		if asked, err := q.err(); err == nil {
			p.ask(m, asked, now)
		}
	}
}

// answer has the next heartbeat name a request.
func (p *pack) answer(id string) {
	if id != "" && !slices.Contains(p.answered, id) {
		p.answered = append(p.answered, id)
	}
}

// join makes a lock a member that was granted to an acquire sent after the instant sent.
func (p *pack) join(g grant, sent, now time.Duration) *member {
	own := newTerm(g, 0)
	own.random = p.random
	own.granted(sent, now)
	m := &member{grant: g, after: g.beat, next: own.successor(g.beat), is: own.is, counted: own.deadline}
	p.members[lockTerm{g.name, g.token}] = m
	return m
}

// stateOf returns what a member is. Once it has said that it has ended it says so for ever.
func (p *pack) stateOf(m *member, now time.Duration) state {
	s := p.sessionState(now)
	switch {
	case m.is > held:
	case s > held:
		m.is, m.with = s, true
	case m.asked && now >= m.stopBy,
		!m.attached && m.is == held && now >= m.counted,
		m.is == unconfirmed && m.sent && now >= m.first+p.lease:
		m.is = expired
	}
	return m.is
}

// remainingOf returns how long the holder of a member may still act if nothing more is confirmed.
func (p *pack) remainingOf(m *member, now time.Duration) time.Duration {
	if p.stateOf(m, now) != held {
		return 0
	}
	left := p.remaining(now)
	if !m.attached {
		left = min(left, m.counted-now)
	}
	if m.asked {
		left = min(left, m.stopBy-now)
	}
	return left
}

// attach reports whether the attachment of a member is to be sent now.
func (p *pack) attach(m *member, now time.Duration) bool {
	if p.stateOf(m, now) > held || m.attached {
		return false
	}
	if !m.sent {
		m.sent, m.first = true, now
	}
	return true
}

// attaches records that a member was attached; now is an instant after that answer.
func (p *pack) attaches(m *member, asked *StepDownError, now time.Duration) {
	if p.stateOf(m, now) > held {
		return
	}
	m.attached, m.is = true, held
	p.ask(m, asked, now)
}

// ask records a request to the holder of a member, the first one.
func (p *pack) ask(m *member, asked *StepDownError, now time.Duration) {
	if asked == nil || m.asked || p.stateOf(m, now) > held {
		return
	}
	m.asked, m.stopBy = true, now+p.stopTimeout
	if m.cancel != nil {
		m.cancel(asked)
	}
}

// loses records that a member is not the client's.
func (p *pack) loses(m *member) {
	if m.is <= held {
		m.is = lost
	}
	p.leave(m)
}

// leave removes a member that is not the client's any more.
func (p *pack) leave(m *member) {
	if of := (lockTerm{m.name, m.token}); p.members[of] == m {
		delete(p.members, of)
		p.answer(m.request)
	}
}

// overdue reports whether a member is to be released although its work has not returned: a lease after its right has
// ended, as if it had expired.
func (p *pack) overdue(m *member, now time.Duration) bool {
	return m.asked && m.is != released && now >= m.stopBy+p.lease
}

// detach is the release of a member: the same call until it is answered, or the session has ended.
type detach struct {
	p     *pack
	m     *member
	doubt bool // a call may have been applied
	is    outcome
}

// releaseOf begins the release of a member: from now on its holder must not act.
func (p *pack) releaseOf(m *member, now time.Duration) *detach {
	d := &detach{p: p, m: m}
	switch p.stateOf(m, now) {
	case unconfirmed, held:
		m.is = released
	case lost:
		d.is = wasLost
	}
	return d
}

// call reports whether the call is to be made now.
func (d *detach) call(now time.Duration) bool {
	if d.is == pending && d.p.sessionState(now) > held {
		d.is = maybeRelease // it is free with the session
	}
	return d.is == pending
}

// applied records that the server has released the lock.
func (d *detach) applied() {
	d.is = wasReleased
	d.p.leave(d.m)
}

// refused records that the server has answered that the lock is lost.
func (d *detach) refused() {
	d.is = wasLost
	if d.doubt { // after an unknown answer it is our own release, or a later write
		d.is = wasReleased
	}
	d.p.leave(d.m)
}

// unknown records that no answer came, or not the service's.
func (d *detach) unknown() { d.doubt = true }
