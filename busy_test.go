// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
)

// Work of known length gives the known share.
func TestBusyShare(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for _, tc := range []struct {
		name       string
		work, rest time.Duration
		parallel   int
		capacity   int
		share      float64
	}{
		{"idle", 0, time.Second, 1, 0, 0},
		{"a quarter", time.Second, 3 * time.Second, 1, 0, 0.25},
		{"always", time.Second, 0, 1, 1, 1},
		{"long pieces", 10 * time.Minute, 0, 1, 1, 1},
		{"three of four", time.Second, 0, 3, 4, 0.75},
		{"two at once, by halves", 2 * time.Second, 2 * time.Second, 2, 2, 0.5},
		{"more than it can", time.Second, 0, 3, 2, 1.5},
	} {
		inWorldRun(t, tc.name, func(t *testing.T, w *world) {
			m := w.machine("a")
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			l := m.mustAcquire("x", &tenure.AcquireOptions{Capacity: tc.capacity})
			var all sync.WaitGroup
			for range tc.parallel {
				all.Go(func() {
					for ctx.Err() == nil {
						if err := l.Do(ctx, 0, func(context.Context) error { time.Sleep(tc.work); return nil }); err != nil {
							t.Error(err)
						}
						time.Sleep(tc.rest)
					}
				})
			}
			time.Sleep(30*time.Minute + 1)
			near := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got-want) > 0.02 {
					t.Errorf("%s: %.3f, want %.3f", what, got, want)
				}
			}
			near("share", l.BusyShare(), tc.share)
			busy, held := l.Busy()
			near("busy of held", float64(busy)/float64(held)/float64(max(1, tc.capacity)), tc.share)
			events := m.events.of(tenure.EventBusy)
			if len(events) != 30 && len(events) != 29 {
				t.Errorf("%d events in half an hour", len(events))
			}
			for _, e := range events {
				near("event", e.Share, tc.share)
				if e.Held != 4*lease || e.Token != l.Token() {
					t.Errorf("event %+v", e)
				}
			}
			stop()
			all.Wait()
			m.mustRelease(l)
		})
	}
}

// A holder that was busy and is not any more is seen to be so.
func TestBusyShareIsOfLately(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).machine("a")
		l := m.mustAcquire("x", nil)
		_ = l.Do(t.Context(), 0, func(context.Context) error { time.Sleep(time.Hour); return nil })
		if s := l.BusyShare(); s < 0.99 {
			t.Errorf("share %.2f after an hour of work", s)
		}
		time.Sleep(9 * lease)
		if s := l.BusyShare(); s != 0 {
			t.Errorf("share %.2f after two periods of rest", s)
		}
		m.mustRelease(l)
		quiet := m.mustAcquire("y", nil)
		time.Sleep(time.Hour)
		m.mustRelease(quiet)
		for _, e := range m.events.of(tenure.EventBusy) {
			if e.Lock == "y" {
				t.Error("an event of a holder that never used Do")
			}
		}
	})
}
