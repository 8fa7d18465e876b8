// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// cooling has the work of two versions fail, and their candidates wait for it.
func cooling(c *Config) { c.Cools = true }

// TestCandidatesCoolDown: each counts the failures of its own label as they stand in
// the record and the history, waits for them and not for longer than it may, and the
// lock is held again, whatever the network and the clocks do.
func TestCandidatesCoolDown(t *testing.T) {
	enginetest.MakeVerify(t)
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	cooled, failed := 0, 0
	for seed := range seeds {
		tally, err := RunSeed(seed, cooling, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		cooled += tally.Cooled
		failed += tally.Failed
	}
	if least := int(seeds) / 4; cooled < least || failed < least {
		t.Errorf("%d counts and %d failures in %d schedules, want %d each at least", cooled, failed, seeds, least)
	}
}

// TestCandidateThatSpun: a candidate that cooled down had a doubt, did nothing about it,
// and was due again in the same instant for ever. `go test ./internal/protocol -run
// TestCooledContenderDoesNotSpin` has it alone.
func TestCandidateThatSpun(t *testing.T) {
	if _, err := RunSeed(1312, cooling, nil); err != nil {
		t.Error(err)
	}
}
