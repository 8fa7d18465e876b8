// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// Columns of tables, by their heads, on a terminal that has no room for all.
var (
	// elastic may be shortened.
	elastic = []string{"OWNER", "HOST", "LABEL", "WHY", "ENDED"}
	// sparing are the steps, one after the other: to shorten texts down to least, and to leave
	// a column out.
	sparing = []struct {
		least int
		spare string
	}{
		{20, "HOST"}, {20, "UNCHANGED"}, {20, "HELD"}, {12, "UNTIL"}, {8, "LABEL"}, {8, "SINCE"}, {8, "WHY"}, {8, ""},
	}
)

const betweenCells = 2

// screenWidth is that of the terminal that standard output is, 0 if it is none.
func (c *console) screenWidth() int {
	if c.screen < 0 {
		return 0
	}
	width, _, err := term.GetSize(c.screen)
	if err != nil || width <= 0 {
		return 0
	}
	return width
}

// fitTable returns the cells of a table, with its head, as they have room in a width: columns
// that are empty in each line are left out first, then texts shortened, then columns left out
// that are less needed. What has no room then is cut off by the caller. A width of 0 has room
// for all.
func fitTable(cells [][]string, width int) [][]string {
	if width <= 0 || len(cells) == 0 {
		return cells
	}
	out := make([][]string, len(cells))
	for n, line := range cells {
		for _, cell := range line {
			out[n] = append(out[n], printable.Cell(cell))
		}
	}
	for i := len(out[0]) - 1; i > 0 && lineWidth(out) >= width; i-- {
		if emptyColumn(out, i) {
			dropColumn(out, i)
		}
	}
	for _, step := range sparing {
		for i := widestElastic(out, step.least); i >= 0 && lineWidth(out) >= width; i = widestElastic(out, step.least) {
			shorten(out, i)
		}
		if lineWidth(out) < width {
			break
		}
		if i := slices.Index(out[0], step.spare); i >= 0 {
			dropColumn(out, i)
		}
	}
	return out
}

func columnWidth(cells [][]string, i int) int {
	most := 0
	for _, line := range cells {
		most = max(most, runewidth.StringWidth(line[i]))
	}
	return most
}

func lineWidth(cells [][]string) int {
	sum := betweenCells * (len(cells[0]) - 1)
	for i := range cells[0] {
		sum += columnWidth(cells, i)
	}
	return sum
}

func emptyColumn(cells [][]string, i int) bool {
	return !slices.ContainsFunc(cells[1:], func(line []string) bool { return line[i] != "-" })
}

func dropColumn(cells [][]string, i int) {
	for n, line := range cells {
		cells[n] = slices.Delete(line, i, i+1)
	}
}

// widestElastic returns the widest column that can be shortened, -1 if none can.
func widestElastic(cells [][]string, least int) int {
	at, most := -1, least
	for i, head := range cells[0] {
		if w := columnWidth(cells, i); slices.Contains(elastic, head) && w > most {
			at, most = i, w
		}
	}
	return at
}

// shorten makes the widest texts of a column shorter by one.
func shorten(cells [][]string, i int) {
	to := columnWidth(cells, i) - 1
	for _, line := range cells {
		if runewidth.StringWidth(line[i]) > to {
			line[i] = runewidth.Truncate(line[i], to, "…")
		}
	}
}
