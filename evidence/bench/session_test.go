// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/peers/keepers"
)

// checkSessions holds sessions to one write a heartbeat period, however many locks
// are held, and to cost as much as one lock.
func checkSessions(t *testing.T, r *report) {
	t.Helper()
	month := map[string]float64{} // write units by what and times
	for _, row := range r.Rows {
		v := row.Values[tenureName]
		switch {
		case row.Kind == monthly:
			month[row.What] = v.Used.WriteUnits
		case row.Kind == crowded && v.Held != nil:
			h := v.Held
			if writes := h.Holding.WriteUnits * h.Periods; math.Abs(writes-h.Periods) > 1+keepers.Edges || h.Holding.ReadUnits > 0 {
				t.Errorf("%s: %.0f writes in %.1f heartbeat periods: %+v", row.What, writes, h.Periods, h.Holding)
			}
			if h.Hold.Lost > 0 || h.Hold.Goroutines >= keepers.MostGoroutines || h.Closing.WriteUnits > h.Closable() {
				t.Errorf("%s: %v", row.What, h.Missed())
			}
			if a := h.Acquiring.ByOperation["UpdateItem"]; a < float64(h.Locks) || h.PerLock(h.Acquire.Heap) <= 0 || h.Hold.CPU <= 0 {
				t.Errorf("%s: taken with %v writes, %d bytes of heap, %v s of a processor", row.What, a, h.Acquire.Heap, h.Hold.CPU)
			}
		}
	}
	for what, units := range month {
		rest, one := strings.CutPrefix(what, standings[0].what)
		if many := month[standings[1].what+rest]; one && math.Abs(many-units) > 0.3*units {
			t.Errorf("%s: %v write units a second, and for a session %v", what, units, many)
		}
	}
}
