// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"time"

	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// size is how much a run does.
type size struct {
	locks      int          // for counting one operation
	hold       []int        // locks that a process holds
	waiters    int          // of one lock
	crowds     int          // clients at once, where each of them is a load
	everyday   peers.Timing // of holding and waiting
	takeover   peers.Timing
	periods    int // heartbeat periods that holding and waiting are counted for
	handovers  int
	handover   peers.Timing
	rings      int // hand-overs with a bell, and as many without
	kills      int // of each pair
	pairs      int // of Tenure; of the others one
	failover   peers.Timing
	throughput time.Duration // of one run
	loads      []workload
	runs       int
	crowd      crowdSize
	standing   []peers.Timing // of what is priced by the month
	counted    time.Duration  // for so long
}

// workload is how the throughput is measured.
type workload struct {
	goroutines int
	delay      time.Duration // added to each request
}

var (
	// peersDefaults are the times that dynamolock and the Java client use where
	// nothing is set.
	peersDefaults = timing(20*time.Second, 5*time.Second, time.Second)

	full = size{
		locks: 10, hold: []int{1, 100, 1000}, waiters: 50, crowds: 1, everyday: peersDefaults, takeover: peersDefaults, periods: 3,
		handovers: 20, handover: peersDefaults, rings: 50,
		kills: 14, pairs: 3, failover: timing(3*time.Second, 600*time.Millisecond, 600*time.Millisecond),
		throughput: 1500 * time.Millisecond, loads: []workload{{1, 0}, {32, 0}, {1, 5 * time.Millisecond}}, runs: 5,
		crowd: crowdSize{tenure: []int{1000, 10_000, 100_000}, dynamolock: []int{100, 400, 1000}, Size: keepers.Ordinary.For(20 * time.Second)},
		// The second is the failover time that the Kinesis Client Library has.
		standing: []peers.Timing{peersDefaults, timing(10*time.Second, 2500*time.Millisecond, 500*time.Millisecond)}, counted: 30 * time.Second,
	}
	// quick looks whether all of it works.
	quick = size{
		locks: 3, hold: []int{1, 20}, waiters: 2, crowds: 3, everyday: timing(4*time.Second, time.Second, 200*time.Millisecond),
		// A shorter lease is a shorter time that the store may fail to answer, on a machine that is busy with other tests.
		takeover: timing(2*time.Second, 400*time.Millisecond, 200*time.Millisecond), periods: 2,
		handovers: 2, handover: timing(4*time.Second, time.Second, 200*time.Millisecond), rings: 2,
		kills: 1, pairs: 1, failover: timing(time.Second, 200*time.Millisecond, 200*time.Millisecond),
		throughput: 200 * time.Millisecond, loads: []workload{{4, 0}, {1, time.Millisecond}}, runs: 2,
		crowd:    crowdSize{tenure: []int{20, 200}, dynamolock: []int{20}, Size: keepers.Lenient.For(2 * time.Second)},
		standing: []peers.Timing{timing(4*time.Second, 500*time.Millisecond, 200*time.Millisecond)}, counted: 2 * time.Second,
	}
)

func timing(lease, heartbeat, refresh time.Duration) peers.Timing {
	return peers.Timing{Lease: lease, Heartbeat: heartbeat, Refresh: refresh}
}

// crowdSize is how many locks one process holds in the step of sessions.
type crowdSize struct {
	tenure     []int // under one session
	dynamolock []int // each its own
	keepers.Size
}
