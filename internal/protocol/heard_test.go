// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// tagged makes the tag of a beat, which is the beat.
func tagged(beat string) (tag Tag) {
	copy(tag[:], beat)
	return tag
}

// TestHeard: what is heard dates a beat that a look shows later, puts off looks, and does
// nothing else.
func TestHeard(t *testing.T) {
	const s = time.Second
	timing := Timing{Lease: 20 * s, Heartbeat: 5 * s, Refresh: s}.WithDefaults()
	held := func(beat string) driver.Record {
		return driver.Record{
			Key: "x", State: driver.Held, Token: 3, Version: beat, Beat: beat, Owner: "a", Lease: 20 * s, Heartbeat: 5 * s,
		}
	}
	// begin returns a sight that has seen a beat at 0, and was told of another one at 1 s.
	begin := func() *Sight {
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b1"), true)
		v.Heard(s, tagged("b2"), tagged)
		return v
	}
	next := func(t *testing.T, v *Sight, from, to time.Duration) {
		t.Helper()
		if at := v.NextLook(); at < from || at > to {
			t.Errorf("the next look is at %v, want %v to %v", at, from, to)
		}
	}
	ordinary := s + s/8

	t.Run("puts off", func(t *testing.T) { // for a heartbeat period and a quarter of a refresh period
		next(t, begin(), 6*s, 6*s+s/4)
	})
	t.Run("to half a lease", func(t *testing.T) {
		v := begin()
		for i := range 9 {
			v.Heard(time.Duration(i+2)*s, tagged(fmt.Sprint("none", i)), tagged)
		}
		next(t, v, 9*s, 10*s)
	})
	t.Run("not past the end of the count", func(t *testing.T) {
		v := begin()
		v.Saw(12*s, 12*s, driver.Strong, held("b1"), true) // unchanged: it is dead at 20 s
		v.Heard(13*s, tagged("none"), tagged)
		next(t, v, 12*s, 18*s)
	})
	t.Run("not past the end of the count of a sign that is not proved", func(t *testing.T) {
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b0"), true)
		other := held("b1")
		other.Token = 4
		v.Saw(s, s, driver.Eventual, other, true)
		v.Saw(13*s, 13*s, driver.Eventual, other, true)
		v.Heard(14*s, tagged("none"), tagged)
		next(t, v, 13*s, 19*s)
	})
	t.Run("the first of a tag", func(t *testing.T) {
		v := begin()
		v.Heard(4*s, tagged("b2"), tagged)
		next(t, v, 6*s, 6*s+s/4)
		v.Saw(7*s, 7*s, driver.Eventual, held("b2"), true)
		if v.Since() != s {
			t.Errorf("the beat counts from %v, want 1 s", v.Since())
		}
	})
	t.Run("known", func(t *testing.T) {
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b1"), true)
		v.Heard(s/2, tagged("b1"), tagged)
		next(t, v, 0, ordinary)
		v.Saw(s, s, driver.Eventual, held("b1"), true)
		if v.Since() != 0 {
			t.Errorf("the beat counts from %v", v.Since())
		}
	})
	t.Run("no sign of life", func(t *testing.T) {
		v := begin()
		if dead, _ := v.DeadAt(); dead != 20*s {
			t.Errorf("dead at %v", dead)
		}
	})
	// A sign of life that a cheap reply shows, and that was told of since another one was
	// proved, is looked at again half a lease later, and no strong look is made besides.
	t.Run("a sign that was told of", func(t *testing.T) {
		v := begin()
		if how := v.How(9 * s); how != driver.Eventual {
			t.Error("the first look is strong")
		}
		v.Saw(9*s, 9*s, driver.Eventual, held("b2"), true)
		v.Heard(14*s, tagged("b3"), tagged)
		next(t, v, 18*s, 19*s+s/4)
		if how := v.How(17*s + s/2); how != driver.Eventual {
			t.Error("a look is strong that has half a lease to come")
		}
		if how := v.How(18*s + s/2); how != driver.Strong {
			t.Error("the proof is over before the look after this one, and this one is not strong")
		}
		if v.Proved() {
			t.Error("what is heard proves a sign of life")
		}
		if dead, _ := v.DeadAt(); v.How(dead-s) != driver.Strong {
			t.Error("the last look before the holder counts as dead is cheap")
		}
	})
	t.Run("a sign that was told of before the proof", func(t *testing.T) {
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b1"), true)
		v.Heard(s, tagged("b3"), tagged)
		v.Heard(3*s, tagged("b2"), tagged) // late
		v.Saw(6*s, 6*s, driver.Strong, held("b3"), true)
		v.Saw(15*s, 15*s, driver.Eventual, held("b2"), true) // an old state
		if how := v.How(19*s + s/2); how != driver.Strong {
			t.Error("an old sign of life is believed to be a later one")
		}
	})
	t.Run("a sign that was not told of", func(t *testing.T) {
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b3"), true)
		v.Saw(15*s, 15*s, driver.Eventual, held("b2"), true)
		next(t, v, 15*s, 20*s)
		if how := v.How(19*s + s/2); how != driver.Strong {
			t.Error("a cheap reply has put off the strong look")
		}
	})
	t.Run("in doubt", func(t *testing.T) {
		v := begin()
		v.Saw(2*s, 2*s, driver.Eventual, driver.Record{}, false)
		next(t, v, 2*s, 2*s+timing.Pause())
	})
	t.Run("with a request", func(t *testing.T) {
		v := begin()
		asked := held("b1")
		asked.Version, asked.Requests = "v", []driver.Request{{ID: "q", Kind: driver.StepDown}}
		v.Saw(2*s, 2*s, driver.Strong, asked, true)
		next(t, v, 2*s, 2*s+ordinary)
	})
	t.Run("another tenure", func(t *testing.T) {
		v := begin()
		other := held("b2") // which repeats a beat, as none does
		other.Token = 4
		v.Saw(2*s, 2*s, driver.Strong, other, true)
		next(t, v, 2*s, 2*s+ordinary)
	})
	t.Run("not held", func(t *testing.T) {
		v := NewSight(timing, middle())
		free := held("b1")
		free.State = driver.Released
		v.Saw(0, 0, driver.Strong, free, true)
		v.Heard(s/2, tagged("b2"), tagged)
		next(t, v, 0, ordinary)
	})
	t.Run("many", func(t *testing.T) { // somebody makes more than are remembered
		v := NewSight(timing, middle())
		v.Saw(0, 0, driver.Strong, held("b1"), true)
		for i := range 2 * maxHeard {
			v.Heard(s, tagged(fmt.Sprint("none", i)), tagged)
		}
		v.Heard(s, tagged("b2"), tagged)
		v.Saw(9*s, 9*s, driver.Eventual, held("b2"), true)
		if len(v.heard) > maxHeard || v.Since() != 9*s {
			t.Errorf("%d are remembered, the beat counts from %v", len(v.heard), v.Since())
		}
	})
}

// TestOldBeatsAreToldOf: somebody names old beats, one after the other, while cheap replies
// are as far behind. The dead holder counts as dead half a lease later at most.
func TestOldBeatsAreToldOf(t *testing.T) {
	const s = time.Second
	timing := Timing{Lease: 20 * s, Heartbeat: 5 * s, Refresh: s}.WithDefaults()
	held := func(i int) driver.Record {
		beat := fmt.Sprint("beat-", i)
		return driver.Record{
			Key: "x", State: driver.Held, Token: 3, Version: beat, Beat: beat, Owner: "a", Lease: 20 * s, Heartbeat: 5 * s,
		}
	}
	for early := range 8 {
		v := NewSight(timing, middle())
		const last = 100
		v.Saw(0, 0, driver.Strong, held(last), true) // and then it dies
		strong := 0
		for i, now := last-1, time.Duration(0); ; i-- {
			v.Heard(now+s/2, tagged(held(i).Beat), tagged)
			for j := range 5 {
				v.Heard(now+time.Duration(j+early)*s, tagged(fmt.Sprint("none", i, j)), tagged)
			}
			dead, _ := v.DeadAt()
			if now = min(v.NextLook(), dead); now == dead {
				break
			}
			how, shown := v.How(now), held(i)
			if how == driver.Strong {
				strong++
				shown = held(last)
			}
			v.Saw(now, now, how, shown, true)
			if dead, _ := v.DeadAt(); now >= dead {
				break
			}
			if now > time.Minute {
				t.Fatal("it never dies")
			}
		}
		dead, _ := v.DeadAt()
		at, _ := v.Known()
		if dead = max(dead, at); dead > 30*s {
			t.Errorf("messages from %d s on: it counts as dead at %v, after %d strong looks", early, dead, strong)
		}
	}
}
