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
	Engine    string                     `json:"engine"`            // of DynamoDB
	Engines   map[engine]string          `json:"engines,omitempty"` // the versions of the others
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
	for _, on := range slices.Sorted(maps.Keys(r.Engines)) {
		fmt.Fprintf(&b, "| %s engine | %s |\n", on, r.Engines[on])
	}
	for _, s := range r.looked() {
		fmt.Fprintf(&b, "| %s | %s |\n", s.title, r.Libraries[s.name])
	}
	for _, s := range subjects {
		if r.Libraries[s.name] == "" {
			fmt.Fprintf(&b, "| %s | %s |\n", s.title, notLooked)
		}
	}

	libraries := slices.DeleteFunc(r.looked(), subject.elsewhere)
	b.WriteString("\n## The table\n\n")
	r.table(&b, rows, libraries, row.anchored, func(s subject) string { return s.title })
	b.WriteString(aboutStores)
	onStores := slices.DeleteFunc(r.looked(), func(s subject) bool { return !s.isTenure() })
	if len(onStores) > 1 {
		b.WriteString("\n" + r.counted(onStores, func(s subject) string { return string(s.on) }) + "\n")
	}
	for _, s := range subjects {
		if s.elsewhere() && r.Libraries[s.name] == "" {
			fmt.Fprintf(&b, "\n%s: %s.\n", s.title, notLooked)
		}
	}

	b.WriteString("\n## Settings\n\n")
	settings := [][]string{}
	for _, s := range r.looked() {
		settings = append(settings, []string{s.title, s.lease.String(), s.settings(s.lease).said})
	}
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

// notLooked stands in the place of what a run has left out.
const notLooked = "not looked at in this run"

// table writes the cells of some rows and subjects, with where a row is explained and under
// the name that each subject has there, and how many of them are passed.
func (r *report) table(b *strings.Builder, rows []row, of []subject, link func(row) string, name func(subject) string) {
	head, table := []string{"fault"}, [][]string{}
	for _, s := range of {
		head = append(head, name(s))
	}
	for _, row := range rows {
		cells := []string{fmt.Sprintf("[%s](%s)", row.title, link(row))}
		for _, s := range of {
			c := r.Cells[row.id][s.name]
			cells = append(cells, marks[c.Verdict]+c.Seen)
		}
		table = append(table, cells)
	}
	page.Table(b, head, table)
	b.WriteString("\n" + r.counted(of, name) + "\n")
}

// marks begin a cell.
var marks = map[verdict]string{passed: "**pass**: ", failed: "**FAIL**: ", none: "– "}

// anchored links to the row's heading on the same page.
func (r row) anchored() string { return "#" + r.anchor() }

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
