// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// TestCooledContenderDoesNotSpin: the holder's lease has run out, and a cheap read has
// left a doubt. A candidate that cools down looks, before it takes the lock. It did
// neither, and was due again in the same instant, for as long as the doubt stood.
func TestCooledContenderDoesNotSpin(t *testing.T) {
	timing := Timing{}.WithDefaults()
	rec := driver.Record{
		Key: "k", Version: "v", Beat: "v", Owner: "them", Token: 2, Lease: timing.Lease, State: driver.Held, Label: "v1",
		Prev: &driver.Tenure{Owner: "us", Token: 1, Label: "v2", End: driver.EndFailed},
	}
	sight := NewSight(timing, middle())
	sight.Saw(0, 0, driver.Strong, rec, true)
	want := Want{Key: "k", Owner: "us", Label: "v2", Behind: true, CoolDown: 10 * time.Second, CoolDownMax: 30 * time.Second}
	c := NewContender(timing, middle(), want, sight)
	c.Step(0)
	now, taken := timing.Lease+time.Second, time.Duration(0)
	sight.Saw(now, now, driver.Eventual, driver.Record{}, false) // which proves nothing, and leaves a doubt
	if !sight.doubt || sight.NextLook() <= now {
		t.Fatalf("doubt %v, and the next look is at %v", sight.doubt, sight.NextLook())
	}
	call := c.Step(now).Call
	for range 100 {
		if call == nil {
			at, ok := c.Next()
			if !ok || at <= now {
				t.Fatalf("at %v it sends nothing, and is due at %v, %v", now, at, ok)
			}
			now = at
			call = c.Step(now).Call
			continue
		}
		if call.Kind != Look {
			taken = now
			break
		}
		call = c.Reply(now, found(rec)).Call
	}
	if due := timing.Lease + time.Second + want.CoolDown; taken != due {
		t.Errorf("it takes the lock at %v, want %v: a cool-down after it could have", taken, due)
	}
}

// TestHeirs: whom a record is reserved for.
func TestHeirs(t *testing.T) {
	for name, tt := range map[string]struct {
		owner, label string // of the record
		want         string // who may take it: by name, of the label, without a label
		nobody       bool
	}{
		"an owner":                   {"us", "", "us", false},
		"an owner, and a label":      {"us", "v2", "us", false},
		"a label":                    {"", "v2", "of it", false},
		"nobody":                     {"", "", "", true},
		"somebody else":              {"x", "", "", false},
		"a label that nobody has":    {"", "v3", "", false},
		"an owner with another case": {"Us", "", "", false},
	} {
		rec := driver.Record{State: driver.Reserved, Owner: tt.owner, Label: tt.label}
		for who, is := range map[string]heir{"us": {"us", "v1"}, "of it": {"b", "v2"}, "no label": {"c", ""}, "other": {"d", "v1"}} {
			if got := KeptFor(rec, is.owner, is.label); got != (who == tt.want) {
				t.Errorf("%s: kept for %q: %v", name, who, got)
			}
			for _, state := range []driver.State{driver.Held, driver.Released} {
				if rec := (driver.Record{State: state, Owner: tt.owner, Label: tt.label}); KeptFor(rec, is.owner, is.label) || KeptForNobody(rec) {
					t.Errorf("%s, but %s: kept for %q", name, state, who)
				}
			}
		}
		if KeptForNobody(rec) != tt.nobody {
			t.Errorf("%s: kept for nobody: %v", name, KeptForNobody(rec))
		}
	}
}

// TestReservationsCount: one for somebody counts by the time that it names alone.
// One for nobody is the former holder's lease, and counts with the bound of its clocks.
func TestReservationsCount(t *testing.T) {
	held := theirs(Timing{}.WithDefaults(), "v1", 1)
	held.Drift = 0.01
	for to, want := range map[heir]float64{{owner: "x"}: 0, {label: "v2"}: 0, {}: 0.01} {
		if rec := reserved(held, "v2", to, time.Second, driver.EndHandedOver, nil); rec.Drift != want || heirOf(rec) != to || rec.Host != "" {
			t.Errorf("reserved for %+v: %+v", to, rec)
		}
	}
}
