// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// heal ends all faults: what may still be applied is applied now, who is
// paused wakes up, who holds crashes, and all who live wait without giving up.
func (w *World) heal() {
	if w.violation != "" {
		return
	}
	w.note("the faults end")
	w.final = true
	for _, do := range w.late {
		do()
	}
	w.late, w.healed = nil, w.now
	for _, p := range w.procs {
		crashed := !p.up
		p.paused = min(p.paused, w.now)
		for _, m := range p.machines {
			crashed = crashed || m.h != nil
		}
		for _, m := range slices.Clone(p.machines) {
			if m.k != nil && !crashed {
				m.forget()
			}
		}
		if crashed {
			if p.up {
				w.crash(p)
			}
			p.restart()
		}
		p.wake()
	}
	w.checkAll()
}

// slack is what a takeover may need beyond the lease: a look, a retry, the
// requests themselves, and a user who comes by.
func (w *World) slack() time.Duration {
	return 3*w.t.Refresh + 4*w.t.RequestTimeout + w.t.Lease
}

// watchLiveness runs the healed world until somebody must have been granted the
// lock, and sees that it is kept, or handed over to who is preferred.
func (w *World) watchLiveness() {
	if w.violation != "" {
		return
	}
	limit := func() time.Duration { return w.now + time.Duration(float64(w.t.Lease+w.slack())/(1-w.cfg.Skew)) }
	end := limit()
	for range len(w.procs) + 1 {
		w.run(func() bool { return w.now > end || w.holder() != nil })
		holder := w.holder()
		if holder == nil {
			w.fail("nobody holds although the faults ended long ago")
			return
		}
		end = w.now + 4*w.t.Lease
		w.run(func() bool { return w.now > end || !holder.believes() })
		if w.violation != "" || holder.believes() {
			return
		}
		late := w.written[holder.h.Record().Beat].at < w.healed // hardly any of its lease was left
		if holder.h.Cause() != protocol.Asked && !late {
			w.fail("%s lost its lease although nothing failed: %v", holder, holder.h.Cause())
			return
		}
		end = limit()
	}
	w.fail("the lock changes hands without an end")
}

// holder returns a machine whose lease check passes, nil if there is none.
func (w *World) holder() *machine {
	for _, p := range w.procs {
		for _, m := range p.machines {
			if m.believes() {
				return m
			}
		}
	}
	return nil
}
