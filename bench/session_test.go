// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
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
			if writes := h.Holding.WriteUnits * h.Periods; math.Abs(writes-h.Periods) > 1+edges || h.Holding.ReadUnits > 0 {
				t.Errorf("%s: %.0f writes in %.1f heartbeat periods: %+v", row.What, writes, h.Periods, h.Holding)
			}
			if h.Hold.Lost > 0 || h.Hold.Goroutines >= mostGoroutines || h.Closing.WriteUnits > h.closable() {
				t.Errorf("%s: %v", row.What, h.missed())
			}
			if a := h.Acquiring.ByOperation["UpdateItem"]; a < float64(h.Locks) || h.perLock(h.Acquire.Heap) <= 0 || h.Hold.CPU <= 0 {
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

func TestMissed(t *testing.T) {
	good := func() *holding {
		return &holding{
			Locks: 100, Periods: 50.2, Hold: figures{Took: 20, Renewed: 50, Goroutines: 7}, Holding: usage{WriteUnits: 1},
			Close: figures{Took: 0.1}, Closing: usage{WriteUnits: 1},
		}
	}
	if missed := good().missed(); missed != nil {
		t.Errorf("all is well, and missed: %v", missed)
	}
	for want, spoil := range map[string]func(*holding){
		"heartbeat pe": func(h *holding) { h.Holding.WriteUnits = 1.1 },
		"1 locks lost": func(h *holding) { h.Hold.Lost = 1 },
		"events":       func(h *holding) { h.Hold.LostEvents = 1 },
		"goroutines":   func(h *holding) { h.Hold.Goroutines = mostGoroutines },
		"closed with":  func(h *holding) { h.Closing.WriteUnits = 100 },
	} {
		h := good()
		spoil(h)
		if missed := strings.Join(h.missed(), "; "); !strings.Contains(missed, want) {
			t.Errorf("missed %q, want %q", missed, want)
		}
	}
}

func TestTouches(t *testing.T) {
	for _, c := range []struct {
		operation, body string
		want            []touch
	}{
		{"UpdateItem", `{"Key":{"key":{"S":"a"}}}`, []touch{{"a", 1, 0}}},
		{"PutItem", `{"Item":{"key":{"S":"a"},"data":{"B":"eA=="}}}`, []touch{{"a", 1, 0}}},
		{"GetItem", `{"Key":{"key":{"S":"a"}}}`, []touch{{"a", 0, 0.5}}},
		{"GetItem", `{"Key":{"key":{"S":"a"}},"ConsistentRead":true}`, []touch{{"a", 0, 1}}},
		{"BatchGetItem", `{"RequestItems":{"t":{"Keys":[{"key":{"S":"a"}},{"key":{"S":"b"}}]}}}`, []touch{{"a", 0, 0.5}, {"b", 0, 0.5}}},
		{"TransactWriteItems", `{"TransactItems":[{"Update":{"Key":{"key":{"S":"a"}}}},{"Put":{"Item":{"key":{"S":"b"}}}}]}`, []touch{{"a", 2, 0}, {"b", 2, 0}}},
	} {
		got, err := touches(c.operation, []byte(c.body))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s: %v, %v; want %v", c.operation, c.body, got, err, c.want)
		}
		u, err := price(c.operation, []byte(c.body))
		if w := (usage{}).weighed(got, nil); err != nil || w.WriteUnits != u.WriteUnits || w.ReadUnits != u.ReadUnits {
			t.Errorf("%s: small items weigh %+v, and are priced %+v, %v", c.operation, w, u, err)
		}
	}
	u := usage{Requests: 3}.weighed([]touch{{"a", 1, 0}, {"a", 0, 0.5}, {"b", 2, 0}}, map[string]int64{"a": 4097, "b": 1024})
	if u.Requests != 3 || u.WriteUnits != 5+2 || u.ReadUnits != 1 {
		t.Errorf("%+v", u)
	}
}

// TestKCL holds the arithmetic to the figures that the library's users know: 26,116
// writes a lease and day, $0.49 a month.
func TestKCL(t *testing.T) {
	u := kcl(1000, 10*time.Second)
	if a := u.ByOperation["UpdateItem"] / 1000 * (24 * time.Hour).Seconds(); math.Abs(a-26116) > 1 {
		t.Errorf("%v writes a lease and day", a)
	}
	if d := perMonth(u, time.Second).Dollars; math.Abs(d-489.7-0.054-0.016) > 0.1 {
		t.Errorf("$%v a month", d)
	}
}
