// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestTogether: three processes that take three locks at once, all or none, with and
// without faults, requests, and others that take single ones.
func TestTogether(t *testing.T) {
	enginetest.MakeVerify(t)
	var sum Tally
	seeds := 600
	if testing.Short() {
		seeds = 150
	}
	for seed := range uint64(seeds) {
		shape := func(c *Config) {
			c.Gathers()
			c.Faults, c.Requests = seed%3 > 0, seed%3 < 2
			if seed%2 == 0 {
				c.Processes = minTogether
			}
		}
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Gathered += tally.Gathered
		sum.GivenBack += tally.GivenBack
		sum.Crashes += tally.Crashes
		sum.Asked += tally.Asked
	}
	t.Logf("%d times all locks at once, %d times given back, %d crashes, %d requests", sum.Gathered, sum.GivenBack, sum.Crashes, sum.Asked)
	if sum.Gathered < seeds || sum.GivenBack < seeds {
		t.Errorf("the schedules have hardly a set any more: %d, given back %d", sum.Gathered, sum.GivenBack)
	}
}
