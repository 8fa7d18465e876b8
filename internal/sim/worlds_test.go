// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// config draws a world with faults.
func config(src Source) Config {
	t := drawTiming(src)
	return Config{
		Timing: t, Processes: 1 + src.IntN(4), Length: time.Duration(1+src.IntN(12)) * t.Lease,
		Faults: true, Requests: src.IntN(4) != 0, Trace: &Trace{},
	}
}

// newLock returns the one lock of a world.
func newLock(src Source, cfg Config) *lock {
	cfg.Locks = 1
	return newWorld(src, cfg).locks[0]
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

// abandon lets one acquire be given up at a random moment, with faults until
// then and writes that come late. Nothing that it wrote may be left held when
// it is over, unless it was applied too late for cleaning up, or a second time.
// Another process asks the holder to step down now and then.
func abandon(src Source, cfg Config) error {
	cfg.Processes, cfg.Faults = 2, true
	l := newLock(src, cfg)
	p := l.procs[0]
	p.acquire()
	if len(p.machines) == 0 {
		return l.failure()
	}
	m := p.machines[0]
	for range 4 {
		l.after(l.upTo(l.t.Lease), func() { l.procs[1].ask(driver.Request{Kind: driver.StepDown}) })
	}
	give := l.upTo(l.t.Lease / 2)
	l.after(give, func() {})
	l.run(func() bool { return l.now >= give })
	if m.h != nil || m.left {
		return l.failure()
	}
	m.leave()
	l.final = true
	clean := l.fast(l.t.Lease)
	end := l.now + l.slow(l.t.Lease) + 4*l.t.RequestTimeout
	var heldSince time.Duration
	held := ""
	seen := map[string]bool{}
	l.after(end-l.now, func() {})
	l.run(func() bool {
		if rec := l.store.rec; rec.State != driver.Held {
			held = ""
		} else if !seen[rec.Beat] {
			held, heldSince = rec.Beat, l.now
			seen[held] = true
		}
		return l.now >= end
	})
	if !m.c.Over() {
		l.fail("%s is not over a lease after it was given up", m)
	}
	if held != "" && heldSince < give+clean {
		l.fail("%s is left held since %v, given up at %v", held, heldSince, give)
	}
	return l.failure()
}

// TestAbandoned checks that an acquire that is given up leaves nothing behind.
func TestAbandoned(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(1000) {
		src := Seed(seed)
		timing := Tight()
		if src.IntN(2) == 1 {
			timing.Refresh = time.Hour
		}
		if err := abandon(src, Config{Timing: timing, Rough: src.IntN(2) == 1}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// unreadable runs a world whose record makes no sense, and says whether it is
// as it was, and how many acquires were refused for it.
func unreadable(src Source, rec driver.Record) (untouched bool, refused int) {
	l := newLock(src, Config{Timing: Tight(), Processes: 3})
	l.store.put(rec)
	for _, p := range l.procs {
		p.acquire()
	}
	first := l.store.rec.Version
	machines := []*machine{}
	for _, p := range l.procs {
		machines = append(machines, p.machines...)
	}
	l.final = true
	l.after(3*l.t.Lease, func() {})
	l.run(func() bool { return l.now >= 3*l.t.Lease })
	for _, m := range machines {
		if r := m.c.Refused(); r != nil && errors.Is(r.Err, driver.ErrUnreadable) {
			refused++
		}
	}
	return l.store.rec.Version == first && l.violation == "", refused
}

// TestUnreadableIsLeftAlone checks that no process writes a record whose lease or state
// makes no sense, however long it stands.
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
			untouched, refused := unreadable(Seed(seed), rec)
			if !untouched || refused != 3 {
				t.Fatalf("record %+v: untouched %v, refused %d of 3", rec, untouched, refused)
			}
		}
	}
}
