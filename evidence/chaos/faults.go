// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "github.com/tenurelock/tenure/evidence/chaos/replica"

// kind is a kind of fault.
type kind string

// Faults of a process.
const (
	kill      kind = "kill"       // SIGKILL, and a new process after a while
	stop      kind = "stop"       // SIGSTOP, and SIGCONT after a while
	suspend   kind = "suspend"    // stopped; the monotonic clock stood meanwhile, boot and wall clock went on
	pauseVM   kind = "pause"      // stopped; the monotonic and the boot clock stood, the wall clock is set right at once
	lateVM    kind = "late-pause" // the same, but the wall clock is set right a little later
	wallOn    kind = "wall-on"    // somebody sets the wall clock forward
	wallBack  kind = "wall-back"  // somebody sets the wall clock back
	stepDown  kind = "step-down"  // no fault: somebody asks the leader to step down
	start     kind = "start"      // no fault: a process where there was none
	namespace kind = "namespace"  // SIGKILL, and a new process in a time namespace of its own
)

// Faults of an engine, or of the way to it.
const (
	lockFile      kind = "lock-file"      // another program has the file locked
	blackHole     kind = "black-hole"     // bytes vanish between replica and engine
	delay         kind = "delay"          // each piece of bytes waits
	loseReplies   kind = "lose-replies"   // the engine does what it is asked; its answers vanish
	stopEngine    kind = "stop-engine"    // SIGSTOP, and SIGCONT after a while
	restartEngine kind = "restart-engine" // SIGKILL, and a new process on the same data
)

// role says whom a fault is for.
type role string

const (
	leader    role = "leader"
	anyone    role = "anyone"
	everybody role = "everybody"
	nobody    role = "nobody" // the engine
)

// fault is a card in the deck of a nemesis.
type fault struct {
	kind kind
	on   role
	// least and most bound how long it takes, in leases.
	least, most float64
}

// processFaults are those that need no engine's help.
func processFaults(namespaces bool) []fault {
	all := []fault{
		{kind: kill, on: leader, least: 0.1, most: 1},
		{kind: kill, on: anyone, least: 0.1, most: 1},
		{kind: stop, on: leader, least: 0.1, most: 0.6},
		{kind: stop, on: leader, least: 1.2, most: 2.5},
		{kind: stop, on: leader, least: 1.2, most: 1.6},
		{kind: stop, on: anyone, least: 0.3, most: 2},
		{kind: suspend, on: leader, least: 1.2, most: 2},
		{kind: suspend, on: leader, least: 0.2, most: 0.8},
		{kind: suspend, on: anyone, least: 0.3, most: 1.5},
		{kind: pauseVM, on: leader, least: 1.2, most: 2},
		{kind: pauseVM, on: anyone, least: 0.3, most: 1.5},
		{kind: lateVM, on: leader, least: 1.2, most: 1.5},
		{kind: wallOn, on: leader, least: 0.3, most: 5},
		{kind: wallOn, on: anyone, least: 100, most: 5000},
		{kind: wallBack, on: leader, least: 0.3, most: 5000},
		{kind: wallBack, on: anyone, least: 0.3, most: 5000},
		{kind: stepDown, on: anyone},
	}
	if namespaces {
		all = append(all, fault{kind: namespace, on: anyone, least: 0.1, most: 0.5})
	}
	return all
}

// event is a fault that happened.
type event struct {
	Kind     kind   `json:"kind"`
	On       string `json:"on"` // name of a process, "engine" or "everybody"
	Seat     int    `json:"seat"`
	From, To int64
	Text     string `json:"text"`
	// Change is the number that the fault's first change of the clocks has, and
	// Shift by how much these were moved.
	Change int64         `json:"change,omitempty"`
	Shift  replica.Shift `json:"shift"`
	// Blind is the time in which no clock of the replica shows the pause.
	Blind [2]int64 `json:"blind"`
}
