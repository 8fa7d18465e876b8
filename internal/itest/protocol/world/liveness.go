// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import "time"

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
	w.late = nil
	for _, p := range w.procs {
		crashed := !p.up
		p.paused = min(p.paused, w.now)
		p.hold.resume(w.now)
		for _, m := range p.machines {
			crashed = crashed || m.h != nil
		}
		if crashed {
			if p.up {
				w.crash(p)
			}
			p.restart()
		}
	}
	w.checkAll()
}

// slack is what a takeover may need beyond the lease: a look, a retry, the
// requests themselves, and a user who comes by.
func (w *World) slack() time.Duration {
	return 3*w.t.Refresh + 4*w.t.RequestTimeout + w.t.Lease
}

// watchLiveness runs the healed world until somebody must hold, and sees that
// this holder keeps the lock.
func (w *World) watchLiveness() {
	if w.violation != "" {
		return
	}
	limit := w.now + time.Duration(float64(w.t.Lease+w.slack())/(1-w.cfg.Skew))
	w.run(func() bool { return w.now > limit })
	holder := w.holder()
	if holder == nil {
		w.fail("nobody holds although the faults ended long ago")
		return
	}
	end := w.now + 4*w.t.Lease
	w.run(func() bool { return w.now > end || !holder.believes() })
	if !holder.believes() {
		w.fail("%s lost its lease although nothing failed", holder)
	}
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
