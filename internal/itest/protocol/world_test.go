// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/sim"
)

// drawn lets rapid make the choices of a sim.
type drawn struct{ t *rapid.T }

func (d drawn) Intn(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "") }

// config draws a world with faults.
func config(src sim.Source) sim.Config {
	t := sim.Tight()
	switch src.Intn(4) {
	case 1:
		t.Grace = t.Lease / 8
	case 2:
		t.Progress = t.Lease / 2
	case 3:
		t.StopTimeout = t.Lease / 4
	}
	if src.Intn(8) == 7 {
		t.Manual = true
	}
	if src.Intn(8) == 7 {
		t.Refresh = time.Hour
	}
	return sim.Config{
		Timing: t, Processes: 1 + src.Intn(4), Length: time.Duration(1+src.Intn(12)) * t.Lease,
		Faults: true, Requests: src.Intn(4) != 0, Trace: &sim.Trace{},
	}
}

// check has rapid look for choices that make run fail. The choices are drawn
// in a generator of their own, which keeps them out of the report.
func check(t *testing.T, run func(sim.Source) error) {
	rapid.Check(t, func(t *rapid.T) {
		if err := rapid.Custom(func(t *rapid.T) outcome { return outcome{run(drawn{t})} }).Draw(t, "world").err; err != nil {
			t.Fatal(err)
		}
	})
}

type outcome struct{ err error }

func (o outcome) GoString() string { return "" }

// TestWorld checks, over all faults that the world knows, what the comment of
// package driver promises and that the lock is taken again when they end.
func TestWorld(t *testing.T) {
	check(t, func(src sim.Source) error { return sim.Run(src, config(src)) })
}

// worlds is how many TestWorldSeeded runs: many more in a night.
var worlds = flag.Uint64("worlds", 400, "how many worlds to run")

// TestWorldSeeded runs many more worlds than rapid would in the same time.
func TestWorldSeeded(t *testing.T) {
	for seed := range *worlds {
		src := sim.Seed(seed)
		if err := sim.Run(src, config(src)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestHealthyWorld checks that nothing is ever lost where nothing fails.
func TestHealthyWorld(t *testing.T) {
	check(t, func(src sim.Source) error {
		cfg := config(src)
		cfg.Faults = false
		return sim.Run(src, cfg)
	})
}

// TestAbandoned checks that an acquire that is given up leaves nothing behind.
func TestAbandoned(t *testing.T) {
	run := func(src sim.Source) error {
		timing := sim.Tight()
		if src.Intn(2) == 1 {
			timing.Refresh = time.Hour
		}
		return sim.Abandon(src, sim.Config{Timing: timing, Rough: src.Intn(2) == 1})
	}
	check(t, run)
	for seed := range uint64(1000) {
		if err := run(sim.Seed(seed)); err != nil {
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
			untouched, refused := sim.Unreadable(sim.Seed(seed), sim.Config{Timing: sim.Tight(), Processes: 3, First: rec})
			if !untouched || refused != 3 {
				t.Fatalf("record %+v: untouched %v, refused %d of 3", rec, untouched, refused)
			}
		}
	}
}
