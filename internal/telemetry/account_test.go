// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/telemetry"
)

// day is when the events of a test begin.
var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step is an event at a second of the day, what it must change, and how many leases are held
// right after it.
type step struct {
	at     time.Duration
	event  tenure.Event
	change telemetry.Change
	held   int
}

func TestAccount(t *testing.T) {
	const s = time.Second
	acquired := func(token uint64) tenure.Event {
		return tenure.Event{Kind: tenure.EventAcquired, Lock: "x", Token: token, Remaining: 10 * s, Grace: 2 * s}
	}
	of := func(kind tenure.EventKind, token uint64, err error) tenure.Event {
		return tenure.Event{Kind: kind, Lock: "x", Token: token, Err: err, Remaining: 10 * s}
	}
	for name, steps := range map[string][]step{
		"lost before the deadline": {
			{0, acquired(1), telemetry.Change{}, 1},
			{s, of(tenure.EventLost, 1, tenure.ErrSuperseded), telemetry.Change{End: "superseded"}, 0},
			{2 * s, of(tenure.EventStopTimeout, 1, tenure.ErrStopTimeout), telemetry.Change{}, 0},
			{3 * s, of(tenure.EventEnded, 1, nil), telemetry.Change{}, 0},
		},
		"an unknown error": {
			{0, acquired(1), telemetry.Change{}, 1},
			{s, of(tenure.EventLost, 1, nil), telemetry.Change{End: "superseded"}, 0},
		},
		"just late, and just not": { // the grace is 2 s
			{0, acquired(1), telemetry.Change{}, 1},
			{7900 * time.Millisecond, of(tenure.EventRenewed, 1, nil), telemetry.Change{Latency: true}, 1},
			{16 * s, of(tenure.EventRenewed, 1, nil), telemetry.Change{Latency: true, Late: true}, 1},
		},
		"not late while it stops": {
			{0, acquired(1), telemetry.Change{}, 1},
			{s, of(tenure.EventStopping, 1, tenure.ErrReleased), telemetry.Change{}, 1},
			{9 * s, of(tenure.EventRenewed, 1, nil), telemetry.Change{Latency: true}, 1},
			{10 * s, of(tenure.EventReleased, 1, nil), telemetry.Change{End: "released"}, 0},
		},
		"work that failed, as the history has it": {
			{0, acquired(1), telemetry.Change{}, 1},
			{s, of(tenure.EventStopping, 1, nil), telemetry.Change{}, 1},
			{2 * s, tenure.Event{Kind: tenure.EventReleased, Lock: "x", Token: 1, End: tenure.EndFailed, Err: errors.New("boom")}, telemetry.Change{End: "failed"}, 0},
		},
		"two terms of one lock": {
			{0, acquired(1), telemetry.Change{}, 1},
			{s, acquired(2), telemetry.Change{}, 1},
			{2 * s, of(tenure.EventLost, 1, tenure.ErrExpired), telemetry.Change{}, 1},
			{3 * s, of(tenure.EventReleased, 1, nil), telemetry.Change{}, 1},
			{4 * s, acquired(1), telemetry.Change{}, 1},
			{5 * s, of(tenure.EventReleased, 2, nil), telemetry.Change{End: "released"}, 0},
		},
		"a lock under a session": {
			{0, tenure.Event{Kind: tenure.EventOpened, Session: "s", Remaining: 10 * s, Grace: 2 * s}, telemetry.Change{}, 0},
			{s, tenure.Event{Kind: tenure.EventAcquired, Lock: "x", Session: "s", Token: 1, Remaining: 60 * s}, telemetry.Change{}, 1},
			{9 * s, tenure.Event{Kind: tenure.EventRenewed, Lock: "x", Session: "s", Token: 1, Remaining: 60 * s}, telemetry.Change{}, 1},
			{9500 * time.Millisecond, tenure.Event{Kind: tenure.EventRenewed, Session: "s", Remaining: 10 * s}, telemetry.Change{Late: true, Latency: true}, 1},
			{19 * s, tenure.Event{Kind: tenure.EventJeopardy, Lock: "x", Session: "s", Token: 1, Remaining: 60 * s}, telemetry.Change{}, 1},
			{19200 * time.Millisecond, tenure.Event{Kind: tenure.EventLost, Session: "s", Err: tenure.ErrExpired}, telemetry.Change{End: "expired"}, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := telemetry.NewAccount()
			for i, step := range steps {
				step.event.Time = day.Add(step.at)
				if got := a.Take(step.event); got != step.change {
					t.Errorf("step %d, %s: %+v, want %+v", i, step.event.Kind, got, step.change)
				}
				if got := len(a.Held(day.Add(step.at))); got != step.held {
					t.Errorf("step %d, %s: %d leases are held, want %d", i, step.event.Kind, got, step.held)
				}
			}
		})
	}
}

// TestForgotten drops leases without an end event.
func TestForgotten(t *testing.T) {
	for hours, end := range map[int]string{1: "released", 48: ""} {
		a := telemetry.NewAccount()
		a.Take(tenure.Event{Kind: tenure.EventAcquired, Lock: "x", Token: 7, Time: day, Remaining: time.Second})
		at := day.Add(time.Duration(hours) * time.Hour)
		if n := len(a.Held(at)); n != 0 {
			t.Errorf("%d leases are held after their deadline", n)
		}
		if got := a.Take(tenure.Event{Kind: tenure.EventReleased, Lock: "x", Token: 7, Time: at}); got.End != end {
			t.Errorf("released after %d hours: end %q, want %q", hours, got.End, end)
		}
	}
}
