// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

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
	m := &machine{p: p, epoch: h.epoch, id: w.id("%s/session%d", h.name, w.count), judged: newJudged(), begun: w.now}
	m.o = protocol.NewOpener(h.t, w.env(h), driver.Record{Owner: h.name}, 0)
	h.session = m
	w.note("%s opens", m)
	m.took(m.o.Step(h.cont.at(w.now)))
}

// opened begins a session that is open for certain.
func (m *machine) opened(g protocol.Grant) {
	w, h := m.p.w, m.p.host
	by := m.p.l.written[g.Record.Beat]
	if by.by != m && !protocol.Making(protocol.Unconfirmed) {
		w.fail("%s is open by what another wrote", m)
	}
	g.Sent = by.hold
	w.note("%s is open as %s", m, g.Record.Key)
	w.tally.Sessions++
	t := h.t
	t.Manual, t.Progress = false, 0
	m.h = protocol.NewHolder(t, w.env(h), g)
	m.took(m.h.Step(m.clock()))
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
	m.took(m.h.Stop(m.clock()))
	m.closeWhenDone()
}

func (m *machine) closeWhenDone() {
	if _, over := m.h.Over(); over || m.done {
		return
	}
	if m.works() && !protocol.Making(protocol.ClosedWhileWorking) {
		m.p.after(m, m.p.w.t.Lease/16, m.closeWhenDone)
		return
	}
	m.p.w.note("%s: all work under it has returned", m)
	m.done = true
	m.took(m.h.Done(m.clock()))
}

// works says whether work goes on under the session, or may yet begin.
func (m *machine) works() bool {
	works := false
	m.each(func(t *machine) { works = works || t.h == nil || !t.done })
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

// tell has the leases under a session follow it, and reads what was asked.
func (m *machine) tell() {
	m.each(func(t *machine) {
		if t.h != nil {
			t.step()
		} else if m.h.Cause() != protocol.None && t.c != nil {
			t.leave() // no lock is to be had under it
		}
	})
	freed, over := m.h.Over()
	if over {
		m.p.w.note("%s is over: %v", m, freed)
		if m.p.host.session == m {
			m.p.host.session = nil
		}
		return
	}
	if m.h.Cause() != protocol.None && !m.done && !m.ending {
		m.ending = true
		m.closeWhenDone()
	}
	kept := map[string]time.Duration{}
	for _, q := range m.h.Inbox() {
		if q.Kind == driver.Confirm {
			m.confirms(q)
		} else if !m.delivers(q) {
			since, seen := m.kept[q.ID]
			if !seen {
				since = m.clock()
			}
			if m.clock() < since+m.p.t.Lease {
				kept[q.ID] = since
				continue // it may have been granted, and not know it yet
			}
		}
		m.h.Answered(q.ID)
	}
	m.kept = kept
}

// delivers hands a request to the lease that it is for, and says whether nobody
// is to be waited for.
func (m *machine) delivers(q driver.Request) bool {
	done := true
	m.each(func(t *machine) {
		switch {
		case t.p.l.key != q.Lock || t.left:
		case t.h == nil:
			done = false
		default:
			m.p.w.tally.Delivered++
			t.took(t.h.Ask(t.clock(), q))
			done = true
		}
	})
	return done
}

// confirms answers the question whether the session holds a lock.
func (m *machine) confirms(q driver.Request) {
	if m.mine(driver.Record{Key: q.Lock, Token: q.Token}) {
		return
	}
	for _, p := range m.p.host.procs {
		if p.l.key == q.Lock {
			d := &machine{p: p, epoch: p.epoch, id: p.w.id("%s/no%s", m.id, q.Lock), under: m, judged: newJudged()}
			d.d = protocol.NewDisclaimer(p.t, p.w.env(p.host), m.h.Record().Key[len(driver.SessionPrefix):], q.Lock, q.Token, m.mine)
			p.w.note("%s does not know of %s under token %d", m, q.Lock, q.Token)
			d.took(d.d.Step(p.cont.at(p.w.now)))
		}
	}
}

// mine says whether somebody under the session holds a lock as the record shows
// it, or has written it.
func (m *machine) mine(rec driver.Record) bool {
	mine := false
	m.each(func(t *machine) {
		switch {
		case t.p.l.key != rec.Key:
		case t.h == nil:
			mine = mine || t.c.Wrote(rec)
		default:
			_, over := t.h.Over()
			mine = mine || t.h.Record().Token == rec.Token && !over
		}
	})
	return mine
}

// sessionEnded says whether the session that a record names is closed, or was
// never opened.
func (w *World) sessionEnded(id string) bool {
	s := w.sessions[driver.SessionPrefix+id]
	return s == nil || !s.found || s.rec.State == driver.Closed
}

// sessionBeats returns how many signs of life of a session the store has seen.
func (w *World) sessionBeats(id string) int {
	if s := w.sessions[driver.SessionPrefix+id]; s != nil {
		return s.beats
	}
	return 0
}
