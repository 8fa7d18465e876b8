// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// absent is an owner that never comes.
const absent = "absent"

// meddle is what the people around a process do now and then: ask the holder to make
// way for some owner, or release the lock in its stead.
func (p *process) meddle() {
	l := p.l
	if l.final {
		return
	}
	if p.up && l.now >= p.paused {
		q := driver.Request{Kind: driver.StepDown}
		switch l.src.Intn(8) {
		case 0, 1, 2:
			q.Kind, q.To = driver.HandOver, absent
			if n := l.src.Intn(l.owners() + 1); n < l.owners() {
				q.To = l.someOwner(n)
			}
			if l.cfg.Labels && l.one(2) {
				q.To, q.ToLabel = "", someLabel(l.src)
			}
		case 3:
			q.Kind = driver.ReleaseDead
		case 4:
			q.Kind = driver.Revoke
		}
		p.ask(q)
	}
	l.after(l.t.Lease/8+l.upTo(4*l.t.Lease), p.meddle)
}

// ask has a process ask something of the holder of the lock.
func (p *process) ask(q driver.Request) {
	l := p.l
	p.asks++
	patience := time.Duration(0)
	if l.one(4) {
		patience = l.t.Lease / 2
	}
	q.By = p.name
	m := &machine{p: p, epoch: p.epoch, life: l.life, id: fmt.Sprintf("%s/%sask%d", p.name, l.key, p.asks), want: q, judged: newJudged()}
	m.k = protocol.NewAsker(p.t, l.env(p.host), l.key, q, patience, p.sight)
	p.machines = append(p.machines, m)
	l.note("%s asks to %s %s%s", m, q.Kind, q.To, q.ToLabel)
	m.took(m.k.Step(p.cont.at(l.now)))
	if !l.final && l.one(4) {
		p.after(m, l.upTo(l.t.Lease), m.forget)
	}
}

// forget gives the asking up. A request that is written stays.
func (m *machine) forget() {
	if a, _, _ := m.k.Answer(); a == protocol.NoAnswer {
		m.took(m.k.GiveUp(m.p.cont.at(m.p.l.now)))
	}
}

// wishes judges that a process asks for priority at most once in a lease,
// but for a request that was certainly not written.
func (m *machine) wishes() {
	l, p := m.p.l, m.p
	now := p.cont.at(l.now)
	if p.wished > 0 && p.wish > 0 && now < p.wish+m.timing().Lease {
		l.fail("%s asks for priority %v after it has", m, now-p.wish)
	}
	p.wished++
	p.wish = now
}

var answers = [...]string{"none", "laid", "done", "nobody", "changed", "pending", "foreign", "alive", "self", "unusable", "abandoned", "under a session"}

// told notes and judges what an asker was answered, once.
func (m *machine) told() {
	l := m.p.l
	a, rec, _ := m.k.Answer()
	if a == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	m.p.l.note("%s is answered: %s", m, answers[a])
	if m.life != l.life {
		return // the tokens have begun again
	}
	if before := m.k.Before(); a == protocol.Done && before != nil {
		l.owe(m, before.Token)
		m.write(*before, (*protocol.Chronicler).Step)
	}
	token := m.k.Token()
	t := l.tenures[token]
	gone := token == 0 || t != nil && (t.end != "" || t.session != "" && l.sessionEnded(t.session))
	life := l.beats[token] > 1 || t != nil && t.session != "" && l.sessionBeats(t.session) > 1
	id := ""
	if len(rec.Requests) > 0 {
		id = rec.Requests[0].ID
	}
	// The sight is shared, so that the tenure need not be the first that the
	// process saw; what an answer claims must be true all the same.
	var right bool
	switch a {
	case protocol.Laid:
		_, right = l.laid[l.ids[m]]
	case protocol.Pending:
		right = id != "" && id != l.ids[m]
	case protocol.Done, protocol.Nobody, protocol.Changed:
		right = gone
	case protocol.Alive:
		right = gone || life
	case protocol.Self:
		right = t != nil && l.heirTo(m.want, t.owner)
	case protocol.Unusable, protocol.Abandoned:
		right = true
	case protocol.Sessioned:
		right = t != nil && t.session != "" && m.want.Kind == driver.Revoke
	}
	if !right {
		l.fail("%s is answered %q: token %d, gone %v", m, answers[a], token, gone)
	}
}

// asked judges a request that was written into the record.
func (l *lock) asked(m *machine, was driver.Record) {
	is := l.store.rec
	q := is.Requests[len(is.Requests)-1]
	if len(was.Requests) > 0 {
		l.fail("%s lays a second request on top of that of %s", m, was.Requests[0].By)
	}
	l.askedOf(m, q, was)
}

// askedOf judges what is asked of the holder that a lock's record shows.
func (l *lock) askedOf(m *machine, q driver.Request, was driver.Record) {
	if q.By != m.owner() {
		l.fail("%s asks in the name of %s", m, q.By)
	}
	l.laid[q.ID] = l.now
	l.askedIn[was.Token] = laid{id: q.ID, at: l.now, honoured: q.Kind == driver.StepDown || q.Kind == driver.HandOver}
	if m.k != nil {
		return
	}
	if q.Kind != driver.HandOver || q.To != m.p.name || was.Priority >= m.p.priority {
		l.fail("%s with priority %d asks one with %d to %s to %q", m, m.p.priority, was.Priority, q.Kind, q.To)
	}
}

// tiedAsk is a request to the holder of a lock that was written into the record of the
// session under which it is.
type tiedAsk struct {
	token uint64
	at    time.Duration
}

// checkTied checks, where nothing fails, that a request reaches the holder through its
// session: a heartbeat finds it.
func (l *lock) checkTied() {
	if l.cfg.Faults || l.final {
		return
	}
	for len(l.tied) > 0 {
		q := l.tied[0]
		for _, p := range l.procs {
			for _, m := range p.machines {
				if m.h == nil || m.under == nil || m.life != l.life || m.done || m.h.Record().Token != q.token || m.h.Cause() != protocol.None {
					continue
				}
				t := m.under.timing()
				most := time.Duration(float64(t.Heartbeat+3*t.RequestTimeout) / (1 - l.cfg.Skew))
				if l.now-q.at <= most {
					return // it and those after it have time
				}
				l.fail("a request through %s is laid for %v, and not honoured by %s", m.under, l.now-q.at, m)
			}
		}
		l.tied = l.tied[1:]
	}
}

// checkRequests sees, where nothing fails, that a request is honoured in time:
// the next heartbeat finds it, the work is left its time, the lock is released.
func (l *lock) checkRequests() {
	l.checkTied()
	rec := l.store.rec
	if l.cfg.Faults || l.final || rec.State != driver.Held || len(rec.Requests) == 0 {
		return
	}
	holder := slices.IndexFunc(l.procs, func(p *process) bool { return p.name == rec.Owner })
	if holder < 0 {
		l.checkHeeds(rec)
		return
	}
	if !l.procs[holder].up {
		return
	}
	since := l.now - l.laid[rec.Requests[0].ID]
	drain := l.t.Lease // see took
	t := l.procs[holder].timingOf(rec.Token)
	most := time.Duration(float64(t.Heartbeat+3*t.RequestTimeout)/(1-l.cfg.Skew)) + drain
	if since > most && l.tenures[rec.Token].prompt {
		l.fail("a request is laid for %v, and not honoured", since)
	}
}
