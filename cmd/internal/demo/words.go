// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"path/filepath"
	"time"
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

// table returns the tenures as lines of text, the times counted from begin.
func table(tenures []tenureSeen, begin time.Time) []string {
	const row = "  %5s  %-24s %8s %8s   %s"
	lines := []string{"", fmt.Sprintf(row, "TOKEN", "OWNER", "FROM", "TO", "ENDED")}
	for _, t := range tenures {
		to := "-"
		if !t.To.IsZero() {
			to = inSeconds(t.To.Sub(begin))
		}
		lines = append(lines, fmt.Sprintf(row, fmt.Sprint(t.Token), fmt.Sprintf("%s (pid %d)", t.Replica, t.PID),
			inSeconds(t.From.Sub(begin)), to, t.ended()))
	}
	return lines
}

// moral says what was seen and where to go on.
func moral(folder string, kept bool) []string {
	lines := []string{
		"",
		"There were never two leaders at once, and each tenure had a higher token.",
		"After a kill the lease had to run out; after a polite end it took milliseconds.",
		"A resource that remembers the highest token can refuse late writes of the dead.",
		"",
		"Go on:",
		"  tenure run NAME -- COMMAND   hold a lock while a command runs",
		"  docs/guarantees.md           what is guaranteed, and what is not",
	}
	if kept {
		file := filepath.Join(folder, storeFile)
		lines = append(lines, "  tenure status --store sqlite:"+file)
	}
	return lines
}
