// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// shelf is a store of two records, a lock's and its session's. It counts the calls.
type shelf struct {
	lock, session driver.Record
	calls         map[Kind]int
}

// do carries a call out.
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

// TestGhostOfItsOwnSession: a claim that was not answered is applied when the lock was
// claimed anew and has been released again. Nothing under the session knows of it, and
// the session lives. An acquire under the session, one that only tries too, releases
// what nobody holds, and has the lock.
func TestGhostOfItsOwnSession(t *testing.T) {
	for name, want := range map[string]Want{"waits": {}, "tries": {Try: true}, "unless alive": {UnlessAlive: true}} {
		t.Run(name, func(t *testing.T) {
			env, _ := seeing(timing)
			store := &shelf{session: alive(timing, "s", "b")}
			session := NewKeeper(timing, env, Grant{Record: store.session})
			session.Step(0)
			sight := NewSight(timing, env)

			first := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true}, sight)
			late := first.Step(0).Call
			first.Reply(1, Result{Outcome: Unknown, Err: errStore})
			drive(first, timing.Lease/4, store.do)
			g, ok := first.Granted()
			if !ok || g.Record.Version == late.Next.Version {
				t.Fatalf("granted %v: %+v", ok, g.Record)
			}
			lock := NewTied(&timing, &env, g, session)
			if a := lock.Done(1); a.Call == nil || store.do(0, a.Call).Outcome != Applied {
				t.Fatalf("not released: %+v", a.Call)
			} else {
				lock.Reply(1, found(a.Call.Next))
			}
			store.do(0, late) // at last
			if rec := store.lock; rec.State != driver.Held || rec.Session != "s" || rec.Token != g.Record.Token+1 || session.Locks() > 0 {
				t.Fatalf("no ghost: %+v", rec)
			}

			want.Key, want.Owner, want.Under = "k", "us", session
			c := NewContender(timing, env, want, NewSight(timing, env))
			ghost := store.lock
			clear(store.calls)
			drive(c, timing.Lease/4, store.do)
			g, ok = c.Granted()
			if !ok || g.Record.Token != ghost.Token+1 {
				t.Fatalf("granted %v: %+v; the record is %+v", ok, g.Record, store.lock)
			}
			if p := g.Record.Prev; p == nil || p.Token != ghost.Token || p.End != driver.EndAbandoned {
				t.Errorf("the record says of the ghost: %+v", p)
			}
			if store.calls[Claim] != 2 || store.calls[Release] != 1 || store.calls[Look] > 1 {
				t.Errorf("it cost %v", store.calls)
			}
		})
	}
}

// TestNoGhost: what a machine of the session knows of is no ghost, however little it
// knows of it yet. Nobody under the session releases it.
func TestNoGhost(t *testing.T) {
	for name, hold := range map[string]func(s *Keeper, c *Contender, rec driver.Record){
		"held": func(s *Keeper, c *Contender, rec driver.Record) {
			c.Reply(1, found(rec))
			g, _ := c.Granted()
			NewTied(&timing, new(counting()), g, s)
		},
		"granted, and not handed over yet": func(_ *Keeper, c *Contender, rec driver.Record) { c.Reply(1, found(rec)) },
		"claimed, and not answered yet":    func(*Keeper, *Contender, driver.Record) {},
		"claimed, with an outcome unknown": func(_ *Keeper, c *Contender, _ driver.Record) { c.Reply(1, Result{Outcome: Unknown, Err: errStore}) },
		"given up, and not cleaned up yet": func(_ *Keeper, c *Contender, _ driver.Record) { c.GiveUp(1) },
		"given up, with an outcome unknown": func(_ *Keeper, c *Contender, _ driver.Record) {
			c.GiveUp(1)
			c.Reply(1, Result{Outcome: Unknown, Err: errStore})
		},
		"being released": func(s *Keeper, c *Contender, rec driver.Record) {
			c.Reply(1, found(rec))
			g, _ := c.Granted()
			NewTied(&timing, new(counting()), g, s).Done(1)
		},
	} {
		for _, try := range []bool{true, false} {
			env, _ := seeing(timing)
			store := &shelf{session: alive(timing, "s", "b")}
			session := NewKeeper(timing, env, Grant{Record: store.session})
			session.Step(0)
			c := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: session}, NewSight(timing, env))
			store.do(0, c.Step(0).Call)
			hold(session, c, store.lock)
			other := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: try}, NewSight(timing, env))
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

// TestGhostThatIsNotReleased: a store that shows the ghost, and never says what became
// of its release, is not asked again and again; and an acquire with bounded patience
// ends.
func TestGhostThatIsNotReleased(t *testing.T) {
	env, _ := seeing(timing)
	session := NewKeeper(timing, env, Grant{Record: alive(timing, "s", "b")})
	session.Step(0)
	ghost, writes := under(timing, "s", "v", 7), 0
	c := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true, Patience: timing.Lease}, NewSight(timing, env))
	drive(c, 2*timing.Lease, func(_ time.Duration, r *Call) Result {
		switch {
		case r.OfSession():
			return found(alive(timing, "s", "b"))
		case r.Kind == Look:
			return found(ghost)
		case r.Kind == Claim:
			return conflict(ghost)
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

// TestGhostThatIsAskedFor: a request to make way for a lock that nothing under the
// session knows of is answered by giving the lock up. One for a lock that is held goes
// to its lease.
func TestGhostThatIsAskedFor(t *testing.T) {
	for _, kind := range []driver.RequestKind{driver.StepDown, driver.HandOver, driver.Confirm} {
		session, lock := tied(timing)
		at, _ := session.Next()
		r := session.Step(at).Call
		laid := asking(r.Prev, "q1", driver.Request{ID: "q", Kind: kind, Lock: "ghost", Token: 3, To: "x"})
		laid = asking(laid, "q2", driver.Request{ID: "r", Kind: kind, Lock: "k", Token: 7, To: "x"})
		a := session.Reply(at, conflict(laid))
		if len(a.Begin) != 1 || a.Begin[0].(*Disclaimer).Key() != "ghost" {
			t.Fatalf("%s: begins %v", kind, a.Begin)
		}
		if asked := len(a.Wake) == 1 && a.Wake[0] == Machine(lock); asked != honoured(kind) {
			t.Errorf("%s: wakes %v", kind, a.Wake)
		}
		store := &shelf{lock: under(timing, "s", "v", 3), session: laid}
		store.lock.Key = "ghost"
		d := a.Begin[0].(*Disclaimer)
		drive(d, timing.Lease, store.do)
		if !d.Over() || store.lock.State != driver.Released || store.lock.End != driver.EndAbandoned {
			t.Errorf("%s: over %v, the lock is %+v", kind, d.Over(), store.lock)
		}
	}
}

// TestGhostGivenUp: nothing more is sent for it, and the next question begins anew.
func TestGhostGivenUp(t *testing.T) {
	session, _ := tied(timing)
	for _, id := range []string{"q", "r"} {
		q := driver.Request{ID: id, Kind: driver.Confirm, Lock: "ghost", Token: 3}
		at, _ := session.Next()
		r := session.Step(at).Call
		a := session.Reply(at, conflict(asking(r.Prev, r.Next.Version+"q", q)))
		if len(a.Begin) != 1 {
			t.Fatalf("begins %v", a.Begin)
		}
		d := a.Begin[0].(*Disclaimer)
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

// TestGhostThatMadeWay: the release of a ghost finds that the acquire's own claim, of
// unknown outcome until then, was applied after another release of it.
func TestGhostThatMadeWay(t *testing.T) {
	env, _ := seeing(timing)
	session := NewKeeper(timing, env, Grant{Record: alive(timing, "s", "b")})
	session.Step(0)
	c := NewContender(timing, env, Want{Key: "k", Owner: "us", Under: session, Try: true}, NewSight(timing, env))
	claim := c.Step(0).Call
	c.Reply(1, Result{Outcome: Unknown, Err: errStore})
	at, _ := c.Next()
	if r := c.Step(at).Call; r == nil || r.Kind != Look {
		t.Fatalf("want a look, got %+v", r)
	}
	ghost := under(timing, "s", "v", 7)
	if r := c.Reply(at, found(ghost)).Call; r == nil || r.Kind != Release || r.Prev.Version != "v" {
		t.Fatalf("want the ghost released, got %+v", r)
	}
	c.Reply(at, conflict(driver.Claimed(claim.Next, freed(ghost, "w", driver.EndAbandoned, nil), true)))
	if g, ok := c.Granted(); !ok || g.Record.Token != 8 || g.Record.Version != claim.Next.Version {
		t.Errorf("granted %v: %+v", ok, g.Record)
	}
}

// TestDisclaimerAsks: what an acquire of the session has written, and does not
// know of yet, is not released.
func TestDisclaimerAsks(t *testing.T) {
	for _, mine := range []bool{true, false} {
		session := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "b")})
		c := NewContender(timing, counting(), Want{Key: "k", Under: session}, NewSight(timing, counting()))
		if mine {
			c.unknown = attempts{{kind: Claim, version: "v"}}
		}
		d := NewDisclaimer(timing, counting(), session, "k", 7)
		if a := d.Step(0); a.Call == nil || a.Call.Kind != Look || a.Call.Consistency != driver.Strong {
			t.Fatalf("begins with %+v", a.Call)
		}
		a := d.Reply(1, Result{Outcome: Applied, Record: under(timing, "s", "v", 7), Found: true})
		if released := a.Call != nil; released == mine {
			t.Errorf("mine: %v; released: %v", mine, released)
		}
	}
}

// TestDisclaimerRests: a store that shows the lock, and never says what became of its
// release, is not asked again and again.
func TestDisclaimerRests(t *testing.T) {
	timing, writes := Timing{}.WithDefaults(), 0
	lock := under(timing, "s", "v", 7)
	session := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "b")})
	d := NewDisclaimer(timing, counting(), session, "k", 7)
	drive(d, timing.Lease, func(_ time.Duration, r *Call) Result {
		if r.Kind == Look {
			return found(lock)
		}
		writes++
		return Result{Outcome: Unknown, Err: errStore}
	})
	if writes < 3 || writes > 30 {
		t.Errorf("%d writes in a lease", writes)
	}
}

// TestQuestionIsAskedAgain: whether a session holds the lock is asked again after a
// lease where the store has not answered, and after four where it has.
func TestQuestionIsAskedAgain(t *testing.T) {
	for name, outcome := range map[string]Outcome{"answered": Applied, "unknown": Unknown, "not applied": NotApplied} {
		timing, asked := Timing{}.WithDefaults(), 0
		env, _ := seeing(timing)
		sight := NewSight(timing, env)
		sight.Saw(0, 0, driver.Strong, under(timing, "s", "v", 7), true)
		c := NewContender(timing, env, Want{Key: "k", Owner: "other"}, sight)
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

// TestEachTermIsAskedFor: that the session was asked about one term of the lock puts off no
// question about the next.
func TestEachTermIsAskedFor(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	c := NewContender(timing, env, Want{Key: "k", Owner: "other"}, NewSight(timing, env))
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
