// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
)

// results is everything that a run found. The page is made from it alone.
type results struct {
	Machine machine.Machine `json:"machine"`
	Quick   bool            `json:"quick"`
	Setting setting         `json:"setting"`
	Stores  []*finding      `json:"stores"`
	Virtual []virtual       `json:"virtual"`
}

type setting struct {
	Workers    int     `json:"workers"`
	Partitions int     `json:"partitions"`
	Lease      float64 `json:"leaseSeconds"`
	Heartbeat  float64 `json:"heartbeatSeconds"`
	Refresh    float64 `json:"refreshSeconds"`
	Claims     int     `json:"claimsOfOneOfMany"`
	Drain      float64 `json:"drainSeconds"`
	Write      float64 `json:"writeSeconds"`
}

// finding is what was found on one store. Times are in seconds.
type finding struct {
	Store      string  `json:"store"`
	Watch      bool    `json:"watch"` // it tells of what is released
	Date       string  `json:"date"`
	Took       float64 `json:"tookSeconds"`
	LoadBefore string  `json:"loadBefore"`
	LoadAfter  string  `json:"loadAfter"`
	Filled     filled  `json:"firstAssignment"`
	Steady     steady  `json:"steady"`
	// Recoveries are from SIGKILL, and from a pause, until all was owned again.
	Recoveries []recovery `json:"recoveries"`
	Leave      moving     `json:"leave"`
	Join       moving     `json:"join"`
	Roll       moving     `json:"rollingRestart"`
	Lone       lone       `json:"workerWithAll"`
	// Tenures is how many times a handler's Check passed anew, OwnedTwice where
	// two had a partition at once, and Fence what the resource saw.
	Tenures    int      `json:"tenures"`
	OwnedTwice []string `json:"ownedTwice"`
	Fence      fenced   `json:"fence"`
	Lost       []string `json:"sessionsLost"` // by living workers
	Missed     []string `json:"missed"`
}

// The parts of a run.
const (
	partSQLite  = "sqlite"
	partDynamo  = "dynamodb"
	partVirtual = "simulator"
)

// put puts in what was found on a store, in place of what was before.
func (r *results) put(f *finding) {
	i := slices.IndexFunc(r.Stores, func(before *finding) bool { return before.Watch == f.Watch })
	if i < 0 {
		r.Stores = append(r.Stores, f)
		return
	}
	r.Stores[i] = f
}

func (f *finding) miss(format string, args ...any) {
	f.Missed = append(f.Missed, fmt.Sprintf(format, args...))
}

// filled is how long a new group takes until all partitions are owned, from the
// start of its processes.
type filled struct {
	Owned   float64 `json:"ownedSeconds"`   // until each partition had an owner
	Settled float64 `json:"settledSeconds"` // until each had that of the plan
	Least   int     `json:"leastHeld"`
	Most    int     `json:"mostHeld"`
}

// steady is what is sent while nothing changes, in a second.
type steady struct {
	For    float64     `json:"seconds"`
	Reads  float64     `json:"readsPerSecond"`
	Writes float64     `json:"writesPerSecond"`
	Wire   *gate.Usage `json:"wirePerSecond,omitempty"` // of DynamoDB, counted by a proxy
}

// recovery is one from a SIGKILL, or a pause.
type recovery struct {
	What       string  `json:"what"`
	Partitions int     `json:"partitions"`
	Took       float64 `json:"ownedAgainSeconds"`
	// Expected is what is left of the lease since the last heartbeat that was
	// confirmed, and one look.
	Lease    float64 `json:"leaseLeftSeconds"`
	Expected float64 `json:"expectedSeconds"`
	// Closed is when the coordinator closed the session, 0 if somebody else did.
	Closed float64 `json:"sessionClosedSeconds,omitempty"`
	First  float64 `json:"firstOwnedSeconds"`
	// Others is how many partitions of others moved meanwhile.
	Others int `json:"othersMoved"`

	gone  *process
	had   []int // its partitions
	since int64 // when it was struck
}

// moving is what a change that was planned has moved.
type moving struct {
	Took  float64 `json:"tookSeconds"`
	Moves int     `json:"moves"`
	Most  int     `json:"mostMovesOfOne"`
	Mean  float64 `json:"meanMovesOfOne"`
	Share float64 `json:"share"` // partitions of one worker
	// Gaps are the times in which a partition had nobody: from the return of
	// one handler to the begin of the next. Handovers are from when the former one
	// was told to stop, and Asked from when the next one asked for it.
	Gaps      stretch `json:"gaps"`
	Handovers stretch `json:"handOvers"`
	Asked     stretch `json:"asked"`
}

// stretch is a number of times, in seconds.
type stretch struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

func stretchOf(times []float64) stretch {
	if len(times) == 0 {
		return stretch{}
	}
	slices.Sort(times)
	n := len(times)
	return stretch{n, times[n/2], times[min(n-1, n*99/100)], times[n-1]}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// killOfWorker is what happens to a worker that is not the coordinator.
const killOfWorker = "SIGKILL of a worker"

// lone is a worker that has all partitions and is killed, while two others have
// none. Times are in seconds from the kill.
type lone struct {
	Partitions int `json:"partitions"`
	// Rate is how many claims a second two processes made in the same run, of
	// locks that a closed session had left.
	Rate float64 `json:"claimsPerSecond"`
	// Lease is what was left of it since the last heartbeat.
	Lease    float64 `json:"leaseLeftSeconds"`
	Look     float64 `json:"lookSeconds"`
	Claims   float64 `json:"claimsSeconds"`
	Expected float64 `json:"expectedSeconds"`
	// When the coordinator closed the session (0 if somebody else did), when the
	// first partition was owned again, and when the last one.
	Closed float64 `json:"sessionClosedSeconds,omitempty"`
	First  float64 `json:"firstOwnedSeconds"`
	Took   float64 `json:"ownedAgainSeconds"`
	Ratio  float64 `json:"tookToExpected"`
}

// earlier returns what a file holds of runs before, so that a run of some parts
// leaves the others as they were.
func earlier(path string) (r results, err error) {
	if path == "" {
		return r, nil
	}
	if err = page.ReadJSON(path, &r); errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	return r, err
}
