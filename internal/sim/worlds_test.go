// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// config draws a world with faults.
func config(src Source) Config {
	t := drawTiming(src)
	return Config{
		Timing: t, Processes: 1 + src.Intn(4), Length: time.Duration(1+src.Intn(12)) * t.Lease,
		Faults: true, Requests: src.Intn(4) != 0, Trace: &Trace{},
	}
}

// few is n, and a tenth of it where make verify runs the whole.
func few(n uint64) uint64 {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestWorlds checks, over all faults that the world knows and over none, what the comment of
// package driver promises, and that the lock is taken again when they end.
func TestWorlds(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(400) {
		src := Seed(seed)
		cfg := config(src)
		cfg.Faults = seed%4 > 0
		if _, err := Tell(src, cfg); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestAbandoned checks that an acquire that is given up leaves nothing behind.
func TestAbandoned(t *testing.T) {
	enginetest.MakeVerify(t)
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
