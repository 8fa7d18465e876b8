// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// Asked is what became of a dead holder that was asked to step down.
type Asked struct {
	Sent    time.Duration // when the first takeover was sent
	Granted time.Duration // when a process held the lock again
	Answers []protocol.Answer
	Laid    bool // the successor's record shows the request to the dead holder
}

// AskTheDead lets the first process hold and crash, and the second take over.
// Ten others ask the dead holder to step down if ask is true, each at an
// instant of its own, from to to after the crash. Everything else is the same with
// and without them.
func AskTheDead(seed uint64, cfg Config, ask bool, from, to time.Duration) (Asked, error) {
	cfg.Processes = 12
	l := newLock(Seed(seed), cfg)
	l.final = true // nobody tries only, or gives up
	for i, p := range l.procs {
		p.src = Seed(seed<<8 + uint64(i))
	}
	crash := 3*l.t.Lease + l.procs[0].upTo(l.t.Lease)
	l.after(0, l.procs[0].acquire)
	l.after(l.t.Lease, l.procs[1].acquire)
	l.after(crash, func() { l.procs[0].crash() })
	for _, p := range l.procs[2:] {
		at := crash + from + p.upTo(to-from)
		if ask {
			l.after(at, func() { p.ask(driver.Request{Kind: driver.StepDown, Reason: "none"}) })
		}
	}
	end := crash + 3*l.t.Lease
	l.run(func() bool { return l.last > 1 || l.now > end })
	a := Asked{Sent: l.firstTakeover, Granted: l.now}
	if prev := l.store.rec.Prev; prev != nil && prev.Asked != nil {
		a.Laid = prev.Asked.Kind == driver.StepDown && prev.End == driver.EndExpired
	}
	l.run(func() bool { return l.now > end })
	a.Answers = l.answered
	return a, l.failure()
}

// Honoured lets a process hold, and another one ask it to step down, or to hand
// over to an owner that never comes. It returns how long the request was in the record
// before the holder had gone, and how long it took until another process held the lock.
func Honoured(seed uint64, cfg Config, q driver.Request) (gone, again time.Duration, err error) {
	cfg.Processes = 3
	l := newLock(Seed(seed), cfg)
	l.final = true
	l.after(0, l.procs[0].acquire)
	l.after(l.t.Lease, l.procs[1].acquire)
	ask := 2*l.t.Lease + l.upTo(l.t.Lease)
	l.after(ask, func() { l.procs[2].ask(q) })
	end := ask + 4*l.t.Lease
	l.run(func() bool { return len(l.laid) > 0 || l.now > end })
	since := l.now
	l.run(func() bool { return l.store.rec.State != driver.Held || l.now > end })
	gone = l.now - since
	l.run(func() bool { return l.last > 1 || l.now > end })
	return gone, l.now - since, l.failure()
}

// Led is how candidates with different priorities led.
type Led struct {
	Leaders []int           // the priorities of the leaders, in order
	Since   []time.Duration // when
	Asks    int             // to make way that were sent
}

// Preference has candidates with the given priorities join one after the other,
// and campaign again whenever they lose the lead. With flaky the candidate with
// the highest priority has a bad link as long as it does not lead.
func Preference(src Source, cfg Config, priorities []int, gap, pause, length time.Duration, flaky bool) (Led, error) {
	cfg.Processes = len(priorities)
	l := newLock(src, cfg)
	l.final = true
	best := l.procs[0]
	for i, p := range l.procs {
		p.priority, p.pauses = priorities[i], pause
		if p.priority > best.priority {
			best = p
		}
		l.after(time.Duration(i)*gap, p.act)
	}
	best.flaky = flaky
	l.after(length, func() {})
	l.run(func() bool { return l.now >= length })
	led := Led{Since: l.ledSince}
	for _, p := range l.leaders {
		led.Leaders = append(led.Leaders, p.priority)
	}
	for _, p := range l.procs {
		led.Asks += p.wished
	}
	return led, l.failure()
}
