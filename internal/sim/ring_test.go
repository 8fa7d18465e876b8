// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "testing"

// rung has messages of a bell come, and told those that tell of heartbeats.
func rung(c *Config) { c.Bells = true }
func told(c *Config) { c.Hears = true }

// TestBellsChangeNoRight: whatever messages come, and whenever, each rule holds that holds
// without them.
func TestBellsChangeNoRight(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	var sum Tally
	for seed := range seeds {
		tally, err := RunSeed(seed, func(c *Config) { rung(c); told(c) }, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Rung += tally.Rung
		sum.Hurried += tally.Hurried
		sum.Heard += tally.Heard
	}
	t.Logf("%d rings, %d early heartbeats, %d told of in %d schedules", sum.Rung, sum.Hurried, sum.Heard, seeds)
	if least := 10 * int(seeds); sum.Rung < least || sum.Hurried < least || sum.Heard < least {
		t.Errorf("%d rings, %d early heartbeats, %d told of in %d schedules", sum.Rung, sum.Hurried, sum.Heard, seeds)
	}
}
