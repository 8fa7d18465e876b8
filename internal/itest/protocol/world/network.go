// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

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

// fate is what the network does to a request.
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
	case p.flaky && m.h == nil:
		return [...]fate{answered, answered, lost, unanswered}[w.src.Intn(4)]
	case !w.cfg.Faults || w.final:
		return answered
	case w.now < w.down || w.now < p.cutOff:
		return lost + fate(w.src.Intn(3))
	case w.cfg.Rough && w.one(2):
		return [...]fate{repeated, delayed}[w.src.Intn(2)]
	}
	return [...]fate{
		answered, answered, answered, answered, answered, answered, answered, answered, answered, answered,
		repeated, refused, lost, unanswered, unanswered, delayed,
	}[w.src.Intn(16)]
}

// send carries a request to the store and brings the answer back.
func (m *machine) send(r *protocol.Request) {
	w, p := m.p.w, m.p
	r = w.miswrite(m, r)
	if r.Kind == protocol.Look {
		w.Reads++
	} else {
		w.Writes++
		w.sent(m, r)
	}
	w.note("%s sends %v %s -> %s", m, r.Kind, r.Prev.Version, r.Next.Version)
	m.sentCont = p.cont.at(w.now)

	there, back := p.upTo(w.cfg.Latency/2), p.upTo(w.cfg.Latency/2)
	if p.source().Intn(2) == 1 {
		there, back = there/64, back/64
	}
	behind := 0
	if w.cfg.Faults && !w.final && w.one(8) {
		behind = 1 + w.src.Intn(4)
	}
	answer := func(res protocol.Result) { p.after(m, 0, func() { m.reply(r, res) }) }
	apply := func() protocol.Result {
		rec, former, err := w.apply(m, r, behind)
		return protocol.ResultOf(r.Kind, rec, former, err)
	}
	// again has the write applied once more, after from and before from + to.
	again := func(from, to time.Duration) {
		if r.Kind == protocol.Look {
			return
		}
		done := false
		do := func() {
			if !done {
				done = true
				apply()
			}
		}
		w.late = append(w.late, do)
		w.after(from+w.upTo(to), do)
	}
	timeout := func() {
		p.after(m, w.t.RequestTimeout, func() { m.reply(r, protocol.ResultOf(r.Kind, driver.Record{}, driver.Record{}, errTimeout)) })
	}
	switch w.fate(m) {
	case repeated:
		again(0, 3*w.t.Lease)
		fallthrough
	case answered:
		w.after(there, func() {
			res := apply()
			w.after(back, func() { answer(res) })
		})
	case refused:
		w.after(there+back, func() {
			answer(protocol.Result{Outcome: protocol.NotApplied, Err: errBusy})
		})
	case lost:
		timeout()
	case unanswered:
		w.after(there, func() { apply() })
		timeout()
	case delayed:
		again(w.t.RequestTimeout, 2*w.t.Lease)
		if w.one(4) {
			again(w.t.RequestTimeout, 2*w.t.Lease)
		}
		timeout()
	}
}
