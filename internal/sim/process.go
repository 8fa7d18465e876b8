// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// process is what one process has to do with one lock: one sight of its
// record, and the machines of its acquires and leases.
type process struct {
	*host
	l        *lock
	sight    *protocol.Sight
	hinted   bool // and has read nothing since
	machines []*machine
	acquires int
	asks     int

	observer *machine // of the lock, nil if nobody observes it

	offers map[uint64]*machine // what is offered to clients, by token
	lately driver.Record       // of a client, as this process has seen it last

	rests    time.Duration // its user does not want the lock until then
	priority int
	wished   int           // requests for priority
	wish     time.Duration // when the latest was sent, by its clock; 0 if it lost to another write
}

// machine is an acquire, and the lease that it became; or an asker.
type machine struct {
	p       *process
	id      string
	epoch   int // of its process
	life    int // of its lock's record
	acquire int
	o       *protocol.Opener // of a session
	s       *protocol.Keeper // of one that is open; h is that of its record
	d       *protocol.Disclaimer
	g       *protocol.Reaper
	e       *protocol.Chronicler
	v       *protocol.Observer
	seen    observed
	under   *machine         // the session under which the lock is taken
	own     *protocol.Timing // of an acquire, or a session; nil: that of the process
	c       *protocol.Contender
	h       *protocol.Holder
	k       *protocol.Asker
	want    driver.Request // of an asker
	wake    int            // number of the latest wake-up; older ones are void

	sentCont time.Duration   // the contender's clock when its call was sent
	sentAt   time.Duration   // the same in real time
	begun    time.Duration   // real time
	grant    int             // its number among the grants of the lock
	unsure   bool            // the outcome of a write was unknown
	left     bool            // the user gave the acquire up
	writes   []*machine      // what came before its lease
	wrote    time.Duration   // since when, by the contender's clock
	waits    bool            // for that, and then its work returns
	offered  *driver.Request // of its own, by which it hands over, or steps down
	unkept   bool            // it hands over to nobody any more
	unwanted bool            // nothing is done under its lease, which was over before it began
	claims   func()          // applies its claim again
	unheard  time.Duration   // until then nothing is heard of what the acquire has sent
	unless   unless
	done     bool // the work has returned, or a client was offered the lock
	failed   bool // by itself
	judged

	// Of what a replica does for a client:
	conn *conn // by which the client has asked for it; otherwise nil
	f    *protocol.Offer
	r    *protocol.Relay
	of   protocol.Dispatch // of a relay

	// Of a guardian, and of a lease that has one:
	family    *family
	first     string        // the version of the grant
	heldSince time.Duration // in real time
}

func (m *machine) String() string { return m.id }

// timing returns what the machine counts with.
func (m *machine) timing() protocol.Timing {
	if m.own != nil {
		return *m.own
	}
	return m.p.t
}

// timingOf returns the timing of the lease with a token, or that of the process if it has
// none.
func (p *process) timingOf(token uint64) protocol.Timing {
	for _, m := range p.machines {
		if m.h != nil && m.life == p.l.life && m.h.Record().Token == token {
			return m.timing()
		}
	}
	return p.t
}

// look begins with no sight of the record, as a new process does.
func (p *process) look() {
	p.hinted = false
	p.sight, p.wish = protocol.NewSight(p.t, p.w.env(p.host)), 0
	p.offers, p.lately = map[uint64]*machine{}, driver.Record{}
}

// after has do called when d has passed, unless the process of the machine has crashed.
func (p *process) after(m *machine, d time.Duration, do func()) {
	epoch := p.epoch
	if m != nil {
		epoch = m.epoch
	}
	p.later(epoch, d, do)
}

// act is what the user of a process does now and then: acquire the lock if
// there is no acquire or lease that could be waited for.
func (p *process) act() {
	l := p.l
	beside := l.cfg.Twice && !l.final && l.one(8)
	busy := slices.ContainsFunc(p.machines, func(m *machine) bool {
		return m.k == nil && (m.h == nil && !m.left || m.h != nil && !m.done && !beside)
	})
	rests := !l.final && l.now < p.rests
	if p.up && l.now >= p.paused && !busy && !rests {
		if beside {
			l.tally.Beside++
		}
		p.acquire()
	}
	l.after(l.t.Lease/16+l.upTo(l.t.Lease/2), p.act)
}

func (p *process) acquire() {
	l := p.l
	p.acquires++
	want := protocol.Want{Key: l.key, Owner: p.name, Try: l.final && l.cfg.Trying || !l.final && l.one(4), Behind: l.one(4), Priority: p.priority}
	if !l.final && l.one(4) {
		want.Patience = l.t.Lease / 2
	}
	want.Label, want.LookFirst = l.labelOf(p.name), p.acquires%2 == 0
	under := p.session
	if under != nil && (under.s == nil || !under.s.Open(under.clock()) || !(l.final && l.cfg.Trying) && l.one(4)) {
		under = nil
	}
	own := p.ofOwn()
	if under != nil {
		want.Under, own = under.s, under.timing()
	}
	m := &machine{p: p, own: &own, epoch: p.epoch, id: fmt.Sprintf("%s/%s%d", p.name, l.key, p.acquires)}
	if want.UnlessAlive = l.cfg.Unless && !want.Try && !l.final && l.one(4); want.UnlessAlive {
		want.Behind, m.unless.is = false, true
		l.tally.Unless++
	}
	m.c = protocol.NewContender(own, l.env(p.host), want, p.sight)
	p.contends(m, under, want.Try)
	if !l.final && l.one(3) {
		p.after(m, l.upTo(l.t.Lease*2), m.giveUp)
	}
}

// contends begins to drive an acquire.
func (p *process) contends(m *machine, under *machine, try bool) {
	l := p.l
	if !slices.Contains(p.machines, m) {
		p.machines = append(p.machines, m)
	}
	m.acquire, m.begun, m.left, m.under, m.life = p.acquires, l.now, false, under, l.life
	m.judged = newJudged()
	if l.cfg.Unheard && under != nil && !l.final && l.one(2) {
		m.unheard = l.now + l.t.Lease + l.upTo(l.t.Lease)
	}
	l.note("%s acquires, try=%v", m, try)
	m.took(m.c.Step(p.cont.at(l.now)))
}

func (m *machine) giveUp() {
	if !m.p.l.final {
		m.leave()
	}
}

// leave ends an acquire, if that has not ended yet.
func (m *machine) leave() {
	l := m.p.l
	if m.h != nil || m.left || m.done {
		return
	}
	l.note("%s gives up", m)
	m.traced(trace.Leave, trace.Event{})
	m.left = true
	m.took(m.c.GiveUp(m.p.cont.at(l.now)))
}

var outcomes = [...]string{"", "applied", "conflicted", "not applied", "unknown"}

// reply hands the answer to a call to its machine.
func (m *machine) reply(number int, r *protocol.Call, res protocol.Result) {
	l := m.p.l
	l.note("%s: %v of %s is %s: %s", m, r.Kind, r.Next.Version, outcomes[res.Outcome], shown(res.Record))
	m.traceReply(number, res)
	kind := r.Kind
	if r.OfSession() && m.o == nil {
		kind += ofSession
	}
	l.tally.Seen[m.phase()][kind][res.Outcome]++
	m.unsure = m.unsure || res.Outcome == protocol.Unknown || m.f != nil && res.Outcome == protocol.NotApplied
	if by := l.written[r.Next.Version]; res.Outcome == protocol.Unknown && by.by == m {
		by.unknown = true
		l.written[r.Next.Version] = by
	}
	is, now := m.driven()
	if m.h != nil {
		m.took(is.Reply(now, res))
		l.recognised(m, res)
		return
	}
	if m.e != nil {
		m.entered(r, res)
		return
	}
	if m.o != nil || m.d != nil || m.r != nil || m.f != nil {
		m.took(is.Reply(now, res))
		return
	}
	m.peeked(r, res)
	if m.g != nil {
		m.took(is.Reply(now, res))
		return
	}
	if r.Kind == protocol.Ask && res.Outcome == protocol.Conflicted && !confirms(r) {
		m.p.wish = 0
	}
	saw := m.p.sees()
	m.sawFirst(r, res)
	m.took(is.Reply(now, res))
	saw(m)
	l.recognised(m, res)
}

// driven returns the machine that is driven, and the instant by the clock that it
// counts by.
func (m *machine) driven() (protocol.Machine, time.Duration) {
	now := m.p.cont.at(m.p.l.now)
	switch {
	case m.s != nil:
		return m.s, m.clock()
	case m.h != nil:
		return m.h, m.clock()
	case m.o != nil:
		return m.o, now
	case m.d != nil:
		return m.d, now
	case m.g != nil:
		return m.g, now
	case m.k != nil:
		return m.k, now
	case m.e != nil:
		return m.e, now
	case m.v != nil:
		return m.v, now
	case m.r != nil:
		return m.r, now
	case m.f != nil:
		return m.f, now
	}
	return m.c, now
}

// clock returns the instant by which the lease is counted.
func (m *machine) clock() time.Duration { return m.p.hold.at(m.p.l.now) }

// took does what a machine asks for.
func (m *machine) took(a protocol.Action) {
	l := m.p.l
	switch {
	case m.k != nil:
		m.told()
	case m.d != nil, m.g != nil, m.e != nil, m.f != nil:
	case m.r != nil:
		m.relayed()
	case m.v != nil:
		m.saw()
	case m.o != nil && m.h == nil:
		if g, ok := m.o.Granted(); ok {
			m.opened(g)
			return
		}
	case m.h == nil:
		if g, ok := m.c.Granted(); ok && m.conn != nil {
			m.offers(g)
			return
		} else if ok {
			m.hold(g)
			return
		}
		if m.c.Refused() != nil && !m.left {
			l.note("%s is refused: %+v", m, m.c.Refused().Err)
			l.judgeRefused(m)
			l.judgeGhost(m)
			m.traced(trace.Leave, trace.Event{})
			m.left = true
			m.refuses()
		}
	}
	for _, n := range a.Notes {
		l.note("%s: %v", m, n)
		switch n {
		case protocol.NoteEnded:
			cause := m.h.Cause().String()
			if m.offered != nil {
				cause = "offered"
			}
			m.traced(trace.End, trace.Event{Cause: cause})
			if !m.done && m.o == nil {
				m.p.after(m, m.drain(), m.finish)
			}
		case protocol.NoteQuiet:
			m.traced(trace.Quiet, trace.Event{})
			m.quietSince = l.now
		case protocol.NoteOver:
			m.overSince = l.now
		}
	}
	if a.Call != nil {
		if m.v != nil {
			m.asks(a.Call)
		}
		m.done = m.done || m.s != nil && a.Call.Kind == protocol.Release
		m.send(a.Call)
	}
	m.sleep()
	if m.s != nil {
		m.keeps(a)
	}
	for _, other := range a.Wake {
		m.wakes(other)
	}
}

// sleep has the machine stepped when it says.
func (m *machine) sleep() {
	l, p := m.p.l, m.p
	is, _ := m.driven()
	if is.Over() {
		if m.c != nil {
			if g, ok := m.c.Left(); ok && m.writes == nil {
				m.chronicle(g)
			}
		}
		if i := slices.Index(p.machines, m); i >= 0 && (m.h == nil || m.done) {
			p.machines = slices.Delete(p.machines, i, i+1)
		}
		return
	}
	at, due := is.Next()
	if m.h != nil {
		at = p.hold.when(at, l.now)
	} else {
		at = p.cont.when(at, l.now)
	}
	m.wake++
	if !due {
		return
	}
	wake := m.wake
	late := time.Duration(0)
	if l.fails(Late) && l.one(16) {
		late = l.upTo(l.t.Lease / 20) // timers are late
	}
	p.after(m, at-l.now+late, func() {
		if wake == m.wake {
			m.step()
		}
	})
}

func (m *machine) step() {
	is, now := m.driven()
	a := is.Step(now)
	m.checkIdle(is, now, a)
	m.took(a)
	if m.e != nil {
		m.awaited()
	}
}
