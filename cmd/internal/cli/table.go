// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/mattn/go-runewidth"

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
func (c *console) table(cells [][]string) error {
	return c.print(style{width: c.screenWidth()}.table(cells, nil))
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
