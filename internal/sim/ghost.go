// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// haunt is for how long a lock has been held in the name of a living session that does
// not know of it.
type haunt struct {
	beat  string // of the claim; empty if there is none
	since time.Duration
}

// keeper returns the session that a record names, nil if no process has it open.
func (l *lock) keeper(rec driver.Record) *machine {
	if rec.State != driver.Held || rec.Session == "" {
		return nil
	}
	for _, h := range l.hosts {
		if s := h.session; s != nil && s.s != nil && s.s.ID() == rec.Session && s.s.Open(s.clock()) {
			return s
		}
	}
	return nil
}

// known says that a lease under a session holds the lock as a record shows it, or that
// an acquire has written the record and is not over.
func (l *lock) known(session *machine, rec driver.Record) bool {
	return slices.ContainsFunc(l.procs, func(p *process) bool {
		return p.host == session.p.host && slices.ContainsFunc(p.machines, func(m *machine) bool {
			switch {
			case m.under != session:
				return false
			case m.h != nil:
				return !m.h.Over() && m.h.Record().Token == rec.Token
			}
			return m.c != nil && !m.c.Over() && l.written[rec.Beat].by == m
		})
	})
}

// judgeGhost judges that no acquire is refused for what its own session holds without
// knowing: nobody else would ever ask about that.
func (l *lock) judgeGhost(m *machine) {
	r := m.c.Refused()
	if m.under == nil || !r.Held || r.Record.State != driver.Held || r.Record.Session != m.under.s.ID() || l.known(m.under, r.Record) {
		return
	}
	l.fail("%s is refused for a lock that its own session has, and nothing under it knows of: %s", m, shown(r.Record))
}

// checkGhost sees that what a living session holds without knowing is free in time
// when the faults are over. Those who wait ask the session; those who only try do not,
// and one that tries under the same session finds it at its first try.
func (l *lock) checkGhost() {
	rec := l.store.rec
	if !l.final || !l.cfg.Trying {
		return
	}
	session := l.keeper(rec)
	if session == nil || l.known(session, rec) {
		l.haunt = haunt{}
		return
	}
	if l.haunt.beat != rec.Beat {
		l.haunt = haunt{rec.Beat, l.now}
	}
	// A user comes by in less than that: see act. And four calls: a claim, a release, a
	// claim, or a look before them.
	t := l.slowest()
	most := time.Duration(float64(t.Lease+4*t.RequestTimeout) / (1 - l.cfg.Skew))
	if stood := l.now - l.haunt.since; stood > most {
		l.fail("%s is held in the name of %s for %v, and nothing under it knows of that: %s", l.key, session, stood, shown(rec))
	}
}
