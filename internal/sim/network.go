// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// Fault is a set of kinds of faults.
type Fault uint

// The kinds of faults.
const (
	CutOffs  Fault = 1 << iota // a process does not reach the store, or its answers do not reach the process
	Pauses                     // a process stands still, and its clocks go on; or its whole machine
	Crashes                    // a process is gone, and starts again
	Outages                    // no process reaches the store
	Steps                      // wall clocks are set, forwards and backwards
	Messages                   // single requests are lost, late, or applied twice
	Stale                      // cheap reads are behind
	Late                       // timers are late
	noFaults
)

var faultNames = [...]string{"cutoffs", "pauses", "crashes", "outages", "steps", "messages", "stale", "late"}

// ParseFaults returns the kinds that a comma-separated list names.
func ParseFaults(list string) (all Fault, err error) {
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(faultNames[:], name)
		if i < 0 {
			return 0, fmt.Errorf("no fault is called %q: name some of %s", name, strings.Join(faultNames[:], ","))
		}
		all |= 1 << i
	}
	return all, nil
}

// Except returns the kinds that are not in f.
func (f Fault) Except() Fault { return (noFaults - 1) &^ f }

// fails says whether faults of a kind happen now.
func (w *World) fails(f Fault) bool { return w.cfg.Faults && !w.final && w.cfg.Without&f == 0 }

// nemesis makes trouble now and then.
func (w *World) nemesis() bool {
	if w.final {
		return false
	}
	h := w.hosts[w.src.IntN(len(w.hosts))]
	d := w.upTo(2 * w.t.Lease)
	troubles := [8]Fault{CutOffs, Pauses, Pauses, Crashes, Outages, Steps, Steps}
	kind := w.src.IntN(len(troubles))
	if !w.fails(troubles[kind]) {
		return true
	}
	switch kind {
	case 0:
		w.note("%s is cut off for %v", h.name, d)
		h.cutOff = w.now + d
	case 1, 2:
		w.note("%s is paused for %v, its machine: %v", h.name, d, kind == 2)
		w.tally.Of[Pause]++
		h.pause(d, kind == 2)
	case 3:
		w.tally.Of[Crash]++
		h.crash()
		w.after(d, h.restart)
	case 4:
		w.note("the store is down for %v", d/2)
		w.down = w.now + d/2
	case 5:
		w.tally.Of[Step]++
		h.step(d / 2)
	case 6:
		h.step(-d / 2)
	}
	return true
}

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

// Fates of calls that can fail. A proxy is more on the way to a replica than to the store.
var (
	ofStore = [16]fate{
		answered, answered, answered, answered, answered, answered, answered, answered, answered, answered,
		repeated, refused, lost, unanswered, unanswered, delayed,
	}
	ofReplica = [16]fate{
		answered, answered, answered, answered, answered, answered, answered, answered,
		repeated, repeated, lost, unanswered, unanswered, refused, refused, delayed,
	}
)

// fate draws what becomes of a call, by a host that may be cut off.
func (w *World) fate(cutOff bool, fates *[16]fate) fate {
	switch {
	case !w.cfg.Faults || w.final:
		return answered
	case cutOff:
		return lost + fate(w.src.IntN(3))
	case !w.fails(Messages):
		return answered
	case w.cfg.Rough && w.one(2):
		return [...]fate{repeated, delayed}[w.src.IntN(2)]
	}
	return fates[w.src.IntN(len(fates))]
}

// fate draws what becomes of a call of a machine.
func (m *machine) fate() fate {
	w, p := m.p.w, m.p
	switch {
	case m.h == nil && w.now < m.unheard && !w.final:
		return unanswered
	case p.flaky && m.h == nil && m.role != recording:
		return [...]fate{answered, answered, lost, unanswered}[w.src.IntN(4)]
	}
	return w.fate(w.now < w.down || w.now < p.cutOff, &ofStore)
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
	l, p := m.l, m.p
	if r.Kind == protocol.Claim || r.Kind == protocol.Takeover {
		r.Stamp(l.wall()) // by which the history tells two terms under one token apart
	}
	if l.engine != nil {
		r.Next.Opens = p.lives.Opening(p.cont.at(l.now), l.wall())
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
			l.fail("%s answers a hint with an eventual read", m)
		}
		p.hinted = false
	}
	m.sentCont, m.sentAt = p.cont.at(l.now), l.now
	number := m.traceSend(r)

	patience := m.timing.RequestTimeout
	latency := min(l.cfg.Latency, max(patience, l.cfg.Latency-l.t.RequestTimeout))
	there, back := l.upTo(latency/2), l.upTo(latency/2)
	if l.src.IntN(2) == 1 {
		there, back = there/64, back/64
	}
	behind := 0
	if l.fails(Stale) && l.one(8) {
		behind = 1 + l.src.IntN(4)
	}
	c := &carried{m: m, r: r, number: number, behind: behind, to: p.reaches()}
	if r.Kind == protocol.Claim && l.cfg.Doubled && l.fails(Messages) && (m.under != nil || m.conn != nil) {
		*m.claimed() = c.haunts
	}
	c.travels(there, back)
}

// travels has a call meet its fate.
func (c *carried) travels(there, back time.Duration) {
	m, r, l := c.m, c.r, c.m.l
	patience, lease := m.timing.RequestTimeout, m.timing.Lease
	switch m.fate() {
	case repeated:
		c.again(0, 3*lease)
		fallthrough
	case answered:
		l.after(there, func() {
			res := c.applies(false)
			l.after(back, func() { c.answers(0, res) })
		})
		return
	case refused:
		l.after(there+back, func() {
			err := errBusy
			if l.Writes%4 == 0 {
				err = driver.Throttled(err)
			}
			c.answers(0, protocol.Result{Outcome: protocol.NotApplied, Err: err})
		})
		return
	case lost:
	case unanswered:
		l.after(there, func() { c.applies(false) })
	case delayed:
		c.again(patience, 2*lease)
		if l.one(4) {
			c.again(patience, 2*lease)
		}
	}
	c.answers(patience, protocol.ResultOf(r.Kind, driver.Record{}, driver.Record{}, errTimeout))
}

// carried is a call to the store on its way.
type carried struct {
	m      *machine
	r      *protocol.Call
	number int // in the trace
	behind int // how many writes a cheap read is behind
	to     *server
}

// answers hands the machine the result when d has passed.
func (c *carried) answers(d time.Duration, res protocol.Result) {
	c.m.after(d, func() { c.m.reply(c.number, c.r, res) })
}

// applies has the store carry the call out, perhaps late.
func (c *carried) applies(late bool) (res protocol.Result) {
	m, r, l := c.m, c.r, c.m.l
	if !l.arrivesAt(c.to, late) {
		return protocol.Result{Outcome: protocol.NotApplied, Err: errBusy}
	}
	res = l.apply(m, r, c.behind)
	l.turnBack()
	if !r.Kind.Reads() {
		m.traceResult(trace.Apply, c.number, res, l.store.rec, l.store.found)
	}
	other := r.Prev.Lease != r.Next.Lease && m.timing != m.p.t
	if other && r.Kind == protocol.Takeover && res.Outcome == protocol.Applied {
		l.tally.Of[OtherLease]++
	}
	if claims := m.claimed(); r.Kind == protocol.Release && *claims != nil && !l.final {
		l.after(l.upTo(l.t.Lease/32), *claims) // somebody else may be quicker
	}
	return res
}

// again has a write applied once more, after from and before from + to.
func (c *carried) again(from, to time.Duration) {
	if l := c.m.l; !c.r.Kind.Reads() {
		l.onceMore(from, to, func() {
			l.tally.Of[LateWrite]++
			c.applies(true)
		})
	}
}

// haunts applies a claim a second time when its lock was released.
func (c *carried) haunts() {
	l := c.m.l
	l.tally.Of[LateWrite]++
	if c.applies(true); l.one(2) {
		c.m.p.rests = l.now + 4*l.t.Lease // nobody but another process finds it then
	}
}
