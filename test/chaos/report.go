// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/bed/machine"
	"github.com/tenurelock/tenure/test/bed/page"
)

// The files that a run of the service or of shards writes a part of, in the module's folder and
// beside it, and the command that the page says the part is made by, without the workload.
const (
	thisModule  = "github.com/tenurelock/tenure/test"
	resultsFile = "chaos/results.json"
	command     = "go run ./test/chaos -workload "
)

var pages = map[string]string{"service": "../docs/evidence/faults.md", "shards": "../docs/evidence/performance.md"}

// report is the whole of a run.
type report struct {
	Command  string
	Began    time.Time
	Took     time.Duration
	Machine  machine.Machine
	Replicas int // of the service
	// Missing are faults that this machine did not allow.
	Missing []string `json:",omitempty"`
	// Whole says that all faults are dealt.
	Whole  bool
	Rounds []result
}

// result is what a round has shown, as the report has it.
type result struct {
	Number   int
	Plan     plan
	Counts   counts
	Recovery time.Duration
	Bound    time.Duration

	verdict  *verdict
	possible map[kind]bool
}

// result judges a round.
func (r *round) result(number int) result {
	v := r.judge()
	return result{
		Number: number, Plan: r.plan, Counts: v.counts, verdict: v, Recovery: r.recovery,
		Bound: r.bound, possible: r.possible,
	}
}

// String says what was counted, and each violation.
func (x result) String() string {
	v, again := x.verdict, ""
	if x.Bound > 0 {
		again = "; a holder after " + shown(x.Recovery)
	}
	text := fmt.Sprintf("round %d: %s, seed %d: %s; %d faults, %d kills, %d stops, %d tenures, %d takeovers, "+
		"%d operations, %d overlaps; late: %d refused by the fence, %d unfenced%s%s\n",
		x.Number, x.Plan.Engine, x.Plan.Seed, page.Plural(len(v.Violations), "violation"), v.allFaults(), v.Kills, v.Stops,
		v.Tenures, v.Takeovers, v.Operations, v.Overlaps, v.Refused, v.LatePast, again, counted("; ", v.Came))
	for _, sin := range v.Violations {
		text += fmt.Sprintf("  %s: %s\n", sin.Sin, sin.Text)
	}
	return text
}

func (r *report) String() string {
	t := r.total("")
	text := fmt.Sprintf("%s in %v: %s\n", page.Plural(len(r.Rounds), "round"), r.Took.Round(time.Second),
		page.Plural(r.violations(), "violation"))
	text += fmt.Sprintf("  %d faults%s; %d kills and %d stops of replicas; %d processes, %d in time namespaces\n",
		t.allFaults(), counted(", gates: ", t.Weather), t.Kills, t.Stops, t.Lives, t.Namespaces)
	text += fmt.Sprintf("  %d tenures%s, %d takeovers; %d operations; %d overlaps; longest without a holder %s\n",
		t.Tenures, counted(": ", t.Of), t.Takeovers, t.Operations, t.Overlaps, shown(t.Leaderless))
	text += fmt.Sprintf("  late writes stopped by the fence: %d; late writes that reached the unfenced register: %d; "+
		"checks that no clock could stop: %d\n", t.Refused, t.LatePast, t.Blind)
	if missing := r.unproved(); len(missing) > 0 {
		text += fmt.Sprintf("  nothing shows that these faults had any effect: %s\n", strings.Join(missing, ", "))
	}
	for _, missing := range r.Missing {
		text += fmt.Sprintf("  not available here: %s\n", missing)
	}
	return text + r.table()
}

// counted lists what was counted, behind a word, if anything was.
func counted(word string, of map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %s", page.Thousands(of[name]), name))
	}
	if len(all) == 0 {
		return ""
	}
	return word + strings.Join(all, ", ")
}

// violations counts them over all rounds.
func (r *report) violations() int {
	n := len(r.unproved())
	for _, x := range r.Rounds {
		n += len(x.verdict.Violations)
	}
	return n
}

// unproved are the kinds of faults that struck, and of which nothing shows that
// they did: of a clock, that no replica saw them; of the way to an engine, that
// nothing was lost on it. In a run of several rounds it is each that never came.
func (r *report) unproved() (missing []string) {
	total := r.total("")
	for _, k := range slices.Sorted(maps.Keys(traits)) {
		struck, t := total.Faults[k] > 0, traits[k]
		never := r.Whole && len(r.Rounds) >= 3*len(r.engines()) && r.possible(k) && !struck
		if never || struck && (t.clock && total.Proved[k] == 0 || t.wire && total.Lost == 0) {
			missing = append(missing, k)
		}
	}
	return missing
}

// possible says that the engines and this machine allow a fault.
func (r *report) possible(k kind) bool {
	return slices.ContainsFunc(r.Rounds, func(x result) bool { return x.possible[k] })
}

// total adds the figures of all rounds, or of those on an engine.
func (r *report) total(engine string) counts {
	total := newCounts()
	for _, x := range r.Rounds {
		if engine == "" || x.Plan.Engine == engine {
			total.add(&x.Counts)
		}
	}
	return total
}

// table has a row for each kind of fault: how often it struck on each engine, and what shows that.
func (r *report) table() string {
	var rows [][]string
	total := r.total("")
	for k, t := range traits {
		if !r.possible(k) && total.Faults[k] == 0 {
			continue
		}
		row := []string{t.meaning}
		for _, e := range r.engines() {
			row = append(row, page.Thousands(r.total(e).Faults[k]))
		}
		seen := ""
		switch {
		case total.Faults[k] > 0 && t.clock:
			seen = page.Thousands(total.Proved[k]) + ", by what the replica logged"
		case total.Faults[k] > 0 && t.wire:
			seen = page.Thousands(total.Lost) + " pieces lost, of both kinds"
		}
		rows = append(rows, append(row, seen))
	}
	slices.SortFunc(rows, slices.Compare)
	var b strings.Builder
	page.Table(&b, slices.Concat([]string{"fault"}, r.engines(), []string{"seen"}), rows)
	return b.String()
}

// engines are those of the rounds.
func (r *report) engines() []string {
	var names []string
	for _, x := range r.Rounds {
		if !slices.Contains(names, x.Plan.Engine) {
			names = append(names, x.Plan.Engine)
		}
	}
	return names
}

// markdown returns the service's part of the page. A run with a violation writes none.
func (r *report) markdown() string {
	var b strings.Builder
	t, first := r.total(""), r.Rounds[0].Plan
	var recovery, length time.Duration
	for _, x := range r.Rounds {
		recovery, length = max(recovery, x.Recovery), length+x.Plan.Length
	}
	fmt.Fprintf(&b, "Made on %s, on %v: %d rounds, %v under faults; %d clients, %d replicas, lease %v.\n\n",
		r.Began.UTC().Format(time.DateTime+" MST"), r.Machine, len(r.Rounds), length, first.Seats, r.Replicas, first.Lease)
	fmt.Fprintf(&b, "- Holds of the lock: %s%s).\n", page.Thousands(t.Tenures), counted(" (", t.Of))
	fmt.Fprintf(&b, "- Effects on the resource: %s. "+
		"Late, after a stop between check and effect: %d, of which the fence refused %d.\n",
		page.Thousands(t.Operations), t.LatePast, t.Refused)
	fmt.Fprintf(&b, "- Longest time without a holder: %v of %v allowed; "+
		"to the next holder after the last kill: %v.\n", t.Leaderless.Round(10*time.Millisecond), gapBound(first.Lease),
		recovery.Round(10*time.Millisecond))
	fmt.Fprintf(&b, "- The nemesis struck %s, the proxies %s.\n- **What was wrong: 0.**\n",
		times(t.Faults), times(t.Weather))
	return b.String()
}

// times says how often, and in how many ways. The JSON has each.
func times(of map[string]int) string {
	return fmt.Sprintf("%s times in %d ways", page.Thousands(sum(of)), len(of))
}

func sum(of map[string]int) (n int) {
	for _, times := range of {
		n += times
	}
	return n
}
