// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// figures is what a process has used for a while.
type figures struct {
	Took       float64 `json:"tookSeconds"`
	CPU        float64 `json:"cpuSeconds"`
	Heap       int64   `json:"heapBytes"`  // how much more there is after a garbage collection
	Goroutines int     `json:"goroutines"` // the most that were seen
	Lost       int     `json:"lost"`       // locks
}

// holding is what came of a process that holds many locks.
type holding struct {
	Locks     int        `json:"locks"`
	Acquire   figures    `json:"acquire"`
	Acquiring gate.Usage `json:"acquiring"` // counted on the wire, as all usage
	Hold      figures    `json:"hold"`
	Holding   gate.Usage `json:"holding"` // in a heartbeat period
	Periods   float64    `json:"periods"`
	Close     figures    `json:"close"`
	Closing   gate.Usage `json:"closing"`
}

// PerLock is a share of what all locks use.
func (h *holding) PerLock(n int64) float64 { return float64(n) / float64(h.Locks) }

// CPUMinute is how many seconds of a processor the process uses in a minute.
func (h *holding) CPUMinute() float64 { return h.Hold.CPU / h.Hold.Took * 60 }

// sessions holds many locks in one process: with one heartbeat in all, and with
// one for each. One process at a time: none is to suffer from another's load.
func sessions(ctx context.Context, r *rig) {
	size := r.size.crowd
	setting := fmt.Sprintf("%v, %v added to each request by the proxy that counts them; held for %v, "+
		"looked at each second; memory and goroutines are those of the client's process, which has no other work; "+
		"Tenure has one session; "+
		"dynamolock has its defaults, and says of a lock that it is lost by IsExpired", size.Timing, size.delay, size.hold)
	for _, c := range r.clients {
		for _, n := range r.size.crowds[string(c.Kind)] {
			what := fmt.Sprintf("%s, %d locks", titles[string(c.Kind)], n)
			r.add(crowded, setting, what)
			r.onStage(ctx, c, size.Timing, func(s *stage) {
				h := s.crowd(ctx, n)
				r.put(what, s.name, value{Held: h})
				r.say("session: %s: %d lost, %.1f s to take them, %.3f requests a heartbeat period",
					what, h.Hold.Lost, h.Acquire.Took, h.Holding.Requests)
				if c.Kind == peers.Tenure {
					r.wrong(h.missed()...)
				}
			})
		}
	}
}

// crowd has a process take locks, hold them, and give them back.
func (s *stage) crowd(ctx context.Context, locks int) *holding {
	s.wire.Slow(s.size.crowd.delay)
	r := s.request()
	r.Session = s.name == tenureName
	m := s.open(ctx, r)
	// Some locks before, to have all of the client loaded, and its connections made.
	must.AtOnce(ctx, acquirers, acquirers, func(ctx context.Context, i int) {
		name := fmt.Sprintf("first-%d", i)
		must.Have(m.Acquire(ctx, name))
		must.Have(m.Release(ctx, name))
	})
	h, names := &holding{Locks: locks}, lockNames(locks)
	h.Acquiring = s.uses(ctx, m, &h.Acquire, func() { acquireAll(ctx, m, names) })
	h.Holding = s.uses(ctx, m, &h.Hold, func() {
		for end := time.Now().Add(s.size.crowd.hold); time.Now().Before(end); {
			must.Do(wait.For(ctx, min(time.Second, time.Until(end)+1)))
			h.Hold.Goroutines = max(h.Hold.Goroutines, must.Have(m.Usage(ctx, false)).Goroutines)
		}
	})
	h.Periods = h.Hold.Took / s.Heartbeat.Seconds()
	h.Holding = h.Holding.Over(h.Periods)
	var lost atomic.Int64
	must.AtOnce(ctx, locks, acquirers, func(ctx context.Context, i int) {
		if !must.Have(m.Holds(ctx, names[i])) {
			lost.Add(1)
		}
	})
	h.Hold.Lost = int(lost.Load())
	h.Closing = s.during(func() {
		began := time.Now()
		must.Have(m.Do(ctx, wire.Request{Command: wire.Close}))
		h.Close.Took = time.Since(began).Seconds()
	})
	return h
}

// uses notes what a process uses while some steps are taken, and returns what is sent meanwhile.
func (s *stage) uses(ctx context.Context, m *peers.Member, f *figures, steps func()) gate.Usage {
	before, began := must.Have(m.Usage(ctx, true)), time.Now()
	sent := s.during(steps)
	f.Took = time.Since(began).Seconds()
	f.CPU = must.Have(m.Usage(ctx, false)).CPU - before.CPU
	f.Heap = must.Have(m.Usage(ctx, true)).Heap - before.Heap
	return sent
}

const (
	// mostGoroutines is one more than a process that holds locks under a session may
	// have, however many they are.
	mostGoroutines = 50
	// edges is how many heartbeats more or fewer than periods there may be: the first
	// period and the last one are cut at any place.
	edges = 1
)

// missed returns what is not as it must be.
func (h *holding) missed() (all []string) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	writes, period := h.Holding.WriteUnits*h.Periods, h.Hold.Took/h.Periods
	// A close may be one write, and the heartbeats that are due until all work has returned.
	closing := 1 + edges + float64(int(h.Close.Took/period))
	miss(writes > h.Periods+edges, "%.0f writes in %.1f heartbeat periods", writes, h.Periods)
	miss(h.Hold.Lost > 0, "%d locks lost", h.Hold.Lost)
	miss(h.Hold.Goroutines >= mostGoroutines, "%d goroutines", h.Hold.Goroutines)
	miss(h.Close.Took > 0 && h.Closing.WriteUnits > closing, "closed with %.0f writes", h.Closing.WriteUnits)
	return all
}
