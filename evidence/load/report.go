// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
)

// report is what a run has found.
type report struct {
	Date     string          `json:"date"`
	Machine  machine.Machine `json:"machine"`
	Programs string          `json:"programs"`
	Size     size            `json:"size"`
	// Wrong is how often a lock was granted while it was held, or lost while its heartbeats
	// were sent.
	Wrong int `json:"wrong"`
	// Figures are those of each round, by the step and the peer.
	Figures map[string]map[string][]float64 `json:"figures"`

	mu sync.Mutex
}

func (r *report) wrong() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Wrong++
}

func (r *report) put(step, peer string, figure float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Figures[step] == nil {
		r.Figures[step] = map[string][]float64{}
	}
	r.Figures[step][peer] = append(r.Figures[step][peer], figure)
}

// columns are the peers in the order of the page.
var columns = []string{gateway, sessions, consulName, onEtcd, onSQLite}

// steps returns those that were taken, in the order of the page.
func (r *report) steps() []string {
	var all []string
	for _, n := range []int{1, 4, 16, 64} {
		all = append(all, pairsStep(n))
	}
	all = append(all, contended, handOver, handOver99, beats, memory, processor, beatCalls)
	return slices.DeleteFunc(all, func(step string) bool { return len(r.Figures[step]) == 0 })
}

// of returns the figures of a peer, also those of heartbeats in batches where there are no
// others.
func (r *report) of(step, peer string) []float64 {
	if f := r.Figures[step][peer]; f != nil {
		return f
	}
	return r.Figures[step][peer+inBatches]
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %s, %s; load at the start and the end %s and %s. %s. Rounds: %d, of %v for pairs and heartbeats, and %d hand-overs; the medians, and the least and the most. A lease of %v. %d locks held for %v, once. Granted or lost when it must not be: %d.\n\n",
		r.Date, r.Machine.CPU, r.Machine.System, r.Machine.LoadBefore, r.Machine.LoadAfter, r.Programs,
		r.Size.Rounds, r.Size.Length, r.Size.HandOvers, r.Size.Lease, r.Size.Held, r.Size.Hold, r.Wrong)
	var there []string
	head := []string{""}
	for _, c := range columns {
		if r.of(contended, c) != nil {
			there, head = append(there, c), append(head, c+":")
		}
	}
	var rows [][]string
	for _, step := range r.steps() {
		row := []string{step}
		for _, c := range there {
			row = append(row, spread(r.of(step, c)))
		}
		rows = append(rows, row)
		if r.Figures[step][onEtcd] != nil && r.Figures[step][onEtcd+inBatches] != nil {
			row = []string{step + inBatches}
			for _, c := range there {
				row = append(row, spread(r.Figures[step][c+inBatches]))
			}
			rows = append(rows, row)
		}
	}
	page.Table(&b, head, rows)
	b.WriteString("\n## As ratios\n\nOf `tenured` on etcd to each, of the same rounds. For times, memory and processor less is better.\n\n")
	head, rows = []string{""}, nil
	for _, c := range there {
		if c != onEtcd {
			head = append(head, "to "+c+":")
		}
	}
	for _, step := range r.steps() {
		row := []string{step}
		for _, c := range there {
			if c != onEtcd {
				row = append(row, ratios(r.of(step, onEtcd), r.of(step, c)))
			}
		}
		rows = append(rows, row)
	}
	page.Table(&b, head, rows)
	return b.String()
}

// ratios returns the spread of a to b, of the same rounds each.
func ratios(a, b []float64) string {
	var out []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return spread(out)
}

// spread is the median, with the least and the most if there are several.
func spread(all []float64) string {
	if len(all) == 0 {
		return "–"
	}
	all = slices.Sorted(slices.Values(all))
	median := fmt.Sprintf("**%s**", page.Amount(short(all[len(all)/2])))
	if len(all) == 1 {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, page.Amount(short(all[0])), page.Amount(short(all[len(all)-1])))
}

// short keeps three digits.
func short(x float64) float64 {
	s, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return x
	}
	return s
}
