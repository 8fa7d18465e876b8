// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/memstore"
)

const (
	lease = 15 * time.Second
	// nap is how late a suspend or a step may be noticed: a quarter of the grace.
	nap = lease / 8 / 4
)

// clocks are those of one machine in a bubble. It is a clock.Source.
type clocks struct {
	base time.Time

	mu             sync.Mutex
	stepped, slept time.Duration
}

func newClocks() *clocks { return &clocks{base: time.Now()} }

func (c *clocks) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono := time.Since(c.base)
	return clock.Instant{Wall: 1_800_000_000*time.Second + mono + c.slept + c.stepped, Mono: 7*time.Second + mono}
}

func (c *clocks) Read() clock.Reading {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return clock.Reading{Instant: now, Boot: now.Mono + 3000*time.Second + c.slept, HasBoot: true}
}

// step sets the wall clock by d. A pause of the whole virtual machine that a
// time service then makes up for looks the same.
func (c *clocks) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepped += d
}

// suspend puts the machine to sleep for d. The timers of package time, and
// everything else, go on where they were.
func (c *clocks) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// machine is a client with clocks and faults of its own.
type machine struct {
	*tenure.Client
	*clocks
	faults *faultstore.Store
}

func newMachine(t *testing.T, records *memstore.Store, owner string, edit ...func(*tenure.Options)) *machine {
	t.Helper()
	m := &machine{clocks: newClocks(), faults: faultstore.New(records.Open(), nil)}
	o := tenure.Options{Owner: owner, LeaseDuration: lease}
	for _, e := range edit {
		e(&o)
	}
	o.Clock = clock.From(m.clocks, clock.Options{TrustBootClock: o.TrustBootClock})
	c, err := tenure.New(m.faults.Driver(), &o)
	if err != nil {
		t.Fatal(err)
	}
	m.Client = c
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
		defer stop()
		if err := c.Close(ctx); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close of %s: %v", owner, err)
		}
		m.boundReads(t)
		m.faults.Close()
	})
	return m
}

// readsPerSecond bounds how often a client reads a key in a second, whatever
// happens: beyond it something reads without a pause.
const readsPerSecond = 20

func (m *machine) boundReads(t *testing.T) {
	t.Helper()
	recent := map[string][]time.Time{}
	for _, call := range m.faults.Log() {
		if call.Op != faultstore.OpGet {
			continue
		}
		at := append(recent[call.Key], call.Begin)
		for call.Begin.Sub(at[0]) >= time.Second {
			at = at[1:]
		}
		if recent[call.Key] = at; len(at) > readsPerSecond {
			t.Errorf("%s read %q %d times within %v", m.Options().Owner, call.Key, len(at), call.Begin.Sub(at[0]))
			return
		}
	}
}

func acquire(t *testing.T, m *machine, name string) *tenure.Lease {
	t.Helper()
	l, err := m.Acquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

func record(t *testing.T, records *memstore.Store, name string) driver.Record {
	t.Helper()
	rec, err := records.Get(t.Context(), name, driver.Strong)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
