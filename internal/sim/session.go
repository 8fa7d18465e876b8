// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// keep has the process open a session now and then, if it has none.
func (h *host) keep() {
	w := h.w
	if h.up && w.now >= h.paused && h.session == nil {
		h.open()
	}
	w.after(w.t.Lease/16+w.upTo(w.t.Lease/2), h.keep)
}

// open begins to open a session. Its machine is of no lock; it stands beside
// those of the first one.
func (h *host) open() {
	w := h.w
	p := h.procs[0]
	w.count++
	own := h.ofOwn()
	m := &machine{p: p, own: &own, epoch: h.epoch, id: fmt.Sprintf("%s/session%d", h.name, w.count), judged: newJudged(), begun: w.now}
	m.o = protocol.NewOpener(own, w.env(h), driver.Record{Owner: h.name}, 0)
	h.session = m
	w.note("%s opens", m)
	m.took(m.o.Step(h.cont.at(w.now)))
}

// opened begins a session that is open for certain.
func (m *machine) opened(g protocol.Grant) {
	w, h := m.p.w, m.p.host
	if by := m.p.l.written[g.Record.Beat]; by.by != m {
		w.fail("%s is open by what another wrote", m)
	}
	m.counts(g)
	w.note("%s is open as %s", m, g.Record.Key)
	w.tally.Sessions++
	m.s = protocol.NewKeeper(m.timing(), w.env(h), g)
	m.h = m.s.Holder
	m.took(m.s.Step(m.clock()))
	if !w.final && w.one(2) {
		m.p.after(m, w.upTo(4*w.t.Lease), m.closeSession)
	}
}

// closeSession ends a session as its user would: no more locks, work told to
// stop, and closed when all of it has returned.
func (m *machine) closeSession() {
	w := m.p.w
	if m.p.host.session != m || w.final {
		return
	}
	w.note("%s is closed by its user", m)
	m.took(m.s.Stop(m.clock()))
}

// works says whether work goes on under the session.
func (m *machine) works() bool {
	works := false
	m.each(func(t *machine) { works = works || t.h != nil && !t.done })
	return works
}

// each visits the acquires and leases under a session.
func (m *machine) each(do func(*machine)) {
	for _, p := range m.p.host.procs {
		for _, t := range append([]*machine(nil), p.machines...) {
			if t.under == m {
				do(t)
			}
		}
	}
}

// keeps carries out what a session's machine wants of others.
func (m *machine) keeps(a protocol.Action) {
	w := m.p.w
	for _, n := range a.Notes {
		switch n {
		case protocol.NoteEnded:
			m.each(func(t *machine) {
				if t.h == nil {
					t.step() // it learns that no lock is to be had
				}
			})
		case protocol.NoteOver:
			w.note("%s is over: %v", m, m.h.Freed())
			if m.p.host.session == m {
				m.p.host.session = nil
			}
		}
	}
	for _, d := range a.Begin {
		m.disclaims(d.(*protocol.Disclaimer))
	}
}

// disclaims begins to drive what is to release a lock that the session does not hold.
func (m *machine) disclaims(d *protocol.Disclaimer) {
	for _, p := range m.p.host.procs {
		if p.l.key == d.Key() {
			t := &machine{p: p, epoch: p.epoch, id: fmt.Sprintf("%s/no%s", m.id, d.Key()), under: m, judged: newJudged()}
			t.d = d
			p.w.note("%s does not know of %s", m, d.Key())
			t.took(d.Step(p.cont.at(p.w.now)))
		}
	}
}

// wakes steps another machine of the process.
func (m *machine) wakes(other protocol.Machine) {
	session := m.under
	if m.s != nil {
		session = m
	}
	if other == protocol.Machine(session.s) {
		session.step()
		return
	}
	session.each(func(t *machine) {
		if t.h != nil && other == protocol.Machine(t.h) {
			if len(t.h.Mail()) > 0 {
				m.p.w.tally.Delivered++
			}
			t.step()
		}
	})
}

// sessionEnded says whether the session that a record names is closed, or was
// never opened.
func (w *World) sessionEnded(id string) bool {
	s := w.sessions[driver.SessionKey(id)]
	return s == nil || !s.found || s.rec.State == driver.Closed
}

// sessionBeats returns how many signs of life of a session the store has seen.
func (w *World) sessionBeats(id string) int {
	if s := w.sessions[driver.SessionKey(id)]; s != nil {
		return s.beats
	}
	return 0
}
