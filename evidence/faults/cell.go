// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// verdict is what a rule says of what was seen.
type verdict string

const (
	passed verdict = "pass"
	failed verdict = "fail"
	none   verdict = "-" // the library has no such thing
)

// cell is what one client did under one fault.
type cell struct {
	Verdict verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	// Figures are those of the runs, in milliseconds unless Seen says else.
	Figures []float64 `json:"figures,omitempty"`
}

// judged is a cell that has passed if ok.
func judged(ok bool, figures []float64, seen string, args ...any) cell {
	c := cell{Verdict: failed, Seen: fmt.Sprintf(seen, args...), Figures: figures}
	if ok {
		c.Verdict = passed
	}
	return c
}

// lacking is the cell of a client that has no such thing.
func lacking(why string) cell { return cell{Verdict: none, Seen: why} }

// margins is the cell of how long before another one's grant each holder stopped
// believing. Nobody may be late.
func margins(figures []float64) cell {
	late := slices.DeleteFunc(slices.Clone(figures), func(f float64) bool { return f >= 0 })
	runs := plural(len(figures), "run")
	switch len(late) {
	case 0:
		return judged(true, figures, "told %s before (%s)", span(figures), runs)
	case len(figures):
		return judged(false, figures, "told %s late (%s)", span(figures), runs)
	}
	return judged(false, figures, "told up to %s late, in %d of %s", length(slices.Min(late)), len(late), runs)
}

// beliefs is the cell of for how long holders believed that should not have for an instant.
func beliefs(figures []float64) cell {
	runs := plural(len(figures), "run")
	more := slices.DeleteFunc(slices.Clone(figures), func(f float64) bool { return f <= 0 })
	if len(more) == 0 {
		return judged(true, figures, "its first check said no (%s)", runs)
	}
	return judged(false, figures, "believed for %s beside the other one, in %d of %s", span(more), len(more), runs)
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

// span is a range of times of one sign, for people.
func span(figures []float64) string {
	low, high := length(slices.Min(figures)), length(slices.Max(figures))
	if slices.Max(figures) < 0 {
		low, high = high, low
	}
	if low == high {
		return low
	}
	return low + " to " + high
}

// length is a time for people, whatever its sign.
func length(ms float64) string {
	switch ms = math.Abs(ms); {
	case ms >= 999.5:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms < 10 && ms != 0:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func lengthOf(d time.Duration) string { return length(milliseconds(d.Nanoseconds())) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
