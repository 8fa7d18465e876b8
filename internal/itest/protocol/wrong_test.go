// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/sim"
)

// TestMistakesAreFound makes one deliberate mistake around the machines at a
// time: worlds that pass without it must fail with it, and for the reason that
// is expected. Otherwise the checks would prove nothing.
func TestMistakesAreFound(t *testing.T) {
	plain := func(c *sim.Config) { c.Requests = false }
	// Clocks that need no margin leave none that could hide a late count.
	slow := func(c *sim.Config) {
		c.Timing.RequestTimeout, c.Timing.Drift, c.Timing.Grace = c.Timing.Lease/2, 1e-4, 1
		c.Timing.Heartbeat, c.Timing.Refresh, c.Timing.Manual = c.Timing.Lease/5, c.Timing.Lease/15, false
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	asks := func(c *sim.Config) { c.Requests = true }
	busy := func(c *sim.Config) {
		c.Timing.Manual, c.Timing.Refresh = false, c.Timing.Lease/15
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	rough := func(c *sim.Config) { c.Rough, c.Requests = true, false }
	mixed := func(c *sim.Config) { c.Mixed, c.Requests = true, false }
	tied := func(c *sim.Config) { c.Mixed, c.Sessions, c.Requests = true, true, true }
	unless := func(c *sim.Config) { c.Unless, c.Sessions = true, true }
	twice := func(c *sim.Config) { c.Twice, c.Requests = true, false }
	deleted := func(c *sim.Config) { c.Deletions, c.Rough, c.Length = true, true, 12*c.Timing.Lease }
	for _, tt := range []struct {
		wrong  sim.Wrong
		shape  func(*sim.Config)
		within uint64 // worlds
		want   string
	}{
		{sim.SentAtReply, plain, 20, "later than any applied write gives it"},
		{sim.SeenAtRequest, slow, 500, "both hold"},
		{sim.VersionAlone, rough, 1000, "the stored token falls"},
		{sim.UnchangedRelease, plain, 50, "changes a released record"},
		{sim.RevivingHeartbeats, plain, 50, "changes a released record"},
		{sim.DriftAboveBound, busy, 100, "both hold"},
		{sim.StoppingClock, busy, 100, "both hold"},
		{sim.SharedAttempts, plain, 500, "another acquire wrote"},
		{sim.WorkAfterRelease, plain, 300, "both hold"},

		{sim.RequestBeats, asks, 300, "ask of"},
		{sim.RequestIsLife, asks, 300, "for a sign of life"},
		{sim.RequestIsLoss, asks, 300, "superseded by its own tenure"},
		{sim.RequestRenews, asks, 300, "later than any applied write gives it"},
		{sim.RequestOnAnything, asks, 300, "changes a released record"},
		{sim.RequestOverwrites, asks, 300, "second request"},
		{sim.RequestDropped, asks, 300, "heartbeat of"},
		{sim.HandOverDropped, asks, 300, "was to hand over"},
		{sim.HandOverToOther, asks, 300, "was to hand over"},
		{sim.ReservedTaken, asks, 300, "is early: reserved for"},
		{sim.ReservedTakenFromAll, asks, 300, "is early: reserved for \"\""},
		{sim.RevokeAtOnce, asks, 300, "free of"},
		{sim.FreeAtOnce, asks, 300, "free of"},
		{sim.QuitBeats, asks, 300, "quit of"},
		{sim.QuitIsLife, asks, 300, "for a sign of life"},
		{sim.EndForgotten, asks, 300, "has ended"},
		{sim.PrevForgotten, asks, 300, "has ended"},
		{sim.AskerForgotten, asks, 300, "was asked"},

		{sim.OwnLease, mixed, 500, "both hold"},
		{sim.UnlessIgnored, unless, 50, "unless somebody lives"},
		{sim.LifeInvented, unless, 500, "gives up as if somebody lived"},
		{sim.OwnHolderTaken, twice, 300, "writes nothing of token"},
		{sim.NextLife, deleted, 500, "changes more than it may"},
		{sim.HoldsByClient, mixed, 300, "later than any applied write gives it"},
		{sim.ClaimsByClient, mixed, 1000, "both hold"},
		{sim.TiedByClient, tied, 300, "was to hand over"},
	} {
		t.Run(tt.wrong.String(), func(t *testing.T) {
			run := func(seed uint64, wrong sim.Wrong) error {
				src := sim.Seed(seed)
				cfg := config(src)
				tt.shape(&cfg)
				cfg.Wrong = wrong
				return sim.Run(src, cfg)
			}
			for seed := range tt.within {
				err := run(seed, tt.wrong)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					continue
				}
				t.Logf("found in world %d", seed)
				if err := run(seed, sim.Nothing); err != nil {
					t.Errorf("the same world without the mistake: %v", err)
				}
				return
			}
			t.Errorf("not found in %d worlds", tt.within)
		})
	}
}
