// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// process is one process: two clocks, one sight of the key, and the machines
// of its acquires and leases.
type process struct {
	w      *World
	name   string
	hold   clock // what leases are counted by
	cont   clock // what contenders count by
	up     bool
	paused time.Duration // takes no step until then
	asleep []func()      // what it is called for when it wakes up
	cutOff time.Duration // does not reach the store until then
	epoch  int           // of crashes

	sight    *protocol.Sight
	machines []*machine
	acquires int
	asks     int
	src      Source // of its own choices, that of the world if nil

	priority int
	pauses   time.Duration // between two asks for priority
	wished   int           // requests for priority
	wish     time.Duration // when the latest was sent, by its clock; 0 if it lost to another write
	flaky    bool          // has a bad link while it does not lead
}

// machine is an acquire, and the lease that it became; or an asker.
type machine struct {
	p       *process
	id      string
	epoch   int // of its process
	acquire int
	c       *protocol.Contender
	h       *protocol.Holder
	k       *protocol.Asker
	want    driver.Request // of an asker
	wake    int            // number of the latest wake-up; older ones are void

	sentCont time.Duration // the contender's clock when its request was sent
	begun    time.Duration // real time
	left     bool          // the user gave the acquire up
	done     bool          // the work has returned
	judged
}

func (m *machine) String() string { return m.id }

// after has do called when d has passed, unless the process has crashed; a
// paused process is called when it wakes up.
func (p *process) after(m *machine, d time.Duration, do func()) {
	epoch := p.epoch
	if m != nil {
		epoch = m.epoch
	}
	var try func()
	try = func() {
		switch {
		case p.epoch != epoch:
		case p.w.now < p.paused:
			p.asleep = append(p.asleep, try)
		default:
			do()
		}
	}
	p.w.after(d, try)
}

// wake ends a pause, unless it was prolonged.
func (p *process) wake() {
	if p.w.now < p.paused {
		return
	}
	p.hold.resume(p.w.now)
	asleep := p.asleep
	p.asleep = nil
	for _, do := range asleep {
		do()
	}
}

// act is what the user of a process does now and then: acquire the lock if
// there is no acquire or lease that could be waited for.
func (p *process) act() {
	w := p.w
	busy := slices.ContainsFunc(p.machines, func(m *machine) bool {
		return m.k == nil && (m.h == nil && !m.left || m.h != nil && !m.done)
	})
	if p.up && w.now >= p.paused && !busy {
		p.acquire()
	}
	w.after(w.t.Lease/16+w.upTo(w.t.Lease/2), p.act)
}

func (p *process) acquire() {
	w := p.w
	p.acquires++
	want := protocol.Want{Key: key, Owner: p.name, Try: !w.final && w.one(4), Behind: w.one(4), Priority: p.priority, PriorityPause: p.pauses}
	if !w.final && w.one(4) {
		want.Patience = w.t.Lease / 2
	}
	m := p.reused()
	if m == nil {
		m = &machine{p: p, epoch: p.epoch, id: fmt.Sprintf("%s/%d", p.name, p.acquires)}
		m.c = protocol.NewContender(w.t, w.env(p), want, p.sight)
		p.machines = append(p.machines, m)
	}
	m.acquire, m.begun, m.left = p.acquires, w.now, false
	m.judged = newJudged()
	w.note("%s acquires, try=%v", m, want.Try)
	m.took(m.c.Step(p.cont.at(w.now)))
	if !w.final && w.one(3) {
		p.after(m, w.upTo(w.t.Lease*2), m.giveUp)
	}
}

// reused returns an acquire that was given up, where that mistake is made.
func (p *process) reused() *machine {
	if p.w.cfg.Wrong != SharedAttempts {
		return nil
	}
	i := slices.IndexFunc(p.machines, func(m *machine) bool { return m.k == nil && m.h == nil && m.left })
	if i < 0 {
		return nil
	}
	return p.machines[i]
}

func (m *machine) giveUp() {
	w := m.p.w
	if m.h != nil || m.left || w.final {
		return
	}
	w.note("%s gives up", m)
	m.left = true
	if w.cfg.Wrong != SharedAttempts {
		m.took(m.c.GiveUp(m.p.cont.at(w.now)))
	}
}

var outcomes = [...]string{"", "applied", "conflicted", "not applied", "unknown"}

// reply hands the answer of a request to its machine.
func (m *machine) reply(r *protocol.Request, res protocol.Result) {
	w := m.p.w
	w.note("%s: %v of %s is %s: %s", m, r.Kind, r.Next.Version, outcomes[res.Outcome], shown(res.Record))
	res = w.misread(m, res)
	if by := w.written[r.Next.Version]; res.Outcome == protocol.Unknown && by.by == m {
		by.unknown = true
		w.written[r.Next.Version] = by
	}
	if m.h != nil {
		m.took(m.h.Reply(m.clock(), res))
		w.recognised(m, res)
		return
	}
	now := m.p.cont.at(w.now)
	if w.cfg.Wrong == SeenAtRequest {
		now = m.sentCont
	}
	if r.Kind == protocol.Ask && res.Outcome == protocol.Conflicted {
		m.p.wish = 0
	}
	saw := m.p.sees()
	if m.k != nil {
		m.took(m.k.Reply(now, res))
	} else {
		m.took(m.c.Reply(now, res))
	}
	saw(m)
	w.recognised(m, res)
}

// clock returns the instant by which the lease is counted.
func (m *machine) clock() time.Duration { return m.p.hold.at(m.p.w.now) }

// took does what a machine asks for.
func (m *machine) took(a protocol.Action) {
	w := m.p.w
	switch {
	case m.k != nil:
		m.told()
	case m.h == nil:
		if g, ok := m.c.Granted(); ok {
			m.hold(g)
			return
		}
		if m.c.Refused() != nil && !m.left {
			w.note("%s is refused: %+v", m, m.c.Refused().Err)
			m.left = true
		}
	}
	for _, n := range a.Notes {
		w.note("%s: %v", m, n)
		if n == protocol.NoteEnded && !m.done {
			m.p.after(m, m.drain(), m.finish)
		}
	}
	if a.Request != nil {
		m.send(a.Request)
	}
	m.sleep()
}

// sleep has the machine stepped when it says.
func (m *machine) sleep() {
	w, p := m.p.w, m.p
	var at time.Duration
	var due bool
	over := false
	switch {
	case m.h != nil:
		if at, due = m.h.Next(); due {
			at = p.hold.when(at, w.now)
		}
		_, over = m.h.Over()
	case m.k != nil:
		if at, due = m.k.Next(); due {
			at = p.cont.when(at, w.now)
		}
		over = m.k.Over()
	default:
		if at, due = m.c.Next(); due {
			at = p.cont.when(at, w.now)
		}
		over = m.c.Over()
	}
	if over {
		if i := slices.Index(p.machines, m); i >= 0 && (m.h == nil || m.done) {
			p.machines = slices.Delete(p.machines, i, i+1)
		}
		return
	}
	m.wake++
	if !due {
		return
	}
	wake := m.wake
	late := time.Duration(0)
	if w.cfg.Faults && !w.final && w.one(16) {
		late = w.upTo(w.t.Lease / 20) // timers are late
	}
	p.after(m, at-w.now+late, func() {
		if wake == m.wake {
			m.step()
		}
	})
}

func (m *machine) step() {
	w := m.p.w
	switch {
	case m.h != nil:
		m.took(m.h.Step(m.clock()))
	case m.k != nil:
		m.took(m.k.Step(m.p.cont.at(w.now)))
	default:
		m.took(m.c.Step(m.p.cont.at(w.now)))
	}
}
