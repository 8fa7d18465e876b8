// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
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

// looked returns a requester that has read rec and has its first write under way, if it
// writes at once.
func looked(t Timing, want driver.Request, rec driver.Record) (*Requester, *View, *Call) {
	view := NewView(t, middle())
	k := NewRequester(t, middle(), "k", want, 0, view)
	k.Step(0)
	return k, view, k.Reply(0, found(rec)).Call
}

// TestRequestForOneTerm: a request that was decided on one term is not sent to another one,
// with or without a session.
func TestRequestForOneTerm(t *testing.T) {
	for _, session := range []string{"", "s"} {
		held := theirs(timing, "v1", 2)
		held.Session = session
		env, _ := seeing(timing)
		view := NewView(timing, env)
		k := NewRequester(timing, env, "k", driver.Request{Kind: driver.HandOver, To: "us", Token: 1}, 0, view)
		k.Step(0)
		r := k.Reply(0, found(held)).Call
		if answer, _, _ := k.Answer(); answer != HolderChanged || r != nil {
			t.Errorf("session %q: answered %v, sends %+v", session, answer, r)
		}
	}
}

// TestRequesterJudgesWhatItActsOn: the view is shared, so that other machines of the
// process may have read more since the requester's last reply. It must not replace a
// record that it would not have acted on after its own read.
func TestRequesterJudgesWhatItActsOn(t *testing.T) {
	held := theirs(timing, "v1", 1)
	released := freed(held, "v2", driver.EndReleased, nil)
	kept := reserved(held, "v2", reservation{owner: "x"}, time.Second, driver.EndHandedOver, nil)
	next := theirs(timing, "v3", 2)
	for _, want := range []driver.RequestKind{driver.StepDown, driver.HandOver, driver.Revoke} {
		for name, now := range map[string]driver.Record{"released": released, "reserved": kept, "another term": next} {
			if want == driver.Revoke && name == "reserved" {
				continue // what it waits for is the same
			}
			t.Run(string(want)+" of "+name, func(t *testing.T) {
				k, view, r := looked(timing, driver.Request{Kind: want, By: "op", To: "x"}, held)
				if r == nil || r.Kind == Read {
					t.Fatalf("want a write, got %+v", r)
				}
				k.Reply(time.Second, Result{Outcome: NotApplied, Err: errStore})
				view.Observe(time.Second, time.Second, driver.Strong, now, true) // by a contender
				if a := k.Step(2 * time.Second); a.Call != nil && a.Call.Kind != Read {
					t.Errorf("%v from %+v", a.Call.Kind, a.Call.Prev)
				}
			})
		}
	}
	t.Run("free of a released record", func(t *testing.T) {
		k, view, _ := looked(timing, driver.Request{Kind: driver.ReleaseDead, By: "op"}, held)
		view.Observe(time.Second, time.Second, driver.Strong, released, true)
		if a := k.Step(2 * time.Second); a.Call != nil && a.Call.Kind != Read {
			t.Errorf("%v from %+v", a.Call.Kind, a.Call.Prev)
		}
	})
	t.Run("free of another term", func(t *testing.T) {
		k, view, _ := looked(timing, driver.Request{Kind: driver.ReleaseDead, By: "op"}, held)
		view.Observe(time.Second, time.Second, driver.Strong, next, true)
		now := time.Second
		for range 100 {
			if at, ok := k.Next(); ok && at > now {
				now = at
			}
			a := k.Step(now)
			if a.Call == nil {
				continue
			}
			if a.Call.Kind != Read {
				t.Fatalf("%v from %+v", a.Call.Kind, a.Call.Prev)
			}
			break // looks at last, and will find it alive
		}
	})
}

// TestUnknownFreeIsKnownByItsTrace: an operator's write of unknown outcome was applied,
// and another process has claimed the lock since. The record shows the request as the
// end of the previous term.
func TestUnknownFreeIsKnownByItsTrace(t *testing.T) {
	for _, want := range []driver.RequestKind{driver.ReleaseDead, driver.Revoke} {
		t.Run(string(want), func(t *testing.T) {
			k, _, r := looked(timing, driver.Request{Kind: want, By: "op"}, theirs(timing, "v1", 1))
			now := time.Duration(0)
			for r == nil || r.Kind == Read {
				if r != nil {
					r = k.Reply(now, found(theirs(timing, "v1", 1))).Call
					continue
				}
				now, _ = k.Next()
				r = k.Step(now).Call
			}
			applied := r.Next
			k.Reply(now, Result{Outcome: Unknown, Err: errStore})
			now, _ = k.Next()
			k.Step(now)
			claimed := theirs(timing, "v9", 2)
			claimed.Prev = applied.Term(driver.EndExpired)
			k.Reply(now, found(claimed))
			if a, _, _ := k.Answer(); a != Done {
				t.Errorf("answer %d, want Done: the record says that this request ended the term", a)
			}
		})
	}
}

// abandoned returns a contender that was given up with its claim v under way, whose
// reply is lost, and that has read now since.
func abandoned(t *testing.T, timing Timing, now func(claimed driver.Record) driver.Record) (*Acquirer, *Call) {
	c := NewAcquirer(timing, middle(), Want{Key: "k", Owner: "us"}, NewView(timing, middle()))
	claim := c.Step(0).Call
	claimed := driver.Claimed(claim.Next, driver.Record{}, false)
	c.GiveUp(0)
	c.Reply(time.Second, Result{Outcome: Unknown, Err: errStore})
	at, _ := c.Next()
	if r := c.Step(at).Call; r == nil || r.Kind != Read {
		t.Fatalf("want a read, got %+v", r)
	}
	r := c.Reply(at, found(now(claimed))).Call
	if r == nil || r.Kind != Release {
		t.Fatalf("want a release, got %+v", r)
	}
	return c, r
}

// TestAbandonedUnderARequest: a request that is written into the record while an
// acquire cleans up must not leave the lock held by nobody.
func TestAbandonedUnderARequest(t *testing.T) {
	q := driver.Request{ID: "q", Kind: driver.StepDown, By: "op"}
	t.Run("written before the read", func(t *testing.T) {
		c, r := abandoned(t, timing, func(claimed driver.Record) driver.Record { return asking(claimed, "q1", q) })
		c.Reply(2*time.Second, found(r.Next))
		if !c.Over() {
			t.Error("not over although what it wrote is released")
		}
	})
	t.Run("written before the release", func(t *testing.T) {
		c, r := abandoned(t, timing, func(claimed driver.Record) driver.Record { return claimed })
		a := c.Reply(2*time.Second, conflict(asking(r.Prev, "q1", q)))
		for now := 2 * time.Second; a.Call == nil && !c.Over() && now < timing.Lease; now += time.Second {
			a = c.Step(now)
		}
		if a.Call == nil || a.Call.Kind != Release && a.Call.Kind != Read {
			t.Errorf("the record stays held by nobody: next %+v, over %v", a.Call, c.Over())
		}
	})
	t.Run("applied, written before the release", func(t *testing.T) {
		c := NewAcquirer(timing, middle(), Want{Key: "k", Owner: "us"}, NewView(timing, middle()))
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
// heartbeat has not asked, so that it need not wait for a lease.
func TestWishIsNotSpentOnAConflict(t *testing.T) {
	c := waiting(timing, Want{Priority: 1})
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
		if a.Call.Kind != Request {
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
	held := theirs(timing, "v1", 1)
	for to, want := range map[reservation]Answer{{owner: "x"}: HolderChanged, {label: "v2"}: HolderChanged, {}: Done} {
		k, _, r := looked(timing, driver.Request{Kind: driver.Revoke, By: "op"}, held)
		if r == nil || r.Kind != ForceRelease {
			t.Fatalf("want a write, got %+v", r)
		}
		kept := reserved(held, "v2", to, time.Second, driver.EndHandedOver, nil)
		r = k.Reply(time.Second, Result{Outcome: Conflicted, Record: kept, Found: true}).Call
		if k.Revoked() != (want == Done) {
			t.Errorf("reserved for %+v: revoked is %v", to, k.Revoked())
		}
		if r == nil || r.Kind != Read {
			t.Fatalf("want a read, got %+v", r)
		}
		k.Reply(2*time.Second, found(theirs(timing, "v3", 2)))
		if answer, _, _ := k.Answer(); answer != want {
			t.Errorf("reserved for %+v: answer %d, want %d", to, answer, want)
		}
	}
}

// TestRequesterAnswers: what a requester answers after its first read, where it must
// never write.
func TestRequesterAnswers(t *testing.T) {
	held := theirs(timing, "v1", 3)
	foreign, unreadable, self := held, held, held
	foreign.Beat = ""
	unreadable.Lease = 0
	self.Owner = "x"
	asked := asking(held, "v2", driver.Request{ID: "q", Kind: driver.StepDown, By: "other"})
	released := freed(held, "v2", driver.EndReleased, nil)
	kept := reserved(held, "v2", reservation{owner: "x"}, time.Second, driver.EndHandedOver, nil)
	for _, tt := range []struct {
		name string
		kind driver.RequestKind
		rec  driver.Record
		want Answer
	}{
		{"step-down of a foreign holder", driver.StepDown, foreign, Foreign},
		{"hand-over by a foreign holder", driver.HandOver, foreign, Foreign},
		{"revoke of a foreign holder", driver.Revoke, foreign, Foreign},
		{"step-down of what makes no sense", driver.StepDown, unreadable, Unusable},
		{"free of what makes no sense", driver.ReleaseDead, unreadable, Unusable},
		{"hand-over to the holder", driver.HandOver, self, Self},
		{"second step-down", driver.StepDown, asked, OtherPending},
		{"second hand-over", driver.HandOver, asked, OtherPending},
		{"step-down of a released lock", driver.StepDown, released, NoHolder},
		{"free of a released lock", driver.ReleaseDead, released, NoHolder},
		{"revoke of a released lock", driver.Revoke, released, NoHolder},
		{"step-down of a reservation", driver.StepDown, kept, NoHolder},
		{"hand-over of a reservation", driver.HandOver, kept, NoHolder},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := looked(timing, driver.Request{Kind: tt.kind, By: "op", To: "x"}, tt.rec)
			if a, _, _ := k.Answer(); a != tt.want {
				t.Errorf("answer %d, want %d", a, tt.want)
			}
			if r != nil || !k.Over() {
				t.Errorf("sends %+v, over %v", r, k.Over())
			}
		})
	}
	t.Run("no record", func(t *testing.T) {
		k := NewRequester(timing, middle(), "k", driver.Request{Kind: driver.Revoke}, 0, NewView(timing, middle()))
		k.Step(0)
		k.Reply(0, Result{Outcome: Applied})
		if a, _, _ := k.Answer(); a != NoHolder {
			t.Errorf("answer %d, want Nobody", a)
		}
	})
	t.Run("a store that is mute", func(t *testing.T) {
		k := NewRequester(timing, middle(), "k", driver.Request{Kind: driver.StepDown}, time.Second, NewView(timing, middle()))
		now := time.Duration(0)
		for k.Step(now); !k.Over() && now < timing.Lease; k.Step(now) {
			k.Reply(now, Result{Outcome: NotApplied, Err: errStore})
			if at, ok := k.Next(); ok {
				now = at
			}
		}
		if a, _, err := k.Answer(); a != Unusable || !errors.Is(err, errStore) || now < time.Second {
			t.Errorf("answer %d with %v at %v", a, err, now)
		}
	})
}

// TestRequestOfALaterVersion: a request kind that this version does not know stays in
// the record, and ends nothing.
func TestRequestOfALaterVersion(t *testing.T) {
	h := holding(Timing{}.WithDefaults())
	h.Step(0)
	at, _ := h.Next()
	r := h.Step(at).Call
	a := h.Reply(at, conflict(asking(r.Prev, "q1", driver.Request{ID: "q", Kind: "dance"})))
	if h.Cause() != None || h.Asked() != nil {
		t.Errorf("ended as %v, asked %+v", h.Cause(), h.Asked())
	}
	if a.Call == nil || a.Call.Kind != Heartbeat || len(a.Call.Next.Requests) != 1 {
		t.Errorf("want a heartbeat that keeps the request, got %+v", a.Call)
	}
}

// TestSomebodyWhoDoesNotStop: a process that writes the record of a living holder again
// and again slows the holder down, and in the end costs it the lease; it never prolongs
// the lease.
func TestSomebodyWhoDoesNotStop(t *testing.T) {
	h := holding(timing)
	h.Step(0)
	end, beats := h.Deadline(), 0
	for now := time.Duration(0); now < end; {
		at, ok := h.Next()
		if !ok {
			t.Fatal("nothing more to do")
		}
		now = max(now, at)
		r := h.Step(now).Call
		for r != nil && now < end {
			beats++
			now += time.Millisecond
			other := r.Prev.Clone()
			other.Version = r.Next.Version + "x"
			r = h.Reply(now, conflict(other)).Call
		}
	}
	if h.Deadline() != end || h.Cause() == Superseded {
		t.Errorf("deadline %v, want %v; ended as %v", h.Deadline(), end, h.Cause())
	}
	if beats > 60 {
		t.Errorf("%d attempts in %v", beats, end)
	}
}

// TestStamp: the wall clock's time is written where people look for it, and
// nowhere else.
func TestStamp(t *testing.T) {
	timing, now := Timing{}.WithDefaults(), time.Unix(1000, 0)
	held := theirs(timing, "v1", 1)
	q := driver.Request{ID: "q", Kind: driver.Revoke}
	old := q
	old.At = time.Unix(1, 0)
	for _, tt := range []struct {
		name               string
		r                  Call
		since, until       bool
		asked, prev, prevQ bool // times of the request, of the former term's end, of its request
	}{
		{"claim", Call{Kind: Claim, Next: held}, true, false, false, false, false},
		{"heartbeat", Call{Kind: Heartbeat, Next: held}, false, false, false, false, false},
		{"release", Call{Kind: Release, Next: freed(held, "v2", driver.EndReleased, nil)}, false, true, false, false, false},
		{"hand-over", Call{Kind: Release, Next: reserved(held, "v2", reservation{owner: "x"}, time.Second, driver.EndHandedOver, &old)}, true, false, false, true, false},
		{"ask", Call{Kind: Request, Next: asking(held, "v2", q)}, false, false, true, false, false},
		{"free", Call{Kind: ForceRelease, Next: freed(held, "v2", driver.EndReleasedDead, &q)}, false, false, true, false, false},
		{"revoke", Call{Kind: ForceRelease, Next: reserved(held, "v2", reservation{}, time.Second, driver.EndRevoked, &q)}, true, false, false, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q.At = time.Time{}
			tt.r.Stamp(now)
			next := tt.r.Next
			asked := next.Asked
			if len(next.Requests) > 0 {
				asked = &next.Requests[0]
			}
			got := [5]bool{next.Since.Equal(now), next.Until.Equal(now), asked != nil && asked.At.Equal(now)}
			if p := next.Prev; p != nil {
				got[3], got[4] = p.Until.Equal(now), p.Asked != nil && p.Asked.At.Equal(now)
			}
			if want := [5]bool{tt.since, tt.until, tt.asked, tt.prev, tt.prevQ}; got != want {
				t.Errorf("stamped: since, until, asked, before until, before asked: %v, want %v", got, want)
			}
		})
	}
}

// askedUnderSession returns a requester that has read the lock under a session, and
// then the session by a strong read: its record, or its absence.
func askedUnderSession(t *testing.T, timing Timing, want driver.Request, session driver.Record) (*Requester, Env, *Call) {
	t.Helper()
	env, _ := seeing(timing)
	k := NewRequester(timing, env, "k", want, 5*time.Second, NewView(timing, env))
	k.Step(0)
	r := k.Reply(0, found(under(timing, "s", "v", 7))).Call
	if r == nil || !looksAt(r) || r.Consistency != driver.Strong || r.Key != driver.SessionKey("s") {
		t.Fatalf("want a strong read of the session, got %+v", r)
	}
	return k, env, k.Reply(0, Result{Outcome: Applied, Record: session, Found: session.Key != ""}).Call
}

// TestRequesterUnderSessionAnswers: what a requester answers when it has read the session.
func TestRequesterUnderSessionAnswers(t *testing.T) {
	lives := alive(timing, "s", "b")
	over := closed(lives, "c", driver.EndReleased)
	expired := closed(lives, "c", driver.EndExpired)
	fallen := closed(lives, "c", driver.EndCrashed)
	nonsense := lives
	nonsense.Lease = 0
	with := func(qs ...driver.Request) driver.Record {
		rec := lives
		rec.Requests = qs
		return rec
	}
	q := driver.Request{ID: "q", Kind: driver.HandOver, Lock: "k", Token: 7, By: "first"}
	former, other, question := q, q, q
	former.Token, other.Lock, question.Kind = 6, "k2", driver.Confirm
	for _, tt := range []struct {
		name    string
		kind    driver.RequestKind
		session driver.Record
		want    Answer
		next    Kind // 0 for none
	}{
		{"step-down", driver.StepDown, lives, NoAnswer, Request},
		{"step-down of a closed session's", driver.StepDown, over, NoHolder, 0},
		{"step-down of a dead session's", driver.StepDown, expired, NoHolder, 0},
		{"step-down where there is no session", driver.StepDown, driver.Record{}, NoHolder, 0},
		{"hand-over", driver.HandOver, lives, NoAnswer, Request},
		{"second request", driver.StepDown, with(other, q), OtherPending, 0},
		{"the former term was asked", driver.StepDown, with(former), NoAnswer, Request},
		{"another lock was asked for", driver.StepDown, with(other), NoAnswer, Request},
		{"the session was asked whether it holds it", driver.StepDown, with(question), NoAnswer, Request},
		{"what makes no sense", driver.StepDown, nonsense, Unusable, 0},
		{"revoke of a living session's", driver.Revoke, lives, UnderSession, 0},
		{"revoke of a dead session's", driver.Revoke, expired, NoAnswer, ForceRelease},
		{"free of a dead session's", driver.ReleaseDead, expired, NoAnswer, ForceRelease},
		{"free where there is no session", driver.ReleaseDead, driver.Record{}, NoAnswer, ForceRelease},
		{"free of a closed session's", driver.ReleaseDead, over, NoHolder, 0},
		{"free of a crashed session's", driver.ReleaseDead, fallen, NoAnswer, ForceRelease},
		{"step-down of a crashed session's", driver.StepDown, fallen, NoHolder, 0},
		{"free of a living session's", driver.ReleaseDead, lives, NoAnswer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := askedUnderSession(t, timing, driver.Request{Kind: tt.kind, By: "op", To: "x"}, tt.session)
			a, rec, _ := k.Answer()
			if a != tt.want || k.Over() != (a != NoAnswer) || k.Token() != 7 {
				t.Errorf("answer %d, over %v, token %d; want %d", a, k.Over(), k.Token(), tt.want)
			}
			if a == OtherPending && (len(rec.Requests) != 1 || rec.Requests[0].By != "first" || rec.Key != "k") {
				t.Errorf("pending: %+v", rec)
			}
			if (r != nil) != (tt.next != 0) || r != nil && r.Kind != tt.next {
				t.Fatalf("sends %+v, want %v", r, tt.next)
			}
			if r == nil {
				return
			}
			if r.Kind == ForceRelease {
				if r.Key != "k" || r.Next.State != driver.Released || r.Next.Session != "" || r.Next.End != driver.EndReleasedDead || r.Next.Asked.By != "op" {
					t.Errorf("frees with %+v", r.Next)
				}
				k.Reply(0, found(r.Next))
				if a, _, _ := k.Answer(); a != Done {
					t.Errorf("freed, and answered %d", a)
				}
				return
			}
			asked := r.Next.Requests[len(r.Next.Requests)-1]
			if r.Key != lives.Key || r.Next.Beat != lives.Beat || asked.Lock != "k" || asked.Token != 7 || asked.By != "op" {
				t.Errorf("asks with %+v", r.Next)
			}
			k.Reply(0, found(r.Next))
			if a, _, _ := k.Answer(); a != Delivered {
				t.Errorf("asked, and answered %d", a)
			}
		})
	}
}

// TestAskedTheHolderItself: a request to hand over to the holder itself is refused.
func TestAskedTheHolderItself(t *testing.T) {
	k, _, r := askedUnderSession(t, timing, driver.Request{Kind: driver.HandOver, By: "op", To: "us"}, alive(timing, "s", "b"))
	if a, _, _ := k.Answer(); a != Self || r != nil {
		t.Errorf("answer %d, sends %+v", a, r)
	}
}

// TestAskingASessionThatChanges: a conflict shows the current record, and that decides.
func TestAskingASessionThatChanges(t *testing.T) {
	lives := alive(timing, "s", "b")
	later := alive(timing, "s", "b2")
	q := driver.Request{Kind: driver.StepDown, By: "op"}

	k, _, _ := askedUnderSession(t, timing, q, lives)
	r := k.Reply(0, conflict(later)).Call
	if r == nil || r.Kind != Request || r.Prev.Version != "b2" {
		t.Errorf("after a heartbeat: %+v", r)
	}
	k, _, r = askedUnderSession(t, timing, q, lives)
	if k.Reply(0, conflict(closed(later, "c", driver.EndReleased))); r.Kind != Request || k.answer != NoHolder {
		t.Errorf("after it was closed: answer %d", k.answer)
	}
	// Another machine of this process has read more.
	k, env, r := askedUnderSession(t, timing, q, lives)
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	env.Session("s").Observe(1, 1, driver.Strong, closed(later, "c", driver.EndReleased), true)
	if a := k.Step(time.Second); a.Call != nil || k.answer != NoHolder || r.Kind != Request {
		t.Errorf("sends %+v, answer %d", a.Call, k.answer)
	}
	k, _, _ = askedUnderSession(t, timing, q, lives)
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	k.view.Observe(1, 1, driver.Strong, theirs(timing, "v9", 8), true)
	if r := k.Step(time.Second).Call; r == nil || r.Kind != Read {
		t.Errorf("asks for a term that is over: %+v", r)
	}
}

// TestAskingForAKeyThatWasDeleted: its tokens restart, so that the same token is of
// another term.
func TestAskingForAKeyThatWasDeleted(t *testing.T) {
	k, _, _ := askedUnderSession(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, alive(timing, "s", "b"))
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	k.view.Observe(1, 1, driver.Strong, under(timing, "s", "v2", 7), true)
	if r := k.Step(time.Second).Call; r == nil || r.Kind != Read {
		t.Fatalf("want a read, got %+v", r)
	}
	if k.Reply(time.Second, found(under(timing, "s", "v2", 7))); k.answer != HolderChanged {
		t.Errorf("answer %d", k.answer)
	}
}

// TestUnknownAskOfASession: both records decide what a request of unknown outcome led
// to.
func TestUnknownAskOfASession(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lock    func(driver.Request) driver.Record
		session func(driver.Request) driver.Record
		want    Answer
		next    Kind
	}{
		{"it lies there", nil, func(q driver.Request) driver.Record { return asking(alive(timing, "s", "b3"), "r", q) }, Delivered, 0},
		{"it does not", nil, func(driver.Request) driver.Record { return alive(timing, "s", "b3") }, NoAnswer, Request},
		{"it was honoured", func(q driver.Request) driver.Record {
			return freed(under(timing, "s", "v", 7), "w", driver.EndSteppedDown, &q)
		}, nil, Delivered, 0},
		{"it was honoured, and another has it", func(q driver.Request) driver.Record {
			next := theirs(timing, "v9", 8)
			next.Prev = &driver.Term{Token: 7, Asked: &q}
			return next
		}, nil, Delivered, 0},
		{"another has it", func(driver.Request) driver.Record { return theirs(timing, "v9", 8) }, nil, HolderChanged, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := askedUnderSession(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, alive(timing, "s", "b"))
			q := r.Next.Requests[0]
			k.Reply(0, Result{Outcome: Unknown, Err: errStore})
			now, _ := k.Next()
			r = k.Step(now).Call
			if r == nil || r.Kind != Read || r.Consistency != driver.Strong {
				t.Fatalf("want a read, got %+v", r)
			}
			lock := under(timing, "s", "v", 7)
			if tt.lock != nil {
				lock = tt.lock(q)
			}
			r = k.Reply(now, found(lock)).Call
			if tt.session != nil {
				if r == nil || !looksAt(r) {
					t.Fatalf("want a read of the session, got %+v", r)
				}
				r = k.Reply(now, found(tt.session(q))).Call
			}
			if a, _, _ := k.Answer(); a != tt.want {
				t.Errorf("answer %d, want %d", a, tt.want)
			}
			if (r != nil) != (tt.next != 0) || r != nil && (r.Kind != tt.next || r.Next.Requests[0].ID != q.ID) {
				t.Errorf("then %+v", r)
			}
		})
	}
}

// TestAskingASessionThatIsFull: the requester waits for room, as long as its patience
// lasts.
func TestAskingASessionThatIsFull(t *testing.T) {
	full := alive(timing, "s", "b")
	full.Requests = make([]driver.Request, driver.MaxRequests)
	k, _, r := askedUnderSession(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, full)
	if at, _ := k.Next(); r != nil || k.Over() || at <= 0 || at > timing.Refresh {
		t.Fatalf("sends %+v, over %v, next at %v", r, k.Over(), at)
	}
	now, _ := k.Next()
	if r = k.Step(now).Call; r == nil || !looksAt(r) || r.Consistency != driver.Strong {
		t.Fatalf("want a read of the session, got %+v", r)
	}
	if r = k.Reply(now, found(alive(timing, "s", "b2"))).Call; r == nil || r.Kind != Request {
		t.Fatalf("there is room: %+v", r)
	}
	k, _, _ = askedUnderSession(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, full)
	looks := 0
	for now = 0; !k.Over() && now < timing.Lease; looks++ {
		now, _ = k.Next()
		k.Step(now)
		k.Reply(now, found(full))
	}
	if a, _, err := k.Answer(); a != Unusable || !errors.Is(err, errFull) || now < 5*time.Second || looks > 100 {
		t.Errorf("answer %d, %v at %v after %d reads", a, err, now, looks)
	}
}

// TestFreeUnderASession: an operator's release waits until the session is dead,
// closes it, and then frees the lock.
func TestFreeUnderASession(t *testing.T) {
	lives := alive(timing, "s", "b")
	run := func(kind driver.RequestKind, session func(now time.Duration) driver.Record) (k *Requester, closing time.Duration) {
		k, env, r := askedUnderSession(t, timing, driver.Request{Kind: kind, By: "op"}, lives)
		_ = env
		for now := time.Duration(0); !k.Over() && now < 3*timing.Lease; {
			if r == nil {
				now, _ = k.Next()
				r = k.Step(now).Call
				continue
			}
			switch {
			case looksAt(r):
				r = k.Reply(now, found(session(now))).Call
			case r.Kind == Read:
				r = k.Reply(now, found(under(timing, "s", "v", 7))).Call
			case closes(r):
				if closing = now; r.Key != lives.Key || r.Next.State != driver.Closed || r.Next.End != driver.EndExpired {
					t.Fatalf("closes with %+v", r)
				}
				r = k.Reply(now, found(r.Next)).Call
			case r.Kind == ForceRelease:
				if closing == 0 {
					t.Fatal("frees a lock of a session that is not closed")
				}
				r = k.Reply(now, found(r.Next)).Call
			default:
				t.Fatalf("sends %+v", r)
			}
		}
		return k, closing
	}
	k, at := run(driver.ReleaseDead, func(time.Duration) driver.Record { return lives })
	if a, _, _ := k.Answer(); a != Done || at != timing.Lease {
		t.Errorf("answer %d, closed at %v", a, at)
	}
	k, at = run(driver.ReleaseDead, func(now time.Duration) driver.Record {
		if now > timing.Heartbeat {
			return alive(timing, "s", "b2")
		}
		return lives
	})
	if a, _, _ := k.Answer(); a != Alive || at != 0 {
		t.Errorf("it beats: answer %d, closed at %v", a, at)
	}
	// A revocation need not wait if the session is known to be dead.
	env, _ := seeing(timing)
	env.Session("s").Observe(0, 0, driver.Strong, lives, true)
	k = NewRequester(timing, env, "k", driver.Request{Kind: driver.Revoke, By: "op"}, 0, NewView(timing, env))
	k.Step(timing.Lease)
	k.Reply(timing.Lease, found(under(timing, "s", "v", 7)))
	r := k.Reply(timing.Lease, found(lives)).Call
	if r == nil || !closes(r) {
		t.Fatalf("want it closed, got %+v, answer %d", r, k.answer)
	}
	if r = k.Reply(timing.Lease, found(r.Next)).Call; r == nil || r.Kind != ForceRelease {
		t.Fatalf("want it freed, got %+v", r)
	}
}
