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
	"time"

	"github.com/tenurelock/tenure/evidence/bed/machine"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// report is everything that a run found. The page is made from it, and from what
// the rows say of themselves.
type report struct {
	Date      string                     `json:"date"` // of the run's start, UTC
	Machine   machine.Machine            `json:"machine"`
	Engine    string                     `json:"engine"`            // of DynamoDB
	Engines   map[engine]string          `json:"engines,omitempty"` // the versions of the others
	Took      float64                    `json:"tookSeconds"`
	Libraries map[string]string          `json:"libraries"` // version and runtime
	Cells     map[string]map[string]cell `json:"cells"`     // by row and library
}

// The files that a run writes, in the module's folder and beside it, and the command that
// the page says its part is made by.
const (
	resultsFile = "results.json"
	pageFile    = "../../docs/evidence/faults.md"
	command     = "make faults"
)

// write writes both files.
func (r *report) write(ctx context.Context) error {
	dir, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	if err := page.WriteJSON(filepath.Join(dir, resultsFile), r); err != nil {
		return err
	}
	return rewrite(ctx)
}

// rewrite writes the page of the results that there are.
func rewrite(ctx context.Context) error {
	dir, err := proc.ModuleDir(ctx, thisModule)
	if err != nil {
		return err
	}
	r, err := readReport(filepath.Join(dir, resultsFile))
	if err != nil {
		return err
	}
	return page.Publish(r, r.markdown(), command, io.Discard, "", filepath.Join(dir, pageFile))
}

func readReport(file string) (*report, error) {
	var r report
	return &r, page.ReadJSON(file, &r)
}

// markdown returns the part of the page that is made of the run. The versions are in the JSON.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made on %s, on %v; each engine on loopback.\n\n", r.Date, r.Machine)
	libraries := slices.DeleteFunc(r.looked(), subject.elsewhere)
	head, table := []string{"fault"}, [][]string{}
	for _, s := range libraries {
		head = append(head, s.title)
	}
	for _, row := range rows {
		cells := []string{row.title}
		for _, s := range libraries {
			c := r.Cells[row.id][s.name]
			if c.Verdict == passed && !s.isTenure() {
				c.Seen = "" // the JSON has it
			}
			cells = append(cells, strings.TrimSuffix(marks[c.Verdict]+c.Seen, ": "))
		}
		table = append(table, cells)
	}
	page.Table(&b, head, table)
	b.WriteString("\n" + r.counted(libraries, func(s subject) string { return s.title }) + "\n")
	// On its stores Tenure passes all: complete sees to it.
	b.WriteString("\nTenure on its stores. " + r.counted(slices.DeleteFunc(r.looked(), func(s subject) bool { return !s.isTenure() }), func(s subject) string { return string(s.on) }))
	for _, s := range subjects {
		if r.Libraries[s.name] == "" {
			fmt.Fprintf(&b, " %s: %s.", s.title, notLooked)
		}
	}
	b.WriteString("\n\nLeases and settings:")
	for i, s := range libraries {
		fmt.Fprintf(&b, "%s %s (%v) %s", []string{"", ";"}[min(i, 1)], s.title, s.lease, s.settings(s.lease).said)
	}
	b.WriteString(".\n\n")
	explain(&b, rows)
	return b.String()
}

// explain writes how each fault is made, and what passes.
func explain(b *strings.Builder, rows []row) {
	for _, row := range rows {
		fmt.Fprintf(b, "- **%s**: %s *Pass:* %s\n", row.title, strings.ReplaceAll(row.how, "\n", " "), row.rule)
	}
}

// notLooked stands in the place of what a run has left out.
const notLooked = "not looked at in this run"

var marks = map[verdict]string{passed: "**pass**: ", failed: "**FAIL**: ", none: "– "}

// counted says how many rows each of some subjects passes.
func (r *report) counted(of []subject, name func(subject) string) string {
	texts := make([]string, len(of))
	for i, s := range of {
		ok, all := 0, 0
		for _, cells := range r.Cells {
			switch cells[s.name].Verdict {
			case passed:
				ok++
				all++
			case failed:
				all++
			}
		}
		texts[i] = fmt.Sprintf("%s %d of %d", name(s), ok, all)
	}
	return "Passed: " + strings.Join(texts, ", ") + "."
}

// looked are the libraries that the run has looked at.
func (r *report) looked() []subject {
	return slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return r.Libraries[s.name] == "" })
}

// complete returns an error if something of the libraries that were looked at is missing,
// or a row is not passed by Tenure, on whatever store: such a page is not for others to
// read.
func (r *report) complete() error {
	var wrong []string
	if r.Libraries[tenureName] == "" {
		wrong = append(wrong, "Tenure was not looked at")
	}
	for _, row := range rows {
		for _, s := range r.looked() {
			switch c, found := r.Cells[row.id][s.name]; {
			case !found || c.Seen == "":
				wrong = append(wrong, fmt.Sprintf("%s was not looked at for %s", row.id, s.name))
			case s.isTenure() && c.Verdict != passed:
				wrong = append(wrong, fmt.Sprintf("%s does not pass %s: %s", s.title, row.id, c.Seen))
			}
		}
	}
	for _, s := range r.looked() {
		if s.elsewhere() && r.Engines[s.on] == "" {
			wrong = append(wrong, fmt.Sprintf("the version of %s is missing", s.on))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.Cells)) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.id == id }) {
			wrong = append(wrong, "there is no row "+id+" any more")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

func now() string { return time.Now().UTC().Format(time.DateTime) + " UTC" }
