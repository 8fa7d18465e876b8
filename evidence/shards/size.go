// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"time"

	"github.com/tenurelock/tenure/evidence/peers"
)

// size is how much the scenes of shards do.
type size struct {
	peers.Timing
	workers    int
	partitions int
	claims     int           // that a worker has under way, where there are many workers
	kills      int           // of a worker; and one of the coordinator
	steady     time.Duration // in which requests are counted
	write      time.Duration // how often a handler writes to the resource
	drain      time.Duration // how long it works on when it is told to stop
	quick      bool
}

var (
	full = size{
		Timing:  peers.Timing{Lease: 5 * time.Second, Heartbeat: time.Second, Refresh: 500 * time.Millisecond},
		workers: 20, partitions: 2000, claims: 16, kills: 2, steady: 10 * time.Second, write: 4 * time.Second, drain: 20 * time.Millisecond,
	}
	quick = size{
		Timing:  peers.Timing{Lease: 4 * time.Second, Heartbeat: 500 * time.Millisecond, Refresh: 250 * time.Millisecond},
		workers: 4, partitions: 60, claims: 16, kills: 1, steady: 2 * time.Second, write: time.Second, drain: 20 * time.Millisecond, quick: true,
	}
)
