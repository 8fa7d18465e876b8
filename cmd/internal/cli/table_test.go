// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
)

// TestFitTable: on each width all lines have room, the more there is the more is shown, and what
// a lock is called, its state and its token are shown down to where they have room.
func TestFitTable(t *testing.T) {
	cells := [][]string{
		{"LOCK", "STATE", "OWNER", "TOKEN", "SINCE", "UNCHANGED", "FREE IN", "HOST", "LABEL"},
		{"nightly-report", "held", "web-7.eu-central-1-4711-kxq2ma", "12", "2026-11-25 01:00:56", "-", "<15s", "web-7.eu-central-1.example", "v1.4.2"},
		{"東京", "free", "東京東京東京東京東京東京", "3", "01:00:56", "-", "now", "東京", "-"},
	}
	if got := fitTable(cells, 0); !slices.EqualFunc(got, cells, slices.Equal) {
		t.Errorf("without a width: %q", got)
	}
	var before []string
	for width := 200; width >= 30; width-- {
		got := fitTable(cells, width)
		if before != nil && len(got[0]) > len(before) {
			t.Errorf("width %d shows more columns than the one above it: %q, %q", width, got[0], before)
		}
		before = got[0]
		lines := columns(got)
		for i, line := range lines {
			if w := runewidth.StringWidth(line); w >= width && width >= 48 {
				t.Errorf("width %d: line %d has %d: %q", width, i, w, line)
			}
		}
		for _, want := range []string{"LOCK", "STATE", "OWNER", "TOKEN", "FREE IN"} {
			if !slices.Contains(got[0], want) {
				t.Errorf("width %d: %s is left out", width, want)
			}
		}
		if text := strings.Join(lines, "\n"); !strings.Contains(text, "nightly-report  held") || !strings.Contains(text, " 12 ") {
			t.Errorf("width %d:\n%s", width, text)
		}
		if whole := slices.Contains(got[0], "UNCHANGED"); whole != (width > 140) && (width < 130 || width > 150) {
			t.Errorf("width %d: the empty column is shown: %v", width, whole)
		}
	}
	if got := columns(fitTable(cells, 80)); !strings.Contains(got[1], "…") {
		t.Errorf("nothing was shortened at 80: %q", got)
	}
}
