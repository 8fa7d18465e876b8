// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math"
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

// TestViewCountsFromTheReply checks what restarts the count, and what does
// not.
func TestViewCountsFromTheReply(t *testing.T) {
	rec := driver.Record{Key: "k", Version: "v1", Beat: "b1", Token: 3, Lease: 15 * time.Second, State: driver.Held}
	for _, tt := range []struct {
		name     string
		change   func(*driver.Record)
		restarts bool
	}{
		{"nothing", func(*driver.Record) {}, false},
		{"a request from outside", func(r *driver.Record) { r.Version = "v2" }, false},
		{"a heartbeat", func(r *driver.Record) { r.Version, r.Beat = "v2", "b2" }, true},
		{"another term with the same beat", func(r *driver.Record) { r.Token++ }, true},
		{"another lease", func(r *driver.Record) { r.Lease *= 2 }, true},
		{"a foreign heartbeat", func(r *driver.Record) { r.Version, r.Beat = "v2", "" }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewView(Timing{}.WithDefaults(), middle())
			s.Observe(1*time.Second, 2*time.Second, driver.Strong, rec, true)
			if dead, ok := s.DeadAt(); !ok || dead != 17*time.Second {
				t.Fatalf("dead at %v, %v; want 17s, from the reply", dead, ok)
			}
			next := rec
			tt.change(&next)
			s.Observe(3*time.Second, 5*time.Second, driver.Strong, next, true)
			want := 2 * time.Second
			if tt.restarts {
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

// TestViewOfNonsense checks that no record can cause reads without a pause, or make a
// living holder look dead.
func TestViewOfNonsense(t *testing.T) {
	for _, lease := range []time.Duration{1, time.Second, 15 * time.Second, math.MaxInt64} {
		for _, heartbeat := range []time.Duration{math.MinInt64, -1, 0, 1, time.Second, math.MaxInt64} {
			for _, beat := range []string{"", "b"} {
				s := NewView(Timing{}.WithDefaults(), middle())
				rec := driver.Record{Key: "k", Beat: beat, Lease: lease, Heartbeat: heartbeat, State: driver.Held}
				now := 100 * 365 * 24 * time.Hour
				for i := range 100 {
					rec.Version = string(rune('a' + i/2))
					if beat != "" {
						rec.Beat = rec.Version
					}
					s.Polls(now, driver.Strong)
					s.Observe(now, now+time.Millisecond, driver.Strong, rec, true)
					sent := now
					now += time.Millisecond
					if dead, _ := s.DeadAt(); lease > time.Hour && dead < now+365*24*time.Hour {
						t.Fatalf("lease %v, heartbeat %v: dead at %v, now %v", lease, heartbeat, dead, now)
					}
					if next := s.NextPoll(s.t.Refresh, s.t.Lease); next <= sent {
						t.Fatalf("lease %v, heartbeat %v: next poll %v after now", lease, heartbeat, next-now)
					}
					if i%3 == 0 {
						now = s.NextPoll(s.t.Refresh, s.t.Lease)
					} else {
						now += time.Second
					}
				}
			}
		}
	}
}

// beats returns the record of a holder with a lease of 20 s that sends a heartbeat each 5 s.
func beats(beat string) driver.Record {
	return driver.Record{
		Key: "x", State: driver.Held, Token: 3, Version: beat, Beat: beat, Owner: "a", Lease: 20 * time.Second, Heartbeat: 5 * time.Second,
	}
}

// TestCheapRepliesAreHints: an eventual reply changes nothing in the view. If it shows another
// version, or no record, a strong read is due; otherwise nothing has happened.
func TestCheapRepliesAreHints(t *testing.T) {
	again := beats("b1") // by a late duplicate of the claim, after a release
	again.Token++
	for name, tt := range map[string]struct {
		rec    driver.Record
		found  bool
		hinted bool
	}{
		"the same version":                     {beats("b1"), true, false},
		"the same version under another token": {again, true, true},
		"another version":                      {beats("b2"), true, true},
		"no record":                            {driver.Record{}, false, true},
	} {
		s := NewView(timing, middle())
		s.Observe(1, 2, driver.Strong, beats("b1"), true)
		s.Polls(3, driver.Eventual)
		s.Observe(3, 4, driver.Eventual, tt.rec, tt.found)
		rec, found := s.Record()
		if at, _ := s.Known(); !found || rec.Version != "b1" || at != 2 || s.Since() != 2 {
			t.Errorf("%s: a cheap reply is taken for what is: %q, %v, known at %v", name, rec.Version, found, at)
		}
		if due := s.NextPoll(s.t.Refresh, s.t.Lease) <= 4; s.Hinted() != tt.hinted || due != tt.hinted || tt.hinted && s.PollConsistency(4) != driver.Strong {
			t.Errorf("%s: hinted %v, a read is due now: %v", name, s.Hinted(), due)
		}
	}
	s := NewView(timing, middle())
	s.Observe(1, 2, driver.Eventual, beats("b1"), true)
	if _, known := s.Known(); known {
		t.Error("a record is known by a cheap reply alone")
	}
}

// TestHintIsConsumedByTheSending: a hint that comes while a read is under way may be
// newer than its reply; and a read without an answer shows nothing.
func TestHintIsConsumedByTheSending(t *testing.T) {
	s := NewView(timing, middle())
	s.Observe(1, 2, driver.Strong, beats("b1"), true)
	s.Hint()
	if s.Polls(3, driver.Eventual); !s.Hinted() {
		t.Error("a cheap read has consumed the hint")
	}
	if s.Polls(3, driver.Strong); s.Hinted() {
		t.Error("a strong read has been sent, and another one is due")
	}
	s.Hint()
	if s.Observe(3, 5, driver.Strong, beats("b2"), true); !s.Hinted() {
		t.Error("a hint that came while the read was under way is gone with its reply")
	}
	s.Polls(6, driver.Strong)
	if s.Unanswered(); !s.Hinted() {
		t.Error("a read without an answer has consumed the hint")
	}
}

// TestPolls: a poll comes a refresh period after the latest call, and when the sign of life has
// been unchanged for its lease. It is cheap only where it will most likely show nothing new.
func TestPolls(t *testing.T) {
	const s = time.Second
	saw := func(change func(*driver.Record)) *View {
		v := NewView(timing, middle())
		rec := beats("b1")
		change(&rec)
		v.Polls(0, driver.Strong)
		v.Observe(0, 0, driver.Strong, rec, rec.Key != "")
		return v
	}
	asked := []driver.Request{{ID: "1", Kind: driver.StepDown}}
	for name, tt := range map[string]struct {
		change       func(*driver.Record)
		young, grown driver.Consistency // before 7/8 of the heartbeat period, and then
		refresh      time.Duration      // how often a machine polls whose refresh period is an hour
	}{
		"held":            {func(*driver.Record) {}, driver.Eventual, driver.Strong, 20 * s},
		"under a session": {func(r *driver.Record) { r.Session = "s" }, driver.Eventual, driver.Eventual, time.Hour},
		"released":        {func(r *driver.Record) { r.State = driver.Released }, driver.Eventual, driver.Eventual, time.Hour},
		"no record":       {func(r *driver.Record) { *r = driver.Record{} }, driver.Eventual, driver.Eventual, time.Hour},
		"asked":           {func(r *driver.Record) { r.Requests = asked }, driver.Strong, driver.Strong, 4 * s},
		"reserved":        {func(r *driver.Record) { r.State = driver.Reserved }, driver.Strong, driver.Strong, 4 * s},
	} {
		v := saw(tt.change)
		if young, grown := v.PollConsistency(4*s), v.PollConsistency(5*s-5*s/8); young != tt.young || grown != tt.grown {
			t.Errorf("%s: polls are %v, then %v; want %v, %v", name, young, grown, tt.young, tt.grown)
		}
		if next := v.NextPoll(time.Hour, 20*s); next != tt.refresh {
			t.Errorf("%s: with a refresh period of an hour it polls in %v, want %v", name, next, tt.refresh)
		}
		if next := v.NextPoll(s, 20*s); next > s {
			t.Errorf("%s: with a refresh period of a second it polls in %v", name, next)
		}
	}
	v := saw(func(r *driver.Record) { r.Heartbeat = 0 })
	if young, grown := v.PollConsistency(3*s), v.PollConsistency(4*s); young != driver.Eventual || grown != driver.Strong {
		t.Errorf("a record that names no period: polls are %v, then %v", young, grown)
	}
	for i, want := range map[float64]time.Duration{0: s * 7 / 8, 0.5: s, 1: s * 9 / 8} {
		v := NewView(timing, Env{Random: func() float64 { return i }})
		v.Observe(0, 0, driver.Strong, beats("b1"), true)
		if v.Polls(10*s, driver.Strong); v.NextPoll(s, 20*s) != 10*s+want {
			t.Errorf("the next poll is due at %v", v.NextPoll(s, 20*s))
		}
	}
}

// TestDeadIsWhatAStrongReplyProves: time alone proves nothing, nor does a reply to a call from
// before the lease had passed, nor a cheap one.
func TestDeadIsWhatAStrongReplyProves(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		sent, now time.Duration
		how       driver.Consistency
		beat      string
		dead      bool
	}{
		"sent when the lease had passed": {20 * s, 21 * s, driver.Strong, "b1", true},
		"sent before that":               {20*s - 1, 21 * s, driver.Strong, "b1", false},
		"a cheap reply":                  {20 * s, 21 * s, driver.Eventual, "b1", false},
		"another beat":                   {20 * s, 21 * s, driver.Strong, "b2", false},
	} {
		v := NewView(timing, middle())
		v.Observe(-1, 0, driver.Strong, beats("b1"), true)
		v.Observe(19*s, 19*s, driver.Strong, beats("b1"), true)
		if v.Dead() {
			t.Errorf("%s: dead at once", name)
		}
		v.Polls(tt.sent, tt.how)
		if v.Observe(tt.sent, tt.now, tt.how, beats(tt.beat), true); v.Dead() != tt.dead {
			t.Errorf("%s: dead %v, want %v", name, v.Dead(), tt.dead)
		}
	}
}

// TestTermOfALifeAfterADeletion: when a key is deleted its tokens restart. A record with the
// same token is of another term if its session or the id of its beat differs.
func TestTermOfALifeAfterADeletion(t *testing.T) {
	first := under(timing, "s1", "t1-1", 7)
	for name, change := range map[string]func(*driver.Record){
		"another session": func(r *driver.Record) { r.Session = "s2" },
		"another term":    func(r *driver.Record) { r.Beat, r.Version = "t2-1", "t2-1" },
	} {
		next := first
		change(&next)
		s := NewView(timing, middle())
		s.Observe(1, 2, driver.Strong, first, true)
		if s.Observe(3, 4, driver.Strong, next, true); s.TermSince() != 4 {
			t.Errorf("%s counts as the term that was seen at %v", name, s.TermSince())
		}
	}
	beat := first
	beat.Beat, beat.Version = "t1-2", "t1-2"
	s := NewView(timing, middle())
	s.Observe(1, 2, driver.Strong, first, true)
	if s.Observe(3, 4, driver.Strong, beat, true); s.TermSince() != 2 {
		t.Error("a heartbeat begins a term")
	}
}

// TestOvertakenAnswersAreLeftAside: a slow reply does not bring back an older term, nor
// an older state or sign of life of the same term.
func TestOvertakenAnswersAreLeftAside(t *testing.T) {
	before := theirs(timing, "v1", 3)
	for name, now := range map[string]driver.Record{
		"term":         theirs(timing, "v2", 4),
		"state":        freed(before, "v2", driver.EndReleased, nil),
		"sign of life": theirs(timing, "v2", 3),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewView(timing, middle())
			s.Observe(0, 1, driver.Strong, before, true)
			s.Observe(3*time.Second, 4*time.Second, driver.Strong, now, true)
			s.Observe(2*time.Second, 5*time.Second, driver.Strong, before, true)
			if rec, _ := s.Record(); rec.Version != "v2" {
				t.Errorf("back to %s", rec.Version)
			}
			if !s.Hinted() {
				t.Error("it may have been the newer one: a strong read is due")
			}
		})
	}
}

// TestAbsentBeforeTheLockProvesNothing: the absence of a session proves something only
// about locks that were read under it before the absence was read.
func TestAbsentBeforeTheLockProvesNothing(t *testing.T) {
	env := counting()
	u := NewView(timing, env)
	env.Session = func(string) *View { return u }
	s := NewView(timing, env)
	u.Observe(0, 1, driver.Strong, driver.Record{}, false)
	s.Observe(2, 3, driver.Strong, under(timing, "s", "v", 7), true)
	if s.Ended() {
		t.Error("a read from before the lock was held counts")
	}
	// Not even if the answer came after it.
	u.Observe(2, 5, driver.Strong, driver.Record{}, false)
	if s.Ended() {
		t.Error("a read that was sent before the lock was seen counts")
	}
	u.Observe(5, 6, driver.Strong, driver.Record{}, false)
	if !s.Ended() {
		t.Error("a read from after it does not count")
	}
}

// TestOvertakenReplyProvesWhatItShows: a reply that another one has overtaken shows the record as
// it was after its call had been sent. If that is the known version, it may prove the holder dead;
// otherwise it proves nothing.
func TestOvertakenReplyProvesWhatItShows(t *testing.T) {
	const s = time.Second
	asked := beats("b1")
	asked.Version = "q"
	for name, tt := range map[string]struct {
		rec  driver.Record
		dead bool
	}{"what is known": {beats("b1"), true}, "another version": {asked, false}} {
		v := NewView(timing, middle())
		v.Observe(-1, 0, driver.Strong, beats("b1"), true)
		v.Observe(19*s, 22*s, driver.Strong, beats("b1"), true)
		if v.Observe(21*s, 23*s, driver.Strong, tt.rec, true); v.Dead() != tt.dead {
			t.Errorf("%s: dead %v, want %v", name, v.Dead(), tt.dead)
		}
	}
}

// TestEachReadsAtTheEndOfALease: each waiting machine reads when the sign of life has been
// unchanged for the lease, even if another machine of the process has just sent a read, because
// that reply may not reach it.
func TestEachReadsAtTheEndOfALease(t *testing.T) {
	const s = time.Second
	v := NewView(timing, middle())
	v.Polls(0, driver.Strong)
	v.Observe(0, 0, driver.Strong, beats("b1"), true)
	v.Polls(20*s, driver.Strong) // by another
	if next := v.NextPoll(s, 20*s); next != 20*s {
		t.Errorf("the next poll is due at %v", next)
	}
	v.Observe(20*s, 20*s, driver.Strong, beats("b1"), true)
	if next := v.NextPoll(s, 20*s); next != 21*s {
		t.Errorf("when that is answered, it is due at %v", next)
	}
}

// TestObserversShareTheFirstLookAtASession: while one observer reads a session for the first time,
// the others of the process do not. If that read fails, another one follows.
func TestObserversShareTheFirstLookAtASession(t *testing.T) {
	for _, fails := range []bool{false, true} {
		env, _ := seeing(timing)
		var all []*Observer
		for _, key := range []string{"a", "b"} {
			lock := under(timing, "s", "v", 7)
			lock.Key = key
			o := NewObserver(timing, env, key, NewView(timing, env))
			o.Want(true)
			o.Step(0)
			r := o.Reply(0, found(lock)).Call
			if looks := r != nil && looksAt(r); looks != (key == "a") {
				t.Fatalf("the observer of %q sends %+v", key, r)
			}
			all = append(all, o)
		}
		r := found(alive(timing, "s", "b"))
		if fails {
			r = Result{Outcome: NotApplied, Err: errStore}
		}
		all[0].Reply(1, r)
		if r := all[1].Step(1).Call; (r != nil && looksAt(r)) != fails {
			t.Errorf("the first read fails: %v; the other observer sends %+v", fails, r)
		}
	}
}
