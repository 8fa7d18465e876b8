// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/page"
)

// report is the whole of a run.
type report struct {
	Command  string
	Began    time.Time
	Took     time.Duration
	Versions []version
	// Missing are faults that this machine did not allow.
	Missing []string
	// Whole says that all faults are dealt.
	Whole  bool
	Rounds []result
}

type version struct{ Name, Version string }

// result is what a round has shown, as the report has it.
type result struct {
	Number   int
	Plan     plan
	Verdict  *verdict
	Drawing  *timeline
	Events   []event
	Recovery time.Duration
	Bound    time.Duration
	Late     time.Duration
	Began    int64
}

//go:embed report.html
var reportPage string

func (r *report) write(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"ms":      shown,
		"seconds": func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
		"since":   func(at, began int64) string { return fmt.Sprintf("%.3f", time.Duration(at-began).Seconds()) },
		"num":     page.Thousands,
		"plural":  plural,
	}).Parse(reportPage)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

func (r *report) save(path string) error {
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// Violations counts them over all rounds.
func (r *report) Violations() int {
	n := len(r.unproved())
	for _, x := range r.Rounds {
		n += len(x.Verdict.Violations)
	}
	return n
}

// unproved are the kinds of faults that struck, and of which nothing shows that
// they did: of a clock, that no replica saw them; of the way to an engine, that
// nothing was lost on it. In a run of several rounds it is each that never came.
func (r *report) unproved() []string {
	total := r.Total()
	var missing []string
	for _, k := range []kind{suspend, pauseVM, lateVM, wallOn, wallBack} {
		if total.Faults[k] > 0 && total.Proved[k] == 0 {
			missing = append(missing, string(k))
		}
	}
	if r.Whole && len(r.Rounds) >= 3*len(r.Engines()) {
		for _, k := range slices.Sorted(maps.Keys(meaning)) {
			if r.possible(k) && total.Faults[k] == 0 {
				missing = append(missing, string(k))
			}
		}
	}
	for _, k := range []kind{blackHole, loseReplies} {
		if total.Faults[k] > 0 && total.Lost == 0 {
			missing = append(missing, string(k))
		}
	}
	return missing
}

// possible says that the engines and this machine allow a fault.
func (r *report) possible(k kind) bool {
	switch k {
	case start:
		return false
	case namespace:
		return len(r.Missing) == 0
	case lockFile:
		return slices.Contains(r.Engines(), fileEngine)
	case blackHole, delay, loseReplies, stopEngine, restartEngine:
		return slices.ContainsFunc(r.Engines(), func(name string) bool { return name != fileEngine })
	default:
		return true
	}
}

// Unproved says the same, for the page.
func (r *report) Unproved() string { return strings.Join(r.unproved(), ", ") }

// Total adds the figures of all rounds.
func (r *report) Total() counts {
	return r.sum(func(result) bool { return true })
}

func (r *report) sum(of func(result) bool) counts {
	total := counts{Faults: map[kind]int{}, Proved: map[kind]int{}, Margin: -1}
	for _, x := range r.Rounds {
		if of(x) {
			total.add(&x.Verdict.counts)
		}
	}
	return total
}

func (c *counts) add(d *counts) {
	for k, n := range d.Faults {
		c.Faults[k] += n
	}
	for k, n := range d.Proved {
		c.Proved[k] += n
	}
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(d).Elem()
	for i := range to.NumField() {
		if n := to.Field(i); n.Kind() == reflect.Int {
			n.SetInt(n.Int() + from.Field(i).Int())
		}
	}
	c.Leaderless = max(c.Leaderless, d.Leaderless)
	if d.Margin >= 0 && (c.Margin < 0 || d.Margin < c.Margin) {
		c.Margin = d.Margin
	}
}

// Count is how many tenancies there were; the verdict has a list of that name.
func (c counts) Count() int { return c.Tenancies }

// AllFaults counts them.
func (c counts) AllFaults() int {
	n := 0
	for k, m := range c.Faults {
		if k != stepDown && k != start {
			n += m
		}
	}
	return n
}

// Table is a row for each kind of fault.
func (r *report) Table() []faultRow {
	var rows []faultRow
	total, engines := r.Total(), r.Engines()
	for _, k := range slices.SortedFunc(maps.Keys(meaning),
		func(a, b kind) int { return strings.Compare(meaning[a], meaning[b]) }) {
		if k == start && total.Faults[k] == 0 || k != start && !r.possible(k) {
			continue
		}
		row := faultRow{
			Kind: k, Struck: total.Faults[k] > 0, Wire: k == blackHole || k == loseReplies,
			Meaning: meaning[k], Proved: total.Proved[k], Clock: k == suspend || k == pauseVM || k == lateVM ||
				k == wallOn || k == wallBack,
		}
		for _, e := range engines {
			row.Counts = append(row.Counts, r.sum(func(x result) bool { return x.Plan.Engine == e }).Faults[k])
		}
		rows = append(rows, row)
	}
	return rows
}

type faultRow struct {
	Kind    kind
	Meaning string
	Counts  []int
	Struck  bool
	Clock   bool
	Wire    bool // a fault of the way to the engine
	Proved  int
}

// Engines are those of the rounds.
func (r *report) Engines() []string {
	var names []string
	for _, x := range r.Rounds {
		if !slices.Contains(names, x.Plan.Engine) {
			names = append(names, x.Plan.Engine)
		}
	}
	return names
}

// meaning says in a few words what a fault is.
var meaning = map[kind]string{
	kill:          "SIGKILL of a replica; another one is started later",
	namespace:     "SIGKILL of a replica; another one is started in a time namespace",
	stop:          "SIGSTOP of a replica, SIGCONT later",
	suspend:       "suspend: stopped; its monotonic clock stands meanwhile",
	pauseVM:       "paused machine: stopped; its monotonic and boot clocks stand",
	lateVM:        "paused machine, whose wall clock is set right only later",
	wallOn:        "wall clock of a replica set forward",
	wallBack:      "wall clock of a replica set back",
	stepDown:      "somebody asks the leader to step down (no fault)",
	start:         "a replica is started where none ran",
	lockFile:      "file locked by another program's transaction",
	blackHole:     "black hole between a replica and the engine",
	delay:         "each piece of bytes to and from the engine waits",
	loseReplies:   "the engine's replies are lost after it has done the work",
	stopEngine:    "SIGSTOP of the engine, SIGCONT later",
	restartEngine: "SIGKILL of the engine, restart on the same data",
}
