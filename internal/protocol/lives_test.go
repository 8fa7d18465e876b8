// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Where the engine may lose writes, and a server that was cut off goes on beside its successor.

// guarded returns the timing on such an engine.
func guarded() Timing {
	t := timing
	t.Waits = 2 * t.Lease
	return t
}

// in returns rec as the engine shows it in a life.
func in(life string, rec driver.Record) driver.Record {
	rec.Life = life
	return rec
}

// TestSessionThatAnotherServerShows: the end of a session counts only for a lock that the same server
// has, and, unless it was closed in order, only when that server's life was seen for long enough; its
// absence only when it has lasted. Meanwhile both are read again, at a pace.
func TestSessionThatAnotherServerShows(t *testing.T) {
	g := guarded()
	over := alive(g, "s", "b")
	over.State, over.End = driver.Closed, driver.EndExpired
	closed := Result{Outcome: Applied, Record: in("new", over), Found: true}
	for name, tt := range map[string]struct {
		shown Result
		then  func(lock, session *View, at time.Duration) // what makes the end count
	}{
		"closed": {closed, func(lock, session *View, at time.Duration) {
			lock.Observe(at, at, driver.Strong, in("new", under(g, "s", "v", 7)), true)
			session.Observe(at+g.Waits-1, at+g.Waits-1, driver.Strong, closed.Record, true)
			if lock.Ended() {
				t.Error("the end counts while the holder may still act")
			}
			inOrder := closed.Record
			inOrder.End = driver.EndReleased
			session.Observe(at+g.Waits-1, at+g.Waits-1, driver.Strong, inOrder, true)
			if !lock.Ended() {
				t.Error("a session that was closed in order does not count as ended")
			}
			session.Observe(at+g.Waits, at+g.Waits, driver.Strong, closed.Record, true)
		}},
		"absent": {Result{Outcome: Applied}, func(lock, session *View, at time.Duration) {
			session.Observe(at+g.Waits-1, at+g.Waits-1, driver.Strong, driver.Record{}, false)
			if lock.Ended() {
				t.Error("the absence counts too early")
			}
			session.Observe(at+g.Waits, at+g.Waits, driver.Strong, driver.Record{}, false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			env, _ := seeing(g)
			lock, session := NewView(g, env), env.Session("s")
			lock.Observe(0, 0, driver.Strong, in("old", under(g, "s", "v", 7)), true)
			session.Observe(0, 0, driver.Strong, in("old", alive(g, "s", "b")), true)
			for _, v := range []*View{lock, session} {
				v.Polls(0, driver.Strong)
			}
			session.Observe(1, 1, driver.Strong, tt.shown.Record, tt.shown.Found)
			if lock.Ended() || lock.Dead() {
				t.Fatal("the end counts for the lock of another server")
			}
			try := NewAcquirer(g, env, Want{Key: "k", Owner: "us", Try: true, ViewFresh: true}, lock)
			wait := NewAcquirer(g, env, Want{Key: "k", Owner: "us", ViewFresh: true}, lock)
			ask := NewRequester(g, env, "k", driver.Request{Kind: driver.ReleaseDead}, 0, lock)
			ask.lockRead, ask.sessionRead, ask.token, ask.first = true, true, 7, lifeSignOf(under(g, "s", "v", 7))
			for _, m := range []Machine{wait, ask} {
				if at, due := m.Next(); !due || at < g.MinPollInterval() || at > g.Refresh {
					t.Errorf("%T reads again at %v, %v, want a pause of at most %v", m, at, due, g.Refresh)
				}
			}
			r := wait.Step(g.Refresh).Call
			if r == nil || !r.Kind.Reads() || r.Consistency != driver.Strong {
				t.Fatalf("it sends %+v, want a strong read", r)
			}
			try.since, try.lockRead, try.sessionRead = 0, true, true
			if try.Step(2); try.Refused() == nil || !try.Refused().Held || try.Refused().FreeIn > g.Waits {
				t.Errorf("a try is refused with %+v, want held for at most %v", try.Refused(), g.Waits)
			}
			if tt.then(lock, session, 1); !lock.Ended() {
				t.Error("the end does not count")
			}
		})
	}
}

// TestEventualReplyOfAnotherLife: a strong read is due if a cheap one shows the known version in
// another life of the engine.
func TestEventualReplyOfAnotherLife(t *testing.T) {
	g := guarded()
	v := NewView(g, middle())
	v.Observe(0, 0, driver.Strong, in("old", beats("b1")), true)
	if v.Observe(1, 1, driver.Eventual, in("old", beats("b1")), true); v.Hinted() {
		t.Error("a read is due for what is known")
	}
	if v.Observe(2, 2, driver.Eventual, in("new", beats("b1")), true); !v.Hinted() {
		t.Error("no read is due for another life")
	}
	// A conflict has shown a session closed whose record is alive.
	session := alive(g, "s", "b")
	shown := session
	shown.State = driver.Closed
	v = NewView(g, middle())
	v.Observe(0, 0, driver.Strong, in("new", shown), true)
	if v.Observe(1, 1, driver.Eventual, in("new", session), true); !v.Hinted() {
		t.Error("no read is due for another state of the known version")
	}
}

// TestGrantByAnotherServer: a session does not hold a lock that was granted in another life than its
// own. The session ends, and the lock is given back.
func TestGrantByAnotherServer(t *testing.T) {
	g := guarded()
	env, _ := seeing(g)
	session := NewSessionHolder(g, env, Grant{Record: in("new", alive(g, "s", "b"))})
	session.Step(0)
	c := NewAcquirer(g, env, Want{Key: "k", Owner: "us", Under: session}, NewView(g, env))
	r := c.Step(0).Call
	a := c.Reply(1, Result{Outcome: Applied, Record: in("old", driver.Claimed(r.Next, driver.Record{}, false)), Found: true})
	if _, granted := c.Granted(); granted || c.Refused() == nil || !c.Refused().Ended {
		t.Fatalf("granted %v, refused %+v", granted, c.Refused())
	}
	if a.Call == nil || a.Call.Kind != Release || a.Call.Prev.Life != "old" {
		t.Errorf("it sends %+v, want the release of what it was granted", a.Call)
	}
	if len(a.Wake) != 1 {
		t.Fatalf("wakes %v, want the session", a.Wake)
	}
	if a := session.Step(2); !a.has(NoteEnded) || session.Cause() != Superseded || session.Open(2) {
		t.Errorf("the session goes on: %+v, %v", a, session.Cause())
	}
}

// TestWritesAreBound: what a process writes because of what it has read is bound to the life in which
// it read, and a holder's own writes are not.
func TestWritesAreBound(t *testing.T) {
	g := guarded()
	env := middle()
	v := NewView(g, env)
	rec := in("old", beats("b1"))
	v.Observe(0, 0, driver.Strong, rec, true)
	v.Observe(g.Waits, g.Waits, driver.Strong, rec, true)
	c := NewAcquirer(g, env, Want{Key: "k", Owner: "us", ViewFresh: true}, v)
	if r := c.Step(g.Waits).Call; r == nil || r.Kind != Takeover || r.Prev.Life != "old" {
		t.Errorf("it sends %+v, want a takeover that is bound to the life", r)
	}
	h := NewHolder(&g, &env, Grant{ID: "b1", Record: rec})
	h.Step(0)
	if r := h.Renew(1).Call; r == nil || r.Prev.Life != "" {
		t.Errorf("a heartbeat is bound to a life: %+v", r)
	}
	w := NewRemoteWrite(g, env, RemoteHeartbeat{Key: "k", Token: rec.Token, After: rec.Beat, Next: "b2"}, rec, 0)
	if r := w.Step(0).Call; r == nil || r.Kind != Heartbeat || r.Prev.Life != "" {
		t.Errorf("a remote holder's heartbeat is bound to a life: %+v", r)
	}
}
