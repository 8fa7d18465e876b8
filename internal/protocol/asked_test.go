// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// TestAskerAnswers: what an asker is told at its first look, where it is never to
// write.
func TestAskerAnswers(t *testing.T) {
	timing := Timing{}.WithDefaults()
	held := theirs(timing, "v1", 3)
	foreign, unreadable, self := held, held, held
	foreign.Beat = ""
	unreadable.Lease = 0
	self.Owner = "x"
	asked := asking(held, "v2", driver.Request{ID: "q", Kind: driver.StepDown, By: "other"})
	released := freed(held, "v2", driver.EndReleased, nil)
	kept := reserved(held, "v2", heir{owner: "x"}, time.Second, driver.EndHandedOver, nil)
	for _, tt := range []struct {
		name string
		kind driver.RequestKind
		rec  driver.Record
		want Answer
	}{
		{"step-down of a foreign holder", driver.StepDown, foreign, Foreign},
		{"hand-over by a foreign holder", driver.HandOver, foreign, Foreign},
		{"revoke of a foreign holder", driver.Revoke, foreign, Foreign},
		{"step-down of what makes no sense", driver.StepDown, unreadable, Unusable},
		{"free of what makes no sense", driver.ReleaseDead, unreadable, Unusable},
		{"hand-over to the holder", driver.HandOver, self, Self},
		{"second step-down", driver.StepDown, asked, Pending},
		{"second hand-over", driver.HandOver, asked, Pending},
		{"step-down of a released lock", driver.StepDown, released, Nobody},
		{"free of a released lock", driver.ReleaseDead, released, Nobody},
		{"revoke of a released lock", driver.Revoke, released, Nobody},
		{"step-down of a reservation", driver.StepDown, kept, Nobody},
		{"hand-over of a reservation", driver.HandOver, kept, Nobody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := looked(timing, driver.Request{Kind: tt.kind, By: "op", To: "x"}, tt.rec)
			if a, _, _ := k.Answer(); a != tt.want {
				t.Errorf("answer %d, want %d", a, tt.want)
			}
			if r != nil || !k.Over() {
				t.Errorf("sends %+v, over %v", r, k.Over())
			}
		})
	}
	t.Run("no record", func(t *testing.T) {
		k := NewAsker(timing, middle(), "k", driver.Request{Kind: driver.Revoke}, 0, NewSight(timing, middle()))
		k.Step(0)
		k.Reply(0, Result{Outcome: Applied})
		if a, _, _ := k.Answer(); a != Nobody {
			t.Errorf("answer %d, want Nobody", a)
		}
	})
	t.Run("a store that is mute", func(t *testing.T) {
		k := NewAsker(timing, middle(), "k", driver.Request{Kind: driver.StepDown}, time.Second, NewSight(timing, middle()))
		now := time.Duration(0)
		for k.Step(now); !k.Over() && now < timing.Lease; k.Step(now) {
			k.Reply(now, Result{Outcome: NotApplied, Err: errStore})
			if at, ok := k.Next(); ok {
				now = at
			}
		}
		if a, _, err := k.Answer(); a != Unusable || !errors.Is(err, errStore) || now < time.Second {
			t.Errorf("answer %d with %v at %v", a, err, now)
		}
	})
}

// TestRequestOfALaterVersion: one that this version does not know stays in the
// record, and ends nothing.
func TestRequestOfALaterVersion(t *testing.T) {
	h := holding(Timing{}.WithDefaults())
	h.Step(0)
	at, _ := h.Next()
	r := h.Step(at).Call
	a := h.Reply(at, conflict(asking(r.Prev, "q1", driver.Request{ID: "q", Kind: "dance"})))
	if h.Cause() != None || h.Asked() != nil {
		t.Errorf("ended as %v, asked %+v", h.Cause(), h.Asked())
	}
	if a.Call == nil || a.Call.Kind != Heartbeat || len(a.Call.Next.Requests) != 1 {
		t.Errorf("want a heartbeat that keeps the request, got %+v", a.Call)
	}
}

// TestSomebodyWhoDoesNotStop: who writes the record of a living holder again and
// again makes it slow down, and in the end costs it the lease; never prolongs it.
func TestSomebodyWhoDoesNotStop(t *testing.T) {
	timing := Timing{}.WithDefaults()
	h := holding(timing)
	h.Step(0)
	end, beats := h.Deadline(), 0
	for now := time.Duration(0); now < end; {
		at, ok := h.Next()
		if !ok {
			t.Fatal("nothing more to do")
		}
		now = max(now, at)
		r := h.Step(now).Call
		for r != nil && now < end {
			beats++
			now += time.Millisecond
			other := r.Prev.Clone()
			other.Version = r.Next.Version + "x"
			r = h.Reply(now, conflict(other)).Call
		}
	}
	if h.Deadline() != end || h.Cause() == Superseded {
		t.Errorf("deadline %v, want %v; ended as %v", h.Deadline(), end, h.Cause())
	}
	if beats > 60 {
		t.Errorf("%d attempts in %v", beats, end)
	}
}

// TestStamp: the wall clock's time is written where people look for it, and
// nowhere else.
func TestStamp(t *testing.T) {
	timing, now := Timing{}.WithDefaults(), time.Unix(1000, 0)
	held := theirs(timing, "v1", 1)
	q := driver.Request{ID: "q", Kind: driver.Revoke}
	old := q
	old.At = time.Unix(1, 0)
	for _, tt := range []struct {
		name               string
		r                  Call
		since, until       bool
		asked, prev, prevQ bool // times of the request, of the former tenure's end, of its request
	}{
		{"claim", Call{Kind: Claim, Next: held}, true, false, false, false, false},
		{"heartbeat", Call{Kind: Heartbeat, Next: held}, false, false, false, false, false},
		{"release", Call{Kind: Release, Next: freed(held, "v2", driver.EndReleased, nil)}, false, true, false, false, false},
		{"hand-over", Call{Kind: Release, Next: reserved(held, "v2", heir{owner: "x"}, time.Second, driver.EndHandedOver, &old)}, true, false, false, true, false},
		{"ask", Call{Kind: Ask, Next: asking(held, "v2", q)}, false, false, true, false, false},
		{"free", Call{Kind: Free, Next: freed(held, "v2", driver.EndReleasedDead, &q)}, false, false, true, false, false},
		{"revoke", Call{Kind: Free, Next: reserved(held, "v2", heir{}, time.Second, driver.EndRevoked, &q)}, true, false, false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q.At = time.Time{}
			tt.r.Stamp(now)
			next := tt.r.Next
			asked := next.Asked
			if len(next.Requests) > 0 {
				asked = &next.Requests[0]
			}
			got := [5]bool{next.Since.Equal(now), next.Until.Equal(now), asked != nil && asked.At.Equal(now)}
			if p := next.Prev; p != nil {
				got[3], got[4] = p.Until.Equal(now), p.Asked != nil && p.Asked.At.Equal(now)
			}
			if want := [5]bool{tt.since, tt.until, tt.asked, tt.prev, tt.prevQ}; got != want {
				t.Errorf("stamped: since, until, asked, before until, before asked: %v, want %v", got, want)
			}
		})
	}
}
