// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// keep has the process open a session now and then, if it has none. Its machine is of no
// lock; it stands beside those of the first one.
func (h *host) keep() bool {
	w, p := h.w, h.procs[0]
	if h.up && w.now >= h.paused && h.session == nil {
		own := h.ofOwn()
		m := p.newMachine(opening, h.name+"/session", protocol.NewSessionOpener(own, w.env(h), driver.Record{Owner: h.name}, 0))
		m.timing, h.session = own, m
		w.note("%s opens", m)
		m.step()
	}
	return true
}

// opened begins a session that is open for certain.
func (m *machine) opened(g protocol.Grant) {
	w, h := m.p.w, m.on
	m.l.granted(m, g)
	w.note("%s is open as %s", m, g.Record.Key)
	m.s = protocol.NewSessionHolder(m.timing, w.env(h), g)
	m.h, m.is = m.s.Holder, m.s
	m.step()
	if !w.final && w.one(2) {
		m.after(w.upTo(4*w.t.Lease), func() {
			if h.session == m && !w.final { // no more locks; closed when all work has been told to stop and has returned
				w.note("%s is closed by its user", m)
				m.took(m.s.Stop(m.clock()))
			}
		})
	}
}

// opens says whether locks can be taken under the session, by its own clock.
func (m *machine) opens() bool { return m.s != nil && m.s.Open(m.clock()) }

// works says whether work goes on under the session.
func (m *machine) works() bool {
	works := false
	m.each(func(t *machine) { works = works || t.h != nil && !t.done })
	return works
}

// each visits the acquires and leases under a session.
func (m *machine) each(do func(*machine)) {
	for _, p := range m.on.procs {
		for _, t := range slices.Clone(p.machines) {
			if t.under == m {
				do(t)
			}
		}
	}
}

// releasesOrphan begins to drive what is to release a lock that the session does not hold.
func (m *machine) releasesOrphan(d *protocol.OrphanReleaser) {
	for _, p := range m.on.procs {
		if p.l.key == d.Key() {
			t := p.newMachine(denying, m.id+"/not-"+d.Key()+"-", d)
			t.under = m
			p.w.note("%s does not know of %s", m, d.Key())
			t.step()
		}
	}
}

// wakes steps another machine of the process.
func (m *machine) wakes(other protocol.Machine) {
	all := []*machine{m.p.session, m.under}
	for _, p := range m.on.procs {
		all = append(append(all, p.observer), p.machines...)
	}
	i := slices.IndexFunc(all, func(o *machine) bool { return o != nil && o.is == other })
	if i < 0 {
		return
	}
	if o := all[i]; o.under != nil && o.h != nil && len(o.h.SessionRequests()) > 0 {
		m.p.w.tally.Of[Delivered]++
	}
	all[i].step()
}

// sessionEnded says whether the session that a record names is closed, or was never opened.
func (w *World) sessionEnded(id string) bool {
	s := w.storeOf(driver.SessionKey(id))
	return !s.found || s.rec.State == driver.Closed || w.engine.ofFormerLife(s.key)
}

// wroteSession judges what a write has made of a session's record.
func (l *lock) wroteSession(m *machine, r *protocol.Call, before store, s *store) {
	was, is, by := before.rec, s.rec, l.written[r.Next.Version]
	if r.Kind == protocol.Delete {
		if before.found {
			l.tally.Of[Swept]++
		}
		if before.found && was.State != driver.Closed && !l.engine.ofFormerLife(r.Key) {
			l.fail("%s deletes session %s, which is %s", m, r.Key, was.State)
		}
		return
	}
	l.judgeSession(m, r, before, is)
	l.only(m, r, was, is)
	l.carried(m, r, was, is)
	for _, q := range is.Requests {
		if r.Kind == protocol.Heartbeat && !slices.Contains(was.Requests, q) {
			l.fail("%s writes a request into its own session: %+v", m, q)
		}
	}
	if is.State == driver.Closed {
		s.closed, s.since = is.End, l.now
	}
	if is.Beat != was.Beat {
		if m.role != relaying && (by.by != m || m.role != opening) {
			l.fail("%v of %s changes the beat of session %s", r.Kind, m, r.Key)
		}
		s.beats++
		l.beaten(is.Beat, s.beats)
		m.applied = max(m.applied, by.hold)
	}
}

// judgeSession judges whether a session's record may be written, by what it was.
func (l *lock) judgeSession(m *machine, r *protocol.Call, before store, is driver.Record) {
	was := before.rec
	switch {
	case before.found && was.State == driver.Closed:
		l.fail("%v of %s changes a closed session", r.Kind, m)
	case r.Kind == protocol.Claim && (before.found || before.deleted):
		l.fail("%s opens session %s a second time", m, r.Key)
	case r.Kind == protocol.Release && m.epoch == m.on.epoch && m.works():
		l.fail("%s closes its session while work goes on", m)
	case r.Kind == protocol.Request:
		l.askedSession(m, is.Requests[len(is.Requests)-1], was)
	case r.Kind == protocol.ForceRelease:
		l.stood(m, r, was, l.beat(was.Beat).stored)
		l.tally.Of[ClosedByOthers]++
	}
}

// askedSession judges a request that was written into a session's record.
func (l *lock) askedSession(m *machine, q driver.Request, was driver.Record) {
	switch {
	case q.Kind == driver.Confirm:
		if m.role == asking || q.By != m.owner() || q.Lock != l.key {
			l.fail("%s asks session %s: %+v", m, was.Key, q)
		}
		return
	case q.Lock != l.key || q.Token == 0:
		l.fail("%s asks session %s for %q under token %d", m, was.Key, q.Lock, q.Token)
	case slices.ContainsFunc(was.Requests, func(o driver.Request) bool {
		return o.Kind != driver.Confirm && o.Lock == q.Lock && o.Token == q.Token
	}):
		l.fail("%s asks session %s a second time for token %d", m, was.Key, q.Token)
	}
	if rec := l.store.rec; rec.Token == q.Token && rec.Session == driver.SessionID(was.Key) && m.life == l.life {
		l.asked(m, q, rec)
	} else {
		l.delivered[q.ID] = true // it came too late, or was for a deleted record
	}
	l.tally.Of[Carried]++
}

// sweep has a process clear a session now and then, of all that have a record.
func (h *host) sweep() bool {
	w, p := h.w, h.procs[0]
	var ids []string
	for key, s := range w.stores {
		if id, session := strings.CutPrefix(key, driver.SessionPrefix); session && s.found {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if !w.final && h.up && w.now >= h.paused && len(ids) > 0 {
		id := ids[w.src.IntN(len(ids))]
		m := p.newMachine(clearing, h.name+"/reaper", protocol.NewReaper(h.t, w.env(h), id, h.sessionView(id)))
		w.note("%s is to clear session %s", m, id)
		m.step()
	}
	return !w.final
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

// judgeOrphan judges that no acquire is refused for what its own session holds without
// knowing: no other process would ever ask about that. What the acquire has released since is
// held no more: a late claim of its own may show it that another holder had come before.
func (l *lock) judgeOrphan(m *machine, r *protocol.Refusal) {
	rec := r.Record
	own := r.Held && m.under != nil && rec.State == driver.Held && rec.Session == m.under.s.ID() &&
		rec.Version == l.store.rec.Version
	if own && !l.known(m.under, rec) && l.engine == nil {
		l.fail("%s is refused for a lock that its own session has, though nothing under it knows of: %s", m, shown(rec))
	}
}

// checkOrphan checks that a lock which a living session holds without knowing is free in
// time when the faults are over. Acquires that wait ask the session; acquires that only
// try do not, and a try under the same session finds it at once.
func (l *lock) checkOrphan() {
	rec := l.store.rec
	if !l.final || !l.cfg.Trying {
		return
	}
	i := slices.IndexFunc(l.hosts, func(h *host) bool {
		return h.session != nil && h.session.opens() && h.session.s.ID() == rec.Session
	})
	if i < 0 || rec.State != driver.Held || l.known(l.hosts[i].session, rec) {
		l.haunted = ""
		return
	}
	if l.haunted != rec.Beat {
		l.haunted, l.hauntedSince = rec.Beat, l.now
	}
	// A user comes by in less than that: see act. And four calls: a claim, a release, a
	// claim, or a read before them.
	t := l.most
	most := l.slow(t.Lease + 4*t.RequestTimeout)
	if stood := l.now - l.hauntedSince; stood > most {
		l.fail("%s is held in the name of %s for %v, and nothing under it knows of that: %s",
			l.key, l.hosts[i].session, stood, shown(rec))
	}
}
