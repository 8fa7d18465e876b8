// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
)

// verdict is what a rule says of what was seen.
type verdict string

const (
	passed verdict = "pass"
	failed verdict = "fail"
	none   verdict = "-" // the library has no such thing
)

func judge(ok bool) verdict {
	if ok {
		return passed
	}
	return failed
}

// cell is what one subject did.
type cell struct {
	Verdict verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	// Figures are those of the runs, in milliseconds unless Seen says else.
	Figures []float64 `json:"figures,omitempty"`
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// span is a range of milliseconds, for people.
func span(figures []float64) string {
	low, high := length(slices.Min(figures)), length(slices.Max(figures))
	if low == high {
		return low
	}
	return low + " to " + high
}

// length is a time for people.
func length(ms float64) string {
	if ms >= 999.5 || ms <= -999.5 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	if ms < 10 && ms > -10 && ms != 0 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// runs says how many there were.
func runs(n int) string { return plural(float64(n), "run") }

func plural(n float64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%.0f %ss", n, what)
}

// margins is the cell of how long before another one's grant each holder stopped
// believing. Nobody may be late.
func margins(figures []float64) cell {
	c := cell{Figures: figures}
	late := 0
	for _, f := range figures {
		if f < 0 {
			late++
		}
	}
	c.Verdict = judge(late == 0)
	switch {
	case late == 0:
		c.Seen = fmt.Sprintf("told %s before (%s)", span(figures), runs(len(figures)))
	case late == len(figures):
		lates := make([]float64, late)
		for i, f := range figures {
			lates[i] = -f
		}
		c.Seen = fmt.Sprintf("told %s late (%s)", span(lates), runs(late))
	default:
		c.Seen = fmt.Sprintf("told up to %s late, in %d of %s", length(-slices.Min(figures)), late, runs(len(figures)))
	}
	return c
}
