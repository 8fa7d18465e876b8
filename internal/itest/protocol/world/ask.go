// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// absent is an owner whom nobody ever sees.
const absent = "absent"

// meddle is what the people around a process do now and then: ask the holder to
// make way, for whomever, or release the lock in its stead.
func (p *process) meddle() {
	w := p.w
	if w.final {
		return
	}
	if p.up && w.now >= p.paused {
		q := driver.Request{Kind: driver.StepDown}
		switch w.src.Intn(8) {
		case 0, 1, 2:
			q.Kind, q.To = driver.HandOver, absent
			if n := w.src.Intn(len(w.procs) + 1); n < len(w.procs) {
				q.To = w.procs[n].name
			}
		case 3:
			q.Kind = driver.Free
		case 4:
			q.Kind = driver.Revoke
		}
		p.ask(q)
	}
	w.after(w.t.Lease/8+w.upTo(4*w.t.Lease), p.meddle)
}

// ask has a process ask something of whoever holds the lock.
func (p *process) ask(q driver.Request) {
	w := p.w
	p.asks++
	patience := time.Duration(0)
	if w.one(4) {
		patience = w.t.Lease / 2
	}
	q.By = p.name
	m := &machine{p: p, epoch: p.epoch, id: fmt.Sprintf("%s/ask%d", p.name, p.asks), want: q, judged: newJudged()}
	m.k = protocol.NewAsker(w.t, w.env(p), key, q, patience, p.sight)
	p.machines = append(p.machines, m)
	w.note("%s asks to %s %s", m, q.Kind, q.To)
	m.took(m.k.Step(p.cont.at(w.now)))
	if !w.final && w.one(4) {
		p.after(m, w.upTo(w.t.Lease), m.forget)
	}
}

// forget gives up to ask. What is laid stays.
func (m *machine) forget() {
	if a, _, _ := m.k.Answer(); a == protocol.NoAnswer {
		m.took(m.k.GiveUp(m.p.cont.at(m.p.w.now)))
	}
}

// wishes judges that a process asks for priority at most once in the pause,
// but for a request that was certainly not laid.
func (m *machine) wishes() {
	w, p := m.p.w, m.p
	now := p.cont.at(w.now)
	if p.wished > 0 && p.wish > 0 && now < p.wish+p.pauses {
		w.fail("%s asks for priority %v after it has", m, now-p.wish)
	}
	p.wished++
	p.wish = now
}

var answers = [...]string{"none", "laid", "done", "nobody", "changed", "pending", "foreign", "alive", "self", "unusable", "abandoned"}

// told notes and judges what an asker was answered, once.
func (m *machine) told() {
	w := m.p.w
	a, rec, _ := m.k.Answer()
	if a == protocol.NoAnswer || m.left {
		return
	}
	m.left = true
	m.p.w.note("%s is answered: %s", m, answers[a])
	w.answered = append(w.answered, a)
	token := m.k.Token()
	gone := token == 0 || w.tenures[token] != nil && w.tenures[token].end != ""
	life := w.beats[token] > 1
	id := ""
	if len(rec.Requests) > 0 {
		id = rec.Requests[0].ID
	}
	// The sight is shared, so that the tenure need not be the first that the
	// process saw; what an answer claims must be true all the same.
	var right bool
	switch a {
	case protocol.Laid:
		_, right = w.laid[w.ids[m]]
	case protocol.Pending:
		right = id != "" && id != w.ids[m]
	case protocol.Done, protocol.Nobody, protocol.Changed:
		right = gone
	case protocol.Alive:
		right = gone || life
	case protocol.Self:
		right = w.tenures[token] != nil && w.tenures[token].owner == m.want.To
	case protocol.Unusable, protocol.Abandoned:
		right = true
	}
	if !right {
		w.fail("%s is answered %q: token %d, gone %v", m, answers[a], token, gone)
	}
}

// asked judges a request that was laid into the record.
func (w *World) asked(m *machine, was driver.Record) {
	is := w.store.rec
	q := is.Requests[len(is.Requests)-1]
	if len(was.Requests) > 0 {
		w.fail("%s lays a second request on top of that of %s", m, was.Requests[0].By)
	}
	if q.By != m.p.name {
		w.fail("%s asks in the name of %s", m, q.By)
	}
	w.laid[q.ID] = w.now
	if m.k != nil {
		return
	}
	if q.Kind != driver.HandOver || q.To != m.p.name || was.Priority >= m.p.priority {
		w.fail("%s with priority %d asks one with %d to %s to %q", m, m.p.priority, was.Priority, q.Kind, q.To)
	}
}

// checkRequests sees, where nothing fails, that a request is honoured in time:
// the next heartbeat finds it, the work is left its time, the lock is released.
func (w *World) checkRequests() {
	rec := w.store.rec
	if w.cfg.Faults || w.final || rec.State != driver.Held || len(rec.Requests) == 0 {
		return
	}
	holder := slices.IndexFunc(w.procs, func(p *process) bool { return p.name == rec.Owner })
	if holder < 0 || !w.procs[holder].up {
		return
	}
	since := w.now - w.laid[rec.Requests[0].ID]
	drain := w.t.Lease // see took
	most := time.Duration(float64(w.t.Heartbeat+3*w.t.RequestTimeout)/(1-w.cfg.Skew)) + drain
	if since > most && w.tenures[rec.Token].prompt {
		w.fail("a request is laid for %v, and not honoured", since)
	}
}
