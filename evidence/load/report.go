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
	fmt.Fprintf(&b, "Made on %s, on %v; %s. Medians of %d rounds, leases of %v, %d locks held for %v. Granted or lost when it must not be: %d.\n\n",
		r.Date, r.Machine, r.Programs, r.Size.Rounds, r.Size.Lease, r.Size.Held, r.Size.Hold, r.Wrong)
	var there []string
	head := []string{""}
	for _, c := range columns {
		if r.of(contended, c) != nil {
			there, head = append(there, c), append(head, c+":")
		}
	}
	var rows [][]string
	add := func(step, way string, of func(c string) []float64) {
		row := []string{step + way}
		for _, c := range there {
			row = append(row, median(of(c)))
		}
		rows = append(rows, row)
	}
	for _, step := range r.steps() {
		if step == handOver99 || step == beatCalls {
			continue // the JSON has them
		}
		add(step, "", func(c string) []float64 { return r.of(step, c) })
		if r.Figures[step][onEtcd] != nil && r.Figures[step][onEtcd+inBatches] != nil {
			add(step, inBatches, func(c string) []float64 { return r.Figures[step][c+inBatches] })
		}
	}
	page.Table(&b, head, rows)
	return b.String()
}

// median is that of the rounds, of three digits. The JSON has all of them.
func median(all []float64) string {
	if len(all) == 0 {
		return "–"
	}
	all = slices.Sorted(slices.Values(all))
	x, err := strconv.ParseFloat(strconv.FormatFloat(all[len(all)/2], 'g', 3, 64), 64)
	if err != nil {
		x = all[len(all)/2]
	}
	return page.Amount(x)
}
