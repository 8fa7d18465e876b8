// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// Shapes of schedules in which guardians free the locks of processes that have crashed.
var (
	guarded = func(c *Config) {
		c.Clients, c.Replicas = 0, 0
		c.Guarded, c.Processes = true, max(c.Processes, minProcesses)
	}
	// guardedLong has time for many deaths, and a grace that is long enough for much to
	// happen in it.
	guardedLong = func(c *Config) {
		guarded(c)
		c.Timing.Grace, c.Length, c.Sessions = c.Timing.Lease/8, 12*c.Timing.Lease, false
	}
	// guardedPrompt has processes that crash, and nothing else that fails, so that a lock
	// must soon be free.
	guardedPrompt = func(c *Config) {
		guardedLong(c)
		c.Without, c.Requests, c.Mixed = Crashes.Except(), true, false
	}
	// guardedAnew has records that are deleted, so that tokens begin again.
	guardedAnew = func(c *Config) {
		guardedLong(c)
		c.Processes, c.Deletions, c.Requests = minProcesses, true, true
	}
)

// TestGuardians: a guardian never frees the lock of anybody but its own dead, with all of
// the family; the successor never works beside the last requests of the dead; and the lock
// is soon free where nothing else fails.
func TestGuardians(t *testing.T) {
	enginetest.MakeVerify(t)
	seeds := uint64(600)
	if testing.Short() {
		seeds = 200
	}
	buried := 0
	for seed := range seeds {
		shape := [...]func(*Config){guarded, guardedLong, guardedPrompt, guardedAnew}[seed%4]
		tally, err := RunSeed(seed, shape, nil)
		if err != nil {
			_, err = RunSeed(seed, shape, &Trace{})
			t.Fatalf("seed %d: %v", seed, err)
		}
		buried += tally.Buried
	}
	t.Logf("%d locks freed in %d schedules", buried, seeds)
	if buried < int(seeds)/4 {
		t.Errorf("guardians have freed %d locks in %d schedules, want %d at least", buried, seeds, seeds/4)
	}
}
