// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "testing"

// Shapes of schedules with clients of a lock service.
var (
	served = (*Config).Served
	// servedLong has time for much to come late.
	servedLong = func(c *Config) {
		c.Served()
		c.Length = 12 * c.Timing.Lease
	}
	// servedTwice has calls and claims that come twice.
	servedTwice = func(c *Config) {
		servedLong(c)
		c.Rough, c.Doubled = true, true
	}
	// servedHarm judges what comes of what clients do alone.
	servedHarm = func(c *Config) {
		servedLong(c)
		c.Harm = true
	}
)

// TestClients: holders behind replicas of a lock service, beside processes with the store.
// No two hold one lock, tokens rise, what has ended has no effect, an unused grant is freed
// and a request is told; and somebody has each lock in the end.
func TestClients(t *testing.T) {
	var sum Tally
	seeds := few(900)
	for seed := range seeds {
		shape := func(c *Config) {
			[...]func(*Config){served, servedLong, servedTwice}[seed%3](c)
			c.Faults = seed%8 > 0
			c.Labels, c.Fails = seed%16 == 7, seed%16 == 9
			c.Mixed = c.Mixed || seed%4 == 0
		}
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Offered += tally.Offered
		sum.Taken += tally.Taken
		sum.Unused += tally.Unused
		sum.Replayed += tally.Replayed
		sum.Heeded += tally.Heeded
	}
	t.Logf("%d grants for clients, %d confirmed, %d freed unused; %d calls carried out again; %d clients asked to stop",
		sum.Offered, sum.Taken, sum.Unused, sum.Replayed, sum.Heeded)
	for what, n := range map[string]int{
		"confirmed grant": sum.Taken, "unused grant": sum.Unused, "call that is carried out again": sum.Replayed, "client that is asked": sum.Heeded,
	} {
		if n < int(seeds)/10 {
			t.Errorf("the schedules have hardly a %s any more: %d", what, n)
		}
	}
}

// TestReplicasWithOtherLeases: a heartbeat that is carried out by a replica with a shorter
// lease does not let others in before the client learns of it. It did: the record had the
// replica's lease from then on. `go test ./internal/protocol -run TestRelayKeepsTheLease`
// has it alone.
func TestReplicasWithOtherLeases(t *testing.T) {
	for _, seed := range []uint64{93, 262, 564, 754, 956, 993, 1470, 1507, 1856, 2095, 2370} {
		shape := func(c *Config) {
			servedLong(c)
			c.Mixed = true
		}
		if _, err := RunSeed(seed, shape, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
