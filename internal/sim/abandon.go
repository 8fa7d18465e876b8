// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

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
	l := newLock(src, cfg)
	p := l.procs[0]
	p.acquire()
	if len(p.machines) == 0 {
		return l.failure()
	}
	m := p.machines[0]
	for range 4 {
		l.after(l.upTo(l.t.Lease), func() { l.procs[1].ask(driver.Request{Kind: driver.StepDown}) })
	}
	give := l.upTo(l.t.Lease / 2)
	l.after(give, func() {})
	l.run(func() bool { return l.now >= give })
	if m.h != nil || m.left {
		return l.failure()
	}
	m.giveUp()
	l.final = true
	clean := time.Duration(float64(l.t.Lease) / (1 + l.cfg.Skew))
	end := l.now + time.Duration(float64(l.t.Lease)/(1-l.cfg.Skew)) + 4*l.t.RequestTimeout
	var heldSince time.Duration
	held := ""
	seen := map[string]bool{}
	l.after(end-l.now, func() {})
	l.run(func() bool {
		if rec := l.store.rec; rec.State != driver.Held {
			held = ""
		} else if !seen[rec.Beat] {
			held, heldSince = rec.Beat, l.now
			seen[held] = true
		}
		return l.now >= end
	})
	if !m.c.Over() {
		l.fail("%s is not over a lease after it was given up", m)
	}
	if held != "" && heldSince < give+clean {
		l.fail("%s is left held since %v, given up at %v", held, heldSince, give)
	}
	return l.failure()
}

// Unreadable runs a world whose record makes no sense, and says whether it is
// as it was, and how many acquires were refused for it.
func Unreadable(src Source, cfg Config) (untouched bool, refused int) {
	l := newLock(src, cfg)
	for _, p := range l.procs {
		p.acquire()
	}
	first := l.store.rec.Version
	machines := []*machine{}
	for _, p := range l.procs {
		machines = append(machines, p.machines...)
	}
	l.final = true
	l.after(3*l.t.Lease, func() {})
	l.run(func() bool { return l.now >= 3*l.t.Lease })
	for _, m := range machines {
		if r := m.c.Refused(); r != nil && errors.Is(r.Err, driver.ErrUnreadable) {
			refused++
		}
	}
	return l.store.rec.Version == first && l.violation == "", refused
}
