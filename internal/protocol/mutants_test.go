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
		if now = at; !ok || c.Step(at).Call == nil {
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
		if now = at; !ok || h.Step(at).Call == nil {
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
		session := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "b")})
		c := NewContender(timing, counting(), Want{Key: "k", Under: session}, NewSight(timing, counting()))
		if mine {
			c.unknown = attempts{{kind: Claim, version: "v"}}
		}
		d := NewDisclaimer(timing, counting(), session, "k", 7)
		if a := d.Step(0); a.Call == nil || a.Call.Kind != Look || a.Call.Consistency != driver.Strong {
			t.Fatalf("begins with %+v", a.Call)
		}
		a := d.Reply(1, Result{Outcome: Applied, Record: under(timing, "s", "v", 7), Found: true})
		if released := a.Call != nil; released == mine {
			t.Errorf("mine: %v; released: %v", mine, released)
		}
	}
}

// TestOldProofIsNoLife: a cheap reply that shows a sign of life again which was proved
// before a later one was is an old state of the record, also when another such reply
// has put in doubt what is known.
func TestOldProofIsNoLife(t *testing.T) {
	timing := Timing{}.WithDefaults()
	s := NewSight(timing, counting())
	s.Saw(1, 1, driver.Strong, theirs(timing, "first", 7), true)
	s.Saw(2, 2, driver.Strong, theirs(timing, "second", 7), true)
	s.Saw(3, 3, driver.Eventual, theirs(timing, "never seen", 7), true)
	s.Saw(4, 4, driver.Eventual, theirs(timing, "first", 7), true)
	if rec, _ := s.Record(); s.Proved() && rec.Sign() != "second" {
		t.Errorf("%q counts as a sign of life that a strong reply has shown last", rec.Sign())
	}
	s.Saw(5, 5, driver.Eventual, theirs(timing, "second", 7), true)
	if rec, _ := s.Record(); !s.Proved() || rec.Sign() != "second" || s.Since() != 2 {
		t.Errorf("%q since %v, proved %v: want the latest that was proved", rec.Sign(), s.Since(), s.Proved())
	}
}

// TestSessionOfAFormerLife: a cheap reply that shows the lock under another session,
// from before its record was deleted, is no sign of life of who holds it now.
func TestSessionOfAFormerLife(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	env.Session("old").Saw(0, 0, driver.Strong, alive(timing, "old", "beat of old"), true)
	sight := NewSight(timing, env)
	c := NewContender(timing, env, Want{Key: "k", Owner: "other", UnlessAlive: true}, sight)
	now := time.Second
	looked := false
	for call := c.Step(now).Call; now < timing.Lease/2; now += 10 * time.Millisecond {
		if call == nil {
			call = c.Step(now).Call
			continue
		}
		r := found(under(timing, "new", "v", 7))
		switch {
		case call.Kind == Claim:
			r = conflict(under(timing, "new", "v", 7))
		case call.Kind == Peek && call.Key == driver.SessionKey("old"):
			r = found(alive(timing, "old", "beat of old"))
		case call.Kind == Peek:
			r = found(alive(timing, "new", "beat of new"))
		case call.Consistency == driver.Eventual:
			looked, r = true, found(under(timing, "old", "u", 7))
		}
		call = c.Reply(now, r).Call
	}
	if r := c.Refused(); r != nil || !looked {
		t.Errorf("refused %+v; cheap look made: %v", r, looked)
	}
}

// TestDoubtGoesBeforeTheLastMove: an acquire that gives up at a sign of life does not
// take over from one that a cheap reply has shown, however long that has stood: a
// strong look tells first.
func TestDoubtGoesBeforeTheLastMove(t *testing.T) {
	timing := Timing{}.WithDefaults()
	for _, unless := range []bool{true, false} {
		env, _ := seeing(timing)
		c := NewContender(timing, env, Want{Key: "k", Owner: "other", UnlessAlive: unless}, NewSight(timing, env))
		taken := false
		now := time.Second
		for call := c.Step(now).Call; now < 3*timing.Lease; now += 10 * time.Millisecond {
			if call == nil {
				call = c.Step(now).Call
				continue
			}
			r := found(theirs(timing, "second", 7))
			switch {
			case call.Kind == Claim:
				r = conflict(theirs(timing, "first", 7))
			case call.Kind == Takeover:
				taken, r = true, found(call.Next)
			case call.Consistency == driver.Strong && now < 2*timing.Lease:
				r = Result{Outcome: NotApplied, Err: errStore}
			}
			call = c.Reply(now, r).Call
		}
		if _, granted := c.Granted(); taken == unless || granted == unless || (c.Refused() != nil) != unless {
			t.Errorf("unless alive: %v; takes over: %v, granted: %v, refused: %+v", unless, taken, granted, c.Refused())
		}
	}
}
