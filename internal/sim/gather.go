// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenurelock/tenure/internal/protocol"
)

// gathering is what a process does to have several locks at once, under its session.
type gathering struct {
	h       *host
	id      string
	g       *protocol.Gathering
	under   *machine            // the session
	all     bool                // it wants all locks that there are
	members map[string]*machine // acquires and the leases that they became, by lock
	try     bool
	waits   string   // the lock that it acquires now, empty if it acquires none
	works   bool     // the work has begun
	told    bool     // the work was told to stop
	ending  *machine // that had ended at the look before, although the work was told nothing
	over    bool
}

func (s *gathering) String() string { return s.id }

// together says whether the process takes locks at once, and none of them alone.
func (h *host) together() bool {
	return h.w.cfg.Together && slices.Index(h.w.hosts, h) < minTogether
}

// gathers has the process take locks at once now and then.
func (h *host) gathers() {
	w := h.w
	if s := h.session; h.up && w.now >= h.paused && h.set == nil && s != nil && s.s != nil && s.s.Open(s.clock()) {
		h.gather()
	}
	w.after(w.t.Lease/16+w.upTo(w.t.Lease/2), h.gathers)
}

// gather begins to take locks: all of them, or two at least, named in any order.
func (h *host) gather() {
	w := h.w
	w.count++
	var keys []string
	for _, l := range w.locks {
		keys = slices.Insert(keys, w.src.Intn(len(keys)+1), l.key)
	}
	if !w.final && w.one(4) {
		keys = keys[:min(2, len(keys))]
	}
	s := &gathering{
		h: h, id: fmt.Sprintf("%s/set%d", h.name, w.count), g: protocol.NewGathering(keys), under: h.session,
		members: map[string]*machine{}, try: !w.final && w.one(8), all: len(keys) == len(w.locks),
	}
	h.set = s
	w.note("%s takes %q", s, keys)
	s.step()
	if !w.final && w.one(3) {
		s.after(func() {
			if !w.final {
				s.giveUp()
			}
		})
	}
}

// giveUp ends it, unless the work has begun.
func (s *gathering) giveUp() {
	if !s.works {
		s.h.w.note("%s is not wanted any more", s)
		s.g.Refused()
		s.step()
	}
}

// heal ends one that does not want all locks, which nobody else would have if it held some
// of them for ever.
func (s *gathering) heal() {
	if s != nil && !s.all {
		s.giveUp()
	}
}

// after has do called some time later, unless it is over then, or its process has crashed.
func (s *gathering) after(do func()) {
	s.h.later(s.h.epoch, s.h.w.upTo(3*s.h.w.t.Lease), func() {
		if !s.over {
			do()
		}
	})
}

// good says whether the lease on a lock may be acted upon, and goes on.
func (s *gathering) good(key string) bool {
	m := s.members[key]
	return m.believes() && m.h.Cause() == protocol.None
}

// step does what the rules of the set say now.
func (s *gathering) step() {
	w := s.h.w
	for !s.over && w.violation == "" {
		switch move, key := s.g.Next(s.good); move {
		case protocol.Take:
			if s.members[key] == nil {
				s.takes(key)
			}
			return
		case protocol.Work:
			if !s.works {
				s.begins()
			}
			return
		case protocol.Stop:
			if s.told = true; !s.works {
				w.fail("%s is told to stop before it has begun", s)
			}
			return
		case protocol.GiveBack:
			s.givesBack()
		case protocol.Gathered:
			s.ends()
		}
	}
}

// takes acquires a lock.
func (s *gathering) takes(key string) {
	p := s.h.procs[slices.IndexFunc(s.h.procs, func(p *process) bool { return p.l.key == key })]
	p.acquires++
	want := protocol.Want{
		Key: key, Owner: p.name, Try: s.try, Behind: p.l.one(4), Label: p.l.labelOf(p.name), Under: s.under.s,
	}
	if !p.l.final && p.l.one(8) {
		want.Patience = p.l.t.Lease
	}
	own := s.under.timing()
	m := &machine{p: p, own: &own, epoch: p.epoch, id: fmt.Sprintf("%s/%s%d", p.name, key, p.acquires), set: s}
	s.members[key], s.waits = m, key
	m.c = protocol.NewContender(own, p.l.env(p.host), want, p.sight)
	p.contends(m, s.under, want.Try)
	s.judgeRing()
}

// judgeRing judges that no processes wait for each other in a ring.
func (s *gathering) judgeRing() {
	at := s
	for range s.h.w.hosts {
		if at.waits == "" || at.try || at.over {
			return
		}
		var holder *gathering
		for _, h := range s.h.w.hosts {
			if o := h.set; h.up && o != nil && o != at && o.waits != at.waits && o.members[at.waits] != nil && o.members[at.waits].believes() {
				holder = o
			}
		}
		switch holder {
		case nil:
			return
		case s:
			s.h.w.fail("%s waits for what it keeps itself from others: a ring of those who wait for each other", s)
			return
		}
		at = holder
	}
}

// took says that a lock was granted.
func (s *gathering) took(m *machine) {
	key := m.p.l.key
	switch {
	case s.over || s.members[key] != m:
	case m.awaits():
		m.p.after(m, m.p.l.upTo(m.timing().RequestTimeout), func() { s.took(m) })
	default:
		m.begins()
		s.waits = ""
		s.g.Took(key)
		s.step()
	}
}

// refused says that a lock cannot be had.
func (s *gathering) refused(m *machine) {
	if s.over || s.members[m.p.l.key] != m {
		return
	}
	delete(s.members, m.p.l.key)
	s.waits = ""
	s.g.Refused()
	s.step()
}

// begins begins the work.
func (s *gathering) begins() {
	w := s.h.w
	s.works = true
	w.tally.Gathered++
	w.note("%s works", s)
	if w.final {
		w.whole = true
	}
	for _, key := range slices.Sorted(maps.Keys(s.members)) { // each draws from the source
		m := s.members[key]
		if !s.good(key) {
			w.fail("%s begins its work, and %s has ended", s, m)
		}
		if m.under != s.under {
			w.fail("%s has locks under several sessions", s)
		}
		m.p.after(m, w.upTo(w.t.Lease/4), m.work)
	}
	s.looks()
	if !w.final {
		s.after(s.done)
	}
}

// looks judges now and then that the work was told to stop if one of the locks has ended.
func (s *gathering) looks() {
	w := s.h.w
	s.h.later(s.h.epoch, w.t.Lease/16, func() {
		if s.over {
			return
		}
		var ended *machine
		for _, key := range slices.Sorted(maps.Keys(s.members)) { // the last one that ended
			m := s.members[key]
			if m.h.Cause() != protocol.None && s.works && !s.told {
				ended = m
			}
		}
		if ended != nil && ended == s.ending {
			w.fail("%s works on, and %s has ended", s, ended)
		}
		s.ending = ended
		s.looks()
	})
}

// ended says that one of the locks has ended. The work takes its time to return.
func (s *gathering) ended(m *machine) {
	if s.over || s.members[m.p.l.key] != m {
		return
	}
	if s.step(); s.told && !s.over {
		m.p.after(m, m.drain(), s.done)
	}
}

// done says that the work has returned.
func (s *gathering) done() {
	if !s.over && s.works && (!s.h.w.final || s.told) {
		s.g.Done()
		s.step()
	}
}

// givesBack gives up what is being acquired, and releases what is held.
func (s *gathering) givesBack() {
	back := s.g.Back()
	for _, key := range append(slices.Clone(back), s.waits) {
		if m := s.members[key]; m != nil {
			delete(s.members, key)
			m.givenBack()
		}
	}
	s.waits = ""
	s.works, s.told = false, false
	s.h.w.tally.GivenBack++
	s.g.GaveBack(back)
}

// givenBack ends an acquire, or a lease.
func (m *machine) givenBack() {
	switch {
	case m.h == nil:
		m.leave()
	case !m.done:
		m.done = true
		m.took(m.h.Done(m.clock()))
	}
}

// ends judges that it leaves nothing behind.
func (s *gathering) ends() {
	s.over = true
	s.h.w.note("%s is over", s)
	if s.h.set == s {
		s.h.set = nil
	}
	for _, m := range s.members {
		if m.h != nil && !m.done {
			s.h.w.fail("%s is over, and keeps %s", s, m)
		}
	}
}

// watchGathering runs the healed world until a process has all locks.
func (w *World) watchGathering() {
	if !w.cfg.Together || w.violation != "" {
		return
	}
	end := w.now + w.patience()
	w.run(func() bool { return w.now > end || w.whole })
	if !w.whole {
		w.fail("nobody has all locks although the faults ended long ago")
	}
}
