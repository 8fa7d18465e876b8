// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// hold begins the work under a lease that was just granted.
func (m *machine) hold(g protocol.Grant) {
	w := m.p.w
	// The instant at which the write was sent, by the clock of the holder. The
	// beat is its version, whatever was laid on top.
	g.Sent = w.written[g.Record.Beat].hold
	if w.cfg.Wrong == SentAtReply {
		g.Sent = m.clock()
	}
	w.note("%s is granted %s", m, shown(g.Record))
	w.granted(m, g)
	m.h = protocol.NewHolder(w.t, w.env(m.p), g)
	m.took(m.h.Step(m.clock()))
	if w.t.Progress > 0 {
		m.p.after(m, 0, m.progress)
	}
	if w.t.Manual || !w.final && w.one(4) {
		m.p.after(m, w.upTo(w.t.Heartbeat), m.renew)
	}
	if w.final {
		return
	}
	if m.p.w.one(2) {
		m.p.after(m, w.upTo(w.t.Lease*3), m.stop)
	} else {
		m.p.after(m, w.upTo(w.t.Lease*3), m.finish)
	}
	for range w.src.Intn(4) {
		m.p.after(m, w.upTo(w.t.Lease*2), m.lay)
	}
}

func (m *machine) stop() {
	if !m.done {
		m.p.w.note("%s is asked to stop", m)
		m.took(m.h.Stop(m.clock()))
	}
}

// drain returns how long the work takes to return when it was told to stop.
func (m *machine) drain() time.Duration {
	w := m.p.w
	switch {
	case w.final:
		return w.cfg.Drain
	case w.cfg.Requests && w.one(6):
		return w.upTo(6 * w.t.Lease) // longer than anybody waits for
	}
	if t := w.tenures[m.h.Record().Token]; t != nil {
		t.prompt = true
	}
	return w.upTo(w.t.Lease)
}

// finish ends the work, whatever state the lease is in.
func (m *machine) finish() {
	if m.done || m.p.w.final && m.h.Cause() == protocol.None {
		return
	}
	m.p.w.note("%s: the work has returned", m)
	m.done = true
	m.took(m.h.Done(m.clock()))
}

// lay lays the next data into the record.
func (m *machine) lay() {
	if m.done {
		return
	}
	n := m.lays + 1
	serial, a := m.h.SetData(m.clock(), fmt.Appendf(nil, "%d.%d", m.h.Record().Token, n))
	m.lays = serial
	m.p.w.note("%s lays data %d", m, serial)
	m.took(a)
}

func (m *machine) renew() {
	if m.done {
		return
	}
	m.took(m.h.Renew(m.clock()))
	if m.p.w.t.Manual {
		m.p.after(m, m.p.w.t.Heartbeat, m.renew)
	}
}

func (m *machine) progress() {
	w := m.p.w
	if m.done || !w.final && w.one(32) {
		return // it hangs
	}
	m.h.Progress(m.clock())
	m.p.after(m, w.upTo(w.t.Progress/2), m.progress)
}

// nemesis makes trouble now and then.
func (w *World) nemesis() {
	if w.final {
		return
	}
	p := w.procs[w.src.Intn(len(w.procs))]
	d := w.upTo(2 * w.t.Lease)
	switch w.src.Intn(6) {
	case 0:
		w.note("%s is cut off for %v", p.name, d)
		p.cutOff = w.now + d
	case 1:
		w.note("%s is paused for %v", p.name, d)
		p.pause(d)
	case 2:
		w.crash(p)
		w.after(d, p.restart)
	case 3:
		w.note("the store is down for %v", d/2)
		w.down = w.now + d/2
	case 4:
		w.note("the clock of %s jumps ahead", p.name)
		p.hold.offset += d / 2
		for _, m := range append([]*machine(nil), p.machines...) {
			if m.h != nil && w.now >= p.paused {
				m.step()
			}
		}
	}
	w.after(w.t.Lease/8+w.upTo(w.t.Lease), w.nemesis)
}

func (p *process) pause(d time.Duration) {
	w := p.w
	if p.paused > w.now {
		return
	}
	p.paused = w.now + d
	if w.cfg.Wrong == StoppingClock {
		p.hold.halted = w.now
	}
	w.after(d, p.wake)
}

func (w *World) crash(p *process) {
	w.note("%s crashes", p.name)
	p.up, p.machines, p.asleep = false, nil, nil
	p.epoch++
}

func (p *process) restart() {
	if p.up {
		return
	}
	p.w.note("%s starts again", p.name)
	p.up, p.paused = true, 0
	p.hold, p.cont = p.w.clock(), p.w.clock()
	p.sight, p.wish = protocol.NewSight(p.w.t, p.w.env(p)), 0
}
