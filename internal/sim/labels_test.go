// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// labelled has people ask holders to hand over to a label, which some processes have.
func labelled(c *Config) { c.Labels, c.Requests = true, true }

// TestLocksAreHandedToALabel: whoever has the label takes the lock at once, nobody else
// does before the reservation has lapsed, and the lock is held again, whatever the
// network and the clocks do.
func TestLocksAreHandedToALabel(t *testing.T) {
	enginetest.MakeVerify(t)
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	kept, came := 0, 0
	for seed := range seeds {
		tally, err := RunSeed(seed, labelled, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		kept += tally.Kept
		came += tally.Came
	}
	if least := int(seeds) / 40; kept < 2*least || came < least || kept-came < least {
		t.Errorf("%d reservations for a label in %d schedules, and its own came to %d; want %d at least, and as many that lapse", kept, seeds, came, least)
	}
}
