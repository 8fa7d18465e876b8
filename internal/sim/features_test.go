// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// explore runs schedules of the first n seeds in a shape, and returns what has happened.
func explore(t *testing.T, n uint64, shape func(seed uint64, c *Config)) Sum {
	t.Helper()
	sum, failed := Explore(t.Context(), 0, n, shape, func(Sum) {})
	if failed != nil {
		_, err := Run(Seed(failed.Seed), func(c *Config) { shape(failed.Seed, c) }, &Trace{})
		t.Fatalf("seed %d: %v", failed.Seed, err)
	}
	return sum
}

// TestFeatures: each rule holds in schedules with rare events, and the events do occur
// there.
func TestFeatures(t *testing.T) {
	for _, tt := range []struct {
		name  string
		seeds uint64
		shape func(seed uint64, c *Config)
		least map[Happening]int // of 1,000 schedules
	}{
		// A process with the label takes the lock at once, no other process does before the
		// reservation has lapsed, and the lock is held again.
		{"labels", 1000, func(_ uint64, c *Config) { labelled(c) }, map[Happening]int{Lapsed: 25, Inherited: 25}},
		// Whatever messages come, and whenever.
		{"notifications", 1000, func(_ uint64, c *Config) { notified(c) }, map[Happening]int{Notified: 10_000, Hurried: 10_000}},
		// A guardian never frees the lock of anybody but its own dead, with all of the
		// family; the successor never works beside the last requests of the dead; and the
		// lock is soon free where nothing else fails.
		{"guardians", 600, func(seed uint64, c *Config) {
			[...]func(*Config){guarded, guardedLong, guardedPrompt, guardedDeleted}[seed%4](c)
		}, map[Happening]int{CrashReleased: 250}},
		// An engine that loses writes, with sessions and without. No two hold one lock, on whichever
		// server; no token is given twice; who has a record that survived goes on, with its data; and
		// each lock has a holder in the end.
		{"losing", 300, func(seed uint64, c *Config) {
			[...]func(*Config){losing, and(losing, sessioned), losingLeases}[seed%3](c)
		}, map[Happening]int{
			Failover: 1000, OpenedGrant: 100, CutGrant: 20, Survived: 100, SteppedBack: 50, Closed: 100, Raised: 100,
			SessionEnded: 100, DataAgain: 20,
		}},
		// A term ends as failed when its work says so.
		{"failed work", 500, func(_ uint64, c *Config) { failing(c) }, map[Happening]int{Failed: 250}},
		// Locks under sessions, with and without requests, and with nothing that fails.
		{"sessions", 900, func(seed uint64, c *Config) {
			c.Sessions, c.Faults, c.Requests = true, seed%3 > 0, seed%3 < 2
			c.Doubled = seed%3 == 1 // orphans are writes that come late
		}, map[Happening]int{ClosedByOthers: 1, Orphan: 1, Swept: 1, Carried: 1, Delivered: 1}},
		// An acquire that does not hear for long that it has the lock has it in the end, or
		// no process has it in its name.
		{"unheard", 300, func(seed uint64, c *Config) {
			unheard(c)
			c.Faults = seed%3 == 0
		}, nil},
		// Where all only try, what a living session holds without knowing is found by an
		// acquire under it.
		{"trying", 300, func(_ uint64, c *Config) { c.Sessions, c.Trying, c.Doubled = true, true, true }, map[Happening]int{OrphanFound: 33}},
		// Holders behind replicas of a lock service, beside processes with the store. No two
		// hold one lock, tokens rise, what has ended has no effect, an unused grant is freed
		// and a request is reported; and each lock has a holder in the end.
		{"clients", 900, func(seed uint64, c *Config) {
			[...]func(*Config){served, servedLong, servedTwice}[seed%3](c)
			c.Faults = seed%8 > 0
			c.Labels, c.Fails = seed%16 == 7, seed%16 == 9
			c.Mixed = c.Mixed || seed%4 == 0
		}, map[Happening]int{Taken: 100, Counted: 100, Attached: 100, Unused: 100, Replayed: 100, Heeded: 100}},
		// What the schedules have as they are drawn.
		{"any", 300, func(uint64, *Config) {}, map[Happening]int{
			GrantedUnless: 10, RefusedAlive: 33, OtherLease: 33, Cleared: 33, Beside: 33, Taken: 33,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "clients" && tt.name != "failed work" {
				enginetest.MakeVerify(t)
			}
			n := few(tt.seeds)
			sum := explore(t, n, tt.shape)
			t.Log(sum.Total)
			for what, least := range tt.least {
				if had := sum.Total[what]; had*1000 < least*int(n) || had == 0 {
					t.Errorf("%d schedules have a %s %d times, want %d in 1000", n, what, had, least)
				}
			}
		})
	}
}

// TestReplicasWithOtherLeases: a heartbeat that is carried out by a replica with a shorter
// lease does not let others in before the client learns of it. It did: the record had the
// replica's lease from then on. `go test ./internal/protocol -run TestRemoteWriteKeepsTheLease`
// has it alone.
func TestReplicasWithOtherLeases(t *testing.T) {
	for _, seed := range []uint64{93, 262, 564, 754, 956, 993, 1470, 1507, 1856, 2095, 2370} {
		shape := func(c *Config) {
			servedLong(c)
			c.Mixed = true
		}
		if _, err := Run(Seed(seed), shape, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
