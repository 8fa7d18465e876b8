// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Abandon lets one acquire be given up at a random moment, with faults until
// then and writes that come late. Nothing that it wrote may be left held when
// it is over, unless it was applied too late for cleaning up, or a second time.
// Another process asks the holder to step down now and then.
func Abandon(src Source, cfg Config) error {
	cfg.Processes, cfg.Faults = 2, true
	w := newWorld(src, cfg)
	p := w.procs[0]
	p.acquire()
	if len(p.machines) == 0 {
		return w.failure()
	}
	m := p.machines[0]
	for range 4 {
		w.after(w.upTo(w.t.Lease), func() { w.procs[1].ask(driver.Request{Kind: driver.StepDown}) })
	}
	give := w.upTo(w.t.Lease / 2)
	w.after(give, func() {})
	w.run(func() bool { return w.now >= give })
	if m.h != nil || m.left {
		return w.failure()
	}
	m.giveUp()
	w.final = true
	clean := time.Duration(float64(w.t.Lease) / (1 + w.cfg.Skew))
	end := w.now + time.Duration(float64(w.t.Lease)/(1-w.cfg.Skew)) + 4*w.t.RequestTimeout
	var heldSince time.Duration
	held := ""
	seen := map[string]bool{}
	w.after(end-w.now, func() {})
	w.run(func() bool {
		if rec := w.store.rec; rec.State != driver.Held {
			held = ""
		} else if !seen[rec.Beat] {
			held, heldSince = rec.Beat, w.now
			seen[held] = true
		}
		return w.now >= end
	})
	if !m.c.Over() {
		w.fail("%s is not over a lease after it was given up", m)
	}
	if held != "" && heldSince < give+clean {
		w.fail("%s is left held since %v, given up at %v", held, heldSince, give)
	}
	return w.failure()
}

// Unreadable runs a world whose record makes no sense, and says whether it is
// as it was, and how many acquires were refused for it.
func Unreadable(src Source, cfg Config) (untouched bool, refused int) {
	w := newWorld(src, cfg)
	for _, p := range w.procs {
		p.acquire()
	}
	first := w.store.rec.Version
	machines := []*machine{}
	for _, p := range w.procs {
		machines = append(machines, p.machines...)
	}
	w.final = true
	w.after(3*w.t.Lease, func() {})
	w.run(func() bool { return w.now >= 3*w.t.Lease })
	for _, m := range machines {
		if r := m.c.Refused(); r != nil && errors.Is(r.Err, driver.ErrUnreadable) {
			refused++
		}
	}
	return w.store.rec.Version == first && w.violation == "", refused
}
