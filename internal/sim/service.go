// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// come has a client acquire a lock now and then, if it is not about that already. A client is
// a host as processes are.
func (h *host) come(l *lock) bool {
	busy := slices.ContainsFunc(h.visits, func(v *visit) bool { return v.l == l })
	if h.up && l.now >= h.paused && !busy {
		v := &visit{standing: l.standing(h, h.name+"/"+l.key)}
		h.visits, l.visits = append(h.visits, v), append(l.visits, v)
		v.acquire()
	}
	return true
}

// status is how a call of a client was answered.
type status string

const (
	unheardOf  status = "not answered" // by anybody: lost, or no answer of ours
	badGateway status = "502"          // by a proxy on the way
	okay       status = "200"
	isHeld     status = "held"    // 409
	isLost     status = "lost"    // 410
	unknown    status = "unknown" // 503
)

// reply is the answer to a call of a client.
type reply struct {
	status status
	rec    driver.Record   // of a grant only: only the client learns a beat
	usable time.Duration   // for how long a client may act
	period time.Duration   // in which to renew
	asked  *driver.Request // what the holder is asked

	requests []driver.Request // of a session
}

// conn is one call of a client on its way to a replica, and its connection.
type conn struct {
	v    *visit
	p    *process // of the replica
	what string
	do   func(*conn)
	then func(reply)
	back time.Duration // that the answer needs

	began time.Duration // an acquire, by the replica's clock
	open  bool          // the client waits for the answer
	mute  bool          // the answer does not reach it
	ended bool          // the replica knows that the client no longer waits
	gone  func()        // what it does then, if that is not nil
}

// calls sends a call to a replica. The client waits for the answer for as long as limit,
// and then gives it up.
func (v *visit) calls(what string, limit time.Duration, do func(*conn), then func(reply)) {
	w, op := v.l.World, v.op
	cn := &conn{v: v, p: v.replica(), what: what, do: do, open: true}
	cn.then = func(r reply) {
		if v.op == op && v.stage < visitOver {
			then(r)
		}
	}
	v.conn = cn
	most := w.cfg.Latency / 8
	if w.fails(Messages) {
		most = w.cfg.Latency / 2
	}
	there := w.upTo(most)
	if cn.back = w.upTo(most); w.one(2) {
		there, cn.back = there/64, cn.back/64
	}
	w.note("%s calls %s: %s", v, cn.p.name, what)
	switch w.fate(w.now < v.on.cutOff, &ofReplica) {
	case repeated:
		cn.again(0, 3*w.t.Lease)
		fallthrough
	case answered:
		w.after(there, cn.arrives)
	case lost:
	case unanswered:
		cn.mute = true
		w.after(there, cn.arrives)
	case refused: // by a proxy, whether or not it is carried out, before or after
		cn.mute = true
		w.after(w.upTo(2*limit), cn.arrives)
		w.after(w.upTo(limit), func() { cn.tells(reply{status: badGateway}) })
	case delayed:
		cn.again(limit, 3*w.t.Lease)
	}
	v.after(limit, func() {
		if cn.open {
			cn.hangUp()
			cn.then(reply{status: unheardOf})
		}
	})
}

// again has a duplicate of the call carried out, by any replica, after from and before
// from + to.
func (cn *conn) again(from, to time.Duration) {
	w := cn.v.l.World
	by := cn.v.l.replicas()[w.src.IntN(w.cfg.Replicas)]
	copied := &conn{v: cn.v, p: by, what: cn.what, do: cn.do, then: func(reply) {}, mute: true}
	w.onceMore(from, to, func() {
		w.tally.Of[Replayed]++
		copied.arrives()
	})
}

// arrives has the replica carry the call out. A crashed replica refuses it, and a paused
// replica reads it when it wakes up.
func (cn *conn) arrives() {
	if !cn.p.up {
		cn.answer(reply{status: unheardOf})
		return
	}
	cn.p.later(cn.p.epoch, 0, func() {
		cn.v.l.note("%s does: %s of %s", cn.p.name, cn.what, cn.v)
		cn.do(cn)
	})
}

// answer carries the answer back.
func (cn *conn) answer(r reply) {
	if !cn.mute {
		cn.v.l.after(cn.back, func() { cn.tells(r) })
	}
}

// tells hands the answer to the client, if it waits for that.
func (cn *conn) tells(r reply) {
	v := cn.v
	v.after(0, func() {
		if cn.open {
			cn.open = false
			v.l.note("%s is answered to %s: %s %v", v, cn.what, r.status, r.usable)
			cn.then(r)
		}
	})
}

// hangUp ends the waiting for an answer. The replica may learn of it, and so it does when
// nothing fails.
func (cn *conn) hangUp() {
	w := cn.v.l.World
	if !cn.open {
		return
	}
	cn.open = false
	if w.fails(Messages) && w.one(4) {
		return // half open
	}
	cn.p.later(cn.p.epoch, w.upTo(w.cfg.Latency), cn.end)
}

// end tells the replica that the client no longer waits for the answer.
func (cn *conn) end() {
	if cn.ended = true; cn.gone != nil {
		cn.gone()
	}
}

// replicas returns those of the lock's processes that serve clients: what the library does for
// holders elsewhere, with the same machines. They keep nothing that matters.
func (l *lock) replicas() []*process { return l.procs[len(l.procs)-l.cfg.Replicas:] }

// serving returns a new machine that does something for a client.
func (p *process) serving(cn *conn, role phase, what string, is protocol.Machine) *machine {
	m := p.newMachine(role, p.name+"/"+cn.v.id+"/"+what, is)
	m.conn = cn
	return m
}

// admits carries out an acquire. The contender runs while the client waits for the answer.
func (p *process) admits(cn *conn, wait time.Duration) {
	l := p.l
	if cn.ended {
		return // it was read too late
	}
	m := p.serving(cn, waiting, "acquire", nil)
	cn.began = m.now()
	want := protocol.Want{
		Key: l.key, Owner: m.owner(), Label: l.labelOf(m.owner()), Holds: true,
		Try: wait == 0, ViewFresh: wait > 0 && l.one(4), Patience: p.t.Lease, Drift: cn.v.on.bound,
	}
	if want.Try {
		want.Patience = 3 * p.t.RequestTimeout
	}
	m.contends(want)
	m.step()
	cn.gone = m.leave
	if wait > 0 {
		m.after(wait, func() {
			if !m.left && !m.done {
				cn.answer(reply{status: isHeld})
				cn.end()
			}
		})
	}
}

// offers tells a client of a grant, and frees the lock if that shows no life. Between the two the
// replica may stand still.
func (m *machine) offers(g protocol.Grant) {
	l, p, cn := m.l, m.p, m.conn
	l.note("%s is granted %s for %s", m, shown(g.Record), cn.v)
	l.granted(m, g)
	m.done = true
	m.sleep()
	m.writeHistory(g)
	o := p.serving(cn, offering, "offer", protocol.NewUnconfirmedGrant(p.t, l.env(p.host), g))
	p.machines = append(p.machines, o)
	p.recordCache, p.offers[g.Record.Token] = g.Record, o
	l.offered(o, g.Record)
	cn.gone = nil
	if !l.fails(Pauses) || !l.one(8) {
		o.hands(g)
		return
	}
	o.step()
	o.after(l.upTo(l.t.Lease/2), func() { o.hands(g) })
}

// hands sends a grant to the client, which may count it if the machine says so. Package engine lets
// no acquire count that has waited; here the time alone decides. Then the lock is not freed, even if
// the sending fails.
func (m *machine) hands(g protocol.Grant) {
	l, cn, is := m.l, m.conn, m.is.(*protocol.UnconfirmedGrant)
	if !cn.open && !cn.mute && (cn.ended || l.one(2)) { // the answer cannot be written
		m.took(is.GiveUp(m.now()))
		return
	}
	usable := is.Counts(m.now(), m.now()-cn.began)
	m.keeps = usable > 0
	if l.fails(Messages) && l.one(8) {
		cn.back += l.upTo(l.t.Lease / 2)
	}
	cn.answer(reply{status: okay, rec: g.Record, usable: usable, period: m.p.t.HeartbeatOf(g.Record)})
	m.step()
}

// relays carries out a heartbeat, or a release.
func (p *process) relays(cn *conn, d protocol.RemoteHeartbeat) {
	l, role := p.l, relaying
	switch {
	case d.Releases():
		role = parting
		if cn.v.failed {
			d.Failed = &driver.Request{By: p.name, Reason: "the work has failed"}
		}
	case !protocol.FollowsBeat(d.After, d.Next):
		l.fail("%s sends beat %q after %q, which is refused", cn.v, d.Next, d.After)
	}
	cached := p.recordCache
	if d.Key != l.key {
		cached = driver.Record{}
	}
	d.Of = l.asksOf(d)
	m := p.serving(cn, role, "relay", protocol.NewRemoteWrite(p.t, l.env(p.host), d, cached, 3*p.t.RequestTimeout))
	p.machines = append(p.machines, m)
	m.of, m.failed = d, d.Failed != nil
	cn.gone = m.forget
	m.step()
}

// relayed answers what was carried out, once.
func (m *machine) relayed(r *protocol.RemoteWrite) {
	l, p := m.l, m.p
	answer, rec, _ := r.Answer()
	if answer == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	is := reply{status: unknown}
	switch answer {
	case protocol.Done:
		is.status = okay
		if !m.of.Releases() {
			is.usable, is.period = max(0, p.t.UsableOf(rec)), p.t.HeartbeatOf(rec)
			is.asked, is.requests = protocol.AskedOf(rec), protocol.SessionRequests(rec)
		}
		if m.of.Key != l.key {
			break
		}
		if p.recordCache = rec; m.of.Releases() {
			p.recordCache = driver.Record{}
		}
		if o := p.offers[m.of.Token]; o != nil {
			grant := o.is.(*protocol.UnconfirmedGrant)
			if grant.Taken(m.of.After); grant.Over() {
				delete(p.offers, m.of.Token)
				o.sleep()
			}
		}
	case protocol.HolderChanged:
		p.recordCache = driver.Record{}
		is.status = isLost
		l.judgeLost(m.conn, m.of)
	}
	m.conn.answer(is)
}
