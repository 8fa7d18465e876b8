// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// offered returns an offer of a grant at an instant.
func offered(timing Timing, at time.Duration) (*Offer, driver.Record) {
	rec := theirs(timing, beat0, 7)
	o := NewOffer(timing, counting(), Grant{Record: rec})
	o.Step(at)
	return o, rec
}

// frees fails unless the offer releases rec at an instant.
func frees(t *testing.T, o *Offer, at time.Duration, rec driver.Record) *Call {
	t.Helper()
	c := o.Step(at).Call
	if c == nil || c.Kind != Release || c.Prev.Version != rec.Version || c.Next.State != driver.Released || c.Next.End != driver.EndAbandoned {
		t.Fatalf("at %v: sends %+v", at, c)
	}
	return c
}

// TestUnusedOfferIsFreed: after a third of the lease and not before, as a tenure in which
// no work was done.
func TestUnusedOfferIsFreed(t *testing.T) {
	o, rec := offered(timing, time.Second)
	at, due := o.Next()
	if want := time.Second + timing.Lease/3; !due || at != want || timing.FreeAfter() != timing.Lease/3 {
		t.Fatalf("due at %v, %v; want %v", at, due, want)
	}
	if c := o.Step(at - 1).Call; c != nil || o.Over() {
		t.Fatalf("too early: %+v", c)
	}
	c := frees(t, o, at, rec)
	if o.Over() {
		t.Error("over with a release under way")
	}
	o.Reply(at, found(c.Next))
	if _, due := o.Next(); due || !o.Over() {
		t.Errorf("freed; over %v, due %v", o.Over(), due)
	}
}

// TestOfferGivenUp: it is freed at once, whether it was stepped before or not, and once.
func TestOfferGivenUp(t *testing.T) {
	for _, stepped := range []bool{true, false} {
		o := NewOffer(timing, counting(), Grant{Record: theirs(timing, beat0, 7)})
		if stepped {
			o.Step(0)
		}
		if c := o.GiveUp(time.Second).Call; c == nil || c.Kind != Release {
			t.Fatalf("stepped %v: sends %+v", stepped, c)
		}
		if c := o.GiveUp(time.Second).Call; c != nil {
			t.Errorf("a second release under way: %+v", c)
		}
	}
}

// TestOfferTaken: nothing is sent when the holder has shown life through this process, and
// a release that is under way then is the last.
func TestOfferTaken(t *testing.T) {
	o, _ := offered(timing, 0)
	o.Taken()
	if c := o.Step(timing.Lease).Call; c != nil || !o.Over() {
		t.Errorf("sends %+v; over %v", c, o.Over())
	}
	o, rec := offered(timing, 0)
	frees(t, o, timing.FreeAfter(), rec)
	o.Taken()
	if o.Over() {
		t.Error("over with a release under way")
	}
	if c := o.Reply(timing.FreeAfter(), Result{Outcome: Unknown, Err: errStore}).Call; c != nil || !o.Over() {
		t.Errorf("sends %+v; over %v", c, o.Over())
	}
}

// TestOfferMeets: what a release that was refused means.
func TestOfferMeets(t *testing.T) {
	rec := theirs(timing, beat0, 7)
	asked := asking(rec, "v", driver.Request{ID: "q", Kind: driver.StepDown})
	later := rec
	later.Token = 8
	for name, tt := range map[string]struct {
		now   driver.Record
		again bool
	}{
		"a request":           {asked, true},
		"a heartbeat":         {theirs(timing, beat1, 7), false},
		"released":            {freed(rec, "v", driver.EndAbandoned, nil), false},
		"the claim once more": {later, false}, // under another token
		"no record":           {driver.Record{}, false},
	} {
		o, _ := offered(timing, 0)
		at := timing.FreeAfter()
		frees(t, o, at, rec)
		c := o.Reply(at, Result{Outcome: Conflicted, Record: tt.now, Found: tt.now.Key != ""}).Call
		if o.Over() == tt.again {
			t.Errorf("%s: over %v", name, o.Over())
		}
		if again := c != nil && c.Kind == Release && c.Prev.Version == tt.now.Version; again != tt.again {
			t.Errorf("%s: sends %+v", name, c)
		}
	}
}

// TestOfferWithoutAnswer: it is tried again until the record has run out by itself.
func TestOfferWithoutAnswer(t *testing.T) {
	o, rec := offered(timing, 0)
	now, tries := timing.FreeAfter(), 0
	for ; !o.Over(); tries++ {
		if now >= timing.Lease {
			if c := o.Step(now).Call; c != nil || !o.Over() {
				t.Fatalf("at %v: sends %+v", now, c)
			}
			break
		}
		frees(t, o, now, rec)
		o.Reply(now, Result{Outcome: Unknown, Err: errStore})
		at, due := o.Next()
		if !due || at <= now {
			t.Fatalf("at %v it is due at %v, %v", now, at, due)
		}
		now = at
	}
	if tries < 3 {
		t.Errorf("%d tries", tries)
	}
}
