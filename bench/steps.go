// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is a part of a run that can be asked for by name.
type step struct {
	name string
	run  func(context.Context, *rig) error
	// quiet steps wait for most of the time, and count: they are made at once.
	quiet bool
}

var steps = []step{
	{"single", single, false},
	{"variants", variants, false},
	{"takeover", takeover, true},
	{"waiters", waiters, true},
	{"month", months, true},
	{"hold", hold, false},
	{"processes", processes, false},
	{"handover", handover, false},
	{"failover", failover, false},
	{"throughput", throughput, false},
	{"session", sessions, false},
}

// make makes steps, quiet neighbours at once, and puts what they found in order.
func (r *rig) make(ctx context.Context, chosen []step) error {
	for len(chosen) > 0 {
		n := max(1, slices.IndexFunc(append(slices.Clone(chosen), step{}), func(s step) bool { return !s.quiet }))
		err := atOnce(ctx, n, n, func(ctx context.Context, i int) error {
			start := time.Now()
			if err := chosen[i].run(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", chosen[i].name, err)
			}
			r.say("%s: %.1f s", chosen[i].name, time.Since(start).Seconds())
			return nil
		})
		if err != nil {
			return err
		}
		chosen = chosen[n:]
	}
	place := func(r row) int { return slices.IndexFunc(steps, func(s step) bool { return s.name == r.Step }) }
	slices.SortStableFunc(r.report.Rows, func(a, b row) int { return place(a) - place(b) })
	return nil
}

func stepNames() string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}

// chosen returns the steps of a list.
func chosen(list string) ([]step, error) {
	var chosen []step
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no step %q; there are %s", name, stepNames())
		}
		chosen = append(chosen, steps[i])
	}
	return chosen, nil
}

// findings collects what clients did, for rows in the order in which they were
// named first.
type findings struct {
	mu   sync.Mutex
	rows []row
}

func (f *findings) put(r row, client string, v value) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.rows, func(other row) bool { return other.What == r.What })
	if i < 0 {
		r.Values = map[string]value{}
		f.rows = append(f.rows, r)
		i = len(f.rows) - 1
	}
	f.rows[i].Values[client] = v
}

// inOrder returns the rows in the order of what.
func (f *findings) inOrder(what []string) []row {
	slices.SortStableFunc(f.rows, func(a, b row) int { return slices.Index(what, a.What) - slices.Index(what, b.What) })
	return f.rows
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i)
	}
	return names
}
