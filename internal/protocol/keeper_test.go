// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// TestAllFollow: when a session ends all its locks are stepped, some at a time.
func TestAllFollow(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env := counting()
	k := NewKeeper(timing, env, Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	locks := map[Machine]bool{}
	for i := range 5*followAtOnce + 1 {
		rec := under(timing, "s", fmt.Sprint("v", i), 7)
		rec.Key = fmt.Sprint("k", i)
		locks[NewTied(timing, env, Grant{Record: rec}, k)] = true
	}
	if k.Locks() != len(locks) {
		t.Errorf("%d locks, want %d", k.Locks(), len(locks))
	}
	now := time.Second
	for a := k.Stop(now); ; a = k.Step(now) {
		if len(a.Wake) > followAtOnce {
			t.Errorf("%d at once", len(a.Wake))
		}
		for _, m := range a.Wake {
			if !locks[m] {
				t.Fatal("a lock is stepped a second time")
			}
			delete(locks, m)
			if m.Step(now); m.(*Holder).Cause() != Stopped {
				t.Errorf("a lock ended as %v", m.(*Holder).Cause())
			}
		}
		at, due := k.Next()
		if !due || at > now {
			break
		}
	}
	if len(locks) > 0 {
		t.Errorf("%d locks do not follow", len(locks))
	}
}

// TestGrantedUnderASession: what an acquire has written is the session's own from
// before it has sent that until the holder has it, whenever the session is asked.
func TestGrantedUnderASession(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	k := NewKeeper(timing, env, Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	c := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: k}, NewSight(timing, env))
	call := c.Step(0).Call
	written := call.Next
	written.Token = 7
	mine := func(when string, want bool) {
		t.Helper()
		if got := k.mine(written); got != want {
			t.Errorf("%s: mine %v, want %v", when, got, want)
		}
	}
	mine("sent", true)
	c.Reply(1, Result{Outcome: Unknown, Err: errStore})
	mine("unknown", true)
	now, _ := c.Next()
	c.Step(now)
	c.Reply(now, found(written))
	g, ok := c.Granted()
	if !ok {
		t.Fatal("not granted")
	}
	mine("granted", true)
	h := NewTied(timing, env, g, k)
	mine("held", true)
	if len(k.acquires) > 0 {
		t.Error("the acquire is kept for ever")
	}
	h.Done(now)
	h.Reply(now, found(freed(written, "w", driver.EndReleased, nil)))
	mine("released", false)
	if k.Locks() != 0 || k.working != 0 {
		t.Errorf("%d locks, %d at work", k.Locks(), k.working)
	}
}

// TestSessionBeatsByItself: the heartbeats of a session are sent in the background, and
// nobody asks it for progress, whatever counts for leases.
func TestSessionBeatsByItself(t *testing.T) {
	timing := Timing{Manual: true, Progress: time.Second}.WithDefaults()
	if timing.ofSession().Manual || timing.ofSession().Progress != 0 {
		t.Errorf("%+v", timing.ofSession())
	}
	k := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	at, due := k.Next()
	if !due || at > timing.Heartbeat {
		t.Fatalf("stepped at %v, %v", at, due)
	}
	call := k.Step(at).Call
	if call == nil || call.Kind != Heartbeat || call.Next.Heartbeat != timing.Heartbeat {
		t.Fatalf("sends %+v", call)
	}
	k.Reply(at, found(call.Next))
	if k.Step(at + 2*timing.Progress); k.Cause() != None {
		t.Errorf("ended as %v", k.Cause())
	}
	o := NewOpener(timing, counting(), driver.Record{Owner: "us"}, 0)
	if next := o.Step(0).Call.Next; next.Heartbeat != timing.Heartbeat {
		t.Errorf("opened with a heartbeat period of %v", next.Heartbeat)
	}
}

// TestOpenByTheClock: no lock may be taken under a session whose deadline has passed,
// also before its machine was told of that; nor when it has been told to stop.
func TestOpenByTheClock(t *testing.T) {
	timing := Timing{}.WithDefaults()
	k := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	end := k.Deadline()
	if !k.Open(end-1) || k.Open(end) || k.Cause() != None {
		t.Errorf("open before the deadline: %v, at it: %v; ended as %v", k.Open(end-1), k.Open(end), k.Cause())
	}
	k.Stop(time.Second)
	if k.Open(time.Second) {
		t.Error("open when it has been told to stop")
	}
}
