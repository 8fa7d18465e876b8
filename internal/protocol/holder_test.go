// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// A lease that no caller waited for any more says so in the record: its holder has
// written no entry for the previous term.
func TestUnwantedLeaseIsAbandoned(t *testing.T) {
	env := Env{Fresh: func() string { return "fresh" }, Random: func() float64 { return 0.5 }}
	for _, wanted := range []bool{true, false} {
		h := NewHolder(&timing, &env, Grant{
			Record: driver.Record{Key: "x", Version: "v", Beat: "v", Owner: "a", Token: 1, State: driver.Held, Lease: timing.Lease},
			Sent:   time.Hour,
		})
		want, leave := driver.EndReleased, h.Done
		if !wanted {
			want, leave = driver.EndAbandoned, h.GiveUp
		}
		r := leave(time.Hour + time.Second).Call
		if r == nil || r.Kind != Release || r.Next.End != want {
			t.Errorf("wanted=%v: request %+v, want a release as %q", wanted, r, want)
		}
	}
}

// The applied release may be an earlier one than the latest: data set in between are
// not known to be stored.
func TestDataOfAReleaseThatMayNotBeTheLatest(t *testing.T) {
	n := 0
	env := Env{Fresh: func() string { n++; return fmt.Sprint("fresh", n) }, Random: func() float64 { return 0.5 }}
	now := time.Hour
	h := NewHolder(&timing, &env, Grant{
		Record: driver.Record{Key: "x", Version: "v", Beat: "v", Owner: "a", Token: 1, State: driver.Held, Lease: timing.Lease},
		Sent:   now,
	})
	var r *Call
	h.Done(now + time.Second)
	h.Reply(now+2*time.Second, Result{Outcome: Unknown}) // and it was applied
	serial, _ := h.SetData(now+2*time.Second, []byte("late"))
	for i := 3; ; i++ {
		if next := h.Step(now + time.Duration(i)*time.Second).Call; next != nil {
			r = next
			break
		}
		if i > 10 {
			t.Fatal("no second release")
		}
	}
	if string(r.Next.Data) != "late" {
		t.Fatalf("the second release carries %q", r.Next.Data)
	}
	h.Reply(now+12*time.Second, Result{Outcome: Unknown})
	for i := 12; i < 15; i++ {
		if h.Step(now+time.Duration(i)*time.Second).Call != nil {
			h.Reply(now+time.Duration(i)*time.Second, Result{
				Outcome: Conflicted, Found: true,
				Record: driver.Record{Key: "x", Version: "o", Beat: "o", Owner: "b", Token: 2, State: driver.Held, Lease: timing.Lease},
			})
			break
		}
	}
	if freed := h.Freed(); !h.Over() || freed != Released {
		t.Fatalf("over %t, %v", h.Over(), freed)
	}
	if h.DataKept() >= serial {
		t.Error("data count as stored that the applied release did not carry")
	}
}

// holding returns a holder of a lease granted at 0.
func holding(t Timing) *Holder {
	rec := driver.Record{Key: "k", Version: "v", Beat: "v", Owner: "us", Token: 1, Lease: t.Lease, State: driver.Held}
	return NewHolder(&t, new(middle()), Grant{Record: rec})
}

// TestLateGrantDoesNotStall: a grant whose reply was lost comes late, and the
// work cannot have shown progress before.
func TestLateGrantDoesNotStall(t *testing.T) {
	h := holding(Timing{Progress: 4 * time.Second}.WithDefaults())
	h.Step(8 * time.Second)
	if h.Cause() != None {
		t.Errorf("ended as %v when the work began", h.Cause())
	}
	if at, _ := h.Next(); at > 8*time.Second {
		h.Step(at)
	}
	h.Step(12 * time.Second)
	if h.Cause() == None {
		t.Error("no progress for 4 s, and not ended")
	}
}

// TestIdleStepDrawsNoVersion: an idle step makes no random version, and does not copy
// the record's data, which may be large.
func TestIdleStepDrawsNoVersion(t *testing.T) {
	drawn := 0
	env := middle()
	env.Fresh = func() string { drawn++; return "w" }
	h := NewHolder(new(Timing{}.WithDefaults()), &env, Grant{Record: driver.Record{Key: "k", Version: "v", Token: 1}})
	h.Step(0)
	h.Step(time.Second)
	if drawn != 0 {
		t.Errorf("%d versions drawn, none sent", drawn)
	}
}

// TestRenewIsAnswered: a heartbeat sent before the call does not answer it.
func TestRenewIsAnswered(t *testing.T) {
	h := holding(Timing{Manual: true}.WithDefaults())
	h.Step(0)
	a := h.Renew(time.Second)
	first := a.Call
	if first == nil {
		t.Fatal("nothing sent")
	}
	h.Renew(2 * time.Second)
	a = h.Reply(3*time.Second, Result{Outcome: Applied, Record: first.Next, Found: true})
	if a.Call == nil || a.Call.Kind != Heartbeat {
		t.Fatalf("want a second heartbeat, got %+v", a.Call)
	}
	a = h.Reply(4*time.Second, Result{Outcome: Applied, Record: a.Call.Next, Found: true})
	if a.Call != nil {
		t.Errorf("and a third: %+v", a.Call)
	}
}
