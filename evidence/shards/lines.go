// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"time"

	"github.com/tenurelock/tenure/shard"
)

// task is what a worker is told at its start, in a line.
type task struct {
	Name       string        `json:"name"`
	Store      place         `json:"store"`
	Lease      time.Duration `json:"lease"`
	Heartbeat  time.Duration `json:"heartbeat"`
	Refresh    time.Duration `json:"refresh"`
	Partitions int           `json:"partitions"`
	Weight     float64       `json:"weight"`
	Claims     int           `json:"claims"`
	Resource   string        `json:"resource"` // what its handlers write to
	Write      time.Duration `json:"write"`    // how often
	Drain      time.Duration `json:"drain"`    // how long a handler works on when it is told to stop
	Log        string        `json:"log"`
	Probe      bool          `json:"probe,omitempty"` // it only claims locks
}

// note is what a worker tells: a line each.
type note struct {
	Kind      noted        `json:"k"`
	At        int64        `json:"at,omitempty"` // of proc.Monotonic
	Partition int          `json:"p,omitempty"`
	Token     uint64       `json:"t,omitempty"`
	Took      int64        `json:"took,omitempty"`
	Since     int64        `json:"since,omitempty"`
	Reads     int64        `json:"reads,omitempty"`
	Writes    int64        `json:"writes,omitempty"`
	Text      string       `json:"text,omitempty"`
	Stats     *shard.Stats `json:"stats,omitempty"`
}

type noted string

const (
	notedReady  noted = "ready"
	notedBegin  noted = "begin"   // a handler has begun: its Check has passed
	notedTold   noted = "told"    // its context has ended
	notedEnd    noted = "end"     // it returns now
	notedMoved  noted = "moved"   // a partition has come that another worker was asked for
	notedClosed noted = "closed"  // as coordinator: a dead worker's session is closed
	notedStats  noted = "stats"   // what the group says of this worker has changed
	notedLost   noted = "lost"    // the session is lost
	notedCount  noted = "counted" // calls of the store so far
	notedLeft   noted = "left"    // Run has returned, with Text or in order
	notedDone   noted = "done"    // of a probe
)

// order is what a worker is told later.
type order struct {
	Do    string `json:"do"`
	From  int    `json:"from,omitempty"` // of a probe: some of the locks
	Until int    `json:"until,omitempty"`
}

// What a worker is told to do.
const (
	sayCount = "count"
	takeAll  = "take"  // of a probe: locks, and leave them under a closed session
	claimAll = "claim" // of a probe: claim them from there
)

// stint names the time in which one owner has a partition.
type stint struct {
	partition int
	token     uint64
}

// roleName is the role of a worker.
const roleName = "shard"

// claimsAtOnce is how many claims a worker of a group has under way, by default.
const claimsAtOnce = 64
