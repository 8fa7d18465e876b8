// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package sim

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/protocol"
)

// TestMistakesInTheCore makes one deliberate mistake in the machines at a time:
// a schedule must fail with it within so many seeds, by the rule that it breaks,
// and pass without it.
func TestMistakesInTheCore(t *testing.T) {
	// Clocks that need no margin leave none that could hide a late count.
	slow := func(c *Config) {
		c.Timing.RequestTimeout, c.Timing.Drift, c.Timing.Grace = c.Timing.Lease/2, 1e-4, 1
		c.Timing.Heartbeat, c.Timing.Refresh, c.Timing.Manual = c.Timing.Lease/5, c.Timing.Lease/15, false
		c.Length, c.Requests = 12*c.Timing.Lease, false
	}
	// Many writes that come late, or twice.
	rough := func(c *Config) { c.Rough, c.Requests = true, false }
	// Processes that stand still, and are freed by operators.
	freed := func(c *Config) {
		c.Processes, c.Locks, c.Requests, c.Length = minProcesses, 1, true, 12*c.Timing.Lease
		c.Together = false
		c.Timing.StopTimeout, c.Timing.Progress = 2*c.Timing.Lease, 0
		c.Without = (Pauses | Steps).Except()
	}
	// Reads that are behind, of those who do no more than look.
	watched := func(c *Config) {
		c.Observers, c.Requests, c.Length = true, false, 12*c.Timing.Lease
	}
	for _, tt := range []mistakeTest{
		{protocol.LeaseFromReply, nil, 20, "later than any applied write gives it"},
		{protocol.NoDrift, nil, 1000, "both hold"},
		{protocol.ReleaseKeepsVersion, nil, 50, "changes a released record"},
		{protocol.SeenFromRequest, nil, 500, "is early"},
		{protocol.SeenFromRequest, slow, 500, "both hold"},
		{protocol.HeartbeatRestores, freed, 5000, "changes a released record"},
		{protocol.TokenStays, nil, 1000, "is granted token"},
		{protocol.VersionAlone, rough, 1000, "the stored token falls"},
		{protocol.RequestOnAnything, nil, 50, "leaves requests in a record"},
		{protocol.AdoptsVersions, nil, 500, "another acquire wrote"},
		{protocol.GoesBack, watched, 500, "goes back from token"},
		{protocol.EntryUnanswered, nil, 500, "the history lacks"},
	} {
		t.Run(tt.mistake.String(), tt.find)
	}
}

type mistakeTest struct {
	mistake protocol.Mistake
	shape   func(*Config)
	within  uint64
	want    string
}

func (tt mistakeTest) find(t *testing.T) {
	found := map[string]int{}
	for seed := range tt.within {
		err := func() error {
			defer protocol.Make(tt.mistake)()
			_, err := RunSeed(seed, tt.shape, nil)
			return err
		}()
		if err == nil {
			continue
		}
		v := err.(*Violation)
		found[v.Rule]++
		if !strings.Contains(v.What, tt.want) {
			continue
		}
		t.Logf("found by seed %d: %s", seed, v.What)
		if _, err := RunSeed(seed, tt.shape, nil); err != nil {
			t.Errorf("the same schedule without the mistake: %v", err)
		}
		return
	}
	t.Errorf("not found in %d schedules; others: %v", tt.within, found)
}
