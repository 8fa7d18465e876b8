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
	m.o = protocol.NewOpener(w.t, w.env(h), driver.Record{Owner: h.name}, 0)
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
	t := w.t
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
	for _, q := range m.h.Inbox() {
		if q.Kind == driver.Confirm {
			m.confirms(q)
		}
		m.h.Answered(q.ID)
	}
}

// confirms answers the question whether the session holds a lock.
func (m *machine) confirms(q driver.Request) {
	if m.mine(driver.Record{Key: q.Lock, Token: q.Token}) {
		return
	}
	for _, p := range m.p.host.procs {
		if p.l.key == q.Lock {
			d := &machine{p: p, epoch: p.epoch, id: p.w.id("%s/no%s", m.id, q.Lock), under: m, judged: newJudged()}
			d.d = protocol.NewDisclaimer(p.w.t, p.w.env(p.host), m.h.Record().Key[len(driver.SessionPrefix):], q.Lock, q.Token, m.mine)
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

// applySession has the store carry out a request about a session's record, and
// judges what it did.
func (l *lock) applySession(m *machine, r *protocol.Request, behind int) (rec, former driver.Record, err error) {
	s := l.sessions[r.Key]
	if s == nil {
		s = &store{key: r.Key}
		l.sessions[r.Key] = s
	}
	was, found := s.rec, s.found
	rec, former, err = s.do(r, behind)
	if r.Kind.Reads() || err != nil {
		return rec, former, err
	}
	l.note("store: %v of %s: %s %s %s", r.Kind, m, r.Key, s.rec.State, s.rec.Version)
	own := l.written[r.Next.Version].by == m && (m.o != nil)
	switch {
	case found && was.State == driver.Closed:
		l.fail("%v of %s changes a closed session", r.Kind, m)
	case r.Kind == protocol.Claim && found:
		l.fail("%s opens session %s a second time", m, r.Key)
	case s.rec.Beat != was.Beat && !own:
		l.fail("%v of %s changes the beat of session %s", r.Kind, m, r.Key)
	case r.Kind == protocol.Release && m.epoch == m.p.epoch && m.works():
		l.fail("%s closes its session while work goes on", m)
	case r.Kind == protocol.Close:
		least := time.Duration(float64(was.Lease)/(1+l.cfg.Skew)) - time.Microsecond
		if stood := l.written[r.Next.Version].at - l.stored[was.Beat]; stood < least {
			l.fail("%s closes session %s, whose beat has stood for %v", m, r.Key, stood)
		}
		l.tally.Closed++
	}
	if s.rec.State == driver.Closed && !l.final {
		// It stays longer than any late write does, and is deleted then.
		l.after(4*l.t.Lease, func() { *s = store{key: r.Key} })
	}
	if s.rec.Beat != was.Beat {
		for _, other := range l.locks {
			other.stored[s.rec.Beat] = l.now
		}
		m.applied[s.rec.Token] = max(m.applied[s.rec.Token], l.written[r.Next.Version].hold)
	}
	return rec, former, err
}

// sessionEnded says whether the session that a record names is closed, or was
// never opened.
func (w *World) sessionEnded(id string) bool {
	s := w.sessions[driver.SessionPrefix+id]
	return s == nil || !s.found || s.rec.State == driver.Closed
}
