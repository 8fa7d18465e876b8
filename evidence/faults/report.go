// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
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
	Engine    string                     `json:"engine"`
	Took      float64                    `json:"tookSeconds"`
	Libraries map[string]string          `json:"libraries"` // version and runtime
	Cells     map[string]map[string]cell `json:"cells"`     // by row and library
}

// The files that a run writes, in the module's folder and beside it.
const (
	resultsFile = "results.json"
	pageFile    = "../../docs/evidence/faults.md"
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
	return os.WriteFile(filepath.Join(dir, pageFile), []byte(r.markdown()), 0o644)
}

func readReport(file string) (*report, error) {
	var r report
	return &r, page.ReadJSON(file, &r)
}

// markdown returns the page.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(before)
	fmt.Fprintf(&b, "\nMade on %s, in %.0f s.\n\n| | |\n| --- | --- |\n%s| DynamoDB engine | %s |\n",
		r.Date, r.Took, r.Machine.Rows(), r.Engine)
	for _, s := range r.looked() {
		fmt.Fprintf(&b, "| %s | %s |\n", s.title, r.Libraries[s.name])
	}
	for _, s := range subjects {
		if r.Libraries[s.name] == "" {
			fmt.Fprintf(&b, "| %s | not looked at in this run |\n", s.title)
		}
	}

	b.WriteString("\n## The table\n\n")
	head, table, settings := []string{"fault"}, [][]string{}, [][]string{}
	for _, s := range r.looked() {
		head = append(head, s.title)
		settings = append(settings, []string{s.title, s.lease.String(), s.settings(s.lease).said})
	}
	for _, row := range rows {
		cells := []string{fmt.Sprintf("[%s](#%s)", row.title, row.anchor())}
		for _, s := range r.looked() {
			c := r.Cells[row.id][s.name]
			cells = append(cells, marks[c.Verdict]+c.Seen)
		}
		table = append(table, cells)
	}
	page.Table(&b, head, table)
	b.WriteString("\n" + r.counted() + "\n\n## Settings\n\n")
	page.Table(&b, []string{"library", "lease", "what else is set"}, settings)
	b.WriteString(after)
	for _, row := range rows {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n**Pass:** %s\n", row.title, row.how, row.rule)
		if row.note != "" {
			fmt.Fprintf(&b, "\n%s\n", row.note)
		}
	}
	return b.String()
}

// marks begin a cell.
var marks = map[verdict]string{passed: "**pass**: ", failed: "**FAIL**: ", none: "– "}

// anchor is what a heading is linked by.
func (r row) anchor() string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-':
			return c
		case c == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(r.title))
}

// counted says how many rows each library passes.
func (r *report) counted() string {
	all := r.looked()
	texts := make([]string, len(all))
	for i, s := range all {
		ok, of := 0, 0
		for _, cells := range r.Cells {
			switch cells[s.name].Verdict {
			case passed:
				ok++
				of++
			case failed:
				of++
			}
		}
		texts[i] = fmt.Sprintf("%s %d of %d", s.title, ok, of)
	}
	return "Passed: " + strings.Join(texts, ", ") + "."
}

// looked are the libraries that the run has looked at.
func (r *report) looked() []subject {
	return slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return r.Libraries[s.name] == "" })
}

// complete returns an error if something of the libraries that were looked at is missing,
// or a row is not passed by Tenure: such a page is not for others to read.
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
			case s.name == tenureName && c.Verdict != passed:
				wrong = append(wrong, fmt.Sprintf("%s does not pass %s: %s", s.title, row.id, c.Seen))
			}
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
