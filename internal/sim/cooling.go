// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// cool is what the world knows of the cool-down of an acquire.
type cool struct {
	is    bool
	token uint64        // of the record before its move
	state driver.State  // and its state
	sign  string        // and the sign of life that it shows
	from  time.Duration // by its clock: when it first asked for the history
	wait  time.Duration // after that
}

func coolDown(t protocol.Timing) time.Duration    { return t.Lease / 4 }
func coolDownMax(t protocol.Timing) time.Duration { return t.Lease / 2 }

// fails ends the work with a failure now and then.
func (m *machine) fails() bool {
	l := m.p.l
	if !l.cfg.Cools || l.final || m.o != nil || !l.one(2) {
		return false
	}
	m.failed = true
	l.tally.Failed++
	q := failure(m)
	_, act := m.h.Leave(m.clock(), nil, &q)
	m.took(act)
	return true
}

// failure is what a holder says of work that has failed, but for the ID.
func failure(m *machine) driver.Request {
	return driver.Request{Kind: driver.Fail, By: m.p.name, Reason: "the work has failed"}
}

// review answers the call that reads the history.
func (l *lock) review(r *protocol.Call) protocol.Result {
	res := protocol.Result{Outcome: protocol.Applied, Past: make([]driver.Record, len(r.Keys))}
	for i, key := range r.Keys {
		if s := l.past[key]; s != nil && s.found {
			res.Past[i] = s.rec.Clone()
		}
	}
	return res
}

// reviewed notes since when an acquire asks for the history, and what it must make of
// the answer: it is counted here in another way, token by token.
func (m *machine) reviewed(r *protocol.Call, res protocol.Result) {
	rec := r.Prev
	if _, _, _, cools := m.c.Cooling(); !cools {
		return // it wants to ask the leader to make way
	}
	m.coolsFrom(rec, m.sentCont)
	if res.Outcome != protocol.Applied {
		return
	}
	m.cool.wait = 0
	d := coolDown(m.timing())
	for range m.count(r, res) {
		m.cool.wait = min(d, coolDownMax(m.timing()))
		d *= 2
	}
}

// coolsFrom notes since when an acquire waits because of a tenure, once.
func (m *machine) coolsFrom(rec driver.Record, from time.Duration) {
	if c := m.cool; !c.is || c.token != rec.Token || c.state != rec.State || c.sign != rec.Sign() {
		m.cool = cool{is: true, token: rec.Token, state: rec.State, sign: rec.Sign(), from: from}
	}
}

// count returns how many tenures of the label of an acquire have ended badly since the
// last one that ended well.
func (m *machine) count(r *protocol.Call, res protocol.Result) int {
	type ended struct {
		label string
		end   driver.EndReason
	}
	ends := map[uint64]ended{}
	rec := r.Prev
	if rec.State != driver.Reserved {
		ends[rec.Token] = ended{rec.Label, rec.End}
	}
	if t := rec.Prev; t != nil {
		ends[t.Token] = ended{t.Label, t.End}
	}
	for i, p := range res.Past {
		for token := rec.Token; p.State == driver.Past && token > 0; token-- {
			if r.Keys[i] == protocol.HistoryKey(m.p.l.key, token) {
				ends[token] = ended{p.Label, p.End}
			}
		}
	}
	k := 0
	for token := rec.Token; token > 0 && token+protocol.Reviewed > rec.Token; token-- {
		t, known := ends[token]
		if !known || t.label != m.label() {
			continue
		}
		switch t.end {
		case driver.EndFailed, driver.EndStalled, driver.EndStopTimeout, driver.EndCrashed:
			k++
		case driver.EndReleased, driver.EndSteppedDown, driver.EndHandedOver:
			return k
		}
	}
	return k
}

// judgeCount judges what an acquire has made of the history.
func (m *machine) judgeCount(r *protocol.Call, res protocol.Result) {
	k, until, ok, _ := m.c.Cooling()
	rec, _ := m.p.sight.Record()
	if res.Outcome != protocol.Applied || !ok || rec.Token != r.Prev.Token || rec.State != r.Prev.State || rec.Sign() != r.Prev.Sign() || rec.Session != "" {
		return // a session that was closed in order is a good end, which r does not show
	}
	m.p.l.tally.Cooled++
	if want := m.count(r, res); k != want {
		m.p.l.fail("%s counts %d failures of its label, and there were %d", m, k, want)
	}
	m.coolsFrom(rec, m.p.cont.at(m.p.l.now)) // it has read that to ask the leader to make way, and could move by now
	if most := m.cool.from + coolDownMax(m.timing()); until > most {
		m.p.l.fail("%s waits for %v longer than it may", m, until-most)
	}
}

// judgeWait judges that an acquire which knows of failures of its label does not move
// too early.
func (m *machine) judgeWait(r *protocol.Call) {
	if !m.cool.is || m.h != nil || r.Kind != protocol.Claim && r.Kind != protocol.Takeover {
		return
	}
	rec, _ := m.p.sight.Record()
	if rec.Token != m.cool.token || rec.State != m.cool.state || rec.Sign() != m.cool.sign || rec.Owner == m.p.name && rec.State != driver.Released {
		return // another tenure; or kept for it, or its own
	}
	if waited := m.sentCont - m.cool.from; waited < m.cool.wait {
		m.p.l.fail("%s moves after %v, and its label has failed: it was to wait for %v", m, waited, m.cool.wait)
	}
}
