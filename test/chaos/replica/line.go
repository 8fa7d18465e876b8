// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package replica is the program that a chaos run starts several times over. It takes one lock
// again and again, by itself, in an election, or as a reader or a writer, and works while it
// holds it; what it does and sees it tells in lines of JSON on its standard output.
package replica

import (
	"time"

	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/peers"
)

// Config is what a replica is told, in its environment.
type Config struct {
	Name     string
	Do       Do
	Store    string // sqlite:PATH or dynamodb:URL
	Resource string // URL of what the holder writes to
	Page     string // file of the shift of its clocks
	Lease    time.Duration
	Rate     float64 // by what part of it the rate of its clocks differs
	Seed     uint64
	Group    *Group // of a worker
}

// Group is a group of package shard, as one of its workers has it.
type Group struct {
	peers.Timing
	Name       string
	Partitions int
	Weight     float64
	Claims     int
	Write      time.Duration // how often a handler writes to the resource
	Drain      time.Duration // how long it works on when it is told to stop
}

// Do is what a replica does.
type Do string

// What a replica can do.
const (
	Elect Do = "elect" // campaigns in an election, and does operations while it leads
	Lock  Do = "lock"  // takes the lock by itself, and does the same
	Read  Do = "read"  // reads what writers have written, again and again
	Write Do = "write" // writes it, in two steps
	Jobs  Do = "jobs"  // runs jobs, once for each occasion
	Work  Do = "work"  // works in the Group
)

// Variable names the variable of the environment that has the Config, as JSON.
const Variable = "TENURE_CHAOS_REPLICA"

// LockName is the lock of all replicas.
const LockName = "chaos"

// Orders are the lines that a replica reads.
const (
	OrderEnd      = "end"       // end in peace
	OrderStepDown = "step-down" // ask the holder, whoever it is, to step down
)

// Kind says what a line is about.
type Kind string

// Kinds of lines. Instants are those of a [Watch].
const (
	Ready    Kind = "ready"    // the program runs
	Granted  Kind = "granted"  // work begins, after a Check from From to To
	Held     Kind = "held"     // Check has passed, last by a call that began at From; of no hold: of all
	Failed   Kind = "failed"   // Check does not pass any more
	Begin    Kind = "begin"    // an operation begins, after a Check that began at From
	End      Kind = "end"      // an operation has ended with an answer
	Ended    Kind = "ended"    // work has ended; Text says why, or From when the last Check passed
	Beat     Kind = "beat"     // a heartbeat was confirmed, sent at From, after so many calls of the store
	Planned  Kind = "planned"  // what the group says of this worker has changed
	Lost     Kind = "lost"     // the worker has lost its session
	Left     Kind = "left"     // the worker has left its group, with Text if not in order
	Came     Kind = "came"     // what the work of a reader, a writer or a job came to, in Text
	Finished Kind = "finished" // the store has how the run for an occasion has ended
	Told     Kind = "told"     // of the run of an occasion that was begun: its token, and in Text its state
	Torn     Kind = "torn"     // a reader has seen, since From, what it must not
	Stopping Kind = "stopping" // it stops itself, to be continued when its lease has run out
	Looked   Kind = "looked"   // what the clocks show
	Trouble  Kind = "trouble"  // an error that is not part of the game
)

// Line is what a replica says, as one line of JSON.
type Line struct {
	Kind   Kind   `json:"kind"`
	At     int64  `json:"at"`
	Lock   string `json:"lock,omitempty"`
	Owner  string `json:"owner,omitempty"` // of the hold
	Shared bool   `json:"shared,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	From   int64  `json:"from,omitempty"`
	To     int64  `json:"to,omitempty"`
	// RawBoot and RawMono are the kernel's clocks in this time namespace.
	RawBoot int64  `json:"rawBoot,omitempty"`
	RawMono int64  `json:"rawMono,omitempty"`
	Text    string `json:"text,omitempty"`
	// Of a run for an occasion.
	Rule     trial.Rule `json:"rule,omitempty"`
	Occasion int64      `json:"occasion,omitempty"`
	// Of an operation, or effect, that has ended with an answer.
	ID   string      `json:"id,omitempty"`
	Told *trial.Told `json:"told,omitempty"`
	// Of a worker.
	Reads  int64        `json:"reads,omitempty"`
	Writes int64        `json:"writes,omitempty"`
	Stats  *shard.Stats `json:"stats,omitempty"`
	Clocks *Reading     `json:"clocks,omitempty"`
}

// Reading is what the clocks of the replica show, and how much time has really passed.
type Reading struct {
	Change    int64         `json:"change"` // how often the shift was changed
	Mono      time.Duration `json:"mono"`
	Boot      time.Duration `json:"boot"`
	Wall      time.Duration `json:"wall"`
	Holder    time.Duration `json:"holder"`
	Contender time.Duration `json:"contender"`
	RealMono  time.Duration `json:"realMono"`
}
