// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package page writes what a run has found: as JSON, and from that alone as a part
// of a page of docs/.
package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// endMark ends the part of a page that is made from a run.
const endMark = "<!-- to here -->\n"

// BeginMark begins the part that the command makes.
func BeginMark(command string) string { return "<!-- made by " + command + ", from here -->\n" }

// Publish writes tables to stdout, or to a page after the mark of the command, and
// what they are made of as JSON.
func Publish(found any, tables, command string, stdout io.Writer, toJSON, toPage string) error {
	if toJSON != "" {
		if err := WriteJSON(toJSON, found); err != nil {
			return err
		}
	}
	if toPage == "" {
		_, err := io.WriteString(stdout, tables)
		return err
	}
	before, _, after, err := cut(toPage, command)
	if err != nil {
		return err
	}
	return os.WriteFile(toPage, []byte(before+BeginMark(command)+"\n"+tables+"\n"+endMark+after), 0o644)
}

// PublishPart is Publish where what was found is the part of a name in the JSON, whose other parts
// stay as they are.
func PublishPart(name string, found any, tables, command, toJSON, toPage string) error {
	parts := map[string]json.RawMessage{}
	text, err := json.Marshal(found)
	if err := errors.Join(err, ReadJSON(toJSON, &parts)); err != nil {
		return err
	}
	parts[name] = text
	return Publish(parts, tables, command, io.Discard, toJSON, toPage)
}

// Check returns an error unless the command's part of a page has these tables.
func Check(file, tables, command string) error {
	_, part, _, err := cut(file, command)
	if got, want := strings.TrimSpace(part), strings.TrimSpace(tables); err == nil && got != want {
		err = fmt.Errorf("%s is not made of what was found. It has:\n%s\nwant:\n%s", file, got, want)
	}
	return err
}

func cut(file, command string) (before, part, after string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	begin := BeginMark(command)
	before, rest, begun := strings.Cut(string(text), begin)
	part, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return "", "", "", fmt.Errorf("%s has no place for the tables, between the lines %q and %q", file,
			strings.TrimSpace(begin), strings.TrimSpace(endMark))
	}
	return before, part, after, nil
}

// WriteJSON writes what was found to a file.
func WriteJSON(file string, found any) error {
	text, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// ReadJSON reads what was found before.
func ReadJSON(file string, found any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, found)
}

// Table writes a table. A head that ends in a colon is that of a column of figures.
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
