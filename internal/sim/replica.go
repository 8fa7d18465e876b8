// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// What a replica of a lock service does for clients: what the library does behind its door
// for holders elsewhere, with the same machines. It keeps nothing that matters.

// replicas returns those of the lock's processes that serve clients.
func (l *lock) replicas() []*process { return l.procs[len(l.procs)-l.cfg.Replicas:] }

// serving returns a new machine that does something for a client.
func (p *process) serving(cn *conn, what string) *machine {
	l := p.l
	l.count++
	m := &machine{p: p, epoch: p.epoch, life: l.life, id: fmt.Sprintf("%s/%s/%s%d", p.name, cn.v, what, l.count), begun: l.now, conn: cn, judged: newJudged()}
	p.machines = append(p.machines, m)
	return m
}

// admits carries out an acquire. The contender runs while the client waits for the answer.
func (p *process) admits(cn *conn, wait time.Duration) {
	l := p.l
	if cn.ended {
		return // it was read too late
	}
	m := p.serving(cn, "acquire")
	p.acquires++
	m.acquire = p.acquires
	want := protocol.Want{
		Key: l.key, Owner: m.owner(), Label: m.label(), Try: wait == 0, Holds: true, Behind: wait > 0 && l.one(4), Patience: p.t.Lease,
	}
	if want.Try {
		want.Patience = 3 * p.t.RequestTimeout
	}
	m.c = protocol.NewContender(p.t, l.env(p.host), want, p.sight)
	m.took(m.c.Step(p.cont.at(l.now)))
	cn.gone = m.leave
	if wait > 0 {
		p.after(m, wait, func() {
			if !m.left && !m.done {
				cn.answer(reply{status: isHeld})
				cn.end()
			}
		})
	}
}

// refuses tells a client that it does not get the lock.
func (m *machine) refuses() {
	if m.conn == nil {
		return
	}
	r := m.c.Refused()
	is := reply{status: unknown}
	if r.Held {
		is.status = isHeld
	}
	m.conn.answer(is)
}

// granting is the answer to an acquire that got the lock.
func (p *process) granting(rec driver.Record) reply {
	return reply{status: okay, rec: rec, period: p.t.Heartbeat, usable: p.t.UsableOf(rec)}
}

// offers tells a client of a grant, and frees the lock if that shows no life.
func (m *machine) offers(g protocol.Grant) {
	l, p, cn := m.p.l, m.p, m.conn
	l.note("%s is granted %s for %s", m, shown(g.Record), cn.v)
	m.counts(g)
	l.granted(m, g)
	m.done = true
	m.sleep()
	m.chronicle(g)
	o := p.serving(cn, "offer")
	o.f = protocol.NewOffer(p.t, l.env(p.host), g)
	p.lately, p.offers[g.Record.Token] = g.Record, o
	l.offered(o, g.Record)
	cn.gone = nil
	if !cn.open && !cn.mute && (cn.ended || l.one(2)) { // the answer cannot be written
		o.took(o.f.GiveUp(p.cont.at(l.now)))
		return
	}
	cn.answer(p.granting(g.Record))
	o.took(o.f.Step(p.cont.at(l.now)))
}

// relays carries out a heartbeat.
func (p *process) relays(cn *conn, d protocol.Dispatch) {
	l := p.l
	if !protocol.FollowsBeat(d.After, d.Next) {
		l.fail("%s sends beat %q after %q, which is refused", cn.v, d.Next, d.After)
	}
	p.carries(cn, d)
}

// frees carries out a release.
func (p *process) frees(cn *conn, d protocol.Dispatch, failed bool) {
	if failed {
		d.Failed = &driver.Request{By: p.name, Reason: "the work has failed"}
	}
	p.carries(cn, d)
}

func (p *process) carries(cn *conn, d protocol.Dispatch) {
	l := p.l
	m := p.serving(cn, "relay")
	m.of, m.failed = d, d.Failed != nil
	m.r = protocol.NewRelay(p.t, l.env(p.host), d, p.lately, 3*p.t.RequestTimeout)
	cn.gone = func() {
		if !m.left {
			m.took(m.r.GiveUp(p.cont.at(l.now)))
		}
	}
	m.took(m.r.Step(p.cont.at(l.now)))
}

// confirming is the answer to a heartbeat that led to rec.
func (p *process) confirming(rec driver.Record) reply {
	return reply{
		status: okay, usable: max(0, p.t.UsableOf(rec)), period: min(p.t.Heartbeat, rec.Lease/5), asked: protocol.AskedOf(rec),
	}
}

// relayed answers what was carried out, once.
func (m *machine) relayed() {
	l, p := m.p.l, m.p
	answer, rec, _ := m.r.Answer()
	if answer == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	is := reply{status: unknown}
	switch answer {
	case protocol.Done:
		if is = p.confirming(rec); m.of.Releases() {
			is, p.lately = reply{status: okay}, driver.Record{}
		} else {
			p.lately = rec
		}
		if o := p.offers[m.of.Token]; o != nil {
			delete(p.offers, m.of.Token)
			o.f.Taken()
			o.sleep()
		}
	case protocol.Changed:
		p.lately = driver.Record{}
		is.status = isLost
		l.judgeLost(m.conn, m.of)
	}
	m.conn.answer(is)
}
