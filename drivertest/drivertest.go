// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package drivertest checks that a store keeps the contract of package driver.
// Every store calls it from a test, against its real engine:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) drivertest.Harness {
//			dsn := createDatabase(t) // dropped by t.Cleanup
//			return drivertest.Harness{
//				Open:    func(t *testing.T) driver.Store { return open(t, dsn) },
//				Watches: true,
//			}
//		})
//	}
//
// A store that passes without skipped tests needs no other tests of the contract
// of package driver; only of what is its own, such as its schema and the sorting
// of its engine's errors.
//
// The suite skips what it cannot check on the given engine, and says so: stale reads
// need a cluster (Harness.Servers), calls that end with their contexts need an engine
// that can be stopped (Harness.Hang), and records of other versions need a function
// that plants them.
package drivertest

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Harness gives the suite a database and says what the store can do. The suite
// tests everything that it claims, and fails if a claim is wrong: it does not
// detect features and skip the missing ones.
type Harness struct {
	// Open returns a further client onto the database of this Harness, as
	// another process would have it: by a connection or handle of its own
	// wherever that can be. The suite closes it. It is called from the
	// goroutine of the test.
	Open func(t *testing.T) driver.Store

	// Servers open clients as Open does, each onto another server of the database's
	// cluster, without a load balancer. The suite uses them in turn, instead of Open,
	// so that a record that is written through one is read through another: otherwise
	// it could not detect a strong read that a server answers by itself. Give three to
	// a store whose engine runs as a cluster.
	Servers []func(t *testing.T) driver.Store

	// Hang makes the engine answer nothing, on any connection, until resume is called,
	// as if its processes were stopped. It may carry out requests of the meantime
	// afterwards. If nil, its tests are skipped.
	Hang func(t *testing.T) (resume func())

	// Watches says that the stores implement driver.Watcher.
	Watches bool

	// Raises says that the stores implement driver.Raiser. If TokensOutliveDelete is set
	// as well, they must implement driver.TokenRetainer.
	Raises bool

	// EventualReads says that Get with driver.Eventual, and List, may see an
	// older state. The suite then waits for them to catch up, for Patience.
	EventualReads bool

	// TokensOutliveDelete says that the token of a deleted lock continues, instead of
	// starting again at 1. The token of other records may do either.
	TokensOutliveDelete bool

	// NoSessions says that the store refuses sessions, and locks under them, with
	// an error that matches ErrPermanent and ErrNotApplied, as one does whose
	// database another client writes to.
	NoSessions bool

	// Lose notes the present state of the database. The function that it returns puts that
	// state back, as a failover to a server does that lacks the later writes, and so
	// begins a new life of the engine. It is nil unless the stores are driver.Guarded; their
	// first life is open, and they accept leases of 10 seconds.
	Lose func(t *testing.T) (lose func())

	// TimePrecision is the unit to which Since and Until are kept, and
	// LeasePrecision the unit of Lease and Heartbeat. If zero, a millisecond,
	// the coarsest that the contract allows.
	TimePrecision  time.Duration
	LeasePrecision time.Duration

	// PlantUnreadable stores a record under key that the store cannot decode:
	// of a later version, or damaged. If nil, its tests are skipped.
	PlantUnreadable func(t *testing.T, key string)

	// Plant writes a record as it is, without the checks of Claim and Swap. If
	// nil, its tests are skipped.
	Plant func(t *testing.T, rec driver.Record)

	// PlantLater adds to the record under key what a later version of Tenure may have
	// written there and this one does not understand, and HasLater reports whether it
	// is still there. If one is nil, their tests are skipped.
	PlantLater func(t *testing.T, key string)
	HasLater   func(t *testing.T, key string) bool

	// OlderState returns the state in which a program that does not know of sessions,
	// an older version or another client of the same table, would read the record
	// under key; empty if it could not read it. If nil, its tests are skipped.
	OlderState func(t *testing.T, key string) driver.State

	// Ops is how many operations each of the random and racing checks makes,
	// 2000 if zero. Under -short it is a tenth of it.
	Ops int

	// Patience is how long the suite waits for what must come, such as a hint
	// or the end of ErrNotApplied; 30 seconds if zero. A store that passes never
	// waits that long, so a higher value costs nothing. After the first missing
	// hint it waits for at most 2 seconds for each of the others.
	Patience time.Duration
}

// checks are the concerns of the suite.
var checks = []struct {
	name string
	run  func(t *testing.T, e *env)
}{
	{"Get", testGet},
	{"Claim", testClaim},
	{"Condition", testCondition},
	{"Session", testSession},
	{"Token", testToken},
	{"Raise", testRaise},
	{"Guarded", testGuarded},
	{"Late", testLate},
	{"Data", testData},
	{"Fidelity", testFidelity},
	{"Text", testText},
	{"Versions", testVersions},
	{"Ownership", testOwnership},
	{"Keys", testKeys},
	{"Delete", testDelete},
	{"List", testList},
	{"Errors", testErrors},
	{"Unreadable", testUnreadable},
	{"Context", testContext},
	{"Close", testClose},
	{"Hang", testHang},
	{"Servers", testServers},
	{"Watch", testWatch},
	{"Random", testRandom},
	{"Race", testRace},
}

// Run checks the store of newHarness, in one subtest per concern. It calls
// newHarness once in each of them; each Harness must have a fresh, empty
// database. What newHarness and Open need to clean up they hand to t.Cleanup.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, newEnv(t, newHarness(t))) })
	}
}
