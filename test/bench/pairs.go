// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// caller holds locks, one after the other or many at once. It is used by one goroutine at a
// time. Its calls are for [must.Try].
type caller struct {
	// acquire waits until the caller holds the lock.
	acquire func(ctx context.Context, name string) *heldLock
	// beat sends a heartbeat for the first of these locks or for more, and returns for how
	// many. errLost: a heartbeat was too late.
	beat func(ctx context.Context, all []*heldLock) int
}

// heldLock is a lock that a caller holds.
type heldLock struct {
	name   string // or the key, as the server has it
	number uint64 // of the term; zero if unknown
	beat   string // the latest heartbeat, of the lock service
	lease  string // of etcd

	release func(context.Context)
}

// openFunc opens a caller.
type openFunc = func(context.Context) caller

// openAll opens n callers.
func openAll(ctx context.Context, open openFunc, n int) []caller {
	all := make([]caller, n)
	must.AtOnce(ctx, n, 8, func(ctx context.Context, i int) { all[i] = open(ctx) })
	return all
}

// pairs makes callers acquire and release locks for a while, each its own lock if there are
// enough, or the next one. It returns how often that was done a second, and
// reports what is wrong.
func pairs(ctx context.Context, all []caller, locks []string, length time.Duration, wrong func(string)) float64 {
	known := make([]struct { // of a lock, for its callers
		held atomic.Bool
		last atomic.Uint64 // the number of the latest tenure
	}, len(locks))
	var made atomic.Int64
	begun := time.Now()
	must.AtOnce(ctx, len(all), len(all), func(ctx context.Context, i int) {
		for turn := i; time.Since(begun) < length; turn++ {
			at := turn % len(locks)
			if len(locks) == len(all) {
				at = i
			}
			held, lock := all[i].acquire(ctx, locks[at]), &known[at]
			if lock.held.Swap(true) {
				wrong("granted before another caller released it")
			}
			if before := lock.last.Swap(held.number); held.number != 0 && held.number <= before {
				wrong("the token of a term has not risen")
			}
			lock.held.Store(false) // the release may be carried out from here on
			held.release(ctx)
			made.Add(1)
		}
	})
	return float64(made.Load()) / time.Since(begun).Seconds()
}

// handOver passes a lock to and fro between two callers, and returns in milliseconds how long it
// was each time from a release to the end of the acquire of the other one, which has waited for a
// while.
func handOver(
	ctx context.Context, two []caller, name string, times int, waits time.Duration, wrong func(string),
) (took []float64) {
	held := two[0].acquire(ctx, name)
	for turn := range times {
		var next *heldLock
		var granted, begun time.Time
		var released atomic.Bool
		must.AtOnce(ctx, 2, 2, func(ctx context.Context, i int) {
			if i == 0 {
				next, granted = two[(turn+1)%2].acquire(ctx, name), time.Now()
				if !released.Load() {
					wrong("granted before it was released")
				}
				return
			}
			wait.Rest(ctx, waits)
			released.Store(true)
			begun = time.Now()
			held.release(ctx)
		})
		held = next
		took = append(took, milliseconds(granted.Sub(begun).Nanoseconds()))
	}
	held.release(ctx)
	return took
}
