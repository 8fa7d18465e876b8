// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/page"
)

// verdict is a rule's judgement.
type verdict string

const (
	passed verdict = "pass"
	failed verdict = "fail"
	none   verdict = "-" // the library has no such thing
)

// cell is the behaviour of one client under one fault.
type cell struct {
	Verdict verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	// Figures are the runs', in milliseconds unless Seen says else.
	Figures []float64 `json:"figures,omitempty"`
}

// judged returns a cell that has passed if ok.
func judged(ok bool, figures []float64, seen string, args ...any) cell {
	c := cell{Verdict: failed, Seen: fmt.Sprintf(seen, args...), Figures: figures}
	if ok {
		c.Verdict = passed
	}
	return c
}

// lacking returns the cell of a client without the feature.
func lacking(why string) cell { return cell{Verdict: none, Seen: why} }

// margins is the cell of how long before another one's grant each holder stopped
// believing. No client may be late.
func margins(figures []float64) cell {
	late := slices.DeleteFunc(slices.Clone(figures), func(f float64) bool { return f >= 0 })
	runs := page.Plural(len(figures), "run")
	switch len(late) {
	case 0:
		return judged(true, figures, "told %s before (%s)", span(figures), runs)
	case len(figures):
		return judged(false, figures, "told %s late (%s)", span(figures), runs)
	}
	return judged(false, figures, "told up to %s late, in %d of %s", length(slices.Min(late)), len(late), runs)
}

// beliefs returns the cell for how long holders believed that should not have for an instant.
func beliefs(figures []float64) cell {
	runs := page.Plural(len(figures), "run")
	more := slices.DeleteFunc(slices.Clone(figures), func(f float64) bool { return f <= 0 })
	if len(more) == 0 {
		return judged(true, figures, "its first check said no (%s)", runs)
	}
	return judged(false, figures, "acted as holder for %s beside the new one, in %d of %s", span(more), len(more), runs)
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// span is a range of times of one sign, for people.
func span(figures []float64) string {
	low, high := length(slices.Min(figures)), length(slices.Max(figures))
	if slices.Max(figures) < 0 {
		low, high = high, low
	}
	if low == high {
		return low
	}
	return low + " to " + high
}

// length is a time for people, whatever its sign.
func length(ms float64) string {
	switch ms = math.Abs(ms); {
	case ms >= 999.5:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms < 10 && ms != 0:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func lengthOf(d time.Duration) string { return length(milliseconds(d.Nanoseconds())) }

// table is a table of faults, each injected into each client.
type table struct {
	page.Part
	rows    []row
	columns []column
}

func tableOf(name, command string, rows []row, columns []column) table {
	return table{page.Part{
		Name: name, Command: command, Results: "test/faults/results.json", Page: "docs/evidence/faults.md",
	}, rows, columns}
}

var (
	libraryTable = tableOf("libraries", "make faults", rows, columns)
	serviceTable = tableOf("service", "go run ./test/faults -service", clientRows(), clients)
	redisTable   = tableOf("redis", "go run ./test/faults -redis", slices.Concat(rows, lossRows), redisColumns)
)

// report is everything that a run found.
type report struct {
	Date      string                     `json:"date"` // of the run's start, UTC
	Machine   machine.Machine            `json:"machine"`
	Engines   map[string]string          `json:"engines"`   // their versions
	Libraries map[string]string          `json:"libraries"` // version and runtime
	Cells     map[string]map[string]cell `json:"cells"`     // by row and column
}

// complete returns an error if something is missing, or a row is not passed by a client of
// Tenure: such a page must not be published.
func (t table) complete(r *report) (err error) {
	wrong := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	for _, row := range t.rows {
		for _, c := range t.columns {
			switch found := r.Cells[row.id][c.id]; {
			case found.Seen == "":
				wrong("%s was not looked at for %s", row.id, c.id)
			case c.ours && found.Verdict != passed:
				wrong("%s does not pass %s: %s", c.title, row.id, found.Seen)
			}
		}
	}
	for id := range r.Cells {
		if !slices.ContainsFunc(t.rows, func(r row) bool { return r.id == id }) {
			wrong("there is no row %s any more", id)
		}
	}
	return err
}

// markdown is the table's part of the page. On its other stores Tenure passes all, and has no
// column: complete sees to it. That of the service has no table.
func (t table) markdown(r *report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s, on %v", r.Date, r.Machine)
	shown := t.columns
	if t.Name == libraryTable.Name {
		shown = slices.DeleteFunc(slices.Clone(shown), column.otherStore)
	}
	passed := r.counted(shown, func(c column) string { return c.title })
	if t.Name == serviceTable.Name {
		fmt.Fprintf(&b, ", with a lease of %v unless a row says otherwise. %s\n", usualLease, passed)
		return b.String()
	}
	head, lines := []string{"fault"}, [][]string{}
	for _, c := range shown {
		head = append(head, c.title)
	}
	for _, row := range t.rows {
		line := []string{row.title}
		for _, c := range shown {
			line = append(line, c.shows(r.Cells[row.id][c.id]))
		}
		lines = append(lines, line)
	}
	b.WriteString("; each engine on loopback.\n\n")
	page.Table(&b, head, lines)
	if t.Name == redisTable.Name {
		fmt.Fprintf(&b, "\n%s\n", passed)
		return b.String()
	}
	ours := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return !c.ours })
	fmt.Fprintf(&b, "\n%s\n\nTenure on each of its stores. %s\n", passed,
		r.counted(ours, func(c column) string { return c.engine.title }))
	return b.String()
}

// shows is a cell as the table shows it. What another library has passed is in the JSON alone.
func (c column) shows(found cell) string {
	switch {
	case found.Verdict == none:
		return "– " + found.Seen
	case found.Verdict == failed:
		return "**FAIL**: " + found.Seen
	case c.ours:
		return "**pass**: " + found.Seen
	}
	return "**pass**"
}

// counted says how many rows each of some columns passes.
func (r *report) counted(of []column, name func(column) string) string {
	texts := make([]string, len(of))
	for i, c := range of {
		verdicts := map[verdict]int{}
		for _, cells := range r.Cells {
			verdicts[cells[c.id].Verdict]++
		}
		texts[i] = fmt.Sprintf("%s %d of %d", name(c), verdicts[passed], verdicts[passed]+verdicts[failed])
	}
	return "Passed: " + strings.Join(texts, ", ") + "."
}
