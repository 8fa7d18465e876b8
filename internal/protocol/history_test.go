// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

var sunday = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// past is an ended term under a token.
func past(token uint64) driver.Term {
	return driver.Term{
		Owner: "a", Token: token, Host: "h", Label: "l", Since: sunday, Until: sunday.Add(time.Hour), End: driver.EndSteppedDown,
		Asked: &driver.Request{ID: "q", By: "boss", Reason: "deploy"},
	}
}

// writingHistory returns a history writer that has sent its entry at 0.
func writingHistory(t *testing.T, token, limit uint64) (*HistoryWriter, *Call) {
	t.Helper()
	c := NewHistoryWriter(Timing{}.WithDefaults(), counting(), "x", past(token), limit)
	r := c.Step(0).Call
	if r == nil || r.Kind != HistoryPut || r.Key != HistoryKey("x", token) || r.Next.Key != r.Key {
		t.Fatalf("begins with %+v", r)
	}
	if !c.Awaited() || c.Over() {
		t.Fatalf("awaited %v, over %v", c.Awaited(), c.Over())
	}
	return c, r
}

func entered(r *Call) Result { return Result{Outcome: Applied, Record: r.Next, Found: true} }

func unanswered() Result { return Result{Outcome: Unknown, Err: errStore} }

// ended fails the test if the history writer goes on.
func ended(t *testing.T, c *HistoryWriter, written bool) {
	t.Helper()
	if _, due := c.Next(); due || !c.Over() || c.Awaited() || c.Written() != written || c.Step(time.Hour).Call != nil {
		t.Errorf("over %v, awaited %v, written %v; due %v", c.Over(), c.Awaited(), c.Written(), due)
	}
}

// TestEntry: what a history entry is like. It has a version of its own, so that a
// delete that comes late removes it alone.
func TestEntry(t *testing.T) {
	c, r := writingHistory(t, 3, 100)
	want := past(3)
	switch got := r.Next; {
	case got.Term(got.End).Owner != want.Owner, got.Host != want.Host, got.Label != want.Label, got.End != want.End,
		!got.Since.Equal(want.Since), !got.Until.Equal(want.Until), *got.Asked != *want.Asked:
		t.Errorf("writes %+v of %+v", got, want)
	case got.State != driver.Past || got.Lease != c.t.Lease || got.Version == "" || got.Beat != got.Version:
		t.Errorf("writes %+v", got)
	}
	c.Reply(1, entered(r))
	ended(t, c, true)
	env := counting()
	if one, two := NewHistoryWriter(c.t, env, "x", past(1), 9), NewHistoryWriter(c.t, env, "x", past(1), 9); one.entry.Version == two.entry.Version {
		t.Error("two entries have one version")
	}
}

// TestEntryIsTriedAgain: what is not known to be written is written again, after a
// pause and as the same entry, for a few leases and no longer.
func TestEntryIsTriedAgain(t *testing.T) {
	for _, res := range []Result{unanswered(), {Outcome: NotApplied, Err: errStore}} {
		c, first := writingHistory(t, 1, 100)
		now, tries := time.Duration(0), 0
		for ; now < entryLeases*c.t.Lease; tries++ {
			if a := c.Reply(now, res); a.Call != nil || c.Over() || c.Written() {
				t.Fatalf("try %d: sends %+v, over %v, written %v", tries, a.Call, c.Over(), c.Written())
			}
			again := c.retry
			if pause := again - now; pause <= 0 || pause > c.t.Lease/10 || c.Step(again-1).Call != nil {
				t.Fatalf("try %d: after a pause of %v", tries, pause)
			}
			now = again
			r := c.Step(now).Call
			if r == nil || r.Kind != HistoryPut || r.Next.Version != first.Next.Version {
				t.Fatalf("try %d: sends %+v", tries, r)
			}
		}
		if c.Reply(now, res); !errors.Is(c.Err(), errStore) {
			t.Errorf("error %v", c.Err())
		}
		ended(t, c, false)
		if tries < 20 || tries > 80 {
			t.Errorf("given up after %d tries in %v", tries, now)
		}
	}
}

// TestEntryIsFoundWritten: a try whose answer was lost had been applied.
func TestEntryIsFoundWritten(t *testing.T) {
	c, r := writingHistory(t, 1, 100)
	c.Reply(0, unanswered())
	c.Step(c.t.Lease / 10)
	c.Reply(c.t.Lease/10, Result{Outcome: Conflicted, Record: r.Next, Found: true})
	ended(t, c, true)
}

// TestEntryIsRefusedForGood: a permanent refusal is not retried. The work waits for its
// time all the same.
func TestEntryIsRefusedForGood(t *testing.T) {
	for _, err := range []error{driver.Permanent(errStore), driver.ErrClosed} {
		c, _ := writingHistory(t, 1, 100)
		if a := c.Reply(1, Result{Outcome: NotApplied, Err: err}); a.Call != nil || !errors.Is(c.Err(), err) {
			t.Errorf("sends %+v, error %v", a.Call, c.Err())
		}
		if at, due := c.Next(); !due || at != c.t.RequestTimeout || !c.Awaited() {
			t.Errorf("next at %v, %v; awaited %v", at, due, c.Awaited())
		}
		c.Step(c.t.RequestTimeout)
		ended(t, c, false)
	}
}

// TestWorkWaitsForOneTimeout, and not longer; the entry is written beside it.
func TestWorkWaitsForOneTimeout(t *testing.T) {
	c, r := writingHistory(t, 1, 100)
	most := c.t.RequestTimeout
	if at, due := c.Next(); !due || at != most {
		t.Errorf("next at %v, %v, with a request under way", at, due)
	}
	if c.Step(most - 1); !c.Awaited() {
		t.Error("the work begins too early")
	}
	if c.Step(most); c.Awaited() || c.Over() {
		t.Errorf("awaited %v, over %v", c.Awaited(), c.Over())
	}
	if _, due := c.Next(); due {
		t.Error("something is due before the answer")
	}
	c.Reply(most+1, unanswered())
	if a := c.Step(most + 1 + c.t.Lease/10); a.Call == nil || c.Awaited() {
		t.Errorf("sends %+v, awaited %v", a.Call, c.Awaited())
	}
	c.Reply(c.t.Lease, entered(r))
	ended(t, c, true)
}

// TestEntryIsWrittenThoughNobodyWaits: giving up ends the waiting only.
func TestEntryIsWrittenThoughNobodyWaits(t *testing.T) {
	c := NewHistoryWriter(Timing{}.WithDefaults(), counting(), "x", past(1), 100)
	r := c.GiveUp(0).Call
	if r == nil || c.Awaited() || c.Over() {
		t.Fatalf("sends %+v, awaited %v, over %v", r, c.Awaited(), c.Over())
	}
	c.Reply(0, unanswered())
	if a := c.GiveUp(0); a.Call != nil {
		t.Errorf("sends %+v before its time", a.Call)
	}
	if at, due := c.Next(); !due || at <= 0 || at > c.t.Lease/10 {
		t.Errorf("next at %v, %v", at, due)
	}
	r = c.Step(c.t.Lease / 10).Call
	c.Reply(c.t.Lease/10, entered(r))
	ended(t, c, true)
}

// TestEntryOfAnotherTenureIsReplaced: the lock's record was deleted, and its tokens
// have restarted.
func TestEntryOfAnotherTenureIsReplaced(t *testing.T) {
	for what, change := range map[string]func(*driver.Record){
		"owner": func(rec *driver.Record) { rec.Owner = "b" },
		"since": func(rec *driver.Record) { rec.Since = sunday.Add(-time.Hour) },
	} {
		for _, erased := range []Result{{Outcome: Applied}, {Outcome: Conflicted}, unanswered(), {Outcome: NotApplied, Err: errStore}} {
			c, r := writingHistory(t, 1, 100)
			old := r.Next
			old.Version = "old"
			change(&old)
			a := c.Reply(0, Result{Outcome: Conflicted, Record: old, Found: true})
			if a.Call == nil || a.Call.Kind != Delete || a.Call.Key != r.Key || a.Call.Prev.Version != "old" || c.Written() {
				t.Fatalf("another %s: sends %+v", what, a.Call)
			}
			if a = c.Reply(0, erased); erased.Outcome != Applied { // then there is a pause
				at, _ := c.Next()
				a = c.Step(at)
			}
			if a.Call == nil || a.Call.Kind != HistoryPut || a.Call.Next.Version != r.Next.Version {
				t.Fatalf("another %s: then sends %+v", what, a.Call)
			}
			c.Reply(0, entered(r))
			ended(t, c, true)
		}
	}
}

// TestReplacingIsBounded: an entry that keeps coming back stays in the end.
func TestReplacingIsBounded(t *testing.T) {
	c, r := writingHistory(t, 1, 100)
	old := r.Next
	old.Owner = "b"
	sent := 1
	for r := r; r != nil; sent++ {
		res := Result{Outcome: Applied}
		if r.Kind == HistoryPut {
			res = Result{Outcome: Conflicted, Record: old, Found: true}
		}
		r = c.Reply(0, res).Call
	}
	if sent != 2*maxErased+2 {
		t.Errorf("%d requests", sent)
	}
	ended(t, c, true)
}

// TestHistoryIsTrimmed: each new entry removes the oldest one beyond the limit, after a
// eventual read, if there is one.
func TestHistoryIsTrimmed(t *testing.T) {
	c, r := writingHistory(t, 5, 5)
	c.Reply(0, entered(r))
	ended(t, c, true)

	stands := driver.Record{Key: HistoryKey("x", 2), Version: "old", State: driver.Past}
	another := stands
	another.State = driver.Held
	for name, tt := range map[string]struct {
		look  Result
		erase bool
	}{
		"it stands":    {Result{Outcome: Applied, Record: stands, Found: true}, true},
		"it is gone":   {Result{Outcome: Applied}, false},
		"another":      {Result{Outcome: Applied, Record: another, Found: true}, false},
		"no answer":    {Result{Outcome: NotApplied, Err: errStore}, false},
		"unreadable":   {Result{Outcome: NotApplied, Err: driver.ErrUnreadable}, false},
		"no right to":  {Result{Outcome: NotApplied, Err: driver.Permanent(errStore)}, false},
		"it is closed": {Result{Outcome: NotApplied, Err: driver.ErrClosed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := writingHistory(t, 7, 5)
			a := c.Reply(0, entered(r))
			if a.Call == nil || a.Call.Kind != Read || a.Call.Key != stands.Key || a.Call.Consistency != driver.Eventual {
				t.Fatalf("sends %+v", a.Call)
			}
			if c.Awaited() || !c.Written() || c.Over() {
				t.Errorf("awaited %v, written %v, over %v", c.Awaited(), c.Written(), c.Over())
			}
			a = c.Reply(0, tt.look)
			if !tt.erase {
				ended(t, c, true)
				return
			}
			if a.Call == nil || a.Call.Kind != Delete || a.Call.Key != stands.Key || a.Call.Prev.Version != "old" {
				t.Fatalf("sends %+v", a.Call)
			}
			c.Reply(0, unanswered()) // then it stays, and is not shown
			ended(t, c, true)
		})
	}
}

// TestErasedHasNoRecord: the answer to a delete shows nothing.
func TestErasedHasNoRecord(t *testing.T) {
	if r := ResultOf(Delete, driver.Record{}, driver.Record{}, nil); r.Outcome != Applied || r.Found {
		t.Errorf("%+v", r)
	}
}

// TestHistoryWriters: whatever becomes of its requests, a history writer comes to its end
// within a bounded number of them; the work waits for one request timeout at most,
// and not for less unless the term is written; what it says is written was, and
// nothing is deleted but what is in its place and another's, or what is too old.
func TestHistoryWriters(t *testing.T) {
	const limit = 3
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		fresh := 0
		env := Env{
			Fresh:  func() string { fresh++; return fmt.Sprintf("v%d", fresh) },
			Random: func() float64 { return 0.5 },
		}
		token := 1 + random.Uint64N(6)
		past := driver.Term{Owner: "a", Token: token, Since: time.Unix(7, 0), End: driver.EndReleased}
		own, old := HistoryKey("x", token), HistoryKey("x", token-limit)
		store := map[string]driver.Record{}
		put := func(key, owner string) {
			store[key] = driver.Record{Key: key, Version: env.Fresh(), Owner: owner, State: driver.Past, Since: past.Since}
		}
		if random.IntN(2) == 0 {
			put(own, []string{"a", "b"}[random.IntN(2)])
		}
		put(old, "b")
		c := NewHistoryWriter(timing, env, "x", past, limit)
		apply := func(r *Call) Result {
			rec, found := store[r.Key]
			switch {
			case r.Kind == Read:
				return Result{Outcome: Applied, Record: rec, Found: found}
			case r.Kind == HistoryPut && !found:
				store[r.Key] = r.Next
				return Result{Outcome: Applied, Record: r.Next, Found: true}
			case r.Kind == Delete && (!found || rec.Version == r.Prev.Version):
				if found && !(r.Key == own && rec.Owner == "b") && !(r.Key == old && token > limit && c.Written()) {
					t.Fatalf("deletes %+v", rec)
				}
				delete(store, r.Key)
				return Result{Outcome: Applied}
			}
			return Result{Outcome: Conflicted, Record: rec, Found: found}
		}
		var late []*Call
		sent, wrote := 0, false
		now := time.Duration(0)
		for a := c.Step(now); !c.Over(); {
			if sent > 60 || now > 20*timing.Lease {
				t.Fatalf("%d requests in %v", sent, now)
			}
			if waits := !c.Written() && now < timing.RequestTimeout; c.Awaited() != waits {
				t.Fatalf("at %v: awaited %v, written %v", now, c.Awaited(), c.Written())
			}
			r := a.Call
			if r == nil {
				at, due := c.Next()
				if !due || at < now {
					t.Fatalf("at %v: next %v, %v", now, at, due)
				}
				now = at
				a = c.Step(now)
				continue
			}
			sent++
			if len(late) > 0 && random.IntN(2) == 0 {
				apply(late[0])
				late = late[1:]
			}
			res := Result{Outcome: Unknown, Err: errors.New("no answer")}
			switch fate := random.IntN(6); {
			case fate == 0 && r.Kind != Read:
				late = append(late, r)
			case fate == 1:
				apply(r)
			case fate == 2:
				res.Outcome = NotApplied
			case fate == 3 && r.Kind == HistoryPut && random.IntN(10) == 0:
				res = Result{Outcome: NotApplied, Err: driver.Permanent(errors.New("no right to"))}
			default:
				res = apply(r)
			}
			if r.Kind == Read && res.Outcome == Unknown {
				res.Outcome = NotApplied
			}
			now += []time.Duration{0, time.Millisecond, timing.RequestTimeout / 2}[random.IntN(3)]
			if c.Step(now).Call != nil {
				t.Fatal("two requests under way")
			}
			a = c.Reply(now, res)
			rec := store[own]
			if wrote = wrote || rec.Owner == past.Owner && rec.State == driver.Past; c.Written() && !wrote && sent <= 20 { // beyond that, what cannot be replaced stays
				t.Fatalf("says that it is written; there stands %+v", rec)
			}
		}
		if c.Written() == (c.Err() != nil) {
			t.Fatalf("written %v, error %v", c.Written(), c.Err())
		}
	}
}
