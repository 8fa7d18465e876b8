// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// mover is a machine that sends requests.
type mover interface {
	Step(now time.Duration) Action
	Next() (time.Duration, bool)
	Reply(now time.Duration, r Result) Action
}

// drive has a machine send requests until then, each of which takes a millisecond.
func drive(m mover, until time.Duration, answer func(now time.Duration, r *Call) Result) {
	now := time.Duration(0)
	for r := m.Step(now).Call; now < until; {
		if r == nil {
			at, ok := m.Next()
			if !ok {
				return
			}
			now = max(now, at)
			r = m.Step(now).Call
			continue
		}
		now += time.Millisecond
		r = m.Reply(now, answer(now, r)).Call
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
			case r.Kind == Peek:
				return found(session)
			case r.Kind != Inquire:
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
		switch r.Kind {
		case Peek:
			return found(session)
		case Inquire:
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
