// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// status is how a call of a client was answered.
type status int

const (
	unheardOf  status = iota // by nobody: lost, or no answer of ours
	badGateway               // 502, by a proxy on the way
	okay
	isHeld  // 409
	isLost  // 410
	unknown // 503
)

var statuses = [...]string{"not answered", "502", "200", "held", "lost", "unknown"}

// reply is the answer to a call of a client.
type reply struct {
	status status
	rec    driver.Record   // of a grant, and of nothing else: a beat is told to its client alone
	usable time.Duration   // for how long a client may act
	period time.Duration   // in which to renew
	asked  *driver.Request // what the holder is asked
}

// conn is one call of a client on its way to a replica, and its connection.
type conn struct {
	v    *visit
	p    *process // of the replica
	what string
	do   func(*conn)
	then func(reply)
	back time.Duration // that the answer needs

	open  bool   // the client waits for the answer
	mute  bool   // the answer does not reach it
	ended bool   // the replica knows that nobody waits any more
	gone  func() // what it does then, if that is not nil
}

// passage is what becomes of a call between a client and a replica.
type passage int

const (
	arrives      passage = iota
	arrivesAgain         // and once more, whenever
	getsLost             // on its way there
	losesAnswer          // carried out, and the answer is lost
	atGateway            // a proxy answers 502, whether or not it is carried out, before or after
	arrivesLate          // long after the client has given it up
	manyArrivals = 16
)

func (c *client) passage() passage {
	w := c.w
	switch {
	case !w.cfg.Faults || w.final:
		return arrives
	case w.now < c.cutOff:
		return [...]passage{getsLost, losesAnswer, arrivesLate}[w.src.Intn(3)]
	case !w.fails(Messages):
		return arrives
	case w.cfg.Rough && w.one(2):
		return [...]passage{arrivesAgain, arrivesLate}[w.src.Intn(2)]
	}
	return [manyArrivals]passage{
		arrives, arrives, arrives, arrives, arrives, arrives, arrives, arrives,
		arrivesAgain, arrivesAgain, getsLost, losesAnswer, losesAnswer, atGateway, atGateway, arrivesLate,
	}[w.src.Intn(manyArrivals)]
}

// calls sends a call to a replica. The client waits for the answer for as long as limit,
// and then learns that there is none.
func (v *visit) calls(what string, limit time.Duration, do func(*conn), then func(reply)) *conn {
	w := v.l.World
	cn := &conn{v: v, p: v.replica(), what: what, do: do, then: then, open: true}
	most := w.cfg.Latency / 8
	if w.fails(Messages) {
		most = w.cfg.Latency / 2
	}
	there := w.upTo(most)
	if cn.back = w.upTo(most); w.one(2) {
		there, cn.back = there/64, cn.back/64
	}
	w.note("%s calls %s: %s", v, cn.p.name, what)
	switch v.c.passage() {
	case arrivesAgain:
		cn.again(0, 3*w.t.Lease)
		fallthrough
	case arrives:
		w.after(there, cn.arrives)
	case getsLost:
	case losesAnswer:
		cn.mute = true
		w.after(there, cn.arrives)
	case atGateway:
		cn.mute = true
		w.after(w.upTo(2*limit), cn.arrives)
		w.after(w.upTo(limit), func() { cn.tells(reply{status: badGateway}) })
	case arrivesLate:
		cn.again(limit, 3*w.t.Lease)
	}
	v.after(limit, func() {
		if cn.open {
			cn.hangUp()
			then(reply{})
		}
	})
	return cn
}

// again has a copy of the call carried out for nobody, by any replica, after from and
// before from + to.
func (cn *conn) again(from, to time.Duration) {
	w := cn.v.l.World
	copied := &conn{v: cn.v, p: cn.v.anyReplica(), what: cn.what, do: cn.do, then: func(reply) {}, mute: true}
	w.onceMore(from, to, func() {
		w.tally.Replayed++
		copied.arrives()
	})
}

// arrives has the replica carry the call out. One that has crashed refuses it, and one
// that is paused reads it when it wakes up.
func (cn *conn) arrives() {
	if !cn.p.up {
		cn.answer(reply{})
		return
	}
	cn.p.after(nil, 0, func() {
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
			v.l.note("%s is answered to %s: %s %v", v, cn.what, statuses[r.status], r.usable)
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
	cn.p.after(nil, w.upTo(w.cfg.Latency), cn.end)
}

// end tells the replica that nobody waits for the answer any more.
func (cn *conn) end() {
	if cn.ended = true; cn.gone != nil {
		cn.gone()
	}
}
