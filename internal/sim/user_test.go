// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "testing"

// failing has the work fail now and then.
func failing(c *Config) { c.Fails = true }

// TestFailedWork: a term ends as failed when its work says so, whatever the network and the
// clocks do.
func TestFailedWork(t *testing.T) {
	failed, seeds := 0, few(500)
	for seed := range seeds {
		tally, err := RunSeed(seed, failing, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		failed += tally.Failed
	}
	if least := int(seeds / 4); failed < least {
		t.Errorf("%d works have failed, want %d at least", failed, least)
	}
}
