// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// run drives one machine: it steps the machine when due, sends the calls that the
// machine asks for, and hands back their results. Its fields are set before use, and do
// not change.
type run struct {
	c       *Client
	machine protocol.Machine
	// owner takes the outcome of the steps.
	owner owner
	// mutex is held while the machine is stepped, and while the owner's methods run.
	mutex *sync.Mutex
	// shared, unless nil, is also held around the machine's own steps, and taken after
	// mutex. It guards what machines with other mutexes read.
	shared *sync.Mutex
	// timers belong to the clock that the machine counts by.
	timers *timers
	// timeout bounds each call; 0 means the client's timeout. beat bounds each heartbeat; 0
	// means timeout.
	timeout, beat time.Duration
	// wake steps another machine, and begin drives a new one. They may be nil if the
	// machine knows no other.
	wake, begin func(protocol.Machine)

	timer timer
}

// owner is the object that a machine works for.
type owner interface {
	// before is called before each step of the machine.
	before(now time.Duration)
	// stepped takes the action of each step before it is carried out.
	stepped(now time.Duration, a protocol.Action)
	// replied takes each result, after the machine and before stepped.
	replied(now time.Duration, c *protocol.Call, r protocol.Result)
	// neededBy is the instant by which the next call should be answered; the earlier, the
	// sooner it is made.
	neededBy() time.Duration
}

// nobody is an owner that ignores everything. No lease depends on its calls.
type nobody struct{}

func (nobody) before(time.Duration)                                   {}
func (nobody) stepped(time.Duration, protocol.Action)                 {}
func (nobody) replied(time.Duration, *protocol.Call, protocol.Result) {}
func (nobody) neededBy() time.Duration                                { return neverNeeded }

// run returns the driver of a machine by the contender's clock.
func (c *Client) run(m protocol.Machine, of owner, mutex *sync.Mutex) run {
	return run{c: c, machine: m, owner: of, mutex: mutex, timers: c.readTimers}
}

// step steps the machine.
func (r *run) step() { r.do(r.machine.Step) }

// do makes one step of the machine.
func (r *run) do(step func(now time.Duration) protocol.Action) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.act(step)
}

// act is do for a caller that holds the mutex.
func (r *run) act(step func(now time.Duration) protocol.Action) {
	now := r.timers.now()
	r.owner.before(now)
	r.carry(now, r.withShared(now, step))
}

// carry carries out what the machine wants. The caller holds the mutex.
func (r *run) carry(now time.Duration, a protocol.Action) {
	r.owner.stepped(now, a)
	if a.Call != nil {
		timeout := r.timeout
		if a.Call.Kind == protocol.Heartbeat && r.beat > 0 {
			timeout = r.beat
		}
		r.c.send(timeout, r.owner.neededBy(), a.Call, r)
	}
	r.set()
	for _, m := range a.Begin {
		r.begin(m)
	}
	for _, m := range a.Wake {
		r.wake(m)
	}
}

// result hands the result of a call to the machine.
func (r *run) result(c *protocol.Call, res protocol.Result) {
	r.do(func(now time.Duration) protocol.Action {
		a := r.machine.Reply(now, res)
		r.owner.replied(now, c, res)
		return a
	})
}

func (r *run) withShared(now time.Duration, step func(time.Duration) protocol.Action) protocol.Action {
	if r.shared != nil {
		r.shared.Lock()
		defer r.shared.Unlock()
	}
	return step(now)
}

// set sets the timer for the next step. act calls it. Other callers call it, with the
// mutex held, after they have changed what the machine shares.
func (r *run) set() {
	if at, due := r.next(); due {
		r.prepare()
		r.timers.Set(&r.timer, at)
	} else {
		r.timers.Drop(&r.timer)
	}
}

func (r *run) next() (at time.Duration, due bool) {
	if r.shared != nil {
		r.shared.Lock()
		defer r.shared.Unlock()
	}
	if r.machine.Over() {
		return 0, false
	}
	return r.machine.Next()
}

// prepare allows setAt to be called without the mutex from then on.
func (r *run) prepare() {
	if r.timer.Run == nil {
		r.timer.Run = func(time.Duration) { r.step() }
	}
}

// setAt sets the timer for the next step to the given instant. The caller holds the
// mutex, unless the run was prepared.
func (r *run) setAt(at time.Duration) {
	r.prepare()
	r.timers.Set(&r.timer, at)
}

// caller waits for the result of a call.
type caller interface {
	// result hands over the result of c.
	result(c *protocol.Call, res protocol.Result)
}
