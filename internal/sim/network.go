// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

var (
	errTimeout = errors.New("request timeout")
	errBusy    = driver.NotApplied(errors.New("busy"))
)

// fate is what the network does to a call.
type fate int

const (
	answered   fate = iota
	repeated        // answered, and applied again later
	refused         // not applied, and the sender is told
	lost            // never applied, and never answered
	unanswered      // applied, but the answer is lost
	delayed         // applied after its sender gave up, perhaps twice
)

// fate draws one, mostly kind unless the store is cut off.
func (w *World) fate(m *machine) fate {
	p := m.p
	switch {
	case m.h == nil && w.now < m.unheard && !w.final:
		return unanswered
	case p.flaky && m.h == nil && m.e == nil:
		return [...]fate{answered, answered, lost, unanswered}[w.src.Intn(4)]
	case !w.cfg.Faults || w.final:
		return answered
	case w.now < w.down || w.now < p.cutOff:
		return lost + fate(w.src.Intn(3))
	case !w.fails(Messages):
		return answered
	case w.cfg.Rough && w.one(2):
		return [...]fate{repeated, delayed}[w.src.Intn(2)]
	}
	return [...]fate{
		answered, answered, answered, answered, answered, answered, answered, answered, answered, answered,
		repeated, refused, lost, unanswered, unanswered, delayed,
	}[w.src.Intn(16)]
}

// claimed is where what applies a claim again is kept: for a client, its visit knows.
func (m *machine) claimed() *func() {
	if m.conn != nil {
		return &m.conn.v.claims
	}
	return &m.claims
}

// send carries a call to the store and brings the answer back.
func (m *machine) send(r *protocol.Call) {
	l, p := m.p.l, m.p
	if r.Kind == protocol.Claim || r.Kind == protocol.Takeover {
		r.Stamp(l.wall()) // by which the history tells two tenures under one token apart
	}
	if r.Kind.Reads() {
		l.Reads++
	} else {
		l.Writes++
		l.sent(m, r)
	}
	l.note("%s sends %v %s -> %s", m, r.Kind, r.Prev.Version, r.Next.Version)
	if r.Key == l.key {
		if p.hinted && r.Consistency != driver.Strong {
			l.fail("%s answers a hint by a cheap look", m)
		}
		p.hinted = false
	}
	m.sentCont, m.sentAt = p.cont.at(l.now), l.now
	number := m.traceSend(r)

	patience := m.timing().RequestTimeout
	latency := min(l.cfg.Latency, max(patience, l.cfg.Latency-l.t.RequestTimeout))
	there, back := p.upTo(latency/2), p.upTo(latency/2)
	if p.source().Intn(2) == 1 {
		there, back = there/64, back/64
	}
	behind := 0
	if l.fails(Stale) && l.one(8) {
		behind = 1 + l.src.Intn(4)
	}
	answer := func(res protocol.Result) { p.after(m, 0, func() { m.reply(number, r, res) }) }
	apply := func() protocol.Result {
		rec, former, err := l.apply(m, r, behind)
		res := protocol.ResultOf(r.Kind, rec, former, err)
		if !r.Kind.Reads() {
			m.traceApply(number, res)
		}
		if r.Kind == protocol.Takeover && err == nil && r.Prev.Lease != r.Next.Lease && m.timing() != p.t {
			l.tally.Mixed++
		}
		if claims := m.claimed(); r.Kind == protocol.Release && *claims != nil && !l.final {
			l.after(l.upTo(l.t.Lease/32), *claims) // somebody else may be quicker
		}
		return res
	}
	// again has the write applied once more, after from and before from + to.
	again := func(from, to time.Duration) {
		if r.Kind.Reads() {
			return
		}
		l.onceMore(from, to, func() {
			l.tally.LateWrites++
			apply()
		})
	}
	if r.Kind == protocol.Claim && l.cfg.Doubled && l.fails(Messages) && (m.under != nil || m.conn != nil) {
		*m.claimed() = func() {
			l.tally.LateWrites++
			if apply(); l.one(2) {
				p.rests = l.now + 4*l.t.Lease // nobody but another process finds it then
			}
		}
	}
	timeout := func() {
		p.after(m, patience, func() { m.reply(number, r, protocol.ResultOf(r.Kind, driver.Record{}, driver.Record{}, errTimeout)) })
	}
	switch l.fate(m) {
	case repeated:
		again(0, 3*m.timing().Lease)
		fallthrough
	case answered:
		l.after(there, func() {
			res := apply()
			l.after(back, func() { answer(res) })
		})
	case refused:
		l.after(there+back, func() {
			err := errBusy
			if l.Writes%4 == 0 {
				err = driver.Throttled(err)
			}
			answer(protocol.Result{Outcome: protocol.NotApplied, Err: err})
		})
	case lost:
		timeout()
	case unanswered:
		l.after(there, func() { apply() })
		timeout()
	case delayed:
		again(patience, 2*m.timing().Lease)
		if l.one(4) {
			again(patience, 2*m.timing().Lease)
		}
		timeout()
	}
}
