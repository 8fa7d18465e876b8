// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// heal ends all faults: late writes are applied now, paused processes wake up,
// holders crash, and all live processes wait without giving up.
func (w *World) heal() {
	if w.violation != "" {
		return
	}
	w.note("the faults end")
	w.final = true
	for _, do := range w.late {
		do()
	}
	w.late, w.healed = nil, w.now
	for _, h := range w.hosts {
		crashed := !h.up
		h.paused = min(h.paused, w.now)
		for _, p := range h.procs {
			for _, m := range p.machines {
				crashed = crashed || m.h != nil
			}
		}
		for _, p := range h.procs {
			for _, m := range slices.Clone(p.machines) {
				switch {
				case crashed:
				case m.k != nil:
					m.forget()
				case m.c != nil && m.conn != nil && !m.conn.open:
					m.leave() // its client has gone, and now the replica learns of that
				case w.cfg.Trying && m.c != nil:
					m.leave()
				}
			}
		}
		switch {
		case !crashed:
		case h.up:
			h.crash()
			h.restart()
		default:
			h.restart()
		}
		h.wake()
	}
	for _, c := range w.clients {
		c.heal()
	}
	for _, g := range w.guardians {
		g.paused = min(g.paused, w.now)
		g.wake()
	}
	w.checkAll()
}

// slack is what a takeover may need beyond the lease: a look, a retry, the
// requests themselves, and a user who comes by.
func (w *World) slack() time.Duration {
	t := w.slowest()
	return 3*t.Refresh + 4*t.RequestTimeout + t.Lease
}

// patience is how long after the end of the faults, or after a holder has made way, a
// lock must have been granted again.
func (w *World) patience() time.Duration {
	most := w.slowest().Lease + w.slack()
	if w.cfg.Clients > 0 {
		most += w.slowest().Lease // a heartbeat of a dead client that came late, and a grant that nobody uses
	}
	return time.Duration(float64(most) / (1 - w.cfg.Skew))
}

// slowest returns the longest that each part of a timing is in any process, or was in an
// acquire or a session.
func (w *World) slowest() protocol.Timing {
	t := w.t
	t.Lease, t.Refresh, t.RequestTimeout = max(t.Lease, w.most.Lease), max(t.Refresh, w.most.Refresh), max(t.RequestTimeout, w.most.RequestTimeout)
	for _, h := range w.hosts {
		t.Lease, t.Refresh, t.RequestTimeout = max(t.Lease, h.t.Lease), max(t.Refresh, h.t.Refresh), max(t.RequestTimeout, h.t.RequestTimeout)
	}
	return t
}

// watchLiveness runs the healed world until each lock must have been granted, and
// checks that its holder keeps it, or hands it over to a preferred contender.
func (w *World) watchLiveness() {
	end := w.now + w.patience()
	w.run(func() bool {
		return w.now > end || !slices.ContainsFunc(w.locks, func(l *lock) bool { return !l.again })
	})
	for _, l := range w.locks {
		if !l.again {
			l.fail("nobody holds %s although the faults ended long ago", l.key)
		}
	}
	for _, l := range w.locks {
		l.watchHolder()
	}
}

func (l *lock) watchHolder() {
	for range len(l.procs) + len(l.clients) + 1 {
		end := l.now + l.patience()
		l.run(func() bool { return l.now > end || l.holder() != nil })
		if l.violation != "" {
			return
		}
		holder := l.holder()
		if holder == nil {
			l.fail("nobody holds %s although nothing fails", l.key)
			return
		}
		end = l.now + l.cfg.Kept
		l.run(func() bool { return l.now > end || !holder.believes() })
		if l.violation != "" || holder.believes() {
			return
		}
		if why, lost := holder.lost(); lost {
			l.fail("%s lost its lease although nothing failed: %s", holder, why)
			return
		}
	}
	l.fail("the lock changes hands without an end")
}

// lost says why a lease has ended that nobody has asked for, and that had time left when
// the faults ended.
func (m *machine) lost() (string, bool) {
	l := m.p.l
	beat := m.h.Record().Beat
	if m.under != nil {
		beat = m.under.h.Record().Beat
	}
	late := l.locks[0].written[beat].at < l.healed && l.written[beat].at < l.healed
	return m.h.Cause().String(), m.h.Cause() != protocol.Asked && !late
}

// holder returns whose lease check passes, nil if there is none.
func (l *lock) holder() actor {
	for _, p := range l.procs {
		for _, m := range p.machines {
			if m.believes() {
				return m
			}
		}
	}
	for _, v := range l.visits {
		if v.believes() {
			return v
		}
	}
	return nil
}
