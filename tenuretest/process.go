// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// creep is how much the clock of a stopped process moves each time that it is read.
// Otherwise a goroutine that sleeps until an instant just ahead would find the clock
// unchanged, and sleep as briefly again, without end.
const creep = time.Microsecond

// afterlife is how much the clock of a dead process jumps: past every deadline.
const afterlife = 2 * 365 * 24 * time.Hour

// process is the process of a client, as the client sees it: a clock, and whether it
// runs. It is the client's [tenure.Clock].
type process struct {
	clock tenure.Clock // which runs right, and knows of no pause

	mu      sync.Mutex
	rate    float64  // of the process's clock, beside the right one
	from    instants // what the right clock showed when the rate was set
	shown   instants // what the process's clock showed then, and by how much it was set ahead
	stopped bool     // it is paused
	held    instants // what the clock shows in the pause
	dying   bool     // it was killed
	dead    bool     // nothing of it runs any more
}

// instants are the two answers of a clock.
type instants struct{ holder, contender time.Duration }

// Holder returns the time by the process's clock.
func (p *process) Holder() time.Duration { return p.now().holder }

// Contender is Holder for the other answer of the clock.
func (p *process) Contender() time.Duration { return p.now().contender }

func (p *process) now() instants {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.ran()
	switch {
	case p.dead:
		return instants{now.holder + afterlife, now.contender + afterlife}
	case p.stopped:
		p.held = instants{min(p.held.holder+creep, now.holder), min(p.held.contender+creep, now.contender)}
		return p.held
	}
	return now
}

// pause stops the process.
func (p *process) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped && !p.dying {
		p.stopped = true
		p.held = p.ran()
	}
}

// ran returns what the clock shows if there is no pause. The caller holds the mutex.
func (p *process) ran() instants {
	at := func(shown, since time.Duration) time.Duration {
		if p.rate != 1 { // else to the nanosecond, also after months
			since = time.Duration(float64(since) * p.rate)
		}
		return shown + since
	}
	return instants{
		at(p.shown.holder, p.clock.Holder()-p.from.holder),
		at(p.shown.contender, p.clock.Contender()-p.from.contender),
	}
}

func (p *process) setRate(rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown, p.from = p.ran(), instants{p.clock.Holder(), p.clock.Contender()}
	p.rate = rate
}

// step sets the answer for holders ahead.
func (p *process) step(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.holder += d
}

// resume ends the pause, if there is one.
func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = false
}

// kill begins the end of the process, and reports whether it has not begun before.
func (p *process) kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.dying
	p.dying = true
	return first
}

// end ends a process that was killed, and its pause.
func (p *process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead, p.stopped = true, false
}

// killed reports whether the process was killed.
func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dying
}

// paused reports whether the process is stopped.
func (p *process) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}
