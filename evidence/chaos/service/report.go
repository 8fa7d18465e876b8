// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
)

// The files that a run writes, in the module's folder and beside it, and the command that
// the page says its part is made by.
const (
	resultsFile = "chaos/service/results.json"
	pageFile    = "../docs/evidence/faults.md"
	command     = "go run ./evidence/chaos -workload service"
)

// report is what a run has found. The page's part is made of it alone.
type report struct {
	Date     string            `json:"date"`
	Machine  machine.Machine   `json:"machine"`
	Took     time.Duration     `json:"tookNs"`
	Lease    time.Duration     `json:"leaseNs"`
	Replicas int               `json:"replicas"`
	Clients  int               `json:"clients"`
	Versions map[string]string `json:"versions"` // of what the clients run on
	Rounds   []result          `json:"rounds"`
}

// result is a round.
type result struct {
	Seed   uint64        `json:"seed"`
	Length time.Duration `json:"lengthNs"` // under faults
	verdict
}

// wrong is everything that was.
func (r *report) wrong() (all []string) {
	for _, x := range r.Rounds {
		for _, text := range x.Wrong {
			all = append(all, fmt.Sprintf("seed %d: %s", x.Seed, text))
		}
	}
	return all
}

// print says what a round has shown.
func (x result) show(w io.Writer) {
	fmt.Fprintf(w, "seed %d: %d holds (%s), %d effects, %d refused, longest gap %v, recovered in %v\n",
		x.Seed, x.Holds, counted(x.Of), x.Effects, x.Refused,
		x.Gap.Round(time.Millisecond), x.Recovery.Round(time.Millisecond))
	for _, text := range x.Wrong {
		fmt.Fprintln(w, "  WRONG:", text)
	}
}

// counted lists what was counted.
func counted(of map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %s", page.Thousands(of[name]), name))
	}
	return strings.Join(all, ", ")
}

// sum adds up what was counted in all rounds.
func (r *report) sum(of func(result) map[string]int) map[string]int {
	all := map[string]int{}
	for _, x := range r.Rounds {
		for name, n := range of(x) {
			all[name] += n
		}
	}
	return all
}

// markdown returns the part of the page.
func (r *report) markdown() string {
	var b strings.Builder
	var holds, effects, refused, late int
	var gap, recovery, length time.Duration
	for _, x := range r.Rounds {
		holds, effects, refused, late = holds+x.Holds, effects+x.Effects, refused+x.Refused, late+x.Late
		gap, recovery, length = max(gap, x.Gap), max(recovery, x.Recovery), length+x.Length
	}
	fmt.Fprintf(&b, "Made on %s, on %v: %d rounds, %v under faults; %d clients, %d replicas, lease %v.\n\n",
		r.Date, r.Machine, len(r.Rounds), length, r.Clients, r.Replicas, r.Lease)
	fmt.Fprintf(&b, "- Holds of the lock: %s (%s).\n", page.Thousands(holds),
		counted(r.sum(func(x result) map[string]int { return x.Of })))
	fmt.Fprintf(&b, "- Effects on the resource: %s. "+
		"Late, after a stop between check and effect: %d, of which the fence refused %d.\n",
		page.Thousands(effects), late, refused)
	fmt.Fprintf(&b, "- Longest time without a holder: %v of %v allowed; "+
		"to the next holder after the last kill: %v.\n", gap.Round(10*time.Millisecond), gapBound(r.Lease), recovery.Round(10*time.Millisecond))
	fmt.Fprintf(&b, "- The nemesis struck %s, the proxies %s.\n- **What was wrong: %d.**\n",
		times(r.sum(func(x result) map[string]int { return x.Faults })),
		times(r.sum(func(x result) map[string]int { return x.Weather })), len(r.wrong()))
	return b.String()
}

// times says how often, and in how many ways. The JSON has each.
func times(of map[string]int) string {
	n := 0
	for _, times := range of {
		n += times
	}
	return fmt.Sprintf("%s times in %d ways", page.Thousands(n), len(of))
}
