// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Asked is what became of a dead holder that was asked to step down.
type Asked struct {
	Sent    time.Duration // when the first takeover was sent
	Granted time.Duration // when somebody held again
	Answers []protocol.Answer
	Laid    bool // the request is what the successor's record says the tenure was asked
}

// AskTheDead lets the first process hold and crash, and the second take over.
// Ten others ask the dead holder to step down if ask is true, each at an
// instant of its own, from to to after the crash. All else is the same whether
// they do or not.
func AskTheDead(seed uint64, cfg Config, ask bool, from, to time.Duration) (Asked, error) {
	cfg.Processes = 12
	w := newWorld(Seed(seed), cfg)
	w.final = true // nobody tries only, or gives up
	for i, p := range w.procs {
		p.src = Seed(seed<<8 + uint64(i))
	}
	crash := 3*w.t.Lease + w.procs[0].upTo(w.t.Lease)
	w.after(0, w.procs[0].acquire)
	w.after(w.t.Lease, w.procs[1].acquire)
	w.after(crash, func() { w.crash(w.procs[0]) })
	for _, p := range w.procs[2:] {
		at := crash + from + p.upTo(to-from)
		if ask {
			w.after(at, func() { p.ask(driver.Request{Kind: driver.StepDown, Reason: "none"}) })
		}
	}
	end := crash + 3*w.t.Lease
	w.run(func() bool { return w.last > 1 || w.now > end })
	a := Asked{Sent: w.firstTakeover, Granted: w.now}
	if prev := w.store.rec.Prev; prev != nil && prev.Asked != nil {
		a.Laid = prev.Asked.Kind == driver.StepDown && prev.End == driver.EndExpired
	}
	w.run(func() bool { return w.now > end })
	a.Answers = w.answered
	return a, w.failure()
}

// Honoured lets a process hold, and another one ask it to step down, or to hand
// over to who never comes. It returns for how long the request was in the record
// before the holder had gone, and how long it was before somebody else held.
func Honoured(seed uint64, cfg Config, q driver.Request) (gone, again time.Duration, err error) {
	cfg.Processes = 3
	w := newWorld(Seed(seed), cfg)
	w.final = true
	w.after(0, w.procs[0].acquire)
	w.after(w.t.Lease, w.procs[1].acquire)
	ask := 2*w.t.Lease + w.upTo(w.t.Lease)
	w.after(ask, func() { w.procs[2].ask(q) })
	end := ask + 4*w.t.Lease
	w.run(func() bool { return len(w.laid) > 0 || w.now > end })
	since := w.now
	w.run(func() bool { return w.store.rec.State != driver.Held || w.now > end })
	gone = w.now - since
	w.run(func() bool { return w.last > 1 || w.now > end })
	return gone, w.now - since, w.failure()
}

// Led is how candidates with different priorities led.
type Led struct {
	Leaders []int           // the priorities of those who led, in order
	Since   []time.Duration // when
	Asks    int             // to make way that were sent
}

// Preference has candidates with the given priorities join one after the other,
// and campaign again whenever they lose the lead. With flaky the candidate with
// the highest priority has a bad link as long as it does not lead.
func Preference(src Source, cfg Config, priorities []int, gap, pause, length time.Duration, flaky bool) (Led, error) {
	cfg.Processes = len(priorities)
	w := newWorld(src, cfg)
	w.final = true
	best := w.procs[0]
	for i, p := range w.procs {
		p.priority, p.pauses = priorities[i], pause
		if p.priority > best.priority {
			best = p
		}
		w.after(time.Duration(i)*gap, p.act)
	}
	best.flaky = flaky
	w.after(length, func() {})
	w.run(func() bool { return w.now >= length })
	led := Led{Since: w.ledSince}
	for _, p := range w.leaders {
		led.Leaders = append(led.Leaders, p.priority)
	}
	for _, p := range w.procs {
		led.Asks += p.wished
	}
	return led, w.failure()
}
