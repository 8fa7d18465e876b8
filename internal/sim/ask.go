// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// meddle is what operators do now and then: ask the holder to make way for some owner, or
// release its lock.
func (p *process) meddle() bool {
	l := p.l
	if l.final {
		return false
	}
	if p.up && l.now >= p.paused {
		q := driver.Request{Kind: driver.StepDown}
		switch l.src.IntN(8) {
		case 0, 1, 2:
			q.Kind, q.To = driver.HandOver, "absent" // who never comes
			if n := l.src.IntN(len(l.hosts) + 1); n < len(l.hosts) {
				q.To = l.hosts[n].name
			}
			if l.cfg.Labels && l.one(2) {
				q.To, q.ToLabel = "", versions[1+l.src.IntN(len(versions)-1)]
			}
		case 3:
			q.Kind = driver.ReleaseDead
		case 4:
			q.Kind = driver.Revoke
		}
		p.ask(q)
	}
	return true
}

// ask makes a process send a request to the holder of the lock.
func (p *process) ask(q driver.Request) {
	l := p.l
	patience := time.Duration(0)
	if l.one(4) {
		patience = l.t.Lease / 2
	}
	q.By = p.name
	k := protocol.NewRequester(p.t, l.env(p.host), l.key, q, patience, p.view)
	m := p.newMachine(asking, p.name+"/"+l.key+"ask", k)
	m.want = q
	p.machines = append(p.machines, m)
	l.note("%s asks to %s %s%s", m, q.Kind, q.To, q.ToLabel)
	m.step()
	if !l.final && l.one(4) {
		m.after(l.upTo(l.t.Lease), m.forget)
	}
}

// forget gives the requester up. A written request stays.
func (m *machine) forget() {
	if !m.left { // not answered
		m.took(m.is.GiveUp(m.now()))
	}
}

// wishes judges that a process asks for priority at most once in a lease,
// but for a request that was certainly not written.
func (m *machine) wishes() {
	l, p := m.l, m.p
	now := p.cont.at(l.now)
	if p.wished > 0 && p.wish > 0 && now < p.wish+m.timing.Lease {
		l.fail("%s asks for priority %v after it has", m, now-p.wish)
	}
	p.wished++
	p.wish = now
}

var answers = [...]string{
	"none", "delivered", "done", "no holder", "changed", "pending",
	"foreign", "alive", "self", "unusable", "abandoned", "under a session",
}

// told notes and judges the answer that a requester got, once.
func (m *machine) told(k *protocol.Requester) {
	a, rec, _ := k.Answer()
	if a == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	m.l.note("%s is answered: %s", m, answers[a])
	if m.life != m.l.life || m.l.engine != nil {
		return // the tokens have begun again, or what was true is lost
	}
	if before := k.Before(); a == protocol.Done && before != nil {
		m.l.owe(m, before.Token)
		m.write(*before, protocol.Machine.Step)
	}
	token := k.Token()
	if !m.l.isTrue(m, a, token, rec) {
		m.l.fail("%s is answered %q: token %d", m, answers[a], token)
	}
}

// isTrue reports whether a requester's answer is true. The view is shared, so that the
// term need not be the first that the process saw.
func (l *lock) isTrue(m *machine, a protocol.Answer, token uint64, rec driver.Record) bool {
	t := cmp.Or(l.terms[token], &term{})
	gone := token == 0 || t.end != "" || t.session != "" && l.sessionEnded(t.session)
	beats := max(t.beats, l.storeOf(driver.SessionKey(t.session)).beats) // none without a session
	switch a {
	case protocol.Delivered:
		return l.delivered[m.request]
	case protocol.OtherPending:
		return len(rec.Requests) > 0 && rec.Requests[0].ID != m.request
	case protocol.Done, protocol.NoHolder, protocol.HolderChanged:
		return gone
	case protocol.Alive:
		return gone || beats > 1
	case protocol.Self:
		return t.owner != "" && l.isReservedFor(m.want.To, m.want.ToLabel, t.owner)
	case protocol.UnderSession:
		return t.session != "" && m.want.Kind == driver.Revoke
	case protocol.Unusable, protocol.Abandoned:
		return true
	}
	return false
}

// asked judges a request to the holder that a lock's record shows.
func (l *lock) asked(m *machine, q driver.Request, was driver.Record) {
	if q.By != m.owner() {
		l.fail("%s asks in the name of %s", m, q.By)
	}
	l.delivered[q.ID] = true
	l.heeds(was.Token)
	if t := l.terms[was.Token]; t != nil {
		t.request.id, t.request.at = q.ID, l.now
		t.request.honoured = q.Kind == driver.StepDown || q.Kind == driver.HandOver
	}
	if m.role == asking {
		return
	}
	if q.Kind != driver.HandOver || q.To != m.p.name || was.Priority >= m.p.priority {
		l.fail("%s with priority %d asks one with %d to %s to %q", m, m.p.priority, was.Priority, q.Kind, q.To)
	}
}

// heeds checks, where nothing fails, that the holder of a token makes way in time for a
// request that is written now: the next heartbeat of the holder or of its session finds
// it, and then the work has its time to stop.
func (l *lock) heeds(token uint64) {
	a, life := l.actorOf(token), l.life
	if l.cfg.Faults || a == nil {
		return // no process believes yet that it holds the lock: see believes
	}
	m, _ := a.(*machine)
	v, _ := a.(*visit)
	told, released := l.heedsWithin(m)
	holds := func() bool {
		is := l.store.rec
		return l.life == life && !l.final && is.State == driver.Held && is.Token == token
	}
	l.after(told+1, func() {
		switch {
		case !holds():
		case m != nil && m.h.Cause() == protocol.None && !m.done:
			l.fail("a request has been written for %v and is not honoured by %s", told, m)
		case v != nil && v.stage == visitHolds && v.asked == nil:
			l.fail("a request has been written for %v, and %s is not told", told, v)
		}
	})
	l.after(released+1, func() {
		if holds() && l.terms[token].prompt {
			l.fail("a request has been written for %v and is not honoured", released)
		}
	})
}

// heedsWithin returns after how long a holder must know of a request, and have made way.
func (l *lock) heedsWithin(m *machine) (told, released time.Duration) {
	t := l.most
	if m == nil { // a client
		told = l.slow(t.Heartbeat + 4*t.RequestTimeout)
		return told, 2*told + l.t.Lease
	}
	if t = m.timing; m.under != nil {
		t = m.under.timing
	}
	told = l.slow(t.Heartbeat + 3*t.RequestTimeout)
	return told, told + l.t.Lease
}

// actorOf returns the actor under a token, or nil.
func (l *lock) actorOf(token uint64) actor {
	for a := range l.actors {
		if a.stands().life == l.life && a.token() == token {
			return a
		}
	}
	return nil
}
