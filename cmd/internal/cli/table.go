// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// style says how a table looks.
type style struct {
	colour bool
	width  int  // 0: as wide as it comes
	live   bool // the locks have been watched for a while
}

// plain is the style of a table for pipes.
var plain = style{}

const (
	escBold  = "\x1b[1m"
	escDim   = "\x1b[2m"
	escGreen = "\x1b[32m"
	escRed   = "\x1b[31m"
	escReset = "\x1b[0m"
)

// table lays rows out in columns, "" for no rows at all.
func table(rows []row, s style) string {
	if len(rows) == 0 {
		return ""
	}
	head := []string{"LOCK", "STATE", "OWNER", "TOKEN", "SINCE", "UNCHANGED", "FREE IN", "HOST", "LABEL"}
	cells := [][]string{head}
	for _, r := range rows {
		cells = append(cells, r.cells(s))
	}
	var b strings.Builder
	for n, out := range columns(narrow(cells, s.width)) {
		if s.width > 0 {
			out = fit(out, s.width)
		}
		if s.colour {
			out = colourOf(n, rows) + out + escReset
		}
		b.WriteString(out + "\n")
	}
	return b.String()
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

func colourOf(line int, rows []row) string {
	if line == 0 {
		return escBold
	}
	switch rows[line-1].state {
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
	line := []string{r.Name, r.stateText(), owner, token, since, unchanged, free, r.Host, r.Label}
	return dashed(line)
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

// sheet is text and tables, one below the other.
type sheet struct {
	strings.Builder
	style
}

func (s *sheet) line(colour, text string) {
	text = printable.Text(text)
	if s.width > 0 {
		text = fit(text, s.width)
	}
	if s.colour && colour != "" {
		text = colour + text + escReset
	}
	s.WriteString(text + "\n")
}

// table lays out a heading and lines, after an empty line; each has its colour.
func (s *sheet) table(cells [][]string, colours []string) {
	if len(cells) == 1 {
		return
	}
	s.line("", "")
	for i, text := range columns(narrow(cells, s.width)) {
		s.line(colours[i], text)
	}
}
