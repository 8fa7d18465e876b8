// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func middle() Env {
	n := 0
	return Env{
		Fresh:  func() string { n++; return string(rune('a' + n)) },
		Random: func() float64 { return 0.5 },
	}
}

// TestSightCountsFromTheReply checks what starts the count anew, and what does
// not.
func TestSightCountsFromTheReply(t *testing.T) {
	rec := driver.Record{Key: "k", Version: "v1", Beat: "b1", Token: 3, Lease: 15 * time.Second, State: driver.Held}
	for _, tt := range []struct {
		name   string
		change func(*driver.Record)
		anew   bool
	}{
		{"nothing", func(*driver.Record) {}, false},
		{"a request from outside", func(r *driver.Record) { r.Version = "v2" }, false},
		{"a heartbeat", func(r *driver.Record) { r.Version, r.Beat = "v2", "b2" }, true},
		{"another term with the same beat", func(r *driver.Record) { r.Token++ }, true},
		{"another lease", func(r *driver.Record) { r.Lease *= 2 }, true},
		{"a foreign heartbeat", func(r *driver.Record) { r.Version, r.Beat = "v2", "" }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSight(Timing{}.WithDefaults(), middle())
			s.Saw(1*time.Second, 2*time.Second, driver.Strong, rec, true)
			if dead, ok := s.DeadAt(); !ok || dead != 17*time.Second {
				t.Fatalf("dead at %v, %v; want 17s, from the reply", dead, ok)
			}
			next := rec
			tt.change(&next)
			s.Saw(3*time.Second, 5*time.Second, driver.Strong, next, true)
			want := 2 * time.Second
			if tt.anew {
				want = 5 * time.Second
			}
			if s.Since() != want {
				t.Errorf("counts from %v, want %v", s.Since(), want)
			}
			if got, _ := s.Record(); got.Version != next.Version {
				t.Errorf("keeps version %s, want %s: a takeover would fail", got.Version, next.Version)
			}
		})
	}
}

// TestSightOfNonsense checks that no record can make looks come without pause,
// or a living holder look dead.
func TestSightOfNonsense(t *testing.T) {
	for _, lease := range []time.Duration{1, time.Second, 15 * time.Second, math.MaxInt64} {
		for _, heartbeat := range []time.Duration{math.MinInt64, -1, 0, 1, time.Second, math.MaxInt64} {
			for _, beat := range []string{"", "b"} {
				s := NewSight(Timing{}.WithDefaults(), middle())
				rec := driver.Record{Key: "k", Beat: beat, Lease: lease, Heartbeat: heartbeat, State: driver.Held}
				now := 100 * 365 * 24 * time.Hour
				for i := range 100 {
					rec.Version = string(rune('a' + i/2))
					if beat != "" {
						rec.Beat = rec.Version
					}
					s.Saw(now, now+time.Millisecond, driver.Strong, rec, true)
					now += time.Millisecond
					if dead, _ := s.DeadAt(); lease > time.Hour && dead < now+365*24*time.Hour {
						t.Fatalf("lease %v, heartbeat %v: dead at %v, now %v", lease, heartbeat, dead, now)
					}
					if s.NextLook() <= now {
						t.Fatalf("lease %v, heartbeat %v: next look %v after now", lease, heartbeat, s.NextLook()-now)
					}
					if i%3 == 0 {
						now = s.NextLook()
					} else {
						now += time.Second
					}
				}
			}
		}
	}
}

// TestSightIsDue: a session's record is looked at each refresh period, but read only when that
// is due. Each heartbeat is seen a refresh period later than by reading always, at most, also
// when heartbeats come a little earlier than the record says, or later. There are fewer reads.
func TestSightIsDue(t *testing.T) {
	timing := Timing{Lease: 20 * time.Second, Heartbeat: 5 * time.Second, Refresh: time.Second}.WithDefaults()
	for _, period := range []time.Duration{4950 * time.Millisecond, 5 * time.Second, 5050 * time.Millisecond} {
		r := rand.New(rand.NewPCG(1, 2))
		s := NewSight(timing, middle())
		reads, polls := 0, 0
		var shown uint64 // the latest beat that was read
		for now := time.Duration(0); now < time.Hour; now += timing.Refresh - timing.Refresh/8 + time.Duration(r.Int64N(int64(timing.Refresh/4))) {
			if polls++; !s.Due(now) {
				continue
			}
			reads++
			beat := uint64(now / period)
			s.Saw(now, now, driver.Eventual, driver.Record{
				Key: "s", State: driver.Alive, Token: 1, Version: fmt.Sprint("v", beat), Beat: fmt.Sprint("b", beat),
				Lease: timing.Lease, Heartbeat: timing.Heartbeat,
			}, true)
			if late := now - time.Duration(beat)*period; beat > shown && shown > 10 && late > 2*timing.Refresh {
				t.Fatalf("heartbeats each %v: beat %d is seen after %v", period, beat, late)
			}
			shown = beat
		}
		t.Logf("heartbeats each %v: %d reads in %d polls", period, reads, polls)
		if reads > polls*2/3 {
			t.Errorf("heartbeats each %v: %d reads in %d polls", period, reads, polls)
		}
	}
}

// TestSightAfterAHeartbeatOutOfTurn: where a session has sent a heartbeat long before it was
// expected, each look reads it for a lease, since more may come so; where one is a little early,
// or late, looks go on skipping it.
func TestSightAfterAHeartbeatOutOfTurn(t *testing.T) {
	const s = time.Second
	timing := Timing{Lease: 20 * s, Heartbeat: 5 * s, Refresh: s}.WithDefaults()
	for _, tt := range []struct {
		third time.Duration // when the third heartbeat is seen; the second one was at 10 s
		due   bool          // whether looks right after it read the session
	}{
		{12 * s, true},
		{15*s - s/8, false},
		{15*s + s/8, false},
		{19 * s, false},
	} {
		v := NewSight(timing, middle())
		for i, at := range []time.Duration{5 * s, 10 * s, tt.third} {
			rec := driver.Record{Key: "s", State: driver.Alive, Token: 1, Lease: timing.Lease, Heartbeat: timing.Heartbeat}
			for k, at := range []time.Duration{at - s/16, at} { // a look just before it, and one that shows it
				beat := fmt.Sprint("b", i+k)
				rec.Version, rec.Beat = beat, beat
				v.Saw(at, at, driver.Strong, rec, true)
			}
		}
		if due := v.Due(tt.third + s); due != tt.due {
			t.Errorf("after a heartbeat at %v: read %v, want %v", tt.third, due, tt.due)
		}
		if tt.due && (!v.Due(tt.third+19*s) || v.astray > tt.third+21*s) {
			t.Errorf("after a heartbeat at %v: until %v", tt.third, v.astray)
		}
	}
}

// TestResting: looks rest while all that wait are unhurried, and no longer.
func TestResting(t *testing.T) {
	const s = time.Second
	timing := Timing{Lease: 20 * s, Heartbeat: 5 * s, Refresh: s}.WithDefaults()
	held := func(beat int) driver.Record {
		sign := fmt.Sprint("b", beat)
		return driver.Record{Key: "x", State: driver.Held, Token: 3, Version: sign, Beat: sign, Owner: "a", Lease: 20 * s, Heartbeat: 5 * s}
	}
	// rests looks at a holder that sends a heartbeat each 5 s, just before each second of them.
	rests := func(until time.Duration) *Sight {
		v := NewSight(timing, middle())
		v.LookFor(s, timing.Lease, true)
		for at := time.Duration(0); at <= until; at += s {
			v.Saw(at, at, driver.Strong, held(int(at/(5*s))), true)
		}
		return v
	}
	soon := s + s/8
	next := func(v *Sight, at time.Duration) time.Duration { return v.NextLook() - at }
	if in := next(rests(16*s), 16*s); in < 2*s || in > 4*s+s/8 {
		t.Errorf("looks that rest: the next one after %v", in)
	}
	if in := next(rests(6*s), 6*s); in > soon {
		t.Errorf("a holder that has just begun is looked at after %v", in)
	}
	v := rests(16 * s)
	v.LookFor(s, timing.Lease, false)
	if in := next(v, 16*s); in > soon {
		t.Errorf("one that is in a hurry has come: the next look after %v", in)
	}
	asked := held(3)
	asked.Requests = []driver.Request{{ID: "1", Kind: driver.StepDown}}
	v = rests(16 * s)
	v.Saw(17*s, 17*s, driver.Strong, asked, true)
	if in := next(v, 17*s); in > soon {
		t.Errorf("the holder was asked to step down, and is looked at after %v", in)
	}
}

// TestOvertakenAnswersAreLeftAside: a slow reply does not bring an older
// tenure back, nor an older state or sign of life of the same one.
func TestOvertakenAnswersAreLeftAside(t *testing.T) {
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

// TestAbsentBeforeTheLockProvesNothing: that there is no session tells
// something only of locks that were seen under it before that was asked.
func TestAbsentBeforeTheLockProvesNothing(t *testing.T) {
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

// TestOldProofIsNoLife: a cheap reply that shows a sign of life again which was proved
// before a later one was is an old state of the record, also when another such reply
// has put in doubt what is known.
func TestOldProofIsNoLife(t *testing.T) {
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
