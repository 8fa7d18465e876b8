// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/tenurelock/tenure/internal/trace"
)

// doctored are traces of the engine with one lie in each. doctor finds the place
// and reports whether there was one.
var doctored = map[string]struct {
	play   string
	doctor func([]trace.Event) ([]trace.Event, bool)
}{
	"token goes back": {"takeover of the dead", func(events []trace.Event) ([]trace.Event, bool) {
		return edited(events, trace.Takeover, trace.Apply, func(e *trace.Event) { e.Record.Token-- })
	}},
	"grant without an apply": {"takeover of the dead", func(events []trace.Event) ([]trace.Event, bool) {
		i := of(events, trace.Takeover, trace.Apply)
		return slices.Delete(events, i, i+1), i >= 0
	}},
	"heartbeat on another version": {"lost and late", func(events []trace.Event) ([]trace.Event, bool) {
		return edited(events, trace.Heartbeat, trace.Send, func(e *trace.Event) { e.Prev.Version = "other" })
	}},
	"heartbeat applied over another version": {"lost and late", func(events []trace.Event) ([]trace.Event, bool) {
		// The trace shows the last refused heartbeat of all as applied.
		for i, e := range slices.Backward(events) {
			if s := sendOf(events, e); e.Do == trace.Apply && e.Outcome == trace.Conflicted && s.Call == trace.Heartbeat {
				events[i].Outcome, events[i].Record = trace.Applied, s.Next
				return events, true
			}
		}
		return nil, false
	}},
	"belief past the deadline": {"takeover of the dead", func(events []trace.Event) ([]trace.Event, bool) {
		// The trace shows the last passed check later.
		for i, e := range slices.Backward(events) {
			if e.Do == trace.Check && e.Proc == "a" {
				e.At += 2 * lease / 15
				events = slices.Insert(events, len(events), e)
				return sorted(slices.Delete(events, i, i+1)), true
			}
		}
		return nil, false
	}},
	"takeover before the lease has stood": {"takeover of the dead", func(events []trace.Event) ([]trace.Event, bool) {
		i := of(events, trace.Takeover, trace.Send)
		if i < 0 {
			return nil, false
		}
		// Two fifteenths of a lease before it are cut out of all times.
		from, cut := events[i].At, 2*lease/15
		for k := range events {
			switch at := &events[k].At; {
			case *at >= from:
				*at -= cut
			case *at > from-cut:
				*at = from - cut
			}
		}
		return events, true
	}},
	"applied twice": {"given up", func(events []trace.Event) ([]trace.Event, bool) {
		i := of(events, trace.Release, trace.Apply)
		return slices.Insert(events, i+1, events[i]), i >= 0
	}},
}

// TestDoctored: a trace with a lie in it is refused.
func TestDoctored(t *testing.T) {
	tlc(t)
	for name, d := range doctored {
		t.Run(name, func(t *testing.T) {
			events, found := d.doctor(record(t, plays[d.play]))
			if !found {
				t.Fatal("nothing to doctor")
			}
			said, ok := judge(t, events)
			if ok {
				t.Error("accepted")
			}
			t.Log(said)
		})
	}
}

// sendOf returns the Send of an event's request.
func sendOf(events []trace.Event, e trace.Event) trace.Event {
	i := slices.IndexFunc(events, func(s trace.Event) bool { return s.Do == trace.Send && s.Request == e.Request })
	if i < 0 {
		return trace.Event{}
	}
	return events[i]
}

// of returns the place of the first event of a kind about a request of a kind.
func of(events []trace.Event, call string, do trace.Kind) int {
	return slices.IndexFunc(events, func(e trace.Event) bool { return e.Do == do && sendOf(events, e).Call == call })
}

func edited(events []trace.Event, call string, do trace.Kind, edit func(*trace.Event)) ([]trace.Event, bool) {
	i := of(events, call, do)
	if i < 0 {
		return nil, false
	}
	e := &events[i]
	for _, r := range []**trace.Record{&e.Prev, &e.Record} {
		if *r != nil {
			changed := **r
			*r = &changed
		}
	}
	edit(e)
	return events, true
}

func sorted(events []trace.Event) []trace.Event {
	slices.SortStableFunc(events, func(a, b trace.Event) int { return cmp.Compare(a.At, b.At) })
	return events
}
