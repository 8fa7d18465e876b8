// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// family is what works under a lease in processes of its own, as a command does under
// tenure run. When the process that holds the lease has crashed, a guardian kills the
// family, sees when nothing is left of it, and frees the lock.
type family struct {
	l     *lock
	of    *machine // that held the lease, and has crashed
	life  int      // of the lock's record
	clock clock    // by which its lease is counted
	until time.Duration
	ended bool // nothing is left
	at    time.Duration
	first string // the version that the lease was granted with
}

// orphans leaves what works under the leases of a process that crashes to guardians.
func (h *host) orphans() {
	if !h.w.cfg.Guarded {
		return
	}
	for _, p := range h.procs {
		for _, m := range p.machines {
			if m.c != nil && m.h != nil && !m.done && m.under == nil && m.conn == nil && m.believes() && m.life == p.l.life {
				p.l.orphan(m)
			}
		}
	}
}

// kills has a process that holds a lock crash now and then. It is soon there again.
func (w *World) kills() {
	if !w.fails(Crashes) {
		return
	}
	l := w.locks[w.src.Intn(len(w.locks))]
	if m, ok := l.holder().(*machine); ok {
		w.tally.Crashes++
		m.p.crash()
		w.after(w.upTo(w.t.Lease/4), m.p.host.restart)
	}
	w.after(w.upTo(2*w.t.Lease), w.kills)
}

// orphan begins the end of a family. It is at work until it is dead, or its lease is over.
func (l *lock) orphan(m *machine) {
	f := &family{l: l, of: m, life: l.life, clock: m.p.hold, until: m.h.Deadline(), first: m.first}
	l.families = append(l.families, f)
	dies := l.upTo(l.t.Lease / 4)
	if l.one(2) {
		dies /= 64
	}
	l.note("the family of %s works on for %v", m, dies)
	l.after(dies, func() {
		f.ended, f.at = true, l.now
		l.note("the family of %s is dead", m)
		f.lasts()
		f.bury()
		f.promptly()
	})
}

// works says that the family acts under its lease now.
func (f *family) works() bool { return !f.ended && f.clock.at(f.l.now) < f.until }

// lasts has the last request of a family arrive where it works: within the grace after
// its end, or after that of its lease.
func (f *family) lasts() {
	l := f.l
	end := min(l.now, f.clock.when(f.until, 0))
	late := end - l.now + time.Duration(float64(f.of.timing().Grace)/(1+l.cfg.Skew))
	if late <= 0 {
		return
	}
	if l.one(2) {
		late = l.upTo(late)
	}
	grants := l.grants
	if f.of.grant < grants || l.life != f.life {
		return
	}
	l.after(late, func() {
		if l.life == f.life && l.grants > grants {
			l.fail("a request of the dead family of %s lands beside the work of its successor", f.of)
		}
	})
}

// promptly sees, where nothing fails but processes that crash, that the lock of the dead
// is soon free.
func (f *family) promptly() {
	l := f.l
	if l.cfg.Without != Crashes.Except() || l.final {
		return
	}
	t := f.of.timing()
	l.after(time.Duration(float64(t.Grace+6*t.RequestTimeout)/(1-l.cfg.Skew)), func() {
		rec := l.store.rec
		if by := l.written[rec.Beat]; l.life == f.life && l.store.found && rec.State == driver.Held && by.by == f.of {
			l.fail("%s is dead with all its family for %v, and its lock is held", f.of, l.now-f.at)
		}
	})
}

// bury has a guardian free the lock. It is a process of its own, which may stand still.
func (f *family) bury() {
	l, of := f.l, f.of
	g := &host{w: l.World, name: of.p.name + "'s guardian", up: true, t: of.timing(), sights: map[string]*protocol.Sight{}, peeks: map[string][]peek{}}
	g.hold, g.cont = l.World.clock(), l.World.clock()
	l.guardians = append(l.guardians, g)
	p := &process{host: g, l: l}
	p.look()
	now := g.cont.at(l.now)
	id, _, _ := strings.Cut(of.h.Record().Beat, "-")
	crash := protocol.ProvenCrash{Key: l.key, ID: id, From: now + g.t.Grace, Until: now + 2*g.t.Lease}
	m := &machine{p: p, id: of.id + "'s guardian", life: l.life, judged: newJudged(), family: f}
	m.k = protocol.NewCrashReleaser(g.t, l.env(g), crash)
	p.machines = append(p.machines, m)
	l.note("%s knows that %s is dead", m, of)
	switch {
	case l.fails(Pauses) && l.one(4):
		g.pause(l.upTo(2 * l.t.Lease))
	case l.fails(CutOffs) && l.one(4):
		g.cutOff = l.now + l.upTo(2*l.t.Lease)
	}
	p.after(m, 0, m.step)
}

// buried judges what a guardian has made of a record.
func (l *lock) buried(m *machine, was driver.Record) {
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
	l.tally.Buried++
	t := l.tenures[was.Token]
	if t.end = driver.EndCrashed; was.End != "" {
		t.end = was.End
	}
	if t.asked = nil; len(was.Requests) > 0 {
		t.asked = &was.Requests[0]
	}
	l.remembers(m, is.Tenure(""), is.Token)
}

// checkFamilies judges that nobody holds the lock while a family is at work.
func (l *lock) checkFamilies() {
	if len(l.families) == 0 {
		return
	}
	kept := l.families[:0]
	for _, f := range l.families {
		if !f.works() {
			continue
		}
		kept = append(kept, f)
		if holder := l.holder(); holder != nil && l.life == f.life {
			l.fail("%s and the family of %s both hold", holder, f.of)
		}
	}
	l.families = kept
}
