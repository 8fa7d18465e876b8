// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/testbed"
)

// mostGoroutines is one more than a process that holds locks under a session may
// have, however many they are.
const mostGoroutines = 50

// edges is how many heartbeats more or fewer than periods there may be: the first
// period and the last one are cut at any place.
const edges = 1

// acceptance holds so many locks under one session for so long, and says whether
// it is as it must be.
func acceptance(ctx context.Context, r *rig, locks int, d time.Duration, out io.Writer) error {
	size := full.crowd
	size.hold, size.profiles = d, r.size.crowd.profiles
	before := testbed.Load()
	return r.staged(ctx, tenureClient(), size.timing, func(ctx context.Context, s *stage) error {
		h, err := s.holdMany(ctx, locks, size)
		if h == nil || h.Hold.Took == 0 {
			return err
		}
		after := testbed.Load()
		fmt.Fprintf(out, "%d locks under one session, %v, %v added to each request, on %s\n", locks, s.timing, size.delay, r.report.Engine)
		fmt.Fprintf(out, "%s; %s; load at the start and the end %s, %s\n\n", r.report.Machine.CPU, r.report.Machine.System, before, after)
		for _, line := range h.lines() {
			fmt.Fprintf(out, "%-34s %s\n", line[0], line[1])
		}
		missed := h.missed()
		if err != nil {
			missed = append(missed, err.Error())
		}
		if len(missed) > 0 {
			fmt.Fprintf(out, "\nMISSED: %s\n", strings.Join(missed, "; "))
			return errors.New("the goal was missed")
		}
		fmt.Fprintf(out, "\nas it must be: one write a heartbeat, no lock lost, fewer than %d goroutines, closed in one write\n", mostGoroutines)
		return nil
	})
}

// lines returns what was found, each with a name.
func (h *holding) lines() [][2]string {
	return [][2]string{
		{"time to take them", fmt.Sprintf("%.1f s, %.0f a second, %s requests", h.Acquire.Took, float64(h.Locks)/h.Acquire.Took, amount(h.Acquiring.Requests))},
		{"held for", fmt.Sprintf("%.1f s, %.0f heartbeat periods", h.Hold.Took, h.Periods)},
		{"heartbeats confirmed", fmt.Sprint(h.Hold.Renewed)},
		{"requests meanwhile", fmt.Sprintf("%.0f: %s", h.Holding.Requests*h.Periods, operations(h.Holding, h.Periods))},
		{"writes a heartbeat period", fmt.Sprintf("%.3f", h.Holding.WriteUnits)},
		{"locks lost", fmt.Sprint(h.Hold.Lost)},
		{"events: in jeopardy, lost", fmt.Sprintf("%d, %d", h.Hold.Jeopardies, h.Hold.LostEvents)},
		{"least left of the old deadline", fmt.Sprintf("%.0f ms, when a heartbeat was confirmed", h.Hold.LeastSlack*1000)},
		{"least left of the new deadline", fmt.Sprintf("%.0f ms, then", h.Hold.LeastRemaining*1000)},
		{"goroutines, at most", fmt.Sprint(h.Hold.Goroutines)},
		{"processor", fmt.Sprintf("%.2f s a minute", h.cpuMinute())},
		{"memory a lock", fmt.Sprintf("%.0f bytes of heap, %.0f resident", h.perLock(h.Acquire.Heap), h.perLock(h.Acquire.RSS))},
		{"closed with", fmt.Sprintf("%.0f requests: %s; in %.2f s", h.Closing.Requests, operations(h.Closing, 1), h.Close.Took)},
	}
}

// missed returns what is not as it must be.
func (h *holding) missed() (all []string) {
	miss := func(missed bool, format string, args ...any) {
		if missed {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	writes := h.Holding.WriteUnits * h.Periods
	miss(writes > h.Periods+edges, "%.0f writes in %.1f heartbeat periods", writes, h.Periods)
	miss(h.Hold.Lost > 0 || h.Hold.LostEvents > 0, "%d locks lost, %d events say so", h.Hold.Lost, h.Hold.LostEvents)
	miss(h.Hold.Goroutines >= mostGoroutines, "%d goroutines", h.Hold.Goroutines)
	miss(h.Close.Took > 0 && h.Closing.WriteUnits > h.closable(), "closed with %.0f writes", h.Closing.WriteUnits)
	return all
}

// closable is how many writes a close may be: one, and the heartbeats that are due
// until all work has returned.
func (h *holding) closable() float64 {
	period := h.Hold.Took / h.Periods
	return 1 + edges + float64(int(h.Close.Took/period))
}

func operations(u usage, times float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(u.ByOperation)) {
		all = append(all, fmt.Sprintf("%.0f %s", u.ByOperation[name]*times, name))
	}
	return strings.Join(all, ", ")
}
