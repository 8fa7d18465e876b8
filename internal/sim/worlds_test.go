// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// config draws a world with faults.
func config(src Source) Config {
	t := drawTiming(src)
	return Config{
		Timing: t, Processes: 1 + src.Intn(4), Length: time.Duration(1+src.Intn(12)) * t.Lease,
		Faults: true, Requests: src.Intn(4) != 0, Trace: &Trace{},
	}
}

// makeVerify leaves a test to make verify, which runs this package at full length.
func makeVerify(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make verify has it")
	}
}

// TestWorlds checks, over all faults that the world knows and over none, what the comment of
// package driver promises, and that the lock is taken again when they end.
func TestWorlds(t *testing.T) {
	makeVerify(t)
	for seed := range uint64(400) {
		src := Seed(seed)
		cfg := config(src)
		cfg.Faults = seed%4 > 0
		if err := Run(src, cfg); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestAbandoned checks that an acquire that is given up leaves nothing behind.
func TestAbandoned(t *testing.T) {
	makeVerify(t)
	for seed := range uint64(1000) {
		src := Seed(seed)
		timing := Tight()
		if src.Intn(2) == 1 {
			timing.Refresh = time.Hour
		}
		if err := Abandon(src, Config{Timing: timing, Rough: src.Intn(2) == 1}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestUnreadableIsLeftAlone checks that nobody writes a record whose lease or
// state makes no sense, however long it stands.
func TestUnreadableIsLeftAlone(t *testing.T) {
	for _, change := range []func(*driver.Record){
		func(r *driver.Record) { r.Lease = 0 },
		func(r *driver.Record) { r.Lease = -time.Hour },
		func(r *driver.Record) { r.State = "" },
		func(r *driver.Record) { r.State = "waiting" },
		func(r *driver.Record) { r.State, r.Lease = driver.Reserved, 0 },
		func(r *driver.Record) { r.Lease, r.Beat = 0, "" },
	} {
		rec := driver.Record{Key: "k", Version: "w1", Beat: "w1", Owner: "them", Token: 7, Lease: 15 * time.Second, State: driver.Held}
		change(&rec)
		for seed := range uint64(20) {
			untouched, refused := Unreadable(Seed(seed), Config{Timing: Tight(), Processes: 3, First: rec})
			if !untouched || refused != 3 {
				t.Fatalf("record %+v: untouched %v, refused %d of 3", rec, untouched, refused)
			}
		}
	}
}

// TestMistakesAreFound makes one deliberate mistake around the machines at a
// time: worlds that pass without it must fail with it, and for the reason that
// is expected. Otherwise the checks would prove nothing.
func TestMistakesAreFound(t *testing.T) {
	makeVerify(t)
	plain := func(c *Config) { c.Requests = false }
	// Clocks that need no margin leave none that could hide a late count.
	slow := func(c *Config) {
		c.Timing.RequestTimeout, c.Timing.Drift, c.Timing.Grace = c.Timing.Lease/2, 1e-4, 1
		c.Timing.Heartbeat, c.Timing.Refresh, c.Timing.Manual = c.Timing.Lease/5, c.Timing.Lease/15, false
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	asks := func(c *Config) { c.Requests = true }
	busy := func(c *Config) {
		c.Timing.Manual, c.Timing.Refresh = false, c.Timing.Lease/15
		c.Processes, c.Length, c.Requests = 4, 12*c.Timing.Lease, false
	}
	rough := func(c *Config) { c.Rough, c.Requests = true, false }
	mixed := func(c *Config) { c.Mixed, c.Requests = true, false }
	tied := func(c *Config) { c.Mixed, c.Sessions, c.Requests = true, true, true }
	unless := func(c *Config) { c.Unless, c.Sessions = true, true }
	twice := func(c *Config) { c.Twice, c.Requests = true, false }
	deleted := func(c *Config) { c.Deletions, c.Rough, c.Length = true, true, 12*c.Timing.Lease }
	for _, tt := range []struct {
		wrong  Wrong
		shape  func(*Config)
		within uint64 // worlds
		want   string
	}{
		{SentAtReply, plain, 20, "later than any applied write gives it"},
		{SeenAtRequest, slow, 500, "both hold"},
		{VersionAlone, rough, 1000, "the stored token falls"},
		{UnchangedRelease, plain, 50, "changes a released record"},
		{RevivingHeartbeats, plain, 50, "changes a released record"},
		{DriftAboveBound, busy, 100, "both hold"},
		{StoppingClock, busy, 100, "both hold"},
		{SharedAttempts, plain, 500, "another acquire wrote"},
		{WorkAfterRelease, plain, 300, "both hold"},

		{RequestBeats, asks, 300, "ask of"},
		{RequestIsLife, asks, 300, "for a sign of life"},
		{RequestIsLoss, asks, 300, "superseded by its own tenure"},
		{RequestRenews, asks, 300, "later than any applied write gives it"},
		{RequestOnAnything, asks, 300, "changes a released record"},
		{RequestOverwrites, asks, 300, "second request"},
		{RequestDropped, asks, 300, "heartbeat of"},
		{HandOverDropped, asks, 300, "was to hand over"},
		{HandOverToOther, asks, 300, "was to hand over"},
		{ReservedTaken, asks, 300, "is early: reserved for"},
		{ReservedTakenFromAll, asks, 300, "is early: reserved for \"\""},
		{RevokeAtOnce, asks, 300, "free of"},
		{FreeAtOnce, asks, 300, "free of"},
		{QuitBeats, asks, 300, "quit of"},
		{QuitIsLife, asks, 300, "for a sign of life"},
		{EndForgotten, asks, 300, "has ended"},
		{PrevForgotten, asks, 300, "has ended"},
		{AskerForgotten, asks, 300, "was asked"},

		{OwnLease, mixed, 500, "both hold"},
		{UnlessIgnored, unless, 50, "unless somebody lives"},
		{LifeInvented, unless, 500, "gives up as if somebody lived"},
		{OwnHolderTaken, twice, 300, "writes nothing of token"},
		{NextLife, deleted, 500, "changes more than it may"},
		{HoldsByClient, mixed, 300, "later than any applied write gives it"},
		{ClaimsByClient, mixed, 1000, "both hold"},
		{TiedByClient, tied, 300, "was to hand over"},
	} {
		t.Run(tt.wrong.String(), func(t *testing.T) {
			run := func(seed uint64, wrong Wrong) error {
				src := Seed(seed)
				cfg := config(src)
				tt.shape(&cfg)
				cfg.Wrong = wrong
				return Run(src, cfg)
			}
			for seed := range tt.within {
				err := run(seed, tt.wrong)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					continue
				}
				t.Logf("found in world %d", seed)
				if err := run(seed, Nothing); err != nil {
					t.Errorf("the same world without the mistake: %v", err)
				}
				return
			}
			t.Errorf("not found in %d worlds", tt.within)
		})
	}
}
