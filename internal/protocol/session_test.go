// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// TestAllFollow: when a session ends all its locks are stepped, some at a time.
func TestAllFollow(t *testing.T) {
	env := counting()
	k := NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	locks := map[Machine]bool{}
	for i := range 5*followAtOnce + 1 {
		rec := under(timing, "s", fmt.Sprint("v", i), 7)
		rec.Key = fmt.Sprint("k", i)
		locks[NewUnderSession(&timing, &env, Grant{Record: rec}, k)] = true
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

// TestGrantedUnderASession: the session knows a record that its acquire writes, from
// before the write is sent until the holder has the lock.
func TestGrantedUnderASession(t *testing.T) {
	env, _ := seeing(timing)
	k := NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: k}, NewView(timing, env))
	call := c.Step(0).Call
	written := call.Next
	written.Token = 7
	mine := func(when string, want bool) {
		t.Helper()
		if got := k.knows(written); got != want {
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
	h := NewUnderSession(&timing, &env, g, k)
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

// TestSessionBeatsByItself: the heartbeats of a session are sent in the background,
// without regard to progress, whatever the timing of leases says.
func TestSessionBeatsByItself(t *testing.T) {
	timing := Timing{Manual: true, Progress: time.Second}.WithDefaults()
	if timing.ofSession().Manual || timing.ofSession().Progress != 0 {
		t.Errorf("%+v", timing.ofSession())
	}
	k := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "v")})
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
	o := NewSessionOpener(timing, counting(), driver.Record{Owner: "us"}, 0)
	if next := o.Step(0).Call.Next; next.Heartbeat != timing.Heartbeat {
		t.Errorf("opened with a heartbeat period of %v", next.Heartbeat)
	}
}

// TestOpenByTheClock: no lock may be taken under a session whose deadline has passed,
// even before its machine was stepped; nor after it was stopped.
func TestOpenByTheClock(t *testing.T) {
	k := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	end := k.Deadline()
	if !k.Open(end-1) || k.Open(end) || k.Cause() != None {
		t.Errorf("open before the deadline: %v, at it: %v; ended as %v", k.Open(end-1), k.Open(end), k.Cause())
	}
	k.Stop(time.Second)
	if k.Open(time.Second) {
		t.Error("open after it was stopped")
	}
}

// counting returns an Env whose strings are all different.
func counting() Env {
	env, n := middle(), 0
	env.Fresh = func() string { n++; return fmt.Sprintf("w%d", n) }
	return env
}

// sessionWithLock returns a session that was opened at 0, and the holder of a lock that was
// granted under it at 0.
func sessionWithLock(t Timing) (session *SessionHolder, lock *Holder) {
	env := counting()
	session = NewSessionHolder(t, env, Grant{Record: alive(t, "s", "v")})
	session.Step(0)
	lock = NewUnderSession(&t, &env, Grant{Record: under(t, "s", "v", 7)}, session)
	lock.Step(0)
	return session, lock
}

// ask hands a request to the holder through its session.
func (h *Holder) ask(now time.Duration, q driver.Request) Action {
	h.under.lockRequests[h] = append(h.under.lockRequests[h], q)
	return h.Step(now)
}

// alive returns the record of a session.
func alive(t Timing, id, version string) driver.Record {
	return driver.Record{
		Key: driver.SessionKey(id), Version: version, Beat: version, Owner: "us", Token: 1,
		Lease: t.Lease, Heartbeat: t.Heartbeat, State: driver.Alive,
	}
}

// under returns the record of a lock that is held under a session.
func under(t Timing, id, version string, token uint64) driver.Record {
	rec := theirs(t, version, token)
	rec.Owner, rec.Session = "us", id
	return rec
}

// notes returns those of an action that matter here.
func (a Action) has(n Note) bool { return slices.Contains(a.Notes, n) }

// TestNothingWakesForEach: a lock under a live session has nothing to do, and learns of
// its deadline from the session.
func TestNothingWakesForEach(t *testing.T) {
	session, lock := sessionWithLock(timing)
	if at, ok := lock.Next(); ok {
		t.Errorf("to be stepped at %v", at)
	}
	if at, ok := session.Next(); !ok || at > timing.Lease {
		t.Errorf("the session is stepped at %v, %v", at, ok)
	}
	end := session.Deadline()
	session.Step(end)
	if a := lock.Step(end); !a.has(NoteEnded) || lock.Cause() != Expired || !lock.Expired() {
		t.Errorf("notes %v, cause %v, expired %v", a.Notes, lock.Cause(), lock.Expired())
	}
	if at, ok := lock.Next(); ok {
		t.Errorf("draining, and stepped at %v: the session goes quiet first", at)
	}
}

// TestQuietWithItsSession: the lock says so once, and writes nothing.
func TestQuietWithItsSession(t *testing.T) {
	session, lock := sessionWithLock(timing)
	session.Stop(time.Second)
	lock.Step(time.Second)
	quiet := time.Second + timing.StopTimeout
	for now := time.Second; now < quiet; {
		at, _ := session.Next()
		now = max(now, at)
		if r := session.Step(now).Call; r != nil {
			session.Reply(now, found(r.Next))
		}
	}
	if !session.Quiet() {
		t.Fatal("the session is not quiet")
	}
	quiets := 0
	for i := range 5 {
		a := lock.Step(quiet + time.Duration(i)*timing.Lease)
		if a.has(NoteQuiet) {
			quiets++
		}
		if a.Call != nil {
			t.Errorf("sends %v: the session's record says why", a.Call.Kind)
		}
	}
	if quiets != 1 || !lock.Quiet() {
		t.Errorf("quiet %v, said %d times", lock.Quiet(), quiets)
	}
	if at, ok := lock.Next(); ok {
		t.Errorf("stepped at %v for nothing", at)
	}
}

// TestClosingFreesAll: work that returns after the end of the session writes nothing to
// its lock, unless only the lock's own record can show something.
func TestClosingFreesAll(t *testing.T) {
	handOver := driver.Request{ID: "q", Kind: driver.HandOver, To: "x", Lock: "k", Token: 7}
	for _, tt := range []struct {
		name   string
		before func(session *SessionHolder, lock *Holder)
		want   driver.EndReason // of a release of its own
	}{
		{"nothing to tell", func(s *SessionHolder, _ *Holder) { s.Stop(time.Second) }, ""},
		{"the session expired", func(s *SessionHolder, _ *Holder) { s.Step(s.Deadline()) }, ""},
		{"the session lives", func(*SessionHolder, *Holder) {}, driver.EndReleased},
		{"asked", func(s *SessionHolder, l *Holder) { s.Stop(time.Second); l.ask(time.Second, handOver) }, "handed over"},
		{"data", func(s *SessionHolder, l *Holder) { l.data = 1; s.Stop(time.Second) }, driver.EndReleased},
		{"granted when the session was quiet", func(s *SessionHolder, _ *Holder) { s.Stop(0); s.work = &overdue{s.work.ended()} }, driver.EndAbandoned},
		{"abandoned", func(s *SessionHolder, _ *Holder) { s.Stop(time.Second) }, driver.EndAbandoned},
		{"stopped before the session expired", func(s *SessionHolder, l *Holder) {
			l.Done(time.Second)
			l.Reply(time.Second, Result{Outcome: NotApplied, Err: errStore})
			s.Step(s.Deadline())
		}, driver.EndReleased},
	} {
		t.Run(tt.name, func(t *testing.T) {
			session, lock := sessionWithLock(timing)
			tt.before(session, lock)
			now := max(2*time.Second, session.Deadline())
			if session.Cause() == None || session.Cause() == Stopped {
				now = 2 * time.Second
			}
			leave := lock.Done
			if tt.want == driver.EndAbandoned {
				leave = lock.GiveUp
			}
			r := leave(now).Call
			if r == nil && tt.want != "" {
				t.Fatalf("writes nothing, want %q", tt.want)
			}
			if r != nil {
				if r.Kind != Release || r.Next.End != tt.want && (tt.want != "handed over" || r.Next.State != driver.Reserved) {
					t.Errorf("sends %v of %q as %s, want %q", r.Kind, r.Next.End, r.Next.State, tt.want)
				}
				return
			}
			if at, ok := lock.Next(); ok {
				t.Errorf("to be stepped at %v", at)
			}
			if lock.Over() {
				t.Error("over before the session is")
			}
			session.out = nil
			closing := session.Done(now).Call
			for closing == nil || closing.Kind != Release {
				if closing == nil {
					t.Fatal("the session is not closed")
				}
				closing = session.Reply(now, found(closing.Next)).Call
			}
			session.Reply(now, found(closing.Next))
			lock.Step(now + 3*timing.Lease)
			if !lock.Over() || lock.Freed() != Released {
				t.Errorf("over %v, %v", lock.Over(), lock.Freed())
			}
		})
	}
}

// TestStuckWorkDelaysNoOtherLock: when the work of another lock outlasts the
// session's time, a lock whose work has returned is released by itself; and what its
// record must show is written even after the session is closed.
func TestStuckWorkDelaysNoOtherLock(t *testing.T) {
	timing := Timing{StopTimeout: time.Minute}.WithDefaults()
	session, lock := sessionWithLock(timing)
	session.Stop(time.Second)
	session.sent = time.Hour // it does not expire
	if a := lock.Done(2 * time.Second); a.Call != nil {
		t.Fatalf("sends %v", a.Call.Kind)
	}
	lock.Step(2*time.Second + 2*timing.Lease)
	if lock.Over() {
		t.Fatalf("given up as %v while the session is closing", lock.Freed())
	}
	session.out = nil
	quiet := time.Second + timing.StopTimeout
	session.Step(quiet)
	r := lock.Step(quiet).Call
	if r == nil || r.Kind != Release || r.Next.End != driver.EndReleased {
		t.Fatalf("want a release, got %+v", r)
	}
	lock.Reply(quiet, Result{Outcome: NotApplied, Err: errStore})
	again, _ := lock.Next()
	if r = lock.Step(again).Call; r == nil || r.Kind != Release {
		t.Errorf("not tried again after the first failure: %+v", r)
	}

	session, lock = sessionWithLock(timing)
	session.Stop(time.Second)
	lock.ask(time.Second, driver.Request{ID: "q", Kind: driver.HandOver, To: "x", Lock: "k", Token: 7})
	lock.Done(time.Second)
	lock.Reply(time.Second, Result{Outcome: NotApplied, Err: errStore})
	session.out, session.state = nil, over{Released}
	at, ok := lock.Next()
	if r := lock.Step(at).Call; !ok || r == nil || r.Next.State != driver.Reserved {
		t.Errorf("the hand-over is lost with the session: %+v", r)
	}
}

// TestStoppedLockLapses: a lock whose work is overdue, or stalls, is free a lease later
// although its session lives on.
func TestStoppedLockLapses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		timing Timing
		quiet  time.Duration
		end    driver.EndReason
	}{
		{"stalled", Timing{Progress: 4 * time.Second}.WithDefaults(), 4 * time.Second, driver.EndStalled},
		{"stop timeout", Timing{}.WithDefaults(), time.Second + Timing{}.WithDefaults().StopTimeout, driver.EndStopTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			session, lock := sessionWithLock(tt.timing)
			if tt.timing.Progress == 0 {
				lock.Stop(time.Second)
			}
			session.sent = 10 * tt.timing.Lease // it lives
			if at, ok := lock.Next(); !ok || at != tt.quiet {
				t.Fatalf("next at %v, %v, want %v", at, ok, tt.quiet)
			}
			a := lock.Step(tt.quiet)
			if !a.has(NoteQuiet) || a.Call == nil || a.Call.Kind != Abdicate || a.Call.Next.End != tt.end {
				t.Fatalf("notes %v, request %+v", a.Notes, a.Call)
			}
			lock.Reply(tt.quiet, found(a.Call.Next))
			lapse := tt.quiet + tt.timing.Lease
			if at, ok := lock.Next(); !ok || at != lapse {
				t.Fatalf("next at %v, %v, want %v", at, ok, lapse)
			}
			if r := lock.Step(lapse - 1).Call; r != nil {
				t.Errorf("sends %v before the lease has passed", r.Kind)
			}
			r := lock.Step(lapse).Call
			if r == nil || r.Kind != Release || r.Next.End != tt.end || r.Next.State != driver.Released || r.Next.Session != "" {
				t.Fatalf("want a release as %q, got %+v", tt.end, r)
			}
			now := lapse
			for range 50 { // it is not given up: nothing else ends it
				lock.Reply(now, Result{Outcome: NotApplied, Err: errStore})
				now, _ = lock.Next()
				r = lock.Step(now).Call
			}
			if r == nil || now < lapse+2*tt.timing.Lease {
				t.Fatalf("given up at %v: %+v", now, r)
			}
			lock.Reply(now, found(r.Next))
			if !lock.Over() || lock.Freed() != Released {
				t.Errorf("over %v, %v", lock.Over(), lock.Freed())
			}
			if a := lock.Done(now + 1); a.Call != nil || len(a.Notes) > 0 {
				t.Errorf("done: %+v", a)
			}
		})
	}
}

// TestAskedThroughTheSession: a request ends the term that it names, and no other.
func TestAskedThroughTheSession(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    driver.Request
		want Cause
	}{
		{"step-down", driver.Request{Kind: driver.StepDown, Token: 7}, Asked},
		{"any token", driver.Request{Kind: driver.HandOver, To: "x"}, Asked},
		{"a former term", driver.Request{Kind: driver.StepDown, Token: 6}, None},
		{"a kind that is not known", driver.Request{Kind: "dance", Token: 7}, None},
		{"a question", driver.Request{Kind: driver.Confirm, Token: 7}, None},
	} {
		_, lock := sessionWithLock(timing)
		tt.q.Lock = "k"
		if lock.ask(time.Second, tt.q); lock.Cause() != tt.want || (lock.Asked() != nil) != (tt.want == Asked) {
			t.Errorf("%s: ended as %v, asked %+v", tt.name, lock.Cause(), lock.Asked())
		}
	}
}

// TestInbox: a request that was written into the session's record is found by the next
// heartbeat, and removed by the first heartbeat after it was answered; the others stay.
func TestInbox(t *testing.T) {
	session, lock := sessionWithLock(timing)
	NewAcquirer(timing, counting(), Want{Key: "k2", Under: session}, NewView(timing, counting()))
	at, _ := session.Next()
	r := session.Step(at).Call
	written := r.Prev.Clone()
	written = asking(written, "q1", driver.Request{ID: "q", Kind: driver.StepDown, Lock: "k", Token: 7})
	written = asking(written, "q2", driver.Request{ID: "other", Kind: driver.StepDown, Lock: "k2"})
	written = asking(written, "q3", driver.Request{ID: "dance", Kind: "dance", Lock: "k2"})
	sent := session.Sent()
	a := session.Reply(at, conflict(written))
	if r = a.Call; session.Cause() != None || session.Sent() != sent {
		t.Fatalf("cause %v, sent %v", session.Cause(), session.Sent())
	}
	if r == nil || len(r.Next.Requests) != 3 {
		t.Fatalf("want a heartbeat that keeps them, got %+v", r)
	}
	if len(a.Wake) != 1 || a.Wake[0] != Machine(lock) {
		t.Errorf("wakes %v", a.Wake)
	}
	if lock.Step(at); lock.Cause() != Asked {
		t.Errorf("the lock ended as %v", lock.Cause())
	}
	if in := session.pending(); len(in) != 1 || in[0].ID != "other" {
		t.Errorf("inbox %+v", in)
	}
	session.Reply(at, found(r.Next)) // it was under way when that was answered
	at, _ = session.Next()
	r = session.Step(at).Call
	if r == nil || len(r.Next.Requests) != 1 || r.Next.Requests[0].ID != "other" {
		t.Fatalf("want a heartbeat without what was answered, got %+v", r)
	}
	session.Reply(at, found(r.Next))
	if len(session.answered) != 0 {
		t.Errorf("remembers %v for ever", session.answered)
	}
}

// TestLateAnswerUnderAnEndedSession: a release was under way when the session came
// to its end. When it is answered, or given up, the lock is over as well: it is not
// stepped again.
func TestLateAnswerUnderAnEndedSession(t *testing.T) {
	for _, outcome := range []Outcome{Unknown, NotApplied} {
		session, lock := sessionWithLock(timing)
		now := time.Second
		if a := lock.Done(now); a.Call == nil || a.Call.Kind != Release {
			t.Fatalf("no release: %+v", a)
		}
		session.Renew(now)
		other := alive(timing, "s", "theirs")
		other.State = driver.Closed
		session.Reply(now, Result{Outcome: Conflicted, Record: other, Found: true})
		lock.Step(now)
		if lock.Over() {
			t.Fatal("over before the release is answered")
		}
		lock.Reply(now, Result{Outcome: outcome})
		if !lock.Over() {
			at, ok := lock.Next()
			t.Errorf("%v: the lock is not over, and is stepped at %v, %v", outcome, at, ok)
		}
	}
}

// TestSupersededWhileItDrains: a lock whose session was superseded or is gone after its
// own right to act had ended says what superseded it, or that the store was replaced.
func TestSupersededWhileItDrains(t *testing.T) {
	session, lock := sessionWithLock(timing)
	session.Stop(time.Second)
	lock.Step(time.Second)
	session.Renew(time.Second)
	other := alive(timing, "s", "theirs")
	other.State = driver.Closed
	session.Reply(time.Second, conflict(other))
	lock.Step(time.Second)
	if by, found := lock.By(); !lock.Over() || lock.Freed() != Gone || !found || by.Version != "theirs" {
		t.Errorf("over %v, %v, by %+v, %v", lock.Over(), lock.Freed(), by, found)
	}

	session, lock = sessionWithLock(timing)
	session.Stop(time.Second)
	session.Replace(time.Second, errStore)
	lock.Step(time.Second)
	if by, found := lock.By(); lock.Freed() != Gone || found {
		t.Errorf("%v, by %+v", lock.Freed(), by)
	}
}

// TestUnwantedSession: a session that no caller waits for is closed at once, as abandoned;
// a session with work under it is closed when the work has returned.
func TestUnwantedSession(t *testing.T) {
	k := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "v")})
	k.Step(0)
	now, _ := k.Next() // a heartbeat is due
	a := k.GiveUp(now)
	if a.Call == nil || a.Call.Kind != Release || a.Call.Next.State != driver.Closed || a.Call.Next.End != driver.EndAbandoned {
		t.Fatalf("sends %+v", a.Call)
	}
	if k.Reply(now, found(a.Call.Next)); !k.Over() || k.Freed() != Released {
		t.Errorf("over %v, %v", k.Over(), k.Freed())
	}

	session, lock := sessionWithLock(timing)
	if a := session.GiveUp(1); a.Call != nil || session.Cause() != Stopped {
		t.Fatalf("sends %+v while work goes on, ended as %v", a.Call, session.Cause())
	}
	lock.Step(1)
	lock.Done(1)
	if a := session.Step(1); a.Call == nil || a.Call.Kind != Release {
		t.Errorf("sends %+v when the work has returned", a.Call)
	}
}

// TestManyWhoAsk: when others write into a session's record, its holder retries soon,
// and a requester that keeps losing the race backs off more and more.
func TestManyWhoAsk(t *testing.T) {
	session, _ := sessionWithLock(timing)
	r := session.Renew(0).Call
	for n := range 30 {
		other := r.Prev.Clone()
		other.Version = fmt.Sprintf("other%d", n)
		a := session.Reply(0, conflict(other))
		if r = a.Call; r == nil {
			at, ok := session.Next()
			if !ok || at > timing.Lease/250 {
				t.Fatalf("after %d requests the heartbeat waits until %v, %v", n+1, at, ok)
			}
			r = session.Step(at).Call
			session.retry = 0
		}
		if r == nil {
			t.Fatal("no heartbeat")
		}
	}
	k, _, _ := askedUnderSession(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, alive(timing, "s", "b"))
	now, waited := time.Duration(0), time.Duration(0)
	for n := range 12 {
		a := k.Reply(now, conflict(alive(timing, "s", fmt.Sprintf("b%d", n))))
		if r = a.Call; r == nil {
			at, ok := k.Next()
			if !ok {
				t.Fatal("nothing more to do")
			}
			waited, now = at-now, at
			r = k.Step(now).Call
		}
		for r != nil && r.Kind != Request {
			r = k.Reply(now, found(alive(timing, "s", fmt.Sprintf("b%d", n)))).Call
		}
		if r == nil {
			t.Fatal("asks no more")
		}
	}
	if waited < timing.Lease/20 {
		t.Errorf("after 12 lost races, it waits for %v", waited)
	}
}

// shelf is a store of two records, a lock's and its session's. It counts the calls.
type shelf struct {
	lock, session driver.Record
	calls         map[Kind]int
}

// do carries out a call.
func (s *shelf) do(_ time.Duration, r *Call) Result {
	if s.calls == nil {
		s.calls = map[Kind]int{}
	}
	s.calls[r.Kind]++
	rec := &s.lock
	if r.OfSession() {
		rec = &s.session
	}
	was := *rec
	switch {
	case r.Kind.Reads():
		return Result{Outcome: Applied, Record: was, Found: was.Key != ""}
	case r.Kind == Claim && (was.Key == "" || was.State == driver.Released):
		*rec = driver.Claimed(r.Next, was, was.Key != "")
		return Result{Outcome: Applied, Record: *rec, Found: true, Former: was}
	case r.Kind == Claim || was.Version != r.Prev.Version || was.Token != r.Prev.Token:
		return Result{Outcome: Conflicted, Record: was, Found: was.Key != ""}
	}
	*rec = r.Next
	return found(r.Next)
}

// TestOrphanOfItsOwnSession: a claim that was not answered is applied after the lock
// was claimed again and released. No machine under the session knows of it, and the
// session lives. An acquire under the session, even a try, releases the orphan and has
// the lock.
func TestOrphanOfItsOwnSession(t *testing.T) {
	for name, want := range map[string]Want{"waits": {}, "tries": {Try: true}, "unless alive": {UnlessAlive: true}} {
		t.Run(name, func(t *testing.T) {
			env, _ := seeing(timing)
			store := &shelf{session: alive(timing, "s", "b")}
			session := NewSessionHolder(timing, env, Grant{Record: store.session})
			session.Step(0)
			view := NewView(timing, env)

			first := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true}, view)
			late := first.Step(0).Call
			first.Reply(1, Result{Outcome: Unknown, Err: errStore})
			drive(first, timing.Lease/4, store.do)
			g, ok := first.Granted()
			if !ok || g.Record.Version == late.Next.Version {
				t.Fatalf("granted %v: %+v", ok, g.Record)
			}
			lock := NewUnderSession(&timing, &env, g, session)
			if a := lock.Done(1); a.Call == nil || store.do(0, a.Call).Outcome != Applied {
				t.Fatalf("not released: %+v", a.Call)
			} else {
				lock.Reply(1, found(a.Call.Next))
			}
			store.do(0, late) // at last
			if rec := store.lock; rec.State != driver.Held || rec.Session != "s" || rec.Token != g.Record.Token+1 || session.Locks() > 0 {
				t.Fatalf("no orphan: %+v", rec)
			}

			want.Key, want.Owner, want.Under = "k", "us", session
			c := NewAcquirer(timing, env, want, NewView(timing, env))
			orphan := store.lock
			clear(store.calls)
			drive(c, timing.Lease/4, store.do)
			g, ok = c.Granted()
			if !ok || g.Record.Token != orphan.Token+1 {
				t.Fatalf("granted %v: %+v; the record is %+v", ok, g.Record, store.lock)
			}
			if p := g.Record.Prev; p == nil || p.Token != orphan.Token || p.End != driver.EndAbandoned {
				t.Errorf("the record says of the orphan: %+v", p)
			}
			if store.calls[Claim] != 2 || store.calls[Release] != 1 || store.calls[Read] > 1 {
				t.Errorf("it cost %v", store.calls)
			}
		})
	}
}

// TestNoOrphan: a lock that a machine of the session may come to hold is no orphan,
// even before the machine knows. No machine under the session releases it.
func TestNoOrphan(t *testing.T) {
	for name, hold := range map[string]func(s *SessionHolder, c *Acquirer, rec driver.Record){
		"held": func(s *SessionHolder, c *Acquirer, rec driver.Record) {
			c.Reply(1, found(rec))
			g, _ := c.Granted()
			NewUnderSession(&timing, new(counting()), g, s)
		},
		"granted, and not handed over yet": func(_ *SessionHolder, c *Acquirer, rec driver.Record) { c.Reply(1, found(rec)) },
		"claimed, and not answered yet":    func(*SessionHolder, *Acquirer, driver.Record) {},
		"claimed, with an outcome unknown": func(_ *SessionHolder, c *Acquirer, _ driver.Record) {
			c.Reply(1, Result{Outcome: Unknown, Err: errStore})
		},
		"given up, and not cleaned up yet": func(_ *SessionHolder, c *Acquirer, _ driver.Record) { c.GiveUp(1) },
		"given up, with an outcome unknown": func(_ *SessionHolder, c *Acquirer, _ driver.Record) {
			c.GiveUp(1)
			c.Reply(1, Result{Outcome: Unknown, Err: errStore})
		},
		"being released": func(s *SessionHolder, c *Acquirer, rec driver.Record) {
			c.Reply(1, found(rec))
			g, _ := c.Granted()
			NewUnderSession(&timing, new(counting()), g, s).Done(1)
		},
	} {
		for _, try := range []bool{true, false} {
			env, _ := seeing(timing)
			store := &shelf{session: alive(timing, "s", "b")}
			session := NewSessionHolder(timing, env, Grant{Record: store.session})
			session.Step(0)
			c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session}, NewView(timing, env))
			store.do(0, c.Step(0).Call)
			hold(session, c, store.lock)
			other := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: try}, NewView(timing, env))
			clear(store.calls)
			drive(other, timing.Lease/2, store.do)
			if store.calls[Release] > 0 {
				t.Errorf("%s: released", name)
			}
			if try && (other.Refused() == nil || !other.Refused().Held) {
				t.Errorf("%s: not refused: %+v", name, other.Refused())
			}
		}
	}
}

// TestOrphanThatIsNotReleased: if the store shows the orphan and never answers its
// release, the machine does not repeat it at once; and an acquire with bounded patience
// ends.
func TestOrphanThatIsNotReleased(t *testing.T) {
	env, _ := seeing(timing)
	session := NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "b")})
	session.Step(0)
	orphan, writes := under(timing, "s", "v", 7), 0
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true, Patience: timing.Lease}, NewView(timing, env))
	drive(c, 2*timing.Lease, func(_ time.Duration, r *Call) Result {
		switch {
		case r.OfSession():
			return found(alive(timing, "s", "b"))
		case r.Kind == Read:
			return found(orphan)
		case r.Kind == Claim:
			return conflict(orphan)
		}
		writes++
		return Result{Outcome: Unknown, Err: errStore}
	})
	if writes < 3 || writes > 30 {
		t.Errorf("%d writes in a lease", writes)
	}
	if r := c.Refused(); r == nil || r.Err == nil || r.Held {
		t.Errorf("refused: %+v", r)
	}
}

// TestOrphanThatIsAskedFor: a request about a lock that no machine under the session knows of is
// answered by releasing the lock. A request about a held lock goes to its lease.
func TestOrphanThatIsAskedFor(t *testing.T) {
	for _, kind := range []driver.RequestKind{driver.StepDown, driver.HandOver, driver.Confirm} {
		session, lock := sessionWithLock(timing)
		at, _ := session.Next()
		r := session.Step(at).Call
		written := asking(r.Prev, "q1", driver.Request{ID: "q", Kind: kind, Lock: "orphan", Token: 3, To: "x"})
		written = asking(written, "q2", driver.Request{ID: "r", Kind: kind, Lock: "k", Token: 7, To: "x"})
		a := session.Reply(at, conflict(written))
		if len(a.Begin) != 1 || a.Begin[0].(*OrphanReleaser).Key() != "orphan" {
			t.Fatalf("%s: begins %v", kind, a.Begin)
		}
		if asked := len(a.Wake) == 1 && a.Wake[0] == Machine(lock); asked != honoured(kind) {
			t.Errorf("%s: wakes %v", kind, a.Wake)
		}
		store := &shelf{lock: under(timing, "s", "v", 3), session: written}
		store.lock.Key = "orphan"
		d := a.Begin[0].(*OrphanReleaser)
		drive(d, timing.Lease, store.do)
		if !d.Over() || store.lock.State != driver.Released || store.lock.End != driver.EndAbandoned {
			t.Errorf("%s: over %v, the lock is %+v", kind, d.Over(), store.lock)
		}
	}
}

// TestOrphanGivenUp: nothing more is sent for it, and the next request starts over.
func TestOrphanGivenUp(t *testing.T) {
	session, _ := sessionWithLock(timing)
	for _, id := range []string{"q", "r"} {
		q := driver.Request{ID: id, Kind: driver.Confirm, Lock: "orphan", Token: 3}
		at, _ := session.Next()
		r := session.Step(at).Call
		a := session.Reply(at, conflict(asking(r.Prev, r.Next.Version+"q", q)))
		if len(a.Begin) != 1 {
			t.Fatalf("begins %v", a.Begin)
		}
		d := a.Begin[0].(*OrphanReleaser)
		d.Step(at)
		d.GiveUp(at)
		if r := d.Reply(at, found(under(timing, "s", "v", 3))).Call; r != nil || !d.Over() {
			t.Errorf("sends %+v, over %v", r, d.Over())
		}
		if a.Call != nil {
			session.Reply(at, found(a.Call.Next))
		}
	}
}

// TestOrphanThatMadeWay: the release of an orphan finds that the acquire's own claim, of
// unknown outcome until then, was applied after another release of it.
func TestOrphanThatMadeWay(t *testing.T) {
	env, _ := seeing(timing)
	session := NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "b")})
	session.Step(0)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true}, NewView(timing, env))
	claim := c.Step(0).Call
	c.Reply(1, Result{Outcome: Unknown, Err: errStore})
	at, _ := c.Next()
	if r := c.Step(at).Call; r == nil || r.Kind != Read {
		t.Fatalf("want a read, got %+v", r)
	}
	orphan := under(timing, "s", "v", 7)
	if r := c.Reply(at, found(orphan)).Call; r == nil || r.Kind != Release || r.Prev.Version != "v" {
		t.Fatalf("want the orphan released, got %+v", r)
	}
	c.Reply(at, conflict(driver.Claimed(claim.Next, freed(orphan, "w", driver.EndAbandoned, nil), true)))
	if g, ok := c.Granted(); !ok || g.Record.Token != 8 || g.Record.Version != claim.Next.Version {
		t.Errorf("granted %v: %+v", ok, g.Record)
	}
}

// TestOrphanReleaserAsks: a record that an acquire of the session has written without
// knowing it yet is not released.
func TestOrphanReleaserAsks(t *testing.T) {
	for _, mine := range []bool{true, false} {
		session := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "b")})
		c := NewAcquirer(timing, counting(), Want{Key: "k", Under: session}, NewView(timing, counting()))
		if mine {
			c.unknown = attempts{{kind: Claim, version: "v"}}
		}
		d := NewOrphanReleaser(timing, counting(), session, "k", 7)
		if a := d.Step(0); a.Call == nil || a.Call.Kind != Read || a.Call.Consistency != driver.Strong {
			t.Fatalf("begins with %+v", a.Call)
		}
		a := d.Reply(1, Result{Outcome: Applied, Record: under(timing, "s", "v", 7), Found: true})
		if released := a.Call != nil; released == mine {
			t.Errorf("mine: %v; released: %v", mine, released)
		}
	}
}

// TestOrphanReleaserRests: if the store shows the lock and never answers its release, the
// machine does not repeat it at once.
func TestOrphanReleaserRests(t *testing.T) {
	timing, writes := Timing{}.WithDefaults(), 0
	lock := under(timing, "s", "v", 7)
	session := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "b")})
	d := NewOrphanReleaser(timing, counting(), session, "k", 7)
	drive(d, timing.Lease, func(_ time.Duration, r *Call) Result {
		if r.Kind == Read {
			return found(lock)
		}
		writes++
		return Result{Outcome: Unknown, Err: errStore}
	})
	if writes < 3 || writes > 30 {
		t.Errorf("%d writes in a lease", writes)
	}
}

// TestQuestionIsAskedAgain: the contender asks the session again whether it holds the
// lock: after one lease if the store has not answered, after four if it has.
func TestQuestionIsAskedAgain(t *testing.T) {
	for name, outcome := range map[string]Outcome{"answered": Applied, "unknown": Unknown, "not applied": NotApplied} {
		timing, asked := Timing{}.WithDefaults(), 0
		env, _ := seeing(timing)
		view := NewView(timing, env)
		view.Observe(0, 0, driver.Strong, under(timing, "s", "v", 7), true)
		c := NewAcquirer(timing, env, Want{Key: "k", Owner: "other"}, view)
		session := alive(timing, "s", "b")
		drive(c, 8*timing.Lease, func(now time.Duration, r *Call) Result {
			session.Version = (now / timing.Heartbeat).String() // it lives, and has taken out what lay there
			session.Beat = session.Version
			switch {
			case looksAt(r):
				return found(session)
			case !inquires(r):
				return found(under(timing, "s", "v", 7))
			}
			if asked++; outcome == Applied {
				return found(r.Next)
			}
			return Result{Outcome: outcome, Err: errStore}
		})
		if few := asked <= 2; few != (outcome == Applied) || asked < 2 || asked > 8 {
			t.Errorf("%s: asked %d times in eight leases", name, asked)
		}
	}
}

// TestEachTermIsAskedFor: asking the session about one term of the lock does not delay the
// question about the next.
func TestEachTermIsAskedFor(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "other"}, NewView(timing, env))
	lock, session := under(timing, "s", "v", 7), alive(timing, "s", "b")
	asked := map[uint64]int{}
	drive(c, 4*timing.Lease, func(now time.Duration, r *Call) Result {
		session.Version = (now / timing.Heartbeat).String()
		session.Beat = session.Version
		if now >= 2*timing.Lease {
			lock.Version, lock.Beat, lock.Token = "late", "late", 8 // a late copy of a claim
		}
		switch {
		case looksAt(r):
			return found(session)
		case inquires(r):
			asked[r.Next.Requests[0].Token]++
			return found(r.Next)
		default:
			return found(lock)
		}
	})
	if asked[7] != 1 || asked[8] != 1 {
		t.Errorf("asked about the tokens %v, want once about 7 and once about 8", asked)
	}
}
