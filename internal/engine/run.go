// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/protocol"
)

// Run drives one machine: it steps the machine when that is due, sends the calls that
// it asks for, and hands back their results. Its fields are set before use, and do not
// change.
type Run struct {
	// Machine is what is driven.
	Machine protocol.Machine
	// Mutex is held while the machine is stepped, and while Stepped and Replied run.
	Mutex sync.Locker
	// Shared, unless nil, is held around the machine's own steps as well, and taken
	// after Mutex. It guards what machines with other mutexes read.
	Shared sync.Locker
	// Clock is what the machine counts by, and Timers are those of that clock.
	Clock  func() time.Duration
	Timers *Timers
	// Send carries out a call, and hands its result to the caller, once.
	Send func(c *protocol.Call, to Caller)
	// Before is called before each step of the machine. It may be nil.
	Before func(now time.Duration)
	// Stepped is told the action of each step before it is carried out. It may be nil.
	Stepped func(now time.Duration, a protocol.Action)
	// Replied is told of each result, after the machine and before Stepped. It may
	// be nil.
	Replied func(now time.Duration, c *protocol.Call, r protocol.Result)
	// Wake has another machine stepped, and Begin has a new one driven. They may be
	// nil where the machine knows of no other.
	Wake, Begin func(protocol.Machine)

	timer Timer
}

// Step lets the machine see that time has passed.
func (r *Run) Step() { r.Do(r.Machine.Step) }

// Do makes one step of the machine.
func (r *Run) Do(step func(now time.Duration) protocol.Action) {
	r.Mutex.Lock()
	defer r.Mutex.Unlock()
	r.Act(step)
}

// Act is Do for a caller that holds the mutex.
func (r *Run) Act(step func(now time.Duration) protocol.Action) {
	now := r.Clock()
	if r.Before != nil {
		r.Before(now)
	}
	r.Carry(now, r.shared(now, step))
}

// Carry carries out what the machine wants. The caller holds the mutex.
func (r *Run) Carry(now time.Duration, a protocol.Action) {
	if r.Stepped != nil {
		r.Stepped(now, a)
	}
	if c := a.Call; c != nil {
		r.Send(c, r)
	}
	r.Set()
	for _, m := range a.Begin {
		r.Begin(m)
	}
	for _, m := range a.Wake {
		r.Wake(m)
	}
}

// Caller is what waits for the result of a call.
type Caller interface {
	// Result hands over the result of c.
	Result(c *protocol.Call, res protocol.Result)
}

// Result hands the result of a call to the machine.
func (r *Run) Result(c *protocol.Call, res protocol.Result) {
	r.Do(func(now time.Duration) protocol.Action {
		a := r.Machine.Reply(now, res)
		if r.Replied != nil {
			r.Replied(now, c, res)
		}
		return a
	})
}

func (r *Run) shared(now time.Duration, step func(time.Duration) protocol.Action) protocol.Action {
	if r.Shared != nil {
		r.Shared.Lock()
		defer r.Shared.Unlock()
	}
	return step(now)
}

// Set has the machine stepped when that is due. Act does so by itself. A caller does it
// after it has changed what the machine shares with others. It holds the mutex.
func (r *Run) Set() {
	if at, due := r.next(); due {
		r.Prepare()
		r.Timers.Set(&r.timer, at)
	} else {
		r.Timers.Drop(&r.timer)
	}
}

func (r *Run) next() (at time.Duration, due bool) {
	if r.Shared != nil {
		r.Shared.Lock()
		defer r.Shared.Unlock()
	}
	if r.Machine.Over() {
		return 0, false
	}
	return r.Machine.Next()
}

// Prepare makes SetAt callable without the mutex from then on.
func (r *Run) Prepare() {
	if r.timer.Run == nil {
		r.timer.Run = func(time.Duration) { r.Step() }
	}
}

// SetAt has the machine stepped at an instant of the caller's choice. The caller holds
// the mutex, unless the run was prepared.
func (r *Run) SetAt(at time.Duration) {
	r.Prepare()
	r.Timers.Set(&r.timer, at)
}
