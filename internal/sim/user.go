// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// hold begins the work under a lease that was just granted.
func (m *machine) hold(g protocol.Grant) {
	l := m.p.l
	m.counts(g)
	l.note("%s is granted %s", m, shown(g.Record))
	l.granted(m, g)
	l.judgeUnless(m, g)
	t := m.timing()
	if m.under != nil {
		m.h = protocol.NewTied(t, l.env(m.p.host), g, m.under.s)
	} else {
		m.h = protocol.NewHolder(t, l.env(m.p.host), g)
	}
	m.chronicle(g)
	if !m.believes() || m.under != nil && !m.under.s.Open(m.clock()) {
		// Paused between the call and now, until the lease was over.
		m.traced(trace.Leave, trace.Event{})
		m.unwanted, m.done = true, true
		m.took(m.h.GiveUp(m.clock()))
		return
	}
	l.believed(m, g)
	m.first, m.heldSince = g.Record.Version, l.now
	m.took(m.h.Step(m.clock()))
	m.p.after(m, l.upTo(l.t.Lease/4), m.work)
	if l.t.Progress > 0 {
		m.p.after(m, 0, m.progress)
	}
	if l.t.Manual || !l.final && l.one(4) {
		m.p.after(m, l.upTo(m.timing().Heartbeat), m.renew)
	}
	if l.final {
		return
	}
	if m.p.l.one(2) {
		m.p.after(m, l.upTo(l.t.Lease*3), m.stop)
	} else {
		m.p.after(m, l.upTo(l.t.Lease*3), m.finish)
	}
	for range l.src.Intn(4) {
		m.p.after(m, l.upTo(l.t.Lease*2), m.lay)
	}
}

// counts judges that a grant counts from the instant at which its write was sent, by
// the clock of the holder. The beat is its version, whatever was written on top.
func (m *machine) counts(g protocol.Grant) {
	if by := m.p.l.written[g.Record.Beat]; by.by == m && by.hold != g.Sent {
		m.p.l.fail("%s counts its lease from %v, and sent what was granted at %v", m, g.Sent, by.hold)
	}
}

func (m *machine) stop() {
	l := m.p.l
	switch {
	case m.done:
	case l.cfg.Requests && l.one(4):
		m.offer()
	default:
		l.note("%s is asked to stop", m)
		m.took(m.h.Stop(m.clock()))
	}
}

// offer has the holder hand over of its own accord, which counts unless its right to
// act has ended before.
func (m *machine) offer() {
	l := m.p.l
	q := driver.Request{By: m.p.name, To: l.someOwner(l.src.Intn(l.owners())), Reason: "it leaves"}
	l.note("%s is to hand over to %s", m, q.To)
	first := m.h.Cause() == protocol.None
	act := m.h.HandOver(m.clock(), q)
	if asked := m.h.Asked(); first && asked != nil && asked.By == q.By && asked.Reason == q.Reason {
		q.ID, q.Kind = asked.ID, driver.HandOver // and nothing else of what the holder has made of it
		m.offered = &q
	}
	m.took(act)
}

// unkeep has the holder say, when its right to act has ended, that the lock is not to
// be reserved: neither for the owner that it is to hand over to, nor for a later one.
func (m *machine) unkeep() {
	q := driver.Request{By: m.p.name, Reason: "nobody comes"}
	m.p.l.note("%s keeps the lock for nobody", m)
	m.unkept = m.h.Asked() == nil
	act := m.h.HandOver(m.clock(), q)
	if !m.unkept {
		q.ID, q.Kind = m.h.Asked().ID, driver.StepDown
		m.offered = &q
	}
	m.took(act)
}

// drain returns how long the work takes to return when it was told to stop.
func (m *machine) drain() time.Duration {
	l := m.p.l
	switch {
	case l.final:
		return l.cfg.Drain
	case l.cfg.Requests && l.one(6):
		return l.upTo(6 * l.t.Lease) // longer than any timeout
	}
	if t := l.tenures[m.h.Record().Token]; t != nil {
		t.prompt = true
	}
	return l.upTo(l.t.Lease)
}

// finish ends the work, whatever state the lease is in.
func (m *machine) finish() {
	if m.done || m.p.l.final && m.h.Cause() == protocol.None {
		return
	}
	if m.waits = m.awaits(); m.waits {
		return // the work has not begun
	}
	m.begins()
	if l := m.p.l; l.cfg.Requests && !l.final && m.h.Cause() != protocol.None && l.one(6) {
		m.unkeep()
	}
	m.p.l.note("%s: the work has returned", m)
	m.done = true
	if m.fails() {
		return
	}
	m.took(m.h.Done(m.clock()))
}

// fails ends the work with a failure now and then.
func (m *machine) fails() bool {
	l := m.p.l
	if !l.cfg.Fails || l.final || m.o != nil || !l.one(2) {
		return false
	}
	m.failed = true
	l.tally.Failed++
	q := failure(m)
	_, act := m.h.Leave(m.clock(), nil, &q)
	m.took(act)
	return true
}

// failure is what a holder says of work that has failed, but for the ID.
func failure(m *machine) driver.Request {
	return driver.Request{Kind: driver.Fail, By: m.p.name, Reason: "the work has failed"}
}

// lay has the next data stored in the record.
func (m *machine) lay() {
	if m.done {
		return
	}
	n := m.lays + 1
	serial, a := m.h.SetData(m.clock(), fmt.Appendf(nil, "%d.%d", m.h.Record().Token, n))
	m.lays = serial
	m.p.l.note("%s lays data %d", m, serial)
	m.took(a)
}

func (m *machine) renew() {
	if m.done {
		return
	}
	m.took(m.h.Renew(m.clock()))
	if m.p.l.t.Manual {
		m.p.after(m, m.timing().Heartbeat, m.renew)
	}
}

func (m *machine) progress() {
	l := m.p.l
	if m.done || !l.final && l.one(32) {
		return // it hangs
	}
	m.h.Progress(m.clock())
	m.p.after(m, m.timing().Progress/16+l.upTo(m.timing().Progress/2), m.progress)
}
