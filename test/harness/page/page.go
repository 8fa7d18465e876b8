// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package page writes the results of a run: as JSON, and from only that as a part of a
// page of docs/.
package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// endMark ends the part of a page that is made from a run.
const endMark = "<!-- to here -->\n"

// Part is the part of a page that a program writes, and the part of a file of results, in JSON,
// that it comes from. Both files are named by their paths in the checkout.
type Part struct{ Name, Command, Results, Page string }

// Read reads the last results.
func (p Part) Read(found any) error {
	parts, _, err := p.results()
	if err != nil {
		return err
	}
	return json.Unmarshal(parts[p.Name], found)
}

// Write writes the results, and the tables made from them. The other parts of the files stay
// as they are.
func (p Part) Write(found any, tables string) error {
	parts, file, err := p.results()
	if err != nil {
		return err
	}
	if parts[p.Name], err = json.Marshal(found); err != nil {
		return err
	}
	text, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		return err
	}
	before, _, after, to, err := p.cut()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, append(text, '\n'), 0o644),
		os.WriteFile(to, []byte(before+"\n"+tables+"\n"+after), 0o644))
}

// Check returns an error unless the part of the page has these tables.
func (p Part) Check(tables string) error {
	_, part, _, file, err := p.cut()
	if got, want := strings.TrimSpace(part), strings.TrimSpace(tables); err == nil && got != want {
		err = fmt.Errorf("%s is not made of what was found: -write writes both, and -page the page alone. "+
			"It has:\n%s\nwant:\n%s", file, got, want)
	}
	return err
}

func (p Part) results() (parts map[string]json.RawMessage, file string, err error) {
	root, err := launcher.Root()
	if err != nil {
		return nil, "", err
	}
	file = filepath.Join(root, p.Results)
	text, err := os.ReadFile(file)
	return parts, file, errors.Join(err, json.Unmarshal(text, &parts))
}

// cut returns the part of the page, and what is before and after it, with the marks.
func (p Part) cut() (before, part, after, file string, err error) {
	root, err := launcher.Root()
	if err != nil {
		return "", "", "", "", err
	}
	file = filepath.Join(root, p.Page)
	text, err := os.ReadFile(file)
	begin := "<!-- made by " + p.Command + ", from here -->\n"
	before, rest, begun := strings.Cut(string(text), begin)
	part, after, ended := strings.Cut(rest, endMark)
	if err == nil && (!begun || !ended) {
		err = fmt.Errorf("%s has no place for the tables, between the lines %q and %q", file, begin, endMark)
	}
	return before + begin, part, endMark + after, file, err
}

// Table writes a table. A head that ends in a colon makes a column of figures.
func Table(w io.Writer, head []string, rows [][]string) {
	names, aligned := make([]string, len(head)), make([]string, len(head))
	for i, name := range head {
		var figures bool
		names[i], figures = strings.CutSuffix(name, ":")
		aligned[i] = "---"
		if figures {
			aligned[i] = "---:"
		}
	}
	for _, row := range append([][]string{names, aligned}, rows...) {
		for _, cell := range row {
			fmt.Fprint(w, strings.TrimRight("| "+cell, " "), " ")
		}
		fmt.Fprintln(w, "|")
	}
}

// Amount is short, and exact where it is whole.
func Amount(x float64) string {
	switch {
	case x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Thousands is a whole number with commas.
func Thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
}

// Plural is a number of what is named in the singular.
func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + one + "s"
}
