// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

var errStore = errors.New("store")

// waiting returns a contender whose claim is under way since 0.
func waiting(t Timing, want Want) *Contender {
	want.Key, want.Owner = "k", "us"
	c := NewContender(t, middle(), want, NewSight(t, middle()))
	c.Step(0)
	return c
}

// holding returns a holder of a lease granted at 0.
func holding(t Timing) *Holder {
	rec := driver.Record{Key: "k", Version: "v", Beat: "v", Owner: "us", Token: 1, Lease: t.Lease, State: driver.Held}
	return NewHolder(t, middle(), Grant{Record: rec})
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

// TestIdleStepDrawsNoVersion: versions are random strings, and the record's data
// may be large; neither is made for nothing.
func TestIdleStepDrawsNoVersion(t *testing.T) {
	drawn := 0
	env := middle()
	env.Fresh = func() string { drawn++; return "w" }
	h := NewHolder(Timing{}.WithDefaults(), env, Grant{Record: driver.Record{Key: "k", Version: "v", Token: 1}})
	h.Step(0)
	h.Step(time.Second)
	if drawn != 0 {
		t.Errorf("%d versions drawn, none sent", drawn)
	}
}

// TestUnknownLookIsNoWrite: a look without an answer leaves nothing to clean up.
func TestUnknownLookIsNoWrite(t *testing.T) {
	timing := Timing{}.WithDefaults()
	c := waiting(timing, Want{})
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: timing.Lease, State: driver.Held}
	c.Reply(0, Result{Outcome: Conflicted, Record: rec, Found: true})
	at, _ := c.Next()
	if a := c.Step(at); a.Call == nil || a.Call.Kind != Look {
		t.Fatalf("want a look, got %+v", a.Call)
	}
	c.Reply(at, Result{Outcome: Unknown, Err: errStore})
	c.GiveUp(at)
	if !c.Over() {
		t.Error("cleans up although it wrote nothing")
	}
}

// TestLostRace: a claim that lost has nothing to clean up.
func TestLostRace(t *testing.T) {
	c := waiting(Timing{}.WithDefaults(), Want{})
	c.GiveUp(0)
	if c.Over() {
		t.Error("over with a claim under way")
	}
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: time.Second, State: driver.Held}
	c.Reply(time.Second, Result{Outcome: Conflicted, Record: rec, Found: true})
	if !c.Over() {
		t.Error("not over although its only claim lost")
	}
}

func TestRefusals(t *testing.T) {
	timing := Timing{}.WithDefaults()
	for _, tt := range []struct {
		name    string
		want    Want
		err     error
		outcome Outcome
		first   bool // refused by the first failure
		ever    bool
	}{
		{"a store that is busy", Want{}, errStore, NotApplied, false, false},
		{"patience", Want{Patience: 5 * time.Second}, errStore, NotApplied, false, true},
		{"no permission", Want{}, driver.Permanent(errStore), NotApplied, true, true},
		{"unreadable", Want{}, driver.ErrUnreadable, NotApplied, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, now := waiting(timing, tt.want), time.Duration(0)
			for i := range 60 {
				c.Reply(now, Result{Outcome: tt.outcome, Err: tt.err})
				if i == 0 && (c.Refused() != nil) != tt.first {
					t.Errorf("refused at once: %v", c.Refused() != nil)
				}
				if c.Refused() != nil {
					break
				}
				now, _ = c.Next()
				if a := c.Step(now); a.Call == nil {
					t.Fatalf("nothing sent at %v", now)
				}
			}
			if got := c.Refused() != nil; got != tt.ever {
				t.Fatalf("refused: %v, want %v", got, tt.ever)
			}
			if r := c.Refused(); r != nil && !errors.Is(r.Err, tt.err) {
				t.Errorf("refused for %v, want %v", r.Err, tt.err)
			}
			if tt.want.Patience > 0 && now < tt.want.Patience {
				t.Errorf("patience of %v ended at %v", tt.want.Patience, now)
			}
		})
	}
}

// TestRenewIsAnswered: a heartbeat under way since before the call does not
// answer it.
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
