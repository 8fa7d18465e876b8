// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// table is a table of faults, each thrown at each client.
type table struct {
	rows    []row
	columns []column
	results string // the file that a run writes, in the module's folder
	command string // by which the page says that its part is made
	part    func(t table, r *report) string
}

// pageFile is the page of both tables, from the module's folder.
const pageFile = "../../docs/evidence/faults.md"

func libraryTable() table { return table{rows, columns, "results.json", "make faults", libraryPart} }

func serviceTable() table {
	return table{clientRows(), clients, "service.json", "go run ./evidence/faults -service", servicePart}
}

// report is everything that a run found. The page is made from it, and from what
// the rows say of themselves.
type report struct {
	Date      string                     `json:"date"` // of the run's start, UTC
	Machine   machine.Machine            `json:"machine"`
	Engine    string                     `json:"engine"`            // of DynamoDB
	Engines   map[string]string          `json:"engines,omitempty"` // the versions of the others
	Took      float64                    `json:"tookSeconds"`
	Libraries map[string]string          `json:"libraries"` // version and runtime
	Cells     map[string]map[string]cell `json:"cells"`     // by row and column
}

// write writes what a run has found, and the page; of no run the page of the results that
// there are.
func (t table) write(ctx context.Context, r *report) error {
	dir, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	results := filepath.Join(dir, t.results)
	if r == nil {
		r = &report{}
		err = page.ReadJSON(results, r)
	} else if err = t.complete(r); err == nil {
		err = page.WriteJSON(results, r)
	}
	if err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	return page.Publish(r, t.part(t, r), t.command, io.Discard, "", filepath.Join(dir, pageFile))
}

// complete returns an error if something is missing, or a row is not passed by a client of
// Tenure: such a page is not for others to read.
func (t table) complete(r *report) error {
	var wrong []string
	for _, row := range t.rows {
		for _, c := range t.columns {
			switch found := r.Cells[row.id][c.id]; {
			case found.Seen == "":
				wrong = append(wrong, fmt.Sprintf("%s was not looked at for %s", row.id, c.id))
			case c.ours && found.Verdict != passed:
				wrong = append(wrong, fmt.Sprintf("%s does not pass %s: %s", c.title, row.id, found.Seen))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.Cells)) {
		if !slices.ContainsFunc(t.rows, func(r row) bool { return r.id == id }) {
			wrong = append(wrong, "there is no row "+id+" any more")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

// libraryPart is the part of the page about libraries. The versions are in the JSON. On its
// other stores Tenure passes all, and has no column: complete sees to it.
func libraryPart(t table, r *report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %v; each engine on loopback.\n\n", r.Date, r.Machine)
	libraries := slices.DeleteFunc(slices.Clone(t.columns), column.otherStore)
	marks := map[verdict]string{passed: "**pass**: ", failed: "**FAIL**: ", none: "– "}
	head, lines := []string{"fault"}, [][]string{}
	settings := make([]string, len(libraries))
	for i, c := range libraries {
		head = append(head, c.title)
		settings[i] = fmt.Sprintf("%s (%v) %s", c.title, c.lease, c.said)
	}
	for _, row := range t.rows {
		line := []string{row.title}
		for _, c := range libraries {
			found := r.Cells[row.id][c.id]
			if found.Verdict == passed && !c.ours {
				found.Seen = "" // the JSON has it
			}
			line = append(line, strings.TrimSuffix(marks[found.Verdict]+found.Seen, ": "))
		}
		lines = append(lines, line)
	}
	page.Table(&b, head, lines)
	fmt.Fprintf(&b, "\n%s\n", r.counted(libraries, func(c column) string { return c.title }))
	ours := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return !c.ours })
	fmt.Fprintf(&b, "\nTenure on its stores. %s\n", r.counted(ours, func(c column) string { return c.engine }))
	fmt.Fprintf(&b, "\nLeases and settings: %s.\n\n", strings.Join(settings, "; "))
	explain(&b, t.rows)
	return b.String()
}

// servicePart is the part about the clients of the service, which pass all.
func servicePart(t table, r *report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %v, with a lease of %v where nothing else is said. %s\n\n",
		r.Date, r.Machine, usualLease, r.counted(t.columns, func(c column) string { return c.title }))
	explain(&b, serviceRows)
	return b.String()
}

// explain writes how each fault is made, and what passes.
func explain(b *strings.Builder, rows []row) {
	for _, row := range rows {
		fmt.Fprintf(b, "- **%s**: %s *Pass:* %s\n", row.title, row.how, row.rule)
	}
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
