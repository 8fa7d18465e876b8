// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// style says how a table looks: by default as pipes want it.
type style struct {
	colour bool
	width  int  // 0: as wide as it comes
	live   bool // the locks have been watched for a while
}

const (
	escBold  = "\x1b[1m"
	escDim   = "\x1b[2m"
	escGreen = "\x1b[32m"
	escRed   = "\x1b[31m"
	escReset = "\x1b[0m"
)

// table shows locks, "" for none at all.
func table(rows []row, s style) string {
	if len(rows) == 0 {
		return ""
	}
	cells := [][]string{{"LOCK", "STATE", "OWNER", "TOKEN", "SINCE", "UNCHANGED", "FREE IN", "HOST", "LABEL"}}
	var colours []string
	for _, r := range rows {
		cells, colours = append(cells, r.cells(s)), append(colours, r.colour())
	}
	return s.table(cells, colours)
}

// table lays out a heading and the lines below it, each in its colour: none if colours is nil.
func (s style) table(cells [][]string, colours []string) string {
	var b strings.Builder
	for i, text := range columns(fitTable(cells, s.width)) {
		switch {
		case i == 0:
			b.WriteString(s.line(escBold, text))
		case colours == nil:
			b.WriteString(s.line("", text))
		default:
			b.WriteString(s.line(colours[i-1], text))
		}
	}
	return b.String()
}

// line returns a line as the style shows it.
func (s style) line(colour, text string) string {
	text = printable.Text(text)
	if s.width > 0 {
		text = fit(text, s.width)
	}
	if s.colour && colour != "" {
		text = colour + text + escReset
	}
	return text + "\n"
}

// table writes a table to standard output.
func (c *console) table(cells [][]string) {
	c.put(style{width: c.screenWidth()}.table(cells, nil))
}

// columns lays cells out as lines of text that can be printed.
func columns(cells [][]string) []string {
	shown := make([][]string, len(cells))
	widths := make([]int, len(cells[0]))
	for n, line := range cells {
		for i, cell := range line {
			cell = printable.Cell(cell)
			shown[n] = append(shown[n], cell)
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	lines := make([]string, 0, len(cells))
	for _, line := range shown {
		var text strings.Builder
		for i, cell := range line {
			if i > 0 {
				text.WriteString("  ")
			}
			text.WriteString(cell)
			if i < len(line)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell)))
			}
		}
		lines = append(lines, strings.TrimRight(text.String(), " "))
	}
	return lines
}

func (r row) colour() string {
	switch r.state {
	case stateHeld, stateAsked:
		return escGreen
	case stateExpired, stateUnreadable, stateInDoubt:
		return escRed
	}
	return escDim
}

// cells are the columns of the table. The owner of a lock that is free is the
// last one, that of a reserved one may take it next, and since is since when it
// is free, or reserved.
func (r row) cells(s style) []string {
	since, unchanged, free := clockText(r.Since), "", ""
	switch r.state {
	case stateHeld, stateAsked, stateInDoubt:
		if s.live || r.state == stateInDoubt {
			unchanged = fmt.Sprintf("%.1fs", r.Unchanged.Seconds())
		}
		free = fmt.Sprintf("<%v", round(r.FreeIn))
	case stateExpired:
		unchanged, free = fmt.Sprintf("%.1fs", r.Unchanged.Seconds()), "now"
	case stateReserved:
		since, free = clockText(r.Until), fmt.Sprintf("<%v", round(r.FreeIn))
	case stateFree:
		since, free = clockText(r.Until), "now"
	}
	token := formatToken(r.Token)
	if r.Token == 0 {
		token = ""
	}
	owner := r.Owner
	if r.state == stateReserved {
		owner = r.ReservedFor
		if r.ReservedForLabel != "" {
			owner = "label " + r.ReservedForLabel
		}
	}
	return dashed([]string{r.Name, r.stateText(), owner, token, since, unchanged, free, r.Host, r.Label})
}

// dashed has a dash stand where there is nothing.
func dashed(line []string) []string {
	for i, cell := range line {
		if cell == "" {
			line[i] = "-"
		}
	}
	return line
}

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
