// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// family is what works under a lease in processes of its own, as a command does under
// tenure run. When the process that holds the lease has crashed, a guardian kills the
// family, sees when nothing is left of it, and frees the lock.
type family struct {
	of    *machine // that held the lease, and has crashed
	clock clock    // by which its lease is counted
	until time.Duration
	ended bool // nothing is left
}

// orphans leaves the work under the leases of a crashing process to guardians. The work
// goes on until it is dead, or its lease is over.
func (h *host) orphans() {
	for _, p := range h.procs {
		for _, m := range p.machines {
			if h.w.cfg.Guarded && m.believes() && m.under == nil && m.life == p.l.life {
				f := &family{of: m, clock: h.hold, until: m.h.Deadline()}
				p.l.families = append(p.l.families, f)
				f.dies()
			}
		}
	}
}

// kills has a process that holds a lock crash now and then. It is soon there again.
func (w *World) kills() bool {
	if !w.fails(Crashes) {
		return false
	}
	l := w.locks[w.src.IntN(len(w.locks))]
	if m, ok := l.holder().(*machine); ok {
		w.tally.Of[Crash]++
		m.p.crash()
		w.after(w.upTo(w.t.Lease/4), m.on.restart)
	}
	return true
}

// dies ends a family soon.
func (f *family) dies() {
	l := f.of.l
	after := l.upTo(l.t.Lease / 4)
	if l.one(2) {
		after /= 64
	}
	l.note("the family of %s works on for %v", f.of, after)
	l.after(after, func() {
		f.ended = true
		l.note("the family of %s is dead", f.of)
		f.lasts()
		f.releaseCrash()
		f.promptly()
	})
}

// works reports whether the family acts under its lease now.
func (f *family) works() bool { return !f.ended && f.clock.at(f.of.l.now) < f.until }

// lasts has the last request of a family arrive where it works: within the grace after
// its end, or after that of its lease.
func (f *family) lasts() {
	l := f.of.l
	end := min(l.now, f.clock.when(f.until, 0))
	late := end - l.now + l.fast(f.of.timing.Grace)
	if late <= 0 {
		return
	}
	if l.one(2) {
		late = l.upTo(late)
	}
	grants := l.grants
	if f.of.grant < grants || l.life != f.of.life {
		return
	}
	l.after(late, func() {
		if l.life == f.of.life && l.grants > grants {
			l.fail("a request of the dead family of %s lands beside the work of its successor", f.of)
		}
	})
}

// promptly checks that the lock of a dead family is soon free, where nothing but
// processes fails.
func (f *family) promptly() {
	l := f.of.l
	if l.cfg.Without != Crashes.Except() || l.final {
		return
	}
	t := f.of.timing
	most := l.slow(t.Grace + 6*t.RequestTimeout)
	l.after(most, func() {
		rec := l.store.rec
		if by := l.written[rec.Beat]; l.life == f.of.life && l.store.found && rec.State == driver.Held && by.by == f.of {
			l.fail("%s and its family have been dead for %v, but its lock is held", f.of, most)
		}
	})
}

// releaseCrash has a guardian free the lock. The guardian is a separate process, which
// may be paused.
func (f *family) releaseCrash() {
	l, of := f.of.l, f.of
	g := l.newHost(of.p.name + "'s guardian")
	g.t = of.timing
	l.guardians = append(l.guardians, g)
	p := &process{host: g, l: l}
	p.look()
	now := g.cont.at(l.now)
	id, _, _ := strings.Cut(of.h.Record().Beat, "-")
	crash := protocol.ProvenCrash{Key: l.key, ID: id, From: now + g.t.Grace, Until: now + 2*g.t.Lease}
	m := p.newMachine(afterCrash, of.id+"'s guardian", protocol.NewCrashReleaser(g.t, l.env(g), crash))
	m.family = f
	p.machines = append(p.machines, m)
	l.note("%s knows that %s is dead", m, of)
	switch {
	case l.fails(Pauses) && l.one(4):
		g.pause(l.upTo(2*l.t.Lease), false)
	case l.fails(CutOffs) && l.one(4):
		g.cutOff = l.now + l.upTo(2*l.t.Lease)
	}
	m.after(0, m.step)
}

// crashReleased judges a guardian's write to a record.
func (l *lock) crashReleased(m *machine, was driver.Record) {
	is, f := l.store.rec, m.family
	by := l.written[was.Beat]
	switch holder := l.holder(); {
	case was.State != driver.Held || is.State != driver.Released || is.Token != was.Token:
		l.fail("%s makes %s with token %d of %s with token %d", m, is.State, is.Token, was.State, was.Token)
		return
	case by.by != f.of:
		l.fail("%s frees the lock of %s", m, by.by)
		return
	case f.works():
		l.fail("%s frees the lock while the family of %s is at work", m, f.of)
	case holder != nil:
		l.fail("%s frees the lock while %s holds it", m, holder)
	}
	l.tally.Of[CrashReleased]++
	l.terms[was.Token].ends(driver.EndCrashed, was)
	l.remembers(m, was.Token)
}

// checkFamilies judges that no process holds the lock while a family is at work.
func (l *lock) checkFamilies(holder actor) {
	l.families = slices.DeleteFunc(l.families, func(f *family) bool {
		if f.works() && holder != nil && l.life == f.of.life {
			l.fail("%s and the family of %s both hold", holder, f.of)
		}
		return !f.works()
	})
}
