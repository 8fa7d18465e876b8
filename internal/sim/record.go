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

// traces notes an event of the world.
func (w *World) traces(e trace.Event) {
	if r := w.recorder(); r != nil {
		e.At = w.now
		r.Add(e)
	}
}

func (w *World) started(h *host) {
	w.traces(trace.Event{Do: trace.Start, Proc: h.name, Timing: &trace.Timing{
		Lease: w.t.Lease, Grace: w.t.Grace, Window: w.t.Window(), Drift: w.cfg.Skew,
	}})
}

// traced notes an event of a machine. The model has no history.
func (m *machine) traced(do trace.Kind, e trace.Event) {
	if m.role != chronicling {
		e.Do, e.Lock, e.Proc, e.Who = do, m.p.l.key, m.p.name, m.id
		m.p.l.traces(e)
	}
}

// traceSend notes that a request leaves, and returns its number.
func (m *machine) traceSend(r *protocol.Call) int {
	rec := m.p.l.recorder()
	if rec == nil || m.role == chronicling {
		return 0
	}
	e := trace.Event{Request: rec.Request(), Call: r.Kind.String()}
	if r.Kind != protocol.Read {
		e.Next = trace.Of(r.Next)
	}
	if r.Kind != protocol.Read && r.Kind != protocol.Claim {
		e.Prev = trace.Of(r.Prev)
	}
	m.traced(trace.Send, e)
	return e.Request
}

// traceResult notes what has become of a request: in the store, or as its sender is told.
func (m *machine) traceResult(do trace.Kind, request int, res protocol.Result, rec driver.Record, found bool) {
	if m.p.l.recorder() == nil {
		return
	}
	e := trace.Event{Request: request, Outcome: outcomes[res.Outcome], Found: found}
	if found {
		e.Record = trace.Of(rec)
	}
	m.traced(do, e)
}

// traceBeliefs notes the machines whose lease check passes at an instant at which none
// should.
func (l *lock) traceBeliefs() {
	for a := range l.actors {
		if m, ok := a.(*machine); ok && m.believes() {
			m.traced(trace.Check, trace.Event{})
		}
	}
}
