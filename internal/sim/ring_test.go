// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// rung has messages of a bell come.
func rung(c *Config) { c.Bells = true }

// TestBellsChangeNoRight: whatever messages come, and whenever, each rule holds that holds
// without them.
func TestBellsChangeNoRight(t *testing.T) {
	enginetest.MakeVerify(t)
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	var sum Tally
	for seed := range seeds {
		tally, err := RunSeed(seed, rung, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Rung += tally.Rung
		sum.Hurried += tally.Hurried
	}
	t.Logf("%d rings, %d early heartbeats in %d schedules", sum.Rung, sum.Hurried, seeds)
	if least := 10 * int(seeds); sum.Rung < least || sum.Hurried < least {
		t.Errorf("%d rings, %d early heartbeats in %d schedules", sum.Rung, sum.Hurried, seeds)
	}
}
