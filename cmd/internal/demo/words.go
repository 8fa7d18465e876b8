// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
func exactly(d time.Duration) string   { return fmt.Sprintf("%g s", d.Seconds()) }
func inMillis(d time.Duration) string {
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}

// ended says how a tenure ended.
func (t tenureSeen) ended() string {
	switch t.End {
	case killed:
		return "killed: expired"
	case "":
		return "unknown"
	}
	return string(t.End)
}

// table returns the history as lines of text, the oldest tenure first, the
// times counted from begin.
func table(history []tenure.Tenure, seen []tenureSeen, begin time.Time) []string {
	const row = "  %5s  %-24s %8s %8s   %s"
	owner := func(h tenure.Tenure) string {
		name := printable.Cell(h.Owner)
		for _, t := range seen {
			if t.Token == h.Token {
				return fmt.Sprintf("%s (pid %d)", name, t.PID)
			}
		}
		return name
	}
	lines := []string{"", "The history of the lock:", fmt.Sprintf(row, "TOKEN", "OWNER", "FROM", "TO", "ENDED")}
	for _, t := range slices.Backward(history) {
		to, ended := "?", strings.ReplaceAll(t.End, "_", " ")
		if !t.Until.IsZero() {
			to = inSeconds(t.Until.Sub(begin))
		}
		lines = append(lines, fmt.Sprintf(row, fmt.Sprint(t.Token), owner(t), inSeconds(t.Since.Sub(begin)), to, printable.Text(ended)))
		if t.Request != nil {
			lines = append(lines, "         "+printable.Text(fmt.Sprintf("asked by %s: %s", t.Request.By, t.Request.Reason)))
		}
	}
	return lines
}

// moral says what was seen and where to go on.
func moral(at place, kept bool) []string {
	lines := []string{
		"",
		"There were never two leaders at once, and each tenure had a higher token.",
		"After a kill the lease had to run out; after a request it took milliseconds.",
		"A resource that remembers the highest token can refuse late writes of the dead.",
		"",
		"Go on:",
		"  tenure run NAME -- COMMAND   hold a lock while a command runs",
		"  docs/reference/guarantees.md what is guaranteed, and what is not",
	}
	if kept {
		lines = append(lines, "  tenure history "+at.lock+" --store "+printable.Text(at.at.Shown()))
	}
	return lines
}
