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

// style says how a table looks: by default in the form for pipes.
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

// table shows locks.
func table(rows []row, s style) string {
	cells := [][]string{{"LOCK", "STATE", "OWNER", "TOKEN", "SINCE", "UNCHANGED", "FREE IN", "HOST", "LABEL"}}
	var colours []string
	for _, r := range rows {
		cells, colours = append(cells, r.cells(s)), append(colours, r.colour())
	}
	return s.table(cells, colours)
}

// table formats a heading and the lines below it, each in its colour: without colours if nil.
func (s style) table(cells [][]string, colours []string) string {
	var b strings.Builder
	for i, text := range layout(cells, s.width) {
		colour := ""
		if i == 0 {
			colour = escBold
		} else if colours != nil {
			colour = colours[i-1]
		}
		b.WriteString(s.line(colour, text))
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

func (c *console) table(cells [][]string) {
	c.put(style{width: c.screenWidth()}.table(cells, nil))
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

// cells are the columns of the table. A free lock shows its last owner, a reserved lock
// the owner that may take it next, and since is when it became free or reserved.
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
		switch {
		case r.ReservedForLabel != "":
			owner = "label " + r.ReservedForLabel
		case r.Failover:
			owner = "nobody: failover"
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

// screenWidth returns the width of the terminal, 0 if standard output is not a terminal.
func (c *console) screenWidth() int {
	if width, _, err := term.GetSize(c.screen); err == nil && c.screen >= 0 {
		return max(width, 0)
	}
	return 0
}

// column is one of a table: its head, and a cell of each line.
type column []string

func (c column) width() (most int) {
	for _, cell := range c {
		most = max(most, runewidth.StringWidth(cell))
	}
	return most
}

// elastic is the least width of a column whose texts may be shortened, otherwise 0.
func (c column) elastic(least int) int {
	if w := c.width(); w > least && slices.Contains(elastic, c[0]) {
		return w
	}
	return 0
}

// layout formats a table, with its head, as printable lines that fit into a width. It first
// leaves out columns that are empty in every line, then shortens texts, then leaves out less
// important columns. The caller cuts off what still does not fit. A width of 0 means no limit.
func layout(cells [][]string, width int) []string {
	all := make([]column, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			all[i] = append(all[i], printable.Cell(cell))
		}
	}
	wide := func() bool {
		sum := 2 * (len(all) - 1) // between them
		for _, c := range all {
			sum += c.width()
		}
		return width > 0 && sum >= width
	}
	for i := len(all) - 1; i > 0 && wide(); i-- {
		if !slices.ContainsFunc(all[i][1:], func(cell string) bool { return cell != "-" }) {
			all = slices.Delete(all, i, i+1)
		}
	}
	for _, step := range sparing {
		for wide() && slices.ContainsFunc(all, func(c column) bool { return c.elastic(step.least) > 0 }) {
			widest := slices.MaxFunc(all, func(a, b column) int { return a.elastic(step.least) - b.elastic(step.least) })
			to := widest.width() - 1
			for n, cell := range widest {
				widest[n] = runewidth.Truncate(cell, to, "…")
			}
		}
		if !wide() {
			break
		}
		all = slices.DeleteFunc(all, func(c column) bool { return c[0] == step.spare })
	}
	lines := make([]string, len(cells))
	for _, c := range all {
		for n, cell := range c {
			lines[n] += runewidth.FillRight(cell, c.width()+2)
		}
	}
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return lines
}
