// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keepers

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/gate"
)

func TestMissed(t *testing.T) {
	good := func() *Holding {
		return &Holding{
			Locks: 100, Periods: 50.2, Hold: Figures{Took: 20, Goroutines: 7}, Holding: gate.Usage{WriteUnits: 1},
			Close: Figures{Took: 0.1}, Closing: gate.Usage{WriteUnits: 1},
		}
	}
	if missed := good().Missed(); missed != nil {
		t.Errorf("all is well, and missed: %v", missed)
	}
	for want, spoil := range map[string]func(*Holding){
		"heartbeat pe": func(h *Holding) { h.Holding.WriteUnits = 1.1 },
		"1 locks lost": func(h *Holding) { h.Hold.Lost = 1 },
		"goroutines":   func(h *Holding) { h.Hold.Goroutines = MostGoroutines },
		"closed with":  func(h *Holding) { h.Closing.WriteUnits = 100 },
	} {
		h := good()
		spoil(h)
		if missed := strings.Join(h.Missed(), "; "); !strings.Contains(missed, want) {
			t.Errorf("missed %q, want %q", missed, want)
		}
	}
}
