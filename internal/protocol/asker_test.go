// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// theirs returns a record of another holder.
func theirs(t Timing, version string, token uint64) driver.Record {
	return driver.Record{Key: "k", Version: version, Beat: version, Owner: "them", Token: token, Lease: t.Lease, State: driver.Held}
}

func found(rec driver.Record) Result { return Result{Outcome: Applied, Record: rec, Found: true} }

func conflict(rec driver.Record) Result {
	return Result{Outcome: Conflicted, Record: rec, Found: true}
}

// looked returns an asker that has seen rec and has its first write under way,
// if it writes at once.
func looked(t Timing, want driver.Request, rec driver.Record) (*Asker, *Sight, *Call) {
	sight := NewSight(t, middle())
	k := NewAsker(t, middle(), "k", want, 0, sight)
	k.Step(0)
	return k, sight, k.Reply(0, found(rec)).Call
}

// TestAskerJudgesWhatItActsOn: the sight is shared, so that others of the
// process may have seen more since the asker's last reply. It must not write on
// top of a record that it would not have asked had it seen it itself.
func TestAskerJudgesWhatItActsOn(t *testing.T) {
	timing := Timing{}.WithDefaults()
	held := theirs(timing, "v1", 1)
	released := freed(held, "v2", driver.EndReleased, nil)
	kept := reserved(held, "v2", heir{owner: "x"}, time.Second, driver.EndHandedOver, nil)
	next := theirs(timing, "v3", 2)
	for _, want := range []driver.RequestKind{driver.StepDown, driver.HandOver, driver.Revoke} {
		for name, now := range map[string]driver.Record{"released": released, "reserved": kept, "another tenure": next} {
			if want == driver.Revoke && name == "reserved" {
				continue // what it waits for is the same
			}
			t.Run(string(want)+" of "+name, func(t *testing.T) {
				k, sight, r := looked(timing, driver.Request{Kind: want, By: "op", To: "x"}, held)
				if r == nil || r.Kind == Look {
					t.Fatalf("want a write, got %+v", r)
				}
				k.Reply(time.Second, Result{Outcome: NotApplied, Err: errStore})
				sight.Saw(time.Second, time.Second, driver.Strong, now, true) // by a contender
				if a := k.Step(2 * time.Second); a.Call != nil && a.Call.Kind != Look {
					t.Errorf("%v from %+v", a.Call.Kind, a.Call.Prev)
				}
			})
		}
	}
	t.Run("free of a released record", func(t *testing.T) {
		k, sight, _ := looked(timing, driver.Request{Kind: driver.ReleaseDead, By: "op"}, held)
		sight.Saw(time.Second, time.Second, driver.Strong, released, true)
		if a := k.Step(2 * time.Second); a.Call != nil && a.Call.Kind != Look {
			t.Errorf("%v from %+v", a.Call.Kind, a.Call.Prev)
		}
	})
	t.Run("free of another tenure", func(t *testing.T) {
		k, sight, _ := looked(timing, driver.Request{Kind: driver.ReleaseDead, By: "op"}, held)
		sight.Saw(time.Second, time.Second, driver.Strong, next, true)
		now := time.Second
		for range 100 {
			if at, ok := k.Next(); ok && at > now {
				now = at
			}
			a := k.Step(now)
			if a.Call == nil {
				continue
			}
			if a.Call.Kind != Look {
				t.Fatalf("%v from %+v", a.Call.Kind, a.Call.Prev)
			}
			break // looks at last, and will find it alive
		}
	})
}

// TestUnknownFreeIsKnownByItsTrace: an operator's write of unknown outcome was
// applied, and somebody has claimed the lock since. Its own request is what the
// record remembers of the tenure before.
func TestUnknownFreeIsKnownByItsTrace(t *testing.T) {
	timing := Timing{}.WithDefaults()
	for _, want := range []driver.RequestKind{driver.ReleaseDead, driver.Revoke} {
		t.Run(string(want), func(t *testing.T) {
			k, _, r := looked(timing, driver.Request{Kind: want, By: "op"}, theirs(timing, "v1", 1))
			now := time.Duration(0)
			for r == nil || r.Kind == Look {
				if r != nil {
					k.Reply(now, found(theirs(timing, "v1", 1)))
				}
				now, _ = k.Next()
				r = k.Step(now).Call
			}
			applied := r.Next
			k.Reply(now, Result{Outcome: Unknown, Err: errStore})
			now, _ = k.Next()
			k.Step(now)
			claimed := theirs(timing, "v9", 2)
			claimed.Prev = applied.Tenure(driver.EndExpired)
			k.Reply(now, found(claimed))
			if a, _, _ := k.Answer(); a != Done {
				t.Errorf("answer %d, want Done: the record says that this request ended the tenure", a)
			}
		})
	}
}

// abandoned returns a contender that was given up with its claim v under way,
// whose reply is lost, and that has seen now in the record.
func abandoned(t *testing.T, timing Timing, now func(claimed driver.Record) driver.Record) (*Contender, *Call) {
	c := NewContender(timing, middle(), Want{Key: "k", Owner: "us"}, NewSight(timing, middle()))
	claim := c.Step(0).Call
	claimed := driver.Claimed(claim.Next, driver.Record{}, false)
	c.GiveUp(0)
	c.Reply(time.Second, Result{Outcome: Unknown, Err: errStore})
	at, _ := c.Next()
	if r := c.Step(at).Call; r == nil || r.Kind != Look {
		t.Fatalf("want a look, got %+v", r)
	}
	r := c.Reply(at, found(now(claimed))).Call
	if r == nil || r.Kind != Release {
		t.Fatalf("want a release, got %+v", r)
	}
	return c, r
}

// TestAbandonedUnderARequest: a request that is laid into the record while an
// acquire cleans up behind itself must not leave the lock held by nobody.
func TestAbandonedUnderARequest(t *testing.T) {
	timing := Timing{}.WithDefaults()
	q := driver.Request{ID: "q", Kind: driver.StepDown, By: "op"}
	t.Run("laid before the look", func(t *testing.T) {
		c, r := abandoned(t, timing, func(claimed driver.Record) driver.Record { return asking(claimed, "q1", q) })
		c.Reply(2*time.Second, found(r.Next))
		if !c.Over() {
			t.Error("not over although what it wrote is released")
		}
	})
	t.Run("laid before the release", func(t *testing.T) {
		c, r := abandoned(t, timing, func(claimed driver.Record) driver.Record { return claimed })
		a := c.Reply(2*time.Second, conflict(asking(r.Prev, "q1", q)))
		for now := 2 * time.Second; a.Call == nil && !c.Over() && now < timing.Lease; now += time.Second {
			a = c.Step(now)
		}
		if a.Call == nil || a.Call.Kind != Release && a.Call.Kind != Look {
			t.Errorf("the record stays held by nobody: next %+v, over %v", a.Call, c.Over())
		}
	})
	t.Run("applied, laid before the release", func(t *testing.T) {
		c := NewContender(timing, middle(), Want{Key: "k", Owner: "us"}, NewSight(timing, middle()))
		claim := c.Step(0).Call
		c.GiveUp(0)
		r := c.Reply(time.Second, found(driver.Claimed(claim.Next, driver.Record{}, false))).Call
		if r == nil || r.Kind != Release {
			t.Fatalf("want a release, got %+v", r)
		}
		again := c.Reply(2*time.Second, conflict(asking(r.Prev, "q1", q))).Call
		if again == nil || again.Kind != Release || again.Prev.Version != "q1" {
			t.Errorf("the record stays held by nobody: next %+v, over %v", again, c.Over())
		}
	})
}

// TestWishIsNotSpentOnAConflict: a preferred contender whose request lost to a
// heartbeat has asked nobody, so that it need not wait for the pause.
func TestWishIsNotSpentOnAConflict(t *testing.T) {
	timing := Timing{}.WithDefaults()
	c := waiting(timing, Want{Priority: 1, PriorityPause: time.Hour})
	beat := theirs(timing, "v1", 1)
	a := c.Reply(0, conflict(beat))
	now, asks := time.Duration(0), 0
	for i := 0; now < 3*timing.Lease; i++ {
		if a.Call == nil {
			now, _ = c.Next()
			a = c.Step(now)
			continue
		}
		if i%2 == 0 {
			beat = theirs(timing, string(rune('a'+i)), 1) // it lives
		}
		if a.Call.Kind != Ask {
			a = c.Reply(now, found(beat))
			continue
		}
		if asks++; asks == 2 {
			return
		}
		beat = theirs(timing, "late", 1)
		a = c.Reply(now, conflict(beat))
	}
	t.Errorf("asked %d times in %v, the first time in vain", asks, now)
}

// TestRevokeIsNoReservationForALabel: a lock that its holder has handed over to a label,
// while it was to be revoked, was not revoked.
func TestRevokeIsNoReservationForALabel(t *testing.T) {
	timing := Timing{}.WithDefaults()
	held := theirs(timing, "v1", 1)
	for to, want := range map[heir]Answer{{owner: "x"}: Changed, {label: "v2"}: Changed, {}: Done} {
		k, _, r := looked(timing, driver.Request{Kind: driver.Revoke, By: "op"}, held)
		if r == nil || r.Kind != Free {
			t.Fatalf("want a write, got %+v", r)
		}
		kept := reserved(held, "v2", to, time.Second, driver.EndHandedOver, nil)
		k.Reply(time.Second, Result{Outcome: Conflicted, Record: kept, Found: true})
		if k.Revoked() != (want == Done) {
			t.Errorf("reserved for %+v: revoked is %v", to, k.Revoked())
		}
		at, _ := k.Next()
		if r := k.Step(at).Call; r == nil || r.Kind != Look {
			t.Fatalf("want a look, got %+v", r)
		}
		k.Reply(at, found(theirs(timing, "v3", 2)))
		if answer, _, _ := k.Answer(); answer != want {
			t.Errorf("reserved for %+v: answer %d, want %d", to, answer, want)
		}
	}
}
