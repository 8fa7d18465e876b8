// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keepers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
)

// Size is for how long a process holds locks, and how.
type Size struct {
	Timing   peers.Timing
	Delay    time.Duration // added to each request
	Hold     time.Duration
	Profiles string // a folder for them; empty: none are written
}

var (
	// Ordinary has a lease at which a heartbeat for each lock is a load.
	Ordinary = Size{Timing: peers.Timing{Lease: 2 * time.Second, Heartbeat: 400 * time.Millisecond, Refresh: 400 * time.Millisecond}, Delay: 10 * time.Millisecond}
	// Lenient looks whether all of it works, on a machine that is busy.
	Lenient = Size{Timing: peers.Timing{Lease: 10 * time.Second, Heartbeat: 500 * time.Millisecond, Refresh: 200 * time.Millisecond}, Delay: time.Millisecond}
)

// For is the same, held for a time.
func (s Size) For(d time.Duration) Size {
	s.Hold = d
	return s
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

// Hold has a process take locks, hold them, and give them back, through a gate. With
// an error it returns what was found before.
func Hold(ctx context.Context, client peers.Kind, locks int, g *gate.HTTP, table string, size Size) (h *Holding, err error) {
	answers := make(chan Figures, 1)
	p, err := proc.Start(proc.Command{Role: RoleName, Stderr: os.Stderr, Line: func(line []byte) {
		var f Figures
		if err := json.Unmarshal(line, &f); err != nil {
			f.Err = err.Error()
		}
		answers <- f
	}})
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	do := func(o order) (f Figures, err error) {
		if err := p.Send(o); err != nil {
			return f, fmt.Errorf("%s: %w", o.Do, err)
		}
		select {
		case f = <-answers:
		case <-p.Exited():
			return f, fmt.Errorf("%s: the process is gone: %v", o.Do, p.State())
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
		if f.Err != "" {
			return f, errors.New(o.Do + ": " + f.Err)
		}
		return f, nil
	}
	h = &Holding{Locks: locks}
	if size.Profiles != "" {
		if _, err := do(order{Do: toProfile, To: size.Profiles}); err != nil {
			return nil, err
		}
	}
	g.Slow(size.Delay)
	if _, err := do(order{Do: toOpen, Client: client, Endpoint: g.Address(), Table: table, Timing: size.Timing}); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		order
		found *Figures
		used  *gate.Usage
	}{
		{order{Do: toAcquire, Locks: locks}, &h.Acquire, &h.Acquiring},
		{order{Do: toHold, For: size.Hold}, &h.Hold, &h.Holding},
		{order{Do: toClose}, &h.Close, &h.Closing},
	} {
		if *part.used, err = g.During(func() (err error) { *part.found, err = do(part.order); return err }); err != nil {
			return h, err
		}
		if part.Do == toHold {
			h.Periods = h.Hold.Took / size.Timing.Heartbeat.Seconds()
			h.Holding = h.Holding.Over(h.Periods)
		}
	}
	return h, nil
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
	miss(h.Hold.Lost > 0 || h.Hold.LostEvents > 0, "%d locks lost, %d events say so", h.Hold.Lost, h.Hold.LostEvents)
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
