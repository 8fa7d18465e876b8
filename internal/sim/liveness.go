// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
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
	for _, h := range slices.Concat(w.hosts, w.guardians) {
		h.heal()
	}
	for _, l := range w.locks {
		l.check()
	}
}

// heal ends the faults of a process. A process that has a lock, or a client with a grant,
// crashes; waiting acquires go on, and abandoned ones are given up.
func (h *host) heal() {
	h.paused = min(h.paused, h.w.now)
	if h.up && h.holds() {
		h.crash()
	}
	if !h.up {
		h.restart()
	}
	for _, p := range h.procs {
		for _, m := range slices.Clone(p.machines) {
			switch {
			case m.role == asking:
				m.forget()
			case m.c != nil && m.conn != nil && !m.conn.open:
				m.leave() // its client has gone, and now the replica learns of that
			case h.w.cfg.Trying && m.c != nil:
				m.leave()
			}
		}
	}
	h.wake()
}

// holds says whether a process has a lease, or a client a grant.
func (h *host) holds() bool {
	granted := func(v *visit) bool { return v.stage > visitCalls }
	return slices.ContainsFunc(h.visits, granted) || slices.ContainsFunc(h.procs, func(p *process) bool {
		return slices.ContainsFunc(p.machines, func(m *machine) bool { return m.h != nil })
	})
}

// patience is how long after the end of the faults, or after a holder has made way, a
// lock must have been granted again: a lease, a poll, a retry, the requests themselves,
// and the time until a user acts.
func (w *World) patience() time.Duration {
	most := 2*w.most.Lease + 3*w.most.Refresh + 4*w.most.RequestTimeout
	if w.cfg.Clients > 0 {
		most += 2 * w.most.Lease // a late heartbeat of a dead client, and an unused grant
	}
	if w.engine != nil {
		most += w.t.Waits - w.most.Lease // instead of the lease of who has died
		if slices.ContainsFunc(w.locks, (*lock).countsTwice) {
			most += w.t.Waits
		}
	}
	return w.slow(most)
}

// countsTwice says that those who want the lock may have to count from the beginning once more, on an engine that
// loses writes. A closed life hides a reservation, so that its count begins when the life is opened. A session that
// a former life has closed may be deleted after most of the count, and an absent one names no life.
func (l *lock) countsTwice() bool {
	rec := l.store.rec
	swept := rec.State == driver.Held && rec.Session != "" && !l.storeOf(driver.SessionKey(rec.Session)).found
	return rec.State == driver.Reserved || swept
}

// watchLiveness runs the healed world until each lock must have been granted, and
// checks that its holder keeps it, or hands it over to a preferred contender.
func (w *World) watchLiveness() {
	healed, end := w.now, w.now
	w.run(func() bool {
		end = max(end, healed+w.patience()) // a call that was under way then may still reserve a lock
		return w.now > end || !slices.ContainsFunc(w.locks, func(l *lock) bool { return !l.again })
	})
	for _, l := range w.locks {
		if !l.again {
			l.fail("no process holds %s although the faults ended long ago", l.key)
		}
	}
	for _, l := range w.locks {
		l.watchHolder()
	}
}

func (l *lock) watchHolder() {
	for range len(l.hosts) + 1 {
		end := l.now + l.patience()
		l.run(func() bool { return l.now > end || l.holder() != nil })
		holder := l.holder()
		if holder == nil {
			l.fail("no process holds %s although nothing fails", l.key)
			return
		}
		end = l.now + l.cfg.Kept
		l.run(func() bool { return l.now > end || !holder.believes() })
		if l.violation != "" || holder.believes() {
			return
		}
		if why, lost := holder.lost(); lost {
			l.fail("%s lost its lease although nothing failed: %s", holder, why)
		}
	}
	l.fail("the lock changes hands without an end")
}

// lost says why a lease has ended without a request, and that had time left when the
// faults ended.
func (m *machine) lost() (string, bool) {
	beat := m.h.Record().Beat
	if m.under != nil {
		beat = m.under.h.Record().Beat
	}
	late := m.l.written[beat].at < m.l.healed
	return m.h.Cause().String(), m.h.Cause() != protocol.Asked && !late
}
