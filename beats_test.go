// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// A beat has the form T-n. T is made by the acquire and never again, n with each
// beat; and what a grant or a heartbeat writes has its beat for its version.
func TestBeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		terms, seen := map[string]uint64{}, map[string]bool{}
		for range 5 {
			l := a.mustAcquire("x", nil)
			for range 4 {
				rec := w.record("x")
				term, n, ok := strings.Cut(rec.Beat, "-")
				if !ok || term == "" || n == "" || strings.Contains(n, "-") || rec.Version != rec.Beat {
					t.Errorf("beat %q, version %q", rec.Beat, rec.Version)
				}
				if token, used := terms[term]; used && token != l.Token() {
					t.Errorf("beat %q of token %d has the term of token %d", rec.Beat, l.Token(), token)
				}
				if seen[n] {
					t.Errorf("the second part of %q was used before", rec.Beat)
				}
				terms[term], seen[n] = l.Token(), true
				time.Sleep(heartbeat)
			}
			a.mustRelease(l)
			if rec := w.record("x"); rec.State != driver.Released {
				t.Fatal(rec.State)
			}
		}
		if len(terms) != 5 {
			t.Errorf("%d terms in 5 tenures", len(terms))
		}
	})
}

// A heartbeat that the store throttles is tried again later than after another
// failure: after an eighth of the period at first, then twice that.
func TestThrottledHeartbeatWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		f := faultstore.Refuse()
		f.Err = driver.Throttled(faultstore.ErrInjected)
		a.fault(faultstore.OpHeartbeat, 0, 3, f)
		l := a.mustAcquire("x", nil)
		time.Sleep(heartbeat + heartbeat/2 + heartbeat)
		var at []time.Time
		for _, call := range a.faults.Log() {
			if call.Op == faultstore.OpHeartbeat {
				at = append(at, call.Begin)
			}
		}
		if len(at) < 4 {
			t.Fatalf("%d heartbeats", len(at))
		}
		for i, most := range []time.Duration{heartbeat / 8, heartbeat / 4, heartbeat / 2} {
			if pause := at[i+1].Sub(at[i]); pause < most/2 || pause > most {
				t.Errorf("tried again after %v the %d. time, want %v to %v", pause, i+1, most/2, most)
			}
		}
		want(t, l.Check(), nil)
		a.mustRelease(l)
	})
}

// The heartbeats of many locks do not come in one burst.
func TestHeartbeatsAreSpreadOut(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		m := w.machine("a")
		for _, name := range names(1000) {
			m.mustAcquire(name, nil)
		}
		const slice = 100 * time.Millisecond
		for range 4 * heartbeat / slice {
			before := m.faults.Count(faultstore.OpHeartbeat)
			time.Sleep(slice)
			if n := m.faults.Count(faultstore.OpHeartbeat) - before; n > 150 {
				t.Errorf("%d of 1000 heartbeats within %v", n, slice)
			}
		}
	})
}
