// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	lease = 15 * time.Second // the default
	// nap is how late a suspend or a step may be noticed: a quarter of the grace.
	nap = lease / 8 / 4
)

// machine is a client of a world, on the clocks of a machine of its own. It is a clock.Source.
type machine struct {
	*tenuretest.Client
	base time.Time

	mu             sync.Mutex
	stepped, slept time.Duration
}

func newMachine(w *tenuretest.World, owner string, edit ...func(*tenure.Options)) *machine {
	m := &machine{base: time.Now()}
	m.Client = w.Client(owner, append(edit, func(o *tenure.Options) {
		o.Clock = clock.From(m, clock.Options{TrustBootClock: o.TrustBootClock})
	})...)
	return m
}

func (m *machine) Now() clock.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	mono := time.Since(m.base)
	return clock.Instant{Wall: 1_800_000_000*time.Second + mono + m.slept + m.stepped, Mono: 7*time.Second + mono}
}

func (m *machine) Read() clock.Reading {
	now := m.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	return clock.Reading{Instant: now, Boot: now.Mono + 3000*time.Second + m.slept, HasBoot: true}
}

// step sets the wall clock by d. A pause of the whole virtual machine that a
// time service then makes up for looks the same.
func (m *machine) step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepped += d
}

// suspend puts the machine to sleep for d. The timers of package time, and
// everything else, go on where they were.
func (m *machine) suspend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slept += d
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
