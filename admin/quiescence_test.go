// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// TestQuiescenceWaits: for the longest that a contender would wait for any record, from
// the reply that showed it first, and at least for a lease of this process.
func TestQuiescenceWaits(t *testing.T) {
	timing := protocol.Timing{}.WithDefaults()
	s := newQuiescenceCheck(timing)
	if s.earliest() != 0 {
		t.Errorf("until %v with nothing seen", s.earliest())
	}
	see := func(now time.Duration, rec driver.Record, until time.Duration) {
		t.Helper()
		rec.Version = rec.Key
		if s.note(now, rec); s.earliest() != until {
			t.Errorf("%q at %v: until %v, want %v", rec.Key, now, s.earliest(), until)
		}
	}
	l := timing.Lease
	see(1, driver.Record{Key: "short", Beat: "b", State: driver.Held, Lease: l / 10}, 1+l)
	see(5, driver.Record{Key: "kept"}, 5+l)
	see(7, driver.Record{Key: "free", Beat: "b", State: driver.Released, Lease: 2 * l}, 7+2*l)
	see(9, driver.Record{Key: "later, and shorter", Beat: "b", State: driver.Held, Lease: l}, 7+2*l)
	foreign := driver.Record{Key: "foreign", State: driver.Held, Lease: 3 * l}
	see(9, foreign, 9+timing.Wait(foreign))
}

// TestQuiescenceSees each change.
func TestQuiescenceSees(t *testing.T) {
	was := driver.Record{Key: "k", Version: "v", Token: 3, Owner: "o", State: driver.Held, Lease: time.Second}
	other := was
	other.Key = "l"
	for name, tc := range map[string]struct {
		change func(*driver.Record)
		still  bool
	}{
		"nothing": {func(*driver.Record) {}, true},
		"version": {func(r *driver.Record) { r.Version = "w" }, false},
		"token":   {func(r *driver.Record) { r.Token++ }, false},
		"key":     {func(r *driver.Record) { r.Key = "new" }, false},
	} {
		s := newQuiescenceCheck(protocol.Timing{}.WithDefaults())
		s.note(0, was)
		s.note(0, other)
		now := was
		tc.change(&now)
		if still := s.stands(now); still != tc.still {
			t.Errorf("%s: still %v", name, still)
		}
		gone, ok := s.gone()
		if tc.still && (gone.Key != "l" || gone.Owner != "o" || gone.Token != 3) || !ok {
			t.Errorf("%s: %+v is gone, %v", name, gone, ok)
		}
		if s.stands(other); tc.still {
			if gone, ok = s.gone(); ok {
				t.Errorf("%+v is gone", gone)
			}
		}
	}
}
