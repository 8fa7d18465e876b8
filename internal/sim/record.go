// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// traces records an event of the world, if the run is compared with the model.
func (w *World) traces(e trace.Event) {
	if w.model != nil {
		e.At = w.now
		w.model.Add(e)
	}
}

func (w *World) started(h *host) {
	w.traces(trace.Event{Do: trace.Start, Proc: h.name, Timing: &trace.Timing{
		Lease: w.t.Lease, Grace: w.t.Grace, Window: w.t.Window(), Drift: w.cfg.Skew,
	}})
}

// traced notes an event of a machine. The model has no history.
func (m *machine) traced(do trace.Kind, e trace.Event) {
	if m.role != recording {
		e.Do, e.Lock, e.Proc, e.Who = do, m.l.key, m.p.name, m.id
		m.l.traces(e)
	}
}

// traceSend notes that a request leaves, and returns its number.
func (m *machine) traceSend(r *protocol.Call) int {
	if m.l.model == nil || m.role == recording {
		return 0
	}
	e := trace.Event{Request: m.l.model.Request(), Call: r.Kind.String()}
	if r.Kind != protocol.Read {
		e.Next = trace.Of(r.Next)
	}
	if r.Kind != protocol.Read && r.Kind != protocol.Claim {
		e.Prev = trace.Of(r.Prev)
	}
	m.traced(trace.Send, e)
	return e.Request
}

// traceResult records the outcome of a request: in the store, or as its sender learns it.
func (m *machine) traceResult(do trace.Kind, request int, res protocol.Result, rec driver.Record, found bool) {
	if m.l.model == nil {
		return
	}
	e := trace.Event{Request: request, Outcome: outcomes[res.Outcome], Found: found}
	if found {
		e.Record = trace.Of(rec)
	}
	m.traced(do, e)
}
