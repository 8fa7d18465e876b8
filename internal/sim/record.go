// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// What the model knows of a run, as it happens. Nothing is noted once the run
// is judged, or without a recorder, or of a run with clients or guardians, which the model has not.

func (w *World) recorder() *trace.Recorder {
	if w.cfg.Trace == nil || w.cfg.Clients > 0 || w.cfg.Guarded {
		return nil
	}
	return w.cfg.Trace.Events
}

func (w *World) started(h *host) {
	if r := w.recorder(); r != nil {
		t := w.t
		r.Add(trace.Event{At: w.now, Do: trace.Start, Proc: h.name, Timing: &trace.Timing{
			Lease: t.Lease, Grace: t.Grace, Window: t.Window(), Drift: w.cfg.Skew,
		}})
	}
}

func (w *World) crashed(h *host) {
	if r := w.recorder(); r != nil {
		r.Add(trace.Event{At: w.now, Do: trace.Crash, Proc: h.name})
	}
}

// recorder returns where the requests of a machine are noted. The model has no history.
func (m *machine) recorder() *trace.Recorder {
	if m.e != nil {
		return nil
	}
	return m.p.l.recorder()
}

func (m *machine) traced(do trace.Kind, e trace.Event) {
	if r := m.p.l.recorder(); r != nil {
		e.At, e.Do, e.Lock, e.Proc, e.Who = m.p.l.now, do, m.p.l.key, m.p.name, m.id
		r.Add(e)
	}
}

// traceSend notes that a request leaves, and returns its number.
func (m *machine) traceSend(r *protocol.Call) int {
	rec := m.recorder()
	if rec == nil {
		return 0
	}
	e := trace.Event{Request: rec.Request(), Call: r.Kind.String()}
	if r.Kind != protocol.Look {
		e.Next = trace.Of(r.Next)
	}
	if r.Kind != protocol.Look && r.Kind != protocol.Claim {
		e.Prev = trace.Of(r.Prev)
	}
	m.traced(trace.Send, e)
	return e.Request
}

func (m *machine) traceApply(request int, res protocol.Result) {
	l := m.p.l
	if m.recorder() == nil {
		return
	}
	e := trace.Event{Request: request, Outcome: outcomes[res.Outcome], Found: l.store.found}
	if l.store.found {
		e.Record = trace.Of(l.store.rec)
	}
	m.traced(trace.Apply, e)
}

func (m *machine) traceReply(request int, res protocol.Result) {
	if m.recorder() == nil {
		return
	}
	e := trace.Event{Request: request, Outcome: outcomes[res.Outcome]}
	if res.Outcome == protocol.Applied || res.Outcome == protocol.Conflicted {
		if e.Found = res.Found; res.Found {
			e.Record = trace.Of(res.Record)
		}
	}
	m.traced(trace.Reply, e)
}

// traceBeliefs notes the machines whose lease check passes at an instant at which none
// should.
func (l *lock) traceBeliefs() {
	for _, p := range l.procs {
		for _, m := range p.machines {
			if m.believes() {
				m.traced(trace.Check, trace.Event{})
			}
		}
	}
}

func (m *machine) traceGrant(rec driver.Record) {
	if m.p.l.recorder() != nil {
		m.traced(trace.Grant, trace.Event{Record: trace.Of(rec)})
	}
}
