// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

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

// resultsFile is what a run writes, in the module's folder.
const resultsFile = "service/results.json"

// report is what a run has found. Its tables are made of it alone.
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
		x.Seed, x.Holds, counted(x.Of), x.Effects, x.Refused, x.Gap.Round(time.Millisecond), x.Recovery.Round(time.Millisecond))
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

// markdown returns the tables.
func (r *report) markdown() string {
	var b strings.Builder
	var holds, effects, refused, late int
	var gap, recovery, length time.Duration
	for _, x := range r.Rounds {
		holds, effects, refused, late = holds+x.Holds, effects+x.Effects, refused+x.Refused, late+x.Late
		gap, recovery, length = max(gap, x.Gap), max(recovery, x.Recovery), length+x.Length
	}
	fmt.Fprintf(&b, "Made on %s.\n\n| | |\n| --- | --- |\n%s", r.Date, r.Machine.Rows())
	for _, kind := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "| %s client on | %s |\n", kind, r.Versions[kind])
	}
	fmt.Fprintf(&b, "| rounds, time under faults | %d, %v |\n", len(r.Rounds), length)
	fmt.Fprintf(&b, "| clients, replicas, lease | %d, %d, %v |\n", r.Clients, r.Replicas, r.Lease)
	fmt.Fprintf(&b, "| holds of the lock | %s (%s) |\n", page.Thousands(holds), counted(r.sum(func(x result) map[string]int { return x.Of })))
	fmt.Fprintf(&b, "| effects on the resource | %s |\n", page.Thousands(effects))
	fmt.Fprintf(&b, "| of these late: their process was stopped between the check and the effect, and another holder had come | %d; the fence refused %d |\n", late, refused)
	fmt.Fprintf(&b, "| longest time without a holder | %v; %v are allowed |\n", gap.Round(10*time.Millisecond), gapBound(r.Lease))
	fmt.Fprintf(&b, "| longest time to the next holder after the last kill | %v |\n", recovery.Round(10*time.Millisecond))
	fmt.Fprintf(&b, "| **what was wrong** | **%d** |\n\n", len(r.wrong()))
	for _, of := range []struct {
		what   string
		counts map[string]int
	}{
		{"what the nemesis did", r.sum(func(x result) map[string]int { return x.Faults })},
		{"what the proxies did", r.sum(func(x result) map[string]int { return x.Weather })},
	} {
		rows := [][]string{}
		for _, name := range slices.Sorted(maps.Keys(of.counts)) {
			rows = append(rows, []string{name, page.Thousands(of.counts[name])})
		}
		page.Table(&b, []string{of.what, "times:"}, rows)
		b.WriteString("\n")
	}
	b.WriteString("Each of these mistakes was made on purpose, one at a time, and shows in its scene (`make wrong`):\n\n")
	rows := [][]string{}
	for _, v := range variants {
		by := "a client"
		if v.server != "" {
			by = "a replica"
		}
		rows = append(rows, []string{v.name, by, v.scene, v.besides})
	}
	page.Table(&b, []string{"mistake", "made by", "the scene that shows it", "besides"}, rows)
	return b.String()
}
