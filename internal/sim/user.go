// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// act is what the user of a process does now and then: acquire the lock if
// there is no acquire or lease that could be waited for.
func (p *process) act() bool {
	l := p.l
	beside := l.cfg.Twice && !l.final && l.one(8)
	busy := slices.ContainsFunc(p.machines, func(m *machine) bool {
		return m.role != asking && (m.h == nil && !m.left || m.h != nil && !m.done && !beside)
	})
	rests := !l.final && l.now < p.rests
	if p.up && l.now >= p.paused && !busy && !rests {
		if beside {
			l.tally.Of[Beside]++
		}
		p.acquire()
	}
	return true
}

// wants draws the options of an acquire.
func (p *process) wants() protocol.Want {
	l := p.l
	want := protocol.Want{
		Key: l.key, Owner: p.name, Label: l.labelOf(p.name), Priority: p.priority, ReadFirst: p.acquires%2 == 0,
		Try: l.final && l.cfg.Trying || !l.final && l.one(4), ViewFresh: l.one(4),
	}
	if !l.final && l.one(4) {
		want.Patience = l.t.Lease / 2
	}
	return want
}

// underSession returns the session under which a lock is taken, nil for none.
func (p *process) underSession() *machine {
	if s := p.session; s != nil && s.opens() && (p.l.final && p.l.cfg.Trying || !p.l.one(4)) {
		return s
	}
	return nil
}

func (p *process) acquire() {
	l := p.l
	p.acquires++
	want := p.wants()
	m := p.newMachine(waiting, p.name+"/"+l.key, nil)
	m.under, m.timing = p.underSession(), p.ofOwn()
	if m.under != nil {
		want.Under, m.timing = m.under.s, m.under.timing
	}
	if want.UnlessAlive = l.cfg.Unless && !want.Try && !l.final && l.one(4); want.UnlessAlive {
		want.ViewFresh, m.unless = false, true
	}
	m.contends(want)
	if l.cfg.Unheard && m.under != nil && !l.final && l.one(2) {
		m.unheard = l.now + l.t.Lease + l.upTo(l.t.Lease)
	}
	l.note("%s acquires, try=%v", m, want.Try)
	m.step()
	if !l.final && l.one(3) {
		m.after(l.upTo(l.t.Lease*2), func() {
			if !l.final {
				m.leave()
			}
		})
	}
}

// contends makes a machine an acquire.
func (m *machine) contends(want protocol.Want) {
	m.c = protocol.NewAcquirer(m.timing, m.l.env(m.on), want, m.p.view)
	m.is = m.c
	m.p.machines = append(m.p.machines, m)
}

// leave ends an acquire, if that has not ended yet.
func (m *machine) leave() {
	if m.h != nil || m.left || m.done {
		return
	}
	m.l.note("%s gives up", m)
	m.traced(trace.Leave, trace.Event{})
	m.left = true
	m.took(m.is.GiveUp(m.now()))
}

// hold begins the work under a lease that was just granted.
func (m *machine) hold(g protocol.Grant) {
	l := m.l
	l.note("%s is granted %s", m, shown(g.Record))
	l.granted(m, g)
	l.judgeUnless(m, g)
	env := l.env(m.on)
	t := m.timing
	if m.under != nil {
		m.h = protocol.NewUnderSession(&t, &env, g, m.under.s)
	} else {
		m.h = protocol.NewHolder(&t, &env, g)
	}
	m.is = m.h
	m.writeHistory(g)
	if !m.believes() || m.under != nil && !m.under.opens() {
		// Paused between the call and now, until the lease was over.
		m.traced(trace.Leave, trace.Event{})
		m.unwanted, m.done = true, true
		m.took(m.h.GiveUp(m.clock()))
		return
	}
	m.grant = l.believes(m, g.Record)
	m.traced(trace.Grant, trace.Event{Record: trace.Of(g.Record)})
	m.step()
	m.after(l.upTo(l.t.Lease/4), m.work)
	if l.t.Progress > 0 {
		m.after(0, m.progress)
	}
	if l.t.Manual || !l.final && l.one(4) {
		m.after(l.upTo(m.timing.Heartbeat), m.renew)
	}
	if l.final {
		return
	}
	ends := m.finish
	if l.one(2) {
		ends = m.stop
	}
	m.after(l.upTo(l.t.Lease*3), ends)
	for range l.src.IntN(4) {
		m.after(l.upTo(l.t.Lease*2), m.storeData)
	}
}

func (m *machine) stop() {
	switch {
	case m.done:
	case m.l.cfg.Requests && m.l.one(4):
		m.offer()
	default:
		m.l.note("%s is asked to stop", m)
		m.took(m.h.Stop(m.clock()))
	}
}

// offer makes the holder hand over unasked, which counts unless its right to act has
// ended before.
func (m *machine) offer() {
	q := driver.Request{By: m.p.name, To: m.l.hosts[m.l.src.IntN(len(m.l.hosts))].name, Reason: "it leaves"}
	m.l.note("%s is to hand over to %s", m, q.To)
	first := m.h.Cause() == protocol.None
	act := m.h.HandOver(m.clock(), q)
	if asked := m.h.Asked(); first && asked != nil && asked.By == q.By && asked.Reason == q.Reason {
		q.ID, q.Kind = asked.ID, driver.HandOver // and nothing else of what the holder has made of it
		m.offered = &q
	}
	m.took(act)
}

// cancelHandOver has the holder say, when its right to act has ended, that the lock is
// not to be reserved: neither for the owner of the hand-over, nor for a later one.
func (m *machine) cancelHandOver() {
	q := driver.Request{By: m.p.name, Reason: "no process comes"}
	m.l.note("%s cancels its hand-over", m)
	m.noHandOver = m.h.Asked() == nil
	act := m.h.HandOver(m.clock(), q)
	if !m.noHandOver {
		q.ID, q.Kind = m.h.Asked().ID, driver.StepDown
		m.offered = &q
	}
	m.took(act)
}

// drain returns how long the work of a term takes to return when it must stop.
func (l *lock) drain(token uint64) time.Duration {
	switch {
	case l.final:
		return 0
	case l.cfg.Requests && l.one(6):
		return l.upTo(6 * l.t.Lease) // longer than any timeout
	}
	if t := l.terms[token]; t != nil {
		t.prompt = true
	}
	return l.upTo(l.t.Lease)
}

// finish ends the work, whatever state the lease is in.
func (m *machine) finish() {
	l := m.l
	if m.done || l.final && m.h.Cause() == protocol.None {
		return
	}
	if m.waits = m.awaits(); m.waits {
		return // the work has not begun
	}
	m.begins()
	if l.cfg.Requests && !l.final && m.h.Cause() != protocol.None && l.one(6) {
		m.cancelHandOver()
	}
	l.note("%s: the work has returned", m)
	m.done = true
	if l.cfg.Fails && !l.final && l.one(2) {
		m.failed = true
		l.tally.Of[Failed]++
		q := failure(m)
		_, act := m.h.Leave(m.clock(), nil, &q)
		m.took(act)
		return
	}
	m.took(m.h.Done(m.clock()))
}

// failure is a holder's note of failed work, without the ID.
func failure(m *machine) driver.Request {
	return driver.Request{Kind: driver.Fail, By: m.p.name, Reason: "the work has failed"}
}

// storeData stores the next data in the record.
func (m *machine) storeData() {
	if m.done {
		return
	}
	n := m.lays + 1
	serial, a := m.h.SetData(m.clock(), fmt.Appendf(nil, "%d.%d", m.h.Record().Token, n))
	m.lays, m.number = serial, n
	m.l.note("%s writes data %d", m, serial)
	m.took(a)
}

func (m *machine) renew() {
	if m.done {
		return
	}
	m.took(m.h.Renew(m.clock()))
	if m.l.t.Manual {
		m.after(m.timing.Heartbeat, m.renew)
	}
}

func (m *machine) progress() {
	if m.done || !m.l.final && m.l.one(32) {
		return // it hangs
	}
	m.h.Progress(m.clock())
	m.after(m.timing.Progress/16+m.l.upTo(m.timing.Progress/2), m.progress)
}

// work writes to the resource now and then for as long as the lease check passes.
func (m *machine) work() {
	if !m.believes() {
		return
	}
	if m.awaits() {
		m.after(m.l.upTo(m.timing.RequestTimeout), m.work)
		return
	}
	m.begins()
	m.l.writes(m, m.grant, m.token(), m.life)
	m.after(m.l.t.Lease/16+m.l.upTo(m.l.t.Lease), m.work)
}

// writes sends a write to the resource. Some arrive late, after any pause.
func (l *lock) writes(by actor, grant int, token uint64, life int) {
	late := l.upTo(l.cfg.Latency)
	if l.fails(Messages) && l.one(4) {
		late = l.upTo(4 * l.t.Lease)
	}
	l.after(late, func() {
		if life == l.life { // else its token is of a fence that has begun again
			l.arrives(by, grant, token)
		}
	})
}

// arrives has the fence judge a write, and judges the fence.
func (l *lock) arrives(m actor, grant int, token uint64) {
	err := l.gate.Do(context.Background(), l.key, token, func(context.Context) error { return nil })
	switch {
	case err == nil && grant < l.passed:
		l.fail("a write of grant %d passes the fence after a write of grant %d, of %s with token %d", grant, l.passed, m, token)
	case err == nil:
		l.passed = grant
	case m.stands().grant == grant && m.believes():
		l.fail("the fence refuses %s, which holds: %v", m, err)
	default:
		l.tally.Of[Refusal]++
	}
}
