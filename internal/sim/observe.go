// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// observed is what an observer of a lock was told of it.
type observed struct {
	token  uint64
	asked  time.Duration // when the latest look was sent, by the contender's clock
	looked bool
}

// observes has a process observe the lock for a while, now and then, without waiting
// for it. A hint comes at random.
func (p *process) observes() {
	l := p.l
	if p.up && l.now >= p.paused && p.observer == nil {
		l.count++
		m := &machine{p: p, epoch: p.epoch, life: l.life, begun: l.now, id: fmt.Sprintf("%s/%ssees%d", p.name, l.key, l.count), judged: newJudged()}
		m.v = protocol.NewObserver(p.t, l.env(p.host), l.key, p.sight)
		p.observer = m
		m.v.Want(true)
		l.note("%s observes", m)
		m.hint()
		if !l.final {
			p.after(m, l.upTo(8*l.t.Lease), m.look)
		}
	}
	l.after(l.t.Lease/2+l.upTo(4*l.t.Lease), p.observes)
}

// hint has an observer look now, as a store with a watch does.
func (m *machine) hint() {
	if m.p.observer != m {
		return
	}
	m.p.hinted = true
	m.took(m.v.Hint(m.p.cont.at(m.p.l.now)))
	if l := m.p.l; !l.final {
		m.p.after(m, l.upTo(4*l.t.Lease), m.hint)
	}
}

// look ends the observing.
func (m *machine) look() {
	if m.p.observer == m && !m.p.l.final {
		m.p.l.note("%s has seen enough", m)
		m.p.observer = nil
		m.took(m.v.GiveUp(m.p.cont.at(m.p.l.now)))
	}
}

// asks judges that an observer rests after each look, unless a hint or a cheap look of this
// process has a strong one follow.
func (m *machine) asks(call *protocol.Call) {
	l, now := m.p.l, m.p.cont.at(m.p.l.now)
	if call.OfSession() {
		return
	}
	if m.seen.looked && call.Consistency != driver.Strong && now < m.seen.asked+m.p.t.Pause() {
		l.fail("%s looks %v after its look before", m, now-m.seen.asked)
	}
	m.seen.looked, m.seen.asked = true, now
}

// saw judges that what an observer sees of the lock does not go back. After a
// deletion the tokens begin again.
func (m *machine) saw() {
	rec, found := m.p.sight.Record()
	if !found || m.p.l.cfg.Deletions {
		return
	}
	if rec.Token < m.seen.token {
		m.p.l.fail("%s goes back from token %d to %d", m, m.seen.token, rec.Token)
	}
	m.seen.token = rec.Token
}

// checkObservers checks, when the faults have been over for long, that the observers
// know the holder of the lock.
func (l *lock) checkObservers() {
	if l.violation != "" {
		return
	}
	for _, p := range l.procs {
		m := p.observer
		if m == nil || !p.up || l.now < p.paused || m.epoch != p.epoch {
			continue
		}
		rec, _ := p.sight.Record()
		is := l.store.rec.Token
		most := 3 * l.slowest().Lease
		if p.sight.Tied() {
			most += l.slowest().Refresh // its session lives, and nothing else says when to look
		}
		if t := l.tenures[is]; t != nil && rec.Token != is && l.now-t.sent > most && l.now-max(l.healed, m.begun) > most {
			l.fail("%s sees token %d, %v after token %d was claimed", m, rec.Token, l.now-t.sent, is)
		}
	}
}
