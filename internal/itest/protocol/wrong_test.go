// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/itest/protocol/world"
)

// TestMistakesAreFound makes one deliberate mistake around the machines at a
// time: worlds that pass without it must fail with it, and for the reason that
// is expected. Otherwise the checks would prove nothing.
func TestMistakesAreFound(t *testing.T) {
	plain := func(c *world.Config) { c.Requests = false }
	// Clocks that need no margin leave none that could hide a late count.
	slow := func(c *world.Config) {
		c.Timing.RequestTimeout, c.Timing.Drift, c.Timing.Grace = c.Timing.Lease/2, 1e-4, 1
		c.Timing.Heartbeat, c.Timing.Refresh, c.Timing.Manual = c.Timing.Lease/5, c.Timing.Lease/15, false
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	asks := func(c *world.Config) { c.Requests = true }
	busy := func(c *world.Config) {
		c.Timing.Manual, c.Timing.Refresh = false, c.Timing.Lease/15
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	rough := func(c *world.Config) { c.Rough, c.Requests = true, false }
	for _, tt := range []struct {
		wrong  world.Wrong
		shape  func(*world.Config)
		within uint64 // worlds
		want   string
	}{
		{world.SentAtReply, plain, 20, "later than any applied write gives it"},
		{world.SeenAtRequest, slow, 500, "both hold"},
		{world.VersionAlone, rough, 1000, "the stored token falls"},
		{world.UnchangedRelease, plain, 50, "changes a released record"},
		{world.RevivingHeartbeats, plain, 50, "changes a released record"},
		{world.DriftAboveBound, busy, 100, "both hold"},
		{world.StoppingClock, busy, 100, "both hold"},
		{world.SharedAttempts, plain, 500, "another acquire wrote"},
		{world.WorkAfterRelease, plain, 300, "both hold"},

		{world.RequestBeats, asks, 300, "ask of"},
		{world.RequestIsLife, asks, 300, "for a sign of life"},
		{world.RequestIsLoss, asks, 300, "superseded by its own tenure"},
		{world.RequestRenews, asks, 300, "later than any applied write gives it"},
		{world.RequestOnAnything, asks, 300, "changes a released record"},
		{world.RequestOverwrites, asks, 300, "second request"},
		{world.RequestDropped, asks, 300, "heartbeat of"},
		{world.HandOverDropped, asks, 300, "was to hand over"},
		{world.HandOverToOther, asks, 300, "was to hand over"},
		{world.ReservedTaken, asks, 300, "is early: reserved for"},
		{world.ReservedTakenFromAll, asks, 300, "is early: reserved for \"\""},
		{world.RevokeAtOnce, asks, 300, "free of"},
		{world.FreeAtOnce, asks, 300, "free of"},
		{world.QuitBeats, asks, 300, "quit of"},
		{world.QuitIsLife, asks, 300, "for a sign of life"},
		{world.EndForgotten, asks, 300, "has ended"},
		{world.PrevForgotten, asks, 300, "has ended"},
		{world.AskerForgotten, asks, 300, "was asked"},
	} {
		t.Run(tt.wrong.String(), func(t *testing.T) {
			run := func(seed uint64, wrong world.Wrong) error {
				src := world.Seed(seed)
				cfg := config(src)
				tt.shape(&cfg)
				cfg.Wrong = wrong
				return world.Run(src, cfg)
			}
			for seed := range tt.within {
				err := run(seed, tt.wrong)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					continue
				}
				t.Logf("found in world %d", seed)
				if err := run(seed, world.Nothing); err != nil {
					t.Errorf("the same world without the mistake: %v", err)
				}
				return
			}
			t.Errorf("not found in %d worlds", tt.within)
		})
	}
}
