// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// seeing returns an Env whose views of sessions are kept in a map.
func seeing(t Timing) (Env, map[string]*View) {
	views, env := map[string]*View{}, counting()
	env.LifeSince = func(string) (time.Duration, bool) { return 1, true }
	env.Session = func(id string) *View {
		if views[id] == nil {
			views[id] = NewView(t, env)
		}
		return views[id]
	}
	return env, views
}

// TestDeadSessionCostsAWriteEach: the first move of an acquire for a lock that was read
// under a session depends on how the session ended.
func TestDeadSessionCostsAWriteEach(t *testing.T) {
	over := alive(timing, "s", "b")
	over.State, over.End, over.Until = driver.Closed, driver.EndReleased, time.Unix(99, 0)
	expired := over
	expired.End, expired.Until = driver.EndExpired, time.Time{}
	said := under(timing, "s", "v", 7)
	said.End = driver.EndStalled
	for _, tt := range []struct {
		name  string
		lock  driver.Record
		saw   func(*View)
		at    time.Duration
		want  Kind
		end   driver.EndReason
		until bool
	}{
		{"closed by another", under(timing, "s", "v", 7), func(u *View) { u.Observe(0, 0, driver.Strong, expired, true) }, 0, Takeover, driver.EndExpired, false},
		{"closed by its owner", under(timing, "s", "v", 7), func(u *View) { u.Observe(0, 0, driver.Strong, over, true) }, 0, Takeover, driver.EndReleased, true},
		{"closed, and the lock says why", said, func(u *View) { u.Observe(0, 0, driver.Strong, over, true) }, 0, Takeover, driver.EndStalled, true},
		{"absent", under(timing, "s", "v", 7), func(u *View) { u.Observe(1, 1, driver.Strong, driver.Record{}, false) }, 1, Takeover, driver.EndExpired, false},
		{"absent in a cheap read", under(timing, "s", "v", 7), func(u *View) { u.Observe(1, 1, driver.Eventual, driver.Record{}, false) }, 1, Claim, "", false},
		{"silent for its lease", under(timing, "s", "v", 7), func(u *View) { u.Observe(0, 0, driver.Strong, alive(timing, "s", "b"), true) }, timing.Lease, ForceRelease, "", false},
		{"silent for less", under(timing, "s", "v", 7), func(u *View) { u.Observe(0, 0, driver.Strong, alive(timing, "s", "b"), true) }, timing.Lease - 1, Claim, "", false},
		{"never seen", under(timing, "s", "v", 7), func(*View) {}, timing.Lease, Claim, "", false},
		{"no session", theirs(timing, "v", 7), func(*View) {}, timing.Lease, Claim, "", false},
	} {
		for _, try := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				env, _ := seeing(timing)
				view := NewView(timing, env)
				view.Observe(0, 0, driver.Strong, tt.lock, true)
				tt.saw(env.Session("s"))
				c := NewAcquirer(timing, env, Want{Key: "k", Owner: "another", Try: try}, view)
				if at, ok := c.Next(); !ok || at > tt.at {
					t.Errorf("first move at %v, %v", at, ok)
				}
				first := tt.want
				if try && tt.name == "silent for less" {
					first = Read // a read is cheaper than a refused claim
				}
				r := c.Step(tt.at).Call
				if tt.want == ForceRelease {
					if r == nil || !looksAt(r) || r.Consistency != driver.Strong {
						t.Fatalf("first move %+v, want a read that shows whether the session is dead", r)
					}
					r = c.Reply(tt.at, found(alive(timing, "s", "b"))).Call
				}
				if r == nil || r.Kind != first {
					t.Fatalf("first move %+v, want %v", r, first)
				}
				if closes(r) {
					if r.Key != driver.SessionKey("s") || r.Next.End != driver.EndExpired {
						t.Errorf("closes %+v", r.Next)
					}
					r = c.Reply(tt.at, found(r.Next)).Call
					if r == nil || r.Kind != Takeover || r.Next.Prev.End != driver.EndExpired {
						t.Fatalf("then %+v, want a takeover", r)
					}
				}
				if tt.want != Takeover {
					return
				}
				if p := r.Next.Prev; p.End != tt.end || p.Until.Equal(over.Until) != tt.until || p.Token != 7 {
					t.Errorf("remembers %+v, want %q, until %v", p, tt.end, tt.until)
				}
				if c.Refused() != nil {
					t.Errorf("refused: %+v", c.Refused())
				}
			})
		}
	}
}

// TestAbsenceInACheapReadProvesNothing: a session that an eventual read does not find is not closed,
// but read again by a read that proves something.
func TestAbsenceInACheapReadProvesNothing(t *testing.T) {
	for _, kind := range []driver.RequestKind{driver.ReleaseDead, ""} {
		env, _ := seeing(timing)
		view, u := NewView(timing, env), env.Session("s")
		view.Observe(0, 0, driver.Strong, under(timing, "s", "v", 7), true)
		u.Observe(0, 0, driver.Strong, alive(timing, "s", "b"), true)
		step := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", ViewFresh: true}, view).Step
		if kind != "" {
			k := NewRequester(timing, env, "k", driver.Request{Kind: kind}, 0, view)
			k.Step(0)
			k.Reply(0, found(under(timing, "s", "v", 7)))
			if k.Reply(0, found(alive(timing, "s", "b"))).Call != nil {
				k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
			}
			step = k.Step
		}
		u.Observe(timing.Lease, timing.Lease, driver.Eventual, driver.Record{}, false)
		r := step(timing.Lease).Call
		if r == nil || !looksAt(r) || r.Consistency != driver.Strong {
			t.Errorf("%q: sends %+v", kind, r)
		}
	}
}

// TestWishThroughTheSession: a contender with a higher priority than the holder of a
// lock under a session asks in the session's record, once in a lease, and never if the
// holder was asked already.
func TestWishThroughTheSession(t *testing.T) {
	mine := driver.Request{ID: "q", Kind: driver.StepDown, Lock: "k", Token: 7}
	former, other := mine, mine
	former.Token, other.Lock = 6, "k2"
	full := make([]driver.Request, driver.MaxRequests)
	for _, tt := range []struct {
		name     string
		priority int
		lies     []driver.Request
		want     bool
	}{
		{"preferred", 1, nil, true},
		{"not preferred", 0, nil, false},
		{"asked already", 1, []driver.Request{mine}, false},
		{"the former term was asked", 1, []driver.Request{former}, true},
		{"another lock was asked for", 1, []driver.Request{other}, true},
		{"no room", 1, full, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, _ := seeing(timing)
			view := NewView(timing, env)
			want := Want{Key: "k", Owner: "us", Priority: tt.priority, ViewFresh: true}
			c := NewAcquirer(timing, env, want, view)
			lock := under(timing, "s", "v", 7)
			view.Observe(0, 0, driver.Strong, lock, true)
			now, beats, asked, last := time.Duration(0), 0, 0, time.Duration(0)
			session := alive(timing, "s", "b0")
			session.Requests = tt.lies
			for i := 0; now < 3*timing.Lease; i++ {
				at, _ := c.Next()
				now = max(now, at)
				r := c.Step(now).Call
				for r != nil {
					switch {
					case looksAt(r):
						if now > time.Duration(beats)*timing.Heartbeat {
							beats++
							session.Version, session.Beat = string(rune('c'+beats)), string(rune('c'+beats))
						}
						r = c.Reply(now, found(session)).Call
					case r.Kind == Read:
						r = c.Reply(now, found(lock)).Call
					case inquires(r):
						r = c.Reply(now, found(r.Next)).Call
					case r.Kind == Request:
						if r.Key != session.Key || r.Next.Beat != r.Prev.Beat || r.Next.State != driver.Alive {
							t.Fatalf("asks with %+v", r)
						}
						q := r.Next.Requests[len(r.Next.Requests)-1]
						if q.Kind != driver.HandOver || q.To != "us" || q.Lock != "k" || q.Token != 7 {
							t.Fatalf("asks %+v", q)
						}
						if asked++; asked == 1 { // a heartbeat was quicker
							session.Version, session.Beat = "later", "later"
							r = c.Reply(now, conflict(session)).Call
							continue
						}
						if now < last+timing.Lease {
							t.Errorf("asks at %v, and has at %v", now, last)
						}
						last = now
						r = c.Reply(now, found(r.Next)).Call
					default:
						t.Fatalf("sends %v", r.Kind)
					}
				}
			}
			if want := map[bool]int{true: 1 + 3, false: 0}[tt.want]; asked != want {
				t.Errorf("asked %d times in three leases, want %d", asked, want)
			}
		})
	}
}

// TestShownByAnother: another machine of the process has read what an acquire wrote
// without knowing it. The acquire reads for itself, and has the lock, whatever its
// refresh period.
func TestShownByAnother(t *testing.T) {
	timing := Timing{Refresh: time.Hour}.WithDefaults()
	env, _ := seeing(timing)
	session := NewSessionHolder(timing, env, Grant{Record: alive(timing, "s", "b")})
	view := NewView(timing, env)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Under: session}, view)
	claim := c.Step(0).Call
	c.Reply(time.Second, Result{Outcome: Unknown, Err: errStore})
	now, _ := c.Next()
	if r := c.Step(now).Call; r == nil || r.Kind != Read {
		t.Fatalf("want a read, got %+v", r)
	}
	c.Reply(now, found(theirs(timing, "v", 3))) // it is not there
	view.Observe(now+1, now+1, driver.Strong, driver.Claimed(claim.Next, freed(theirs(timing, "v", 3), "w", driver.EndReleased, nil), true), true)
	env.Session("s").Observe(now+1, now+1, driver.Strong, alive(timing, "s", "b"), true)
	at, ok := c.Next()
	if !ok || at > now+timing.Lease {
		t.Fatalf("next at %v, %v", at, ok)
	}
	r := c.Step(max(at, now+1)).Call
	if r == nil || r.Kind != Read || r.Consistency != driver.Strong {
		t.Fatalf("want a strong read, got %+v", r)
	}
	rec, _ := view.Record()
	c.Reply(max(at, now+1), found(rec))
	if g, ok := c.Granted(); !ok || g.Record.Token != 4 {
		t.Errorf("granted %v: %+v", ok, g.Record)
	}
}

// TestLockUnderSessionIsPolled: a lock under a session is polled each refresh period, however old
// its record is, and so is the session: the lock's record shows a release, the session's a crash.
func TestLockUnderSessionIsPolled(t *testing.T) {
	env, _ := seeing(timing)
	u, s := env.Session("s"), NewView(timing, env)
	lock, lives := under(timing, "s", "v", 7), alive(timing, "s", "v")
	lock.Heartbeat, lives.Heartbeat = timing.Heartbeat, timing.Heartbeat
	for now := time.Duration(0); now < 4*timing.Lease; now += timing.Refresh {
		lives.Version = now.String()
		lives.Beat = lives.Version
		for v, rec := range map[*View]driver.Record{u: lives, s: lock} {
			v.Polls(now, driver.Strong)
			v.Observe(now, now, driver.Strong, rec, true)
			if next := v.NextPoll(timing.Refresh, timing.Lease) - now; next < timing.Refresh*7/8 || next > timing.Refresh*9/8 {
				t.Fatalf("after %v the following read is due in %v, not in %v", now, next, timing.Refresh)
			}
		}
		if how := s.PollConsistency(now + timing.Lease); how != driver.Eventual {
			t.Errorf("the lock's own record, which counts no beat, is read %v", how)
		}
	}
}

// TestClosedAfterAnOvertakenReply: the strong reply that shows the session of a lock
// alive is overtaken by a reply to another machine of the process. It still shows that
// the holder lived when the acquire had begun. So an orderly closing of the session
// after that is a sign of life.
func TestClosedAfterAnOvertakenReply(t *testing.T) {
	for _, alone := range []bool{true, false} {
		env, _ := seeing(timing)
		u, lives := env.Session("s"), alive(timing, "s", "b")
		u.Observe(0, 0, driver.Strong, lives, true)
		c := NewAcquirer(timing, env, Want{Key: "k", Owner: "me", UnlessAlive: true}, NewView(timing, env))
		now := time.Second
		c.Step(now)
		r := c.Reply(now, conflict(under(timing, "s", "v", 7))).Call
		if r == nil || !looksAt(r) || r.Consistency != driver.Strong {
			t.Fatalf("want a strong read of the session, got %+v", r)
		}
		if !alone {
			u.Observe(now-1, now+1, driver.Strong, asking(lives, "q", driver.Request{ID: "q"}), true)
		}
		r = c.Reply(now+2, found(lives)).Call
		if overtaken := r != nil && looksAt(r); overtaken == alone {
			t.Fatalf("alone %v: sends %+v", alone, r)
		}
		if over := closed(lives, "w", driver.EndReleased); r == nil {
			u.Observe(now+3, now+3, driver.Strong, over, true)
			r = c.Step(now + 4).Call
		} else {
			r = c.Reply(now+4, found(over)).Call
		}
		if refused := c.Refused(); r != nil || refused == nil || !refused.Held {
			t.Errorf("alone %v: sends %+v, and is refused: %+v", alone, r, refused)
		}
	}
}

// TestClosedAfterAnothersReply: only another machine of the process has been shown the
// session alive since the acquire began. If that was a strong reply to a later call, an
// orderly closing after that is a sign of life; if not, it does not show whether the
// holder still lived when the acquire began.
func TestClosedAfterAnothersReply(t *testing.T) {
	const begun = time.Second
	for _, tt := range []struct {
		sent  time.Duration
		how   driver.Consistency
		lived bool
	}{{begun + 1, driver.Strong, true}, {begun + 1, driver.Eventual, false}, {begun - 1, driver.Strong, false}} {
		env, _ := seeing(timing)
		u, lives := env.Session("s"), alive(timing, "s", "b")
		c := NewAcquirer(timing, env, Want{Key: "k", Owner: "me", UnlessAlive: true}, NewView(timing, env))
		c.Step(begun)
		u.Observe(tt.sent, begun+2, tt.how, lives, true)
		r := c.Reply(begun+3, conflict(under(timing, "s", "v", 7))).Call
		if r == nil {
			r = c.Step(begun + 3).Call
		}
		over := closed(lives, "w", driver.EndReleased)
		if r != nil && looksAt(r) {
			r = c.Reply(begun+4, Result{Outcome: NotApplied, Err: errors.New("lost")}).Call
		}
		u.Observe(begun+5, begun+5, driver.Strong, over, true)
		if r == nil {
			r = c.Step(begun + 6).Call
		}
		refused := c.Refused()
		if lived := r == nil && refused != nil && refused.Held; lived != tt.lived {
			t.Errorf("%+v: sends %+v, and is refused: %+v", tt, r, refused)
		}
	}
}

// TestReleasedBeforeItsSessionIsRead: a lock that an acquire has read as held, and that
// is released before the acquire has read the session, has shown life.
func TestReleasedBeforeItsSessionIsRead(t *testing.T) {
	for _, tt := range []struct {
		end   driver.EndReason
		lived bool
	}{{driver.EndReleased, true}, {driver.EndAbandoned, false}} {
		env, _ := seeing(timing)
		view, held := NewView(timing, env), under(timing, "s", "v", 7)
		c := NewAcquirer(timing, env, Want{Key: "k", Owner: "me", UnlessAlive: true}, view)
		const now = time.Second
		c.Step(now)
		if r := c.Reply(now, conflict(held)).Call; r == nil || !looksAt(r) {
			t.Fatalf("want a read of the session, got %+v", r)
		}
		view.Observe(now+1, now+2, driver.Strong, freed(held, "w", tt.end, nil), true)
		r := c.Reply(now+3, found(alive(timing, "s", "b"))).Call
		if r == nil {
			r = c.Step(now + 4).Call
		}
		refused := c.Refused()
		if lived := r == nil && refused != nil && refused.Held; lived != tt.lived {
			t.Errorf("%v: sends %+v, and is refused: %+v", tt.end, r, refused)
		}
	}
}

// looksAt, closes and inquires say what a call is about: a session.
func looksAt(r *Call) bool { return r.Kind == Read && r.OfSession() }

func closes(r *Call) bool { return r.Kind == ForceRelease && r.OfSession() }

func inquires(r *Call) bool {
	return r.Kind == Request && r.OfSession() && r.Next.Requests[len(r.Next.Requests)-1].Kind == driver.Confirm
}

// TestLostDataUnderASession: the engine has lost the data of a lock under a session, whose record
// keeps its beat. The holder's next write, here its release, has them again.
func TestLostDataUnderASession(t *testing.T) {
	_, lock := sessionWithLock(timing)
	before := lock.Record()
	before.Life = "e2"
	serial, a := lock.SetData(0, []byte("late"))
	lock.Reply(0, Result{Outcome: Applied, Found: true, Record: a.Call.Next})
	if n := lock.DataKept(); n != serial {
		t.Fatalf("data %d are stored, want %d", n, serial)
	}
	first := lock.Done(time.Second).Call
	if first == nil || first.Kind != Release {
		t.Fatalf("the work has returned, and the lock sends %+v", first)
	}
	r := lock.Reply(time.Second, Result{Outcome: Conflicted, Found: true, Record: before}).Call
	if r == nil || r.Kind != Release || string(r.Next.Data) != "late" {
		t.Fatalf("after the loss it sends %+v, want the data again", r)
	}
}

// TestSessionInAnotherLife: the engine has begun another life, and a session ends, even if its
// record shows its own beat: a late duplicate of its claim has opened it again, or its heartbeat
// without an answer has survived. Its locks may be lost.
func TestSessionInAnotherLife(t *testing.T) {
	for _, state := range []driver.State{driver.Alive, driver.Closed} {
		for _, outcome := range []Outcome{Applied, Conflicted} {
			rec := alive(timing, "s", "s-1")
			rec.Life = "e1"
			s := NewSessionHolder(timing, counting(), Grant{Record: rec})
			call := s.Step(timing.Heartbeat).Call
			shown := call.Next
			shown.Life, shown.State = "e2", state
			s.Reply(timing.Heartbeat, Result{Outcome: outcome, Found: true, Record: shown})
			if !s.Over() || s.Cause() != Superseded {
				t.Errorf("%s, %v: the session is over: %v, for %v", state, outcome, s.Over(), s.Cause())
			}
		}
	}
}
