// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Each of these tests kills a change of one line that no other test had seen. Its
// id is that of the audit.

// TestFailuresAreForgottenWithAnAnswer (P04): after a bad time the tries are as
// close again as at first.
func TestFailuresAreForgottenWithAnAnswer(t *testing.T) {
	timing := Timing{}.WithDefaults()
	c := waiting(timing, Want{})
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: timing.Lease, State: driver.Held}
	now := time.Duration(0)
	next := func() {
		t.Helper()
		at, ok := c.Next()
		if now = at; !ok || c.Step(at).Request == nil {
			t.Fatal("nothing to do")
		}
	}
	for range 10 {
		c.Reply(now, Result{Outcome: NotApplied, Err: errStore})
		next()
	}
	c.Reply(now, Result{Outcome: Conflicted, Record: rec, Found: true})
	next()
	c.Reply(now, Result{Outcome: NotApplied, Err: errStore})
	if at, _ := c.Next(); at-now > timing.Lease/500 {
		t.Errorf("next try after %v", at-now)
	}

	h := holding(timing)
	now = 0
	beat := func(r Result) {
		t.Helper()
		at, ok := h.Next()
		if now = at; !ok || h.Step(at).Request == nil {
			t.Fatal("no heartbeat")
		}
		if r.Outcome == Applied {
			r.Record = h.rec.Clone()
			r.Record.Version, r.Record.Beat = h.out.version, h.out.version
		}
		h.Reply(now, r)
	}
	for range 8 {
		beat(Result{Outcome: NotApplied, Err: errStore})
	}
	beat(Result{Outcome: Applied, Found: true})
	beat(Result{Outcome: NotApplied, Err: errStore})
	if at, _ := h.Next(); at-now > timing.Lease/500 {
		t.Errorf("next heartbeat after %v", at-now)
	}
}

// TestOvertakenAnswersAreLeftAside (P05): a slow reply does not bring an older
// tenure back, nor an older state or sign of life of the same one.
func TestOvertakenAnswersAreLeftAside(t *testing.T) {
	timing := Timing{}.WithDefaults()
	before := theirs(timing, "v1", 3)
	for name, now := range map[string]driver.Record{
		"tenure":       theirs(timing, "v2", 4),
		"state":        freed(before, "v2", driver.EndReleased, nil),
		"sign of life": theirs(timing, "v2", 3),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSight(timing, middle())
			s.Saw(0, 1, driver.Strong, before, true)
			s.Saw(3*time.Second, 4*time.Second, driver.Strong, now, true)
			s.Saw(2*time.Second, 5*time.Second, driver.Strong, before, true)
			if rec, _ := s.Record(); rec.Version != "v2" {
				t.Errorf("back to %s", rec.Version)
			}
		})
	}
}

// TestAbsentBeforeTheLockProvesNothing (P06): that there is no session tells
// something only of locks that were seen under it before that was asked.
func TestAbsentBeforeTheLockProvesNothing(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env := counting()
	u := NewSight(timing, env)
	env.Session = func(string) *Sight { return u }
	s := NewSight(timing, env)
	u.Saw(0, 1, driver.Strong, driver.Record{}, false)
	s.Saw(2, 3, driver.Strong, under(timing, "s", "v", 7), true)
	if s.Ended() || s.lastMove() == Takeover {
		t.Error("a read from before the lock was held counts")
	}
	// Not even if the answer came after it.
	u.Saw(2, 5, driver.Strong, driver.Record{}, false)
	if s.Ended() {
		t.Error("a read that was sent before the lock was seen counts")
	}
	u.Saw(3, 6, driver.Strong, driver.Record{}, false)
	if !s.Ended() {
		t.Error("one from after it does not")
	}
}

// TestDisclaimerAsks (P21): what an acquire of the session has written, and does not
// know of yet, is not released.
func TestDisclaimerAsks(t *testing.T) {
	timing := Timing{}.WithDefaults()
	for _, mine := range []bool{true, false} {
		d := NewDisclaimer(timing, counting(), "s", "k", 7, func(driver.Record) bool { return mine })
		if a := d.Step(0); a.Request == nil || a.Request.Kind != Look || a.Request.Consistency != driver.Strong {
			t.Fatalf("begins with %+v", a.Request)
		}
		a := d.Reply(1, Result{Outcome: Applied, Record: under(timing, "s", "v", 7), Found: true})
		if released := a.Request != nil; released == mine {
			t.Errorf("mine: %v; released: %v", mine, released)
		}
	}
}
