// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// observes has a process observe the lock for a while, now and then, without waiting
// for it. A hint comes at random.
func (p *process) observes() bool {
	l := p.l
	if !p.up || l.now < p.paused || p.observer != nil {
		return true
	}
	v := protocol.NewObserver(p.t, l.env(p.host), l.key, p.view)
	v.Want(true)
	m := p.newMachine(observing, p.name+"/"+l.key+"sees", v)
	p.observer = m
	l.note("%s observes", m)
	m.hint()
	if !l.final {
		m.after(l.upTo(8*l.t.Lease), func() {
			if p.observer == m && !l.final {
				l.note("%s has seen enough", m)
				p.observer = nil
				m.took(m.is.GiveUp(m.now()))
			}
		})
	}
	return true
}

// hint has an observer poll now, as a store with a watch does.
func (m *machine) hint() {
	if m.p.observer != m {
		return
	}
	m.p.hinted = true
	m.took(m.is.(*protocol.Observer).Hint(m.now()))
	if l := m.l; !l.final {
		m.after(l.upTo(4*l.t.Lease), m.hint)
	}
}

// looks judges that an observer pauses after each poll, unless a hint or an eventual read
// of this process is followed by a strong one.
func (m *machine) looks(call *protocol.Call) {
	now := m.now()
	if m.role != observing || call.OfSession() {
		return
	}
	if m.polled > 0 && call.Consistency != driver.Strong && now < m.polled+m.p.t.MinPollInterval() {
		m.l.fail("%s polls %v after its previous poll", m, now-m.polled)
	}
	m.polled = now
}

// saw judges that what an observer sees of the lock does not go back. After a
// deletion the tokens begin again.
func (m *machine) saw() {
	rec, found := m.p.view.Record()
	if !found || m.l.cfg.Deletions || m.l.engine != nil {
		return
	}
	if rec.Token < m.seen {
		m.l.fail("%s goes back from token %d to %d", m, m.seen, rec.Token)
	}
	m.seen = rec.Token
}

// checkObservers checks, when the faults have been over for long, that the observers
// know the holder of the lock.
func (l *lock) checkObservers() {
	for _, p := range l.procs {
		m := p.observer
		if m == nil || !p.up || l.now < p.paused || m.epoch != p.epoch {
			continue
		}
		rec, _ := p.view.Record()
		is := l.store.rec.Token
		most := 3 * l.most.Lease
		if p.view.UnderSession() {
			most += l.most.Refresh // its session lives, and nothing else says when to poll
		}
		if t := l.terms[is]; t != nil && rec.Token != is && l.now-t.sent > most && l.now-max(l.healed, m.begun) > most {
			l.fail("%s sees token %d, %v after token %d was claimed", m, rec.Token, l.now-t.sent, is)
		}
	}
}

// notifies has notifications come, at random and without a reason, as those do that are
// late, doubled or forged. They tell contenders that the lock is free, and its holder, or the
// session of it, that a request is in the record.
func (l *lock) notifies() bool {
	for _, p := range l.procs {
		if !p.up || l.now < p.paused {
			continue
		}
		for _, m := range slices.Clone(p.machines) {
			switch {
			case m.epoch != p.epoch || !l.one(2):
			case m.h != nil && m.done, m.h == nil && (m.c == nil || m.c.Over()):
			case m.h == nil:
				l.tally.Of[Notified]++
				l.note("%s is notified", m)
				m.took(m.c.Hint(p.cont.at(l.now)))
			case m.under != nil:
				if s := m.under; s.s != nil && !s.s.Over() {
					l.tally.Of[Hurried]++
					s.took(s.s.Renew(s.clock()))
				}
			default:
				l.tally.Of[Hurried]++
				l.note("%s sees a request", m)
				m.took(m.h.Renew(m.clock()))
			}
		}
	}
	return !l.final
}
