// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package keepers has one process hold many locks, and looks at what it uses: with Tenure
// under one session, with dynamolock with a heartbeat for each.
package keepers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Size is for how long a process holds locks, and how.
type Size struct {
	Timing peers.Timing
	Delay  time.Duration // added to each request
	Hold   time.Duration
}

var (
	// Ordinary has a lease at which a heartbeat for each lock is a load.
	Ordinary = sized(2*time.Second, 400*time.Millisecond, 400*time.Millisecond, 10*time.Millisecond)
	// Lenient looks whether all of it works, on a machine that is busy.
	Lenient = sized(10*time.Second, 500*time.Millisecond, 200*time.Millisecond, time.Millisecond)
)

func sized(lease, heartbeat, refresh, delay time.Duration) Size {
	return Size{Timing: peers.Timing{Lease: lease, Heartbeat: heartbeat, Refresh: refresh}, Delay: delay}
}

// For is the same, held for a time.
func (s Size) For(d time.Duration) Size {
	s.Hold = d
	return s
}

// Acquirers is how many locks a process takes at once.
const Acquirers = 16

// Names returns names for so many locks.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i)
	}
	return names
}

// Figures is what a process has used for a while.
type Figures struct {
	Took float64 `json:"tookSeconds"`
	CPU  float64 `json:"cpuSeconds"`

	// Of acquire, how much more there is after a garbage collection; of hold, what is resident
	// in the end.
	Heap int64 `json:"heapBytes"`
	RSS  int64 `json:"rssBytes"`

	Goroutines int `json:"goroutines"` // the most that were seen
	Lost       int `json:"lost"`       // locks
}

// Holding is what came of it.
type Holding struct {
	Locks     int        `json:"locks"`
	Acquire   Figures    `json:"acquire"`
	Acquiring gate.Usage `json:"acquiring"` // counted on the wire, as all usage
	Hold      Figures    `json:"hold"`
	Holding   gate.Usage `json:"holding"` // in a heartbeat period
	Periods   float64    `json:"periods"`
	Close     Figures    `json:"close"`
	Closing   gate.Usage `json:"closing"`
}

// PerLock is a share of what all locks use.
func (h *Holding) PerLock(n int64) float64 { return float64(n) / float64(h.Locks) }

// CPUMinute is how many seconds of a processor the process uses in a minute.
func (h *Holding) CPUMinute() float64 { return h.Hold.CPU / h.Hold.Took * 60 }

// looksEach is how often a process that holds locks is looked at.
const looksEach = time.Second

// Hold has a process take locks, hold them, and give them back, through a gate. With
// an error it returns what was found before.
func Hold(
	ctx context.Context, client peers.Kind, locks int, g *gate.HTTP, table string, size Size,
) (h *Holding, err error) {
	g.Slow(size.Delay)
	r := size.Timing.Open(g.Address(), table)
	r.Session = client == peers.Tenure
	m, err := peers.Own(client).Open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer m.Kill()
	// Some locks before, to have all of the client loaded, and its connections made.
	err = wait.AtOnce(ctx, Acquirers, Acquirers, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("first-%d", i)
		_, err := m.Acquire(ctx, name)
		if err == nil {
			_, err = m.Release(ctx, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	h = &Holding{Locks: locks}
	names := Names(locks)
	each := func(do func(ctx context.Context, name string) error) error {
		return wait.AtOnce(ctx, locks, Acquirers, func(ctx context.Context, i int) error { return do(ctx, names[i]) })
	}
	h.Acquiring, err = h.Acquire.during(ctx, m, g, func() error {
		return each(func(ctx context.Context, name string) error {
			_, err := m.Acquire(ctx, name)
			return err
		})
	})
	if err != nil {
		return h, err
	}
	h.Holding, err = h.Hold.during(ctx, m, g, func() error {
		for end := time.Now().Add(size.Hold); time.Now().Before(end); {
			if err := wait.For(ctx, min(looksEach, time.Until(end)+1)); err != nil {
				return err
			}
			u, err := m.Usage(ctx, false)
			if err != nil {
				return err
			}
			h.Hold.Goroutines, h.Hold.RSS = max(h.Hold.Goroutines, u.Goroutines), u.RSS
		}
		return nil
	})
	if err != nil {
		return h, err
	}
	h.Periods = h.Hold.Took / size.Timing.Heartbeat.Seconds()
	h.Holding = h.Holding.Over(h.Periods)
	var lost atomic.Int64
	err = each(func(ctx context.Context, name string) error {
		holds, err := m.Holds(ctx, name)
		if err == nil && !holds {
			lost.Add(1)
		}
		return err
	})
	h.Hold.Lost = int(lost.Load())
	if err != nil {
		return h, err
	}
	h.Closing, err = g.During(func() error {
		began := time.Now()
		_, err := m.Do(ctx, wire.Request{Command: wire.Close})
		h.Close.Took = time.Since(began).Seconds()
		return err
	})
	return h, err
}

// during notes what the process uses while f runs, and returns what goes over the wire.
func (f *Figures) during(ctx context.Context, m *peers.Member, g *gate.HTTP, run func() error) (gate.Usage, error) {
	before, err := m.Usage(ctx, true)
	if err != nil {
		return gate.Usage{}, err
	}
	began := time.Now()
	used, err := g.During(run)
	if err != nil {
		return used, err
	}
	f.Took = time.Since(began).Seconds()
	after, err := m.Usage(ctx, false)
	if err != nil {
		return used, err
	}
	clean, err := m.Usage(ctx, true)
	f.CPU, f.Heap = after.CPU-before.CPU, clean.Heap-before.Heap
	if f.RSS == 0 {
		f.RSS = clean.RSS - before.RSS
	}
	return used, err
}

// MostGoroutines is one more than a process that holds locks under a session may
// have, however many they are.
const MostGoroutines = 50

// Edges is how many heartbeats more or fewer than periods there may be: the first
// period and the last one are cut at any place.
const Edges = 1

// Missed returns what is not as it must be.
func (h *Holding) Missed() (all []string) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	writes := h.Holding.WriteUnits * h.Periods
	miss(writes > h.Periods+Edges, "%.0f writes in %.1f heartbeat periods", writes, h.Periods)
	miss(h.Hold.Lost > 0, "%d locks lost", h.Hold.Lost)
	miss(h.Hold.Goroutines >= MostGoroutines, "%d goroutines", h.Hold.Goroutines)
	miss(h.Close.Took > 0 && h.Closing.WriteUnits > h.Closable(), "closed with %.0f writes", h.Closing.WriteUnits)
	return all
}

// Closable is how many writes a close may be: one, and the heartbeats that are due
// until all work has returned.
func (h *Holding) Closable() float64 {
	period := h.Hold.Took / h.Periods
	return 1 + Edges + float64(int(h.Close.Took/period))
}
